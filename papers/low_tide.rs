//! The tables and figures of `papers/low-tide.md`, from the simulator and the model.
//!
//! `cargo run --release --example low_tide` writes `papers/figures/*.svg` and `papers/figures/tables.md`, the same
//! bytes every time.

#[path = "low_tide/chart.rs"]
mod chart;
#[path = "low_tide/model.rs"]
mod model;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide::heap::rewrite::{
    Bound, BoundedRewriting, ChainStats, Never, RewriteBudget, RewritePlan, RewritePolicy, Survivors,
    VictimOrder,
};
use lowtide::simulate::{
    CheckpointFigures, PeriodicFull, Purge, SimulateOptions, SimulateReport, Simulation, Workload, simulate,
};

use chart::{Chart, Curve};

const UNIFORM: Workload = Workload::Uniform;
const HOT: Workload = Workload::Hot { changes: 0.9, keys: 0.1 };
const ZIPF: Workload = Workload::Zipf { exponent: 0.99 };
const SKEWS: [(&str, Workload); 3] = [("uniform", UNIFORM), ("hot 90/10", HOT), ("Zipf 0.99", ZIPF)];

/// Keys of the runs that only compare policies; the figures for the bars have a million.
const KEYS: u32 = 200_000;

/// A policy that is not told which entries the writer can find without a pass: it chooses freely.
#[derive(Debug)]
struct Free(BoundedRewriting);

impl RewritePolicy for Free {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let mut stats = stats.clone();
        stats.segments.iter_mut().for_each(|segment| segment.indexed = false);
        RewritePlan { prospects: Vec::new(), ..self.0.plan(&stats) }
    }

    fn part_bytes(&self, bytes: u64) -> Option<u64> {
        self.0.part_bytes(bytes)
    }
}

/// A policy that writes the first checkpoint as one segment.
#[derive(Debug)]
struct InOnePiece(BoundedRewriting);

impl RewritePolicy for InOnePiece {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        self.0.plan(stats)
    }
}

fn options(workload: Workload) -> SimulateOptions {
    SimulateOptions { workload, keys: KEYS, ..SimulateOptions::default() }
}

/// A bound on space with a budget that even the tightest one needs.
fn space(ratio: f64) -> BoundedRewriting {
    let (bounds, budget) = (vec![Bound::SpaceAmplification { ratio }], RewriteBudget::Deltas(2.0));
    BoundedRewriting { bounds, budget, objects_max: None, ..BoundedRewriting::default() }
}

/// A table as Markdown.
struct Table {
    text: String,
}

impl Table {
    fn new(title: &str, head: &[&str]) -> Self {
        let line: String = head.iter().map(|_| "---|").collect();
        Self { text: format!("## {title}\n\n| {} |\n|{line}\n", head.join(" | ")) }
    }

    fn row(&mut self, cells: &[String]) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }
}

fn cell(number: f64) -> String {
    format!("{number:.2}")
}

const POLICY_HEAD: [&str; 8] = [
    "workload",
    "policy",
    "written ÷ changed",
    "retained ÷ live, mean",
    "peak",
    "largest ÷ delta",
    "segments, mean",
    "peak",
];

fn policy_row(table: &mut Table, workload: &str, policy: &str, report: &SimulateReport) {
    table.row(&[
        workload.to_owned(),
        policy.to_owned(),
        format!("{:.3}", report.write_amplification),
        cell(report.space_mean),
        cell(report.space_peak),
        cell(report.largest_per_delta),
        format!("{:.0}", report.segments_mean),
        report.segments_peak.to_string(),
    ]);
}

/// The bars: a million keys, two bounds on space.
fn bars() -> Table {
    let mut table = Table::new(
        "1. A million keys, 1 % changing, 800 checkpoints after 800",
        &[
            "workload",
            "bound",
            "written ÷ changed",
            "model, one log",
            "model, perfect separation",
            "retained ÷ live, mean",
            "peak from the first",
            "largest ÷ delta",
            "looks per entry and life",
            "manifest share",
        ],
    );
    for ratio in [2.0, 1.5] {
        for (name, workload) in SKEWS {
            let options = SimulateOptions { keys: 1_000_000, ..options(workload) };
            let report = simulate(&options, &space(ratio));
            let classes = model::classes(workload, options.keys, options.changed_share);
            table.row(&[
                name.to_owned(),
                ratio.to_string(),
                format!("{:.3}", report.write_amplification),
                format!("{:.3}", model::one_log(&classes, ratio)),
                format!("{:.3}", model::separated(&classes, ratio)),
                cell(report.space_mean),
                cell(report.space_peak),
                cell(report.largest_per_delta),
                cell(report.looks_per_life),
                format!("{:.1} %", report.listing_share * 100.0),
            ]);
        }
    }
    table
}

/// The order of victims, with and without separation and free choice.
fn orders() -> Table {
    let mut table = Table::new(
        "2. Which victim next: written ÷ changed at retained ÷ live ≤ 2 and ≤ 1.5, 200,000 keys",
        &[
            "order",
            "survivors",
            "uniform, 2",
            "hot, 2",
            "Zipf, 2",
            "uniform, 1.5",
            "hot, 1.5",
            "Zipf, 1.5",
            "looks, worst",
        ],
    );
    let orders = [
        ("oldest first", VictimOrder::OldestFirst),
        ("greedy", VictimOrder::Greedy),
        ("cost–benefit", VictimOrder::CostBenefit),
        ("declining cost", VictimOrder::DecliningCost),
    ];
    for (name, order) in orders {
        for (place, survivors) in [("apart", Survivors::Apart), ("with the delta", Survivors::WithDelta)] {
            order_row(&mut table, [name, place], &|ratio| {
                Box::new(BoundedRewriting { order, survivors, ..space(ratio) })
            });
        }
    }
    order_row(&mut table, ["declining cost, free choice", "apart"], &|ratio| Box::new(Free(space(ratio))));
    table
}

fn order_row(table: &mut Table, names: [&str; 2], policy: &dyn Fn(f64) -> Box<dyn RewritePolicy>) {
    let mut cells: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut looks: f64 = 0.0;
    for ratio in [2.0, 1.5] {
        for (_, workload) in SKEWS {
            let report = simulate(&options(workload), policy(ratio).as_ref());
            looks = looks.max(report.looks_per_life);
            cells.push(format!("{:.3}", report.write_amplification));
        }
    }
    cells.push(cell(looks));
    table.row(&cells);
}

/// What each bound costs.
fn bounds() -> Table {
    let mut table = Table::new("3. What a bound costs, 200,000 keys, 1 % changing", &POLICY_HEAD);
    for (name, workload) in SKEWS {
        let mut row = |policy: &str, rewriting: &dyn RewritePolicy| {
            policy_row(&mut table, name, policy, &simulate(&options(workload), rewriting));
        };
        row("none", &Never);
        for ratio in [3.0, 2.0, 1.5, 1.25] {
            row(&format!("space {ratio}"), &space(ratio));
        }
        for checkpoints in [64, 128] {
            row(
                &format!("age {checkpoints}, no budget"),
                &BoundedRewriting::exactly(Bound::MaxAge { checkpoints }),
            );
            let bounds = vec![Bound::MaxAge { checkpoints }];
            row(&format!("age {checkpoints}, budget 2"), &BoundedRewriting { bounds, ..space(2.0) });
        }
        for count in [100, 200] {
            row(&format!("segments {count}"), &BoundedRewriting::exactly(Bound::MaxSegments { count }));
        }
        for every in [64, 128] {
            row(&format!("full every {every}"), &PeriodicFull { every });
        }
    }
    table
}

/// What a smaller or larger budget, and a first checkpoint in one piece, do to the peaks.
fn budgets() -> Table {
    let mut table = Table::new("4. Budgets under retained ÷ live ≤ 2, 200,000 keys", &POLICY_HEAD);
    for (name, workload) in SKEWS {
        for deltas in [0.5, 1.0, 2.0, 4.0] {
            let policy = BoundedRewriting { budget: RewriteBudget::Deltas(deltas), ..space(2.0) };
            policy_row(&mut table, name, &format!("{deltas} deltas"), &simulate(&options(workload), &policy));
        }
        let report = simulate(&options(workload), &InOnePiece(space(2.0)));
        policy_row(&mut table, name, "2 deltas, first in one piece", &report);
        let policy = BoundedRewriting { batch_deltas: 0.0, ..space(2.0) };
        policy_row(&mut table, name, "2 deltas, no batch", &simulate(&options(workload), &policy));
    }
    table
}

/// The default where little, much, or something else than updates happens.
fn others() -> Table {
    let mut table = Table::new("5. The default elsewhere, 200,000 keys", &POLICY_HEAD);
    let default = BoundedRewriting::default();
    for (name, share) in [("uniform, 0.3 %", 0.003), ("uniform, 3 %", 0.03), ("uniform, 30 %", 0.3)] {
        let options =
            SimulateOptions { changed_share: share, checkpoints: 4000, warmup: 3000, ..options(UNIFORM) };
        policy_row(&mut table, name, "default", &simulate(&options, &default));
    }
    let small = SimulateOptions { changed_share: 0.001, checkpoints: 6000, warmup: 4000, ..options(UNIFORM) };
    policy_row(&mut table, "uniform, 0.1 %", "space 2", &simulate(&small, &space(2.0)));
    policy_row(&mut table, "uniform, 0.1 %", "default", &simulate(&small, &default));
    let workloads = [
        ("windows, removed", Workload::Windows { purge: Purge::Remove }),
        ("windows, cleared", Workload::Windows { purge: Purge::Clear }),
        ("append", Workload::Append),
        ("all updated", Workload::AllUpdated),
    ];
    for (name, workload) in workloads {
        let options = SimulateOptions { checkpoints: 400, warmup: 200, ..options(workload) };
        policy_row(&mut table, name, "default", &simulate(&options, &default));
    }
    table
}

/// Writes amplification over the bound on space: measured and both models.
fn amplification_chart() -> Chart {
    let ratios: Vec<f64> = (0..15).map(|step| 1.2 + 0.2 * f64::from(step)).collect();
    let mut curves = Vec::new();
    for (name, workload) in SKEWS {
        let measured = |ratio: &f64| {
            let options = SimulateOptions { keys: 100_000, ..options(workload) };
            (*ratio, simulate(&options, &space(*ratio)).write_amplification)
        };
        curves.push(Curve::solid(name, ratios.iter().map(measured).collect()));
        let classes = model::classes(workload, 100_000, 0.01);
        let bound = ratios.iter().map(|ratio| (*ratio, model::separated(&classes, *ratio))).collect();
        curves.push(Curve::thin(&format!("{name}, model"), bound));
    }
    Chart {
        name: "amplification",
        title: "Bytes written per byte changed, by the bound on space",
        across: "retained ÷ live, at most",
        up: "written ÷ changed",
        logarithmic: false,
        curves,
    }
}

fn run_rows(workload: Workload, checkpoints: u32, policy: &dyn RewritePolicy) -> Vec<CheckpointFigures> {
    let options = SimulateOptions { keys: 100_000, checkpoints, ..options(workload) };
    let mut simulation = Simulation::new(options);
    (0..checkpoints).map(|_| simulation.checkpoint(policy)).collect()
}

fn over_time(rows: &[CheckpointFigures], figure: impl Fn(&CheckpointFigures) -> f64) -> Vec<(f64, f64)> {
    rows.iter().enumerate().skip(1).map(|(index, row)| (index as f64 + 1.0, figure(row))).collect()
}

/// The sizes of checkpoints, one after the other.
fn sizes_chart() -> Chart {
    let size = |row: &CheckpointFigures| row.written_bytes() as f64 / row.delta_bytes.max(1) as f64;
    let curve = |name: &str, policy: &dyn RewritePolicy| {
        Curve::solid(name, over_time(&run_rows(ZIPF, 400, policy), size))
    };
    Chart {
        name: "sizes",
        title: "Size of each checkpoint, Zipf 0.99",
        across: "checkpoint",
        up: "written ÷ delta",
        logarithmic: true,
        curves: vec![
            curve("space 2, budget 2", &space(2.0)),
            curve("age 64, no budget", &BoundedRewriting::exactly(Bound::MaxAge { checkpoints: 64 })),
            curve("full every 64", &PeriodicFull { every: 64 }),
        ],
    }
}

/// Retained ÷ live from the first checkpoint on.
fn space_chart() -> Chart {
    let curve = |name: &str, policy: &dyn RewritePolicy| {
        Curve::solid(name, over_time(&run_rows(UNIFORM, 500, policy), CheckpointFigures::space))
    };
    Chart {
        name: "space",
        title: "Retained ÷ live from the first checkpoint on, uniform",
        across: "checkpoint",
        up: "retained ÷ live",
        logarithmic: false,
        curves: vec![
            curve("space 2", &space(2.0)),
            curve("space 2, first in one piece", &InOnePiece(space(2.0))),
            curve("none", &Never),
            curve("full every 128", &PeriodicFull { every: 128 }),
        ],
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("papers/figures");
    fs::create_dir_all(&folder)?;
    for chart in [amplification_chart(), sizes_chart(), space_chart()] {
        fs::write(folder.join(format!("{}.svg", chart.name)), chart.draw()?)?;
    }
    let mut text = String::from("# Tables\n\nMade by `cargo run --release --example low_tide`.\n");
    for table in [bars(), orders(), bounds(), budgets(), others()] {
        write!(text, "\n{}", table.text)?;
    }
    fs::write(folder.join("tables.md"), text)?;
    Ok(())
}
