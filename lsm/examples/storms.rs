//! Provokes compaction storms and shows what each mitigation does to them.
//!
//! `cargo run --release -p lowtide-lsm --features rocksdb --example storms`
//!
//! 100,000 entries of 100 bytes. For each row 60 intervals of 500 ms, in each of which 1 % of the entries, anywhere, are
//! rewritten, and at its end a checkpoint is triggered unless as many as allowed are still being uploaded; uploads pass
//! 20 MB/s each. The base is the newest complete checkpoint. Which merges fall between which checkpoints is up to
//! RocksDB's threads and the machine, so the figures differ from run to run.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]
#![expect(clippy::disallowed_methods, reason = "uploads and intervals take time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use lowtide_format::{
    CheckpointId, FileEntry, FileKind, KeyGroup, KeyGroupCount, KeyGroupRange, ObjectName, xxh3,
};
use lowtide_lsm::{
    LsmBackend, LsmError, LsmOptions, LsmSnapshot, LsmState, OptionsScope, SnapshotKind, SnapshotRequest,
};
use rocksdb::event_listener::{CompactionJobInfo, EventListener};

const ENTRIES: u64 = 100_000;
const VALUE_BYTES: u64 = 100;
const CHANGES: u64 = ENTRIES / 100;
const INTERVALS: u64 = 60;
const INTERVAL: Duration = Duration::from_millis(500);
const UPLOAD_BYTES_PER_SECOND: u64 = 20_000_000;

struct Row {
    name: &'static str,
    options: LsmOptions,
    /// The interval is divided by this.
    interval_divisor: u64,
    concurrent_max: usize,
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
    let late = LsmOptions { flushes_per_merge: 16, ..base.clone() };
    let limited = LsmOptions { background_bytes_per_second: Some(2 << 20), ..base.clone() };
    let waiting = LsmOptions { merge_delay_max: Some(Duration::from_secs(5)), ..base.clone() };
    let row = |name, options| Row { name, options, interval_divisor: 1, concurrent_max: 1 };
    let rows = [
        row("defaults", base.clone()),
        row("smaller level targets and tables", small),
        row("merge after 16 flushes", late),
        row("flushes and merges limited to 2 MiB/s", limited),
        row("merges wait while a checkpoint is written", waiting),
        Row { concurrent_max: 4, ..row("4 checkpoints at a time", base.clone()) },
        Row { interval_divisor: 2, ..row("half the interval", base) },
    ];
    println!(
        "| options | complete | mean new | largest new | new ÷ changed | above half of the state | merging begun beside an upload | longest without |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    rows.into_iter().for_each(|row| Run::new(row).all());
}

/// Bytes of the merges that began while a checkpoint was being uploaded.
#[derive(Clone, Default)]
struct Beside {
    uploading: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

impl EventListener for Beside {
    // Called after lowtide's own listener, which makes merges wait.
    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        if self.uploading.load(Ordering::Relaxed) {
            self.bytes.fetch_add(info.total_input_bytes(), Ordering::Relaxed);
        }
    }
}

type Upload = JoinHandle<(LsmSnapshot, Vec<FileEntry>)>;

struct Run {
    row: Row,
    backend: LsmBackend,
    state: LsmState<u64, (), Vec<u8>>,
    beside: Beside,
    random: u64,
    uploads: Vec<(CheckpointId, Instant, Upload)>,
    newest: Option<(CheckpointId, Instant)>,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    complete: u64,
    new: u64,
    largest: u64,
    changed: u64,
    storms: u64,
    longest_without: Duration,
}

impl Run {
    fn new(mut row: Row) -> Self {
        let beside = Beside::default();
        let listener = beside.clone();
        row.options.hook = Some(Arc::new(move |scope: OptionsScope<'_>| {
            if let OptionsScope::Database(options) = scope {
                options.add_event_listener(listener.clone());
            }
        }));
        let all = KeyGroupRange::new(KeyGroup(0), KeyGroup(127)).unwrap();
        let mut backend = LsmBackend::open(&row.options, all, KeyGroupCount::new(128).unwrap()).unwrap();
        let state = backend.value_state("s").unwrap();
        let (uploads, newest, figures) = (Vec::new(), None, Figures::default());
        Self { row, backend, state, beside, random: 1, uploads, newest, figures }
    }

    fn next(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Values that do not compress, so that bytes are entries.
    fn put(&mut self, key: u64) {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| self.next() as u8).collect();
        self.backend.put(self.state, &(), &key, &value).unwrap();
    }

    fn all(mut self) {
        (0..ENTRIES).for_each(|key| self.put(key));
        self.trigger(1);
        while self.newest.is_none() {
            sleep(Duration::from_millis(1));
            self.settle();
        }
        let divisor = self.row.interval_divisor;
        let start = Instant::now();
        for number in 1..=INTERVALS * divisor {
            for _ in 0..CHANGES / divisor {
                let key = self.next() % ENTRIES;
                self.put(key);
            }
            let end = start + INTERVAL * u32::try_from(number).unwrap() / u32::try_from(divisor).unwrap();
            while Instant::now() < end {
                sleep(Duration::from_millis(1));
                self.settle();
            }
            if self.uploads.len() < self.row.concurrent_max {
                self.trigger(number + 1);
            }
        }
        while !self.uploads.is_empty() {
            self.settle();
        }
        self.print();
    }

    fn trigger(&mut self, number: u64) {
        let id = CheckpointId::new(number).unwrap();
        let base = self.newest.map(|(id, _)| id);
        let request = SnapshotRequest { id, base, kind: SnapshotKind::Tables, may_be_base: true };
        let mut snapshot = self.backend.freeze(request).unwrap();
        self.beside.uploading.store(true, Ordering::Relaxed);
        let upload = spawn(move || {
            let mut files = Vec::new();
            let written = snapshot.write(
                || false,
                |file| {
                    let object = ObjectName::new(&format!("{number}-{}", files.len())).unwrap();
                    let (length, checksum) = (file.bytes.len() as u64, xxh3(&file.bytes));
                    sleep(Duration::from_micros(length * 1_000_000 / UPLOAD_BYTES_PER_SECOND));
                    files.push(FileEntry { object, offset: 0, length, checksum, kind: FileKind::Sst });
                    Ok::<_, LsmError>(())
                },
            );
            written.unwrap();
            (snapshot, files)
        });
        self.uploads.push((id, Instant::now(), upload));
    }

    /// Takes in what is uploaded; older ones that were overtaken are left.
    fn settle(&mut self) {
        while let Some(at) = self.uploads.iter().position(|(_, _, upload)| upload.is_finished()) {
            let (id, triggered, upload) = self.uploads.remove(at);
            let (snapshot, files) = upload.join().unwrap();
            let overtaken = self.newest.is_some_and(|(newest, _)| newest > id);
            let traffic = snapshot.finish(files).unwrap().figures.traffic;
            if let Some((_, former)) = self.newest.filter(|_| !overtaken) {
                let figures = &mut self.figures;
                figures.complete += 1;
                figures.longest_without = figures.longest_without.max(former.elapsed());
            }
            if self.newest.is_some() {
                self.figures.add(&traffic);
            }
            if overtaken {
                self.backend.aborted(id);
            } else {
                self.backend.completed(id);
                self.newest = Some((id, triggered));
            }
        }
        self.beside.uploading.store(!self.uploads.is_empty(), Ordering::Relaxed);
    }

    fn print(&self) {
        let Self { row, figures, .. } = self;
        let Figures { complete, new, largest, changed, storms, longest_without } = figures;
        println!(
            "| {} | {complete} | {} KiB | {} KiB | {:.1} | {storms} | {} KiB | {:.1} intervals |",
            row.name,
            (new / complete.max(&1)) >> 10,
            largest >> 10,
            *new as f64 / *changed as f64,
            self.beside.bytes.load(Ordering::Relaxed) >> 10,
            longest_without.div_duration_f64(INTERVAL),
        );
    }
}

impl Figures {
    fn add(&mut self, traffic: &lowtide_lsm::TrafficFigures) {
        self.new += traffic.new_bytes;
        self.largest = self.largest.max(traffic.new_bytes);
        self.changed += traffic.changed_bytes;
        self.storms += u64::from(traffic.new_per_live() >= 0.5);
    }
}
