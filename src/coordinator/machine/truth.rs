//! What a member of the sequence says, before it has a number.

use lowtide_format::{CheckpointId, FileId, ObjectName, PublishedRef, RestoredFrom, SequenceMember};
use lowtide_registry::{Holder, Owner};

use super::{Completed, Machine};

/// At most this many names are handed on for deletion; more are left to a sweep.
pub(super) const TRASH_MAX: usize = 1_000;

/// What is true of a directory: the content of a member of the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Completed checkpoints, ascending.
    pub(crate) checkpoints: Vec<PublishedRef>,
    /// Savepoints, ascending.
    pub(crate) savepoints: Vec<PublishedRef>,
    /// Where the job was restored from, if it was.
    pub(crate) restored_from: Option<RestoredFrom>,
    /// One above the largest id published in the directory, whoever published it.
    pub(crate) next_checkpoint: CheckpointId,
    /// Free to be deleted, and perhaps not deleted yet.
    pub(crate) trash: Vec<ObjectName>,
}

impl Default for Truth {
    /// An empty directory.
    fn default() -> Self {
        Self {
            checkpoints: Vec::new(),
            savepoints: Vec::new(),
            restored_from: None,
            next_checkpoint: CheckpointId::FIRST,
            trash: Vec::new(),
        }
    }
}

impl From<SequenceMember> for Truth {
    fn from(member: SequenceMember) -> Self {
        let SequenceMember { checkpoints, savepoints, restored_from, next_checkpoint, trash, .. } = member;
        Self { checkpoints, savepoints, restored_from, next_checkpoint, trash }
    }
}

impl Machine {
    /// What is true now.
    pub(crate) fn truth(&self) -> Truth {
        let references = |completed: &Completed| completed.reference.clone();
        Truth {
            checkpoints: self.checkpoints.values().map(references).collect(),
            savepoints: self.savepoints.values().map(references).collect(),
            restored_from: self.restored_from.clone(),
            next_checkpoint: self.published_below,
            trash: self.free.names().take(TRASH_MAX).cloned().collect(),
        }
    }

    /// What will be true without these checkpoints or savepoints.
    pub(crate) fn truth_without(&self, gone: &[CheckpointId]) -> Truth {
        let mut truth = self.truth();
        let names = self.freed_by(gone, |_| false);
        truth.trash.extend(names.into_iter().take(TRASH_MAX.saturating_sub(truth.trash.len())));
        truth.checkpoints.retain(|reference| !gone.contains(&reference.checkpoint));
        truth.savepoints.retain(|reference| !gone.contains(&reference.checkpoint));
        truth
    }

    /// Names that no published checkpoint lists once `gone` are gone, except those that `listed` says are listed anew: what
    /// `gone` list, and what only checkpoints in flight still pin because a checkpoint before these is gone.
    ///
    /// Pins and pending checkpoints do not keep a name: they end with this coordinator, and only a later one reads this.
    pub(super) fn freed_by(
        &self,
        gone: &[CheckpointId],
        listed: impl Fn(&FileId) -> bool,
    ) -> Vec<ObjectName> {
        let holders: Vec<Holder> = gone.iter().map(|id| self.holder(*id)).collect();
        let stays = |holder: Holder| {
            matches!(holder, Holder::Checkpoint(_) | Holder::Savepoint(_)) && !holders.contains(&holder)
        };
        // A related set that stays makes the comparison cheap.
        let related = self.newest_own().map(Holder::Checkpoint).filter(|holder| stays(*holder));
        let completed =
            gone.iter().filter_map(|id| self.checkpoints.get(id).or_else(|| self.savepoints.get(id)));
        let manifests = completed.map(|completed| completed.reference.manifest.clone());
        let pins = self.pending.values().flat_map(|pending| &pending.pins).map(|pin| Holder::Pin(*pin));
        let mut objects = Vec::new();
        for holder in holders.iter().copied().chain(pins) {
            // Nearly all files of a base are listed anew: that is asked first.
            let files: Vec<FileId> = match related {
                Some(related) => self.registry.difference(holder, related),
                None => self.registry.files(holder).filter(|file| !listed(file)).cloned().collect(),
            };
            let free = files.into_iter().filter(|file| {
                !listed(file)
                    && self.registry.owner(&file.object) != Some(Owner::Foreign)
                    && !self.registry.is_listed(file, stays)
            });
            objects.extend(free.map(|file| file.object));
        }
        objects.sort_unstable();
        objects.dedup();
        manifests.chain(objects).collect()
    }

    /// Who holds the files of a completed checkpoint or savepoint.
    pub(crate) fn holder(&self, id: CheckpointId) -> Holder {
        if self.savepoints.contains_key(&id) { Holder::Savepoint(id) } else { Holder::Checkpoint(id) }
    }
}
