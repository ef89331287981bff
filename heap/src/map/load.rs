//! Restored entries on their way into a state map, and a map of bytes on its way into a typed one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lowtide_format::{DecodeLimits, FormatError, StateDescriptor};

use super::{Place, StateMap};
use crate::codecs::{Raw, StateCodecs};
use crate::epochs::Epoch;
use crate::filling::{AnyFilling, Filling, FillingParts};
use crate::handover::Stamp;
use crate::ledger::Ledger;

use crate::origins::Origins;
use crate::piece::{LoadedOrigin, Slot};
use crate::turn::Turn;

impl<K, N, V> StateMap<K, N, V>
where
    K: Clone + Eq + Send + Sync + 'static,
    N: Clone + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// What the entries of a shard are collected in while they are restored.
    fn filling(&self, shard: usize, pieces: Arc<AtomicUsize>, turn: &Turn) -> Filling<K, N, V> {
        Filling::new(FillingParts { fixed: Arc::clone(&self.fixed), shard, interval: turn.interval, pieces })
    }

    /// Takes over the entries of a shard, which has none. O(pieces).
    fn adopt(&mut self, filling: Filling<K, N, V>, turn: &Turn) {
        let filled = filling.finish();
        let part = self.fixed.layout.part_of(filled.shard);
        let (origins, _) = self.ledger.open();
        filled.labels.iter().for_each(|(label, entries)| origins.add(*label, part, *entries));
        self.len += filled.entries;
        self.shards.adopt(filled, turn);
    }

    fn insert_loaded(&mut self, place: Place, slot: Slot<K, N, V>, origin: &LoadedOrigin, turn: &Turn) {
        let fixed = Arc::clone(&self.fixed);
        let hash_of = |slot: &Slot<K, N, V>| Self::hash_of_slot(&*fixed.codecs, slot);
        let Some(number) = self.shards.make_room(place, turn, hash_of) else { return };
        // Nothing is owed while a map is being loaded: no snapshot of it exists.
        if let Some(piece) = self.shards.free_piece(number, turn) {
            piece.insert_restored(place.hash, slot, origin);
            self.len += 1;
        }
    }

    pub(crate) fn origins_mut(&mut self) -> &mut Origins {
        self.ledger.open().0
    }
}

impl StateMap<Raw, Raw, Raw> {
    /// The same state with its types. What open snapshots want of this map is set aside for them. O(entries).
    ///
    /// # Errors
    ///
    /// If a part cannot be decoded; this map is as before.
    pub(crate) fn typed<K, N, V>(
        &mut self,
        descriptor: Arc<StateDescriptor>,
        codecs: Arc<dyn StateCodecs<K, N, V>>,
        turn: &Turn,
    ) -> Result<StateMap<K, N, V>, FormatError>
    where
        K: Clone + Eq + Send + Sync + 'static,
        N: Clone + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let mut typed = StateMap::new(descriptor, codecs, self.fixed.layout);
        let limits = DecodeLimits { bytes_max: u64::MAX };
        self.surrender(turn);
        let (origins, rewrites) = self.ledger.open();
        typed.ledger = Ledger::new(origins.clone(), rewrites.clone());
        for (_, piece) in self.shards.pieces() {
            for bucket in piece.occupied().ones() {
                let Some(slot) = piece.slot(bucket) else { continue };
                let key = typed.fixed.codecs.decode_key(slot.key.bytes(), limits)?;
                let namespace = typed.fixed.codecs.decode_namespace(slot.namespace.bytes(), limits)?;
                let value = typed.fixed.codecs.decode_value(slot.value.bytes(), limits)?;
                let place = Self::place_of_slot(&*self.fixed.codecs, slot);
                typed.insert_loaded(place, Slot { key, namespace, value }, &piece.origin(bucket), turn);
            }
        }
        Ok(typed)
    }
}

/// A [`StateMap`] of any types, as the backend keeps it.
pub(crate) trait AnyState: Send + Sync + 'static {
    fn descriptor(&self) -> &Arc<StateDescriptor>;
    fn len(&self) -> usize;
    fn origins_left(&self) -> usize;
    fn freeze(&mut self, facts: super::FreezeFacts<'_>, turn: &Turn) -> Box<dyn super::Frozen>;
    /// Asks for what a freeze needs.
    fn prefetch(&self);
    fn filling(&self, shard: usize, pieces: Arc<AtomicUsize>, turn: &Turn) -> Box<dyn AnyFilling>;
    /// Takes over what a [`filling`](Self::filling) of this state holds; one of other types is dropped.
    fn adopt(&mut self, filling: Box<dyn AnyFilling>, turn: &Turn);
    fn origins_mut(&mut self) -> &mut Origins;
    /// A rewrite that is in the chain of every possible base; `state` is the state's own index.
    fn settle(&mut self, epoch: Epoch, at: Stamp, state: usize);
    /// A rewrite that is in no chain which may become a base.
    fn forget_rewrite(&mut self, epoch: Epoch);
    /// Gives a few pieces the labels that settled rewrites have for their entries.
    fn tidy(&mut self, pieces: usize, turn: &Turn);
    /// Lets go of snapshots that want no more.
    fn forget_closed(&mut self);
    fn held(&self) -> usize;
    fn memory_bytes(&self) -> usize;
    fn buckets(&self) -> usize;
    fn check_invariants(&self);
}

impl<K, N, V> AnyState for StateMap<K, N, V>
where
    K: Clone + Eq + Send + Sync + 'static,
    N: Clone + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn descriptor(&self) -> &Arc<StateDescriptor> {
        self.descriptor()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn origins_left(&self) -> usize {
        self.ledger.view().left()
    }

    fn freeze(&mut self, facts: super::FreezeFacts<'_>, turn: &Turn) -> Box<dyn super::Frozen> {
        Box::new(self.freeze(facts, turn))
    }

    fn prefetch(&self) {
        self.prefetch();
    }

    fn filling(&self, shard: usize, pieces: Arc<AtomicUsize>, turn: &Turn) -> Box<dyn AnyFilling> {
        Box::new(self.filling(shard, pieces, turn))
    }

    fn adopt(&mut self, filling: Box<dyn AnyFilling>, turn: &Turn) {
        if let Ok(filling) = filling.into_any().downcast::<Filling<K, N, V>>() {
            self.adopt(*filling, turn);
        }
    }

    fn origins_mut(&mut self) -> &mut Origins {
        self.origins_mut()
    }

    fn settle(&mut self, epoch: Epoch, at: Stamp, state: usize) {
        let (origins, rewrites) = self.ledger.open();
        rewrites.settle(epoch, at, state, origins);
    }

    fn forget_rewrite(&mut self, epoch: Epoch) {
        self.ledger.rewrites_mut().forget(epoch);
    }

    fn tidy(&mut self, pieces: usize, turn: &Turn) {
        self.tidy(pieces, turn);
    }

    fn forget_closed(&mut self) {
        self.forget_closed();
    }

    fn held(&self) -> usize {
        self.held()
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn buckets(&self) -> usize {
        self.shards.pieces().map(|(_, piece)| piece.buckets()).sum()
    }

    fn check_invariants(&self) {
        self.check_invariants();
        self.shards.pieces().for_each(|(_, piece)| piece.removals().check_invariants());
    }
}
