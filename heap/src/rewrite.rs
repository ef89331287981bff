//! Rewriting: which old live records a checkpoint writes again, so that their segments can go.
//!
//! Owns: the decision, as a pure function from the figures of a chain to a plan. Does not own: finding and
//! encoding the entries (the writer), and what is listed in the end (`chain`): a victim leaves the manifest only
//! if every entry counted live in it was in fact written.
//!
//! Beside that, which segments' bytes are copied into one object (`packing`).
//!
//! Sources: the cleaners of log-structured file systems for cost and benefit, and for keeping cold survivors
//! apart; the version minimum of FLIP-151 for what a bound on age means.

mod bounded;
mod packing;
mod selection;
mod stats;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::chain::SegmentNumber;

pub use bounded::{Bound, BoundedRewriting, RewriteBudget, VictimOrder};
pub use packing::{ObjectStats, PackStats};
pub use stats::{ChainStats, DeltaFigures, SegmentStats, StatsRequest};

/// Decides what one checkpoint rewrites. Pure: the same figures give the same plan.
///
/// # Examples
///
/// A policy that empties the oldest segment as soon as half of it is dead:
///
/// ```
/// use lowtide_heap::rewrite::{ChainStats, RewritePlan, RewritePolicy};
///
/// #[derive(Debug)]
/// struct HalfDead;
///
/// impl RewritePolicy for HalfDead {
///     fn plan(&self, stats: &ChainStats) -> RewritePlan {
///         let oldest = stats.segments.first();
///         let victim = oldest.filter(|segment| segment.live_bytes * 2 <= segment.record_bytes);
///         RewritePlan { victims: victim.map(|segment| segment.number).into_iter().collect(), ..RewritePlan::none() }
///     }
/// }
/// ```
pub trait RewritePolicy: fmt::Debug + Send + Sync {
    /// The plan for a checkpoint whose frozen view has these figures.
    fn plan(&self, stats: &ChainStats) -> RewritePlan;

    /// The objects whose listed segments this checkpoint copies into one new object, as places in the list of the
    /// figures, ascending; none by default. Asked once everything else is written.
    fn pack(&self, stats: &PackStats) -> Vec<usize> {
        let _ = stats;
        Vec::new()
    }

    /// The size, in encoded bytes, of the parts in which a checkpoint of `bytes` without a base is written, so
    /// that they can die one by one; `None` for as few as the limit of a segment allows.
    fn part_bytes(&self, bytes: u64) -> Option<u64> {
        let _ = bytes;
        None
    }
}

/// Where rewritten records go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Survivors {
    /// Into a cold segment of their own, beside the delta: they will outlive what changes often.
    #[default]
    Apart,
    /// Into the delta: one segment less.
    WithDelta,
}

/// What a checkpoint rewrites.
#[derive(Clone, Debug, PartialEq)]
pub struct RewritePlan {
    /// The segments to empty, in this order.
    pub victims: Vec<SegmentNumber>,
    /// Encoded bytes that the rewritten records may take; the writer stops before it would write more, and the
    /// victim it stopped in stays listed.
    pub budget_bytes: u64,
    /// Encoded bytes that emptying the victims is expected to take, at most the budget.
    pub bytes: u64,
    /// Where the records go.
    pub survivors: Survivors,
    /// Segments that may become victims soon, the victims among them. A writer that looks for the entries of a
    /// victim can note those of the prospects in the same pass, and need not look at every entry again for them.
    pub prospects: Vec<SegmentNumber>,
    /// Whether every segment of the base is a victim: what results needs no older segment, and costs no more
    /// than a checkpoint without a base.
    pub full: bool,
    /// The bounds that will not hold after this checkpoint, because the budget wins.
    pub unmet: Vec<UnmetBound>,
}

impl RewritePlan {
    /// The plan that rewrites nothing and has no budget.
    #[must_use]
    pub fn none() -> Self {
        Self {
            victims: Vec::new(),
            budget_bytes: u64::MAX,
            bytes: 0,
            survivors: Survivors::Apart,
            prospects: Vec::new(),
            full: false,
            unmet: Vec::new(),
        }
    }
}

/// A bound that the budget did not allow to keep, with the figure that will be reached instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnmetBound {
    /// The bound.
    pub bound: Bound,
    /// The age in checkpoints, the ratio, or the number of segments after this checkpoint.
    pub reached: f64,
}

/// Rewrites nothing: a chain is then bounded only by what dies by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Never;

impl RewritePolicy for Never {
    fn plan(&self, _stats: &ChainStats) -> RewritePlan {
        RewritePlan::none()
    }
}
