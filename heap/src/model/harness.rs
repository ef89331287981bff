//! A backend beside a model of it, and a store of the segments it wrote.

use std::collections::BTreeMap;

use bytes::Bytes;
use lowtide_format::{CheckpointId, DecodeLimits, FinishedSegment, KeyGroupCount, ObjectName, SegmentReader};

use crate::rewrite::{ChainStats, RewritePlan, RewritePolicy};
use crate::{
    Acknowledgement, BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapError, HeapOptions, HeapRestore,
    HeapSnapshot, RestoredFile, ValueState, WriteOptions,
};

pub(super) type Counts = ValueState<u64, (), u64>;
pub(super) type Texts = ValueState<String, u32, String>;

/// What the two states should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) counts: BTreeMap<u64, u64>,
    pub(super) texts: BTreeMap<(String, u32), String>,
}

/// A snapshot that is open, with what it should hold.
pub(super) struct Pending {
    pub(super) snapshot: HeapSnapshot,
    pub(super) expected: Contents,
    pub(super) kind: FreezeKind,
}

/// A checkpoint that was written.
pub(super) struct Stored {
    pub(super) acknowledgement: Acknowledgement,
    pub(super) expected: Contents,
}

pub(super) struct Harness {
    pub(super) options: HeapOptions,
    pub(super) write: WriteOptions,
    pub(super) backend: HeapBackend,
    pub(super) counts: Counts,
    pub(super) texts: Texts,
    pub(super) model: Contents,
    pub(super) pending: Vec<Pending>,
    pub(super) stored: BTreeMap<CheckpointId, Stored>,
    pub(super) objects: BTreeMap<ObjectName, Bytes>,
    pub(super) next_id: u64,
}

/// The request for an incremental checkpoint.
pub(super) fn request(number: u64, base: Option<u64>) -> FreezeRequest {
    FreezeRequest { id: id(number), base: base.map(id), kind: FreezeKind::Checkpoint }
}

pub(super) fn options(key_groups: u16, base_mode: BaseMode) -> HeapOptions {
    let key_groups = KeyGroupCount::new(key_groups).unwrap();
    HeapOptions { key_groups, range: key_groups.all(), base_mode }
}

pub(super) fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

impl Harness {
    pub(super) fn new(options: HeapOptions) -> Self {
        let mut backend = HeapBackend::new(options);
        let counts = backend.value_state("counts").unwrap();
        let texts = backend.value_state("texts").unwrap();
        Self {
            options,
            write: WriteOptions::default(),
            backend,
            counts,
            texts,
            model: Contents::default(),
            pending: Vec::new(),
            stored: BTreeMap::new(),
            objects: BTreeMap::new(),
            next_id: 1,
        }
    }

    pub(super) fn put(&mut self, key: u64, value: u64) {
        let absent = self.backend.state_mut(self.counts).unwrap().put(key, value).unwrap();
        assert_eq!(absent, self.model.counts.insert(key, value).is_none());
    }

    pub(super) fn update(&mut self, key: u64, by: u64) {
        let there = self.backend.state_mut(self.counts).unwrap().update(&key, |value| *value += by);
        let model = self.model.counts.get_mut(&key);
        assert_eq!(there, model.is_some());
        if let Some(value) = model {
            *value += by;
        }
    }

    pub(super) fn remove(&mut self, key: u64) {
        let old = self.backend.state_mut(self.counts).unwrap().remove(&key);
        assert_eq!(old, self.model.counts.remove(&key));
    }

    pub(super) fn put_text(&mut self, key: u64, namespace: u32, value: u64) {
        let (key, value) = (format!("key-{key}"), format!("value-{value}"));
        let mut state = self.backend.state_mut(self.texts).unwrap();
        let old = state.replace_in(namespace, key.clone(), value.clone()).unwrap();
        assert_eq!(old, self.model.texts.insert((key, namespace), value));
    }

    pub(super) fn bump_text(&mut self, key: u64, namespace: u32) {
        let key = format!("key-{key}");
        let mut state = self.backend.state_mut(self.texts).unwrap();
        let entry = state.entry_in(namespace, key.clone()).unwrap();
        entry.insert_or_update(|| "new".to_owned(), |text| text.push('+'));
        let model = self.model.texts.entry((key, namespace));
        model.and_modify(|text| text.push('+')).or_insert_with(|| "new".to_owned());
    }

    pub(super) fn remove_text(&mut self, key: u64, namespace: u32) {
        let key = format!("key-{key}");
        let there = self.backend.state_mut(self.texts).unwrap().delete_in(&namespace, key.as_str());
        assert_eq!(there, self.model.texts.remove(&(key, namespace)).is_some());
    }

    pub(super) fn clear(&mut self) {
        self.backend.state_mut(self.counts).unwrap().clear();
        self.model.counts.clear();
    }

    pub(super) fn clear_texts(&mut self, namespace: Option<u32>) {
        let mut state = self.backend.state_mut(self.texts).unwrap();
        match namespace {
            None => state.clear(),
            Some(namespace) => state.clear_namespace(&namespace),
        }
        self.model.texts.retain(|(_, of), _| namespace.is_some_and(|namespace| *of != namespace));
    }

    pub(super) fn retain_even(&mut self) {
        self.backend.state_mut(self.counts).unwrap().retain(|entry| entry.value % 2 == 0);
        self.model.counts.retain(|_, value| *value % 2 == 0);
    }

    pub(super) fn freeze(&mut self, base: Option<u64>, kind: FreezeKind) -> Result<CheckpointId, HeapError> {
        let id = id(self.next_id);
        let request = FreezeRequest { id, base: base.map(self::id), kind };
        let snapshot = self.backend.freeze(request)?;
        self.next_id += 1;
        self.pending.push(Pending { snapshot, expected: self.model.clone(), kind });
        Ok(id)
    }

    /// Writes and finishes a pending snapshot; returns what it acknowledges.
    pub(super) fn finish(&mut self, at: usize) -> &Stored {
        let Pending { mut snapshot, expected, .. } = self.pending.remove(at);
        let segments = write(&mut snapshot, &self.write);
        self.store(snapshot, segments, expected)
    }

    /// Stores what a snapshot wrote, finishes it, and reads it back.
    pub(super) fn store(
        &mut self,
        snapshot: HeapSnapshot,
        segments: Vec<FinishedSegment>,
        expected: Contents,
    ) -> &Stored {
        let id = snapshot.id();
        let mut files = Vec::new();
        for (index, segment) in segments.into_iter().enumerate() {
            let object = ObjectName::new(&format!("{}-{index}", id.get())).unwrap();
            assert!(
                segment.summary.totals.puts + segment.summary.totals.tombstones + segment.summary.clears > 0
            );
            files.push(segment.summary.file_entry(object.clone()));
            SegmentReader::open(&segment.bytes, DecodeLimits::default())
                .unwrap()
                .verify(&segment.bytes)
                .unwrap();
            self.objects.insert(object, segment.bytes);
        }
        let acknowledgement = snapshot.finish(files).unwrap();
        assert_eq!(acknowledgement.entries as usize, expected.counts.len() + expected.texts.len());
        self.stored.insert(id, Stored { acknowledgement, expected });
        // Under miri, which takes a thousand times as long, a test says itself what it restores.
        if !cfg!(miri) {
            self.check_restores(id);
        }
        &self.stored[&id]
    }

    /// Freezes, writes, completes.
    pub(super) fn checkpoint(&mut self, base: Option<u64>) -> &Stored {
        let id = self.freeze(base, FreezeKind::Checkpoint).unwrap();
        self.finish(self.pending.len() - 1);
        self.backend.completed(id);
        &self.stored[&id]
    }

    pub(super) fn restored(&self, id: CheckpointId, options: HeapOptions) -> (HeapBackend, Counts, Texts) {
        let mut restore = HeapRestore::new(options, id, DecodeLimits::default());
        let counts = restore.value_state("counts").unwrap();
        let texts = restore.value_state("texts").unwrap();
        self.feed(&mut restore, id);
        (restore.finish(), counts, texts)
    }

    pub(super) fn feed(&self, restore: &mut HeapRestore, id: CheckpointId) {
        for element in self.stored[&id].acknowledgement.chain.elements().iter().rev() {
            let file = element.facts.file.clone().unwrap();
            let bytes = &self.objects[&file.entry.object];
            restore.segment(RestoredFile { file, key_groups: element.key_groups.clone() }, bytes).unwrap();
        }
    }

    pub(super) fn check_restores(&self, id: CheckpointId) {
        let (backend, counts, texts) = self.restored(id, self.options);
        backend.check_invariants();
        assert_eq!(contents(&backend, counts, texts), self.stored[&id].expected, "what {id} restores");
    }

    pub(super) fn check(&self) {
        self.backend.check_invariants();
        assert_eq!(contents(&self.backend, self.counts, self.texts), self.model);
        let state = self.backend.state(self.counts).unwrap();
        for (key, value) in &self.model.counts {
            assert_eq!(state.get(key), Some(value));
        }
    }

    /// The process dies and comes back with checkpoint `id`.
    pub(super) fn reopen(&mut self, id: CheckpointId) {
        self.pending.clear();
        assert_eq!(self.backend.figures().live_snapshots, 0);
        let (backend, counts, texts) = self.restored(id, self.options);
        self.model = self.stored[&id].expected.clone();
        (self.backend, self.counts, self.texts) = (backend, counts, texts);
    }
}

/// Empties every segment.
#[derive(Debug)]
pub(super) struct All;

impl RewritePolicy for All {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let victims = stats.segments.iter().map(|segment| segment.number).collect();
        RewritePlan { victims, ..RewritePlan::none() }
    }
}

/// Writes a snapshot.
pub(super) fn write(snapshot: &mut HeapSnapshot, options: &WriteOptions) -> Vec<FinishedSegment> {
    let mut segments = Vec::new();
    let mut sink = |segment| {
        segments.push(segment);
        Ok(())
    };
    snapshot.write(options, &mut sink).unwrap();
    segments
}

pub(super) fn contents(backend: &HeapBackend, counts: Counts, texts: Texts) -> Contents {
    let mut contents = Contents::default();
    for entry in backend.state(counts).unwrap().iter() {
        assert_eq!(contents.counts.insert(*entry.key, *entry.value), None, "key {} twice", entry.key);
    }
    for entry in backend.state(texts).unwrap().iter() {
        let key = (entry.key.clone(), *entry.namespace);
        assert_eq!(contents.texts.insert(key, entry.value.clone()), None, "key {} twice", entry.key);
    }
    contents
}
