//! The coordinator over a store in memory, with subtasks that write one small file per checkpoint.

mod bases;
mod faults;
mod lifecycle;
mod model;
mod ownership;
mod races;
mod sweeps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, CheckpointKind, FileEntry, FileId, FileKind, KeyGroupCount, KeyGroupRange, KeyGroupSet,
    ManifestFile, ObjectClass, ObjectName, ObjectPath, Store, xxh3,
};
use lowtide_registry::Retention;

use super::*;
use crate::error::ErrorKind;
use crate::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan, FaultStore, Faults};

pub(super) fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

pub(super) fn options(subtasks: u32, retained: u32) -> CoordinatorOptions {
    let count = KeyGroupCount::new(8).unwrap();
    let ranges =
        (0..subtasks).map(|index| KeyGroupRange::of_subtask(index, subtasks, count).unwrap()).collect();
    let mut options = CoordinatorOptions::new("job", "heap", count, ranges);
    options.retained = Retention::newest(retained).unwrap();
    options.concurrent_max = 8;
    options
}

/// A store in memory with planned faults, the time, and the chains of the subtasks.
pub(super) struct World {
    pub(super) store: Store,
    /// The same without faults.
    pub(super) inner: Store,
    pub(super) faults: Faults,
    pub(super) ids: UploadIdSource,
    pub(super) now: Millis,
}

impl World {
    pub(super) fn new() -> Self {
        let faults = Faults::new();
        let inner = Store::memory();
        let store = inner.clone().wrapped(|inner| Arc::new(FaultStore::with_faults(inner, faults.clone())));
        Self { store, inner, faults, ids: UploadIdSource::counted(1), now: Millis(1_000_000) }
    }

    pub(super) async fn start(&self, options: CoordinatorOptions, start: Start) -> Result<Job> {
        let subtasks = options.subtasks.clone();
        let started =
            Coordinator::start(self.store.clone(), options, start, self.now, self.ids.clone()).await?;
        let (coordinator, recovered) = started;
        Ok(Job {
            coordinator,
            recovered,
            subtasks,
            store: self.store.clone(),
            ids: self.ids.clone(),
            now: self.now,
            chains: BTreeMap::new(),
        })
    }

    pub(super) async fn fresh(&self, options: CoordinatorOptions) -> Job {
        self.start(options, Start::Fresh { force: false }).await.unwrap()
    }

    pub(super) async fn restore(&self, options: CoordinatorOptions, from: u64, claim: Claim) -> Result<Job> {
        let published = read_published(&self.store).await.unwrap();
        let from = published.get(id(from)).unwrap().clone();
        self.start(options, Start::Restore { from, claim, force: false }).await
    }

    pub(super) fn fail(&self, operation: FaultOperation, class: FaultClass, mode: FaultMode, times: u64) {
        self.faults.plan(FaultPlan { operation, class, mode, nth: 1, times });
    }

    /// Objects of a class by name.
    pub(super) async fn objects(&self, class: ObjectClass) -> BTreeSet<String> {
        self.store.list(class).await.unwrap().into_iter().map(|object| object.path).collect()
    }

    /// Data objects that the manifests of everything published list.
    pub(super) async fn referenced(&self) -> BTreeSet<String> {
        let published = read_published(&self.store).await.unwrap();
        let mut listed = BTreeSet::new();
        for checkpoint in published.checkpoints.iter().chain(&published.savepoints) {
            let manifest = checkpoint.manifest(&self.store).await.unwrap();
            listed.extend(manifest.entries().map(|entry| entry.object.to_string()));
        }
        listed
    }

    /// Nothing is missing, nothing is left over: the third assertion of every fault test.
    pub(super) async fn assert_tidy(&self) {
        assert_eq!(
            self.objects(ObjectClass::Data).await,
            self.referenced().await,
            "stored and referenced data"
        );
        let published = read_published(&self.store).await.unwrap();
        let all = published.checkpoints.iter().chain(&published.savepoints);
        let manifests: BTreeSet<String> = all.map(|one| one.reference().manifest.to_string()).collect();
        assert_eq!(self.objects(ObjectClass::Manifest).await, manifests, "stored and named manifests");
        let members = self.objects(ObjectClass::Sequence).await;
        assert!(members.len() <= 2, "superseded members stay: {members:?}");
    }
}

/// A coordinator and its subtasks. A subtask's chain is its newest files, at most three.
pub(super) struct Job {
    pub(super) coordinator: Coordinator,
    pub(super) recovered: Recovered,
    subtasks: Vec<KeyGroupRange>,
    pub(super) store: Store,
    pub(super) ids: UploadIdSource,
    pub(super) now: Millis,
    /// Files by checkpoint and subtask.
    pub(super) chains: BTreeMap<(CheckpointId, u32), Vec<FileId>>,
}

impl Job {
    pub(super) fn trigger(&mut self, kind: CheckpointKind) -> Trigger {
        self.coordinator.trigger(kind, self.now).unwrap()
    }

    /// Stores one new file and returns the acknowledgement: up to two files of the base's chain, and the new one.
    pub(super) async fn write(&mut self, trigger: &Trigger, subtask: u32) -> Acknowledgement {
        let upload = self.ids.next(self.now);
        let object = ObjectPath::Data { upload, number: 0, kind: FileKind::Segment }.name();
        let bytes = Bytes::from(format!("{} of subtask {subtask}", trigger.id));
        let entry = FileEntry {
            object: object.clone(),
            offset: 0,
            length: bytes.len() as u64,
            checksum: xxh3(&bytes),
            kind: FileKind::Segment,
        };
        self.store.put_data(&object, bytes).await.unwrap();
        let base = trigger.bases[subtask as usize];
        let chain = base.and_then(|base| self.chains.get(&(base, subtask)).cloned()).unwrap_or_default();
        let mut chain = chain.split_at(chain.len().saturating_sub(2)).1.to_vec();
        chain.push(entry.id());
        self.chains.insert((trigger.id, subtask), chain.clone());
        let file = ManifestFile {
            entry,
            checkpoint: trigger.id,
            generation: trigger.generation,
            owned: true,
            records: None,
            object_bytes: None,
        };
        let range = self.subtasks[subtask as usize];
        acknowledgement(base, file, chain, range)
    }

    pub(super) async fn ack(
        &mut self,
        trigger: &Trigger,
        subtask: u32,
        part: Acknowledgement,
    ) -> Result<Vec<Event>> {
        self.coordinator.acknowledge(trigger.id, trigger.generation, subtask, part, self.now).await
    }

    pub(super) async fn write_and_ack(&mut self, trigger: &Trigger, subtask: u32) -> Result<Vec<Event>> {
        let part = self.write(trigger, subtask).await;
        self.ack(trigger, subtask, part).await
    }

    /// Writes and acknowledges by all subtasks; the events of the last acknowledgement.
    pub(super) async fn finish(&mut self, trigger: &Trigger) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for subtask in 0..self.subtasks.len() as u32 {
            events = self.write_and_ack(trigger, subtask).await?;
        }
        Ok(events)
    }

    /// A whole checkpoint; its events as a script prints them.
    pub(super) async fn checkpoint(&mut self, kind: CheckpointKind) -> Result<Vec<String>> {
        let trigger = self.coordinator.trigger(kind, self.now)?;
        Ok(printed(&self.finish(&trigger).await?))
    }

    pub(super) async fn clean(&mut self) {
        self.coordinator.run_deletions(self.now).await.unwrap();
    }
}

fn acknowledgement(
    base: Option<CheckpointId>,
    file: ManifestFile,
    chain: Vec<FileId>,
    range: KeyGroupRange,
) -> Acknowledgement {
    let element = |file: FileId| AcknowledgedElement {
        file,
        key_groups: KeyGroupSet::from(range),
        live_puts: 1,
        live_tombstones: 0,
        live_clears: 0,
    };
    Acknowledgement {
        base,
        files: vec![file],
        elements: chain.into_iter().map(element).collect(),
        entries: 1,
        ..Acknowledgement::default()
    }
}

pub(super) fn printed(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::to_string).collect()
}

pub(super) fn name_of(file: &FileId) -> ObjectName {
    file.object.clone()
}
