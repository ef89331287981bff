//! Records: puts and tombstones as they lie in a block, clears as they lie in a footer.
//!
//! Owns: the encoding of one record, and a run of records on its way into a segment.
//! Does not own: which block a record goes to (`segment`).
//!
//! # Invariants
//!
//! - B1. A put's `born` is not after its version, and its version not after its segment's checkpoint.
//! - B2. A tombstone's `oldest` is not after its `newest`, and that not after its segment's checkpoint.

mod run;

use crate::cursor::{Cursor, put_bytes, put_varint};
use crate::error::FormatError;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroupSet;

pub use run::{PutIds, PutParts, RecordRun, RunPart};

/// Tags on disk: do not renumber.
const TAG_PUT: u8 = 1;
const TAG_TOMBSTONE: u8 = 2;

/// One record of a block; the bytes are borrowed from the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRef<'a> {
    /// The value of a key.
    Put {
        /// Encoded key.
        key: &'a [u8],
        /// Encoded namespace, empty for the void one.
        namespace: &'a [u8],
        /// Encoded value.
        value: &'a [u8],
        /// The checkpoint whose snapshot first contains this value; older than the segment's if it was rewritten.
        version: CheckpointId,
        /// A lower bound for the ids of chain elements that may hold a record of the key.
        born: CheckpointId,
    },
    /// A key that is gone.
    Tombstone {
        /// Encoded key.
        key: &'a [u8],
        /// Encoded namespace, empty for the void one.
        namespace: &'a [u8],
        /// The oldest chain element that may hold a record of the key.
        oldest: CheckpointId,
        /// The newest id under which a record of the key may have been written before.
        newest: CheckpointId,
    },
}

/// A put, as [`RecordRef::Put`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutRef<'a> {
    /// Encoded key.
    pub key: &'a [u8],
    /// Encoded namespace, empty for the void one.
    pub namespace: &'a [u8],
    /// Encoded value.
    pub value: &'a [u8],
    /// The checkpoint whose snapshot first contains this value.
    pub version: CheckpointId,
    /// A lower bound for the ids of chain elements that may hold a record of the key.
    pub born: CheckpointId,
}

impl RecordRef<'_> {
    /// Appends the record of a segment of `checkpoint`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] if B1 or B2 does not hold; nothing is appended then.
    #[inline]
    pub(crate) fn encode(self, checkpoint: CheckpointId, out: &mut Vec<u8>) -> Result<(), FormatError> {
        match self {
            Self::Put { key, namespace, value, version, born } => {
                if born > version || version > checkpoint {
                    return Err(FormatError::Unwritable {
                        part: "put",
                        problem: "born, version, id do not ascend",
                    });
                }
                out.push(TAG_PUT);
                put_bytes(out, key);
                put_bytes(out, namespace);
                put_bytes(out, value);
                put_varint(out, checkpoint.get() - version.get());
                put_varint(out, checkpoint.get() - born.get());
            }
            Self::Tombstone { key, namespace, oldest, newest } => {
                if oldest > newest || newest > checkpoint {
                    let problem = "oldest, newest, id do not ascend";
                    return Err(FormatError::Unwritable { part: "tombstone", problem });
                }
                out.push(TAG_TOMBSTONE);
                put_bytes(out, key);
                put_bytes(out, namespace);
                put_varint(out, checkpoint.get() - oldest.get());
                put_varint(out, checkpoint.get() - newest.get());
            }
        }
        Ok(())
    }
}

/// The records of one run, in the order in which they were written; borrows, allocates nothing.
///
/// After an error it ends.
#[derive(Clone, Debug)]
pub struct BlockRecords<'a> {
    cursor: Cursor<'a>,
    checkpoint: CheckpointId,
    known: KnownIds,
}

impl<'a> BlockRecords<'a> {
    /// The records in `bytes`, which belong to a segment of `checkpoint`.
    #[must_use]
    pub fn new(bytes: &'a [u8], checkpoint: CheckpointId) -> Self {
        Self { cursor: Cursor::new("record", bytes), checkpoint, known: KnownIds::NONE }
    }

    /// The next record if it is a sound put like most, whose lengths take a byte each. Otherwise `None`, and nothing is
    /// passed over: [`next`](Iterator::next) tells what comes, if anything does.
    ///
    /// Nothing but a put comes from here, so that its parts stay in registers.
    #[inline(always)]
    #[must_use]
    pub fn next_short_put(&mut self) -> Option<PutRef<'a>> {
        let (&[tag, key_bytes], rest) = self.cursor.rest().split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
        let (&namespace_bytes, rest) = rest.split_first()?;
        let (namespace, rest) = rest.split_at_checked(usize::from(namespace_bytes))?;
        let (&value_bytes, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(usize::from(value_bytes))?;
        if tag != TAG_PUT || (key_bytes | namespace_bytes | value_bytes) >= 0x80 {
            return None;
        }
        let word = u32::from_le_bytes(*rest.first_chunk()?);
        if word & self.known.mask != self.known.word {
            self.known = KnownIds::decode(word, self.checkpoint)?;
        }
        let KnownIds { bytes, version, born, .. } = self.known;
        self.cursor.go_on(rest.get(bytes..)?);
        Some(PutRef { key, namespace, value, version, born })
    }

    // Out of line, a record goes through memory twice on its way to whoever asks: a fifth of what restoring it costs.
    #[inline(always)]
    fn decode(&mut self) -> Result<RecordRef<'a>, FormatError> {
        let cursor = &mut self.cursor;
        match cursor.u8()? {
            TAG_PUT => {
                let (key, namespace, value) = (cursor.counted()?, cursor.counted()?, cursor.counted()?);
                let version = cursor.id_before(self.checkpoint)?;
                let born = cursor.id_before(self.checkpoint)?;
                if born > version {
                    return Err(cursor.invalid("a put was born after its version"));
                }
                Ok(RecordRef::Put { key, namespace, value, version, born })
            }
            TAG_TOMBSTONE => {
                let (key, namespace) = (cursor.counted()?, cursor.counted()?);
                let oldest = cursor.id_before(self.checkpoint)?;
                let newest = cursor.id_before(self.checkpoint)?;
                if oldest > newest {
                    return Err(cursor.invalid("the oldest of a tombstone is after its newest"));
                }
                Ok(RecordRef::Tombstone { key, namespace, oldest, newest })
            }
            _ => Err(cursor.invalid("a record is neither a put nor a tombstone")),
        }
    }
}

/// The ids of a put, which the next one mostly has as well, and their spelling.
#[derive(Clone, Copy, Debug)]
struct KnownIds {
    /// The bytes of both, the first byte lowest.
    word: u32,
    /// Which bits of the word they take.
    mask: u32,
    bytes: usize,
    version: CheckpointId,
    born: CheckpointId,
}

impl KnownIds {
    /// No spelling is that of these.
    const NONE: Self =
        Self { word: 1, mask: 0, bytes: 0, version: CheckpointId::FIRST, born: CheckpointId::FIRST };

    /// The ids at the beginning of a word, if they are sound and lie in it.
    #[inline(never)]
    fn decode(word: u32, checkpoint: CheckpointId) -> Option<Self> {
        let bytes = word.to_le_bytes();
        let mut cursor = Cursor::new("record", &bytes);
        let version = cursor.id_before(checkpoint).ok()?;
        let born = cursor.id_before(checkpoint).ok()?;
        let taken = bytes.len() - cursor.rest().len();
        let mask = u32::MAX >> (u32::BITS as usize - 8 * taken);
        (born <= version).then_some(Self { word: word & mask, mask, bytes: taken, version, born })
    }
}

impl<'a> Iterator for BlockRecords<'a> {
    type Item = Result<RecordRef<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let record = self.decode();
        if record.is_err() {
            self.cursor = Cursor::new("record", &[]);
        }
        Some(record)
    }
}

impl std::iter::FusedIterator for BlockRecords<'_> {}

/// One clear: it voids the records of older elements in its scope. Lies in the footer of its segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clear {
    /// The state, as an index into the segment's own table of states.
    pub state: u16,
    /// The encoded namespace that was cleared; `None` for all of them.
    pub namespace: Option<Vec<u8>>,
    /// The writer's key groups at that time.
    pub key_groups: KeyGroupSet,
}

#[cfg(test)]
mod tests;
