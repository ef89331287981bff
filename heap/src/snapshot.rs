//! The frozen view of a backend, from the freeze until it is dropped.
//!
//! Owns: what a writer needs after the owner has gone on; letting go, on every way out. Does not own: the segments'
//! bytes and where they go (the caller).

mod moves;
mod packing;
mod segments;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use lowtide_format::{
    CheckpointId, FileEntry, FileId, FinishedSegment, KeyGroupRange, KeyGroupSet, SegmentOptions,
    SegmentSummary, StateDescriptor,
};

use crate::chain::{Chain, NextChain, SegmentFacts, SegmentFile, SegmentNumber};
use crate::encode::{Antimatter, Resolver, Tombstones};
use crate::epochs::{Epoch, EpochsInUse};
use crate::error::HeapError;
use crate::lineage::{BaseFacts, Home, Homes, Written, WrittenSlot};
use crate::map::{Frozen, Layout};
use crate::overlay::{Outcome, OutcomeSlot};
use crate::places::Places;
use crate::rewrite::{RewritePolicy, UnmetBound};
use crate::turn::Counters;

use moves::Moves;
use segments::SegmentSeries;
use work::{Decision, RewriteWork};

/// Asks a writer on another thread to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the writer to stop at its next batch; it then returns [`HeapError::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a snapshot is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// How segments are compressed and cut into blocks.
    pub segment: SegmentOptions,
    /// A segment is closed once it has this many bytes; at most 64 segments are made of one snapshot, cut between
    /// key groups, so a larger state has larger ones.
    pub segment_bytes_max: u64,
    /// Key groups encoded at a time, on the threads of rayon's pool; 1 stays on the caller's thread.
    pub parallelism: usize,
    /// Stops the writer.
    pub cancel: CancelToken,
}

impl Default for WriteOptions {
    /// Segments of 64 MiB, one key group at a time.
    fn default() -> Self {
        Self {
            segment: SegmentOptions::default(),
            segment_bytes_max: 64 << 20,
            parallelism: 1,
            cancel: CancelToken::default(),
        }
    }
}

/// Takes finished segments, in order.
pub type SegmentSink<'a> =
    dyn FnMut(FinishedSegment) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

/// What writing a snapshot came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Segments handed to the sink.
    pub segments: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Puts written, rewritten ones among them.
    pub puts: u64,
    /// Tombstones written.
    pub tombstones: u64,
    /// Clears written.
    pub clears: u64,
    /// Encoded bytes of all records, before compression.
    pub record_bytes: u64,
    /// Entries written again although they did not change.
    pub rewritten: u64,
    /// Encoded bytes of those.
    pub rewritten_bytes: u64,
    /// Whether the policy had everything written again: it costs little more than what is written in any case.
    pub full: bool,
}

/// A segment that a snapshot wrote.
#[derive(Clone, Debug)]
pub struct WrittenSegment {
    /// Its number in the backend.
    pub number: SegmentNumber,
    /// What is in it.
    pub summary: SegmentSummary,
    /// Where it is.
    pub file: FileEntry,
}

/// What the backend's part of a checkpoint consists of.
#[derive(Clone, Debug)]
pub struct Acknowledgement {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The base that the delta was taken against.
    pub base: Option<CheckpointId>,
    /// The elements that restore it, oldest first, each with its live records: those of the base that still have
    /// any, and the new ones.
    pub chain: Arc<Chain>,
    /// The new segments, in the order in which they were written.
    pub segments: Vec<WrittenSegment>,
    /// The states, in the order of the segments' tables.
    pub states: Vec<StateDescriptor>,
    /// Entries as of the freeze.
    pub entries: u64,
    /// What writing came to.
    pub report: WriteReport,
    /// The bounds of the policy that do not hold, because its budget comes first.
    pub unmet: Vec<UnmetBound>,
}

/// What a snapshot is made of.
pub(crate) struct SnapshotParts {
    pub(crate) id: CheckpointId,
    pub(crate) base: Option<BaseFacts>,
    /// The interval that the freeze ended or fell in.
    pub(crate) epoch: Epoch,
    pub(crate) states: Vec<Box<dyn Frozen>>,
    pub(crate) layout: Layout,
    /// Where it leaves what a later checkpoint needs; `None` for a savepoint.
    pub(crate) slot: Option<WrittenSlot>,
    pub(crate) epochs: EpochsInUse,
    pub(crate) segments: Arc<AtomicU32>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) policy: Option<Arc<dyn RewritePolicy>>,
    pub(crate) antimatter: Antimatter,
    /// Where it leaves what it wrote again; `None` if nothing may be.
    pub(crate) rewrite: Option<OutcomeSlot>,
    pub(crate) completed: Arc<Vec<CheckpointId>>,
    pub(crate) places: Places,
}

/// What has been written so far.
struct Output {
    facts: Vec<SegmentFacts>,
    /// The key groups of each segment, from the first with a record to the last; `None` if it reaches all of them.
    reach: Vec<Option<KeyGroupRange>>,
    summaries: Vec<SegmentSummary>,
    delta: Option<Home>,
    /// What was written again.
    again: Option<Outcome>,
    /// What rewriting left of the budget, in encoded bytes.
    budget_left: u64,
    unmet: Vec<UnmetBound>,
    report: WriteReport,
}

/// The frozen view of a backend.
///
/// Write it on any thread, then finish it with the files that its segments became. Dropping it, written or not, lets
/// go of the backend: nothing is set aside for it any more, what was is dropped at once, and no change is lost.
pub struct HeapSnapshot {
    parts: SnapshotParts,
    output: Option<Output>,
    /// Files of the base that were copied, and where they are now.
    moved: Vec<(FileId, SegmentFile)>,
}

impl std::fmt::Debug for HeapSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapSnapshot").field("id", &self.parts.id).finish_non_exhaustive()
    }
}

impl Drop for HeapSnapshot {
    fn drop(&mut self) {
        self.parts.states.iter().for_each(|state| state.close());
        self.parts.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HeapSnapshot {
    pub(crate) fn new(parts: SnapshotParts) -> Self {
        parts.open.fetch_add(1, Ordering::AcqRel);
        Self { parts, output: None, moved: Vec::new() }
    }

    /// The checkpoint.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.parts.id
    }

    /// The base that the delta is taken against.
    #[must_use]
    pub fn base(&self) -> Option<CheckpointId> {
        self.parts.base.as_ref().map(|base| base.id)
    }

    /// Entries as of the freeze.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.parts.states.iter().map(|state| state.entries() as u64).sum()
    }

    /// Writes the delta, or everything, and hands each segment to `sink` as soon as it is complete. A snapshot
    /// without a record writes no segment. Blocking, for a thread of its own; holds a piece of the map for at most
    /// 64 records at a time.
    ///
    /// Cost: O(changed entries + removals since the base), or O(entries) without a base.
    ///
    /// # Errors
    ///
    /// [`HeapError::Cancelled`], [`HeapError::Sink`], [`HeapError::Record`] if a part of an entry cannot be encoded,
    /// [`HeapError::WrongStep`] if it was written before. The snapshot is of no use after an error: drop it.
    pub fn write(
        &mut self,
        options: &WriteOptions,
        sink: &mut SegmentSink<'_>,
    ) -> Result<WriteReport, HeapError> {
        if self.output.is_some() {
            return Err(HeapError::WrongStep { id: self.parts.id, done: "already written" });
        }
        let mut output = self.write_delta(options, sink)?;
        // Nothing more is wanted of the map: while the segments travel, the owner is free again.
        self.parts.states.iter().for_each(|state| state.close());
        output.report.segments = output.summaries.len();
        let report = output.report;
        self.output = Some(output);
        Ok(report)
    }

    fn write_delta(&self, options: &WriteOptions, sink: &mut SegmentSink<'_>) -> Result<Output, HeapError> {
        let parts = &self.parts;
        let resolver = Resolver { id: parts.id, epoch: parts.epoch, epochs: parts.epochs.epochs().clone() };
        let base = parts.base.as_ref();
        let Decision { work: plan, budget_bytes, full, unmet } = RewriteWork::plan(parts)?;
        if plan.is_none() {
            parts.states.iter().for_each(|state| state.rewritten_below(usize::MAX));
        }
        let mut series = SegmentSeries::new(parts, options, sink);
        let covers = base.filter(|base| !base.written.chain.is_empty());
        let tombstones = match (base, parts.antimatter) {
            (Some(_), Antimatter::Always) => Tombstones::All,
            _ => covers.map_or(Tombstones::None, |base| Tombstones::BornThrough(base.id)),
        };
        if let Some(base) = covers {
            series.write_clears(base.epoch)?;
        }
        series.write_shards(&resolver, tombstones, plan.as_ref())?;
        let mut output = series.finish()?;
        output.budget_left = budget_bytes.saturating_sub(output.report.rewritten_bytes);
        output.report.full = full;
        output.unmet = unmet;
        Ok(output)
    }

    /// What the subtask acknowledges. `files` are the segments' files, in the order in which they were written. From
    /// now on the checkpoint can be a base.
    ///
    /// # Errors
    ///
    /// [`HeapError::FilesMismatch`], [`HeapError::WrongStep`] if it was not written.
    ///
    /// # Panics
    ///
    /// If the counts of live entries and of records disagree (C2): such a manifest would lose data.
    pub fn finish(mut self, files: Vec<FileEntry>) -> Result<Acknowledgement, HeapError> {
        let parts = &self.parts;
        let Some(output) = self.output.take() else {
            return Err(HeapError::WrongStep { id: parts.id, done: "finished before it was written" });
        };
        let mut chain = chain_of(parts, &output, &files)?;
        chain.relocate(&self.moved);
        let chain = Arc::new(chain);
        let entries = self.entries();
        chain.check_invariants(Some(entries));
        let Output { facts, summaries, delta, again, report, unmet, .. } = output;
        let numbers: Vec<SegmentNumber> = facts.iter().map(|facts| facts.number).collect();
        let homes = match &parts.base {
            Some(base) => base.written.homes.extended(parts.epoch, delta, &chain),
            None => Homes::full(parts.epoch, delta),
        };
        if let (Some(slot), Some(again)) = (&parts.rewrite, again) {
            *slot.lock() = Some(Arc::new(again));
        }
        if let Some(slot) = &parts.slot {
            *slot.lock() = Some(Written { chain: Arc::clone(&chain), homes: Arc::new(homes) });
        }
        let segments = numbers.into_iter().zip(summaries).zip(files);
        Ok(Acknowledgement {
            id: parts.id,
            base: self.base(),
            chain,
            segments: segments
                .map(|((number, summary), file)| WrittenSegment { number, summary, file })
                .collect(),
            states: parts.states.iter().map(|state| (**state.descriptor()).clone()).collect(),
            entries,
            report,
            unmet,
        })
    }
}

/// The elements of the base that still have a live record, and the new ones, whose files are these.
fn chain_of(parts: &SnapshotParts, output: &Output, files: &[FileEntry]) -> Result<Chain, HeapError> {
    if files.len() != output.facts.len() {
        return Err(HeapError::FilesMismatch { files: files.len(), segments: output.facts.len() });
    }
    let end = |file: &FileEntry| file.offset.saturating_add(file.length);
    let bytes_of = |file: &FileEntry| {
        let same = files.iter().filter(|other| other.object == file.object);
        same.map(end).max().unwrap_or_default()
    };
    let new = output.facts.iter().zip(&output.summaries).zip(files).map(|((facts, summary), file)| {
        let (entry, summary, object_bytes) = (file.clone(), Some(*summary), bytes_of(file));
        Arc::new(SegmentFacts { file: Some(SegmentFile { entry, summary, object_bytes }), ..facts.clone() })
    });
    let moves = Moves::of(parts);
    let rewritten = output.again.as_ref().map(|again| moves.sources_of(again)).unwrap_or_default();
    let mut chain = Chain::next(&NextChain {
        id: parts.id,
        base: parts.base.as_ref().map(|base| &*base.written.chain),
        live: &moves.live_puts(),
        rewritten: &rewritten,
        new: &new.collect::<Vec<_>>(),
        key_groups: &KeyGroupSet::from(parts.layout.range),
    });
    for (facts, reach) in output.facts.iter().zip(&output.reach) {
        reach.iter().for_each(|reach| chain.narrow(facts.number, *reach));
    }
    Ok(chain)
}
