//! The least that a map in bounded pieces does for an access, beside one plain map in huge pages.
//!
//! A map whose growth has to be bounded lies in many tables, and one whose entries have a key group on every machine takes
//! the hash that tells it. Here this is all there is: tables of 4,096 buckets in huge pages, found by the low bits of the
//! hash, no directory, no head of a piece, no epoch, no namespace; an update sets one bit beside the entry. Whatever
//! misses a bar here is missed by every such map.
//!
//! `cargo run --release --bin limit-access -- [ENTRIES]`
use std::alloc::Layout;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::alloc::{AllocError, Allocator};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use lowtide_format::Key;
use lowtide_peers::huge::HugePages;
use lowtide_peers::measure::{below, median, timed};

const BUCKETS: usize = 4096;
const VISITS: u64 = 1_000_000;

/// One run of huge pages, from which tables take and never give back; the number tells how much was taken.
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

/// A table, and beside it a word by bucket.
type Piece = (HashTable<(u64, u64), Arena>, allocator_api2::vec::Vec<u32, Arena>);

fn pieces(entries: u64) -> Vec<Piece> {
    let count = (entries as usize * 10 / 7 / BUCKETS).next_power_of_two();
    let bytes = count * BUCKETS * (size_of::<(u64, u64)>() + 8) + (count << 10);
    let run = HugePages.allocate(Layout::from_size_align(bytes, 64).expect("small")).expect("memory");
    let arena = Arena(run, Box::leak(Box::new(AtomicUsize::new(0))));
    let piece = |_| {
        let mut beside = allocator_api2::vec::Vec::with_capacity_in(BUCKETS, arena);
        beside.resize(BUCKETS, 0);
        (HashTable::with_capacity_in(BUCKETS / 8 * 7, arena), beside)
    };
    let mut pieces: Vec<Piece> = (0..count).map(piece).collect();
    for key in 0..entries {
        let hash = key.key_hash();
        let (table, _) = &mut pieces[hash as usize & (count - 1)];
        table.insert_unique(hash.rotate_left(20), (key, key), |slot| slot.0.key_hash().rotate_left(20));
    }
    pieces
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let mut pieces = pieces(entries);
    let last = pieces.len() - 1;
    let mut small: HashMap<u64, u64, RandomState> = (0..entries).map(|key| (key, key)).collect();
    let mut huge = HashMap::with_hasher_in(RandomState::default(), HugePages);
    huge.extend((0..entries).map(|key| (key, key)));
    let mut figures: [Vec<f64>; 6] = Default::default();
    for round in 0..7 {
        let keys: Vec<u64> = (0..VISITS).map(|visit| below(round * VISITS + visit, entries)).collect();
        let mut each = |at: usize, access: &mut dyn FnMut(&[u64])| {
            figures[at].push(timed(|| access(&keys)).0 / VISITS as f64);
        };
        each(0, &mut |keys| {
            for key in keys {
                let hash = key.key_hash();
                black_box(pieces[hash as usize & last].0.find(hash.rotate_left(20), |slot| slot.0 == *key));
            }
        });
        each(1, &mut |keys| keys.iter().for_each(|key| _ = black_box(small.get(key))));
        each(2, &mut |keys| keys.iter().for_each(|key| _ = black_box(huge.get(key))));
        each(3, &mut |keys| {
            for key in keys {
                let hash = key.key_hash();
                let (table, beside) = &mut pieces[hash as usize & last];
                let found = table.find_bucket_index(hash.rotate_left(20), |slot| slot.0 == *key);
                let bucket = found.expect("there");
                beside[bucket] |= 1;
                table.get_bucket_mut(bucket).expect("found").1 += 1;
            }
        });
        each(4, &mut |keys| keys.iter().for_each(|key| *small.get_mut(key).expect("there") += 1));
        each(5, &mut |keys| keys.iter().for_each(|key| *huge.get_mut(key).expect("there") += 1));
    }
    let [get, get_small, get_huge, update, update_small, update_huge] = figures.map(median);
    let (of_small, of_huge) = (get / get_small, get / get_huge);
    println!("get, {entries}: {get:.1} ns, {of_small:.2} × plain, {of_huge:.2} × in huge pages");
    let (of_small, of_huge) = (update / update_small, update / update_huge);
    println!("update, {entries}: {update:.1} ns, {of_small:.2} × plain, {of_huge:.2} × in huge pages");
}
