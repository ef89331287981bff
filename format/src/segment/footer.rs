//! The footer of a segment: states, clears, index and totals.

use super::index::{BlockEntry, Index, Run};
use super::totals::RecordTotals;
use super::trailer::SegmentTrailer;
use crate::codec::DecodeLimits;
use crate::compression::{Decompressor, Packed};
use crate::cursor::{Cursor, put_bytes, put_varint};
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::key_group::{KeyGroup, KeyGroupRange, KeyGroupSet};
use crate::record::Clear;
use crate::section::{REQUIRED, Sections, put_section};
use crate::state::{StateDescriptor, put_states, take_states};

const PART: &str = "segment footer";
const STATES: u8 = 1 | REQUIRED;
const CLEARS: u8 = 2 | REQUIRED;
const INDEX: u8 = 3 | REQUIRED;
const TOTALS: u8 = 4 | REQUIRED;

/// Everything about a segment but its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFooter {
    checkpoint: CheckpointId,
    states: Vec<StateDescriptor>,
    clears: Vec<Clear>,
    totals: RecordTotals,
    index: Index,
}

impl SegmentFooter {
    pub(super) fn new(
        checkpoint: CheckpointId,
        states: Vec<StateDescriptor>,
        clears: Vec<Clear>,
        index: Index,
    ) -> Self {
        let totals = totals_of(&index.runs);
        Self { checkpoint, states, clears, totals, index }
    }

    /// The checkpoint that wrote the segment.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The states that its runs and clears refer to.
    #[must_use]
    pub fn states(&self) -> &[StateDescriptor] {
        &self.states
    }

    /// Its clears. They come before its puts.
    #[must_use]
    pub fn clears(&self) -> &[Clear] {
        &self.clears
    }

    /// Its puts and tombstones, counted.
    #[must_use]
    pub fn totals(&self) -> RecordTotals {
        self.totals
    }

    /// Its blocks, in the order of the file.
    #[must_use]
    pub fn blocks(&self) -> &[BlockEntry] {
        &self.index.blocks
    }

    /// The runs of one block, in the order of the block.
    #[must_use]
    pub fn runs(&self, block: &BlockEntry) -> &[Run] {
        let end = block.first_run.saturating_add(block.run_count);
        self.index.runs.get(block.first_run..end).unwrap_or_default()
    }

    /// All runs, ascending by (key group, state).
    #[must_use]
    pub fn all_runs(&self) -> &[Run] {
        &self.index.runs
    }

    /// The blocks that hold a record of one of the key groups, in the order of the file. O(runs).
    pub fn blocks_of<'a>(&'a self, key_groups: &'a KeyGroupSet) -> impl Iterator<Item = &'a BlockEntry> {
        let wanted =
            |block: &&BlockEntry| self.runs(block).iter().any(|run| key_groups.contains(run.key_group));
        self.index.blocks.iter().filter(wanted)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let Self { checkpoint, states, clears, totals, index } = self;
        let mut out = Vec::new();
        let mut body = Vec::new();
        put_states(&mut body, states)?;
        put_section(&mut out, STATES, &body);
        body.clear();
        put_varint(&mut body, clears.len() as u64);
        clears.iter().for_each(|clear| put_clear(&mut body, clear));
        put_section(&mut out, CLEARS, &body);
        body.clear();
        index.encode(*checkpoint, &mut body);
        put_section(&mut out, INDEX, &body);
        body.clear();
        // The span follows from the runs.
        let RecordTotals { puts, tombstones, put_bytes, tombstone_bytes, span: _ } = *totals;
        [puts, tombstones, put_bytes, tombstone_bytes].iter().for_each(|total| put_varint(&mut body, *total));
        put_section(&mut out, TOTALS, &body);
        Ok(out)
    }

    /// Unpacks and reads the footer whose stored bytes are `stored`.
    pub(super) fn decode(
        trailer: &SegmentTrailer,
        stored: &[u8],
        decompressor: &mut Decompressor,
    ) -> Result<Self, FormatError> {
        let computed = crc32c::crc32c(stored);
        if computed != trailer.footer_checksum {
            let stored = trailer.footer_checksum.into();
            return Err(FormatError::Checksum { part: PART, stored, computed: computed.into() });
        }
        let raw = decompressor.unpack(Packed {
            part: PART,
            packing: trailer.footer_packing,
            raw_length: trailer.footer_raw_length,
            stored,
        })?;
        let limits = decompressor.limits();
        let sections = Sections::split(PART, &raw, &[STATES, CLEARS, INDEX, TOTALS])?;
        let mut cursor = sections.need(STATES)?;
        let states = take_states(&mut cursor, limits)?;
        cursor.finish()?;
        let mut cursor = sections.need(CLEARS)?;
        let clears = take_clears(&mut cursor, limits)?;
        cursor.finish()?;
        let mut cursor = sections.need(INDEX)?;
        let index = Index::decode(&mut cursor, trailer.checkpoint, limits)?;
        cursor.finish()?;
        let mut cursor = sections.need(TOTALS)?;
        let stored = [cursor.varint()?, cursor.varint()?, cursor.varint()?, cursor.varint()?];
        cursor.finish()?;
        let footer = Self::new(trailer.checkpoint, states, clears, index);
        footer.check(trailer, stored)?;
        Ok(footer)
    }

    /// S1 and S3, and that every state referred to is listed.
    fn check(&self, trailer: &SegmentTrailer, stored: [u64; 4]) -> Result<(), FormatError> {
        let invalid = |problem| Err(FormatError::Invalid { part: PART, problem });
        let RecordTotals { puts, tombstones, put_bytes, tombstone_bytes, .. } = self.totals;
        if stored != [puts, tombstones, put_bytes, tombstone_bytes] {
            return invalid("its totals are not those of its runs");
        }
        if self.index.end() != trailer.footer_offset {
            return invalid("its blocks do not end where it begins");
        }
        let listed = |state: u16| usize::from(state) < self.states.len();
        if !self.index.runs.iter().all(|run| listed(run.state))
            || !self.clears.iter().all(|c| listed(c.state))
        {
            return invalid("a run or clear refers to a state that is not listed");
        }
        Ok(())
    }
}

pub(super) fn totals_of(runs: &[Run]) -> RecordTotals {
    let mut totals = RecordTotals::default();
    runs.iter().for_each(|run| totals.add(run.totals));
    totals
}

fn put_clear(out: &mut Vec<u8>, clear: &Clear) {
    let Clear { state, namespace, key_groups } = clear;
    put_varint(out, u64::from(*state));
    match namespace {
        None => out.push(1),
        Some(namespace) => {
            out.push(2);
            put_bytes(out, namespace);
        }
    }
    put_key_groups(out, key_groups);
}

impl Clear {
    /// Length in bytes of its encoding in a footer.
    #[must_use]
    pub fn encoded_bytes(&self) -> u64 {
        let mut bytes = Vec::new();
        put_clear(&mut bytes, self);
        bytes.len() as u64
    }
}

fn take_clears(cursor: &mut Cursor<'_>, limits: DecodeLimits) -> Result<Vec<Clear>, FormatError> {
    let mut clears = Vec::new();
    for _ in 0..cursor.count(3, size_of::<Clear>(), limits)? {
        let state = cursor.number()?;
        let namespace = match cursor.u8()? {
            1 => None,
            2 => Some(cursor.counted()?.to_vec()),
            _ => return Err(cursor.invalid("the scope of a clear has no known number")),
        };
        clears.push(Clear { state, namespace, key_groups: take_key_groups(cursor, limits)? });
    }
    Ok(clears)
}

/// Appends a set of key groups: the number of ranges, then for each the gap before it and its length less one.
pub(crate) fn put_key_groups(out: &mut Vec<u8>, set: &KeyGroupSet) {
    put_varint(out, set.ranges().len() as u64);
    let mut next = 0_u64;
    for range in set.ranges() {
        put_varint(out, u64::from(range.start().0) - next);
        put_varint(out, u64::from(range.len() - 1));
        next = u64::from(range.end().0) + 1;
    }
}

/// Reads a set of key groups.
pub(crate) fn take_key_groups(
    cursor: &mut Cursor<'_>,
    limits: DecodeLimits,
) -> Result<KeyGroupSet, FormatError> {
    let count = cursor.count(2, size_of::<KeyGroupRange>(), limits)?;
    let mut ranges = Vec::with_capacity(count);
    let mut next = 0_u64;
    for at in 0..count {
        let gap = cursor.varint()?;
        let start = next.checked_add(gap);
        let end = start.zip(cursor.varint().map(Some)?).and_then(|(start, more)| start.checked_add(more));
        let group = |number: Option<u64>| number.and_then(|number| u16::try_from(number).ok()).map(KeyGroup);
        let range = group(start).zip(group(end)).and_then(|(start, end)| KeyGroupRange::new(start, end));
        match range {
            // Neighbouring ranges would be one: a set has one spelling.
            Some(range) if at == 0 || gap > 0 => ranges.push(range),
            _ => return Err(cursor.invalid("a set of key groups is not ascending or out of range")),
        }
        next = end.map_or(0, |end| end + 1);
    }
    Ok(ranges.into_iter().collect())
}
