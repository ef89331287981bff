//! Where time and upload ids come from: the only file of the facade that asks the system for either.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lowtide_format::UploadId;

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The time `millis` milliseconds later, or the end of time.
    #[must_use]
    pub const fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// The time `millis` milliseconds earlier, or the epoch.
    #[must_use]
    pub const fn minus(self, millis: u64) -> Self {
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Tells the time. Nothing in lowtide depends on it for correctness: it decides when to give up, never what is true.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time of day.
    fn now(&self) -> Millis;

    /// Time since some fixed moment, for measuring how long something took.
    fn monotonic(&self) -> Duration;
}

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take as an argument")]
    fn default() -> Self {
        Self { started: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take as an argument")]
    fn now(&self) -> Millis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that stands still until it is moved. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    millis: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn starting_at(start: Millis) -> Self {
        Self { millis: Arc::new(AtomicU64::new(start.0)) }
    }

    /// Moves the clock on.
    pub fn advance(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        Millis(self.millis.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now().0)
    }
}

#[derive(Debug)]
enum Tail {
    /// What a UUIDv7 has beside its time.
    Random,
    /// A number fixed at the start, then a counter.
    Counted { salt: u16, next: AtomicU64 },
}

/// Where upload ids come from: unique, and ordered by time. Clones share the source.
#[derive(Clone, Debug)]
pub struct UploadIdSource {
    tail: Arc<Tail>,
}

impl UploadIdSource {
    /// Random ids: unique without any agreement between processes.
    #[must_use]
    pub fn random() -> Self {
        Self { tail: Arc::new(Tail::Random) }
    }

    /// Ids that are the same in every run, for tests and scripts. Two sources on one store need different salts.
    #[must_use]
    pub fn counted(salt: u16) -> Self {
        Self { tail: Arc::new(Tail::Counted { salt, next: AtomicU64::new(0) }) }
    }

    /// The next id, created at `now`.
    #[must_use]
    pub fn next(&self, now: Millis) -> UploadId {
        let bits = match &*self.tail {
            Tail::Random => {
                let [_, _, _, _, _, _, tail @ ..] = *uuid::Uuid::now_v7().as_bytes();
                tail
            }
            Tail::Counted { salt, next } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let byte = |shift: u32| (number >> shift & 0xff) as u8;
                let [low, high] = salt.to_le_bytes();
                [0, 0, 0, byte(32), byte(24), byte(16), byte(8), byte(0), high, low]
            }
        };
        UploadId::from_parts(now.0, bits)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn counted_ids_are_unique_ordered_and_the_same_in_every_run() {
        let ids = |salt| {
            let source = UploadIdSource::counted(salt);
            (0..10_000).map(|_| source.next(Millis(5))).collect::<Vec<_>>()
        };
        let first = ids(1);
        assert!(first.is_sorted());
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len());
        assert_eq!(first, ids(1));
        assert!(ids(2).iter().all(|id| !first.contains(id)), "another salt, other ids");
    }

    #[test]
    fn a_random_id_carries_the_time_it_was_made() {
        let source = UploadIdSource::random();
        let one = source.next(Millis(1_000));
        let others: HashSet<UploadId> = (0..100_000).map(|_| source.next(Millis(1_000))).collect();
        assert_eq!(others.len(), 100_000, "an id was given twice");
        assert!(!others.contains(&one));
        let foreign = UploadIdSource::random().next(Millis(1_000));
        assert!(foreign != one && !others.contains(&foreign), "of another source");
        assert_eq!(one.millis(), 1_000);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::starting_at(Millis(10));
        let same = clock.clone();
        clock.advance(5);
        assert_eq!(same.now(), Millis(15));
    }
}
