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

use lowtide_format::broken::{Break, is_broken};
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
                let key_groups = if is_broken(Break::ElementWidened) && !key_groups.is_empty() {
                    own.clone()
                } else {
                    key_groups
                };
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

#[cfg(test)]
mod tests {
    use lowtide_format::{
        CheckpointId, CheckpointKind, Element, FileEntry, FileKind, Generation, KeyGroup, KeyGroupCount,
        KeyGrouping, ObjectName, SubtaskPart,
    };

    use super::*;

    fn range(start: u16, end: u16) -> KeyGroupRange {
        KeyGroupRange::new(KeyGroup(start), KeyGroup(end)).unwrap()
    }

    fn file(number: u64) -> ManifestFile {
        let entry = FileEntry {
            object: ObjectName::new(&format!("data/{number}.seg")).unwrap(),
            offset: 0,
            length: number,
            checksum: 0,
            kind: FileKind::Segment,
        };
        let checkpoint = CheckpointId::new(number).unwrap();
        let generation = Generation(1);
        ManifestFile { entry, checkpoint, generation, owned: true, records: None, object_bytes: None }
    }

    fn element(file: u32, start: u16, end: u16) -> Element {
        let key_groups = KeyGroupSet::from(range(start, end));
        Element { file, key_groups, live_puts: 1, live_tombstones: 0, live_clears: 0 }
    }

    fn part(index: u32, range: KeyGroupRange, elements: Vec<Element>) -> SubtaskPart {
        SubtaskPart { index, range, elements, local_files: Vec::new(), entries: 0 }
    }

    /// File 1 is listed by subtask 0 for one of its groups only, and by subtask 1 for all of its groups.
    fn manifest() -> Manifest {
        Manifest {
            checkpoint: CheckpointId::new(9).unwrap(),
            generation: Generation(1),
            kind: CheckpointKind::Checkpoint,
            base: None,
            job: "j".to_owned(),
            key_groups: KeyGroupCount::new(8).unwrap(),
            key_grouping: KeyGrouping::Xxh3,
            created_millis: 0,
            unclaimed: false,
            completed: Vec::new(),
            backend: "heap".to_owned(),
            states: Vec::new(),
            files: vec![file(1), file(5), file(9)],
            subtasks: vec![
                part(0, range(0, 3), vec![element(0, 1, 1), element(1, 0, 3)]),
                part(1, range(4, 7), vec![element(0, 4, 7), element(2, 4, 7)]),
            ],
        }
    }

    fn planned(plan: &RestorePlan) -> Vec<(u64, Vec<u16>)> {
        let files = plan.files.iter();
        files.map(|p| (p.file.entry.length, p.key_groups.iter().map(|group| group.0).collect())).collect()
    }

    #[test]
    fn files_come_newest_first_and_only_for_groups_that_are_listed_and_own() {
        let plan = RestorePlan::new(&manifest(), range(2, 5)).unwrap();
        assert_eq!(planned(&plan), [(9, vec![4, 5]), (5, vec![2, 3]), (1, vec![4, 5])], "P2: newest first");
        assert_eq!(plan.bytes(), 15);
    }

    #[test]
    fn a_scale_in_unites_the_listings_and_widens_none() {
        let plan = RestorePlan::new(&manifest(), range(0, 7)).unwrap();
        let expected = [(9, vec![4, 5, 6, 7]), (5, vec![0, 1, 2, 3]), (1, vec![1, 4, 5, 6, 7])];
        assert_eq!(planned(&plan), expected, "P1: no listing is widened");
    }

    #[test]
    fn a_group_that_nothing_lists_needs_no_file() {
        let mut manifest = manifest();
        manifest.subtasks.pop();
        assert!(RestorePlan::new(&manifest, range(6, 7)).unwrap().files.is_empty());
    }

    #[test]
    fn an_element_of_an_unknown_file_is_an_error() {
        let mut manifest = manifest();
        manifest.files.truncate(1);
        assert!(RestorePlan::new(&manifest, range(0, 7)).is_err());
    }
}
