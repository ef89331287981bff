//! What should be true of all jobs and directories of a history.
//!
//! Owns: the expected state. Does not own: what happens next (`moves`), what the store says (`truth`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::image::{Bound, Image, Memory};

/// What a checkpoint was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Checkpoint,
    Full,
    Savepoint,
}

impl Kind {
    /// The word after `checkpoint` or `trigger`, with a blank before it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Checkpoint => "",
            Self::Full => " full",
            Self::Savepoint => " savepoint",
        }
    }
}

/// Options of a job, as scripts spell them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) subtasks: u32,
    pub(super) key_groups: u32,
    pub(super) retain: usize,
    pub(super) concurrent: usize,
    /// Options with a name only: `base=`, `antimatter=`, `cleanup=`, `rewrite=`, `rewrite-bytes=`.
    pub(super) policies: String,
    /// Whether acknowledged deltas may be bases.
    pub(super) acknowledged: bool,
    /// Whether participants clean up after themselves.
    pub(super) participant: bool,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "subtasks={} key-groups={} retain={} concurrent={}{}",
            self.subtasks, self.key_groups, self.retain, self.concurrent, self.policies
        )
    }
}

/// A checkpoint that a job has triggered and that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) base: Option<u64>,
    pub(super) bound: Bound,
    pub(super) written: BTreeSet<u32>,
    pub(super) acknowledged: BTreeSet<u32>,
    /// A call to the store never returned: only giving it up helps.
    pub(super) stuck: bool,
    /// Whether `base` is the one it has, not one that it may have.
    pub(super) base_is_known: bool,
}

/// What a completed checkpoint should have written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) kind: Kind,
    pub(super) base: Option<u64>,
    pub(super) bound: Bound,
    pub(super) base_is_known: bool,
}

/// A job, running or not.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) directory: String,
    pub(super) settings: Settings,
    /// The generation of its coordinator.
    pub(super) generation: u64,
    pub(super) running: bool,
    pub(super) memory: Memory,
    /// Barriers of this life, by checkpoint.
    pub(super) marks: BTreeMap<u64, u64>,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Checkpoints that have ended in this life.
    pub(super) ended: Vec<u64>,
    pub(super) next_id: u64,
    /// Checkpoints that some subtask has acknowledged to the present coordinator.
    pub(super) acknowledged: BTreeSet<u64>,
    /// Commands that wait for a coordinator that stands still.
    pub(super) held: Option<Vec<Waiting>>,
    pub(super) muted: bool,
    /// Restored without claim, and nothing has completed since.
    pub(super) unclaimed: bool,
    /// Published, but its coordinator has not said so.
    pub(super) unheard: BTreeSet<u64>,
    /// The newest completed checkpoint that its coordinator knows.
    pub(super) known: Option<u64>,
}

/// A command that waits for a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Acknowledge { id: u64, subtask: Option<u32> },
    Other,
}

impl Job {
    /// Pending checkpoints that count in the limit.
    pub(super) fn in_flight(&self) -> usize {
        self.pending.values().filter(|pending| pending.kind != Kind::Savepoint).count()
    }

    /// Notes that subtasks have acknowledged.
    pub(super) fn acknowledge(&mut self, id: u64, subtask: Option<u32>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        match subtask {
            Some(subtask) => {
                pending.acknowledged.insert(subtask);
            }
            None => pending.acknowledged.extend(0..self.settings.subtasks),
        }
        if pending.kind != Kind::Savepoint {
            self.acknowledged.insert(id);
        }
    }

    /// Forgets a pending checkpoint.
    pub(super) fn end(&mut self, id: u64) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.ended.push(id);
        Some(pending)
    }
}

/// What a checkpoint holds if it is published.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) kind: Kind,
    pub(super) image: Image,
}

/// A job's directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) generation: u64,
    /// Completed checkpoints that the job may delete.
    pub(super) own: BTreeMap<u64, Image>,
    /// Completed checkpoints of a former owner, which nobody may delete.
    pub(super) foreign: BTreeMap<u64, Image>,
    pub(super) savepoints: BTreeMap<u64, Image>,
    /// What the present owner has triggered, by id.
    pub(super) candidates: BTreeMap<u64, Candidate>,
}

impl Directory {
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.foreign.is_empty() && self.savepoints.is_empty()
    }

    /// The newest completed checkpoint, whoever owns it.
    pub(super) fn latest(&self) -> Option<u64> {
        self.own.keys().chain(self.foreign.keys()).max().copied()
    }

    /// Everything that can be restored.
    pub(super) fn published(&self) -> BTreeMap<u64, Image> {
        let all = self.own.iter().chain(&self.foreign).chain(&self.savepoints);
        all.map(|(id, image)| (*id, image.clone())).collect()
    }
}

/// All of a history.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) jobs: Vec<Job>,
    pub(super) directories: BTreeMap<String, Directory>,
    pub(super) current: usize,
    /// Whether a fault of the store was planned; errors of the store are allowed from then on.
    pub(super) faulty: bool,
    /// Whether something was left behind that only a sweep finds.
    pub(super) untidy: bool,
    /// Whether another process has swept.
    pub(super) swept_outside: bool,
    /// Clears any faults: from now on nothing may fail.
    pub(super) calm: bool,
}

impl World {
    pub(super) fn job(&self) -> Option<&Job> {
        self.jobs.get(self.current)
    }

    pub(super) fn job_mut(&mut self) -> Option<&mut Job> {
        self.jobs.get_mut(self.current)
    }

    /// Whether another coordinator has taken the job's directory over.
    pub(super) fn replaced(&self, job: &Job) -> bool {
        self.directories.get(&job.directory).is_some_and(|directory| directory.generation > job.generation)
    }

    /// The running job that owns a directory.
    pub(super) fn owner(&self, directory: &str) -> Option<usize> {
        self.jobs.iter().position(|job| job.running && job.directory == directory && !self.replaced(job))
    }

    /// The bases that a checkpoint of a job may have now; none if any may, its coordinator having been replaced.
    pub(super) fn bases(&self, job: &Job, kind: Kind) -> Option<Vec<Option<u64>>> {
        if self.replaced(job) {
            return None;
        }
        let directory = self.directories.get(&job.directory)?;
        let known = directory.own.keys().rev().find(|id| !job.unheard.contains(id)).copied();
        let newest = directory.own.keys().next_back().copied();
        if kind != Kind::Checkpoint || (job.unclaimed && known.is_none()) {
            return Some(vec![None]);
        }
        let mut bases = vec![known];
        if newest != known {
            // Until it has read back what it may have published, it bases on what it knows.
            bases.extend([newest, job.known]);
        }
        if job.settings.acknowledged {
            let newer = job.acknowledged.iter().filter(|id| known.is_none_or(|known| **id > known));
            bases.extend(newer.map(|id| Some(*id)));
        }
        Some(bases)
    }
}
