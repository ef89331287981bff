//! Writes unchanged entries again whose segments are to be emptied.
//!
//! Owns: finding them, and marking them as written again. Does not own: which segments are emptied (`rewrite`), what
//! becomes of their homes (`overlay`).
//!
//! An entry is taken only if it is as it was at the freeze: nobody sets it aside for a rewrite. One that the owner
//! changed in the meantime keeps its old segment in this manifest, and leaves it with the next delta.

use std::sync::atomic::{AtomicU64, Ordering};

use lowtide_format::RecordRun;

use super::freeze::BATCH;
use super::{FrozenMap, WriteContext};
use crate::chain::{SegmentNumber, StateIndex, TombstoneTally};
use crate::encode::{Age, Encoder, EncoderParts, Named};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::lineage::BaseFacts;
use crate::origins::{Label, Part};
use crate::overlay::{MarkedBy, Outcome, Source, SourceCounts, marked_by};
use crate::piece::Labelling;
use crate::shard::PieceReader;

/// What one snapshot writes again.
pub(crate) struct RewritePass<'a> {
    pub(crate) epoch: Epoch,
    pub(crate) base: &'a BaseFacts,
    /// What earlier rewrites in the base's chain moved, by their epochs.
    pub(crate) earlier: &'a [(Epoch, std::sync::Arc<Outcome>)],
    pub(crate) victims: &'a [SegmentNumber],
    pub(crate) budget: &'a Budget,
}

/// How much may still be written again.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    /// For the last victim, which may be emptied in part only.
    left_of_last: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes: u64, of_last: u64) -> Self {
        Self { left: AtomicU64::new(bytes), left_of_last: AtomicU64::new(of_last) }
    }

    fn allows(&self, is_last: bool) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        left > 0 && (!is_last || self.left_of_last.load(Ordering::Relaxed) > 0)
    }

    fn spend(&self, bytes: u64, is_last: bool) {
        let spend = |left: &AtomicU64| {
            let _ = left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        };
        spend(&self.left);
        if is_last {
            spend(&self.left_of_last);
        }
    }
}

impl RewritePass<'_> {
    /// The victim that a segment is, by its place in the plan.
    fn victim(&self, segment: SegmentNumber) -> Option<usize> {
        self.victims.iter().position(|victim| *victim == segment)
    }

    /// The segment that holds the record of entries that an earlier rewrite moved.
    fn target_of(&self, rewrite: Epoch, part: Part) -> Option<SegmentNumber> {
        let (_, outcome) = self.earlier.iter().find(|(epoch, _)| *epoch == rewrite)?;
        outcome.target.of_part(part)
    }
}

/// How far a piece has been looked through.
#[derive(Default)]
struct Cursor {
    bucket: usize,
    rebuilds: u32,
}

/// One shard being looked through.
struct Search<'a> {
    pass: &'a RewritePass<'a>,
    part: Part,
    /// By label: the victim that holds such entries.
    victims: Vec<Option<usize>>,
    found: SourceCounts,
}

impl<K, N, V> FrozenMap<K, N, V> {
    pub(super) fn rewrite_pieces(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        pass: &RewritePass<'_>,
        run: &mut RecordRun,
    ) -> Result<SourceCounts, HeapError> {
        let part = self.layout.part_of(shard);
        let mut search =
            Search { pass, part, victims: self.victims_of(part, pass), found: SourceCounts::new() };
        let Some(listing) = self.listings.get(shard) else { return Ok(search.found) };
        let moved =
            pass.base.rewrites.iter().any(|epoch| {
                pass.target_of(*epoch, part).is_some_and(|segment| pass.victim(segment).is_some())
            });
        if !moved && search.victims.iter().all(Option::is_none) {
            return Ok(search.found);
        }
        let mut tally = TombstoneTally::new();
        let mut encoder = Encoder::new(EncoderParts {
            codecs: &*self.codecs,
            resolver: context.resolver,
            tombstones: context.tombstones,
            state,
            name: &self.descriptor.name,
            run,
            tally: &mut tally,
        });
        loop {
            let visit = listing.visit(self.open.stamp, None);
            for piece in &visit.pieces {
                let mut cursor = Cursor::default();
                while !self.rewrite_batch(piece, &mut cursor, &mut search, (&mut encoder, context))? {
                    if (context.cancelled)() {
                        return Err(HeapError::Cancelled);
                    }
                }
            }
            if listing.changes() == visit.changes {
                return Ok(search.found);
            }
        }
    }

    /// By label: the victim that holds such entries of a part.
    fn victims_of(&self, part: Part, pass: &RewritePass<'_>) -> Vec<Option<usize>> {
        let homes = &pass.base.written.homes;
        let victim = |(_, origin, counts): (Label, &crate::origins::Origin, &[u32])| {
            let old = origin.home.is_some() || origin.version <= pass.base.epoch;
            let lives = counts.get(part.0).is_some_and(|count| *count > 0);
            let home = if old && lives { homes.find(origin, part) } else { None };
            home.and_then(|segment| pass.victim(segment))
        };
        self.origins.rows().map(victim).collect()
    }

    /// Writes up to [`BATCH`] entries of a piece again; returns whether that was all.
    fn rewrite_batch(
        &self,
        reader: &PieceReader<K, N, V>,
        cursor: &mut Cursor,
        search: &mut Search<'_>,
        (encoder, context): (&mut Encoder<'_, K, N, V>, &WriteContext<'_>),
    ) -> Result<bool, HeapError> {
        let Some(mut guard) = reader.lock(self.open.stamp) else { return Ok(true) };
        let (piece, gate) = guard.parts();
        if cursor.rebuilds != piece.rebuilds() {
            *cursor = Cursor { bucket: 0, rebuilds: piece.rebuilds() };
        }
        let pass = search.pass;
        let view = Labelling { origins: &self.origins, rewrites: &self.rewrites, part: search.part };
        let unmarked = piece.marks().is_empty() && gate.marks().is_empty();
        let changed = piece.changed_around(pass.epoch, pass.base.epoch);
        let (first, mut left) = (cursor.bucket, BATCH);
        let mut marks = MarkedBy::new();
        while left > 0 && cursor.bucket < piece.buckets() {
            let bucket = cursor.bucket;
            cursor.bucket += 1;
            if !unmarked || !gate.marks().is_empty() {
                marks = marked_by(&[piece.marks(), gate.marks()], bucket);
            }
            if changed.contains(bucket) {
                continue;
            }
            let label = piece.label_by(bucket, &self.origins);
            let Some((victim, source)) = search.candidate(label, &marks, view) else { continue };
            let last = victim + 1 == pass.victims.len();
            if marks.contains(&pass.epoch) || !pass.budget.allows(last) {
                continue;
            }
            let Some(slot) = piece.slot(bucket) else { continue };
            let age = Age { version: piece.version(bucket, view, gate.marks()), born: piece.born(bucket) };
            let before = encoder.run.len();
            encoder.put(Named::of(slot), &slot.value, age)?;
            pass.budget.spend((encoder.run.len() - before) as u64, last);
            gate.mark(pass.epoch, bucket);
            *search.found.entry(source).or_default() += 1;
            left -= 1;
        }
        context.counters.add_buckets_scanned((cursor.bucket - first) as u64);
        Ok(cursor.bucket >= piece.buckets())
    }
}

impl Search<'_> {
    /// The victim that holds the record of an entry, and where that makes the entry come from.
    #[inline]
    fn candidate(&self, label: Label, marks: &[Epoch], view: Labelling<'_>) -> Option<(usize, Source)> {
        let part = self.part;
        let (mut label, mut rewrites) = (label, MarkedBy::new());
        if !marks.is_empty() {
            label = view.rewrites.label(label, part, marks);
            rewrites = view.rewrites.path(marks, &self.pass.base.rewrites);
        }
        let victim = match rewrites.last() {
            Some(rewrite) => self.pass.victim(self.pass.target_of(*rewrite, part)?)?,
            None => self.victims.get(usize::from(label.0)).copied().flatten()?,
        };
        Some((victim, Source { rewrites, label, part }))
    }
}
