//! Settings of a coordinator, under the names that users of stream processors know.

use lowtide_format::{KeyGroupCount, KeyGroupRange};
use lowtide_registry::Retention;

/// Which checkpoints may be the base of a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BaseMode {
    /// Only completed checkpoints.
    #[default]
    Confirmed,
    /// Also what a subtask has acknowledged in this generation, even if its checkpoint is pending or was aborted.
    Acknowledged,
}

/// Who deletes files that no checkpoint lists any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cleanup {
    /// The coordinator deletes all of them.
    #[default]
    Coordinator,
    /// A participant deletes those that it wrote in this life and that only its own chain listed; the coordinator the
    /// rest.
    Participant,
}

/// What becomes of the checkpoint that a job is restored from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Nothing of it is ever deleted; the first checkpoint is full.
    #[default]
    NoClaim,
    /// The job goes on in its directory and owns what is there; the job that wrote it is fenced.
    Claim,
}

/// Settings of a coordinator. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Name of the job, for manifests.
    pub job: String,
    /// Kind of the backend, for manifests: `heap`, `rocksdb`.
    pub backend: String,
    /// Key groups of the job, fixed for its life.
    pub key_groups: KeyGroupCount,
    /// The range of each subtask, by its index; at least one.
    pub subtasks: Vec<KeyGroupRange>,
    /// How many completed checkpoints are kept, savepoints not counted.
    pub retained: Retention,
    /// Checkpoints that may be pending at a time, savepoints not counted; at least 1.
    pub concurrent_max: u32,
    /// Time from one periodic trigger to the next; none triggers by hand only.
    pub interval_millis: Option<u64>,
    /// Time from a completion to the next periodic trigger, at least.
    pub pause_min_millis: u64,
    /// Time after which a pending checkpoint is given up.
    pub timeout_millis: u64,
    /// Checkpoints in a row that may fail before the job should.
    pub tolerable_failures: u32,
    /// Which checkpoints may be a base.
    pub base_mode: BaseMode,
    /// Who deletes files that nothing lists any more.
    pub cleanup: Cleanup,
    /// The largest checkpoint id that a participant knows, if any: ids of this generation are larger.
    pub known_id_max: Option<lowtide_format::CheckpointId>,
}

impl CoordinatorOptions {
    /// Settings for a job with these subtasks; everything else as [`BaseMode`], [`Cleanup`] and [`Retention`] default,
    /// one checkpoint at a time, ten minutes of timeout, triggered by hand.
    #[must_use]
    pub fn new(job: &str, backend: &str, key_groups: KeyGroupCount, subtasks: Vec<KeyGroupRange>) -> Self {
        Self {
            job: job.to_owned(),
            backend: backend.to_owned(),
            key_groups,
            subtasks,
            retained: Retention::default(),
            concurrent_max: 1,
            interval_millis: None,
            pause_min_millis: 0,
            timeout_millis: 600_000,
            tolerable_failures: 0,
            base_mode: BaseMode::default(),
            cleanup: Cleanup::default(),
            known_id_max: None,
        }
    }
}
