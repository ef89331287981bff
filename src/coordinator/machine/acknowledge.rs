//! An acknowledgement arrives: from whom, against what, and whether it was the last.

use std::sync::Arc;

use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{CheckpointId, Generation};
use lowtide_registry::Holder;

use super::Machine;
use crate::coordinator::acknowledgement::Acknowledgement;
use crate::coordinator::event::{AbortReason, Event};
use crate::coordinator::options::BaseMode;
use crate::coordinator::pending::{Part, Progress};
use crate::coordinator::view::{Base, View};
use crate::error::{Error, Result};

/// What came of an acknowledgement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// Others are missing.
    Waiting,
    /// It was the last: the checkpoint is to be published.
    All,
    /// It was not for a pending checkpoint, or changed it; the events say how.
    Other(Vec<Event>),
}

impl Machine {
    /// Takes the acknowledgement of one subtask.
    ///
    /// Late, duplicate, unknown and foreign ones change nothing, and their files, if nothing lists them, are free: a
    /// file of this generation or an older one that is not listed now can never be published any more.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for a subtask that the job does not have; the registry's limit.
    pub(crate) fn acknowledge(
        &mut self,
        id: CheckpointId,
        generation: Generation,
        subtask: u32,
        part: Acknowledgement,
    ) -> Result<Acknowledged> {
        let Some(range) = self.options.subtasks.get(subtask as usize).copied() else {
            return Err(Error::invalid_argument(format!("there is no subtask {subtask}")));
        };
        let pending = self.pending.get(&id).filter(|pending| {
            (generation == self.generation || is_broken(Break::ForeignAcknowledged))
                && pending.progress == Progress::Collecting
                && !pending.parts.contains_key(&subtask)
        });
        let Some(pending) = pending else {
            if generation <= self.generation {
                self.free_unlisted(subtask, &part);
            }
            return Ok(Acknowledged::Other(vec![Event::Ignored(id)]));
        };
        let files = match pending.described(subtask, range, &part) {
            Ok(files) => files,
            Err(contradiction) => {
                tracing::warn!(checkpoint = %id, subtask, contradiction, "acknowledgement refused");
                self.free_unlisted(subtask, &part);
                return Ok(Acknowledged::Other(self.abort(id, AbortReason::Contradicted)));
            }
        };
        let part = Part { acknowledgement: part, files };
        let owner = self.owner_of_new(subtask);
        let new = &part.acknowledgement.files;
        self.registry.extend(Holder::Pending(id), new.iter().map(|file| (file.entry.id(), owner)))?;
        self.remember_chain(id, subtask, &part)?;
        let Some(pending) = self.pending.get_mut(&id) else { return Ok(Acknowledged::Waiting) };
        pending.parts.insert(subtask, part);
        let all = pending.parts.len() == self.options.subtasks.len();
        Ok(if all { Acknowledged::All } else { Acknowledged::Waiting })
    }

    /// In mode `Acknowledged`, what the subtask has acknowledged last may be its next base, and is held.
    fn remember_chain(&mut self, id: CheckpointId, subtask: u32, part: &Part) -> Result<()> {
        let Some(pending) = self.pending.get(&id) else { return Ok(()) };
        let newer_known = self.chains.get(&subtask).is_some_and(|chain| chain.id > id);
        if self.options.base_mode != BaseMode::Acknowledged || pending.is_savepoint() || newer_known {
            return Ok(());
        }
        let view = View::of_acknowledgement(&part.acknowledgement.elements, &part.files);
        let owner = self.owner_of_new(subtask);
        let files: Vec<_> = view
            .files()
            .map(|listed| (listed.id(), self.registry.owner(&listed.file.entry.object).unwrap_or(owner)))
            .collect();
        let released = self.registry.replace(Holder::Chain(subtask), files)?;
        self.free.add(Vec::new(), released.objects);
        self.chains.insert(subtask, Base { id, view: Arc::new(view) });
        Ok(())
    }

    /// The new files of an acknowledgement that nothing lists are free.
    fn free_unlisted(&mut self, subtask: u32, part: &Acknowledgement) {
        let owner = self.owner_of_new(subtask);
        let objects = part.files.iter().map(|file| file.entry.object.clone());
        let unlisted = objects.filter(|object| !self.registry.contains_object(object));
        let free = unlisted.map(|object| lowtide_registry::FreeObject { object, owner }).collect();
        self.free.add(Vec::new(), free);
    }
}
