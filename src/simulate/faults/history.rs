//! One history: commands run on the stage, what they print judged against the world.
//!
//! Owns: which events and errors are right at which time. Does not own: which command comes next (`moves`), what the
//! sequence says (`ledger`).

use std::collections::{BTreeMap, BTreeSet};

use super::Situation;
use super::ledger::Cause;
use super::stage::Stage;
use super::world::{Expected, Job, Kind, Waiting, World};
use crate::script::ScriptError;
use crate::simulate::random::Random;

/// A rule that was broken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breach(pub(super) String);

impl From<ScriptError> for Breach {
    fn from(error: ScriptError) -> Self {
        Self(format!("the session failed: {error}"))
    }
}

impl From<crate::Error> for Breach {
    fn from(error: crate::Error) -> Self {
        Self(format!("the sequence cannot be read: {error}"))
    }
}

/// Nothing is wrong so far, or a breach.
pub(super) type Verdict<T = ()> = Result<T, Breach>;

/// Fails with a breach unless a condition holds.
pub(super) fn ensure(holds: bool, breach: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Breach(breach())) }
}

/// How a history is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    /// Whether store faults are planned.
    pub(super) faults: bool,
    /// Whether jobs crash with checkpoints pending, and are replaced while they run.
    pub(super) crashes: bool,
    /// Number of different keys.
    pub(super) keys: u32,
    /// Number of states.
    pub(super) states: u32,
}

/// A history under way.
pub(super) struct History {
    pub(super) stage: Stage,
    pub(super) world: World,
    pub(super) random: Random,
    pub(super) mood: Mood,
    pub(super) reached: BTreeSet<Situation>,
    /// What completed checkpoints should have written, by job and id.
    pub(super) expected: BTreeMap<(usize, u64), Expected>,
    pub(super) values: u64,
    /// Jobs that were to be started.
    pub(super) names: u64,
    /// A call that never returns was planned.
    pub(super) hang_planned: bool,
    /// The reply of a publish was planned to be lost.
    pub(super) lost_reply_planned: bool,
    /// Whether the last command failed for the store.
    pub(super) store_failed: bool,
    /// Whether the last command was refused as `invalid-argument`.
    pub(super) refused: bool,
    /// Meta objects, when last counted.
    pub(super) meta: u64,
}

/// An event, as it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Complete(u64),
    Subsumed(u64),
    Aborted(u64),
    Ignored(u64),
}

/// The checkpoint that a word names.
pub(super) fn checkpoint(word: &str) -> Option<u64> {
    word.strip_prefix("chk-")?.parse().ok()
}

fn heard(line: &str) -> Option<Heard> {
    let (id, what) = line.split_once(' ')?;
    let id = checkpoint(id)?;
    match what {
        "complete" => Some(Heard::Complete(id)),
        "subsumed" => Some(Heard::Subsumed(id)),
        "aborted" => Some(Heard::Aborted(id)),
        "ignored" => Some(Heard::Ignored(id)),
        _ => None,
    }
}

impl History {
    pub(super) fn reach(&mut self, situation: Situation) {
        self.reached.insert(situation);
    }

    /// The job that commands go to.
    pub(super) fn job(&self) -> Verdict<&Job> {
        self.world.job().ok_or_else(|| Breach("no job is current".to_owned()))
    }

    /// From the first command to the last check.
    pub(super) async fn play(&mut self) -> Verdict {
        self.fresh().await?;
        for _ in 0..12 + self.random.below(50) {
            self.step().await?;
        }
        self.finish().await
    }

    /// Makes another job current.
    pub(super) async fn switch(&mut self, at: usize) -> Verdict {
        if self.world.current != at {
            self.world.current = at;
            let command = format!("use {}", self.job()?.name);
            let printed = self.stage.run(&command).await?;
            ensure(printed.is_empty(), || format!("`{command}` printed something"))?;
        }
        Ok(())
    }

    /// Runs a command of the current job and judges its events; returns the other lines. `errors` are kinds that are
    /// right here.
    pub(super) async fn run(&mut self, command: &str, errors: &[&str]) -> Verdict<Vec<String>> {
        let stalled = self.stage.faults().stalled();
        let open = self.stage.faults().plans_open();
        let printed = self.stage.run(command).await?;
        if self.stage.faults().stalled() > stalled {
            self.reach(Situation::Hang);
        }
        let met = self.stage.faults().plans_open() < open;
        if met && self.lost_reply_planned && printed.iter().any(|line| line.ends_with(" complete")) {
            self.reach(Situation::LostReply);
        }
        self.judge(self.world.current, &printed, errors).await
    }

    /// Judges what was printed about one job.
    pub(super) async fn judge(
        &mut self,
        at: usize,
        printed: &[String],
        errors: &[&str],
    ) -> Verdict<Vec<String>> {
        let directory = self.job_at(at)?.directory.clone();
        let before = self.world.directories.get(&directory).cloned().unwrap_or_default();
        self.sync(&directory, Cause::Step).await?;
        let mut rest = Vec::new();
        let mut newest = None;
        self.store_failed = printed.iter().any(|line| line.starts_with("error store"));
        self.refused = printed.iter().any(|line| line.starts_with("error invalid-argument"));
        for line in printed {
            if let Some(error) = line.strip_prefix("error ") {
                self.judge_error(at, error, errors)?;
                continue;
            }
            match heard(line) {
                Some(Heard::Complete(id)) => newest = newest.max(self.completed(at, id)?),
                Some(Heard::Subsumed(id)) => {
                    let directory = self.world.directories.get(&directory);
                    let kept = directory.is_some_and(|directory| directory.own.contains_key(&id));
                    ensure(!kept, || format!("chk-{id} is said to be subsumed and is kept"))?;
                }
                Some(Heard::Aborted(id)) => self.aborted(at, id, newest)?,
                Some(Heard::Ignored(id)) => {
                    let pending = self.job_at(at)?.pending.get(&id);
                    let duplicate =
                        pending.is_none_or(|pending| pending.stuck || !pending.acknowledged.is_empty());
                    let stopped = self.world.replaced(self.job_at(at)?);
                    ensure(duplicate || stopped, || {
                        format!("chk-{id} is pending, and its message was ignored")
                    })?;
                    self.reach(Situation::LateMessage);
                }
                None => rest.push(line.clone()),
            }
        }
        self.check_overtaken(at, newest)?;
        self.note_unheard(at, &before, &directory)?;
        Ok(rest)
    }

    pub(super) fn job_at(&self, at: usize) -> Verdict<&Job> {
        self.world.jobs.get(at).ok_or_else(|| Breach(format!("there is no job {at}")))
    }

    pub(super) fn job_at_mut(&mut self, at: usize) -> Verdict<&mut Job> {
        self.world.jobs.get_mut(at).ok_or_else(|| Breach(format!("there is no job {at}")))
    }

    fn judge_error(&mut self, at: usize, error: &str, errors: &[&str]) -> Verdict {
        let kind = error.split(':').next().unwrap_or(error);
        let replaced = self.world.replaced(self.job_at(at)?);
        let allowed = match kind {
            "fenced" => {
                if replaced {
                    self.reach(Situation::PausedCoordinator);
                }
                replaced
            }
            "store" => {
                self.reach(Situation::StoreFault);
                self.world.faulty && !self.world.calm
            }
            "aborted" => self.world.swept_outside,
            // What was acknowledged and never published may be swept.
            "missing" => {
                let acknowledged = self.job_at(at)?.settings.acknowledged;
                acknowledged && self.world.swept_outside && error.contains("lists, is not there")
            }
            _ => false,
        };
        ensure(allowed || errors.contains(&kind), || format!("nothing explains the error `{error}`"))
    }

    /// Returns the checkpoint if it is not a savepoint.
    fn completed(&mut self, at: usize, id: u64) -> Verdict<Option<u64>> {
        let job = self.job_at(at)?;
        ensure(!self.world.replaced(job), || {
            format!("chk-{id} completed although the coordinator was replaced")
        })?;
        let directory = self.world.directories.get(&job.directory).cloned().unwrap_or_default();
        let listed = directory.own.contains_key(&id) || directory.savepoints.contains_key(&id);
        let newer = directory.own.keys().next_back().is_some_and(|newest| *newest > id);
        // It was published before its coordinator knew, and let go meanwhile.
        let gone = job.unheard.contains(&id) && self.world.faulty;
        ensure(listed || newer || gone, || format!("chk-{id} completed and the sequence does not name it"))?;
        let subtasks = job.settings.subtasks as usize;
        let doubtful = job.unheard.contains(&id) || self.world.faulty;
        let job = self.job_at_mut(at)?;
        job.unheard.remove(&id);
        let Some(pending) = job.end(id) else {
            ensure(doubtful, || format!("chk-{id} completed and was not pending"))?;
            let savepoint = directory.savepoints.contains_key(&id);
            job.unclaimed &= savepoint;
            if !savepoint {
                job.known = Some(id);
            }
            return Ok((!savepoint).then_some(id));
        };
        let acknowledged = pending.acknowledged.len();
        ensure(acknowledged == subtasks, || {
            format!("chk-{id} completed with {acknowledged} of {subtasks} parts")
        })?;
        let savepoint = pending.kind == Kind::Savepoint;
        job.unclaimed &= savepoint;
        if !savepoint {
            job.known = Some(id);
        }
        let (kind, base, bound) = (pending.kind, pending.base, pending.bound);
        let base_is_known = pending.base_is_known;
        self.expected.insert((at, id), Expected { kind, base, bound, base_is_known });
        if savepoint {
            self.reach(Situation::Savepoint);
        }
        Ok((!savepoint).then_some(id))
    }

    fn aborted(&mut self, at: usize, id: u64, newest: Option<u64>) -> Verdict {
        let job = self.job_at(at)?;
        let directory = self.world.directories.get(&job.directory).cloned().unwrap_or_default();
        let there = directory.own.contains_key(&id) || directory.savepoints.contains_key(&id);
        let replaced = self.world.replaced(job);
        ensure(!there || self.world.faulty || replaced, || format!("chk-{id} is published and was aborted"))?;
        if newest.is_some_and(|newest| newest > id) {
            self.reach(Situation::Overtaken);
        }
        let ended = self.job_at_mut(at)?.end(id);
        ensure(ended.is_some(), || format!("chk-{id} was aborted and was not pending"))
    }

    /// A completion aborts every older pending checkpoint, savepoints excepted.
    fn check_overtaken(&self, at: usize, newest: Option<u64>) -> Verdict {
        let Some(newest) = newest else { return Ok(()) };
        let older =
            self.job_at(at)?.pending.range(..newest).find(|(_, pending)| pending.kind != Kind::Savepoint);
        ensure(older.is_none(), || format!("chk-{newest} completed and an older checkpoint is still pending"))
    }

    /// What was published without an event: the reply was lost, and the coordinator has not read it back yet.
    fn note_unheard(&mut self, at: usize, before: &super::world::Directory, directory: &str) -> Verdict {
        if self.world.owner(directory) != Some(at) {
            return Ok(());
        }
        let now = self.world.directories.get(directory).cloned().unwrap_or_default();
        let faulty = self.world.faulty;
        let job = self.job_at_mut(at)?;
        let known = |id: &&u64| before.own.contains_key(id) || before.savepoints.contains_key(id);
        let new = now.own.keys().chain(now.savepoints.keys()).filter(|id| !known(id));
        let unheard: Vec<u64> = new.filter(|id| job.pending.contains_key(id)).copied().collect();
        ensure(unheard.is_empty() || faulty, || format!("{unheard:?} are published and nobody was told"))?;
        job.unheard.extend(unheard);
        Ok(())
    }

    /// A command that its coordinator waits with, or carries out at once.
    pub(super) fn wait(&mut self, waiting: Waiting) -> Verdict<bool> {
        let at = self.world.current;
        let job = self.job_at_mut(at)?;
        if let Some(held) = &mut job.held {
            held.push(waiting);
            return Ok(true);
        }
        if let Waiting::Acknowledge { id, subtask } = waiting {
            job.acknowledge(id, subtask);
        }
        Ok(false)
    }
}
