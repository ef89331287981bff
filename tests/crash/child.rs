//! The process that is killed.

use std::io::Write;
use std::path::Path;

use lowtide::{CheckpointKind, Store, ValueState};

use crate::builder;
use crate::operations::{Operation, operation};

/// Operations from one checkpoint to the next.
const STRIDE: u64 = 40;

/// Goes on from whatever is there, and reports each number of operations whose checkpoint is complete.
pub(crate) fn write_for_ever(directory: &Path, subtasks: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::local(directory).unwrap();
        let mut job = builder(subtasks).open(&store).await.unwrap();
        let entries: ValueState<u64, u64> = job.value_state("entries").unwrap();
        let counter: ValueState<u64, u64> = job.value_state("counter").unwrap();
        let mut done = job.state(&counter).get(&0).unwrap().copied().unwrap_or(0);
        loop {
            for _ in 0..STRIDE {
                match operation(done) {
                    Operation::Put(key, value) => {
                        job.state_mut(&entries).put(key, value).map(|_| ()).unwrap()
                    }
                    Operation::Remove(key) => job.state_mut(&entries).remove(&key).map(|_| ()).unwrap(),
                    Operation::Clear => job.state_mut(&entries).clear().unwrap(),
                }
                done += 1;
            }
            job.state_mut(&counter).put(0, done).unwrap();
            let kind = if done % (STRIDE * 16) == 0 {
                CheckpointKind::Savepoint
            } else {
                CheckpointKind::Checkpoint
            };
            job.checkpoint(kind).await.unwrap();
            if kind == CheckpointKind::Checkpoint {
                // A killed process loses what it has not flushed, so each line is flushed before the next change.
                let mut out = std::io::stdout();
                writeln!(out, "complete {done}").unwrap();
                out.flush().unwrap();
            }
            for savepoint in job.savepoints() {
                job.delete_savepoint(savepoint).await.unwrap();
            }
        }
    });
}
