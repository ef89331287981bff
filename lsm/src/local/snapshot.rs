//! A checkpoint of one backend between its freeze and its acknowledgement.
//!
//! Owns: the linked directory, the diff against the base, the table list, the figures.
//! Does not own: uploading (the caller), whether the checkpoint completes (the coordinator).
//!
//! The snapshot does not touch the live database any more: it reads what was linked. It keeps the working directory
//! from going until it is dropped, and takes its links with it on every way out.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, DecodeLimits, FileEntry, FileKind, KeyGroupCount, KeyGroupRange, SegmentOptions,
    StateDescriptor, xxh3,
};
use rocksdb::LiveFile;

use super::backend::{LsmBackend, TableSets};
use super::census;
use super::engine::{LinkedDatabase, state_of_family};
use super::gate::GateHold;
use super::records::write_segments;
use crate::diff::{StoredTable, TableSet, diff};
use crate::directory::Scratch;
use crate::error::LsmError;
use crate::meta::{CheckpointMeta, SmallFile, TABLE_LIST, TableMeta};
use crate::storm::{Storm, StormOptions, TrafficFigures};
use crate::table::{TableIdentity, TableProperties};

/// Numbers the linked directories of this process, because an id may be tried again after a failure.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What a checkpoint of this backend consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// RocksDB's own tables, and a table list.
    Tables,
    /// Segments with every entry, which any backend can read.
    Records,
}

/// What is asked of the backend at a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The checkpoint to be written.
    pub id: CheckpointId,
    /// The checkpoint whose tables need not be uploaded again.
    pub base: Option<CheckpointId>,
    /// Tables or records.
    pub kind: SnapshotKind,
    /// Whether it may be a base later. A savepoint is none.
    pub may_be_base: bool,
}

/// What a checkpoint cost and moved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LsmFigures {
    /// Synchronous: writing the write buffers to tables.
    pub flush: Duration,
    /// Synchronous: hard links and the small files.
    pub link: Duration,
    /// Tables uploaded, and those that the base has.
    pub tables_new: u64,
    /// Tables that the base has already.
    pub tables_kept: u64,
    /// Bytes of the table list.
    pub table_list_bytes: u64,
    /// New, live and changed bytes, and the compactions since the last checkpoint.
    pub traffic: TrafficFigures,
    /// Set if the checkpoint carried far more than what changed.
    pub storm: Option<Storm>,
}

/// A file to be uploaded.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    /// What the bytes are.
    pub kind: FileKind,
    /// All its bytes.
    pub bytes: Bytes,
}

/// A file of an acknowledged checkpoint, under the name that RocksDB knows it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcknowledgedTable {
    /// Name in the database's directory; [`TABLE_LIST`] for the table list.
    pub local_name: String,
    /// The file in the store.
    pub stored: StoredTable,
    /// Whether this checkpoint uploaded it.
    pub new: bool,
}

/// What the subtask acknowledges.
#[derive(Clone, Debug, PartialEq)]
pub struct LsmAcknowledgement {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The base whose tables were reused; none if there was none or its tables were not known.
    pub base: Option<CheckpointId>,
    /// Tables and table list. Empty for a checkpoint of records.
    pub files: Vec<AcknowledgedTable>,
    /// Segments, in order. Empty for a checkpoint of tables.
    pub segments: Vec<SegmentFile>,
    /// The states at the freeze.
    pub states: Vec<StateDescriptor>,
    /// Entries at the freeze; see `LsmOptions::entries_counted_max`.
    pub entries: u64,
    /// What it cost and moved.
    pub figures: LsmFigures,
}

/// A segment of a checkpoint of records.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentFile {
    /// The file in the store.
    pub file: FileEntry,
    /// What is in it.
    pub summary: lowtide_format::SegmentSummary,
}

/// A file handed out, in order.
enum Written {
    /// A new table, by its position in the table list.
    Table(usize),
    TableList,
    Segment(Box<lowtide_format::SegmentSummary>),
}

/// A linked checkpoint of one backend. Dropping it at any point removes the links.
pub struct LsmSnapshot {
    links: Scratch,
    request: SnapshotRequest,
    base: Option<(CheckpointId, Arc<TableSet>)>,
    states: Vec<StateDescriptor>,
    range: KeyGroupRange,
    key_groups: KeyGroupCount,
    storm: StormOptions,
    entries_counted_max: u64,
    table_sets: TableSets,
    meta: Option<CheckpointMeta>,
    kept: Vec<(usize, StoredTable)>,
    written: Vec<Written>,
    entries: u64,
    figures: LsmFigures,
    _live: Arc<()>,
    _hold: GateHold,
}

impl std::fmt::Debug for LsmSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmSnapshot").field("request", &self.request).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the two halves of the pause are measured where they happen")]
fn timed<T>(what: impl FnOnce() -> Result<T, LsmError>) -> Result<(T, Duration), LsmError> {
    let start = Instant::now();
    let value = what()?;
    Ok((value, start.elapsed()))
}

impl LsmSnapshot {
    pub(crate) fn freeze(
        backend: &mut LsmBackend,
        request: SnapshotRequest,
        live: Arc<()>,
    ) -> Result<Self, LsmError> {
        let states: Vec<StateDescriptor> = backend.states().cloned().collect();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Dropped, and so removed, if anything below fails.
        let hold = backend.engine.listener().gate.hold();
        let links = Scratch::new(backend.engine.directory(), &format!("{}-{number}", request.id));
        let ((), flush) = timed(|| backend.engine.flush(&states))?;
        let ((), link) = timed(|| backend.engine.link(links.path()))?;
        let base = request.base.and_then(|id| Some((id, backend.table_set(id)?)));
        let mut figures = LsmFigures { flush, link, ..LsmFigures::default() };
        if request.may_be_base {
            figures.traffic.compactions = backend.engine.listener().log.take();
            figures.traffic.changed_bytes = std::mem::take(&mut backend.changed_bytes);
        }
        Ok(Self {
            links,
            request,
            base,
            states,
            range: backend.range,
            key_groups: backend.key_groups,
            storm: backend.options.storm,
            entries_counted_max: backend.options.entries_counted_max,
            table_sets: backend.table_sets.clone(),
            meta: None,
            kept: Vec::new(),
            written: Vec::new(),
            entries: 0,
            figures,
            _live: live,
            _hold: hold,
        })
    }

    /// The checkpoint it belongs to.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.request.id
    }

    /// What it cost so far; complete after [`LsmSnapshot::write`].
    #[must_use]
    pub fn figures(&self) -> &LsmFigures {
        &self.figures
    }

    /// Hands every file that must be uploaded to `sink`, one at a time, in order.
    ///
    /// Blocking. Memory: one table. `cancelled` is asked between two files.
    ///
    /// # Errors
    ///
    /// What `sink` returned; [`LsmError::Cancelled`]; an error naming the linked file that could not be read.
    pub fn write<E: From<LsmError>>(
        &mut self,
        cancelled: impl Fn() -> bool,
        mut sink: impl FnMut(WrittenFile) -> Result<(), E>,
    ) -> Result<(), E> {
        let database = LinkedDatabase::open(self.links.path(), &self.states)?;
        let tables = self.describe(&database.tables()?)?;
        let records = tables.iter().map(|table| table.entries).sum();
        self.entries =
            census::entries(&database, (&self.states, self.range), records, self.entries_counted_max)?;
        match self.request.kind {
            SnapshotKind::Tables => self.write_tables(&cancelled, tables, &mut sink),
            SnapshotKind::Records => {
                let (request, range) = (self.request, self.range);
                let read =
                    |state: &StateDescriptor, group: KeyGroupRange| database.iterate(&state.name, group);
                let options = SegmentOptions::default();
                write_segments((request.id, range), &self.states, options, read, |segment| {
                    if cancelled() {
                        return Err(LsmError::Cancelled.into());
                    }
                    self.written.push(Written::Segment(Box::new(segment.summary)));
                    self.figures.traffic.new_bytes += segment.bytes.len() as u64;
                    sink(WrittenFile { kind: FileKind::Segment, bytes: segment.bytes })
                })
            }
        }
    }

    fn write_tables<E: From<LsmError>>(
        &mut self,
        cancelled: &impl Fn() -> bool,
        mut tables: Vec<TableMeta>,
        sink: &mut impl FnMut(WrittenFile) -> Result<(), E>,
    ) -> Result<(), E> {
        let identities: Vec<_> = tables.iter().map(|table| (table.identity(), table.length)).collect();
        let diff = diff(self.base.as_ref().map(|(_, set)| &**set), &identities);
        for at in diff.new {
            if cancelled() {
                return Err(LsmError::Cancelled.into());
            }
            let Some(table) = tables.get_mut(at) else { continue };
            let bytes = read_file(&self.links.path().join(&table.local_name))?;
            table.checksum = xxh3(&bytes);
            self.figures.tables_new += 1;
            self.figures.traffic.new_bytes += bytes.len() as u64;
            self.written.push(Written::Table(at));
            sink(WrittenFile { kind: FileKind::Sst, bytes })?;
        }
        for (at, stored) in &diff.kept {
            if let Some(table) = tables.get_mut(*at) {
                table.checksum = stored.file.checksum;
            }
        }
        self.figures.tables_kept = diff.kept.len() as u64;
        self.figures.traffic.live_bytes = tables.iter().map(|table| table.length).sum();
        self.kept = diff.kept;
        let meta = CheckpointMeta {
            checkpoint: self.request.id,
            key_groups: self.key_groups,
            range: self.range,
            states: self.states.clone(),
            tables,
            files: small_files(self.links.path())?,
        };
        let bytes = Bytes::from(meta.encode().map_err(LsmError::from)?);
        self.meta = Some(meta);
        self.figures.table_list_bytes = bytes.len() as u64;
        self.written.push(Written::TableList);
        self.judge();
        sink(WrittenFile { kind: FileKind::RocksMeta, bytes })
    }

    /// Warns of a storm. A checkpoint without a base is as large as the state by its nature.
    fn judge(&mut self) {
        if self.base.is_some() {
            self.figures.storm = self.storm.judge(&self.figures.traffic);
        }
        if let Some(storm) = &self.figures.storm {
            tracing::warn!(checkpoint = %self.request.id, new_bytes = storm.new_bytes, "{storm}");
        }
    }

    /// The tables as the table list names them, checksums left out.
    fn describe(&self, live: &[LiveFile]) -> Result<Vec<TableMeta>, LsmError> {
        let mut tables = Vec::with_capacity(live.len());
        for file in live {
            // The default family is always empty.
            let Some(state) = state_of_family(&file.column_family_name) else { continue };
            let Some(state) = self.states.iter().position(|known| known.name == state) else { continue };
            let local_name = file.name.trim_start_matches('/').to_owned();
            let found = TableProperties::of_file(&self.links.path().join(&local_name))?;
            let table = TableMeta {
                local_name,
                state: u32::try_from(state).unwrap_or(u32::MAX),
                level: u8::try_from(file.level).unwrap_or(0),
                smallest: file.start_key.clone().unwrap_or_default(),
                largest: file.end_key.clone().unwrap_or_default(),
                sequence: (file.smallest_seqno, file.largest_seqno),
                entries: found.records,
                deletions: found.deletions,
                length: file.size as u64,
                checksum: 0,
                identity: Default::default(),
            };
            tables.push(table.with_identity(&found.identity));
        }
        Ok(tables)
    }

    /// What the subtask acknowledges, the uploaded files being `files`, in the order of the sink's calls.
    ///
    /// If the checkpoint may be a base, the backend knows its tables from now on.
    ///
    /// # Errors
    ///
    /// [`LsmError::FileCount`] if that is not their number.
    pub fn finish(self, files: Vec<FileEntry>) -> Result<LsmAcknowledgement, LsmError> {
        if files.len() != self.written.len() {
            return Err(LsmError::FileCount { written: self.written.len(), given: files.len() });
        }
        let checkpoint = self.request.id;
        let tables = self.meta.map(|meta| meta.tables).unwrap_or_default();
        let name = |at: usize| tables.get(at).map(|table| table.local_name.clone()).unwrap_or_default();
        let mut set: Vec<(TableIdentity, StoredTable)> = Vec::new();
        let mut listed = Vec::new();
        let mut segments = Vec::new();
        let kept = self.kept.into_iter().map(|(at, stored)| (at, stored, false));
        let mut new = Vec::new();
        for (written, file) in self.written.into_iter().zip(files) {
            let stored = StoredTable { file, checkpoint };
            match written {
                Written::Table(at) => new.push((at, stored, true)),
                Written::TableList => {
                    listed.push(AcknowledgedTable { local_name: TABLE_LIST.to_owned(), stored, new: true });
                }
                Written::Segment(summary) => {
                    segments.push(SegmentFile { file: stored.file, summary: *summary })
                }
            }
        }
        for (at, stored, new) in kept.chain(new) {
            if let Some(table) = tables.get(at) {
                set.push((table.identity(), stored.clone()));
            }
            listed.push(AcknowledgedTable { local_name: name(at), stored, new });
        }
        if self.request.may_be_base && self.request.kind == SnapshotKind::Tables {
            let set = Arc::new(set.into_iter().collect());
            self.table_sets.lock().unwrap_or_else(PoisonError::into_inner).insert(checkpoint, set);
        }
        Ok(LsmAcknowledgement {
            id: checkpoint,
            base: self.base.map(|(id, _)| id),
            files: listed,
            segments,
            states: self.states,
            entries: self.entries,
            figures: self.figures,
        })
    }
}

fn read_file(path: &Path) -> Result<Bytes, LsmError> {
    fs::read(path).map(Bytes::from).map_err(|source| LsmError::io("read", path, source))
}

/// CURRENT, and the MANIFEST and OPTIONS that lie beside it. The log is empty: nothing is ever written to it.
fn small_files(links: &Path) -> Result<Vec<SmallFile>, LsmError> {
    let io = |source| LsmError::io("list", links, source);
    let mut files = Vec::new();
    for entry in fs::read_dir(links).map_err(io)? {
        let entry = entry.map_err(io)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name == "CURRENT" || name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-") {
            let bytes = read_file(&entry.path())?;
            DecodeLimits::default().check("file beside the tables", bytes.len() as u64)?;
            files.push(SmallFile { name, bytes: bytes.to_vec() });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}
