//! Writing a checkpoint while the job goes on: the parts that leave the job and come back.
//!
//! Owns: writers as values of their own. Does not own: what a writer does (`upload`), delivery (`steps`).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lowtide_format::{CheckpointId, CheckpointKind};
use tracing::Instrument;

use super::checkpoint::CheckpointReport;
use super::steps::Step;
use super::{CheckpointFigures, Job};

use crate::backend::Backend;
use crate::coordinator::Acknowledgement;
use crate::error::Result;
use crate::upload::{UploadRequest, write_and_upload};

/// The snapshot of one subtask, on its way to the store. Can be sent to any thread.
#[must_use = "a writer that does not run leaves its checkpoint pending"]
pub struct Writer<B: Backend> {
    pub(super) snapshot: B::Snapshot,
    pub(super) id: CheckpointId,
    pub(super) subtask: u32,
    /// How long freezing it took.
    pub(super) pause: Duration,
    pub(super) request: UploadRequest,
}

impl<B: Backend> Writer<B> {
    pub(super) async fn run(self) -> (Result<Acknowledgement>, Duration) {
        let Self { snapshot, id, subtask, request, .. } = self;
        let clock = Arc::clone(&request.clock);
        let span = tracing::debug_span!("write", checkpoint = %id, subtask);
        let begun = clock.monotonic();
        let uploaded = write_and_upload(snapshot, request).instrument(span).await;
        (uploaded, clock.monotonic().saturating_sub(begun))
    }
}

/// All parts of one checkpoint, to be written while the job goes on.
///
/// Dropping it, before or while it runs, lets go of the snapshots; the checkpoint stays pending until it is
/// aborted or expires.
#[must_use = "a checkpoint that is not written stays pending"]
pub struct BackgroundWrite<B: Backend> {
    id: CheckpointId,
    writers: Vec<Writer<B>>,
    side_by_side: usize,
}

impl<B: Backend> BackgroundWrite<B> {
    /// The checkpoint being written.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// The synchronous phase: the longest of a subtask, as in [`CheckpointFigures::pause`]. What the coordinator did before
    /// is no part of it.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.writers.iter().map(|writer| writer.pause).max().unwrap_or_default()
    }

    /// Writes and uploads all parts. Failures are in the result, for [`Job::finish_checkpoint`].
    pub async fn run(self) -> WrittenParts {
        let mut running = futures::stream::iter(self.writers)
            .map(|writer| async move {
                let subtask = writer.subtask;
                let (uploaded, took) = writer.run().await;
                (subtask, uploaded, took)
            })
            .buffered(self.side_by_side.max(1));
        let mut parts = Vec::new();
        while let Some(part) = running.next().await {
            let failed = part.1.is_err();
            parts.push(part);
            if failed {
                break;
            }
        }
        WrittenParts { id: self.id, parts }
    }
}

/// What the writers of one checkpoint have made.
#[must_use = "give it to finish_checkpoint"]
pub struct WrittenParts {
    id: CheckpointId,
    parts: Vec<(u32, Result<Acknowledgement>, Duration)>,
}

impl<B: Backend> Job<B> {
    /// Triggers a checkpoint and hands out what is to be written, to be run on another task meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Job::trigger`].
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use lowtide::{CheckpointKind, Job, Store, ValueState};
    ///
    /// let mut job = Job::builder("clicks").create(&Store::memory()).await?;
    /// let clicks: ValueState<u32, u64> = job.value_state("clicks")?;
    /// job.state_mut(&clicks).put(1, 10)?;
    /// let writing = tokio::spawn(job.start_checkpoint(CheckpointKind::Checkpoint)?.run());
    /// job.state_mut(&clicks).put(2, 20)?; // not in this checkpoint
    /// let figures = job.finish_checkpoint(writing.await.unwrap()).await?;
    /// assert_eq!(figures.entries, 1);
    /// # Ok::<(), lowtide::Error>(()) }).unwrap();
    /// ```
    pub fn start_checkpoint(&mut self, kind: CheckpointKind) -> Result<BackgroundWrite<B>> {
        let id = self.trigger(kind)?.id;
        let mut writers = Vec::with_capacity(self.subtasks.len());
        for subtask in 0..self.routing.subtasks() {
            writers.extend(self.writer(id, subtask)?);
        }
        Ok(BackgroundWrite { id, writers, side_by_side: self.options.writers_max })
    }

    /// Acknowledges what the writers have made, which publishes the checkpoint.
    ///
    /// # Errors
    ///
    /// What made a writer or the publish fail; the checkpoint is aborted then, and the next one carries its
    /// changes. `fenced` once another coordinator has taken over.
    pub async fn finish_checkpoint(&mut self, parts: WrittenParts) -> Result<CheckpointFigures> {
        self.finish_report(parts).await.into_figures()
    }

    pub(super) async fn finish_report(&mut self, parts: WrittenParts) -> CheckpointReport {
        let WrittenParts { id, parts } = parts;
        let mut step = Step::default();
        let mut subtasks = Vec::new();
        for (subtask, uploaded, took) in parts {
            subtasks.push(subtask);
            step.append(self.written(id, subtask, uploaded, took).await);
        }
        if step.failure.is_none() {
            for subtask in subtasks {
                step.append(self.acknowledge(id, subtask).await);
            }
        }
        let figures = match self.take_figures(id).await {
            Ok(figures) => figures,
            Err(error) => {
                step.append(Step::failed(error));
                None
            }
        };
        CheckpointReport { id, figures, step }
    }
}
