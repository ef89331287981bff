//! One typed state API, and what a checkpoint needs of the backend behind it.
//!
//! Owns: the traits that every backend implements, and the words they share with the job.
//! Does not own: how a backend keeps its entries (`lowtide-heap`, `lowtide-lsm`), who triggers a
//! checkpoint and what becomes of the files (`job`, `coordinator`).
//!
//! # Rules for implementations
//!
//! - B1. Freezing is the synchronous phase: it touches no entry in proportion to the state, and everything
//!   written before it is in the snapshot, nothing written after it.
//! - B2. A snapshot lets go of the backend on every way out: finished, failed, cancelled, panicked, dropped.
//! - B3. A checkpoint that did not complete loses no change: the next one carries it again.
//! - B4. A key belongs to the key group that [`key_group_of`] says; a backend holds those of its range only.

use std::future::Future;
use std::ops::Deref;

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, CheckpointKind, FileEntry, FileKind, Generation, Key, KeyGroup, KeyGroupCount,
    KeyGroupRange, Lookup, Namespace, Value, key_group,
};

use lowtide_heap::CancelToken;

use crate::coordinator::{Acknowledgement, BaseMode};
use crate::error::{Error, Result};
use crate::restore::RestoreSource;

mod heap;
#[cfg(feature = "rocksdb")]
mod rocks;

pub use heap::{DeclaredState, HeapEntries, HeapFrozen, HeapSettings};
#[cfg(feature = "rocksdb")]
pub use rocks::{Decoded, RocksBackend, RocksEntries, RocksSnapshot};

/// The key group of a key: the one routing rule, used by jobs, restores and inspection alike.
///
/// xxh3-64 of the key's encoding modulo the number of key groups; stable across processes and releases.
#[must_use]
pub fn key_group_of<K: Key, Q: Lookup<K> + ?Sized>(key: &Q, key_groups: KeyGroupCount) -> KeyGroup {
    key_group(key.lookup_hash(), key_groups)
}

/// Which key groups of a job one backend keeps, and which subtask it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Number of the subtask, from 0.
    pub subtask: u32,
    /// How many key groups the job has; part of every manifest, fixed for the life of a job.
    pub key_groups: KeyGroupCount,
    /// The groups this backend keeps.
    pub range: KeyGroupRange,
    /// Which checkpoints may be a base of its deltas.
    pub base_mode: BaseMode,
}

/// What the coordinator asks of a backend at a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeRequest {
    /// The coordinator's generation, which new files carry.
    pub generation: Generation,
    /// The checkpoint to be written.
    pub id: CheckpointId,
    /// The checkpoint that the delta is taken against; none writes everything. Not one that another job published under an id
    /// of this one's.
    pub base: Option<CheckpointId>,
    /// Ordinary, full, or a savepoint.
    pub kind: CheckpointKind,
}

/// How a snapshot is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Set to stop the writer: it then returns an error between two batches.
    pub cancel: CancelToken,
}

/// A file that a snapshot has produced and that goes to the store, or several that share an object.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// What the bytes are.
    pub kind: FileKind,
    /// The whole file. Backends cut what they write into files of at most some tens of MiB.
    pub bytes: Bytes,
    /// Further files of that kind, which follow it in the same object: small ones that will be needed for about as long.
    pub more: Vec<Bytes>,
}

/// Takes a snapshot's files in order; blocks while too many bytes are on their way to the store.
pub type FileSink<'a> = dyn FnMut(NewFile) -> Result<()> + 'a;

/// The frozen view of one backend, to be written by another thread while the backend goes on.
///
/// Dropping it at any point lets go of the backend (rule B2).
pub trait Snapshot: Send + 'static {
    /// Writes the delta, or everything, as files in the order in which they are to be uploaded.
    ///
    /// Blocking; meant for a thread of its own. Called once.
    ///
    /// # Errors
    ///
    /// What the sink returned, a cancelled writer, or a value that cannot be encoded or read.
    fn write(&mut self, options: &WriteOptions, sink: &mut FileSink<'_>) -> Result<()>;

    /// Files of the base whose bytes are to be copied into one new object, in the order of its parts; `files` are those
    /// uploaded. Seldom any, and none by default.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if the number of files is not that of the sink's calls.
    fn copies(&self, files: &[FileEntry]) -> Result<Vec<FileEntry>> {
        let _ = files;
        Ok(Vec::new())
    }

    /// The files that [`Snapshot::copies`] named are at `places` as well, in this order, and nothing else is in that
    /// object. Not called if they could not be read: the checkpoint then lists them where they are.
    fn copied(&mut self, files: &[FileEntry], places: &[FileEntry]) {
        let _ = (files, places);
    }

    /// What the subtask acknowledges, the uploaded files being `files`, in the order of the sink, those that share an
    /// object one after the other.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if the number of files is not that of the sink's calls.
    fn finish(self, files: Vec<FileEntry>) -> Result<Acknowledgement>;
}

/// What one backend says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendFigures {
    /// Entries in all states and namespaces.
    pub entries: u64,
    /// Snapshots not let go yet.
    pub live_snapshots: u64,
    /// Records set aside for open snapshots since the backend came into being.
    pub records_set_aside: u64,
}

/// One entry as an iterator of a backend hands it out: key, namespace, value.
pub type EntryRef<'a, B, K, N, V> =
    (<B as Backend>::Ref<'a, K>, <B as Backend>::Ref<'a, N>, <B as Backend>::Ref<'a, V>);

/// The state of one subtask: named states of typed entries over a range of key groups.
///
/// Implemented by the heap backend and by the RocksDB backend; open to others. Reads hand out
/// [`Backend::Ref`]: a plain reference where the entries are Rust values, an owned value where they are
/// decoded. Everything that writes takes `&mut self`, so that a freeze cannot race with a write.
pub trait Backend: Sized + Send + 'static {
    /// Name of the backend in manifests: `heap`, `rocksdb`.
    const KIND: &'static str;

    /// Settings of the backend itself.
    type Options: Clone + Default + Send + Sync + 'static;

    /// The frozen view.
    type Snapshot: Snapshot;

    /// Token of a registered state; of use only with the backend that gave it.
    type State<K: Key, N: Namespace, V: Value>: Copy + Send + Sync + 'static;

    /// Read access to a key, namespace or value.
    type Ref<'a, T: 'a>: Deref<Target = T>
    where
        Self: 'a;

    /// Iterator over the entries of a state, in no particular order.
    type Iter<'a, K: Key, N: Namespace, V: Value>: Iterator<Item = Result<EntryRef<'a, Self, K, N, V>>>
    where
        Self: 'a;

    /// An empty backend.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for settings that make no sense, `store` if local files cannot be created.
    fn open(options: &Self::Options, assignment: Assignment) -> Result<Self>;

    /// A backend with the entries of the assignment's key groups as `source` holds them.
    ///
    /// The next checkpoint may be a delta against the restored one.
    ///
    /// # Errors
    ///
    /// `missing` and `corrupt` naming object and checkpoint; `incompatible` for another number of key groups,
    /// format version or codec; `store` if reading failed. Nothing half-open stays.
    fn restore(
        options: &Self::Options,
        assignment: Assignment,
        source: &RestoreSource,
    ) -> impl Future<Output = Result<Self>> + Send;

    /// Figures of the moment. A backend that has to look for them may take its time: never asked for in the pause of a
    /// checkpoint.
    fn figures(&self) -> BackendFigures;

    /// Of the figures what is asked for at each freeze; O(1).
    fn records_set_aside(&self) -> u64 {
        self.figures().records_set_aside
    }

    /// The value state of that name; it comes into being at the first call.
    ///
    /// # Errors
    ///
    /// `incompatible` if the state exists with other types; the state is then untouched.
    fn value_state<K: Key, N: Namespace, V: Value>(&mut self, name: &str) -> Result<Self::State<K, N, V>>;

    /// The value of a key in a namespace.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for a token of another backend; on backends that read files also theirs.
    fn get<'a, K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &'a self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<Self::Ref<'a, V>>>;

    /// Sets the value of a key; says whether the key was absent.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn put<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: N,
        key: K,
        value: V,
    ) -> Result<bool>;

    /// Sets the value of a key without asking whether it was there. On backends that would have to read for that,
    /// this is the cheaper [`Backend::put`].
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    #[inline(always)]
    fn set<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: N,
        key: K,
        value: V,
    ) -> Result<()> {
        self.put(state, namespace, key, value).map(drop)
    }

    /// Removes a key without asking for the value it had: as [`Backend::set`] is to [`Backend::put`].
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn discard<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<()> {
        self.remove(state, namespace, key).map(drop)
    }

    /// Changes the value of a key in place; false, and nothing happens, if the key is absent.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn update<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> Result<bool>;

    /// Removes a key and returns the value it had.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn remove<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<V>>;

    /// Removes the entries for which `keep` says no; returns how many.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn retain<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64>;

    /// Empties the state, or one namespace of it: one event, whatever the number of entries.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn clear<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: Self::State<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<()>;

    /// The entries of the state, or of one namespace of it, in no particular order.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn iter<'a, K: Key, N: Namespace, V: Value>(
        &'a self,
        state: Self::State<K, N, V>,
        namespace: Option<N>,
    ) -> Result<Self::Iter<'a, K, N, V>>;

    /// How many entries the state has, in all namespaces.
    ///
    /// # Errors
    ///
    /// As [`Backend::get`].
    fn len<K: Key, N: Namespace, V: Value>(&self, state: Self::State<K, N, V>) -> Result<u64>;

    /// Merges what the backend keeps of the state `name` in local files, now and not when it sees fit.
    ///
    /// # Errors
    ///
    /// `invalid-argument` on a backend that keeps states in memory, and if there is no such state; the backend's own.
    fn compact(&mut self, name: &str) -> Result<()> {
        let kind = Self::KIND;
        Err(Error::invalid_argument(format!(
            "{kind} keeps state {name} in memory, there is nothing to merge"
        )))
    }

    /// The synchronous phase of a checkpoint (rule B1). `options` say how the snapshot is written.
    ///
    /// A backend that has lost the base takes none for itself and says so in its acknowledgement.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if the id is not above all earlier ones or too many snapshots are open.
    fn freeze(&mut self, options: &Self::Options, request: FreezeRequest) -> Result<Self::Snapshot>;

    /// The checkpoint is complete, and `lowest_retained` is the oldest that is kept. Harmless for unknown ids.
    fn completed(&mut self, id: CheckpointId, lowest_retained: CheckpointId);

    /// The checkpoint will never complete. Harmless for unknown ids.
    ///
    /// In mode `Acknowledged` it may still be a base, if this backend had acknowledged it.
    fn aborted(&mut self, id: CheckpointId);
}
