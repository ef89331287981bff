//! What the registry refuses.

use lowtide_format::FileId;

use crate::registry::Holder;

/// What the registry refuses. Nothing has changed when one is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A set was to be derived from, or pinned for, a holder that is not known (any more).
    #[error("{holder} is not known to the registry")]
    UnknownHolder {
        /// The holder asked for.
        holder: Holder,
    },
    /// A holder was registered again with other files than before.
    #[error("{holder} is registered already with other files ({known} files known, {given} given)")]
    Different {
        /// The holder.
        holder: Holder,
        /// Number of files it lists.
        known: usize,
        /// Number of files of the second registration.
        given: usize,
    },
    /// A file that the base does not list was to be kept or dropped: it may be deleted already.
    #[error("file {} at byte {} is not listed by {base}", .file.object, .file.offset)]
    NotListed {
        /// The file.
        file: FileId,
        /// The holder that should list it.
        base: Holder,
    },
    /// More files than the registry can number.
    #[error("the registry is full at {files} files")]
    Full {
        /// Number of files known.
        files: usize,
    },
}

/// What the caller should do about a [`RegistryError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegistryErrorKind {
    /// What was asked contradicts what is registered: refuse the message that asked for it.
    InvalidArgument,
    /// A limit is reached.
    LimitExceeded,
}

impl RegistryError {
    /// What the caller should do.
    #[must_use]
    pub const fn kind(&self) -> RegistryErrorKind {
        match self {
            Self::UnknownHolder { .. } | Self::Different { .. } | Self::NotListed { .. } => {
                RegistryErrorKind::InvalidArgument
            }
            Self::Full { .. } => RegistryErrorKind::LimitExceeded,
        }
    }
}
