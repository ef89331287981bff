//! The heap backend behind the common API.
//!
//! Owns: translating calls, requests and errors. Does not own: the map, its deltas and its restore
//! (`lowtide-heap`).

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, CheckpointKind, FileEntry, FileId, FileKind, Generation, Key, Lookup, ManifestFile,
    Namespace, SegmentOptions, Value,
};
use lowtide_heap::chain::SegmentFile;
use lowtide_heap::rewrite::{BoundedRewriting, RewritePolicy, UnmetBound};
use lowtide_heap::{
    Antimatter, FreezeKind, HeapBackend, HeapError, HeapErrorKind, HeapRestore, HeapSnapshot,
};

use super::{
    Assignment, Backend, BackendFigures, EntryRef, FileSink, FreezeRequest, NewFile, Snapshot, WriteOptions,
};
use crate::coordinator::{AcknowledgedElement, Acknowledgement, BaseMode, WriteFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::restore::RestoreSource;

mod restore;

/// Settings of the heap backend.
#[derive(Clone, Debug)]
pub struct HeapSettings {
    /// How segments are compressed and cut into blocks.
    pub segment: SegmentOptions,
    /// A segment is closed once it has this many bytes. Default 64 MiB.
    pub segment_bytes_max: u64,
    /// When tombstones are written. Default where an older segment may hold the key.
    pub antimatter: Antimatter,
    /// Key groups encoded at a time, at least 1. Default 1.
    pub parallelism: usize,
    /// Which old entries are written again to keep the chain short; none rewrites nothing. Default
    /// [`BoundedRewriting`].
    pub rewriting: Option<Arc<dyn RewritePolicy>>,
    /// States whose types a restore knows; see [`HeapSettings::declare`].
    pub declared: Vec<DeclaredState>,
}

/// The name and types of a state, told to a restore before it reads entries.
#[derive(Clone)]
pub struct DeclaredState(Arc<OpenState>);

type OpenState = dyn Fn(&mut HeapRestore) -> Result<(), HeapError> + Send + Sync;

impl fmt::Debug for DeclaredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeclaredState")
    }
}

impl HeapSettings {
    /// Tells a restore the types of a state, so that its entries are decoded once, as they are read. A state that is
    /// not declared is kept as bytes until it is opened.
    #[must_use]
    pub fn declare<K: Key, V: Value, N: Namespace>(mut self, name: &str) -> Self {
        let name = name.to_owned();
        let open = move |restore: &mut HeapRestore| restore.value_state::<K, N, V>(&name).map(drop);
        self.declared.push(DeclaredState(Arc::new(open)));
        self
    }
}

impl Default for HeapSettings {
    fn default() -> Self {
        let lowtide_heap::WriteOptions { segment, segment_bytes_max, parallelism, .. } =
            lowtide_heap::WriteOptions::default();
        let antimatter = Antimatter::default();
        let rewriting: Option<Arc<dyn RewritePolicy>> = Some(Arc::new(BoundedRewriting::default()));
        Self { segment, segment_bytes_max, antimatter, parallelism, rewriting, declared: Vec::new() }
    }
}

/// The frozen view of a heap backend, with how it is to be written.
#[derive(Debug)]
pub struct HeapFrozen {
    snapshot: HeapSnapshot,
    segment: SegmentOptions,
    segment_bytes_max: u64,
    parallelism: usize,
    generation: Generation,
    /// Files of the base at the places they were copied to.
    copies: Vec<FileEntry>,
}

/// Up to this many bytes, the segments of one delta share an object: on a disk it takes no more room if one of them is not
/// listed any more. (Measured on the flights, with 64 KiB: 36 objects for 42 segments, and retained ÷ live 2.11 instead of
/// 1.90, because a delta dies before the survivors beside it.)
const SHARED_BYTES_MAX: usize = 4 << 10;

/// Puts small segments of one checkpoint, its delta and its cold one, into one object.
struct Sharing<'a, 's> {
    held: Vec<Bytes>,
    /// Without a base, the parts are there to die alone.
    shares: bool,
    sink: &'a mut FileSink<'s>,
}

impl Sharing<'_, '_> {
    fn take(&mut self, bytes: Bytes) -> Result<()> {
        let held: usize = self.held.iter().map(Bytes::len).sum();
        if !self.shares || held + bytes.len() > SHARED_BYTES_MAX {
            self.flush()?;
        }
        self.held.push(bytes);
        if self.shares { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        let mut parts = std::mem::take(&mut self.held).into_iter();
        let Some(bytes) = parts.next() else { return Ok(()) };
        (self.sink)(NewFile { kind: FileKind::Segment, bytes, more: parts.collect() })
    }
}

/// Says what a policy has decided that a user may wonder about.
fn tell(part: &lowtide_heap::Acknowledgement) {
    if part.report.full {
        tracing::info!(checkpoint = %part.id, "wrote everything: that costs little more than a delta");
    }
    for UnmetBound { bound, reached } in &part.unmet {
        tracing::info!(checkpoint = %part.id, ?bound, reached, "a bound does not hold within the budget");
    }
}

/// A segment as a manifest describes it; `None` if it was restored without its description.
fn manifest_file(file: &SegmentFile, generation: Generation) -> Option<ManifestFile> {
    let SegmentFile { entry, summary, object_bytes } = file.clone();
    let alone = object_bytes == entry.length;
    let of_segment = ManifestFile::of_segment(entry.object.clone(), &summary?, generation);
    Some(ManifestFile { entry, object_bytes: (!alone).then_some(object_bytes), ..of_segment })
}

impl Snapshot for HeapFrozen {
    fn write(&mut self, options: &WriteOptions, sink: &mut FileSink<'_>) -> Result<()> {
        let Self { segment, segment_bytes_max, parallelism, .. } = *self;
        let cancel = options.cancel.clone();
        let options = lowtide_heap::WriteOptions { segment, segment_bytes_max, parallelism, cancel };
        // The error of the sink comes back as itself, not as the heap's account of it.
        let mut refused = None;
        let mut sharing = Sharing { held: Vec::new(), shares: self.snapshot.base().is_some(), sink };
        let written = self.snapshot.write(&options, &mut |segment| {
            sharing.take(segment.bytes).map_err(|error| {
                refused = Some(error.clone());
                error.into()
            })
        });
        match (written, refused) {
            (Ok(_), _) => sharing.flush(),
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn copies(&self, files: &[FileEntry]) -> Result<Vec<FileEntry>> {
        Ok(self.snapshot.packing(files)?)
    }

    fn copied(&mut self, files: &[FileEntry], places: &[FileEntry]) {
        self.snapshot.packed(files, places);
        self.copies = places.to_vec();
    }

    fn finish(self, files: Vec<FileEntry>) -> Result<Acknowledgement> {
        let copied_bytes = self.copies.iter().map(|place| place.length).sum();
        let new: Vec<FileId> = files.iter().chain(&self.copies).map(FileEntry::id).collect();
        let part = self.snapshot.finish(files)?;
        tell(&part);
        let listed = part.chain.elements().iter().filter_map(|element| element.facts.file.as_ref());
        let files = listed.filter(|file| new.contains(&file.entry.id()));
        let files = files.filter_map(|file| manifest_file(file, self.generation)).collect();
        let mut elements = Vec::with_capacity(part.chain.elements().len());
        for element in part.chain.elements() {
            let file = element.facts.file.as_ref().map(|file| file.entry.id()).ok_or_else(|| {
                Error::invalid_argument(format!("a segment in the chain of {} has no file", part.id))
            })?;
            elements.push(AcknowledgedElement {
                file,
                key_groups: element.key_groups.clone(),
                live_puts: element.live_puts,
                live_tombstones: element.live_tombstones,
                live_clears: element.live_clears,
            });
        }
        Ok(Acknowledgement {
            base: part.base,
            files,
            elements,
            private: Vec::new(),
            states: part.states,
            entries: part.entries,
            figures: WriteFigures {
                rewritten: part.report.rewritten,
                rewritten_bytes: part.report.rewritten_bytes,
                copied_bytes,
                ..WriteFigures::default()
            },
        })
    }
}

impl From<HeapError> for Error {
    fn from(error: HeapError) -> Self {
        let kind = match error.kind() {
            HeapErrorKind::LimitReached => ErrorKind::LimitExceeded,
            HeapErrorKind::Incompatible => ErrorKind::Incompatible,
            HeapErrorKind::Corrupt => ErrorKind::Corrupt,
            HeapErrorKind::Cancelled | HeapErrorKind::Abandoned => ErrorKind::Cancelled,
            HeapErrorKind::NotReady => ErrorKind::NotReady,
            HeapErrorKind::Restored => ErrorKind::Restored,
            _ => ErrorKind::InvalidArgument,
        };
        // What is wrong with a record or a segment, and in which object, is said by the cause.
        let message = match &error {
            HeapError::Record { source, .. } => format!("{error}: {source}"),
            HeapError::Segment { source } => source.to_string(),
            _ => error.to_string(),
        };
        Self::new(kind, message).caused_by(error)
    }
}

fn heap_options(assignment: Assignment) -> lowtide_heap::HeapOptions {
    lowtide_heap::HeapOptions {
        key_groups: assignment.key_groups,
        range: assignment.range,
        base_mode: match assignment.base_mode {
            BaseMode::Confirmed => lowtide_heap::BaseMode::Confirmed,
            BaseMode::Acknowledged => lowtide_heap::BaseMode::Acknowledged,
        },
    }
}

/// The entries of a heap state, all or of one namespace.
pub struct HeapEntries<'a, K, N, V> {
    entries: Box<dyn Iterator<Item = lowtide_heap::EntryRef<'a, K, N, V>> + 'a>,
    namespace: Option<N>,
}

impl<'a, K: Key, N: Namespace, V: Value> Iterator for HeapEntries<'a, K, N, V> {
    type Item = Result<EntryRef<'a, HeapBackend, K, N, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        let wanted = &self.namespace;
        let found = self.entries.find(|entry| wanted.as_ref().is_none_or(|wanted| entry.namespace == wanted));
        found.map(|entry| Ok((entry.key, entry.namespace, entry.value)))
    }
}

impl Backend for HeapBackend {
    const KIND: &'static str = "heap";

    type Options = HeapSettings;
    type Snapshot = HeapFrozen;
    type State<K: Key, N: Namespace, V: Value> = lowtide_heap::ValueState<K, N, V>;
    type Ref<'a, T: 'a> = &'a T;
    type Iter<'a, K: Key, N: Namespace, V: Value> = HeapEntries<'a, K, N, V>;

    fn open(options: &HeapSettings, assignment: Assignment) -> Result<Self> {
        let mut backend = Self::new(heap_options(assignment));
        backend.set_rewriting(options.rewriting.clone());
        backend.set_antimatter(options.antimatter);
        Ok(backend)
    }

    fn restore(
        options: &HeapSettings,
        assignment: Assignment,
        source: &RestoreSource,
    ) -> impl Future<Output = Result<Self>> + Send {
        restore::restore(options, assignment, source)
    }

    fn figures(&self) -> BackendFigures {
        let figures = Self::figures(self);
        BackendFigures {
            entries: figures.entries,
            live_snapshots: figures.live_snapshots as u64,
            records_set_aside: figures.records_set_aside,
        }
    }

    fn value_state<K: Key, N: Namespace, V: Value>(&mut self, name: &str) -> Result<Self::State<K, N, V>> {
        Ok(Self::value_state(self, name)?)
    }

    fn records_set_aside(&self) -> u64 {
        Self::records_set_aside(self)
    }

    #[inline]
    fn get<'a, K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &'a self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<&'a V>> {
        Ok(self.state(state)?.find_in(namespace, key))
    }

    #[inline(always)]
    fn put<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: N,
        key: K,
        value: V,
    ) -> Result<bool> {
        Ok(self.state_mut(state)?.put_in(namespace, key, value)?)
    }

    #[inline]
    fn discard<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<()> {
        self.state_mut(state)?.delete_in(namespace, key);
        Ok(())
    }

    #[inline]
    fn update<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        Ok(self.state_mut(state)?.update_in(namespace, key, change))
    }

    #[inline]
    fn remove<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<V>> {
        Ok(self.state_mut(state)?.remove_in(namespace, key))
    }

    fn retain<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        mut keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64> {
        Ok(self.state_mut(state)?.retain(|entry| keep(entry.key, entry.namespace, entry.value)))
    }

    fn clear<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<()> {
        let mut access = self.state_mut(state)?;
        match namespace {
            None => access.clear(),
            Some(namespace) => access.clear_namespace(namespace),
        }
        Ok(())
    }

    fn iter<'a, K: Key, N: Namespace, V: Value>(
        &'a self,
        state: Self::State<K, N, V>,
        namespace: Option<N>,
    ) -> Result<HeapEntries<'a, K, N, V>> {
        Ok(HeapEntries { entries: Box::new(self.state(state)?.into_entries()), namespace })
    }

    fn len<K: Key, N: Namespace, V: Value>(&self, state: Self::State<K, N, V>) -> Result<u64> {
        Ok(self.state(state)?.len() as u64)
    }

    fn freeze(&mut self, options: &HeapSettings, request: FreezeRequest) -> Result<HeapFrozen> {
        let FreezeRequest { generation, id, base, kind } = request;
        let kind = match kind {
            CheckpointKind::Checkpoint => FreezeKind::Checkpoint,
            CheckpointKind::Full => FreezeKind::Full,
            CheckpointKind::Savepoint => FreezeKind::Savepoint,
        };
        let asked = lowtide_heap::FreezeRequest { id, base, kind };
        let snapshot = match Self::freeze(self, asked) {
            Err(HeapError::BaseForgotten { base }) => {
                tracing::warn!(checkpoint = %id, %base, "the base is not remembered, writing everything");
                Self::freeze(self, lowtide_heap::FreezeRequest { base: None, ..asked })?
            }
            other => other?,
        };
        let HeapSettings { segment, segment_bytes_max, parallelism, .. } = *options;
        let copies = Vec::new();
        Ok(HeapFrozen { snapshot, segment, segment_bytes_max, parallelism, generation, copies })
    }

    fn completed(&mut self, id: CheckpointId, _lowest_retained: CheckpointId) {
        Self::completed(self, id);
    }

    fn aborted(&mut self, id: CheckpointId) {
        Self::aborted(self, id);
    }
}
