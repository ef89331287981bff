//! Clocks, medians, and the random order in which keys are visited.

use std::fs;
use std::time::Instant;

/// Wall-clock nanoseconds that `work` takes, and what it returns.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
pub fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64() * 1e9, result)
}

/// A clock for loops that read it after every operation.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The middle of the figures; 0 if there are none.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// Vigna's `SplitMix64`: one step from `x`.
#[must_use]
pub fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `n`, uniform, the same for the same `draw`.
#[must_use]
pub fn below(draw: u64, n: u64) -> u64 {
    ((u128::from(splitmix64(draw)) * u128::from(n)) >> 64) as u64
}

/// Nanoseconds that the calling thread was ready to run with no core free; 0 where the system does not tell.
#[must_use]
pub fn waited_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// CPU nanoseconds of the calling thread, which waiting for a core does not lengthen.
#[must_use]
pub fn cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time into the struct, which lives on.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Writes to something larger than the caches, so that what was in them is gone.
pub fn chill(cold: &mut [u8]) {
    cold.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
}

/// Asks for the memory at an address, whether there is any or not.
#[inline(always)]
pub fn ask_for(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
