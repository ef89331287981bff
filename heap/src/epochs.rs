//! Which checkpoint ended which interval of one backend.
//!
//! Owns: the table from epochs to checkpoint ids. Does not own: who is at which epoch.
//!
//! An *epoch* numbers an interval between two freezes, and takes four bytes beside an entry where an id would take
//! eight. An epoch that came with a restore has a number as well, which tells nothing about its order: ids are
//! compared, never epochs of which one is restored.
//!
//! # Invariants
//!
//! - H1. An epoch that was forgotten stands for the floor: no element of a chain that may still become a base, or that an
//!   open snapshot builds on, is older.

use std::collections::VecDeque;
use std::sync::Arc;

use lowtide_format::CheckpointId;
use parking_lot::RwLock;

use crate::prefetch::prefetch_shared;

/// The interval between two freezes of one backend. In memory only; on disk a version is always a [`CheckpointId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch(pub(crate) u32);

/// The table; clones share it, so that a writer resolves epochs while the owner goes on.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    table: Arc<RwLock<Table>>,
}

#[derive(Debug)]
struct Table {
    first: u32,
    ids: VecDeque<CheckpointId>,
    floor: CheckpointId,
    /// The oldest id that each open snapshot may ask for, in no order.
    in_use: Vec<CheckpointId>,
}

/// The table as an open snapshot uses it: what it may ask for stays.
#[derive(Debug)]
pub(crate) struct EpochsInUse {
    epochs: Epochs,
    oldest: CheckpointId,
}

impl EpochsInUse {
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }
}

impl Drop for EpochsInUse {
    fn drop(&mut self) {
        let mut table = self.epochs.table.write();
        let mine = table.in_use.iter().position(|oldest| *oldest == self.oldest);
        mine.map(|mine| table.in_use.swap_remove(mine));
    }
}

impl Epochs {
    /// An empty table whose first epoch is 1.
    pub(crate) fn new() -> Self {
        Self::starting_at(Epoch(1))
    }

    /// An empty table that counts from `first` on.
    pub(crate) fn starting_at(first: Epoch) -> Self {
        let (floor, in_use) = (CheckpointId::FIRST, Vec::new());
        let table = Table { first: first.0, ids: VecDeque::new(), floor, in_use };
        Self { table: Arc::new(RwLock::new(table)) }
    }

    /// Asks for the table.
    pub(crate) fn prefetch(&self) {
        prefetch_shared(&self.table);
    }

    /// The epoch that has no id yet; `None` after 2³² − 1.
    pub(crate) fn next(&self) -> Option<Epoch> {
        let table = self.table.read();
        let length = u32::try_from(table.ids.len()).ok()?;
        table.first.checked_add(length).map(Epoch)
    }

    /// Gives the next epoch its id.
    pub(crate) fn push(&self, id: CheckpointId) {
        self.table.write().ids.push_back(id);
    }

    /// How many epochs have an id here.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.table.read().ids.len()
    }

    /// The id that ended the epoch; the floor for one that was forgotten, `None` for one that has not ended.
    pub(crate) fn id(&self, epoch: Epoch) -> Option<CheckpointId> {
        self.table.read().id(epoch)
    }

    /// The table for a snapshot that builds on a chain whose oldest element is given, or on none: then on everything.
    /// The next epoch gets the id of the checkpoint that `ended` it, if one did.
    pub(crate) fn freeze(&self, ended: Option<CheckpointId>, oldest: Option<CheckpointId>) -> EpochsInUse {
        let mut table = self.table.write();
        if let Some(ended) = ended {
            table.ids.push_back(ended);
        }
        let oldest = oldest.unwrap_or(table.floor);
        table.in_use.push(oldest);
        EpochsInUse { epochs: self.clone(), oldest }
    }

    /// Forgets the epochs up to `floor`, the oldest element that any future chain can list, as far as no open snapshot
    /// may ask for them.
    ///
    /// At most a few per call, so that nobody pays for thousands.
    pub(crate) fn forget_below(&self, floor: CheckpointId) {
        const AT_ONCE: usize = 64;
        let mut table = self.table.write();
        let floor = table.in_use.iter().fold(floor, |floor, oldest| floor.min(*oldest));
        table.floor = table.floor.max(floor);
        for _ in 0..AT_ONCE {
            // The newest id stays, so that its epoch is known by itself.
            if table.ids.len() < 2 || table.ids.front().is_none_or(|id| *id > table.floor) {
                break;
            }
            table.ids.pop_front();
            table.first += 1;
        }
    }
}

impl Table {
    fn id(&self, epoch: Epoch) -> Option<CheckpointId> {
        match epoch.0.checked_sub(self.first) {
            Some(index) => self.ids.get(index as usize).copied(),
            None => Some(self.floor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u64) -> CheckpointId {
        CheckpointId::new(id).unwrap()
    }

    #[test]
    fn a_forgotten_epoch_stands_for_the_floor() {
        let epochs = Epochs::new();
        for number in [10, 20, 30, 40] {
            epochs.push(id(number));
        }
        assert_eq!(epochs.id(Epoch(2)), Some(id(20)));
        assert_eq!(epochs.id(Epoch(5)), None);
        epochs.forget_below(id(30));
        assert_eq!(epochs.id(Epoch(1)), Some(id(30)), "H1: no element that may be listed is older");
        assert_eq!(epochs.id(Epoch(3)), Some(id(30)));
        assert_eq!(epochs.id(Epoch(4)), Some(id(40)));
        assert_eq!(epochs.next(), Some(Epoch(5)));
    }

    #[test]
    fn an_epoch_that_an_open_snapshot_may_ask_for_stays() {
        let epochs = Epochs::new();
        [10, 20, 30, 40].into_iter().for_each(|number| epochs.push(id(number)));
        let (older, all) = (epochs.freeze(None, Some(id(20))), epochs.freeze(None, None));
        epochs.forget_below(id(40));
        assert_eq!(all.epochs().id(Epoch(1)), Some(id(10)));
        drop(all);
        epochs.forget_below(id(40));
        assert_eq!(older.epochs().id(Epoch(2)), Some(id(20)));
        drop(older);
        epochs.forget_below(id(40));
        assert_eq!(epochs.id(Epoch(2)), Some(id(40)));
    }

    #[test]
    fn epochs_end_before_they_wrap() {
        let epochs = Epochs::starting_at(Epoch(u32::MAX - 1));
        epochs.push(id(1));
        assert_eq!(epochs.next(), Some(Epoch(u32::MAX)));
        epochs.push(id(2));
        assert_eq!(epochs.next(), None);
    }
}
