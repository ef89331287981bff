//! What a snapshot is to write again, by the policy's plan.
//!
//! Owns: asking the policy. Does not own: the decision (`rewrite`), finding the entries (`map`).

use std::sync::Arc;

use lowtide_format::KeyGroupSet;

use super::SnapshotParts;
use super::moves::Moves;
use crate::chain::{ClearFact, SegmentNumber, StateIndex};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::lineage::BaseFacts;
use crate::map::{Budget, RewritePass};
use crate::origins::Origin;
use crate::overlay::Outcome;
use crate::places::SegmentPlaces;
use crate::rewrite::{ChainStats, DeltaFigures, StatsRequest, Survivors, UnmetBound};

/// What the policy said.
#[derive(Default)]
pub(super) struct Decision<'a> {
    /// What is to be written again; `None` if nothing is.
    pub(super) work: Option<RewriteWork<'a>>,
    pub(super) budget_bytes: u64,
    /// Whether everything is to be.
    pub(super) full: bool,
    pub(super) unmet: Vec<UnmetBound>,
}

/// A plan that is being carried out.
pub(super) struct RewriteWork<'a> {
    base: &'a BaseFacts,
    epoch: Epoch,
    earlier: Vec<(Epoch, Arc<Outcome>)>,
    /// The victims, and after them the segments whose entries are to be noted.
    pub(super) wanted: Vec<SegmentNumber>,
    pub(super) victims: usize,
    places: Option<Vec<Arc<SegmentPlaces>>>,
    budget: Budget,
    pub(super) survivors: Survivors,
}

impl<'a> RewriteWork<'a> {
    /// Asks the policy.
    pub(super) fn plan(parts: &'a SnapshotParts) -> Result<Decision<'a>, HeapError> {
        let (Some(base), Some(policy), Some(_)) = (&parts.base, &parts.policy, &parts.rewrite) else {
            return Ok(Decision::default());
        };
        let moves = Moves::of(parts);
        let mut clears: Vec<ClearFact> = Vec::new();
        for (index, state) in parts.states.iter().enumerate() {
            let of_state = state.clears(base.epoch, StateIndex(index as u16))?;
            clears.extend(of_state.into_iter().map(|(_, fact)| fact));
        }
        let stats = ChainStats::new(&StatsRequest {
            id: parts.id,
            base: &base.written.chain,
            live: &moves.live_puts(),
            delta: delta_figures(parts, base),
            clears: &clears,
            completed: &parts.completed,
            indexed: &parts.places.indexed(|number| {
                base.written.chain.elements().iter().any(|element| element.facts.number == number)
            }),
            key_groups: &KeyGroupSet::from(parts.layout.range),
        });
        let plan = policy.plan(&stats);
        let (budget_bytes, full, unmet) = (plan.budget_bytes, plan.full, plan.unmet);
        if plan.victims.is_empty() {
            return Ok(Decision { work: None, budget_bytes, full, unmet });
        }
        let bytes_of = |victim: &SegmentNumber| {
            stats
                .segments
                .iter()
                .find(|segment| segment.number == *victim)
                .map_or(0, |segment| segment.live_bytes)
        };
        let before_last =
            plan.victims.split_last().map_or(0, |(_, before)| before.iter().map(bytes_of).sum());
        let of_last = plan.budget_bytes.saturating_sub(before_last);
        let places = parts.places.of(&plan.victims);
        let (victims, mut wanted) = (plan.victims.len(), plan.victims);
        if places.is_none() {
            let prospects = plan.prospects.into_iter();
            let new: Vec<_> = prospects.filter(|prospect| !wanted.contains(prospect)).collect();
            wanted.extend(new);
        }
        let work = Self {
            base,
            epoch: parts.epoch,
            earlier: moves.earlier,
            budget: Budget::new(plan.budget_bytes, of_last),
            wanted,
            victims,
            places,
            survivors: plan.survivors,
        };
        Ok(Decision { work: Some(work), budget_bytes, full, unmet })
    }

    pub(super) fn pass(&self) -> RewritePass<'_> {
        RewritePass {
            epoch: self.epoch,
            base: self.base,
            earlier: &self.earlier,
            wanted: &self.wanted,
            victims: self.victims,
            places: self.places.as_deref(),
            budget: &self.budget,
        }
    }
}

/// The delta as far as the counters tell it: the number of puts is exact, their bytes are estimated by the mean put
/// of the chain.
fn delta_figures(parts: &SnapshotParts, base: &BaseFacts) -> DeltaFigures {
    let is_new = |origin: &Origin| origin.home.is_none() && origin.version > base.epoch;
    let rows = parts.states.iter().flat_map(|state| state.origins().rows());
    let new = rows.filter(|(_, origin, _)| is_new(origin));
    let puts: u64 = new.flat_map(|(_, _, counts)| counts).map(|count| u64::from(*count)).sum();
    let elements = base.written.chain.elements();
    let known: u64 = elements.iter().map(|element| element.facts.puts).sum();
    let bytes: u64 = elements.iter().map(|element| element.facts.put_bytes).sum();
    let put_bytes = if known == 0 { 0 } else { u128::from(bytes) * u128::from(puts) / u128::from(known) };
    DeltaFigures { puts, put_bytes: u64::try_from(put_bytes).unwrap_or(u64::MAX), tombstone_bytes: 0 }
}
