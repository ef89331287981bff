//! Where the records of unchanged entries are in the chain of the base, as of the freeze: by counters alone.
//!
//! Owns: counts by segment. Does not own: the counters of labels (`origins`) and rewrites (`overlay`), which it reads.

use std::sync::Arc;

use hashbrown::HashMap;

use super::SnapshotParts;
use crate::chain::{LivePuts, SegmentNumber};
use crate::epochs::Epoch;
use crate::lineage::BaseFacts;
use crate::origins::{Label, Part};
use crate::overlay::{MarkedBy, Outcome, Source};

/// The counts of a snapshot with a base.
pub(super) struct Moves<'a> {
    parts: &'a SnapshotParts,
    /// What earlier rewrites in the base's chain came to, by their epochs.
    pub(super) earlier: Vec<(Epoch, Arc<Outcome>)>,
    live: HashMap<Home, i64>,
}

/// Where entries are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Home {
    Segment(SegmentNumber),
    /// Not in the chain any more: rewrites moved all of them.
    Gone {
        state: usize,
        label: Label,
        part: Part,
    },
}

impl<'a> Moves<'a> {
    /// Counts. O(labels · parts).
    pub(super) fn of(parts: &'a SnapshotParts) -> Self {
        let mut moves = Self { parts, earlier: Vec::new(), live: HashMap::new() };
        let Some(base) = &parts.base else { return moves };
        moves.count_labels(base);
        moves.count_rewrites(base);
        moves
    }

    fn count_labels(&mut self, base: &BaseFacts) {
        for (state, frozen) in self.parts.states.iter().enumerate() {
            for (label, origin, counts) in frozen.origins().rows() {
                if origin.home.is_none() && origin.version > base.epoch {
                    continue;
                }
                for (part, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let source = Source { rewrites: MarkedBy::new(), label, part: Part(part) };
                    *self.live.entry(self.home_of(state, &source)).or_default() += i64::from(*count);
                }
            }
        }
    }

    fn count_rewrites(&mut self, base: &BaseFacts) {
        for (index, state) in self.parts.states.iter().enumerate() {
            for (epoch, outcome, counts) in state.rewrites().moved(&base.rewrites, index) {
                if !self.earlier.iter().any(|(known, _)| *known == epoch) {
                    self.earlier.push((epoch, Arc::clone(&outcome)));
                    self.earlier.sort_by_key(|(epoch, _)| *epoch);
                }
                for (source, count) in counts {
                    let from = self.home_of(index, &source);
                    if let Some(to) = outcome.target.of_part(source.part) {
                        *self.live.entry(from).or_default() -= i64::from(count);
                        *self.live.entry(Home::Segment(to)).or_default() += i64::from(count);
                    }
                }
            }
        }
    }

    /// Where the records of entries of a source are.
    fn home_of(&self, state: usize, source: &Source) -> Home {
        let (label, part) = (source.label, source.part);
        self.segment_of(state, source).map_or(Home::Gone { state, label, part }, Home::Segment)
    }

    fn segment_of(&self, state: usize, source: &Source) -> Option<SegmentNumber> {
        match source.rewrites.last() {
            Some(rewrite) => {
                let (_, outcome) = self.earlier.iter().find(|(epoch, _)| epoch == rewrite)?;
                outcome.target.of_part(source.part)
            }
            None => {
                let origin = self.parts.states.get(state)?.origins().get(source.label)?;
                self.parts.base.as_ref()?.written.homes.find(origin, source.part)
            }
        }
    }

    /// Live puts by segment of the base's chain.
    pub(super) fn live_puts(&self) -> LivePuts {
        let mut live = LivePuts::new();
        for (home, count) in &self.live {
            match home {
                Home::Segment(segment) => {
                    debug_assert!(*count >= 0, "H17: segment {segment} counts fewer than no entries");
                    live.add(*segment, u64::try_from(*count).unwrap_or(0));
                }
                Home::Gone { label, .. } => {
                    debug_assert!(*count == 0, "C2: {count} entries of label {} have no home", label.0);
                }
            }
        }
        live
    }

    /// How many entries were written again from each segment.
    pub(super) fn sources_of(&self, again: &Outcome) -> LivePuts {
        let mut sources = LivePuts::new();
        for (index, counts) in again.of_states.iter().enumerate() {
            for (source, count) in counts {
                if let Some(segment) = self.segment_of(index, source) {
                    sources.add(segment, u64::from(*count));
                }
            }
        }
        sources
    }
}
