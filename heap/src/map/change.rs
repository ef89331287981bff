//! The owner's changes of a state map.

use std::sync::Arc;

use super::{Place, StateMap};
use crate::handover::OwnerMut;
use crate::ledger::Ledger;
use crate::open::{Aside, Open};
use crate::origins::Part;
use crate::overlay::Marks;
use crate::owed::{Gate, Locked, Site, needed_after, touch};
use crate::piece::{Accounts, Gone, Piece, Slot};
use crate::shards::{Door, Opened};
use crate::turn::Turn;

/// A piece, and what it shares with writers if the lock is held.
type PieceParts<'a, K, N, V> = (&'a mut Piece<K, N, V>, Option<&'a mut Gate<K, N, V>>);

/// The owner's access to a piece: without the lock if nothing is owed, otherwise by it.
enum Access<'a, K, N, V> {
    Free(&'a mut Piece<K, N, V>),
    Locked(Locked<'a, K, N, V>),
}

impl<K, N, V> Access<'_, K, N, V> {
    #[inline]
    fn parts(&mut self) -> PieceParts<'_, K, N, V> {
        match self {
            Self::Free(piece) => (piece, None),
            Self::Locked(guard) => {
                let (piece, gate) = guard.parts();
                (piece, Some(gate))
            }
        }
    }
}

/// A piece about to be changed, and all that the change must keep right.
pub(super) struct Change<'a, K, N, V> {
    access: Access<'a, K, N, V>,
    accounts: Accounts<'a>,
    site: Site<'a>,
}

impl<K, N, V> Change<'_, K, N, V>
where
    K: Clone + Eq,
    N: Clone + Eq,
    V: Clone,
{
    /// Marks an entry and lets `change` at its value. The frozen value is cloned if a snapshot wants it.
    #[inline]
    fn update<R>(&mut self, bucket: usize, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (piece, gate) = self.access.parts();
        if let Some(gate) = gate {
            gate.protect(piece, bucket, &self.site, self.accounts.labelling());
        }
        piece.mark(bucket, |_| self.accounts.reborrow());
        piece.slot_mut(bucket).map(|slot| change(&mut slot.value))
    }

    /// Replaces a value; the frozen value moves to the snapshot that wants it, and is otherwise returned.
    #[inline]
    fn put(&mut self, bucket: usize, value: V) -> Option<V> {
        let (piece, gate) = self.access.parts();
        let record = match &gate {
            Some(gate) if gate.wants_put(bucket) => piece.slot(bucket).map(|slot| {
                let (key, namespace) = (slot.key.clone(), slot.namespace.clone());
                let version = piece.version(bucket, self.accounts.labelling(), &Marks::new());
                (key, namespace, version, piece.born(bucket))
            }),
            _ => None,
        };
        piece.mark(bucket, |_| self.accounts.reborrow());
        let old = piece.slot_mut(bucket).map(|slot| std::mem::replace(&mut slot.value, value))?;
        let Some(gate) = gate else { return Some(old) };
        match record {
            Some((key, namespace, version, born)) => {
                gate.pay_put(bucket, &self.site, Aside::Put { key, namespace, value: old, version, born });
                None
            }
            None => {
                gate.forgive(bucket);
                Some(old)
            }
        }
    }

    /// Adds an entry that is not there; there is room.
    #[inline]
    fn insert(&mut self, hash: u64, slot: Slot<K, N, V>) {
        let (piece, gate) = self.access.parts();
        let removal = piece.find_removal(hash, &slot.key, &slot.namespace);
        let born = piece.born_of_new(removal, self.accounts.turn);
        if let Some(at) = removal {
            if let Some(gate) = gate {
                gate.protect_tombstone(piece, at, &self.site);
            }
            if let Some(entry) = piece.removals_mut().get_mut(at) {
                entry.absent = false;
            }
        }
        piece.insert(hash, slot, born, &mut self.accounts);
    }

    /// Takes an entry out; `log` tells whether a tombstone may have to hide older records of it. The slot is
    /// returned unless it moved to a snapshot that wants it.
    fn take(&mut self, hash: u64, bucket: usize, log: Log) -> Option<Slot<K, N, V>> {
        let (piece, mut gate) = self.access.parts();
        let view = self.accounts.labelling();
        let (born, version) = (piece.born(bucket), piece.version(bucket, view, &Marks::new()));
        let newest = piece.newest_record(bucket, view);
        let slot = piece.slot(bucket)?;
        let removal = piece.find_removal(hash, &slot.key, &slot.namespace);
        let wanted = gate.as_ref().is_some_and(|gate| gate.wants_put(bucket));
        let name = (log == Log::Removal || wanted).then(|| (slot.key.clone(), slot.namespace.clone()));
        if let (Some(at), Some(gate)) = (removal, gate.as_deref_mut()) {
            gate.protect_tombstone(piece, at, &self.site);
        }
        let slot = piece.take(bucket, &mut self.accounts)?;
        if let (Log::Removal, Some((key, namespace))) = (log, name.clone()) {
            let gone = Gone { hash, key, namespace, born, newest };
            piece.log_removal(removal, gone, self.accounts.turn);
        }
        let Some(gate) = gate else { return Some(slot) };
        if wanted {
            let Slot { key, namespace, value } = slot;
            gate.pay_put(bucket, &self.site, Aside::Put { key, namespace, value, version, born });
            None
        } else {
            gate.forgive(bucket);
            Some(slot)
        }
    }
}

/// A piece that owes nothing, to change: what opening a piece comes to there.
struct Free<'a, K, N, V> {
    piece: &'a mut Piece<K, N, V>,
    ledger: &'a mut Ledger,
    turn: &'a Turn,
}

impl<'a, K, N, V> Free<'a, K, N, V> {
    /// The entry that `is_it`, marked and ready for a change.
    #[inline(always)]
    fn find_to_change(
        self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<&'a mut Slot<K, N, V>> {
        let (piece, accounts) = self.split();
        piece.find_to_change(hash, is_it, accounts)
    }

    /// Asks for the slot where the entry most often is.
    #[inline(always)]
    fn ask(self, hash: u64) -> Self {
        self.piece.prefetch_likely_slot(hash);
        self
    }

    /// The piece, and what makes accounts for its changes: most changes need none.
    #[inline(always)]
    fn split(self) -> (&'a mut Piece<K, N, V>, impl FnOnce(Part) -> Accounts<'a>) {
        let Self { piece, ledger, turn } = self;
        (piece, |part| ledger.accounts(turn, part))
    }
}

/// Whether taking an entry out is a removal that the log must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    Removal,
    /// A clear, which needs no tombstones.
    Clear,
}

impl<K, N, V> StateMap<K, N, V>
where
    K: Clone + Eq,
    N: Clone + Eq,
    V: Clone,
{
    /// Opens a piece for a change.
    #[inline]
    pub(super) fn change<'a>(&'a mut self, number: usize, turn: &'a Turn) -> Option<Change<'a, K, N, V>> {
        let Opened { owner, listing, spot } = self.shards.open(number)?;
        let site = Site { shard: spot.shard, counters: &turn.counters };
        let mut accounts = self.ledger.accounts(turn, owner.read().part());
        if owner.is_free(&turn.clock) {
            let access = Access::Free(owner.write(&turn.clock)?);
            return Some(Change { access, accounts, site });
        }
        let (access, begun) = open_locked(owner, &mut accounts, &self.opens, &site);
        if begun {
            listing.note(spot.at, turn, needed_after(&self.opens, turn));
        }
        Some(Change { access, accounts, site })
    }

    /// The bucket of the entry at a place that `is_it`, with the number of its piece. Takes no lock.
    #[inline]
    fn locate(&self, place: Place, is_it: impl FnMut(&Slot<K, N, V>) -> bool) -> Option<(usize, usize)> {
        self.locate_behind(self.shards.door_of(place), place.hash, is_it)
    }

    #[inline]
    fn locate_behind(
        &self,
        door: Door,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<(usize, usize)> {
        let bucket = self.shards.behind(door)?.find_bucket(hash, is_it)?;
        Some((self.shards.number_behind(door)?, bucket))
    }

    /// Puts a value; tells whether the key was absent, or `None` if its key group is not ours: nothing has changed then.
    /// Never clones a value.
    #[inline(always)]
    pub(crate) fn put(&mut self, place: Place, slot: Slot<K, N, V>, turn: &Turn) -> Option<bool> {
        let is_it = |it: &Slot<K, N, V>| it.key == slot.key && it.namespace == slot.namespace;
        let is_absent = match self.free(self.shards.door_of(place), turn) {
            Some(free) => match free.ask(place.hash).find_to_change(place.hash, is_it) {
                Some(found) => {
                    found.value = slot.value;
                    return Some(false);
                }
                None => true,
            },
            None => false,
        };
        self.put_otherwise(place, slot, turn, is_absent)
    }

    /// Puts a value where there is none, or where a snapshot may want the one that is there.
    #[inline(never)]
    fn put_otherwise(
        &mut self,
        place: Place,
        slot: Slot<K, N, V>,
        turn: &Turn,
        is_absent: bool,
    ) -> Option<bool> {
        let is_it = |it: &Slot<K, N, V>| it.key == slot.key && it.namespace == slot.namespace;
        let found = if is_absent { None } else { self.locate(place, is_it) };
        match found {
            Some((number, bucket)) => {
                // The old value, and the key that was not needed, are dropped after the lock has gone.
                let _old = self.change(number, turn).and_then(|mut change| change.put(bucket, slot.value));
                Some(false)
            }
            None if self.holds(place) => {
                self.insert(place, slot, turn);
                Some(true)
            }
            None => None,
        }
    }

    /// Puts a value; returns the one before, cloned if a snapshot wants it.
    pub(crate) fn replace(&mut self, place: Place, slot: Slot<K, N, V>, turn: &Turn) -> Option<V> {
        let found = self.locate(place, |it| it.key == slot.key && it.namespace == slot.namespace);
        match found {
            Some((number, bucket)) => {
                let value = slot.value;
                self.change(number, turn)?.update(bucket, |old| std::mem::replace(old, value))
            }
            None => {
                self.insert(place, slot, turn);
                None
            }
        }
    }

    /// Adds an entry that is not there.
    pub(crate) fn insert(&mut self, place: Place, slot: Slot<K, N, V>, turn: &Turn) {
        self.discard_some();
        let fixed = Arc::clone(&self.fixed);
        let hash_of = |slot: &Slot<K, N, V>| Self::hash_of_slot(&*fixed.codecs, slot);
        let Some(number) = self.shards.make_room(place, turn, hash_of) else { return };
        let inserted = self.change(number, turn).map(|mut change| change.insert(place.hash, slot));
        self.len += usize::from(inserted.is_some());
    }

    /// Lets `change` at the value of the entry that `is_it`; `None` if there is none.
    #[inline(always)]
    pub(crate) fn update<R>(
        &mut self,
        place: Place,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        turn: &Turn,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let (door, hash) = (self.shards.door_of(place), place.hash);
        match self.free(door, turn) {
            Some(free) => free.ask(hash).find_to_change(hash, is_it).map(|slot| change(&mut slot.value)),
            None => self.update_otherwise((door, hash), is_it, turn, change),
        }
    }

    /// Lets `change` at a value that a snapshot may want.
    #[inline(never)]
    fn update_otherwise<R>(
        &mut self,
        (door, hash): (Door, u64),
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        turn: &Turn,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let (number, bucket) = self.locate_behind(door, hash, is_it)?;
        self.change(number, turn)?.update(bucket, change)
    }

    /// As [`update`](Self::update), behind a door, where what it looks at has been asked for.
    #[inline(always)]
    pub(super) fn update_at_hand<R>(
        &mut self,
        (door, hash): (Door, u64),
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        turn: &Turn,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        match self.free(door, turn) {
            Some(free) => free.find_to_change(hash, is_it).map(|slot| change(&mut slot.value)),
            None => self.update_otherwise((door, hash), is_it, turn, change),
        }
    }

    /// The piece behind a door, if it owes nothing.
    #[inline(always)]
    fn free<'a>(&'a mut self, door: Door, turn: &'a Turn) -> Option<Free<'a, K, N, V>> {
        let piece = self.shards.free_behind(door, turn)?;
        Some(Free { piece, ledger: &mut self.ledger, turn })
    }

    /// Removes the entry that `is_it`; returns its value, cloned if a snapshot wants it.
    pub(crate) fn remove(
        &mut self,
        place: Place,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        turn: &Turn,
    ) -> Option<V> {
        let (number, bucket) = self.locate(place, is_it)?;
        let mut change = self.change(number, turn)?;
        let (piece, gate) = change.access.parts();
        let wanted = gate.is_some_and(|gate| gate.wants_put(bucket));
        let copy = if wanted { piece.slot(bucket).map(|slot| slot.value.clone()) } else { None };
        let slot = change.take(place.hash, bucket, Log::Removal);
        drop(change);
        self.len -= 1;
        copy.or_else(|| slot.map(|slot| slot.value))
    }

    /// Removes the entry that `is_it`; tells whether there was one. Never clones a value.
    pub(crate) fn delete(
        &mut self,
        place: Place,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
        turn: &Turn,
    ) -> bool {
        let Some(found) = self.locate(place, is_it) else { return false };
        self.take_at(place.hash, found, Log::Removal, turn).is_some()
    }

    fn take_at(
        &mut self,
        hash: u64,
        (number, bucket): (usize, usize),
        log: Log,
        turn: &Turn,
    ) -> Option<Option<Slot<K, N, V>>> {
        let mut change = self.change(number, turn)?;
        let slot = change.take(hash, bucket, log);
        drop(change);
        self.len -= 1;
        Some(slot)
    }

    /// Removes the entries that `keep` refuses; returns how many. O(entries).
    pub(crate) fn retain(&mut self, turn: &Turn, mut keep: impl FnMut(&Slot<K, N, V>) -> bool) -> u64 {
        self.take_where(turn, Log::Removal, |slot| !keep(slot))
    }

    fn take_where(&mut self, turn: &Turn, log: Log, mut gone: impl FnMut(&Slot<K, N, V>) -> bool) -> u64 {
        let before = self.len;
        for number in 0..self.shards.pieces_count() {
            let Some(piece) = self.shards.piece(number) else { continue };
            let buckets: Vec<(usize, u64)> = piece
                .occupied()
                .ones()
                .filter_map(|bucket| Some((bucket, piece.slot(bucket)?)))
                .filter(|(_, slot)| gone(slot))
                .map(|(bucket, slot)| (bucket, Self::hash_of_slot(&*self.fixed.codecs, slot)))
                .collect();
            for (bucket, hash) in buckets {
                self.take_at(hash, (number, bucket), log, turn);
            }
        }
        (before - self.len) as u64
    }

    /// Removes everything: one record, whatever the number of entries. The entries are dropped in steps by later
    /// insertions.
    pub(crate) fn clear(&mut self, turn: &Turn) {
        let seen_through = self.oldest_open().map(|_| turn.clock.now());
        self.detached |= seen_through.is_some();
        self.discarded.append(&mut self.shards.take_all(seen_through));
        let (origins, rewrites) = self.ledger.open();
        origins.clear_counts();
        rewrites.clear();
        self.len = 0;
        self.clears.add(None, turn.interval, turn.floor);
    }

    /// Removes all entries of a namespace: one record. O(entries of the state).
    pub(crate) fn clear_namespace(&mut self, namespace: &N, turn: &Turn) {
        self.take_where(turn, Log::Clear, |slot| slot.namespace == *namespace);
        self.forget_removals_of(namespace, turn);
        self.clears.add(Some(namespace.clone()), turn.interval, turn.floor);
    }

    /// The removals of a cleared namespace need no tombstones any more.
    fn forget_removals_of(&mut self, namespace: &N, turn: &Turn) {
        for number in 0..self.shards.pieces_count() {
            let holds = |piece: &Piece<K, N, V>| {
                piece.removals().iter().any(|(_, entry)| entry.namespace == *namespace)
            };
            if self.shards.piece(number).is_some_and(holds)
                && let Some(mut change) = self.change(number, turn)
            {
                change.forget_removals_of(namespace);
            }
        }
    }

    /// Drops a bounded part of what was cleared.
    fn discard_some(&mut self) {
        if let Some(piece) = self.discarded.pop() {
            drop(piece);
        }
    }
}

impl<K: Clone + Eq, N: Clone + Eq, V: Clone> Change<'_, K, N, V> {
    fn forget_removals_of(&mut self, namespace: &N) {
        let (piece, gate) = self.access.parts();
        let of_it = |entry: &crate::removals::Removal<K, N>| entry.namespace == *namespace;
        match gate {
            Some(gate) => {
                let gone: Vec<usize> =
                    piece.removals().iter().filter(|(_, entry)| of_it(entry)).map(|(at, _)| at).collect();
                gone.into_iter().for_each(|at| gate.protect_tombstone(piece, at, &self.site));
                piece.removals_mut().retain(|_, entry| !of_it(entry), &mut gate.tombstone_sets());
            }
            None => piece.removals_mut().retain(|_, entry| !of_it(entry), &mut std::iter::empty()),
        }
    }
}

#[cold]
fn open_locked<'a, K: Clone, N: Clone, V: Clone>(
    owner: OwnerMut<'a, Piece<K, N, V>, Gate<K, N, V>>,
    accounts: &mut Accounts<'a>,
    opens: &[Arc<Open<K, N, V>>],
    site: &Site<'a>,
) -> (Access<'a, K, N, V>, bool) {
    let turn = accounts.turn;
    turn.counters.add_locked_writes(1);
    let mut guard = owner.lock(&turn.clock);
    let begun = touch(&mut guard, accounts, opens, site);
    (Access::Locked(guard), begun)
}
