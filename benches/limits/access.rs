//! The least that a map in bounded pieces does for an access, beside a plain map: see `lowtide_peers::bare`. The likely slot is
//! asked for before the search; an update tests a bit, and the first one of an entry reads a tag as well, as an account
//! of what is where needs to. What misses a bar here, all such maps miss.
//!
//! `cargo run --release --bin limit-access -- [ENTRIES [ROUNDS]]`

use std::hint::black_box;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lowtide_peers::bare::Bare;
use lowtide_peers::bars::access::Three;
use lowtide_peers::huge::HugePages;
use lowtide_peers::kinds::{Hundreds, Kind, Numbers, Pairs, Texts};
use lowtide_peers::measure::{below, timed};

fn update<T: Kind>(bare: &mut Bare<T>, keys: &[T::K]) {
    for key in keys {
        bare.change(bare.place_alone(key), key);
    }
}

fn run<T: Kind>(entries: u64, rounds: u64) {
    let mut bare = Bare::<T>::filled(entries);
    let mut plain = HashMap::<T::K, T::V, RandomState>::default();
    plain.extend((0..entries).map(|number| (T::key(number), T::value(number))));
    let mut huge: HashMap<T::K, T::V, RandomState, _> = HashMap::with_hasher_in(<_>::default(), HugePages);
    huge.extend((0..entries).map(|number| (T::key(number), T::value(number))));
    let [mut gets, mut firsts, mut again] = [(); 3].map(|()| Three::least());
    for round in 0..rounds {
        let keys: Vec<_> = (0..1_000_000).map(|it| T::key(below(round << 20 | it, entries))).collect();
        let ns = |access: &mut dyn FnMut()| timed(access).0 / 1e6;
        gets.push([
            ns(&mut || {
                for key in &keys {
                    black_box(bare.get(bare.place_alone(key), key));
                }
            }),
            ns(&mut || keys.iter().for_each(|key| _ = black_box(plain.get(key)))),
            ns(&mut || keys.iter().for_each(|key| _ = black_box(huge.get(key)))),
        ]);
        bare.forget_changes();
        for updates in [&mut firsts, &mut again] {
            let plain = ns(&mut || keys.iter().for_each(|key| T::change(plain.get_mut(key).expect("there"))));
            let huge = ns(&mut || keys.iter().for_each(|key| T::change(huge.get_mut(key).expect("there"))));
            updates.push([ns(&mut || update(&mut bare, &keys)), plain, huge]);
        }
    }
    black_box(bare.noted);
    gets.print(&format!("get {}", T::NAME), entries);
    firsts.print(&format!("update {}", T::NAME), entries);
    again.print(&format!("update {}, changed already", T::NAME), entries);
}

fn main() {
    let mut given = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (entries, rounds) = (given.next().unwrap_or(1_000_000), given.next().unwrap_or(7));
    let kinds = [run::<Numbers>, run::<Hundreds>, run::<Texts>, run::<Pairs>];
    kinds.into_iter().for_each(|run| run(entries, rounds));
}
