//! What may be deleted, and by whom.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_format::ObjectName;
use lowtide_registry::{FreeObject, Owner, Registry};

/// Objects to be deleted together: the manifests first, so that no reader finds a manifest without its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) manifests: Vec<ObjectName>,
    pub(crate) objects: Vec<ObjectName>,
}

/// What may be deleted and has not been handed out yet (coordinator), or not been confirmed yet (participants).
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeList {
    batches: Vec<Batch>,
    participants: BTreeMap<u32, BTreeSet<ObjectName>>,
}

impl FreeList {
    pub(crate) fn add(&mut self, manifests: Vec<ObjectName>, objects: Vec<FreeObject>) {
        let mut batch = Batch { manifests, objects: Vec::new() };
        for FreeObject { object, owner } in objects {
            match owner {
                Owner::Coordinator => batch.objects.push(object),
                Owner::Participant(subtask) => {
                    self.participants.entry(subtask).or_default().insert(object);
                }
                Owner::Foreign => {}
            }
        }
        if batch != Batch::default() {
            self.batches.push(batch);
        }
    }

    /// What a former coordinator had set free. What is listed again (it cannot be, unless the object lies) stays.
    pub(crate) fn add_trash(&mut self, trash: Vec<ObjectName>, registry: &Registry) {
        let unlisted = trash.into_iter().filter(|object| !registry.contains_object(object));
        let batch = Batch { manifests: Vec::new(), objects: unlisted.collect() };
        if !batch.objects.is_empty() {
            self.batches.push(batch);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.batches)
    }

    pub(crate) fn of_participant(&self, subtask: u32) -> Vec<ObjectName> {
        self.participants.get(&subtask).into_iter().flatten().cloned().collect()
    }

    /// The participant has deleted these.
    pub(crate) fn cleaned(&mut self, subtask: u32, objects: &[ObjectName]) {
        if let Some(list) = self.participants.get_mut(&subtask) {
            for object in objects {
                list.remove(object);
            }
        }
    }

    /// Everything on the list.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ObjectName> + '_ {
        let batches = self.batches.iter().flat_map(|batch| batch.manifests.iter().chain(&batch.objects));
        batches.chain(self.participants.values().flatten())
    }
}
