//! What a job adds to its backend: routing of accesses, protocol of checkpoints, restore.
//!
//! Questions: what does an access through the job cost over one through the backend; what does a checkpoint of one
//! changed key cost, in memory, by number of subtasks and by number of entries (it must not follow the latter);
//! how fast is a restore. Method: medians on the memory store. Results: README.md. Not measured: any real store.

use divan::{Bencher, counter::ItemsCount};
use lowtide::{Backend, CheckpointKind, HeapBackend, Job, Store, ValueState};
use tokio::runtime::{Builder, Runtime};

type Numbers = ValueState<u64, u64>;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("threads can be started")
}

/// A job of so many entries, and its state.
fn job(runtime: &Runtime, store: &Store, subtasks: u32, entries: u64) -> (Job, Numbers) {
    let builder = Job::builder("bench").subtasks(subtasks);
    let mut job: Job = runtime.block_on(builder.create(store)).expect("the store is empty");
    let numbers: Numbers = job.value_state("numbers").expect("a new state");
    let mut state = job.state_mut(&numbers);
    for key in 0..entries {
        state.put(key, key).expect("memory holds it");
    }
    (job, numbers)
}

/// A look-up through the job: key group, subtask, backend.
#[divan::bench(args = [1, 8])]
fn get_through_the_job(bencher: Bencher<'_, '_>, subtasks: u32) {
    let (runtime, store) = (runtime(), Store::memory());
    let (job, numbers) = job(&runtime, &store, subtasks, 100_000);
    let state = job.state(&numbers);
    let mut key = 0;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        key = (key + 7_919) % 100_000;
        state.get(&key).expect("memory can be read").copied()
    });
}

/// The same look-up in the backend itself.
#[divan::bench]
fn get_through_the_backend(bencher: Bencher<'_, '_>) {
    let (runtime, store) = (runtime(), Store::memory());
    let (job, numbers) = job(&runtime, &store, 1, 100_000);
    let backend: &HeapBackend = job.subtask(0).expect("one subtask");
    let token = numbers.of_subtask(0).expect("one subtask");
    let mut key = 0;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        key = (key + 7_919) % 100_000;
        Backend::get(backend, token, &(), &key).expect("memory can be read").copied()
    });
}

fn checkpoints(bencher: Bencher<'_, '_>, subtasks: u32, entries: u64) {
    let (runtime, store) = (runtime(), Store::memory());
    let (mut job, numbers) = job(&runtime, &store, subtasks, entries);
    let mut value = 0;
    bencher.bench_local(|| {
        value += 1;
        job.state_mut(&numbers).put(7, value).expect("memory holds it");
        runtime.block_on(job.checkpoint(CheckpointKind::Checkpoint)).expect("memory does not fail").puts
    });
}

/// A checkpoint of one changed key, by number of subtasks.
#[divan::bench(args = [1, 8, 64])]
fn checkpoint_by_subtasks(bencher: Bencher<'_, '_>, subtasks: u32) {
    checkpoints(bencher, subtasks, 1_000);
}

/// A checkpoint of one changed key, by number of entries.
#[divan::bench(args = [1_000, 100_000, 1_000_000])]
fn checkpoint_by_entries(bencher: Bencher<'_, '_>, entries: u64) {
    checkpoints(bencher, 1, entries);
}

/// A restore of one full checkpoint and ten deltas.
#[divan::bench(args = [10_000, 300_000], sample_count = 10)]
fn restore_of_entries(bencher: Bencher<'_, '_>, entries: u64) {
    let (runtime, store) = (runtime(), Store::memory());
    let (mut job, numbers) = job(&runtime, &store, 1, entries);
    for delta in 0..10 {
        runtime.block_on(job.checkpoint(CheckpointKind::Checkpoint)).expect("memory does not fail");
        for key in 0..entries / 100 {
            job.state_mut(&numbers).put(key * 97 % entries, delta).expect("memory holds it");
        }
    }
    drop(job);
    bencher.counter(ItemsCount::new(entries)).bench_local(|| {
        let job: Job =
            runtime.block_on(Job::builder("bench").recover(&store)).expect("there is a checkpoint");
        job.entries()
    });
}
