//! xxh3-64 of up to 32 bytes that come in pieces, without memory.
//!
//! Owns: the short forms of the hash, put together in registers. Does not own: longer inputs (the parent).
//!
//! A look-up hashes a key while the look-ups before it wait for memory. Whatever it stores then waits in the
//! processor's queue of stores, which has room for some sixty, and a load of bytes that were stored in several parts
//! waits until they have left the queue. Beside a look-up in a million entries whose hash is known, one with an encoding of
//! twenty bytes took five times as long when any of that went over the stack; put together here, two and a half times.

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

/// A hash that is being taken: the short forms read the first sixteen bytes and the last sixteen only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShortXxh3 {
    /// The first two words, zeros where no byte has come yet.
    head: [u64; 2],
    /// The last two words; the highest byte is the one that came last.
    tail: [u64; 2],
    length: usize,
}

// Inlined whatever the compiler thinks of it: as a call, it passes the hash on the stack.
impl ShortXxh3 {
    /// Adds one to eight bytes; those of `word` above them are zero.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if that is more than fits; the hash is of no use then.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: u64, bytes: usize) -> Result<(), TooLong> {
        let [older, newer] = self.tail;
        self.tail = [across(older, newer, bytes), across(newer, word, bytes)];
        self.add([word, 0], bytes)
    }

    /// Adds any bytes.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let length = bytes.len();
        if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
            self.tail = words_of(tail);
            self.add(words_of(head), length)
        } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            let after_first = length - WORD;
            self.tail = [across(self.tail[1], first, after_first), last];
            self.add([first, across(last, 0, WORD - after_first)], length)
        } else if length > 0 {
            self.push(word_of(bytes), length)
        } else {
            Ok(())
        }
    }

    /// Adds the first two words of what comes and its length.
    #[inline(always)]
    fn add(&mut self, [first, second]: [u64; 2], bytes: usize) -> Result<(), TooLong> {
        let shift = self.length % WORD * 8;
        if self.length < WORD {
            self.head[0] |= first << shift;
            // In two steps, since a first byte has nothing before it and a shift by all bits is none.
            self.head[1] |= first >> 1 >> (63 - shift) | second << shift;
        } else if self.length < 2 * WORD {
            self.head[1] |= first << shift;
        }
        self.length += bytes;
        if self.length > BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    /// The hash of all bytes so far.
    #[inline(always)]
    pub(crate) fn finish(self) -> u64 {
        let Self { head: [first, second], tail: [last_but_one, last], length } = self;
        let [s0, s1, s2, s3, s4, s5, s6, s7, s8] = SECRET;
        let length_word = length as u64;
        match length {
            17.. => {
                let head = folded_product(first ^ s0, second ^ s1);
                let tail = folded_product(last_but_one ^ s2, last ^ s3);
                avalanche(length_word.wrapping_mul(PRIME_1).wrapping_add(head).wrapping_add(tail))
            }
            9.. => {
                let (head, tail) = (first ^ s3 ^ s4, last ^ s5 ^ s6);
                let sum = length_word.wrapping_add(head.swap_bytes()).wrapping_add(tail);
                avalanche(sum.wrapping_add(folded_product(head, tail)))
            }
            4.. => strong_avalanche((last >> 32).wrapping_add(first << 32) ^ FLIP_4_TO_8, length_word),
            1.. => {
                let byte = |at: usize| first >> (8 * at) & 0xff;
                let (first, middle, last) = (byte(0), byte(length / 2), byte(length - 1));
                let flip = (s0 ^ s0 >> 32) & u64::from(u32::MAX);
                xxh64_avalanche((first << 16 | middle << 24 | last | length_word << 8) ^ flip)
            }
            0 => xxh64_avalanche(s7 ^ s8),
        }
    }
}

/// The eight bytes that end up to eight bytes after a word.
#[inline(always)]
fn across(word: u64, after: u64, bytes: usize) -> u64 {
    ((u128::from(after) << 64 | u128::from(word)) >> (8 * bytes)) as u64
}

#[inline(always)]
fn words_of(bytes: &[u8; 2 * WORD]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    [both as u64, (both >> 64) as u64]
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
