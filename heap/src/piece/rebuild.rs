//! Moves the entries of a piece into one or two fresh tables, with everything that goes by bucket.

use smallvec::SmallVec;

use super::{Piece, PieceFacts, Slot, buckets_max};
use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::owed::Gate;

/// How a piece is rebuilt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rebuild {
    /// Room of each table, in entries.
    pub(crate) capacity: usize,
    /// The bit of their hash by which keys are divided among two, if they are.
    pub(crate) split: Option<u32>,
}

impl Rebuild {
    /// How a piece that is full is rebuilt; `split` is the bit by which it may be split, if it may.
    pub(crate) fn of<K, N, V>(piece: &Piece<K, N, V>, split: Option<u32>) -> Self {
        let buckets = piece.buckets();
        let capacity = capacity_of(buckets.max(4));
        // Full of what was removed rather than of entries.
        let sparse = piece.len() * 2 < capacity;
        let large = buckets >= const { buckets_max(size_of::<Slot<K, N, V>>()) };
        let split = split.filter(|_| !sparse && large);
        let capacity = if sparse || split.is_some() { capacity } else { capacity_of(buckets.max(2) * 2) };
        Self { capacity, split }
    }
}

/// How many entries a table of so many buckets holds: what hashbrown fills before it would grow.
pub(crate) const fn capacity_of(buckets: usize) -> usize {
    if buckets < 8 { buckets - 1 } else { buckets / 8 * 7 }
}

/// A piece with what it owes.
type Owing<K, N, V> = (Piece<K, N, V>, Gate<K, N, V>);

impl<K, N, V> Piece<K, N, V> {
    /// Replaces the piece by what `rebuild` says; returns the other half of a split.
    ///
    /// `hash` is called for every key before anything moves, so a panic in it leaves the piece as it was.
    /// Cost: O(entries + removals).
    pub(crate) fn rebuild(
        &mut self,
        gate: &mut Gate<K, N, V>,
        rebuild: Rebuild,
        hash: impl Fn(&Slot<K, N, V>) -> u64,
    ) -> Option<Owing<K, N, V>> {
        let entries: Vec<(usize, u64)> = self
            .table
            .iter_buckets()
            .filter_map(|bucket| Some((bucket, hash(self.table.get_bucket(bucket)?))))
            .collect();
        let depth = self.depth() + u32::from(rebuild.split.is_some());
        let fresh = || self.fresh(gate, rebuild.capacity, depth);
        let (mut near, mut far) = (fresh(), rebuild.split.map(|_| fresh()));
        let is_far = |hash: u64| rebuild.split.is_some_and(|bit| hash >> bit & 1 == 1);
        for (bucket, hash) in entries {
            let target = match &mut far {
                Some(far) if is_far(hash) => far,
                _ => &mut near,
            };
            self.move_entry(gate, bucket, hash, target);
        }
        for (at, removal) in self.removals.drain().into_iter().enumerate() {
            let (piece, owing) = match &mut far {
                Some(far) if is_far(removal.hash) => far,
                _ => &mut near,
            };
            let new_at = piece.removals.push(removal);
            gate.carry_tombstone(at, owing, new_at);
        }
        (*self, *gate) = near;
        far
    }

    fn fresh(&self, gate: &Gate<K, N, V>, capacity: usize, depth: u32) -> Owing<K, N, V> {
        let mut piece = Self::new(capacity, PieceFacts { depth, ..self.facts });
        let room = Bitmap::with_room(piece.buckets());
        piece.rebuilds = self.rebuilds.wrapping_add(1);
        piece.marks = self.marks.iter().map(|(epoch, _)| (*epoch, Bitmap::default())).collect();
        piece.older = self.older.iter().map(|(epoch, _)| (*epoch, room.clone())).collect::<SmallVec<_>>();
        (piece, gate.with_nothing_owed())
    }

    fn move_entry(&mut self, gate: &Gate<K, N, V>, bucket: usize, hash: u64, target: &mut Owing<K, N, V>) {
        let (label, born) = (self.label(bucket), self.born(bucket));
        let (piece, owing) = target;
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { return };
        let (slot, _) = entry.remove();
        debug_assert!(!piece.is_full(), "H8: a piece is rebuilt with too little room");
        let new_bucket = piece.place(hash, slot);
        piece.beside.set(new_bucket, label, born);
        if self.beside.is_changed(bucket) {
            piece.beside.change(new_bucket);
        }
        carry(&self.older, &mut piece.older, bucket, new_bucket);
        carry(&self.marks, &mut piece.marks, bucket, new_bucket);
        gate.carry_put(bucket, owing, new_bucket);
    }
}

/// Carries a bucket of some sets over to the sets of the same epochs.
pub(crate) fn carry(from: &[(Epoch, Bitmap)], to: &mut [(Epoch, Bitmap)], bucket: usize, new_bucket: usize) {
    for ((_, from), (_, to)) in from.iter().zip(to) {
        if from.contains(bucket) {
            to.insert(new_bucket);
        }
    }
}
