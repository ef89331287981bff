//! One subtask's part in one checkpoint, from the trigger to the acknowledgement.
//!
//! Owns: the snapshot until a writer takes it, then what the writer brought back; ending at any point (rule J2).
//! Does not own: the upload (`upload`), the protocol (`coordinator`).

use std::time::Duration;

use lowtide_format::{CheckpointKind, Generation, ObjectName};

use crate::coordinator::{Acknowledgement, Trigger};
use crate::upload::Ledger;
use lowtide_heap::CancelToken;

/// How far an attempt has come.
#[derive(Debug)]
pub(super) enum Phase<S> {
    /// Frozen; nobody writes yet.
    Frozen(S),
    /// A writer has the snapshot.
    Writing,
    /// In the store, not acknowledged.
    Written(Box<Acknowledgement>),
    /// Acknowledged: its files are the coordinator's.
    Acknowledged,
}

/// One subtask's part in one checkpoint.
#[derive(Debug)]
pub(super) struct Attempt<S> {
    pub(super) generation: Generation,
    pub(super) kind: CheckpointKind,
    /// Records that the backend had set aside before, for whatever snapshot.
    pub(super) set_aside_before: u64,
    /// How long the synchronous phase took.
    pub(super) pause: Duration,
    /// How long the asynchronous phase took, once written.
    pub(super) write: Duration,
    pub(super) ledger: Ledger,
    pub(super) cancel: CancelToken,
    pub(super) phase: Phase<S>,
}

impl<S> Attempt<S> {
    pub(super) fn frozen(snapshot: S, trigger: &Trigger, pause: Duration, set_aside_before: u64) -> Self {
        Self {
            generation: trigger.generation,
            kind: trigger.kind,
            set_aside_before,
            pause,
            write: Duration::ZERO,
            ledger: Ledger::default(),
            cancel: CancelToken::new(),
            phase: Phase::Frozen(snapshot),
        }
    }

    /// Stops the writer, lets go of the snapshot, and returns every object it began, acknowledged or not. For the time
    /// after a take-over, when nothing that was acknowledged before can be published any more.
    pub(super) fn end_with_all(self) -> Vec<ObjectName> {
        self.cancel.cancel();
        self.ledger.close()
    }

    /// Stops the writer, lets go of the snapshot, and returns the objects that are nobody's now.
    pub(super) fn end(self) -> Vec<ObjectName> {
        self.cancel.cancel();
        match self.phase {
            Phase::Acknowledged => Vec::new(),
            Phase::Frozen(_) | Phase::Writing | Phase::Written(_) => self.ledger.close(),
        }
    }
}
