//! `lowtide simulate`: rewriting policies compared by their accounting alone.

mod faults;

use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, LineStyle, Table, presets};
use lowtide::simulate::{PeriodicFull, Purge, SimulateOptions, SimulateReport, Workload, simulate};
use lowtide_heap::rewrite::{Bound, BoundedRewriting, Never, RewriteBudget, RewritePolicy};
use serde::Serialize;

use super::Failure;

/// Compare rewriting policies in seconds: the engine's own accounting, without data.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    /// How the keys change
    #[arg(long, value_enum, value_delimiter = ',', default_value = "uniform,hot,zipf")]
    workload: Vec<WorkloadName>,
    /// default, never, space:RATIO, max-age:CHECKPOINTS, segments:COUNT, objects:COUNT (and space:2), full-every:CHECKPOINTS
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "default,full-every:100")]
    policy: Vec<PolicyName>,
    /// Keys at the start
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Per cent of the keys that change between two checkpoints
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    update: f64,
    /// Checkpoints, of which the later half is measured
    #[arg(long, value_name = "N", default_value = "1600", value_parser = clap::value_parser!(u32).range(2..))]
    checkpoints: u32,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    faults: faults::FaultArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    /// Every key alike
    Uniform,
    /// Nine changes of ten go to a tenth of the keys
    Hot,
    /// Zipf with exponent 0.99
    Zipf,
    /// New keys come and are removed three checkpoints later
    Window,
    /// New keys come and are cleared by namespace three checkpoints later
    WindowClear,
    /// New keys come, none goes
    Append,
    /// All keys change
    All,
}

impl WorkloadName {
    fn workload(self) -> Workload {
        match self {
            WorkloadName::Uniform => Workload::Uniform,
            WorkloadName::Hot => Workload::Hot { changes: 0.9, keys: 0.1 },
            WorkloadName::Zipf => Workload::Zipf { exponent: 0.99 },
            WorkloadName::Window => Workload::Windows { purge: Purge::Remove },
            WorkloadName::WindowClear => Workload::Windows { purge: Purge::Clear },
            WorkloadName::Append => Workload::Append,
            WorkloadName::All => Workload::AllUpdated,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, Debug)]
enum PolicyName {
    Default,
    Never,
    Space(f64),
    MaxAge(u32),
    Segments(u32),
    Objects(u32),
    FullEvery(u32),
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || format!("'{text}' is no policy");
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let count = || value.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(unknown);
        match name {
            "default" if value.is_empty() => Ok(PolicyName::Default),
            "never" if value.is_empty() => Ok(PolicyName::Never),
            "space" => {
                value.parse().ok().filter(|ratio| *ratio >= 1.0).map(PolicyName::Space).ok_or_else(unknown)
            }
            "max-age" => count().map(PolicyName::MaxAge),
            "segments" => count().map(PolicyName::Segments),
            "objects" => count().map(PolicyName::Objects),
            "full-every" => count().map(PolicyName::FullEvery),
            _ => Err(unknown()),
        }
    }
}

/// A bound on space, and perhaps on objects, within a budget that even a tight one needs.
fn within_two_deltas(ratio: f64, objects_max: Option<u32>) -> BoundedRewriting {
    let (bounds, budget) = (vec![Bound::SpaceAmplification { ratio }], RewriteBudget::Deltas(2.0));
    BoundedRewriting { bounds, budget, objects_max, ..BoundedRewriting::default() }
}

impl PolicyName {
    fn policy(self) -> Box<dyn RewritePolicy> {
        match self {
            PolicyName::Default => Box::new(BoundedRewriting::default()),
            PolicyName::Never => Box::new(Never),
            PolicyName::Space(ratio) => Box::new(within_two_deltas(ratio, None)),
            PolicyName::MaxAge(checkpoints) => {
                Box::new(BoundedRewriting::exactly(Bound::MaxAge { checkpoints }))
            }
            PolicyName::Segments(count) => Box::new(BoundedRewriting::exactly(Bound::MaxSegments { count })),
            PolicyName::Objects(count) => Box::new(within_two_deltas(2.0, Some(count))),
            PolicyName::FullEvery(every) => Box::new(PeriodicFull { every }),
        }
    }

    fn name(self) -> String {
        match self {
            PolicyName::Default => "default".to_owned(),
            PolicyName::Never => "never".to_owned(),
            PolicyName::Space(ratio) => format!("space:{ratio}"),
            PolicyName::MaxAge(checkpoints) => format!("max-age:{checkpoints}"),
            PolicyName::Segments(count) => format!("segments:{count}"),
            PolicyName::Objects(count) => format!("objects:{count}"),
            PolicyName::FullEvery(every) => format!("full-every:{every}"),
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok();
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "expected above 0 and at most 100".into())
}

#[derive(Serialize)]
struct Line {
    workload: String,
    policy: String,
    #[serde(flatten)]
    report: SimulateReport,
}

/// Prints a row for each workload and policy.
pub(super) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    if args.faults.faults {
        return faults::run(&args.faults);
    }
    let mut lines = Vec::new();
    for workload in &args.workload {
        for policy in &args.policy {
            let options = SimulateOptions {
                workload: workload.workload(),
                keys: args.keys,
                changed_share: args.update / 100.0,
                checkpoints: args.checkpoints,
                warmup: args.checkpoints / 2,
                ..SimulateOptions::default()
            };
            let report = simulate(&options, policy.policy().as_ref());
            lines.push(Line { workload: workload.name(), policy: policy.name(), report });
        }
    }
    let mut out = io::stdout().lock();
    let printed = if args.json { print_json(&lines, &mut out) } else { writeln!(out, "{}", table(&lines)) };
    printed.map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn print_json(lines: &[Line], out: &mut impl Write) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *out, line)?;
        writeln!(out)?;
    }
    Ok(())
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header([
        "workload",
        "policy",
        "written ÷ changed",
        "retained ÷ live",
        "at most",
        "largest ÷ delta",
        "segments at most",
        "objects at most",
        "copied ÷ changed",
        "waste at most",
    ]);
    for Line { workload, policy, report } in lines {
        table.add_row([
            workload.clone(),
            policy.clone(),
            format!("{:.3}", report.write_amplification),
            format!("{:.3}", report.space_mean),
            format!("{:.3}", report.space_peak),
            format!("{:.2}", report.largest_per_delta),
            report.segments_peak.to_string(),
            report.objects_peak.to_string(),
            format!("{:.3}", report.packed_share),
            format!("{:.3}", report.waste_peak),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
