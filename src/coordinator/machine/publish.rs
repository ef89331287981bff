//! All subtasks have acknowledged: the manifest, and what follows once it is published.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use lowtide_format::{
    CheckpointId, CheckpointKind, Element, FileId, KeyGrouping, LocalFile, Manifest, PublishedRef,
    StateDescriptor, SubtaskPart,
};
use lowtide_registry::{Holder, Owner};

use super::{Completed, Doubt, Machine, Truth};
use crate::clock::Millis;
use crate::coordinator::acknowledgement::Acknowledgement;
use crate::coordinator::event::{AbortReason, Event};
use crate::coordinator::pending::{Part, Pending, Progress};
use crate::coordinator::view::{ListedFile, View};
use crate::error::{Error, Result};

/// A manifest to be published.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) manifest: Manifest,
    /// What it lists.
    pub(crate) view: View,
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
        let pending =
            self.pending.get(&id).ok_or_else(|| Error::not_found(format!("{id} is not pending")))?;
        let (mut view, subtasks) = self.listed_by(pending);
        let newest = self.newest_own();
        // What was kept from the newest checkpoint is published: nearly everything, and not looked up again.
        let settled = pending.parts.values().all(|part| {
            let base = part.acknowledgement.base;
            base.is_none() || base == newest
        });
        // Copies of earlier segments are as new as those of this checkpoint.
        let described = pending.parts.values().flat_map(|part| &part.acknowledgement.files);
        let copies: HashSet<FileId> =
            described.filter(|file| file.checkpoint != id).map(|file| file.entry.id()).collect();
        let earlier = |listed: &&ListedFile| listed.file.checkpoint != id && !copies.contains(&listed.id());
        let unproven = match settled {
            true => Vec::new(),
            false => self.unpublished(view.files().filter(earlier).map(ListedFile::id)),
        };
        let new = view.files().filter(|listed| !earlier(listed)).map(ListedFile::id);
        let unpublished = unproven.iter().cloned().chain(new).collect();
        let manifest = self.manifest_of(pending, &view, subtasks, now)?;
        view.complete(&manifest);
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.progress = Progress::Publishing;
        }
        Ok(Draft { manifest, view, unpublished, unproven })
    }

    /// Those of `files` that no published checkpoint or savepoint lists.
    pub(crate) fn unpublished(&self, files: impl Iterator<Item = FileId>) -> Vec<FileId> {
        let newest = self.newest_own().and_then(|id| self.checkpoints.get(&id));
        let newest = newest.and_then(|newest| newest.view.as_ref());
        let published = |file: &FileId| {
            newest.is_some_and(|view| view.lists(file))
                || self
                    .registry
                    .is_listed(file, |holder| matches!(holder, Holder::Checkpoint(_) | Holder::Savepoint(_)))
        };
        files.filter(|file| !published(file)).collect()
    }

    /// The files that all parts list, each once, and the parts as a manifest says them.
    fn listed_by(&self, pending: &Pending) -> (View, Vec<SubtaskPart>) {
        let mut view = View::with_capacity(pending.parts.values().map(|part| part.files.len()).sum());
        let mut subtasks = Vec::with_capacity(pending.parts.len());
        for (subtask, Part { acknowledgement: part, files }) in &pending.parts {
            let Some(range) = self.options.subtasks.get(*subtask as usize).copied() else { continue };
            let mut files = files.iter().map(Arc::clone);
            let elements = part.elements.iter().zip(files.by_ref());
            let elements = elements.map(|(element, file)| Element {
                file: view.list(file, Some(&element.key_groups)),
                key_groups: element.key_groups.clone(),
                live_puts: element.live_puts,
                live_tombstones: element.live_tombstones,
                live_clears: element.live_clears,
            });
            let elements = elements.collect();
            let local_files = part.private.iter().zip(files);
            let local_files = local_files
                .map(|((name, _), file)| LocalFile { name: name.clone(), file: view.list(file, None) })
                .collect();
            subtasks.push(SubtaskPart {
                index: *subtask,
                range,
                elements,
                local_files,
                entries: part.entries,
            });
        }
        let moved = view.order_by_checkpoint();
        let place = |file: &mut u32| *file = moved.get(*file as usize).copied().unwrap_or(*file);
        for part in &mut subtasks {
            part.elements.iter_mut().for_each(|element| place(&mut element.file));
            part.local_files.iter_mut().for_each(|local| place(&mut local.file));
        }
        (view, subtasks)
    }

    fn manifest_of(
        &self,
        pending: &Pending,
        view: &View,
        subtasks: Vec<SubtaskPart>,
        now: Millis,
    ) -> Result<Manifest> {
        Ok(Manifest {
            checkpoint: pending.id,
            generation: self.generation,
            kind: pending.kind,
            base: pending.parts.values().filter_map(|part| part.acknowledgement.base).min(),
            job: self.options.job.clone(),
            key_groups: self.options.key_groups,
            key_grouping: KeyGrouping::Xxh3,
            created_millis: now.0,
            unclaimed: self.unclaimed() && pending.is_savepoint(),
            completed: self.completed_before(pending.id, view),
            backend: self.options.backend.clone(),
            states: states_of(pending.parts.values().map(|part| &part.acknowledgement))?,
            files: view.files().map(|listed| (*listed.file).clone()).collect(),
            subtasks,
        })
    }

    /// The completed checkpoints before `id`, as far back as one of the files was written.
    fn completed_before(&self, id: CheckpointId, view: &View) -> Vec<CheckpointId> {
        let newest = self.newest_own().and_then(|id| self.checkpoints.get(&id)?.view.as_ref());
        let completed = newest.map(|view| view.completed.as_slice()).unwrap_or_default();
        let oldest = view.files().next().map_or(id, |listed| listed.file.checkpoint);
        let from = completed.partition_point(|done| *done < oldest);
        let end = completed.partition_point(|done| *done < id);
        let named = completed.get(from..end).unwrap_or_default();
        named.split_at(named.len().saturating_sub(Manifest::COMPLETED_MAX)).1.to_vec()
    }

    /// What will be true once `reference` is published: retention has done its work.
    pub(crate) fn truth_with(&self, reference: &PublishedRef, view: &View) -> Truth {
        let subsumed = self.subsumed_by(reference);
        let mut truth = self.truth();
        let names = self.freed_by(&subsumed, |file| view.lists(file));
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
        if let Some(pending) = pending.as_deref().or(doubt.map(|doubt| &*doubt.pending)) {
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
        let older = self.pending.iter().filter(|(other, pending)| **other < id && !pending.is_savepoint());
        for overtaken in older.map(|(id, _)| *id).collect::<Vec<_>>() {
            events.extend(self.abort(overtaken, AbortReason::Overtaken));
        }
        Ok(events)
    }

    /// Registers what `view` lists, as changes against the newest checkpoint.
    fn register(&mut self, holder: Holder, view: &View) -> Result<()> {
        let base = self.newest_own().filter(|_| matches!(holder, Holder::Checkpoint(_)));
        let base_view = base.and_then(|id| self.checkpoints.get(&id)).and_then(|base| base.view.clone());
        let mut gone = vec![true; base_view.as_ref().map_or(0, |base| base.len())];
        let mut added: Vec<(FileId, Owner)> = Vec::new();
        for file in view.files().map(ListedFile::id) {
            let known = base_view.as_ref().and_then(|base| base.position(&file));
            match known.and_then(|position| gone.get_mut(position as usize)) {
                Some(gone) => *gone = false,
                None => {
                    let owner = self.registry.owner(&file.object).unwrap_or(Owner::Coordinator);
                    added.push((file, owner));
                }
            }
        }
        let removed: Vec<FileId> = match &base_view {
            Some(base) => {
                base.files().zip(gone).filter(|(_, gone)| *gone).map(|(file, _)| file.id()).collect()
            }
            None => Vec::new(),
        };
        let base = base.filter(|_| base_view.is_some()).map(Holder::Checkpoint);
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
