//! A RocksDB snapshot in the words of the job.

use lowtide_format::{FileEntry, FileId, Generation, KeyGroupRange, KeyGroupSet, ManifestFile};
use lowtide_lsm::{LsmAcknowledgement, LsmFigures, LsmSnapshot};

use crate::backend::{FileSink, NewFile, Snapshot, WriteOptions};
use crate::coordinator::{AcknowledgedElement, Acknowledgement, WriteFigures};
use crate::error::{Error, Result};

/// A linked checkpoint of one RocksDB backend.
#[derive(Debug)]
pub struct RocksSnapshot {
    lsm: LsmSnapshot,
    generation: Generation,
    range: KeyGroupRange,
}

impl RocksSnapshot {
    pub(super) fn new(lsm: LsmSnapshot, generation: Generation, range: KeyGroupRange) -> Self {
        Self { lsm, generation, range }
    }

    /// What it cost and moved; complete once it is written.
    #[must_use]
    pub fn figures(&self) -> &LsmFigures {
        self.lsm.figures()
    }
}

impl Snapshot for RocksSnapshot {
    fn write(&mut self, options: &WriteOptions, sink: &mut FileSink<'_>) -> Result<()> {
        self.lsm.write::<Error>(
            || options.cancel.is_cancelled(),
            |file| sink(NewFile { kind: file.kind, bytes: file.bytes, more: Vec::new() }),
        )
    }

    fn finish(self, files: Vec<FileEntry>) -> Result<Acknowledgement> {
        let Self { lsm, generation, range } = self;
        let LsmAcknowledgement { id, base, files, segments, states, entries, figures } = lsm.finish(files)?;
        tracing::debug!(
            checkpoint = %id,
            flush_micros = figures.flush.as_micros(),
            link_micros = figures.link.as_micros(),
            tables_new = figures.tables_new,
            tables_kept = figures.tables_kept,
            new_bytes = figures.traffic.new_bytes,
            live_bytes = figures.traffic.live_bytes,
            new_per_live = figures.traffic.new_per_live(),
            new_per_changed = figures.traffic.new_per_changed(),
            "wrote a part of a checkpoint from RocksDB"
        );
        let mut new: Vec<ManifestFile> = Vec::new();
        let mut private = Vec::new();
        for file in files {
            private.push((file.local_name, file.stored.file.id()));
            if file.new {
                let entry = file.stored.file;
                new.push(ManifestFile {
                    entry,
                    checkpoint: id,
                    generation,
                    owned: true,
                    records: None,
                    object_bytes: None,
                });
            }
        }
        let mut elements = Vec::new();
        for segment in segments {
            let FileId { object, offset } = segment.file.id();
            let totals = segment.summary.totals;
            new.push(ManifestFile::of_segment(object.clone(), &segment.summary, generation));
            elements.push(AcknowledgedElement {
                file: FileId { object, offset },
                key_groups: KeyGroupSet::from(range),
                live_puts: totals.puts,
                live_tombstones: 0,
                live_clears: 0,
            });
        }
        let figures = WriteFigures {
            storm: figures.storm.is_some(),
            traffic: Some(figures.traffic),
            ..WriteFigures::default()
        };
        Ok(Acknowledgement { base, files: new, elements, private, states, entries, figures })
    }
}
