//! The least that a batch of look-ups or changes does beside the same ones one by one, in the same map: see
//! `lowtide_peers::bare`. A batch asks for the control bytes of all its keys, then for the first slot of each whose byte agrees,
//! and then searches; one alone asks for its likely slot and searches. What misses a bar here, all such maps miss: one access
//! is short enough that the processor overlaps many by itself.
//!
//! `cargo run --release --bin limit-many -- [ENTRIES [ROUNDS]]`

use std::hint::black_box;

use lowtide_peers::bare::{Bare, Place};
use lowtide_peers::bars::many::{BATCH, Sides};
use lowtide_peers::kinds::Numbers;
use lowtide_peers::measure::{below, timed};

type Map = Bare<Numbers>;

fn alone(map: &mut Map, keys: &[u64], each: impl Fn(&mut Map, Place, &u64)) {
    for key in keys {
        let place = map.place_alone(key);
        each(map, place, key);
    }
}

fn together(map: &mut Map, keys: &[u64], each: impl Fn(&mut Map, Place, &u64)) {
    let mut places = [(0, 0); BATCH];
    for keys in keys.chunks(BATCH) {
        for (place, key) in places.iter_mut().zip(keys) {
            *place = map.place(key);
            map.ask_for_group(*place);
        }
        places.iter().take(keys.len()).for_each(|place| map.ask_for_first(*place));
        places.iter().zip(keys).for_each(|(place, key)| each(map, *place, key));
    }
}

fn main() {
    let mut given = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (entries, rounds) = (given.next().unwrap_or(10_000_000), given.next().unwrap_or(7));
    let mut map = Map::filled(entries);
    let get = |map: &mut Map, place, key: &u64| _ = black_box(map.get(place, key));
    let [mut gets, mut updates] = [(); 2].map(|()| Sides::least());
    for round in 0..rounds {
        let keys: Vec<u64> = (0..1_000_000).map(|it| below(round << 20 | it, entries)).collect();
        gets.one.push(timed(|| alone(&mut map, &keys, get)).0 / 1e6);
        gets.many.push(timed(|| together(&mut map, &keys, get)).0 / 1e6);
        // All are changed already, as in a map that was never frozen.
        alone(&mut map, &keys, Map::change);
        updates.many.push(timed(|| together(&mut map, &keys, Map::change)).0 / 1e6);
        updates.one.push(timed(|| alone(&mut map, &keys, Map::change)).0 / 1e6);
    }
    gets.print("get_many of 64 ÷ one by one", entries);
    updates.print("update_many of 64 ÷ one by one", entries);
}
