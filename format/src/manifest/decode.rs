//! Reading a manifest.

use super::encode::{
    COMPLETED, ENVELOPE, FILES, HEAD, NAME_AS_TEXT, NAME_BYTES_MAX, NAME_OF_UPLOAD, OBJECTS, STATES, SUBTASKS,
};
use super::{
    CheckpointKind, Element, KeyGrouping, LocalFile, Manifest, ManifestFile, SegmentRecords, SubtaskPart,
};
use crate::codec::DecodeLimits;
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::ids::{CheckpointId, Generation, UploadId};
use crate::key_group::{KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::object_name::{FileEntry, FileKind, ObjectName};
use crate::path::ObjectPath;
use crate::section::Sections;
use crate::segment::{RecordTotals, VersionSpan, take_key_groups};
use crate::state::take_states;

impl Manifest {
    /// The manifest in `object`.
    ///
    /// # Errors
    ///
    /// Any [`FormatError`] for bytes that are not a manifest; memory stays within a small multiple of `limits`.
    pub fn decode(object: &[u8], limits: DecodeLimits) -> Result<Self, FormatError> {
        let body = ENVELOPE.open(object, limits)?;
        let known = [HEAD, STATES, FILES, SUBTASKS, COMPLETED, OBJECTS];
        let sections = Sections::split(ENVELOPE.part, &body, &known)?;
        let mut manifest = take_head(sections.need(HEAD)?)?;
        let mut cursor = sections.need(STATES)?;
        manifest.states = take_states(&mut cursor, limits)?;
        cursor.finish()?;
        let mut cursor = sections.need(FILES)?;
        manifest.files = take_files(&mut cursor, manifest.checkpoint, limits)?;
        cursor.finish()?;
        let mut cursor = sections.need(SUBTASKS)?;
        for _ in 0..cursor.count(6, size_of::<SubtaskPart>(), limits)? {
            manifest.subtasks.push(take_subtask(&mut cursor, limits)?);
        }
        cursor.finish()?;
        if let Some(mut cursor) = sections.get(COMPLETED) {
            manifest.completed = take_completed(&mut cursor, manifest.checkpoint, limits)?;
            cursor.finish()?;
        }
        if let Some(mut cursor) = sections.get(OBJECTS) {
            take_object_bytes(&mut cursor, &mut manifest.files)?;
            cursor.finish()?;
        }
        manifest.check_invariants()?;
        Ok(manifest)
    }
}

/// The head alone; the lists are still empty.
fn take_head(mut cursor: Cursor<'_>) -> Result<Manifest, FormatError> {
    let checkpoint = cursor.id()?;
    let generation = Generation(cursor.varint()?);
    let kind = CheckpointKind::from_tag(cursor.u8()?);
    let kind = kind.ok_or_else(|| cursor.invalid("its kind has no known number"))?;
    let base = cursor.optional_id()?;
    let job = take_name(&mut cursor)?;
    let key_groups = KeyGroupCount::new(cursor.number()?);
    let key_groups = key_groups.ok_or_else(|| cursor.invalid("its number of key groups is out of range"))?;
    let key_grouping = match cursor.u8()? {
        1 => KeyGrouping::Xxh3,
        2 => KeyGrouping::Host,
        _ => return Err(cursor.invalid("its key grouping has no known number")),
    };
    let created_millis = cursor.varint()?;
    let unclaimed = cursor.flag()?;
    let backend = take_name(&mut cursor)?;
    cursor.finish()?;
    Ok(Manifest {
        checkpoint,
        generation,
        kind,
        base,
        job,
        key_groups,
        key_grouping,
        created_millis,
        unclaimed,
        completed: Vec::new(),
        backend,
        states: Vec::new(),
        files: Vec::new(),
        subtasks: Vec::new(),
    })
}

fn take_name(cursor: &mut Cursor<'_>) -> Result<String, FormatError> {
    let name = cursor.text()?;
    if name.len() <= NAME_BYTES_MAX {
        Ok(name.to_owned())
    } else {
        Err(cursor.invalid("a name is longer than 255 bytes"))
    }
}

fn take_files(
    cursor: &mut Cursor<'_>,
    checkpoint: CheckpointId,
    limits: DecodeLimits,
) -> Result<Vec<ManifestFile>, FormatError> {
    let mut files = Vec::new();
    let mut last_upload = None;
    for _ in 0..cursor.count(18, size_of::<ManifestFile>(), limits)? {
        let entry = take_entry(cursor, &mut last_upload)?;
        let wrote = cursor.id_before(checkpoint)?;
        let generation = Generation(cursor.varint()?);
        let owned = cursor.flag()?;
        let records = if cursor.flag()? {
            let totals = take_totals(cursor)?;
            Some(SegmentRecords { totals, clears: cursor.varint()?, trailer_checksum: cursor.u32()? })
        } else {
            None
        };
        files.push(ManifestFile { entry, checkpoint: wrote, generation, owned, records, object_bytes: None });
    }
    Ok(files)
}

/// Ids as runs, newest first; what they come to in memory is within the limit.
fn take_completed(
    cursor: &mut Cursor<'_>,
    checkpoint: CheckpointId,
    limits: DecodeLimits,
) -> Result<Vec<CheckpointId>, FormatError> {
    let mut newest_first = Vec::new();
    let mut above = checkpoint.get();
    for _ in 0..cursor.count(2, size_of::<CheckpointId>(), limits)? {
        let (gap, more) = (cursor.varint()?, cursor.varint()?);
        let last = above.checked_sub(1).and_then(|below| below.checked_sub(gap));
        let first = last.and_then(|last| last.checked_sub(more)).filter(|first| *first > 0);
        let (Some(last), Some(first)) = (last, first) else {
            return Err(cursor.invalid("a completed checkpoint has no id"));
        };
        if more >= (Manifest::COMPLETED_MAX - newest_first.len()) as u64 {
            return Err(cursor.invalid("it names too many completed checkpoints"));
        }
        newest_first.extend((first..=last).rev().filter_map(CheckpointId::new));
        above = first;
    }
    newest_first.reverse();
    Ok(newest_first)
}

fn take_object_bytes(cursor: &mut Cursor<'_>, files: &mut [ManifestFile]) -> Result<(), FormatError> {
    let count = cursor.varint()?;
    for _ in 0..count {
        let at: u32 = cursor.number()?;
        let bytes = cursor.varint()?;
        let file = usize::try_from(at).ok().and_then(|at| files.get_mut(at));
        let file =
            file.ok_or_else(|| cursor.invalid("the length of an object is of a file that is not listed"))?;
        if file.object_bytes.replace(bytes).is_some() {
            return Err(cursor.invalid("the length of an object is there twice"));
        }
    }
    Ok(())
}

fn take_entry(cursor: &mut Cursor<'_>, last_upload: &mut Option<UploadId>) -> Result<FileEntry, FormatError> {
    let kind = FileKind::from_tag(cursor.u8()?);
    let kind = kind.ok_or_else(|| cursor.invalid("the kind of a file has no known number"))?;
    let object = match cursor.u8()? {
        NAME_OF_UPLOAD => {
            let upload = if cursor.flag()? { *last_upload } else { UploadId::new(cursor.u128()?) };
            let upload = upload.ok_or_else(|| cursor.invalid("a file has no upload id"))?;
            *last_upload = Some(upload);
            ObjectPath::Data { upload, number: cursor.number()?, kind }.name()
        }
        NAME_AS_TEXT => {
            let text = cursor.text()?;
            ObjectName::new(text)
                .map_err(|_| cursor.invalid("the name of an object breaks the rules of names"))?
        }
        _ => return Err(cursor.invalid("the spelling of a name has no known number")),
    };
    Ok(FileEntry {
        object,
        offset: cursor.varint()?,
        length: cursor.varint()?,
        checksum: cursor.u64()?,
        kind,
    })
}

fn take_totals(cursor: &mut Cursor<'_>) -> Result<RecordTotals, FormatError> {
    let [puts, tombstones, put_bytes, tombstone_bytes] =
        [cursor.varint()?, cursor.varint()?, cursor.varint()?, cursor.varint()?];
    let span = if cursor.flag()? {
        let newest = cursor.id()?;
        Some(VersionSpan { oldest: cursor.id_before(newest)?, newest })
    } else {
        None
    };
    Ok(RecordTotals { puts, tombstones, put_bytes, tombstone_bytes, span })
}

fn take_subtask(cursor: &mut Cursor<'_>, limits: DecodeLimits) -> Result<SubtaskPart, FormatError> {
    let index = cursor.number()?;
    let start: u16 = cursor.number()?;
    let more: u16 = cursor.number()?;
    let range = start.checked_add(more).and_then(|end| KeyGroupRange::new(KeyGroup(start), KeyGroup(end)));
    let range = range.ok_or_else(|| cursor.invalid("the range of a subtask is out of range"))?;
    let entries = cursor.varint()?;
    let mut elements = Vec::new();
    for _ in 0..cursor.count(5, size_of::<Element>(), limits)? {
        let file = cursor.number()?;
        let key_groups = take_key_groups(cursor, limits)?;
        let [live_puts, live_tombstones, live_clears] =
            [cursor.varint()?, cursor.varint()?, cursor.varint()?];
        elements.push(Element { file, key_groups, live_puts, live_tombstones, live_clears });
    }
    let mut local_files = Vec::new();
    for _ in 0..cursor.count(3, size_of::<LocalFile>(), limits)? {
        let name = take_name(cursor)?;
        local_files.push(LocalFile { name, file: cursor.number()? });
    }
    Ok(SubtaskPart { index, range, elements, local_files, entries })
}
