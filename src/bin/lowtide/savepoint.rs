//! `lowtide savepoint`: lists and deletes what users own.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lowtide::{
    CheckpointId, Clock, ErrorKind, SystemClock, UploadIdSource, delete_savepoint, read_published,
};

use super::{Failure, block_on, places};

/// List the savepoints of a directory, or delete one.
#[derive(Debug, Args)]
pub(super) struct SavepointArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One line per savepoint: its id, when it was taken, where it is
    List {
        /// A directory of checkpoints, or one that has such directories below it
        dir: PathBuf,
    },
    /// Delete a savepoint and its files
    Delete {
        /// The directory of checkpoints, or one above it
        dir: PathBuf,
        /// The savepoint
        #[arg(value_name = "chk-ID")]
        id: CheckpointId,
        /// Take the directory over for it: a job that runs there is fenced, and stops
        #[arg(long)]
        take_over: bool,
    },
}

/// Does what was asked for.
pub(super) fn run(args: &SavepointArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List { dir } => list(dir),
        Action::Delete { take_over: false, .. } => Err(Failure::Usage(
            "a running job deletes its savepoints itself; if none runs on the directory, repeat with --take-over".into(),
        )),
        Action::Delete { dir, id, take_over: true } => delete(dir, *id),
    }
}

fn list(dir: &std::path::Path) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    for place in places::places_below(dir)? {
        let published = block_on(read_published(&place.store))??;
        for savepoint in &published.savepoints {
            writeln!(out, "{} in {}", savepoint.id(), place.path.display()).map_err(Failure::output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn delete(dir: &std::path::Path, id: CheckpointId) -> Result<ExitCode, Failure> {
    let place = places::place_below(dir)?;
    let now = SystemClock::default().now();
    match block_on(delete_savepoint(&place.store, id, now, UploadIdSource::random()))? {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Failure::Usage(format!("there is no savepoint {id} in {}", place.path.display())))
        }
        deleted => {
            deleted?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
