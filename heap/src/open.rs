//! One state as an open snapshot needs it, as far as the owner has to know.
//!
//! Owns: the records that the owner set aside for the snapshot, and whether it still wants any. Does not own: what
//! each piece still owes to it (`owed`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lowtide_format::CheckpointId;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

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

/// A record as a snapshot keeps it. Most are wanted by one snapshot only and need no memory of their own, which the
/// owner would have to ask for and a writer would have to give back.
#[derive(Debug)]
pub(crate) enum Kept<K, N, V> {
    Alone(Aside<K, N, V>),
    Shared(Arc<Aside<K, N, V>>),
}

impl<K, N, V> Deref for Kept<K, N, V> {
    type Target = Aside<K, N, V>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Alone(record) => record,
            Self::Shared(record) => record,
        }
    }
}

/// Records set aside from one shard, in blocks: a vector that grows would move megabytes within one update.
#[derive(Debug)]
pub(crate) struct KeptRecords<K, N, V> {
    blocks: Vec<Vec<Kept<K, N, V>>>,
}

/// How many records lie together.
const BLOCK: usize = 256;

impl<K, N, V> Default for KeptRecords<K, N, V> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<K, N, V> KeptRecords<K, N, V> {
    /// Keeps one more.
    #[inline]
    pub(crate) fn push(&mut self, record: Kept<K, N, V>) {
        match self.blocks.last_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(record),
            None => self.begin_block(record),
        }
    }

    #[cold]
    fn begin_block(&mut self, record: Kept<K, N, V>) {
        // The first is small, as few shards of many have to keep more than a few.
        let mut block = if self.blocks.is_empty() { Vec::new() } else { Vec::with_capacity(BLOCK) };
        block.push(record);
        self.blocks.push(block);
    }

    /// The records, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kept<K, N, V>> {
        self.blocks.iter().flatten()
    }

    fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }
}

/// Records set aside, by shard; `None` once the snapshot wants no more.
type Store<K, N, V> = Option<Vec<KeptRecords<K, N, V>>>;

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

    /// Where records of a shard are kept for the snapshot, under a lock; `None` once it wants no more.
    pub(crate) fn kept(&self, shard: usize) -> Option<MappedMutexGuard<'_, KeptRecords<K, N, V>>> {
        let kept = MutexGuard::try_map(self.store.lock(), |store| {
            let shards = store.as_mut()?;
            if shards.len() <= shard {
                shards.resize_with(shard + 1, KeptRecords::default);
            }
            shards.get_mut(shard)
        });
        kept.ok()
    }

    /// Keeps a record for the snapshot.
    pub(crate) fn set_aside(&self, shard: usize, record: Kept<K, N, V>) {
        if let Some(mut kept) = self.kept(shard) {
            kept.push(record);
        }
    }

    /// Takes what was set aside from a shard.
    pub(crate) fn take(&self, shard: usize) -> KeptRecords<K, N, V> {
        let mut store = self.store.lock();
        store.as_mut().and_then(|shards| shards.get_mut(shard)).map(std::mem::take).unwrap_or_default()
    }

    /// How many records are set aside at present.
    pub(crate) fn held(&self) -> usize {
        self.store.lock().as_ref().map_or(0, |shards| shards.iter().map(KeptRecords::len).sum())
    }
}
