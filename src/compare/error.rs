//! What can go wrong in a comparison, told so that the reader knows what to change.

use std::path::PathBuf;

use thiserror::Error;

use super::peer::PeerProblem;

/// A comparison that could not be made. Nothing that was there before is changed by one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// An input file could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file as it was given.
        file: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A line of an input is not what its format asks for.
    #[error("{}, line {line}: {problem}", file.display())]
    Row {
        /// The file as it was given.
        file: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: RowProblem,
    },
    /// A table has no column of that name.
    #[error("{} has no column '{column}'; its columns are {}", file.display(), present.join(", "))]
    Column {
        /// The file as it was given.
        file: PathBuf,
        /// The column that was asked for.
        column: String,
        /// The columns of its first line.
        present: Vec<String>,
    },
    /// A table has two columns of that name, or the key has it twice.
    #[error("{}: column '{column}' is there twice; a key needs columns with names of their own", file.display())]
    ColumnTwice {
        /// The file as it was given.
        file: PathBuf,
        /// The column that was asked for.
        column: String,
    },
    /// The description of a synthetic input makes no sense.
    #[error("synthetic input: '{part}' {problem}")]
    Synthetic {
        /// The part of the description.
        part: String,
        /// What is wrong with it.
        problem: SyntheticProblem,
    },
    /// No backend has that name.
    #[error("unknown backend '{name}'; known are {known}")]
    Backend {
        /// The name that was given.
        name: String,
        /// The names this build knows.
        known: &'static str,
    },
    /// The same backend was named twice: its checkpoints would go to one directory.
    #[error("backend '{name}' is listed twice")]
    BackendTwice {
        /// The name that was given twice.
        name: String,
    },
    /// The directory to write to cannot be made or written.
    #[error("cannot write to {}: {source}", directory.display())]
    Directory {
        /// The directory as it was given.
        directory: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The directory holds files, maybe somebody's checkpoints.
    #[error("{} is not empty; give a new or an empty directory, nothing was changed", directory.display())]
    Occupied {
        /// The directory as it was given.
        directory: PathBuf,
    },
    /// The file for the figures could not be written.
    #[error("cannot write the figures to {}: {source}", file.display())]
    Figures {
        /// The file as it was given.
        file: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The engine failed.
    #[error("{backend}: {source}")]
    Engine {
        /// Name of the backend.
        backend: String,
        /// The engine's own error.
        source: crate::Error,
    },
    /// The description of a peer measurement makes no sense.
    #[error("peer measurement: '{part}' {problem}")]
    Peer {
        /// The part of the description.
        part: String,
        /// What is wrong with it.
        problem: PeerProblem,
    },
    /// A state that was restored is not the one that was written.
    #[error("{backend}: {difference} after the restore")]
    Unequal {
        /// Name of the engine.
        backend: String,
        /// What differs, with what was expected.
        difference: String,
    },
    /// The lines of figures could not be written.
    #[error("cannot write the figures: {source}")]
    Lines {
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The input has no event, so there is nothing to compare.
    #[error("the input has no event")]
    Empty,
}

/// What is wrong with a line of an input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// The line has another number of fields than the format or the first line asks for.
    #[error("{found} fields, expected {expected}")]
    Fields {
        /// Fields on the line.
        found: usize,
        /// Fields the format asks for.
        expected: usize,
    },
    /// A field cannot be read.
    #[error("column '{column}' holds '{value}', expected {expected}")]
    Field {
        /// Name of the column.
        column: &'static str,
        /// Its content.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// An operation that the format does not know.
    #[error("unknown operation '{code}', expected P, D, X or C")]
    Operation {
        /// The first field of the line.
        code: String,
    },
    /// The line is longer than any sound input has.
    #[error("longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: u64,
    },
    /// The table cannot be parsed.
    #[error("{0}")]
    Table(String),
}

/// What is wrong with a part of the description of a synthetic input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SyntheticProblem {
    /// Not of the form name=value.
    #[error("is not of the form name=value")]
    Form,
    /// A name the description does not know.
    #[error("is unknown; known are n, value, dist, update, checkpoints and seed")]
    Name,
    /// A number that cannot be read or lies outside its range.
    #[error(
        "is out of range: n and checkpoints 1 to 10^9, value 0 to 2^20, update above 0 % and at most 100 %"
    )]
    Range,
    /// A distribution that does not exist.
    #[error("is no distribution; known are uniform, hot and zipf")]
    Distribution,
}
