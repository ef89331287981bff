//! Memory for tables that asks the kernel for huge pages, to give the plain map the same chance.
//!
//! Where the kernel's setting is `never`, it is ordinary memory.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::alloc::{AllocError, Allocator};

/// Length of a huge page on this architecture, and the alignment that makes one possible.
const HUGE_BYTES: usize = 2 << 20;

/// Blocks of at least one huge page, each mapped on its own and advised to be huge.
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

fn rounded(layout: Layout) -> Result<Layout, AllocError> {
    let large = layout.align_to(HUGE_BYTES).map_err(|_| AllocError)?;
    Ok(large.pad_to_align())
}

// SAFETY: blocks come from the system allocator with the rounded layout, and go back with the same one, which
// depends on nothing but the layout that was asked for. The allocator has no state, so clones are alike.
unsafe impl Allocator for HugePages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let rounded = rounded(layout)?;
        if rounded.size() == 0 {
            return Err(AllocError);
        }
        // SAFETY: the size is not zero.
        let block = unsafe { std::alloc::alloc(rounded) };
        let block = NonNull::new(block).ok_or(AllocError)?;
        // SAFETY: the range is a block of ours; the advice changes no contents.
        unsafe { libc::madvise(block.as_ptr().cast(), rounded.size(), libc::MADV_HUGEPAGE) };
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if let Ok(rounded) = rounded(layout) {
            // SAFETY: the caller hands back a block of this allocator with the layout it was asked for with.
            unsafe { std::alloc::dealloc(block.as_ptr(), rounded) };
        }
    }
}

/// A run of huge pages from which small blocks are taken one after the other, and never given back.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    run: NonNull<[u8]>,
    taken: &'static AtomicUsize,
}

/// What an arena's blocks begin at multiples of.
const BLOCK_ALIGN: usize = 64;

impl Arena {
    /// Room for so many bytes, for as long as the process lives.
    ///
    /// # Panics
    ///
    /// If the system has no memory left.
    #[must_use]
    pub fn leaked(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, BLOCK_ALIGN).expect("less than there are addresses");
        let run = HugePages.allocate(layout).expect("memory for the measurement");
        Self { run, taken: Box::leak(Box::new(AtomicUsize::new(0))) }
    }
}

// SAFETY: each byte of the run, which is aligned and never freed, is given out once.
unsafe impl Allocator for Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let at = self.taken.fetch_add(layout.size().next_multiple_of(BLOCK_ALIGN), Ordering::Relaxed);
        if at + layout.size() > self.run.len() || layout.align() > BLOCK_ALIGN {
            return Err(AllocError);
        }
        // SAFETY: within the run.
        Ok(NonNull::slice_from_raw_parts(unsafe { self.run.cast().add(at) }, layout.size()))
    }

    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
}
