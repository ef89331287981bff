//! Identity of a table: what makes two RocksDB tables the same bytes.
//!
//! Owns: reading a table's own properties, from its footer to the property block; among them how much is in it.
//! Does not own: what is in the table (RocksDB), which tables are new (`diff`).
//!
//! A file number names a table only within one life of one database: after a retry or a rollback the
//! same number, and even the same length, come back with other content. What RocksDB writes into the table when it
//! creates it does not: the database's id, the id of the session, and the number the file had then. They
//! travel with the bytes through links, copies and imports.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use lowtide_format::FormatError;

use crate::error::LsmError;

/// What RocksDB's block-based tables end with.
const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
/// Begins the second part of a footer from table format 6 on.
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];
/// Length of the footer in all table formats from 1 on.
const FOOTER_BYTES: usize = 53;
/// Compression type and checksum behind every block.
const BLOCK_TRAILER_BYTES: u64 = 5;
/// No sound property block comes near this.
const BLOCK_BYTES_MAX: u64 = 4 << 20;
const PART: &str = "table footer";

/// Where the content of a table comes from; equal identities mean equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIdentity {
    /// Id of the database that created the table.
    pub database: Arc<str>,
    /// Id of that database's session, new each time it is opened.
    pub session: Arc<str>,
    /// Number the file had when it was created.
    pub number: u64,
}

impl std::fmt::Display for TableIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.database, self.session, self.number)
    }
}

/// What a table says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProperties {
    /// Where its content comes from.
    pub identity: TableIdentity,
    /// How many records it has, deletions included. RocksDB's list of live tables knows that only of tables it has opened.
    pub records: u64,
    /// How many of them are deletions.
    pub deletions: u64,
}

impl TableProperties {
    /// Reads the properties of the table at `path`: three short reads at its end.
    ///
    /// # Errors
    ///
    /// [`LsmError::Io`] if the file cannot be read, [`LsmError::Format`] naming it if it is no sound table.
    pub fn of_file(path: &Path) -> Result<Self, LsmError> {
        let io = |source| LsmError::io("read", path, source);
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        read_properties(&mut file, length).map_err(|error| match error {
            ReadError::Io(source) => LsmError::io("read", path, source),
            ReadError::Format(source) => LsmError::Format(source.in_object(path.display().to_string())),
        })
    }

    /// Reads the properties of a table that is wholly in memory.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if `bytes` are no sound table.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        read_properties(&mut std::io::Cursor::new(bytes), bytes.len() as u64).map_err(|error| match error {
            // A slice ends only where its length says.
            ReadError::Io(_) => invalid("it ends too early"),
            ReadError::Format(source) => source,
        })
    }
}

enum ReadError {
    Io(std::io::Error),
    Format(FormatError),
}

impl From<std::io::Error> for ReadError {
    fn from(source: std::io::Error) -> Self {
        Self::Io(source)
    }
}

impl From<FormatError> for ReadError {
    fn from(source: FormatError) -> Self {
        Self::Format(source)
    }
}

fn invalid(problem: &'static str) -> FormatError {
    FormatError::Invalid { part: PART, problem }
}

fn read_properties(file: &mut (impl Read + Seek), length: u64) -> Result<TableProperties, ReadError> {
    let need = FOOTER_BYTES as u64;
    let footer_at =
        length.checked_sub(need).ok_or(FormatError::Truncated { part: PART, need, have: length })?;
    let mut footer = [0; FOOTER_BYTES];
    file.seek(SeekFrom::Start(footer_at))?;
    file.read_exact(&mut footer)?;
    let metaindex = read_block(file, length, metaindex_handle(&footer, footer_at)?)?;
    let handle = property(&metaindex, b"rocksdb.properties")?.ok_or(invalid("it lists no properties"))?;
    let mut handle = handle.as_slice();
    let handle = Handle { offset: varint(&mut handle)?, length: varint(&mut handle)? };
    let properties = read_block(file, length, handle)?;
    let text = |name: &[u8]| -> Result<Arc<str>, FormatError> {
        let value = property(&properties, name)?.ok_or(invalid("it has no unique id"))?;
        let text = std::str::from_utf8(&value).ok().filter(|text| !text.is_empty());
        text.map(Arc::from).ok_or(invalid("its unique id is no text"))
    };
    let number = |name: &[u8]| -> Result<Option<u64>, FormatError> {
        property(&properties, name)?.map(|value| varint(&mut value.as_slice())).transpose()
    };
    let identity = TableIdentity {
        database: text(b"rocksdb.creating.db.identity")?,
        session: text(b"rocksdb.creating.session.identity")?,
        number: number(b"rocksdb.original.file.number")?.ok_or(invalid("it has no original file number"))?,
    };
    let records = number(b"rocksdb.num.entries")?.ok_or(invalid("it does not say how much is in it"))?;
    Ok(TableProperties { identity, records, deletions: number(b"rocksdb.deleted.keys")?.unwrap_or(0) })
}

/// Where a block lies in the file, its trailer not counted.
struct Handle {
    offset: u64,
    length: u64,
}

fn metaindex_handle(footer: &[u8; FOOTER_BYTES], footer_at: u64) -> Result<Handle, FormatError> {
    let (rest, magic) = footer.split_last_chunk::<8>().ok_or(invalid("it is too short"))?;
    let (rest, version) = rest.split_last_chunk::<4>().ok_or(invalid("it is too short"))?;
    if u64::from_le_bytes(*magic) != MAGIC {
        return Err(invalid("it does not end as a table does"));
    }
    let version = u32::from_le_bytes(*version);
    let mut rest = rest.split_first().ok_or(invalid("it is too short"))?.1;
    if version < 6 {
        return Ok(Handle { offset: varint(&mut rest)?, length: varint(&mut rest)? });
    }
    // Extended magic, footer checksum, base context checksum, size of the metaindex block.
    let fields = rest.first_chunk::<16>().ok_or(invalid("it is too short"))?;
    let [m0, m1, m2, m3, .., s0, s1, s2, s3] = *fields;
    if [m0, m1, m2, m3] != EXTENDED_MAGIC {
        return Err(invalid("its second part begins wrongly"));
    }
    let size = u32::from_le_bytes([s0, s1, s2, s3]);
    // From table format 8 on the upper half tells a gap before the footer.
    let (gap, size) = if version >= 8 { (size >> 16, size & 0xffff) } else { (0, size) };
    let before = BLOCK_TRAILER_BYTES + u64::from(gap) + u64::from(size);
    let offset = footer_at.checked_sub(before).ok_or(invalid("its metaindex lies before the file"))?;
    Ok(Handle { offset, length: u64::from(size) })
}

fn read_block(file: &mut (impl Read + Seek), length: u64, handle: Handle) -> Result<Vec<u8>, ReadError> {
    let end = handle.offset.checked_add(handle.length).and_then(|end| end.checked_add(BLOCK_TRAILER_BYTES));
    if handle.length > BLOCK_BYTES_MAX || end.is_none_or(|end| end > length) {
        return Err(invalid("a block lies outside the file").into());
    }
    file.seek(SeekFrom::Start(handle.offset))?;
    let mut block = Vec::new();
    file.take(handle.length + 1).read_to_end(&mut block)?;
    match block.pop() {
        Some(0) if block.len() as u64 == handle.length => Ok(block),
        _ => Err(invalid("a block of properties is compressed or cut").into()),
    }
}

/// The value of `name` in a block of sorted, prefix-compressed entries.
fn property(block: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
    let (rest, restarts) = block.split_last_chunk::<4>().ok_or(invalid("a block is too short"))?;
    let restarts = u32::from_le_bytes(*restarts) as usize;
    let end = restarts.checked_mul(4).and_then(|bytes| rest.len().checked_sub(bytes));
    let mut entries = end.and_then(|end| rest.get(..end)).ok_or(invalid("a block has too many restarts"))?;
    let mut key = Vec::new();
    while !entries.is_empty() {
        let shared = length(&mut entries)?;
        let fresh = length(&mut entries)?;
        let value_bytes = length(&mut entries)?;
        key.truncate(shared);
        key.extend_from_slice(take(&mut entries, fresh)?);
        let value = take(&mut entries, value_bytes)?;
        if key == name {
            return Ok(Some(value.to_vec()));
        }
    }
    Ok(None)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], FormatError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(invalid("an entry reaches past its block"))?;
    *bytes = rest;
    Ok(taken)
}

fn length(bytes: &mut &[u8]) -> Result<usize, FormatError> {
    usize::try_from(varint(bytes)?).map_err(|_| invalid("a length is too large"))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, FormatError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(invalid("a number is cut"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(invalid("a number is too long"))
}

#[cfg(test)]
mod tests;
