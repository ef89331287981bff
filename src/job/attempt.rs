//! One subtask's part in one checkpoint, from the trigger to the acknowledgement.
//!
//! Owns: the snapshot until a writer takes it, then what the writer brought back; ending at any point (rule J2).
//! Does not own: the upload (`upload`), the protocol (`coordinator`).

use std::time::Duration;

use lowtide_format::{CheckpointKind, Generation, ObjectName};

use crate::backend::CancelFlag;
use crate::coordinator::Acknowledgement;
use crate::upload::Ledger;

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
    /// How long the synchronous phase took.
    pub(super) pause: Duration,
    /// How long the asynchronous phase took, once written.
    pub(super) write: Duration,
    pub(super) ledger: Ledger,
    pub(super) cancel: CancelFlag,
    pub(super) phase: Phase<S>,
}

impl<S> Attempt<S> {
    pub(super) fn frozen(snapshot: S, generation: Generation, kind: CheckpointKind, pause: Duration) -> Self {
        Self {
            generation,
            kind,
            pause,
            write: Duration::ZERO,
            ledger: Ledger::default(),
            cancel: CancelFlag::new(),
            phase: Phase::Frozen(snapshot),
        }
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
