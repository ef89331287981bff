//! The least that an owner does beside a thread that writes a snapshot, and what the machine makes of it.
//!
//! The owner updates random entries of a plain map. Beside it a thread does nothing but copy memory of its own; the first
//! change of each entry since it began keeps a copy of the entry: one bit and one push, no lock, no record, no clone that
//! allocates. What misses a bar here is missed by every map that sets frozen values aside on as many cores.
//!
//! `cargo run --release --bin limit-beside -- [ENTRIES]`

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use hdrhistogram::Histogram;
use lowtide_peers::measure::{below, median, now, timed};

const BATCH: u64 = 1_000;
/// Batches in one phase: about as long as a snapshot of two million entries.
const BATCHES: u64 = 1_000;

struct Owner {
    map: HashMap<u64, u64, foldhash::fast::RandomState>,
    entries: u64,
    next: u64,
    seen: Vec<u64>,
    aside: Vec<(u64, u64)>,
}

impl Owner {
    fn step(&mut self, frozen: bool) {
        let key = below(self.next, self.entries);
        self.next += 1;
        let Some(value) = self.map.get_mut(&key) else { return };
        if frozen {
            let (word, bit) = (&mut self.seen[key as usize / 64], 1 << (key % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.aside.push((key, *value));
            }
        }
        *value = value.wrapping_add(1);
    }

    /// The median batch.
    fn batches(&mut self, frozen: bool) -> f64 {
        let batch = |_| timed(|| (0..BATCH).for_each(|_| self.step(frozen))).0 / BATCH as f64;
        median((0..BATCHES).map(batch).collect())
    }

    fn singles(&mut self, with_update: bool, singles: &mut Histogram<u64>) {
        for _ in 0..BATCHES * BATCH {
            let begun = now();
            if with_update {
                self.step(true)
            } else {
                self.next = black_box(self.next + 1)
            }
            singles.saturating_record(begun.elapsed().as_nanos() as u64);
        }
    }

    /// Runs `work` while another thread copies.
    fn beside<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.seen = vec![0; self.entries as usize / 64 + 1];
        self.aside.clear();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (from, mut to) = (vec![1_u8; 64 << 20], vec![0_u8; 64 << 20]);
                while !done.load(Ordering::Relaxed) {
                    to.copy_from_slice(black_box(&from));
                    black_box(&to);
                }
            });
            let result = work(self);
            done.store(true, Ordering::Relaxed);
            result
        })
    }
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(2_000_000);
    let map = (0..entries).map(|key| (key, key)).collect();
    let mut owner = Owner { map, entries, next: 0, seen: Vec::new(), aside: Vec::new() };
    let histogram = || Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("a valid range");
    let (mut alone, mut beside, mut updates, mut empty) = (Vec::new(), Vec::new(), histogram(), histogram());
    for _ in 0..5 {
        alone.push(owner.batches(false));
        beside.push(owner.beside(|owner| owner.batches(true)));
        owner.beside(|owner| owner.singles(true, &mut updates));
        owner.beside(|owner| owner.singles(false, &mut empty));
    }
    let (alone, beside) = (median(alone), median(beside));
    println!(
        "updates beside a copying thread ÷ alone: {:.2} ({beside:.1} ns, {alone:.1} ns)",
        beside / alone
    );
    let tail = |singles: &Histogram<u64>| singles.value_at_quantile(0.9999) as f64 / 1e3;
    println!("p99.99: {:.1} us, empty loop {:.1} us", tail(&updates), tail(&empty));
}
