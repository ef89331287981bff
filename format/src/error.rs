//! What can be wrong with bytes, names and codecs.

use std::error::Error as StdError;
use std::sync::Arc;

use crate::codec::CodecIdentity;
use crate::state::StateKind;

/// A shared error of another crate or of a user's codec.
pub type ErrorSource = Arc<dyn StdError + Send + Sync + 'static>;

/// Why bytes, a name or a value was refused.
///
/// The store and the readers add the name of the object; see
/// [`FormatError::InObject`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end before the part that was asked for.
    #[error("{part} needs {need} bytes, {have} are left")]
    Truncated {
        /// Name of the part, as FORMAT.md spells it.
        part: &'static str,
        /// Length in bytes the part needs.
        need: u64,
        /// Length in bytes that is left.
        have: u64,
    },
    /// Bytes follow where the part should end.
    #[error("{part} is followed by {bytes} bytes that do not belong to it")]
    TrailingBytes {
        /// Name of the part.
        part: &'static str,
        /// How many bytes too many.
        bytes: u64,
    },
    /// Stored and computed checksums differ.
    #[error("{part} checksum is {computed:#x}, stored {stored:#x}")]
    Checksum {
        /// Name of the part.
        part: &'static str,
        /// The checksum in the bytes or in the manifest.
        stored: u64,
        /// The checksum of the bytes as they are.
        computed: u64,
    },
    /// The first bytes are not those of the expected kind of object.
    #[error("{part} begins with bytes {found:02x?}, which is another kind of object")]
    Magic {
        /// Name of the part.
        part: &'static str,
        /// The bytes found.
        found: [u8; 4],
    },
    /// This build cannot read that format version.
    #[error("{part} has format version {found}, this build reads {oldest} to {newest}")]
    Version {
        /// Name of the part.
        part: &'static str,
        /// The version found.
        found: u16,
        /// The oldest version this build reads.
        oldest: u16,
        /// The newest version this build reads.
        newest: u16,
    },
    /// A section that a reader must understand is unknown to this build.
    #[error("{part} has a required section {tag} that this build does not know; use a newer release")]
    UnknownSection {
        /// Name of the part.
        part: &'static str,
        /// Tag of the section.
        tag: u8,
    },
    /// A length is above the configured limit.
    #[error("{part} of {bytes} bytes is above the limit of {bytes_max}")]
    TooLarge {
        /// Name of the part.
        part: &'static str,
        /// Length in bytes asked for.
        bytes: u64,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// A field has a value that no writer produces.
    #[error("{part} is damaged: {problem}")]
    Invalid {
        /// Name of the part.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A caller asked to write what no reader would accept.
    #[error("{part} cannot be written: {problem}")]
    Unwritable {
        /// Name of the part.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The compressor or decompressor failed.
    #[error("{part} cannot be compressed or decompressed: {source}")]
    Compression {
        /// Name of the part.
        part: &'static str,
        /// What the compressor said.
        source: ErrorSource,
    },
    /// A value could not be encoded by its codec.
    #[error("codec {codec} cannot encode a value: {source}")]
    Encode {
        /// Name of the codec.
        codec: &'static str,
        /// What it said.
        source: ErrorSource,
    },
    /// Bytes could not be decoded by the codec of their state.
    #[error("codec {codec} cannot decode a value: {source}")]
    Decode {
        /// Name of the codec.
        codec: &'static str,
        /// What it said.
        source: ErrorSource,
    },
    /// A state was written with another codec than the one it is read with.
    #[error(
        "the {part} codec of state {state:?} was {stored}, now it is {expected}; \
         register the state with its former type or give a migration"
    )]
    CodecMismatch {
        /// Name of the state.
        state: String,
        /// `key`, `namespace` or `value`.
        part: &'static str,
        /// What the bytes were written with.
        stored: CodecIdentity,
        /// What the caller reads with.
        expected: CodecIdentity,
    },
    /// A state was written with another shape than the one it is read with.
    #[error("state {state:?} was of kind {stored:?}, now it is {expected:?}")]
    StateKindMismatch {
        /// Name of the state.
        state: String,
        /// What it was.
        stored: StateKind,
        /// What the caller reads it as.
        expected: StateKind,
    },
    /// A caller passed a text or number that is not one of ours.
    #[error("{text:?} is not {expected}")]
    InvalidName {
        /// What was passed.
        text: String,
        /// What it should have been.
        expected: &'static str,
    },
    /// Any of the above, with the object in which it was found.
    #[error("object {object}: {source}")]
    InObject {
        /// Name of the object, relative to its root.
        object: String,
        /// What is wrong with it.
        source: Box<FormatError>,
    },
}

/// What the caller should do about a [`FormatError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The bytes are damaged: restore from another checkpoint. Retrying cannot help.
    Corrupt,
    /// The bytes are sound but from another release, or of other types: upgrade, or migrate.
    Incompatible,
    /// The bytes ask for more memory than the limit: raise it if they are trusted.
    LimitExceeded,
    /// The caller's own value or text cannot be written: correct it.
    InvalidArgument,
}

impl FormatError {
    /// What the caller should do about it.
    #[must_use]
    pub fn kind(&self) -> FormatErrorKind {
        match self {
            Self::Truncated { .. }
            | Self::TrailingBytes { .. }
            | Self::Checksum { .. }
            | Self::Magic { .. }
            | Self::Invalid { .. }
            | Self::Compression { .. }
            | Self::Decode { .. } => FormatErrorKind::Corrupt,
            Self::Version { .. }
            | Self::UnknownSection { .. }
            | Self::CodecMismatch { .. }
            | Self::StateKindMismatch { .. } => FormatErrorKind::Incompatible,
            Self::TooLarge { .. } => FormatErrorKind::LimitExceeded,
            Self::Encode { .. } | Self::Unwritable { .. } | Self::InvalidName { .. } => {
                FormatErrorKind::InvalidArgument
            }
            Self::InObject { source, .. } => source.kind(),
        }
    }

    /// The same error with the name of the object in which it was found.
    ///
    /// An error that names an object already keeps the inner name only.
    #[must_use]
    pub fn in_object(self, object: impl Into<String>) -> Self {
        match self {
            Self::InObject { .. } => self,
            _ => Self::InObject { object: object.into(), source: Box::new(self) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_an_object_keeps_its_kind_and_names_object_and_part() {
        let error = FormatError::Version { part: "segment trailer", found: 9, oldest: 1, newest: 1 }
            .in_object("data/x.seg");
        assert_eq!(error.kind(), FormatErrorKind::Incompatible);
        assert_eq!(
            error.to_string(),
            "object data/x.seg: segment trailer has format version 9, this build reads 1 to 1"
        );
        assert_eq!(error.clone().in_object("other").to_string(), error.to_string(), "the first name stays");
    }
}
