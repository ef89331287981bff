//! The state of one planning: which segments are to be emptied, what that costs, and what it leaves.
//!
//! Owns: the arithmetic. Does not own: which segment is wanted next (`bounded`).
//!
//! # Invariants
//!
//! - W1. The victims that are emptied cost no more than the budget together.
//! - W2. A segment counts as gone only if its puts are rewritten and every element that its live tombstones and
//!   clears are about is gone as well.

use super::stats::{ChainStats, SegmentStats};
use super::{RewritePlan, Survivors};

/// What is known of a segment during planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Stays listed.
    Listed,
    /// Its puts are rewritten; its antimatter may keep it listed.
    Emptied,
    /// Not listed any more.
    Gone,
}

/// A planning in progress.
#[derive(Debug)]
pub(super) struct Selection<'a> {
    stats: &'a ChainStats,
    fates: Vec<Fate>,
    victims: Vec<usize>,
    /// A victim that the budget empties in part only; always the last.
    partial: Option<usize>,
    budget_bytes: u64,
    bytes: u64,
    survivors: Survivors,
    /// Record bytes of the segments that are gone.
    gone_bytes: u64,
    gone: usize,
    /// Whether any segment has live antimatter: only then can emptying one let another go.
    antimatter: bool,
}

impl<'a> Selection<'a> {
    pub(super) fn new(stats: &'a ChainStats, budget_bytes: u64, survivors: Survivors) -> Self {
        Self {
            stats,
            fates: vec![Fate::Listed; stats.segments.len()],
            victims: Vec::new(),
            partial: None,
            budget_bytes,
            bytes: 0,
            survivors,
            gone_bytes: 0,
            gone: 0,
            antimatter: stats.segments.iter().any(|segment| segment.live_antimatter > 0),
        }
    }

    /// The segments with their places, oldest first.
    pub(super) fn segments(&self) -> impl Iterator<Item = (usize, &'a SegmentStats)> + use<'a> {
        self.stats.segments.iter().enumerate()
    }

    /// Whether the segment is neither a victim nor gone.
    pub(super) fn is_open(&self, place: usize) -> bool {
        self.fates.get(place) == Some(&Fate::Listed) && self.partial != Some(place)
    }

    /// Whether the segment would go if its puts were rewritten: W2.
    pub(super) fn would_go(&self, place: usize) -> bool {
        let Some(segment) = self.stats.segments.get(place) else { return false };
        let about = |other: &SegmentStats| {
            segment.matter.iter().any(|(first, last)| *first <= other.checkpoint && other.checkpoint <= *last)
        };
        segment.live_antimatter == 0
            || self.segments().all(|(other, stats)| {
                stats.checkpoint >= segment.checkpoint
                    || self.fates.get(other) == Some(&Fate::Gone)
                    || !about(stats)
            })
    }

    /// Makes the segment a victim if the budget allows to empty it; says whether it does.
    pub(super) fn take(&mut self, place: usize) -> bool {
        let Some(segment) = self.stats.segments.get(place) else { return false };
        if segment.live_bytes > self.bytes_left() {
            return false;
        }
        self.bytes += segment.live_bytes;
        self.victims.push(place);
        self.set(place, Fate::Emptied);
        self.let_go(place);
        true
    }

    /// Spends what is left of the budget on a segment that it cannot empty.
    pub(super) fn take_part(&mut self, place: usize) {
        if self.partial.is_none() && self.bytes_left() > 0 {
            self.partial = Some(place);
            self.bytes = self.budget_bytes;
        }
    }

    fn set(&mut self, place: usize, fate: Fate) {
        if let Some(slot) = self.fates.get_mut(place) {
            *slot = fate;
        }
    }

    /// Lets an emptied segment go if its antimatter does not keep it, and then the newer ones that waited for it.
    fn let_go(&mut self, place: usize) {
        let last = if self.antimatter { self.stats.segments.len() } else { place + 1 };
        for (other, segment) in self.segments().skip(place).take(last - place) {
            let emptied = match self.fates.get(other) {
                Some(Fate::Emptied) => true,
                Some(Fate::Listed) => segment.live_puts == 0,
                _ => false,
            };
            if emptied && self.would_go(other) {
                self.set(other, Fate::Gone);
                self.gone += 1;
                self.gone_bytes += segment.record_bytes;
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn bytes_left(&self) -> u64 {
        self.budget_bytes - self.bytes
    }

    /// Record bytes that will be listed.
    pub(super) fn retained_bytes(&self) -> u64 {
        self.stats.retained_bytes() - self.gone_bytes + self.bytes
    }

    /// Segments that will be listed, the new ones among them.
    pub(super) fn listed(&self) -> usize {
        let delta =
            self.stats.delta.record_bytes() > 0 || (self.bytes > 0 && self.survivors == Survivors::WithDelta);
        let cold = self.bytes > 0 && self.survivors == Survivors::Apart;
        self.stats.segments.len() - self.gone + usize::from(delta) + usize::from(cold)
    }

    /// The age of the oldest segment that will be listed; `None` if no old one will be.
    pub(super) fn age_max(&self) -> Option<u32> {
        let listed = self.segments().filter(|(place, _)| self.fates.get(*place) != Some(&Fate::Gone));
        listed.map(|(_, segment)| segment.age_checkpoints).max()
    }

    /// The plan, without prospects and unmet bounds.
    pub(super) fn plan(&self) -> RewritePlan {
        debug_assert!(self.bytes <= self.budget_bytes, "W1: {} bytes of {}", self.bytes, self.budget_bytes);
        let places = self.victims.iter().chain(&self.partial);
        let victims: Vec<_> =
            places.filter_map(|place| self.stats.segments.get(*place)).map(|s| s.number).collect();
        let full = !victims.is_empty() && self.gone == self.stats.segments.len();
        RewritePlan {
            victims,
            budget_bytes: self.budget_bytes,
            bytes: self.bytes,
            survivors: self.survivors,
            full,
            ..RewritePlan::none()
        }
    }
}
