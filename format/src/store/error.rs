//! What can go wrong with a store, and whether it can have happened nevertheless.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{ErrorSource, FormatError};

/// What was asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Writing an object under a name that is used once.
    Put,
    /// Making an object that must not exist.
    Create,
    /// Reading an object or a part of it.
    Get,
    /// Listing objects.
    List,
    /// Deleting an object.
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Put => "put",
            Self::Create => "create",
            Self::Get => "get",
            Self::List => "list",
            Self::Delete => "delete",
        })
    }
}

/// Whether a failed operation can have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did not happen. Repeating it, or giving up, is safe.
    NotApplied,
    /// It may have happened. Only reading back tells; nothing may be deleted before that.
    Unknown,
}

/// What the caller should do about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The object is certainly not there.
    NotFound,
    /// The store failed; the same may succeed later.
    Transient,
    /// The store refuses: correct the credentials or permissions.
    Denied,
    /// The object was replaced, or is shorter than what was asked for, or longer than it should be.
    Changed,
    /// The object is larger than the limit given.
    TooLarge,
    /// The store cannot do this at all.
    Unsupported,
}

/// An operation on a store failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} of object {object:?} failed: {source}")]
pub struct StoreError {
    /// What was asked.
    pub operation: Operation,
    /// The object or folder, relative to the root.
    pub object: String,
    /// What to do about it.
    pub kind: StoreErrorKind,
    /// Whether it can have taken effect.
    pub outcome: Outcome,
    /// What the store said.
    pub source: ErrorSource,
}

/// The facts of a read that gave other bytes than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the store gave {have} of {need} bytes")]
    Short { need: u64, have: u64 },
    #[error("the store gave more than the {need} bytes asked for")]
    Long { need: u64 },
    #[error("the object has {bytes} bytes, above the limit of {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("the object has {bytes} bytes instead of {expected}")]
    Object { bytes: u64, expected: u64 },
    #[error("the bytes asked for end after any object")]
    OutOfRange,
}

impl StoreError {
    pub(super) fn new(operation: Operation, object: &str, source: object_store::Error) -> Self {
        use object_store::Error as E;
        let kind = match &source {
            E::NotFound { .. } => StoreErrorKind::NotFound,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => StoreErrorKind::Denied,
            E::Precondition { .. } | E::NotModified { .. } => StoreErrorKind::Changed,
            E::InvalidPath { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::UnknownConfigurationKey { .. } => StoreErrorKind::Unsupported,
            _ => StoreErrorKind::Transient,
        };
        // Only an answer that says "no" is a proof; anything else may be a lost reply.
        let outcome = match (operation, kind) {
            (Operation::Get | Operation::List, _) => Outcome::NotApplied,
            (_, StoreErrorKind::Denied | StoreErrorKind::Unsupported) => Outcome::NotApplied,
            _ => Outcome::Unknown,
        };
        Self { operation, object: object.to_owned(), kind, outcome, source: Arc::new(source) }
    }

    pub(super) fn of_body(object: &str, kind: StoreErrorKind, source: BodyError) -> Self {
        let (operation, outcome) = (Operation::Get, Outcome::NotApplied);
        Self { operation, object: object.to_owned(), kind, outcome, source: Arc::new(source) }
    }

    pub(super) fn of_local(operation: Operation, path: &Path, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => StoreErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => StoreErrorKind::Denied,
            _ => StoreErrorKind::Transient,
        };
        let object = path.display().to_string();
        Self { operation, object, kind, outcome: Outcome::NotApplied, source: Arc::new(source) }
    }

    pub(super) fn of_path(prefix: &str, source: object_store::path::Error) -> Self {
        let (kind, outcome) = (StoreErrorKind::Unsupported, Outcome::NotApplied);
        Self {
            operation: Operation::List,
            object: prefix.to_owned(),
            kind,
            outcome,
            source: Arc::new(source),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the object is certainly not there, as opposed to a failure to find out.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == StoreErrorKind::NotFound
    }
}

/// Reading a file failed: the store did, or the bytes are not those that a manifest lists.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store failed or lacks the object.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bytes are damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
}
