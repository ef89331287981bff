//! The protocol as a state machine: messages in, events and decisions out. No I/O, no clock, no randomness.
//!
//! Owns: ids, pending checkpoints, bases, retention, what is free to be deleted. Does not own: making a publish real
//! (`publish`), deleting (`deletions`), which files are needed by whom (`lowtide-registry`).
//!
//! # Invariants
//!
//! - M1. Pinned: the files of every base that a pending checkpoint was triggered with are held until it ends.
//! - M2. Published: only [`Machine::published`], called after the commit point, adds a checkpoint; only there is one
//!   let go.
//! - M3. Increasing: an id is larger than every id triggered, restored from, published here or known to a participant.
//! - M4. Doubtful: while a publish is unsettled, everything that it lists is held.

mod acknowledge;
mod end;
mod free;
mod publish;
mod truth;

use std::collections::BTreeMap;
use std::sync::Arc;

use litemap::LiteMap;
use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{CheckpointId, CheckpointKind, Generation, ObjectName, PublishedRef, RestoredFrom};
use lowtide_registry::{Holder, Owner, Registry};

pub(crate) use acknowledge::Acknowledged;
pub(crate) use free::{Batch, FreeList};
pub(crate) use publish::Draft;
pub(crate) use truth::Truth;

use super::event::{Holdings, Notice, Trigger};
use super::options::{BaseMode, Cleanup, CoordinatorOptions};
use super::pending::{Pending, Progress};
use super::schedule::{Due, Schedule};
use super::view::{Base, View};
use crate::clock::Millis;
use crate::error::{Error, ErrorKind, Result};

/// A completed checkpoint or savepoint.
#[derive(Clone, Debug)]
pub(crate) struct Completed {
    pub(crate) reference: PublishedRef,
    /// What it lists; kept for the newest checkpoint only, the others are never a base.
    pub(crate) view: Option<Arc<View>>,
    pub(crate) owner: Owner,
}

/// A publish that was given up but may still have happened.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) pending: Arc<Pending>,
}

/// The state of a coordinator.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) options: CoordinatorOptions,
    pub(crate) generation: Generation,
    next_id: CheckpointId,
    /// One above the largest id published in the directory, whoever published it.
    published_below: CheckpointId,
    /// Completed checkpoints that are kept, those of others included.
    pub(crate) checkpoints: BTreeMap<CheckpointId, Completed>,
    pub(crate) savepoints: BTreeMap<CheckpointId, Completed>,
    restored_from: Option<RestoredFrom>,
    pub(crate) pending: LiteMap<CheckpointId, Box<Pending>>,
    /// By subtask: its latest acknowledged chain in this generation. Used in mode `Acknowledged` only.
    chains: BTreeMap<u32, Base>,
    pub(crate) registry: Registry,
    pub(crate) free: FreeList,
    schedule: Schedule,
}

impl Machine {
    /// A coordinator of `generation` that starts with what `truth` says, whose files `registry` holds. `base` is the
    /// view of the newest checkpoint of its own.
    pub(crate) fn new(
        options: CoordinatorOptions,
        generation: Generation,
        truth: Truth,
        registry: Registry,
        base: Option<View>,
    ) -> Self {
        let restored = truth.restored_from.as_ref().map(|from| from.checkpoint);
        let known = restored.max(options.known_id_max).and_then(CheckpointId::next);
        let known = known.filter(|_| !is_broken(Break::IdReused));
        let next_id = known.max(Some(truth.next_checkpoint)).unwrap_or(CheckpointId::FIRST);
        let completed = |reference: PublishedRef| {
            let owner = if reference.owned { Owner::Coordinator } else { Owner::Foreign };
            (reference.checkpoint, Completed { reference, view: None, owner })
        };
        let mut machine = Self {
            options,
            generation,
            next_id,
            published_below: truth.next_checkpoint,
            checkpoints: truth.checkpoints.into_iter().map(completed).collect(),
            savepoints: truth.savepoints.into_iter().map(completed).collect(),
            restored_from: truth.restored_from,
            pending: LiteMap::new_vec(),
            chains: BTreeMap::new(),
            registry,
            free: FreeList::default(),
            schedule: Schedule::default(),
        };
        machine.free.add_trash(truth.trash, &machine.registry);
        if let (Some(id), Some(view)) = (machine.newest_own(), base)
            && let Some(newest) = machine.checkpoints.get_mut(&id)
        {
            newest.view = Some(Arc::new(view));
        }
        machine
    }

    /// Whether the job was restored from a checkpoint that is not ours, and nothing has completed since: every
    /// checkpoint is full then.
    pub(crate) fn unclaimed(&self) -> bool {
        self.restored_from.as_ref().is_some_and(|from| !from.claimed) && self.newest_own().is_none()
    }

    /// The newest completed checkpoint that is ours.
    pub(crate) fn newest_own(&self) -> Option<CheckpointId> {
        let own = |(_, completed): &(&CheckpointId, &Completed)| completed.owner != Owner::Foreign;
        self.checkpoints.iter().rev().find(own).map(|(id, _)| *id)
    }

    /// The completed checkpoints that are ours, ascending.
    pub(crate) fn own_checkpoints(&self) -> Vec<CheckpointId> {
        let own = self.checkpoints.iter().filter(|(_, completed)| completed.owner != Owner::Foreign);
        own.map(|(id, _)| *id).collect()
    }

    /// The oldest completed checkpoint of ours that is kept.
    pub(crate) fn lowest_retained(&self) -> Option<CheckpointId> {
        let own = |(_, completed): &(&CheckpointId, &Completed)| completed.owner != Owner::Foreign;
        self.checkpoints.iter().find(own).map(|(id, _)| *id)
    }

    /// Takes the next id, or the host's own, and the bases, and pins them.
    ///
    /// # Errors
    ///
    /// `invalid-argument` beyond the number of concurrent checkpoints, or if the host's id is not above all earlier
    /// ones; `limit-exceeded` when the ids are used up.
    pub(crate) fn trigger(
        &mut self,
        kind: CheckpointKind,
        host_id: Option<CheckpointId>,
        now: Millis,
    ) -> Result<Trigger> {
        if self.is_full(kind) {
            return Err(Error::invalid_argument(format!(
                "{} checkpoints are pending already, at most {} may be",
                self.in_flight(),
                self.options.concurrent_max
            )));
        }
        let id = self.take_id(host_id)?;
        let unclaimed = self.unclaimed() && kind == CheckpointKind::Checkpoint;
        let kind = if unclaimed { CheckpointKind::Full } else { kind };
        let (bases, pins) = self.choose_bases(kind)?;
        let pending = Pending {
            id,
            kind,
            triggered: now,
            bases,
            pins,
            parts: BTreeMap::new(),
            progress: Progress::Collecting,
            manifest: None,
        };
        let trigger = pending.trigger(self.generation);
        if kind != CheckpointKind::Savepoint {
            self.schedule.triggered(now);
        }
        self.pending.insert(id, Box::new(pending));
        Ok(trigger)
    }

    fn take_id(&mut self, host_id: Option<CheckpointId>) -> Result<CheckpointId> {
        let next = self.next_id;
        let id = host_id.unwrap_or(next);
        if id < next {
            return Err(Error::invalid_argument(format!(
                "{id} is not above all earlier ids, the next is {next}"
            )));
        }
        self.next_id = id
            .next()
            .ok_or_else(|| Error::new(ErrorKind::LimitExceeded, "all checkpoint ids are used up"))?;
        Ok(id)
    }

    /// M1: bases and pins for each subtask.
    fn choose_bases(
        &mut self,
        kind: CheckpointKind,
    ) -> Result<(Vec<Option<Base>>, Vec<lowtide_registry::PinId>)> {
        let subtasks = self.options.subtasks.len();
        if kind != CheckpointKind::Checkpoint {
            return Ok((vec![None; subtasks], Vec::new()));
        }
        let published = self.published_base();
        let mut pins = Vec::new();
        if let Some(base) = published.as_ref().filter(|_| !is_broken(Break::BaseNotPinned)) {
            pins.push(self.registry.pin(Holder::Checkpoint(base.id))?);
        }
        let mut bases = Vec::with_capacity(subtasks);
        for subtask in 0..u32::try_from(subtasks).unwrap_or(u32::MAX) {
            let chain = self.chains.get(&subtask).filter(|chain| {
                self.options.base_mode == BaseMode::Acknowledged
                    && published.as_ref().is_none_or(|published| published.id < chain.id)
            });
            if let Some(chain) = chain {
                bases.push(Some(chain.clone()));
                pins.push(self.registry.pin(Holder::Chain(subtask))?);
            } else {
                bases.push(published.clone());
            }
        }
        Ok((bases, pins))
    }

    fn published_base(&self) -> Option<Base> {
        let id = self.newest_own()?;
        let view = self.checkpoints.get(&id)?.view.clone()?;
        Some(Base { id, view })
    }

    /// Ids of pending checkpoints whose time has run out.
    pub(crate) fn overdue(&self, now: Millis) -> Vec<CheckpointId> {
        let timeout = self.options.timeout_millis;
        let overdue = |pending: &&Pending| pending.triggered.plus(timeout) <= now;
        self.pending.values().map(|pending| &**pending).filter(overdue).map(|pending| pending.id).collect()
    }

    /// Pending checkpoints that count against the limit.
    fn in_flight(&self) -> usize {
        self.pending.values().filter(|pending| !pending.is_savepoint()).count()
    }

    /// Whether as many are pending as may be.
    pub(crate) fn is_full(&self, kind: CheckpointKind) -> bool {
        kind != CheckpointKind::Savepoint && self.in_flight() >= self.options.concurrent_max as usize
    }

    /// Whether the publish of `id` has begun and is not settled.
    pub(crate) fn is_publishing(&self, id: CheckpointId) -> bool {
        self.pending.get(&id).is_some_and(|pending| pending.progress == Progress::Publishing)
    }

    pub(crate) fn due(&self, now: Millis) -> Due {
        self.schedule.due(&self.options, self.in_flight(), now)
    }

    /// Whether more checkpoints in a row have failed than is tolerable.
    pub(crate) fn too_many_failures(&self) -> bool {
        self.schedule.failures() > self.options.tolerable_failures
    }

    /// What `subtask` should know.
    pub(crate) fn notice(&self, subtask: u32) -> Notice {
        Notice {
            completed: self.newest_own(),
            lowest_retained: self.lowest_retained(),
            clean_up: self.free.of_participant(subtask),
        }
    }

    /// What `subtask` holds of the newest checkpoint, and what of that it may clean up one day.
    pub(crate) fn holdings(&self, subtask: u32) -> Holdings {
        let Some(range) = self.options.subtasks.get(subtask as usize) else { return Holdings::default() };
        let Some(base) = self.published_base() else { return Holdings::default() };
        let own = lowtide_format::KeyGroupSet::from(*range);
        let mut objects: Vec<ObjectName> = base
            .view
            .files()
            .filter(|listed| !listed.key_groups.intersect(&own).is_empty())
            .map(|listed| listed.file.entry.object.clone())
            .collect();
        objects.sort_unstable();
        objects.dedup();
        let mine = |object: &&ObjectName| self.registry.owner(object) == Some(Owner::Participant(subtask));
        let may_clean_up = objects.iter().filter(mine).cloned().collect();
        Holdings { objects, may_clean_up }
    }

    fn owner_of_new(&self, subtask: u32) -> Owner {
        match self.options.cleanup {
            Cleanup::Coordinator => Owner::Coordinator,
            Cleanup::Participant => Owner::Participant(subtask),
        }
    }
}
