//! The typed state API over one RocksDB database.
//!
//! Owns: the states, how entries are read and written, when a checkpoint is taken.
//! Does not own: what becomes of the linked tables (`snapshot`), where a restore comes from (`restore`).
//!
//! # Invariants
//!
//! - E1. Every entry's key group lies in the range of the backend.
//! - E2. A table is reused only from the table set of the base that the trigger names, and a table set is known only
//!   for a checkpoint that this backend acknowledged in this life or was restored from.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, DecodeLimits, Key, KeyGroup, KeyGroupCount, KeyGroupRange, Lookup,
    Namespace, StateDescriptor, StateKind, Value, key_group,
};
use rocksdb::{DBPinnableSlice, WriteBatch};

use super::engine::{Engine, family_of_state, rocks};
use super::entries::LsmEntries;
use super::listener::CompactionLog;
use super::options::{EngineOptions, LsmOptions};
use super::snapshot::{LsmSnapshot, SnapshotRequest};
use crate::diff::TableSet;
use crate::directory::WorkingDirectory;
use crate::error::LsmError;
use crate::key;

/// Tells the tokens of one backend from those of another.
static NEXT_TAG: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Where keys are put together for reading. Taken out while in use, because encoding runs the user's code.
    static KEY_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The table sets of the checkpoints that may be a base, shared with the snapshots that add theirs.
pub(crate) type TableSets = Arc<Mutex<BTreeMap<CheckpointId, Arc<TableSet>>>>;

/// Token of a registered state; of use only with the backend that gave it.
pub struct LsmState<K, N, V> {
    index: u32,
    tag: u64,
    types: PhantomData<fn() -> (K, N, V)>,
}

impl<K, N, V> Clone for LsmState<K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for LsmState<K, N, V> {}

impl<K, N, V> std::fmt::Debug for LsmState<K, N, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmState").field("index", &self.index).finish_non_exhaustive()
    }
}

/// A registered state and the name of its column family.
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) family: String,
}

impl State {
    pub(crate) fn new(descriptor: StateDescriptor) -> Self {
        let family = family_of_state(&descriptor.name);
        Self { descriptor, family }
    }
}

/// The state of one subtask in RocksDB: named states of typed entries over a range of key groups.
///
/// Reads decode what they return. Nothing is durable but through checkpoints: the local database has no log, and goes
/// with the backend.
pub struct LsmBackend {
    pub(crate) engine: Engine,
    pub(crate) states: Vec<State>,
    pub(crate) range: KeyGroupRange,
    pub(crate) key_groups: KeyGroupCount,
    pub(crate) options: LsmOptions,
    pub(crate) table_sets: TableSets,
    pub(crate) newest: Option<CheckpointId>,
    pub(crate) compactions: CompactionLog,
    /// Encoded bytes of keys and values written since the last freeze that can be a base.
    pub(crate) changed_bytes: u64,
    live_snapshots: Arc<()>,
    tag: u64,
    key_buffer: Vec<u8>,
    value_buffer: Vec<u8>,
}

impl std::fmt::Debug for LsmBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmBackend")
            .field("range", &self.range)
            .field("states", &self.states.len())
            .finish_non_exhaustive()
    }
}

impl LsmBackend {
    /// An empty backend for `range` in a new working directory.
    ///
    /// # Errors
    ///
    /// [`LsmError::Option`] for settings that make no sense, [`LsmError::Io`] or [`LsmError::Rocks`] if local files
    /// cannot be made.
    pub fn open(
        options: &LsmOptions,
        range: KeyGroupRange,
        key_groups: KeyGroupCount,
    ) -> Result<Self, LsmError> {
        let directory = WorkingDirectory::create(&options.directory)?;
        let compactions = CompactionLog::default();
        let engine_options = EngineOptions::new(options, &compactions)?;
        let engine = Engine::open(&directory, "db", engine_options, &[])?;
        Self::with_engine(engine, options, (range, key_groups), compactions)
    }

    pub(crate) fn with_engine(
        engine: Engine,
        options: &LsmOptions,
        (range, key_groups): (KeyGroupRange, KeyGroupCount),
        compactions: CompactionLog,
    ) -> Result<Self, LsmError> {
        if range.end().0 >= key_groups.get() {
            let problem = "it reaches beyond the number of key groups";
            return Err(LsmError::Option { option: "range", problem });
        }
        Ok(Self {
            engine,
            states: Vec::new(),
            range,
            key_groups,
            options: options.clone(),
            table_sets: TableSets::default(),
            newest: None,
            compactions,
            changed_bytes: 0,
            live_snapshots: Arc::new(()),
            tag: NEXT_TAG.fetch_add(1, Ordering::Relaxed),
            key_buffer: Vec::new(),
            value_buffer: Vec::new(),
        })
    }

    /// The key groups it keeps.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        self.range
    }

    /// How many key groups the job has.
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupCount {
        self.key_groups
    }

    /// The states in the order in which they came into being.
    pub fn states(&self) -> impl Iterator<Item = &StateDescriptor> {
        self.states.iter().map(|state| &state.descriptor)
    }

    /// Snapshots that are not let go yet.
    #[must_use]
    pub fn live_snapshots(&self) -> usize {
        Arc::strong_count(&self.live_snapshots) - 1
    }

    /// How many entries there are, as RocksDB estimates it; O(states).
    #[must_use]
    pub fn entries_estimate(&self) -> u64 {
        let estimate = |state: &State| -> Option<u64> {
            let family = self.engine.family(&state.family).ok()?;
            self.engine.db().property_int_value_cf(family, rocksdb::properties::ESTIMATE_NUM_KEYS).ok()?
        };
        self.states.iter().filter_map(estimate).sum()
    }

    /// The value state of that name; it comes into being at the first call.
    ///
    /// # Errors
    ///
    /// [`LsmError::Format`] with a codec mismatch if the state exists with other types (it is then untouched) or the
    /// name is none; [`LsmError::Rocks`] if its column family cannot be made.
    pub fn value_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
    ) -> Result<LsmState<K, N, V>, LsmError> {
        let descriptor = StateDescriptor {
            name: name.to_owned(),
            kind: StateKind::Value,
            key: Codec::<K>::identity(&AutoCodec),
            namespace: Codec::<N>::identity(&AutoCodec),
            value: Codec::<V>::identity(&AutoCodec),
        };
        let index = self.register(descriptor)?;
        Ok(LsmState { index, tag: self.tag, types: PhantomData })
    }

    /// The number of the state with that description; it comes into being if need be.
    pub(crate) fn register(&mut self, descriptor: StateDescriptor) -> Result<u32, LsmError> {
        let known = self.states.iter().position(|state| state.descriptor.name == descriptor.name);
        let at = match known {
            Some(at) => {
                if let Some(state) = self.states.get(at) {
                    descriptor.check_reads(&state.descriptor)?;
                }
                at
            }
            None => {
                self.engine.create_family(&descriptor.name)?;
                self.states.push(State::new(descriptor));
                self.states.len() - 1
            }
        };
        u32::try_from(at).map_err(|_| LsmError::ForeignState)
    }

    #[inline]
    fn state<K, N, V>(&self, token: LsmState<K, N, V>) -> Result<&State, LsmError> {
        if token.tag != self.tag {
            return Err(LsmError::ForeignState);
        }
        self.states.get(token.index as usize).ok_or(LsmError::ForeignState)
    }

    #[inline]
    fn group_of(&self, hash: u64) -> Result<KeyGroup, LsmError> {
        let group = key_group(hash, self.key_groups);
        if self.range.contains(group) {
            Ok(group)
        } else {
            Err(LsmError::ForeignKey { group, range: self.range })
        }
    }

    /// Calls `with` with the column family and the stored bytes of an entry's value.
    #[inline]
    fn read<K: Key, N: Namespace, V: Value, R>(
        &self,
        token: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        with: impl FnOnce(Option<DBPinnableSlice<'_>>) -> Result<R, LsmError>,
    ) -> Result<R, LsmError> {
        let family = self.engine.family(&self.state(token)?.family)?;
        let group = self.group_of(key.lookup_hash())?;
        let mut stored = KEY_BUFFER.take();
        let encoded = key::encode(
            &mut stored,
            group,
            |out| key.lookup_encode(out),
            |out| AutoCodec.encode(namespace, out),
        );
        let found = match encoded {
            Ok(()) => self.engine.db().get_pinned_cf(family, &stored).map_err(rocks("read")),
            Err(error) => Err(error.into()),
        };
        KEY_BUFFER.set(stored);
        with(found?)
    }

    /// The value of a key in a namespace.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] for a token of another backend, [`LsmError::ForeignKey`] for a key of another
    /// subtask, [`LsmError::Rocks`] if RocksDB fails, [`LsmError::Format`] for bytes that are no such value.
    pub fn get<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<Option<V>, LsmError> {
        self.read(state, namespace, key, |bytes| {
            bytes.map(|bytes| Ok(AutoCodec.decode(&bytes, DecodeLimits::default())?)).transpose()
        })
    }

    /// Whether a key has a value in a namespace. Does not decode it.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn contains<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<bool, LsmError> {
        self.read(state, namespace, key, |bytes| Ok(bytes.is_some()))
    }

    /// Sets the value of a key in a namespace. Reads nothing: whether there was a value before is not known.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn put<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        value: &V,
    ) -> Result<(), LsmError> {
        self.locate(state, namespace, key)?;
        self.value_buffer.clear();
        AutoCodec.encode(value, &mut self.value_buffer)?;
        let family = self.engine.family(&self.state(state)?.family)?;
        self.engine
            .db()
            .put_cf_opt(family, &self.key_buffer, &self.value_buffer, self.engine.write_options())
            .map_err(rocks("write"))?;
        self.changed_bytes += (self.key_buffer.len() + self.value_buffer.len()) as u64;
        Ok(())
    }

    /// Removes a key from a namespace. Reads nothing: whether there was a value is not known.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn remove<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<(), LsmError> {
        self.locate(state, namespace, key)?;
        let family = self.engine.family(&self.state(state)?.family)?;
        self.engine
            .db()
            .delete_cf_opt(family, &self.key_buffer, self.engine.write_options())
            .map_err(rocks("write"))?;
        self.changed_bytes += self.key_buffer.len() as u64;
        Ok(())
    }

    /// Puts the stored key into the key buffer.
    fn locate<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<(), LsmError> {
        self.state(state)?;
        let group = self.group_of(key.lookup_hash())?;
        key::encode(
            &mut self.key_buffer,
            group,
            |out| key.lookup_encode(out),
            |out| AutoCodec.encode(namespace, out),
        )?;
        Ok(())
    }

    /// Changes the value of a key in place by reading and writing it; false, and nothing happens, if it is absent.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn update<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        change: impl FnOnce(&mut V),
    ) -> Result<bool, LsmError> {
        let Some(mut value) = self.get(state, namespace, key)? else { return Ok(false) };
        change(&mut value);
        self.put(state, namespace, key, &value)?;
        Ok(true)
    }

    /// Empties the state, or one namespace of it.
    ///
    /// The whole state is one record whatever its size. One namespace is read and deleted entry by entry, the key
    /// coming before the namespace in the order of the tables: O(entries of the state).
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn clear<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<(), LsmError> {
        match namespace {
            None => {
                let family = self.state(state)?.family.clone();
                self.engine.delete_range(&family, self.range)
            }
            Some(namespace) => self.retain_in(state, Some(namespace), |_, _, _| false).map(drop),
        }
    }

    /// Removes the entries for which `keep` says no; returns how many. Reads every entry.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn retain<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64, LsmError> {
        self.retain_in(state, None, keep)
    }

    fn retain_in<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
        mut keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64, LsmError> {
        const BATCH: usize = 1000;
        let family = self.engine.family(&self.state(state)?.family)?;
        let (mut removed, mut bytes, mut batch) = (0_u64, 0_u64, WriteBatch::default());
        let write = |batch: WriteBatch| {
            self.engine.db().write_opt(&batch, self.engine.write_options()).map_err(rocks("write"))
        };
        // The iterator sees the database as of its beginning, whatever is deleted meanwhile.
        let mut entries = self.iter(state, namespace)?;
        while let Some(entry) = entries.next_stored() {
            let (stored, key, namespace, value) = entry?;
            if !keep(&key, &namespace, &value) {
                batch.delete_cf(family, &stored);
                (removed, bytes) = (removed + 1, bytes + stored.len() as u64);
                if batch.len() >= BATCH {
                    write(std::mem::take(&mut batch))?;
                }
            }
        }
        drop(entries);
        write(batch)?;
        self.changed_bytes += bytes;
        Ok(removed)
    }

    /// The entries of the state, or of one namespace of it, by key group; as of now, whatever is written meanwhile.
    ///
    /// One namespace costs as much as the whole state.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn iter<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<LsmEntries<'_, K, N, V>, LsmError> {
        let family = &self.state(state)?.family;
        let namespace = namespace.map(|namespace| {
            let mut encoded = Vec::new();
            AutoCodec.encode(namespace, &mut encoded).map(|()| encoded)
        });
        Ok(LsmEntries::new(self.engine.iterate(family, self.range)?, namespace.transpose()?))
    }

    /// How many entries the state has, in all namespaces. RocksDB does not know: O(entries).
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn len<K: Key, N: Namespace, V: Value>(&self, state: LsmState<K, N, V>) -> Result<u64, LsmError> {
        let mut iterator = self.engine.iterate(&self.state(state)?.family, self.range)?;
        let mut entries = 0;
        while iterator.valid() {
            entries += 1;
            iterator.next();
        }
        iterator.status().map_err(rocks("iterate"))?;
        Ok(entries)
    }

    /// The synchronous phase of a checkpoint: flush, then hard-link. Both are measured in the snapshot's figures.
    ///
    /// A base whose tables are not known is taken as none: everything is uploaded, and the acknowledgement says so.
    ///
    /// # Errors
    ///
    /// [`LsmError::IdNotAbove`] if the id is not above all earlier ones, [`LsmError::Rocks`] or [`LsmError::Io`] if
    /// flush or links fail; nothing stays of the attempt then.
    pub fn freeze(&mut self, request: SnapshotRequest) -> Result<LsmSnapshot, LsmError> {
        if let Some(newest) = self.newest.filter(|newest| request.id <= *newest) {
            return Err(LsmError::IdNotAbove { id: request.id, newest });
        }
        let snapshot = LsmSnapshot::freeze(self, request, self.live_snapshots.clone())?;
        self.newest = Some(request.id);
        Ok(snapshot)
    }

    /// The table sets that may still be a base, for whoever holds the lock; a panicked holder has not spoilt them.
    pub(crate) fn table_set(&self, base: CheckpointId) -> Option<Arc<TableSet>> {
        self.table_sets.lock().unwrap_or_else(PoisonError::into_inner).get(&base).cloned()
    }

    /// The checkpoint is complete and may be a base; older ones may not any more. Harmless for unknown ids.
    pub fn completed(&mut self, id: CheckpointId) {
        let mut sets = self.table_sets.lock().unwrap_or_else(PoisonError::into_inner);
        // A savepoint or a checkpoint of somebody else is no base, and takes none away.
        if sets.contains_key(&id) {
            *sets = sets.split_off(&id);
        }
    }

    /// The checkpoint will never complete and is not to be a base any more. Harmless for unknown ids.
    pub fn aborted(&mut self, id: CheckpointId) {
        self.table_sets.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
