//! What manifests and members of the sequence add to the bytes that checkpoints write.
//!
//! Question: of all bytes written, how many are not data? Method: a job on the default settings; every checkpoint changes
//! one record of a hundred, chosen at random, with a value that does not compress; a store that counts bytes by class of
//! object. Counts, no times: the same on any machine. Not measured: deletes and listings.
//!
//! `cargo bench -p lowtide --bench overhead -- [RECORDS [CHECKPOINTS]]`; results in README.md.

use std::sync::{Arc, OnceLock};

use lowtide::{CheckpointKind, CountingStore, Job, ObjectClass, Store, StoreCounts, ValueState};
use tokio::runtime::Builder;

/// Changed at each checkpoint: one record of so many.
const RECORDS_PER_CHANGE: u64 = 100;

/// A value that makes a record of twenty bytes with its key of eight.
type Value = [u8; 12];

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn value(number: u64) -> Value {
    let (low, high) = (mixed(number).to_le_bytes(), mixed(!number).to_le_bytes());
    let mut value = Value::default();
    value.iter_mut().zip(low.iter().chain(&high)).for_each(|(to, from)| *to = *from);
    value
}

/// Bytes written to objects of each class.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    data: u64,
    manifests: u64,
    sequence: u64,
}

impl Written {
    fn by(counting: &CountingStore) -> Self {
        let bytes = |class| -> u64 {
            let StoreCounts { put_bytes, .. } = counting.counts(Some(class));
            put_bytes
        };
        Self {
            data: bytes(ObjectClass::Data),
            manifests: bytes(ObjectClass::Manifest),
            sequence: bytes(ObjectClass::Sequence),
        }
    }

    fn since(self, before: Self) -> Self {
        let Self { data, manifests, sequence } = before;
        Self {
            data: self.data - data,
            manifests: self.manifests - manifests,
            sequence: self.sequence - sequence,
        }
    }

    /// What is not data, of all.
    fn share(self) -> f64 {
        let beside = (self.manifests + self.sequence) as f64;
        beside / (beside + self.data as f64)
    }
}

async fn measure(records: u64, checkpoints: u64, subtasks: u32) {
    let counting: Arc<OnceLock<CountingStore>> = Arc::default();
    let seen = Arc::clone(&counting);
    let store = Store::memory().wrapped(move |inner| {
        let store = CountingStore::new(inner);
        seen.set(store.clone()).expect("wrapped once");
        Arc::new(store)
    });
    let counting = counting.get().expect("wrapped above");
    let builder = Job::builder("bench").subtasks(subtasks);
    let mut job: Job = builder.create(&store).await.expect("the store is empty");
    let state: ValueState<u64, Value> = job.value_state("records").expect("a new state");
    for key in 0..records {
        job.state_mut(&state).put(key, value(key)).expect("memory holds it");
    }
    job.checkpoint(CheckpointKind::Checkpoint).await.expect("memory does not fail");
    let first = Written::by(counting);
    let (mut half, mut changes, mut segments) = (first, records, 0);
    for checkpoint in 0..checkpoints {
        if checkpoint == checkpoints / 2 {
            half = Written::by(counting);
        }
        for _ in 0..records / RECORDS_PER_CHANGE {
            changes += 1;
            job.state_mut(&state).put(mixed(changes) % records, value(changes)).expect("memory holds it");
        }
        let figures = job.checkpoint(CheckpointKind::Checkpoint).await.expect("memory does not fail");
        segments = figures.segments;
        job.run_deletions().await.expect("memory does not fail");
    }
    let settled = Written::by(counting).since(half);
    let each = checkpoints - checkpoints / 2;
    println!(
        "| {records} | {subtasks} | {segments} | {} | {} | {} | {:.2} % | {:.2} % |",
        settled.data / each,
        settled.manifests / each,
        settled.sequence / each,
        100.0 * settled.share(),
        100.0 * Written::by(counting).share(),
    );
}

fn main() {
    // Cargo adds `--bench`.
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let records = numbers.next().unwrap_or(1_000_000);
    let checkpoints = numbers.next().unwrap_or(400).max(2);
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("threads can be started");
    println!("{checkpoints} checkpoints; bytes of each in the second half of them");
    println!("| records | subtasks | segments | data | manifest | sequence | not data | from the first on |");
    println!("|---|---|---|---|---|---|---|---|");
    for subtasks in [1, 4] {
        runtime.block_on(measure(records, checkpoints, subtasks));
    }
}
