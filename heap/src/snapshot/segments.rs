//! The segments of one snapshot, one after the other.
//!
//! Owns: in which order shards are encoded and where a segment is cut. Does not own: which records a shard owes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lowtide_format::{CheckpointId, KeyGroup, RecordRun, SegmentWriter, StateDescriptor};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::{Output, SegmentSink, SnapshotParts, WriteOptions, WriteReport};
use crate::chain::{ClearFact, SegmentFacts, SegmentNumber, StateIndex, TombstoneTally};
use crate::encode::{Resolver, Tombstones};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::lineage::Home;
use crate::map::{ShardOutput, WriteContext};

/// A segment that is being written.
struct OpenSegment {
    number: SegmentNumber,
    writer: SegmentWriter,
    tally: TombstoneTally,
    clears: Vec<ClearFact>,
    states: Vec<StateIndex>,
}

/// The records of one key group, by state.
type EncodedShard = Vec<(RecordRun, TombstoneTally)>;

/// Writes the segments of a snapshot's delta.
pub(super) struct SegmentSeries<'a, 's> {
    parts: &'a SnapshotParts,
    options: &'a WriteOptions,
    sink: &'a mut SegmentSink<'s>,
    open: Option<OpenSegment>,
    output: Output,
    /// The segment of each part of the key groups so far.
    of_parts: Vec<SegmentNumber>,
}

impl<'a, 's> SegmentSeries<'a, 's> {
    pub(super) fn new(
        parts: &'a SnapshotParts,
        options: &'a WriteOptions,
        sink: &'a mut SegmentSink<'s>,
    ) -> Self {
        let (facts, summaries, report) = (Vec::new(), Vec::new(), WriteReport::default());
        let output = Output { facts, summaries, delta: None, report };
        Self { parts, options, sink, open: None, output, of_parts: Vec::new() }
    }

    fn id(&self) -> CheckpointId {
        self.parts.id
    }

    fn open(&mut self) -> Result<&mut OpenSegment, HeapError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let states: Vec<StateDescriptor> =
                    self.parts.states.iter().map(|state| (**state.descriptor()).clone()).collect();
                let number = SegmentNumber(self.parts.segments.fetch_add(1, Ordering::Relaxed));
                let writer = SegmentWriter::new(self.id(), states, self.options.segment)?;
                let (tally, clears, states) = (TombstoneTally::new(), Vec::new(), Vec::new());
                OpenSegment { number, writer, tally, clears, states }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Writes the clears after `base`, one record per scope.
    pub(super) fn write_clears(&mut self, base: Epoch) -> Result<(), HeapError> {
        let parts = self.parts;
        for (index, state) in parts.states.iter().enumerate() {
            for (record, fact) in state.clears(base, StateIndex(index as u16))? {
                let open = self.open()?;
                open.writer.clear(record)?;
                open.clears.push(fact);
            }
        }
        Ok(())
    }

    /// Writes what all shards owe, in the order of key groups.
    pub(super) fn write_shards(
        &mut self,
        resolver: &Resolver,
        tombstones: Tombstones,
    ) -> Result<(), HeapError> {
        let cancel = self.options.cancel.clone();
        let cancelled = move || cancel.is_cancelled();
        let parts = self.parts;
        let context = WriteContext { resolver, tombstones, counters: &parts.counters, cancelled: &cancelled };
        let shards = parts.layout.range.len() as usize;
        let at_a_time = self.options.parallelism.max(1);
        let block_bytes = self.options.segment.block_bytes;
        let encode = |shard: usize| encode_shard(parts, shard, &context, block_bytes);
        let mut next = 0;
        while next < shards {
            let batch = next..(next + at_a_time).min(shards);
            next = batch.end;
            let encoded: Result<Vec<EncodedShard>, HeapError> = if at_a_time == 1 {
                batch.clone().map(encode).collect()
            } else {
                batch.clone().into_par_iter().map(encode).collect()
            };
            for (shard, records) in batch.zip(encoded?) {
                self.append(shard, &records)?;
                self.end_shard(shard)?;
            }
            if cancelled() {
                return Err(HeapError::Cancelled);
            }
        }
        Ok(())
    }

    fn append(&mut self, shard: usize, records: &EncodedShard) -> Result<(), HeapError> {
        let key_group = KeyGroup(self.parts.layout.range.start().0 + shard as u16);
        for (index, (run, tally)) in records.iter().enumerate().filter(|(_, (run, _))| !run.is_empty()) {
            let state = StateIndex(index as u16);
            let open = self.open()?;
            open.writer.append(key_group, state.0, run)?;
            open.tally.merge(tally);
            if let Err(at) = open.states.binary_search(&state) {
                open.states.insert(at, state);
            }
        }
        Ok(())
    }

    /// After the last shard of a part the segment may be cut.
    fn end_shard(&mut self, shard: usize) -> Result<(), HeapError> {
        let layout = self.parts.layout;
        let part = layout.part_of(shard);
        let last = shard + 1 == layout.range.len() as usize || layout.part_of(shard + 1) != part;
        if !last {
            return Ok(());
        }
        let newest = self.output.facts.last().map(|facts| facts.number);
        // A part without records has no entry whose home would be asked for.
        let number = self.open.as_ref().map(|open| open.number).or(newest);
        self.of_parts.push(number.unwrap_or_default());
        let large = |open: &OpenSegment| open.writer.bytes_written() >= self.options.segment_bytes_max;
        if self.open.as_ref().is_some_and(large) {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), HeapError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let OpenSegment { number, writer, tally, clears, states } = open;
        let finished = writer.finish()?;
        let summary = finished.summary;
        let totals = summary.totals;
        self.output.facts.push(SegmentFacts {
            number,
            checkpoint: self.id(),
            file: None,
            cold: false,
            puts: totals.puts,
            put_bytes: totals.put_bytes,
            tombstone_bytes: totals.tombstone_bytes,
            tombstones: tally,
            clears,
            states,
        });
        self.output.summaries.push(summary);
        let report = &mut self.output.report;
        report.bytes += summary.length;
        report.puts += totals.puts;
        report.tombstones += totals.tombstones;
        report.clears += summary.clears;
        report.record_bytes += totals.put_bytes + totals.tombstone_bytes;
        (self.sink)(finished).map_err(|source| HeapError::Sink { source: Arc::from(source) })
    }

    /// Completes the last segment.
    pub(super) fn finish(mut self) -> Result<Output, HeapError> {
        self.close()?;
        self.output.delta = match self.output.facts.as_slice() {
            [] => None,
            [one] => Some(Home::Whole(one.number)),
            _ => Some(Home::Parts(self.of_parts.into())),
        };
        Ok(self.output)
    }
}

fn encode_shard(
    parts: &SnapshotParts,
    shard: usize,
    context: &WriteContext<'_>,
    block_bytes: usize,
) -> Result<EncodedShard, HeapError> {
    let mut records = Vec::with_capacity(parts.states.len());
    for (index, state) in parts.states.iter().enumerate() {
        let mut run = RecordRun::new(parts.id, block_bytes);
        let mut tally = TombstoneTally::new();
        let output = ShardOutput { run: &mut run, tally: &mut tally };
        state.write_shard(shard, StateIndex(index as u16), context, output)?;
        records.push((run, tally));
    }
    Ok(records)
}
