//! The figures of a chain that a policy decides on, as of a freeze and before anything is rewritten.

use std::sync::Arc;

use lowtide_format::{CheckpointId, KeyGroupSet};

use crate::chain::{Chain, ClearFact, Element, IdInterval, LivePuts, NextChain};
use crate::chain::{SegmentFacts, SegmentNumber, TombstoneTally};

/// How many of the newest deltas say what is usual.
const USUAL_DELTAS: usize = 16;

/// Figures of one segment of the base that would still be listed if nothing were rewritten.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentStats {
    /// The segment.
    pub number: SegmentNumber,
    /// The checkpoint that wrote it.
    pub checkpoint: CheckpointId,
    /// How many completed checkpoints are newer than it.
    pub age_checkpoints: u32,
    /// Entries of the frozen view whose record is here.
    pub live_puts: u64,
    /// Encoded bytes of these records, by the mean put of the segment.
    pub live_bytes: u64,
    /// Encoded bytes of all its records.
    pub record_bytes: u64,
    /// Its live tombstones and clears. They go when what they hide is no longer listed, not by rewriting.
    pub live_antimatter: u64,
    /// The ids of older elements that its live tombstones and clears are about, as disjoint intervals.
    pub matter: Vec<IdInterval>,
    /// Whether it holds rewritten survivors only.
    pub cold: bool,
    /// Whether the writer has noted where its entries are, so that finding them costs no pass over the map.
    pub indexed: bool,
}

/// Figures of a chain for one checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainStats {
    /// The segments of the base that would still be listed, oldest first.
    pub segments: Vec<SegmentStats>,
    /// The delta that this checkpoint writes in any case.
    pub delta: DeltaFigures,
}

/// Figures of a delta, as far as they are known before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaFigures {
    /// Entries that changed since the base.
    pub puts: u64,
    /// Encoded bytes of their records, estimated.
    pub put_bytes: u64,
    /// Encoded bytes of the tombstones and clears, estimated.
    pub tombstone_bytes: u64,
}

impl DeltaFigures {
    /// Encoded bytes of all its records.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.put_bytes + self.tombstone_bytes
    }
}

/// What the figures are made from.
#[derive(Clone, Copy, Debug)]
pub struct StatsRequest<'a> {
    /// The checkpoint that is written.
    pub id: CheckpointId,
    /// The chain of its base.
    pub base: &'a Chain,
    /// Live puts by segment of the base's chain, as of the freeze.
    pub live: &'a LivePuts,
    /// What the delta will hold.
    pub delta: DeltaFigures,
    /// The clears that the delta will hold.
    pub clears: &'a [ClearFact],
    /// The completed checkpoints before this one, ascending, savepoints left out; those older than every element
    /// need not be among them. After a restore, of which only the restored chain is known, begin with the ids of
    /// its elements and the restored id.
    pub completed: &'a [CheckpointId],
    /// The segments whose entries the writer can find without a pass over the map, ascending.
    pub indexed: &'a [SegmentNumber],
    /// The key groups of this subtask.
    pub key_groups: &'a KeyGroupSet,
}

impl ChainStats {
    /// The figures. Cost: that of [`Chain::next`].
    #[must_use]
    pub fn new(request: &StatsRequest<'_>) -> Self {
        // The delta takes part without its tombstones, which keep no other element alive.
        let delta = Arc::new(SegmentFacts {
            number: SegmentNumber(u32::MAX),
            checkpoint: request.id,
            file: None,
            cold: false,
            puts: request.delta.puts,
            put_bytes: request.delta.put_bytes,
            tombstone_bytes: request.delta.tombstone_bytes,
            tombstones: TombstoneTally::new(),
            clears: request.clears.to_vec(),
            states: Vec::new(),
        });
        let next = Chain::next(&NextChain {
            id: request.id,
            base: Some(request.base),
            live: request.live,
            rewritten: &LivePuts::new(),
            new: &[delta],
            key_groups: request.key_groups,
        });
        let old = next.elements().iter().filter(|element| element.id() != request.id);
        let segments =
            old.map(|element| segment_stats(element, request.completed, request.indexed)).collect();
        Self { segments, delta: request.delta }
    }

    /// Encoded bytes of all records that would be listed if nothing were rewritten.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.record_bytes).sum::<u64>() + self.delta.record_bytes()
    }

    /// Encoded bytes that three quarters of the newest listed deltas exceed, or of this delta if none is listed: a measure
    /// that does not shrink to nothing while a job is idle, nor grow with a large delta or the parts of a large checkpoint.
    #[must_use]
    pub fn usual_delta_bytes(&self) -> u64 {
        let deltas = self.segments.iter().rev().filter(|segment| !segment.cold).take(USUAL_DELTAS);
        let mut bytes: Vec<_> = deltas.map(|segment| segment.record_bytes).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 4).copied().unwrap_or(self.delta.record_bytes())
    }

    /// Whether any segment has a live tombstone or clear.
    #[must_use]
    pub fn has_antimatter(&self) -> bool {
        self.segments.iter().any(|segment| segment.live_antimatter > 0)
    }

    /// Encoded bytes of the live puts, the delta's among them.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_bytes).sum::<u64>() + self.delta.put_bytes
    }
}

fn segment_stats(element: &Element, completed: &[CheckpointId], indexed: &[SegmentNumber]) -> SegmentStats {
    let newer = completed.len() - completed.partition_point(|id| *id <= element.id());
    SegmentStats {
        number: element.facts.number,
        checkpoint: element.id(),
        age_checkpoints: u32::try_from(newer).unwrap_or(u32::MAX),
        live_puts: element.live_puts,
        live_bytes: element.live_bytes(),
        record_bytes: element.facts.record_bytes(),
        live_antimatter: element.live_tombstones + element.live_clears,
        matter: element.matter.clone(),
        cold: element.facts.cold,
        indexed: indexed.binary_search(&element.facts.number).is_ok(),
    }
}
