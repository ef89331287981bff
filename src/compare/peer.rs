//! The workload of Flink's own state backends, bit by bit, on the backends of this library and on any other engine.
//!
//! Owns: the workload, the two suites, the lines in which their figures are written. Does not own: the engines beside
//! those of this library (they implement [`Engine`]), tables and ratios of the figures.
//!
//! Suite `rounds`, per repetition: load, checkpoint 1, rounds of updates each with a checkpoint, loss of everything in
//! memory, restore from the directory, check of every value. Suite `micro`: operations one by one, without and with a
//! snapshot in progress.
//!
//! The lines have the shape and the metrics of Flink's harness. `sync_ms` is what the task that owns the state stands still
//! for, in both: there `snapshot(...)` on the task's thread, here the freeze of the backend. What the coordinator of a job
//! does in the same call of this process (ids, bases, who has to acknowledge) is no part of it; `trigger_ms` is the whole
//! call, and `sync_cpu_ms` its CPU time.
//!
//! # Examples
//!
//! ```
//! use lowtide::compare::BackendName;
//! use lowtide::compare::peer::{Labels, PeerOptions, compare_peer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let options = PeerOptions {
//!     spec: "n=1000,value=long,dist=zipf,upct=1,rounds=10,reps=1".parse()?,
//!     backends: vec![BackendName::Heap],
//!     directory: directory.path().to_owned(),
//!     labels: Labels::own(),
//! };
//! let mut checksums = Vec::new();
//! compare_peer(&options, &mut |line| {
//!     checksums.extend((line.metric == "checksum").then(|| line.value.to_string()));
//!     Ok(())
//! })?;
//! assert_eq!(checksums, ["\"01657cfdb10d4b00\""]);
//! # Ok(())
//! # }
//! ```

mod engine;
mod job_engine;
mod line;
mod micro;
mod rounds;
mod spec;
mod summary;
mod timing;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use self::job_engine::JobEngine;
use self::line::Out;
use self::workload::{Bytes100, Bytes100c, Kind, Long};
use super::error::CompareError;
use super::{BackendName, refuse_occupied, refuse_twins};
use crate::HeapBackend;

pub use self::engine::{CheckpointBytes, Engine, Frozen, Writing};
pub use self::line::{Labels, Line, LineSink, LineValue};
pub use self::spec::{Choice, PeerProblem, PeerSpec, Suite, ValueKind};
pub use self::summary::PeerSummary;

/// What to run, on which backends.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The workload.
    pub spec: PeerSpec,
    /// The backends, each once.
    pub backends: Vec<BackendName>,
    /// Where each repetition gets a directory of its own, which is removed after it; new or empty.
    pub directory: PathBuf,
    /// What the lines say about the run.
    pub labels: Labels,
}

/// Runs the workload on each backend and hands out a line per figure, as soon as it is known.
///
/// Costs, per repetition, the state once in memory, its checkpoints on disk, and 16 bytes per entry for the model.
///
/// # Errors
///
/// [`CompareError::Occupied`] for a directory that is not empty, [`CompareError::BackendTwice`],
/// [`CompareError::Engine`] if a backend fails, [`CompareError::Unequal`] if a restored state is not what was written,
/// [`CompareError::Figures`] for what `sink` returns.
pub fn compare_peer(options: &PeerOptions, sink: &mut LineSink<'_>) -> Result<PeerSummary, CompareError> {
    refuse_twins(&options.backends)?;
    refuse_occupied(&options.directory)?;
    let mut summary = PeerSummary::default();
    for name in &options.backends {
        let mut seen = |line: &Line| {
            summary.add(line);
            sink(line)
        };
        match options.spec.value {
            ValueKind::Long => on::<Long>(*name, options, &mut seen),
            ValueKind::Bytes100 => on::<Bytes100>(*name, options, &mut seen),
            ValueKind::Bytes100c => on::<Bytes100c>(*name, options, &mut seen),
        }?;
    }
    Ok(summary)
}

fn on<T: Kind>(
    name: BackendName,
    options: &PeerOptions,
    sink: &mut LineSink<'_>,
) -> Result<(), CompareError> {
    match name {
        BackendName::Heap | BackendName::HeapFull | BackendName::HeapFullEvery(_) => {
            run::<T, JobEngine<HeapBackend, T>>(&name, options, sink)
        }
        #[cfg(feature = "rocksdb")]
        BackendName::RocksDb => run::<T, JobEngine<crate::RocksBackend, T>>(&name, options, sink),
    }
}

/// Runs one engine through the suite of `options`, whose backends are not looked at.
///
/// # Errors
///
/// As [`compare_peer`].
pub fn run<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    options: &PeerOptions,
    sink: &mut LineSink<'_>,
) -> Result<(), CompareError> {
    fs::create_dir_all(&options.directory)
        .map_err(|source| CompareError::Directory { directory: options.directory.clone(), source })?;
    let mut out = Out::new(&options.spec, &options.labels, E::name(setting), sink);
    match options.spec.suite {
        Suite::Rounds => rounds::run::<T, E>(setting, options, &mut out),
        Suite::Micro => micro::run::<T, E>(setting, options, &mut out),
    }
}

/// Runs one repetition in a new directory, and removes it afterwards whatever came of it.
fn in_directory<R>(
    place: &Path,
    work: impl FnOnce(&Path) -> Result<R, CompareError>,
) -> Result<R, CompareError> {
    let failed = |source| CompareError::Directory { directory: place.to_owned(), source };
    let directory = tempfile::Builder::new().prefix("peer-").tempdir_in(place).map_err(failed)?;
    let result = work(directory.path())?;
    directory.close().map_err(failed)?;
    Ok(result)
}
