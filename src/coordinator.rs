//! The coordinator of one directory: the protocol of DESIGN.md, sections 6 and 7, and its effects on the store.
//!
//! Owns: carrying out what the state machine decides, in the right order, and settling what may have happened. Does
//! not own: the decisions (`machine`), the commit point (`publish`), memory and uploads of the subtasks (`job`).
//!
//! # Rules
//!
//! - K1. The manifest is stored before the member that names it is appended; nothing is installed in memory before the
//!   append is verified.
//! - K2. Only what a verified member no longer lists, or what was never published, is deleted; manifests before files.
//! - K3. A publish whose reply is lost is read back. While in doubt, nothing that it lists is deleted; the doubt ends
//!   when its number is taken by a member that we know.
//! - K4. Dropping any future of a coordinator leaves it able to go on: a publish that was under way is in doubt.
//! - K5. A coordinator that was replaced stops: every request fails with `fenced`. What it had already decided to
//!   delete stays free, and it may still delete it.

mod acknowledgement;
mod attempt;
mod deletions;
mod event;
mod machine;
mod options;
mod pending;
mod published;
mod schedule;
mod start;
mod sweep;
mod unattended;
mod view;

use std::collections::BTreeMap;

use lowtide_format::{CheckpointId, CheckpointKind, FileId, Generation, ObjectName, SequenceStep, Store};
use lowtide_registry::{Holder, Retention};

pub use acknowledgement::{AcknowledgedElement, Acknowledgement, WriteFigures};
pub use deletions::{Deleter, DeletionReport};
pub use event::{AbortReason, Event, Holdings, Notice, Trigger};
pub use options::{BaseMode, Claim, Cleanup, CoordinatorOptions};
pub use published::{Published, PublishedCheckpoint, read_published};
pub use schedule::Due;
pub use start::{Recovered, Start};
pub use unattended::delete_savepoint;

pub(crate) use published::{read_manifest, read_published_past_damage};

use machine::Machine;

use crate::clock::Millis;
pub(crate) use crate::clock::UploadIdSource;
use crate::error::{Error, Result};
use crate::publish::Sequence;
use attempt::{DoubtfulPublish, PublishAttempt};
use machine::Acknowledged;

/// The coordinator of one directory. There is one at a time: a later one fences it.
#[derive(Debug)]
pub struct Coordinator {
    store: Store,
    sequence: Sequence,
    machine: Machine,
    deleter: Deleter,
    ids: UploadIdSource,
    /// Publishes under way or interrupted, by checkpoint.
    attempts: BTreeMap<CheckpointId, PublishAttempt>,
    /// Publishes that were given up and may still have happened.
    doubts: Vec<DoubtfulPublish>,
    /// Events that no request has returned yet. They lie here as soon as they have happened: the future that found them
    /// out may be dropped at its next call to the store.
    untold: Vec<Event>,
    /// Uploads begun before this time may have been swept.
    sweep_boundary: Millis,
    /// Why the last publish failed.
    failure: Option<Error>,
}

impl Coordinator {
    /// Takes the next id and triggers a checkpoint; memory only.
    ///
    /// # Errors
    ///
    /// `invalid-argument` beyond the number of concurrent checkpoints (savepoints do not count), `fenced`.
    pub fn trigger(&mut self, kind: CheckpointKind, now: Millis) -> Result<Trigger> {
        self.check_not_fenced()?;
        self.machine.trigger(kind, None, now)
    }

    /// As [`Coordinator::trigger`], with an id that the host gives: above all earlier ones, gaps allowed.
    ///
    /// # Errors
    ///
    /// As [`Coordinator::trigger`], and `invalid-argument` for an id that is too small.
    pub fn trigger_with(&mut self, id: CheckpointId, kind: CheckpointKind, now: Millis) -> Result<Trigger> {
        self.check_not_fenced()?;
        self.machine.trigger(kind, Some(id), now)
    }

    /// A checkpoint that no subtask has begun is given up, because its trigger failed. Memory only.
    pub fn abort_untriggered(&mut self, id: CheckpointId, _now: Millis) -> Vec<Event> {
        let events = self.machine.abort(id, AbortReason::Declined);
        self.hand_over_free();
        events
    }

    /// Takes the acknowledgement of one subtask; the last one publishes the checkpoint.
    ///
    /// If the publish fails, [`Coordinator::take_failure`] says why; the events say what became of the checkpoint. If
    /// they say nothing, it is still pending and in doubt, and is settled by the next request that concerns it.
    ///
    /// # Errors
    ///
    /// `fenced`; `invalid-argument` for a subtask that the job does not have.
    pub async fn acknowledge(
        &mut self,
        id: CheckpointId,
        generation: Generation,
        subtask: u32,
        part: Acknowledgement,
        now: Millis,
    ) -> Result<Vec<Event>> {
        self.check_not_fenced()?;
        let acknowledged = self.machine.acknowledge(id, generation, subtask, part)?;
        match acknowledged {
            Acknowledged::Waiting => {}
            Acknowledged::Other(events) => self.untold.extend(events),
            Acknowledged::All => self.publish(id, now).await?,
        }
        Ok(self.told())
    }

    /// A subtask says that it cannot take part: the checkpoint is aborted.
    ///
    /// # Errors
    ///
    /// `fenced`.
    pub async fn decline(
        &mut self,
        id: CheckpointId,
        generation: Generation,
        _subtask: u32,
        now: Millis,
    ) -> Result<Vec<Event>> {
        if generation == self.machine.generation {
            self.give_up_pending(id, AbortReason::Declined, now).await?;
            return Ok(self.told());
        }
        self.check_not_fenced()?;
        Ok(vec![Event::Ignored(id)])
    }

    /// Gives a pending checkpoint up.
    ///
    /// # Errors
    ///
    /// `fenced`.
    pub async fn abort(&mut self, id: CheckpointId, now: Millis) -> Result<Vec<Event>> {
        self.give_up_pending(id, AbortReason::Requested, now).await?;
        Ok(self.told())
    }

    /// Gives a pending checkpoint up as if its time had run out.
    ///
    /// # Errors
    ///
    /// `fenced`.
    pub async fn expire_one(&mut self, id: CheckpointId, now: Millis) -> Result<Vec<Event>> {
        self.give_up_pending(id, AbortReason::Expired, now).await?;
        Ok(self.told())
    }

    /// Gives up every pending checkpoint whose time has run out.
    ///
    /// # Errors
    ///
    /// `fenced`.
    pub async fn expire(&mut self, now: Millis) -> Result<Vec<Event>> {
        for id in self.machine.overdue(now) {
            self.give_up_pending(id, AbortReason::Expired, now).await?;
        }
        Ok(self.told())
    }

    /// Ends publishes that were interrupted or could not be read back: each turns out to have happened, or is given up.
    /// What fails is told by [`Coordinator::take_failure`], and the checkpoint stays pending.
    ///
    /// # Errors
    ///
    /// `fenced`.
    pub async fn end_interrupted(&mut self, now: Millis) -> Result<Vec<Event>> {
        for id in self.pending() {
            if self.machine.is_publishing(id) {
                self.give_up_pending(id, AbortReason::Publish, now).await?;
            }
        }
        Ok(self.told())
    }

    /// Whether a trigger would be refused because of a publish that was interrupted or could not be read back.
    #[must_use]
    pub fn is_blocked_by_publish(&self, kind: CheckpointKind) -> bool {
        self.machine.is_full(kind) && self.pending().iter().any(|id| self.machine.is_publishing(*id))
    }

    async fn give_up_pending(&mut self, id: CheckpointId, reason: AbortReason, now: Millis) -> Result<()> {
        self.check_not_fenced()?;
        if self.machine.is_publishing(id) {
            return self.end_attempt(id, reason, now).await;
        }
        self.untold.extend(self.machine.abort(id, reason));
        Ok(())
    }

    /// The events that no request has returned yet, in the order in which they happened. What became free with them can
    /// be deleted.
    fn told(&mut self) -> Vec<Event> {
        self.hand_over_free();
        self.take_events()
    }

    /// Events of requests that return none: a publish in doubt can turn out to have happened while something else is
    /// done. The next request that returns events returns them as well.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.untold)
    }

    /// Why the last publish failed, once.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Whether more checkpoints in a row have failed than is tolerable: the job should fail.
    #[must_use]
    pub fn too_many_failures(&self) -> bool {
        self.machine.too_many_failures()
    }

    /// When the next periodic checkpoint is due.
    #[must_use]
    pub fn due(&self, now: Millis) -> Due {
        self.machine.due(now)
    }

    /// This coordinator's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.machine.generation
    }

    /// Whether another coordinator has taken over, as far as this one knows.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.sequence.is_fenced()
    }

    /// The newest completed checkpoint of this job.
    #[must_use]
    pub fn newest(&self) -> Option<CheckpointId> {
        self.machine.newest_own()
    }

    /// The oldest completed checkpoint that is kept.
    #[must_use]
    pub fn lowest_retained(&self) -> Option<CheckpointId> {
        self.machine.lowest_retained()
    }

    /// Pending checkpoints, ids ascending.
    #[must_use]
    pub fn pending(&self) -> Vec<CheckpointId> {
        self.machine.pending.keys().copied().collect()
    }

    /// Whether a checkpoint is pending.
    #[must_use]
    pub fn is_pending(&self, id: CheckpointId) -> bool {
        self.machine.pending.contains_key(&id)
    }

    /// What is published, as this coordinator knows it; no reading.
    #[must_use]
    pub fn published(&self) -> Published {
        Published::of(self.sequence.head(), &self.store.location())
    }

    /// What a participant should know now. Lost notices are made up for by the next.
    #[must_use]
    pub fn notice(&self, subtask: u32) -> Notice {
        self.machine.notice(subtask)
    }

    /// What a participant holds of the newest checkpoint, and which of it it may clean up one day.
    #[must_use]
    pub fn holdings(&self, subtask: u32) -> Holdings {
        self.machine.holdings(subtask)
    }

    /// A participant says that it has deleted what a notice named.
    pub fn cleaned(&mut self, subtask: u32, objects: &[ObjectName]) {
        self.machine.free.cleaned(subtask, objects);
    }

    /// Who lists a file: the answer to why it is kept.
    #[must_use]
    pub fn holders(&self, file: &FileId) -> Vec<Holder> {
        self.machine.registry.holders(file)
    }

    /// Whether something in flight needs a file in the object and nothing published lists one: a coordinator that takes
    /// over does not know of it.
    pub(crate) fn holds_unpublished(&self, object: &ObjectName) -> bool {
        let published = |holder| matches!(holder, Holder::Checkpoint(_) | Holder::Savepoint(_));
        let registry = &self.machine.registry;
        registry.contains_object(object) && !registry.is_object_listed(object, published)
    }

    /// Objects that attempts of subtasks have left are deleted, unless something lists them. The caller vouches that
    /// they were never acknowledged to a coordinator that may still publish them.
    pub fn discard(&mut self, objects: Vec<ObjectName>) {
        self.machine.discard(objects);
        self.hand_over_free();
    }

    /// The subtasks end: what they have acknowledged and nobody has published is no base any more, and free.
    pub fn forget_acknowledged(&mut self) {
        self.machine.forget_chains();
        self.hand_over_free();
    }

    /// Deletes a savepoint of the directory.
    ///
    /// # Errors
    ///
    /// `not-found` if there is no such savepoint, `store`, `fenced`.
    pub async fn delete_savepoint(&mut self, id: CheckpointId, now: Millis) -> Result<()> {
        self.settle(now).await?;
        if !self.machine.savepoints.contains_key(&id) {
            return Err(Error::not_found(format!("there is no savepoint {id}")));
        }
        self.drop_published(&[id], SequenceStep::DeleteSavepoint { checkpoint: id }, now).await
    }

    /// Keeps another number of checkpoints from now on; those beyond it are let go at once.
    ///
    /// # Errors
    ///
    /// `store`, `fenced`; the number is then as before.
    pub async fn set_retained(&mut self, retained: Retention, now: Millis) -> Result<Vec<Event>> {
        self.settle(now).await?;
        let gone = retained.subsumed(&self.machine.own_checkpoints());
        if !gone.is_empty() {
            self.drop_published(&gone, SequenceStep::Retention, now).await?;
        }
        self.machine.options.retained = retained;
        self.untold.extend(gone.into_iter().map(Event::Subsumed));
        Ok(self.told())
    }

    async fn drop_published(&mut self, gone: &[CheckpointId], step: SequenceStep, now: Millis) -> Result<()> {
        self.append(step, |machine| machine.truth_without(gone), now).await?;
        self.machine.drop_checkpoints(gone);
        self.hand_over_free();
        Ok(())
    }

    /// Carries out what has been decided: settles a publish in doubt, deletes what is free, and superseded members of
    /// the sequence. What fails is tried again by the next run.
    ///
    /// # Errors
    ///
    /// `fenced`, after what was free has been deleted.
    pub async fn run_deletions(&mut self, now: Millis) -> Result<DeletionReport> {
        let settled = if self.doubts.is_empty() { Ok(()) } else { self.dispel(now).await };
        self.hand_over_free();
        let report = self.deleter.run().await;
        match settled {
            Err(error) if error.kind() == crate::ErrorKind::Fenced => Err(error),
            _ => Ok(report),
        }
    }

    /// Deletes in the background what has been decided, off the path of the next checkpoint.
    #[must_use]
    pub fn deleter(&self) -> Deleter {
        self.deleter.clone()
    }

    /// What is free or superseded becomes work for the deleter.
    fn hand_over_free(&mut self) {
        self.deleter.add(self.machine.free.take());
        self.deleter.add_members(self.sequence.take_superseded());
    }

    fn check_not_fenced(&self) -> Result<()> {
        if self.sequence.is_fenced() { Err(self.sequence.fenced_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
