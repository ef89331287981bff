//! A pending checkpoint ends without completing.

use std::sync::Arc;

use lowtide_format::{CheckpointId, ObjectName};
use lowtide_registry::{FreeObject, Holder};

use super::{Doubt, Machine};
use crate::coordinator::event::{AbortReason, Event};
use crate::coordinator::pending::Pending;

impl Machine {
    /// Gives a pending checkpoint up, whose publish has not begun or is known not to have happened.
    pub(crate) fn abort(&mut self, id: CheckpointId, reason: AbortReason) -> Vec<Event> {
        let Some(pending) = self.pending.remove(&id) else { return vec![Event::Ignored(id)] };
        tracing::info!(checkpoint = %id, reason = %reason, "checkpoint aborted");
        self.schedule.aborted(id, reason);
        self.let_go(&pending, pending.manifest.clone());
        vec![Event::Aborted(id, reason)]
    }

    /// Gives up a checkpoint whose publish did not happen so far as anyone can see, but might still: the last attempt
    /// has not been answered. What it lists stays held (M4) until the doubt is settled.
    pub(crate) fn abort_in_doubt(&mut self, id: CheckpointId) -> (Vec<Event>, Option<Doubt>) {
        let Some(pending) = self.pending.remove(&id) else { return (vec![Event::Ignored(id)], None) };
        tracing::warn!(checkpoint = %id, "checkpoint given up, its publish may still happen");
        self.schedule.aborted(id, AbortReason::Publish);
        let events = vec![Event::Aborted(id, AbortReason::Publish)];
        (events, Some(Doubt { pending: Arc::new(*pending) }))
    }

    /// The doubtful publish did not happen: what it held is let go.
    pub(crate) fn doubt_dispelled(&mut self, doubt: &Doubt) {
        self.let_go(&doubt.pending, doubt.pending.manifest.clone());
    }

    /// Releases what a checkpoint in flight holds: its own files and its pins.
    pub(super) fn let_go(&mut self, pending: &Pending, manifest: Option<ObjectName>) {
        let mut released = self.registry.release(Holder::Pending(pending.id));
        for pin in &pending.pins {
            released.append(self.registry.release(Holder::Pin(*pin)));
        }
        self.free.add(manifest.into_iter().collect(), released.objects);
    }

    /// This generation is over: no acknowledged chain will be a base any more.
    pub(crate) fn forget_chains(&mut self) {
        for subtask in std::mem::take(&mut self.chains).into_keys() {
            let released = self.registry.release(Holder::Chain(subtask));
            self.free.add(Vec::new(), released.objects);
        }
    }

    /// Names of objects of attempts that ended: free unless something lists them.
    pub(crate) fn discard(&mut self, objects: Vec<ObjectName>) {
        let owner = lowtide_registry::Owner::Coordinator;
        let unlisted = objects.into_iter().filter(|object| !self.registry.contains_object(object));
        let free = unlisted.map(|object| FreeObject { object, owner }).collect();
        self.free.add(Vec::new(), free);
    }
}
