//! A store of files in memory, and the steps of a checkpoint as a job drives them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, DecodeLimits, FileEntry, FileKind, KeyGroup, KeyGroupCount, KeyGroupRange, ObjectName, xxh3,
};
use lowtide_lsm::{
    CheckpointMeta, LsmAcknowledgement, LsmBackend, LsmError, LsmOptions, LsmSnapshot, RestorePart,
    RestorePlan, SnapshotKind, SnapshotRequest, Staging, TABLE_LIST,
};

/// Objects by name, and how often each was read.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<String, Bytes>,
    pub(crate) reads: BTreeMap<String, u64>,
    pub(crate) put_bytes: u64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Store {
    pub(crate) fn put(&mut self, kind: FileKind, bytes: Bytes) -> FileEntry {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let object = ObjectName::new(&format!("data/{number}.{}", kind.extension())).unwrap();
        let (length, checksum) = (bytes.len() as u64, xxh3(&bytes));
        self.put_bytes += length;
        self.objects.insert(object.to_string(), bytes);
        FileEntry { object, offset: 0, length, checksum, kind }
    }

    pub(crate) fn get(&mut self, file: &FileEntry) -> Bytes {
        *self.reads.entry(file.object.to_string()).or_insert(0) += 1;
        let bytes = self.objects.get(file.object.as_str()).cloned().expect("a listed file is missing");
        file.check(&bytes).expect("a listed file is damaged");
        bytes
    }
}

pub(crate) fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

pub(crate) fn count(key_groups: u16) -> KeyGroupCount {
    KeyGroupCount::new(key_groups).unwrap()
}

pub(crate) fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end)).unwrap()
}

pub(crate) fn options(directory: &Path) -> LsmOptions {
    LsmOptions { directory: directory.to_path_buf(), memory_budget: 8 << 20, ..LsmOptions::default() }
}

pub(crate) fn request(checkpoint: u64, base: Option<u64>) -> SnapshotRequest {
    SnapshotRequest { id: id(checkpoint), base: base.map(id), kind: SnapshotKind::Tables, may_be_base: true }
}

pub(crate) fn write(snapshot: &mut LsmSnapshot, store: &mut Store) -> Result<Vec<FileEntry>, LsmError> {
    let mut files = Vec::new();
    snapshot.write(
        || false,
        |file| {
            files.push(store.put(file.kind, file.bytes));
            Ok::<_, LsmError>(())
        },
    )?;
    Ok(files)
}

/// Freeze, write, acknowledge.
pub(crate) fn checkpoint(
    backend: &mut LsmBackend,
    store: &mut Store,
    request: SnapshotRequest,
) -> LsmAcknowledgement {
    let mut snapshot = backend.freeze(request).unwrap();
    let files = write(&mut snapshot, store).unwrap();
    snapshot.finish(files).unwrap()
}

/// A part as a job finds it in a manifest.
pub(crate) fn part(acknowledgement: &LsmAcknowledgement, store: &mut Store) -> RestorePart {
    let list = acknowledgement.files.iter().find(|file| file.local_name == TABLE_LIST).unwrap();
    let meta = CheckpointMeta::decode(&store.get(&list.stored.file), DecodeLimits::default()).unwrap();
    let tables = acknowledgement.files.iter().filter(|file| file.local_name != TABLE_LIST);
    let tables = tables.map(|file| (file.local_name.clone(), file.stored.clone())).collect();
    RestorePart { meta, tables }
}

/// Restores `range` from what the subtasks acknowledged.
pub(crate) fn restore(
    directory: &Path,
    store: &mut Store,
    range: KeyGroupRange,
    parts: &[&LsmAcknowledgement],
) -> Result<LsmBackend, LsmError> {
    restore_with(&options(directory), store, range, parts)
}

/// As [`restore`], with settings of its own.
pub(crate) fn restore_with(
    options: &LsmOptions,
    store: &mut Store,
    range: KeyGroupRange,
    parts: &[&LsmAcknowledgement],
) -> Result<LsmBackend, LsmError> {
    let checkpoint = parts[0].id;
    let parts: Vec<RestorePart> = parts.iter().map(|acknowledgement| part(acknowledgement, store)).collect();
    let key_groups = parts[0].meta.key_groups;
    let plan = RestorePlan::new(range, key_groups, checkpoint, parts)?;
    let staging = Staging::create(options, plan)?;
    for fetch in staging.plan().fetches() {
        std::fs::write(staging.path(fetch)?, store.get(&fetch.stored.file)).unwrap();
    }
    staging.restore()
}

/// How many files and folders lie under a directory.
pub(crate) fn files_under(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| 1 + files_under(&entry.path())).sum()
}
