//! A bounded piece of a shard: one hash table, and beside it, by bucket, what the accounting needs.
//!
//! Owns: entries, labels, births, changed sets and the removal log of the keys that hash here. Does not own: what is
//! still owed to open snapshots (`owed`), which piece a key belongs to (`directory`).
//!
//! A bucket keeps its number until the piece is rebuilt, split or replaced: the table is never left to rehash.
//!
//! # Invariants
//!
//! - H8. Every bit of a changed set is at an occupied bucket.
//! - H9. The epochs of the older sets ascend, and all are before the piece's interval.
//! - H10. An entry whose changed bit is set is counted under the label of the piece's interval; its own label still
//!   tells where older records of its key are. Every other entry is counted under its label.

mod asking;
mod beside;
mod intervals;
mod rebuild;
mod removing;
mod vacancy;

use hashbrown::HashTable;
use lowtide_format::CheckpointId;
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::handover::Stamp;
use crate::origins::{Label, Origins, Part};
use crate::overlay::{MarkedBy, Marks, Rewrites, marked_by, set_of};
use crate::pages::{PagedBox, Pages};
use crate::removals::RemovalLog;
use crate::turn::Turn;

pub(crate) use beside::Beside;
pub(crate) use rebuild::{Rebuild, capacity_of, carry};
pub(crate) use removing::Gone;

/// A piece of this many buckets is split rather than grown: more, and a split takes long; fewer, and what is there
/// once a piece falls out of the caches.
#[cfg(not(test))]
const BUCKETS_MAX: usize = 4096;
#[cfg(test)]
const BUCKETS_MAX: usize = 32;

/// A table of so many bytes is split even if it has fewer buckets.
const TABLE_BYTES_MAX: usize = 512 << 10;

/// A piece of slots of a size is split at this many buckets.
pub(crate) const fn buckets_max(slot_bytes: usize) -> usize {
    let mut buckets = BUCKETS_MAX;
    while buckets > 16 && buckets * slot_bytes > TABLE_BYTES_MAX {
        buckets /= 2;
    }
    buckets
}

/// What a table holds: nothing but the entry, so that reading touches nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Slot<K, N, V> {
    pub(crate) key: K,
    pub(crate) namespace: N,
    pub(crate) value: V,
}

/// The counts that a change moves, and the present interval.
pub(crate) struct Accounts<'a> {
    pub(crate) turn: &'a Turn,
    pub(crate) origins: &'a mut Origins,
    pub(crate) rewrites: &'a mut Rewrites,
    pub(crate) part: Part,
}

/// What stands beside an entry that is loaded.
#[derive(Clone, Debug)]
pub(crate) struct LoadedOrigin {
    pub(crate) label: Label,
    pub(crate) born: Epoch,
    pub(crate) marks: MarkedBy,
}

impl Accounts<'_> {
    /// The same for a shorter time.
    pub(crate) fn reborrow(&mut self) -> Accounts<'_> {
        Accounts { turn: self.turn, origins: self.origins, rewrites: self.rewrites, part: self.part }
    }

    /// The meaning of labels.
    pub(crate) fn labelling(&self) -> Labelling<'_> {
        Labelling { origins: self.origins, rewrites: self.rewrites, part: self.part }
    }
}

/// What labels and marks mean in one part.
#[derive(Clone, Copy)]
pub(crate) struct Labelling<'a> {
    pub(crate) origins: &'a Origins,
    pub(crate) rewrites: &'a Rewrites,
    pub(crate) part: Part,
}

/// What a piece is, apart from what is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceFacts {
    /// How many bits of the hash all keys here share.
    pub(crate) depth: u32,
    /// The interval in which the changed bits beside the entries were set.
    pub(crate) interval: Epoch,
    /// The part of the key groups under which its entries are counted.
    pub(crate) part: Part,
}

/// One table and what stands beside it. What reads and most writes need comes first and shares a cache line with what the
/// hand-over looks at; what the first change of an entry needs is in the next.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Piece<K, N, V> {
    table: HashTable<Slot<K, N, V>, Pages>,
    /// Where the table's control bytes begin, only to ask for them early; 0 until there is an entry.
    controls: usize,
    beside: Beside,
    facts: PieceFacts,
    /// Buckets whose entries were written again.
    marks: Marks,
    /// Buckets changed up to an epoch, and after the one before.
    older: SmallVec<[(Epoch, Bitmap); 1]>,
    removals: RemovalLog<K, N>,
    /// Counts rebuilds, after which buckets have other numbers.
    rebuilds: u32,
}

const _: () = {
    let needed = std::mem::offset_of!(Piece<u64, (), u64>, beside) + size_of::<PagedBox<[u32]>>();
    assert!(needed + size_of::<Stamp>() <= 64, "a write to a piece touches a second line of it");
};

/// The bits of a hash that the table uses: others than the key group and the directory. The table looks for the
/// seven highest bits, from where the low bits say.
#[inline]
fn table_hash(hash: u64) -> u64 {
    hash.rotate_left(20)
}

/// Where the control bytes of the table begin that has a slot in a bucket: hashbrown lays slots out downwards from there.
/// For requests only.
#[inline]
fn controls_of<K, N, V>(slot: &Slot<K, N, V>, bucket: usize) -> usize {
    std::ptr::from_ref(slot).addr() + (bucket + 1) * size_of::<Slot<K, N, V>>()
}

impl<K, N, V> Piece<K, N, V> {
    /// An empty piece with room for `capacity` entries.
    pub(crate) fn new(capacity: usize, facts: PieceFacts) -> Self {
        let table = HashTable::with_capacity_in(capacity, Pages);
        let buckets = table.num_buckets();
        Self {
            table,
            controls: 0,
            beside: Beside::new(buckets),
            facts,
            marks: Marks::new(),
            older: SmallVec::new(),
            removals: RemovalLog::default(),
            rebuilds: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<&Slot<K, N, V>> {
        self.prefetch_likely_slot(hash);
        self.find_at_hand(hash, is_it)
    }

    /// As [`find`](Self::find), where what it looks at has been asked for.
    #[inline(always)]
    pub(crate) fn find_at_hand(
        &self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<&Slot<K, N, V>> {
        self.table.find(table_hash(hash), is_it)
    }

    #[inline]
    pub(crate) fn find_bucket(&self, hash: u64, is_it: impl FnMut(&Slot<K, N, V>) -> bool) -> Option<usize> {
        self.prefetch_likely_slot(hash);
        self.table.find_bucket_index(table_hash(hash), is_it)
    }

    /// Puts a slot into the table, which has room; returns its bucket.
    #[inline]
    fn place(&mut self, hash: u64, slot: Slot<K, N, V>) -> usize {
        let entry = self.table.insert_unique(table_hash(hash), slot, |_| table_hash(hash));
        let bucket = entry.bucket_index();
        self.controls = controls_of(entry.get(), bucket);
        bucket
    }

    #[inline]
    pub(crate) fn slot(&self, bucket: usize) -> Option<&Slot<K, N, V>> {
        self.table.get_bucket(bucket)
    }

    /// The slot, for a change that was marked before.
    #[inline]
    pub(crate) fn slot_mut(&mut self, bucket: usize) -> Option<&mut Slot<K, N, V>> {
        self.table.get_bucket_mut(bucket)
    }

    pub(crate) fn iter(&self) -> hashbrown::hash_table::Iter<'_, Slot<K, N, V>> {
        self.table.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.table.num_buckets()
    }

    pub(crate) fn depth(&self) -> u32 {
        self.facts.depth
    }

    #[inline]
    pub(crate) fn part(&self) -> Part {
        self.facts.part
    }

    pub(crate) fn removals(&self) -> &RemovalLog<K, N> {
        &self.removals
    }

    pub(crate) fn removals_mut(&mut self) -> &mut RemovalLog<K, N> {
        &mut self.removals
    }

    /// Whether the next insertion would make the table move its entries.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.table.len() >= self.table.capacity()
    }

    /// The interval of the last change of an entry; `also` are marks that are not here yet.
    pub(crate) fn version(&self, bucket: usize, view: Labelling<'_>, also: &Marks) -> Epoch {
        if self.beside.is_changed(bucket) {
            return self.facts.interval;
        }
        let mut label = self.label(bucket);
        if !(self.marks.is_empty() && also.is_empty()) {
            label = view.rewrites.label(label, view.part, &marked_by(&[&self.marks, also], bucket));
        }
        view.origins.version(label)
    }

    /// The label of an entry, also where the interval that was begun here last has ended since and the label is not
    /// beside the entry yet.
    pub(crate) fn label_by(&self, bucket: usize, origins: &Origins) -> Label {
        if self.beside.is_changed(bucket) {
            origins.of_interval(self.facts.interval)
        } else {
            self.label(bucket)
        }
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(crate) fn rebuilds(&self) -> u32 {
        self.rebuilds
    }

    /// Takes over marks that a writer left, and gives entries the labels that settled rewrites have for them.
    pub(crate) fn take_marks(&mut self, left: Marks, accounts: &mut Accounts<'_>, oldest: Option<Stamp>) {
        for (epoch, set) in left {
            if let Some(mine) = set_of(&mut self.marks, epoch) {
                mine.union_with(&set);
            }
        }
        accounts.rewrites.fold(&mut self.marks, &mut self.beside, accounts.part, oldest);
    }

    /// An entry changes: it loses its marks. Returns its label proper.
    #[cold]
    fn lose_marks(
        (all, beside): (&mut Marks, &mut Beside),
        bucket: usize,
        accounts: &mut Accounts<'_>,
    ) -> Label {
        let marks = marked_by(&[all], bucket);
        let label = accounts.rewrites.lose(beside.label(bucket), accounts.part, &marks);
        all.iter_mut().for_each(|(_, set)| {
            set.remove(bucket);
        });
        // Changed and then removed within an interval, the entry needs a tombstone that reaches the rewrite as well.
        let newest = accounts.rewrites.newest(&marks);
        let known = accounts.origins.get(label).and_then(|origin| origin.newest);
        let witness =
            newest.filter(|newest| known < Some(*newest)).and_then(|id| accounts.origins.witness(id));
        beside.set_label(bucket, witness.unwrap_or(label));
        label
    }

    #[inline]
    pub(crate) fn label(&self, bucket: usize) -> Label {
        self.beside.label(bucket)
    }

    pub(crate) fn born(&self, bucket: usize) -> Epoch {
        self.beside.born(bucket)
    }

    /// Occupied buckets.
    pub(crate) fn occupied(&self) -> Bitmap {
        let mut bits = Bitmap::with_room(self.buckets());
        for bucket in self.table.iter_buckets() {
            bits.insert(bucket);
        }
        bits
    }

    /// Marks a bucket before its entry changes; `accounts` is asked for if that is its first change.
    #[inline]
    pub(crate) fn mark<'a>(&mut self, bucket: usize, accounts: impl FnOnce(Part) -> Accounts<'a>) {
        let Self { facts, marks, beside, .. } = self;
        Self::mark_beside((marks, beside), bucket, || accounts(facts.part));
    }

    #[inline(always)]
    fn mark_beside<'a>(
        (marks, beside): (&mut Marks, &mut Beside),
        bucket: usize,
        accounts: impl FnOnce() -> Accounts<'a>,
    ) {
        let Some(label) = beside.change(bucket) else { return };
        if !marks.is_empty() {
            return Self::mark_marked((marks, beside), bucket, accounts());
        }
        let Accounts { turn, origins, part, .. } = accounts();
        origins.change(label, part, turn.interval);
    }

    #[cold]
    fn mark_marked(beside: (&mut Marks, &mut Beside), bucket: usize, mut accounts: Accounts<'_>) {
        let old = Self::lose_marks(beside, bucket, &mut accounts);
        accounts.origins.change(old, accounts.part, accounts.turn.interval);
    }

    /// The entry that `is_it`, marked and ready for a change. What it looks at is asked for by the caller.
    #[inline(always)]
    pub(crate) fn find_to_change<'a>(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        accounts: impl FnOnce(Part) -> Accounts<'a>,
    ) -> Option<&mut Slot<K, N, V>> {
        let Self { table, facts, marks, beside, .. } = self;
        let entry = table.find_entry(table_hash(hash), is_it).ok()?;
        Self::mark_beside((marks, beside), entry.bucket_index(), || accounts(facts.part));
        Some(entry.into_mut())
    }

    /// Adds an entry that is not there; the table has room.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        slot: Slot<K, N, V>,
        born: Epoch,
        accounts: &mut Accounts<'_>,
    ) {
        debug_assert!(!self.is_full(), "H8: an insertion into a full table");
        let bucket = self.place(hash, slot);
        self.beside.set(bucket, Label::NEW, born);
        self.beside.change(bucket);
        accounts.origins.appear(accounts.part, accounts.turn.interval);
    }

    /// Adds a restored entry that is not there; the table has room. The caller counts it.
    pub(crate) fn insert_restored(&mut self, hash: u64, slot: Slot<K, N, V>, origin: &LoadedOrigin) {
        let bucket = self.place(hash, slot);
        self.beside.set(bucket, origin.label, origin.born);
        for epoch in &origin.marks {
            if let Some(set) = set_of(&mut self.marks, *epoch) {
                set.insert(bucket);
            }
        }
    }

    /// What stands beside an entry.
    pub(crate) fn origin(&self, bucket: usize) -> LoadedOrigin {
        let marks = marked_by(&[&self.marks], bucket);
        LoadedOrigin { label: self.label(bucket), born: self.born(bucket), marks }
    }

    /// Takes an entry out, its bits and its count with it; the removal log is the caller's.
    pub(crate) fn take(&mut self, bucket: usize, accounts: &mut Accounts<'_>) -> Option<Slot<K, N, V>> {
        let (slot, _) = self.table.get_bucket_entry(bucket).ok()?.remove();
        let label = match self.marks.is_empty() {
            true => self.label(bucket),
            false => Self::lose_marks((&mut self.marks, &mut self.beside), bucket, accounts),
        };
        if self.beside.forget_change(bucket) {
            let now = accounts.origins.now(accounts.turn.interval);
            accounts.origins.disappear(now, accounts.part);
        } else {
            accounts.origins.disappear(label, accounts.part);
        }
        self.older.iter_mut().for_each(|(_, set)| {
            set.remove(bucket);
        });
        Some(slot)
    }

    /// The newest checkpoint that may have written the entry; `None` if none has.
    pub(crate) fn newest_record(&self, bucket: usize, view: Labelling<'_>) -> Option<CheckpointId> {
        let marks = marked_by(&[&self.marks], bucket);
        let label = view.rewrites.label(self.label(bucket), view.part, &marks);
        let newest = view.origins.get(label).and_then(|origin| origin.newest);
        newest.max(view.rewrites.newest(&marks))
    }

    /// Checks H8 and H9. O(buckets).
    pub(crate) fn check_invariants(&self) {
        let occupied = self.occupied();
        let within = |set: &Bitmap| set.ones().all(|bucket| occupied.contains(bucket));
        let changed = self.beside.changed();
        assert!(within(&changed), "H8: a changed bit at an empty bucket");
        assert!(self.older.iter().all(|(_, set)| within(set)), "H8: an older bit at an empty bucket");
        assert!(self.older.is_sorted_by(|a, b| a.0 < b.0), "H9: older sets out of order");
        assert!(
            self.older.iter().all(|(epoch, _)| *epoch < self.facts.interval),
            "H9: an older set of the interval"
        );
        for (rewrite, set) in self.marks.iter().filter(|(rewrite, _)| *rewrite < self.facts.interval) {
            let stale = set.ones().any(|bucket| changed.contains(bucket) || !occupied.contains(bucket));
            assert!(
                !stale,
                "H18: an entry that changed bears the mark of the rewrite of epoch {}",
                rewrite.0
            );
        }
    }

    /// Bytes of memory of the table and what stands beside it; not what keys and values own.
    pub(crate) fn memory_bytes(&self) -> usize {
        let older: usize = self.older.iter().map(|(_, set)| set.memory_bytes()).sum();
        self.table.allocation_size() + self.beside.memory_bytes() + older + self.removals.memory_bytes()
    }
}
