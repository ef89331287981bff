//! Turns entries and removals of one state into records.
//!
//! Owns: scratch buffers, the translation of epochs into checkpoint ids as of one freeze. Does not own: which
//! records are written.

use std::sync::Arc;

use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{CheckpointId, FormatError, PutIds, PutParts, RecordRef, RecordRun};

use crate::chain::{StateIndex, TombstoneSpan, TombstoneTally};
use crate::codecs::StateCodecs;
use crate::epochs::{Epoch, Epochs};
use crate::error::HeapError;
use crate::open::Aside;
use crate::overlay::Marks;
use crate::piece::{Labelling, Piece, Slot};

/// When tombstones are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Antimatter {
    /// Only where an element of the base may hold a record of the key.
    #[default]
    Elide,
    /// One for every key removed since the base, also if it was put since then and no record of it was ever written.
    Always,
}

/// The ids of one freeze.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    pub(crate) id: CheckpointId,
    /// The interval that the freeze ended or fell in: what is not older has the id of this checkpoint.
    pub(crate) epoch: Epoch,
    pub(crate) epochs: Epochs,
}

impl Resolver {
    fn id(&self, epoch: Epoch) -> CheckpointId {
        if epoch >= self.epoch {
            return self.id;
        }
        self.epochs.id(epoch).map_or(self.id, |id| id.min(self.id))
    }
}

/// Which tombstones a checkpoint needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tombstones {
    /// None at all: there is no base, or nothing in it.
    None,
    /// Those of keys born up to the base.
    BornThrough(CheckpointId),
    /// All.
    All,
}

/// Encodes the records of one state in one key group.
pub(crate) struct Encoder<'a, K, N, V> {
    pub(crate) codecs: &'a dyn StateCodecs<K, N, V>,
    pub(crate) resolver: &'a Resolver,
    pub(crate) tombstones: Tombstones,
    pub(crate) state: StateIndex,
    pub(crate) name: &'a str,
    pub(crate) run: &'a mut RecordRun,
    pub(crate) tally: &'a mut TombstoneTally,
    scratch: Vec<u8>,
    /// The last epoch looked up, with its id: neighbours are often of one age.
    known: [(Epoch, Option<CheckpointId>); 2],
    last_namespace: Arc<[u8]>,
}

impl<'a, K, N, V> Encoder<'a, K, N, V> {
    pub(crate) fn new(parts: EncoderParts<'a, K, N, V>) -> Self {
        let EncoderParts { codecs, resolver, tombstones, state, name, run, tally } = parts;
        let known = [(Epoch(0), None); 2];
        let (scratch, last_namespace) = (Vec::new(), Arc::from([]));
        Self { codecs, resolver, tombstones, state, name, run, tally, scratch, known, last_namespace }
    }

    fn id(&mut self, which: usize, epoch: Epoch) -> CheckpointId {
        if let Some((known, Some(id))) = self.known.get(which)
            && *known == epoch
        {
            return *id;
        }
        let id = self.resolver.id(epoch);
        if let Some(known) = self.known.get_mut(which) {
            *known = (epoch, Some(id));
        }
        id
    }

    fn fail<T>(&self, part: &'static str, result: Result<T, FormatError>) -> Result<T, HeapError> {
        result.map_err(|source| HeapError::record(self.name, part, source))
    }

    /// Encodes key and namespace into the scratch buffer; returns where each ends.
    fn name_of(&mut self, key: &K, namespace: &N) -> Result<(usize, usize), HeapError> {
        self.scratch.clear();
        let encoded = self.codecs.encode_key(key, &mut self.scratch);
        self.fail("a key", encoded)?;
        let key_end = self.scratch.len();
        let encoded = self.codecs.encode_namespace(namespace, &mut self.scratch);
        self.fail("a namespace", encoded)?;
        Ok((key_end, self.scratch.len()))
    }

    /// Writes an entry.
    pub(crate) fn put(&mut self, slot: Named<'_, K, N>, value: &V, age: Age) -> Result<(), HeapError> {
        self.put_if(slot, value, age, |_| true).map(|_| ())
    }

    /// Writes an entry if `fits` says so of its record's length in bytes; returns whether it did.
    pub(crate) fn put_if(
        &mut self,
        slot: Named<'_, K, N>,
        value: &V,
        age: Age,
        fits: impl FnOnce(u64) -> bool,
    ) -> Result<bool, HeapError> {
        self.put_by(self.codecs, slot, value, (age, fits))
    }

    /// The same, with codecs whose calls may be compiled in.
    #[inline]
    fn put_by<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        slot: Named<'_, K, N>,
        value: &V,
        (age, fits): (Age, impl FnOnce(u64) -> bool),
    ) -> Result<bool, HeapError> {
        let version = self.id(0, age.version);
        // A forgotten epoch stands for a floor that may be above the version of an old entry.
        let born = self.id(1, age.born).min(version);
        let parts = EntryParts { codecs, named: slot, value };
        let put = self.run.put_if(&parts, PutIds { version, born }, fits);
        put.map_err(|failed| HeapError::record(self.name, failed.part, failed.source))
    }

    /// Writes the entries of some buckets of a piece. To be called through the codecs, so that it is compiled for them:
    /// a call through a table for each part of each entry costs as much as encoding a number.
    pub(crate) fn put_buckets<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        puts: &BucketsToPut<'_, K, N, V>,
    ) -> Result<(), HeapError> {
        let BucketsToPut { piece, buckets, view, marks } = puts;
        let slots = || buckets.iter().filter_map(|bucket| Some((*bucket, piece.slot(*bucket)?)));
        // Asks for all before the first is needed, so that the waits for memory overlap.
        let touched = slots().fold(0, |sum, (_, slot)| sum ^ codecs.touch(slot));
        std::hint::black_box(touched);
        for (bucket, slot) in slots() {
            let age = Age { version: piece.version(bucket, *view, marks), born: piece.born(bucket) };
            self.put_by(codecs, Named::of(slot), &slot.value, (age, |_| true))?;
        }
        Ok(())
    }

    /// Writes a tombstone, if this checkpoint needs it; `newest` is `None` if no record of the key was ever written.
    pub(crate) fn tombstone(
        &mut self,
        slot: Named<'_, K, N>,
        oldest: Epoch,
        newest: Option<CheckpointId>,
    ) -> Result<(), HeapError> {
        // Without any record of the key the tombstone is about no element: none is as new as its own and older.
        let oldest = newest.map_or(self.resolver.id, |newest| self.id(1, oldest).min(newest));
        let newest = newest.unwrap_or(self.resolver.id);
        let needed = match self.tombstones {
            Tombstones::None => false,
            Tombstones::BornThrough(base) if is_broken(Break::BornBeforeBase) => oldest < base,
            Tombstones::BornThrough(base) => oldest <= base,
            Tombstones::All => true,
        };
        if !needed {
            return Ok(());
        }
        let (key_end, namespace_end) = self.name_of(slot.key, slot.namespace)?;
        let name = self.scratch.get(..namespace_end).unwrap_or_default();
        let (key, namespace) = name.split_at(key_end);
        let pushed = self.run.push(RecordRef::Tombstone { key, namespace, oldest, newest });
        self.fail("a tombstone", pushed)?;
        let namespace = self.scratch.get(key_end..namespace_end).unwrap_or_default();
        if *self.last_namespace != *namespace {
            self.last_namespace = Arc::from(namespace);
        }
        self.tally.add(self.state, &self.last_namespace, TombstoneSpan { oldest, newest });
        Ok(())
    }

    /// Writes a record that was set aside.
    pub(crate) fn aside(&mut self, record: &Aside<K, N, V>) -> Result<(), HeapError> {
        match record {
            Aside::Put { key, namespace, value, version, born } => {
                self.put(Named { key, namespace }, value, Age { version: *version, born: *born })
            }
            Aside::Tombstone { key, namespace, oldest, newest } => {
                self.tombstone(Named { key, namespace }, *oldest, *newest)
            }
        }
    }
}

/// What an encoder is made of.
pub(crate) struct EncoderParts<'a, K, N, V> {
    pub(crate) codecs: &'a dyn StateCodecs<K, N, V>,
    pub(crate) resolver: &'a Resolver,
    pub(crate) tombstones: Tombstones,
    pub(crate) state: StateIndex,
    pub(crate) name: &'a str,
    pub(crate) run: &'a mut RecordRun,
    pub(crate) tally: &'a mut TombstoneTally,
}

/// Entries of a piece that are to be written.
pub(crate) struct BucketsToPut<'a, K, N, V> {
    pub(crate) piece: &'a Piece<K, N, V>,
    /// Occupied buckets.
    pub(crate) buckets: &'a [usize],
    pub(crate) view: Labelling<'a>,
    /// Marks that are not in the piece yet.
    pub(crate) marks: &'a Marks,
}

/// The parts of an entry on their way into a record.
struct EntryParts<'a, C: ?Sized, K, N, V> {
    codecs: &'a C,
    named: Named<'a, K, N>,
    value: &'a V,
}

/// Which part could not be encoded, and why.
struct Failed {
    part: &'static str,
    source: FormatError,
}

impl From<FormatError> for Failed {
    fn from(source: FormatError) -> Self {
        Self { part: "a put", source }
    }
}

impl<K, N, V, C: StateCodecs<K, N, V> + ?Sized> PutParts for EntryParts<'_, C, K, N, V> {
    type Error = Failed;

    #[inline]
    fn key(&self, out: &mut Vec<u8>) -> Result<(), Failed> {
        self.codecs.encode_key(self.named.key, out).map_err(|source| Failed { part: "a key", source })
    }

    #[inline]
    fn namespace(&self, out: &mut Vec<u8>) -> Result<(), Failed> {
        let encoded = self.codecs.encode_namespace(self.named.namespace, out);
        encoded.map_err(|source| Failed { part: "a namespace", source })
    }

    #[inline]
    fn value(&self, out: &mut Vec<u8>) -> Result<(), Failed> {
        self.codecs.encode_value(self.value, out).map_err(|source| Failed { part: "a value", source })
    }
}

/// A key in a namespace.
pub(crate) struct Named<'a, K, N> {
    pub(crate) key: &'a K,
    pub(crate) namespace: &'a N,
}

impl<'a, K, N> Named<'a, K, N> {
    pub(crate) fn of<V>(slot: &'a Slot<K, N, V>) -> Self {
        Self { key: &slot.key, namespace: &slot.namespace }
    }
}

/// The two epochs of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    pub(crate) version: Epoch,
    pub(crate) born: Epoch,
}
