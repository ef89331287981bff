//! Memory for tables that asks the kernel for huge pages, to give the plain map the same chance.
//!
//! Where the kernel's setting is `never`, it is ordinary memory.

use std::alloc::Layout;
use std::ptr::NonNull;

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
