//! The command line: one file a subcommand.
//!
//! Exit codes: 0 for success, 1 for a fault that was found (a mismatch, damage), 2 for input, options or a
//! store that cannot be used.

mod compare;
#[cfg(feature = "rocksdb")]
mod convert;
mod inspect;
mod places;
mod savepoint;
mod script;
mod simulate;
mod sweep;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lowtide::compare::CompareError;
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// Keyed in-memory state made durable with incremental snapshots.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Compare(Box<compare::CompareArgs>),
    #[cfg(feature = "rocksdb")]
    Convert(convert::ConvertArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Sweep(sweep::SweepArgs),
    Savepoint(savepoint::SavepointArgs),
    Script(script::ScriptArgs),
    Simulate(simulate::SimulateArgs),
}

/// Something was found that should not be: entries that differ, damage, a mismatch.
const FOUND_FAULT: ExitCode = ExitCode::FAILURE;

/// Why a command could not do its work.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error("{kind}: {0}", kind = .0.kind())]
    Engine(#[from] lowtide::Error),
    #[error("{0}")]
    Usage(String),
    #[error("cannot read {}: {source}", directory.display())]
    Directory {
        /// The directory as it was given.
        directory: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    #[error("cannot write: {source}")]
    Output {
        /// What the operating system says.
        source: io::Error,
    },
}

impl Failure {
    fn output(source: io::Error) -> Self {
        Failure::Output { source }
    }
}

/// Runs what touches a store.
fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::output)?;
    Ok(runtime.block_on(future))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Logs are for whoever asks for them, by RUST_LOG; they go to standard error, beside the errors.
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();
    let outcome = match &arguments.command {
        Command::Compare(args) => compare::run(args),
        #[cfg(feature = "rocksdb")]
        Command::Convert(args) => convert::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Savepoint(args) => savepoint::run(args),
        Command::Script(args) => script::run(args),
        Command::Simulate(args) => simulate::run(args),
    };
    match outcome {
        Ok(code) => code,
        // Whoever closed our standard output has seen enough.
        Err(Failure::Output { source }) if source.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "lowtide: {failure}");
            ExitCode::from(2)
        }
    }
}
