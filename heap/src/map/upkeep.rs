//! What a state map looks after beside what is asked of it, a bounded amount at a time.
//!
//! Owns: the order in which pieces are looked after. Does not own: what a change of a piece brings along (`change`).

use super::StateMap;
use crate::owed::{Site, pay_and_free, touch};
use crate::shards::Opened;
use crate::turn::Turn;

impl<K, N, V> StateMap<K, N, V>
where
    K: Clone + Eq,
    N: Clone + Eq,
    V: Clone,
{
    /// Looks after a few pieces, one after the other: gives entries the labels of settled rewrites, drops cleared
    /// pieces. Keeps what untouched pieces hold bounded; not for the pause of a freeze.
    pub(crate) fn tidy(&mut self, pieces: usize, turn: &Turn) {
        self.forget_closed();
        let discarded = self.discarded.len().saturating_sub(pieces);
        self.discarded.truncate(discarded);
        if self.ledger.rewrites().is_empty() {
            return;
        }
        // Nothing is set aside for the sake of tidiness.
        if self.oldest_open().is_some() {
            return;
        }
        for _ in 0..pieces.min(self.shards.pieces_count()) {
            let number = self.next_tidied;
            self.next_tidied = if number + 1 < self.shards.pieces_count() { number + 1 } else { 0 };
            // Opening a piece for a change is what folds its marks.
            self.change(number, turn);
        }
    }

    /// Sets everything aside that open snapshots want, so that no writer needs this map any more. O(entries).
    pub(crate) fn surrender(&mut self, turn: &Turn) {
        let mut number = 0;
        while let Some(Opened { owner, spot, .. }) = self.shards.open(number) {
            number += 1;
            let site = Site { shard: spot.shard, counters: &turn.counters };
            let mut accounts = self.ledger.accounts(turn, owner.read().part());
            let mut guard = owner.lock(&turn.clock);
            touch(&mut guard, &mut accounts, &self.opens, &site);
            pay_and_free(&mut guard, &accounts, &site);
        }
    }
}
