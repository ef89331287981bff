//! The accounting of a heap backend without its data: what a policy writes and retains, in seconds.
//!
//! Owns: the workloads, a map that knows only each key's home, and the figures. Does not own: the chain and the
//! policies, which are those of the engine ([`lowtide_heap::chain`], [`lowtide_heap::rewrite`]): a figure found
//! here is one that the engine reaches, record for record.
//!
//! Every checkpoint completes before the next one is triggered, and is the base of it. Records have one size.
//!
//! # Examples
//!
//! ```
//! use lowtide::simulate::{SimulateOptions, Workload, simulate};
//! use lowtide_heap::rewrite::BoundedRewriting;
//!
//! let options = SimulateOptions { keys: 10_000, checkpoints: 300, warmup: 200, ..SimulateOptions::default() };
//! let report = simulate(&options, &BoundedRewriting::default());
//! assert!(report.write_amplification < 1.5);
//! assert!(report.space_peak <= 2.1);
//! # assert_eq!(options.workload, Workload::Uniform);
//! ```

#[cfg(feature = "cli")]
pub mod faults;
mod figures;
mod map;
mod objects;
mod random;
mod run;
#[cfg(test)]
mod tests;
mod workload;

use lowtide_heap::chain::SegmentNumber;
use lowtide_heap::rewrite::{ChainStats, RewritePlan, RewritePolicy, Survivors};

pub use figures::{CheckpointFigures, SimulateReport};
pub use map::Change;
pub use run::{Simulation, simulate};
pub use workload::{Purge, Workload};

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulateOptions {
    /// How the keys change.
    pub workload: Workload,
    /// Keys put before the first checkpoint. At most 2³² − 1.
    pub keys: u32,
    /// The share of `keys` that changes, or comes, between two checkpoints, 0 to 1; distinct keys.
    pub changed_share: f64,
    /// How many checkpoints.
    pub checkpoints: u32,
    /// How many of them come before the means are taken; peaks are taken from the first on.
    pub warmup: u32,
    /// Encoded bytes of a put.
    pub put_bytes: u64,
    /// Encoded bytes of a tombstone.
    pub tombstone_bytes: u64,
    /// Encoded bytes of a clear.
    pub clear_bytes: u64,
    /// Up to this many bytes, the segments of one delta share an object.
    pub shared_bytes_max: u64,
    /// Bytes that a manifest spends on each segment it lists.
    pub listing_bytes: u64,
    /// Seed of the workload.
    pub seed: u64,
}

impl Default for SimulateOptions {
    /// A million keys of 20 bytes, of which 1 % change at random, over 1,600 checkpoints, the later half measured.
    fn default() -> Self {
        Self {
            workload: Workload::Uniform,
            keys: 1_000_000,
            changed_share: 0.01,
            checkpoints: 1600,
            warmup: 800,
            put_bytes: 20,
            tombstone_bytes: 12,
            clear_bytes: 12,
            shared_bytes_max: 4 << 10,
            listing_bytes: 64,
            seed: 1,
        }
    }
}

/// A full checkpoint every so many checkpoints and plain deltas between them: what others do, to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicFull {
    /// From one full checkpoint to the next; at least 1.
    pub every: u32,
}

impl RewritePolicy for PeriodicFull {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        // The last full checkpoint wrote the oldest segment, unless all of it died meanwhile.
        let oldest = stats.segments.first().map_or(0, |segment| segment.age_checkpoints);
        if oldest + 1 < self.every {
            return RewritePlan::none();
        }
        let victims: Vec<SegmentNumber> = stats.segments.iter().map(|segment| segment.number).collect();
        let bytes = stats.segments.iter().map(|segment| segment.live_bytes).sum();
        RewritePlan { victims, bytes, survivors: Survivors::WithDelta, full: true, ..RewritePlan::none() }
    }
}
