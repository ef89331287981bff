//! The least that a map in bounded pieces does for an access, beside one plain map in huge pages.
//!
//! Tables of 4,096 buckets in huge pages, since growth has to be bounded, found by the low bits of the hash that tells
//! the key group on every machine; the likely slot is asked for before the search; no directory, no epoch, no namespace.
//! An update sets one bit beside the entry. Whatever misses a bar here is missed by every such map.
//!
//! `cargo run --release --bin limit-access -- [ENTRIES]`
use allocator_api2::alloc::{AllocError, Allocator};
use allocator_api2::vec::Vec as VecIn;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use lowtide_format::Key;
use lowtide_peers::huge::HugePages;
use lowtide_peers::measure::{ask_for, below, median, timed};
use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

const BUCKETS: usize = 4096;

/// A run of huge pages, from which tables take and never give back, and how much they took.
#[derive(Clone, Copy)]
struct Arena(NonNull<[u8]>, &'static AtomicUsize);

// SAFETY: each byte of the run, which is aligned and never freed, is given out once.
unsafe impl Allocator for Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let at = self.1.fetch_add(layout.size().next_multiple_of(64), Ordering::Relaxed);
        assert!(at + layout.size() <= self.0.len() && layout.align() <= 64, "the run was measured for all");
        // SAFETY: within the run.
        Ok(NonNull::slice_from_raw_parts(unsafe { self.0.cast().add(at) }, layout.size()))
    }
    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
}

/// A table, beside it a bit by bucket, and where its control bytes begin.
type Piece = (HashTable<(u64, u64), Arena>, [u32; BUCKETS / 32], usize);

fn ask((table, _, controls): &Piece, hash: u64) {
    ask_for(controls - ((hash as usize & (table.num_buckets() - 1)) + 1) * size_of::<(u64, u64)>());
}

fn pieces(entries: u64) -> VecIn<Piece, HugePages> {
    let count = (entries as usize * 10 / 7 / BUCKETS).next_power_of_two();
    let bytes = count * BUCKETS * size_of::<(u64, u64)>() + (count << 13);
    let run = HugePages.allocate(Layout::from_size_align(bytes, 64).expect("small")).expect("memory");
    let arena = Arena(run, Box::leak(Box::new(AtomicUsize::new(0))));
    let mut pieces = VecIn::with_capacity_in(count, HugePages);
    pieces.resize_with(count, || (HashTable::with_capacity_in(BUCKETS / 8 * 7, arena), [0; BUCKETS / 32], 0));
    for key in 0..entries {
        let hash = key.key_hash();
        let (table, _, controls): &mut Piece = &mut pieces[hash as usize & (count - 1)];
        let entry = table.insert_unique(hash.rotate_left(20), (key, key), |_| unreachable!("room for all"));
        *controls = std::ptr::from_ref(entry.get()).addr() + (entry.bucket_index() + 1) * 16;
    }
    pieces
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let mut pieces = pieces(entries);
    let last = pieces.len() - 1;
    let mut small: HashMap<u64, u64, RandomState> = (0..entries).map(|key| (key, key)).collect();
    let mut huge: HashMap<u64, u64, RandomState, _> = HashMap::with_hasher_in(<_>::default(), HugePages);
    huge.extend((0..entries).map(|key| (key, key)));
    let mut figures: [Vec<f64>; 6] = Default::default();
    for round in 0..7 {
        let keys: Vec<u64> = (0..1_000_000).map(|visit| below(round << 20 | visit, entries)).collect();
        let mut each = |at: usize, access: &mut dyn FnMut(&[u64])| {
            figures[at].push(timed(|| access(&keys)).0 / 1e6);
        };
        each(0, &mut |keys| {
            for key in keys {
                let (hash, piece) = (key.key_hash().rotate_left(20), key.key_hash() as usize & last);
                ask(&pieces[piece], hash);
                black_box(pieces[piece].0.find(hash, |slot| slot.0 == *key));
            }
        });
        each(1, &mut |keys| keys.iter().for_each(|key| _ = black_box(small.get(key))));
        each(2, &mut |keys| keys.iter().for_each(|key| _ = black_box(huge.get(key))));
        each(3, &mut |keys| {
            for key in keys {
                let (hash, piece) = (key.key_hash().rotate_left(20), key.key_hash() as usize & last);
                ask(&pieces[piece], hash);
                let (table, bits, _) = &mut pieces[piece];
                let entry = table.find_entry(hash, |slot| slot.0 == *key).expect("there");
                bits[entry.bucket_index() / 32] |= 1 << (entry.bucket_index() % 32);
                entry.into_mut().1 += 1;
            }
        });
        each(4, &mut |keys| keys.iter().for_each(|key| *small.get_mut(key).expect("there") += 1));
        each(5, &mut |keys| keys.iter().for_each(|key| *huge.get_mut(key).expect("there") += 1));
    }
    let figures = figures.map(median);
    for (what, ns) in ["get", "update"].into_iter().zip(figures.chunks(3)) {
        let (small, huge) = (ns[0] / ns[1], ns[0] / ns[2]);
        println!("{what}, {entries}: {:.1} ns, {small:.2} × plain, {huge:.2} × in huge pages", ns[0]);
    }
}
