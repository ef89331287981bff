//! Memory for tables, in huge pages where the system gives them.
//!
//! Owns: blocks of memory that ask for huge pages, and which parts of them are in use; it holds unsafe code because
//! an allocator is one. Does not own: what lies in the memory.
//!
//! A state of ten million entries lies in several thousand tables. With small pages nearly every access misses the
//! translation buffers of the processor, often several times: for the table's bytes, for its slots, for what stands
//! beside them. Linux gives huge pages to memory that asks for them ("madvise", the default of most distributions);
//! elsewhere this is an ordinary allocator.
//!
//! A block serves slots of one size, so that memory given back is used again by tables of the same kind, and goes
//! back to the system when its last slot does. Small requests are the global allocator's: they would waste a block.
//!
//! # Invariants
//!
//! - A1. A slot is given out once until it is given back, lies within its block, and overlaps no other.
//! - A2. A block lives until all its slots have been given back.

#![expect(
    unsafe_code,
    reason = "an allocator; get and update at 10 M entries gain a factor, see benches/README.md"
)]

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global};
use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;

/// A value in such memory.
pub(crate) type PagedBox<T> = allocator_api2::boxed::Box<T, Pages>;

/// So many copies of a value in such memory.
pub(crate) fn paged<T: Clone>(count: usize, value: T) -> PagedBox<[T]> {
    let mut all = allocator_api2::vec::Vec::with_capacity_in(count, Pages);
    all.resize(count, value);
    all.into_boxed_slice()
}

/// Requests of fewer bytes are the global allocator's: such tables are few or short-lived.
const SLOT_BYTES_MIN: usize = 16 << 10;
/// Slots start at cache lines.
const SLOT_ALIGN: usize = 64;
/// What the hardware of x86-64 and of most others maps at once.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// A block has as many huge pages as waste less than a sixteenth, but not more than this unless a slot does.
const HUGE_PAGES_MAX: usize = 8;

/// Allocates from the blocks of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pages;

/// Slots of one size.
#[derive(Debug, Default)]
struct Class {
    /// Addresses of blocks with a slot to give; the lowest is used first, so that the others run empty.
    open: BTreeSet<usize>,
}

#[derive(Debug)]
struct Block {
    map: MmapMut,
    /// From the map's start to the first slot.
    offset: usize,
    slot_bytes: usize,
    slots: usize,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Pool {
    classes: BTreeMap<usize, Class>,
    /// By the address of their first slot.
    blocks: BTreeMap<usize, Block>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { classes: BTreeMap::new(), blocks: BTreeMap::new() });

/// The bytes of the slot for a request; `None` if it is the global allocator's.
fn slot_bytes(layout: Layout) -> Option<usize> {
    let pooled = layout.size() >= SLOT_BYTES_MIN && layout.align() <= SLOT_ALIGN;
    pooled.then(|| layout.size().checked_next_multiple_of(SLOT_ALIGN)).flatten()
}

/// How many bytes a block of such slots has.
fn block_bytes(slot_bytes: usize) -> Option<usize> {
    let least = slot_bytes.div_ceil(HUGE_PAGE_BYTES);
    let waste = |pages: usize| (pages * HUGE_PAGE_BYTES) % slot_bytes;
    let lean = |pages: &usize| waste(*pages) * 16 <= pages * HUGE_PAGE_BYTES;
    let pages = (least..=HUGE_PAGES_MAX).find(lean).unwrap_or(least.max(HUGE_PAGES_MAX));
    pages.checked_mul(HUGE_PAGE_BYTES)
}

impl Block {
    fn new(slot_bytes: usize) -> Option<Self> {
        let bytes = block_bytes(slot_bytes)?;
        // One page more than needed, to start at a boundary: the rest of it is never touched, so it takes no memory.
        let map = MmapOptions::new().len(bytes.checked_add(HUGE_PAGE_BYTES)?).map_anon().ok()?;
        let offset = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        #[cfg(all(target_os = "linux", not(miri)))]
        // A refusal means small pages, which are slower and right.
        map.advise_range(memmap2::Advice::HugePage, offset, bytes).ok();
        let slots = bytes / slot_bytes;
        let free = (0..u32::try_from(slots).ok()?).rev().collect();
        Some(Self { map, offset, slot_bytes, slots, free })
    }

    fn address(&self) -> usize {
        self.map.as_ptr().addr() + self.offset
    }

    fn take(&mut self) -> Option<NonNull<[u8]>> {
        let slot = self.free.pop()? as usize;
        // SAFETY: `slot < slots`, so the offset and the slot's bytes after it lie within the map (A1).
        let start = unsafe { self.map.as_mut_ptr().add(self.offset + slot * self.slot_bytes) };
        Some(NonNull::slice_from_raw_parts(NonNull::new(start)?, self.slot_bytes))
    }
}

impl Pool {
    fn take(&mut self, slot_bytes: usize) -> Option<NonNull<[u8]>> {
        let class = self.classes.entry(slot_bytes).or_default();
        if class.open.is_empty() {
            let block = Block::new(slot_bytes)?;
            class.open.insert(block.address());
            self.blocks.insert(block.address(), block);
        }
        let address = *class.open.first()?;
        let block = self.blocks.get_mut(&address)?;
        let slot = block.take()?;
        if block.free.is_empty() {
            class.open.remove(&address);
        }
        Some(slot)
    }

    /// Takes a slot back; returns its block if that is of no use any more, to be given back without the lock.
    fn give_back(&mut self, start: usize) -> Option<Block> {
        let (&address, block) = self.blocks.range_mut(..=start).next_back()?;
        let slot = (start - address) / block.slot_bytes;
        debug_assert!(
            slot < block.slots && !block.free.contains(&(slot as u32)),
            "A1: a slot given back twice"
        );
        block.free.push(u32::try_from(slot).ok()?);
        let (unused, slot_bytes) = (block.free.len() == block.slots, block.slot_bytes);
        let class = self.classes.get_mut(&slot_bytes)?;
        class.open.insert(address);
        if unused {
            class.open.remove(&address);
            if class.open.is_empty() {
                self.classes.remove(&slot_bytes);
            }
            return self.blocks.remove(&address);
        }
        None
    }
}

// SAFETY: a slot is valid memory of at least the layout's size and alignment, is nobody else's until it is given back
// (A1), and stays where it is until then (A2). All values of the type are the same allocator.
unsafe impl Allocator for Pages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match slot_bytes(layout) {
            Some(bytes) => POOL.lock().take(bytes).ok_or(AllocError),
            None => Global.allocate(layout),
        }
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if slot_bytes(layout).is_some() {
            let unused = POOL.lock().give_back(start.addr().get());
            drop(unused);
        } else {
            // SAFETY: the caller's promise, and the same choice for the same layout.
            unsafe { Global.deallocate(start, layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Miri follows every step.
    const CASES: u32 = if cfg!(miri) { 8 } else { 256 };
    const LOOK_AT_EVERY: usize = if cfg!(miri) { 4093 } else { 1 };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn slots_of_any_sizes_overlap_nowhere(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..3_000_000, 0_usize..40), 1..60),
        ) {
            let mut held: Vec<(NonNull<u8>, Layout, u8)> = Vec::new();
            for (number, (give, bytes, at)) in steps.into_iter().enumerate() {
                if give && !held.is_empty() {
                    let (start, layout, mark) = held.swap_remove(at % held.len());
                    check(start, layout, mark)?;
                    // SAFETY: allocated below with the same layout, and given back once.
                    unsafe { Pages.deallocate(start, layout) };
                    continue;
                }
                let layout = Layout::from_size_align(bytes.max(1), 16).unwrap();
                let start = Pages.allocate(layout).unwrap();
                prop_assert!(start.len() >= layout.size());
                let (start, mark) = (start.cast::<u8>(), number as u8);
                // SAFETY: the bytes are ours.
                unsafe { start.write_bytes(mark, layout.size()) };
                held.push((start, layout, mark));
            }
            for (start, layout, mark) in held {
                check(start, layout, mark)?;
                // SAFETY: as above.
                unsafe { Pages.deallocate(start, layout) };
            }
        }
    }

    fn check(start: NonNull<u8>, layout: Layout, mark: u8) -> Result<(), TestCaseError> {
        // SAFETY: the bytes are ours, and were written.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size()) };
        let mut looked_at = bytes.iter().step_by(LOOK_AT_EVERY).chain(bytes.last());
        prop_assert!(looked_at.all(|byte| *byte == mark), "A1, A2: somebody else wrote here");
        Ok(())
    }

    #[test]
    fn blocks_waste_little_whatever_the_slots() {
        for slot_bytes in (SLOT_BYTES_MIN..HUGE_PAGE_BYTES).step_by(SLOT_ALIGN) {
            let bytes = block_bytes(slot_bytes).unwrap();
            assert!(bytes % slot_bytes * 8 <= bytes, "{slot_bytes} bytes a slot waste an eighth of {bytes}");
        }
        assert!(block_bytes(usize::MAX - 7).is_none());
    }
}
