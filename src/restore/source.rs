//! Reads the files of one checkpoint: whole, or footer first and then the blocks that are wanted.
//!
//! Owns: how much is read at a time and how, checking bytes against the manifest, progress. Does not own: which files
//! (`plan`), retrying cut bodies (`lowtide-format`'s store), what the records mean (the backend).
//!
//! # Rules
//!
//! - Q1. No byte that was not checked reaches a backend: a small file by the manifest's length and checksum, a part of
//!   a larger one by the checksums of trailer, footer and block, of which the manifest has that of the trailer.
//! - Q2. At most `files_max` files of a plan are on their way at a time for each subtask, and the small objects that they
//!   share with files still to come are in memory.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use lowtide_format::{
    BlockEntry, CheckpointId, DecodeLimits, FileEntry, FileKind, FormatError, Manifest, ManifestFile,
    ObjectName, SegmentReader, SegmentTail, Store, StoreErrorKind,
};

use super::plan::{PlannedFile, RestorePlan};
use super::reader::ReadAttempt;
use super::shared::SharedObjects;
use crate::error::{Error, ErrorKind, Result};

/// A file up to this length is read in one piece.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// How much of a longer file's end is read first, to find its footer.
const TAIL_BYTES: u64 = 64 << 10;
/// Two wanted blocks with a gap of at most this many bytes are read by one request.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// How a restore reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Files in memory or on their way at a time for each subtask, at least 1. Default 4.
    pub files_max: usize,
    /// Subtasks that are restored at a time, at least 1. Default 2.
    pub subtasks_max: usize,
    /// Limits of decoding.
    pub limits: DecodeLimits,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { files_max: 4, subtasks_max: 2, limits: DecodeLimits::default() }
    }
}

/// How far a restore is, all subtasks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Bytes of files dealt with.
    pub bytes: u64,
    /// Bytes of all files that the subtasks deal with; grows while subtasks make their plans.
    pub bytes_total: u64,
    /// Entries restored so far.
    pub entries: u64,
}

/// Told about progress, from any thread. Clones share it.
#[derive(Clone)]
pub struct ProgressSink(Arc<dyn Fn(RestoreProgress) + Send + Sync>);

impl ProgressSink {
    /// Calls `report` after each file; it must return quickly.
    #[must_use]
    pub fn new(report: impl Fn(RestoreProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// One checkpoint, to be read by the subtasks that restore it.
pub struct RestoreSource {
    store: Store,
    manifest: Arc<Manifest>,
    options: ReadOptions,
    progress: Option<ProgressSink>,
    /// Set if somebody reads meanwhile.
    readers: Option<ReadAttempt>,
    /// How long each listed object is.
    objects: OnceLock<HashMap<ObjectName, u64>>,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    entries: AtomicU64,
}

/// A file's checked bytes: all of them, or the footer and some blocks.
pub struct FetchedSegment {
    /// The file as the manifest lists it, and the key groups that were asked for.
    pub planned: PlannedFile,
    /// Its footer.
    pub reader: SegmentReader,
    parts: Vec<FetchedPart>,
}

/// Bytes of a file from `start` on.
struct FetchedPart {
    start: u64,
    bytes: Bytes,
}

impl FetchedSegment {
    /// Bytes of it in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// The stored bytes of each block that holds records of the wanted key groups, in order.
    ///
    /// # Errors
    ///
    /// Each item can be [`FormatError::Truncated`] if the footer names bytes beyond the file.
    pub fn blocks(&self) -> impl Iterator<Item = Result<(&BlockEntry, &[u8]), FormatError>> {
        self.reader.footer().blocks_of(&self.planned.key_groups).map(|entry| {
            let bytes = self.parts.iter().find_map(|part| part.slice(entry.offset, entry.stored_length));
            let bytes = bytes.ok_or_else(|| {
                FormatError::Truncated { part: "block", need: entry.stored_length, have: 0 }
                    .in_object(self.planned.file.entry.object.as_str())
            });
            bytes.map(|bytes| (entry, bytes))
        })
    }
}

impl FetchedPart {
    fn slice(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }
}

impl RestoreSource {
    /// The checkpoint of `manifest`, whose object names are relative to `store`.
    #[must_use]
    pub fn new(
        store: Store,
        manifest: Arc<Manifest>,
        options: ReadOptions,
        progress: Option<ProgressSink>,
    ) -> Self {
        let zero = AtomicU64::new;
        let (bytes, bytes_total, entries) = (zero(0), zero(0), zero(0));
        let (readers, objects) = (None, OnceLock::new());
        Self { store, manifest, options, progress, readers, objects, bytes, bytes_total, entries }
    }

    /// The same, being read meanwhile.
    pub(crate) fn read_by(self, readers: Option<ReadAttempt>) -> Self {
        Self { readers, ..self }
    }

    /// Those who read meanwhile, if anybody does.
    pub(crate) fn readers(&self) -> Option<&ReadAttempt> {
        self.readers.as_ref()
    }

    /// What the checkpoint consists of.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The checkpoint.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.manifest.checkpoint
    }

    /// The directory.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How it is read.
    #[must_use]
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// Adds what one subtask will read to the total of the progress.
    pub fn announce(&self, plan: &RestorePlan) {
        self.bytes_total.fetch_add(plan.bytes(), Ordering::Relaxed);
    }

    /// Notes that a file of `bytes` is dealt with and gave `entries`.
    pub fn advance(&self, bytes: u64, entries: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        if let Some(ProgressSink(report)) = &self.progress {
            report(RestoreProgress { bytes, bytes_total: self.bytes_total.load(Ordering::Relaxed), entries });
        }
    }

    /// The segments of a plan in its order, several on their way at a time (rule Q2).
    ///
    /// # Errors
    ///
    /// Items are `missing`, `corrupt` or `incompatible`, naming object and checkpoint, or `store`.
    pub fn segments(&self, plan: RestorePlan) -> impl Stream<Item = Result<FetchedSegment>> + Send + '_ {
        let shared = Arc::new(SharedObjects::of(&plan.files));
        futures::stream::iter(plan.files)
            .map(move |planned| self.fetch_segment(planned, Arc::clone(&shared)))
            .buffered(self.options.files_max.max(1))
    }

    /// Reads footer and wanted blocks of a segment, and checks them.
    async fn fetch_segment(
        &self,
        planned: PlannedFile,
        shared: Arc<SharedObjects>,
    ) -> Result<FetchedSegment> {
        let file = planned.file.clone();
        let read = async |entry: FileEntry, span: Range<u64>| self.read(&entry, span).await;
        let fetched = match shared.take(&file.entry, read).await {
            None => self.fetch_parts(planned).await,
            Some(bytes) => bytes.and_then(|bytes| self.whole(planned, bytes)),
        };
        fetched.map_err(|error| self.with_checkpoint(error, &file))
    }

    async fn fetch_parts(&self, planned: PlannedFile) -> Result<FetchedSegment> {
        let file = &planned.file;
        let entry = &file.entry;
        if entry.kind != FileKind::Segment {
            return Err(Error::incompatible(format!("object {} is not a segment", entry.object)));
        }
        let named = |error: FormatError| error.in_object(entry.object.as_str());
        if entry.length <= WHOLE_BYTES_MAX {
            return self.fetch_whole(planned).await;
        }
        let reader = self.fetch_footer(entry).await?;
        check_summary(&reader, file).map_err(named)?;
        let mut ranges = ranges_of(reader.footer().blocks_of(&planned.key_groups));
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if wanted > entry.length / 4 * 3 {
            let all = ranges.first().zip(ranges.last()).map(|(first, last)| first.start..last.end);
            ranges = Vec::from_iter(all);
        }
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let bytes = self.read(entry, range.clone()).await?;
            parts.push(FetchedPart { start: range.start, bytes });
        }
        Ok(FetchedSegment { planned, reader, parts })
    }

    async fn fetch_whole(&self, planned: PlannedFile) -> Result<FetchedSegment> {
        let bytes = self.read(&planned.file.entry, 0..planned.file.entry.length).await?;
        self.whole(planned, bytes)
    }

    /// The segment whose whole file this is, if it is.
    fn whole(&self, planned: PlannedFile, bytes: Bytes) -> Result<FetchedSegment> {
        planned.file.entry.check(&bytes)?;
        let named = |error: FormatError| error.in_object(planned.file.entry.object.as_str());
        let reader = SegmentReader::open(&bytes, self.options.limits).map_err(named)?;
        check_summary(&reader, &planned.file).map_err(named)?;
        Ok(FetchedSegment { planned, reader, parts: vec![FetchedPart { start: 0, bytes }] })
    }

    /// Reads a whole file and checks it against length and checksum of the manifest.
    ///
    /// # Errors
    ///
    /// `missing`, `corrupt` naming the object, or `store`.
    pub async fn fetch_file(&self, entry: &FileEntry) -> Result<Bytes> {
        let bytes = self.read(entry, 0..entry.length).await?;
        entry.check(&bytes)?;
        Ok(bytes)
    }

    async fn fetch_footer(&self, entry: &FileEntry) -> Result<SegmentReader> {
        let mut wanted = TAIL_BYTES.min(entry.length);
        loop {
            let tail = self.read(entry, entry.length - wanted..entry.length).await?;
            let found = SegmentReader::from_tail(&tail, entry.length, self.options.limits)
                .map_err(|error| error.in_object(entry.object.as_str()))?;
            match found {
                SegmentTail::Complete(reader) => return Ok(reader),
                SegmentTail::Incomplete { bytes } if bytes > wanted && bytes <= entry.length => {
                    wanted = bytes
                }
                SegmentTail::Incomplete { bytes } => {
                    let short = FormatError::Truncated { part: "segment", need: bytes, have: entry.length };
                    return Err(short.in_object(entry.object.as_str()).into());
                }
            }
        }
    }

    /// Reads bytes of a file, whose place in its object the entry says. They are not checked.
    pub(crate) async fn read(&self, entry: &FileEntry, range: Range<u64>) -> Result<Bytes> {
        let beyond = || {
            let error = FormatError::Invalid { part: "manifest", problem: "a file ends beyond any object" };
            Error::from(error.in_object(entry.object.as_str()))
        };
        let start = entry.offset.checked_add(range.start).ok_or_else(beyond)?;
        let end = entry.offset.checked_add(range.end).ok_or_else(beyond)?;
        let read = self.store.get_range_of(&entry.object, start..end, self.object_bytes(&entry.object));
        read.await.map_err(|error| match error.kind() {
            // The manifest says that these bytes are there, and no others.
            StoreErrorKind::Changed => Error::new(ErrorKind::Corrupt, error.to_string()).caused_by(error),
            _ => error.into(),
        })
    }

    /// How long an object is that the checkpoint lists. O(files) at the first call.
    fn object_bytes(&self, object: &ObjectName) -> Option<u64> {
        let objects = self.objects.get_or_init(|| {
            let mut objects = HashMap::new();
            for file in &self.manifest.files {
                let known = objects.entry(file.entry.object.clone()).or_default();
                *known = file.bytes_of_object().max(*known);
            }
            objects
        });
        objects.get(object).copied()
    }

    /// The same error, saying which checkpoint needs the file.
    pub fn with_checkpoint(&self, error: Error, file: &ManifestFile) -> Error {
        match error.kind() {
            ErrorKind::Missing => {
                let message =
                    format!("object {}, which {} needs, is not there", file.entry.object, self.id());
                Error::new(ErrorKind::Missing, message).caused_by(error)
            }
            _ => self.in_checkpoint(error),
        }
    }

    /// The same error, which names the object itself, saying which checkpoint is being read.
    #[must_use]
    pub fn in_checkpoint(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("{} cannot be read: {error}", self.id())).caused_by(error)
    }
}

/// Checks that a segment is the one that the manifest counted.
pub(crate) fn check_summary(reader: &SegmentReader, file: &ManifestFile) -> Result<(), FormatError> {
    let uncounted =
        FormatError::Invalid { part: "manifest", problem: "a segment is listed without its counts" };
    reader.check_summary(&file.summary().ok_or(uncounted)?)
}

/// The byte ranges to read for some blocks, ascending; blocks that are close to each other share one.
fn ranges_of<'a>(blocks: impl Iterator<Item = &'a BlockEntry>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        let end = block.offset.saturating_add(block.stored_length);
        match ranges.last_mut() {
            Some(last) if block.offset <= last.end.saturating_add(GAP_BYTES_MAX) => {
                last.end = last.end.max(end)
            }
            _ => ranges.push(block.offset..end),
        }
    }
    ranges
}
