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
//! - H19. A key group is ready once no element to come lists it, and nothing is added to it from then on.

mod element;
mod ids;
mod reader;
mod scope;
mod served;
mod walk;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lowtide_format::{CheckpointId, Codec, DecodeLimits, Key, KeyGroupSet, Namespace, SegmentReader, Value};

use crate::backend::{HeapBackend, HeapOptions};
use crate::chain::{Chain, Element, LivePuts, NextChain, SegmentFile, SegmentNumber};
use crate::error::HeapError;
use crate::state::ValueState;

use element::Opened;
use ids::Numbering;
use scope::ClearIndex;
use served::{End, Served};
use walk::{Expected, ShardFilling, Walk};

pub use element::ElementBlocks;
pub(crate) use element::RunTally;
pub(crate) use ids::RunIds;
pub use reader::{RestoreReader, RestoringState, WhenReady};
pub(crate) use scope::RunScope;

/// One element of a chain that is being restored.
#[derive(Clone, Debug)]
pub struct RestoredFile {
    /// Where its segment is.
    pub file: SegmentFile,
    /// The key groups for which the element is listed. Others in the segment are passed over, and so are those that
    /// the new backend does not hold.
    pub key_groups: KeyGroupSet,
}

/// The key groups that are restored. Readers end with it, and keep none of them in memory.
#[derive(Debug)]
struct Serving(Arc<Served>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.end(End::Abandoned);
        self.0.take().for_each(drop);
    }
}

/// Builds a backend from a chain.
///
/// Open states with their types first, so that they are decoded once; a state that is not opened stays bytes, goes
/// into later checkpoints as it is, and is decoded when somebody opens it. Then hand in the elements of the
/// checkpoint, newest first, and finish.
#[derive(Debug)]
pub struct HeapRestore {
    numbering: Numbering,
    id: CheckpointId,
    limits: DecodeLimits,
    /// From the newest to the oldest.
    elements: Vec<Opened>,
    clears: ClearIndex,
    served: Serving,
    /// By key group, how many elements to come list it; `None` if nobody was told.
    to_come: Option<Vec<u32>>,
    /// How many pieces each state has.
    pieces: Vec<Arc<AtomicUsize>>,
    expected: Option<Expected>,
    completed: Vec<CheckpointId>,
}

impl HeapRestore {
    /// Begins to restore checkpoint `id`. No single length that is read is above `limits`.
    #[must_use]
    pub fn new(options: HeapOptions, id: CheckpointId, limits: DecodeLimits) -> Self {
        Self {
            numbering: Numbering::new(HeapBackend::new(options)),
            id,
            limits,
            elements: Vec::new(),
            clears: ClearIndex::default(),
            served: Serving(Arc::new(Served::new(options, id, limits))),
            to_come: None,
            pieces: Vec::new(),
            expected: None,
            completed: Vec::new(),
        }
    }

    /// Tells which checkpoints had completed before the one that is restored, savepoints left out, as far back as that
    /// is known: a bound on age counts them. Without it those count that wrote an element.
    pub fn completed(&mut self, completed: &[CheckpointId]) {
        self.completed.extend_from_slice(completed);
    }

    /// A reader of the key groups that are ready while others are still to come; `to_come` are the key groups for which
    /// each element is listed that will be handed in, in any order.
    ///
    /// A key group that none of them lists is ready at once, every other when the last of those that list it has been
    /// taken, also while the call that brings it still fills others. O(elements · key groups).
    ///
    /// # Errors
    ///
    /// [`HeapError::ReaderTooLate`] after the first element, and for a second reader: clone the first one.
    pub fn reader<'k>(
        &mut self,
        to_come: impl IntoIterator<Item = &'k KeyGroupSet>,
    ) -> Result<RestoreReader, HeapError> {
        if self.to_come.is_some() || !self.elements.is_empty() {
            return Err(HeapError::ReaderTooLate { checkpoint: self.id });
        }
        let served = &self.served.0;
        let own = KeyGroupSet::from(served.range);
        let mut counts = vec![0_u32; served.len()];
        for key_groups in to_come {
            for key_group in key_groups.intersect(&own).iter() {
                if let Some(count) = counts.get_mut(served.shard_of(key_group)?) {
                    *count += 1;
                }
            }
        }
        let ready = counts.iter().enumerate().filter(|(_, count)| **count == 0);
        ready.for_each(|(shard, _)| served.mark_ready(shard));
        self.to_come = Some(counts);
        Ok(RestoreReader::new(Arc::clone(served)))
    }

    /// Tells about how many entries there will be, in how many states, so that tables are made as large as they will
    /// have to be. A wrong number costs time, or memory in proportion to the puts that are read.
    pub fn expect(&mut self, entries: u64, states: usize) {
        self.expected = Some(Expected { entries, alone: states == 1 });
    }

    /// Opens a value state before its entries come. See [`HeapBackend::value_state`].
    ///
    /// # Errors
    ///
    /// As [`HeapBackend::value_state`], and [`HeapError::StateRead`] if entries of it have come already.
    pub fn value_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        self.check_unread(name)?;
        self.numbering.backend().value_state(name)
    }

    /// Opens a value state whose values are encoded by `codec`. See [`HeapBackend::value_state_with`].
    ///
    /// # Errors
    ///
    /// As [`value_state`](Self::value_state).
    pub fn value_state_with<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
        codec: Arc<dyn Codec<V>>,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        self.check_unread(name)?;
        self.numbering.backend().value_state_with(name, codec)
    }

    fn check_unread(&mut self, name: &str) -> Result<(), HeapError> {
        match self.numbering.backend().index_of_untyped(name) {
            Some(state) if self.served.0.each(|shard| shard.has(state)).any(|has| has) => {
                Err(HeapError::StateRead { name: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Takes some elements, newest first, none of them newer than one before; on the threads of rayon's pool if they
    /// are large, key groups in parallel. The more elements come together, the longer the tables of a key group stay in
    /// the processor's caches.
    ///
    /// Cost: O(records); one table look-up for each put.
    ///
    /// # Errors
    ///
    /// [`HeapError::ElementOrder`]; [`HeapError::ElementUnexpected`] if a [`reader`](Self::reader) was not told of an element;
    /// [`HeapError::StateTypeMismatch`] if a state was opened with other types;
    /// [`HeapError::Segment`] for a damaged block or record and [`HeapError::Record`] for a part that is no encoding of
    /// its type, both naming the object. The restore is of no use after an error: drop it.
    pub fn elements(&mut self, elements: &[ElementBlocks<'_>]) -> Result<(), HeapError> {
        let taken = self.take(elements);
        if taken.is_err() {
            self.served.0.end(End::Abandoned);
        }
        taken
    }

    fn take(&mut self, elements: &[ElementBlocks<'_>]) -> Result<(), HeapError> {
        let first = self.elements.len();
        for element in elements {
            let opened = Opened::new(self, &element.file, element.reader.footer());
            let opened = opened.map_err(|error| error.in_object(element.object()))?;
            let facts = &opened.facts;
            self.count_down(&opened)?;
            facts.clears.iter().for_each(|fact| self.clears.add(facts.checkpoint, fact));
            self.announce(element, &opened);
            self.elements.push(opened);
        }
        let Self { numbering, limits, elements: all, clears, served, to_come, expected, .. } = self;
        let range = numbering.backend().range();
        let opened = all.get_mut(first..).unwrap_or_default();
        let share = |all: Expected| {
            let mean = all.entries / u64::from(range.len());
            Expected { entries: mean + 4 * mean.isqrt(), ..all }
        };
        let walk = Walk {
            elements,
            opened,
            clears,
            numbering,
            limits: *limits,
            first_group: range.start(),
            expected: expected.map(share),
            served: &served.0,
            to_come: to_come.as_deref(),
        };
        let tallies = walk.run()?;
        for (opened, tally) in opened.iter_mut().zip(tallies) {
            opened.live_puts = tally.live_puts;
            opened.facts.tombstones = tally.tombstones;
        }
        Ok(())
    }

    /// Restores an element whose whole file is in memory.
    ///
    /// # Errors
    ///
    /// As [`elements`](Self::elements).
    pub fn segment(&mut self, file: RestoredFile, bytes: &[u8]) -> Result<(), HeapError> {
        let reader = SegmentReader::open(bytes, self.limits)?;
        self.elements(&[ElementBlocks::whole(file, &reader, bytes)?])
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.served.0.each(|shard| shard.entries() as u64).sum()
    }

    /// Live puts of each element so far, from the newest to the oldest.
    pub fn live_puts(&self) -> impl ExactSizeIterator<Item = u64> {
        self.elements.iter().map(|opened| opened.live_puts)
    }

    /// The backend, with the restored checkpoint as the base of its next one.
    ///
    /// # Panics
    ///
    /// If the counts of entries and of live records disagree (C2), or an element of which a reader was told did not come
    /// (H19).
    #[must_use]
    pub fn finish(self) -> HeapBackend {
        let Self { numbering, id, elements, completed, served, to_come, .. } = self;
        let all_came = to_come.iter().flatten().all(|elements| *elements == 0);
        assert!(all_came, "H19: elements that a reader of {id} was told of did not come");
        let mut backend = numbering.into_backend();
        for (state, filling) in served.0.take().flat_map(ShardFilling::into_states) {
            backend.adopt(state, filling);
        }
        let key_groups = KeyGroupSet::from(backend.range());
        let mut live = LivePuts::new();
        let mut listed = Vec::with_capacity(elements.len());
        for Opened { facts, key_groups, live_puts, .. } in elements.into_iter().rev() {
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
        served.0.end(End::Restored);
        backend
    }
}

impl HeapRestore {
    /// One element fewer is to come for its key groups.
    fn count_down(&mut self, opened: &Opened) -> Result<(), HeapError> {
        let Some(to_come) = &mut self.to_come else { return Ok(()) };
        for key_group in opened.key_groups.iter() {
            match to_come.get_mut(self.served.0.shard_of(key_group)?) {
                Some(count) if *count > 0 => *count -= 1,
                _ => return Err(HeapError::ElementUnexpected { found: opened.facts.checkpoint, key_group }),
            }
        }
        Ok(())
    }

    /// Tells the key groups of an element what will come.
    fn announce(&mut self, element: &ElementBlocks<'_>, opened: &Opened) {
        let backend = self.numbering.backend();
        let first = usize::from(backend.range().start().0);
        let blocks = element.blocks.iter().map(|(entry, _)| *entry);
        for run in blocks.flat_map(|entry| element.reader.footer().runs(entry)) {
            let state = opened.states.get(usize::from(run.state)).copied();
            let Some(state) = state.filter(|_| opened.key_groups.contains(run.key_group)) else { continue };
            let shard = usize::from(run.key_group.0) - first;
            if self.pieces.len() <= usize::from(state.0) {
                self.pieces.resize_with(usize::from(state.0) + 1, Arc::default);
            }
            let new = || backend.filling(state, shard, self.pieces.get(usize::from(state.0))?);
            if let Some(mut shard) = self.served.0.fill(shard) {
                shard.announce(state, run, new);
            }
        }
    }

    fn next_number(&self) -> SegmentNumber {
        SegmentNumber(self.elements.len() as u32)
    }

    fn newest_so_far(&self) -> CheckpointId {
        self.elements.last().map_or(self.id, |opened| opened.facts.checkpoint)
    }
}

#[cfg(test)]
mod tests;
