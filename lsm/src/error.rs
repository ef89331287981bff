//! What can go wrong on the RocksDB path.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide_format::{CheckpointId, FormatError, FormatErrorKind, KeyGroup, KeyGroupCount, KeyGroupRange};

/// An error of the RocksDB backend, with the facts in its fields.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LsmError {
    /// RocksDB refused an operation.
    #[error("RocksDB cannot {operation}: {source}")]
    Rocks {
        /// What was asked of it.
        operation: &'static str,
        /// What RocksDB says.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// RocksDB says that files on the local disk are damaged.
    #[error("RocksDB cannot {operation} because of damaged local files: {source}")]
    RocksCorrupt {
        /// What was asked of it.
        operation: &'static str,
        /// What RocksDB says.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// A local file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// Bytes are damaged, of another version or of another codec.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The table list of a checkpoint names a table that its manifest does not list.
    #[error("table {table} of {checkpoint} is in its table list and not in its manifest")]
    TableUnlisted {
        /// Local name of the table.
        table: String,
        /// The checkpoint that needs it.
        checkpoint: CheckpointId,
    },
    /// A fetched table is not the one that the checkpoint names.
    #[error("table {table} of {checkpoint} has identity {found}, expected {expected}")]
    TableSwapped {
        /// Local name of the table.
        table: String,
        /// The checkpoint that needs it.
        checkpoint: CheckpointId,
        /// Identity in the table list.
        expected: String,
        /// Identity in the table itself.
        found: String,
    },
    /// A checkpoint has another number of key groups than the backend.
    #[error("the checkpoint has {stored} key groups, the backend {expected}; open it with {stored}")]
    KeyGroupCount {
        /// Number in the checkpoint.
        stored: KeyGroupCount,
        /// Number asked for.
        expected: KeyGroupCount,
    },
    /// The parts handed to a restore leave out key groups of its range.
    #[error("no part of the checkpoint holds {group} of the range {range}")]
    PartMissing {
        /// First group that nobody holds.
        group: KeyGroup,
        /// The range to be restored.
        range: KeyGroupRange,
    },
    /// A key belongs to a group that this backend does not keep.
    #[error("a key belongs to {group}, this backend keeps {range}; route it to its own subtask")]
    ForeignKey {
        /// Group of the key.
        group: KeyGroup,
        /// Range of the backend.
        range: KeyGroupRange,
    },
    /// A token of another backend was used.
    #[error("the state token belongs to another backend")]
    ForeignState,
    /// A checkpoint id does not rise.
    #[error("checkpoint {id} is not above {newest}, the newest one of this backend")]
    IdNotAbove {
        /// The id asked for.
        id: CheckpointId,
        /// The newest id known.
        newest: CheckpointId,
    },
    /// The number of uploaded files is not that of the files handed out.
    #[error("{given} uploaded files were given for {written} written ones")]
    FileCount {
        /// How many files were written.
        written: usize,
        /// How many the caller says were uploaded.
        given: usize,
    },
    /// An option makes no sense or is not supported.
    #[error("option {option}: {problem}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Why it is refused.
        problem: &'static str,
    },
    /// The writer was asked to stop.
    #[error("the writer was cancelled")]
    Cancelled,
}

/// What the caller should do about an [`LsmError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LsmErrorKind {
    /// Bytes are damaged: restore from another checkpoint.
    Corrupt,
    /// A needed file is not there: restore from another checkpoint.
    Missing,
    /// Sound, but of another release, codec or number of key groups.
    Incompatible,
    /// The call makes no sense; correct it.
    InvalidArgument,
    /// The local disk or RocksDB failed; trying again may help.
    Local,
    /// Somebody asked to stop.
    Cancelled,
}

impl LsmError {
    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> LsmErrorKind {
        match self {
            Self::Rocks { .. } | Self::Io { .. } => LsmErrorKind::Local,
            Self::RocksCorrupt { .. } | Self::TableSwapped { .. } => LsmErrorKind::Corrupt,
            Self::TableUnlisted { .. } | Self::PartMissing { .. } => LsmErrorKind::Missing,
            Self::KeyGroupCount { .. } => LsmErrorKind::Incompatible,
            Self::Format(source) => match source.kind() {
                FormatErrorKind::Incompatible => LsmErrorKind::Incompatible,
                FormatErrorKind::InvalidArgument => LsmErrorKind::InvalidArgument,
                _ => LsmErrorKind::Corrupt,
            },
            Self::ForeignKey { .. }
            | Self::ForeignState
            | Self::IdNotAbove { .. }
            | Self::FileCount { .. }
            | Self::Option { .. } => LsmErrorKind::InvalidArgument,
            Self::Cancelled => LsmErrorKind::Cancelled,
        }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_path_buf(), source: Arc::new(source) }
    }
}
