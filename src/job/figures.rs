//! What a checkpoint was: figures for its caller, for metrics and for scripts.
//!
//! Owns: adding up what the parts say. Does not own: measuring (`attempt`, `upload`), the store's own count of bytes
//! ([`lowtide_format::CountingStore`]).

use std::time::Duration;

use lowtide_format::{CheckpointId, CheckpointKind, Manifest, ManifestFile};
use lowtide_lsm::TrafficFigures;

use super::Job;
use crate::backend::Backend;
use crate::coordinator::WriteFigures;
use crate::error::Result;

/// The figures of one completed checkpoint, all subtasks together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFigures {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Ordinary, full, or a savepoint.
    pub kind: CheckpointKind,
    /// The base of its deltas, the oldest if subtasks differ; none if everything was written.
    pub base: Option<CheckpointId>,
    /// The synchronous phase: the longest of a subtask, since they freeze side by side in a cluster.
    pub pause: Duration,
    /// The asynchronous phase, writing and uploading: the longest of a subtask.
    pub write: Duration,
    /// Bytes of the data files it uploaded, those copied into one object among them.
    pub new_bytes: u64,
    /// Bytes of the data files it lists that earlier checkpoints uploaded.
    pub referenced_bytes: u64,
    /// Puts in the files it wrote, rewritten ones among them.
    pub puts: u64,
    /// Tombstones in the files it wrote.
    pub tombstones: u64,
    /// Clears in the files it wrote.
    pub clears: u64,
    /// Puts that were written again although unchanged, to empty old segments.
    pub rewritten: u64,
    /// Encoded bytes of those.
    pub rewritten_bytes: u64,
    /// Bytes of small files of its base that were copied into one object.
    pub copied_bytes: u64,
    /// Records set aside because they were changed before they were written.
    pub set_aside: u64,
    /// Files that its manifest lists.
    pub segments: u64,
    /// Elements of all subtasks' chains; a file that two subtasks list counts twice.
    pub elements: u64,
    /// Entries of all states.
    pub entries: u64,
    /// Tables moved and the compactions behind them, largest first; none from a backend without tables.
    pub traffic: Option<TrafficFigures>,
    /// Whether a subtask saw a compaction storm: far more new bytes than changed ones.
    pub storm: bool,
}

/// What one acknowledged part says of itself.
#[derive(Clone, Debug)]
pub(super) struct PartFigures {
    pub(super) pause: Duration,
    pub(super) write: Duration,
    pub(super) set_aside: u64,
    pub(super) written: WriteFigures,
}

/// What the acknowledged parts of a pending checkpoint say that its manifest will not.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pause: Duration,
    write: Duration,
    rewritten: u64,
    rewritten_bytes: u64,
    copied_bytes: u64,
    set_aside: u64,
    traffic: Option<TrafficFigures>,
    storm: bool,
}

impl Parts {
    pub(super) fn add(&mut self, part: PartFigures) {
        let PartFigures { pause, write, set_aside, written } = part;
        self.pause = self.pause.max(pause);
        self.write = self.write.max(write);
        self.rewritten += written.rewritten;
        self.rewritten_bytes += written.rewritten_bytes;
        self.copied_bytes += written.copied_bytes;
        self.set_aside += set_aside;
        self.storm |= written.storm;
        if let Some(traffic) = written.traffic {
            self.traffic.get_or_insert_default().add(traffic);
        }
    }

    /// Puts written again although unchanged.
    pub(super) fn rewritten(&self) -> u64 {
        self.rewritten
    }
}

impl CheckpointFigures {
    fn of(manifest: &Manifest, parts: Parts) -> Self {
        let Parts { pause, write, rewritten, rewritten_bytes, copied_bytes, set_aside, traffic, storm } =
            parts;
        let id = manifest.checkpoint;
        let (own, earlier): (Vec<_>, Vec<_>) = manifest.files.iter().partition(|file| file.checkpoint == id);
        let bytes_of = |files: &[&ManifestFile]| files.iter().map(|file| file.entry.length).sum::<u64>();
        let records = || own.iter().filter_map(|file| file.records);
        Self {
            id,
            kind: manifest.kind,
            base: manifest.base,
            pause,
            write,
            new_bytes: bytes_of(&own) + copied_bytes,
            referenced_bytes: bytes_of(&earlier).saturating_sub(copied_bytes),
            puts: records().map(|records| records.totals.puts).sum(),
            tombstones: records().map(|records| records.totals.tombstones).sum(),
            clears: records().map(|records| records.clears).sum(),
            rewritten,
            rewritten_bytes,
            copied_bytes,
            set_aside,
            segments: manifest.files.len() as u64,
            elements: manifest.subtasks.iter().map(|part| part.elements.len() as u64).sum(),
            entries: manifest.subtasks.iter().map(|part| part.entries).sum(),
            traffic,
            storm,
        }
    }
}

impl<B: Backend> Job<B> {
    /// The figures of a checkpoint that this job has completed, once; none if it is not complete.
    ///
    /// # Errors
    ///
    /// As [`Job::manifest`].
    pub async fn take_figures(&mut self, id: CheckpointId) -> Result<Option<CheckpointFigures>> {
        let completed = self.coordinator.published().get(id).cloned();
        let Some(completed) = completed else { return Ok(None) };
        let Some(parts) = self.parts.remove(&id) else { return Ok(None) };
        let figures = CheckpointFigures::of(&completed.manifest(&self.store).await?, parts);
        self.rewritten.insert(id, figures.rewritten);
        tracing::info!(
            job = %self.name,
            checkpoint = %id,
            pause_us = figures.pause.as_micros() as u64,
            write_ms = figures.write.as_millis() as u64,
            new_bytes = figures.new_bytes,
            referenced_bytes = figures.referenced_bytes,
            puts = figures.puts,
            tombstones = figures.tombstones,
            rewritten = figures.rewritten,
            set_aside = figures.set_aside,
            segments = figures.segments,
            entries = figures.entries,
            storm = figures.storm,
            "checkpoint complete"
        );
        Ok(Some(figures))
    }
}
