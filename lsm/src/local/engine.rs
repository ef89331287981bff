//! One open RocksDB database in a working directory.
//!
//! Owns: opening, column families, flush and hard links, the list of linked tables, clipping, closing in the right order.
//! Does not own: what keys and values mean (`backend`), which tables are new (`diff`).

use std::path::Path;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBRawIterator, ExportImportFilesMetaData, FlushOptions,
    ImportColumnFamilyOptions, LiveFile, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::listener::Listener;
use super::options::{EngineOptions, compact_away};
use crate::directory::WorkingDirectory;
use crate::error::LsmError;
use crate::key;
use lowtide_format::{FormatError, KeyGroupRange, StateDescriptor};

/// States live in families of this prefix, so that none can be called like RocksDB's own default family.
const FAMILY_PREFIX: &str = "s.";
/// The comparator of every family, as import wants to hear it.
const COMPARATOR: &str = "leveldb.BytewiseComparator";

/// Name of the column family of a state.
pub(crate) fn family_of_state(state: &str) -> String {
    format!("{FAMILY_PREFIX}{state}")
}

/// Name of the state in a column family.
pub(crate) fn state_of_family(family: &str) -> Option<&str> {
    family.strip_prefix(FAMILY_PREFIX)
}

/// Turns RocksDB's error into ours.
pub(crate) fn rocks(operation: &'static str) -> impl Fn(rocksdb::Error) -> LsmError {
    move |source| match source.kind() {
        rocksdb::ErrorKind::Corruption => {
            LsmError::RocksCorrupt { operation, source: std::sync::Arc::new(source) }
        }
        _ => LsmError::Rocks { operation, source: std::sync::Arc::new(source) },
    }
}

/// An open database. Closing waits for background work; the working directory goes after it.
///
/// It does not list its tables: RocksDB deletes them at any moment. Whoever wants to read them as files links them first.
pub(crate) struct Engine {
    db: DB,
    options: EngineOptions,
    write: WriteOptions,
    // Fields are dropped in this order: the database is closed before its directory may go.
    directory: WorkingDirectory,
}

impl Engine {
    /// Opens the database in `name` inside the working directory, with the families of `states`.
    pub(crate) fn open(
        directory: &WorkingDirectory,
        name: &str,
        options: EngineOptions,
        states: &[StateDescriptor],
    ) -> Result<Self, LsmError> {
        let mut families = vec![ColumnFamilyDescriptor::new("default", Options::default())];
        for state in states {
            let options = options.of_state(&state.name)?;
            families.push(ColumnFamilyDescriptor::new(family_of_state(&state.name), options));
        }
        let db = DB::open_cf_descriptors(&options.database, directory.join(name), families)
            .map_err(rocks("open the database"))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Self { db, options, write, directory: directory.clone() })
    }

    pub(crate) fn directory(&self) -> &WorkingDirectory {
        &self.directory
    }

    /// What the database reports to.
    pub(crate) fn listener(&self) -> &Listener {
        &self.options.listener
    }

    pub(crate) fn write_options(&self) -> &WriteOptions {
        &self.write
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    /// Adds the family of a state.
    pub(crate) fn create_family(&mut self, state: &str) -> Result<(), LsmError> {
        check_name(state)?;
        let options = self.options.of_state(state)?;
        self.db.create_cf(family_of_state(state), &options).map_err(rocks("create a column family"))
    }

    /// Adds the family of a state with the tables of other databases, which are linked, not copied.
    ///
    /// The tables of one level must not overlap, from level 1 on.
    pub(crate) fn import_family(&mut self, state: &str, tables: &[LiveFile]) -> Result<(), LsmError> {
        check_name(state)?;
        let options = self.options.of_state(state)?;
        let mut metadata = ExportImportFilesMetaData::default();
        metadata.set_db_comparator_name(COMPARATOR);
        metadata.set_files(tables).map_err(rocks("describe tables"))?;
        let mut import = ImportColumnFamilyOptions::default();
        import.set_move_files(true);
        self.db
            .create_column_family_with_import(&options, family_of_state(state), &import, &metadata)
            .map_err(rocks("import tables"))
    }

    /// The family called `family`.
    #[inline]
    pub(crate) fn family(&self, family: &str) -> Result<&ColumnFamily, LsmError> {
        self.db.cf_handle(family).ok_or(LsmError::ForeignState)
    }

    /// Writes all write buffers to tables, as of one moment.
    pub(crate) fn flush(&self, states: &[StateDescriptor]) -> Result<(), LsmError> {
        let families = states
            .iter()
            .map(|state| self.family(&family_of_state(&state.name)))
            .collect::<Result<Vec<_>, _>>()?;
        if families.is_empty() {
            return Ok(());
        }
        self.db.flush_cfs_opt(&families, &FlushOptions::default()).map_err(rocks("flush"))
    }

    /// Hard-links everything that the database consists of now into `path`, which must not exist.
    pub(crate) fn link(&self, path: &Path) -> Result<(), LsmError> {
        let checkpoint = Checkpoint::new(&self.db).map_err(rocks("prepare a checkpoint"))?;
        checkpoint.create_checkpoint(path).map_err(rocks("link a checkpoint"))
    }

    /// An iterator over the stored keys of `range` in one family.
    pub(crate) fn iterate(&self, family: &str, range: KeyGroupRange) -> Result<DBRawIterator<'_>, LsmError> {
        iterate(&self.db, self.family(family)?, range)
    }

    /// Deletes all entries of `range` in one family by one record.
    pub(crate) fn delete_range(&self, family: &str, range: KeyGroupRange) -> Result<(), LsmError> {
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(self.family(family)?, key::lower_bound(range), key::upper_bound(range));
        self.db.write_opt(&batch, &self.write).map_err(rocks("delete a range"))
    }

    /// Takes everything of `ranges` out of one family for good: deleted, and compacted until no table holds it.
    pub(crate) fn clip(&self, family: &str, ranges: &[KeyGroupRange]) -> Result<(), LsmError> {
        for &range in ranges {
            let (from, to) = (key::lower_bound(range), key::upper_bound(range));
            self.delete_range(family, range)?;
            let handle = self.family(family)?;
            self.db.compact_range_cf_opt(handle, Some(from), Some(to), &compact_away());
        }
        Ok(())
    }

    /// Merges all tables of one family.
    pub(crate) fn compact(&self, family: &str) -> Result<(), LsmError> {
        let handle = self.family(family)?;
        self.db.compact_range_cf_opt(handle, None::<&[u8]>, None::<&[u8]>, &compact_away());
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.options.listener.gate.open_for_good();
        // The directory may go right after the database: nothing may be writing into it then.
        self.db.cancel_all_background_work(true);
    }
}

/// An iterator over the stored keys of `range`.
pub(crate) fn iterate<'a>(
    db: &'a DB,
    family: &ColumnFamily,
    range: KeyGroupRange,
) -> Result<DBRawIterator<'a>, LsmError> {
    let mut read = ReadOptions::default();
    read.set_iterate_lower_bound(key::lower_bound(range));
    read.set_iterate_upper_bound(key::upper_bound(range));
    read.fill_cache(false);
    read.set_readahead_size(1 << 20);
    let mut iterator = db.raw_iterator_cf_opt(family, read);
    iterator.seek_to_first();
    iterator.status().map_err(rocks("iterate"))?;
    Ok(iterator)
}

/// Tables that nobody deletes, linked from a live database or fetched, opened for reading.
pub(crate) struct LinkedDatabase(DB);

impl LinkedDatabase {
    /// Opens what lies in `path`. Writes nothing but RocksDB's own log there.
    pub(crate) fn open(path: &Path, states: &[StateDescriptor]) -> Result<Self, LsmError> {
        let mut options = Options::default();
        // Tables are opened when they are read, so that listing them costs nothing per table.
        options.set_max_open_files(64);
        options.set_skip_stats_update_on_db_open(true);
        options.set_stats_dump_period_sec(0);
        options.set_log_level(rocksdb::LogLevel::Error);
        let families = states.iter().map(|state| family_of_state(&state.name));
        let families = std::iter::once("default".to_owned()).chain(families);
        DB::open_cf_for_read_only(&options, path, families, false)
            .map(Self)
            .map_err(rocks("open a checkpoint"))
    }

    /// All its tables.
    pub(crate) fn tables(&self) -> Result<Vec<LiveFile>, LsmError> {
        self.0.live_files().map_err(rocks("list tables"))
    }

    /// An iterator over the stored keys of `range` in the family of a state.
    pub(crate) fn iterate(&self, state: &str, range: KeyGroupRange) -> Result<DBRawIterator<'_>, LsmError> {
        let family = self.0.cf_handle(&family_of_state(state)).ok_or(LsmError::ForeignState)?;
        iterate(&self.0, family, range)
    }
}

impl Drop for LinkedDatabase {
    fn drop(&mut self) {
        self.0.cancel_all_background_work(true);
    }
}

fn check_name(state: &str) -> Result<(), LsmError> {
    if state.is_empty() || state.len() > 255 || state.contains('\0') {
        let (text, expected) = (state.to_owned(), "a state name of 1 to 255 bytes without NUL");
        return Err(FormatError::InvalidName { text, expected }.into());
    }
    Ok(())
}
