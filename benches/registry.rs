//! Cost of a completed checkpoint in the registry: register the new one, release the old one.
//!
//! Question: does it follow the files that changed, not the files that are listed? A hundred files come and a hundred go
//! with each checkpoint, among 1,000 to 100,000. How long does a coordinator take that comes back? Method: medians of one step, the registry being carried on. Results:
//! README.md. Not measured: deletion, which is the caller's.

use std::collections::VecDeque;

use divan::Bencher;
use lowtide_format::{CheckpointId, FileId, ObjectName};
use lowtide_registry::{Holder, Listing, Owner, Registry};

const CHANGED_FILES: u64 = 100;

fn main() {
    divan::main();
}

fn file(number: u64) -> FileId {
    let object = ObjectName::new(&format!("data/{number:020}.seg")).expect("a valid name");
    FileId { object, offset: 0 }
}

fn checkpoint(id: u64) -> Holder {
    Holder::Checkpoint(CheckpointId::new(id).expect("ids start at 1"))
}

/// A job that keeps one checkpoint of so many files, and replaces the oldest hundred each time.
struct Steps {
    registry: Registry,
    listed: VecDeque<FileId>,
    id: u64,
    files_made: u64,
}

impl Steps {
    fn new(files: u64) -> Self {
        let listed: VecDeque<FileId> = (0..files).map(file).collect();
        let files_listed = listed.iter().cloned().collect();
        let listing = Listing { holder: checkpoint(1), files: files_listed, owner: Owner::Coordinator };
        let registry = Registry::rebuild([listing]).expect("distinct files");
        Self { registry, listed, id: 1, files_made: files }
    }

    fn step(&mut self) -> usize {
        let base = checkpoint(self.id);
        let added: Vec<FileId> = (self.files_made..self.files_made + CHANGED_FILES).map(file).collect();
        let removed: Vec<FileId> = self.listed.drain(..CHANGED_FILES as usize).collect();
        self.files_made += CHANGED_FILES;
        self.id += 1;
        self.listed.extend(added.iter().cloned());
        let added = added.into_iter().map(|file| (file, Owner::Coordinator));
        self.registry
            .register(checkpoint(self.id), Some(base), added, &removed)
            .expect("the base is registered");
        self.registry.release(base).objects.len()
    }
}

/// One completed checkpoint with a hundred new files and a hundred that nothing lists any more.
#[divan::bench(args = [1_000, 10_000, 100_000])]
fn checkpoint_of_listed_files(bencher: Bencher<'_, '_>, files: u64) {
    let mut steps = Steps::new(files);
    bencher.bench_local(|| steps.step());
}

/// A coordinator comes back: 20 retained checkpoints of so many files each, of which a hundred differ.
#[divan::bench(args = [5_000, 50_000], sample_count = 10)]
fn rebuild_of_20_checkpoints(bencher: Bencher<'_, '_>, files: u64) {
    let listings = || {
        (1..=20_u64).map(move |id| Listing {
            holder: checkpoint(id),
            files: (id * CHANGED_FILES..id * CHANGED_FILES + files).map(file).collect(),
            owner: Owner::Coordinator,
        })
    };
    bencher
        .with_inputs(|| listings().collect::<Vec<_>>())
        .bench_local_values(|listings| Registry::rebuild(listings).expect("distinct files").file_count());
}
