//! A set of small numbers as bits: buckets of a table, pieces of a shard.
//!
//! Owns: the bits. Does not own: what a number means.

/// A set of small numbers; grows as needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

const WORD_BITS: usize = 64;

impl Bitmap {
    /// The empty set, with room for numbers below `bits`.
    pub(crate) fn with_room(bits: usize) -> Self {
        Self { words: vec![0; bits.div_ceil(WORD_BITS)] }
    }

    /// Whether `bit` is in the set.
    #[inline]
    pub(crate) fn contains(&self, bit: usize) -> bool {
        self.words.get(bit / WORD_BITS).is_some_and(|word| word >> (bit % WORD_BITS) & 1 == 1)
    }

    /// Adds `bit`; tells whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, bit: usize) -> bool {
        let index = bit / WORD_BITS;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let mask = 1 << (bit % WORD_BITS);
        self.words.get_mut(index).is_some_and(|word| {
            let new = *word & mask == 0;
            *word |= mask;
            new
        })
    }

    /// Takes `bit` out; tells whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, bit: usize) -> bool {
        let mask = 1 << (bit % WORD_BITS);
        self.words.get_mut(bit / WORD_BITS).is_some_and(|word| {
            let there = *word & mask != 0;
            *word &= !mask;
            there
        })
    }

    /// Adds all of `other`.
    pub(crate) fn union_with(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// How many numbers are in it; no more are counted once there are more than `enough`.
    pub(crate) fn count_to(&self, enough: usize) -> usize {
        let mut count = 0;
        for word in &self.words {
            count += word.count_ones() as usize;
            if count > enough {
                break;
            }
        }
        count
    }

    /// The numbers, ascending.
    pub(crate) fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.ones_from(0)
    }

    /// The numbers that are at least `from`, ascending.
    pub(crate) fn ones_from(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let first = from / WORD_BITS;
        let words = self.words.iter().enumerate().skip(first);
        words.flat_map(move |(index, &word)| {
            let word = if index == first { word & u64::MAX << (from % WORD_BITS) } else { word };
            ones_of(word).map(move |bit| index * WORD_BITS + bit)
        })
    }

    /// The first number that is at least `from`.
    pub(crate) fn next_from(&self, from: usize) -> Option<usize> {
        self.ones_from(from).next()
    }

    /// A set from its words: number `i` is bit `i % 64` of word `i / 64`.
    pub(crate) fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    /// Bytes of memory beside the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// A set that is taken from until it is empty: knows how much is left, and finds its first number without a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainSet {
    bits: Bitmap,
    left: usize,
    /// No number of the set is below.
    from: usize,
}

impl From<Bitmap> for DrainSet {
    fn from(bits: Bitmap) -> Self {
        let left = bits.count_to(usize::MAX);
        Self { bits, left, from: 0 }
    }
}

impl DrainSet {
    /// Whether `bit` is in the set.
    #[inline]
    pub(crate) fn contains(&self, bit: usize) -> bool {
        self.bits.contains(bit)
    }

    /// Adds `bit`.
    pub(crate) fn insert(&mut self, bit: usize) {
        self.left += usize::from(self.bits.insert(bit));
        self.from = self.from.min(bit);
    }

    /// Takes `bit` out; tells whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, bit: usize) -> bool {
        let there = self.bits.remove(bit);
        self.left -= usize::from(there);
        there
    }

    /// How many numbers are left.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Whether none is left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The numbers, ascending. What is passed over to find the first is not looked at again.
    pub(crate) fn ones(&mut self) -> impl Iterator<Item = usize> + '_ {
        self.from = self.bits.next_from(self.from).unwrap_or(usize::MAX);
        self.bits.ones_from(self.from)
    }
}

/// The numbers of the bits of a word that are set, ascending.
pub(crate) fn ones_of(word: u64) -> impl Iterator<Item = usize> {
    std::iter::successors((word != 0).then_some(word), |word| {
        let rest = word & (word - 1);
        (rest != 0).then_some(rest)
    })
    .map(|word| word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(
            a in proptest::collection::btree_set(0_usize..300, 0..40),
            b in proptest::collection::btree_set(0_usize..300, 0..40),
            out in proptest::collection::vec(0_usize..300, 0..40),
        ) {
            let mut model: BTreeSet<usize> = a.clone();
            let mut bits = Bitmap::default();
            for bit in &a {
                prop_assert!(bits.insert(*bit));
                prop_assert!(!bits.insert(*bit));
            }
            let mut other = Bitmap::with_room(10);
            b.iter().for_each(|bit| { other.insert(*bit); });
            bits.union_with(&other);
            model.extend(&b);
            for bit in out {
                prop_assert_eq!(bits.remove(bit), model.remove(&bit));
            }
            prop_assert_eq!(bits.count_to(usize::MAX), model.len());
            for enough in 0..model.len() + 2 {
                let counted = bits.count_to(enough);
                prop_assert!(counted <= model.len() && (counted > enough) == (model.len() > enough));
            }
            prop_assert_eq!(bits.is_empty(), model.is_empty());
            prop_assert!(bits.ones().eq(model.iter().copied()));
            for from in 0..310 {
                prop_assert_eq!(bits.next_from(from), model.range(from..).next().copied());
                prop_assert!(bits.ones_from(from).eq(model.range(from..).copied()));
                prop_assert_eq!(bits.contains(from), model.contains(&from));
            }
        }

        #[test]
        fn a_set_is_drained_from_its_first_number_whatever_comes_and_goes(
            filled in proptest::collection::btree_set(0_usize..300, 0..40),
            steps in proptest::collection::vec((0_usize..300, 0_u8..4), 0..80),
        ) {
            let mut bits = Bitmap::default();
            filled.iter().for_each(|bit| { bits.insert(*bit); });
            let (mut set, mut model) = (DrainSet::from(bits), filled);
            for (bit, step) in steps {
                match step {
                    0 => { set.insert(bit); model.insert(bit); }
                    1 => prop_assert_eq!(set.remove(bit), model.remove(&bit)),
                    _ => {
                        prop_assert_eq!(set.ones().next(), model.first().copied());
                        if let Some(first) = model.pop_first() {
                            prop_assert!(set.remove(first));
                        }
                    }
                }
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(set.contains(bit), model.contains(&bit));
                prop_assert!(set.ones().eq(model.iter().copied()));
            }
        }
    }
}
