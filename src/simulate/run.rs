//! One checkpoint after the other: changes, freeze, plan, write, list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lowtide_format::{CheckpointId, KeyGroup, KeyGroupRange, KeyGroupSet};
use lowtide_heap::chain::{
    Chain, ClearFact, LivePuts, NextChain, SegmentFacts, SegmentNumber, StateIndex, TombstoneTally,
};
use lowtide_heap::rewrite::{ChainStats, DeltaFigures, RewritePlan, RewritePolicy, StatsRequest, Survivors};

use super::SimulateOptions;
use super::figures::{self, CheckpointFigures, SimulateReport};
use super::map::{AccountedMap, Change, Frozen};
use super::objects::Objects;
use super::workload::Changes;

/// The only state that is simulated.
const STATE: StateIndex = StateIndex(0);

/// Runs all checkpoints of the options under the policy.
///
/// Cost: O(checkpoints · changed keys) time, about 40 bytes a key and 4 bytes a retained record.
#[must_use]
pub fn simulate(options: &SimulateOptions, policy: &dyn RewritePolicy) -> SimulateReport {
    let mut simulation = Simulation::new(options.clone());
    let rows: Vec<_> = (0..options.checkpoints).map(|_| simulation.checkpoint(policy)).collect();
    simulation.report(&rows)
}

/// A simulation that is taken step by step.
#[derive(Debug)]
pub struct Simulation {
    options: SimulateOptions,
    changes: Changes,
    map: AccountedMap,
    base: Option<Chain>,
    key_groups: KeyGroupSet,
    next_number: u32,
    /// Segments whose entries were noted at a pass over the map, with how many they were.
    noted: BTreeMap<SegmentNumber, u64>,
    objects: Objects,
    completed: Vec<CheckpointId>,
    removed: u64,
    /// How the first checkpoint is cut, if not by size.
    part_of: Option<fn(u32) -> u32>,
}

impl Simulation {
    /// A simulation before its first checkpoint.
    #[must_use]
    pub fn new(options: SimulateOptions) -> Self {
        Self {
            changes: Changes::new(&options),
            map: AccountedMap::default(),
            base: None,
            key_groups: KeyGroupRange::new(KeyGroup(0), KeyGroup(0))
                .map(KeyGroupSet::from)
                .unwrap_or_default(),
            next_number: 0,
            noted: BTreeMap::new(),
            objects: Objects::default(),
            completed: Vec::new(),
            removed: 0,
            part_of: None,
            options,
        }
    }

    /// Makes the changes of one interval and takes the checkpoint after them.
    pub fn checkpoint(&mut self, policy: &dyn RewritePolicy) -> CheckpointFigures {
        self.changes.make(&mut self.map);
        let id =
            self.completed.last().map_or(CheckpointId::FIRST, |id| id.next().unwrap_or(CheckpointId::MAX));
        let mut frozen = self.map.freeze();
        self.removed += frozen.tombstones.len() as u64;
        if self.base.as_ref().is_none_or(Chain::is_empty) {
            // Nothing is listed that a tombstone or a clear could be about.
            (frozen.tombstones, frozen.clears) = (Vec::new(), Vec::new());
        }
        let live = self.live();
        let plan = self.plan(policy, id, &frozen, &live);
        let mut row = CheckpointFigures { unmet: plan.unmet.len() as u64, ..CheckpointFigures::default() };
        self.look(&plan, &mut row);
        let mut new = self.write_delta(policy, id, &frozen);
        let rewritten = self.rewrite(&plan, id, &mut new);
        self.describe(&frozen, &rewritten, &mut row);
        if self.base.is_some() {
            self.objects.share(&new, self.options.shared_bytes_max);
        }
        let new: Vec<_> = new.into_iter().map(Arc::new).collect();
        let chain = Chain::next(&NextChain {
            id,
            base: self.base.as_ref(),
            live: &live,
            rewritten: &rewritten,
            new: &new,
            key_groups: &self.key_groups,
        });
        chain.check_invariants(Some(self.map.entries()));
        if self.base.is_some() {
            let budget_left = plan.budget_bytes.saturating_sub(row.rewritten_bytes);
            row.packed_bytes = self.objects.pack(policy, &chain, budget_left);
        }
        self.adopt(chain, &mut row);
        row
    }

    /// Cuts the first checkpoint into a segment for each number that `part_of` gives to a key, and not by size: as an
    /// engine does that cuts between key groups.
    pub fn cut_by(&mut self, part_of: fn(u32) -> u32) {
        self.part_of = Some(part_of);
    }

    /// Records the changes from now on, for [`Simulation::take_changes`].
    pub fn record_changes(&mut self) {
        self.map.record();
    }

    /// The changes made since the last call, in order; none unless they are recorded.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.map.take_recorded()
    }

    /// Sums up the rows of all checkpoints so far.
    #[must_use]
    pub fn report(&self, rows: &[CheckpointFigures]) -> SimulateReport {
        figures::report(rows, self.options.warmup as usize, self.options.listing_bytes, self.removed)
    }

    /// The chain of the last checkpoint; `None` before the first.
    #[must_use]
    pub fn chain(&self) -> Option<&Chain> {
        self.base.as_ref()
    }

    fn live(&self) -> LivePuts {
        let mut live = LivePuts::new();
        for element in self.base.iter().flat_map(Chain::elements) {
            live.add(element.facts.number, self.map.live(element.facts.number));
        }
        live
    }

    fn plan(
        &self,
        policy: &dyn RewritePolicy,
        id: CheckpointId,
        frozen: &Frozen,
        live: &LivePuts,
    ) -> RewritePlan {
        let Some(base) = &self.base else { return RewritePlan::none() };
        let indexed: Vec<_> = self.noted.keys().copied().collect();
        let puts = frozen.puts.len() as u64;
        policy.plan(&ChainStats::new(&StatsRequest {
            id,
            base,
            live,
            delta: DeltaFigures {
                puts,
                put_bytes: puts * self.options.put_bytes,
                tombstone_bytes: self.antimatter_bytes(frozen),
            },
            clears: &self.clears(frozen),
            completed: &self.completed,
            indexed: &indexed,
            key_groups: &self.key_groups,
        }))
    }

    /// Encoded bytes of the tombstones and clears.
    fn antimatter_bytes(&self, frozen: &Frozen) -> u64 {
        frozen.tombstones.len() as u64 * self.options.tombstone_bytes
            + frozen.clears.len() as u64 * self.options.clear_bytes
    }

    fn clears(&self, frozen: &Frozen) -> Vec<ClearFact> {
        let fact = |namespace: &u32| ClearFact {
            state: STATE,
            namespace: Some(Arc::from(&namespace.to_le_bytes()[..])),
            key_groups: self.key_groups.clone(),
        };
        frozen.clears.iter().map(fact).collect()
    }

    /// Counts what finding the entries of the victims costs, as a writer does that notes the prospects.
    fn look(&mut self, plan: &RewritePlan, row: &mut CheckpointFigures) {
        if plan.victims.iter().any(|victim| !self.noted.contains_key(victim)) {
            row.looks += self.map.entries();
            let wanted = plan.victims.iter().chain(&plan.prospects);
            self.noted = wanted.map(|number| (*number, self.map.live(*number))).collect();
        }
        row.looks += plan.victims.iter().filter_map(|victim| self.noted.get(victim)).sum::<u64>();
    }

    fn facts(&mut self, id: CheckpointId, puts: u64) -> SegmentFacts {
        self.next_number += 1;
        SegmentFacts {
            number: SegmentNumber(self.next_number),
            checkpoint: id,
            file: None,
            cold: false,
            puts,
            put_bytes: puts * self.options.put_bytes,
            tombstone_bytes: 0,
            tombstones: TombstoneTally::new(),
            clears: Vec::new(),
            states: vec![STATE],
        }
    }

    /// Writes the delta, in parts if there is no base; nothing if it has no record.
    fn write_delta(
        &mut self,
        policy: &dyn RewritePolicy,
        id: CheckpointId,
        frozen: &Frozen,
    ) -> Vec<SegmentFacts> {
        let bytes = frozen.puts.len() as u64 * self.options.put_bytes;
        let part_bytes = if self.base.is_none() { policy.part_bytes(bytes) } else { None };
        let part = part_bytes.map_or(u64::MAX, |part| part.div_ceil(self.options.put_bytes.max(1)));
        let part = usize::try_from(part).unwrap_or(usize::MAX).max(1);
        let mut new = Vec::new();
        let mut puts = frozen.puts.clone();
        let parts: Vec<&[u32]> = match self.part_of.filter(|_| puts.len() > part) {
            None => puts.chunks(part).collect(),
            Some(part_of) => {
                puts.sort_by_key(|key| part_of(*key));
                puts.chunk_by(|a, b| part_of(*a) == part_of(*b)).collect()
            }
        };
        for keys in parts {
            let facts = self.facts(id, keys.len() as u64);
            self.map.write(facts.number, id, keys);
            new.push(facts);
        }
        let antimatter_bytes = self.antimatter_bytes(frozen);
        if frozen.tombstones.len() + frozen.clears.len() > 0 {
            if new.is_empty() {
                new.push(self.facts(id, 0));
            }
            let clears = self.clears(frozen);
            if let Some(first) = new.first_mut() {
                first.tombstone_bytes = antimatter_bytes;
                first.clears = clears;
                let namespace = Arc::from(&b""[..]);
                for span in &frozen.tombstones {
                    first.tombstones.add(STATE, &namespace, *span);
                }
            }
        }
        new
    }

    /// Rewrites what the plan asks for, within its budget; returns how many records of each victim.
    fn rewrite(&mut self, plan: &RewritePlan, id: CheckpointId, new: &mut Vec<SegmentFacts>) -> LivePuts {
        let mut rewritten = LivePuts::new();
        let mut left = plan.budget_bytes / self.options.put_bytes.max(1);
        let mut target = match plan.survivors {
            Survivors::WithDelta => new.pop().unwrap_or_else(|| self.facts(id, 0)),
            Survivors::Apart => SegmentFacts { cold: true, ..self.facts(id, 0) },
        };
        for victim in &plan.victims {
            let moved = self.map.rewrite(*victim, (target.number, id), left);
            rewritten.add(*victim, moved);
            left -= moved;
            target.puts += moved;
            target.put_bytes += moved * self.options.put_bytes;
        }
        if target.record_bytes() > 0 {
            new.push(target);
        }
        rewritten
    }

    fn describe(&self, frozen: &Frozen, rewritten: &LivePuts, row: &mut CheckpointFigures) {
        row.puts = frozen.puts.len() as u64;
        row.tombstones = frozen.tombstones.len() as u64;
        row.clears = frozen.clears.len() as u64;
        row.rewritten = rewritten.total();
        row.rewritten_bytes = row.rewritten * self.options.put_bytes;
        row.delta_bytes = row.puts * self.options.put_bytes + self.antimatter_bytes(frozen);
        row.entries = self.map.entries();
    }

    /// The chain becomes the base of the next checkpoint.
    fn adopt(&mut self, chain: Chain, row: &mut CheckpointFigures) {
        let id = chain.id();
        let space = chain.space();
        (row.retained_bytes, row.live_bytes) = (space.retained_bytes, space.live_bytes);
        row.segments = chain.elements().len() as u64;
        let listed: BTreeSet<_> = chain.elements().iter().map(|element| element.facts.number).collect();
        row.objects = self.objects.count(&chain);
        row.waste_bytes = self.objects.waste(&chain);
        row.tombstones_live = chain.elements().iter().map(|element| element.live_tombstones).sum();
        let oldest = chain.elements().first().map_or(id, lowtide_heap::chain::Element::id);
        row.age_max =
            u32::try_from(self.completed.len() - self.completed.partition_point(|done| *done <= oldest))
                .unwrap_or(u32::MAX);
        let gone = self.map.keep_only(|number| listed.contains(&number));
        (row.gone, row.gone_life) = (gone.len() as u64, figures::lives(&gone, id));
        self.noted.retain(|number, _| listed.contains(number));
        self.completed.push(id);
        self.base = Some(chain);
    }
}
