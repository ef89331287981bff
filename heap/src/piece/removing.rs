//! What a piece notes of keys that are removed and put anew.

use lowtide_format::CheckpointId;
use lowtide_format::broken::{Break, is_broken};

use super::Piece;
use crate::epochs::Epoch;
use crate::removals::Removal;
use crate::turn::Turn;

impl<K: Eq, N: Eq, V> Piece<K, N, V> {
    /// The removal of a key, if it is still in the log.
    pub(crate) fn find_removal(&self, hash: u64, key: &K, namespace: &N) -> Option<usize> {
        self.removals.find(hash, |entry| entry.key == *key && entry.namespace == *namespace)
    }

    /// The oldest element that may hold a record of a key that is put anew.
    pub(crate) fn born_of_new(&self, removal: Option<usize>, turn: &Turn) -> Epoch {
        let entry = removal.and_then(|at| self.removals.get(at));
        match entry {
            Some(entry) if entry.epoch > turn.floor && !is_broken(Break::BornRestarted) => entry.oldest,
            _ => turn.interval,
        }
    }

    /// Notes the removal of an entry. `removal` is its place in the log, if it has one.
    ///
    /// A key of which no record was ever written needs no entry, unless every removal is wanted.
    pub(crate) fn log_removal(&mut self, removal: Option<usize>, gone: Gone<K, N>, turn: &Turn) {
        let Gone { hash, key, namespace, born, newest } = gone;
        let entry = removal.and_then(|at| self.removals.get_mut(at));
        match (entry, newest) {
            (Some(entry), newest) => {
                let stale = entry.epoch <= turn.floor;
                // Otherwise it stays: put again before every base had the removal, the key was born with it, or seems older
                // because births are shared.
                if stale {
                    entry.oldest = born;
                }
                let needed = !stale || newest.is_some() || turn.logs_every_removal;
                entry.newest = if stale { newest } else { entry.newest.max(newest) };
                entry.epoch = if needed { turn.interval } else { entry.epoch };
                entry.absent = true;
            }
            (None, None) if !turn.logs_every_removal => {}
            (None, newest) => {
                let (oldest, epoch) = (born, turn.interval);
                self.removals.push(Removal { hash, key, namespace, oldest, newest, epoch, absent: true });
            }
        }
    }
}

/// An entry that was taken out, as the removal log sees it.
pub(crate) struct Gone<K, N> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) namespace: N,
    /// The oldest element that may hold a record of it.
    pub(crate) born: Epoch,
    /// The newest checkpoint that may have written it; `None` if none has.
    pub(crate) newest: Option<CheckpointId>,
}
