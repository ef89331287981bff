//! Hands data between its one owner, who reads and writes it, and threads that read it as of a freeze.
//!
//! Owns: who may touch the data when; it holds unsafe code.
//! Does not own: what the data is, what a freeze still needs of it.
//!
//! # The rule
//!
//! An [`Owner`] holds the data; any number of [`Reader`]s see the same data. Time is counted by the [`Clock`] of
//! the backend, which advances at each freeze and then gives out a [`Stamp`]: the ticket of the thread that writes
//! that snapshot. Beside the data, under a lock, stands `free_through`: nothing is owed to tickets up to it.
//!
//! - The owner reads without a lock, at any time: nobody else ever writes the data.
//! - A reader with ticket *s* reads under the lock, and only while `free_through < s`.
//! - The owner writes without the lock if and only if `free_through` is the clock's present stamp; otherwise under
//!   the lock.
//!
//! Why there is no race: `free_through` is written by the owner alone, under the lock, so the owner's own copy of it
//! is always right and is read without synchronisation. If the owner writes without the lock, then
//! `free_through = now ≥ s` for every ticket *s* that exists, so no reader reads. A later freeze advances the clock,
//! from when on the owner takes the lock; what it wrote before is seen by the holder of the new ticket, because a
//! ticket can only be passed to another thread by something that synchronises. The clock cannot advance while the
//! owner holds a reference to write through, because that reference borrows the clock.
//!
//! So a write costs one comparison of two numbers that only the owner touches: no atomic operation at all.
//!
//! # Invariants
//!
//! - V1. `free_through` never goes back.
//! - V2. The owner's copy of `free_through` equals the one under the lock.
//! - V3. Of several owners together a door leads to the cell of one of them, and no owner leaves before all doors are shut.

#![expect(unsafe_code, reason = "the owner writes without a lock what others read under one; the rule above")]

#[cfg(not(feature = "loom"))]
mod primitives {
    pub(super) use parking_lot::{Mutex, MutexGuard};
    pub(super) use std::sync::Arc;

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }
}

#[cfg(feature = "loom")]
mod primitives {
    pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use primitives::{Arc, Mutex, MutexGuard, lock};

/// A moment between two freezes of one backend; as a ticket, the freeze that began it.
///
/// The upper half is the number of the clock, so that a cell is never mistaken about whose time it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(u64);

/// Counts the freezes of one backend.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Stamp,
}

impl Clock {
    /// A clock that no freeze has advanced.
    pub(crate) fn new() -> Self {
        // Only tells clocks apart: a backend's cells are asked about its own clock, and would refuse another's.
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { now: Stamp(u64::from(number) << 32) }
    }

    /// The present moment.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        self.now
    }

    /// The moment that the next freeze begins.
    pub(crate) fn next(&self) -> Stamp {
        Stamp(self.now.0 + 1)
    }

    /// Tells this clock apart from others.
    pub(crate) fn number(&self) -> u32 {
        (self.now.0 >> 32) as u32
    }

    /// Begins the next moment and returns the ticket to what was before it; `None` after 2³² − 1 freezes.
    pub(crate) fn freeze(&mut self) -> Option<Stamp> {
        let next = self.now.0 + 1;
        if next as u32 == 0 {
            return None;
        }
        self.now = Stamp(next);
        Some(self.now)
    }

    /// The same clock, so late that only so many freezes are left to it.
    #[cfg(test)]
    pub(crate) fn with_freezes_left(left: u32) -> Self {
        let clock = Self::new();
        Self { now: Stamp(clock.now.0 | u64::from(u32::MAX - left)) }
    }
}

/// What a write looks at first lies in one cache line with the beginning of the data.
#[repr(C, align(64))]
struct Cell<T, S> {
    /// The owner's copy of `free_through`, for nobody else.
    copy: UnsafeCell<Stamp>,
    data: UnsafeCell<T>,
    gate: Mutex<Gate<S>>,
}

// SAFETY: `data` is reached by the rule in the module's header only: several threads may hold `&T` at once (hence
// `T: Sync`), and the last holder of the cell, whoever it is, drops `T` (hence `T: Send`). `copy` is the owner's, who
// writes it through `&mut` only. `gate` is a mutex.
unsafe impl<T: Send + Sync, S: Send> Sync for Cell<T, S> {}

struct Gate<S> {
    free_through: Stamp,
    shared: S,
}

/// The one who reads and writes the data.
pub(crate) struct Owner<T, S> {
    cell: Arc<Cell<T, S>>,
}

/// Reads the data as of a freeze.
pub(crate) struct Reader<T, S> {
    cell: Arc<Cell<T, S>>,
}

impl<T, S> Clone for Reader<T, S> {
    fn clone(&self) -> Self {
        Self { cell: Arc::clone(&self.cell) }
    }
}

impl<T, S> Owner<T, S> {
    /// Data that owes nothing to the freezes so far.
    pub(crate) fn new(clock: &Clock, data: T, shared: S) -> Self {
        Self::owing_after(clock.now(), data, shared)
    }

    /// Data that owes what `shared` says to the freezes after `free_through`.
    fn owing_after(free_through: Stamp, data: T, shared: S) -> Self {
        let gate = Mutex::new(Gate { free_through, shared });
        let (copy, data) = (UnsafeCell::new(free_through), UnsafeCell::new(data));
        Self { cell: Arc::new(Cell { copy, data, gate }) }
    }

    /// Another view of the same data.
    pub(crate) fn reader(&self) -> Reader<T, S> {
        Reader { cell: Arc::clone(&self.cell) }
    }

    /// The data, to read.
    #[inline]
    pub(crate) fn read(&self) -> &T {
        // SAFETY: this is the owner, shared, so nobody writes.
        unsafe { self.cell.read() }
    }

    /// The data, to write, if nothing is owed to any freeze; otherwise take [`lock`](Self::lock).
    #[inline]
    pub(crate) fn write<'a>(&'a mut self, clock: &'a Clock) -> Option<&'a mut T> {
        // SAFETY: this is the owner, alone.
        unsafe { self.cell.write(clock) }
    }

    /// The data, to write, and what is shared with readers.
    pub(crate) fn lock<'a>(&'a mut self, clock: &'a Clock) -> OwnerGuard<'a, T, S> {
        // SAFETY: this is the owner, alone.
        let copy = unsafe { &mut *self.cell.copy.get() };
        let gate = lock(&self.cell.gate);
        debug_assert!(gate.free_through == *copy, "V2: the owner's copy is not what it was told");
        OwnerGuard { data: self.cell.data.get(), gate, copy, clock }
    }
}

impl<T, S> Cell<T, S> {
    /// The data, to read.
    ///
    /// # Safety
    ///
    /// The caller is the owner and does not write meanwhile.
    #[inline]
    unsafe fn read(&self) -> &T {
        // SAFETY: only the owner writes.
        unsafe { &*self.data.get() }
    }

    /// Whether nothing is owed to any freeze so far.
    ///
    /// # Safety
    ///
    /// The caller is the owner.
    #[inline]
    unsafe fn is_free(&self, clock: &Clock) -> bool {
        // SAFETY: the copy is the owner's.
        unsafe { *self.copy.get() == clock.now() }
    }

    /// The data, to write, if nothing is owed to any freeze.
    ///
    /// # Safety
    ///
    /// The caller is the owner and has no other reference to the data meanwhile.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the owner is alone, as the caller promises")]
    unsafe fn write<'a>(&'a self, clock: &'a Clock) -> Option<&'a mut T> {
        // SAFETY: as the caller promises.
        if !unsafe { self.is_free(clock) } {
            return None;
        }
        // SAFETY: nothing is owed to any ticket up to the present stamp, so no reader holds or takes a reference
        // while the clock is borrowed, and the caller excludes the owner's own.
        Some(unsafe { &mut *self.data.get() })
    }
}

/// One of several owners, to write.
pub(crate) struct OwnerMut<'a, T, S>(&'a mut Owner<T, S>);

impl<'a, T, S> OwnerMut<'a, T, S> {
    /// The data, to read.
    #[inline]
    pub(crate) fn read(&self) -> &T {
        self.0.read()
    }

    /// Whether nothing is owed to any freeze so far.
    #[inline]
    pub(crate) fn is_free(&self, clock: &Clock) -> bool {
        // SAFETY: this is the owner, whose copy it is.
        unsafe { self.0.cell.is_free(clock) }
    }

    /// As [`Owner::write`].
    #[inline]
    pub(crate) fn write(self, clock: &'a Clock) -> Option<&'a mut T> {
        self.0.write(clock)
    }

    /// As [`Owner::lock`].
    pub(crate) fn lock(self, clock: &'a Clock) -> OwnerGuard<'a, T, S> {
        self.0.lock(clock)
    }
}

/// The cells of one owner, by number, and doors, by which a cell is found without its number.
pub(crate) struct Owners<T, S> {
    numbered: Vec<Owner<T, S>>,
    doors: Vec<Option<Arc<Cell<T, S>>>>,
}

impl<T, S> Owners<T, S> {
    /// No cells, and so many doors that lead nowhere.
    pub(crate) fn new(doors: usize) -> Self {
        Self { numbered: Vec::new(), doors: vec![None; doors] }
    }

    /// How many cells there are.
    pub(crate) fn len(&self) -> usize {
        self.numbered.len()
    }

    /// How many doors there are.
    pub(crate) fn doors(&self) -> usize {
        self.doors.len()
    }

    /// Adds a cell; its number is how many there were.
    pub(crate) fn push(&mut self, owner: Owner<T, S>) {
        self.numbered.push(owner);
    }

    /// The data of a number, to read.
    #[inline]
    pub(crate) fn read(&self, number: usize) -> Option<&T> {
        self.numbered.get(number).map(Owner::read)
    }

    /// The owner of a number, who cannot leave.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<OwnerMut<'_, T, S>> {
        self.numbered.get_mut(number).map(OwnerMut)
    }

    /// The data behind a door, to read.
    #[inline(always)]
    pub(crate) fn read_behind(&self, door: usize) -> Option<&T> {
        let cell = self.doors.get(door)?.as_deref()?;
        // SAFETY: the cell is that of an owner here (V3), which is shared.
        Some(unsafe { cell.read() })
    }

    /// The data behind a door, to write, if nothing is owed to any freeze.
    #[inline(always)]
    pub(crate) fn write_behind<'a>(&'a mut self, door: usize, clock: &'a Clock) -> Option<&'a mut T> {
        let cell = self.doors.get(door)?.as_deref()?;
        // SAFETY: the cell is that of an owner here (V3), all of which are borrowed by `&mut self`.
        unsafe { cell.write(clock) }
    }

    /// Lets a door lead to the cell of a number.
    pub(crate) fn lead(&mut self, door: usize, number: usize) {
        let (Some(door), Some(owner)) = (self.doors.get_mut(door), self.numbered.get(number)) else { return };
        if door.as_ref().is_none_or(|cell| !Arc::ptr_eq(cell, &owner.cell)) {
            *door = Some(Arc::clone(&owner.cell));
        }
    }

    /// Twice as many doors: those of the second half lead where those of the first do.
    pub(crate) fn double_doors(&mut self) {
        self.doors.extend_from_within(..);
    }

    /// Takes all cells out and leaves so many doors, which lead nowhere.
    pub(crate) fn take_all(&mut self, doors: usize) -> Vec<Owner<T, S>> {
        self.doors.clear();
        self.doors.resize(doors, None);
        std::mem::take(&mut self.numbered)
    }
}

/// Exclusive access of the owner, by the lock.
pub(crate) struct OwnerGuard<'a, T, S> {
    data: *mut T,
    gate: MutexGuard<'a, Gate<S>>,
    copy: &'a mut Stamp,
    clock: &'a Clock,
}

impl<T, S> OwnerGuard<'_, T, S> {
    /// The data and what is shared.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, &mut S) {
        // SAFETY: readers read under the lock, which this guard holds; the guard borrows the owner mutably.
        (unsafe { &mut *self.data }, &mut self.gate.shared)
    }

    /// The freezes up to this one are owed nothing.
    pub(crate) fn free_through(&self) -> Stamp {
        self.gate.free_through
    }

    /// Says that nothing is owed to any freeze so far, so that the next write needs no lock.
    pub(crate) fn free(&mut self) {
        debug_assert!(self.gate.free_through <= self.clock.now(), "V1: what was free would be owed again");
        self.gate.free_through = self.clock.now();
        *self.copy = self.gate.free_through;
    }

    /// More data that owes to the same freezes, as `shared` says.
    pub(crate) fn sibling(&self, data: T, shared: S) -> Owner<T, S> {
        Owner::owing_after(self.gate.free_through, data, shared)
    }
}

impl<T, S> Reader<T, S> {
    /// The data as of the freeze of `ticket`, with what is shared; `None` if nothing is owed to it any more.
    pub(crate) fn lock(&self, ticket: Stamp) -> Option<ReaderGuard<'_, T, S>> {
        let gate = lock(&self.cell.gate);
        let ours = gate.free_through.0 >> 32 == ticket.0 >> 32;
        (ours && gate.free_through < ticket).then(|| ReaderGuard { cell: &self.cell, gate })
    }
}

/// Access of a reader, by the lock.
pub(crate) struct ReaderGuard<'a, T, S> {
    cell: &'a Cell<T, S>,
    gate: MutexGuard<'a, Gate<S>>,
}

impl<T, S> ReaderGuard<'_, T, S> {
    /// The data and what is shared.
    pub(crate) fn parts(&mut self) -> (&T, &mut S) {
        // SAFETY: `free_through` was below a ticket when the lock was taken, and only the owner raises it, under the
        // lock; so the owner writes under the lock only, which this guard holds.
        (unsafe { &*self.cell.data.get() }, &mut self.gate.shared)
    }
}

#[cfg(all(test, feature = "loom"))]
mod tests;
