//! Publishing: from the last acknowledgement to the verified member, through every failure.

use std::sync::Arc;

use bytes::Bytes;
use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{
    CheckpointId, Compression, FileId, ObjectPath, PublishedRef, SequenceMember, SequenceStep, UploadId, xxh3,
};

use super::machine::{Doubt, Draft, Machine, Truth};
use super::view::{ListedFile, View};
use super::{AbortReason, Coordinator, Event};
use crate::clock::Millis;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::{AppendError, Settlement};

/// How often a publish is decided anew because the head of the sequence moved on under it.
const DECISIONS_MAX: usize = 16;

/// At most this many names are handed on for deletion; more are left to a sweep.
const TRASH_MAX: usize = 1_000;

/// A publish under way. It outlives the future that carries it.
#[derive(Clone, Debug)]
pub(super) struct PublishAttempt {
    pub(super) reference: PublishedRef,
    view: Arc<View>,
}

/// A publish that was given up and may still have happened.
#[derive(Clone, Debug)]
pub(super) struct DoubtfulPublish {
    pub(super) attempt: PublishAttempt,
    doubt: Doubt,
}

impl Coordinator {
    /// Publishes a checkpoint that everybody has acknowledged.
    ///
    /// # Errors
    ///
    /// `fenced`. Other failures are told by the events and by `take_failure`.
    pub(super) async fn publish(&mut self, id: CheckpointId, now: Millis) -> Result<()> {
        let draft = match self.machine.begin_publish(id, now) {
            Ok(draft) => draft,
            Err(error) => {
                self.failure = Some(error);
                self.give_up(id, AbortReason::Contradicted);
                return Ok(());
            }
        };
        let stored = match self.refused(&draft).await {
            None => self.store_manifest(draft, now).await,
            Some(error) => {
                // An acknowledged chain that lists such a file can never be published: it is no base any more.
                self.machine.forget_chains();
                Err(error)
            }
        };
        if let Err(error) = stored {
            self.failure = Some(error);
            self.give_up(id, AbortReason::Publish);
            return Ok(());
        }
        self.append_attempt(id, now).await
    }

    /// Why a checkpoint cannot be published: a file that may be swept, or one that is gone.
    async fn refused(&self, draft: &Draft) -> Option<Error> {
        let id = draft.manifest.checkpoint;
        if let Some(error) = self.swept(id, &draft.unpublished) {
            return Some(error);
        }
        for file in &draft.unproven {
            match self.store.length(&file.object).await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let message = format!("{}, which {id} lists, is not there", file.object);
                    return Some(Error::new(ErrorKind::Missing, message));
                }
                Err(error) => return Some(error.into()),
            }
        }
        None
    }

    /// Rule K1: the manifest first.
    async fn store_manifest(&mut self, draft: Draft, now: Millis) -> Result<()> {
        let Draft { manifest, view, .. } = draft;
        let checkpoint = manifest.checkpoint;
        let bytes = Bytes::from(manifest.encode(Compression::default())?);
        let name = ObjectPath::Manifest { checkpoint, upload: self.ids.next(now) }.name();
        let reference = PublishedRef {
            checkpoint,
            generation: manifest.generation,
            kind: manifest.kind,
            manifest: name.clone(),
            length: bytes.len() as u64,
            checksum: xxh3(&bytes),
            unclaimed: manifest.unclaimed,
            owned: true,
        };
        if let Some(pending) = self.machine.pending.get_mut(&checkpoint) {
            pending.manifest = Some(name.clone());
        }
        self.attempts.insert(checkpoint, PublishAttempt { reference, view: Arc::new(view) });
        Ok(self.store.put_data(&name, bytes).await?)
    }

    async fn append_attempt(&mut self, id: CheckpointId, now: Millis) -> Result<()> {
        for _ in 0..DECISIONS_MAX {
            let Some(attempt) = self.attempts.get(&id).cloned() else { return Ok(()) };
            let truth = self.machine.truth_with(&attempt.reference, &attempt.view);
            let step = SequenceStep::Publish { checkpoint: id };
            if is_broken(Break::DeleteBeforePublish) {
                let _ = self.store.delete(&truth.trash).await;
            }
            match self.try_append(step, truth, now).await {
                Ok(()) => return self.complete(id, now),
                Err(AppendError::Settled(member)) => self.doubt_applied(&member, now)?,
                Err(AppendError::Moved) => {
                    if let Some(error) = self.refused_by_boundary(&attempt) {
                        self.machine.forget_chains();
                        self.failure = Some(error);
                        self.give_up(id, AbortReason::Publish);
                        return Ok(());
                    }
                }
                Err(error) => return self.attempt_failed(id, error),
            }
        }
        self.failure = Some(Error::new(ErrorKind::Store, "the sequence did not stand still"));
        self.give_up(id, AbortReason::Publish);
        Ok(())
    }

    fn attempt_failed(&mut self, id: CheckpointId, error: AppendError) -> Result<()> {
        match error {
            AppendError::NotApplied(error) => {
                self.failure = Some(error);
                self.give_up(id, AbortReason::Publish);
            }
            AppendError::Doubtful(error) => {
                self.failure = Some(error);
                self.give_up_in_doubt(id);
            }
            // Nothing is known: the checkpoint stays pending and in doubt.
            AppendError::Unreadable(error) => self.failure = Some(error),
            AppendError::Fenced { error, answered } => {
                self.stop(answered.then_some(id));
                return Err(error);
            }
            AppendError::Moved | AppendError::Settled(_) => {}
        }
        Ok(())
    }

    /// The head has moved on to a sweep boundary. What was kept from a base that is let go by now may be swept as well.
    fn refused_by_boundary(&self, attempt: &PublishAttempt) -> Option<Error> {
        let unpublished = self.machine.unpublished(attempt.view.files().map(ListedFile::id));
        self.swept(attempt.reference.checkpoint, &unpublished)
    }

    /// An error if one of these files, which no published checkpoint lists, falls under the sweep boundary.
    fn swept(&self, id: CheckpointId, unpublished: &[FileId]) -> Option<Error> {
        let before = |upload: UploadId| upload.millis() < self.sweep_boundary.0;
        let swept = unpublished.iter().find(|file| {
            ObjectPath::parse(file.object.as_str()).and_then(ObjectPath::upload).is_some_and(before)
        });
        swept.map(|file| {
            let message = format!("{} of {id} is older than the sweep boundary", file.object);
            Error::new(ErrorKind::Aborted, message)
        })
    }

    /// The member of the attempt is verified.
    fn complete(&mut self, id: CheckpointId, now: Millis) -> Result<()> {
        let Some(PublishAttempt { reference, view }) = self.attempts.remove(&id) else { return Ok(()) };
        self.doubts_dispelled();
        let completed = self.machine.published(reference, view, None, now)?;
        self.untold.extend(completed);
        self.forget_ended_attempts();
        Ok(())
    }

    /// The publish did not happen.
    fn give_up(&mut self, id: CheckpointId, reason: AbortReason) {
        self.untold.extend(self.machine.abort(id, reason));
        self.forget_ended_attempts();
    }

    /// An interrupted publish can have been overtaken.
    fn forget_ended_attempts(&mut self) {
        let pending = &self.machine.pending;
        self.attempts.retain(|id, _| pending.contains_key(id));
    }

    /// The publish may still happen (rule K3).
    fn give_up_in_doubt(&mut self, id: CheckpointId) {
        let Some(attempt) = self.attempts.remove(&id) else { return self.give_up(id, AbortReason::Publish) };
        let (aborted, doubt) = self.machine.abort_in_doubt(id);
        self.untold.extend(aborted);
        self.doubts.extend(doubt.map(|doubt| DoubtfulPublish { attempt, doubt }));
    }

    /// Another member is at the number of the doubtful publishes: they did not happen.
    fn doubts_dispelled(&mut self) {
        for DoubtfulPublish { doubt, .. } in std::mem::take(&mut self.doubts) {
            self.machine.doubt_dispelled(&doubt);
        }
    }

    /// One of the publishes in doubt did happen; the others, for the same number, did not.
    fn doubt_applied(&mut self, member: &SequenceMember, now: Millis) -> Result<()> {
        let names = |attempt: &PublishAttempt| {
            let SequenceStep::Publish { checkpoint } = member.step else { return false };
            attempt.reference.checkpoint == checkpoint
                && member
                    .published(checkpoint)
                    .is_some_and(|there| there.manifest == attempt.reference.manifest)
        };
        if let Some(id) =
            self.attempts.values().find(|attempt| names(attempt)).map(|one| one.reference.checkpoint)
        {
            return self.complete(id, now);
        }
        let applied = self.doubts.iter().position(|doubtful| names(&doubtful.attempt));
        let applied = applied.map(|at| self.doubts.remove(at));
        self.doubts_dispelled();
        let found_out = match applied {
            Some(DoubtfulPublish { attempt: PublishAttempt { reference, view }, doubt }) => {
                self.machine.published(reference, view, Some(&doubt), now)?
            }
            None => self.follow(member),
        };
        self.untold.extend(found_out);
        Ok(())
    }

    /// A member that let something go, and was in doubt, is there: what it does not list is gone.
    fn follow(&mut self, member: &SequenceMember) -> Vec<Event> {
        let known = self.machine.checkpoints.keys().chain(self.machine.savepoints.keys()).copied();
        let gone: Vec<CheckpointId> = known.filter(|id| member.published(*id).is_none()).collect();
        let checkpoint = |id: &CheckpointId| self.machine.checkpoints.contains_key(id);
        let subsumed: Vec<CheckpointId> = gone.iter().copied().filter(checkpoint).collect();
        self.machine.drop_checkpoints(&gone);
        subsumed.into_iter().map(Event::Subsumed).collect()
    }

    /// Finds out what became of publishes in doubt, as far as reading tells.
    ///
    /// # Errors
    ///
    /// `fenced`; what kept it from reading.
    pub(super) async fn settle(&mut self, now: Millis) -> Result<()> {
        if self.sequence.is_fenced() {
            return Err(self.sequence.fenced_error());
        }
        match self.sequence.settle().await {
            Ok(Settlement::Nothing | Settlement::Absent) => Ok(()),
            Ok(Settlement::Applied(member)) => self.doubt_applied(&member, now),
            Ok(Settlement::Refused) => {
                self.adopt_boundary();
                self.doubts_dispelled();
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::Fenced {
                    self.stop(None);
                }
                Err(error)
            }
        }
    }

    /// Gives up a publish whose future was dropped or that could not be read back, unless it has happened.
    pub(super) async fn end_attempt(
        &mut self,
        id: CheckpointId,
        reason: AbortReason,
        now: Millis,
    ) -> Result<()> {
        if !self.sequence.is_doubtful() {
            // It had not come to the create.
            self.give_up(id, reason);
            return Ok(());
        }
        // Another publish in doubt can be the one that has happened.
        match self.settle(now).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Fenced => return Err(error),
            // Saying that it was aborted could turn out to be wrong: it stays pending, and is asked about again.
            Err(error) => {
                self.failure = Some(error);
                return Ok(());
            }
        }
        if self.machine.is_publishing(id) && self.sequence.is_doubtful() {
            match self.append(SequenceStep::Retention, Machine::truth, now).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Fenced => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(());
                }
            }
        }
        if self.machine.is_publishing(id) {
            self.give_up(id, reason);
        }
        Ok(())
    }

    /// Ends the doubts by taking their number.
    pub(super) async fn dispel(&mut self, now: Millis) -> Result<()> {
        self.settle(now).await?;
        if !self.sequence.is_doubtful() && self.doubts.is_empty() {
            return Ok(());
        }
        self.append(SequenceStep::Retention, Machine::truth, now).await
    }

    /// Appends a member that says what `truth` makes of the machine; doubts are settled by it.
    ///
    /// # Errors
    ///
    /// `fenced`; `store` if it did not happen, or may have happened: the caller's decision then counts as not taken,
    /// and is settled later.
    pub(super) async fn append(
        &mut self,
        step: SequenceStep,
        truth: impl Fn(&Machine) -> Truth,
        now: Millis,
    ) -> Result<()> {
        for _ in 0..DECISIONS_MAX {
            match self.try_append(step, truth(&self.machine), now).await {
                Ok(()) => {
                    self.doubts_dispelled();
                    return Ok(());
                }
                Err(AppendError::Settled(member)) => self.doubt_applied(&member, now)?,
                Err(AppendError::Moved) => {}
                Err(AppendError::Fenced { error, .. }) => {
                    self.stop(None);
                    return Err(error);
                }
                Err(
                    AppendError::NotApplied(error)
                    | AppendError::Doubtful(error)
                    | AppendError::Unreadable(error),
                ) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Store, "the sequence did not stand still"))
    }

    async fn try_append(&mut self, step: SequenceStep, truth: Truth, now: Millis) -> Result<(), AppendError> {
        let Truth { checkpoints, savepoints, restored_from, next_checkpoint, mut trash } = truth;
        trash.extend(self.deleter.outstanding(TRASH_MAX.saturating_sub(trash.len())));
        let member = SequenceMember {
            number: self.sequence.next_number(),
            generation: self.machine.generation,
            token: self.ids.next(now),
            created_millis: now.0,
            step,
            checkpoints,
            savepoints,
            sweep_boundary_millis: self.sweep_boundary.0,
            next_checkpoint,
            restored_from,
            trash,
        };
        let appended = self.sequence.append(member).await;
        if matches!(appended, Err(AppendError::Moved)) {
            self.adopt_boundary();
            self.doubts_dispelled();
        }
        appended
    }

    fn adopt_boundary(&mut self) {
        let boundary = self.sequence.head().map_or(0, |head| head.sweep_boundary_millis);
        self.sweep_boundary = self.sweep_boundary.max(Millis(boundary));
    }

    /// Rule K5. Files of this generation that were never published are free. A publish in doubt may have happened and its
    /// checkpoint may be the new coordinator's, so nothing of it is touched; `answered` is one that certainly has not.
    fn stop(&mut self, answered: Option<CheckpointId>) {
        for id in self.pending() {
            if !self.attempts.contains_key(&id) || Some(id) == answered {
                self.machine.abort(id, AbortReason::Failover);
            }
        }
        self.machine.forget_chains();
        self.hand_over_free();
    }
}
