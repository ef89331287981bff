//! What a registry allocates: a rebuild by distinct files and changes, a checkpoint by changes alone.
//!
//! Bytes are counted, not times, so that the bounds hold on any machine.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a whole file of tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lowtide_format::{CheckpointId, FileId, ObjectName};
use lowtide_registry::{Holder, Listing, Owner, Rebuilding, Registry};

/// Counts the bytes of its thread: those that are in use, the most that ever were, and all that were ever asked for.
struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static ASKED_FOR: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator that measures cannot be written otherwise")]
// SAFETY: all calls go to the system's allocator unchanged; only numbers are kept.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get() + layout.size().cast_signed());
        PEAK.set(PEAK.get().max(IN_USE.get()));
        ASKED_FOR.set(ASKED_FOR.get() + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get() - layout.size().cast_signed());
        // SAFETY: the place was given out by the system's allocator for this layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHANGED: u64 = 100;

fn file(number: u64) -> FileId {
    FileId { object: ObjectName::new(&format!("data/{number:020}.seg")).unwrap(), offset: 0 }
}

fn checkpoint(id: u64) -> Holder {
    Holder::Checkpoint(CheckpointId::new(id).unwrap())
}

/// So many checkpoints of so many files each, of which `CHANGED` differ from one to the next.
fn rebuilt(checkpoints: u64, files: u64) -> Registry {
    let names: Vec<FileId> = (0..files + checkpoints * CHANGED).map(file).collect();
    let listing = |id: u64| {
        let first = ((id - 1) * CHANGED) as usize;
        let files = names[first..first + files as usize].to_vec();
        Listing { holder: checkpoint(id), files, owner: Owner::Coordinator }
    };
    Registry::rebuild((1..=checkpoints).map(listing)).unwrap()
}

/// Bytes that are still in use of those that `work` asked for.
fn kept<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = IN_USE.get();
    let result = work();
    (result, IN_USE.get() - before)
}

#[test]
fn a_rebuild_keeps_memory_for_distinct_files_and_changes_not_for_every_listing() {
    const FILES: u64 = 20_000;
    // The names stay alive in the registry alone, once each.
    let (one, of_one) = kept(|| rebuilt(1, FILES));
    let (twenty, of_twenty) = kept(|| rebuilt(20, FILES));
    assert_eq!(twenty.file_count() as u64, FILES + 19 * CHANGED);
    assert_eq!(one.file_count() as u64, FILES);
    // Nineteen more listings of twenty thousand files; a set of its own for each would take more than the first.
    assert!(of_twenty < 2 * of_one, "{of_twenty} bytes for twenty listings, {of_one} for one");
}

#[test]
fn a_rebuild_needs_no_more_than_one_listing_at_a_time() {
    const FILES: u64 = 20_000;
    // Each listing is made when it is asked for, as a manifest is that was just read.
    let peak_of = |checkpoints: u64| {
        let before = IN_USE.get();
        PEAK.set(before);
        let mut rebuilding = Rebuilding::new();
        for id in 1..=checkpoints {
            let first = (id - 1) * CHANGED;
            let files = (first..first + FILES).map(file).collect();
            let listing = Listing { holder: checkpoint(id), files, owner: Owner::Coordinator };
            rebuilding.list(listing).unwrap();
        }
        assert_eq!(rebuilding.finish().file_count() as u64, FILES + (checkpoints - 1) * CHANGED);
        PEAK.get() - before
    };
    let (of_one, of_twenty) = (peak_of(1), peak_of(20));
    assert!(of_twenty < 2 * of_one, "{of_twenty} bytes for twenty listings, {of_one} for one");
}

#[test]
fn a_checkpoint_allocates_by_what_changed_whatever_is_listed() {
    let step = |files: u64| {
        let mut registry = rebuilt(1, files);
        let total = files + CHANGED;
        // Those that the first listing begins with go, those after it come.
        let gone: Vec<FileId> = registry.files(checkpoint(1)).take(CHANGED as usize).cloned().collect();
        let new: Vec<(FileId, Owner)> =
            (total..total + CHANGED).map(|number| (file(number), Owner::Coordinator)).collect();
        let before = ASKED_FOR.get();
        registry.register(checkpoint(2), Some(checkpoint(1)), new, &gone).unwrap();
        let released = registry.release(checkpoint(1));
        assert_eq!(released.objects.len() as u64, CHANGED);
        ASKED_FOR.get() - before
    };
    let (few, many) = (step(5_000), step(50_000));
    // A tree ten times as large is at most a level deeper; the catalogue may grow once.
    assert!(many < 4 * few, "{many} bytes of 50,000 files, {few} of 5,000");
}
