//! A checkpoint in flight: what it was triggered with and what has been acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use lowtide_format::{
    CheckpointId, CheckpointKind, FileId, Generation, KeyGroupRange, KeyGroupSet, ManifestFile, ObjectName,
};
use lowtide_registry::PinId;

use super::acknowledgement::Acknowledgement;
use super::event::Trigger;
use super::view::{Base, ListedFile};
use crate::clock::Millis;

/// How far a checkpoint in flight has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Waits for acknowledgements.
    Collecting,
    /// Its publish has begun. Until that is settled it may have happened.
    Publishing,
}

/// A subtask's part of a checkpoint in flight.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) acknowledgement: Acknowledgement,
    /// Describes the files of its elements, and then its private ones, in their order.
    pub(crate) files: Vec<Arc<ManifestFile>>,
}

/// A checkpoint in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: CheckpointId,
    pub(crate) kind: CheckpointKind,
    pub(crate) triggered: Millis,
    /// By subtask.
    pub(crate) bases: Vec<Option<Base>>,
    /// What keeps the files of the bases.
    pub(crate) pins: Vec<PinId>,
    /// By subtask.
    pub(crate) parts: BTreeMap<u32, Part>,
    pub(crate) progress: Progress,
    /// The object of its manifest, once it is being stored.
    pub(crate) manifest: Option<ObjectName>,
}

impl Pending {
    /// What subtasks are told.
    pub(crate) fn trigger(&self, generation: Generation) -> Trigger {
        let bases = self.bases.iter().map(|base| base.as_ref().map(|base| base.id)).collect();
        Trigger { generation, id: self.id, kind: self.kind, bases }
    }

    pub(crate) fn is_savepoint(&self) -> bool {
        self.kind == CheckpointKind::Savepoint
    }

    /// The base that `subtask` was asked to take.
    pub(crate) fn base(&self, subtask: u32) -> Option<&Base> {
        self.bases.get(subtask as usize).and_then(Option::as_ref)
    }

    /// Describes every file that an acknowledgement of `subtask`, whose key groups are `range`, lists.
    ///
    /// An acknowledgement can only keep what its base lists, and only for key groups for which the base lists it: a
    /// file that the base does not list may be deleted already, and a widened element would bring back records that
    /// other elements no longer hide.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub(crate) fn described(
        &self,
        subtask: u32,
        range: KeyGroupRange,
        part: &Acknowledgement,
    ) -> Result<Vec<Arc<ManifestFile>>, String> {
        let asked = self.base(subtask);
        let base = match (part.base, asked) {
            (None, _) => None,
            (Some(id), Some(base)) if base.id == id => Some(base),
            (Some(id), _) => return Err(format!("it is against {id}, which it was not asked to take")),
        };
        let new: Vec<_> = part.files.iter().map(|file| (file.entry.id(), Arc::new(file.clone()))).collect();
        // A new file of another checkpoint is a copy of one that the base lists.
        let mut originals = Vec::new();
        for file in part.files.iter().filter(|file| file.checkpoint != self.id) {
            let of_file = base.into_iter().flat_map(|base| base.view.originals_of(file));
            let before = originals.len();
            originals.extend(of_file.map(|original| (file.entry.id(), original)));
            if originals.len() == before {
                return Err(format!("its new file {} is of {}", file.entry.object, file.checkpoint));
            }
        }
        let new = |file: &FileId| new.iter().find(|(id, _)| id == file).map(|(_, file)| Arc::clone(file));
        // Of several files of one content, it is a copy of the one that was listed for its key groups.
        let kept = |file: &FileId, key_groups: &KeyGroupSet| {
            let mut of_file = originals.iter().filter(|(id, _)| id == file).map(|(_, original)| *original);
            let first = of_file.next();
            let covers = |original: &&ListedFile| key_groups.is_subset(&original.key_groups);
            let original = first.into_iter().chain(of_file).find(covers).or(first);
            original.or_else(|| base.and_then(|base| base.view.get(file)))
        };
        let own = KeyGroupSet::from(range);
        let mut files = Vec::with_capacity(part.elements.len() + part.private.len());
        for element in &part.elements {
            let file = &element.file;
            if !element.key_groups.is_subset(&own) {
                return Err(format!("it lists {} for key groups outside {range}", file.object));
            }
            files.push(match (new(file), kept(file, &element.key_groups)) {
                (Some(new), None) => new,
                (None, None) => {
                    return Err(format!("it keeps {}, which its base does not list", file.object));
                }
                (_, Some(listed)) if !element.key_groups.is_subset(&listed.key_groups) => {
                    return Err(format!("it widens the key groups of {}", file.object));
                }
                (Some(copy), Some(_)) => copy,
                (None, Some(listed)) => Arc::clone(&listed.file),
            });
        }
        for (name, file) in &part.private {
            let any = KeyGroupSet::new();
            let known = new(file).or_else(|| kept(file, &any).map(|listed| Arc::clone(&listed.file)));
            files.push(known.ok_or_else(|| {
                format!("it keeps {name} as {}, which its base does not list", file.object)
            })?);
        }
        Ok(files)
    }
}
