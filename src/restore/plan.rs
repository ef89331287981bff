//! What one subtask reads to restore a checkpoint: pure.
//!
//! Owns: which files, and which of their key groups. Does not own: reading them (`source`), what their records
//! mean (the backend).
//!
//! # Rules
//!
//! - P1. A file is read for the key groups for which the manifest lists it, cut to the subtask's own range; a
//!   restore never widens a listing.
//! - P2. Files are read newest first, so that the first record of a key is its last one.

use std::collections::BTreeMap;

use lowtide_format::{FormatError, KeyGroupRange, KeyGroupSet, Manifest, ManifestFile};

/// A file and the key groups to be read from it.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// The file as the manifest lists it.
    pub file: ManifestFile,
    /// The groups that are read; never empty.
    pub key_groups: KeyGroupSet,
}

/// What one subtask reads, newest first.
#[derive(Clone, Debug, Default)]
pub struct RestorePlan {
    /// The files of all former subtasks that have key groups in the range.
    pub files: Vec<PlannedFile>,
}

impl RestorePlan {
    /// The plan for the key groups in `range`, whatever subtasks wrote the checkpoint.
    ///
    /// O(elements of the manifest).
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] if an element names a file that the manifest does not have.
    pub fn new(manifest: &Manifest, range: KeyGroupRange) -> Result<Self, FormatError> {
        let own = KeyGroupSet::from(range);
        let mut wanted: BTreeMap<u32, KeyGroupSet> = BTreeMap::new();
        for part in &manifest.subtasks {
            for element in &part.elements {
                let key_groups = element.key_groups.intersect(&own);
                if !key_groups.is_empty() {
                    let all = wanted.entry(element.file).or_default();
                    *all = all.union(&key_groups);
                }
            }
        }
        let mut files = Vec::with_capacity(wanted.len());
        for (index, key_groups) in wanted {
            let file = usize::try_from(index).ok().and_then(|index| manifest.files.get(index));
            let file = file.cloned().ok_or(FormatError::Invalid {
                part: "manifest element",
                problem: "it names a file that the manifest does not list",
            })?;
            files.push(PlannedFile { file, key_groups });
        }
        files.sort_by_key(|planned| std::cmp::Reverse(planned.file.checkpoint));
        Ok(Self { files })
    }

    /// Bytes of the files in the plan, whole files counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|planned| planned.file.entry.length).sum()
    }
}
