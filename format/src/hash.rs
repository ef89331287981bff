//! The one hash of the format: xxh3-64 with seed 0.
//!
//! Owns: which hash it is, and the fixed-length forms that key hashing lives on; [`short`] has those of what comes in
//! pieces. Does not own: what is hashed (`codec`), what the hash selects (`key_group`, the heap's tables).

pub(crate) mod short;

use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// Bytes 8..16 xor bytes 16..24 of XXH3's default secret, as little-endian words.
///
/// Inputs of 4 to 8 bytes use no other part of the secret.
const FLIP_4_TO_8: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;

/// Multiplier of XXH3's strong avalanche.
const AVALANCHE: u64 = 0x9fb2_1c65_1e98_df25;

/// xxh3-64 of `bytes`, seed 0: the checksum of files and the hash of keys.
///
/// Stable across processes, platforms and releases. O(bytes).
#[must_use]
#[inline]
pub fn xxh3(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// xxh3-64 of bytes that come one after the other.
#[derive(Clone, Default)]
pub(crate) struct RunningXxh3(Xxh3Default);

impl RunningXxh3 {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0.digest()
    }
}

/// xxh3-64 of the parts as if they were one.
pub(crate) fn xxh3_of_parts(parts: &[&[u8]]) -> u64 {
    let mut hash = Xxh3Default::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.digest()
}

/// xxh3-64 of the four little-endian bytes of `word`: a handful of instructions, no memory access.
#[inline]
pub(crate) const fn xxh3_of_u32(word: u32) -> u64 {
    let word = word as u64;
    strong_avalanche((word | (word << 32)) ^ FLIP_4_TO_8, 4)
}

/// xxh3-64 of the eight little-endian bytes of `word`: a handful of instructions, no memory access.
#[inline]
pub(crate) const fn xxh3_of_u64(word: u64) -> u64 {
    strong_avalanche(word.rotate_left(32) ^ FLIP_4_TO_8, 8)
}

#[inline]
const fn strong_avalanche(mut value: u64, length: u64) -> u64 {
    value ^= value.rotate_left(49) ^ value.rotate_left(24);
    value = value.wrapping_mul(AVALANCHE);
    value ^= (value >> 35).wrapping_add(length);
    value = value.wrapping_mul(AVALANCHE);
    value ^ (value >> 28)
}

/// Takes an encoding piece by piece and hashes it: one of up to 64 bytes from the stack, a longer one by the streaming
/// form, whose state alone is a hundred times as large as most keys. Shorter ones have [`short`].
pub(crate) struct HashWriter {
    short: [u8; SHORT_BYTES],
    /// How many bytes were written, if they are all in `short`.
    length: usize,
    long: Option<Box<Xxh3Default>>,
}

/// Up to so many bytes an encoding is short. More would be cleared for nothing: the stores of several look-ups queue up
/// while the first waits for memory.
const SHORT_BYTES: usize = 64;

impl HashWriter {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT_BYTES], length: 0, long: None }
    }

    #[inline]
    pub(crate) fn finish(&self) -> u64 {
        match &self.long {
            None => xxh3_64(self.short.get(..self.length).unwrap_or_default()),
            Some(long) => long.digest(),
        }
    }

    #[cold]
    fn write_long(&mut self, bytes: &[u8]) {
        let written = self.short.get(..self.length).unwrap_or_default();
        let long = self.long.get_or_insert_with(|| {
            let mut long = Box::new(Xxh3Default::new());
            long.update(written);
            long
        });
        long.update(bytes);
    }
}

impl Writer for HashWriter {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.length + bytes.len();
        match self.short.get_mut(self.length..end) {
            Some(room) if self.long.is_none() => {
                room.copy_from_slice(bytes);
                self.length = end;
            }
            _ => self.write_long(bytes),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_forms_agree_with_the_general_hash(a: u32, b: u64) {
            prop_assert_eq!(xxh3_of_u32(a), xxh3(&a.to_le_bytes()));
            prop_assert_eq!(xxh3_of_u64(b), xxh3(&b.to_le_bytes()));
        }

        #[test]
        fn a_hash_taken_in_pieces_is_the_hash_of_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            cut in 0_usize..600,
        ) {
            let cut = cut.min(bytes.len());
            let mut writer = HashWriter::new();
            writer.write(&bytes[..cut]).unwrap();
            writer.write(&bytes[cut..]).unwrap();
            prop_assert_eq!(writer.finish(), xxh3(&bytes));
        }
    }
}
