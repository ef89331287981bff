//! Feeds one stream of events to several backends and holds each against an independent model.
//!
//! Every backend gets the same events, takes a checkpoint at the same places, then loses what it has in memory,
//! restores from the directory alone, and is compared with the model entry by entry. Owns: inputs, model,
//! measuring, figures. Does not own: the options of the command line and where the figures are printed.
//!
//! Bytes are counted in the store and by listing the directory, never taken from the engine. See
//! [`CheckpointFigures`] and [`Summary`] for what each figure means.
//!
//! [`peer`] runs another workload: the one on which engines of other projects are measured.

mod backend;
mod contender;
mod error;
mod event;
mod figures;
mod input;
mod listing;
mod meter;
mod model;
pub mod peer;
mod progress;
mod report;
mod steps;
mod stopwatch;
mod table;
mod trial;
pub mod units;
mod verification;

use std::fs;
use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::steps::Cadence;
use self::trial::{Course, Outcome};

pub use self::backend::BackendName;
pub use self::error::{CompareError, RowProblem, SyntheticProblem};
pub use self::figures::{CheckpointFigures, Summary};
pub use self::input::{Distribution, Input, Synthetic};
pub use self::progress::{Phase, Progress};

/// What to compare, on what.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Where the events come from.
    pub input: Input,
    /// The backends, each once, in the order of the table.
    pub backends: Vec<BackendName>,
    /// Events between two checkpoints; none: what the input says or suits it.
    pub checkpoint_every: Option<NonZeroU64>,
    /// Completed checkpoints that are kept.
    pub retain: NonZeroU32,
    /// Key groups, 1 to 32,768.
    pub key_groups: u16,
    /// Subtasks, at most one per key group.
    pub subtasks: u32,
    /// Where each backend gets a directory of its own; new or empty.
    pub directory: PathBuf,
    /// Events after which the input ends; none: all.
    pub limit: Option<u64>,
    /// Where a page with charts goes; none: nowhere.
    pub report: Option<PathBuf>,
}

impl CompareOptions {
    /// Where the checkpoints fall and the input ends.
    fn cadence(&self) -> Cadence {
        let usual = || self.input.checkpoint_every().and_then(NonZeroU64::new);
        Cadence { every: self.checkpoint_every.or_else(usual), limit: self.limit }
    }
}

/// How the figures are to be read, a line each.
pub const NOTES: &str = "\
bytes: counted in the store and by listing it, manifests and coordinator objects included
÷ changed, ÷ delta, ÷ live: in stored bytes, as many per byte of key and value as a full copy of the final state takes;
the first two leave out the first checkpoint, which every backend writes in full
verified: every entry restored from the directory alone, compared with an independent model both ways";

/// What came out of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// One record per backend and checkpoint, in the order in which they were taken.
    pub checkpoints: Vec<CheckpointFigures>,
    /// One summary per backend, in the order of the options.
    pub summaries: Vec<Summary>,
}

impl Comparison {
    /// Whether every backend came back as the model says.
    pub fn is_verified(&self) -> bool {
        self.summaries.iter().all(|summary| summary.verified)
    }

    /// The summaries as a table: a row per figure, a column per backend.
    pub fn table(&self) -> String {
        table::render(&self.summaries)
    }

    /// Writes the figures as JSON, one object a line: `{"kind":"checkpoint",…}` for each checkpoint, then
    /// `{"kind":"summary",…}` for each backend.
    ///
    /// # Errors
    ///
    /// What the writer returns.
    pub fn write_json(&self, mut to: impl Write) -> io::Result<()> {
        for checkpoint in &self.checkpoints {
            write_line(&mut to, &Line { kind: "checkpoint", figures: checkpoint })?;
        }
        for summary in &self.summaries {
            write_line(&mut to, &Line { kind: "summary", figures: summary })?;
        }
        to.flush()
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    figures: &'a T,
}

fn write_line<T: Serialize>(to: &mut impl Write, line: &Line<'_, T>) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// Runs the comparison.
///
/// Reads the input once before anything is written, so that damage in it leaves nothing behind. Costs one
/// more pass per backend and holds the final entries once, plus those of one backend at a time.
///
/// # Errors
///
/// See [`CompareError`]. An occupied directory is refused and not touched.
pub fn compare(
    options: &CompareOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Comparison, CompareError> {
    refuse_twins(&options.backends)?;
    refuse_occupied(&options.directory)?;
    let course = Course::read(&options.input, options.cadence(), progress)?;
    fs::create_dir_all(&options.directory)
        .map_err(|source| CompareError::Directory { directory: options.directory.clone(), source })?;
    let figures = |directory: &Path, source| CompareError::Figures { file: directory.to_owned(), source };
    if let Some(directory) = &options.report {
        // At once: a comparison of minutes must not end with a page that cannot be written.
        fs::create_dir_all(directory).map_err(|source| figures(directory, source))?;
    }
    let mut comparison = Comparison { checkpoints: Vec::new(), summaries: Vec::new() };
    for name in &options.backends {
        let entrant = name.entrant(options);
        let Outcome { checkpoints, summary } =
            trial::run(entrant.as_ref(), &course, &options.directory, progress)?;
        comparison.checkpoints.extend(checkpoints);
        comparison.summaries.push(summary);
    }
    if let Some(directory) = &options.report {
        report::write(&comparison, options, directory).map_err(|source| figures(directory, source))?;
    }
    Ok(comparison)
}

fn refuse_twins(backends: &[BackendName]) -> Result<(), CompareError> {
    let mut seen = Vec::new();
    for backend in backends {
        if seen.contains(&backend) {
            return Err(CompareError::BackendTwice { name: backend.to_string() });
        }
        seen.push(backend);
    }
    Ok(())
}

/// Whatever lies in the directory may be somebody's checkpoints: nothing is written beside it.
fn refuse_occupied(directory: &Path) -> Result<(), CompareError> {
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(CompareError::Occupied { directory: directory.to_owned() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(CompareError::Directory { directory: directory.to_owned(), source }),
    }
}
