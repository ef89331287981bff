//! What happens to a job beside its checkpoints: deletions, savepoints, schedules, the loss of its coordinator, its
//! end.
//!
//! Owns: what the loss of a coordinator means for the attempts of the subtasks. Does not own: the decisions
//! (`coordinator`).

use lowtide_format::{CheckpointId, CheckpointKind};
use lowtide_registry::Retention;

use super::checkpoint::CheckpointReport;
use super::steps::Step;
use super::{Job, Notices};
use crate::backend::Backend;
use crate::coordinator::{AbortReason, Coordinator, DeletionReport, Due, Event, Published, Start};
use crate::error::{Error, ErrorKind, Result};

/// What a coordinator that was lost and replaced has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// The pending checkpoints that are gone, ids ascending.
    pub events: Vec<Event>,
    /// Checkpoints that are retained.
    pub checkpoints: usize,
    /// Data objects that they list.
    pub files: usize,
}

impl<B: Backend> Job<B> {
    /// The coordinator is lost and another one takes over; subtasks and their state stay.
    ///
    /// Pending checkpoints are gone; a publish of which the lost coordinator had no answer is complete if it happened.
    /// Once the new one has taken over, nothing of the old one can be published any more, so what pending checkpoints
    /// have uploaded is deleted, unless something published lists it.
    ///
    /// # Errors
    ///
    /// `store` if the directory could not be read; the job is then without a coordinator that can publish, and this
    /// can be called again.
    pub async fn failover(&mut self) -> Result<Failover> {
        self.held = None;
        let mut options = super::start::coordinator_options(&self.name, &self.options, &self.routing);
        let attempts = self.subtasks.iter().flat_map(|subtask| subtask.attempts.keys());
        let triggered = attempts.chain(self.last_triggered.as_ref()).max();
        options.known_id_max = triggered.copied().max(self.restored);
        let (now, ids) = (self.clock.now(), self.uploads.clone());
        let (coordinator, recovered) =
            Coordinator::start(self.store.clone(), options, Start::Recover, now, ids).await?;
        // What the lost one had found out and told nobody.
        let mut events = self.take_events();
        let pending = self.coordinator.pending();
        let lost = std::mem::replace(&mut self.coordinator, coordinator);
        self.retired.push(lost.deleter());
        let published = recovered.published;
        let happened = |id: CheckpointId| match published.of_generation(lost.generation(), id) {
            Some(_) => Event::Completed(id),
            None => Event::Aborted(id, AbortReason::Failover),
        };
        self.generations.push(self.coordinator.generation());
        self.not_ours = self.others(&published);
        let ended: Vec<Event> = pending.into_iter().map(happened).collect();
        self.discard_attempts(&published);
        self.deliver(&ended);
        events.extend(ended);
        self.parts.clear();
        let checkpoints = published.checkpoints.iter().filter(|found| found.reference().owned).count();
        Ok(Failover { events, checkpoints, files: recovered.files })
    }

    /// The newest checkpoint of the directory, if another job published it: the coordinator's next base, and none for
    /// subtasks that were not restored from it, whatever they froze under the same id.
    fn others(&self, published: &Published) -> Option<CheckpointId> {
        let newest = published.checkpoints.iter().rev().find(|found| found.reference().owned)?;
        let ours = self.generations.contains(&newest.reference().generation);
        let id = newest.id();
        (!ours && self.restored != Some(id)).then_some(id)
    }

    /// Ends every attempt after a take-over: what it uploaded is deleted unless something published lists it.
    ///
    /// An attempt that was published, and whose notice was lost, is no failure: the next base is that checkpoint.
    fn discard_attempts(&mut self, published: &Published) {
        let mut left = Vec::new();
        for subtask in &mut self.subtasks {
            for (id, attempt) in std::mem::take(&mut subtask.attempts) {
                let happened = published.of_generation(attempt.generation, id).is_some();
                if self.notices == Notices::Delivered && !happened {
                    subtask.backend.aborted(id);
                }
                left.extend(attempt.end_with_all());
            }
            left.append(&mut subtask.unconfirmed);
        }
        self.coordinator.discard(left);
    }

    /// Carries out the deletions that have been decided, and returns when they are done or have failed.
    ///
    /// Otherwise they are worked off in the background, see [`Deletions`](super::Deletions).
    ///
    /// # Errors
    ///
    /// `fenced`, after what was free has been deleted.
    pub async fn run_deletions(&mut self) -> Result<DeletionReport> {
        if let Some(deleting) = self.deleting.take() {
            // If it was lost, what it had left is in the queue again.
            drop(deleting.await);
        }
        for deleter in &self.retired {
            deleter.run().await;
        }
        self.retired.retain(|deleter| deleter.backlog() > 0);
        let now = self.clock.now();
        let failed = self.clean_up_as_participants().await;
        let report = self.coordinator.run_deletions(now).await;
        self.deliver_untold();
        let report = report?;
        Ok(DeletionReport { failed: report.failed + failed, ..report })
    }

    /// Deletes a savepoint of the job's directory.
    ///
    /// # Errors
    ///
    /// `not-found` if there is no such savepoint, `store`, `fenced`.
    pub async fn delete_savepoint(&mut self, id: CheckpointId) -> Result<()> {
        let now = self.clock.now();
        let deleted = self.coordinator.delete_savepoint(id, now).await;
        self.deliver_untold();
        deleted
    }

    /// Keeps another number of completed checkpoints from now on; those beyond it are let go at once.
    ///
    /// # Errors
    ///
    /// `store`, `fenced`; the number is then as before.
    pub async fn set_retained(&mut self, retained: Retention) -> Result<Vec<Event>> {
        let now = self.clock.now();
        let answer = self.coordinator.set_retained(retained, now).await;
        self.deliver_untold();
        let events = answer?;
        self.options.retained = retained;
        Ok(self.told(events))
    }

    /// When the next periodic checkpoint is due.
    #[must_use]
    pub fn due(&self) -> Due {
        self.coordinator.due(self.clock.now())
    }

    /// Gives up checkpoints whose time has run out, and takes a checkpoint if one is due.
    ///
    /// Call it from a timer; a job without an interval only loses what has expired.
    ///
    /// # Errors
    ///
    /// `fenced`, and as [`Job::trigger`]. What fails later is in the report.
    pub async fn tick(&mut self) -> Result<Option<CheckpointReport>> {
        let expired = self.expire_overdue().await.into_result()?;
        for event in expired {
            tracing::warn!(job = %self.name, event = %event, "the time of a checkpoint has run out");
        }
        if self.due() == Due::Blocked {
            for event in self.make_way(CheckpointKind::Checkpoint).await.into_result()? {
                tracing::warn!(job = %self.name, event = %event, "a publish in doubt is settled");
            }
        }
        if self.due() == Due::Now {
            return self.checkpoint_report(CheckpointKind::Checkpoint).await.map(Some);
        }
        Ok(None)
    }

    /// Gives up every pending checkpoint whose time has run out.
    pub async fn expire_overdue(&mut self) -> Step {
        let now = self.clock.now();
        let answer = self.coordinator.expire(now).await;
        self.follow(answer)
    }

    /// Whether more checkpoints in a row have failed than is tolerable: the job should be restarted.
    #[must_use]
    pub fn too_many_failures(&self) -> bool {
        self.coordinator.too_many_failures()
    }

    /// Ends the job in order: pending checkpoints are aborted, what was decided is deleted, what is retained stays. The
    /// sequence says so, and any process may sweep the directory then.
    ///
    /// # Errors
    ///
    /// `store` if something could not be aborted. A job that another one has replaced just ends.
    pub async fn stop(mut self) -> Result<()> {
        self.held = None;
        for id in self.coordinator.pending() {
            match self.abort(id).await.into_result() {
                Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
                other => drop(other?),
            }
        }
        self.coordinator.forget_acknowledged();
        let deleted = self.run_deletions().await;
        if deleted.is_ok()
            && let Err(error) = self.coordinator.end(self.clock.now()).await
        {
            tracing::warn!(job = %self.name, error = %error, "the end is not in the sequence, as after a crash");
        }
        match deleted {
            Err(error) if error.kind() == ErrorKind::Fenced => Ok(()),
            Err(error) => Err(error),
            Ok(report) if report.failed > 0 => {
                Err(Error::new(ErrorKind::Store, format!("{} objects could not be deleted", report.failed)))
            }
            Ok(_) => Ok(()),
        }
    }
}
