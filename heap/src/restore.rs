//! Rebuilds a backend from the elements of a chain, newest first.
//!
//! Owns: which records are void (by a newer put, tombstone or clear), the homes and births of what is restored, the
//! facts of the restored elements. Does not own: fetching and unpacking blocks (the caller and `lowtide-format`).
//!
//! Newest first, so that each key is inserted once: a record of a key that is there already, or that a newer
//! tombstone or clear hides, is passed over. Elements of one id hide nothing of each other.
//!
//! # Invariants
//!
//! - H16. A restored entry's home is the element that held its record, and the restored checkpoint is the first base:
//!   the next checkpoint is a delta.

mod element;

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use lowtide_format::{
    CheckpointId, Codec, DecodeLimits, Key, KeyGroup, KeyGroupSet, Namespace, SegmentFooter, Value,
};

use crate::backend::{HeapBackend, HeapOptions};
use crate::chain::{
    Chain, ClearFact, Element, LivePuts, NextChain, SegmentFacts, SegmentFile, SegmentNumber, StateIndex,
};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::state::ValueState;

pub use element::ElementRestore;

/// One element of a chain that is being restored.
#[derive(Clone, Debug)]
pub struct RestoredFile {
    /// Where its segment is.
    pub file: SegmentFile,
    /// The key groups for which the element is listed. Others in the segment are passed over, and so are those that
    /// the new backend does not hold.
    pub key_groups: KeyGroupSet,
}

/// A clear, as far as the state and namespace it is filed under do not tell.
#[derive(Clone, Debug)]
struct DatedClear {
    checkpoint: CheckpointId,
    key_groups: KeyGroupSet,
}

/// The clears of the elements so far.
#[derive(Clone, Debug, Default)]
struct ClearIndex {
    all: HashMap<StateIndex, Vec<DatedClear>>,
    of_namespace: HashMap<StateIndex, HashMap<Arc<[u8]>, Vec<DatedClear>>>,
}

impl ClearIndex {
    fn add(&mut self, checkpoint: CheckpointId, fact: &ClearFact) {
        let list = match &fact.namespace {
            None => self.all.entry(fact.state).or_default(),
            Some(namespace) => {
                let of_state = self.of_namespace.entry(fact.state).or_default();
                of_state.entry(Arc::clone(namespace)).or_default()
            }
        };
        list.push(DatedClear { checkpoint, key_groups: fact.key_groups.clone() });
    }

    /// Whether a clear newer than `checkpoint` covers a record.
    fn covers(&self, state: StateIndex, namespace: &[u8], at: (KeyGroup, CheckpointId)) -> bool {
        let (key_group, checkpoint) = at;
        let of_namespace = self.of_namespace.get(&state).and_then(|of_state| of_state.get(namespace));
        let clears = self.all.get(&state).into_iter().chain(of_namespace).flatten();
        clears.filter(|clear| clear.checkpoint > checkpoint).any(|clear| clear.key_groups.contains(key_group))
    }
}

/// Builds a backend from a chain.
///
/// Open states with their types first, so that they are decoded once; a state that is not opened stays bytes, goes
/// into later checkpoints as it is, and is decoded when somebody opens it. Then hand in the elements of the
/// checkpoint, newest first, and finish.
#[derive(Debug)]
pub struct HeapRestore {
    backend: HeapBackend,
    id: CheckpointId,
    limits: DecodeLimits,
    epochs: HashMap<CheckpointId, Epoch>,
    /// From the newest to the oldest.
    elements: Vec<(SegmentFacts, KeyGroupSet, u64)>,
    clears: ClearIndex,
    /// Keys that a tombstone hides in everything older.
    removed: HashSet<(StateIndex, Box<[u8]>)>,
    completed: Vec<CheckpointId>,
}

impl HeapRestore {
    /// Begins to restore checkpoint `id`. No single length that is read is above `limits`.
    #[must_use]
    pub fn new(options: HeapOptions, id: CheckpointId, limits: DecodeLimits) -> Self {
        Self {
            backend: HeapBackend::new(options),
            id,
            limits,
            epochs: HashMap::new(),
            elements: Vec::new(),
            clears: ClearIndex::default(),
            removed: HashSet::new(),
            completed: Vec::new(),
        }
    }

    /// Tells which checkpoints had completed before the one that is restored, savepoints left out, as far back as that
    /// is known: a bound on age counts them. Without it those count that wrote an element.
    pub fn completed(&mut self, completed: &[CheckpointId]) {
        self.completed.extend_from_slice(completed);
    }

    /// Opens a value state before its entries come. See [`HeapBackend::value_state`].
    ///
    /// # Errors
    ///
    /// As [`HeapBackend::value_state`].
    pub fn value_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        self.backend.value_state(name)
    }

    /// Opens a value state whose values are encoded by `codec`. See [`HeapBackend::value_state_with`].
    ///
    /// # Errors
    ///
    /// As [`HeapBackend::value_state`].
    pub fn value_state_with<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
        codec: Arc<dyn Codec<V>>,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        self.backend.value_state_with(name, codec)
    }

    /// Begins the next element, whose footer has been read; its blocks follow.
    ///
    /// # Errors
    ///
    /// [`HeapError::ElementOrder`] if it is newer than the one before or than the checkpoint;
    /// [`HeapError::StateTypeMismatch`] if a state was opened with other types.
    pub fn begin<'a>(
        &'a mut self,
        file: RestoredFile,
        footer: &'a SegmentFooter,
    ) -> Result<ElementRestore<'a>, HeapError> {
        ElementRestore::new(self, file, footer)
    }

    /// Restores an element whose whole file is in memory.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin) and [`ElementRestore::block`].
    pub fn segment(&mut self, file: RestoredFile, bytes: &[u8]) -> Result<(), HeapError> {
        let reader = lowtide_format::SegmentReader::open(bytes, self.limits)?;
        let mut element = self.begin(file, reader.footer())?;
        let wanted = element.key_groups().clone();
        reader.visit(bytes, &wanted, |run, record| element.record(run, record))?;
        element.finish();
        Ok(())
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.backend.figures().entries
    }

    /// The backend, with the restored checkpoint as the base of its next one.
    ///
    /// # Panics
    ///
    /// If the counts of entries and of live records disagree (C2).
    #[must_use]
    pub fn finish(self) -> HeapBackend {
        let Self { mut backend, id, elements, completed, .. } = self;
        let key_groups = KeyGroupSet::from(backend.range());
        let mut live = LivePuts::new();
        let mut listed = Vec::with_capacity(elements.len());
        for (facts, key_groups, live_puts) in elements.into_iter().rev() {
            live.add(facts.number, live_puts);
            let (live_tombstones, live_clears) = (facts.tombstones.count(), facts.clears.len() as u64);
            let (facts, matter) = (Arc::new(facts), Vec::new());
            let element = Element { facts, key_groups, live_puts, live_tombstones, live_clears, matter };
            // In fewer key groups than before, an element may hold nothing.
            if element.live() > 0 || element.id() == id {
                listed.push(element);
            }
        }
        let base = Chain::new(id, listed);
        let request = NextChain {
            id,
            base: Some(&base),
            live: &live,
            rewritten: &LivePuts::new(),
            new: &[],
            key_groups: &key_groups,
        };
        let chain = Chain::next(&request);
        chain.check_invariants(Some(backend.figures().entries));
        backend.begin_life(chain, completed);
        backend
    }
}

impl HeapRestore {
    /// The epoch that stands for an id, numbered at its first use.
    fn epoch_of(&mut self, id: CheckpointId) -> Epoch {
        *self.epochs.entry(id).or_insert_with(|| self.backend.number_epoch(id))
    }

    fn next_number(&self) -> SegmentNumber {
        SegmentNumber(self.elements.len() as u32)
    }

    fn newest_so_far(&self) -> CheckpointId {
        self.elements.last().map_or(self.id, |(facts, _, _)| facts.checkpoint)
    }
}

#[cfg(test)]
mod tests;
