//! Tombstones of one segment, counted by what they may hide.

use std::collections::BTreeMap;
use std::sync::Arc;

use lowtide_format::CheckpointId;

use super::facts::StateIndex;

/// The elements that may hold a removed key: ids from oldest to newest, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TombstoneSpan {
    /// Smallest id of an element that may hold the key.
    pub oldest: CheckpointId,
    /// Largest id of an element that may hold the key.
    pub newest: CheckpointId,
}

/// Numbers of tombstones by span.
pub type SpanCounts = BTreeMap<TombstoneSpan, u64>;

/// Counts of tombstones by state, encoded namespace and span. O(distinct spans) memory.
///
/// The void namespace is the empty encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneTally {
    counts: BTreeMap<(StateIndex, Arc<[u8]>), SpanCounts>,
    count: u64,
}

impl TombstoneTally {
    /// A tally of no tombstone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one tombstone. O(log distinct spans); allocates at the first of a namespace and of a span.
    pub fn add(&mut self, state: StateIndex, namespace: &Arc<[u8]>, span: TombstoneSpan) {
        self.add_many(state, namespace, span, 1);
    }

    /// Counts `count` tombstones of one span.
    pub fn add_many(&mut self, state: StateIndex, namespace: &Arc<[u8]>, span: TombstoneSpan, count: u64) {
        if count > 0 {
            let spans = self.counts.entry((state, Arc::clone(namespace))).or_default();
            *spans.entry(span).or_default() += count;
            self.count += count;
        }
    }

    /// Adds the counts of another tally, of other key groups of the same segment.
    pub fn merge(&mut self, other: &Self) {
        for ((state, namespace), spans) in &other.counts {
            for (span, count) in spans {
                self.add_many(*state, namespace, *span, *count);
            }
        }
    }

    /// How many tombstones.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many distinct spans are kept, those of different states or namespaces counted apart. O(namespaces).
    #[must_use]
    pub fn spans(&self) -> usize {
        self.counts.values().map(SpanCounts::len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The states with a tombstone, ascending, each once.
    pub fn states(&self) -> impl Iterator<Item = StateIndex> + '_ {
        let mut last = None;
        self.counts.keys().map(|(state, _)| *state).filter(move |state| last.replace(*state) != Some(*state))
    }

    /// The spans of each state and namespace, with their counts.
    pub fn scopes(&self) -> impl Iterator<Item = (StateIndex, &Arc<[u8]>, &SpanCounts)> + '_ {
        self.counts.iter().map(|((state, namespace), spans)| (*state, namespace, spans))
    }
}
