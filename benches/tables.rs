//! Restoring a job on RocksDB from local disk beside copying the same files.
//!
//! `cargo bench --features rocksdb --bench tables`; machine and results: benches/README.md. `LOWTIDE_BENCH_MB` sets the
//! size of the state, 1000 by default.
//!
//! Both take turns; printed are the medians and the median of the ratios of neighbouring turns. Copying reads nothing but
//! the tables that the checkpoint lists and checks nothing; a restore also reads manifest and table list, checks every
//! byte, opens the database and is ready for its first access. Neither syncs what it writes.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table and fails by panicking"
)]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lowtide::lsm::LsmOptions;
use lowtide::{CheckpointKind, FileKind, Job, JobBuilder, ObjectName, RocksBackend, Store, read_published};

const VALUE_BYTES: u64 = 1000;
const TURNS: usize = 7;

fn builder(local: &Path) -> JobBuilder<RocksBackend> {
    let options = LsmOptions { directory: local.to_path_buf(), ..LsmOptions::default() };
    JobBuilder::<RocksBackend>::new("j").subtasks(1).backend(options)
}

/// Bytes that do not compress.
fn value(key: u64) -> Vec<u8> {
    let mut seed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    (0..VALUE_BYTES / 8).flat_map(word).collect()
}

async fn fill(store: &Store, local: &Path, entries: u64) {
    let mut job: Job<RocksBackend> = builder(local).create(store).await.unwrap();
    let state = job.value_state::<u64, Vec<u8>, ()>("s").unwrap();
    for key in 0..entries {
        job.state_mut(&state).set(key, value(key)).unwrap();
    }
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
}

/// The tables of the newest checkpoint as files.
async fn tables(store: &Store, directory: &Path) -> Vec<(PathBuf, u64)> {
    let inside = store.sub(&ObjectName::new("j").unwrap());
    let published = read_published(&inside).await.unwrap();
    let manifest = published.checkpoints.last().unwrap().manifest(&inside).await.unwrap();
    let tables = manifest.entries().filter(|entry| entry.kind == FileKind::Sst);
    tables.map(|entry| (directory.join("j").join(entry.object.as_str()), entry.length)).collect()
}

fn copy(tables: &[(PathBuf, u64)], to: &Path) -> Duration {
    let start = Instant::now();
    std::fs::create_dir(to).unwrap();
    for (table, _) in tables {
        std::fs::copy(table, to.join(table.file_name().unwrap())).unwrap();
    }
    let took = start.elapsed();
    std::fs::remove_dir_all(to).unwrap();
    took
}

async fn restore(store: &Store, local: &Path, entries: u64) -> Duration {
    let start = Instant::now();
    let mut job: Job<RocksBackend> = builder(local).recover(store).await.unwrap();
    let state = job.value_state::<u64, Vec<u8>, ()>("s").unwrap();
    assert!(job.state(&state).get(&(entries / 2)).unwrap().is_some());
    start.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[tokio::main]
async fn main() {
    let megabytes =
        std::env::var("LOWTIDE_BENCH_MB").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1000);
    let entries = megabytes * 1_000_000 / VALUE_BYTES;
    let directory = tempfile::tempdir().unwrap();
    let (stored, local) = (directory.path().join("stored"), directory.path().join("local"));
    std::fs::create_dir(&stored).unwrap();
    let store = Store::local(&stored).unwrap();
    fill(&store, &local, entries).await;
    let tables = tables(&store, &stored).await;
    let bytes: u64 = tables.iter().map(|(_, bytes)| bytes).sum();
    let copies = directory.path().join("copies");
    let mut turns = Vec::new();
    // The first turn warms the page cache.
    for turn in 0..=TURNS {
        let (restored, copied) = if turn % 2 == 0 {
            let restored = restore(&store, &local, entries).await;
            (restored, copy(&tables, &copies))
        } else {
            let copied = copy(&tables, &copies);
            (restore(&store, &local, entries).await, copied)
        };
        if turn > 0 {
            turns.push((restored.as_secs_f64(), copied.as_secs_f64()));
        }
    }
    let ratio = median(turns.iter().map(|(restored, copied)| restored / copied).collect());
    let of = |at: fn(&(f64, f64)) -> f64| median(turns.iter().map(at).collect());
    println!("| {} MB in {} tables | restore | copy | ratio |", bytes / 1_000_000, tables.len());
    println!("|---|---|---|---|");
    println!("| median of {TURNS} | {:.2} s | {:.2} s | {ratio:.2} |", of(|turn| turn.0), of(|turn| turn.1));
}
