//! `lowtide simulate --faults`: whole jobs under faults, from seeds.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use lowtide::simulate::faults::{FaultOptions, FaultReport, Situation, simulate_faults};

use super::Failure;

/// Options of the simulation under faults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Faults")]
pub(super) struct FaultArgs {
    /// Play jobs under faults and check them, instead of comparing policies
    #[arg(long)]
    pub(super) faults: bool,
    /// Histories to play
    #[arg(long, value_name = "N", default_value = "1000", requires = "faults")]
    seeds: u64,
    /// Seed of the first history
    #[arg(long, value_name = "SEED", default_value = "1", requires = "faults")]
    first_seed: u64,
    /// Threads that play them
    #[arg(long, value_name = "N", default_value = "2", requires = "faults")]
    threads: usize,
    /// Break a rule of the protocol on purpose, to see that it is noticed
    #[cfg(feature = "break")]
    #[arg(long = "break", value_name = "NAME", requires = "faults", value_parser = parse_break)]
    broken: Option<lowtide::broken::Break>,
}

#[cfg(feature = "break")]
fn parse_break(text: &str) -> Result<lowtide::broken::Break, String> {
    use lowtide::broken::Break;
    let found = Break::ALL.iter().find(|rule| rule.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Break::ALL.iter().map(|rule| rule.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Prints each violation with the script that replays it, then what was reached, then the counts.
pub(super) fn run(args: &FaultArgs) -> Result<ExitCode, Failure> {
    #[cfg(feature = "break")]
    lowtide::broken::break_rule(args.broken);
    let options = FaultOptions {
        first_seed: args.first_seed,
        seeds: args.seeds,
        threads: args.threads,
        ..FaultOptions::default()
    };
    let report = simulate_faults(&options);
    print(&report, &mut io::stdout().lock()).map_err(Failure::output)?;
    let rare = report.histories >= 1_000 && rare(&report).next().is_some();
    Ok(if report.violations.is_empty() && !rare { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Situations that too few histories reached.
fn rare(report: &FaultReport) -> impl Iterator<Item = Situation> + '_ {
    Situation::REQUIRED.into_iter().filter(|situation| report.situations.share(*situation) < 0.01)
}

fn print(report: &FaultReport, out: &mut impl Write) -> io::Result<()> {
    for violation in &report.violations {
        writeln!(out, "# seed {}: {}", violation.seed, violation.rule)?;
        writeln!(out, "{}", violation.script)?;
    }
    for (situation, share) in report.situations.iter() {
        writeln!(out, "{:5.1} % {}", share * 100.0, situation.name())?;
    }
    for situation in rare(report) {
        writeln!(out, "{} was reached by less than 1 % of the histories", situation.name())?;
    }
    writeln!(out, "{} histories, {} violations", report.histories, report.violations.len())
}
