//! What a restore shares with its readers: the entries of each key group, which of them are ready, and how it ended.
//!
//! Owns: the lock of each key group, readiness, and who waits for it. Does not own: when a key group is complete and how
//! it is filled (the module above, `walk`), what is looked up in it (`reader`).
//!
//! Whoever fills a key group takes its lock once in a call, for all records of the call; readers take it only when the
//! key group is ready, from when on nobody fills it. So neither ever waits for the other, and a record costs nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use lowtide_format::{CheckpointId, DecodeLimits, KeyGroup, KeyGroupCount, KeyGroupRange};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::walk::ShardFilling;
use crate::backend::HeapOptions;
use crate::error::HeapError;

/// How a restore ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is a backend.
    Restored,
    /// It failed or was dropped.
    Abandoned,
}

/// One key group.
#[derive(Default)]
struct ServedShard {
    /// Whether it is complete and still here. Becomes true once, and false under the lock when the backend takes over.
    ready: AtomicBool,
    filling: RwLock<ShardFilling>,
}

/// Waits of one key group lie next to each other; a wait has a number, so that it can be given up.
#[derive(Default)]
struct Waits {
    next: u64,
    wakers: BTreeMap<(usize, u64), Waker>,
}

/// The key groups that are restored.
pub(super) struct Served {
    pub(super) id: CheckpointId,
    pub(super) count: KeyGroupCount,
    pub(super) range: KeyGroupRange,
    pub(super) limits: DecodeLimits,
    shards: Box<[ServedShard]>,
    end: OnceLock<End>,
    waits: Mutex<Waits>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served")
            .field("id", &self.id)
            .field("range", &self.range)
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

impl Served {
    /// Of empty key groups, none of which is ready.
    pub(super) fn new(options: HeapOptions, id: CheckpointId, limits: DecodeLimits) -> Self {
        let HeapOptions { key_groups: count, range, .. } = options;
        let shards = (0..range.len()).map(|_| ServedShard::default()).collect();
        Self { id, count, range, limits, shards, end: OnceLock::new(), waits: Mutex::default() }
    }

    /// How many key groups there are.
    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// The number of a key group's shard.
    pub(super) fn shard_of(&self, key_group: KeyGroup) -> Result<usize, HeapError> {
        let range = self.range;
        let at = key_group.0.checked_sub(range.start().0).filter(|_| range.contains(key_group));
        at.map(usize::from).ok_or(HeapError::ForeignKey { key_group, range })
    }

    /// A shard that is not ready, to be filled.
    pub(super) fn fill(&self, shard: usize) -> Option<RwLockWriteGuard<'_, ShardFilling>> {
        debug_assert!(!self.is_ready(shard), "H19: a key group that is ready is filled");
        Some(self.shards.get(shard)?.filling.write())
    }

    /// Something of all shards.
    pub(super) fn each<T>(&self, of: impl Fn(&ShardFilling) -> T) -> impl Iterator<Item = T> {
        self.shards.iter().map(move |shard| of(&shard.filling.read()))
    }

    pub(super) fn is_ready(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.ready.load(Ordering::Acquire))
    }

    /// Nothing will be added to a shard any more: whoever waits for it is woken.
    pub(super) fn mark_ready(&self, shard: usize) {
        let Some(ServedShard { ready, .. }) = self.shards.get(shard) else { return };
        // Before the lock: a wait that was not seen under it sees this.
        if ready.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut woken = Vec::new();
        let mut waits = self.waits.lock();
        while let Some((key, _)) = waits.wakers.range((shard, 0)..=(shard, u64::MAX)).next() {
            let key = *key;
            woken.extend(waits.wakers.remove(&key));
        }
        drop(waits);
        woken.into_iter().for_each(Waker::wake);
    }

    /// A shard to read, if it is ready.
    pub(super) fn read(&self, shard: usize) -> Result<RwLockReadGuard<'_, ShardFilling>, HeapError> {
        if let Some(served) = self.shards.get(shard).filter(|served| served.ready.load(Ordering::Acquire)) {
            // A value's clone may read again: it must not wait for a backend that waits for it.
            let filling = served.filling.read_recursive();
            if served.ready.load(Ordering::Acquire) {
                return Ok(filling);
            }
        }
        Err(self.ended().unwrap_or_else(|| self.not_ready(shard)))
    }

    fn not_ready(&self, shard: usize) -> HeapError {
        let key_group = KeyGroup(self.range.start().0.saturating_add(shard as u16));
        HeapError::NotReady { key_group, checkpoint: self.id }
    }

    /// Why nothing is read here any more.
    fn ended(&self) -> Option<HeapError> {
        let checkpoint = self.id;
        self.end.get().map(|end| match end {
            End::Restored => HeapError::RestoreFinished { checkpoint },
            End::Abandoned => HeapError::RestoreAbandoned { checkpoint },
        })
    }

    /// Takes the shards away: they are not ready any more.
    pub(super) fn take(&self) -> impl Iterator<Item = ShardFilling> {
        self.shards.iter().map(|shard| {
            let mut filling = shard.filling.write();
            shard.ready.store(false, Ordering::Release);
            std::mem::take(&mut *filling)
        })
    }

    /// The restore has ended, unless it had before: whoever waits is woken.
    pub(super) fn end(&self, end: End) {
        // Before the lock, as when a shard becomes ready.
        let _ = self.end.set(end);
        let wakers = std::mem::take(&mut self.waits.lock().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Asks for a shard to become ready; `number` is that of the wait.
    pub(super) fn poll_ready(
        &self,
        shard: usize,
        number: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<(), HeapError>> {
        let mut waits = self.waits.lock();
        if let Some(error) = self.ended() {
            return Poll::Ready(Err(error));
        }
        if self.is_ready(shard) {
            return Poll::Ready(Ok(()));
        }
        let number = *number.get_or_insert_with(|| {
            waits.next += 1;
            waits.next
        });
        waits.wakers.insert((shard, number), waker.clone());
        Poll::Pending
    }

    /// Gives a wait up.
    pub(super) fn forget(&self, shard: usize, number: u64) {
        let forgotten = self.waits.lock().wakers.remove(&(shard, number));
        drop(forgotten);
    }

    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.waits.lock().wakers.len()
    }
}
