//! Restored entries on their way into a state map, and a map of bytes on its way into a typed one.

use std::any::Any;
use std::sync::Arc;

use lowtide_format::{DecodeLimits, FormatError, KeyGroup, StateDescriptor};

use super::{Place, StateMap};
use crate::codecs::{EncodedEntry, Raw, StateCodecs};
use crate::epochs::Epoch;
use crate::handover::Stamp;
use crate::ledger::Ledger;
use crate::lineage::Settlement;
use crate::origins::{Label, Origins};
use crate::overlay::MarkedBy;
use crate::piece::{LoadedOrigin, Slot};
use crate::turn::Turn;

/// A restored put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded<'a> {
    pub(crate) entry: EncodedEntry<'a>,
    /// The group in whose run the record lay.
    pub(crate) key_group: KeyGroup,
    pub(crate) label: Label,
    pub(crate) born: Epoch,
}

impl<K, N, V> StateMap<K, N, V>
where
    K: Clone + Eq + Send + Sync + 'static,
    N: Clone + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Adds a restored entry unless its key is there already; tells whether it was added.
    ///
    /// # Errors
    ///
    /// If the parts cannot be decoded, or the key does not belong to the group of its run.
    pub(crate) fn load(
        &mut self,
        loaded: Loaded<'_>,
        turn: &Turn,
        limits: DecodeLimits,
    ) -> Result<bool, FormatError> {
        let (key, namespace, value) = self.codecs.decode(loaded.entry, limits)?;
        let key_hash = self.codecs.key_hash(&key);
        if lowtide_format::key_group(key_hash, self.layout.count) != loaded.key_group {
            return Err(FormatError::Invalid {
                part: "block",
                problem: "a key lies in another key group than its own",
            });
        }
        let place = self.place(key_hash, self.codecs.namespace_hash(&namespace));
        if !self.holds(place) {
            return Ok(false);
        }
        if self.find(place, |it| it.key == key && it.namespace == namespace).is_some() {
            return Ok(false);
        }
        let origin = LoadedOrigin { label: loaded.label, born: loaded.born, marks: MarkedBy::new() };
        self.insert_loaded(place, Slot { key, namespace, value }, &origin, turn);
        self.origins.open(&self.rewrites).add(origin.label, self.layout.part_of(place.shard), 1);
        Ok(true)
    }

    fn insert_loaded(&mut self, place: Place, slot: Slot<K, N, V>, origin: &LoadedOrigin, turn: &Turn) {
        let codecs = Arc::clone(&self.codecs);
        let hash_of = |slot: &Slot<K, N, V>| Self::hash_of_slot(&*codecs, slot);
        let Some(number) = self.shards.make_room(place, turn, hash_of) else { return };
        // Nothing is owed while a map is being loaded: no snapshot of it exists.
        let owner = self.shards.owner_mut(number).and_then(|owner| owner.write(&turn.clock));
        if let Some(piece) = owner {
            piece.insert_restored(place.hash, slot, origin);
            self.len += 1;
        }
    }

    pub(crate) fn origins_mut(&mut self) -> &mut Origins {
        self.origins.open(&self.rewrites)
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
        let mut typed = StateMap::new(descriptor, codecs, self.layout);
        let limits = DecodeLimits { bytes_max: u64::MAX };
        self.surrender(turn);
        typed.origins = Ledger::new(self.origins.open(&self.rewrites).clone());
        typed.rewrites = self.rewrites.clone();
        for (shard, piece) in self.shards.pieces() {
            for bucket in piece.occupied().ones() {
                let Some(slot) = piece.slot(bucket) else { continue };
                let entry = encoded(slot);
                let (key, namespace, value) = typed.codecs.decode(entry, limits)?;
                let place = Place { shard, hash: Self::hash_of_slot(&*self.codecs, slot) };
                typed.insert_loaded(place, Slot { key, namespace, value }, &piece.origin(bucket), turn);
            }
        }
        Ok(typed)
    }
}

fn encoded(slot: &Slot<Raw, Raw, Raw>) -> EncodedEntry<'_> {
    EncodedEntry { key: slot.key.bytes(), namespace: slot.namespace.bytes(), value: slot.value.bytes() }
}

/// A [`StateMap`] of any types, as the backend keeps it.
pub(crate) trait AnyState: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn descriptor(&self) -> &Arc<StateDescriptor>;
    fn len(&self) -> usize;
    fn origins_left(&self) -> usize;
    fn freeze(&mut self, facts: super::FreezeFacts<'_>, turn: &Turn) -> Box<dyn super::Frozen>;
    fn load(&mut self, loaded: Loaded<'_>, turn: &Turn, limits: DecodeLimits) -> Result<bool, FormatError>;
    fn origins_mut(&mut self) -> &mut Origins;
    /// Rewrites that are in the chain of every possible base, and in none; `state` is the state's own index.
    fn settle(&mut self, settlement: &Settlement, at: Stamp, state: usize);
    /// Gives a few pieces the labels that settled rewrites have for their entries.
    fn tidy(&mut self, pieces: usize, turn: &Turn);
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
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn descriptor(&self) -> &Arc<StateDescriptor> {
        self.descriptor()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn origins_left(&self) -> usize {
        self.origins.view().left()
    }

    fn freeze(&mut self, facts: super::FreezeFacts<'_>, turn: &Turn) -> Box<dyn super::Frozen> {
        Box::new(self.freeze(facts, turn))
    }

    fn load(&mut self, loaded: Loaded<'_>, turn: &Turn, limits: DecodeLimits) -> Result<bool, FormatError> {
        self.load(loaded, turn, limits)
    }

    fn origins_mut(&mut self) -> &mut Origins {
        self.origins_mut()
    }

    fn settle(&mut self, settlement: &Settlement, at: Stamp, state: usize) {
        for epoch in &settlement.settled {
            let origins = self.origins.open(&self.rewrites);
            self.rewrites.settle(*epoch, at, state, origins);
        }
        settlement.forgotten.iter().for_each(|epoch| self.rewrites.forget(*epoch));
    }

    fn tidy(&mut self, pieces: usize, turn: &Turn) {
        self.tidy(pieces, turn);
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
