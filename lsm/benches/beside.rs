//! What the backend costs beside the same calls made on RocksDB directly, on the same open database.
//!
//! `cargo bench -p lowtide-lsm --features rocksdb --bench beside`; machine and results: benches/README.md.
//!
//! Both sides take turns of some thousand calls, each going first every other time, so that whatever else the machine
//! does meets both; printed are the medians and the median of the ratios of neighbouring turns. The direct side finds
//! its keys encoded and laid out in the order of its calls, and copies the values that it reads. Measured are access and
//! the pause of a checkpoint; not what uploading it takes.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table and fails by panicking"
)]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lowtide_format::{CheckpointId, Key, KeyGroup, KeyGroupCount, KeyGroupRange, key_group};
use lowtide_lsm::{LsmBackend, LsmOptions, LsmState, SnapshotKind, SnapshotRequest};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{FlushOptions, ReadOptions, WriteOptions};

const ENTRIES: u64 = 200_000;
const VALUE_BYTES: usize = 100;
const CALLS: u64 = 4_000;
const TURNS: usize = 101;
const PAUSES: usize = 41;
/// Changed before each pause: 1 %.
const CHANGES: u64 = ENTRIES / 100;

type State = LsmState<u64, (), Vec<u8>>;

struct Bench {
    directory: tempfile::TempDir,
    backend: LsmBackend,
    state: State,
    turn: u64,
}

fn key_groups() -> KeyGroupCount {
    KeyGroupCount::new(128).unwrap()
}

fn stored_key(n: u64) -> Vec<u8> {
    let mut stored = Vec::new();
    let append = |out: &mut Vec<u8>| {
        out.extend_from_slice(&n.to_le_bytes());
        Ok(())
    };
    let group = key_group(n.key_hash(), key_groups());
    lowtide_lsm::key::encode(&mut stored, group, append, |_| Ok(())).unwrap();
    stored
}

/// Incompressible, and other bytes in each turn.
fn value(n: u64, turn: u64) -> Vec<u8> {
    let mut seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn;
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..VALUE_BYTES).map(byte).collect()
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = LsmOptions { directory: directory.path().to_path_buf(), ..LsmOptions::default() };
        let all = KeyGroupRange::new(KeyGroup(0), KeyGroup(127)).unwrap();
        let mut backend = LsmBackend::open(&options, all, key_groups()).unwrap();
        let state = backend.value_state("s").unwrap();
        for n in 0..ENTRIES {
            backend.put(state, &(), &n, &value(n, 0)).unwrap();
        }
        Self { directory, backend, state, turn: 0 }
    }

    /// Keys anywhere, other ones in each turn.
    fn keys(&mut self, count: u64) -> Vec<u64> {
        self.turn += 1;
        let first = self.turn * count;
        (first..first + count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ENTRIES).collect()
    }

    fn get(&mut self) -> Pair {
        let keys = self.keys(CALLS);
        let ours = |bench: &mut Self| {
            for key in &keys {
                black_box(bench.backend.get(bench.state, &(), key).unwrap());
            }
        };
        let stored: Vec<Vec<u8>> = keys.iter().copied().map(stored_key).collect();
        let directly = |bench: &mut Self| {
            let (db, family) = bench.backend.database("s").unwrap();
            for key in &stored {
                black_box(db.get_pinned_cf(family, key).unwrap().map(|value| value.to_vec()));
            }
        };
        self.pair(ours, directly)
    }

    fn put(&mut self) -> Pair {
        let keys = self.keys(CALLS);
        let value = value(1, self.turn);
        let ours = |bench: &mut Self| {
            for key in &keys {
                bench.backend.put(bench.state, &(), key, &value).unwrap();
            }
        };
        let stored: Vec<Vec<u8>> = keys.iter().copied().map(stored_key).collect();
        let directly = |bench: &mut Self| {
            let (db, family) = bench.backend.database("s").unwrap();
            let mut write = WriteOptions::default();
            write.disable_wal(true);
            for key in &stored {
                db.put_cf_opt(family, key, &value, &write).unwrap();
            }
        };
        self.pair(ours, directly)
    }

    fn update(&mut self) -> Pair {
        let keys = self.keys(CALLS);
        let change = |value: &mut Vec<u8>| {
            if let Some(byte) = value.first_mut() {
                *byte = byte.wrapping_add(1);
            }
        };
        let ours = |bench: &mut Self| {
            for key in &keys {
                bench.backend.update(bench.state, &(), key, change).unwrap();
            }
        };
        let stored: Vec<Vec<u8>> = keys.iter().copied().map(stored_key).collect();
        let directly = |bench: &mut Self| {
            let (db, family) = bench.backend.database("s").unwrap();
            let mut write = WriteOptions::default();
            write.disable_wal(true);
            for key in &stored {
                let mut value = db.get_pinned_cf(family, key).unwrap().unwrap().to_vec();
                change(&mut value);
                db.put_cf_opt(family, key, &value, &write).unwrap();
            }
        };
        self.pair(ours, directly)
    }

    fn iterate(&mut self) -> Pair {
        let ours = |bench: &mut Self| {
            for entry in bench.backend.iter(bench.state, None).unwrap() {
                black_box(entry.unwrap());
            }
        };
        let directly = |bench: &mut Self| {
            let (db, family) = bench.backend.database("s").unwrap();
            let mut read = ReadOptions::default();
            read.fill_cache(false);
            read.set_readahead_size(1 << 20);
            let mut iterator = db.raw_iterator_cf_opt(family, read);
            iterator.seek_to_first();
            while let Some((key, value)) = iterator.item() {
                let key = key.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
                black_box((key, value.to_vec()));
                iterator.next();
            }
            iterator.status().unwrap();
        };
        self.pair(ours, directly)
    }

    /// Flush and links, each side after changes of its own.
    fn pause(&mut self) -> Pair {
        let id = CheckpointId::new(self.turn + 1).unwrap();
        let request = SnapshotRequest { id, base: None, kind: SnapshotKind::Tables, may_be_base: true };
        let ours = |bench: &mut Self| bench.backend.freeze(request).unwrap();
        let path = self.directory.path().join("links");
        let directly = |bench: &mut Self| {
            let (db, family) = bench.backend.database("s").unwrap();
            db.flush_cfs_opt(&[family], &FlushOptions::default()).unwrap();
            Checkpoint::new(db).unwrap().create_checkpoint(&path).unwrap();
        };
        let change = |bench: &mut Self| {
            for key in bench.keys(CHANGES) {
                bench.backend.put(bench.state, &(), &key, &value(key, bench.turn)).unwrap();
            }
        };
        let mut pair = Pair::default();
        for ours_now in self.order() {
            change(self);
            let start = Instant::now();
            if ours_now {
                let snapshot = ours(self);
                pair.ours = start.elapsed();
                drop(snapshot);
            } else {
                directly(self);
                pair.directly = start.elapsed();
                std::fs::remove_dir_all(&path).unwrap();
            }
        }
        pair
    }

    fn order(&self) -> [bool; 2] {
        let ours_first = self.turn.is_multiple_of(2);
        [ours_first, !ours_first]
    }

    fn pair(&mut self, mut ours: impl FnMut(&mut Self), mut directly: impl FnMut(&mut Self)) -> Pair {
        let mut pair = Pair::default();
        for ours_now in self.order() {
            let start = Instant::now();
            if ours_now {
                ours(self);
                pair.ours = start.elapsed();
            } else {
                directly(self);
                pair.directly = start.elapsed();
            }
        }
        pair
    }
}

#[derive(Clone, Copy, Default)]
struct Pair {
    ours: Duration,
    directly: Duration,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn row(name: &str, turns: usize, per: u64, bench: &mut Bench, turn: impl Fn(&mut Bench) -> Pair) {
    turn(bench);
    let pairs: Vec<Pair> = (0..turns).map(|_| turn(bench)).collect();
    let micros = |of: fn(&Pair) -> Duration| {
        median(pairs.iter().map(|pair| of(pair).as_secs_f64() * 1e6 / per as f64).collect())
    };
    let ratio = median(pairs.iter().map(|pair| pair.ours.div_duration_f64(pair.directly)).collect());
    println!(
        "| {name} | {:.2} µs | {:.2} µs | {ratio:.2} |",
        micros(|pair| pair.ours),
        micros(|pair| pair.directly)
    );
}

fn main() {
    let mut bench = Bench::new();
    println!("| {ENTRIES} entries of {VALUE_BYTES} bytes | backend | RocksDB | ratio |");
    println!("|---|---|---|---|");
    row("get, from the write buffer", TURNS, CALLS, &mut bench, Bench::get);
    bench.backend.compact().unwrap();
    row("get, from cached tables", TURNS, CALLS, &mut bench, Bench::get);
    row("iterate, an entry", TURNS / 4, ENTRIES, &mut bench, Bench::iterate);
    row("put", TURNS, CALLS, &mut bench, Bench::put);
    row("update", TURNS, CALLS, &mut bench, Bench::update);
    row("pause", PAUSES, 1, &mut bench, Bench::pause);
}
