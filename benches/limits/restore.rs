//! The least that a restore of a chain has to do, beside building as many pre-sized maps from vectors in parallel.
//!
//! Records of 22 bytes, as a segment has them for u64 → u64, newest element first: each key group takes two numbers of
//! every record and puts them into a pre-sized map unless the key is there. No index, checksum, length, id or count is
//! looked at, and records come in the order of the map's buckets, the best there is.
//!
//! `cargo run --release --bin limit-restore -- [ENTRIES [ROUNDS]]`

use hashbrown::{DefaultHashBuilder, HashMap};
use lowtide_peers::bars::restore::row;
use lowtide_peers::measure::{below, timed};
use rayon::prelude::*;

const KEY_GROUPS: u64 = 128;
const RECORD_BYTES: usize = 22;

type Maps = Vec<HashMap<u64, u64>>;

/// The records of some keys, by key group, in the order of `ranks`.
fn element(keys: impl Iterator<Item = u64>, ranks: &Maps) -> Vec<Vec<u8>> {
    let mut groups = vec![Vec::new(); KEY_GROUPS as usize];
    keys.for_each(|key| groups[below(key, KEY_GROUPS) as usize].push(key));
    let encode = |(keys, ranks): (&mut Vec<u64>, &HashMap<u64, u64>)| {
        keys.sort_unstable_by_key(|key| ranks[key]);
        keys.dedup();
        let mut bytes = Vec::with_capacity(keys.len() * RECORD_BYTES);
        for key in keys {
            let number = key.to_le_bytes();
            bytes.extend([&[1, 8], &number[..], &[0, 8], &number[..], &[0, 0]].concat());
        }
        bytes
    };
    groups.iter_mut().zip(ranks).map(encode).collect()
}

/// Elements into maps.
fn restore(elements: &[Vec<Vec<u8>>], sizes: &[usize], hasher: &DefaultHashBuilder) -> Maps {
    let fill = |(group, size): (usize, &usize)| {
        let mut map = HashMap::with_capacity_and_hasher(*size, hasher.clone());
        for record in elements.iter().flat_map(|element| element[group].chunks_exact(RECORD_BYTES)) {
            let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
            map.entry(number(2)).or_insert(number(12));
        }
        map
    };
    sizes.par_iter().enumerate().map(|(group, size)| fill((group, size))).collect()
}

/// Vectors into maps, the bar's other side.
fn build(vectors: &[Vec<(u64, u64)>]) -> Maps {
    let fill = |pairs: &Vec<(u64, u64)>| {
        let mut map = HashMap::with_capacity(pairs.len());
        map.extend(pairs.iter().copied());
        map
    };
    vectors.par_iter().map(fill).collect()
}

fn nanos(work: impl FnOnce() -> Maps, entries: u64) -> f64 {
    let (nanos, maps) = timed(work);
    assert_eq!(maps.iter().map(HashMap::len).sum::<usize>() as u64, entries);
    nanos
}

fn main() {
    let mut given = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (entries, rounds): (u64, u64) = (given.next().unwrap_or(2_000_000), given.next().unwrap_or(5));
    let mut vectors = vec![Vec::new(); KEY_GROUPS as usize];
    (0..entries).for_each(|key| vectors[below(key, KEY_GROUPS) as usize].push((key, key)));
    let sizes: Vec<usize> = vectors.iter().map(Vec::len).collect();
    let hasher = DefaultHashBuilder::default();
    let mut ranks: Maps = Vec::new();
    for pairs in &vectors {
        let mut map = HashMap::with_capacity_and_hasher(pairs.len(), hasher.clone());
        map.extend(pairs.iter().copied());
        map.values_mut().zip(0..).for_each(|(value, rank)| *value = rank);
        ranks.push(map);
    }
    for chain in [1, 50] {
        let draws = |number: u64| (0..entries / 100).map(move |it| below(number * entries + it, entries));
        let mut elements: Vec<_> = (1..chain).rev().map(|number| element(draws(number), &ranks)).collect();
        elements.push(element(0..entries, &ranks));
        let (mut restoring, mut building) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            restoring.push(nanos(|| restore(&elements, &sizes, &hasher), entries));
            building.push(nanos(|| build(&vectors), entries));
        }
        row(chain, entries, restoring, building).least(true).print();
    }
}
