//! A job: several subtasks over the key groups of one directory, and the coordinator of their checkpoints, in
//! one process.
//!
//! Owns: the backends, the snapshots that are being written, the delivery of messages between subtasks and
//! coordinator. Does not own: entries (the backend), the protocol (`coordinator`), bytes (`lowtide-format`).
//!
//! A checkpoint can be taken in one call ([`Job::checkpoint`]), in the background ([`Job::start_checkpoint`]), or
//! step by step: [`Job::trigger`] (the synchronous phase), [`Job::write`] and [`Job::acknowledge`] for each
//! subtask; the last acknowledgement publishes.
//!
//! # Rules
//!
//! - J1. A key is kept by the subtask that [`Routing`] names, in memory, in checkpoints and after a restore.
//! - J2. An attempt that ended without being acknowledged leaves no snapshot open, and its files are deleted.
//! - J3. A step for a checkpoint that is no longer pending changes nothing and reports [`Event::Ignored`](crate::Event::Ignored).

mod attempt;
mod background;
mod builder;
mod checkpoint;
mod cleaning;
mod control;
mod figures;
mod reading;
mod routing;
mod start;
mod state;
mod steps;
#[cfg(feature = "cli")]
mod stray;

use std::collections::BTreeMap;
use std::sync::Arc;

use litemap::LiteMap;
use lowtide_format::{CheckpointId, Generation, Key, Namespace, ObjectName, Store, Value};
use lowtide_heap::HeapBackend;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::clock::UploadIdSource;
use crate::coordinator::{Coordinator, Deleter, Event};
use crate::error::{Error, Result};
use attempt::Attempt;
use steps::Held;

pub use background::{BackgroundWrite, Writer, WrittenParts};
pub use builder::{Deletions, JobBuilder, JobOptions};
pub use checkpoint::CheckpointReport;
pub use control::Failover;
pub use figures::CheckpointFigures;
pub use reading::{ChainLink, CheckpointStat};
#[cfg(feature = "cli")]
pub(crate) use reading::{read_chain, read_stat};
pub use routing::Routing;
pub use start::{OnDamage, RestoreFrom};
pub use state::{Entry, StateMut, StateRef, ValueState};
pub use steps::Step;

/// One subtask of a job: its backend, and the checkpoints it has been asked for.
pub(crate) struct Subtask<B: Backend> {
    pub(crate) backend: B,
    /// By id; an attempt leaves when its checkpoint completes or is aborted.
    /// Boxed, so that the map needs little memory at a trigger.
    attempts: LiteMap<CheckpointId, Box<Attempt<B::Snapshot>>>,
    /// What it has acknowledged for checkpoints that were aborted, as long as the coordinator holds it for something in
    /// flight: in mode `Acknowledged` a base may list it, and nobody else knows of it once the coordinator is lost.
    unconfirmed: Vec<ObjectName>,
}

impl<B: Backend> Subtask<B> {
    fn new(backend: B) -> Self {
        Self { backend, attempts: LiteMap::new_vec(), unconfirmed: Vec::new() }
    }
}

/// Whether subtasks hear of completed and aborted checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notices {
    Delivered,
    Lost,
}

/// A job in this process: subtasks with their state, and the coordinator of their checkpoints.
///
/// Access to memory is synchronous, access to the store asynchronous. Dropping a job loses what is in memory and
/// cleans nothing up, like a crash; [`Job::stop`] ends it in order.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lowtide::{CheckpointKind, Job, Store, ValueState};
///
/// let store = Store::memory();
/// let mut job = Job::builder("clicks").create(&store).await?;
/// let clicks: ValueState<String, u64> = job.value_state("clicks")?;
/// job.state_mut(&clicks).put("ann".to_owned(), 1)?;
/// job.state_mut(&clicks).update("ann", |count| *count += 1)?;
/// let figures = job.checkpoint(CheckpointKind::Checkpoint).await?;
/// assert_eq!((figures.puts, figures.base), (1, None));
/// drop(job);
///
/// let mut job = Job::builder("clicks").recover(&store).await?;
/// let clicks: ValueState<String, u64> = job.value_state("clicks")?;
/// assert_eq!(job.state(&clicks).get("ann")?, Some(&2));
/// # Ok::<(), lowtide::Error>(()) }).unwrap();
/// ```
pub struct Job<B: Backend = HeapBackend> {
    name: String,
    options: JobOptions<B>,
    /// The job's directory.
    store: Store,
    routing: Routing,
    subtasks: Vec<Subtask<B>>,
    coordinator: Coordinator,
    clock: Arc<dyn Clock>,
    uploads: UploadIdSource,
    notices: Notices,
    /// Messages for a coordinator that stands still; none if it runs.
    held: Option<Held>,
    /// The newest checkpoint that was triggered in this life.
    last_triggered: Option<CheckpointId>,
    /// What acknowledged parts of pending checkpoints said, for the figures.
    parts: BTreeMap<CheckpointId, figures::Parts>,
    /// What lost coordinators had decided to delete and had not deleted yet.
    retired: Vec<Deleter>,
    /// The deletions that run in the background.
    deleting: Option<tokio::task::JoinHandle<()>>,
    /// Delivered events that no step has returned yet.
    untold: Vec<Event>,
    /// How much checkpoints completed by this process have rewritten.
    rewritten: BTreeMap<CheckpointId, u64>,
    /// The checkpoint it was restored from.
    restored: Option<CheckpointId>,
    /// The generations of its coordinators, the lost ones included.
    generations: Vec<Generation>,
    /// A base that the coordinator may name and another job published.
    not_ours: Option<CheckpointId>,
}

impl Job {
    /// Settings of a new job on the heap backend; [`JobBuilder::new`] takes any backend.
    pub fn builder(name: &str) -> JobBuilder {
        JobBuilder::new(name)
    }
}

impl<B: Backend> Job<B> {
    /// The job's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings it runs with.
    #[must_use]
    pub fn options(&self) -> &JobOptions<B> {
        &self.options
    }

    /// The job's directory.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Which subtask keeps which key.
    #[must_use]
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// The generation of its coordinator.
    #[must_use]
    pub fn generation(&self) -> lowtide_format::Generation {
        self.coordinator.generation()
    }

    /// The checkpoint it was restored from, if it was.
    #[must_use]
    pub fn restored(&self) -> Option<CheckpointId> {
        self.restored
    }

    /// The backend of one subtask, to read.
    #[must_use]
    pub fn subtask(&self, subtask: u32) -> Option<&B> {
        self.subtasks.get(usize::try_from(subtask).ok()?).map(|subtask| &subtask.backend)
    }

    /// The backend of one subtask, to change; keys that belong to another subtask must not be put here.
    #[must_use]
    pub fn subtask_mut(&mut self, subtask: u32) -> Option<&mut B> {
        self.subtasks.get_mut(usize::try_from(subtask).ok()?).map(|subtask| &mut subtask.backend)
    }

    /// Entries of all states, namespaces and subtasks.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.subtasks.iter().map(|subtask| subtask.backend.figures().entries).sum()
    }

    /// The value state of that name; it comes into being at the first call.
    ///
    /// # Errors
    ///
    /// `incompatible` if the state exists with other types; the state is then untouched.
    pub fn value_state<K: Key, V: Value, N: Namespace>(
        &mut self,
        name: &str,
    ) -> Result<ValueState<K, V, N, B>> {
        ValueState::register(&mut self.subtasks, name)
    }

    /// Merges what the backend keeps of the state `name` in local files, on all subtasks, as RocksDB's compaction does
    /// when it sees fit. The next checkpoint carries the merged tables.
    ///
    /// # Errors
    ///
    /// `invalid-argument` on the heap backend, which keeps states in memory, and if there is no such state; `store` if
    /// RocksDB fails.
    pub fn compact(&mut self, name: &str) -> Result<()> {
        self.subtasks.iter_mut().try_for_each(|subtask| subtask.backend.compact(name))
    }

    /// Read access to a state.
    #[must_use]
    pub fn state<'j, K: Key, V: Value, N: Namespace>(
        &'j self,
        handle: &'j ValueState<K, V, N, B>,
    ) -> StateRef<'j, K, V, N, B> {
        StateRef { subtasks: &self.subtasks, routing: &self.routing, handle }
    }

    /// Read and write access to a state.
    #[must_use]
    pub fn state_mut<'j, K: Key, V: Value, N: Namespace>(
        &'j mut self,
        handle: &'j ValueState<K, V, N, B>,
    ) -> StateMut<'j, K, V, N, B> {
        StateMut { subtasks: &mut self.subtasks, routing: &self.routing, handle }
    }

    fn check_subtask(&self, subtask: u32) -> Result<()> {
        if (subtask as usize) < self.subtasks.len() { Ok(()) } else { Err(self.unknown_subtask(subtask)) }
    }

    fn unknown_subtask(&self, subtask: u32) -> Error {
        Error::invalid_argument(format!(
            "job {} has no subtask {subtask}; its subtasks are 0 to {}",
            self.name,
            self.routing.subtasks() - 1
        ))
    }
}
