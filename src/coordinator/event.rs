//! What a coordinator says: triggers, events, notices.

use std::fmt;

use lowtide_format::{CheckpointId, CheckpointKind, Generation, ObjectName};

/// A checkpoint to be taken by every subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Who asks.
    pub generation: Generation,
    /// The checkpoint.
    pub id: CheckpointId,
    /// What it is to be: full where an ordinary one was asked for while the restored checkpoint is not claimed.
    pub kind: CheckpointKind,
    /// The base of each subtask's delta, by its index; none writes everything.
    pub bases: Vec<Option<CheckpointId>>,
}

impl Trigger {
    /// The oldest base of a subtask that has one; none if none has.
    #[must_use]
    pub fn base(&self) -> Option<CheckpointId> {
        self.bases.iter().flatten().min().copied()
    }
}

/// Why a checkpoint was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// Somebody asked for it.
    Requested,
    /// A subtask could not take part.
    Declined,
    /// An acknowledgement contradicts what is known.
    Contradicted,
    /// Its time ran out.
    Expired,
    /// A newer checkpoint completed.
    Overtaken,
    /// It could not be published.
    Publish,
    /// Its coordinator was replaced.
    Failover,
}

impl AbortReason {
    /// Whether it counts against the tolerable failures.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Declined | Self::Contradicted | Self::Expired | Self::Publish => true,
            Self::Requested | Self::Overtaken | Self::Failover => false,
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "asked for",
            Self::Declined => "declined by a subtask",
            Self::Contradicted => "an acknowledgement contradicts what is known",
            Self::Expired => "its time ran out",
            Self::Overtaken => "a newer checkpoint completed",
            Self::Publish => "it could not be published",
            Self::Failover => "its coordinator was replaced",
        })
    }
}

/// What happened to a checkpoint. Prints as in a scenario script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// It is published.
    Completed(CheckpointId),
    /// Retention let it go.
    Subsumed(CheckpointId),
    /// It will never be complete.
    Aborted(CheckpointId, AbortReason),
    /// A message for a checkpoint that is not pending here; nothing changed.
    Ignored(CheckpointId),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(id) => write!(f, "{id} complete"),
            Self::Subsumed(id) => write!(f, "{id} subsumed"),
            Self::Aborted(id, _) => write!(f, "{id} aborted"),
            Self::Ignored(id) => write!(f, "{id} ignored"),
        }
    }
}

/// What a subtask should know, whole each time: a lost notice is made up for by the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// The newest completed checkpoint.
    pub completed: Option<CheckpointId>,
    /// The oldest checkpoint that is kept.
    pub lowest_retained: Option<CheckpointId>,
    /// What this participant is to delete; it says so by `cleaned`, and is told again until then.
    pub clean_up: Vec<ObjectName>,
}

/// What a participant holds after a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The objects of its chain.
    pub objects: Vec<ObjectName>,
    /// Those of them that it may delete once they are named in a [`Notice`]; nothing that was restored or is shared is
    /// among them.
    pub may_clean_up: Vec<ObjectName>,
}
