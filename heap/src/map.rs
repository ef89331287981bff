//! One named state: all its key groups in this backend, with their counts and open snapshots.
//!
//! Owns: shards, labels and counts, the clears since the base, the list of snapshots that writes must respect.
//! Does not own: what a write must know about time (`turn`).
//!
//! Each method that changes an entry marks it before the change can be seen, and no `&mut V` leaves it.

mod batch;
mod change;
mod freeze;
mod load;
mod rewriting;
mod upkeep;

use std::sync::Arc;

use lowtide_format::{KeyGroupCount, KeyGroupRange, StateDescriptor};

use crate::clears::Clears;
use crate::codecs::{StateCodecs, place_hash};
use crate::handover::Stamp;
use crate::ledger::Ledger;
use crate::listing::{Listing, PieceOwner};
use crate::open::Open;
use crate::origins::{Origins, PARTS_MAX, Part};
use crate::overlay::Rewrites;
use crate::piece::Slot;
use crate::shards::Shards;

pub(crate) use batch::BATCH;
pub(crate) use freeze::{FreezeFacts, Frozen, FrozenMap, SettleRun, ShardOutput, WriteContext};
pub(crate) use load::AnyState;
pub(crate) use rewriting::{Budget, RewritePass, ShardRewrite};

/// Which key groups a backend holds, and how many there are in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) range: KeyGroupRange,
    pub(crate) count: KeyGroupCount,
}

impl Layout {
    /// Into how many parts the shards are cut.
    pub(crate) fn parts(self) -> usize {
        (self.range.len() as usize).min(PARTS_MAX)
    }

    /// The part of a shard.
    #[inline]
    pub(crate) fn part_of(self, shard: usize) -> Part {
        Part(shard * self.parts() / self.range.len() as usize)
    }
}

/// Where an entry is or would be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Tells the key group.
    pub(crate) key_hash: u64,
    /// Tells everything else.
    pub(crate) hash: u64,
}

impl Place {
    /// The place of a key; there is nothing at it if its key group is not ours.
    #[inline]
    pub(crate) fn new(key_hash: u64, namespace_hash: u64) -> Self {
        Self { key_hash, hash: place_hash(key_hash, namespace_hash) }
    }
}

/// What never changes of a state. All its snapshots share it, and a freeze has one count to raise for it.
pub(crate) struct Fixed<K, N, V> {
    pub(crate) descriptor: Arc<StateDescriptor>,
    pub(crate) codecs: Arc<dyn StateCodecs<K, N, V>>,
    pub(crate) layout: Layout,
    /// By shard.
    pub(crate) listings: Vec<Arc<Listing<K, N, V>>>,
}

/// All entries of one named state of a backend.
pub(crate) struct StateMap<K, N, V> {
    fixed: Arc<Fixed<K, N, V>>,
    shards: Shards<K, N, V>,
    ledger: Ledger,
    len: usize,
    opens: Vec<Arc<Open<K, N, V>>>,
    clears: Clears<N>,
    /// Pieces that were cleared, to be dropped one by one.
    discarded: Vec<PieceOwner<K, N, V>>,
    /// Whether a listing may hold detached pieces.
    detached: bool,
    /// The number of the piece that is tidied next.
    next_tidied: usize,
}

impl<K, N, V> StateMap<K, N, V> {
    pub(crate) fn new(
        descriptor: Arc<StateDescriptor>,
        codecs: Arc<dyn StateCodecs<K, N, V>>,
        layout: Layout,
    ) -> Self {
        let shards = Shards::new(layout);
        let listings = shards.listings().map(Arc::clone).collect();
        Self {
            fixed: Arc::new(Fixed { descriptor, codecs, layout, listings }),
            shards,
            ledger: Ledger::new(Origins::new(layout.parts()), Rewrites::default()),
            len: 0,
            opens: Vec::new(),
            clears: Clears::default(),
            discarded: Vec::new(),
            detached: false,
            next_tidied: 0,
        }
    }

    pub(crate) fn descriptor(&self) -> &Arc<StateDescriptor> {
        &self.fixed.descriptor
    }

    pub(crate) fn layout(&self) -> Layout {
        self.fixed.layout
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the key group of a place is ours.
    #[inline]
    pub(crate) fn holds(&self, place: Place) -> bool {
        self.shards.holds(place)
    }

    /// The entry at a place that `is_it`. Takes no lock.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        place: Place,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<&Slot<K, N, V>> {
        self.shards.behind(self.shards.door_of(place))?.find(place.hash, is_it)
    }

    /// All entries, by key group, in no order within one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<K, N, V>> {
        self.shards.pieces().flat_map(|(_, piece)| piece.iter())
    }

    fn place_of_slot(codecs: &dyn StateCodecs<K, N, V>, slot: &Slot<K, N, V>) -> Place {
        Place::new(codecs.key_hash(&slot.key), codecs.namespace_hash(&slot.namespace))
    }

    fn hash_of_slot(codecs: &dyn StateCodecs<K, N, V>, slot: &Slot<K, N, V>) -> u64 {
        Self::place_of_slot(codecs, slot).hash
    }

    /// The oldest freeze that still wants something.
    fn oldest_open(&self) -> Option<Stamp> {
        self.opens.iter().filter(|open| !open.is_closed()).map(|open| open.stamp).min()
    }

    /// Lets go of snapshots that want no more.
    pub(crate) fn forget_closed(&mut self) {
        self.opens.retain(|open| !open.is_closed());
    }

    /// Bytes of memory of tables and what stands beside them; not what keys and values own. O(pieces).
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shards.memory_bytes()
    }

    /// Records held for open snapshots.
    pub(crate) fn held(&self) -> usize {
        self.opens.iter().map(|open| open.held()).sum()
    }

    /// Checks H2 and what the shards check. O(entries).
    pub(crate) fn check_invariants(&self) {
        let entries: usize = self.shards.pieces().map(|(_, piece)| piece.len()).sum();
        assert_eq!(entries, self.len, "H2: entries in the pieces, and as counted");
        assert_eq!(self.ledger.view().total(), self.len as u64, "H2: counts of labels, and entries");
        self.shards.check_invariants(|slot| Self::place_of_slot(&*self.fixed.codecs, slot));
    }
}
