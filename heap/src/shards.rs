//! All entries of one state, by key group: pieces that split when they are full.
//!
//! Owns: the pieces and their numbers. Does not own: what is in a piece (`piece`), which piece a hash belongs to
//! (`directory`), what writers see of them (`listing`).
//!
//! A *shard* is a key group of this backend. A piece belongs to one shard for good.

use std::sync::Arc;

use crate::directory::Directory;
use crate::filling::Filled;
use crate::handover::{Owner, OwnerMut, Owners, Stamp};
use crate::listing::{Listing, PieceOwner};
use crate::map::{Layout, Place};
use crate::owed::Gate;
use crate::piece::{Piece, PieceFacts, Rebuild, Slot};
use crate::turn::Turn;

/// Room of the first table of a shard, in entries.
const FIRST_CAPACITY: usize = 3;

/// Where a piece is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) shard: usize,
    /// Its number in the list of the shard.
    pub(crate) at: usize,
}

/// One shard.
struct Shard<K, N, V> {
    /// Its pieces, as listed.
    numbers: Vec<u32>,
    listing: Arc<Listing<K, N, V>>,
}

/// Where the piece at a place is found: a slot of the directory, and the door of its number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Door(usize);

/// A piece to change, with what goes with its shard.
pub(crate) struct Opened<'a, K, N, V> {
    pub(crate) owner: OwnerMut<'a, Piece<K, N, V>, Gate<K, N, V>>,
    pub(crate) listing: &'a Listing<K, N, V>,
    pub(crate) spot: Spot,
}

/// All pieces of one state.
pub(crate) struct Shards<K, N, V> {
    directory: Directory,
    /// A door for each slot of the directory.
    owners: Owners<Piece<K, N, V>, Gate<K, N, V>>,
    /// Where each piece is listed.
    spots: Vec<Spot>,
    shards: Vec<Shard<K, N, V>>,
    layout: Layout,
}

impl<K, N, V> Shards<K, N, V> {
    /// One shard, empty, for each key group.
    pub(crate) fn new(layout: Layout) -> Self {
        let shard = |_| Shard { numbers: Vec::new(), listing: Arc::default() };
        let directory = Directory::new(layout);
        let owners = Owners::new(directory.slots());
        Self {
            directory,
            owners,
            spots: Vec::new(),
            shards: (0..layout.range.len()).map(shard).collect(),
            layout,
        }
    }

    /// Whether the key group of a place is ours.
    #[inline]
    pub(crate) fn holds(&self, place: Place) -> bool {
        self.directory.shard_of(place.key_hash).is_some()
    }

    /// What writers see of each shard.
    pub(crate) fn listings(&self) -> impl Iterator<Item = &Arc<Listing<K, N, V>>> {
        self.shards.iter().map(|shard| &shard.listing)
    }

    /// The door at a place; one to nothing, or to a piece without such a key, if there is none.
    #[inline(always)]
    pub(crate) fn door_of(&self, place: Place) -> Door {
        Door(self.directory.slot_of(place))
    }

    /// The number of the piece behind a door.
    #[inline]
    pub(crate) fn number_behind(&self, door: Door) -> Option<usize> {
        self.directory.number_in(door.0)
    }

    /// The piece behind a door, to read.
    #[inline(always)]
    pub(crate) fn behind(&self, door: Door) -> Option<&Piece<K, N, V>> {
        self.owners.read_behind(door.0)
    }

    /// The piece behind a door, to change, if it owes nothing.
    #[inline(always)]
    pub(crate) fn free_behind<'a>(
        &'a mut self,
        door: Door,
        turn: &'a Turn,
    ) -> Option<&'a mut Piece<K, N, V>> {
        self.owners.write_behind(door.0, &turn.clock)
    }

    /// A piece, to read.
    #[inline]
    pub(crate) fn piece(&self, number: usize) -> Option<&Piece<K, N, V>> {
        self.owners.read(number)
    }

    /// A piece, to change, if it owes nothing.
    #[inline]
    pub(crate) fn free_piece<'a>(
        &'a mut self,
        number: usize,
        turn: &'a Turn,
    ) -> Option<&'a mut Piece<K, N, V>> {
        self.owners.get_mut(number)?.write(&turn.clock)
    }

    /// A piece, to change, with what goes with its shard.
    #[inline]
    pub(crate) fn open(&mut self, number: usize) -> Option<Opened<'_, K, N, V>> {
        let spot = *self.spots.get(number)?;
        let listing = &*self.shards.get(spot.shard)?.listing;
        let owner = self.owners.get_mut(number)?;
        Some(Opened { owner, listing, spot })
    }

    /// Number of pieces.
    pub(crate) fn pieces_count(&self) -> usize {
        self.owners.len()
    }

    /// All pieces, shard by shard.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, &Piece<K, N, V>)> {
        let numbers = self.shards.iter().enumerate();
        let numbers = numbers.flat_map(|(shard, it)| it.numbers.iter().map(move |number| (shard, *number)));
        numbers.filter_map(|(shard, number)| Some((shard, self.piece(number as usize)?)))
    }

    /// Takes all pieces out; the caller drops them. They stay visible to snapshots up to `visible_through`.
    pub(crate) fn take_all(&mut self, visible_through: Option<Stamp>) -> Vec<PieceOwner<K, N, V>> {
        self.directory.clear();
        self.spots.clear();
        for shard in self.shards.iter_mut().filter(|shard| !shard.numbers.is_empty()) {
            shard.numbers.clear();
            shard.listing.detach(visible_through);
        }
        self.owners.take_all(self.directory.slots())
    }

    /// The number of a piece with room for one more entry at a place, made if need be: O(entries of one piece).
    /// `None` if the shard is not ours.
    pub(crate) fn make_room(
        &mut self,
        place: Place,
        turn: &Turn,
        of: impl Fn(&Slot<K, N, V>) -> u64,
    ) -> Option<usize> {
        loop {
            let number = self.number_behind(self.door_of(place));
            match number.and_then(|number| Some((number, self.piece(number)?))) {
                Some((number, piece)) if !piece.is_full() => return Some(number),
                Some((number, _)) => self.rebuild(number, turn, &of)?,
                None => self.found(self.directory.shard_of(place.key_hash)?, turn)?,
            }
        }
    }

    /// Makes the first piece of a shard.
    fn found(&mut self, shard: usize, turn: &Turn) -> Option<()> {
        let part = self.layout.part_of(shard);
        let piece = Piece::new(FIRST_CAPACITY, PieceFacts { depth: 0, part, interval: turn.interval });
        let owner = Owner::new(&turn.clock, piece, Gate::default());
        self.shards.get(shard)?.listing.add(owner.reader(), None, turn);
        let number = self.add(owner, shard)?;
        self.directory.found(shard, number);
        self.lead(shard);
        Some(())
    }

    /// Takes over the pieces of a shard that has none. O(pieces), and O(slots of the directory) if that grows.
    pub(crate) fn adopt(&mut self, filled: Filled<K, N, V>, turn: &Turn) {
        let Filled { shard, directory, pieces, .. } = filled;
        let mut numbers = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let owner = Owner::new(&turn.clock, piece, Gate::default());
            let Some(listed) = self.shards.get(shard) else { return };
            listed.listing.add(owner.reader(), None, turn);
            numbers.extend(self.add(owner, shard));
        }
        if !numbers.is_empty() {
            self.directory.adopt(shard, &directory, &numbers);
            self.lead(shard);
        }
    }

    fn add(&mut self, owner: PieceOwner<K, N, V>, shard: usize) -> Option<u32> {
        let number = u32::try_from(self.owners.len()).ok()?;
        let listed = self.shards.get_mut(shard)?;
        self.spots.push(Spot { shard, at: listed.numbers.len() });
        listed.numbers.push(number);
        self.owners.push(owner);
        Some(number)
    }

    fn rebuild(&mut self, number: usize, turn: &Turn, of: &impl Fn(&Slot<K, N, V>) -> u64) -> Option<()> {
        let piece = self.owners.read(number)?;
        let depth = piece.depth();
        let may_split = self.directory.may_split(depth, self.owners.len());
        let rebuild = Rebuild::of(piece, may_split.then(|| self.directory.split_bit(depth)));
        let Spot { shard, at } = *self.spots.get(number)?;
        let mut guard = self.owners.get_mut(number)?.lock(&turn.clock);
        let (piece, gate) = guard.parts();
        let Some((far, owing)) = piece.rebuild(gate, rebuild, of) else {
            return Some(());
        };
        let sibling = guard.sibling(far, owing);
        // Before the lock goes, so that a writer who finds this half paid also finds the other.
        self.shards.get(shard)?.listing.add(sibling.reader(), Some(at), turn);
        drop(guard);
        let far = self.add(sibling, shard)?;
        self.directory.split(shard, depth, (number as u32, far));
        self.lead(shard);
        Some(())
    }

    /// Lets the doors of a shard lead where its slots in the directory say (H12). O(slots of the shard), and O(slots)
    /// if there are more than before.
    fn lead(&mut self, shard: usize) {
        while self.owners.doors() < self.directory.slots() {
            self.owners.double_doors();
        }
        for (slot, number) in self.directory.slots_of(shard) {
            self.owners.lead(slot, number);
        }
    }

    /// Bytes of memory of tables and what stands beside them; not what keys and values own. O(pieces).
    pub(crate) fn memory_bytes(&self) -> usize {
        let pieces: usize = self.pieces().map(|(_, piece)| piece.memory_bytes()).sum();
        let each = size_of::<PieceOwner<K, N, V>>() + size_of::<Piece<K, N, V>>() + size_of::<Spot>();
        pieces
            + self.owners.len() * each
            + self.directory.memory_bytes()
            + self.owners.doors() * size_of::<usize>()
    }

    /// Checks H12 and H8 to H10 as far as one piece can. O(entries).
    pub(crate) fn check_invariants(&self, of: impl Fn(&Slot<K, N, V>) -> Place) {
        for (number, piece) in (0..self.owners.len()).filter_map(|number| Some((number, self.piece(number)?)))
        {
            piece.check_invariants();
            for slot in piece.iter() {
                let door = self.door_of(of(slot));
                assert_eq!(
                    self.number_behind(door),
                    Some(number),
                    "H12: an entry lies in another piece than its hash"
                );
                let behind = self.behind(door).is_some_and(|behind| std::ptr::eq(behind, piece));
                assert!(behind, "H12: a door leads to another piece than its slot");
            }
        }
    }
}
