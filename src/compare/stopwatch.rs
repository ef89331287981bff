//! The one place of the comparison that reads a clock: measuring is what it is for.

use std::time::{Duration, Instant};

/// Time since it was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a comparison measures time; nothing is decided by it")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Time from the start of `earlier` to that of this one.
    pub(super) fn since(self, earlier: Self) -> Duration {
        self.0.duration_since(earlier.0)
    }
}
