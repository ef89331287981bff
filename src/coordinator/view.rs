//! What a base lists, by file: the measure of every acknowledgement taken against it.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use lowtide_format::{CheckpointId, FileId, KeyGroupSet, Manifest, ManifestFile};

use super::acknowledgement::AcknowledgedElement;

/// One listed file: its description, and the key groups for which some subtask lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub(crate) file: Arc<ManifestFile>,
    pub(crate) key_groups: KeyGroupSet,
}

impl ListedFile {
    pub(crate) fn id(&self) -> FileId {
        self.file.entry.id()
    }
}

/// The files that a checkpoint, or one subtask's chain, lists, each at its position.
///
/// Every acknowledged element is looked up here, tens of thousands in a checkpoint of a large job, hence the faster
/// hasher; its seed is random, as names come from the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    files: Vec<ListedFile>,
    positions: HashMap<FileId, u32, DefaultHashBuilder>,
    /// Completed checkpoints, ascending: those that the manifest names, and its own. Empty for an acknowledgement.
    pub(crate) completed: Vec<CheckpointId>,
}

impl View {
    /// What a manifest lists, all subtasks together. Cost: O(elements).
    pub(crate) fn of_manifest(manifest: &Manifest) -> Self {
        let mut view = Self::with_capacity(manifest.files.len());
        for file in &manifest.files {
            view.list(Arc::new(file.clone()), None);
        }
        for element in manifest.subtasks.iter().flat_map(|part| &part.elements) {
            if let Some(listed) = view.files.get_mut(element.file as usize) {
                widen(&mut listed.key_groups, &element.key_groups);
            }
        }
        view.complete(manifest);
        view
    }

    /// The checkpoint of the manifest, whose files these are, has completed after those that it names.
    pub(crate) fn complete(&mut self, manifest: &Manifest) {
        self.completed.clone_from(&manifest.completed);
        self.completed.push(manifest.checkpoint);
    }

    /// The listed files that this one can be a copy of: several if subtasks that listed one file together have each
    /// copied it already. O(files).
    pub(crate) fn originals_of(&self, copy: &ManifestFile) -> impl Iterator<Item = &ListedFile> {
        let content = |file: &ManifestFile| {
            (file.checkpoint, file.entry.kind, file.entry.length, file.entry.checksum, file.records)
        };
        let wanted = content(copy);
        self.files().filter(move |listed| content(&listed.file) == wanted)
    }

    /// What one subtask's acknowledgement lists: `files` describes its elements, and then its private files.
    pub(crate) fn of_acknowledgement(elements: &[AcknowledgedElement], files: &[Arc<ManifestFile>]) -> Self {
        let mut view = Self::with_capacity(files.len());
        let key_groups = elements.iter().map(|element| Some(&element.key_groups));
        for (file, key_groups) in files.iter().zip(key_groups.chain(std::iter::repeat(None))) {
            view.list(Arc::clone(file), key_groups);
        }
        view
    }

    pub(crate) fn with_capacity(files: usize) -> Self {
        let positions = HashMap::with_capacity_and_hasher(files, DefaultHashBuilder::default());
        Self { files: Vec::with_capacity(files), positions, completed: Vec::new() }
    }

    /// Lists a file, for these key groups as well; returns its position.
    pub(crate) fn list(&mut self, file: Arc<ManifestFile>, key_groups: Option<&KeyGroupSet>) -> u32 {
        let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let position = *self.positions.entry(file.entry.id()).or_insert(next);
        if position == next {
            self.files.push(ListedFile { file, key_groups: KeyGroupSet::new() });
        }
        if let (Some(key_groups), Some(listed)) = (key_groups, self.files.get_mut(position as usize)) {
            widen(&mut listed.key_groups, key_groups);
        }
        position
    }

    /// Puts the files in the order of their checkpoints; returns the new position of each, by its old one.
    pub(crate) fn order_by_checkpoint(&mut self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        order.sort_by_key(|position| self.files.get(*position).map(|listed| listed.file.checkpoint));
        let mut moved = vec![0; order.len()];
        for (new, old) in (0..).zip(&order) {
            if let Some(place) = moved.get_mut(*old) {
                *place = new;
            }
        }
        let mut unordered: Vec<Option<ListedFile>> = self.files.drain(..).map(Some).collect();
        let taken = |old: usize| unordered.get_mut(old).and_then(Option::take);
        self.files = order.into_iter().filter_map(taken).collect();
        for position in self.positions.values_mut() {
            *position = moved.get(*position as usize).copied().unwrap_or(*position);
        }
        moved
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn get(&self, file: &FileId) -> Option<&ListedFile> {
        self.position(file).and_then(|position| self.files.get(position as usize))
    }

    pub(crate) fn position(&self, file: &FileId) -> Option<u32> {
        self.positions.get(file).copied()
    }

    pub(crate) fn lists(&self, file: &FileId) -> bool {
        self.positions.contains_key(file)
    }

    /// The files, in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &ListedFile> + '_ {
        self.files.iter()
    }
}

fn widen(known: &mut KeyGroupSet, key_groups: &KeyGroupSet) {
    *known = if known.is_empty() { key_groups.clone() } else { known.union(key_groups) };
}

/// A base of one subtask's delta.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) id: CheckpointId,
    pub(crate) view: Arc<View>,
}
