//! What is counted about records, runs and whole segments.

use crate::ids::CheckpointId;
use crate::object_name::{FileEntry, FileKind, ObjectName};

/// Smallest and largest version of some puts, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionSpan {
    /// The smallest version.
    pub oldest: CheckpointId,
    /// The largest version.
    pub newest: CheckpointId,
}

impl VersionSpan {
    /// The span of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { oldest: self.oldest.min(other.oldest), newest: self.newest.max(other.newest) }
    }
}

/// Puts and tombstones, counted, with their encoded bytes before compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordTotals {
    /// Number of puts.
    pub puts: u64,
    /// Number of tombstones.
    pub tombstones: u64,
    /// Encoded bytes of the puts.
    pub put_bytes: u64,
    /// Encoded bytes of the tombstones.
    pub tombstone_bytes: u64,
    /// Versions of the puts; none without puts.
    pub span: Option<VersionSpan>,
}

impl RecordTotals {
    /// Adds one put.
    #[inline]
    pub(crate) fn add_put(&mut self, bytes: u64, version: CheckpointId) {
        self.puts += 1;
        self.put_bytes += bytes;
        match &mut self.span {
            Some(span) => {
                span.oldest = span.oldest.min(version);
                span.newest = span.newest.max(version);
            }
            None => self.span = Some(VersionSpan { oldest: version, newest: version }),
        }
    }

    /// Adds the records counted in `other`.
    pub fn add(&mut self, other: Self) {
        let Self { puts, tombstones, put_bytes, tombstone_bytes, span } = other;
        // Sums of what lies in memory or was read within limits: they do not reach 64 bits in sound files, and a
        // forged sum is compared with the stored totals, not trusted.
        self.puts = self.puts.saturating_add(puts);
        self.tombstones = self.tombstones.saturating_add(tombstones);
        self.put_bytes = self.put_bytes.saturating_add(put_bytes);
        self.tombstone_bytes = self.tombstone_bytes.saturating_add(tombstone_bytes);
        self.span = match (self.span, span) {
            (Some(mine), Some(theirs)) => Some(mine.union(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }
}

/// What a manifest needs to know about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentSummary {
    /// The checkpoint that wrote it.
    pub checkpoint: CheckpointId,
    /// Puts and tombstones, counted.
    pub totals: RecordTotals,
    /// Number of clears.
    pub clears: u64,
    /// Length of the file in bytes.
    pub length: u64,
    /// xxh3-64 of the file.
    pub checksum: u64,
    /// Checksum of the trailer, which stands for all other checksums: a ranged read that verifies it cannot be given
    /// another segment.
    pub trailer_checksum: u32,
}

impl SegmentSummary {
    /// The file, as the whole of `object`.
    #[must_use]
    pub fn file_entry(&self, object: ObjectName) -> FileEntry {
        FileEntry { object, offset: 0, length: self.length, checksum: self.checksum, kind: FileKind::Segment }
    }
}
