//! Writes unchanged entries again whose segments are to be emptied.
//!
//! Owns: finding them, and marking them as written again. Does not own: which segments are emptied (`rewrite`), what
//! becomes of their homes (`overlay`).
//!
//! An entry is taken only if it is as it was at the freeze: nobody sets it aside for a rewrite. One that the owner
//! changed in the meantime keeps its old segment in this manifest, and leaves it with the next delta.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lowtide_format::RecordRun;

use super::freeze::BATCH;
use super::{FrozenMap, WriteContext};
use crate::chain::{SegmentNumber, StateIndex, TombstoneTally};
use crate::encode::{Age, Encoder, EncoderParts, Named};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::lineage::BaseFacts;
use crate::listing::{Listing, PieceReader};
use crate::origins::{Label, Origin, Part};
use crate::overlay::{MarkedBy, Outcome, Source, SourceCounts, marked_by};
use crate::piece::Labelling;
use crate::places::{PiecePlaces, SegmentPlaces, ShardPlaces};

/// What one snapshot writes again.
pub(crate) struct RewritePass<'a> {
    pub(crate) epoch: Epoch,
    pub(crate) base: &'a BaseFacts,
    /// What earlier rewrites in the base's chain moved, by their epochs.
    pub(crate) earlier: &'a [(Epoch, Arc<Outcome>)],
    /// The segments to empty, and after them those whose entries are to be noted.
    pub(crate) wanted: &'a [SegmentNumber],
    /// How many of them are to be emptied.
    pub(crate) victims: usize,
    /// The places of the victims' entries, if all are known.
    pub(crate) places: Option<&'a [Arc<SegmentPlaces>]>,
    pub(crate) budget: &'a Budget,
}

/// What was done in one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardRewrite {
    /// The entries that were written again, by where they came from.
    pub(crate) again: SourceCounts,
    /// The places of entries of the wanted segments, in their order: of victims those that the budget refused.
    pub(crate) noted: Vec<ShardPlaces>,
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

    fn is_spent(&self, is_last: bool) -> bool {
        let spent = |left: &AtomicU64| left.load(Ordering::Relaxed) == 0;
        spent(&self.left) || (is_last && spent(&self.left_of_last))
    }

    /// Takes so many bytes, if they are left: the budget is never exceeded, not even by one record.
    fn take(&self, bytes: u64, is_last: bool) -> bool {
        let take = |left: &AtomicU64| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
        };
        if !take(&self.left) {
            return false;
        }
        let taken = !is_last || take(&self.left_of_last);
        if !taken {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }
}

impl RewritePass<'_> {
    /// The place of a segment among the wanted ones.
    fn wanted(&self, segment: SegmentNumber) -> Option<usize> {
        self.wanted.iter().position(|wanted| *wanted == segment)
    }

    /// The segment that holds the record of entries that an earlier rewrite moved.
    fn target_of(&self, rewrite: Epoch, part: Part) -> Option<SegmentNumber> {
        let (_, outcome) = self.earlier.iter().find(|(epoch, _)| *epoch == rewrite)?;
        outcome.target.of_part(part)
    }
}

/// A piece, with how far it has been looked through.
struct Visited<'a, K, N, V> {
    reader: &'a PieceReader<K, N, V>,
    /// Its number in the list of the shard.
    piece: usize,
    /// The buckets to look at; `None` for all.
    listed: Option<&'a [u16]>,
    next: usize,
    rebuilds: Option<u32>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// There is more to look at.
    More,
    /// Everything was looked at.
    Done,
    /// The piece was rebuilt, so the listed buckets mean nothing.
    Rebuilt,
}

/// One shard being looked through.
struct Search<'a> {
    pass: &'a RewritePass<'a>,
    part: Part,
    /// By label: the wanted segment that holds such entries.
    wanted: Vec<Option<usize>>,
    done: ShardRewrite,
}

/// What entries are written with.
type Out<'a, 'e, 'c, K, N, V> = (&'a mut Encoder<'e, K, N, V>, &'a WriteContext<'c>);

impl<K, N, V> FrozenMap<K, N, V> {
    pub(super) fn rewrite_pieces(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        pass: &RewritePass<'_>,
        run: &mut RecordRun,
    ) -> Result<ShardRewrite, HeapError> {
        let part = self.fixed.layout.part_of(shard);
        let changes = self.fixed.listings.get(shard).map_or(0, |listing| listing.changes());
        let noted = vec![ShardPlaces::as_of(changes); pass.wanted.len()];
        let done = ShardRewrite { again: SourceCounts::new(), noted };
        let mut search = Search { pass, part, wanted: self.wanted_of(part, pass), done };
        let Some(listing) = self.fixed.listings.get(shard) else { return Ok(search.done) };
        let moved = |epoch: &Epoch| pass.target_of(*epoch, part).and_then(|segment| pass.wanted(segment));
        if search.wanted.iter().all(Option::is_none)
            && pass.base.rewrites.iter().all(|it| moved(it).is_none())
        {
            return Ok(search.done);
        }
        let mut tally = TombstoneTally::new();
        let mut encoder = Encoder::new(EncoderParts {
            codecs: &*self.fixed.codecs,
            resolver: context.resolver,
            tombstones: context.tombstones,
            state,
            name: &self.fixed.descriptor.name,
            run,
            tally: &mut tally,
        });
        let mut out = (&mut encoder, context);
        if let Some(places) = pass.places {
            let here: Vec<&ShardPlaces> =
                places.iter().filter_map(|places| places.get(&(state, shard))).collect();
            if self.rewrite_places(listing, &here, &mut search, &mut out)? {
                return Ok(search.done);
            }
        }
        self.rewrite_all(listing, &mut search, &mut out)?;
        Ok(search.done)
    }

    /// Looks at the known places; returns whether that was enough.
    fn rewrite_places(
        &self,
        listing: &Listing<K, N, V>,
        places: &[&ShardPlaces],
        search: &mut Search<'_>,
        out: &mut Out<'_, '_, '_, K, N, V>,
    ) -> Result<bool, HeapError> {
        let changes = listing.changes();
        for places in places {
            if places.changes != changes {
                return Ok(false);
            }
            for PiecePlaces { piece, rebuilds, buckets } in places.pieces() {
                let Some(reader) = listing.piece(piece) else { return Ok(false) };
                let (listed, rebuilds) = (Some(buckets), Some(rebuilds));
                let known = Visited { reader: &reader, piece, listed, next: 0, rebuilds };
                if self.rewrite_piece(known, search, out)? == Batch::Rebuilt {
                    let whole = Visited { reader: &reader, piece, listed: None, next: 0, rebuilds: None };
                    self.rewrite_piece(whole, search, out)?;
                }
            }
        }
        Ok(listing.changes() == changes)
    }

    /// Looks at everything.
    fn rewrite_all(
        &self,
        listing: &Listing<K, N, V>,
        search: &mut Search<'_>,
        out: &mut Out<'_, '_, '_, K, N, V>,
    ) -> Result<(), HeapError> {
        loop {
            let visit = listing.visit(self.open.stamp, None);
            for places in &mut search.done.noted {
                *places = ShardPlaces::as_of(visit.changes);
            }
            for (piece, reader) in visit.pieces.iter().enumerate() {
                let whole = Visited { reader, piece, listed: None, next: 0, rebuilds: None };
                self.rewrite_piece(whole, search, out)?;
            }
            if listing.changes() == visit.changes {
                return Ok(());
            }
        }
    }

    fn rewrite_piece(
        &self,
        mut visited: Visited<'_, K, N, V>,
        search: &mut Search<'_>,
        out: &mut Out<'_, '_, '_, K, N, V>,
    ) -> Result<Batch, HeapError> {
        loop {
            match self.rewrite_batch(&mut visited, search, out)? {
                Batch::More if (out.1.cancelled)() => return Err(HeapError::Cancelled),
                Batch::More => {}
                end => return Ok(end),
            }
        }
    }

    /// By label: the wanted segment that holds such entries of a part.
    fn wanted_of(&self, part: Part, pass: &RewritePass<'_>) -> Vec<Option<usize>> {
        let homes = &pass.base.written.homes;
        let wanted = |(_, origin, counts): (Label, &Origin, &[u32])| {
            let old = origin.home.is_some() || origin.version <= pass.base.epoch;
            let lives = counts.get(part.0).is_some_and(|count| *count > 0);
            let home = if old && lives { homes.find(origin, part) } else { None };
            home.and_then(|segment| pass.wanted(segment))
        };
        self.counted().rows().map(wanted).collect()
    }

    /// Writes up to [`BATCH`] entries of a piece again.
    fn rewrite_batch(
        &self,
        visited: &mut Visited<'_, K, N, V>,
        search: &mut Search<'_>,
        (encoder, context): &mut Out<'_, '_, '_, K, N, V>,
    ) -> Result<Batch, HeapError> {
        let Some(mut guard) = visited.reader.lock(self.open.stamp) else { return Ok(Batch::Done) };
        let (piece, gate) = guard.parts();
        let rebuilds = piece.rebuilds();
        if visited.rebuilds.is_some_and(|known| known != rebuilds) {
            if visited.listed.is_some() {
                return Ok(Batch::Rebuilt);
            }
            visited.next = 0;
            search.done.noted.iter_mut().for_each(|places| places.forget(visited.piece));
        }
        visited.rebuilds = Some(rebuilds);
        let pass = search.pass;
        let view = Labelling { origins: &self.origins, rewrites: &self.rewrites, part: search.part };
        let unmarked = piece.marks().is_empty() && gate.marks().is_empty();
        let changed = piece.changed_around(pass.epoch, pass.base.epoch);
        let (first, mut left) = (visited.next, BATCH);
        let end = visited.listed.map_or(piece.buckets(), <[u16]>::len);
        let mut marks = MarkedBy::new();
        while left > 0 && visited.next < end {
            let listed = visited.listed.map(|listed| listed.get(visited.next).copied().unwrap_or_default());
            let bucket = listed.map_or(visited.next, usize::from);
            visited.next += 1;
            if changed.contains(bucket) {
                continue;
            }
            if !unmarked || !gate.marks().is_empty() {
                marks = marked_by(&[piece.marks(), gate.marks()], bucket);
            }
            let label = piece.label_by(bucket, &self.origins);
            let Some((wanted, source)) = search.candidate(label, &marks, view) else { continue };
            let Some(slot) = piece.slot(bucket) else { continue };
            if wanted >= pass.victims {
                search.note(wanted, visited.piece, (rebuilds, bucket));
                continue;
            }
            let last = wanted + 1 == pass.victims;
            if marks.contains(&pass.epoch) {
                continue;
            }
            let age = Age { version: piece.version(bucket, view, gate.marks()), born: piece.born(bucket) };
            let written = !pass.budget.is_spent(last)
                && encoder
                    .put_if(Named::of(slot), &slot.value, age, |bytes| pass.budget.take(bytes, last))?;
            if !written {
                search.note(wanted, visited.piece, (rebuilds, bucket));
                continue;
            }
            gate.mark(pass.epoch, bucket);
            *search.done.again.entry(source).or_default() += 1;
            left -= 1;
        }
        context.counters.add_buckets_scanned((visited.next - first) as u64);
        Ok(if visited.next < end { Batch::More } else { Batch::Done })
    }
}

impl Search<'_> {
    /// Notes the place of an entry for another time.
    fn note(&mut self, wanted: usize, piece: usize, (rebuilds, bucket): (u32, usize)) {
        if let Some(places) = self.done.noted.get_mut(wanted) {
            places.note(piece, rebuilds, bucket);
        }
    }

    /// The wanted segment that holds the record of an entry, and where that makes the entry come from.
    #[inline]
    fn candidate(&self, label: Label, marks: &[Epoch], view: Labelling<'_>) -> Option<(usize, Source)> {
        let part = self.part;
        let (mut label, mut rewrites) = (label, MarkedBy::new());
        if !marks.is_empty() {
            label = view.rewrites.label(label, part, marks);
            rewrites = view.rewrites.path(marks, &self.pass.base.rewrites);
        }
        let wanted = match rewrites.last() {
            Some(rewrite) => self.pass.wanted(self.pass.target_of(*rewrite, part)?)?,
            None => self.wanted.get(usize::from(label.0)).copied().flatten()?,
        };
        Some((wanted, Source { rewrites, label, part }))
    }
}
