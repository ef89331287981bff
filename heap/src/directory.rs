//! Which piece a hash belongs to.
//!
//! Owns: the slots of the directory, by number of piece. Does not own: the pieces (`shards`).
//!
//! The directory is that of extendible hashing, one for all key groups of a state: as many bits of the hash as the
//! deepest piece needs, for every key group. A backend that holds all key groups, whose number is a power of two,
//! finds the slot by the low bits of the hash alone: the key group, and above it the bits that tell pieces apart.
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

/// The directory of one state.
#[derive(Debug)]
pub(crate) struct Directory {
    slots: Vec<u32>,
    /// Whether the low bits of a hash are the slot.
    whole: bool,
    /// The lowest bit of a hash that tells pieces of a key group apart.
    shift: u32,
    /// By so many bits of a slot's number the shards are told apart; above them are the bits of the hash.
    shard_bits: u32,
    /// How many bits of the hash there are.
    depth: u32,
}

impl Directory {
    /// A directory of no pieces.
    pub(crate) fn new(layout: Layout) -> Self {
        let (groups, range) = (layout.count.get(), layout.range);
        let whole = groups.is_power_of_two() && range.len() == u32::from(groups);
        let shard_bits = range.len().next_power_of_two().trailing_zeros();
        let shift = if whole { shard_bits } else { GROUP_BITS };
        Self { slots: vec![NONE; 1 << shard_bits], whole, shift, shard_bits, depth: 0 }
    }

    /// The piece at a place; none, or one without such a key, if there is none.
    #[inline]
    pub(crate) fn find(&self, place: Place) -> Option<usize> {
        let slot = if self.whole {
            place.hash as usize & (self.slots.len() - 1)
        } else {
            self.slot(place.shard, (place.hash >> self.shift) as usize & ((1 << self.depth) - 1))
        };
        self.slots.get(slot).map(|number| *number as usize)
    }

    fn slot(&self, shard: usize, bits: usize) -> usize {
        shard | bits << self.shard_bits
    }

    /// The bit of a hash by which a piece that shares `depth` bits is split.
    pub(crate) fn split_bit(&self, depth: u32) -> u32 {
        self.shift + depth
    }

    /// Whether a piece that shares `depth` bits may be split when there are so many pieces: hashes that hardly
    /// differ are not worth a directory twice as long.
    pub(crate) fn may_split(&self, depth: u32, pieces: usize) -> bool {
        let affordable = self.slots.len() * 2 <= 1024 + 256 * pieces;
        depth < self.depth || (self.split_bit(depth) < BITS_MAX && affordable)
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
            self.slots.extend_from_within(..);
            self.depth += 1;
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
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }
}
