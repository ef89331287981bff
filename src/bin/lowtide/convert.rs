//! `lowtide convert`: takes a job's checkpoint over into a new job on another backend.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lowtide::{
    Backend, CheckpointId, CheckpointKind, HeapBackend, JobBuilder, ObjectName, RestoreFrom, RocksBackend,
    Store, read_published,
};

use super::{Failure, block_on, places};

/// Copy a checkpoint into a new job that keeps its state in another backend, or in other subtasks.
#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    /// The directory that has the directories of the jobs
    dir: PathBuf,
    /// Directory of the job to copy from; it is only read
    from: String,
    /// Directory of the new job; it must not hold checkpoints
    into: String,
    /// Backend of the new job
    #[arg(long)]
    to: Target,
    /// The checkpoint or savepoint; the newest completed checkpoint if left out
    #[arg(long, value_name = "chk-ID")]
    checkpoint: Option<CheckpointId>,
    /// Subtasks of the new job; as many as the old one had if left out
    #[arg(long)]
    subtasks: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// In memory
    Heap,
    /// In RocksDB
    Rocksdb,
}

/// Copies, and says what was copied.
pub(super) fn run(args: &ConvertArgs) -> Result<ExitCode, Failure> {
    let store = places::store_at(&args.dir)?;
    let line = match args.to {
        Target::Heap => block_on(convert::<HeapBackend>(args, &store))??,
        Target::Rocksdb => block_on(convert::<RocksBackend>(args, &store))??,
    };
    writeln!(io::stdout(), "{line}").map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

async fn convert<B: Backend>(args: &ConvertArgs, store: &Store) -> Result<String, Failure> {
    let source = store.sub(&ObjectName::new(&args.from).map_err(lowtide::Error::from)?);
    let published = read_published(&source).await?;
    let found = match args.checkpoint {
        Some(id) => published.get(id),
        None => published.latest(),
    };
    let found = found.ok_or_else(|| Failure::Usage(format!("{} has no such checkpoint", args.from)))?;
    let manifest = found.manifest(&source).await?;
    let subtasks = args.subtasks.unwrap_or(u32::try_from(manifest.subtasks.len()).unwrap_or(u32::MAX));
    let from = RestoreFrom { checkpoint: Some(found.id()), ..RestoreFrom::latest(&args.from) };
    let builder = JobBuilder::<B>::new(&args.into).subtasks(subtasks).key_groups(manifest.key_groups.get());
    let mut job = builder.restore(store, from).await?;
    let figures = job.checkpoint(CheckpointKind::Full).await?;
    Ok(format!(
        "{} of {} is {} of {} on {}: {} entries, {} bytes",
        found.id(),
        args.from,
        figures.id,
        args.into,
        B::KIND,
        figures.entries,
        figures.new_bytes
    ))
}
