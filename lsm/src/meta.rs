//! The table list: the one private file of a RocksDB checkpoint.
//!
//! Owns: its bytes. Does not own: where it lies, the tables themselves (shared files of the manifest).
//!
//! It holds what RocksDB needs beside the tables to open the checkpoint (CURRENT, MANIFEST and OPTIONS, as they lay
//! together in the hard-linked directory), and what a restore for other key groups needs to take over single tables
//! without that MANIFEST: state, level, sequence numbers and bounds of each.
//!
//! ```text
//! table list = magic "LTRM" ++ format version (u16) ++ raw length (u32) ++ zstd frame ++ xxh3-64 of all before (u64)
//! raw        = bincode 2, standard configuration, of `CheckpointMeta`
//! ```

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, CodecIdentity, DecodeLimits, FormatError, KeyGroup, KeyGroupCount,
    KeyGroupRange, StateDescriptor, StateKind, xxh3,
};
use serde::{Deserialize, Serialize};

use crate::key::group_of;
use crate::table::TableIdentity;

/// Name under which a manifest lists the table list among a subtask's local files.
pub const TABLE_LIST: &str = "TABLES";

const MAGIC: [u8; 4] = *b"LTRM";
const VERSION: u16 = 1;
const PART: &str = "table list";
const HEADER_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 8;
/// The one kind of state that this backend keeps so far.
const VALUE_STATE: u8 = 1;

/// One table, as the checkpoint's database has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableMeta {
    /// File name in the database's directory.
    pub local_name: String,
    /// Position of the state in [`CheckpointMeta::states`].
    pub state: u32,
    /// Level in the tree.
    pub level: u8,
    /// Smallest stored key, range deletions included.
    pub smallest: Vec<u8>,
    /// Largest stored key; a range deletion counts with its end, which is not in it.
    pub largest: Vec<u8>,
    /// Smallest and largest sequence number.
    pub sequence: (u64, u64),
    /// Number of entries, deletions included.
    pub entries: u64,
    /// Number of deletions.
    pub deletions: u64,
    /// Length in bytes.
    pub length: u64,
    /// xxh3-64 of all bytes.
    pub checksum: u64,
    /// The identity of the content.
    pub(crate) identity: (String, String, u64),
}

impl TableMeta {
    /// Completes a table by the identity of its content.
    #[must_use]
    pub fn with_identity(mut self, identity: &TableIdentity) -> Self {
        let TableIdentity { database, session, number } = identity;
        self.identity = (database.to_string(), session.to_string(), *number);
        self
    }

    /// Where the content comes from.
    #[must_use]
    pub fn identity(&self) -> TableIdentity {
        let (database, session, number) = &self.identity;
        TableIdentity {
            database: database.as_str().into(),
            session: session.as_str().into(),
            number: *number,
        }
    }

    /// The key groups that the table may hold something of, from the first to the last.
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupRange {
        let first = group_of(&self.smallest);
        // A bare group is no entry but the end of a range deletion, which the range does not reach.
        let last = match (group_of(&self.largest), self.largest.len()) {
            (group, 0..=2) => KeyGroup(group.0.saturating_sub(1)),
            (group, _) => group,
        };
        KeyGroupRange::new(first, last).unwrap_or_else(|| single(first))
    }
}

fn single(group: KeyGroup) -> KeyGroupRange {
    KeyGroupRange::new(group, group).expect("a group is not above itself")
}

/// A small file beside the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallFile {
    /// File name in the database's directory.
    pub name: String,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// What a RocksDB checkpoint of one subtask consists of, apart from the tables' bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointMeta {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// How many key groups the job has.
    pub key_groups: KeyGroupCount,
    /// The key groups that the subtask kept.
    pub range: KeyGroupRange,
    /// The states in the order of their registration; each is a column family of the same name.
    pub states: Vec<StateDescriptor>,
    /// All tables.
    pub tables: Vec<TableMeta>,
    /// CURRENT, MANIFEST and OPTIONS.
    pub files: Vec<SmallFile>,
}

/// The shape of the raw bytes; a change of it is a new format version.
#[derive(Serialize, Deserialize)]
struct Wire {
    checkpoint: u64,
    key_groups: u16,
    range: (u16, u16),
    states: Vec<WireState>,
    tables: Vec<TableMeta>,
    files: Vec<SmallFile>,
}

#[derive(Serialize, Deserialize)]
struct WireState {
    name: String,
    kind: u8,
    codecs: [(String, u32, u64); 3],
}

impl CheckpointMeta {
    /// The bytes of the table list.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLarge`] above 4 GiB, [`FormatError::Compression`] if compressing fails.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let Self { checkpoint, key_groups, range, states, tables, files } = self;
        let wire = Wire {
            checkpoint: checkpoint.get(),
            key_groups: key_groups.get(),
            range: (range.start().0, range.end().0),
            states: states.iter().map(WireState::from).collect(),
            tables: tables.clone(),
            files: files.clone(),
        };
        let mut raw = Vec::new();
        AutoCodec.encode(&wire, &mut raw)?;
        let length = raw.len() as u64;
        let bytes_max = u64::from(u32::MAX);
        let raw_length = u32::try_from(length).map_err(|_| FormatError::TooLarge {
            part: PART,
            bytes: length,
            bytes_max,
        })?;
        let frame = zstd::bulk::compress(&raw, 3).map_err(compression)?;
        let mut out = Vec::with_capacity(HEADER_BYTES + frame.len() + CHECKSUM_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&raw_length.to_le_bytes());
        out.extend_from_slice(&frame);
        out.extend_from_slice(&xxh3(&out).to_le_bytes());
        Ok(out)
    }

    /// Reads a table list.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: corrupt for damaged bytes, incompatible for another format version, too large beyond `limits`.
    pub fn decode(bytes: &[u8], limits: DecodeLimits) -> Result<Self, FormatError> {
        let need = (HEADER_BYTES + CHECKSUM_BYTES) as u64;
        let cut = FormatError::Truncated { part: PART, need, have: bytes.len() as u64 };
        let Some((rest, stored)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return Err(cut) };
        let Some(([m0, m1, m2, m3, v0, v1, length @ ..], frame)) = rest.split_first_chunk::<HEADER_BYTES>()
        else {
            return Err(cut);
        };
        if [*m0, *m1, *m2, *m3] != MAGIC {
            return Err(FormatError::Magic { part: PART, found: [*m0, *m1, *m2, *m3] });
        }
        match u16::from_le_bytes([*v0, *v1]) {
            VERSION => {}
            found => {
                return Err(FormatError::Version { part: PART, found, oldest: VERSION, newest: VERSION });
            }
        }
        let (stored, computed) = (u64::from_le_bytes(*stored), xxh3(rest));
        if stored != computed {
            return Err(FormatError::Checksum { part: PART, stored, computed });
        }
        let length = u32::from_le_bytes(*length);
        limits.check(PART, u64::from(length))?;
        let raw = zstd::bulk::decompress(frame, length as usize).map_err(compression)?;
        if raw.len() != length as usize {
            return Err(invalid("its raw length is wrong"));
        }
        let wire: Wire = AutoCodec.decode(&raw, limits)?;
        wire.check()
    }

    /// The tables of one state.
    pub fn tables_of(&self, state: usize) -> impl Iterator<Item = &TableMeta> {
        self.tables.iter().filter(move |table| table.state as usize == state)
    }
}

impl Wire {
    fn check(self) -> Result<CheckpointMeta, FormatError> {
        let Self { checkpoint, key_groups, range, states, tables, files } = self;
        let names = tables.iter().map(|table| &table.local_name).chain(files.iter().map(|file| &file.name));
        if !names.into_iter().all(|name| is_plain_name(name)) {
            return Err(invalid("a file name is none of RocksDB's"));
        }
        let sound =
            |table: &TableMeta| (table.state as usize) < states.len() && table.smallest <= table.largest;
        if !tables.iter().all(sound) {
            return Err(invalid("a table belongs to no state or ends before it begins"));
        }
        Ok(CheckpointMeta {
            checkpoint: CheckpointId::new(checkpoint).ok_or(invalid("its checkpoint id is 0"))?,
            key_groups: KeyGroupCount::new(key_groups)
                .ok_or(invalid("its number of key groups is out of range"))?,
            range: KeyGroupRange::new(KeyGroup(range.0), KeyGroup(range.1))
                .filter(|range| range.end().0 < key_groups)
                .ok_or(invalid("its range of key groups is empty or too long"))?,
            states: states.into_iter().map(WireState::check).collect::<Result<_, _>>()?,
            tables,
            files,
        })
    }
}

impl From<&StateDescriptor> for WireState {
    fn from(state: &StateDescriptor) -> Self {
        let StateDescriptor { name, kind: _, key, namespace, value } = state.clone();
        let codecs = [key, namespace, value].map(|codec| (codec.name, codec.version, codec.fingerprint));
        Self { name, kind: VALUE_STATE, codecs }
    }
}

impl WireState {
    fn check(self) -> Result<StateDescriptor, FormatError> {
        let Self { name, kind, codecs } = self;
        let [key, namespace, value] =
            codecs.map(|(name, version, fingerprint)| CodecIdentity { name, version, fingerprint });
        if kind != VALUE_STATE {
            return Err(FormatError::UnknownSection { part: PART, tag: kind });
        }
        Ok(StateDescriptor { name, kind: StateKind::Value, key, namespace, value })
    }
}

/// Whether `name` cannot lead out of a directory: RocksDB's own names are letters, digits, `-` and `.`.
fn is_plain_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    plain && name.len() <= 64 && !matches!(name, "" | "." | "..")
}

fn invalid(problem: &'static str) -> FormatError {
    FormatError::Invalid { part: PART, problem }
}

fn compression(source: std::io::Error) -> FormatError {
    FormatError::Compression { part: PART, source: std::sync::Arc::new(source) }
}

#[cfg(test)]
pub(crate) mod tests;
