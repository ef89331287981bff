//! Which elements the next manifest lists: the rule of the module above, in one ascending pass.

use std::sync::Arc;

use hashbrown::HashMap;
use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{CheckpointId, KeyGroupSet};

use super::facts::{ClearFact, SegmentFacts, SegmentNumber, StateIndex};
use super::tally::{TombstoneSpan, TombstoneTally};
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
    /// Tombstones that are dead for every later chain are dropped from the facts once they are the larger part.
    ///
    /// Cost: O(elements · clears + distinct tombstone spans · log elements).
    #[must_use]
    pub fn next(request: &NextChain<'_>) -> Self {
        let candidates = candidates(request);
        let clears = candidates.iter().flat_map(|element| {
            let id = element.id();
            element.facts.clears.iter().map(move |clear| (id, clear))
        });
        let clears: Vec<_> = clears.collect();
        let mut listed: Vec<Element> = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let id = candidate.id();
            let older = listed.split_at(listed.partition_point(|element| element.id() < id)).0;
            let newer_clears = clears.split_at(clears.partition_point(|(of, _)| *of <= id)).1;
            let element = Judged { candidate, older, newer_clears }.element();
            if element.live() > 0 || id == request.id {
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

/// A candidate with what decides about its tombstones and clears.
struct Judged<'a> {
    candidate: &'a Element,
    /// The listed elements with a smaller id.
    older: &'a [Element],
    /// The clears of candidates with a larger id.
    newer_clears: &'a [(CheckpointId, &'a ClearFact)],
}

impl Judged<'_> {
    /// The candidate with its live tombstones and clears.
    fn element(&self) -> Element {
        let mut element = self.candidate.clone();
        let mut matter = Vec::new();
        element.live_clears = self.live_clears(&mut matter);
        element.live_tombstones = 0;
        let spans_live = self.live_spans(|_, _, span, count| {
            element.live_tombstones += count;
            matter.push((span.oldest, span.newest));
        });
        // Halving bounds both the copies, a few in the life of a segment, and what is kept in vain.
        if spans_live * 2 <= element.facts.tombstones.spans() && !element.facts.tombstones.is_empty() {
            let mut tombstones = TombstoneTally::new();
            self.live_spans(|state, namespace, span, count| {
                tombstones.add_many(state, namespace, span, count)
            });
            element.facts = Arc::new(SegmentFacts { tombstones, ..(*element.facts).clone() });
        }
        element.matter = united(matter);
        element
    }

    /// Counts the live clears; adds the ids of the elements that they void something in.
    fn live_clears(&self, matter: &mut Vec<IdInterval>) -> u64 {
        let mut count = 0;
        for clear in &self.candidate.facts.clears {
            let voided = self.older.iter().filter(|older| {
                older.facts.may_hold(clear.state) && !older.key_groups.intersect(&clear.key_groups).is_empty()
            });
            let mut voided = voided.map(|older| (older.id(), older.id())).peekable();
            let namespace = clear.namespace.as_deref();
            if voided.peek().is_some() && !self.is_covered(&clear.key_groups, clear.state, namespace) {
                count += 1;
                matter.extend(voided);
            }
        }
        count
    }

    /// Hands out the tombstones that hide something in a listed older element, each span narrowed to the listed
    /// elements in it: later chains have no others there. Returns how many spans were handed out.
    fn live_spans(&self, mut take: impl FnMut(StateIndex, &Arc<[u8]>, TombstoneSpan, u64)) -> usize {
        let mut spans_live = 0;
        for (state, namespace, spans) in self.candidate.facts.tombstones.scopes() {
            let dead = self.older.is_empty() || is_broken(Break::TombstoneNeverLive);
            if dead || self.is_covered(&self.candidate.key_groups, state, Some(namespace)) {
                continue;
            }
            for (span, count) in spans {
                let first = self.older.partition_point(|older| older.id() < span.oldest);
                let end = self.older.partition_point(|older| older.id() <= span.newest);
                let hidden = self.older.get(first..end).unwrap_or_default();
                if let (Some(first), Some(last)) = (hidden.first(), hidden.last()) {
                    spans_live += 1;
                    take(state, namespace, TombstoneSpan { oldest: first.id(), newest: last.id() }, *count);
                }
            }
        }
        spans_live
    }

    /// Whether newer clears together cover the scope; a namespace of `None` is all of them.
    fn is_covered(&self, key_groups: &KeyGroupSet, state: StateIndex, namespace: Option<&[u8]>) -> bool {
        let mut open = key_groups.clone();
        for (_, clear) in self.newer_clears.iter().filter(|(_, clear)| clear.covers(state, namespace)) {
            open = open.difference(&clear.key_groups);
        }
        open.is_empty()
    }
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
