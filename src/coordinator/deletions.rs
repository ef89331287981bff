//! Carrying out what was decided to be deleted, off the critical path.
//!
//! Owns: the queue, its order (manifests before files; members of the sequence one after the other, ascending, rule S1),
//! retries. Does not own: the decision (`machine`, `publish`).
//!
//! Every object in the queue is free for good: a delete that runs late, twice, or after this coordinator was replaced
//! is as right as one that runs at once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use lowtide_format::{ObjectName, ObjectPath, Store};
use parking_lot::Mutex;

use super::machine::Batch;

/// At most this many objects are named in one call of the store.
const CHUNK_MAX: usize = 1_000;

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    /// Everything decided and not confirmed, in the queue or in a run.
    outstanding: BTreeSet<ObjectName>,
    /// Superseded members of the sequence that may still be there.
    members: BTreeSet<u64>,
    /// Whether a run is deleting members: no other may begin with a higher one meanwhile.
    pruning: bool,
}

/// Deletes what a coordinator has decided. Clones share the queue, so one can work in the background.
#[derive(Clone, Debug)]
pub struct Deleter {
    store: Store,
    queue: Arc<Mutex<Queue>>,
}

/// What a run of the deleter did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionReport {
    /// Objects that are gone now.
    pub deleted: usize,
    /// Objects that could not be deleted; they are tried again by the next run.
    pub failed: usize,
}

/// A batch being deleted; back in the queue unless it is done, whatever becomes of the run.
struct Running<'a> {
    queue: &'a Mutex<Queue>,
    batch: Batch,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.batch != Batch::default() {
            self.queue.lock().batches.push_back(std::mem::take(&mut self.batch));
        }
    }
}

/// The one run that deletes members; another may once it has ended, whatever becomes of it.
struct Pruning<'a>(&'a Mutex<Queue>);

impl Drop for Pruning<'_> {
    fn drop(&mut self) {
        self.0.lock().pruning = false;
    }
}

impl Deleter {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, queue: Arc::default() }
    }

    pub(crate) fn add(&self, batches: Vec<Batch>) {
        let mut queue = self.queue.lock();
        for batch in batches {
            queue.outstanding.extend(batch.manifests.iter().chain(&batch.objects).cloned());
            queue.batches.push_back(batch);
        }
    }

    /// Members of the sequence that are superseded for good.
    pub(crate) fn add_members(&self, members: BTreeSet<u64>) {
        self.queue.lock().members.extend(members);
    }

    /// Whether a run would have something to do.
    pub(crate) fn has_work(&self) -> bool {
        let queue = self.queue.lock();
        !queue.outstanding.is_empty() || (!queue.members.is_empty() && !queue.pruning)
    }

    /// Deletes superseded members of the sequence, each only once the one before it is gone. One that cannot be deleted
    /// is tried again by the next run.
    pub(crate) async fn prune(&self) {
        {
            let mut queue = self.queue.lock();
            if queue.pruning {
                return;
            }
            queue.pruning = true;
        }
        let _pruning = Pruning(&self.queue);
        loop {
            let Some(number) = self.queue.lock().members.first().copied() else { return };
            let name = ObjectPath::Sequence { number }.name();
            if let Some((_, error)) = self.store.delete(&[name]).await.failed.pop() {
                tracing::warn!(number, error = %error, "a superseded member could not be deleted, will be tried again");
                return;
            }
            self.queue.lock().members.remove(&number);
        }
    }

    /// Objects decided to be deleted and not confirmed gone, at most `limit` of them.
    pub(crate) fn outstanding(&self, limit: usize) -> Vec<ObjectName> {
        self.queue.lock().outstanding.iter().take(limit).cloned().collect()
    }

    /// Number of objects decided to be deleted and not confirmed gone.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.queue.lock().outstanding.len()
    }

    /// Works off what is in the queue now, each object once, superseded members of the sequence last. Safe to run several
    /// times side by side and to drop.
    pub async fn run(&self) -> DeletionReport {
        let mut report = DeletionReport::default();
        let batches = self.queue.lock().batches.len();
        for _ in 0..batches {
            let Some(batch) = self.queue.lock().batches.pop_front() else { break };
            let mut running = Running { queue: &self.queue, batch };
            // The batch stays whole until the store has answered: the run may be dropped while it waits.
            running.batch.manifests = self.delete(&running.batch.manifests, &mut report).await;
            // A reader that finds the manifest must find its files.
            if running.batch.manifests.is_empty() {
                running.batch.objects = self.delete(&running.batch.objects, &mut report).await;
            } else {
                report.failed += running.batch.objects.len();
            }
        }
        self.prune().await;
        report
    }

    /// Deletes these objects and returns those that are still there.
    async fn delete(&self, objects: &[ObjectName], report: &mut DeletionReport) -> Vec<ObjectName> {
        let mut failed = Vec::new();
        for chunk in objects.chunks(CHUNK_MAX) {
            let outcome = self.store.delete(chunk).await;
            report.deleted += outcome.deleted.len();
            report.failed += outcome.failed.len();
            let mut queue = self.queue.lock();
            for object in &outcome.deleted {
                queue.outstanding.remove(object);
            }
            for (object, error) in outcome.failed {
                tracing::warn!(object = %object, error = %error, "delete failed, will be tried again");
                failed.push(object);
            }
        }
        failed
    }
}
