//! What a base lists, by file: the measure of every acknowledgement taken against it.

use std::collections::HashMap;
use std::sync::Arc;

use lowtide_format::{CheckpointId, FileId, KeyGroupSet, Manifest, ManifestFile};

use super::acknowledgement::Acknowledgement;

/// One listed file: its description, and the key groups for which some subtask lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub(crate) file: Arc<ManifestFile>,
    pub(crate) key_groups: KeyGroupSet,
}

/// The files that a checkpoint, or one subtask's chain, lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) files: HashMap<FileId, ListedFile>,
}

impl View {
    /// What a manifest lists, all subtasks together. Cost: O(elements).
    pub(crate) fn of_manifest(manifest: &Manifest) -> Self {
        let mut key_groups = vec![KeyGroupSet::new(); manifest.files.len()];
        for element in manifest.subtasks.iter().flat_map(|part| &part.elements) {
            if let Some(known) = key_groups.get_mut(element.file as usize) {
                *known = if known.is_empty() {
                    element.key_groups.clone()
                } else {
                    known.union(&element.key_groups)
                };
            }
        }
        let listed = |(file, key_groups): (&ManifestFile, KeyGroupSet)| {
            (file.entry.id(), ListedFile { file: Arc::new(file.clone()), key_groups })
        };
        Self { files: manifest.files.iter().zip(key_groups).map(listed).collect() }
    }

    /// What one subtask's acknowledgement lists, its kept files being those of `base`.
    pub(crate) fn of_acknowledgement(part: &Acknowledgement, base: Option<&Self>) -> Self {
        let new: HashMap<FileId, Arc<ManifestFile>> =
            part.files.iter().map(|file| (file.entry.id(), Arc::new(file.clone()))).collect();
        let known = |id: &FileId| {
            let kept = || base.and_then(|base| base.files.get(id)).map(|listed| listed.file.clone());
            new.get(id).cloned().or_else(kept)
        };
        let mut view = Self::default();
        for element in &part.elements {
            if let Some(file) = known(&element.file) {
                view.list(file, Some(&element.key_groups));
            }
        }
        for (_, id) in &part.private {
            if let Some(file) = known(id) {
                view.list(file, None);
            }
        }
        view
    }

    fn list(&mut self, file: Arc<ManifestFile>, key_groups: Option<&KeyGroupSet>) {
        let listed = self
            .files
            .entry(file.entry.id())
            .or_insert_with(|| ListedFile { file, key_groups: KeyGroupSet::new() });
        if let Some(key_groups) = key_groups {
            listed.key_groups = if listed.key_groups.is_empty() {
                key_groups.clone()
            } else {
                listed.key_groups.union(key_groups)
            };
        }
    }
}

/// A base of one subtask's delta.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) id: CheckpointId,
    pub(crate) view: Arc<View>,
}
