//! The steps of a checkpoint, one at a time.
//!
//! Owns: the order of messages between subtasks and coordinator, and what each does to the attempts. Does not
//! own: what the coordinator makes of a message (`coordinator`), the upload (`upload`).

use std::sync::Arc;
use std::time::Duration;

use lowtide_format::{CheckpointId, CheckpointKind, Generation};

use super::attempt::{Attempt, Phase};
use super::background::Writer;
use super::figures::PartFigures;
use super::{Deletions, Job, Notices};
use crate::backend::{Backend, FreezeRequest};
use crate::coordinator::{Acknowledgement, BaseMode, Event, Trigger};
use crate::error::{Error, Result};
use crate::upload::UploadRequest;

/// What came of one step: events in the order in which they happened, and what failed, if something did.
///
/// A step that fails can still have events: a failed write fails the attempt, and the checkpoint is aborted.
#[derive(Debug, Default)]
#[must_use = "a step can have failed"]
pub struct Step {
    /// What happened.
    pub events: Vec<Event>,
    /// What went wrong.
    pub failure: Option<Error>,
}

impl Step {
    fn of(events: Vec<Event>) -> Self {
        Self { events, failure: None }
    }

    pub(super) fn failed(failure: Error) -> Self {
        Self { events: Vec::new(), failure: Some(failure) }
    }

    fn ignored(id: CheckpointId) -> Self {
        Self::of(vec![Event::Ignored(id)])
    }

    pub(super) fn append(&mut self, other: Self) {
        self.events.extend(other.events);
        self.failure = self.failure.take().or(other.failure);
    }

    /// The events, or the failure.
    ///
    /// # Errors
    ///
    /// What went wrong, events or not.
    pub fn into_result(self) -> Result<Vec<Event>> {
        self.failure.map_or(Ok(self.events), Err)
    }
}

/// Messages that wait for a coordinator that stands still, in order.
#[derive(Debug, Default)]
pub(super) struct Held {
    messages: Vec<Message>,
}

/// What a subtask or a user tells the coordinator about a checkpoint.
#[derive(Debug)]
enum Message {
    Acknowledge { id: CheckpointId, generation: Generation, subtask: u32, part: Box<Acknowledgement> },
    Decline { id: CheckpointId, generation: Generation, subtask: u32 },
    Abort(CheckpointId),
    Expire(CheckpointId),
}

impl<B: Backend> Job<B> {
    /// Triggers a checkpoint: the synchronous phase on all subtasks. Touches memory only.
    ///
    /// # Errors
    ///
    /// `invalid-argument` beyond the number of concurrent checkpoints or while the coordinator is held, `fenced`
    /// once another coordinator has taken over.
    pub fn trigger(&mut self, kind: CheckpointKind) -> Result<Trigger> {
        if self.held.is_some() {
            return Err(Error::invalid_argument("the coordinator stands still; release it first"));
        }
        let trigger = self.coordinator.trigger(kind, self.clock.now())?;
        self.last_triggered = Some(trigger.id);
        match self.freeze_all(&trigger) {
            Ok(()) => Ok(trigger),
            Err(error) => {
                // Nothing was written, so that nothing has to be deleted.
                let events = self.coordinator.abort_untriggered(trigger.id, self.clock.now());
                self.deliver(&events);
                Err(error)
            }
        }
    }

    fn freeze_all(&mut self, trigger: &Trigger) -> Result<()> {
        let span = tracing::debug_span!("freeze", job = %self.name, checkpoint = %trigger.id);
        let _entered = span.enter();
        for (subtask, base) in self.subtasks.iter_mut().zip(&trigger.bases) {
            let lost = base.is_some() && *base == self.not_ours;
            if lost {
                tracing::warn!(checkpoint = %trigger.id, "the base is another job's, writing everything");
            }
            let request = FreezeRequest {
                generation: trigger.generation,
                id: trigger.id,
                base: base.filter(|_| !lost),
                kind: trigger.kind,
            };
            let begun = self.clock.monotonic();
            let snapshot = subtask.backend.freeze(&self.options.backend, request)?;
            let pause = self.clock.monotonic().saturating_sub(begun);
            let set_aside_before = subtask.backend.records_set_aside();
            let attempt = Attempt::frozen(snapshot, trigger, pause, set_aside_before);
            subtask.attempts.insert(trigger.id, Box::new(attempt));
        }
        Ok(())
    }

    /// Takes the snapshot of one subtask out of the job, to be written anywhere; none if the checkpoint is no
    /// longer pending.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for an unknown subtask and for a snapshot that was taken before.
    pub fn writer(&mut self, id: CheckpointId, subtask: u32) -> Result<Option<Writer<B>>> {
        self.check_subtask(subtask)?;
        // A subtask that never heard of its end is told so now.
        let pending = self.coordinator.is_pending(id);
        let attempt = self.subtasks.get_mut(subtask as usize).and_then(|place| place.attempts.get_mut(&id));
        let Some(attempt) = attempt.filter(|_| pending) else { return Ok(None) };
        match std::mem::replace(&mut attempt.phase, Phase::Writing) {
            Phase::Frozen(snapshot) => {
                let request = UploadRequest {
                    store: self.store.clone(),
                    uploads: self.uploads.clone(),
                    clock: Arc::clone(&self.clock),
                    ledger: attempt.ledger.clone(),
                    uploads_max: self.options.uploads_max,
                    cancel: attempt.cancel.clone(),
                };
                Ok(Some(Writer { snapshot, id, subtask, pause: attempt.pause, request }))
            }
            other => {
                attempt.phase = other;
                Err(Error::invalid_argument(format!("subtask {subtask} has written {id} or is writing it")))
            }
        }
    }

    /// Writes and uploads one subtask's part: the asynchronous phase. A failure declines the checkpoint.
    ///
    /// Dropping the future stops the writer; the checkpoint then stays pending until it is aborted or expires.
    pub async fn write(&mut self, id: CheckpointId, subtask: u32) -> Step {
        match self.writer(id, subtask) {
            Ok(Some(writer)) => {
                let (uploaded, took) = writer.run().await;
                self.written(id, subtask, uploaded, took).await
            }
            Ok(None) => Step::ignored(id),
            Err(error) => Step::failed(error),
        }
    }

    /// Takes back what a writer made; a failure declines the checkpoint.
    pub(super) async fn written(
        &mut self,
        id: CheckpointId,
        subtask: u32,
        uploaded: Result<Acknowledgement>,
        took: Duration,
    ) -> Step {
        let attempt = self.subtasks.get_mut(subtask as usize).and_then(|place| place.attempts.get_mut(&id));
        let Some(attempt) = attempt else { return Step::ignored(id) };
        attempt.write = took;
        match uploaded {
            Ok(uploaded) => {
                attempt.phase = Phase::Written(Box::new(uploaded));
                Step::default()
            }
            Err(failure) => {
                tracing::warn!(job = %self.name, checkpoint = %id, subtask, error = %failure, "write failed");
                let generation = attempt.generation;
                let mut step = Step::failed(failure);
                step.append(self.tell(Message::Decline { id, generation, subtask }).await);
                step
            }
        }
    }

    /// Delivers one subtask's acknowledgement; the last one publishes the checkpoint.
    pub async fn acknowledge(&mut self, id: CheckpointId, subtask: u32) -> Step {
        // A subtask that never heard of its end has nothing left to write.
        let pending = self.coordinator.is_pending(id);
        let Some(place) = self.subtasks.get_mut(subtask as usize) else {
            return Step::failed(self.unknown_subtask(subtask));
        };
        let Some(attempt) = place.attempts.get_mut(&id) else { return Step::ignored(id) };
        match std::mem::replace(&mut attempt.phase, Phase::Acknowledged) {
            Phase::Written(uploaded) => {
                let acknowledgement = *uploaded;
                let set_aside = place.backend.records_set_aside() - attempt.set_aside_before;
                let (pause, write, generation) = (attempt.pause, attempt.write, attempt.generation);
                let part = PartFigures { pause, write, set_aside, written: acknowledgement.figures.clone() };
                self.parts.entry(id).or_default().add(part);
                let part = Box::new(acknowledgement);
                self.tell(Message::Acknowledge { id, generation, subtask, part }).await
            }
            Phase::Acknowledged => Step::ignored(id),
            other if !pending => {
                attempt.phase = other;
                Step::ignored(id)
            }
            other => {
                attempt.phase = other;
                Step::failed(Error::invalid_argument(format!("subtask {subtask} has not written {id} yet")))
            }
        }
    }

    /// One subtask says that it cannot take part: the checkpoint is aborted.
    pub async fn decline(&mut self, id: CheckpointId, subtask: u32) -> Step {
        let Some(place) = self.subtasks.get(subtask as usize) else {
            return Step::failed(self.unknown_subtask(subtask));
        };
        let Some(attempt) = place.attempts.get(&id) else { return Step::ignored(id) };
        let generation = attempt.generation;
        self.tell(Message::Decline { id, generation, subtask }).await
    }

    /// Gives a pending checkpoint up.
    pub async fn abort(&mut self, id: CheckpointId) -> Step {
        self.tell(Message::Abort(id)).await
    }

    /// Gives a pending checkpoint up as if its time had run out.
    pub async fn expire(&mut self, id: CheckpointId) -> Step {
        self.tell(Message::Expire(id)).await
    }

    /// The coordinator stands still, as a paused process would: messages wait. Test support.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// A held coordinator goes on, with the messages that wait for it.
    pub async fn release(&mut self) -> Step {
        let mut step = Step::default();
        for message in self.held.take().unwrap_or_default().messages {
            step.append(self.tell(message).await);
        }
        step
    }

    /// From now on subtasks do not hear of completed and aborted checkpoints. Test support.
    pub fn mute(&mut self) {
        self.notices = Notices::Lost;
    }

    /// From now on subtasks hear of completed and aborted checkpoints again.
    pub fn unmute(&mut self) {
        self.notices = Notices::Delivered;
    }

    /// Gives a message to the coordinator, or keeps it while the coordinator stands still.
    async fn tell(&mut self, message: Message) -> Step {
        if let Some(held) = &mut self.held {
            held.messages.push(message);
            return Step::default();
        }
        let now = self.clock.now();
        let coordinator = &mut self.coordinator;
        let answer = match message {
            Message::Acknowledge { id, generation, subtask, part } => {
                coordinator.acknowledge(id, generation, subtask, *part, now).await
            }
            Message::Decline { id, generation, subtask } => {
                coordinator.decline(id, generation, subtask, now).await
            }
            Message::Abort(id) => coordinator.abort(id, now).await,
            Message::Expire(id) => coordinator.expire_one(id, now).await,
        };
        self.follow(answer)
    }

    /// What an answer of the coordinator means for the subtasks.
    pub(super) fn follow(&mut self, answer: Result<Vec<Event>>) -> Step {
        let found_out = match answer {
            Ok(events) => events,
            Err(error) => {
                self.deliver_untold();
                return Step::failed(error);
            }
        };
        let events = self.told(found_out);
        self.delete_in_background();
        Step { events, failure: self.coordinator.take_failure() }
    }

    /// Tells subtasks what has become of checkpoints; returns it after what no step has returned yet.
    pub(super) fn told(&mut self, found_out: Vec<Event>) -> Vec<Event> {
        self.deliver(&found_out);
        let mut events = std::mem::take(&mut self.untold);
        events.extend(found_out);
        events
    }

    /// What requests that return no events have found out and no step has returned yet: a sweep, a run of deletions or
    /// the deletion of a savepoint can settle a publish in doubt. The subtasks have been told; the next step that
    /// returns events returns these first, unless they are taken before.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.deliver_untold();
        std::mem::take(&mut self.untold)
    }

    /// Tells subtasks at once what a request that returns no events has found out about checkpoints: an attempt whose
    /// end only the coordinator knows would keep what it uploaded.
    pub(super) fn deliver_untold(&mut self) {
        let events = self.coordinator.take_events();
        self.deliver(&events);
        self.untold.extend(events);
    }

    /// Tells subtasks what has become of checkpoints, unless notices are lost.
    pub(super) fn deliver(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Aborted(id, _) = event {
                self.parts.remove(id);
            }
            if self.notices == Notices::Lost {
                continue;
            }
            match event {
                Event::Completed(id) => self.deliver_completed(*id),
                Event::Aborted(id, _) => self.deliver_aborted(*id),
                _ => {}
            }
        }
    }

    fn deliver_aborted(&mut self, id: CheckpointId) {
        for subtask in 0..self.subtasks.len() {
            let Some(place) = self.subtasks.get_mut(subtask) else { continue };
            place.backend.aborted(id);
            self.end_attempts(subtask, &[id]);
        }
    }

    /// A completion also ends the older attempts of which no notice came.
    fn deliver_completed(&mut self, id: CheckpointId) {
        let lowest = self.coordinator.lowest_retained().unwrap_or(id);
        let pending = self.coordinator.pending();
        for subtask in 0..self.subtasks.len() {
            let Some(place) = self.subtasks.get_mut(subtask) else { continue };
            let kind = place.attempts.get(&id).map(|attempt| attempt.kind);
            if kind != Some(CheckpointKind::Savepoint) {
                // A savepoint is never a base, and says nothing about older checkpoints.
                place.backend.completed(id, lowest);
            }
            // Savepoints are overtaken by nothing; those that have ended all the same are not pending any more.
            let older = place.attempts.keys().copied().filter(|other| *other <= id);
            let ended: Vec<_> = older.filter(|other| *other == id || !pending.contains(other)).collect();
            self.end_attempts(subtask, &ended);
        }
    }

    /// Ends attempts of a subtask. What was acknowledged is the coordinator's, but in mode `Acknowledged` a checkpoint in
    /// flight may hold it although its own was aborted: it is remembered as long as no published checkpoint lists it.
    fn end_attempts(&mut self, subtask: usize, ended: &[CheckpointId]) {
        let may_be_base = self.options.base_mode == BaseMode::Acknowledged;
        let Some(place) = self.subtasks.get_mut(subtask) else { return };
        for id in ended {
            let Some(attempt) = place.attempts.remove(id) else { continue };
            if may_be_base && matches!(attempt.phase, Phase::Acknowledged) {
                place.unconfirmed.extend(attempt.end_with_all());
            } else {
                self.coordinator.discard(attempt.end());
            }
        }
        place.unconfirmed.retain(|object| self.coordinator.holds_unpublished(object));
    }

    /// Starts working off decided deletions beside the job, if that is how it runs.
    fn delete_in_background(&mut self) {
        let deleter = self.coordinator.deleter();
        let runs = self.deleting.as_ref().is_some_and(|deleting| !deleting.is_finished());
        if self.options.deletions == Deletions::Background && deleter.has_work() && !runs {
            self.deleting = Some(tokio::spawn(async move {
                let report = deleter.run().await;
                tracing::debug!(deleted = report.deleted, failed = report.failed, "deletions carried out");
            }));
        }
    }
}
