//! The RocksDB backend behind the one state API.
//!
//! Owns: the translation between the job's words and those of `lowtide-lsm`, and fetching what a restore needs.
//! Does not own: entries, tables, local files (`lowtide-lsm`), uploading (`upload`).

mod restore;
mod snapshot;

use std::ops::Deref;

use lowtide_format::{CheckpointId, CheckpointKind, Key, KeyGroupRange, Lookup, Namespace, Value};
use lowtide_lsm::{
    LsmBackend, LsmEntries, LsmError, LsmErrorKind, LsmOptions, LsmState, SnapshotKind, SnapshotRequest,
};

use super::{Assignment, Backend, BackendFigures, EntryRef, FreezeRequest};
use crate::coordinator::BaseMode;
use crate::error::{Error, ErrorKind, Result};
use crate::restore::RestoreSource;

pub(crate) use restore::{is_table_checkpoint, records_of_tables};
pub use snapshot::RocksSnapshot;

/// Up to so many entries are counted one by one where RocksDB itself only estimates.
const ENTRIES_COUNTED_MAX: u64 = 100_000;

/// State in RocksDB: for more than fits into memory, at RocksDB's price on every access.
///
/// A checkpoint carries the tables that its base has not. The local database is a cache of the checkpoints: it goes
/// with the backend.
#[derive(Debug)]
pub struct RocksBackend {
    lsm: LsmBackend,
    assignment: Assignment,
}

/// A key, namespace or value as RocksDB's bytes gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<T>(pub T);

impl<T> Deref for Decoded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The entries of a state, decoded one by one.
pub struct RocksEntries<'a, K, N, V>(LsmEntries<'a, K, N, V>);

impl<'a, K: Key, N: Namespace, V: Value> Iterator for RocksEntries<'a, K, N, V> {
    type Item = Result<EntryRef<'a, RocksBackend, K, N, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.next()?;
        Some(
            entry
                .map(|(key, namespace, value)| (Decoded(key), Decoded(namespace), Decoded(value)))
                .map_err(Error::from),
        )
    }
}

impl From<LsmError> for Error {
    fn from(error: LsmError) -> Self {
        let kind = match error.kind() {
            LsmErrorKind::Corrupt => ErrorKind::Corrupt,
            LsmErrorKind::Missing => ErrorKind::Missing,
            LsmErrorKind::Incompatible => ErrorKind::Incompatible,
            LsmErrorKind::InvalidArgument => ErrorKind::InvalidArgument,
            LsmErrorKind::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Store,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

impl Backend for RocksBackend {
    const KIND: &'static str = "rocksdb";

    type Options = LsmOptions;
    type Snapshot = RocksSnapshot;
    type State<K: Key, N: Namespace, V: Value> = LsmState<K, N, V>;
    type Ref<'a, T: 'a> = Decoded<T>;
    type Iter<'a, K: Key, N: Namespace, V: Value> = RocksEntries<'a, K, N, V>;

    fn open(options: &LsmOptions, assignment: Assignment) -> Result<Self> {
        let lsm = LsmBackend::open(options, assignment.range, assignment.key_groups)?;
        Ok(Self { lsm, assignment })
    }

    async fn restore(options: &LsmOptions, assignment: Assignment, source: &RestoreSource) -> Result<Self> {
        restore::restore(options, assignment, source).await
    }

    /// As RocksDB estimates them where there are many; small states are counted.
    fn figures(&self) -> BackendFigures {
        let estimate = self.lsm.entries_estimate();
        let counted = if estimate <= ENTRIES_COUNTED_MAX { self.lsm.entries().ok() } else { None };
        let live_snapshots = self.lsm.live_snapshots() as u64;
        BackendFigures { entries: counted.unwrap_or(estimate), live_snapshots, records_set_aside: 0 }
    }

    /// Nothing ever is: a checkpoint reads linked tables.
    fn records_set_aside(&self) -> u64 {
        0
    }

    fn value_state<K: Key, N: Namespace, V: Value>(&mut self, name: &str) -> Result<LsmState<K, N, V>> {
        Ok(self.lsm.value_state(name)?)
    }

    fn get<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<Decoded<V>>> {
        Ok(self.lsm.get(state, namespace, key)?.map(Decoded))
    }

    fn put<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: N,
        key: K,
        value: V,
    ) -> Result<bool> {
        let absent = !self.lsm.contains(state, &namespace, &key)?;
        self.lsm.put(state, &namespace, &key, &value)?;
        Ok(absent)
    }

    fn set<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: N,
        key: K,
        value: V,
    ) -> Result<()> {
        Ok(self.lsm.put(state, &namespace, &key, &value)?)
    }

    fn discard<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<()> {
        Ok(self.lsm.remove(state, namespace, key)?)
    }

    fn update<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        Ok(self.lsm.update(state, namespace, key, change)?)
    }

    fn remove<K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<V>> {
        let removed = self.lsm.get(state, namespace, key)?;
        if removed.is_some() {
            self.lsm.remove(state, namespace, key)?;
        }
        Ok(removed)
    }

    fn retain<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64> {
        Ok(self.lsm.retain(state, keep)?)
    }

    fn clear<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<()> {
        Ok(self.lsm.clear(state, namespace)?)
    }

    fn iter<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: Option<N>,
    ) -> Result<RocksEntries<'_, K, N, V>> {
        Ok(RocksEntries(self.lsm.iter(state, namespace.as_ref())?))
    }

    fn len<K: Key, N: Namespace, V: Value>(&self, state: LsmState<K, N, V>) -> Result<u64> {
        Ok(self.lsm.len(state)?)
    }

    fn freeze(&mut self, _options: &LsmOptions, request: FreezeRequest) -> Result<RocksSnapshot> {
        let FreezeRequest { generation, id, base, kind } = request;
        let request = match kind {
            CheckpointKind::Checkpoint => {
                SnapshotRequest { id, base, kind: SnapshotKind::Tables, may_be_base: true }
            }
            CheckpointKind::Full => {
                SnapshotRequest { id, base: None, kind: SnapshotKind::Tables, may_be_base: true }
            }
            // Any backend can restore it.
            CheckpointKind::Savepoint => {
                SnapshotRequest { id, base: None, kind: SnapshotKind::Records, may_be_base: false }
            }
        };
        Ok(RocksSnapshot::new(self.lsm.freeze(request)?, generation, self.assignment.range))
    }

    fn compact(&mut self, name: &str) -> Result<()> {
        Ok(self.lsm.compact_state(name)?)
    }

    fn completed(&mut self, id: CheckpointId, _lowest_retained: CheckpointId) {
        self.lsm.completed(id);
    }

    fn aborted(&mut self, id: CheckpointId) {
        if self.assignment.base_mode == BaseMode::Confirmed {
            self.lsm.aborted(id);
        }
    }
}

impl RocksBackend {
    /// The backend behind it: compactions by hand, RocksDB's own statistics.
    #[must_use]
    pub fn lsm(&self) -> &LsmBackend {
        &self.lsm
    }

    fn from_lsm(lsm: LsmBackend, assignment: Assignment) -> Self {
        Self { lsm, assignment }
    }
}

/// The key groups of a subtask as the plan of `lowtide-lsm` wants them.
fn overlaps(part: KeyGroupRange, range: KeyGroupRange) -> bool {
    part.intersect(range).is_some()
}
