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

/// Where a key probably is.
#[derive(Clone, Copy, Default)]
struct Guess {
    hash: u64,
    door: Door,
    bucket: usize,
}

/// No bucket.
const NONE: usize = usize::MAX;

/// Up to [`BATCH`] guesses.
struct Guesses {
    all: [Guess; BATCH],
}

impl<K, N, V> StateMap<K, N, V> {
    /// The steps up to the slots: everything but the slots, which are on their way, and what stands beside those that are
    /// `to_change`.
    #[inline]
    fn guess(&self, places: impl ExactSizeIterator<Item = Place>, to_change: bool) -> Guesses {
        let count = places.len();
        let mut all = [Guess::default(); BATCH];
        for (guess, place) in all.iter_mut().zip(places) {
            let door = self.shards.door_of(place);
            if let Some(piece) = self.shards.behind(door) {
                piece.prefetch_search(place.hash, to_change);
            }
            *guess = Guess { hash: place.hash, door, bucket: NONE };
        }
        for guess in all.iter_mut().take(count) {
            let Some(piece) = self.shards.behind(guess.door) else { continue };
            let Some(bucket) = piece.guess(guess.hash) else { continue };
            piece.prefetch_slot(bucket, to_change);
            guess.bucket = bucket;
        }
        Guesses { all }
    }

    /// The entry that `is_it`, at the guess or elsewhere, with its bucket.
    #[inline]
    fn settle(
        &self,
        guess: Guess,
        mut is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<(usize, &Slot<K, N, V>)> {
        let piece = self.shards.behind(guess.door)?;
        match piece.slot(guess.bucket) {
            Some(slot) if is_it(slot) => Some((guess.bucket, slot)),
            _ => {
                let bucket = piece.find_bucket(guess.hash, is_it)?;
                Some((bucket, piece.slot(bucket)?))
            }
        }
    }

    /// Looks up to [`BATCH`] keys up: `is_it` tells whether a slot is that of the key of a number.
    #[inline]
    pub(crate) fn find_batch<'a>(
        &'a self,
        places: impl ExactSizeIterator<Item = Place>,
        is_it: impl Fn(usize, &Slot<K, N, V>) -> bool,
        mut visit: impl FnMut(usize, Option<&'a V>),
    ) {
        let count = places.len();
        let guesses = self.guess(places, false);
        for (at, guess) in guesses.all.into_iter().take(count).enumerate() {
            let found = self.settle(guess, |slot| is_it(at, slot));
            visit(at, found.map(|(_, slot)| &slot.value));
        }
    }
}

impl<K: Clone + Eq, N: Clone + Eq, V: Clone> StateMap<K, N, V> {
    /// Lets `change` at the values of up to [`BATCH`] keys, as [`find_batch`](Self::find_batch) finds them; returns
    /// how many there are. A key that comes twice is changed twice.
    #[inline]
    pub(crate) fn update_batch(
        &mut self,
        places: impl ExactSizeIterator<Item = Place>,
        is_it: impl Fn(usize, &Slot<K, N, V>) -> bool,
        turn: &Turn,
        mut change: impl FnMut(usize, &mut V),
    ) -> usize {
        let count = places.len();
        let guesses = self.guess(places, true);
        let mut changed = 0;
        for (at, guess) in guesses.all.into_iter().take(count).enumerate() {
            let Some((bucket, _)) = self.settle(guess, |slot| is_it(at, slot)) else { continue };
            let updated = self.update_at((guess.door, bucket), turn, |value| change(at, value));
            changed += usize::from(updated.is_some());
        }
        changed
    }
}
