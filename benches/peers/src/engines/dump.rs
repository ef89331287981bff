//! Plain maps with a full dump by bincode and zstd: `hashbrown::HashMap` and `imbl::HashMap`.
//!
//! The plain map has no snapshot: its owner waits until the dump is on disk, so the whole of it is the pause. The
//! persistent map is cloned in O(1) and dumped by another thread.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use bincode::config::{self, Configuration};
use lowtide::Result;
use lowtide::compare::peer::workload::Kind;
use lowtide::compare::peer::{CheckpointBytes, Engine, Frozen};
use lowtide::{Error, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failed;

const BINCODE: Configuration = config::standard();
const ZSTD_LEVEL: i32 = 1;
const FILE: &str = "dump.zst";

/// A map that can be dumped.
pub trait Map<T: Kind>: Default + Send + Serialize + DeserializeOwned + 'static {
    /// Name in the lines.
    const NAME: &'static str;
    /// A map of the same contents if it costs O(1); none if it would be a copy.
    fn snapshot(&self) -> Option<Self>;
    /// Sets a value.
    fn put(&mut self, key: u64, value: T::Stored);
    /// The value of a key.
    fn value(&self, key: u64) -> Option<&T::Stored>;
    /// Removes a key.
    fn take(&mut self, key: u64);
    /// Entries.
    fn entries(&self) -> u64;
    /// Bytes of its tables.
    fn table_bytes(&self) -> Option<u64>;
}

impl<T: Kind> Map<T> for hashbrown::HashMap<u64, T::Stored> {
    const NAME: &'static str = "hashbrown-dump";

    fn snapshot(&self) -> Option<Self> {
        None
    }

    fn put(&mut self, key: u64, value: T::Stored) {
        self.insert(key, value);
    }

    fn value(&self, key: u64) -> Option<&T::Stored> {
        self.get(&key)
    }

    fn take(&mut self, key: u64) {
        self.remove(&key);
    }

    fn entries(&self) -> u64 {
        self.len() as u64
    }

    fn table_bytes(&self) -> Option<u64> {
        Some(self.allocation_size() as u64)
    }
}

impl<T: Kind> Map<T> for imbl::HashMap<u64, T::Stored> {
    const NAME: &'static str = "imbl-dump";

    fn snapshot(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn put(&mut self, key: u64, value: T::Stored) {
        self.insert(key, value);
    }

    fn value(&self, key: u64) -> Option<&T::Stored> {
        self.get(&key)
    }

    fn take(&mut self, key: u64) {
        self.remove(&key);
    }

    fn entries(&self) -> u64 {
        self.len() as u64
    }

    fn table_bytes(&self) -> Option<u64> {
        None
    }
}

/// A map and the directory of its dump.
pub struct Dumped<M> {
    map: M,
    directory: PathBuf,
}

/// What a dump left, or why there is none.
pub type Dump = Result<u64>;

/// Writes a dump aside, syncs it, and puts it in the place of the one before; returns its bytes.
fn dump<M: Serialize>(map: &M, directory: &Path) -> Dump {
    let (part, file) = (directory.join("dump.part"), directory.join(FILE));
    let created = File::create(&part).map_err(failed("a dump cannot be made"))?;
    let written = zstd::Encoder::new(BufWriter::new(created), ZSTD_LEVEL).and_then(|mut encoder| {
        bincode::serde::encode_into_std_write(map, &mut encoder, BINCODE).map_err(std::io::Error::other)?;
        let mut buffer = encoder.finish()?;
        buffer.flush()?;
        buffer.get_ref().sync_all()?;
        fs::rename(&part, &file)?;
        File::open(directory)?.sync_all()?;
        Ok(fs::metadata(&file)?.len())
    });
    written.map_err(failed("a dump cannot be written"))
}

impl<T: Kind, M: Map<T>> Engine<T> for Dumped<M> {
    type Setting = ();
    type Written = Dump;

    fn name(_: &()) -> String {
        M::NAME.to_owned()
    }

    fn repeats(_: &()) -> bool {
        true
    }

    fn create(_: &(), directory: &Path) -> Result<Self> {
        Ok(Self { map: M::default(), directory: directory.to_owned() })
    }

    fn recover(_: &(), directory: &Path) -> Result<Self> {
        let file = File::open(directory.join(FILE)).map_err(failed("there is no dump"))?;
        let mut decoder =
            zstd::Decoder::with_buffer(BufReader::with_capacity(1 << 20, file)).map_err(failed("no zstd"))?;
        let map = bincode::serde::decode_from_std_read(&mut decoder, BINCODE)
            .map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
        Ok(Self { map, directory: directory.to_owned() })
    }

    #[inline]
    fn put(&mut self, key: u64, value: T::Stored) -> Result<()> {
        self.map.put(key, value);
        Ok(())
    }

    #[inline]
    fn with<R>(&self, key: u64, look: impl FnOnce(&T::Stored) -> R) -> Result<Option<R>> {
        Ok(self.map.value(key).map(look))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        self.map.take(key);
        Ok(())
    }

    fn count(&self) -> Result<u64> {
        Ok(self.map.entries())
    }

    fn memory_bytes(&self) -> Option<u64> {
        let owned = if T::BYTES > 8 { T::BYTES as u64 * self.map.entries() } else { 0 };
        Some(self.map.table_bytes()? + owned)
    }

    fn freeze(&mut self) -> Result<Frozen<Dump>> {
        let directory = self.directory.clone();
        match self.map.snapshot() {
            Some(snapshot) => Ok(Frozen::alone(move || dump(&snapshot, &directory))),
            None => {
                let dumped = dump(&self.map, &directory)?;
                Ok(Frozen::alone(move || Ok(dumped)))
            }
        }
    }

    fn complete(&mut self, dumped: Dump) -> Result<CheckpointBytes> {
        let bytes = dumped?;
        Ok(CheckpointBytes { claimed: bytes, state: bytes, new_files: bytes, retained: bytes })
    }
}
