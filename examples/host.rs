//! A host that brings everything but the state: workers with their key groups, transport, its own file service and
//! its own registry of files. It uses the heap backend and the formats, and neither job nor coordinator.
//!
//! Run it with `cargo run --example host`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, DecodeLimits, FileEntry, FinishedSegment, KeyGroupCount, KeyGroupRange, KeyGroupSet,
    ObjectName,
};
use lowtide_heap::{
    BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, HeapRestore, RestoredFile, WriteOptions,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What the host sends about: a file in its own service, and the key groups it is needed for.
#[derive(Clone, Debug)]
struct Handle {
    file: FileEntry,
    key_groups: KeyGroupSet,
}

/// The handles that restore one worker, oldest first.
type Chain = Vec<Handle>;

/// The host's own file service and registry.
#[derive(Default)]
struct Host {
    files: BTreeMap<String, Bytes>,
    /// Completed checkpoints and the files that each needs.
    needed: BTreeMap<CheckpointId, BTreeSet<String>>,
}

impl Host {
    /// Stores a segment under a name of the host's own, which must be unique.
    fn store(&mut self, worker: usize, id: CheckpointId, segment: &FinishedSegment) -> Outcome<FileEntry> {
        let number = self.files.len();
        let name = format!("worker-{worker}/{id}/{number}");
        self.files.insert(name.clone(), segment.bytes.clone());
        Ok(segment.summary.file_entry(ObjectName::new(&name)?))
    }

    /// A checkpoint of all workers is complete: only the newest is kept, and files that nothing needs go.
    fn complete(&mut self, id: CheckpointId, chains: &[Chain]) {
        let files = chains.iter().flatten().map(|handle| handle.file.object.to_string()).collect();
        self.needed.insert(id, files);
        self.needed.retain(|kept, _| *kept >= id);
        let needed: BTreeSet<String> = self.needed.values().flatten().cloned().collect();
        self.files.retain(|name, _| needed.contains(name));
    }

    /// Takes one checkpoint of all workers. In a cluster each worker does its part where it runs.
    fn checkpoint(&mut self, workers: &mut [HeapBackend], id: CheckpointId) -> Outcome<Vec<Chain>> {
        let base = self.needed.keys().next_back().copied();
        let mut chains = Vec::new();
        for (number, worker) in workers.iter_mut().enumerate() {
            // The barrier: microseconds. The snapshot can go to another thread, the worker goes on.
            let mut snapshot = worker.freeze(FreezeRequest { id, base, kind: FreezeKind::Checkpoint })?;
            let mut segments = Vec::new();
            snapshot.write(&WriteOptions::default(), &mut |segment| {
                segments.push(segment);
                Ok(())
            })?;
            let files =
                segments.iter().map(|segment| self.store(number, id, segment)).collect::<Outcome<_>>()?;
            let acknowledgement = snapshot.finish(files)?;
            let elements = acknowledgement.chain.elements().iter();
            let handles = elements.filter_map(|element| {
                Some(Handle {
                    file: element.facts.file.clone()?.entry,
                    key_groups: element.key_groups.clone(),
                })
            });
            chains.push(handles.collect());
        }
        self.complete(id, &chains);
        workers.iter_mut().for_each(|worker| worker.completed(id));
        Ok(chains)
    }

    /// A worker for `range` from the handles of all former workers.
    fn restore(&self, options: HeapOptions, id: CheckpointId, chains: &[Chain]) -> Outcome<HeapBackend> {
        let own = KeyGroupSet::from(options.range);
        let mut handles: Vec<&Handle> = chains.iter().flatten().collect();
        handles.retain(|handle| !handle.key_groups.intersect(&own).is_empty());
        let mut restore = HeapRestore::new(options, id, DecodeLimits::default());
        // Newest first. This host's names tell the checkpoint; another would keep it beside the handle.
        handles.sort_by_key(|handle| std::cmp::Reverse(checkpoint_of(&handle.file)));
        for Handle { file, key_groups } in handles {
            let bytes = self.files.get(file.object.as_str()).ok_or("a file is gone")?;
            file.check(bytes)?;
            let file = RestoredFile { file: file.clone().into(), key_groups: key_groups.clone() };
            restore.segment(file, bytes)?;
        }
        Ok(restore.finish())
    }
}

fn checkpoint_of(file: &FileEntry) -> Option<CheckpointId> {
    file.object.as_str().split('/').nth(1)?.parse().ok()
}

/// The host's own assignment of key groups: here, equal shares.
fn options(worker: u32, workers: u32, key_groups: KeyGroupCount) -> Outcome<HeapOptions> {
    let range = KeyGroupRange::of_subtask(worker, workers, key_groups).ok_or("too many workers")?;
    Ok(HeapOptions { key_groups, range, base_mode: BaseMode::Confirmed })
}

/// Counts an event where its key group lives.
fn count(workers: &mut [HeapBackend], key_groups: KeyGroupCount, word: &str) -> Outcome<()> {
    let group = lowtide::key_group_of::<String, str>(word, key_groups);
    let worker =
        workers.iter_mut().find(|worker| worker.range().contains(group)).ok_or("nobody has the group")?;
    let counts = worker.value_state::<String, (), u64>("counts")?;
    worker.state_mut(counts)?.entry(word.to_owned())?.insert_or_update(|| 1, |count| *count += 1);
    Ok(())
}

fn total(workers: &mut [HeapBackend]) -> Outcome<BTreeMap<String, u64>> {
    let mut total = BTreeMap::new();
    for worker in workers {
        let counts = worker.value_state::<String, (), u64>("counts")?;
        total.extend(worker.state(counts)?.iter().map(|entry| (entry.key.clone(), *entry.value)));
    }
    Ok(total)
}

fn main() -> Outcome<()> {
    let key_groups = KeyGroupCount::new(16).ok_or("no key groups")?;
    let mut host = Host::default();
    let mut workers: Vec<HeapBackend> =
        (0..2).map(|worker| Ok(HeapBackend::new(options(worker, 2, key_groups)?))).collect::<Outcome<_>>()?;

    for word in "the tide the moon the sea".split(' ') {
        count(&mut workers, key_groups, word)?;
    }
    let first = CheckpointId::FIRST;
    host.checkpoint(&mut workers, first)?;

    for word in "the low tide".split(' ') {
        count(&mut workers, key_groups, word)?;
    }
    let second = first.next().ok_or("no more ids")?;
    let chains = host.checkpoint(&mut workers, second)?;
    let expected = total(&mut workers)?;

    // All workers are lost; three take over.
    drop(workers);
    let mut workers: Vec<HeapBackend> = (0..3)
        .map(|worker| host.restore(options(worker, 3, key_groups)?, second, &chains))
        .collect::<Outcome<_>>()?;
    let restored = total(&mut workers)?;
    assert_eq!(restored, expected, "the restored state differs");
    println!("restored into {} workers from {} files: {restored:?}", workers.len(), host.files.len());

    // The next checkpoint is a delta on what was restored.
    count(&mut workers, key_groups, "moon")?;
    let third = second.next().ok_or("no more ids")?;
    host.checkpoint(&mut workers, third)?;
    println!("{} files are kept after {third}", host.files.len());
    Ok(())
}
