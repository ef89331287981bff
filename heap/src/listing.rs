//! One key group of one state: a directory of pieces that split when they are full.
//!
//! Owns: which piece a hash belongs to, and the list of pieces that writers go through. Does not own: what is in a
//! piece.
//!
//! The directory is that of extendible hashing: as many bits of the hash as the deepest piece needs. It is the
//! owner's alone. Writers see a list of pieces, to which a split appends; a piece never moves in it.
//!
//! # Invariants
//!
//! - H12. Every slot of the directory names a piece, and the keys of a piece share its depth of bits.
//! - H13. A piece with a change after an epoch is noted in the list under that epoch or a later one.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::handover::{Owner, Reader, Stamp};
use crate::origins::Part;
use crate::owed::Gate;
use crate::piece::{PIECE_BUCKETS, Piece, Rebuild, Slot};
use crate::turn::Turn;

/// The lowest bit of a hash that the directory looks at.
const DIRECTORY_SHIFT: u32 = crate::piece::DIRECTORY_SHIFT;

/// Room of the first table of a shard, in entries.
const FIRST_CAPACITY: usize = 3;

pub(crate) type PieceOwner<K, N, V> = Owner<Piece<K, N, V>, Gate<K, N, V>>;
pub(crate) type PieceReader<K, N, V> = Reader<Piece<K, N, V>, Gate<K, N, V>>;

/// A piece with the list it is in.
type ListedOwner<'a, K, N, V> = (&'a mut PieceOwner<K, N, V>, &'a Listing<K, N, V>);

/// The pieces of a shard as writers see them.
#[derive(Clone)]
struct Pieces<K, N, V> {
    readers: Vec<PieceReader<K, N, V>>,
    /// Which pieces changed up to an epoch, and after the one before; ascending.
    touched: SmallVec<[(Epoch, Bitmap); 2]>,
}

impl<K, N, V> Default for Pieces<K, N, V> {
    fn default() -> Self {
        Self { readers: Vec::new(), touched: SmallVec::new() }
    }
}

/// Pieces that a clear took out of the map while a snapshot was open.
struct Detached<K, N, V> {
    /// Snapshots up to this freeze still see them.
    through: Stamp,
    pieces: Pieces<K, N, V>,
}

/// What owner and writers share about the pieces of a shard.
pub(crate) struct Listing<K, N, V> {
    inner: Mutex<ListingInner<K, N, V>>,
}

struct ListingInner<K, N, V> {
    live: Pieces<K, N, V>,
    detached: Vec<Detached<K, N, V>>,
    /// Counts splits and clears, so that a writer knows whether it has seen all.
    changes: u64,
}

/// What a writer has to go through.
pub(crate) struct Visit<K, N, V> {
    pub(crate) pieces: Vec<PieceReader<K, N, V>>,
    /// As it was when they were listed; see [`Listing::changes`].
    pub(crate) changes: u64,
}

impl<K, N, V> Default for Listing<K, N, V> {
    fn default() -> Self {
        let inner = ListingInner { live: Pieces::default(), detached: Vec::new(), changes: 0 };
        Self { inner: Mutex::new(inner) }
    }
}

impl<K, N, V> Listing<K, N, V> {
    /// The pieces that a snapshot has to look at: those changed after `base`, or all.
    pub(crate) fn visit(&self, stamp: Stamp, base: Option<Epoch>) -> Visit<K, N, V> {
        let inner = self.inner.lock();
        let mut pieces = inner.live.changed_after(base);
        for detached in inner.detached.iter().filter(|detached| stamp <= detached.through) {
            pieces.extend(detached.pieces.changed_after(base));
        }
        Visit { pieces, changes: inner.changes }
    }

    /// The live piece of a number in the list.
    pub(crate) fn piece(&self, at: usize) -> Option<PieceReader<K, N, V>> {
        self.inner.lock().live.readers.get(at).cloned()
    }

    /// How often pieces appeared so far.
    pub(crate) fn changes(&self) -> u64 {
        self.inner.lock().changes
    }

    /// Notes that a piece changes in the running interval, and forgets what no open snapshot or base needs.
    pub(crate) fn note(&self, piece: usize, turn: &Turn, needed: Epoch) {
        let mut inner = self.inner.lock();
        let touched = &mut inner.live.touched;
        match touched.last_mut() {
            Some((epoch, pieces)) if *epoch == turn.interval => {
                pieces.insert(piece);
            }
            _ => {
                touched.retain(|(epoch, _)| *epoch > needed);
                let mut pieces = Bitmap::default();
                pieces.insert(piece);
                touched.push((turn.interval, pieces));
                merge(touched, turn);
            }
        }
    }

    /// Adds a piece; as a split of `from`, it has changed whenever that has.
    fn add(&self, reader: PieceReader<K, N, V>, from: Option<usize>, turn: &Turn) {
        let mut inner = self.inner.lock();
        let at = inner.live.readers.len();
        inner.live.readers.push(reader);
        match from {
            Some(from) => {
                for (_, pieces) in &mut inner.live.touched {
                    if pieces.contains(from) {
                        pieces.insert(at);
                    }
                }
            }
            None => {
                let now = turn.interval;
                if inner.live.touched.last().is_none_or(|(epoch, _)| *epoch != now) {
                    inner.live.touched.push((now, Bitmap::default()));
                }
                if let Some((_, pieces)) = inner.live.touched.last_mut() {
                    pieces.insert(at);
                }
            }
        }
        inner.changes += 1;
    }

    /// Takes all pieces out of the list; they stay visible to snapshots up to `through`, if there are any.
    pub(crate) fn detach(&self, through: Option<Stamp>) {
        let mut inner = self.inner.lock();
        let pieces = std::mem::take(&mut inner.live);
        inner.changes += 1;
        if let Some(through) = through {
            inner.detached.push(Detached { through, pieces });
        }
    }

    /// Forgets detached pieces that no snapshot from `oldest` on sees.
    pub(crate) fn forget_detached(&self, oldest: Option<Stamp>) {
        let mut inner = self.inner.lock();
        let gone = |detached: &Detached<K, N, V>| oldest.is_none_or(|oldest| detached.through < oldest);
        let dropped: Vec<_> = inner.detached.extract_if(.., |detached| gone(detached)).collect();
        drop(inner);
        drop(dropped);
    }
}

/// Unites the notes of intervals that no base parts, as the pieces do with their sets. A snapshot whose base is no
/// longer possible for others may look at a piece too many because of it, at none too few.
fn merge(touched: &mut SmallVec<[(Epoch, Bitmap); 2]>, turn: &Turn) {
    touched.dedup_by(|newer, older| {
        let together = !turn.parted(older.0, newer.0);
        if together {
            older.0 = newer.0;
            older.1.union_with(&newer.1);
        }
        together
    });
}

impl<K, N, V> Pieces<K, N, V> {
    fn changed_after(&self, base: Option<Epoch>) -> Vec<PieceReader<K, N, V>> {
        let Some(base) = base else { return self.readers.clone() };
        let mut changed = Bitmap::default();
        let sets = self.touched.iter().filter(|(epoch, _)| *epoch > base);
        sets.for_each(|(_, pieces)| changed.union_with(pieces));
        changed.ones().filter_map(|at| self.readers.get(at).cloned()).collect()
    }
}

/// One key group of one state, as the owner sees it.
pub(crate) struct Shard<K, N, V> {
    /// By the low bits of the directory part of the hash: an index into `pieces`. Empty, or a power of two long.
    directory: Vec<u32>,
    pieces: Vec<PieceOwner<K, N, V>>,
    listing: Arc<Listing<K, N, V>>,
    part: Part,
}

impl<K, N, V> Shard<K, N, V> {
    /// An empty shard of a part of the key groups.
    pub(crate) fn new(part: Part) -> Self {
        Self { directory: Vec::new(), pieces: Vec::new(), listing: Arc::default(), part }
    }

    /// The part of the key groups that it belongs to.
    #[inline]
    pub(crate) fn part(&self) -> Part {
        self.part
    }

    pub(crate) fn listing(&self) -> &Arc<Listing<K, N, V>> {
        &self.listing
    }

    /// The index of the piece of a hash; `None` in an empty shard.
    #[inline]
    pub(crate) fn index_of(&self, hash: u64) -> Option<usize> {
        let slot = (hash >> DIRECTORY_SHIFT) as usize & self.directory.len().wrapping_sub(1);
        self.directory.get(slot).map(|at| *at as usize)
    }

    /// The piece of a hash, to read.
    #[inline]
    pub(crate) fn piece_of(&self, hash: u64) -> Option<&Piece<K, N, V>> {
        self.pieces.get(self.index_of(hash)?).map(Owner::read)
    }

    #[inline]
    pub(crate) fn owner_mut(&mut self, at: usize) -> Option<ListedOwner<'_, K, N, V>> {
        Some((self.pieces.get_mut(at)?, &self.listing))
    }

    #[inline]
    pub(crate) fn piece_at(&self, at: usize) -> Option<&Piece<K, N, V>> {
        self.pieces.get(at).map(Owner::read)
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece<K, N, V>> {
        self.pieces.iter().map(Owner::read)
    }

    pub(crate) fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Takes all pieces out; the caller drops them.
    pub(crate) fn take_pieces(&mut self, visible_through: Option<Stamp>) -> Vec<PieceOwner<K, N, V>> {
        self.directory.clear();
        self.listing.detach(visible_through);
        std::mem::take(&mut self.pieces)
    }

    /// The index of a piece with room for one more entry of this hash, made if need be: O(entries of one piece).
    pub(crate) fn make_room(
        &mut self,
        hash: u64,
        turn: &Turn,
        of: impl Fn(&Slot<K, N, V>) -> u64,
    ) -> Option<usize> {
        if self.directory.is_empty() {
            let piece = Piece::new(FIRST_CAPACITY, 0, turn.interval);
            let owner = Owner::new(&turn.clock, piece, Gate::default());
            self.listing.add(owner.reader(), None, turn);
            self.pieces.push(owner);
            self.directory.push(0);
        }
        loop {
            let at = self.index_of(hash)?;
            if !self.pieces.get(at)?.read().is_full() {
                return Some(at);
            }
            self.rebuild(at, turn, &of)?;
        }
    }

    fn rebuild(&mut self, at: usize, turn: &Turn, of: &impl Fn(&Slot<K, N, V>) -> u64) -> Option<()> {
        let piece = self.pieces.get(at)?.read();
        let (buckets, length, depth) = (piece.buckets(), piece.len(), piece.depth());
        let capacity = capacity_of(buckets.max(4));
        let sparse = length * 2 < capacity;
        let split = !sparse && buckets >= PIECE_BUCKETS && self.may_split(depth);
        let grown = if sparse || split { capacity } else { capacity_of(buckets.max(2) * 2) };
        let rebuild = Rebuild { capacity: grown, split };
        let owner = self.pieces.get_mut(at)?;
        let mut guard = owner.lock(&turn.clock);
        let (piece, gate) = guard.parts();
        let Some((far, owing)) = piece.rebuild(gate, rebuild, of) else { return Some(()) };
        let sibling = guard.sibling(far, owing);
        // Before the lock goes, so that a writer who finds this half paid also finds the other.
        self.listing.add(sibling.reader(), Some(at), turn);
        drop(guard);
        let new = u32::try_from(self.pieces.len()).ok()?;
        self.pieces.push(sibling);
        self.point_to(new, at as u32, depth);
        Some(())
    }

    /// Whether one more level is worth a directory twice as long: hashes that hardly differ are not worth it.
    fn may_split(&self, depth: u32) -> bool {
        let levels = self.directory.len().trailing_zeros();
        depth < levels || (depth < 40 && self.directory.len() * 2 <= 64 + 8 * self.pieces.len())
    }

    /// Lets the far half of `old`, split at `depth`, go to `new`.
    fn point_to(&mut self, new: u32, old: u32, depth: u32) {
        if self.directory.len() == 1 << depth {
            self.directory.extend_from_within(..);
        }
        for (slot, piece) in self.directory.iter_mut().enumerate() {
            if *piece == old && slot >> depth & 1 == 1 {
                *piece = new;
            }
        }
    }

    /// Checks H12 and H8 to H10 as far as one shard can. O(entries).
    pub(crate) fn check_invariants(&self, of: impl Fn(&Slot<K, N, V>) -> u64) {
        for (at, owner) in self.pieces.iter().enumerate() {
            let piece = owner.read();
            piece.check_invariants();
            for slot in piece.iter() {
                assert_eq!(
                    self.index_of(of(slot)),
                    Some(at),
                    "H12: an entry lies in another piece than its hash"
                );
            }
        }
        let known = self.directory.iter().all(|at| (*at as usize) < self.pieces.len());
        assert!(known, "H12: a slot of the directory names no piece");
    }
}

/// How many entries a table of so many buckets holds: what hashbrown fills before it would grow.
fn capacity_of(buckets: usize) -> usize {
    if buckets < 8 { buckets - 1 } else { buckets / 8 * 7 }
}
