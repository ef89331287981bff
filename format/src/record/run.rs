//! A run of records of one (key group, state), encoded on any thread and appended to a segment later.

use super::{RecordRef, TAG_PUT};
use crate::cursor::{put_counted, put_varint};
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::segment::{RecordTotals, VersionSpan};

/// Encoded records of one key group and state, not yet in a segment.
///
/// Key groups can so be encoded in parallel and appended in order. Records are cut into parts of about
/// `part_bytes`, which a writer never divides.
#[derive(Clone, Debug)]
pub struct RecordRun {
    checkpoint: CheckpointId,
    part_bytes: usize,
    bytes: Vec<u8>,
    parts: Vec<RunPart>,
}

/// A part of a run: what will be in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Length of its encoded records in bytes.
    pub length: usize,
    /// Its records, counted.
    pub totals: RecordTotals,
}

/// The parts of a put that are encoded where they will lie.
pub trait PutParts {
    /// What encoding a part can come to.
    type Error: From<FormatError>;

    /// Appends the encoded key.
    ///
    /// # Errors
    ///
    /// If it cannot be encoded.
    fn key(&self, out: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Appends the encoded namespace; nothing for the void one.
    ///
    /// # Errors
    ///
    /// If it cannot be encoded.
    fn namespace(&self, out: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Appends the encoded value.
    ///
    /// # Errors
    ///
    /// If it cannot be encoded.
    fn value(&self, out: &mut Vec<u8>) -> Result<(), Self::Error>;
}

/// The ids of a put; see [`RecordRef::Put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutIds {
    /// The checkpoint whose snapshot first contains the value.
    pub version: CheckpointId,
    /// A lower bound for the ids of chain elements that may hold a record of the key.
    pub born: CheckpointId,
}

impl RecordRun {
    /// An empty run for a segment of `checkpoint`; a new part begins once one has `part_bytes` bytes.
    #[must_use]
    pub fn new(checkpoint: CheckpointId, part_bytes: usize) -> Self {
        Self { checkpoint, part_bytes: part_bytes.max(1), bytes: Vec::new(), parts: Vec::new() }
    }

    /// Appends a record. Costs O(its bytes).
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] if its ids do not ascend; the run is as before.
    #[inline]
    pub fn push(&mut self, record: RecordRef<'_>) -> Result<(), FormatError> {
        self.push_if(record, |_| true).map(|_| ())
    }

    /// Appends a record if `fits` says so of its encoded length in bytes; returns whether it did.
    ///
    /// # Errors
    ///
    /// As [`RecordRun::push`].
    #[inline]
    pub fn push_if(
        &mut self,
        record: RecordRef<'_>,
        fits: impl FnOnce(u64) -> bool,
    ) -> Result<bool, FormatError> {
        let before = self.bytes.len();
        record.encode(self.checkpoint, &mut self.bytes)?;
        let length = self.bytes.len() - before;
        if !fits(length as u64) {
            self.bytes.truncate(before);
            return Ok(false);
        }
        let mut one = RecordTotals::default();
        match record {
            RecordRef::Put { version, .. } => {
                one.puts = 1;
                one.put_bytes = length as u64;
                one.span = Some(VersionSpan { oldest: version, newest: version });
            }
            RecordRef::Tombstone { .. } => {
                one.tombstones = 1;
                one.tombstone_bytes = length as u64;
            }
        }
        match self.parts.last_mut() {
            Some(part) if part.length < self.part_bytes => {
                part.length += length;
                part.totals.add(one);
            }
            _ => self.parts.push(RunPart { length, totals: one }),
        }
        Ok(true)
    }

    /// Appends the put of these parts if `fits` says so of its encoded length in bytes; returns whether it did.
    ///
    /// The bytes are those of [`push_if`](Self::push_if), encoded once, in their place.
    ///
    /// # Errors
    ///
    /// Those of the parts, and [`FormatError::Unwritable`] if the ids do not ascend; the run is as before.
    #[inline]
    pub fn put_if<P: PutParts>(
        &mut self,
        parts: &P,
        ids: PutIds,
        fits: impl FnOnce(u64) -> bool,
    ) -> Result<bool, P::Error> {
        let before = self.bytes.len();
        let encoded = self.encode_put(parts, ids);
        let length = self.bytes.len().saturating_sub(before);
        if encoded.is_err() || !fits(length as u64) {
            self.bytes.truncate(before);
            return encoded.map(|()| false);
        }
        let length_added = length as u64;
        match self.parts.last_mut() {
            Some(part) if part.length < self.part_bytes => {
                part.length += length;
                part.totals.add_put(length_added, ids.version);
            }
            _ => {
                let mut totals = RecordTotals::default();
                totals.add_put(length_added, ids.version);
                self.parts.push(RunPart { length, totals });
            }
        }
        Ok(true)
    }

    #[inline]
    fn encode_put<P: PutParts>(&mut self, parts: &P, ids: PutIds) -> Result<(), P::Error> {
        let PutIds { version, born } = ids;
        let checkpoint = self.checkpoint;
        if born > version || version > checkpoint {
            let problem = "born, version, id do not ascend";
            return Err(FormatError::Unwritable { part: "put", problem }.into());
        }
        let out = &mut self.bytes;
        out.push(TAG_PUT);
        put_counted(out, |out| parts.key(out))?;
        put_counted(out, |out| parts.namespace(out))?;
        put_counted(out, |out| parts.value(out))?;
        put_varint(out, checkpoint.get() - version.get());
        put_varint(out, checkpoint.get() - born.get());
        Ok(())
    }

    /// Encoded bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its records, counted.
    #[must_use]
    pub fn totals(&self) -> RecordTotals {
        let mut totals = RecordTotals::default();
        self.parts.iter().for_each(|part| totals.add(part.totals));
        totals
    }

    /// Empties it for another key group; keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
    }

    /// The parts that no record is added to any more, with their bytes: all but the last.
    pub(crate) fn settled_parts(&self) -> impl Iterator<Item = (&[u8], RecordTotals)> {
        self.parts().take(self.parts.len().saturating_sub(1))
    }

    /// Forgets the settled parts; keeps their memory. O(bytes of the last part).
    pub(crate) fn forget_settled(&mut self) {
        let settled = self.parts.len().saturating_sub(1);
        let bytes: usize = self.parts.drain(..settled).map(|part| part.length).sum();
        self.bytes.drain(..bytes);
    }

    /// The checkpoint it was encoded for.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The parts with their bytes, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&[u8], RecordTotals)> {
        let mut rest = self.bytes.as_slice();
        self.parts.iter().map(move |part| {
            let (bytes, after) = rest.split_at(part.length);
            rest = after;
            (bytes, part.totals)
        })
    }
}
