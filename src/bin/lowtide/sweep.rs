//! `lowtide sweep`: removes what no checkpoint lists.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lowtide::{Clock, SweepMode, SweepOptions, SystemClock, UploadIdSource, sweep_directory};

use super::{FOUND_FAULT, Failure, block_on, places};

/// Delete objects that no checkpoint and no savepoint lists: left over by attempts that crashed.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// A directory of checkpoints, or one that has such directories below it
    dir: PathBuf,
    /// Only what was uploaded longer ago than this: 90s, 15m, 24h, 7d; at least a checkpoint timeout
    #[arg(long, value_name = "AGE", default_value = "24h", value_parser = parse_age)]
    older_than: u64,
    /// Name what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// Milliseconds of an age with its unit.
fn parse_age(text: &str) -> Result<u64, String> {
    let (number, unit_millis) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) if text.ends_with('s') => (number, 1_000),
        Some(number) if text.ends_with('m') => (number, 60_000),
        Some(number) if text.ends_with('h') => (number, 3_600_000),
        Some(number) => (number, 86_400_000),
        None => return Err("expected a number and s, m, h or d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number and s, m, h or d".to_owned())?;
    number.checked_mul(unit_millis).ok_or_else(|| "longer than time is".to_owned())
}

/// Sweeps each directory and names what it took.
pub(super) fn run(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let mode = if args.dry_run { SweepMode::DryRun } else { SweepMode::Delete };
    let options = SweepOptions { age_millis: args.older_than, mode, ..SweepOptions::default() };
    let (clock, uploads) = (SystemClock::default(), UploadIdSource::random());
    let mut out = io::stdout().lock();
    let mut failed = 0;
    for place in places::places_below(&args.dir)? {
        let report = block_on(sweep_directory(&place.store, options, clock.now(), &uploads))??;
        let directory = place.path.display();
        let mut print = || {
            for orphan in &report.orphans {
                let left = if report.failed.contains(orphan) { " could not be deleted" } else { "" };
                writeln!(out, "{directory}: {orphan}{left}")?;
            }
            let (found, left) = (report.orphans.len(), report.failed.len());
            match mode {
                SweepMode::DryRun => writeln!(out, "{directory}: would sweep {found}"),
                SweepMode::Delete => writeln!(out, "{directory}: swept {}", found.saturating_sub(left)),
            }
        };
        print().map_err(Failure::output)?;
        failed += report.failed.len();
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { FOUND_FAULT })
}
