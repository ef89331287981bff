//! The fixed end of a segment: where the footer is, and the checksum that stands for everything.

use crate::compression::Packing;
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::version::{FORMAT_VERSION, MAGIC_SEGMENT, check_head};

const PART: &str = "segment trailer";

/// The trailer, decoded and checked against the length of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTrailer {
    /// The checkpoint that wrote the segment.
    pub checkpoint: CheckpointId,
    /// Where the footer begins, in bytes.
    pub footer_offset: u64,
    /// Stored length of the footer in bytes.
    pub footer_length: u64,
    /// crc32c of the trailer.
    pub checksum: u32,
    pub(super) footer_raw_length: u64,
    pub(super) footer_packing: Packing,
    pub(super) footer_checksum: u32,
}

impl SegmentTrailer {
    /// Length of a trailer in bytes.
    pub const LENGTH: usize = 48;

    /// Appends the trailer of a file whose footer is its last part so far; returns the trailer's checksum.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u32 {
        let Self {
            checkpoint,
            footer_offset,
            footer_length,
            checksum: _, // computed here
            footer_raw_length,
            footer_packing,
            footer_checksum,
        } = *self;
        let mut trailer = Vec::with_capacity(Self::LENGTH);
        trailer.extend_from_slice(&checkpoint.get().to_le_bytes());
        trailer.extend_from_slice(&footer_offset.to_le_bytes());
        trailer.extend_from_slice(&footer_length.to_le_bytes());
        trailer.extend_from_slice(&footer_raw_length.to_le_bytes());
        trailer.extend_from_slice(&footer_checksum.to_le_bytes());
        trailer.push(footer_packing as u8);
        trailer.push(0);
        trailer.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&trailer);
        trailer.extend_from_slice(&checksum.to_le_bytes());
        trailer.extend_from_slice(&MAGIC_SEGMENT);
        out.extend_from_slice(&trailer);
        checksum
    }

    /// The trailer at the end of `tail`, which is the end of a file of `file_length` bytes.
    ///
    /// # Errors
    ///
    /// Truncated, another kind of object, another format version, or a wrong checksum, in this order.
    pub fn decode(tail: &[u8], file_length: u64) -> Result<Self, FormatError> {
        let Some(bytes) = tail.last_chunk::<{ Self::LENGTH }>() else {
            let (need, have) = (Self::LENGTH as u64, tail.len() as u64);
            return Err(FormatError::Truncated { part: PART, need, have });
        };
        let mut cursor = Cursor::new(PART, bytes);
        let checkpoint = cursor.u64()?;
        let (footer_offset, footer_length) = (cursor.u64()?, cursor.u64()?);
        let footer_raw_length = cursor.u64()?;
        let footer_checksum = cursor.u32()?;
        let (packing, zero) = (cursor.u8()?, cursor.u8()?);
        let version = cursor.u16()?;
        let stored = cursor.u32()?;
        let magic = cursor.u32()?.to_le_bytes();
        check_head(PART, (magic, MAGIC_SEGMENT), version)?;
        let computed = crc32c::crc32c(bytes.get(..Self::LENGTH - 8).unwrap_or_default());
        if stored != computed {
            return Err(FormatError::Checksum {
                part: PART,
                stored: stored.into(),
                computed: computed.into(),
            });
        }
        let invalid = |problem| FormatError::Invalid { part: PART, problem };
        let end =
            footer_offset.checked_add(footer_length).and_then(|end| end.checked_add(Self::LENGTH as u64));
        if end != Some(file_length) || footer_offset < super::HEADER_LENGTH {
            return Err(invalid("its offsets do not add up to the length of the file"));
        }
        if zero != 0 {
            return Err(invalid("a reserved byte is not zero"));
        }
        Ok(Self {
            checkpoint: CheckpointId::new(checkpoint).ok_or_else(|| invalid("a checkpoint id is zero"))?,
            footer_offset,
            footer_length,
            checksum: stored,
            footer_raw_length,
            footer_packing: Packing::from_tag(PART, packing)?,
            footer_checksum,
        })
    }
}
