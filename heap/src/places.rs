//! Where the entries of some segments are in the tables, so that emptying a segment needs no look at every entry.
//!
//! Owns: places, noted when a writer went through everything anyway. Does not own: whether an entry still lies there
//! and belongs to the segment: whoever uses a place looks again.
//!
//! Places of a piece that was rebuilt since, and of a shard whose pieces split, are worth nothing; that part is then
//! gone through as a whole.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::chain::{SegmentNumber, StateIndex};
use crate::prefetch::prefetch_shared;

/// The places of one segment's entries in one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardPlaces {
    /// How often the shard's list of pieces had changed.
    pub(crate) changes: u64,
    /// Pieces: number in the list, how often rebuilt, where their buckets end.
    pieces: Vec<(u32, u32, u32)>,
    buckets: Vec<u16>,
    /// Whether a place could not be noted.
    incomplete: bool,
}

/// Some buckets of one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiecePlaces<'a> {
    /// The piece's number in the list of its shard.
    pub(crate) piece: usize,
    /// How often it had been rebuilt.
    pub(crate) rebuilds: u32,
    pub(crate) buckets: &'a [u16],
}

impl ShardPlaces {
    /// No places yet, in a shard whose list of pieces has changed so often.
    pub(crate) fn as_of(changes: u64) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Notes a bucket; those of one piece come one after the other.
    pub(crate) fn note(&mut self, piece: usize, rebuilds: u32, bucket: usize) {
        let (Ok(piece), Ok(bucket)) = (u32::try_from(piece), u16::try_from(bucket)) else {
            self.incomplete = true;
            return;
        };
        self.buckets.push(bucket);
        let end = self.buckets.len() as u32;
        match self.pieces.last_mut() {
            Some((last, _, last_end)) if *last == piece => *last_end = end,
            _ => self.pieces.push((piece, rebuilds, end)),
        }
    }

    /// Forgets what was noted of a piece, the last one: it is gone through anew.
    pub(crate) fn forget(&mut self, piece: usize) {
        if self.pieces.last().is_some_and(|(last, _, _)| *last as usize == piece) {
            self.pieces.pop();
            let end = self.pieces.last().map_or(0, |(_, _, end)| *end);
            self.buckets.truncate(end as usize);
        }
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = PiecePlaces<'_>> {
        let mut start = 0;
        self.pieces.iter().map(move |(piece, rebuilds, end)| {
            let buckets = self.buckets.get(start..*end as usize).unwrap_or_default();
            start = *end as usize;
            PiecePlaces { piece: *piece as usize, rebuilds: *rebuilds, buckets }
        })
    }
}

/// The places of one segment's entries, by state and shard.
pub(crate) type SegmentPlaces = HashMap<(StateIndex, usize), ShardPlaces>;

/// The segments whose entries can be found; shared by a backend and its writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    segments: Arc<Mutex<HashMap<SegmentNumber, Arc<SegmentPlaces>>>>,
}

impl Places {
    /// Asks for the index.
    pub(crate) fn prefetch(&self) {
        prefetch_shared(&self.segments);
    }

    /// The segments whose entries can be found, ascending; those that `is_listed` does not know are forgotten.
    pub(crate) fn indexed(&self, is_listed: impl Fn(SegmentNumber) -> bool) -> Vec<SegmentNumber> {
        let mut segments = self.segments.lock();
        segments.retain(|segment, _| is_listed(*segment));
        let mut indexed: Vec<_> = segments.keys().copied().collect();
        indexed.sort_unstable();
        indexed
    }

    /// The places of the entries of all these segments; `None` if those of one are not known.
    pub(crate) fn of(&self, wanted: &[SegmentNumber]) -> Option<Vec<Arc<SegmentPlaces>>> {
        let segments = self.segments.lock();
        wanted.iter().map(|segment| segments.get(segment).map(Arc::clone)).collect()
    }

    /// A pass is done: what it noted takes the place of what was known of these segments. A victim of which nothing
    /// is left to do, or not all could be noted, is known no more.
    pub(crate) fn replace(&self, noted: impl Iterator<Item = (SegmentNumber, SegmentPlaces)>) {
        let is_of_use = |places: &SegmentPlaces| {
            places.values().all(|shard| !shard.incomplete)
                && places.values().any(|shard| !shard.buckets.is_empty())
        };
        let mut segments = self.segments.lock();
        for (segment, places) in noted {
            if is_of_use(&places) {
                segments.insert(segment, Arc::new(places));
            } else {
                segments.remove(&segment);
            }
        }
    }
}
