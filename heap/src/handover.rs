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

struct Cell<T, S> {
    data: UnsafeCell<T>,
    gate: Mutex<Gate<S>>,
}

// SAFETY: `data` is reached by the rule in the module's header only: several threads may hold `&T` at once (hence
// `T: Sync`), and the last holder of the cell, whoever it is, drops `T` (hence `T: Send`). `gate` is a mutex.
unsafe impl<T: Send + Sync, S: Send> Sync for Cell<T, S> {}

struct Gate<S> {
    free_through: Stamp,
    shared: S,
}

/// The one who reads and writes the data.
pub(crate) struct Owner<T, S> {
    cell: Arc<Cell<T, S>>,
    free_through: Stamp,
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
        Self { cell: Arc::new(Cell { data: UnsafeCell::new(data), gate }), free_through }
    }

    /// Another view of the same data.
    pub(crate) fn reader(&self) -> Reader<T, S> {
        Reader { cell: Arc::clone(&self.cell) }
    }

    /// The data, to read.
    #[inline]
    pub(crate) fn read(&self) -> &T {
        // SAFETY: only the owner writes, through `&mut self`, which cannot exist beside `&self`.
        unsafe { &*self.cell.data.get() }
    }

    /// Whether nothing is owed to any freeze so far.
    #[inline]
    pub(crate) fn is_free(&self, clock: &Clock) -> bool {
        self.free_through == clock.now()
    }

    /// The data, to write, if nothing is owed to any freeze; otherwise take [`lock`](Self::lock).
    #[inline]
    pub(crate) fn write<'a>(&'a mut self, clock: &'a Clock) -> Option<&'a mut T> {
        if !self.is_free(clock) {
            return None;
        }
        // SAFETY: nothing is owed to any ticket up to the present stamp, so no reader holds or takes a reference
        // while the clock is borrowed, and `&mut self` excludes the owner's own.
        Some(unsafe { &mut *self.cell.data.get() })
    }

    /// The data, to write, and what is shared with readers.
    pub(crate) fn lock<'a>(&'a mut self, clock: &'a Clock) -> OwnerGuard<'a, T, S> {
        let gate = lock(&self.cell.gate);
        debug_assert!(gate.free_through == self.free_through, "V2: the owner's copy is not what it was told");
        OwnerGuard { data: self.cell.data.get(), gate, copy: &mut self.free_through, clock }
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
