//! RocksDB as it comes, with a checkpoint of hard links and a copy of the tables that are new.
//!
//! Default options, no write-ahead log, compression as the library is built. The pause is the flush and the links; new
//! tables are copied by another thread to the directory of checkpoints, those that are gone are removed there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide::compare::peer::workload::Kind;
use lowtide::compare::peer::{CheckpointBytes, Engine, Frozen};
use lowtide::{Error, ErrorKind, Result};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, IteratorMode, Options, WriteOptions};

use super::failed;

/// A database, and where its checkpoints go.
pub struct RawRocks {
    db: DB,
    write: WriteOptions,
    directory: PathBuf,
    /// Tables in the directory of checkpoints, with their bytes.
    stored: BTreeMap<String, u64>,
    taken: u64,
}

/// Files of a checkpoint with their bytes, and the bytes copied for it.
pub type Copied = Result<(BTreeMap<String, u64>, u64)>;

fn refused(error: rocksdb::Error) -> Error {
    Error::new(ErrorKind::Store, format!("RocksDB: {error}"))
}

fn open(directory: &Path) -> Result<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    DB::open(&options, directory).map_err(refused)
}

/// Copies what is not there yet from the links to the checkpoints, removes what is gone.
fn copy(links: &Path, place: &Path, stored: &BTreeMap<String, u64>) -> Copied {
    let mut files = BTreeMap::new();
    let mut copied = 0;
    for entry in fs::read_dir(links).map_err(failed("a checkpoint cannot be listed"))? {
        let entry = entry.map_err(failed("a checkpoint cannot be listed"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = entry.metadata().map_err(failed("a file cannot be read"))?.len();
        // A table never changes under its name; all other files may.
        if !(name.ends_with(".sst") && stored.contains_key(&name)) {
            fs::copy(entry.path(), place.join(&name)).map_err(failed("a file cannot be copied"))?;
            copied += bytes;
        }
        files.insert(name, bytes);
    }
    for name in stored.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(place.join(name)).map_err(failed("a file cannot be removed"))?;
    }
    fs::remove_dir_all(links).map_err(failed("links cannot be removed"))?;
    Ok((files, copied))
}

impl<T: Kind> Engine<T> for RawRocks {
    type Setting = ();
    type Written = Copied;

    fn name(_: &()) -> String {
        "rocksdb-raw".to_owned()
    }

    fn repeats(_: &()) -> bool {
        false
    }

    fn create(_: &(), directory: &Path) -> Result<Self> {
        let place = directory.join("checkpoints");
        fs::create_dir_all(&place).map_err(failed("a directory cannot be made"))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let db = open(&directory.join("local"))?;
        Ok(Self { db, write, directory: directory.to_owned(), stored: BTreeMap::new(), taken: 0 })
    }

    fn recover(_: &(), directory: &Path) -> Result<Self> {
        let local = directory.join("restored");
        fs::create_dir_all(&local).map_err(failed("a directory cannot be made"))?;
        let place = directory.join("checkpoints");
        for entry in fs::read_dir(&place).map_err(failed("there is no checkpoint"))? {
            let entry = entry.map_err(failed("a checkpoint cannot be listed"))?;
            fs::copy(entry.path(), local.join(entry.file_name()))
                .map_err(failed("a file cannot be copied"))?;
        }
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let db = open(&local)?;
        Ok(Self { db, write, directory: directory.to_owned(), stored: BTreeMap::new(), taken: 0 })
    }

    #[inline]
    fn put(&mut self, key: u64, value: T::Stored) -> Result<()> {
        self.db.put_opt(key.to_be_bytes(), T::to_bytes(&value), &self.write).map_err(refused)
    }

    #[inline]
    fn with<R>(&self, key: u64, look: impl FnOnce(&T::Stored) -> R) -> Result<Option<R>> {
        let found = self.db.get_pinned(key.to_be_bytes()).map_err(refused)?;
        let damaged = || Error::new(ErrorKind::Corrupt, format!("the value of {key:016x} is damaged"));
        found.map(|bytes| T::from_bytes(&bytes).map(|value| look(&value)).ok_or_else(damaged)).transpose()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        self.db.delete_opt(key.to_be_bytes(), &self.write).map_err(refused)
    }

    fn count(&self) -> Result<u64> {
        let mut count = 0;
        for entry in self.db.iterator(IteratorMode::Start) {
            entry.map_err(refused)?;
            count += 1;
        }
        Ok(count)
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn freeze(&mut self) -> Result<Frozen<Copied>> {
        self.taken += 1;
        let links = self.directory.join(format!("links-{}", self.taken));
        Checkpoint::new(&self.db).and_then(|links_of| links_of.create_checkpoint(&links)).map_err(refused)?;
        let (place, stored) = (self.directory.join("checkpoints"), self.stored.clone());
        Ok(Frozen::alone(move || copy(&links, &place, &stored)))
    }

    fn complete(&mut self, copied: Copied) -> Result<CheckpointBytes> {
        let (files, new) = copied?;
        let all = files.values().sum();
        self.stored = files;
        Ok(CheckpointBytes { claimed: new, state: all, new_files: new, retained: all })
    }
}
