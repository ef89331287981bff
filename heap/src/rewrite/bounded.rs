//! The policies that come with the crate: bounds on age, space and number of segments, under a budget.
//!
//! Owns: which segment is the next victim, when rewriting stops, and what is said of a bound that the budget does
//! not allow to keep. Does not own: the arithmetic of a planning (`selection`).

use super::selection::Selection;
use super::stats::{ChainStats, SegmentStats};
use super::{PackStats, RewritePlan, RewritePolicy, Survivors, UnmetBound, packing};

/// The smallest part, in encoded bytes, in which a checkpoint without a base is written: a smaller one costs more
/// to list and to fetch than it can save.
const PART_BYTES_MIN: u64 = 16 * 1024;

/// A checkpoint without a base is written in about as many parts, so that each is about a delta of one per cent.
const PARTS: u64 = 96;

/// What listing one segment costs in every manifest, in bytes: more than it takes, because a restore opens it too.
const LISTING_BYTES: u64 = 128;

/// Passes over the map during the time that the oldest segment has been listed; each looks at every entry once.
/// Measured: one more lowers the writes by less than 1 %, one less raises them by 1 to 2 % under skew.
const PASSES_PER_LIFE: u32 = 2;

/// How many times more a victim is worth whose entries can be found without a pass. Measured: twice as much writes
/// 2 to 4 % more under skew; 2 instead of 3 looks at each entry more than three times in the life of a segment.
const INDEXED_WORTH: f64 = 3.0;

/// How many times the usual batch is rewritten to have fewer segments.
const COUNT_BATCH: f64 = 2.0;

/// What a budget in deltas leaves to a checkpoint whose own delta is so large that nothing would be left: without it a
/// load that has grown for good would stop rewriting until its deltas have become usual.
const SHARE_OF_LARGE_DELTA: f64 = 0.25;

/// Keeps the score of a segment that is all dead finite: as if a hundredth of it were live.
const LIVE_SHARE_FLOOR: f64 = 0.01;

/// What must hold of the chain after each checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// No segment is older than the `checkpoints`-th completed checkpoint before this one. With 0, nothing old.
    MaxAge {
        /// How many completed checkpoints.
        checkpoints: u32,
    },
    /// Record bytes of the listed segments ÷ record bytes of the live puts. Live bytes below one delta count as
    /// one delta.
    SpaceAmplification {
        /// The ratio; at least 1.
        ratio: f64,
    },
    /// Segments listed by this subtask, the new ones among them.
    MaxSegments {
        /// How many segments; at least 1.
        count: u32,
    },
}

/// How many encoded bytes one checkpoint may rewrite.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum RewriteBudget {
    /// As many as the bounds ask for.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// So many times the usual delta, less what this one exceeds it by: a checkpoint is never more than so many and one
    /// usual deltas. For a delta that exceeds even that, a quarter of so many times itself.
    Deltas(f64),
}

/// Which victim is next, where a bound leaves the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VictimOrder {
    /// Segments whose cost will not decline much by waiting: (1 − u)² · age ÷ u, with u the live share. A segment
    /// that is old for its live share holds what seldom changes.
    #[default]
    DecliningCost,
    /// Most bytes freed per byte rewritten, old segments first: (1 − u) · age ÷ (1 + u).
    CostBenefit,
    /// By age alone.
    OldestFirst,
    /// By the live share alone.
    Greedy,
}

/// Bounds under a budget, and a bound on the number of objects that hold the segments.
///
/// # Examples
///
/// ```
/// use lowtide_heap::rewrite::{Bound, BoundedRewriting, RewriteBudget};
///
/// let small = BoundedRewriting {
///     bounds: vec![Bound::SpaceAmplification { ratio: 1.5 }, Bound::MaxSegments { count: 200 }],
///     budget: RewriteBudget::Deltas(2.0),
///     ..BoundedRewriting::default()
/// };
/// assert!(small.full_where_cheaper);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BoundedRewriting {
    /// The bounds, most important first: the budget goes to them in this order.
    pub bounds: Vec<Bound>,
    /// The budget, which wins over the bounds.
    pub budget: RewriteBudget,
    /// At most this many objects hold this subtask's segments, at least 1: small ones are copied into one, once everything
    /// is written. `None` copies nothing.
    ///
    /// Kept whatever the budget, at the cost of at most 4 ÷ `objects_max` of the retained bytes per checkpoint; a chain
    /// may list one object for every 16 MiB of records if those are more, and takes a while after a restore from more
    /// objects.
    pub objects_max: Option<u32>,
    /// The order of victims.
    pub order: VictimOrder,
    /// Where rewritten records go.
    pub survivors: Survivors,
    /// Once anything is rewritten, at least about so many deltas are, if the budget allows: fewer and larger cold
    /// segments for the same work. 0 rewrites no more than the bounds need.
    pub batch_deltas: f64,
    /// Whether to rewrite the whole chain where that is cheaper than to keep it: small state, large deltas.
    pub full_where_cheaper: bool,
}

impl Default for BoundedRewriting {
    /// Retained ÷ live at most 2, at most 1,024 segments in at most 2,048 objects, at most 1.5 deltas
    /// rewritten per checkpoint.
    fn default() -> Self {
        Self {
            bounds: vec![Bound::SpaceAmplification { ratio: 2.0 }, Bound::MaxSegments { count: 1024 }],
            budget: RewriteBudget::Deltas(1.5),
            objects_max: Some(2048),
            order: VictimOrder::default(),
            survivors: Survivors::Apart,
            batch_deltas: 1.0,
            full_where_cheaper: true,
        }
    }
}

impl BoundedRewriting {
    /// One bound, and what it needs: no budget, nothing rewritten before it must be.
    #[must_use]
    pub fn exactly(bound: Bound) -> Self {
        let survivors = match bound {
            // The cold part outlives the delta only where dead bytes decide.
            Bound::SpaceAmplification { .. } => Survivors::Apart,
            Bound::MaxAge { .. } | Bound::MaxSegments { .. } => Survivors::WithDelta,
        };
        Self { bounds: vec![bound], survivors, ..Self::unbounded() }
    }

    /// Nothing is rewritten; small segments are copied so that at most `objects_max` objects, at least 1, hold them. No
    /// budget.
    #[must_use]
    pub fn packing(objects_max: u32) -> Self {
        Self { objects_max: Some(objects_max), ..Self::unbounded() }
    }

    /// No bound, no budget, nothing done before it must be.
    fn unbounded() -> Self {
        Self {
            bounds: Vec::new(),
            budget: RewriteBudget::Unlimited,
            objects_max: None,
            order: VictimOrder::default(),
            survivors: Survivors::WithDelta,
            batch_deltas: 0.0,
            full_where_cheaper: false,
        }
    }

    fn budget_bytes(&self, stats: &ChainStats) -> u64 {
        match self.budget {
            RewriteBudget::Unlimited => u64::MAX,
            RewriteBudget::Bytes(bytes) => bytes,
            RewriteBudget::Deltas(deltas) => {
                let (own, usual) = (stats.delta.record_bytes(), stats.usual_delta_bytes());
                let even = scaled(usual, deltas).saturating_sub(own.saturating_sub(usual));
                even.max(scaled(own, deltas * SHARE_OF_LARGE_DELTA))
            }
        }
    }

    /// Takes victims in order until the bound holds, or the budget or the segments are used up.
    fn keep(&self, bound: Bound, selection: &mut Selection<'_>, stats: &ChainStats) {
        match bound {
            Bound::MaxAge { checkpoints } => {
                for (place, segment) in selection.segments() {
                    if segment.age_checkpoints < checkpoints {
                        break;
                    }
                    if selection.is_open(place) && !selection.take(place) {
                        selection.take_part(place);
                        break;
                    }
                }
            }
            Bound::SpaceAmplification { .. } => {
                let open = |selection: &Selection<'_>| !holds(bound, selection, stats);
                self.free_bytes(selection, stats, open);
            }
            Bound::MaxSegments { .. } => {
                if holds(bound, selection, stats) {
                    return;
                }
                // A cold segment is one more, so that the next few checkpoints had better do without one.
                let batch = scaled(stats.usual_delta_bytes(), COUNT_BATCH * self.batch_deltas);
                let mut places: Vec<_> = selection.segments().collect();
                sort_descending(&mut places, |segment| self.order.score_by_count(segment));
                for (place, _) in places {
                    if holds(bound, selection, stats) && selection.bytes() >= batch {
                        break;
                    }
                    if selection.is_open(place) && selection.would_go(place) {
                        selection.take(place);
                    }
                }
            }
        }
    }

    /// Takes the victims that free most, while `open` says that more must be freed.
    fn free_bytes(
        &self,
        selection: &mut Selection<'_>,
        stats: &ChainStats,
        open: impl Fn(&Selection<'_>) -> bool,
    ) {
        let mut places: Vec<_> =
            selection.segments().filter(|(_, s)| s.live_bytes < s.record_bytes).collect();
        sort_descending(&mut places, |segment| self.worth(segment));
        let mut partial = None;
        // A victim that goes may let one go that was passed over because of its antimatter.
        let mut progress = true;
        while progress && open(selection) {
            progress = false;
            for (place, _) in &places {
                if !open(selection) {
                    break;
                }
                if selection.is_open(*place) && selection.would_go(*place) {
                    let taken = selection.take(*place);
                    progress |= taken && stats.has_antimatter();
                    partial = partial.or((!taken).then_some(*place));
                }
            }
        }
        if let Some(place) = partial.filter(|place| open(selection) && selection.is_open(*place)) {
            selection.take_part(place);
        }
    }

    /// What it is worth to free the dead bytes of the segment, and to find its entries without a pass.
    fn worth(&self, segment: &SegmentStats) -> f64 {
        self.order.score(segment) * if segment.indexed { INDEXED_WORTH } else { 1.0 }
    }

    /// Takes everything if that costs little more than what is planned, or than listing the chain costs.
    fn prefer_full(&self, selection: &mut Selection<'_>, stats: &ChainStats) {
        let live = stats.live_bytes();
        let planned = stats.delta.put_bytes + selection.bytes();
        let rest = live.saturating_sub(planned);
        let large_delta = rest.saturating_mul(4) <= live;
        let small_state = rest <= LISTING_BYTES.saturating_mul(stats.segments.len() as u64);
        if (large_delta || small_state) && stats.segments.len() > 1 && rest <= selection.bytes_left() {
            for (place, _) in selection.segments() {
                if selection.is_open(place) {
                    selection.take(place);
                }
            }
        }
    }

    /// The segments that will be wanted next: enough to free what is written until the next pass is due.
    fn prospects(&self, plan: &RewritePlan, stats: &ChainStats) -> Vec<super::SegmentNumber> {
        let new = |number| stats.segments.iter().any(|segment| segment.number == number && !segment.indexed);
        if !plan.victims.iter().any(|victim| new(*victim)) {
            return Vec::new();
        }
        let life = stats.segments.iter().map(|segment| segment.age_checkpoints).max().unwrap_or(0);
        let horizon = u64::from(life / PASSES_PER_LIFE);
        let mut wanted = stats.usual_delta_bytes().saturating_mul(horizon);
        let mut places: Vec<_> = stats.segments.iter().enumerate().collect();
        sort_descending(&mut places, |segment| self.order.score(segment));
        let mut prospects = plan.victims.clone();
        for (_, segment) in places {
            if wanted == 0 {
                break;
            }
            if !plan.victims.contains(&segment.number) {
                prospects.push(segment.number);
                wanted = wanted.saturating_sub(segment.record_bytes.saturating_sub(segment.live_bytes));
            }
        }
        prospects
    }
}

impl RewritePolicy for BoundedRewriting {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let mut selection = Selection::new(stats, self.budget_bytes(stats), self.survivors);
        for bound in &self.bounds {
            self.keep(*bound, &mut selection, stats);
        }
        let batch = scaled(stats.usual_delta_bytes(), self.batch_deltas).min(selection.bytes_left());
        if selection.bytes() > 0 && selection.bytes() < batch {
            self.free_bytes(&mut selection, stats, |selection| selection.bytes() < batch);
        }
        if self.full_where_cheaper {
            self.prefer_full(&mut selection, stats);
        }
        let mut plan = selection.plan();
        let unmet = self.bounds.iter().filter(|bound| !holds(**bound, &selection, stats));
        plan.unmet = unmet
            .map(|bound| UnmetBound { bound: *bound, reached: reached(*bound, &selection, stats) })
            .collect();
        plan.prospects = self.prospects(&plan, stats);
        plan
    }

    fn pack(&self, stats: &PackStats) -> Vec<usize> {
        self.objects_max.map_or_else(Vec::new, |count| packing::choose(stats, count))
    }

    fn part_bytes(&self, bytes: u64) -> Option<u64> {
        let by_space = self.bounds.iter().any(|bound| matches!(bound, Bound::SpaceAmplification { .. }));
        by_space.then(|| (bytes / PARTS).max(PART_BYTES_MIN))
    }
}

impl VictimOrder {
    /// How much it is worth to free the dead bytes of the segment; larger is better.
    fn score(self, segment: &SegmentStats) -> f64 {
        let live_share = segment.live_bytes as f64 / segment.record_bytes.max(1) as f64;
        let age = f64::from(segment.age_checkpoints) + 1.0;
        let dead_share = 1.0 - live_share;
        match self {
            Self::DecliningCost => dead_share * dead_share * age / (live_share + LIVE_SHARE_FLOOR),
            Self::CostBenefit => dead_share * age / (1.0 + live_share),
            Self::OldestFirst => age,
            Self::Greedy => dead_share,
        }
    }

    /// How much it is worth to have one segment less; larger is better.
    fn score_by_count(self, segment: &SegmentStats) -> f64 {
        let cost = segment.live_bytes as f64 + 1.0;
        let age = f64::from(segment.age_checkpoints) + 1.0;
        match self {
            Self::DecliningCost | Self::CostBenefit => age / cost,
            Self::OldestFirst => age,
            Self::Greedy => 1.0 / cost,
        }
    }
}

/// Best first; of equals the older one.
fn sort_descending(places: &mut [(usize, &SegmentStats)], score: impl Fn(&SegmentStats) -> f64) {
    places.sort_by(|(a_place, a), (b_place, b)| score(b).total_cmp(&score(a)).then(a_place.cmp(b_place)));
}

fn scaled(bytes: u64, factor: f64) -> u64 {
    // A float saturates at the ends when it becomes an integer, and no-number becomes 0.
    (bytes as f64 * factor) as u64
}

/// The figure that the bound limits, after the checkpoint.
fn reached(bound: Bound, selection: &Selection<'_>, stats: &ChainStats) -> f64 {
    match bound {
        Bound::MaxAge { .. } => f64::from(selection.age_max().unwrap_or(0)),
        Bound::SpaceAmplification { .. } => {
            let live = stats.live_bytes().max(stats.delta.record_bytes()).max(1);
            selection.retained_bytes() as f64 / live as f64
        }
        Bound::MaxSegments { .. } => selection.listed() as f64,
    }
}

fn holds(bound: Bound, selection: &Selection<'_>, stats: &ChainStats) -> bool {
    match bound {
        Bound::MaxAge { checkpoints } => selection.age_max().is_none_or(|age| age < checkpoints),
        Bound::SpaceAmplification { ratio } => reached(bound, selection, stats) <= ratio,
        Bound::MaxSegments { count } => selection.listed() as u64 <= u64::from(count),
    }
}
