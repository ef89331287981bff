//! Which elements the next manifest lists: the rule of the module above, in one ascending pass.

use std::sync::Arc;

use hashbrown::HashMap;
use lowtide_format::{CheckpointId, KeyGroupSet};

use super::facts::{ClearFact, SegmentFacts, SegmentNumber};
use super::tally::TombstoneTally;
use super::{Chain, Element, IdInterval};

/// Numbers of puts by segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePuts {
    counts: HashMap<SegmentNumber, u64>,
}

impl LivePuts {
    /// No put anywhere.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds puts of a segment.
    pub fn add(&mut self, segment: SegmentNumber, puts: u64) {
        if puts > 0 {
            *self.counts.entry(segment).or_default() += puts;
        }
    }

    /// The puts of a segment; 0 if none were added.
    #[must_use]
    pub fn get(&self, segment: SegmentNumber) -> u64 {
        self.counts.get(&segment).copied().unwrap_or(0)
    }

    /// The puts of all segments.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// What the chain of the next checkpoint is made from.
#[derive(Clone, Copy, Debug)]
pub struct NextChain<'a> {
    /// The checkpoint that is written.
    pub id: CheckpointId,
    /// The chain of its base; `None` for a checkpoint that holds everything.
    pub base: Option<&'a Chain>,
    /// Live puts by segment of the base's chain, as of the freeze: entries that changed since the base are not
    /// counted there.
    pub live: &'a LivePuts,
    /// Of these, the ones that this checkpoint in fact wrote again, by the segment they came from.
    pub rewritten: &'a LivePuts,
    /// The segments that this checkpoint wrote, in any order. All their puts are live.
    pub new: &'a [Arc<SegmentFacts>],
    /// The key groups of this subtask.
    pub key_groups: &'a KeyGroupSet,
}

impl Chain {
    /// The chain of the next checkpoint: the elements of its base that still hold a live record, and the new ones.
    ///
    /// Cost: O(elements · clears + distinct tombstone spans · log elements).
    #[must_use]
    pub fn next(request: &NextChain<'_>) -> Self {
        let candidates = candidates(request);
        let mut listed: Vec<Element> = Vec::with_capacity(candidates.len());
        for (index, candidate) in candidates.iter().enumerate() {
            let (_, newer) = candidates.split_at(index + 1);
            let older = older_than(&listed, candidate.id());
            let mut element = candidate.clone();
            let newer = || clears_newer_than(newer, candidate.id());
            let mut matter = Vec::new();
            element.live_tombstones = live_tombstones(candidate, older, newer, &mut matter);
            element.live_clears = live_clears(candidate, older, newer, &mut matter);
            element.matter = united(matter);
            if element.live() > 0 || element.id() == request.id {
                listed.push(element);
            }
        }
        let chain = Self { id: request.id, elements: listed };
        if cfg!(debug_assertions) {
            chain.check_invariants(None);
        }
        chain
    }
}

/// The base's elements with the puts that are left to them, then the new ones; oldest first.
fn candidates(request: &NextChain<'_>) -> Vec<Element> {
    let mut candidates = Vec::new();
    for element in request.base.map(Chain::elements).unwrap_or_default() {
        let number = element.facts.number;
        let live = request.live.get(number);
        let rewritten = request.rewritten.get(number);
        debug_assert!(rewritten <= live, "C3: {number} had {live} live puts, {rewritten} were rewritten");
        candidates.push(Element { live_puts: live.saturating_sub(rewritten), ..element.clone() });
    }
    candidates.extend(request.new.iter().map(|facts| Element {
        facts: Arc::clone(facts),
        key_groups: request.key_groups.clone(),
        live_puts: facts.puts,
        live_tombstones: 0,
        live_clears: 0,
        matter: Vec::new(),
    }));
    candidates.sort_by_key(Element::id);
    candidates
}

/// The listed elements with a smaller id.
fn older_than(listed: &[Element], id: CheckpointId) -> &[Element] {
    listed.split_at(listed.partition_point(|element| element.id() < id)).0
}

/// The clears of candidates with a larger id.
fn clears_newer_than(candidates: &[Element], id: CheckpointId) -> impl Iterator<Item = &ClearFact> + Clone {
    let newer = candidates.split_at(candidates.partition_point(|element| element.id() <= id)).1;
    newer.iter().flat_map(|element| &element.facts.clears)
}

/// The number of live clears; adds the ids of the elements that they void something in.
fn live_clears<'a, I: Iterator<Item = &'a ClearFact>>(
    element: &Element,
    older: &[Element],
    newer: impl Fn() -> I,
    matter: &mut Vec<IdInterval>,
) -> u64 {
    let mut count = 0;
    for clear in &element.facts.clears {
        let voided = older.iter().filter(|older| {
            older.facts.may_hold(clear.state) && !older.key_groups.intersect(&clear.key_groups).is_empty()
        });
        let mut voided = voided.map(|older| (older.id(), older.id())).peekable();
        let covers = newer().filter(|newer| newer.covers(clear.state, clear.namespace.as_deref()));
        if voided.peek().is_some() && !covered(&clear.key_groups, covers) {
            count += 1;
            matter.extend(voided);
        }
    }
    count
}

/// Whether the clears together cover all the key groups.
fn covered<'a>(key_groups: &KeyGroupSet, clears: impl Iterator<Item = &'a ClearFact>) -> bool {
    let mut open = key_groups.clone();
    for clear in clears {
        if open.is_empty() {
            break;
        }
        open = open.difference(&clear.key_groups);
    }
    open.is_empty()
}

/// The number of live tombstones; adds the ids of the elements that they hide something in.
fn live_tombstones<'a, I: Iterator<Item = &'a ClearFact>>(
    element: &Element,
    older: &[Element],
    newer: impl Fn() -> I,
    matter: &mut Vec<IdInterval>,
) -> u64 {
    let tally: &TombstoneTally = &element.facts.tombstones;
    if tally.is_empty() || older.is_empty() {
        return 0;
    }
    let mut count = 0;
    for (state, namespace, spans) in tally.scopes() {
        let covers = newer().filter(|clear| clear.covers(state, Some(namespace)));
        if covered(&element.key_groups, covers) {
            continue;
        }
        for (span, tombstones) in spans {
            let first = older.partition_point(|older| older.id() < span.oldest);
            let end = older.partition_point(|older| older.id() <= span.newest);
            let hidden = older.get(first..end).unwrap_or_default();
            if let (Some(first), Some(last)) = (hidden.first(), hidden.last()) {
                count += tombstones;
                matter.push((first.id(), last.id()));
            }
        }
    }
    count
}

/// The same ids as disjoint intervals, ascending.
fn united(mut intervals: Vec<IdInterval>) -> Vec<IdInterval> {
    intervals.sort_unstable();
    intervals.dedup_by(|next, kept| {
        let overlaps = next.0 <= kept.1;
        if overlaps {
            kept.1 = kept.1.max(next.1);
        }
        overlaps
    });
    intervals
}
