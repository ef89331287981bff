//! What is done to the state, as a function of the number of the operation.

use std::collections::BTreeMap;

/// One change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put(u64, u64),
    Remove(u64),
    Clear,
}

/// Numbers that look random and follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Mix(u64);

impl Mix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// The operation with this number.
pub(crate) fn operation(number: u64) -> Operation {
    let mut mix = Mix::new(number);
    let (kind, key) = (mix.below(1_000), mix.below(600));
    match kind {
        0 => Operation::Clear,
        1..=250 => Operation::Remove(key),
        _ => Operation::Put(key, number),
    }
}

/// The entries after so many operations.
pub(crate) fn model(operations: u64) -> BTreeMap<u64, u64> {
    let mut entries = BTreeMap::new();
    for number in 0..operations {
        match operation(number) {
            Operation::Put(key, value) => {
                entries.insert(key, value);
            }
            Operation::Remove(key) => {
                entries.remove(&key);
            }
            Operation::Clear => entries.clear(),
        }
    }
    entries
}
