//! What the system takes to give memory that was never touched, by the huge page.
//!
//! A map that grows needs memory, and the first touch of each huge page waits until the system has cleared it. That is all
//! that is done here: no table, no entry. Whatever single operation misses a bar here is missed by every map that asks for
//! huge pages as it grows. Then the same with pages of the usual size, on standard error.
//!
//! `cargo run --release --bin limit-growth -- [ENTRIES]`: as much memory as the map takes.

use std::hint::black_box;

use lowtide_peers::bars::beside::{AFTER_CLEAR, growth, slowest_row};
use lowtide_peers::measure::{cpu_nanos, now};
use memmap2::{Advice, MmapOptions};

const HUGE: usize = 2 << 20;
const SMALL: usize = 4 << 10;
/// Memory of the map per entry of u64 → u64.
const ENTRY_BYTES: u64 = 36;

/// Nanoseconds of the slowest first touch of a page, by the thread's CPU clock and by the wall, and the pages.
fn slowest(bytes: usize, page: usize, advice: Advice) -> ((u64, u64), String) {
    let mut map = MmapOptions::new().len(bytes + HUGE).map_anon().expect("memory");
    let offset = map.as_ptr().align_offset(HUGE);
    map.advise_range(advice, offset, bytes).ok();
    let mut slowest = (0, 0);
    for page in map.get_mut(offset..offset + bytes).expect("as long").chunks_exact_mut(page) {
        let (wall, cpu) = (now(), cpu_nanos());
        page.first_mut().into_iter().for_each(|first| *first = black_box(1));
        slowest = (slowest.0.max(cpu_nanos() - cpu), slowest.1.max(wall.elapsed().as_nanos() as u64));
    }
    (slowest, format!("of {} first touches of {} KiB", bytes / page, page >> 10))
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    let bytes = |entries: u64| (entries * ENTRY_BYTES) as usize;
    for (what, entries) in [(growth(entries), entries), (AFTER_CLEAR.to_owned(), entries / 10)] {
        let (nanos, of) = slowest(bytes(entries), HUGE, Advice::HugePage);
        slowest_row(&what, nanos, &of).least(true).print();
    }
    let (nanos, of) = slowest(bytes(entries), SMALL, Advice::NoHugePage);
    eprintln!("{of}: {:.0} us", nanos.0 as f64 / 1e3);
}
