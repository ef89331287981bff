//! The backend's part in the checkpoint protocol: freezes, and notices of what became of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lowtide_format::CheckpointId;

use super::{FreezeKind, FreezeRequest, HeapBackend, OPEN_SNAPSHOTS_MAX};
use crate::chain::Element;
use crate::epochs::Epoch;
use crate::error::HeapError;
use crate::handover::Stamp;
use crate::lineage::{ChainRewrites, copy_of};
use crate::map::FreezeFacts;
use crate::overlay::{OutcomeSlot, RewriteStart};
use crate::prefetch::{prefetch_shared, prefetch_whole};
use crate::snapshot::{HeapSnapshot, SnapshotParts};

impl HeapBackend {
    /// The synchronous phase of a checkpoint: what was changed before is in the snapshot, what is changed after is
    /// not. Touches no entry; O(states · open snapshots).
    ///
    /// # Errors
    ///
    /// [`HeapError::BaseForgotten`] if the base is not remembered, was not written or is not of this life: freeze
    /// without one then. [`HeapError::IdNotAbove`], [`HeapError::BaseNotAllowed`], [`HeapError::TooManySnapshots`],
    /// [`HeapError::EpochsExhausted`], [`HeapError::OriginsExhausted`]. After an error nothing has changed.
    pub fn freeze(&mut self, request: FreezeRequest) -> Result<HeapSnapshot, HeapError> {
        self.prefetch();
        self.check_freeze(request)?;
        let epoch = self.turn.interval;
        let cuts = request.kind != FreezeKind::Savepoint;
        let next = Epoch(epoch.0.checked_add(1).ok_or_else(|| HeapError::EpochsExhausted)?);
        let stamp = self.turn.clock.freeze().ok_or_else(|| HeapError::EpochsExhausted)?;
        if cuts {
            self.trigger(request.base, stamp);
        }
        // After the trigger, before which rewrites in its chain may have been settled.
        let base = request.base.and_then(|base| self.lineage.base(base));
        let rewrite = base.as_ref().filter(|_| self.may_rewrite()).map(|base| RewriteStart {
            epoch,
            id: request.id,
            ancestors: copy_of(&base.rewrites),
            outcome: OutcomeSlot::default(),
        });
        let facts = FreezeFacts {
            stamp,
            base: base.as_ref().map(|base| base.epoch),
            cut: cuts.then_some(request.id),
            rewrite: rewrite.as_ref(),
        };
        let turn = &self.turn;
        let mut states = Vec::with_capacity(self.states.len());
        for state in &mut self.states {
            states.push(state.freeze(facts, turn));
        }
        let slot = cuts.then(|| {
            self.turn.interval = next;
            let of_base = base.as_ref().map(|base| copy_of(&base.rewrites)).unwrap_or_default();
            self.lineage.push(request.id, epoch, ChainRewrites { of_base, own: rewrite.is_some() })
        });
        self.lineage.list_boundaries(&mut self.turn.boundaries);
        let listed = base.as_ref().and_then(|base| base.written.chain.elements().first());
        let epochs = self.turn.epochs.freeze(cuts.then_some(request.id), listed.map(Element::id));
        self.newest = Some(request.id);
        Ok(HeapSnapshot::new(SnapshotParts {
            id: request.id,
            base,
            epoch,
            states,
            layout: self.layout,
            slot,
            epochs,
            segments: Arc::clone(&self.segments),
            counters: Arc::clone(&self.turn.counters),
            open: Arc::clone(&self.open),
            policy: self.policy.clone(),
            antimatter: self.antimatter,
            rewrite: rewrite.map(|start| start.outcome),
            completed: Arc::clone(&self.completed),
            places: self.places.clone(),
        }))
    }

    /// Asks for what a freeze needs before the first of it is waited for: where the caches are cold, and a backend that is
    /// busy with entries makes them so, a pause is little else than dozens of such waits.
    fn prefetch(&self) {
        self.states.iter().for_each(|state| prefetch_whole(&**state));
        self.lineage.prefetch();
        prefetch_shared(&self.open);
        prefetch_shared(&self.segments);
        prefetch_shared(&self.turn.counters);
        prefetch_shared(&self.completed);
        self.turn.epochs.prefetch();
        self.places.prefetch();
        self.policy.iter().for_each(prefetch_shared);
        self.states.iter().for_each(|state| state.prefetch());
    }

    /// The trigger names a base.
    fn trigger(&mut self, base: Option<CheckpointId>, stamp: Stamp) {
        // If nothing was completed since the last trigger.
        if self.lineage.may_settle() {
            self.settle(stamp);
        }
        let ended = Epoch(self.turn.interval.0.saturating_sub(1));
        let forgotten = self.lineage.trigger(base, ended);
        for epoch in forgotten {
            self.states.iter_mut().for_each(|state| state.forget_rewrite(epoch));
        }
        self.turn.floor = self.lineage.floor();
        if let Some(base) = base {
            self.note_completed(base);
        }
    }

    /// Settles the rewrites that the last trigger decided about: snapshots from `at` on know the new labels. Outside the
    /// pause where completions are told, since it takes O(labels · parts).
    fn settle(&mut self, at: Stamp) {
        for epoch in self.lineage.settle() {
            for (index, state) in self.states.iter_mut().enumerate() {
                state.settle(epoch, at, index);
            }
        }
    }

    /// Whether one more checkpoint may rewrite: few wait to be settled, and there are labels for them.
    fn may_rewrite(&self) -> bool {
        // As many as there may be snapshots open: only checkpoints that pile up unpublished make more.
        const UNSETTLED_MAX: usize = OPEN_SNAPSHOTS_MAX;
        const ORIGINS_LEFT_MIN: usize = 4096;
        self.policy.is_some()
            && self.lineage.unsettled() < UNSETTLED_MAX
            && self.states.iter().all(|state| state.origins_left() >= ORIGINS_LEFT_MIN)
    }

    fn note_completed(&mut self, id: CheckpointId) {
        // Mostly told by a notice before a trigger names it.
        if self.noted.replace(id) == Some(id) {
            return;
        }
        if let Err(at) = self.completed.binary_search(&id) {
            Arc::make_mut(&mut self.completed).insert(at, id);
        }
    }

    fn forget_completed_below(&mut self, oldest: CheckpointId) {
        // Seldom, as it may copy the list.
        const SLACK: usize = 64;
        if self.completed.partition_point(|id| *id < oldest) > SLACK {
            Arc::make_mut(&mut self.completed).retain(|id| *id >= oldest);
        }
    }

    /// How many epochs and completed checkpoints are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> (usize, usize) {
        (self.turn.epochs.remembered(), self.completed.len())
    }

    /// How many labels the states have in use, and how many rewrites wait to be settled.
    #[cfg(test)]
    pub(crate) fn labels_and_unsettled(&self) -> (usize, usize) {
        let of_all = usize::from(u16::MAX) + 1;
        let labels = self.states.iter().map(|state| of_all - state.origins_left()).sum();
        (labels, self.lineage.unsettled())
    }

    fn check_freeze(&self, request: FreezeRequest) -> Result<(), HeapError> {
        let FreezeRequest { id, base, kind } = request;
        if let Some(newest) = self.newest.filter(|newest| id <= *newest) {
            return Err(HeapError::IdNotAbove { id, newest });
        }
        if let (Some(base), FreezeKind::Full | FreezeKind::Savepoint) = (base, kind) {
            return Err(HeapError::BaseNotAllowed { id, base });
        }
        let open = self.open.load(Ordering::Acquire);
        if open >= OPEN_SNAPSHOTS_MAX {
            return Err(HeapError::TooManySnapshots { open });
        }
        // One label for the interval that ends, one for the next.
        if self.states.iter().any(|state| state.origins_left() < 2) {
            return Err(HeapError::OriginsExhausted { origins: usize::from(u16::MAX) });
        }
        match base {
            Some(base) if !self.lineage.is_base(base) => Err(HeapError::BaseForgotten { base }),
            _ => Ok(()),
        }
    }

    /// The checkpoint is complete everywhere. Older pending ones never will be. Harmless for unknown ids.
    pub fn completed(&mut self, id: CheckpointId) {
        /// How many pieces of each state are looked after.
        const TIDIED: usize = 64;
        if self.lineage.completed(id) {
            self.note_completed(id);
        }
        self.lineage.list_boundaries(&mut self.turn.boundaries);
        if self.lineage.may_settle() {
            self.settle(self.turn.clock.next());
        }
        self.states.iter_mut().for_each(|state| state.tidy(TIDIED, &self.turn));
        if let Some(oldest) = self.lineage.oldest_element() {
            self.turn.epochs.forget_below(oldest);
            self.forget_completed_below(oldest);
        }
    }

    /// The checkpoint will never be complete. Idempotent, harmless for unknown ids. No change is lost: the next
    /// checkpoint carries it. In mode `BaseMode::Acknowledged` it may still be a base if it was written.
    pub fn aborted(&mut self, id: CheckpointId) {
        self.lineage.aborted(id);
        self.lineage.list_boundaries(&mut self.turn.boundaries);
        self.states.iter_mut().for_each(|state| state.forget_closed());
    }

    /// Forgets every checkpoint that could be a base, so that the next one writes everything.
    ///
    /// For entries that were restored from files which no checkpoint of the job lists: those of another backend,
    /// translated on the way.
    pub fn forget_bases(&mut self) {
        self.lineage.forget();
        self.lineage.list_boundaries(&mut self.turn.boundaries);
    }
}
