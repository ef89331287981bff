//! A whole checkpoint in one call.

use lowtide_format::{CheckpointId, CheckpointKind};

use super::steps::Step;
use super::{CheckpointFigures, Job};
use crate::backend::Backend;
use crate::error::{Error, Result};

/// What came of a checkpoint taken in one call.
#[derive(Debug)]
#[must_use = "a checkpoint can have failed"]
pub struct CheckpointReport {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Its figures, if it completed.
    pub figures: Option<CheckpointFigures>,
    /// Events in the order in which they happened, and what failed, if something did.
    pub step: Step,
}

impl CheckpointReport {
    /// The figures of a completed checkpoint.
    ///
    /// # Errors
    ///
    /// What failed.
    pub fn into_figures(self) -> Result<CheckpointFigures> {
        match (self.figures, self.step.failure) {
            (Some(figures), _) => Ok(figures),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(Error::aborted(self.id)),
        }
    }
}

impl<B: Backend> Job<B> {
    /// Takes a checkpoint: triggers it, writes and acknowledges all parts, and publishes it.
    ///
    /// The job stands still meanwhile; [`Job::start_checkpoint`] lets it go on. A publish of which nobody knows whether it
    /// happened is settled first where it stands in the way.
    ///
    /// # Errors
    ///
    /// As [`Job::trigger`] and [`Job::finish_checkpoint`].
    pub async fn checkpoint(&mut self, kind: CheckpointKind) -> Result<CheckpointFigures> {
        self.checkpoint_report(kind).await?.into_figures()
    }

    /// As [`Job::checkpoint`], with the events.
    ///
    /// Dropping the future leaves the checkpoint pending until it is aborted or expires.
    ///
    /// # Errors
    ///
    /// As [`Job::trigger`]; what fails later is in the report.
    pub async fn checkpoint_report(&mut self, kind: CheckpointKind) -> Result<CheckpointReport> {
        let mut settled = self.make_way(kind).await;
        if let Some(failure) = settled.failure {
            return Err(failure);
        }
        let writing = self.start_checkpoint(kind)?;
        let parts = writing.run().await;
        let mut report = self.finish_report(parts).await;
        settled.append(std::mem::take(&mut report.step));
        Ok(CheckpointReport { step: settled, ..report })
    }

    /// Ends publishes in doubt that keep a trigger from being taken: the store may answer again.
    pub(super) async fn make_way(&mut self, kind: CheckpointKind) -> Step {
        if self.held.is_some() || !self.coordinator.is_blocked_by_publish(kind) {
            return Step::default();
        }
        let answer = self.coordinator.end_interrupted(self.clock.now()).await;
        self.follow(answer)
    }
}
