//! Reads a segment: as a whole, or footer first and then the blocks that are wanted.

use std::borrow::Cow;

use super::footer::SegmentFooter;
use super::index::{BlockEntry, Run};
use super::totals::SegmentSummary;
use super::trailer::SegmentTrailer;
use crate::codec::DecodeLimits;
use crate::compression::{Decompressor, Packed};
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroupSet;
use crate::record::{BlockRecords, RecordRef};
use crate::version::{MAGIC_SEGMENT, check_head};

/// A segment whose footer has been read and checked.
#[derive(Clone, Debug)]
pub struct SegmentReader {
    footer: SegmentFooter,
    trailer: SegmentTrailer,
    limits: DecodeLimits,
}

/// What the end of a segment gave.
#[derive(Clone, Debug)]
pub enum SegmentTail {
    /// The footer lay in it.
    Complete(SegmentReader),
    /// The footer begins before it: read this many bytes from the end and try again.
    Incomplete {
        /// How many bytes of the file's end are needed.
        bytes: u64,
    },
}

impl SegmentReader {
    /// Reads header and footer of a segment that is in memory as a whole. No block is unpacked yet.
    ///
    /// # Errors
    ///
    /// Any [`FormatError`] for bytes that are not a segment; memory stays within `limits`.
    pub fn open(file: &[u8], limits: DecodeLimits) -> Result<Self, FormatError> {
        check_header(file)?;
        match Self::from_tail(file, file.len() as u64, limits)? {
            SegmentTail::Complete(reader) => Ok(reader),
            SegmentTail::Incomplete { bytes } => {
                Err(FormatError::Truncated { part: "segment", need: bytes, have: file.len() as u64 })
            }
        }
    }

    /// Reads the footer from the last bytes of a file of `file_length` bytes, at least
    /// [`SegmentTrailer::LENGTH`] of them.
    ///
    /// # Errors
    ///
    /// As [`SegmentReader::open`]. The header is not seen here; the trailer has the same magic number and version.
    pub fn from_tail(
        tail: &[u8],
        file_length: u64,
        limits: DecodeLimits,
    ) -> Result<SegmentTail, FormatError> {
        let trailer = SegmentTrailer::decode(tail, file_length)?;
        limits.check("segment footer", trailer.footer_length)?;
        let wanted = trailer.footer_length.saturating_add(SegmentTrailer::LENGTH as u64);
        let start = usize::try_from(wanted).ok().and_then(|wanted| tail.len().checked_sub(wanted));
        let Some(start) = start else { return Ok(SegmentTail::Incomplete { bytes: wanted }) };
        let stored = tail.get(start..tail.len() - SegmentTrailer::LENGTH).unwrap_or_default();
        let footer = SegmentFooter::decode(&trailer, stored, &mut Decompressor::new(limits))?;
        Ok(SegmentTail::Complete(Self { footer, trailer, limits }))
    }

    /// States, clears, index and totals.
    #[must_use]
    pub fn footer(&self) -> &SegmentFooter {
        &self.footer
    }

    /// Checks that this is the segment of which a manifest says `trailer_checksum`: needed when only parts are read,
    /// where the checksum of the whole file cannot be verified.
    ///
    /// # Errors
    ///
    /// [`FormatError::Checksum`].
    pub fn check_trailer(&self, trailer_checksum: u32) -> Result<(), FormatError> {
        if self.trailer.checksum == trailer_checksum {
            Ok(())
        } else {
            let (stored, computed) = (trailer_checksum.into(), self.trailer.checksum.into());
            Err(FormatError::Checksum { part: "segment trailer", stored, computed })
        }
    }

    /// Checks that it counts what a manifest says about it.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if another segment lies under its name.
    pub fn check_summary(&self, summary: &SegmentSummary) -> Result<(), FormatError> {
        self.check_trailer(summary.trailer_checksum)?;
        let found = (self.footer.checkpoint(), self.footer.totals(), self.footer.clears().len() as u64);
        if found == (summary.checkpoint, summary.totals, summary.clears) {
            Ok(())
        } else {
            Err(FormatError::Invalid { part: "segment", problem: "the manifest counts other records in it" })
        }
    }

    /// A decoder for its blocks; one per thread, its memory is used again.
    #[must_use]
    pub fn block_decoder(&self) -> BlockDecoder<'_> {
        BlockDecoder { footer: &self.footer, decompressor: Decompressor::new(self.limits) }
    }

    /// Hands every record of the wanted key groups of a file in memory to `visit`, in the order of the file.
    ///
    /// Clears are not visited; see [`SegmentFooter::clears`].
    ///
    /// # Errors
    ///
    /// The first error of a block, a record or `visit`.
    pub fn visit<E: From<FormatError>>(
        &self,
        file: &[u8],
        key_groups: &KeyGroupSet,
        mut visit: impl FnMut(&Run, RecordRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut decoder = self.block_decoder();
        for entry in self.footer.blocks_of(key_groups) {
            let block = decoder.decode(entry, stored_bytes(file, entry)?)?;
            for run in block.runs().iter().filter(|run| key_groups.contains(run.key_group)) {
                let mut records = block.records(run);
                for record in &mut records {
                    visit(run, record?)?;
                }
            }
        }
        Ok(())
    }

    /// Unpacks every block of a file in memory and compares its records with the index, run by run.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn verify(&self, file: &[u8]) -> Result<(), FormatError> {
        let mut decoder = self.block_decoder();
        for entry in self.footer.blocks() {
            let block = decoder.decode(entry, stored_bytes(file, entry)?)?;
            for run in block.runs() {
                verify_run(&block, run)?;
            }
        }
        Ok(())
    }
}

fn verify_run(block: &Block<'_>, run: &Run) -> Result<(), FormatError> {
    let (mut puts, mut tombstones) = (0, 0);
    for record in block.records(run) {
        match record? {
            RecordRef::Put { version, .. } => {
                puts += 1;
                if run.totals.span.is_none_or(|span| version < span.oldest || version > span.newest) {
                    return Err(FormatError::Invalid {
                        part: "block",
                        problem: "a version is outside its run's span",
                    });
                }
            }
            RecordRef::Tombstone { .. } => tombstones += 1,
        }
    }
    if (puts, tombstones) == (run.totals.puts, run.totals.tombstones) {
        Ok(())
    } else {
        Err(FormatError::Invalid { part: "block", problem: "a run has other records than the index counts" })
    }
}

fn check_header(file: &[u8]) -> Result<(), FormatError> {
    let part = "segment header";
    let mut cursor = Cursor::new(part, file);
    let magic = cursor.u32()?.to_le_bytes();
    let (version, zero) = (cursor.u16()?, cursor.u16()?);
    check_head(part, (magic, MAGIC_SEGMENT), version)?;
    if zero == 0 { Ok(()) } else { Err(cursor.invalid("a reserved byte is not zero")) }
}

/// The stored bytes of a block of a file in memory.
fn stored_bytes<'a>(file: &'a [u8], entry: &BlockEntry) -> Result<&'a [u8], FormatError> {
    let mut cursor = Cursor::new("block", file);
    cursor.take(entry.offset)?;
    cursor.take(entry.stored_length)
}

/// Unpacks blocks of one segment.
pub struct BlockDecoder<'a> {
    footer: &'a SegmentFooter,
    decompressor: Decompressor,
}

impl<'a> BlockDecoder<'a> {
    /// Checks and unpacks the block of `entry`, whose stored bytes are `stored`.
    ///
    /// # Errors
    ///
    /// Wrong length, checksum or compression; a block above the limit.
    pub fn decode<'b>(&mut self, entry: &BlockEntry, stored: &'b [u8]) -> Result<Block<'b>, FormatError>
    where
        'a: 'b,
    {
        let part = "block";
        let mut cursor = Cursor::new(part, stored);
        cursor.take(entry.stored_length)?;
        cursor.finish()?;
        let computed = crc32c::crc32c(stored);
        if computed != entry.checksum {
            return Err(FormatError::Checksum {
                part,
                stored: entry.checksum.into(),
                computed: computed.into(),
            });
        }
        let packed = Packed { part, packing: entry.packing, raw_length: entry.raw_length, stored };
        let raw = self.decompressor.unpack(packed)?;
        Ok(Block { raw, runs: self.footer.runs(entry), checkpoint: self.footer.checkpoint() })
    }
}

/// An unpacked block; borrows the stored bytes if they are not compressed.
pub struct Block<'a> {
    raw: Cow<'a, [u8]>,
    runs: &'a [Run],
    checkpoint: CheckpointId,
}

impl<'a> Block<'a> {
    /// Its runs, in order.
    #[must_use]
    pub fn runs(&self) -> &'a [Run] {
        self.runs
    }

    /// The records of one of its runs.
    #[must_use]
    pub fn records(&self, run: &Run) -> BlockRecords<'_> {
        // Runs tile the block, whose length was checked; a run of another block yields nothing or an error.
        let range = usize::try_from(run.offset).ok().zip(usize::try_from(run.length()).ok());
        let bytes = range.and_then(|(start, length)| self.raw.get(start..)?.get(..length));
        BlockRecords::new(bytes.unwrap_or_default(), self.checkpoint)
    }
}
