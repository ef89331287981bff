//! What changed in a piece in which interval: the one that is running there, and those before it.

use super::Piece;
use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::origins::Origins;
use crate::turn::Turn;

impl<K, N, V> Piece<K, N, V> {
    /// Buckets whose entries are no candidates for a rewrite by the freeze that ended `epoch` against a base of
    /// `base`: they changed after the freeze, or are part of the delta.
    pub(crate) fn changed_around(&self, epoch: Epoch, base: Epoch) -> Bitmap {
        let mut bits = if self.facts.interval > base { self.beside.changed() } else { Bitmap::default() };
        self.older.iter().filter(|(of, _)| *of > epoch).for_each(|(_, set)| bits.union_with(set));
        bits
    }

    /// Buckets changed after `base`.
    pub(crate) fn changed_after(&self, base: Epoch) -> Bitmap {
        self.changed_around(base, base)
    }

    /// Ends the interval that was running here, if another has begun since: its changes get its label and become the
    /// newest of the older sets. Tells whether it did.
    pub(crate) fn end_interval(&mut self, turn: &Turn, origins: &Origins) -> bool {
        if self.facts.interval == turn.interval {
            return false;
        }
        let changed = self.beside.end_interval(|| origins.of_interval(self.facts.interval));
        self.older.extend(changed.map(|changed| (self.facts.interval, changed)));
        self.facts.interval = turn.interval;
        true
    }

    /// Drops the older sets up to `needed`, and unites those that no base parts. An open snapshot that writes entries
    /// again needs those after its base even if no base can be that old any more: they tell what changed since its
    /// freeze.
    pub(crate) fn unite_older(&mut self, turn: &Turn, needed: Epoch) {
        self.older.retain(|(epoch, _)| *epoch > needed);
        self.older.dedup_by(|newer, older| {
            // `dedup_by` drops its first argument, the later one, if told so.
            let together = !turn.parted(older.0, newer.0);
            if together {
                older.0 = newer.0;
                older.1.union_with(&newer.1);
            }
            together
        });
    }
}
