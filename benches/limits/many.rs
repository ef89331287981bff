//! The least that a batch of look-ups or changes does beside the same ones one by one, in the same tables: 4,096 buckets each in
//! huge pages, found by the hash that tells the key group on every machine, a word and two addresses beside each.
//!
//! A batch asks for the control bytes of all its keys, then for the first slot of each whose byte agrees, and then searches;
//! one alone asks for its likely slot and searches. No directory, no epoch, no namespace; a change sets one bit. What misses
//! a bar here, all such maps miss: one access is short enough that the processor overlaps many by itself.
//! `cargo run --release --bin limit-many -- [ENTRIES]`

use allocator_api2::vec::Vec as VecIn;
use hashbrown::HashTable;
use lowtide_format::Key as _;
use lowtide_peers::huge::{Arena, HugePages};
use lowtide_peers::measure::{ask_for, below, median, timed};
use std::hint::black_box;

const BUCKETS: usize = 4096;
const BATCH: usize = 64;
type Slot = (u64, u64);

/// A table, where its control bytes begin, and a bit for each bucket.
struct Piece {
    table: HashTable<Slot, Arena>,
    controls: usize,
    bits: VecIn<u32, Arena>,
}

impl Piece {
    fn new(arena: Arena) -> Self {
        let mut bits = VecIn::with_capacity_in(BUCKETS / 32, arena);
        bits.resize(BUCKETS / 32, 0);
        Self { table: HashTable::with_capacity_in(BUCKETS / 8 * 7, arena), controls: 0, bits }
    }

    fn ask_for_slot(&self, bucket: usize) {
        ask_for(self.controls - (bucket + 1) * size_of::<Slot>());
    }

    fn change(&mut self, hash: u64, key: u64) {
        let Ok(entry) = self.table.find_entry(hash, |slot| slot.0 == key) else { return };
        let bucket = entry.bucket_index();
        self.bits[bucket / 32] |= 1 << (bucket % 32);
        entry.into_mut().1 += 1;
    }
}

fn place(pieces: usize, key: u64) -> (usize, u64) {
    let hash = key.key_hash();
    (hash as usize & (pieces - 1), hash.rotate_left(20))
}

/// Lets `each` at the keys, once what it looks at is on its way.
fn together(pieces: &mut [Piece], keys: &[u64], each: impl Fn(&mut Piece, u64, u64)) {
    let mut places = [(0, 0); BATCH];
    for keys in keys.chunks(BATCH) {
        for (found, key) in places.iter_mut().zip(keys) {
            *found = place(pieces.len(), *key);
            let group = pieces[found.0].controls + (found.1 as usize & (BUCKETS - 1));
            [group, group + 15].into_iter().for_each(ask_for);
        }
        for (piece, hash) in places.iter().take(keys.len()).map(|(piece, hash)| (&pieces[*piece], *hash)) {
            piece.table.find_bucket_index(hash, |_| true).into_iter().for_each(|it| piece.ask_for_slot(it));
        }
        places.iter().zip(keys).for_each(|((piece, hash), key)| each(&mut pieces[*piece], *hash, *key));
    }
}

fn alone(pieces: &mut [Piece], keys: &[u64], each: impl Fn(&mut Piece, u64, u64)) {
    for key in keys {
        let (piece, hash) = place(pieces.len(), *key);
        let piece = &mut pieces[piece];
        piece.ask_for_slot(hash as usize & (BUCKETS - 1));
        each(piece, hash, *key);
    }
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000_000_u64);
    let count = (entries as usize * 10 / 7 / BUCKETS).next_power_of_two();
    let arena = Arena::leaked(count * (BUCKETS * (size_of::<Slot>() + 2)));
    let mut pieces = VecIn::with_capacity_in(count, HugePages);
    pieces.resize_with(count, || Piece::new(arena));
    for (key, (piece, hash)) in (0..entries).map(|key| (key, place(count, key))) {
        let entry = pieces[piece].table.insert_unique(hash, (key, key), |_| unreachable!("room for all"));
        let (at, bucket) = (std::ptr::from_ref(entry.get()).addr(), entry.bucket_index());
        pieces[piece].controls = at + (bucket + 1) * size_of::<Slot>();
    }
    let get = |it: &mut Piece, hash, key| _ = black_box(it.table.find(hash, |slot| slot.0 == key));
    let update = |it: &mut Piece, hash, key| it.change(hash, key);
    let mut ns: [Vec<f64>; 4] = Default::default();
    for round in 0..9 {
        let keys: Vec<u64> = (0..1_000_000).map(|it| below(round << 20 | it, entries)).collect();
        ns[0].push(timed(|| together(&mut pieces, &keys, get)).0 / 1e6);
        ns[1].push(timed(|| alone(&mut pieces, &keys, get)).0 / 1e6);
        ns[2].push(timed(|| together(&mut pieces, &keys, update)).0 / 1e6);
        ns[3].push(timed(|| alone(&mut pieces, &keys, update)).0 / 1e6);
    }
    for (what, ns) in ["get", "update"].into_iter().zip(ns.map(median).chunks(2)) {
        println!("{what}, {entries}: {:.1} ns of {:.1} one by one, {:.2}", ns[0], ns[1], ns[0] / ns[1]);
    }
}
