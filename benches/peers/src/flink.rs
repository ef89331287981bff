//! The two rows of the bars that hold lowtide against Flink's own backends.
//!
//! Ratios of CPU time where the loop is the task's alone, of the wall elsewhere. Where Flink was not run, its side is
//! what its harness recorded on a quiet machine of the same sort, and the row says so.

use std::collections::BTreeMap;

use crate::peers::{Figures, Setting};
use crate::record::Record;

/// What is compared: name, suite and its share of updates, phase, metric, whether the largest counts.
struct Measure {
    name: &'static str,
    workload: &'static str,
    phase: &'static str,
    metric: &'static str,
    is_largest: bool,
}

const MICRO: &str = "micro, 1000000 keys, long";
const ONE_PERCENT: &str = "rounds, 1000000 keys, long, zipf 1 %";
const TEN_PERCENT: &str = "rounds, 1000000 keys, long, zipf 10 %";

const fn measure(
    name: &'static str,
    (workload, phase, metric): (&'static str, &'static str, &'static str),
) -> Measure {
    Measure { name, workload, phase, metric, is_largest: false }
}

const GET: Measure = measure("get", (MICRO, "get_hit", "cpu_ns_per_op"));
const UPDATE: Measure = measure("update", (MICRO, "update", "cpu_ns_per_op"));
/// The synchronous part of the task that owns the state, on both sides.
const PAUSE: Measure = measure("pause", (ONE_PERCENT, "ckpt", "sync_ms"));
/// With what the coordinator of a job does before, where one process is both.
const TRIGGER: Measure =
    measure("pause and our coordinator's part before it", (ONE_PERCENT, "ckpt", "trigger_ms"));
const BYTES: Measure = measure("bytes a checkpoint at 1 % zipf", (ONE_PERCENT, "ckpt", "new_file_bytes"));
const RESTORE: Measure = measure("restore", (ONE_PERCENT, "restore", "wall_ms"));
const LARGEST: Measure = Measure {
    is_largest: true,
    ..measure("largest checkpoint at 10 %", (TEN_PERCENT, "ckpt", "new_file_bytes"))
};

/// Against which engine of Flink, what it recorded itself, and how many times better ours has to be.
const HEAP: [(Measure, &str, f64, f64); 6] = [
    (GET, "heap", 348.0, 6.0),
    (UPDATE, "heap", 664.0, 8.0),
    (PAUSE, "heap", 2.24, 200.0),
    (BYTES, "heap", 17.0e6, 80.0),
    (RESTORE, "heap", 1_763.0, 1.5),
    (RESTORE, "heap-snappy", 225.0, 1.5),
];
const ROCKSDB: [(Measure, &str, f64, f64); 5] = [
    (GET, "rocksdb-inc", 4_400.0, 60.0),
    (UPDATE, "rocksdb-inc", 3_997.0, 40.0),
    (PAUSE, "rocksdb-inc", 17.8, 1_000.0),
    (BYTES, "rocksdb-inc", 0.21e6, 1.2),
    (LARGEST, "rocksdb-inc", 22.92e6, 5.0),
];

fn figure(figures: &Figures, measure: &Measure) -> Option<f64> {
    if measure.is_largest {
        figures.largest(measure.phase, measure.metric)
    } else {
        figures.median(measure.phase, measure.metric)
    }
}

/// The rows, as far as lowtide was measured.
#[must_use]
pub fn rows(settings: &BTreeMap<Setting, Figures>) -> Vec<Record> {
    let mut rows = Vec::new();
    let find = |engine: &str, measure: &Measure| {
        let setting = Setting { workload: measure.workload.to_owned(), engine: engine.to_owned() };
        settings.get(&setting).and_then(|figures| figure(figures, measure))
    };
    for (bar, table) in [("Flink heap", &HEAP[..]), ("Flink RocksDB", &ROCKSDB[..])] {
        for (measure, engine, recorded, times) in table {
            let Some(ours) = find("lowtide-heap", measure) else { continue };
            let seen = find(engine, measure);
            let theirs = seen.unwrap_or(*recorded);
            let source = if seen.is_some() { "this run" } else { "recorded by its harness, not run here" };
            let case = format!("{}, against {engine}", measure.name);
            let detail = format!("{} {ours:.4} against {theirs:.4}, {source}", measure.metric);
            rows.push(Record::new(bar, &case, (theirs / ours, "times")).at_least(*times).detail(detail));
            if let Some(whole) = find("lowtide-heap", &TRIGGER).filter(|_| measure.metric == PAUSE.metric) {
                let case = format!("{}, against {engine}", TRIGGER.name);
                let detail = format!("{} {whole:.4} against sync_ms {theirs:.4}, {source}", TRIGGER.metric);
                rows.push(Record::new(bar, &case, (theirs / whole, "times")).detail(detail));
            }
        }
    }
    rows
}
