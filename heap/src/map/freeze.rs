//! One named state as of a freeze: what a writer needs of it, whatever its types.

use std::sync::{Arc, OnceLock};

use lowtide_format::{Clear, FormatError, KeyGroupSet, RecordRun, StateDescriptor};

use super::rewriting::{RewritePass, ShardRewrite};
use super::{Fixed, StateMap};
use crate::chain::{ClearFact, StateIndex, TombstoneTally};
use crate::clears::Clears;
use crate::encode::{BucketsToPut, Encoder, EncoderParts, Named, Resolver, Tombstones};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::handover::Stamp;
use crate::ledger::{Cut, SharedOrigins};
use crate::listing::{Listing, PieceReader};
use crate::open::Open;
use crate::origins::{Origins, Part};
use crate::overlay::{RewriteStart, Rewrites};
use crate::piece::Labelling;
use crate::prefetch::{TOGETHER, prefetch_shared};
use crate::turn::{Counters, Turn};

/// How many records a writer encodes before it lets the owner at the piece again.
pub(super) const BATCH: usize = 64;

/// So many snapshots that want no more may be remembered until a freeze lets go of them: seldom, as others do it outside
/// the pause.
const CLOSED_MAX: usize = 8;

/// What a state is told at a freeze.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreezeFacts<'a> {
    pub(crate) stamp: Stamp,
    pub(crate) base: Option<Epoch>,
    /// The checkpoint, if the freeze ends the interval.
    pub(crate) cut: Option<lowtide_format::CheckpointId>,
    /// If entries may be written again.
    pub(crate) rewrite: Option<&'a RewriteStart>,
}

/// One state as of a freeze.
pub(crate) struct FrozenMap<K, N, V> {
    pub(super) open: Arc<Open<K, N, V>>,
    pub(super) fixed: Arc<Fixed<K, N, V>>,
    pub(super) origins: Arc<SharedOrigins>,
    /// The same with all changes counted, if `origins` are behind and somebody has asked.
    counted: OnceLock<Box<Origins>>,
    pub(super) rewrites: Rewrites,
    clears: Clears<N>,
    entries: usize,
}

/// What a shard is written with.
pub(crate) struct ShardOutput<'a> {
    pub(crate) run: &'a mut RecordRun,
    pub(crate) tally: &'a mut TombstoneTally,
    /// Takes over what is settled of the run, again and again, if somebody does.
    pub(crate) settle: Option<&'a mut SettleRun<'a>>,
}

/// Takes over what is settled of a run.
pub(crate) type SettleRun<'s> = dyn FnMut(&mut RecordRun) -> Result<(), HeapError> + 's;

/// A run is handed over once it has so many bytes: they are then in the processor's caches still.
const SETTLED_BYTES_MIN: usize = 256 << 10;

/// What all shards of a snapshot are written with.
pub(crate) struct WriteContext<'a> {
    pub(crate) resolver: &'a Resolver,
    pub(crate) tombstones: Tombstones,
    pub(crate) counters: &'a Counters,
    /// Asked between two batches.
    pub(crate) cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// A [`FrozenMap`] of any types.
pub(crate) trait Frozen: Send + Sync {
    fn descriptor(&self) -> &Arc<StateDescriptor>;
    fn entries(&self) -> usize;
    fn origins(&self) -> &Origins;
    fn rewrites(&self) -> &Rewrites;
    /// Writes what one shard owes to the snapshot.
    fn write_shard(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        output: ShardOutput<'_>,
    ) -> Result<(), HeapError>;
    /// Writes the entries of one shard again whose segments are to be emptied; returns what was done.
    fn rewrite_shard(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        pass: &RewritePass<'_>,
        run: &mut RecordRun,
    ) -> Result<ShardRewrite, HeapError>;
    /// No more entries of shards below `shard` are written again.
    fn rewritten_below(&self, shard: usize);
    /// The clears after `base`, as records and as facts.
    fn clears(&self, base: Epoch, state: StateIndex) -> Result<Vec<(Clear, ClearFact)>, HeapError>;
    /// The snapshot wants no more.
    fn close(&self);
}

impl<K, N, V> StateMap<K, N, V>
where
    K: Clone + Eq + Send + Sync + 'static,
    N: Clone + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Asks for what [`freeze`](Self::freeze) finds outside the map itself.
    pub(crate) fn prefetch(&self) {
        prefetch_shared(&self.fixed);
        self.clears.prefetch();
        self.ledger.prefetch();
        self.opens.iter().for_each(prefetch_shared);
    }

    /// The synchronous phase: touches no entry and no shard.
    pub(crate) fn freeze(&mut self, facts: FreezeFacts<'_>, turn: &Turn) -> FrozenMap<K, N, V> {
        if self.opens.len() >= CLOSED_MAX {
            self.forget_closed();
        }
        self.clears.forget_through(turn.floor);
        if self.detached {
            let oldest = self.oldest_open();
            self.fixed.listings.iter().for_each(|listing| listing.forget_detached(oldest));
            self.detached = oldest.is_some();
        }
        let open = Arc::new(Open::new(facts.stamp, facts.base, facts.rewrite.is_some()));
        self.opens.push(Arc::clone(&open));
        let rewrites = self.ledger.rewrites().frozen();
        let cut = facts.cut.map(|id| Cut { id, after: facts.base });
        let origins = self.ledger.freeze(cut);
        if let Some(start) = facts.rewrite {
            self.ledger.rewrites_mut().begin(start);
        }
        FrozenMap {
            open,
            fixed: Arc::clone(&self.fixed),
            origins,
            counted: OnceLock::new(),
            rewrites,
            clears: self.clears.clone(),
            entries: self.len,
        }
    }
}

impl<K, N, V> FrozenMap<K, N, V> {
    /// The labels with counts. O(labels · parts) at the first call, which the pause is spared.
    pub(super) fn counted(&self) -> &Origins {
        if self.origins.is_counted() {
            return &self.origins;
        }
        self.counted.get_or_init(|| {
            let mut origins = Box::new(Origins::clone(&self.origins));
            origins.catch_up();
            origins
        })
    }

    /// Writes up to [`BATCH`] records that a piece owes; returns whether that was all.
    fn write_batch(
        &self,
        piece: &PieceReader<K, N, V>,
        encoder: &mut Encoder<'_, K, N, V>,
        (part, counters): (Part, &Counters),
    ) -> Result<bool, HeapError> {
        let Some(mut guard) = piece.lock(self.open.stamp) else { return Ok(true) };
        let (piece, gate) = guard.parts();
        let Some((owed, marks)) = gate.owed_to(piece, &self.open) else { return Ok(true) };
        let view = Labelling { origins: &self.origins, rewrites: &self.rewrites, part };
        let mut buckets = [0; BATCH];
        let mut found = 0;
        for (place, bucket) in buckets.iter_mut().zip(owed.puts.ones()) {
            debug_assert!(piece.slot(bucket).is_some(), "H11: an empty bucket is owed");
            *place = bucket;
            found += 1;
        }
        let buckets = buckets.get(..found).unwrap_or_default();
        for buckets in buckets.chunks(TOGETHER) {
            self.fixed.codecs.put_buckets(encoder, &BucketsToPut { piece, buckets, view, marks })?;
        }
        buckets.iter().for_each(|bucket| {
            owed.puts.remove(*bucket);
        });
        let mut left = BATCH - found;
        let mut at = 0;
        while left > 0 {
            let Some(index) = owed.tombstones.next_from(at) else { break };
            debug_assert!(
                piece.removals().get(index).is_some_and(|it| it.absent),
                "H11: a removal undone is owed"
            );
            if let Some(entry) = piece.removals().get(index) {
                let named = Named { key: &entry.key, namespace: &entry.namespace };
                encoder.tombstone(named, entry.oldest, entry.newest)?;
            }
            owed.tombstones.remove(index);
            (at, left) = (index + 1, left - 1);
        }
        counters.add_records_encoded((BATCH - left) as u64);
        Ok(owed.is_paid())
    }

    fn write_pieces(
        &self,
        (listing, part): (&Listing<K, N, V>, Part),
        context: &WriteContext<'_>,
        encoder: &mut Encoder<'_, K, N, V>,
        mut settle: Option<&mut SettleRun<'_>>,
    ) -> Result<(), HeapError> {
        loop {
            let visit = listing.visit(self.open.stamp, self.open.base);
            context.counters.add_pieces_visited(visit.pieces.len() as u64);
            for piece in &visit.pieces {
                loop {
                    let paid = self.write_batch(piece, encoder, (part, context.counters))?;
                    if let Some(settle) = &mut settle
                        && encoder.run.len() >= SETTLED_BYTES_MIN
                    {
                        settle(encoder.run)?;
                    }
                    if paid {
                        break;
                    }
                    if (context.cancelled)() {
                        return Err(HeapError::Cancelled);
                    }
                }
            }
            // A split while we went through may have put what is owed into a piece that was not listed yet.
            if listing.changes() == visit.changes {
                return Ok(());
            }
        }
    }
}

impl<K, N, V> Frozen for FrozenMap<K, N, V>
where
    K: Clone + Eq + Send + Sync + 'static,
    N: Clone + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn descriptor(&self) -> &Arc<StateDescriptor> {
        &self.fixed.descriptor
    }

    fn entries(&self) -> usize {
        self.entries
    }

    fn origins(&self) -> &Origins {
        self.counted()
    }

    fn rewrites(&self) -> &Rewrites {
        &self.rewrites
    }

    fn rewrite_shard(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        pass: &RewritePass<'_>,
        run: &mut RecordRun,
    ) -> Result<ShardRewrite, HeapError> {
        self.rewrite_pieces(shard, state, context, pass, run)
    }

    fn rewritten_below(&self, shard: usize) {
        self.open.rewritten_below(shard);
    }

    fn write_shard(
        &self,
        shard: usize,
        state: StateIndex,
        context: &WriteContext<'_>,
        output: ShardOutput<'_>,
    ) -> Result<(), HeapError> {
        let Some(listing) = self.fixed.listings.get(shard) else { return Ok(()) };
        let mut encoder = Encoder::new(EncoderParts {
            codecs: &*self.fixed.codecs,
            resolver: context.resolver,
            tombstones: context.tombstones,
            state,
            name: &self.fixed.descriptor.name,
            run: output.run,
            tally: output.tally,
        });
        self.write_pieces((listing, self.fixed.layout.part_of(shard)), context, &mut encoder, output.settle)?;
        for record in self.open.take(shard).iter() {
            encoder.aside(record)?;
        }
        Ok(())
    }

    fn clears(&self, base: Epoch, state: StateIndex) -> Result<Vec<(Clear, ClearFact)>, HeapError> {
        let key_groups = KeyGroupSet::from(self.fixed.layout.range);
        let encode = |namespace: &N| -> Result<Vec<u8>, FormatError> {
            let mut bytes = Vec::new();
            self.fixed.codecs.encode_namespace(namespace, &mut bytes)?;
            Ok(bytes)
        };
        let mut clears = Vec::new();
        for cleared in self.clears.after(base) {
            let namespace = cleared.namespace.as_ref().map(encode).transpose();
            let name = &self.fixed.descriptor.name;
            let namespace = namespace.map_err(|source| HeapError::record(name, "a namespace", source))?;
            let fact = ClearFact {
                state,
                namespace: namespace.as_deref().map(Arc::from),
                key_groups: key_groups.clone(),
            };
            clears.push((Clear { state: state.0, namespace, key_groups: key_groups.clone() }, fact));
        }
        Ok(clears)
    }

    fn close(&self) {
        self.open.close();
    }
}
