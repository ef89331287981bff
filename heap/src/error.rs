//! What can go wrong in this crate, and what the caller should do about it.

use std::sync::Arc;

use lowtide_format::{CheckpointId, CodecIdentity, FormatError, KeyGroup, KeyGroupRange};

/// An error of the heap backend.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The base of a trigger is not remembered; take the checkpoint without a base.
    #[error("{base} is not remembered as a base; take the checkpoint without one")]
    BaseForgotten {
        /// The base that the trigger named.
        base: CheckpointId,
    },
    /// A checkpoint that must not have a base was given one.
    #[error("{id} is full or a savepoint and cannot be taken against {base}")]
    BaseNotAllowed {
        /// The checkpoint.
        id: CheckpointId,
        /// The base that the trigger named.
        base: CheckpointId,
    },
    /// Checkpoint ids must increase.
    #[error("{id} is not above {newest}, the newest id so far")]
    IdNotAbove {
        /// The id of the trigger.
        id: CheckpointId,
        /// The newest id so far.
        newest: CheckpointId,
    },
    /// Too many snapshots are open; close one.
    #[error("{open} snapshots are open, which is the limit; finish or drop one")]
    TooManySnapshots {
        /// How many are open.
        open: usize,
    },
    /// The backend has taken all the freezes it can tell apart; restore it from a checkpoint.
    #[error("the backend has used up its freezes; restore it from its newest checkpoint")]
    EpochsExhausted,
    /// Live entries come from too many different checkpoints; rewrite old segments or restore.
    #[error(
        "live entries come from {origins} different intervals and segments, which is the limit; rewrite old segments"
    )]
    OriginsExhausted {
        /// How many are told apart.
        origins: usize,
    },
    /// More states than a backend can have.
    #[error("state {name:?} would be one more than the {max} states a backend can have")]
    TooManyStates {
        /// The state that was asked for.
        name: String,
        /// The limit.
        max: usize,
    },
    /// The name of a state is empty or too long.
    #[error("the name of a state has {bytes} bytes; 1 to 255 are possible")]
    StateName {
        /// Its length.
        bytes: usize,
    },
    /// A state exists with other types or another codec.
    #[error("the {part} codec of state {name:?} is {stored}, asked for is {asked}")]
    StateTypeMismatch {
        /// Name of the state.
        name: String,
        /// Key, namespace or value.
        part: &'static str,
        /// The codec that it has.
        stored: Box<CodecIdentity>,
        /// The codec that was asked for.
        asked: Box<CodecIdentity>,
    },
    /// A state exists with the same codecs but other Rust types.
    #[error("state {name:?} was opened with other types of the same encoding")]
    StateTypesDiffer {
        /// Name of the state.
        name: String,
    },
    /// A state is opened while it is restored, and entries of it were read as bytes already.
    #[error(
        "entries of state {name:?} were read before it was opened; open it first, or once all is restored"
    )]
    StateRead {
        /// Name of the state.
        name: String,
    },
    /// A token of another backend was used.
    #[error("the token is of a state of another backend")]
    ForeignState,
    /// A key whose key group this backend does not hold.
    #[error("the key belongs to {key_group}, this backend holds {range}")]
    ForeignKey {
        /// The group of the key.
        key_group: KeyGroup,
        /// The groups of the backend.
        range: KeyGroupRange,
    },
    /// The writer was asked to stop.
    #[error("writing the snapshot was cancelled")]
    Cancelled,
    /// The receiver of segments failed.
    #[error("a finished segment could not be handed over")]
    Sink {
        /// What the receiver returned.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// A record could not be encoded or decoded.
    #[error("state {name:?}: {part} cannot be encoded or decoded")]
    Record {
        /// Name of the state.
        name: String,
        /// What it is about.
        part: &'static str,
        /// Why.
        #[source]
        source: Box<FormatError>,
    },
    /// A segment could not be written or read.
    #[error("a segment cannot be written or read")]
    Segment {
        /// Why.
        #[source]
        source: Box<FormatError>,
    },
    /// A snapshot was finished with another number of files than it wrote segments.
    #[error("{files} files were named for {segments} segments")]
    FilesMismatch {
        /// Files named.
        files: usize,
        /// Segments written.
        segments: usize,
    },
    /// A snapshot was written twice, or finished before it was written.
    #[error("the snapshot of {id} was {done}")]
    WrongStep {
        /// The checkpoint.
        id: CheckpointId,
        /// What is wrong.
        done: &'static str,
    },
    /// Elements were not handed in from the newest to the oldest.
    #[error("an element of {found} came after one of {before}; hand in the newest first")]
    ElementOrder {
        /// The element before.
        before: CheckpointId,
        /// The element handed in.
        found: CheckpointId,
    },
    /// An element was handed in that the readers of the restore were not told of.
    #[error(
        "an element of {found} came for {key_group}, of which the reader was not told; tell it of all elements"
    )]
    ElementUnexpected {
        /// The element handed in.
        found: CheckpointId,
        /// A key group that more elements list than were told.
        key_group: KeyGroup,
    },
    /// A reader is asked for after elements came, or a second time.
    #[error(
        "the restore of {checkpoint} has begun or has a reader; take one before the first element and clone it"
    )]
    ReaderTooLate {
        /// The checkpoint that is restored.
        checkpoint: CheckpointId,
    },
    /// A key group is read that is not restored yet; wait for it.
    #[error("{key_group} of {checkpoint} is not restored yet; wait until it is ready")]
    NotReady {
        /// The key group.
        key_group: KeyGroup,
        /// The checkpoint that is restored.
        checkpoint: CheckpointId,
    },
    /// A reader is used after the restore has finished; use the backend.
    #[error("{checkpoint} is restored; read from the backend")]
    RestoreFinished {
        /// The checkpoint that was restored.
        checkpoint: CheckpointId,
    },
    /// A reader is used after the restore failed or was dropped; restore again.
    #[error("the restore of {checkpoint} failed or was dropped; restore again and take a new reader")]
    RestoreAbandoned {
        /// The checkpoint that was being restored.
        checkpoint: CheckpointId,
    },
}

impl From<FormatError> for HeapError {
    fn from(source: FormatError) -> Self {
        Self::Segment { source: Box::new(source) }
    }
}

impl HeapError {
    /// An error of a part of a state's entries.
    pub(crate) fn record(name: &str, part: &'static str, source: FormatError) -> Self {
        Self::Record { name: name.to_owned(), part, source: Box::new(source) }
    }

    /// The same error, saying in which object damage was found.
    pub(crate) fn in_object(self, object: &str) -> Self {
        match self {
            Self::Record { name, part, source } => {
                Self::Record { name, part, source: Box::new(source.in_object(object)) }
            }
            Self::Segment { source } => Self::Segment { source: Box::new(source.in_object(object)) },
            other => other,
        }
    }
}

/// What the caller should do about a [`HeapError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeapErrorKind {
    /// The call makes no sense in this state: fix the caller.
    InvalidArgument,
    /// Take the checkpoint without a base.
    BaseForgotten,
    /// A limit is reached: the text says what helps.
    LimitReached,
    /// The bytes are sound, but of other types.
    Incompatible,
    /// The bytes are damaged: restore from another checkpoint.
    Corrupt,
    /// The caller asked to stop.
    Cancelled,
    /// The receiver of segments failed: its own error is the source.
    Sink,
    /// The key group is not restored yet: wait for it.
    NotReady,
    /// All is restored: use the backend.
    Restored,
    /// The restore ended without a backend: restore again.
    Abandoned,
}

impl HeapError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> HeapErrorKind {
        match self {
            Self::BaseForgotten { .. } => HeapErrorKind::BaseForgotten,
            Self::TooManySnapshots { .. }
            | Self::EpochsExhausted
            | Self::OriginsExhausted { .. }
            | Self::TooManyStates { .. } => HeapErrorKind::LimitReached,
            Self::StateTypeMismatch { .. } | Self::StateTypesDiffer { .. } => HeapErrorKind::Incompatible,
            Self::Cancelled => HeapErrorKind::Cancelled,
            Self::Sink { .. } => HeapErrorKind::Sink,
            Self::NotReady { .. } => HeapErrorKind::NotReady,
            Self::RestoreFinished { .. } => HeapErrorKind::Restored,
            Self::RestoreAbandoned { .. } => HeapErrorKind::Abandoned,
            Self::Record { source, .. } | Self::Segment { source } => match source.kind() {
                lowtide_format::FormatErrorKind::Corrupt => HeapErrorKind::Corrupt,
                lowtide_format::FormatErrorKind::Incompatible => HeapErrorKind::Incompatible,
                lowtide_format::FormatErrorKind::LimitExceeded => HeapErrorKind::LimitReached,
                _ => HeapErrorKind::InvalidArgument,
            },
            Self::BaseNotAllowed { .. }
            | Self::IdNotAbove { .. }
            | Self::StateName { .. }
            | Self::StateRead { .. }
            | Self::ForeignState
            | Self::ForeignKey { .. }
            | Self::FilesMismatch { .. }
            | Self::WrongStep { .. }
            | Self::ElementOrder { .. }
            | Self::ElementUnexpected { .. }
            | Self::ReaderTooLate { .. } => HeapErrorKind::InvalidArgument,
        }
    }
}
