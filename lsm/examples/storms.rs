//! Provokes compaction storms and shows what each mitigation does to them.
//!
//! `cargo run -p lowtide-lsm --features rocksdb --example storms`
//!
//! 100,000 entries of 100 bytes; 60 checkpoints, 1 % of the entries, anywhere, rewritten before each. Bytes are
//! counted, so the machine does not matter; which merges happen between which checkpoints is up to RocksDB's threads,
//! so the figures differ a little from run to run. The shorter interval rewrites half as much before twice as many
//! checkpoints.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use lowtide_format::{
    CheckpointId, FileEntry, FileKind, KeyGroup, KeyGroupCount, KeyGroupRange, ObjectName, xxh3,
};
use lowtide_lsm::{LsmBackend, LsmError, LsmOptions, SnapshotKind, SnapshotRequest};

const ENTRIES: u64 = 100_000;
const VALUE_BYTES: u64 = 100;
const CHANGES: u64 = ENTRIES / 100;
const CHECKPOINTS: u64 = 60;

struct Row {
    name: &'static str,
    options: LsmOptions,
    /// The interval is divided by this.
    interval_divisor: u64,
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let base = LsmOptions {
        directory: directory.path().to_path_buf(),
        memory_budget: 32 << 20,
        level_bytes_base: 16 << 20,
        ..LsmOptions::default()
    };
    let small = LsmOptions { table_bytes_target: 256 << 10, level_bytes_base: 1 << 20, ..base.clone() };
    let rows = [
        Row { name: "defaults", options: base.clone(), interval_divisor: 1 },
        Row { name: "smaller level targets and tables", options: small, interval_divisor: 1 },
        Row {
            name: "merge after 16 flushes",
            options: LsmOptions { flushes_per_merge: 16, ..base.clone() },
            interval_divisor: 1,
        },
        Row {
            name: "compaction limited to 2 MiB/s",
            options: LsmOptions { background_bytes_per_second: Some(2 << 20), ..base.clone() },
            interval_divisor: 1,
        },
        Row { name: "half the interval", options: base, interval_divisor: 2 },
    ];
    println!("| options | mean new | largest new | new / changed | checkpoints above half of the state |");
    println!("|---|---|---|---|---|");
    for row in rows {
        run(&row);
    }
}

fn run(row: &Row) {
    let all = KeyGroupRange::new(KeyGroup(0), KeyGroup(127)).unwrap();
    let mut backend = LsmBackend::open(&row.options, all, KeyGroupCount::new(128).unwrap()).unwrap();
    let state = backend.value_state("s").unwrap();
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    // Values that do not compress, so that bytes are entries.
    let mut value = || (0..VALUE_BYTES).map(|_| next() as u8).collect::<Vec<u8>>();
    for key in 0..ENTRIES {
        backend.put(state, &(), &key, &value()).unwrap();
    }
    let (mut new, mut largest, mut changed, mut storms) = (0_u64, 0_u64, 0_u64, 0_u64);
    let checkpoints = CHECKPOINTS * row.interval_divisor;
    for number in 1..=checkpoints {
        let figures = checkpoint(&mut backend, number);
        if number > 1 {
            new += figures.new_bytes;
            largest = largest.max(figures.new_bytes);
            changed += figures.changed_bytes;
            storms += u64::from(figures.new_per_live() >= 0.5);
        }
        for _ in 0..CHANGES / row.interval_divisor {
            let key = u64::from_le_bytes(value().first_chunk().copied().unwrap()) % ENTRIES;
            backend.put(state, &(), &key, &value()).unwrap();
        }
    }
    println!(
        "| {} | {} KiB | {} KiB | {:.1} | {storms} of {} |",
        row.name,
        (new / (checkpoints - 1)) >> 10,
        largest >> 10,
        new as f64 / changed as f64,
        checkpoints - 1
    );
}

fn checkpoint(backend: &mut LsmBackend, number: u64) -> lowtide_lsm::TrafficFigures {
    let id = CheckpointId::new(number).unwrap();
    let base = CheckpointId::new(number - 1);
    let request = SnapshotRequest { id, base, kind: SnapshotKind::Tables, may_be_base: true };
    let mut snapshot = backend.freeze(request).unwrap();
    let mut files = Vec::new();
    let written = snapshot.write(
        || false,
        |file| {
            let object = ObjectName::new(&format!("{number}-{}", files.len())).unwrap();
            let (length, checksum) = (file.bytes.len() as u64, xxh3(&file.bytes));
            files.push(FileEntry { object, offset: 0, length, checksum, kind: FileKind::Sst });
            Ok::<_, LsmError>(())
        },
    );
    written.unwrap();
    let taken = snapshot.finish(files).unwrap();
    backend.completed(id);
    taken.figures.traffic
}
