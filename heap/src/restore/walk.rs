//! Takes the blocks of some elements into the key groups that they belong to, several key groups at a time.
//!
//! Owns: which thread reads which blocks in which order. Does not own: what becomes of a record (`filling`).
//!
//! A thread takes some key groups that follow each other, and of each all elements from the newest to the oldest, so
//! that the tables of a key group stay in the processor's caches while its records come. Runs ascend by key group in
//! every element, so a thread goes through the blocks of each element once, with one of them unpacked at a time; a block
//! that two threads need is unpacked by both.

use std::ops::Range;

use lowtide_format::{Block, BlockDecoder, BlockEntry, DecodeLimits, FormatError, KeyGroup, Run};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::element::{ElementBlocks, Opened, RunTally};
use super::ids::{Numbering, RunHome, RunIds};
use super::scope::ClearIndex;
use super::served::Served;
use crate::chain::StateIndex;
use crate::error::HeapError;
use crate::filling::{AnyFilling, FillRun};

/// Fewer stored bytes than these are taken by the thread that brings them. Miri refuses what rayon's queues do with
/// pointers, so that it does not get to see them.
const PARALLEL_BYTES_MIN: usize = if cfg!(all(test, not(miri))) { 512 } else { 256 << 10 };
/// Shares of key groups for each thread: threads that end early take over from others.
const SHARES_PER_THREAD: usize = 8;
/// A put takes so many bytes at least.
const PUT_BYTES_MIN: u64 = 6;

/// How many entries there will be, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) entries: u64,
    /// Whether they are all of one state.
    pub(super) alone: bool,
}

impl Expected {
    /// How many entries to make room for in a state of which so many puts are on their way. They may be of few keys, and
    /// the others of other states; and all of it is as yet a claim.
    fn room_for(self, announced: u64) -> u64 {
        let factor = if self.alone { 16 } else { 2 };
        self.entries.min(announced.saturating_mul(factor))
    }
}

/// The entries of one state in one key group, and how many puts are on their way there.
struct StateFilling {
    filling: Box<dyn AnyFilling>,
    announced: u64,
}

/// The states of one key group.
#[derive(Default)]
pub(super) struct ShardFilling {
    of_states: Vec<Option<StateFilling>>,
}

impl std::fmt::Debug for ShardFilling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardFilling").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl ShardFilling {
    pub(super) fn entries(&self) -> usize {
        self.of_states.iter().flatten().map(|of_state| of_state.filling.len()).sum()
    }

    pub(super) fn has(&self, state: StateIndex) -> bool {
        self.of_states.get(usize::from(state.0)).is_some_and(Option::is_some)
    }

    /// Says that a run of a state will come; `new` makes what its entries are collected in.
    pub(super) fn announce(
        &mut self,
        state: StateIndex,
        run: &Run,
        new: impl FnOnce() -> Option<Box<dyn AnyFilling>>,
    ) {
        let at = usize::from(state.0);
        if self.of_states.len() <= at {
            self.of_states.resize_with(at + 1, || None);
        }
        let Some(slot) = self.of_states.get_mut(at) else { return };
        if slot.is_none() {
            *slot = new().map(|filling| StateFilling { filling, announced: 0 });
        }
        if let Some(of_state) = slot {
            let puts = run.totals.puts.min(run.totals.put_bytes / PUT_BYTES_MIN);
            of_state.announced = of_state.announced.saturating_add(puts);
        }
    }

    /// Makes room for what was announced, and for what is expected after it.
    fn reserve(&mut self, expected: Option<Expected>, limits: DecodeLimits) {
        for StateFilling { filling, announced } in self.of_states.iter_mut().flatten() {
            let announced = std::mem::take(announced);
            let entries = expected.map_or(announced, |expected| expected.room_for(announced));
            filling.reserve(usize::try_from(entries).unwrap_or(usize::MAX), limits);
        }
    }

    fn filling(&mut self, state: StateIndex) -> Option<&mut dyn AnyFilling> {
        let of_state = self.of_states.get_mut(usize::from(state.0))?.as_mut()?;
        Some(&mut *of_state.filling)
    }

    /// The entries of the state of that name, if a run of it was announced.
    pub(super) fn named(&self, name: &str) -> Option<&dyn AnyFilling> {
        let fillings = self.of_states.iter().flatten().map(|of_state| &*of_state.filling);
        fillings.into_iter().find(|filling| filling.descriptor().name == name)
    }

    pub(super) fn into_states(self) -> impl Iterator<Item = (StateIndex, Box<dyn AnyFilling>)> {
        let states = self.of_states.into_iter().enumerate();
        states.filter_map(|(index, of_state)| Some((StateIndex(index as u16), of_state?.filling)))
    }
}

/// What the threads share.
pub(super) struct Walk<'a> {
    pub(super) elements: &'a [ElementBlocks<'a>],
    /// The same elements.
    pub(super) opened: &'a [Opened],
    pub(super) clears: &'a ClearIndex,
    pub(super) numbering: &'a Numbering,
    pub(super) limits: DecodeLimits,
    pub(super) first_group: KeyGroup,
    /// How many entries a key group will have, if that is known.
    pub(super) expected: Option<Expected>,
    pub(super) served: &'a Served,
    /// By shard, how many elements will list it after these; `None` if nobody knows.
    pub(super) to_come: Option<&'a [u32]>,
}

impl Walk<'_> {
    /// Takes all blocks; returns what was counted of each element.
    pub(super) fn run(&self) -> Result<Vec<RunTally>, HeapError> {
        let blocks = self.elements.iter().flat_map(|element| &element.blocks);
        let shards = self.served.len();
        let bytes: usize = blocks.map(|(_, stored)| stored.len()).sum();
        if bytes < PARALLEL_BYTES_MIN {
            return self.take_shards(0..shards);
        }
        let shares = shares(shards, self.busy_shards(), rayon::current_num_threads() * SHARES_PER_THREAD);
        // One by one, or rayon gives a thread four at a time, and the other waits for the last of them.
        let shares = shares.into_par_iter().with_max_len(1);
        let tallies: Vec<_> = shares.map(|share| self.take_shards(share)).collect();
        let mut sums: Vec<RunTally> = self.elements.iter().map(|_| RunTally::default()).collect();
        // Of several errors that of the first key groups, whichever thread was faster.
        for tallies in tallies {
            for (sum, tally) in sums.iter_mut().zip(tallies?) {
                sum.live_puts += tally.live_puts;
                sum.tombstones.merge(&tally.tombstones);
            }
        }
        Ok(sums)
    }

    /// From the first shard that a block of ours is about to the last.
    fn busy_shards(&self) -> Range<usize> {
        let shards = self.served.len();
        let at = |run: &Run| usize::from(run.key_group.0.saturating_sub(self.first_group.0)).min(shards);
        let ends = self.elements.iter().filter_map(|element| {
            let runs = |(entry, _): &(&BlockEntry, _)| element.reader.footer().runs(entry);
            let (first, last) = (element.blocks.first().map(runs)?, element.blocks.last().map(runs)?);
            Some((at(first.first()?), shards.min(at(last.last()?) + 1)))
        });
        let all = ends.reduce(|(start, end), (first, last)| (start.min(first), end.max(last)));
        all.map_or(0..shards, |(start, end)| start..end)
    }

    /// Takes what belongs to some shards that follow each other.
    fn take_shards(&self, shards: Range<usize>) -> Result<Vec<RunTally>, HeapError> {
        let group = |at: usize| KeyGroup(self.first_group.0.saturating_add(at as u16));
        let elements = self.elements.iter().zip(self.opened);
        let mut walks: Vec<(ElementWalk<'_>, RunTally)> = elements
            .map(|(element, opened)| {
                (ElementWalk::new(element, opened, group(shards.start)), RunTally::default())
            })
            .collect();
        for at in shards {
            if self.served.is_ready(at) {
                continue;
            }
            let Some(mut shard) = self.served.fill(at) else { continue };
            shard.reserve(self.expected, self.limits);
            for (walk, tally) in &mut walks {
                let taken = self.take_runs(group(at), walk, tally, &mut shard);
                taken.map_err(|error| error.in_object(walk.element.object()))?;
            }
            drop(shard);
            if self.to_come.is_some_and(|to_come| to_come.get(at) == Some(&0)) {
                self.served.mark_ready(at);
            }
        }
        Ok(walks.into_iter().map(|(_, tally)| tally).collect())
    }

    /// Takes the runs of one key group of one element.
    fn take_runs(
        &self,
        key_group: KeyGroup,
        walk: &mut ElementWalk<'_>,
        tally: &mut RunTally,
        shard: &mut ShardFilling,
    ) -> Result<(), HeapError> {
        let Opened { facts, key_groups, states, home, .. } = walk.opened;
        if !key_groups.contains(key_group) {
            return Ok(());
        }
        let checkpoint = facts.checkpoint;
        while let Some((block, run)) = walk.next_of(key_group)? {
            let Some(state) = states.get(usize::from(run.state)).copied() else { continue };
            let scope = self.clears.scope(state, (key_group, checkpoint));
            let Some(filling) = shard.filling(state).filter(|_| !scope.all) else { continue };
            let ids = RunIds::new(self.numbering, RunHome { state, home: *home, checkpoint });
            let (records, limits) = (block.records(run), self.limits);
            filling.fill(&mut FillRun { records, limits, scope, ids, tally: &mut *tally })?;
        }
        Ok(())
    }
}

/// All shards, in about so many shares, over which the busy ones are spread evenly: a large element comes in parts, each of
/// some key groups.
fn shares(shards: usize, busy: Range<usize>, count: usize) -> Vec<Range<usize>> {
    let share = busy.len().div_ceil(count).max(1);
    let cuts = || (busy.start + share..busy.end).step_by(share);
    [0].into_iter().chain(cuts()).zip(cuts().chain([shards])).map(|(start, end)| start..end).collect()
}

/// The blocks of one element on their way past a thread.
struct ElementWalk<'a> {
    element: &'a ElementBlocks<'a>,
    opened: &'a Opened,
    decoder: BlockDecoder<'a>,
    /// The block that is read next.
    next: usize,
    block: Option<Block<'a>>,
    /// The run of the block that is read next.
    run: usize,
}

impl<'a> ElementWalk<'a> {
    /// Begins with a key group.
    fn new(element: &'a ElementBlocks<'a>, opened: &'a Opened, from: KeyGroup) -> Self {
        let footer = element.reader.footer();
        let is_before = |entry: &BlockEntry| footer.runs(entry).last().is_none_or(|run| run.key_group < from);
        let next = element.blocks.partition_point(|(entry, _)| is_before(entry));
        Self { element, opened, decoder: element.reader.block_decoder(), next, block: None, run: 0 }
    }

    /// The next run of a key group; key groups are asked for in ascending order.
    fn next_of(&mut self, key_group: KeyGroup) -> Result<Option<(&Block<'a>, &'a Run)>, FormatError> {
        loop {
            let runs = self.block.as_ref().map_or(&[][..], Block::runs);
            match runs.get(self.run) {
                Some(run) if run.key_group > key_group => return Ok(None),
                Some(run) => {
                    self.run += 1;
                    if run.key_group == key_group {
                        return Ok(self.block.as_ref().map(|block| (block, run)));
                    }
                }
                None if self.open_block(key_group)? => {}
                None => return Ok(None),
            }
        }
    }

    /// Unpacks the next block if it holds something of a key group.
    fn open_block(&mut self, key_group: KeyGroup) -> Result<bool, FormatError> {
        let Some((entry, stored)) = self.element.blocks.get(self.next) else { return Ok(false) };
        let runs = self.element.reader.footer().runs(entry);
        if runs.first().is_some_and(|run| run.key_group > key_group) {
            return Ok(false);
        }
        self.block = Some(self.decoder.decode(entry, stored)?);
        (self.next, self.run) = (self.next + 1, 0);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_shards_and_spread_the_busy_ones() {
        for (shards, start, end, count) in (0..12).flat_map(|shards| {
            let of_start = move |start| (start..=shards).map(move |end| (shards, start, end));
            (0..=shards).flat_map(of_start).flat_map(|(a, b, c)| [1, 3, 16].map(|count| (a, b, c, count)))
        }) {
            let shares = shares(shards, start..end, count);
            let all: Vec<usize> = shares.iter().cloned().flatten().collect();
            assert_eq!(all, (0..shards).collect::<Vec<_>>());
            let busy = |share: &Range<usize>| share.clone().filter(|at| (start..end).contains(at)).count();
            let most = shares.iter().map(busy).max().unwrap_or_default();
            assert_eq!(
                most,
                (end - start).div_ceil(count),
                "{shards} shards, {start}..{end} busy: {shares:?}"
            );
        }
    }
}
