//! `lowtide compare --peer`: where the lines and the table go.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use lowtide::compare::CompareError;
use lowtide::compare::peer::{Labels, Line, PeerOptions, PeerSpec, compare_peer};

use super::{CompareArgs, Sink};
use crate::{FOUND_FAULT, Failure};

/// Runs the measurement. The lines go to the file of `--json` and the table to standard output; without a file, the
/// lines go to standard output and the table to standard error.
pub(super) fn run(spec: PeerSpec, args: &CompareArgs, directory: &Path) -> Result<ExitCode, Failure> {
    let labels = args.beside.as_deref().map_or_else(|| Ok(Labels::own()), Labels::beside)?;
    let mut sink = Sink::open(args.json.as_deref().unwrap_or(Path::new("-")))?;
    let options =
        PeerOptions { spec, backends: args.backends("heap"), directory: directory.to_owned(), labels };
    let outcome = compare_peer(&options, &mut |line: &Line| {
        serde_json::to_writer(&mut sink.to, line)?;
        sink.to.write_all(b"\n")?;
        sink.to.flush()
    });
    let summary = match outcome {
        Ok(summary) => summary,
        Err(CompareError::Lines { source }) => return Err(Failure::output(source)),
        Err(error @ CompareError::Unequal { .. }) => {
            let _ = writeln!(io::stderr(), "lowtide: {error}");
            return Ok(FOUND_FAULT);
        }
        Err(error) => return Err(Failure::Compare(error)),
    };
    let table = summary.table();
    if sink.is_standard_output {
        writeln!(io::stderr(), "{table}").map_err(Failure::output)?;
    } else {
        writeln!(io::stdout(), "{table}").map_err(Failure::output)?;
    }
    Ok(ExitCode::SUCCESS)
}
