//! The least that a map in bounded pieces does for an access, beside a plain map: tables of 4,096 buckets in huge pages, found
//! by the hash that tells the key group on every machine; the likely slot is asked for before the search; no directory, no
//! epoch, no namespace. An update sets one bit. What misses a bar here, all such maps and their first changes miss.
//! `cargo run --release --bin limit-access -- [ENTRIES]`
use allocator_api2::vec::Vec as VecIn;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use lowtide_format::Key as _;
use lowtide_peers::huge::{Arena, HugePages};
use lowtide_peers::kinds::{Hundreds, Kind, Numbers, Pairs, Texts};
use lowtide_peers::measure::{ask_for, below, median, timed};
use std::hint::black_box;

const BUCKETS: usize = 4096;
/// A table, beside it a bit by bucket, and where its control bytes begin.
type Piece<T> = (HashTable<Slot<T>, Arena>, [u32; BUCKETS / 32], usize);
type Slot<T> = (<T as Kind>::K, <T as Kind>::V);

/// The piece of a key and its hash there, once its likely slot has been asked for.
fn place<T: Kind>(pieces: &[Piece<T>], key: &T::K) -> (usize, u64) {
    let hash = key.key_hash();
    let (at, hash) = (hash as usize & (pieces.len() - 1), hash.rotate_left(20));
    ask_for(pieces[at].2 - ((hash as usize & (pieces[at].0.num_buckets() - 1)) + 1) * size_of::<Slot<T>>());
    (at, hash)
}

fn pieces<T: Kind>(entries: u64) -> VecIn<Piece<T>, HugePages> {
    let count = (entries as usize * 10 / 7 / BUCKETS).next_power_of_two();
    let bytes = count * BUCKETS * size_of::<Slot<T>>() + (count << 13);
    let arena = Arena::leaked(bytes);
    let mut pieces = VecIn::with_capacity_in(count, HugePages);
    pieces.resize_with(count, || (HashTable::with_capacity_in(BUCKETS / 8 * 7, arena), [0; BUCKETS / 32], 0));
    for slot in (0..entries).map(|number| (T::key(number), T::value(number))) {
        let hash = slot.0.key_hash();
        let (table, _, controls): &mut Piece<T> = &mut pieces[hash as usize & (count - 1)];
        let entry = table.insert_unique(hash.rotate_left(20), slot, |_| unreachable!("room for all"));
        let (at, bucket) = (std::ptr::from_ref(entry.get()).addr(), entry.bucket_index());
        *controls = at + (bucket + 1) * size_of::<Slot<T>>();
    }
    pieces
}

fn run<T: Kind>(entries: u64) {
    let mut pieces = pieces::<T>(entries);
    let mut small = HashMap::<T::K, T::V, RandomState>::default();
    small.extend((0..entries).map(|number| (T::key(number), T::value(number))));
    let mut huge: HashMap<T::K, T::V, RandomState, _> = HashMap::with_hasher_in(<_>::default(), HugePages);
    huge.extend(small.clone());
    let mut figures: [Vec<f64>; 6] = Default::default();
    for round in 0..7 {
        let keys: Vec<_> = (0..1_000_000).map(|it| T::key(below(round << 20 | it, entries))).collect();
        let mut each = |at: usize, access: &mut dyn FnMut(&[T::K])| {
            figures[at].push(timed(|| access(&keys)).0 / 1e6);
        };
        each(0, &mut |keys| {
            for (key, (piece, hash)) in keys.iter().map(|key| (key, place::<T>(&pieces, key))) {
                black_box(pieces[piece].0.find(hash, |slot| slot.0 == *key));
            }
        });
        each(1, &mut |keys| keys.iter().for_each(|key| _ = black_box(small.get(key))));
        each(2, &mut |keys| keys.iter().for_each(|key| _ = black_box(huge.get(key))));
        each(3, &mut |keys| {
            for key in keys {
                let (piece, hash) = place::<T>(&pieces, key);
                let (table, bits, _) = &mut pieces[piece];
                let Ok(entry) = table.find_entry(hash, |slot| slot.0 == *key) else { continue };
                bits[entry.bucket_index() / 32] |= 1 << (entry.bucket_index() % 32);
                T::change(&mut entry.into_mut().1);
            }
        });
        each(4, &mut |keys| keys.iter().for_each(|key| T::change(small.get_mut(key).expect("there"))));
        each(5, &mut |keys| keys.iter().for_each(|key| T::change(huge.get_mut(key).expect("there"))));
    }
    for (what, ns) in ["get", "update"].into_iter().zip(figures.map(median).chunks(3)) {
        let (small, huge, name) = (ns[0] / ns[1], ns[0] / ns[2], T::NAME);
        println!("{what} {name}, {entries}: {:.1} ns, {small:.2} × plain, {huge:.2} × in huge pages", ns[0]);
    }
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    [run::<Numbers>, run::<Hundreds>, run::<Texts>, run::<Pairs>].into_iter().for_each(|run| run(entries));
}
