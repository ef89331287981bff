//! How a key and its namespace become a key of RocksDB.
//!
//! ```text
//! stored = group (2, big-endian) ++ length of key (LEB128) ++ key ++ namespace
//! ```
//!
//! The group comes first, so that the entries of a key-group range are one run of stored keys: that is
//! what makes a rescale a matter of ranges. The length makes the rest unambiguous whatever the types of key and
//! namespace are: no separator, nothing to escape. The namespace needs no length, being the last part.
//!
//! # Invariants
//!
//! - L1. Two pairs of key and namespace have the same stored key only if both are equal.
//! - L2. A stored key lies in `[lower_bound(range), upper_bound(range))` exactly if its group is in the range.

use lowtide_format::{FormatError, KeyGroup, KeyGroupRange};

/// The first stored key that a group can have.
#[must_use]
pub fn group_prefix(group: KeyGroup) -> [u8; 2] {
    big_endian(group.0)
}

/// The first key that an entry of `range` can have.
#[must_use]
pub fn lower_bound(range: KeyGroupRange) -> [u8; 2] {
    group_prefix(range.start())
}

/// The first key behind all entries of `range`.
#[must_use]
pub fn upper_bound(range: KeyGroupRange) -> [u8; 2] {
    // Key groups are below 32,768, so the next one fits.
    big_endian(range.end().0.saturating_add(1))
}

#[expect(
    clippy::big_endian_bytes,
    reason = "RocksDB orders by bytes, so that only big-endian groups are contiguous"
)]
fn big_endian(group: u16) -> [u8; 2] {
    group.to_be_bytes()
}

#[expect(clippy::big_endian_bytes, reason = "the inverse of `big_endian`")]
fn from_big_endian(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

/// Appends the stored key of `group`, `key` and `namespace`, which the closures encode, to the empty `out`.
///
/// # Errors
///
/// What the closures return.
#[inline]
pub fn encode(
    out: &mut Vec<u8>,
    group: KeyGroup,
    key: impl FnOnce(&mut Vec<u8>) -> Result<(), FormatError>,
    namespace: impl FnOnce(&mut Vec<u8>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    out.clear();
    out.extend_from_slice(&group_prefix(group));
    // Nearly every key is shorter than 128 bytes, so that its length is the one byte left free here.
    out.push(0);
    key(out)?;
    let length = out.len() - 3;
    if let Ok(short @ 0..=0x7f) = u8::try_from(length) {
        if let Some(byte) = out.get_mut(2) {
            *byte = short;
        }
    } else {
        let (bytes, used) = leb128(length as u64);
        out.splice(2..3, bytes.into_iter().take(used));
    }
    namespace(out)
}

fn leb128(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut used = 0;
    for byte in &mut bytes {
        used += 1;
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, used)
}

/// The parts of a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKey<'a> {
    /// The key group.
    pub group: KeyGroup,
    /// The encoded key.
    pub key: &'a [u8],
    /// The encoded namespace.
    pub namespace: &'a [u8],
}

impl<'a> StoredKey<'a> {
    /// Takes a stored key apart.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if `stored` was not made by [`encode`].
    pub fn decode(stored: &'a [u8]) -> Result<Self, FormatError> {
        const PART: &str = "stored key";
        let invalid = |problem| FormatError::Invalid { part: PART, problem };
        let (group, mut rest) = stored.split_first_chunk::<2>().ok_or(invalid("it has no key group"))?;
        let mut length = 0_usize;
        let mut shift = 0_u32;
        loop {
            let (&byte, after) = rest.split_first().ok_or(invalid("the length of its key is cut"))?;
            rest = after;
            let bits = usize::from(byte & 0x7f);
            length |= bits
                .checked_shl(shift)
                .filter(|part| part >> shift == bits)
                .ok_or(invalid("its key is too long"))?;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        let (key, namespace) = rest.split_at_checked(length).ok_or(invalid("its key is cut"))?;
        Ok(Self { group: KeyGroup(from_big_endian(*group)), key, namespace })
    }
}

/// The groups of `of` that are not in `range`, as at most two ranges.
pub fn outside(of: KeyGroupRange, range: KeyGroupRange) -> impl Iterator<Item = KeyGroupRange> {
    let below = range.start().0.checked_sub(1).and_then(|end| KeyGroupRange::new(of.start(), KeyGroup(end)));
    let above = range.end().0.checked_add(1).and_then(|start| KeyGroupRange::new(KeyGroup(start), of.end()));
    [below, above].into_iter().flatten().filter_map(move |part| part.intersect(of))
}

/// The group of a stored key, or of a bound that need not be a whole key: missing bytes count as zero.
#[must_use]
pub fn group_of(bytes: &[u8]) -> KeyGroup {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    KeyGroup(from_big_endian([at(0), at(1)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn stored(group: u16, key: &[u8], namespace: &[u8]) -> Vec<u8> {
        let mut out = vec![7; 3];
        let append = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            move |out: &mut Vec<u8>| {
                out.extend_from_slice(&bytes);
                Ok(())
            }
        };
        encode(&mut out, KeyGroup(group), append(key), append(namespace)).unwrap();
        out
    }

    proptest! {
        #[test]
        fn a_stored_key_comes_apart_as_it_was_put_together(
            group in 0_u16..32_768, key in vec(any::<u8>(), 0..40_000), namespace in vec(any::<u8>(), 0..300),
        ) {
            let bytes = stored(group, &key, &namespace);
            let parts = StoredKey { group: KeyGroup(group), key: &key, namespace: &namespace };
            prop_assert_eq!(StoredKey::decode(&bytes).unwrap(), parts);
            prop_assert_eq!(group_of(&bytes), KeyGroup(group));
        }

        // L1
        #[test]
        fn different_pairs_have_different_stored_keys(
            a in (vec(0_u8..3, 0..5), vec(0_u8..3, 0..5)), b in (vec(0_u8..3, 0..5), vec(0_u8..3, 0..5)),
        ) {
            prop_assert_eq!(stored(1, &a.0, &a.1) == stored(1, &b.0, &b.1), a == b);
        }

        // L2
        #[test]
        fn a_stored_key_is_within_the_bounds_of_a_range_exactly_if_its_group_is(
            group in 0_u16..32_768, a in 0_u16..32_768, b in 0_u16..32_768, key in vec(any::<u8>(), 0..4),
        ) {
            let range = KeyGroupRange::new(KeyGroup(a.min(b)), KeyGroup(a.max(b))).unwrap();
            let bytes = stored(group, &key, &[]);
            let inside = bytes.as_slice() >= &lower_bound(range)[..] && bytes.as_slice() < &upper_bound(range)[..];
            prop_assert_eq!(inside, range.contains(KeyGroup(group)));
        }

        #[test]
        fn bytes_that_are_no_stored_key_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..40)) {
            if let Ok(parts) = StoredKey::decode(&bytes) {
                prop_assert!(parts.key.len() + parts.namespace.len() < bytes.len());
            }
        }
    }

    #[test]
    fn a_length_that_does_not_fit_is_refused() {
        let mut bytes = vec![0, 1];
        bytes.extend([0xff; 12]);
        assert!(StoredKey::decode(&bytes).is_err());
    }

    #[test]
    fn the_longest_of_the_short_keys_and_the_shortest_of_the_long_ones_survive() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let key = vec![9; length];
            assert_eq!(StoredKey::decode(&stored(3, &key, b"ns")).unwrap().key, key);
        }
    }
}
