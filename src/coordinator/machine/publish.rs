//! All subtasks have acknowledged: the manifest, and what follows once it is published.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lowtide_format::{
    CheckpointId, CheckpointKind, Element, FileId, KeyGrouping, LocalFile, Manifest, ManifestFile,
    ObjectName, PublishedRef, StateDescriptor, SubtaskPart,
};
use lowtide_registry::{Holder, Owner};

use super::{Completed, Doubt, Machine, Truth};
use crate::clock::Millis;
use crate::coordinator::acknowledgement::Acknowledgement;
use crate::coordinator::event::{AbortReason, Event};
use crate::coordinator::pending::{Pending, Progress};
use crate::coordinator::view::View;
use crate::error::{Error, Result};

/// A manifest to be published.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) manifest: Manifest,
    /// Listed files that no published manifest lists.
    pub(crate) unpublished: Vec<FileId>,
    /// Those among them that were acknowledged for an earlier checkpoint: somebody may have taken them away.
    pub(crate) unproven: Vec<FileId>,
}

impl Machine {
    /// The manifest of a checkpoint that everybody has acknowledged. Its publish counts as begun.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if the checkpoint is not pending or its parts do not fit together.
    pub(crate) fn begin_publish(&mut self, id: CheckpointId, now: Millis) -> Result<Draft> {
        let manifest = self.manifest_of(id, now)?;
        let base =
            self.newest_own().and_then(|id| self.checkpoints.get(&id)).and_then(|base| base.view.as_ref());
        let published = |file: &FileId| {
            base.is_some_and(|view| view.files.contains_key(file))
                || self
                    .registry
                    .is_listed(file, |holder| matches!(holder, Holder::Checkpoint(_) | Holder::Savepoint(_)))
        };
        let files = manifest.files.iter();
        let unpublished: Vec<&ManifestFile> = files.filter(|file| !published(&file.entry.id())).collect();
        let earlier = unpublished.iter().filter(|file| file.checkpoint != id);
        let unproven = earlier.map(|file| file.entry.id()).collect();
        let unpublished = unpublished.into_iter().map(|file| file.entry.id()).collect();
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.progress = Progress::Publishing;
        }
        Ok(Draft { manifest, unpublished, unproven })
    }

    fn manifest_of(&self, id: CheckpointId, now: Millis) -> Result<Manifest> {
        let pending =
            self.pending.get(&id).ok_or_else(|| Error::not_found(format!("{id} is not pending")))?;
        let files = listed_files(pending);
        let index: HashMap<(&ObjectName, u64), u32> = files
            .iter()
            .zip(0..)
            .map(|(file, index)| ((&file.entry.object, file.entry.offset), index))
            .collect();
        let position = |file: &FileId| {
            index.get(&(&file.object, file.offset)).copied().ok_or_else(|| {
                Error::invalid_argument(format!("{id} lists {}, which nobody has described", file.object))
            })
        };
        let mut subtasks = Vec::with_capacity(pending.parts.len());
        for (subtask, part) in &pending.parts {
            let Some(range) = self.options.subtasks.get(*subtask as usize).copied() else { continue };
            let element = |element: &crate::coordinator::AcknowledgedElement| {
                Ok(Element {
                    file: position(&element.file)?,
                    key_groups: element.key_groups.clone(),
                    live_puts: element.live_puts,
                    live_tombstones: element.live_tombstones,
                    live_clears: element.live_clears,
                })
            };
            let elements = part.elements.iter().map(element).collect::<Result<Vec<_>>>()?;
            let local_file =
                |(name, file): &(String, FileId)| Ok(LocalFile { name: name.clone(), file: position(file)? });
            let local_files = part.private.iter().map(local_file).collect::<Result<Vec<_>>>()?;
            subtasks.push(SubtaskPart {
                index: *subtask,
                range,
                elements,
                local_files,
                entries: part.entries,
            });
        }
        Ok(Manifest {
            checkpoint: id,
            generation: self.generation,
            kind: pending.kind,
            base: pending.trigger(self.generation).base(),
            job: self.options.job.clone(),
            key_groups: self.options.key_groups,
            key_grouping: KeyGrouping::Xxh3,
            created_millis: now.0,
            unclaimed: self.unclaimed() && pending.is_savepoint(),
            backend: self.options.backend.clone(),
            states: states_of(pending.parts.values())?,
            files,
            subtasks,
        })
    }

    /// What will be true once `reference` is published: retention has done its work.
    pub(crate) fn truth_with(&self, reference: &PublishedRef, view: &View) -> Truth {
        let subsumed = self.subsumed_by(reference);
        let mut truth = self.truth();
        let names = self.freed_by(&subsumed, |file| view.files.contains_key(file));
        let room = super::truth::TRASH_MAX.saturating_sub(truth.trash.len());
        truth.trash.extend(names.into_iter().take(room));
        if reference.kind == CheckpointKind::Savepoint {
            truth.savepoints.push(reference.clone());
        } else {
            truth.checkpoints.retain(|kept| !subsumed.contains(&kept.checkpoint));
            truth.checkpoints.push(reference.clone());
        }
        truth.next_checkpoint = truth.next_checkpoint.max(above(reference.checkpoint));
        truth.checkpoints.sort_unstable_by_key(|reference| reference.checkpoint);
        truth.savepoints.sort_unstable_by_key(|reference| reference.checkpoint);
        truth
    }

    /// The checkpoints that retention lets go when `reference` is published, ascending.
    fn subsumed_by(&self, reference: &PublishedRef) -> Vec<CheckpointId> {
        if reference.kind == CheckpointKind::Savepoint {
            return Vec::new();
        }
        let own = self.checkpoints.iter().filter(|(_, completed)| completed.owner != Owner::Foreign);
        let mut completed: Vec<CheckpointId> = own.map(|(id, _)| *id).collect();
        completed.push(reference.checkpoint);
        completed.sort_unstable();
        self.options.retained.subsumed(&completed)
    }

    /// The checkpoint is published: registers it, lets go what retention no longer keeps and what it overtakes.
    ///
    /// # Errors
    ///
    /// The registry's; the checkpoint is published nevertheless.
    pub(crate) fn published(
        &mut self,
        reference: PublishedRef,
        view: Arc<View>,
        doubt: Option<&Doubt>,
        now: Millis,
    ) -> Result<Vec<Event>> {
        let id = reference.checkpoint;
        let savepoint = reference.kind == CheckpointKind::Savepoint;
        let subsumed = self.subsumed_by(&reference);
        let holder = if savepoint { Holder::Savepoint(id) } else { Holder::Checkpoint(id) };
        self.register(holder, &view)?;
        let pending = self.pending.remove(&id);
        if let Some(pending) = pending.as_ref().or(doubt.map(|doubt| &*doubt.pending)) {
            self.let_go(pending, None);
        }
        let completed = Completed { reference, view: Some(view), owner: Owner::Coordinator };
        self.published_below = self.published_below.max(above(id));
        self.next_id = self.next_id.max(self.published_below);
        let mut events = vec![Event::Completed(id)];
        if savepoint {
            self.savepoints.insert(id, Completed { view: None, ..completed });
            return Ok(events);
        }
        self.schedule.completed(id, now);
        self.checkpoints.insert(id, completed);
        self.forget_old_views();
        events.extend(self.drop_checkpoints(&subsumed).into_iter().map(Event::Subsumed));
        let older = self.pending.range(..id).filter(|(_, pending)| !pending.is_savepoint());
        for overtaken in older.map(|(id, _)| *id).collect::<Vec<_>>() {
            events.extend(self.abort(overtaken, AbortReason::Overtaken));
        }
        Ok(events)
    }

    fn register(&mut self, holder: Holder, view: &View) -> Result<()> {
        let base = self.newest_own();
        let base_view = base.and_then(|id| self.checkpoints.get(&id)).and_then(|base| base.view.clone());
        let (base, removed) = match (base, &base_view) {
            (Some(base), Some(base_view)) if matches!(holder, Holder::Checkpoint(_)) => {
                let gone = base_view.files.keys().filter(|file| !view.files.contains_key(*file));
                (Some(Holder::Checkpoint(base)), gone.cloned().collect())
            }
            _ => (None, Vec::new()),
        };
        let known = |file: &FileId| base_view.as_ref().is_some_and(|base| base.files.contains_key(file));
        let added: Vec<(FileId, Owner)> = view
            .files
            .keys()
            .filter(|file| base.is_none() || !known(file))
            .map(|file| (file.clone(), self.registry.owner(&file.object).unwrap_or(Owner::Coordinator)))
            .collect();
        Ok(self.registry.register(holder, base, added, &removed)?)
    }

    /// Lets these completed checkpoints or savepoints go; returns those that were there.
    pub(crate) fn drop_checkpoints(&mut self, gone: &[CheckpointId]) -> Vec<CheckpointId> {
        let mut dropped = Vec::new();
        for id in gone {
            let holder = self.holder(*id);
            let Some(completed) = self.checkpoints.remove(id).or_else(|| self.savepoints.remove(id)) else {
                continue;
            };
            let released = self.registry.release(holder);
            let ours = completed.owner != Owner::Foreign || matches!(holder, Holder::Savepoint(_));
            let manifests = if ours { vec![completed.reference.manifest] } else { Vec::new() };
            self.free.add(manifests, released.objects);
            dropped.push(*id);
        }
        dropped
    }

    /// Completed checkpoints that a claim has left behind are let go.
    pub(crate) fn abandon(&mut self, abandoned: &[PublishedRef]) {
        for reference in abandoned {
            let released = self.registry.release(Holder::Checkpoint(reference.checkpoint));
            let manifests = if reference.owned { vec![reference.manifest.clone()] } else { Vec::new() };
            self.free.add(manifests, released.objects);
        }
    }

    /// Only the newest checkpoint is ever a base.
    fn forget_old_views(&mut self) {
        let newest = self.newest_own();
        for (id, completed) in &mut self.checkpoints {
            if Some(*id) != newest {
                completed.view = None;
            }
        }
    }
}

/// The id after `id`. The last id is never given out, so there is one.
fn above(id: CheckpointId) -> CheckpointId {
    id.next().unwrap_or(CheckpointId::MAX)
}

/// The files that all parts list, each once, by checkpoint and then by name.
fn listed_files(pending: &Pending) -> Vec<ManifestFile> {
    let mut files: Vec<&ManifestFile> = Vec::new();
    for (subtask, part) in &pending.parts {
        let new: HashMap<FileId, &ManifestFile> =
            part.files.iter().map(|file| (file.entry.id(), file)).collect();
        let base = pending.base(*subtask).filter(|base| part.base == Some(base.id));
        let kept = |id: &FileId| base.and_then(|base| base.view.files.get(id)).map(|listed| &*listed.file);
        files.extend(part.listed().filter_map(|id| new.get(id).copied().or_else(|| kept(id))));
    }
    fn order(file: &ManifestFile) -> (CheckpointId, &ObjectName, u64) {
        (file.checkpoint, &file.entry.object, file.entry.offset)
    }
    files.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
    files.dedup_by(|a, b| a.entry.object == b.entry.object && a.entry.offset == b.entry.offset);
    files.into_iter().cloned().collect()
}

/// The states of all parts, each once, by name.
fn states_of<'a>(parts: impl Iterator<Item = &'a Acknowledgement>) -> Result<Vec<StateDescriptor>> {
    let mut states: BTreeMap<String, StateDescriptor> = BTreeMap::new();
    for state in parts.flat_map(|part| &part.states) {
        let known = states.entry(state.name.clone()).or_insert_with(|| state.clone());
        if known != state {
            return Err(Error::incompatible(format!(
                "state {} has other codecs in one subtask than in another",
                state.name
            )));
        }
    }
    Ok(states.into_values().collect())
}
