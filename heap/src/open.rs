//! One state as an open snapshot needs it, as far as the owner has to know.
//!
//! Owns: the records that the owner set aside for the snapshot, and whether it still wants any. Does not own: what
//! each piece still owes to it (`owed`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lowtide_format::CheckpointId;
use parking_lot::Mutex;

use crate::epochs::Epoch;
use crate::handover::Stamp;

/// A record that was taken out of the map before the owner changed it; shared by all snapshots that want it.
#[derive(Debug)]
pub(crate) enum Aside<K, N, V> {
    /// The value that an entry had at the freeze.
    Put { key: K, namespace: N, value: V, version: Epoch, born: Epoch },
    /// The key that was absent at the freeze.
    Tombstone { key: K, namespace: N, oldest: Epoch, newest: Option<CheckpointId> },
}

/// Records set aside, by shard; `None` once the snapshot wants no more.
type Store<K, N, V> = Option<Vec<Vec<Arc<Aside<K, N, V>>>>>;

/// One state of an open snapshot.
#[derive(Debug)]
pub(crate) struct Open<K, N, V> {
    /// The freeze.
    pub(crate) stamp: Stamp,
    /// What changed after it is wanted; `None` for everything.
    pub(crate) base: Option<Epoch>,
    /// Shards below it are not looked through for entries to write again, or not any more.
    rewritten: AtomicUsize,
    closed: AtomicBool,
    store: Mutex<Store<K, N, V>>,
}

impl<K, N, V> Open<K, N, V> {
    pub(crate) fn new(stamp: Stamp, base: Option<Epoch>, rewrites: bool) -> Self {
        let store = Mutex::new(Some(Vec::new()));
        let rewritten = AtomicUsize::new(if rewrites { 0 } else { usize::MAX });
        Self { stamp, base, rewritten, closed: AtomicBool::new(false), store }
    }

    /// Whether entries of the shard may still be written again as they are.
    pub(crate) fn awaits(&self, shard: usize) -> bool {
        !self.is_closed() && shard >= self.rewritten.load(Ordering::Acquire)
    }

    /// No more entries of shards below `shard` are written again.
    pub(crate) fn rewritten_below(&self, shard: usize) {
        self.rewritten.store(shard, Ordering::Release);
    }

    /// Whether the snapshot wants no more.
    pub(crate) fn is_closed(&self) -> bool {
        // Only saves work: a record set aside too late is dropped by `set_aside`.
        self.closed.load(Ordering::Relaxed)
    }

    /// The snapshot wants no more: what was set aside is dropped at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let dropped = self.store.lock().take();
        drop(dropped);
    }

    /// Keeps a record for the snapshot.
    pub(crate) fn set_aside(&self, shard: usize, record: &Arc<Aside<K, N, V>>) {
        if let Some(shards) = self.store.lock().as_mut() {
            if shards.len() <= shard {
                shards.resize_with(shard + 1, Vec::new);
            }
            if let Some(records) = shards.get_mut(shard) {
                records.push(Arc::clone(record));
            }
        }
    }

    /// Takes what was set aside from a shard.
    pub(crate) fn take(&self, shard: usize) -> Vec<Arc<Aside<K, N, V>>> {
        let mut store = self.store.lock();
        store.as_mut().and_then(|shards| shards.get_mut(shard)).map(std::mem::take).unwrap_or_default()
    }

    /// How many records are set aside at present.
    pub(crate) fn held(&self) -> usize {
        self.store.lock().as_ref().map_or(0, |shards| shards.iter().map(Vec::len).sum())
    }
}
