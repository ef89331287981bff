//! xxh3-64 of up to 32 bytes that come in pieces, without memory.
//!
//! Owns: the short forms of the hash, put together in registers. Does not own: longer inputs (the parent).
//!
//! A look-up hashes a key while the look-ups before it wait for memory. Whatever it stores then waits in the
//! processor's queue of stores, which has room for some sixty, and a load of bytes that were stored in several parts
//! waits until they have left the queue. Beside a look-up in a million entries whose hash is known, one with an encoding of
//! twenty bytes took four times as long when that was put together on the stack; put together here, twice.

use super::{FLIP_4_TO_8, strong_avalanche};

/// The first bytes of XXH3's default secret, as little-endian words.
const SECRET: [u64; 9] = [
    0xbe4b_a423_396c_feb8,
    0x1cad_21f7_2c81_017c,
    0xdb97_9083_e96d_d4de,
    0x1f67_b3b7_a4a4_4072,
    0x78e5_c0cc_4ee6_79cb,
    0x2172_ffcc_7dd0_5a82,
    0x8e24_43f7_7446_08b8,
    0x4c26_3a81_e690_35e0,
    0xcb00_c391_bb52_283c,
];

/// Multipliers of XXH64, some of which XXH3 uses.
const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
/// Multiplier of XXH3's avalanche.
const PRIME_MX: u64 = 0x1656_6791_9e37_79f9;

const WORD: usize = size_of::<u64>();

/// More bytes than that are not short.
const BYTES_MAX: usize = 4 * WORD;

/// More bytes came than a short hash takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// A hash that is being taken. Of the words that are complete it keeps the first two and the last two: no short form
/// reads others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShortXxh3 {
    first: u64,
    second: u64,
    last_but_one: u64,
    last: u64,
    /// The bytes after the last complete word; zeros above them.
    rest: u64,
    length: usize,
}

impl ShortXxh3 {
    /// Adds one to eight bytes; those of `word` above them are zero.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if that is more than fits; the hash is of no use then.
    #[inline]
    pub(crate) fn push(&mut self, word: u64, bytes: usize) -> Result<(), TooLong> {
        let shift = self.length % WORD * 8;
        let merged = self.rest | word << shift;
        let before = self.length;
        self.length += bytes;
        if self.length > BYTES_MAX {
            return Err(TooLong);
        }
        if self.length / WORD == before / WORD {
            self.rest = merged;
        } else {
            // In two steps, since a first byte has nothing before it and a shift by all bits is none.
            self.rest = word >> 1 >> (63 - shift);
            self.first = if before < WORD { merged } else { self.first };
            self.second = if before / WORD == 1 { merged } else { self.second };
            (self.last_but_one, self.last) = (self.last, merged);
        }
        Ok(())
    }

    /// Adds any bytes.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if bytes.len() > BYTES_MAX {
            return Err(TooLong);
        }
        let (words, rest) = bytes.as_chunks::<WORD>();
        for word in words {
            self.push(u64::from_le_bytes(*word), WORD)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let word = match bytes.last_chunk::<WORD>() {
            Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - rest.len())),
            None => word_of(rest),
        };
        self.push(word, rest.len())
    }

    /// The hash of all bytes so far.
    #[inline]
    pub(crate) fn finish(self) -> u64 {
        let [s0, s1, s2, s3, s4, s5, s6, s7, s8] = SECRET;
        let length = self.length as u64;
        // The eight bytes that end so many bits after a word.
        let shift = self.length % WORD * 8;
        let across = |before: u64, after: u64| before >> shift | after << 1 << (63 - shift);
        let tail = across(self.last, self.rest);
        match self.length {
            17.. => {
                let head = folded_product(self.first ^ s0, self.second ^ s1);
                let tail = folded_product(across(self.last_but_one, self.last) ^ s2, tail ^ s3);
                avalanche(length.wrapping_mul(PRIME_1).wrapping_add(head).wrapping_add(tail))
            }
            9.. => {
                let (head, tail) = (self.first ^ s3 ^ s4, tail ^ s5 ^ s6);
                let sum = length.wrapping_add(head.swap_bytes()).wrapping_add(tail);
                avalanche(sum.wrapping_add(folded_product(head, tail)))
            }
            4.. => {
                let all = if self.length == WORD { self.first } else { self.rest };
                let half = |word: u64| word & u64::from(u32::MAX);
                let (head, tail) = (half(all), half(all >> (8 * (self.length - 4))));
                strong_avalanche(tail.wrapping_add(head << 32) ^ FLIP_4_TO_8, length)
            }
            1.. => {
                let byte = |at: usize| self.rest >> (8 * at) & 0xff;
                let (first, middle, last) = (byte(0), byte(self.length / 2), byte(self.length - 1));
                let flip = (s0 ^ s0 >> 32) & u64::from(u32::MAX);
                xxh64_avalanche((first << 16 | middle << 24 | last | length << 8) ^ flip)
            }
            0 => xxh64_avalanche(s7 ^ s8),
        }
    }
}

/// One to seven bytes as a word, without a loop.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let (Some(head), Some(tail)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*head))
            | u64::from(u32::from_le_bytes(*tail)) << (8 * (length - 4));
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
    byte(0) | byte(length / 2) | byte(length - 1)
}

/// The two halves of a product, one on top of the other.
#[inline]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(mut value: u64) -> u64 {
    value ^= value >> 37;
    value = value.wrapping_mul(PRIME_MX);
    value ^ (value >> 32)
}

#[inline]
fn xxh64_avalanche(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(PRIME_2);
    value ^= value >> 29;
    value = value.wrapping_mul(PRIME_3);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::xxh3;
    use proptest::prelude::*;

    fn hash_of_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<u64, TooLong> {
        let mut hash = ShortXxh3::default();
        pieces.into_iter().try_for_each(|piece| hash.write(piece))?;
        Ok(hash.finish())
    }

    #[test]
    fn every_length_cut_anywhere_has_the_hash_of_the_reference_or_is_too_long() {
        let bytes: Vec<u8> = (0..80_u8).map(|at| at.wrapping_mul(73).wrapping_add(11)).collect();
        for length in 0..bytes.len() {
            let whole = &bytes[..length];
            let expected = if length <= BYTES_MAX { Ok(xxh3(whole)) } else { Err(TooLong) };
            for cut in 0..=length {
                let (head, tail) = whole.split_at(cut);
                assert_eq!(hash_of_pieces([head, tail]), expected, "{length} bytes, cut at {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_words_wherever_they_begin(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..10), 0..9),
        ) {
            let pieces = pieces.iter().map(Vec::as_slice);
            let whole: Vec<u8> = pieces.clone().collect::<Vec<_>>().concat();
            let expected = if whole.len() <= BYTES_MAX { Ok(xxh3(&whole)) } else { Err(TooLong) };
            prop_assert_eq!(hash_of_pieces(pieces), expected);
        }
    }
}
