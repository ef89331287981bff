//! Access to many entries at once, so that their cache misses overlap.
//!
//! Owns: the order of the steps. Does not own: what each step does (`piece`, `change`).
//!
//! One access waits for memory three times: for the head of the piece, for the bytes of the table that say where a key
//! may be, and for the slot with what stands beside it. A processor overlaps the waits of accesses that stand close
//! together in the program, and the steps of one access are too many for that. So a batch takes the first step for all
//! its keys, then the second for all, and asks for what the next one needs.

use super::{Place, StateMap};
use crate::piece::Slot;
use crate::shards::Door;
use crate::turn::Turn;

/// Keys that are looked up together: enough to overlap as many waits as the processor can, few enough that what was asked
/// for is still in the first level of the cache when it is looked at.
pub(crate) const BATCH: usize = 32;

/// A key that is looked for: its hash and the door behind which its entry is, if there is one.
#[derive(Clone, Copy, Default)]
struct Sought {
    hash: u64,
    door: Door,
}

impl<K, N, V> StateMap<K, N, V> {
    /// The steps up to the slots, which are on their way then, with what stands beside those that are `to_change`.
    #[inline(always)]
    fn approach(&self, places: impl Iterator<Item = Place>, batch: &mut [Sought], to_change: bool) {
        for (sought, place) in batch.iter_mut().zip(places) {
            let (hash, door) = (place.hash, self.shards.door_of(place));
            if let Some(piece) = self.shards.behind(door) {
                piece.prefetch_search(hash);
            }
            *sought = Sought { hash, door };
        }
        for Sought { hash, door } in batch {
            if let Some(piece) = self.shards.behind(*door) {
                piece.prefetch_first(*hash, to_change);
            }
        }
    }

    /// Looks up to [`BATCH`] keys up: `is_it` tells whether a slot is that of a key.
    #[inline(always)]
    pub(crate) fn find_batch<'a, Q>(
        &'a self,
        keys: &[Q],
        place_of: impl Fn(&Q) -> Place,
        is_it: impl Fn(&Q, &Slot<K, N, V>) -> bool,
        mut visit: impl FnMut(Option<&'a V>),
    ) {
        let mut batch = [Sought::default(); BATCH];
        let Some(batch) = batch.get_mut(..keys.len()) else { return };
        self.approach(keys.iter().map(place_of), batch, false);
        for (key, sought) in keys.iter().zip(batch) {
            let piece = self.shards.behind(sought.door);
            let found = piece.and_then(|piece| piece.find_at_hand(sought.hash, |slot| is_it(key, slot)));
            visit(found.map(|slot| &slot.value));
        }
    }
}

impl<K: Clone + Eq, N: Clone + Eq, V: Clone> StateMap<K, N, V> {
    /// Lets `change` at the values of up to [`BATCH`] keys, as [`find_batch`](Self::find_batch) finds them; returns
    /// how many there are. A key that comes twice is changed twice.
    #[inline(always)]
    pub(crate) fn update_batch<Q>(
        &mut self,
        keys: &[Q],
        place_of: impl Fn(&Q) -> Place,
        is_it: impl Fn(&Q, &Slot<K, N, V>) -> bool,
        turn: &Turn,
        mut change: impl FnMut(usize, &mut V),
    ) -> usize {
        let mut batch = [Sought::default(); BATCH];
        let Some(batch) = batch.get_mut(..keys.len()) else { return 0 };
        self.approach(keys.iter().map(place_of), batch, true);
        let mut changed = 0;
        for (at, (key, sought)) in keys.iter().zip(batch).enumerate() {
            let is_it = |slot: &Slot<K, N, V>| is_it(key, slot);
            let updated =
                self.update_at_hand((sought.door, sought.hash), is_it, turn, |value| change(at, value));
            changed += usize::from(updated.is_some());
        }
        changed
    }
}
