//! The pieces of one key group of one state, as writers see them.
//!
//! Owns: the list that writers go through, and which pieces changed when. Does not own: what is in a piece, and which
//! piece a hash belongs to (`shards`).
//!
//! A split appends to the list; a piece never moves in it.
//!
//! # Invariants
//!
//! - H13. A piece with a change after an epoch is noted in the list under that epoch or a later one.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::epochs::Epoch;
use crate::handover::{Owner, Reader, Stamp};
use crate::owed::Gate;
use crate::piece::Piece;
use crate::turn::Turn;

pub(crate) type PieceOwner<K, N, V> = Owner<Piece<K, N, V>, Gate<K, N, V>>;
pub(crate) type PieceReader<K, N, V> = Reader<Piece<K, N, V>, Gate<K, N, V>>;

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

/// What owner and writers share about the pieces of one key group.
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
    pub(crate) fn add(&self, reader: PieceReader<K, N, V>, from: Option<usize>, turn: &Turn) {
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
