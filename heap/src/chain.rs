//! The chain of segments that restores one backend, and which of them the next manifest lists.
//!
//! Owns: the elements in order, with what each segment holds and how many of its records are live; the decision
//! what is listed. Does not own: the bytes of a segment (`lowtide-format`), the counters of live entries (the
//! state maps), whether an object still exists (the registry). Nothing here does I/O or reads a clock.
//!
//! # The rule
//!
//! An element is listed if and only if it holds a live record as of the freeze, or is new.
//!
//! - A **put** is live if it is the record of an entry of the frozen map: these are counted by home, by the maps.
//! - A **tombstone** is live while a listed older element's id lies between the oldest and the newest of the key
//!   it removed, and no newer clear covers it.
//! - A **clear** is live while a listed older element may hold a put or a tombstone of its state in its key
//!   groups, and newer clears do not cover its scope.
//!
//! *Older* and *newer* compare checkpoint ids. Elements of one id (parts of a large checkpoint, a delta and its
//! cold segment, segments of several former subtasks) are neither to each other, and hold disjoint keys.
//!
//! # Why one ascending pass is enough
//!
//! Whether a record is live depends on older elements only, except for the newer clears that cover it. Those are
//! taken from all candidates, listed in the end or not. That changes nothing: let T be a record covered by a
//! clear, and D the newest clear that covers T's key group and scope. If D is not live, then, as nothing newer
//! covers it there, no listed older element holds a record of its state in those key groups; T's own element
//! holds one, so it is not listed either.
//!
//! # Why a rewritten record is still hidden when it must be
//!
//! A cold segment carries old puts under the new id *n*. Three records could disagree with one of them:
//!
//! - A tombstone of its key in the same checkpoint: there is none, because the key was present at the freeze.
//! - A clear in the same checkpoint: an entry in its scope that is present at the freeze was put after the clear,
//!   hence after the base, so it is in the delta and is not rewritten.
//! - A later removal: the newest element that may hold the key is then at least *n*, whether or not checkpoint
//!   *n* has become a base by then, so the interval of the tombstone contains *n*, and it stays live while the
//!   cold segment is listed. Older copies of the put lie between its `born` and *n* as well.
//!
//! Records that a tombstone hides are not live and so never rewritten: matter does not move away from under its
//! antimatter.
//!
//! # Invariants
//!
//! - C1. Ascending: elements are ordered by checkpoint id, and no segment is listed twice.
//! - C2. Counted: the live puts of all elements add up to the entries of the frozen map.
//! - C3. Bounded: no element has more live records than records.
//! - C4. Needed: every element that is not of the chain's own checkpoint has a live record.

#[cfg(test)]
pub(crate) mod exhaustive;
mod facts;
mod listing;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lowtide_format::{CheckpointId, FileId, KeyGroupRange, KeyGroupSet};

pub use facts::{ClearFact, SegmentFacts, SegmentFile, SegmentNumber, StateIndex};
pub use listing::{LivePuts, NextChain};
pub use tally::{SpanCounts, TombstoneSpan, TombstoneTally};

/// Checkpoint ids from the first to the second, both included.
pub type IdInterval = (CheckpointId, CheckpointId);

/// A segment and the key groups for which it is listed, with its live records as of the chain's freeze.
#[derive(Clone, Debug)]
pub struct Element {
    /// What the segment holds in these key groups.
    pub facts: Arc<SegmentFacts>,
    /// The key groups for which it is listed; never widened.
    pub key_groups: KeyGroupSet,
    /// How many entries of the frozen map have their record here.
    pub live_puts: u64,
    /// How many of its tombstones still hide a record in a listed older element.
    pub live_tombstones: u64,
    /// How many of its clears still void records of a listed older element.
    pub live_clears: u64,
    /// The ids of listed older elements that its live tombstones and clears are about, as disjoint intervals,
    /// ascending. While any of them is listed, rewriting puts alone does not empty this element.
    pub matter: Vec<IdInterval>,
}

impl Element {
    /// The checkpoint that wrote the segment.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.facts.checkpoint
    }

    /// All live records: puts, tombstones and clears.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live_puts + self.live_tombstones + self.live_clears
    }

    /// Encoded bytes of its live puts, by the mean size of the segment's puts.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.facts.bytes_of_puts(self.live_puts)
    }
}

/// The elements that restore one backend at one checkpoint, oldest first. Immutable; share it by `Arc`.
#[derive(Clone, Debug)]
pub struct Chain {
    id: CheckpointId,
    elements: Vec<Element>,
}

/// How much room a chain takes, in encoded record bytes before compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainSpace {
    /// Bytes of all records of the listed elements, in the key groups for which they are listed.
    pub retained_bytes: u64,
    /// Bytes of the live puts, by the mean size of a put in each segment.
    pub live_bytes: u64,
}

impl Chain {
    /// The chain of checkpoint `id` with these elements, oldest first: what a restore rebuilds.
    #[must_use]
    pub fn new(id: CheckpointId, elements: Vec<Element>) -> Self {
        let chain = Self { id, elements };
        chain.check_invariants(None);
        chain
    }

    /// The checkpoint that the chain restores.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// The elements, oldest first.
    #[must_use]
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// Whether no element is listed: then no key can have a record, and removals need no tombstone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The smallest id of an element with a live put: every older element is here only for its tombstones or
    /// clears. `None` for a chain without a live put.
    #[must_use]
    pub fn low_tide(&self) -> Option<CheckpointId> {
        self.elements.iter().find(|element| element.live_puts > 0).map(Element::id)
    }

    /// Retained and live bytes. O(elements).
    #[must_use]
    pub fn space(&self) -> ChainSpace {
        let mut space = ChainSpace::default();
        for element in &self.elements {
            space.retained_bytes += element.facts.record_bytes();
            space.live_bytes += element.live_bytes();
        }
        space
    }

    /// Lists a segment for those of its key groups only that lie in a range, which all its records do: whoever restores
    /// others need not read it, and knows the sooner that nothing is to come for them.
    pub(crate) fn narrow(&mut self, segment: SegmentNumber, reach: KeyGroupRange) {
        let own = self.elements.iter_mut().filter(|element| element.facts.number == segment);
        own.for_each(|element| element.key_groups = element.key_groups.intersect(&KeyGroupSet::from(reach)));
    }

    /// Lists segments at other places: their bytes were copied there. Nothing else about them changes.
    pub(crate) fn relocate(&mut self, moved: &[(FileId, SegmentFile)]) {
        if moved.is_empty() {
            return;
        }
        for element in &mut self.elements {
            let Some(file) = &element.facts.file else { continue };
            let place = moved.iter().find(|(id, _)| *id == file.entry.id()).map(|(_, place)| place);
            if let Some(place) = place {
                let file = SegmentFile { summary: file.summary, ..place.clone() };
                element.facts = Arc::new(SegmentFacts { file: Some(file), ..(*element.facts).clone() });
            }
        }
    }

    /// Checks C1, C3 and C4, and C2 if the number of entries of the frozen map is given. O(elements).
    ///
    /// # Panics
    ///
    /// If one does not hold: the accounting is then wrong, and a manifest made from it would lose data.
    pub fn check_invariants(&self, entries: Option<u64>) {
        let ids = self.elements.iter().map(Element::id);
        assert!(ids.is_sorted(), "C1: elements out of order in the chain of {}", self.id);
        let mut numbers: Vec<_> = self.elements.iter().map(|element| element.facts.number).collect();
        numbers.sort_unstable();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "C1: a segment is listed twice in the chain of {}",
            self.id
        );
        if let Some(entries) = entries {
            let live: u64 = self.elements.iter().map(|element| element.live_puts).sum();
            assert_eq!(live, entries, "C2: live puts {live}, entries {entries} in the chain of {}", self.id);
        }
        for element in &self.elements {
            let facts = &element.facts;
            let sound = element.live_puts <= facts.puts
                && element.live_tombstones <= facts.tombstones.count()
                && element.live_clears <= facts.clears.len() as u64;
            assert!(
                sound,
                "C3: segment {} of {} has more live records than records",
                facts.number, facts.checkpoint
            );
            let needed = element.live() > 0 || element.id() >= self.id;
            assert!(
                needed,
                "C4: segment {} of {} is listed without a live record",
                facts.number, facts.checkpoint
            );
        }
    }
}
