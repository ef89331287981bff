//! From fetched tables to an open backend.
//!
//! Owns: where fetched tables are put, opening or importing them, clipping, checking that they are what they claim.
//! Does not own: which tables are needed (`plan`), fetching (the caller).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use lowtide_format::{FormatError, KeyGroupRange, StateDescriptor};
use rocksdb::LiveFile;

use super::backend::{LsmBackend, State};
use super::engine::{Engine, LinkedDatabase, family_of_state, rocks};
use super::options::{EngineOptions, LsmOptions};
use crate::diff::TableSet;
use crate::directory::{Scratch, WorkingDirectory};
use crate::error::LsmError;
use crate::key::outside;
use crate::meta::{CheckpointMeta, TableMeta};
use crate::plan::{Fetch, RestorePart, RestorePlan, Take};
use crate::table::TableProperties;

/// A working directory into which the tables of a plan are fetched. Dropping it removes everything.
pub struct Staging {
    plan: RestorePlan,
    options: LsmOptions,
    directory: WorkingDirectory,
    /// One folder per part; what was not taken over goes when the restore ends, well or badly.
    parts: Vec<Scratch>,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("directory", &self.directory.path()).finish_non_exhaustive()
    }
}

impl Staging {
    /// Makes the directories for a plan.
    ///
    /// # Errors
    ///
    /// [`LsmError::Io`] naming what could not be made.
    pub fn create(options: &LsmOptions, plan: RestorePlan) -> Result<Self, LsmError> {
        let directory = WorkingDirectory::create(&options.directory)?;
        let mut parts = Vec::new();
        for (at, (_, take)) in plan.parts().iter().enumerate() {
            // The database that is opened as it is gets its tables straight into its folder.
            let name = if *take == Take::Open { "db".to_owned() } else { format!("part-{at}") };
            let folder = Scratch::new(&directory, &name);
            fs::create_dir(folder.path()).map_err(|source| LsmError::io("create", folder.path(), source))?;
            parts.push(folder);
        }
        Ok(Self { plan, options: options.clone(), directory, parts })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &RestorePlan {
        &self.plan
    }

    /// Where the caller puts a fetched table, its length and checksum being checked by then.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] for a fetch of another plan.
    pub fn path(&self, fetch: &Fetch) -> Result<PathBuf, LsmError> {
        let folder = self.parts.get(fetch.part).ok_or(LsmError::ForeignState)?;
        let table = self.plan.table(fetch).ok_or(LsmError::ForeignState)?;
        Ok(folder.path().join(&table.local_name))
    }

    /// Opens the backend. The next checkpoint may take the restored one as its base.
    ///
    /// # Errors
    ///
    /// [`LsmError::TableSwapped`] if a table is not the one that the checkpoint names, [`LsmError::RocksCorrupt`] if
    /// RocksDB finds damage, [`LsmError::Rocks`] or [`LsmError::Io`] for local failures. Nothing stays then.
    pub fn restore(self) -> Result<LsmBackend, LsmError> {
        self.check_tables()?;
        let opened = self.plan.parts().iter().position(|(_, take)| *take == Take::Open);
        let mut backend = match opened {
            Some(at) => self.open(at)?,
            None => self.import()?,
        };
        let tables = self.known_tables();
        let checkpoint = self.plan.checkpoint();
        let sets = &backend.table_sets;
        sets.lock().unwrap_or_else(PoisonError::into_inner).insert(checkpoint, Arc::new(tables));
        if opened.is_some() {
            // The folder is the database now; the working directory takes it away in the end.
            self.parts.into_iter().for_each(Scratch::keep);
        }
        backend.newest = Some(checkpoint);
        Ok(backend)
    }

    fn check_tables(&self) -> Result<(), LsmError> {
        for fetch in self.plan.fetches() {
            let Some(table) = self.plan.table(fetch) else { continue };
            let (expected, found) =
                (table.identity(), TableProperties::of_file(&self.path(fetch)?)?.identity);
            if expected != found {
                return Err(LsmError::TableSwapped {
                    table: table.local_name.clone(),
                    checkpoint: self.plan.checkpoint(),
                    expected: expected.to_string(),
                    found: found.to_string(),
                });
            }
        }
        Ok(())
    }

    fn part(&self, at: usize) -> Result<(&RestorePart, &Path), LsmError> {
        match (self.plan.parts().get(at), self.parts.get(at)) {
            (Some((part, _)), Some(folder)) => Ok((part, folder.path())),
            _ => Err(LsmError::ForeignState),
        }
    }

    /// Opens one part as it is.
    fn open(&self, at: usize) -> Result<LsmBackend, LsmError> {
        let (part, folder) = self.part(at)?;
        write_small_files(folder, &part.meta)?;
        self.backend("db", &part.meta.states)
    }

    fn backend(&self, database: &str, states: &[StateDescriptor]) -> Result<LsmBackend, LsmError> {
        let options = EngineOptions::new(&self.options)?;
        let engine = Engine::open(&self.directory, database, options, states)?;
        let mut backend = LsmBackend::with_engine(engine, &self.options, self.plan.key_groups())?;
        backend.states = states.iter().cloned().map(State::new).collect();
        Ok(backend)
    }

    /// Builds a new database from the tables of all clean parts and the entries of the others.
    fn import(&self) -> Result<LsmBackend, LsmError> {
        let mut backend = self.backend("db", &[])?;
        for state in self.states()? {
            let tables = self.tables_of(&state.name)?;
            if tables.is_empty() {
                backend.register(state)?;
                continue;
            }
            backend.engine.import_family(&state.name, &tables)?;
            backend.engine.clip(&family_of_state(&state.name), &self.foreign_ranges(&tables))?;
            backend.states.push(State::new(state));
        }
        for at in 0..self.plan.parts().len() {
            if let Some((_, Take::Copy(wanted))) = self.plan.parts().get(at) {
                self.copy(at, *wanted, &mut backend)?;
            }
        }
        Ok(backend)
    }

    /// The states of all parts, each once; a subtask may know states that another has never used.
    fn states(&self) -> Result<Vec<StateDescriptor>, LsmError> {
        let mut states: Vec<StateDescriptor> = Vec::new();
        for (part, _) in self.plan.parts() {
            for state in &part.meta.states {
                match states.iter().find(|known| known.name == state.name) {
                    Some(known) => known.check_reads(state)?,
                    None => states.push(state.clone()),
                }
            }
        }
        Ok(states)
    }

    /// The fetched tables of a state from all parts that are imported, described as RocksDB wants to hear it.
    fn tables_of(&self, state: &str) -> Result<Vec<LiveFile>, LsmError> {
        let mut files = Vec::new();
        for fetch in self.plan.fetches() {
            let Some((part, Take::Import(_))) = self.plan.parts().get(fetch.part) else { continue };
            let Some(table) = self.plan.table(fetch) else { continue };
            let of_state =
                part.meta.states.get(table.state as usize).is_some_and(|known| known.name == state);
            if of_state {
                let folder = self.parts.get(fetch.part).ok_or(LsmError::ForeignState)?;
                files.push(live_file(table, folder.path(), state)?);
            }
        }
        Ok(files)
    }

    /// The key groups of imported tables that are not wanted.
    fn foreign_ranges(&self, tables: &[LiveFile]) -> Vec<KeyGroupRange> {
        let groups = |file: &LiveFile| {
            let (smallest, largest) = (file.start_key.as_deref()?, file.end_key.as_deref()?);
            KeyGroupRange::new(crate::key::group_of(smallest), crate::key::group_of(largest))
        };
        let all = tables
            .iter()
            .filter_map(groups)
            .reduce(|a, b| KeyGroupRange::new(a.start().min(b.start()), a.end().max(b.end())).unwrap_or(a));
        // Only what an entry can lie in: the end of a range deletion may name the group behind the last one.
        let groups = all.and_then(|all| all.intersect(self.plan.key_groups().1.all()));
        groups.into_iter().flat_map(|all| outside(all, self.plan.key_groups().0)).collect()
    }

    /// Opens a part beside, for reading only, and copies the entries of `wanted`.
    fn copy(&self, at: usize, wanted: KeyGroupRange, backend: &mut LsmBackend) -> Result<(), LsmError> {
        let (part, folder) = self.part(at)?;
        write_small_files(folder, &part.meta)?;
        let source = LinkedDatabase::open(folder, &part.meta.states)?;
        for state in &part.meta.states {
            let family = family_of_state(&state.name);
            let mut iterator = source.iterate(&state.name, wanted)?;
            let target = backend.engine.family(&family)?;
            let mut batch = rocksdb::WriteBatch::default();
            while let Some((stored, value)) = iterator.item() {
                batch.put_cf(target, stored, value);
                if batch.size_in_bytes() >= 1 << 20 {
                    backend.write_batch(std::mem::take(&mut batch))?;
                }
                iterator.next();
            }
            iterator.status().map_err(rocks("iterate"))?;
            backend.write_batch(batch)?;
        }
        Ok(())
    }

    /// The tables that lie in the store already, by their identity: all that were fetched.
    ///
    /// The open database is not asked which of them it still has. It merges and deletes them at any moment, and one
    /// that is gone is never met again.
    fn known_tables(&self) -> TableSet {
        let fetches = self.plan.fetches().iter();
        fetches.filter_map(|fetch| Some((self.plan.table(fetch)?.identity(), fetch.stored.clone()))).collect()
    }
}

impl LsmBackend {
    fn write_batch(&self, batch: rocksdb::WriteBatch) -> Result<(), LsmError> {
        self.engine.db().write_opt(&batch, self.engine.write_options()).map_err(rocks("write"))
    }
}

fn live_file(table: &TableMeta, folder: &Path, state: &str) -> Result<LiveFile, LsmError> {
    let part = "table list";
    let invalid = |problem| LsmError::from(FormatError::Invalid { part, problem });
    let directory =
        folder.to_str().ok_or(LsmError::Option { option: "directory", problem: "it is not UTF-8" })?;
    Ok(LiveFile {
        column_family_name: family_of_state(state),
        name: table.local_name.clone(),
        directory: directory.to_owned(),
        size: usize::try_from(table.length).map_err(|_| invalid("a table is longer than memory"))?,
        level: i32::from(table.level),
        start_key: Some(table.smallest.clone()),
        end_key: Some(table.largest.clone()),
        smallest_seqno: table.sequence.0,
        largest_seqno: table.sequence.1,
        num_entries: table.entries,
        num_deletions: table.deletions,
    })
}

fn write_small_files(folder: &Path, meta: &CheckpointMeta) -> Result<(), LsmError> {
    for file in &meta.files {
        let path = folder.join(&file.name);
        fs::write(&path, &file.bytes).map_err(|source| LsmError::io("write", &path, source))?;
    }
    Ok(())
}
