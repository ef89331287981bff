//! What the owner's writes must know about the present interval.
//!
//! Owns: the clock of the backend and the figures that change at a freeze only. Does not own: who may be a base
//! ([`Lineage`](crate::lineage::Lineage)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::epochs::{Epoch, Epochs};
use crate::handover::Clock;

/// The present interval of a backend. Changed by freezes and notices, read by every write.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) clock: Clock,
    /// The running interval.
    pub(crate) interval: Epoch,
    /// What changed up to here is in every base that is still possible.
    pub(crate) floor: Epoch,
    /// The epochs of possible bases, ascending.
    pub(crate) boundaries: SmallVec<[Epoch; 4]>,
    pub(crate) epochs: Epochs,
    pub(crate) counters: Arc<Counters>,
    /// Whether removals of keys are remembered of which no record was ever written.
    pub(crate) logs_every_removal: bool,
}

impl Turn {
    /// Whether a possible base lies between the two, so that changes up to the first and changes up to the second
    /// must be told apart.
    pub(crate) fn parted(&self, first: Epoch, second: Epoch) -> bool {
        self.boundaries.iter().any(|boundary| first <= *boundary && *boundary < second)
    }
}

/// Counts work, so that a test can prove how much was done.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    set_aside: AtomicU64,
    locked_writes: AtomicU64,
    pieces_visited: AtomicU64,
    records_encoded: AtomicU64,
    buckets_scanned: AtomicU64,
}

macro_rules! counters {
    ($($field:ident, $add:ident, $count:ident;)*) => {
        impl Counters {
            $(
                pub(crate) fn $add(&self, amount: u64) {
                    $count(&self.$field, amount);
                }

                pub(crate) fn $field(&self) -> u64 {
                    self.$field.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

/// Adds to a counter that only the owner changes, at the price of a plain addition.
fn by_owner(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Adds to a counter that several threads change.
fn by_any(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

counters! {
    set_aside, add_set_aside, by_owner;
    locked_writes, add_locked_writes, by_owner;
    pieces_visited, add_pieces_visited, by_any;
    records_encoded, add_records_encoded, by_any;
    buckets_scanned, add_buckets_scanned, by_any;
}
