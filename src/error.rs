//! What went wrong, sorted by what the caller should do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use lowtide_format::{CheckpointId, FormatError, FormatErrorKind, StoreError, StoreErrorKind};
use lowtide_registry::RegistryError;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an [`Error`]. Prints in kebab-case, as scripts expect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes are damaged: restore from another checkpoint. Trying again cannot help.
    Corrupt,
    /// A file that a checkpoint lists is not there: restore from another checkpoint.
    Missing,
    /// The bytes are sound but do not fit: another format version, codec or number of key groups.
    Incompatible,
    /// There is no such checkpoint, job or state.
    NotFound,
    /// The directory holds checkpoints or savepoints already: restore, choose another, or force.
    NotEmpty,
    /// Another coordinator has taken over: stop.
    Fenced,
    /// The request makes no sense now: correct it.
    InvalidArgument,
    /// The store failed; trying again may help.
    Store,
    /// The checkpoint attempt has ended without completing; the next checkpoint carries its changes.
    Aborted,
    /// The work was cancelled, or its thread was lost.
    Cancelled,
    /// A configured limit is reached.
    LimitExceeded,
    /// The key group is not restored yet: wait for it.
    NotReady,
    /// All is restored: use the job.
    Restored,
}

impl ErrorKind {
    /// Its name, in kebab-case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Missing => "missing",
            Self::Incompatible => "incompatible",
            Self::NotFound => "not-found",
            Self::NotEmpty => "not-empty",
            Self::Fenced => "fenced",
            Self::InvalidArgument => "invalid-argument",
            Self::Store => "store",
            Self::Aborted => "aborted",
            Self::Cancelled => "cancelled",
            Self::LimitExceeded => "limit-exceeded",
            Self::NotReady => "not-ready",
            Self::Restored => "restored",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What went wrong: a kind for the caller, a sentence for the log, and the cause if there is one.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of that kind; `message` is a lower-case sentence that names object and part.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// An error of kind `invalid-argument`.
    #[must_use]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An error of kind `not-found`.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// An error of kind `incompatible`.
    #[must_use]
    pub fn incompatible(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incompatible, message)
    }

    /// An error of kind `cancelled`.
    #[must_use]
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// The checkpoint will not complete.
    #[must_use]
    pub fn aborted(id: CheckpointId) -> Self {
        Self::new(ErrorKind::Aborted, format!("{id} was aborted"))
    }

    /// The thread that wrote a snapshot panicked or was shut down.
    #[must_use]
    pub fn writer_lost(source: &(dyn StdError + Send + Sync)) -> Self {
        Self::cancelled(format!("the thread that wrote the snapshot is lost: {source}"))
    }

    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether a stored object is damaged or gone, so that an older checkpoint may still be whole.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::Missing)
    }

    /// For those who look for damage: it is a finding, and a store that cannot be read is an error.
    pub(crate) fn into_finding(self) -> Result<Self> {
        if self.kind == ErrorKind::Store { Err(self) } else { Ok(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        let kind = match error.kind() {
            FormatErrorKind::Corrupt => ErrorKind::Corrupt,
            FormatErrorKind::Incompatible => ErrorKind::Incompatible,
            FormatErrorKind::LimitExceeded => ErrorKind::LimitExceeded,
            _ => ErrorKind::InvalidArgument,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::NotFound => ErrorKind::Missing,
            _ => ErrorKind::Store,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<RegistryError> for Error {
    fn from(error: RegistryError) -> Self {
        Self::invalid_argument(error.to_string()).caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_prints_as_scripts_spell_it() {
        assert_eq!(ErrorKind::InvalidArgument.to_string(), "invalid-argument");
        assert_eq!(ErrorKind::NotEmpty.to_string(), "not-empty");
    }

    #[test]
    fn only_damage_lets_a_restore_fall_back() {
        assert!(Error::new(ErrorKind::Missing, "x").is_damage());
        assert!(!Error::new(ErrorKind::Store, "x").is_damage(), "a store that fails is no reason to go back");
        assert!(!Error::incompatible("x").is_damage());
    }
}
