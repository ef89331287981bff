//! The manifest: what one checkpoint consists of, the same for every backend.
//!
//! Owns: the fields, their encoding, and what must hold among them.
//! Does not own: whether it is published (`sequence`), which files are still needed (the registry).
//!
//! # Invariants
//!
//! - M1. Every file index lies in the list of files; no two entries of the list are the same file.
//! - M2. Subtasks ascend by index; their ranges are disjoint and below the number of key groups.
//! - M3. The elements of a subtask are segments, ascend by the checkpoint that wrote them, and are listed for key
//!   groups of the subtask's range only.
//! - M4. No file was written by a later checkpoint than the manifest's, and none reaches beyond its object.
//! - M5. Completed checkpoints ascend, are older than the manifest's, and not too many.

mod decode;
mod encode;
mod file;

use std::collections::HashSet;

use crate::error::FormatError;
use crate::ids::{CheckpointId, Generation};
use crate::key_group::{KeyGroupCount, KeyGroupRange, KeyGroupSet};
use crate::object_name::{FileEntry, FileKind};
use crate::state::StateDescriptor;

pub use file::{ManifestFile, SegmentRecords};

/// What was asked for. The numbers are those on disk: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CheckpointKind {
    /// A delta against a base, or the first checkpoint of a job.
    Checkpoint = 1,
    /// Everything, without a base; otherwise a checkpoint like any other.
    Full = 2,
    /// Everything, kept until the user deletes it.
    Savepoint = 3,
}

impl CheckpointKind {
    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Checkpoint),
            2 => Some(Self::Full),
            3 => Some(Self::Savepoint),
            _ => None,
        }
    }
}

/// How a key finds its key group. The numbers are those on disk: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KeyGrouping {
    /// xxh3-64 of the encoded key, modulo the number of key groups.
    Xxh3 = 1,
    /// The host passes the key group with the key.
    Host = 2,
}

/// A segment and the key groups for which it is listed, with what of it is live.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// The segment, as an index into the manifest's files.
    pub file: u32,
    /// The key groups for which it is listed; restore reads nothing outside them.
    pub key_groups: KeyGroupSet,
    /// Live puts, counted at the freeze.
    pub live_puts: u64,
    /// Live tombstones, counted at the freeze.
    pub live_tombstones: u64,
    /// Live clears, counted at the freeze.
    pub live_clears: u64,
}

/// A file that a backend needs under a name of its own, such as a table of RocksDB.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalFile {
    /// The name in the backend's folder: one part of an object name, so it cannot leave the folder.
    pub name: String,
    /// The file, as an index into the manifest's files.
    pub file: u32,
}

/// What restores one subtask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubtaskPart {
    /// Number of the subtask, from 0.
    pub index: u32,
    /// Its key groups.
    pub range: KeyGroupRange,
    /// The chain of a heap backend, oldest first.
    pub elements: Vec<Element>,
    /// The files of a RocksDB backend.
    pub local_files: Vec<LocalFile>,
    /// Entries at the freeze, in all states; an estimate for backends that do not count.
    pub entries: u64,
}

/// What one checkpoint consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The generation that wrote it.
    pub generation: Generation,
    /// What was asked for.
    pub kind: CheckpointKind,
    /// The checkpoint its delta is taken against; none means everything. The oldest, where subtasks differ.
    pub base: Option<CheckpointId>,
    /// Name of the job, at most 255 bytes.
    pub job: String,
    /// Number of key groups; never changes silently.
    pub key_groups: KeyGroupCount,
    /// How keys find their group.
    pub key_grouping: KeyGrouping,
    /// When it was triggered, in milliseconds since 1970, by the coordinator's clock.
    pub created_millis: u64,
    /// Whether the job was restored without claim and still needs its first full checkpoint after this one.
    pub unclaimed: bool,
    /// The completed checkpoints before it, savepoints left out, ascending, as far back as it lists a segment, at
    /// most [`COMPLETED_MAX`](Self::COMPLETED_MAX): by them a restored job knows how old its segments are.
    pub completed: Vec<CheckpointId>,
    /// Name of the backend that wrote it, at most 255 bytes.
    pub backend: String,
    /// All states.
    pub states: Vec<StateDescriptor>,
    /// All files.
    pub files: Vec<ManifestFile>,
    /// All subtasks.
    pub subtasks: Vec<SubtaskPart>,
}

impl Manifest {
    /// How many completed checkpoints a manifest names at most; the newest count.
    pub const COMPLETED_MAX: usize = 2048;

    /// The file with this index.
    #[must_use]
    pub fn file(&self, index: u32) -> Option<&ManifestFile> {
        self.files.get(usize::try_from(index).ok()?)
    }

    /// All entries of all files.
    pub fn entries(&self) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().map(|file| &file.entry)
    }

    /// Whether the subtasks together have every key group. A checkpoint that lacks some is not complete.
    #[must_use]
    pub fn covers_all_key_groups(&self) -> bool {
        let covered: u32 = self.subtasks.iter().map(|subtask| subtask.range.len()).sum();
        covered == u32::from(self.key_groups.get())
    }

    /// Checks M1 to M5. Encoding and decoding both call it.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] naming what does not hold.
    pub fn check_invariants(&self) -> Result<(), FormatError> {
        let mut ids = HashSet::with_capacity(self.files.len());
        let distinct = self.files.iter().all(|file| ids.insert((&file.entry.object, file.entry.offset)));
        if !distinct {
            return Err(invalid("M1: a file is listed twice"));
        }
        if self.files.iter().any(|file| file.checkpoint > self.checkpoint) {
            return Err(invalid("M4: a file was written by a later checkpoint"));
        }
        let beyond = |file: &ManifestFile| {
            let end = file.entry.offset.checked_add(file.entry.length);
            file.object_bytes.is_some_and(|bytes| end.is_none_or(|end| end > bytes))
        };
        if self.files.iter().any(beyond) {
            return Err(invalid("M4: a file reaches beyond its object"));
        }
        let ascend = self.completed.is_sorted_by(|a, b| a < b);
        let few = self.completed.len() <= Self::COMPLETED_MAX;
        if !ascend || !few || self.completed.last().is_some_and(|last| *last >= self.checkpoint) {
            return Err(invalid("M5: completed checkpoints are out of order, not older, or too many"));
        }
        let mut ranges: Vec<KeyGroupRange> = self.subtasks.iter().map(|subtask| subtask.range).collect();
        ranges.sort_unstable();
        let disjoint = ranges.is_sorted_by(|a, b| a.end() < b.start());
        let inside = ranges.last().is_none_or(|last| last.end().0 < self.key_groups.get());
        if !disjoint || !inside || !self.subtasks.is_sorted_by(|a, b| a.index < b.index) {
            return Err(invalid(
                "M2: subtasks overlap, are out of order, or have a key group that there is not",
            ));
        }
        self.subtasks.iter().try_for_each(|subtask| self.check_subtask(subtask))
    }

    fn check_subtask(&self, subtask: &SubtaskPart) -> Result<(), FormatError> {
        let range = KeyGroupSet::from(subtask.range);
        let mut last = None;
        for element in &subtask.elements {
            let file = self
                .file(element.file)
                .ok_or_else(|| invalid("M1: an element is a file that is not listed"))?;
            if file.entry.kind != FileKind::Segment || last.is_some_and(|last| last > file.checkpoint) {
                return Err(invalid("M3: elements are out of order or not segments"));
            }
            if !element.key_groups.is_subset(&range) {
                return Err(invalid("M3: an element is listed for key groups outside its subtask's range"));
            }
            last = Some(file.checkpoint);
        }
        for LocalFile { name, file } in &subtask.local_files {
            if self.file(*file).is_none() {
                return Err(invalid("M1: a local file is a file that is not listed"));
            }
            if name.contains('/') || crate::ObjectName::new(name).is_err() {
                return Err(invalid("M1: the name of a local file could leave its folder"));
            }
        }
        Ok(())
    }
}

fn invalid(problem: &'static str) -> FormatError {
    FormatError::Invalid { part: "manifest", problem }
}

#[cfg(test)]
mod tests;
