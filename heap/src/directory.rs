//! Which piece a hash belongs to.
//!
//! Owns: the slots of the directory, by number of piece. Does not own: the pieces (`shards`).
//!
//! The directory is that of extendible hashing, one for all key groups of a state: as many bits of the hash as the
//! deepest piece needs, for every key group. Where the number of key groups is a power of two, the slot is the low bits of
//! the hash: the key group, and above it the bits that tell pieces apart. The key groups of other backends have slots
//! then, too, unless that would be many for the few that are here.
//!
//! # Invariants
//!
//! - H12. A slot names the piece that holds the hashes it stands for, or none if there is no such piece.

use super::map::{Layout, Place};
use crate::codecs::GROUP_BITS;

/// The slot of key groups that have no piece yet.
const NONE: u32 = u32::MAX;

/// The bits of a hash from here on are the table's own.
const BITS_MAX: u32 = 36;

/// Of so many key groups of a directory at least one is here.
const GROUPS_PER_OWN_MAX: u32 = 8;

/// The directory of one state.
#[derive(Debug)]
pub(crate) struct Directory {
    slots: Vec<u32>,
    /// The number of slots less one where the low bits of a hash are the slot, 0 elsewhere.
    mask: usize,
    /// Whether they are.
    masked: bool,
    /// The slot of shard 0.
    first_slot: usize,
    /// The lowest bit of a hash that tells pieces of a key group apart.
    shift: u32,
    /// By so many bits of a slot's number the shards are told apart; above them are the bits of the hash.
    shard_bits: u32,
    /// By so many bits the shards of the state are told apart, also where this is the directory of one of them.
    state_bits: u32,
    /// How many bits of the hash there are.
    depth: u32,
    groups: Groups,
}

/// How keys are spread over key groups, and those over shards.
#[derive(Clone, Copy, Debug)]
struct Groups {
    /// The number of key groups less one, if that is a mask, or 0.
    mask: u64,
    count: u64,
    /// The key group of shard 0.
    first: u64,
    shards: usize,
}

impl Groups {
    fn new(layout: Layout) -> Self {
        let count = u64::from(layout.count.get());
        let mask = if count.is_power_of_two() { count - 1 } else { 0 };
        Self { mask, count, first: u64::from(layout.range.start().0), shards: layout.range.len() as usize }
    }

    /// The shard of a key, or a number that no shard has.
    #[inline]
    fn shard_of(self, key_hash: u64) -> usize {
        // A mask where that is the same: a division costs more than the rest of the look-up's arithmetic.
        let group = match self.mask {
            0 => key_hash % self.count,
            mask => key_hash & mask,
        };
        group.wrapping_sub(self.first) as usize
    }
}

impl Directory {
    /// A directory of no pieces.
    pub(crate) fn new(layout: Layout) -> Self {
        let (groups, range) = (layout.count.get(), layout.range);
        let own = range.len().next_power_of_two();
        let masked = groups.is_power_of_two() && u32::from(groups) <= own * GROUPS_PER_OWN_MAX;
        let shard_bits = if masked { groups.trailing_zeros() } else { own.trailing_zeros() };
        let shift = if masked { shard_bits } else { GROUP_BITS };
        let first_slot = if masked { usize::from(range.start().0) } else { 0 };
        let (slots, groups, state_bits) = (vec![NONE; 1 << shard_bits], Groups::new(layout), shard_bits);
        let mut new =
            Self { slots, mask: 0, masked, first_slot, shift, shard_bits, state_bits, depth: 0, groups };
        new.note_mask();
        new
    }

    /// A directory of no pieces for one shard, which then goes into that of the state. Its only shard has number 0.
    pub(crate) fn of_shard(layout: Layout) -> Self {
        let slots = vec![NONE];
        Self { slots, mask: 0, masked: false, first_slot: 0, shard_bits: 0, ..Self::new(layout) }
    }

    /// The slot of a place; a number that no slot has, or one of pieces without such a key, if there is none.
    #[inline(always)]
    pub(crate) fn slot_of(&self, place: Place) -> usize {
        match self.mask {
            0 => self.slot_by_division(place),
            mask => place.hash as usize & mask,
        }
    }

    /// A call, so that what is inlined into every access is a mask.
    #[inline(never)]
    fn slot_by_division(&self, place: Place) -> usize {
        let shard = self.groups.shard_of(place.key_hash);
        self.slot(shard, (place.hash >> self.shift) as usize & ((1 << self.depth) - 1))
    }

    /// The number of the piece in a slot; one that no piece has if there is none.
    #[inline]
    pub(crate) fn number_in(&self, slot: usize) -> Option<usize> {
        self.slots.get(slot).map(|number| *number as usize)
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slots of a shard, each with the number of its piece.
    pub(crate) fn slots_of(&self, shard: usize) -> impl Iterator<Item = (usize, usize)> {
        let slots = (0..1 << self.depth).map(move |bits| self.slot(shard, bits));
        slots.filter_map(|slot| Some((slot, self.number_in(slot)?)))
    }

    /// The shard of a key, also where this is the directory of one of them; `None` if its key group is not ours.
    #[inline]
    pub(crate) fn shard_of(&self, key_hash: u64) -> Option<usize> {
        Some(self.groups.shard_of(key_hash)).filter(|shard| *shard < self.groups.shards)
    }

    /// The number of the piece of a hash, in the directory of one shard.
    #[inline]
    pub(crate) fn find_alone(&self, hash: u64) -> Option<usize> {
        debug_assert!(!self.masked && self.shard_bits == 0, "H12: several shards are told apart here");
        self.number_in((hash >> self.shift) as usize & self.slots.len().wrapping_sub(1))
    }

    fn slot(&self, shard: usize, bits: usize) -> usize {
        (self.first_slot + shard) | bits << self.shard_bits
    }

    /// The bit of a hash by which a piece that shares `depth` bits is split.
    pub(crate) fn split_bit(&self, depth: u32) -> u32 {
        self.shift + depth
    }

    /// Whether a piece that shares `depth` bits may be split when there are so many pieces: hashes that hardly
    /// differ are not worth a directory twice as long.
    pub(crate) fn may_split(&self, depth: u32, pieces: usize) -> bool {
        depth < self.depth || self.affords(depth, pieces)
    }

    /// Whether a state with so many pieces may have a directory of one bit more than `depth`.
    pub(crate) fn affords(&self, depth: u32, pieces: usize) -> bool {
        let slots = 1_usize.checked_shl(depth + 1 + self.state_bits);
        self.split_bit(depth) < BITS_MAX && slots.is_some_and(|slots| slots <= 1024 + 256 * pieces)
    }

    /// So many pieces of one shard, for all shards of the state.
    pub(crate) fn of_all(&self, pieces: usize) -> usize {
        pieces << self.state_bits
    }

    /// Of one shard without pieces: lets pieces 0 to 2^`depth` − 1 share that many bits each.
    pub(crate) fn fill_to(&mut self, depth: u32) {
        self.slots = (0..1 << depth).collect();
        self.depth = depth;
    }

    /// Takes over the directory of one shard that has no pieces here; `numbers` are those of its pieces here.
    ///
    /// O(slots of the shard), and O(slots) if the directory grows.
    pub(crate) fn adopt(&mut self, shard: usize, own: &Self, numbers: &[u32]) {
        while self.depth < own.depth {
            self.double();
        }
        for bits in 0..1_usize << self.depth {
            let number = own.slots.get(bits & (own.slots.len() - 1)).and_then(|at| numbers.get(*at as usize));
            let slot = self.slot(shard, bits);
            if let (Some(number), Some(slot)) = (number, self.slots.get_mut(slot)) {
                *slot = *number;
            }
        }
    }

    fn double(&mut self) {
        self.slots.extend_from_within(..);
        self.depth += 1;
        self.note_mask();
    }

    fn note_mask(&mut self) {
        self.mask = if self.masked { self.slots.len() - 1 } else { 0 };
    }

    /// The first piece of a shard.
    pub(crate) fn found(&mut self, shard: usize, number: u32) {
        for bits in 0..1 << self.depth {
            let slot = self.slot(shard, bits);
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = number;
            }
        }
    }

    /// Lets the far half of a piece of `shard` that shared `depth` bits go to another. O(slots of the shard), and
    /// O(slots) if the directory grows.
    pub(crate) fn split(&mut self, shard: usize, depth: u32, (near, far): (u32, u32)) {
        if self.depth == depth {
            self.double();
        }
        for bits in (0..1_usize << self.depth).filter(|bits| bits >> depth & 1 == 1) {
            let slot = self.slot(shard, bits);
            if let Some(slot) = self.slots.get_mut(slot).filter(|slot| **slot == near) {
                *slot = far;
            }
        }
    }

    /// Forgets all pieces.
    pub(crate) fn clear(&mut self) {
        self.slots.truncate(1 << self.shard_bits);
        self.slots.fill(NONE);
        self.depth = 0;
        self.note_mask();
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}
