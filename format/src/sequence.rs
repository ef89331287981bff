//! Members of the numbered sequence: one object for each decision about a directory, each number once.
//!
//! Owns: what a member says and how it is encoded. Each member carries the whole truth, so the newest alone suffices.
//! Does not own: who may append (the coordinator), how an object is created once (`store`).
//!
//! # Invariants
//!
//! - Q1. Checkpoints and savepoints each ascend by id, no id twice, all below the next id.
//! - Q2. At most [`SequenceMember::TRASH_MAX`] names in the trash.

mod decode;
mod encode;

use crate::error::FormatError;
use crate::ids::{CheckpointId, Generation, UploadId};
use crate::manifest::CheckpointKind;
use crate::object_name::ObjectName;
use crate::path::ObjectPath;

/// What a member of the sequence decided. For the log and for people: the lists say what is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SequenceStep {
    /// A new generation took over.
    TakeOver,
    /// A checkpoint or savepoint was published.
    Publish {
        /// Which one.
        checkpoint: CheckpointId,
    },
    /// Retention let checkpoints go, or emptied the trash.
    Retention,
    /// The directory was claimed by a restore from this checkpoint.
    Claim {
        /// Which one.
        checkpoint: CheckpointId,
    },
    /// A completed checkpoint was abandoned.
    Abandon {
        /// Which one.
        checkpoint: CheckpointId,
    },
    /// Uploads begun before this time may be swept.
    SweepBoundary {
        /// Milliseconds since 1970.
        before_millis: u64,
    },
    /// A savepoint was deleted by command.
    DeleteSavepoint {
        /// Which one.
        checkpoint: CheckpointId,
    },
    /// The generation ended in order: nothing of it is under way.
    Stop,
}

/// A published checkpoint or savepoint, as the sequence names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublishedRef {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The generation that published it.
    pub generation: Generation,
    /// What was asked for.
    pub kind: CheckpointKind,
    /// The object that holds its manifest.
    pub manifest: ObjectName,
    /// Length of the manifest in bytes.
    pub length: u64,
    /// xxh3-64 of the manifest.
    pub checksum: u64,
    /// Whether the job still needs a full checkpoint, having been restored without claim.
    pub unclaimed: bool,
    /// Whether its files may be deleted once it goes.
    pub owned: bool,
}

impl PublishedRef {
    /// Checks that `bytes` are those of the manifest, by length and checksum.
    ///
    /// # Errors
    ///
    /// As [`FileEntry::check`](crate::FileEntry::check).
    pub fn check(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let have = bytes.len() as u64;
        let part = "manifest";
        let error = if have < self.length {
            FormatError::Truncated { part, need: self.length, have }
        } else if have > self.length {
            FormatError::TrailingBytes { part, bytes: have - self.length }
        } else {
            match crate::xxh3(bytes) {
                computed if computed == self.checksum => return Ok(()),
                computed => FormatError::Checksum { part, stored: self.checksum, computed },
            }
        };
        Err(error.in_object(self.manifest.as_str()))
    }
}

/// Where a job was restored from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RestoredFrom {
    /// The directory, as the user named it, at most 4,096 bytes.
    pub location: String,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Whether its files became the job's own.
    pub claimed: bool,
}

/// One member of the numbered sequence of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceMember {
    /// Its number, from 1; the object's name says the same.
    pub number: u64,
    /// The generation that appended it.
    pub generation: Generation,
    /// Made by the writer for this one create, to tell after a lost reply whether the object is its own.
    pub token: UploadId,
    /// When it was appended, in milliseconds since 1970, by the writer's clock.
    pub created_millis: u64,
    /// What it decided.
    pub step: SequenceStep,
    /// All retained checkpoints, ids ascending.
    pub checkpoints: Vec<PublishedRef>,
    /// All savepoints, ids ascending.
    pub savepoints: Vec<PublishedRef>,
    /// Uploads begun before this time (milliseconds since 1970) may be gone: a publish that lists one is refused. Zero
    /// before the first sweep.
    pub sweep_boundary_millis: u64,
    /// No checkpoint below this id will be triggered again.
    pub next_checkpoint: CheckpointId,
    /// Where the job was restored from, if it was.
    pub restored_from: Option<RestoredFrom>,
    /// Objects that were published once, are listed by nothing now, and may not be deleted yet.
    pub trash: Vec<ObjectName>,
}

impl SequenceMember {
    /// The most names that the trash may have; what does not fit is found by a sweep.
    pub const TRASH_MAX: usize = 4096;

    /// The object it lies in.
    #[must_use]
    pub fn object(&self) -> ObjectName {
        ObjectPath::Sequence { number: self.number }.name()
    }

    /// The newest retained checkpoint, savepoints not counted.
    #[must_use]
    pub fn latest(&self) -> Option<&PublishedRef> {
        self.checkpoints.last()
    }

    /// The published checkpoint or savepoint with this id.
    #[must_use]
    pub fn published(&self, checkpoint: CheckpointId) -> Option<&PublishedRef> {
        self.checkpoints.iter().chain(&self.savepoints).find(|published| published.checkpoint == checkpoint)
    }

    /// Checks Q1 and Q2. Encoding and decoding both call it.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] naming what does not hold.
    pub fn check_invariants(&self) -> Result<(), FormatError> {
        let invalid = |problem| Err(FormatError::Invalid { part: "sequence member", problem });
        for list in [&self.checkpoints, &self.savepoints] {
            let below = list.last().is_none_or(|last| last.checkpoint < self.next_checkpoint);
            if !below || !list.is_sorted_by(|a, b| a.checkpoint < b.checkpoint) {
                return invalid("Q1: ids are out of order or not below the next");
            }
        }
        if self.trash.len() > Self::TRASH_MAX {
            return invalid("Q2: the trash has too many names");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
