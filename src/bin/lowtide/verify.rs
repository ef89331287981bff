//! `lowtide verify`: reads everything and checks it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lowtide::{Error, ErrorKind, Verification, verify};

use super::{FOUND_FAULT, Failure, block_on, places};

/// Read every checkpoint in a directory and check every checksum, length and count.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// A directory of checkpoints, or one that has such directories below it
    dir: PathBuf,
}

/// Prints a line per sound checkpoint and a line per fault; changes nothing.
pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let mut faults = 0;
    for place in places::places_below(&args.dir)? {
        let found = match block_on(verify(&place.store, None))? {
            Ok(verifications) => print(&place.path, &verifications, &mut out),
            // The sequence itself is damaged: a finding like any other.
            Err(error) if is_finding(&error) => {
                writeln!(out, "{}: {}: {error}", place.path.display(), error.kind()).map(|()| 1)
            }
            Err(error) => return Err(error.into()),
        };
        faults += found.map_err(Failure::output)?;
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { FOUND_FAULT })
}

fn is_finding(error: &Error) -> bool {
    error.is_damage() || error.kind() == ErrorKind::Incompatible
}

/// Prints what was found in one directory; returns the number of faults.
fn print(directory: &Path, verifications: &[Verification], out: &mut impl Write) -> io::Result<u64> {
    let directory = directory.display();
    let mut faults = 0;
    for verification in verifications {
        let Verification { id, entries, files, bytes, .. } = verification;
        if verification.faults.is_empty() {
            writeln!(out, "{directory}: {id} ok entries={entries} files={files} bytes={bytes}")?;
        }
        for fault in &verification.faults {
            writeln!(out, "{directory}: {id} {}: {fault}", fault.kind())?;
            faults += 1;
        }
    }
    Ok(faults)
}
