//! Where the events of a comparison come from.
//!
//! An [`Input`] can be opened any number of times and yields the same events each time, so that every
//! contender sees one stream and none has to be held in memory.

mod flights;
mod operations;
mod synthetic;
mod table;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

pub use self::synthetic::{Distribution, Synthetic};
use super::error::CompareError;
use super::event::Event;

/// Events, or the reason why there are no more.
pub(super) type Events = Box<dyn Iterator<Item = Result<Event, CompareError>>>;

/// Events between two checkpoints when neither the user nor the input says otherwise.
const FLIGHTS_PER_CHECKPOINT: u64 = 200;
const ROWS_PER_CHECKPOINT: u64 = 1_000;

/// A source of events.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// The departures of January 2013 from New York, built in: 27,004 rows, three states.
    Flights,
    /// A table with a first line of column names, plain or gzip: each row is a put, its key the given
    /// columns, its value the others.
    Table {
        /// The file.
        file: PathBuf,
        /// Names of the columns that make the key, in this order.
        key: Vec<String>,
    },
    /// A file of operations, plain or gzip, one a line: `P key value`, `D key`, `X`, `C label`, separated by tabs.
    Operations {
        /// The file.
        file: PathBuf,
    },
    /// Generated from a seed.
    Synthetic(Synthetic),
}

impl Input {
    /// Starts the stream from its beginning.
    ///
    /// # Errors
    ///
    /// [`CompareError::Read`] if the file cannot be opened, [`CompareError::Column`] if the table lacks
    /// a column of the key. Damage further down is an item of the stream, which ends there.
    pub(super) fn open(&self) -> Result<Events, CompareError> {
        match self {
            Input::Flights => flights::built_in(),
            Input::Table { file, key } => table::open(file, key),
            Input::Operations { file } => operations::open(file),
            Input::Synthetic(synthetic) => Ok(synthetic.events()),
        }
    }

    /// Events between two checkpoints unless the user says otherwise; none where the input itself says
    /// where its checkpoints are.
    pub(super) fn checkpoint_every(&self) -> Option<u64> {
        match self {
            Input::Flights => Some(FLIGHTS_PER_CHECKPOINT),
            Input::Table { .. } => Some(ROWS_PER_CHECKPOINT),
            Input::Operations { .. } | Input::Synthetic(_) => None,
        }
    }
}

/// Opens a plain or gzip-compressed file; which of the two is told by its first bytes, not its name.
fn open_file(file: &Path) -> Result<Box<dyn BufRead>, CompareError> {
    let failed = |source| CompareError::Read { file: file.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 17, File::open(file).map_err(failed)?);
    let start = reader.fill_buf().map_err(failed)?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(1 << 17, MultiGzDecoder::new(reader))));
    }
    if start.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        let text = "it is compressed with xz: decompress it first (xz -dk), or use gzip";
        return Err(failed(io::Error::new(io::ErrorKind::Unsupported, text)));
    }
    Ok(Box::new(reader))
}

/// A stream that ends after its first failure, and one for a table of the `csv` crate.
fn until_failure<I>(events: I) -> Events
where
    I: Iterator<Item = Result<Event, CompareError>> + 'static,
{
    let mut failed = false;
    Box::new(events.map_while(move |event| {
        if failed {
            return None;
        }
        failed = event.is_err();
        Some(event)
    }))
}

fn csv_reader<R: Read>(input: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new().flexible(true).from_reader(input)
}

fn table_failure(file: &Path, error: csv::Error) -> CompareError {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => CompareError::Read { file: file.to_owned(), source },
        kind => CompareError::Row {
            file: file.to_owned(),
            line,
            problem: super::error::RowProblem::Table(csv_problem(&kind)),
        },
    }
}

fn csv_problem(kind: &csv::ErrorKind) -> String {
    match kind {
        csv::ErrorKind::Utf8 { err, .. } => format!("not UTF-8: {err}"),
        _ => "cannot be parsed as a table".to_owned(),
    }
}
