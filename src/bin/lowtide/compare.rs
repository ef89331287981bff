//! `lowtide compare`: options, progress, output.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lowtide::compare::peer::PeerSpec;
use lowtide::compare::{
    BackendName, CompareError, CompareOptions, Comparison, Input, NOTES, Phase, Progress, Synthetic, compare,
};

use super::{FOUND_FAULT, Failure};

mod peer;

/// Feed the same events to several backends, lose the state, restore it, and check every entry.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Built-in input: departures from New York in January 2013 [the default input]
    #[arg(long, value_enum, group = "input")]
    data: Option<BuiltIn>,
    /// A table with column names in its first line, plain or gzip; needs --key
    #[arg(long, value_name = "FILE", group = "input", requires = "key")]
    csv: Option<PathBuf>,
    /// Columns of the table that make the key, separated by commas
    #[arg(long, value_name = "COLS", value_delimiter = ',', requires = "csv")]
    key: Vec<String>,
    /// Operations, plain or gzip, one a line, separated by tabs: P key value, D key, X (clear), C label (checkpoint)
    #[arg(long, value_name = "FILE", group = "input")]
    ops: Option<PathBuf>,
    /// Generated input: n=1000000,value=100,dist=uniform|hot|zipf,update=1%,checkpoints=100,seed=1
    #[arg(long, value_name = "SPEC", group = "input", value_parser = parse::<Synthetic>)]
    synthetic: Option<Synthetic>,
    /// The workload on which engines of other projects are measured, a line of JSON per figure:
    /// n=1000000,value=long|bytes100|bytes100c,dist=uniform|zipf,upct=1,rounds=10,seed=42,reps=3,
    /// suite=rounds|micro,ops=1000000,snapshots=3
    #[arg(
        long,
        value_name = "SPEC",
        group = "input",
        value_parser = parse::<PeerSpec>,
        conflicts_with_all = ["checkpoint_every", "retain", "key_groups", "subtasks", "report", "limit"]
    )]
    peer: Option<PeerSpec>,
    /// Figures of another engine, whose tables those of --peer are to come into
    #[arg(long, value_name = "FILE", requires = "peer")]
    beside: Option<PathBuf>,
    /// heap, heap-full, heap-full-every-N; rocksdb in builds that have it [default: heap, heap-full,
    /// heap-full-every-100 and rocksdb; with --peer heap and rocksdb]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse::<BackendName>)]
    backends: Vec<BackendName>,
    /// Events between two checkpoints [default: 200 for flights, 1000 for a table, else where the input says]
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<NonZeroU64>,
    /// Completed checkpoints to keep
    #[arg(long, value_name = "R", default_value = "1")]
    retain: NonZeroU32,
    /// Key groups
    #[arg(long, value_name = "N", default_value = "128", value_parser = clap::value_parser!(u16).range(1..=32768))]
    key_groups: u16,
    /// Subtasks, at most one per key group
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=32768))]
    subtasks: u32,
    /// A new or empty directory for the checkpoints, which stay there [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write the figures here, one JSON object per checkpoint and backend and line; - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts, index.html, and the charts as SVG files into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// End the input after this many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BuiltIn {
    Flights,
}

fn parse<T: std::str::FromStr<Err = CompareError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: CompareError| error.to_string())
}

impl CompareArgs {
    fn input(&self) -> Input {
        let Self { csv, key, ops, synthetic, .. } = self;
        // clap lets one input through at most.
        match (csv, ops, synthetic) {
            (Some(file), ..) => Input::Table { file: file.clone(), key: key.clone() },
            (_, Some(file), _) => Input::Operations { file: file.clone() },
            (.., Some(synthetic)) => Input::Synthetic(synthetic.clone()),
            _ => {
                let BuiltIn::Flights = self.data.unwrap_or(BuiltIn::Flights);
                Input::Flights
            }
        }
    }

    /// The backends that were named, or else `usual` and RocksDB where this build has it.
    fn backends(&self, usual: &str) -> Vec<BackendName> {
        if !self.backends.is_empty() {
            return self.backends.clone();
        }
        // A build without RocksDB does not know its name.
        usual.split(',').chain(["rocksdb"]).filter_map(|name| name.parse().ok()).collect()
    }

    fn options(&self, directory: &Path) -> CompareOptions {
        CompareOptions {
            input: self.input(),
            backends: self.backends("heap,heap-full,heap-full-every-100"),
            checkpoint_every: self.checkpoint_every,
            retain: self.retain,
            key_groups: self.key_groups,
            subtasks: self.subtasks,
            directory: directory.to_owned(),
            limit: self.limit,
            report: self.report.clone(),
        }
    }
}

/// Runs the comparison and prints what came out.
pub(super) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    if u32::from(args.key_groups) < args.subtasks {
        let (subtasks, key_groups) = (args.subtasks, args.key_groups);
        return Err(Failure::Usage(format!(
            "{subtasks} subtasks need at least as many key groups, not {key_groups}"
        )));
    }
    let temporary = match args.dir {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("lowtide-compare-").tempdir().map_err(Failure::output)?),
    };
    let directory = match (&args.dir, &temporary) {
        (Some(directory), _) => directory.as_path(),
        (None, Some(temporary)) => temporary.path(),
        (None, None) => Path::new("."),
    };
    if let Some(spec) = args.peer {
        return peer::run(spec, args, directory);
    }
    // Opened first: a comparison of minutes must not end with a file that cannot be written.
    let json = args.json.as_deref().map(Sink::open).transpose()?;
    let mut watch = Watch::new();
    let comparison = compare(&args.options(directory), &mut |progress| watch.show(progress));
    watch.end();
    let comparison = comparison.map_err(Failure::Compare)?;
    print(&comparison, args, json).map_err(Failure::output)?;
    Ok(if comparison.is_verified() { ExitCode::SUCCESS } else { FOUND_FAULT })
}

fn print(comparison: &Comparison, args: &CompareArgs, json: Option<Sink>) -> io::Result<()> {
    let is_standard_output = json.as_ref().is_some_and(|sink| sink.is_standard_output);
    if let Some(sink) = json {
        comparison.write_json(sink.to)?;
    }
    let text = format!("{}\n{}", comparison.table(), NOTES);
    if is_standard_output {
        return writeln!(io::stderr(), "{text}");
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    if let Some(directory) = &args.dir {
        writeln!(out, "checkpoints: {}", directory.display())?;
    }
    if let Some(directory) = &args.report {
        writeln!(out, "report: {}", directory.join("index.html").display())?;
    }
    out.flush()
}

/// Where the figures go.
struct Sink {
    to: Box<dyn Write>,
    is_standard_output: bool,
}

impl Sink {
    fn open(file: &Path) -> Result<Self, Failure> {
        if file == Path::new("-") {
            return Ok(Self { to: Box::new(io::stdout()), is_standard_output: true });
        }
        let created = File::create(file)
            .map_err(|source| Failure::Compare(CompareError::Figures { file: file.to_owned(), source }))?;
        Ok(Self { to: Box::new(BufWriter::new(created)), is_standard_output: false })
    }
}

/// Shows progress on standard error: one line that is overwritten on a terminal, a line per tenth elsewhere.
struct Watch {
    is_terminal: bool,
    shown: String,
}

impl Watch {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), shown: String::new() }
    }

    fn show(&mut self, progress: Progress<'_>) {
        let step = if self.is_terminal { 1 } else { 10 };
        let text = match progress.phase {
            Phase::Reading { events } => format!("reading, {} thousand events", events / 10_000 * 10),
            Phase::Feeding { events, events_total } => {
                let percent = events.saturating_mul(100) / events_total.max(1);
                format!("{percent:3} %", percent = percent / step * step)
            }
            Phase::Restoring => "restoring".to_owned(),
            Phase::Verifying => "verifying".to_owned(),
            _ => return,
        };
        let text = format!("{}: {text}", progress.backend);
        if text == self.shown {
            return;
        }
        // Progress is a courtesy: a closed standard error must not end the comparison.
        let _ = if self.is_terminal {
            write!(io::stderr(), "\r\x1b[K{text}")
        } else {
            writeln!(io::stderr(), "{text}")
        };
        self.shown = text;
    }

    fn end(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
