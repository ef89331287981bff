//! The segments of one snapshot: those of its delta one after the other, and beside them one of survivors.
//!
//! Owns: in which order shards are encoded and where a segment is cut. Does not own: which records a shard owes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lowtide_format::{
    CheckpointId, KeyGroup, KeyGroupRange, RecordRun, RecordTotals, SegmentBuffers, SegmentWriter,
    StateDescriptor,
};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::work::RewriteWork;
use super::{Output, SegmentSink, SnapshotParts, WriteOptions, WriteReport};
use crate::chain::{ClearFact, SegmentFacts, SegmentNumber, StateIndex, TombstoneTally};
use crate::encode::{Resolver, Tombstones};
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::lineage::Home;
use crate::map::{SettleRun, ShardOutput, ShardRewrite, WriteContext};
use crate::overlay::{Outcome, SourceCounts};
use crate::places::SegmentPlaces;
use crate::rewrite::Survivors;

/// A segment that is being written.
struct OpenSegment {
    number: SegmentNumber,
    writer: SegmentWriter,
    tally: TombstoneTally,
    clears: Vec<ClearFact>,
    states: Vec<StateIndex>,
    /// The first and the last key group with a record.
    reach: Option<(KeyGroup, KeyGroup)>,
    /// Encoded bytes of its clears.
    clear_bytes: u64,
    /// Encoded bytes of its other records, before compression.
    record_bytes: u64,
}

/// The records of one key group and state.
struct EncodedRun {
    delta: RecordRun,
    /// Records of the delta that are in the segment already, counted.
    settled: RecordTotals,
    tally: TombstoneTally,
    /// Survivors, if they go to a segment of their own.
    cold: RecordRun,
    again: ShardRewrite,
    again_bytes: u64,
}

/// The records of one key group, by state.
type EncodedShard = Vec<EncodedRun>;

/// Writes the segments of a snapshot.
pub(super) struct SegmentSeries<'a, 's> {
    parts: &'a SnapshotParts,
    options: &'a WriteOptions,
    sink: &'a mut SegmentSink<'s>,
    open: Option<OpenSegment>,
    cold: Option<OpenSegment>,
    buffers: SegmentBuffers,
    output: Output,
    /// The segment of each part of the key groups so far.
    of_parts: Vec<SegmentNumber>,
    /// A segment is also closed once it has so many bytes before compression.
    part_bytes: Option<u64>,
    again: Vec<SourceCounts>,
    /// The places of entries, by segment, as `wanted` names them.
    noted: Vec<SegmentPlaces>,
    survivors: Survivors,
}

impl<'a, 's> SegmentSeries<'a, 's> {
    pub(super) fn new(
        parts: &'a SnapshotParts,
        options: &'a WriteOptions,
        sink: &'a mut SegmentSink<'s>,
    ) -> Self {
        let (facts, reach, summaries) = (Vec::new(), Vec::new(), Vec::new());
        let (budget_left, unmet, report) = (0, Vec::new(), WriteReport::default());
        let output = Output { facts, reach, summaries, delta: None, again: None, budget_left, unmet, report };
        let again = vec![SourceCounts::new(); parts.states.len()];
        let (of_parts, survivors) = (Vec::new(), Survivors::default());
        Self {
            parts,
            options,
            sink,
            open: None,
            cold: None,
            buffers: SegmentBuffers::default(),
            output,
            of_parts,
            part_bytes: None,
            again,
            noted: Vec::new(),
            survivors,
        }
    }

    fn id(&self) -> CheckpointId {
        self.parts.id
    }

    /// Writes the clears after `base`, one record per scope.
    pub(super) fn write_clears(&mut self, base: Epoch) -> Result<(), HeapError> {
        let parts = self.parts;
        for (index, state) in parts.states.iter().enumerate() {
            for (record, fact) in state.clears(base, StateIndex(index as u16))? {
                let open = opened(&mut self.open, (parts, self.options), &self.buffers)?;
                open.clear_bytes += record.encoded_bytes();
                open.writer.clear(record)?;
                open.clears.push(fact);
            }
        }
        Ok(())
    }

    /// Writes what all shards owe, in the order of key groups, and what `work` says is to be written again.
    pub(super) fn write_shards(
        &mut self,
        resolver: &Resolver,
        tombstones: Tombstones,
        work: Option<&RewriteWork<'_>>,
    ) -> Result<(), HeapError> {
        let cancel = self.options.cancel.clone();
        let cancelled = move || cancel.is_cancelled();
        let parts = self.parts;
        let context = WriteContext { resolver, tombstones, counters: &parts.counters, cancelled: &cancelled };
        let shards = parts.layout.range.len() as usize;
        let at_a_time = self.options.parallelism.max(1);
        let block_bytes = self.options.segment.block_bytes;
        self.survivors = work.map_or(Survivors::Apart, |work| work.survivors);
        let encode = |(shard, mut records): (usize, EncodedShard)| {
            let encoded = encode_shard((parts, shard), (&context, block_bytes), work, (&mut records, None));
            encoded.map(|()| records)
        };
        let mut next = 0;
        // Used again for the next key groups: fresh memory costs as much as filling it.
        let mut spare: Vec<EncodedShard> = Vec::new();
        while next < shards {
            let batch = next..(next + at_a_time).min(shards);
            next = batch.end;
            let blank = batch.clone().map(|shard| (shard, spare.pop().unwrap_or_default()));
            let encoded: Result<Vec<EncodedShard>, HeapError> = if at_a_time == 1 {
                let in_pieces = |(shard, mut records): (usize, EncodedShard)| {
                    let (open, options, buffers) = (&mut self.open, self.options, &self.buffers);
                    let mut settle = |place: (KeyGroup, StateIndex), run: &mut RecordRun, what: Settle| {
                        if run.is_empty() {
                            return Ok(RecordTotals::default());
                        }
                        let open = opened(open, (parts, options), buffers)?;
                        match what {
                            Settle::Parts => open.append_settled(place, run),
                            Settle::All => open.append_all(place, run),
                        }
                    };
                    let output = (&mut records, Some::<&mut SettleShard<'_>>(&mut settle));
                    encode_shard((parts, shard), (&context, block_bytes), work, output)?;
                    Ok(records)
                };
                blank.map(in_pieces).collect()
            } else {
                blank.collect::<Vec<_>>().into_par_iter().map(encode).collect()
            };
            if work.is_some() {
                parts.states.iter().for_each(|state| state.rewritten_below(next));
            }
            for (shard, mut records) in batch.zip(encoded?) {
                self.append(shard, &records)?;
                self.note(shard, &mut records);
                self.end_shard(shard)?;
                spare.push(records);
            }
            if cancelled() {
                return Err(HeapError::Cancelled);
            }
        }
        if let Some(work) = work {
            let noted = work.wanted.iter().copied().zip(std::mem::take(&mut self.noted));
            parts.places.replace(noted);
        }
        Ok(())
    }

    fn append(&mut self, shard: usize, records: &EncodedShard) -> Result<(), HeapError> {
        self.estimate_parts(records);
        for (index, run) in records.iter().enumerate() {
            let place = (key_group_of(self.parts, shard), StateIndex(index as u16));
            if !run.delta.is_empty() || run.settled != RecordTotals::default() {
                let open = opened(&mut self.open, (self.parts, self.options), &self.buffers)?;
                open.append(place, &run.delta)?;
                open.tally.merge(&run.tally);
            }
            if !run.cold.is_empty() {
                opened(&mut self.cold, (self.parts, self.options), &self.buffers)?
                    .append(place, &run.cold)?;
            }
            let report = &mut self.output.report;
            report.rewritten_bytes += run.again_bytes;
            for (source, count) in &run.again.again {
                report.rewritten += u64::from(*count);
                if let Some(again) = self.again.get_mut(index) {
                    *again.entry(source.clone()).or_default() += count;
                }
            }
        }
        Ok(())
    }

    /// Takes the places of entries over that were noted on the way.
    fn note(&mut self, shard: usize, records: &mut EncodedShard) {
        for (index, run) in records.iter_mut().enumerate() {
            let noted = std::mem::take(&mut run.again.noted);
            if self.noted.len() < noted.len() {
                self.noted.resize_with(noted.len(), SegmentPlaces::default);
            }
            for (segment, places) in self.noted.iter_mut().zip(noted) {
                segment.insert((StateIndex(index as u16), shard), places);
            }
        }
    }

    /// A checkpoint without a base is cut so that its segments can die one by one: by what the first records weigh.
    fn estimate_parts(&mut self, records: &EncodedShard) {
        let Some(policy) = &self.parts.policy else { return };
        if self.part_bytes.is_some() || self.parts.base.is_some() {
            return;
        }
        let (mut puts, mut bytes) = (0, 0);
        for run in records {
            let mut totals = run.delta.totals();
            totals.add(run.settled);
            puts += totals.puts;
            bytes += totals.put_bytes;
        }
        if puts > 0 {
            let entries: u64 = self.parts.states.iter().map(|state| state.entries() as u64).sum();
            let all = u128::from(bytes) * u128::from(entries) / u128::from(puts);
            self.part_bytes = policy.part_bytes(u64::try_from(all).unwrap_or(u64::MAX));
        }
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
        let (bytes_max, part_bytes) = (self.options.segment_bytes_max, self.part_bytes.unwrap_or(u64::MAX));
        let large =
            |open: &OpenSegment| open.writer.bytes_written() >= bytes_max || open.record_bytes >= part_bytes;
        if self.open.as_ref().is_some_and(large) {
            let open = self.open.take();
            self.close(open, false)?;
        }
        Ok(())
    }

    fn close(&mut self, open: Option<OpenSegment>, cold: bool) -> Result<(), HeapError> {
        let Some(OpenSegment { number, writer, tally, clears, states, reach, clear_bytes, .. }) = open else {
            return Ok(());
        };
        let finished = writer.finish()?;
        let summary = finished.summary;
        let totals = summary.totals;
        // A clear reaches all key groups.
        let reach = reach.filter(|_| clears.is_empty());
        self.output.reach.push(reach.and_then(|(first, last)| KeyGroupRange::new(first, last)));
        self.output.facts.push(SegmentFacts {
            number,
            checkpoint: self.id(),
            file: None,
            cold,
            puts: totals.puts,
            put_bytes: totals.put_bytes,
            tombstone_bytes: totals.tombstone_bytes + clear_bytes,
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
        report.record_bytes += totals.put_bytes + totals.tombstone_bytes + clear_bytes;
        (self.sink)(finished).map_err(|source| HeapError::Sink { source: Arc::from(source) })
    }

    /// Completes the last segments.
    pub(super) fn finish(mut self) -> Result<Output, HeapError> {
        let open = self.open.take();
        self.close(open, false)?;
        self.output.delta = match self.output.facts.as_slice() {
            [] => None,
            [one] => Some(Home::Whole(one.number)),
            _ => Some(Home::Parts(self.of_parts.as_slice().into())),
        };
        let cold = self.cold.take();
        let apart = cold.as_ref().map(|cold| Home::Whole(cold.number));
        self.close(cold, true)?;
        let target = match self.survivors {
            Survivors::Apart => apart,
            Survivors::WithDelta => self.output.delta.clone(),
        };
        if self.output.report.rewritten > 0 {
            self.output.again = target.map(|target| Outcome { target, of_states: self.again });
        }
        Ok(self.output)
    }
}

/// The segment that is open, begun if need be.
fn opened<'o>(
    slot: &'o mut Option<OpenSegment>,
    (parts, options): (&SnapshotParts, &WriteOptions),
    buffers: &SegmentBuffers,
) -> Result<&'o mut OpenSegment, HeapError> {
    let open = match slot.take() {
        Some(open) => open,
        None => {
            let states: Vec<StateDescriptor> =
                parts.states.iter().map(|state| (**state.descriptor()).clone()).collect();
            let number = SegmentNumber(parts.segments.fetch_add(1, Ordering::Relaxed));
            let writer = SegmentWriter::with_buffers(parts.id, states, options.segment, buffers)?;
            let (tally, clears, states) = (TombstoneTally::new(), Vec::new(), Vec::new());
            OpenSegment {
                number,
                writer,
                tally,
                clears,
                states,
                reach: None,
                clear_bytes: 0,
                record_bytes: 0,
            }
        }
    };
    Ok(slot.insert(open))
}

impl OpenSegment {
    fn append(
        &mut self,
        (key_group, state): (KeyGroup, StateIndex),
        run: &RecordRun,
    ) -> Result<(), HeapError> {
        self.writer.append(key_group, state.0, run)?;
        self.count((key_group, state), run.len());
        Ok(())
    }

    /// Appends what is settled of a run, which keeps the rest.
    fn append_settled(
        &mut self,
        (key_group, state): (KeyGroup, StateIndex),
        run: &mut RecordRun,
    ) -> Result<RecordTotals, HeapError> {
        let before = run.len();
        let settled = self.writer.append_settled(key_group, state.0, run)?;
        self.count((key_group, state), before - run.len());
        Ok(settled)
    }

    /// Appends a run and empties it.
    fn append_all(
        &mut self,
        place: (KeyGroup, StateIndex),
        run: &mut RecordRun,
    ) -> Result<RecordTotals, HeapError> {
        let totals = run.totals();
        self.append(place, run)?;
        run.clear();
        Ok(totals)
    }

    fn count(&mut self, (key_group, state): (KeyGroup, StateIndex), bytes: usize) {
        self.record_bytes += bytes as u64;
        let first = self.reach.map_or(key_group, |(first, _)| first);
        self.reach = Some((first, key_group));
        if let Err(at) = self.states.binary_search(&state) {
            self.states.insert(at, state);
        }
    }
}

impl EncodedRun {
    fn new(checkpoint: CheckpointId, block_bytes: usize) -> Self {
        let run = || RecordRun::new(checkpoint, block_bytes);
        let (tally, again) = (TombstoneTally::new(), ShardRewrite::default());
        let settled = RecordTotals::default();
        Self { delta: run(), settled, tally, cold: run(), again, again_bytes: 0 }
    }

    /// Empties it for another key group; keeps its memory.
    fn clear(&mut self) {
        let Self { delta, settled, tally, cold, again, again_bytes } = self;
        delta.clear();
        cold.clear();
        *settled = RecordTotals::default();
        (*tally, *again, *again_bytes) = (TombstoneTally::new(), ShardRewrite::default(), 0);
    }
}

fn key_group_of(parts: &SnapshotParts, shard: usize) -> KeyGroup {
    KeyGroup(parts.layout.range.start().0 + shard as u16)
}

/// What is taken over of a run.
#[derive(Clone, Copy, Debug)]
enum Settle {
    /// What no record is added to any more.
    Parts,
    /// Everything: the run is complete.
    All,
}

/// Takes something of the run of a key group and state over, and counts it.
type SettleShard<'s> =
    dyn FnMut((KeyGroup, StateIndex), &mut RecordRun, Settle) -> Result<RecordTotals, HeapError> + 's;

/// Encodes one shard into what was used for another before, or into an empty one; its delta goes to `settle` on the way, if
/// there is one: a state's as a whole before that of the next, which comes after it in the segment.
fn encode_shard(
    (parts, shard): (&SnapshotParts, usize),
    (context, block_bytes): (&WriteContext<'_>, usize),
    work: Option<&RewriteWork<'_>>,
    (records, mut settle): (&mut EncodedShard, Option<&mut SettleShard<'_>>),
) -> Result<(), HeapError> {
    records.iter_mut().for_each(EncodedRun::clear);
    records.resize_with(parts.states.len(), || EncodedRun::new(parts.id, block_bytes));
    for ((index, state), run) in parts.states.iter().enumerate().zip(records) {
        let number = StateIndex(index as u16);
        let place = (key_group_of(parts, shard), number);
        let settled = &mut run.settled;
        let mut take = settle.as_mut().map(|settle| {
            |delta: &mut RecordRun| {
                settled.add(settle(place, delta, Settle::Parts)?);
                Ok(())
            }
        });
        let take = take.as_mut().map(|take| take as &mut SettleRun<'_>);
        let output = ShardOutput { run: &mut run.delta, tally: &mut run.tally, settle: take };
        state.write_shard(shard, number, context, output)?;
        if let Some(work) = work {
            let target = match work.survivors {
                Survivors::Apart => &mut run.cold,
                Survivors::WithDelta => &mut run.delta,
            };
            let before = target.len();
            run.again = state.rewrite_shard(shard, number, context, &work.pass(), target)?;
            run.again_bytes = (target.len() - before) as u64;
        }
        if let Some(settle) = &mut settle {
            run.settled.add(settle(place, &mut run.delta, Settle::All)?);
        }
    }
    Ok(())
}
