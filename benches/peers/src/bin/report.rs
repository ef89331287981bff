//! Puts figures together: `report RESULTS.md FACTS.md FILE…` writes a page from files of JSON lines.
//!
//! `FACTS.md` says where and how it was measured and comes first. What stands in the page below the line
//! `## Why bars are missed` is written by people and kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use lowtide_peers::flink;
use lowtide_peers::peers::{Figures, Setting, by_setting};
use lowtide_peers::record::Record;

const KEPT: &str = "## Why bars are missed";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [page, facts, files @ ..] = words.as_slice() else {
        eprintln!("usage: report RESULTS.md FACTS.md FILE…");
        return ExitCode::from(2);
    };
    let texts: Vec<String> = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let settings = by_setting(&texts);
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut records: Vec<Record> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    records.extend(flink::rows(&settings));
    let old = fs::read_to_string(page).unwrap_or_default();
    let kept = old.find(KEPT).and_then(|at| old.get(at..)).unwrap_or(KEPT);
    let facts = fs::read_to_string(facts).unwrap_or_default();
    let text = format!("{facts}\n{}\n{}\n{kept}\n", bars(&records), engines(&settings));
    if let Err(error) = fs::write(page, text.trim_end().to_owned() + "\n") {
        eprintln!("report: cannot write {page}: {error}");
        return ExitCode::from(2);
    }
    let held: Vec<&Record> =
        records.iter().filter(|record| !record.least && record.is_met().is_some()).collect();
    let missed: Vec<_> = held.iter().filter(|record| record.is_met() == Some(false)).collect();
    let limits = missed.iter().filter(|record| limit_of(record, &records).is_some()).count();
    let (met, missed) = (held.len() - missed.len(), missed.len() - limits);
    println!("of {} bars {met} are met, {limits} are at a limit, {missed} are missed; {page}", held.len());
    if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The same row of a program that does strictly less, if that misses the bar as well.
fn limit_of<'a>(record: &Record, records: &'a [Record]) -> Option<&'a Record> {
    records.iter().find(|least| least.is_limit_of(record))
}

fn bars(records: &[Record]) -> String {
    let mut text = "## Bars\n\nA missed bar is at a limit if a program of `benches/limits`, which does strictly less, \
                    misses it as well in this run.\n\n| measure | case | figure | bar | | |\n|---|---|---:|---:|---|---|\n"
        .to_owned();
    for record in records.iter().filter(|record| !record.least) {
        let Record { bar, case, value, unit, limit, at_least, detail, .. } = record;
        let sign = if *at_least { "≥" } else { "≤" };
        let limit = limit.map_or_else(String::new, |limit| format!("{sign} {limit}"));
        let verdict = match (record.is_met(), limit_of(record, records)) {
            (None, _) => String::new(),
            (Some(true), _) => "pass".to_owned(),
            (Some(false), Some(least)) => format!("limit: {}", short(least.value)),
            (Some(false), None) => "**missed**".to_owned(),
        };
        // A string takes any text, so writing cannot fail.
        let _ =
            writeln!(text, "| {bar} | {case} | {} {unit} | {limit} | {verdict} | {detail} |", short(*value));
    }
    text
}

/// Three significant digits.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Header, phase, metric, divisor of a column.
type Column = (&'static str, &'static str, &'static str, f64);

const MICRO: [Column; 7] = [
    ("get ns", "get_hit", "cpu_ns_per_op", 1.0),
    ("miss ns", "get_miss", "cpu_ns_per_op", 1.0),
    ("update ns", "update", "cpu_ns_per_op", 1.0),
    ("get + put ns", "rmw", "cpu_ns_per_op", 1.0),
    ("update, snapshot held ns", "update_snapshot_held", "cpu_ns_per_op", 1.0),
    ("update, being written ns", "update_snapshot_running", "cpu_ns_per_op", 1.0),
    ("pause ms", "snapshot", "sync_ms", 1.0),
];
const ROUNDS: [Column; 7] = [
    ("update ns", "update", "cpu_ns_per_op", 1.0),
    ("pause ms", "ckpt", "sync_ms", 1.0),
    ("with trigger ms", "ckpt", "trigger_ms", 1.0),
    ("writing ms", "ckpt", "async_ms", 1.0),
    ("checkpoint kB", "ckpt", "new_file_bytes", 1e3),
    ("retained MB", "ckpt", "retained_bytes", 1e6),
    ("restore ms", "restore", "wall_ms", 1.0),
];

/// A table per workload, a row per engine.
fn engines(settings: &BTreeMap<Setting, Figures>) -> String {
    let mut text =
        "## Engines on the same workload\n\nMedians over repetitions, and over the checkpoints after the \
        first; ns are CPU time. Whether an engine syncs what it writes to \
        the disk differs: lowtide and the dumps do, Flink and the copy of RocksDB's tables do not.\n"
            .to_owned();
    let mut before = None;
    for (Setting { workload, engine }, figures) in settings {
        let columns: &[Column] = if workload.starts_with("micro") { &MICRO } else { &ROUNDS };
        if before.replace(workload) != Some(workload) {
            let names: Vec<&str> = columns.iter().map(|column| column.0).collect();
            let _ = writeln!(text, "\n### {workload}\n\n| engine | {} |", names.join(" | "));
            let _ = writeln!(text, "|---|{}", "---:|".repeat(names.len()));
        }
        let cells = columns.iter().map(|(_, phase, metric, divisor)| {
            figures.median(phase, metric).map_or_else(String::new, |value| short(value / divisor))
        });
        let _ = writeln!(text, "| {engine} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}
