//! A job as a script drives it: any backend behind one object.
//!
//! Owns: which types a script's state has, and the one place where the void namespace is spelled.

use std::collections::BTreeMap;

use async_trait::async_trait;
use lowtide_format::{CheckpointId, CheckpointKind, Generation, Store};
use lowtide_heap::HeapBackend;

use crate::backend::Backend;
use crate::coordinator::{Acknowledgement, Event, Trigger};
use crate::error::Result;
use crate::job::{ChainLink, CheckpointStat, Failover, Job, JobBuilder, RestoreFrom, Step, ValueState};
use crate::sweep::{SweepOptions, SweepReport};

/// The backends that scripts can name.
pub(crate) const BACKENDS: &[&str] = &[
    "heap",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// The void namespace of a script's states: no namespace that a script can name is empty.
pub(crate) const VOID: &str = "";

type State<B> = ValueState<String, String, String, B>;

/// What a script can do to a running job.
#[async_trait(?Send)]
pub(crate) trait Driven {
    fn subtasks(&self) -> u32;
    fn entries(&self) -> u64;
    fn restored(&self) -> Option<CheckpointId>;
    /// The generation of its coordinator.
    fn generation(&self) -> Generation;
    /// Whether its files are segments, which have records to count.
    fn writes_segments(&self) -> bool;

    fn put(&mut self, state: &str, namespace: &str, key: String, value: String) -> Result<()>;
    fn append(&mut self, state: &str, namespace: &str, key: &str, suffix: &str) -> Result<()>;
    fn remove(&mut self, state: &str, namespace: &str, key: &str) -> Result<()>;
    /// Clears one namespace, or all of them.
    fn clear(&mut self, state: &str, namespace: Option<&str>) -> Result<()>;
    fn get(&mut self, state: &str, namespace: &str, key: &str) -> Result<Option<String>>;
    /// The entries of one namespace, by key.
    fn dump(&mut self, state: &str, namespace: &str) -> Result<BTreeMap<String, String>>;
    fn len(&mut self, state: &str) -> Result<u64>;
    /// Merges the state's tables now.
    fn compact(&mut self, state: &str) -> Result<()>;

    fn trigger(&mut self, kind: CheckpointKind) -> Result<Trigger>;
    async fn write(&mut self, id: CheckpointId, subtask: u32) -> Step;
    async fn acknowledge(&mut self, id: CheckpointId, subtask: u32) -> Step;
    /// What a subtask that has written would tell the coordinator.
    fn message(&self, id: CheckpointId, subtask: u32) -> Option<(Generation, Acknowledgement)>;
    /// The coordinator is told something by a subtask of another job.
    async fn receive(
        &mut self,
        id: CheckpointId,
        subtask: u32,
        message: (Generation, Acknowledgement),
    ) -> Step;
    async fn decline(&mut self, id: CheckpointId, subtask: u32) -> Step;
    async fn abort(&mut self, id: CheckpointId) -> Step;
    async fn expire(&mut self, id: CheckpointId) -> Step;
    async fn failover(&mut self) -> Result<Failover>;
    fn hold(&mut self);
    async fn release(&mut self) -> Step;
    fn mute(&mut self);
    fn unmute(&mut self);
    async fn stat(&self, id: CheckpointId) -> Result<CheckpointStat>;
    async fn chain(&self, id: CheckpointId) -> Result<Vec<ChainLink>>;
    async fn savepoint_delete(&mut self, id: CheckpointId) -> Result<()>;
    /// Deletes what was decided; how many objects could not be deleted.
    async fn run_deletions(&mut self) -> Result<usize>;
    async fn sweep(&mut self, options: SweepOptions) -> Result<SweepReport>;
    /// What requests without events of their own have found out.
    fn take_events(&mut self) -> Vec<Event>;
    async fn stop(self: Box<Self>) -> Result<()>;
}

/// How a job comes into being.
pub(crate) enum Origin {
    /// Empty.
    Fresh { force: bool },
    /// From a checkpoint.
    Restore(RestoreFrom),
}

/// Starts a job on a backend.
///
/// # Errors
///
/// What starting it meets.
pub(crate) async fn start<B: Backend>(
    builder: JobBuilder<B>,
    store: &Store,
    origin: Origin,
) -> Result<Box<dyn Driven>> {
    let job = match origin {
        Origin::Fresh { force: false } => builder.create(store).await?,
        Origin::Fresh { force: true } => builder.create_forced(store).await?,
        Origin::Restore(from) => builder.restore(store, from).await?,
    };
    Ok(Box::new(DrivenJob { job, states: BTreeMap::new() }))
}

struct DrivenJob<B: Backend> {
    job: Job<B>,
    states: BTreeMap<String, State<B>>,
}

impl<B: Backend> DrivenJob<B> {
    /// The state of that name; it comes into being at its first use.
    fn state(&mut self, name: &str) -> Result<State<B>> {
        if let Some(state) = self.states.get(name) {
            return Ok(state.clone());
        }
        let state: State<B> = self.job.value_state(name)?;
        self.states.insert(name.to_owned(), state.clone());
        Ok(state)
    }
}

#[async_trait(?Send)]
impl<B: Backend> Driven for DrivenJob<B> {
    fn subtasks(&self) -> u32 {
        self.job.routing().subtasks()
    }

    fn entries(&self) -> u64 {
        self.job.entries()
    }

    fn restored(&self) -> Option<CheckpointId> {
        self.job.restored()
    }

    fn generation(&self) -> Generation {
        self.job.generation()
    }

    fn writes_segments(&self) -> bool {
        B::KIND == HeapBackend::KIND
    }

    fn put(&mut self, state: &str, namespace: &str, key: String, value: String) -> Result<()> {
        let state = self.state(state)?;
        self.job.state_mut(&state).put_in(namespace.to_owned(), key, value).map(|_| ())
    }

    fn append(&mut self, state: &str, namespace: &str, key: &str, suffix: &str) -> Result<()> {
        let state = self.state(state)?;
        let change = |value: &mut String| value.push_str(suffix);
        self.job.state_mut(&state).update_in(&namespace.to_owned(), key, change).map(|_| ())
    }

    fn remove(&mut self, state: &str, namespace: &str, key: &str) -> Result<()> {
        let state = self.state(state)?;
        self.job.state_mut(&state).remove_in(&namespace.to_owned(), key).map(|_| ())
    }

    fn compact(&mut self, state: &str) -> Result<()> {
        self.job.compact(state)
    }

    fn clear(&mut self, state: &str, namespace: Option<&str>) -> Result<()> {
        let state = self.state(state)?;
        let mut state = self.job.state_mut(&state);
        match namespace {
            None => state.clear(),
            Some(namespace) => state.clear_in(&namespace.to_owned()),
        }
    }

    fn get(&mut self, state: &str, namespace: &str, key: &str) -> Result<Option<String>> {
        let state = self.state(state)?;
        let found = self.job.state(&state).get_in(&namespace.to_owned(), key)?;
        Ok(found.map(|value| value.clone()))
    }

    fn dump(&mut self, state: &str, namespace: &str) -> Result<BTreeMap<String, String>> {
        let state = self.state(state)?;
        let state = self.job.state(&state);
        let entries = state.iter_in(&namespace.to_owned())?;
        entries.map(|entry| entry.map(|(key, _, value)| (key.clone(), value.clone()))).collect()
    }

    fn len(&mut self, state: &str) -> Result<u64> {
        let state = self.state(state)?;
        self.job.state(&state).len()
    }

    fn trigger(&mut self, kind: CheckpointKind) -> Result<Trigger> {
        self.job.trigger(kind)
    }

    async fn write(&mut self, id: CheckpointId, subtask: u32) -> Step {
        self.job.write(id, subtask).await
    }

    async fn acknowledge(&mut self, id: CheckpointId, subtask: u32) -> Step {
        self.job.acknowledge(id, subtask).await
    }

    fn message(&self, id: CheckpointId, subtask: u32) -> Option<(Generation, Acknowledgement)> {
        self.job.message(id, subtask)
    }

    async fn receive(
        &mut self,
        id: CheckpointId,
        subtask: u32,
        message: (Generation, Acknowledgement),
    ) -> Step {
        self.job.receive(id, subtask, message).await
    }

    async fn decline(&mut self, id: CheckpointId, subtask: u32) -> Step {
        self.job.decline(id, subtask).await
    }

    async fn abort(&mut self, id: CheckpointId) -> Step {
        self.job.abort(id).await
    }

    async fn expire(&mut self, id: CheckpointId) -> Step {
        self.job.expire(id).await
    }

    async fn failover(&mut self) -> Result<Failover> {
        self.job.failover().await
    }

    fn hold(&mut self) {
        self.job.hold();
    }

    async fn release(&mut self) -> Step {
        self.job.release().await
    }

    fn mute(&mut self) {
        self.job.mute();
    }

    fn unmute(&mut self) {
        self.job.unmute();
    }

    async fn stat(&self, id: CheckpointId) -> Result<CheckpointStat> {
        self.job.stat(id).await
    }

    async fn chain(&self, id: CheckpointId) -> Result<Vec<ChainLink>> {
        self.job.chain(id).await
    }

    async fn savepoint_delete(&mut self, id: CheckpointId) -> Result<()> {
        self.job.delete_savepoint(id).await
    }

    async fn run_deletions(&mut self) -> Result<usize> {
        self.job.run_deletions().await.map(|report| report.failed)
    }

    async fn sweep(&mut self, options: SweepOptions) -> Result<SweepReport> {
        self.job.sweep(options).await
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.job.take_events()
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.job.stop().await
    }
}
