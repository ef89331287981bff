//! The removal log of one piece: keys removed since the base, and what older records of them there may be.
//!
//! Owns: the entries. Does not own: which of them a delta writes as tombstones (`owed`).
//!
//! # Invariants
//!
//! - H6. At most one entry per key and namespace.
//! - H7. An entry leaves when every possible base covers the removal, or when a clear covers its scope; not when its
//!   key is put again.

use hashbrown::HashTable;
use lowtide_format::CheckpointId;

use crate::bitmap::Bitmap;
use crate::epochs::Epoch;

/// A key that was removed.
#[derive(Clone, Debug)]
pub(crate) struct Removal<K, N> {
    /// The hash by which the piece is found.
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) namespace: N,
    /// The oldest element that may hold a record of the key.
    pub(crate) oldest: Epoch,
    /// The newest checkpoint that may have written one; `None` if none has.
    pub(crate) newest: Option<CheckpointId>,
    /// The interval of the latest removal.
    pub(crate) epoch: Epoch,
    /// Whether the key is still absent.
    pub(crate) absent: bool,
}

/// The removals of one piece. Indices are stable until [`retain`](Self::retain).
#[derive(Debug)]
pub(crate) struct RemovalLog<K, N> {
    entries: Vec<Removal<K, N>>,
    index: HashTable<u32>,
}

impl<K, N> Default for RemovalLog<K, N> {
    fn default() -> Self {
        Self { entries: Vec::new(), index: HashTable::new() }
    }
}

impl<K, N> RemovalLog<K, N> {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The index of the entry with this hash that `is_it`.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(&Removal<K, N>) -> bool) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let found = self.index.find(hash, |at| {
            let entry = self.entries.get(*at as usize);
            entry.is_some_and(|entry| entry.hash == hash && is_it(entry))
        });
        found.map(|at| *at as usize)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Removal<K, N>> {
        self.entries.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Removal<K, N>> {
        self.entries.get_mut(index)
    }

    /// Adds an entry for a key that has none; returns its index.
    pub(crate) fn push(&mut self, removal: Removal<K, N>) -> usize {
        let at = self.entries.len();
        let entries = &self.entries;
        let hash_at = |at: &u32| entries.get(*at as usize).map_or(0, |entry| entry.hash);
        // A piece is split long before it has 2³² removals.
        self.index.insert_unique(removal.hash, at as u32, hash_at);
        self.entries.push(removal);
        at
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Removal<K, N>)> {
        self.entries.iter().enumerate()
    }

    /// Whether an entry can go because every possible base covers it.
    pub(crate) fn has_covered(&self, floor: Epoch) -> bool {
        self.entries.iter().any(|entry| entry.epoch <= floor)
    }

    /// Keeps the entries that `keep` says, and carries the sets of indices in `carried` over.
    pub(crate) fn retain(
        &mut self,
        keep: impl Fn(usize, &Removal<K, N>) -> bool,
        carried: &mut dyn Iterator<Item = &mut Bitmap>,
    ) {
        let kept: Vec<bool> = self.entries.iter().enumerate().map(|(at, entry)| keep(at, entry)).collect();
        for bits in carried {
            let mut moved = Bitmap::default();
            let left = kept.iter().enumerate().filter(|(_, kept)| **kept);
            for (next, (at, _)) in left.enumerate() {
                if bits.contains(at) {
                    moved.insert(next);
                }
            }
            *bits = moved;
        }
        let mut entries = std::mem::take(self).entries;
        let mut kept = kept.into_iter();
        entries.retain(|_| kept.next().unwrap_or(true));
        for entry in entries {
            self.push(entry);
        }
    }

    /// Checks H6. O(entries).
    pub(crate) fn check_invariants(&self)
    where
        K: PartialEq,
        N: PartialEq,
    {
        for (at, entry) in self.iter() {
            let same = |other: &Removal<K, N>| other.key == entry.key && other.namespace == entry.namespace;
            assert_eq!(self.find(entry.hash, same), Some(at), "H6: two removals of one key");
        }
    }

    /// Takes all entries out.
    pub(crate) fn drain(&mut self) -> Vec<Removal<K, N>> {
        std::mem::take(self).entries
    }

    /// Bytes of memory beside what keys and namespaces own.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Removal<K, N>>() + self.index.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removal(key: u64, epoch: u32) -> Removal<u64, ()> {
        let newest = Some(CheckpointId::FIRST);
        let (oldest, epoch) = (Epoch(1), Epoch(epoch));
        Removal { hash: key % 3, key, namespace: (), oldest, newest, epoch, absent: true }
    }

    #[test]
    fn entries_are_found_and_sets_carried_after_some_went() {
        let mut log = RemovalLog::default();
        let mut wanted = Bitmap::default();
        for key in 0..50 {
            let at = log.push(removal(key, key as u32));
            if key % 4 == 0 {
                wanted.insert(at);
            }
        }
        assert!(log.has_covered(Epoch(9)));
        log.retain(|_, entry| entry.epoch > Epoch(9), &mut std::iter::once(&mut wanted));
        assert!(!log.has_covered(Epoch(9)), "H7: what every base covers has left");
        assert_eq!(log.len(), 40, "H7: what no base covers stays");
        log.check_invariants();
        for key in 0..50_u64 {
            let found = log.find(key % 3, |entry| entry.key == key);
            assert_eq!(found.is_some(), key > 9, "key {key}");
            if let Some(at) = found {
                assert_eq!(wanted.contains(at), key % 4 == 0, "key {key}");
            }
        }
        assert_eq!(wanted.count_to(usize::MAX), 10);
    }
}
