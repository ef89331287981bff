//! The entries of one key group of one state while they are restored, on whichever thread.
//!
//! Owns: pieces that nobody else sees yet, what tombstones of newer elements hide in them, counts by label. Does not
//! own: which runs come and in which order (`restore`), the pieces once they are a shard's (`shards`).
//!
//! A key group is filled by one thread at a time and shares nothing with others, so that no lock and no atomic
//! operation is met for an entry. Tables get their size from what the index of the segments announces, and a record
//! whose key is there already, which came from a newer element, is dropped at its first look at the table.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{HashMap, HashTable};
use lowtide_format::{BlockRecords, DecodeLimits, FormatError, PutRef, RecordRef, StateDescriptor, xxh3};

use crate::chain::TombstoneSpan;
use crate::codecs::{StateCodecs, place_hash};
use crate::directory::Directory;
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::map::Fixed;
use crate::origins::Label;
use crate::owed::Gate;
use crate::piece::{Piece, PieceFacts, Rebuild, Slot, buckets_max, capacity_of};
use crate::restore::{RunIds, RunScope, RunTally};

/// Room of the first table of a key group of which nothing was announced, in entries.
const FIRST_CAPACITY: usize = 3;

/// The records of one run on their way into a key group.
pub(crate) struct FillRun<'a> {
    pub(crate) records: BlockRecords<'a>,
    pub(crate) limits: DecodeLimits,
    /// What newer clears cover.
    pub(crate) scope: RunScope<'a>,
    pub(crate) ids: RunIds<'a>,
    /// What is counted about the element.
    pub(crate) tally: &'a mut RunTally,
}

/// A key that a tombstone hides in everything older.
struct Hidden {
    hash: u64,
    key_bytes: usize,
    /// The encoded key and, after it, the encoded namespace.
    name: Box<[u8]>,
}

impl Hidden {
    fn is(&self, key: &[u8], namespace: &[u8]) -> bool {
        self.name.split_at_checked(self.key_bytes).is_some_and(|name| name == (key, namespace))
    }
}

/// What a key group is filled with.
pub(crate) struct FillingParts<K, N, V> {
    /// What never changes of the state.
    pub(crate) fixed: Arc<Fixed<K, N, V>>,
    pub(crate) shard: usize,
    pub(crate) interval: Epoch,
    /// The pieces of the whole state, all key groups together.
    pub(crate) pieces: Arc<AtomicUsize>,
}

/// The entries of one key group of one state so far.
pub(crate) struct Filling<K, N, V> {
    parts: FillingParts<K, N, V>,
    directory: Directory,
    pieces: Vec<Piece<K, N, V>>,
    hidden: HashTable<Hidden>,
    /// The label that came last, and how many entries got it in a row.
    labelled: (Label, u32),
    labels: HashMap<Label, u32>,
    /// Entries of `labels`.
    entries: usize,
}

/// What a shard takes over.
pub(crate) struct Filled<K, N, V> {
    pub(crate) shard: usize,
    pub(crate) directory: Directory,
    pub(crate) pieces: Vec<Piece<K, N, V>>,
    pub(crate) labels: HashMap<Label, u32>,
    pub(crate) entries: usize,
}

/// A [`Filling`] of any types.
pub(crate) trait AnyFilling: Any + Send + Sync {
    /// Makes room for so many entries, if there is none yet; more may come.
    fn reserve(&mut self, entries: usize, limits: DecodeLimits);
    /// Adds the records of a run.
    fn fill(&mut self, run: &mut FillRun<'_>) -> Result<(), HeapError>;
    fn len(&self) -> usize;
    fn descriptor(&self) -> &StateDescriptor;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl dyn AnyFilling {
    /// The filling as one of these types; `None` if its types are others.
    pub(crate) fn of_types<K: 'static, N: 'static, V: 'static>(&self) -> Option<&Filling<K, N, V>> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

impl<K, N, V> AnyFilling for Filling<K, N, V>
where
    K: Eq + Send + Sync + 'static,
    N: Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn reserve(&mut self, entries: usize, limits: DecodeLimits) {
        // What is announced is as yet a claim.
        let bytes_max = usize::try_from(limits.bytes_max).unwrap_or(usize::MAX);
        self.reserve(entries.min(bytes_max / size_of::<Slot<K, N, V>>().max(1)));
    }

    fn fill(&mut self, run: &mut FillRun<'_>) -> Result<(), HeapError> {
        let fixed = Arc::clone(&self.parts.fixed);
        fixed.codecs.fill(self, run)
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn descriptor(&self) -> &StateDescriptor {
        &self.parts.fixed.descriptor
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<K, N, V> Filling<K, N, V> {
    /// Without any entry.
    pub(crate) fn new(parts: FillingParts<K, N, V>) -> Self {
        Self {
            directory: Directory::of_shard(parts.fixed.layout),
            pieces: Vec::new(),
            hidden: HashTable::new(),
            labelled: (Label::NEW, 0),
            labels: HashMap::new(),
            entries: 0,
            parts,
        }
    }

    /// What the shard takes over.
    pub(crate) fn finish(mut self) -> Filled<K, N, V> {
        self.note_labelled();
        let Self { parts, directory, pieces, labels, entries, .. } = self;
        Filled { shard: parts.shard, directory, pieces, labels, entries }
    }

    fn len(&self) -> usize {
        self.entries + self.labelled.1 as usize
    }

    /// The entry of a hash that `is_it`.
    pub(crate) fn find(
        &self,
        hash: u64,
        is_it: impl FnMut(&Slot<K, N, V>) -> bool,
    ) -> Option<&Slot<K, N, V>> {
        let number = self.directory.find_alone(hash)?;
        self.pieces.get(number)?.find(hash, is_it)
    }

    fn reserve(&mut self, entries: usize) {
        if !self.pieces.is_empty() || entries == 0 {
            return;
        }
        let capacity_max = const { capacity_of(buckets_max(size_of::<Slot<K, N, V>>())) };
        // Keys spread over pieces by their hashes: a piece gets a little more than its share now and then.
        let fits = |share: usize| share + 4 * share.isqrt() <= capacity_max;
        let mut depth = 0;
        // Other key groups are as large, as far as anybody knows.
        while !fits(entries >> depth) && self.directory.affords(depth, self.directory.of_all(1 << depth)) {
            depth += 1;
        }
        let capacity = if depth == 0 { entries } else { capacity_max };
        let part = self.parts.fixed.layout.part_of(self.parts.shard);
        let facts = PieceFacts { depth, part, interval: self.parts.interval };
        let piece = |_| Piece::new(capacity, facts);
        self.pieces = (0..1 << depth).map(piece).collect();
        self.directory.fill_to(depth);
        self.parts.pieces.fetch_add(self.pieces.len(), Ordering::Relaxed);
    }

    fn hide(&mut self, key: &[u8], namespace: &[u8]) {
        let hash = hash_of_name(key, namespace);
        if !self.is_hidden(hash, key, namespace) {
            let hidden = Hidden { hash, key_bytes: key.len(), name: [key, namespace].concat().into() };
            self.hidden.insert_unique(hash, hidden, |hidden| hidden.hash);
        }
    }

    fn is_hidden(&self, hash: u64, key: &[u8], namespace: &[u8]) -> bool {
        self.hidden.find(hash, |hidden| hidden.hash == hash && hidden.is(key, namespace)).is_some()
    }

    fn note_labelled(&mut self) {
        let (label, entries) = self.labelled;
        if entries > 0 {
            *self.labels.entry(label).or_default() += entries;
            self.entries += entries as usize;
        }
        self.labelled = (Label::NEW, 0);
    }
}

impl<K: Eq, N: Eq, V> Filling<K, N, V> {
    /// Adds the records of a run, the newer ones of which came before: a put of a key that is there, or that a newer
    /// tombstone or clear hides, is passed over.
    ///
    /// Cost: one hash and one search of a table for each put, and no allocation but those of the codecs.
    ///
    /// # Errors
    ///
    /// [`HeapError::Segment`] for a damaged record, [`HeapError::Record`] for a part that is no encoding of its type and
    /// for a key of another group.
    pub(crate) fn take<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        run: &mut FillRun<'_>,
    ) -> Result<(), HeapError> {
        let before = self.len();
        let taken = self.take_records(codecs, run);
        run.tally.live_puts += (self.len() - before) as u64;
        taken
    }

    fn take_records<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        run: &mut FillRun<'_>,
    ) -> Result<(), HeapError> {
        let mut records = run.records.clone();
        loop {
            while let Some(put) = records.next_short_put() {
                self.put(codecs, put, run).map_err(|source| self.in_state(source))?;
            }
            match records.next() {
                None => return Ok(()),
                Some(record) => self.take_record(codecs, record?, run)?,
            }
        }
    }

    #[inline(never)]
    fn take_record<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        record: RecordRef<'_>,
        run: &mut FillRun<'_>,
    ) -> Result<(), HeapError> {
        match record {
            RecordRef::Put { key, namespace, value, version, born } => {
                let put = self.put(codecs, PutRef { key, namespace, value, version, born }, run);
                put.map_err(|source| self.in_state(source))?;
            }
            RecordRef::Tombstone { key, namespace, oldest, newest } => {
                if !run.scope.covers(namespace) {
                    run.tally.tombstone(run.ids.state(), namespace, TombstoneSpan { oldest, newest });
                    self.hide(key, namespace);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn in_state(&self, source: FormatError) -> HeapError {
        HeapError::record(&self.parts.fixed.descriptor.name, "an entry", source)
    }

    /// Adds an entry unless it is cleared, hidden or there already.
    #[inline(always)]
    fn put<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        put: PutRef<'_>,
        run: &mut FillRun<'_>,
    ) -> Result<(), FormatError> {
        if run.scope.covers(put.namespace) {
            return Ok(());
        }
        let key = codecs.decode_key(put.key, run.limits)?;
        let key_hash = codecs.key_hash(&key);
        if self.directory.shard_of(key_hash) != Some(self.parts.shard) {
            let problem = "a key lies in another key group than its own";
            return Err(FormatError::Invalid { part: "block", problem });
        }
        let namespace = codecs.decode_namespace(put.namespace, run.limits)?;
        let hash = place_hash(key_hash, codecs.namespace_hash(&namespace));
        if !self.hidden.is_empty() && self.is_hidden(hash, put.key, put.namespace) {
            return Ok(());
        }
        let is_it = |slot: &Slot<K, N, V>| slot.key == key && slot.namespace == namespace;
        let Some(piece) = self.piece_with_room(codecs, hash, is_it) else { return Ok(()) };
        let Some(vacancy) = piece.vacancy(hash, is_it) else { return Ok(()) };
        let value = codecs.decode_value(put.value, run.limits)?;
        let (label, born) = (run.ids.label(put.version), run.ids.epoch(put.born));
        vacancy.fill(Slot { key, namespace, value }, label, born);
        self.count(label);
        Ok(())
    }

    /// The piece of a hash, with room for one entry more; `None` if it is full and the entry is there.
    #[inline]
    fn piece_with_room<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        hash: u64,
        is_it: impl Fn(&Slot<K, N, V>) -> bool,
    ) -> Option<&mut Piece<K, N, V>> {
        let number = match self.directory.find_alone(hash) {
            Some(number) if self.pieces.get(number).is_some_and(|piece| !piece.is_full()) => number,
            _ => self.make_room(codecs, hash, is_it)?,
        };
        self.pieces.get_mut(number)
    }

    #[cold]
    fn make_room<C: StateCodecs<K, N, V> + ?Sized>(
        &mut self,
        codecs: &C,
        hash: u64,
        is_it: impl Fn(&Slot<K, N, V>) -> bool,
    ) -> Option<usize> {
        let hash_of = |slot: &Slot<K, N, V>| {
            place_hash(codecs.key_hash(&slot.key), codecs.namespace_hash(&slot.namespace))
        };
        loop {
            let number = self.directory.find_alone(hash)?;
            let pieces = self.parts.pieces.load(Ordering::Relaxed);
            let Some(piece) = self.pieces.get_mut(number) else {
                self.reserve(FIRST_CAPACITY);
                continue;
            };
            if !piece.is_full() {
                return Some(number);
            }
            if piece.find(hash, &is_it).is_some() {
                return None;
            }
            let depth = piece.depth();
            let split = self.directory.may_split(depth, pieces).then(|| self.directory.split_bit(depth));
            let rebuild = Rebuild::of(piece, split);
            // Nobody is owed anything: no snapshot sees these pieces.
            if let Some((far, _)) = piece.rebuild(&mut Gate::default(), rebuild, hash_of) {
                let far_number = u32::try_from(self.pieces.len()).ok()?;
                self.pieces.push(far);
                self.directory.split(0, depth, (number as u32, far_number));
                self.parts.pieces.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn count(&mut self, label: Label) {
        if self.labelled.0 == label {
            self.labelled.1 += 1;
        } else {
            self.note_labelled();
            self.labelled = (label, 1);
        }
    }
}

/// The hash by which a name in its encoded form is found: the same as by its decoded form.
fn hash_of_name(key: &[u8], namespace: &[u8]) -> u64 {
    place_hash(xxh3(key), xxh3(namespace))
}
