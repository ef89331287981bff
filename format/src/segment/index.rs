//! The index of a segment: its blocks, and in each block the runs of one (key group, state).

use super::totals::{RecordTotals, VersionSpan};
use crate::codec::DecodeLimits;
use crate::compression::Packing;
use crate::cursor::{Cursor, put_varint};
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;

/// Records of one key group and state that lie together in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The key group.
    pub key_group: KeyGroup,
    /// The state, as an index into the segment's own table of states.
    pub state: u16,
    /// Where it begins in the unpacked block, in bytes.
    pub offset: u64,
    /// Its records, counted. Their bytes are its length.
    pub totals: RecordTotals,
}

impl Run {
    /// Its length in the unpacked block, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.totals.put_bytes.saturating_add(self.totals.tombstone_bytes)
    }
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Where its stored bytes begin in the file.
    pub offset: u64,
    /// How many stored bytes.
    pub stored_length: u64,
    /// How many bytes after unpacking.
    pub raw_length: u64,
    /// crc32c of the stored bytes.
    pub checksum: u32,
    pub(super) packing: Packing,
    /// Its runs are `runs[first_run..first_run + run_count]`.
    pub(super) first_run: usize,
    pub(super) run_count: usize,
}

/// Blocks and runs, both in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) blocks: Vec<BlockEntry>,
    pub(super) runs: Vec<Run>,
}

impl Index {
    pub(super) fn encode(&self, checkpoint: CheckpointId, out: &mut Vec<u8>) {
        let Self { blocks, runs } = self;
        put_varint(out, blocks.len() as u64);
        put_varint(out, runs.len() as u64);
        for block in blocks {
            // The offset of a block is the end of the one before; its raw length is the sum of its runs.
            let BlockEntry {
                offset: _,
                stored_length,
                raw_length: _,
                checksum,
                packing,
                first_run: _,
                run_count,
            } = *block;
            put_varint(out, stored_length);
            out.push(packing as u8);
            out.extend_from_slice(&checksum.to_le_bytes());
            put_varint(out, run_count as u64);
        }
        let mut group = 0;
        for run in runs {
            let Run { key_group, state, offset: _, totals } = *run;
            let RecordTotals { puts, tombstones, put_bytes, tombstone_bytes, span } = totals;
            put_varint(out, u64::from(key_group.0 - group));
            group = key_group.0;
            put_varint(out, u64::from(state));
            put_varint(out, puts);
            put_varint(out, tombstones);
            if let Some(VersionSpan { oldest, newest }) = span {
                put_varint(out, put_bytes);
                put_varint(out, checkpoint.get() - newest.get());
                put_varint(out, newest.get() - oldest.get());
            }
            if tombstones > 0 {
                put_varint(out, tombstone_bytes);
            }
        }
    }

    pub(super) fn decode(
        cursor: &mut Cursor<'_>,
        checkpoint: CheckpointId,
        limits: DecodeLimits,
    ) -> Result<Self, FormatError> {
        let block_count = cursor.count(1, size_of::<BlockEntry>(), limits)?;
        let run_count = cursor.count(1, size_of::<Run>(), limits)?;
        let mut blocks = Vec::new();
        let (mut offset, mut first_run) = (super::HEADER_LENGTH, 0_usize);
        for _ in 0..block_count {
            let stored_length = cursor.varint()?;
            let packing = Packing::from_tag(cursor.part(), cursor.u8()?)?;
            let checksum = cursor.u32()?;
            let run_count: usize = cursor.number()?;
            if run_count == 0 || stored_length == 0 {
                return Err(cursor.invalid("a block is empty"));
            }
            blocks.push(BlockEntry {
                offset,
                stored_length,
                raw_length: 0,
                checksum,
                packing,
                first_run,
                run_count,
            });
            let next = offset.checked_add(stored_length).zip(first_run.checked_add(run_count));
            (offset, first_run) =
                next.ok_or_else(|| cursor.invalid("the blocks are longer than any file"))?;
        }
        if first_run != run_count {
            return Err(cursor.invalid("the blocks have more or fewer runs than there are"));
        }
        let mut runs: Vec<Run> = Vec::new();
        for block in &mut blocks {
            for at in 0..block.run_count {
                let before = runs.last().map(|run| (run.key_group, run.state));
                let run = decode_run(
                    cursor,
                    checkpoint,
                    (before.map_or(0, |(group, _)| group.0), block.raw_length),
                )?;
                let place = (run.key_group, run.state);
                // S2: only the first run of a block may continue the last of the block before.
                let ordered = before.is_none_or(|before| before < place || (before == place && at == 0));
                if !ordered {
                    return Err(cursor.invalid("its runs do not ascend"));
                }
                let end = block.raw_length.checked_add(run.length());
                block.raw_length = end.ok_or_else(|| cursor.invalid("a block is longer than any file"))?;
                runs.push(run);
            }
        }
        Ok(Self { blocks, runs })
    }

    /// Where the last block ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.blocks
            .last()
            .map_or(super::HEADER_LENGTH, |block| block.offset.saturating_add(block.stored_length))
    }
}

/// Reads one run; `after` is the key group of the run before and the end of that run in this block.
fn decode_run(
    cursor: &mut Cursor<'_>,
    checkpoint: CheckpointId,
    after: (u16, u64),
) -> Result<Run, FormatError> {
    let (group, offset) = after;
    let step: u16 = cursor.number()?;
    let key_group = group.checked_add(step).map(KeyGroup);
    let key_group = key_group.ok_or_else(|| cursor.invalid("a key group is out of range"))?;
    let state = cursor.number()?;
    let (puts, tombstones) = (cursor.varint()?, cursor.varint()?);
    let mut totals = RecordTotals { puts, tombstones, ..RecordTotals::default() };
    if puts > 0 {
        totals.put_bytes = cursor.varint()?;
        let newest = cursor.id_before(checkpoint)?;
        totals.span = Some(VersionSpan { oldest: cursor.id_before(newest)?, newest });
    }
    if tombstones > 0 {
        totals.tombstone_bytes = cursor.varint()?;
    }
    if puts.checked_add(tombstones).is_none_or(|records| records == 0)
        || totals.put_bytes.checked_add(totals.tombstone_bytes).is_none()
    {
        return Err(cursor.invalid("a run has no records, or more than there can be"));
    }
    Ok(Run { key_group, state, offset, totals })
}
