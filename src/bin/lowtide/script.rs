//! `lowtide script`: runs scenario scripts and prints where they differ.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lowtide::script::{BACKENDS, Medium, Script, ScriptError, ScriptOptions};

use super::{FOUND_FAULT, Failure};

/// Runs scenario scripts and prints each mismatch.
///
/// Exit code 0: all output was as expected. 1: some was not. 2: a file could not be read or has no form.
#[derive(Debug, Args)]
pub(crate) struct ScriptArgs {
    /// Scripts to run.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Replace the expected output in the files by the actual one.
    #[arg(long)]
    rewrite: bool,
    /// Run on this backend only, whatever a file's header says.
    #[arg(long)]
    backend: Option<String>,
    /// Keep objects there, whatever the scripts say.
    #[arg(long)]
    store: Option<StoreKind>,
}

/// Where a script's objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// In memory.
    Memory,
    /// In a temporary directory.
    File,
}

/// How the runs ended; the larger counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good,
    Mismatch,
    Unusable,
}

/// Runs all files, whatever becomes of one of them.
pub(crate) fn run(args: &ScriptArgs) -> Result<ExitCode, Failure> {
    // One thread, so that a script prints the same every time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::output)?;
    let mut verdict = Verdict::Good;
    for file in &args.files {
        verdict = verdict.max(runtime.block_on(run_file(file, args))?);
    }
    Ok(match verdict {
        Verdict::Good => ExitCode::SUCCESS,
        Verdict::Mismatch => FOUND_FAULT,
        Verdict::Unusable => ExitCode::from(2),
    })
}

async fn run_file(file: &Path, args: &ScriptArgs) -> Result<Verdict, Failure> {
    let name = file.display().to_string();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return complain(&format!("{name}: {error}")),
    };
    let outcome = match run_text(&name, &text, args).await {
        Ok(outcome) => outcome,
        Err(error) => return complain(&error.to_string()),
    };
    for note in &outcome.notes {
        writeln!(io::stderr(), "{note}").map_err(Failure::output)?;
    }
    let mut out = io::stdout().lock();
    for mismatch in &outcome.mismatches {
        writeln!(out, "{mismatch}").map_err(Failure::output)?;
    }
    match outcome.rewritten {
        Some(rewritten) if rewritten != text => match std::fs::write(file, rewritten) {
            Ok(()) => writeln!(out, "{name}: rewritten").map_err(Failure::output)?,
            Err(error) => return complain(&format!("{name}: {error}")),
        },
        _ => {}
    }
    Ok(if outcome.mismatches.is_empty() { Verdict::Good } else { Verdict::Mismatch })
}

/// Says why a file cannot be used; the other files are run all the same.
fn complain(problem: &str) -> Result<Verdict, Failure> {
    writeln!(io::stderr(), "lowtide: {problem}").map_err(Failure::output)?;
    Ok(Verdict::Unusable)
}

/// What running one script on its backends has brought.
#[derive(Default)]
struct Outcome {
    notes: Vec<String>,
    mismatches: Vec<String>,
    /// The text with the actual output, if that is asked for: that of the first backend.
    rewritten: Option<String>,
}

async fn run_text(name: &str, text: &str, args: &ScriptArgs) -> Result<Outcome, ScriptError> {
    let script = Script::parse(name, text)?;
    let asked = args.backend.as_ref().map(std::slice::from_ref);
    let backends = asked.unwrap_or(script.backends());
    let (built, unbuilt): (Vec<_>, Vec<_>) =
        backends.iter().partition(|backend| BACKENDS.contains(&backend.as_str()));
    // A script may name backends that other builds have; it is unusable only if none is left.
    if let (true, Some(backend)) = (built.is_empty(), unbuilt.first()) {
        return Err(ScriptError::Backend { backend: (*backend).clone(), available: BACKENDS.join(", ") });
    }
    let not_run = |backend: &&String| format!("{name}: not run on {backend}, which is not in this build");
    let mut outcome = Outcome { notes: unbuilt.iter().map(not_run).collect(), ..Outcome::default() };
    let medium = args.store.map(|store| match store {
        StoreKind::Memory => Medium::Memory,
        StoreKind::File => Medium::File,
    });
    for backend in built {
        let options = ScriptOptions { backend: Some(backend.clone()), medium };
        let run = script.run(&options).await?;
        if args.rewrite {
            outcome.rewritten.get_or_insert_with(|| run.rewritten().to_owned());
        } else {
            outcome.mismatches.extend(run.mismatches().iter().map(|found| format!("[{backend}] {found}")));
        }
    }
    Ok(outcome)
}
