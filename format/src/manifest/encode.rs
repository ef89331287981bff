//! Writing a manifest.

use super::{Element, LocalFile, Manifest, ManifestFile, SegmentRecords, SubtaskPart};
use crate::compression::Compression;
use crate::cursor::{put_bytes, put_flag, put_varint};
use crate::envelope::Envelope;
use crate::error::FormatError;
use crate::ids::{CheckpointId, UploadId};
use crate::object_name::FileEntry;
use crate::path::ObjectPath;
use crate::section::{REQUIRED, put_section};
use crate::segment::{RecordTotals, VersionSpan, put_key_groups};
use crate::state::put_states;
use crate::version::MAGIC_MANIFEST;

pub(super) const ENVELOPE: Envelope = Envelope { part: "manifest", magic: MAGIC_MANIFEST };
pub(super) const HEAD: u8 = 1 | REQUIRED;
pub(super) const STATES: u8 = 2 | REQUIRED;
pub(super) const FILES: u8 = 3 | REQUIRED;
pub(super) const SUBTASKS: u8 = 4 | REQUIRED;
/// Not required: without it the age of segments is only known from the segments.
pub(super) const COMPLETED: u8 = 5;
/// Not required: without it the waste in objects is only known between the files that are listed.
pub(super) const OBJECTS: u8 = 6;

/// How the object of a file is spelled. Do not renumber.
pub(super) const NAME_OF_UPLOAD: u8 = 1;
pub(super) const NAME_AS_TEXT: u8 = 2;

/// The longest name of a job or backend in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

impl Manifest {
    /// The manifest as an object. About 60 to 80 bytes for each listed segment.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if an invariant does not hold, [`FormatError::Unwritable`] if a name is too long.
    pub fn encode(&self, compression: Compression) -> Result<Vec<u8>, FormatError> {
        self.check_invariants()?;
        let Self {
            checkpoint,
            generation,
            kind,
            base,
            job,
            key_groups,
            key_grouping,
            created_millis,
            unclaimed,
            completed,
            backend,
            states,
            files,
            subtasks,
        } = self;
        if job.len() > NAME_BYTES_MAX || backend.len() > NAME_BYTES_MAX {
            let problem = "the name of the job or backend is longer than 255 bytes";
            return Err(FormatError::Unwritable { part: "manifest", problem });
        }
        let (mut body, mut section) = (Vec::new(), Vec::new());
        put_varint(&mut section, checkpoint.get());
        put_varint(&mut section, generation.0);
        section.push(*kind as u8);
        put_varint(&mut section, base.map_or(0, CheckpointId::get));
        put_bytes(&mut section, job.as_bytes());
        put_varint(&mut section, u64::from(key_groups.get()));
        section.push(*key_grouping as u8);
        put_varint(&mut section, *created_millis);
        put_flag(&mut section, *unclaimed);
        put_bytes(&mut section, backend.as_bytes());
        put_section(&mut body, HEAD, &section);
        section.clear();
        put_states(&mut section, states)?;
        put_section(&mut body, STATES, &section);
        section.clear();
        put_files(&mut section, files, *checkpoint);
        put_section(&mut body, FILES, &section);
        section.clear();
        put_varint(&mut section, subtasks.len() as u64);
        subtasks.iter().for_each(|subtask| put_subtask(&mut section, subtask));
        put_section(&mut body, SUBTASKS, &section);
        if !completed.is_empty() {
            section.clear();
            put_completed(&mut section, completed, *checkpoint);
            put_section(&mut body, COMPLETED, &section);
        }
        if files.iter().any(|file| file.object_bytes.is_some()) {
            section.clear();
            put_object_bytes(&mut section, files);
            put_section(&mut body, OBJECTS, &section);
        }
        ENVELOPE.seal(&body, compression)
    }
}

/// Appends the list of files. An upload id equal to that of the file before is not repeated.
fn put_files(out: &mut Vec<u8>, files: &[ManifestFile], checkpoint: CheckpointId) {
    put_varint(out, files.len() as u64);
    let mut last_upload = None;
    for file in files {
        let ManifestFile { entry, checkpoint: wrote, generation, owned, records, object_bytes: _ } = file;
        put_entry(out, entry, &mut last_upload);
        put_varint(out, checkpoint.get() - wrote.get());
        put_varint(out, generation.0);
        put_flag(out, *owned);
        put_flag(out, records.is_some());
        if let Some(SegmentRecords { totals, clears, trailer_checksum }) = records {
            put_totals(out, totals);
            put_varint(out, *clears);
            out.extend_from_slice(&trailer_checksum.to_le_bytes());
        }
    }
}

/// Appends ids below `checkpoint` as runs of consecutive ones, newest first.
fn put_completed(out: &mut Vec<u8>, completed: &[CheckpointId], checkpoint: CheckpointId) {
    let runs: Vec<_> = completed.chunk_by(|a, b| a.next() == Some(*b)).collect();
    put_varint(out, runs.len() as u64);
    let mut above = checkpoint.get();
    for run in runs.into_iter().rev() {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        put_varint(out, above - last.get() - 1);
        put_varint(out, last.get() - first.get());
        above = first.get();
    }
}

/// Appends the length of the object of each file that does not lie alone in it.
fn put_object_bytes(out: &mut Vec<u8>, files: &[ManifestFile]) {
    let known = || files.iter().enumerate().filter_map(|(at, file)| Some((at, file.object_bytes?)));
    put_varint(out, known().count() as u64);
    for (at, bytes) in known() {
        put_varint(out, at as u64);
        put_varint(out, bytes);
    }
}

fn put_entry(out: &mut Vec<u8>, entry: &FileEntry, last_upload: &mut Option<UploadId>) {
    let FileEntry { object, offset, length, checksum, kind } = entry;
    out.push(*kind as u8);
    match ObjectPath::parse(object.as_str()) {
        Some(ObjectPath::Data { upload, number, kind: extension }) if extension == *kind => {
            out.push(NAME_OF_UPLOAD);
            let repeated = *last_upload == Some(upload);
            put_flag(out, repeated);
            if !repeated {
                out.extend_from_slice(&upload.get().to_le_bytes());
                *last_upload = Some(upload);
            }
            put_varint(out, u64::from(number));
        }
        _ => {
            out.push(NAME_AS_TEXT);
            put_bytes(out, object.as_str().as_bytes());
        }
    }
    put_varint(out, *offset);
    put_varint(out, *length);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn put_totals(out: &mut Vec<u8>, totals: &RecordTotals) {
    let RecordTotals { puts, tombstones, put_bytes, tombstone_bytes, span } = *totals;
    [puts, tombstones, put_bytes, tombstone_bytes].iter().for_each(|total| put_varint(out, *total));
    put_flag(out, span.is_some());
    if let Some(VersionSpan { oldest, newest }) = span {
        put_varint(out, newest.get());
        put_varint(out, newest.get() - oldest.get());
    }
}

fn put_subtask(out: &mut Vec<u8>, subtask: &SubtaskPart) {
    let SubtaskPart { index, range, elements, local_files, entries } = subtask;
    put_varint(out, u64::from(*index));
    put_varint(out, u64::from(range.start().0));
    put_varint(out, u64::from(range.len() - 1));
    put_varint(out, *entries);
    put_varint(out, elements.len() as u64);
    for Element { file, key_groups, live_puts, live_tombstones, live_clears } in elements {
        put_varint(out, u64::from(*file));
        put_key_groups(out, key_groups);
        [live_puts, live_tombstones, live_clears].iter().for_each(|live| put_varint(out, **live));
    }
    put_varint(out, local_files.len() as u64);
    for LocalFile { name, file } in local_files {
        put_bytes(out, name.as_bytes());
        put_varint(out, u64::from(*file));
    }
}
