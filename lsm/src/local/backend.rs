//! The state of one subtask in one RocksDB database.
//!
//! Owns: the states, which checkpoints may be a base, when a checkpoint is taken.
//! Does not own: how entries are read and written (`access`), what becomes of the linked tables (`snapshot`), where a restore comes from (`restore`).
//!
//! # Invariants
//!
//! - E1. Every entry's key group lies in the range of the backend.
//! - E2. A table is reused only from the table set of the base that the trigger names, and a table set is known only
//!   for a checkpoint that this backend acknowledged in this life or was restored from.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, Key, KeyGroupCount, KeyGroupRange, Namespace, StateDescriptor, StateKind,
    Value,
};

use super::engine::{Engine, family_of_state, rocks};
use super::options::{EngineOptions, LsmOptions};
use super::snapshot::{LsmSnapshot, SnapshotRequest};
use crate::diff::TableSet;
use crate::directory::WorkingDirectory;
use crate::error::LsmError;

/// So many checkpoints are remembered as possible bases while none of them is said to be complete.
const TABLE_SETS_MAX: usize = 64;

/// Tells the tokens of one backend from those of another.
static NEXT_TAG: AtomicU64 = AtomicU64::new(0);

/// The table sets of the checkpoints that may be a base, shared with the snapshots that add theirs.
pub(crate) type TableSets = Arc<Mutex<BTreeMap<CheckpointId, Arc<TableSet>>>>;

/// Neither owns nor borrows anything of the types.
pub(crate) type Types<K, N, V> = PhantomData<fn() -> (K, N, V)>;

/// Token of a registered state; of use only with the backend that gave it.
pub struct LsmState<K, N, V> {
    pub(crate) index: u32,
    pub(crate) tag: u64,
    types: Types<K, N, V>,
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
    /// Encoded bytes of keys and values written since the last freeze that can be a base.
    pub(crate) changed_bytes: u64,
    live_snapshots: Arc<()>,
    pub(crate) tag: u64,
    pub(crate) key_buffer: Vec<u8>,
    pub(crate) value_buffer: Vec<u8>,
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
        let engine = Engine::open(&directory, "db", EngineOptions::new(options)?, &[])?;
        Self::with_engine(engine, options, (range, key_groups))
    }

    pub(crate) fn with_engine(
        engine: Engine,
        options: &LsmOptions,
        (range, key_groups): (KeyGroupRange, KeyGroupCount),
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

    /// Merges all tables of all states now. A checkpoint after it carries the whole state.
    ///
    /// # Errors
    ///
    /// [`LsmError::Rocks`] if RocksDB fails.
    pub fn compact(&self) -> Result<(), LsmError> {
        self.states.iter().try_for_each(|state| self.engine.compact(&state.family))
    }

    /// Merges all tables of one state now.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] if there is no such state.
    pub fn compact_state(&self, state: &str) -> Result<(), LsmError> {
        self.engine.compact(&family_of_state(state))
    }

    /// RocksDB's own handles of a state: to read statistics, to measure, never to write.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] if there is no such state.
    pub fn database(&self, state: &str) -> Result<(&rocksdb::DB, &rocksdb::ColumnFamily), LsmError> {
        Ok((self.engine.db(), self.engine.family(&family_of_state(state))?))
    }

    /// How many entries all states have; O(entries).
    ///
    /// # Errors
    ///
    /// [`LsmError::Rocks`] if RocksDB fails.
    pub fn entries(&self) -> Result<u64, LsmError> {
        self.states.iter().map(|state| self.count(&state.family)).sum()
    }

    pub(crate) fn count(&self, family: &str) -> Result<u64, LsmError> {
        let mut iterator = self.engine.iterate(family, self.range)?;
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
        self.forget_surplus(request.base);
        self.newest = Some(request.id);
        Ok(snapshot)
    }

    /// Says that the entries are those of checkpoint `id`, restored by other means than its tables: later ids are
    /// above it, and nothing of it can be reused.
    pub fn restored_from(&mut self, id: CheckpointId) {
        self.newest = self.newest.max(Some(id));
    }

    /// The table sets that may still be a base, for whoever holds the lock; a panicked holder has not spoilt them.
    pub(crate) fn table_set(&self, base: CheckpointId) -> Option<Arc<TableSet>> {
        self.table_sets.lock().unwrap_or_else(PoisonError::into_inner).get(&base).cloned()
    }

    /// Bounds what a job that never hears of a completion remembers: the oldest table sets go, the base stays.
    fn forget_surplus(&self, base: Option<CheckpointId>) {
        let mut sets = self.table_sets.lock().unwrap_or_else(PoisonError::into_inner);
        while sets.len() > TABLE_SETS_MAX {
            let Some(oldest) = sets.keys().copied().find(|id| Some(*id) != base) else { break };
            sets.remove(&oldest);
        }
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
