//! One file of a manifest, with what is known about its records.

use crate::ids::{CheckpointId, Generation};
use crate::object_name::{FileEntry, FileKind, ObjectName};
use crate::segment::{RecordTotals, SegmentSummary};

/// What a manifest knows about the records of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentRecords {
    /// Puts and tombstones, counted, with their encoded bytes and versions.
    pub totals: RecordTotals,
    /// Number of clears.
    pub clears: u64,
    /// Checksum of the segment's trailer; see [`SegmentSummary::trailer_checksum`].
    pub trailer_checksum: u32,
}

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManifestFile {
    /// Where it is, its length and its checksum.
    pub entry: FileEntry,
    /// The checkpoint that wrote it.
    pub checkpoint: CheckpointId,
    /// The generation that uploaded it.
    pub generation: Generation,
    /// Whether the job may delete it once nothing lists it.
    pub owned: bool,
    /// What is known about its records, if it is a segment.
    pub records: Option<SegmentRecords>,
    /// Length in bytes of its object, if that holds other files as well: what is not listed any more of it is waste.
    pub object_bytes: Option<u64>,
}

impl ManifestFile {
    /// A segment that lies alone in `object` and is the job's own.
    #[must_use]
    pub fn of_segment(object: ObjectName, summary: &SegmentSummary, generation: Generation) -> Self {
        let SegmentSummary { checkpoint, totals, clears, trailer_checksum, length, checksum } = *summary;
        Self {
            entry: FileEntry { object, offset: 0, length, checksum, kind: FileKind::Segment },
            checkpoint,
            generation,
            owned: true,
            records: Some(SegmentRecords { totals, clears, trailer_checksum }),
            object_bytes: None,
        }
    }

    /// Length in bytes of the object that holds it.
    #[must_use]
    pub fn bytes_of_object(&self) -> u64 {
        self.object_bytes.unwrap_or(self.entry.offset.saturating_add(self.entry.length))
    }

    /// What the writer of the segment reported; `None` for other files.
    #[must_use]
    pub fn summary(&self) -> Option<SegmentSummary> {
        self.records.map(|SegmentRecords { totals, clears, trailer_checksum }| SegmentSummary {
            checkpoint: self.checkpoint,
            totals,
            clears,
            length: self.entry.length,
            checksum: self.entry.checksum,
            trailer_checksum,
        })
    }
}
