//! What one piece still owes to open snapshots, and how the owner pays before it changes a record.
//!
//! Owns: per open snapshot the buckets and removals that it has not written yet. Does not own: the entries (`piece`),
//! what was set aside (`open`).
//!
//! A snapshot that has not been seen here yet is owed what its freeze froze: this is found at the first touch after
//! the freeze, by owner or writer, when nothing has changed since. Then either of them takes from it until it is
//! empty; it stays, empty, so that nothing is owed twice.
//!
//! # Invariants
//!
//! - H11. What is owed lies at an occupied bucket whose entry is as it was at the freeze, or at a removal that is as
//!   it was at the freeze.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::bitmap::{Bitmap, DrainSet};
use crate::epochs::Epoch;
use crate::handover::{OwnerGuard, Stamp};
use crate::open::{Aside, Kept, Open};
use crate::overlay::{Marks, set_of};
use crate::piece::{Accounts, Labelling, Piece, Slot, carry};
use crate::prefetch::TOGETHER;
use crate::turn::Turn;

/// If a piece owes no more records than this, the owner sets them all aside at its first write, and needs no lock
/// for the writes after it.
#[cfg(not(test))]
const PAID_AT_ONCE_MAX: usize = 64;
#[cfg(test)]
const PAID_AT_ONCE_MAX: usize = 4;

/// If it owes more, each write under the lock sets so many records aside besides its own, where a record is a plain
/// copy: together they cost about as much as the lock, which keeps the processor from working on several updates at
/// a time. So a piece that is written often owes nothing soon, and one that is written seldom is not copied.
#[cfg(not(test))]
const PAID_AHEAD: usize = 16;
#[cfg(test)]
const PAID_AHEAD: usize = 1;

/// Larger slots are not copied ahead.
const PAID_AHEAD_BYTES_MAX: usize = 128;

/// What one piece owes to one snapshot.
#[derive(Debug)]
pub(crate) struct Owed<K, N, V> {
    pub(crate) open: Arc<Open<K, N, V>>,
    /// Buckets.
    pub(crate) puts: DrainSet,
    /// Indices in the removal log.
    pub(crate) tombstones: Bitmap,
}

/// What a piece shares with the writers of snapshots, under its lock.
#[derive(Debug)]
pub(crate) struct Gate<K, N, V> {
    owed: Vec<Owed<K, N, V>>,
    /// Buckets that writers wrote again, until the owner takes them over.
    marks: Marks,
}

impl<K, N, V> Default for Gate<K, N, V> {
    fn default() -> Self {
        Self { owed: Vec::new(), marks: Marks::new() }
    }
}

impl<K, N, V> Owed<K, N, V> {
    /// What a piece that has not changed since the freeze owes.
    fn of(piece: &Piece<K, N, V>, open: &Arc<Open<K, N, V>>) -> Self {
        let (puts, mut tombstones) = match open.base {
            None => (piece.occupied(), Bitmap::default()),
            Some(base) => (piece.changed_after(base), Bitmap::default()),
        };
        if let Some(base) = open.base {
            let wanted = piece.removals().iter().filter(|(_, entry)| entry.absent && entry.epoch > base);
            wanted.for_each(|(at, _)| {
                tombstones.insert(at);
            });
        }
        Self { open: Arc::clone(open), puts: puts.into(), tombstones }
    }

    pub(crate) fn is_paid(&self) -> bool {
        self.puts.is_empty() && self.tombstones.is_empty()
    }
}

impl<K, N, V> Gate<K, N, V> {
    /// The same snapshots, with nothing owed to them yet.
    pub(crate) fn with_nothing_owed(&self) -> Self {
        let nothing = |owed: &Owed<K, N, V>| {
            let (open, tombstones) = (Arc::clone(&owed.open), Bitmap::default());
            Owed { open, puts: DrainSet::default(), tombstones }
        };
        let marks = self.marks.iter().map(|(epoch, _)| (*epoch, Bitmap::default())).collect();
        Self { owed: self.owed.iter().map(nothing).collect(), marks }
    }

    /// Carries what is owed of a bucket over to `to`, made by [`with_nothing_owed`](Self::with_nothing_owed).
    pub(crate) fn carry_put(&self, bucket: usize, to: &mut Self, new_bucket: usize) {
        for (from, to) in self.owed.iter().zip(&mut to.owed) {
            if from.puts.contains(bucket) {
                to.puts.insert(new_bucket);
            }
        }
        carry(&self.marks, &mut to.marks, bucket, new_bucket);
    }

    /// Hands the marks that writers left to the owner.
    pub(crate) fn take_marks(&mut self) -> Marks {
        std::mem::take(&mut self.marks)
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Marks a bucket as written again by the checkpoint of `epoch`.
    pub(crate) fn mark(&mut self, epoch: Epoch, bucket: usize) {
        if let Some(set) = set_of(&mut self.marks, epoch) {
            set.insert(bucket);
        }
    }

    /// Carries what is owed of a removal over.
    pub(crate) fn carry_tombstone(&self, at: usize, to: &mut Self, new_at: usize) {
        for (from, to) in self.owed.iter().zip(&mut to.owed) {
            if from.tombstones.contains(at) {
                to.tombstones.insert(new_at);
            }
        }
    }

    /// What is owed to a snapshot; found now if it was not before.
    pub(crate) fn owed_to(
        &mut self,
        piece: &Piece<K, N, V>,
        open: &Arc<Open<K, N, V>>,
    ) -> Option<(&mut Owed<K, N, V>, &Marks)> {
        let known = self.owed.iter().position(|owed| Arc::ptr_eq(&owed.open, open));
        let at = known.unwrap_or_else(|| {
            self.owed.push(Owed::of(piece, open));
            self.owed.len() - 1
        });
        self.owed.get_mut(at).map(|owed| (owed, &self.marks))
    }

    /// Whether an open snapshot still wants the entry as it is.
    pub(crate) fn wants_put(&self, bucket: usize) -> bool {
        self.owed.iter().any(|owed| owed.puts.contains(bucket) && !owed.open.is_closed())
    }

    fn wants_tombstone(&self, at: usize) -> bool {
        self.owed.iter().any(|owed| owed.tombstones.contains(at) && !owed.open.is_closed())
    }

    /// Gives `record` to every snapshot that wants the bucket.
    pub(crate) fn pay_put(&mut self, bucket: usize, site: &Site<'_>, record: Aside<K, N, V>) {
        let wanting = self.owed.iter_mut().filter_map(|owed| owed.puts.remove(bucket).then_some(&*owed.open));
        site.keep(record, wanting);
    }

    fn pay_tombstone(&mut self, at: usize, site: &Site<'_>, record: Aside<K, N, V>) {
        let wanting =
            self.owed.iter_mut().filter_map(|owed| owed.tombstones.remove(at).then_some(&*owed.open));
        site.keep(record, wanting);
    }

    fn wanted_tombstones(&self) -> Bitmap {
        let mut wanted = Bitmap::default();
        self.owed.iter().for_each(|owed| wanted.union_with(&owed.tombstones));
        wanted
    }

    /// The sets of removals, to be carried over when some leave the log.
    pub(crate) fn tombstone_sets(&mut self) -> impl Iterator<Item = &mut Bitmap> {
        self.owed.iter_mut().map(|owed| &mut owed.tombstones)
    }

    /// Whether a rewriting snapshot still has to look through the piece.
    fn is_awaited(&self, shard: usize) -> bool {
        self.owed.iter().any(|owed| owed.open.awaits(shard))
    }

    /// Whether no more than so many records are owed. Asked at every write that takes the lock, when most are owed yet.
    fn owes_at_most(&self, records: usize) -> bool {
        let mut left = Some(records);
        for owed in &self.owed {
            left = left.and_then(|left| left.checked_sub(owed.puts.len()));
            left = left.and_then(|left| left.checked_sub(owed.tombstones.count_to(left)));
        }
        left.is_some()
    }
}

/// Which piece an owner's write is about, as far as paying needs it.
pub(crate) struct Site<'a> {
    /// Number of the shard.
    pub(crate) shard: usize,
    pub(crate) counters: &'a crate::turn::Counters,
}

impl Site<'_> {
    /// Gives a record to the snapshots that want it.
    fn keep<'o, K: 'o, N: 'o, V: 'o>(
        &self,
        record: Aside<K, N, V>,
        mut wanting: impl Iterator<Item = &'o Open<K, N, V>>,
    ) {
        self.counters.add_set_aside(1);
        let Some(first) = wanting.next() else { return };
        let Some(second) = wanting.next() else { return first.set_aside(self.shard, Kept::Alone(record)) };
        let record = Arc::new(record);
        for open in [first, second].into_iter().chain(wanting) {
            open.set_aside(self.shard, Kept::Shared(Arc::clone(&record)));
        }
    }
}

/// The owner's access to a piece that owes something.
pub(crate) type Locked<'a, K, N, V> = OwnerGuard<'a, Piece<K, N, V>, Gate<K, N, V>>;

impl<K: Clone, N: Clone, V: Clone> Gate<K, N, V> {
    /// The record of an entry as it is, cloned.
    fn copy_of(piece: &Piece<K, N, V>, bucket: usize, view: Labelling<'_>) -> Option<Aside<K, N, V>> {
        let Slot { key, namespace, value } = piece.slot(bucket)?.clone();
        let (version, born) = (piece.version(bucket, view, &Marks::new()), piece.born(bucket));
        Some(Aside::Put { key, namespace, value, version, born })
    }

    /// Sets an entry aside, cloned, if a snapshot wants it.
    pub(crate) fn protect(
        &mut self,
        piece: &Piece<K, N, V>,
        bucket: usize,
        site: &Site<'_>,
        view: Labelling<'_>,
    ) {
        if self.wants_put(bucket)
            && let Some(record) = Self::copy_of(piece, bucket, view)
        {
            self.pay_put(bucket, site, record);
        }
        self.forgive(bucket);
    }

    /// Nothing is owed of a bucket any more: who still asks for it is closed.
    pub(crate) fn forgive(&mut self, bucket: usize) {
        self.owed.iter_mut().for_each(|owed| {
            owed.puts.remove(bucket);
        });
    }

    /// Sets a tombstone aside if a snapshot wants it.
    pub(crate) fn protect_tombstone(&mut self, piece: &Piece<K, N, V>, at: usize, site: &Site<'_>) {
        if self.wants_tombstone(at)
            && let Some(entry) = piece.removals().get(at)
        {
            let (key, namespace) = (entry.key.clone(), entry.namespace.clone());
            let record = Aside::Tombstone { key, namespace, oldest: entry.oldest, newest: entry.newest };
            self.pay_tombstone(at, site, record);
        }
        self.owed.iter_mut().for_each(|owed| {
            owed.tombstones.remove(at);
        });
    }

    /// Sets entries aside, up to so many.
    fn pay_puts(&mut self, records: usize, piece: &Piece<K, N, V>, site: &Site<'_>, view: Labelling<'_>) {
        let [owed] = self.owed.as_mut_slice() else {
            for _ in 0..records {
                let Some(bucket) = self.owed.iter_mut().find_map(|owed| owed.puts.ones().next()) else {
                    return;
                };
                self.protect(piece, bucket, site, view);
            }
            return;
        };
        // The usual case, with one look for where to keep them.
        let Some(mut kept) = owed.open.kept(site.shard) else { return };
        let mut left = records;
        while left > 0 && !owed.puts.is_empty() {
            let mut buckets: SmallVec<[usize; TOGETHER]> = SmallVec::new();
            buckets.extend(owed.puts.ones().take(left.min(TOGETHER)));
            // All before the first is needed, so that the waits for memory overlap.
            buckets.iter().for_each(|bucket| piece.prefetch_entry(*bucket));
            for bucket in &buckets {
                // A clone that panics must leave the entry owed.
                if let Some(record) = Self::copy_of(piece, *bucket, view) {
                    kept.push(Kept::Alone(record));
                }
                owed.puts.remove(*bucket);
            }
            site.counters.add_set_aside(buckets.len() as u64);
            left -= buckets.len();
        }
    }

    /// Sets a few entries aside before their time, if they are copied as fast as that pays.
    fn pay_ahead(&mut self, piece: &Piece<K, N, V>, site: &Site<'_>, view: Labelling<'_>) {
        let plain = const {
            !std::mem::needs_drop::<Slot<K, N, V>>() && size_of::<Slot<K, N, V>>() <= PAID_AHEAD_BYTES_MAX
        };
        if plain {
            self.pay_puts(PAID_AHEAD, piece, site, view);
        }
    }

    fn pay_all(&mut self, piece: &Piece<K, N, V>, site: &Site<'_>, view: Labelling<'_>) {
        self.pay_puts(usize::MAX, piece, site, view);
        self.wanted_tombstones().ones().for_each(|at| self.protect_tombstone(piece, at, site));
    }
}

/// The owner's first step under the lock: finds what is owed to snapshots not seen here yet, begins the running
/// interval, and pays everything if that is little, so that the next write needs no lock.
///
/// Returns whether the interval was begun here, that is, whether the piece has to be noted as changed.
pub(crate) fn touch<K: Clone, N: Clone, V: Clone>(
    guard: &mut Locked<'_, K, N, V>,
    accounts: &mut Accounts<'_>,
    opens: &[Arc<Open<K, N, V>>],
    site: &Site<'_>,
) -> bool {
    let free_through: Stamp = guard.free_through();
    let (piece, gate) = guard.parts();
    gate.owed.retain(|owed| !owed.open.is_closed());
    // First, so that what changed in the interval is looked for once, and united with nothing yet.
    let begun = piece.end_interval(accounts.turn, accounts.origins);
    for open in opens.iter().filter(|open| open.stamp > free_through && !open.is_closed()) {
        gate.owed_to(piece, open);
    }
    if begun {
        piece.unite_older(accounts.turn, needed_after(opens, accounts.turn));
    }
    if !accounts.rewrites.is_empty() || !gate.marks.is_empty() || !piece.marks().is_empty() {
        let oldest = opens.iter().filter(|open| !open.is_closed()).map(|open| open.stamp).min();
        piece.take_marks(gate.take_marks(), accounts, oldest);
    }
    if piece.removals().has_covered(accounts.turn.floor) {
        let (floor, wanted) = (accounts.turn.floor, gate.wanted_tombstones());
        let keep = |at: usize, epoch: Epoch| epoch > floor || wanted.contains(at);
        piece.removals_mut().retain(|at, entry| keep(at, entry.epoch), &mut gate.tombstone_sets());
    }
    gate.pay_ahead(piece, site, accounts.labelling());
    if gate.owes_at_most(PAID_AT_ONCE_MAX) && !gate.is_awaited(site.shard) {
        pay_and_free(guard, accounts, site);
    }
    begun
}

/// Changes up to this epoch are told apart no more: every possible base has them, and so has that of every open snapshot.
pub(crate) fn needed_after<K, N, V>(opens: &[Arc<Open<K, N, V>>], turn: &Turn) -> Epoch {
    let open = opens.iter().filter(|open| !open.is_closed());
    open.filter_map(|open| open.base).fold(turn.floor, Epoch::min)
}

/// Sets everything aside that the piece owes, so that no writer needs it any more.
pub(crate) fn pay_and_free<K: Clone, N: Clone, V: Clone>(
    guard: &mut Locked<'_, K, N, V>,
    accounts: &Accounts<'_>,
    site: &Site<'_>,
) {
    let (piece, gate) = guard.parts();
    gate.pay_all(piece, site, accounts.labelling());
    gate.owed.clear();
    guard.free();
}
