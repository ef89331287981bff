//! Settings of a job, under the names that users of stream processors know.

use std::sync::Arc;

use lowtide_format::KeyGroupCount;
use lowtide_heap::HeapBackend;

use crate::backend::Backend;
use crate::clock::{Clock, SystemClock, UploadIdSource};
use crate::coordinator::{BaseMode, Cleanup};
use crate::error::{Error, Result};
use crate::restore::{ReadOptions, Readers, RestoreReader};
use lowtide_registry::Retention;

/// When objects that nothing needs any more are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletions {
    /// By a task of its own, started after a step that decided deletions.
    #[default]
    Background,
    /// By [`Job::run_deletions`](super::Job::run_deletions) only.
    ByHand,
}

/// Settings of a job; every field has a default.
#[derive(Debug)]
pub struct JobOptions<B: Backend> {
    /// Subtasks that share the key groups, at least 1. Default 1.
    pub subtasks: u32,
    /// Key groups, fixed for the life of the job; the largest number of subtasks there can be. Default 128.
    pub key_groups: u16,
    /// How many completed checkpoints are kept. Default 1.
    pub retained: Retention,
    /// Checkpoints that may be pending at a time, savepoints not counted, at least 1. Default 1.
    pub concurrent_max: u32,
    /// Milliseconds from one periodic trigger to the next; none triggers by hand only. Default none.
    pub interval_millis: Option<u64>,
    /// Milliseconds from a completion to the next periodic trigger, at least. Default 0.
    pub pause_min_millis: u64,
    /// Milliseconds after which a pending checkpoint is given up. Default 600,000 (ten minutes).
    pub timeout_millis: u64,
    /// Checkpoints in a row that may fail before the job should. Default 0.
    pub tolerable_failures: u32,
    /// Which checkpoints may be a base. Default `Confirmed`.
    pub base_mode: BaseMode,
    /// Who deletes files that nothing lists any more. Default the coordinator.
    pub cleanup: Cleanup,
    /// When decided deletions are carried out. Default in the background.
    pub deletions: Deletions,
    /// Subtasks that are written at a time by [`Job::checkpoint`](super::Job::checkpoint), at least 1. Default 4.
    pub writers_max: usize,
    /// Files of one subtask on their way to the store at a time, at least 1. Default 4.
    pub uploads_max: usize,
    /// How a restore reads.
    pub read: ReadOptions,
    /// Settings of the backend itself.
    pub backend: B::Options,
}

impl<B: Backend> Clone for JobOptions<B> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone(), backend: self.backend.clone(), ..*self }
    }
}

impl<B: Backend> Default for JobOptions<B> {
    fn default() -> Self {
        Self {
            subtasks: 1,
            key_groups: 128,
            retained: Retention::default(),
            concurrent_max: 1,
            interval_millis: None,
            pause_min_millis: 0,
            timeout_millis: 600_000,
            tolerable_failures: 0,
            base_mode: BaseMode::Confirmed,
            cleanup: Cleanup::Coordinator,
            deletions: Deletions::Background,
            writers_max: 4,
            uploads_max: 4,
            read: ReadOptions::default(),
            backend: B::Options::default(),
        }
    }
}

impl<B: Backend> JobOptions<B> {
    pub(super) fn key_group_count(&self) -> Result<KeyGroupCount> {
        KeyGroupCount::new(self.key_groups).ok_or_else(|| {
            Error::invalid_argument(format!(
                "{} key groups are not possible; take 1 to {}",
                self.key_groups,
                KeyGroupCount::MAX
            ))
        })
    }
}

/// A job to be started: its name, settings, clock and source of upload ids.
///
/// Ends with one of [`create`](Self::create), [`recover`](Self::recover), [`open`](Self::open) and
/// [`restore`](Self::restore).
#[must_use = "a builder does nothing until a job is started from it"]
pub struct JobBuilder<B: Backend = HeapBackend> {
    pub(super) name: String,
    pub(super) directory: String,
    pub(super) options: JobOptions<B>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) uploads: UploadIdSource,
    pub(super) readers: Option<Readers>,
}

impl<B: Backend> JobBuilder<B> {
    /// Settings of a job of that name on any backend; its directory in the store is its name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            directory: name.to_owned(),
            options: JobOptions::default(),
            clock: Arc::new(SystemClock::default()),
            uploads: UploadIdSource::random(),
            readers: None,
        }
    }

    /// A reader of the key groups that are restored already, while [`recover`](Self::recover), [`open`](Self::open) or
    /// [`restore`](Self::restore) goes on with the others.
    pub fn reader(&mut self) -> RestoreReader {
        self.readers.get_or_insert_with(Readers::new).reader()
    }

    /// The job's directory in the store, relative to its root; the job's name unless set.
    pub fn directory(mut self, directory: &str) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// All settings at once.
    pub fn options(mut self, options: JobOptions<B>) -> Self {
        self.options = options;
        self
    }

    /// See [`JobOptions::subtasks`].
    pub fn subtasks(mut self, subtasks: u32) -> Self {
        self.options.subtasks = subtasks;
        self
    }

    /// See [`JobOptions::key_groups`].
    pub fn key_groups(mut self, key_groups: u16) -> Self {
        self.options.key_groups = key_groups;
        self
    }

    /// See [`JobOptions::retained`].
    pub fn retained(mut self, retained: Retention) -> Self {
        self.options.retained = retained;
        self
    }

    /// See [`JobOptions::concurrent_max`].
    pub fn concurrent_max(mut self, concurrent_max: u32) -> Self {
        self.options.concurrent_max = concurrent_max;
        self
    }

    /// See [`JobOptions::base_mode`].
    pub fn base_mode(mut self, base_mode: BaseMode) -> Self {
        self.options.base_mode = base_mode;
        self
    }

    /// See [`JobOptions::deletions`].
    pub fn deletions(mut self, deletions: Deletions) -> Self {
        self.options.deletions = deletions;
        self
    }

    /// See [`JobOptions::backend`].
    pub fn backend(mut self, backend: B::Options) -> Self {
        self.options.backend = backend;
        self
    }

    /// Where the time comes from; the system's clock unless set.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where upload ids come from; random unless set. Two jobs on one store must not share ids.
    pub fn upload_ids(mut self, uploads: UploadIdSource) -> Self {
        self.uploads = uploads;
        self
    }
}
