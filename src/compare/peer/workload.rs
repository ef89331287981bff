//! The workload's arithmetic: keys, draws, values and checksums, the same in every language.
//!
//! Owns: which key the t-th update goes to and what it writes. Does not own: when a checkpoint is taken.
//! Integers wrap at 64 bits; floating point is IEEE-754 double, multiplied and added step by step.

use lowtide_format::Value;

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const SALT_LOAD: u64 = 0xa076_1d64_78bd_642f;
const SALT_UPDATE: u64 = 0xe703_7ed1_a0b4_28db;
/// Indices from here on are never loaded: the keys of look-ups that must miss.
pub const MISS_BASE: u64 = 1 << 48;

/// One output of Vigna's `SplitMix64` from state `x`: a bijection.
#[inline]
#[must_use]
pub fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of an index.
#[inline]
#[must_use]
pub fn key(index: u64) -> u64 {
    splitmix64(index)
}

/// What the value of an index is made from when it is loaded.
#[inline]
#[must_use]
pub fn load_value(index: u64) -> u64 {
    splitmix64(index ^ SALT_LOAD)
}

/// What an update writes.
#[inline]
#[must_use]
pub fn update_value(draw: u64) -> u64 {
    splitmix64(draw ^ SALT_UPDATE)
}

/// One entry's share of the checksum; the shares are added and wrap.
#[inline]
#[must_use]
pub fn share(key: u64, folded: u64) -> u64 {
    splitmix64(key ^ folded)
}

/// The stream of draws of a seed.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// From its first draw.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for Draws {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let draw = splitmix64(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        Some(draw)
    }
}

/// The index that a draw picks, all `n` alike: high half of the product.
#[inline]
#[must_use]
pub fn uniform(draw: u64, n: u64) -> u64 {
    ((u128::from(draw) * u128::from(n)) >> 64) as u64
}

/// The index that a draw picks, by a scrambled Zipfian rank that is folded onto `n`; `n` is not 0.
#[inline]
#[must_use]
pub fn zipf(draw: u64, n: u64) -> u64 {
    folded(fnv64(zipf_rank(draw)) as i64, n)
}

/// The absolute value of a hash modulo `n`. The smallest number has none in its own type and stays negative; its
/// remainder is then taken towards the floor.
#[inline]
fn folded(hash: i64, n: u64) -> u64 {
    match hash.checked_abs() {
        Some(size) => size as u64 % n,
        None => i128::from(hash).rem_euclid(i128::from(n)) as u64,
    }
}

/// zeta(10^10, 0.99), as YCSB ships it.
const ZETAN: f64 = f64::from_bits(0x403a_7812_3b73_8f4c);
/// 0.5^0.99.
const HALF_POW_THETA: f64 = f64::from_bits(0x3fe0_1c7d_6c40_4f0c);
/// (1 - (2/10^10)^0.01) / (1 - (1 + 0.5^0.99) / zetan).
const ETA: f64 = f64::from_bits(0x3fcb_295e_e6b5_a1de);
const RANKS: f64 = 1e10;

/// YCSB's rank of theta 0.99 over 10^10 items; the exponent 1/(1 - theta) is taken as exactly 100, so that the power is
/// a chain of products.
#[must_use]
pub fn zipf_rank(draw: u64) -> u64 {
    let u = (draw >> 11) as f64 / (1_u64 << 53) as f64;
    let uz = u * ZETAN;
    if uz < 1.0 {
        return 0;
    }
    if uz < 1.0 + HALF_POW_THETA {
        return 1;
    }
    let x = ETA * u - ETA + 1.0;
    let x2 = x * x;
    let x4 = x2 * x2;
    let x8 = x4 * x4;
    let x16 = x8 * x8;
    let x32 = x16 * x16;
    let x64 = x32 * x32;
    (RANKS * (x64 * x32 * x4)) as u64
}

/// FNV-1a over the bytes of a number, lowest first.
#[must_use]
pub fn fnv64(value: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    value.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A kind of value, made from a number and folded to one.
pub trait Kind: Send + Sync + 'static {
    /// Its name in the lines.
    const NAME: &'static str;
    /// Bytes of a value.
    const BYTES: usize;
    /// What is kept.
    type Stored: Value;
    /// The value of a number.
    fn make(seed: u64) -> Self::Stored;
    /// A number that tells values apart; none for what `make` cannot have made.
    fn fold(value: &Self::Stored) -> Option<u64>;
    /// The cheapest look at a value that has to load it.
    fn touch(value: &Self::Stored) -> u64;
    /// A stored value as bytes, for engines that keep bytes.
    fn to_bytes(value: &Self::Stored) -> Vec<u8>;
    /// The value of such bytes; none if they are none.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Stored>;
}

/// The number itself, 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Long;

/// 100 random bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes100;

/// 50 random bytes, twice.
#[derive(Clone, Copy, Debug)]
pub struct Bytes100c;

impl Kind for Long {
    const NAME: &'static str = "long";
    const BYTES: usize = 8;
    type Stored = u64;

    #[inline]
    fn make(seed: u64) -> u64 {
        seed
    }

    fn fold(value: &u64) -> Option<u64> {
        Some(*value)
    }

    #[inline]
    fn touch(value: &u64) -> u64 {
        *value
    }

    fn to_bytes(value: &u64) -> Vec<u8> {
        value.to_le_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

const LENGTH: usize = 100;

/// Random bytes, cut to `length`.
#[inline]
fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH + 8);
    for word in 0..length.div_ceil(8) as u64 {
        bytes.extend_from_slice(&splitmix64(seed.wrapping_add(word)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn fold_bytes(bytes: &[u8]) -> Option<u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    let rest: [u8; 4] = rest.try_into().ok()?;
    let hash = words.iter().fold(0, |hash, word| splitmix64(hash ^ u64::from_le_bytes(*word)));
    (bytes.len() == LENGTH).then(|| splitmix64(hash ^ u64::from(u32::from_le_bytes(rest))))
}

macro_rules! bytes_kind {
    ($kind:ty, $name:literal, $make:expr) => {
        impl Kind for $kind {
            const NAME: &'static str = $name;
            const BYTES: usize = LENGTH;
            type Stored = Vec<u8>;

            #[inline]
            fn make(seed: u64) -> Vec<u8> {
                $make(seed)
            }

            fn fold(value: &Vec<u8>) -> Option<u64> {
                fold_bytes(value)
            }

            #[inline]
            fn touch(value: &Vec<u8>) -> u64 {
                value.get(57).copied().unwrap_or_default().into()
            }

            fn to_bytes(value: &Vec<u8>) -> Vec<u8> {
                value.clone()
            }

            fn from_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
                Some(bytes.to_vec())
            }
        }
    };
}

bytes_kind!(Bytes100, "bytes100", |seed| random_bytes(seed, LENGTH));
bytes_kind!(Bytes100c, "bytes100c", |seed| {
    let mut bytes = random_bytes(seed, LENGTH / 2);
    bytes.extend_from_within(..);
    bytes
});

/// What every key should hold, and the stream that changes it.
#[derive(Clone, Debug)]
pub struct Model {
    seeds: Vec<u64>,
    draws: Draws,
    /// The round that last touched each index.
    touched: Vec<u32>,
    round: u32,
}

/// The updates of one round, in order.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Their keys.
    pub keys: Vec<u64>,
    /// What their values are made from.
    pub seeds: Vec<u64>,
    /// Different keys among them.
    pub distinct: u64,
}

impl Model {
    /// `n` keys as they are loaded; `seed` begins the stream of updates. 12 bytes a key.
    #[must_use]
    pub fn new(n: u64, seed: u64) -> Self {
        let seeds: Vec<u64> = (0..n).map(load_value).collect();
        Self { touched: vec![0; seeds.len()], seeds, draws: Draws::new(seed), round: 0 }
    }

    /// Keys.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a key")]
    pub fn len(&self) -> u64 {
        self.seeds.len() as u64
    }

    /// The next `updates` updates, chosen by `choose`, which maps a draw and the number of keys to an index.
    pub fn round(&mut self, updates: u64, choose: fn(u64, u64) -> u64) -> Round {
        let n = self.seeds.len() as u64;
        let mut round = Round::default();
        self.round += 1;
        for draw in self.draws.by_ref().take(updates as usize) {
            let (index, seed) = (choose(draw, n), update_value(draw));
            round.keys.push(key(index));
            round.seeds.push(seed);
            if let Some(held) = self.seeds.get_mut(index as usize) {
                *held = seed;
            }
            if let Some(touched) = self.touched.get_mut(index as usize) {
                round.distinct += u64::from(*touched != self.round);
                *touched = self.round;
            }
        }
        round
    }

    /// The checksum of a state that holds what it should.
    #[must_use]
    pub fn checksum<T: Kind>(&self) -> u64 {
        let shares = self.seeds.iter().zip(0..).map(|(seed, index)| {
            let folded = T::fold(&T::make(*seed)).unwrap_or_default();
            share(key(index), folded)
        });
        shares.fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests;
