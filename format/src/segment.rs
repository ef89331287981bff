//! Segments: the records of one delta or base of one subtask, as one immutable object.
//!
//! Owns: blocks, the index of (key group, state), the footer and the trailer.
//! Does not own: the records themselves (`record`), where the object lies (`store`), what is live in it (the heap).
//!
//! # Invariants
//!
//! - S1. Tiled: header, blocks, footer and trailer follow each other without a gap, and each byte is under a magic
//!   number, a fixed value or a checksum; the trailer's checksum stands for all of them.
//! - S2. Ordered: runs ascend by (key group, state); a run that spans blocks continues as the first of the next block.
//! - S3. Counted: the totals of a segment are the sums over its runs.

mod buffers;
mod footer;
mod index;
mod reader;
mod totals;
mod trailer;
mod writer;

pub use buffers::SegmentBuffers;
pub use footer::SegmentFooter;
pub(crate) use footer::{put_key_groups, take_key_groups};
pub use index::{BlockEntry, Run};
pub use reader::{Block, BlockDecoder, SegmentReader, SegmentTail};
pub use totals::{RecordTotals, SegmentSummary, VersionSpan};
pub use trailer::SegmentTrailer;
pub use writer::{FinishedSegment, SegmentOptions, SegmentWriter};

/// Length of the header in bytes: magic, version, two zero bytes.
pub(crate) const HEADER_LENGTH: u64 = 8;

#[cfg(test)]
mod tests;
