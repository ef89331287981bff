//! The coordinator's own time: acknowledgements to a published manifest, and a trigger while much is deleted.
//!
//! Question: does a job of a thousand subtasks with chains of fifty elements wait for its coordinator? Method: parts are
//! made beforehand, the store is memory; one sample is one checkpoint, from the trigger to the completion. The deletions
//! are ten thousand objects at fifty milliseconds each, worked off by a task of their own while the next checkpoint is
//! triggered. Results: README.md. Not measured: what subtasks do.

use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use lowtide::{
    AcknowledgedElement, Acknowledgement, CheckpointId, CheckpointKind, Coordinator, CoordinatorOptions,
    FileEntry, FileKind, Generation, KeyGroupCount, KeyGroupRange, KeyGroupSet, ManifestFile, Millis,
    Retention, Start, Store, Trigger, UploadId, UploadIdSource,
};
use lowtide_format::ObjectPath;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tokio::runtime::{Builder, Runtime};

const NOW: Millis = Millis(1_700_000_000_000);

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn ranges(subtasks: u32) -> Vec<KeyGroupRange> {
    let count = KeyGroupCount::new(1_024).expect("a valid count");
    (0..subtasks).filter_map(|index| KeyGroupRange::of_subtask(index, subtasks, count)).collect()
}

/// The coordinator of so many subtasks in `store`.
async fn start(store: Store, subtasks: u32) -> Coordinator {
    let count = KeyGroupCount::new(1_024).expect("a valid count");
    let options = CoordinatorOptions::new("bench", "heap", count, ranges(subtasks));
    let start = Start::Fresh { force: false };
    Coordinator::start(store, options, start, NOW, UploadIdSource::counted(1))
        .await
        .expect("an empty store")
        .0
}

fn file(checkpoint: CheckpointId, subtask: u32, number: u32) -> ManifestFile {
    let mut random = [0; 10];
    random[..4].copy_from_slice(&subtask.to_le_bytes());
    random[4..].copy_from_slice(&checkpoint.get().to_le_bytes()[..6]);
    let upload = UploadId::from_parts(NOW.0, random);
    let object = ObjectPath::Data { upload, number, kind: FileKind::Segment }.name();
    ManifestFile {
        entry: FileEntry { object, offset: 0, length: 1_000, checksum: 7, kind: FileKind::Segment },
        checkpoint,
        generation: Generation(1),
        owned: true,
        records: None,
        object_bytes: None,
    }
}

/// The parts of a checkpoint: `new` files a subtask, and the elements kept of its chain before.
fn parts(trigger: &Trigger, chains: &mut [Vec<AcknowledgedElement>], new: u32) -> Vec<Acknowledgement> {
    let ranges = ranges(u32::try_from(chains.len()).expect("few subtasks"));
    let subtasks = chains.iter_mut().zip(ranges).zip(0..);
    subtasks
        .map(|((chain, range), subtask)| {
            let files: Vec<ManifestFile> = (0..new).map(|number| file(trigger.id, subtask, number)).collect();
            let elements = files.iter().map(|file| AcknowledgedElement {
                file: file.entry.id(),
                key_groups: KeyGroupSet::from(range),
                live_puts: 10,
                live_tombstones: 0,
                live_clears: 0,
            });
            chain.extend(elements);
            let kept = chain.len().saturating_sub(50);
            chain.drain(..kept);
            let base = trigger.bases.get(subtask as usize).copied().flatten();
            Acknowledgement {
                base,
                files,
                elements: chain.clone(),
                entries: 500,
                ..Acknowledgement::default()
            }
        })
        .collect()
}

async fn complete(coordinator: &mut Coordinator, trigger: &Trigger, parts: Vec<Acknowledgement>) {
    for (subtask, part) in (0..).zip(parts) {
        let answer = coordinator.acknowledge(trigger.id, trigger.generation, subtask, part, NOW).await;
        answer.expect("it is the only coordinator");
    }
    assert_eq!(coordinator.newest(), Some(trigger.id), "it is complete");
}

/// One element of each chain is new, one goes.
#[divan::bench(args = [10, 100, 1_000], sample_count = 10)]
fn checkpoint_of_subtasks_with_50_elements(bencher: Bencher<'_, '_>, subtasks: u32) {
    let runtime = runtime();
    let mut coordinator = runtime.block_on(start(Store::memory(), subtasks));
    let mut chains = vec![Vec::new(); subtasks as usize];
    let first = coordinator.trigger(CheckpointKind::Checkpoint, NOW).expect("nothing is pending");
    let all = parts(&first, &mut chains, 50);
    runtime.block_on(complete(&mut coordinator, &first, all));
    // What a subtask makes of the trigger is its own time, so the parts are made for the id that comes next.
    let state = std::cell::RefCell::new((coordinator, chains));
    bencher
        .with_inputs(|| {
            let (coordinator, chains) = &mut *state.borrow_mut();
            let trigger = coordinator.trigger(CheckpointKind::Checkpoint, NOW).expect("nothing is pending");
            let parts = parts(&trigger, chains, 1);
            (trigger, parts)
        })
        .bench_local_values(|(trigger, parts)| {
            runtime.block_on(complete(&mut state.borrow_mut().0, &trigger, parts));
        });
}

/// A checkpoint while 10,000 objects of the one before are deleted at 50 ms each.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn checkpoint_beside_10_000_slow_deletions(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    bencher
        .with_inputs(|| {
            let slow = ThrottleConfig {
                wait_delete_per_call: Duration::from_millis(50),
                ..ThrottleConfig::default()
            };
            let store = Store::from_arc(Arc::new(ThrottledStore::new(InMemory::new(), slow)));
            let mut coordinator = runtime.block_on(start(store, 1));
            let mut chains = vec![Vec::new()];
            let first = coordinator.trigger(CheckpointKind::Checkpoint, NOW).expect("nothing is pending");
            let mut all = parts(&first, &mut chains, 10_000);
            // All of them are listed, and none by the next.
            for part in &mut all {
                part.elements = part.files.iter().map(element_of).collect();
            }
            runtime.block_on(complete(&mut coordinator, &first, all));
            let second = coordinator.trigger(CheckpointKind::Full, NOW).expect("nothing is pending");
            let part = parts(&second, &mut [Vec::new()], 1);
            runtime.block_on(complete(&mut coordinator, &second, part));
            let deleter = coordinator.deleter();
            assert!(deleter.backlog() > 9_000, "the first checkpoint's files are to be deleted");
            let deleting = runtime.spawn(async move { deleter.run().await });
            (coordinator, deleting)
        })
        .bench_local_values(|(mut coordinator, deleting)| {
            let trigger = coordinator.trigger(CheckpointKind::Full, NOW).expect("nothing is pending");
            let part = parts(&trigger, &mut [Vec::new()], 1);
            runtime.block_on(complete(&mut coordinator, &trigger, part));
            deleting.abort();
        });
}

/// A coordinator takes over where 20 checkpoints of so many files each are kept, of which a hundred differ: reading and
/// decoding their manifests is part of it.
#[divan::bench(args = [5_000, 50_000], sample_count = 5, sample_size = 1)]
fn take_over_of_20_checkpoints(bencher: Bencher<'_, '_>, files: u32) {
    let runtime = runtime();
    let store = Store::memory();
    runtime.block_on(async {
        let mut coordinator = start(store.clone(), 1).await;
        let all = Retention::newest(20).expect("not zero");
        coordinator.set_retained(all, NOW).await.expect("it is the only coordinator");
        let mut chain: Vec<AcknowledgedElement> = Vec::new();
        for number in 0..20 {
            let trigger = coordinator.trigger(CheckpointKind::Checkpoint, NOW).expect("nothing is pending");
            let new = if number == 0 { files } else { 100 };
            let files: Vec<ManifestFile> = (0..new).map(|number| file(trigger.id, 0, number)).collect();
            chain.drain(..chain.len().min(files.len()));
            chain.extend(files.iter().map(element_of));
            let base = trigger.bases.first().copied().flatten();
            let elements = chain.clone();
            let part = Acknowledgement { base, files, elements, entries: 500, ..Acknowledgement::default() };
            complete(&mut coordinator, &trigger, vec![part]).await;
        }
        assert_eq!(coordinator.published().checkpoints.len(), 20);
    });
    bencher.bench_local(|| {
        let count = KeyGroupCount::new(1_024).expect("a valid count");
        let options = CoordinatorOptions::new("bench", "heap", count, ranges(1));
        let ids = UploadIdSource::counted(1);
        let started = Coordinator::start(store.clone(), options, Start::Recover, NOW, ids);
        runtime.block_on(started).expect("20 checkpoints").1.files
    });
}

fn element_of(file: &ManifestFile) -> AcknowledgedElement {
    AcknowledgedElement {
        file: file.entry.id(),
        key_groups: ranges(1).into_iter().map(KeyGroupSet::from).next().unwrap_or_default(),
        live_puts: 1,
        live_tombstones: 0,
        live_clears: 0,
    }
}
