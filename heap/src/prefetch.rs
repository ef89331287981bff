//! Asks the processor for memory that is read soon, without waiting for it.
//!
//! Owns: the one instruction for it; it holds unsafe code because that takes a raw pointer. Does not own: when it pays.
//!
//! A load that misses the caches keeps everything after it from finishing, so a processor overlaps only as many misses
//! as their instructions find place in its window: six or so of the look-ups here. A request waits for nothing.

#![expect(
    unsafe_code,
    reason = "batches of look-ups and updates at 10 M entries gain a fifth, see benches/README.md"
)]

/// Asks for the memory where a value begins. Where there is no such instruction, does nothing.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that reads nothing and cannot fault; the address is that of a live value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
