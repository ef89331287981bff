//! Asks the processor for memory that is read soon, without waiting for it.
//!
//! Owns: the one instruction for it; it holds unsafe code because that takes a raw pointer. Does not own: when it pays.
//!
//! A load that misses the caches keeps everything after it from finishing, so a processor overlaps only as many misses
//! as their instructions find place in its window: three or so of the look-ups here. A request waits for nothing.

#![expect(
    unsafe_code,
    reason = "look-ups and updates gain a fifth and more, in batches and alone, see papers/state-map.md"
)]

use std::sync::Arc;

/// How many entries are asked for at a time: about as many as a processor waits for at a time.
pub(crate) const TOGETHER: usize = 16;

/// How much memory one request is for: a cache line.
const LINE_BYTES: usize = 64;

/// Asks for the memory where a value begins. Where there is no such instruction, does nothing.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    prefetch_address(std::ptr::from_ref(place).addr());
}

/// Asks for all of a value, as far as it is not elsewhere.
#[inline]
pub(crate) fn prefetch_whole<T: ?Sized>(place: &T) {
    let start = std::ptr::from_ref(place).addr();
    (0..size_of_val(place)).step_by(LINE_BYTES).for_each(|offset| prefetch_address(start + offset));
}

/// Asks for what is shared, and for the counts of those who share it.
#[inline]
pub(crate) fn prefetch_shared<T: ?Sized>(shared: &Arc<T>) {
    let start = Arc::as_ptr(shared).cast::<u8>().addr();
    prefetch_address(start);
    // The counts are before it, two words, and what needs more than their alignment comes after a gap.
    prefetch_address(start - align_of_val(&**shared).max(2 * size_of::<usize>()));
}

/// Asks for the memory at an address, whether there is any or not.
#[inline]
pub(crate) fn prefetch_address(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that reads nothing and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
