//! What the system takes to give memory that was never touched, by the huge page.
//!
//! A map that grows needs memory, and the first touch of each huge page waits until the system has cleared it. That is all
//! that is done here: no table, no entry. Whatever single operation misses a bar here is missed by every map that asks for
//! huge pages as it grows. Then the same with pages of the usual size.
//!
//! `cargo run --release --bin limit-growth -- [MEBIBYTES]`

use std::hint::black_box;

use lowtide_peers::measure::{cpu_nanos, median, now};
use memmap2::{Advice, MmapOptions};

const HUGE: usize = 2 << 20;
const SMALL: usize = 4 << 10;

/// Microseconds of each first touch of a page: by the thread's CPU clock, and by the wall.
fn touches(bytes: usize, page: usize, advice: Advice) -> (Vec<f64>, Vec<f64>) {
    let mut map = MmapOptions::new().len(bytes + HUGE).map_anon().expect("memory");
    let offset = map.as_ptr().align_offset(HUGE);
    map.advise_range(advice, offset, bytes).ok();
    let pages = map.get_mut(offset..offset + bytes).expect("as long").chunks_exact_mut(page);
    let touch = |page: &mut [u8]| {
        let (wall, cpu) = (now(), cpu_nanos());
        if let Some(first) = page.first_mut() {
            *first = black_box(1);
        }
        ((cpu_nanos() - cpu) as f64 / 1e3, wall.elapsed().as_nanos() as f64 / 1e3)
    };
    pages.map(touch).unzip()
}

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_024);
    for (what, page, advice) in
        [("huge pages", HUGE, Advice::HugePage), ("small pages", SMALL, Advice::NoHugePage)]
    {
        let (cpu, wall) = touches(mebibytes << 20, page, advice);
        let slowest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        let (pages, slowest_cpu, slowest_wall) = (cpu.len(), slowest(&cpu), slowest(&wall));
        println!(
            "first touches of {pages} {what}: median {:.1} us, slowest {slowest_cpu:.1} us by the CPU clock, \
             {slowest_wall:.1} us by the wall",
            median(cpu),
        );
    }
}
