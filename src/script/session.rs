//! One run of a script: its store, its clock, its jobs, and what each command prints.
//!
//! Owns: which job is current, which commands wait for a coordinator that stands still, the order of
//! what is printed. Does not own: what a command does (`job`), what the store holds (`census`).

mod checkpoints;
mod data;
mod jobs;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use lowtide_format::{CheckpointId, Store};

use super::census::Depot;
use super::command::{Command, JobWords};
use super::driven::{BACKENDS, Driven};
use super::{ScriptError, ScriptOptions};
use crate::clock::{ManualClock, Millis};
use crate::error::{Error, Result};
use crate::fault::Faults;
use crate::job::Step;
use crate::sweep::SweepReport;

/// Where the clock of a script stands at first: far from zero, so that ages can be subtracted.
const START: Millis = Millis(1_700_000_000_000);

/// A job of the script, running or not.
struct Slot {
    /// Its options, complete.
    words: JobWords,
    /// Its directory in the script's store.
    directory: String,
    /// The running job; none after a crash or a stop.
    live: Option<Box<dyn Driven>>,
    /// Commands for its coordinator, which stands still; none if it runs.
    waiting: Option<Vec<Command>>,
    /// Which subtasks have taken which step of a pending checkpoint.
    steps: BTreeMap<CheckpointId, Taken>,
}

/// Which subtasks have written and acknowledged.
#[derive(Default)]
struct Taken {
    written: BTreeSet<u32>,
    acknowledged: BTreeSet<u32>,
}

/// The state of one run.
pub(crate) struct Session {
    depot: Depot,
    backend: String,
    clock: ManualClock,
    /// Number of jobs started, so that no two make the same upload ids.
    started: u16,
    jobs: BTreeMap<String, Slot>,
    /// The directories of all jobs there were: a name can be used again for another.
    directories: BTreeSet<String>,
    current: Option<String>,
    /// What the running command has printed so far.
    printed: Vec<String>,
    /// A sweep that stands still half-way.
    paused_sweep: Option<LocalBoxFuture<'static, Result<SweepReport>>>,
}

impl Session {
    pub(crate) fn new(options: &ScriptOptions) -> Result<Self, ScriptError> {
        let backend = options.backend.clone().unwrap_or_else(|| "heap".to_owned());
        if !BACKENDS.contains(&backend.as_str()) {
            return Err(ScriptError::Backend { backend, available: BACKENDS.join(", ") });
        }
        Ok(Self {
            depot: Depot::new(options.medium)?,
            backend,
            clock: ManualClock::starting_at(START),
            started: 0,
            jobs: BTreeMap::new(),
            directories: BTreeSet::new(),
            current: None,
            printed: Vec::new(),
            paused_sweep: None,
        })
    }

    /// Runs one command line and returns what it prints.
    pub(crate) async fn run(&mut self, line: &str) -> Result<Vec<String>, ScriptError> {
        // Every command has a time of its own, so that "before" means something to a sweep.
        self.clock.advance(1);
        let outcome = match Command::parse(line) {
            Ok(command) => self.command(command).await?,
            Err(misuse) => Err(Error::invalid_argument(misuse.to_string())),
        };
        if let Err(error) = outcome {
            self.print_error(&error);
        }
        Ok(std::mem::take(&mut self.printed))
    }

    /// The store without its faults; none before the first job.
    pub(crate) fn truth(&self) -> Option<Store> {
        self.depot.truth_root().cloned()
    }

    /// The faults of the store.
    pub(crate) fn faults(&self) -> &Faults {
        self.depot.faults()
    }

    /// The name of the current job.
    pub(crate) fn current_name(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Whether a sweep stands still half-way.
    pub(crate) fn sweep_is_paused(&self) -> bool {
        self.paused_sweep.is_some()
    }

    async fn command(&mut self, command: Command) -> Result<Result<()>, ScriptError> {
        let outcome = match command {
            Command::Job { .. } | Command::Restore { .. } => self.start(command).await?,
            other => self.command_on_jobs(other).await,
        };
        self.delete_decided().await;
        self.print_found_out();
        Ok(outcome)
    }

    /// Deletes what the current job has decided to delete, as its background task would between two
    /// commands. What fails, or hangs, is tried again after the next command.
    async fn delete_decided(&mut self) {
        let Ok((depot, slot)) = self.parts() else { return };
        if let (Some(job), None) = (&mut slot.live, &slot.waiting) {
            // A job that was replaced says so; what it had to delete is deleted all the same.
            let _ = Self::unless_stalled(depot, job.run_deletions()).await;
        }
    }

    async fn command_on_jobs(&mut self, command: Command) -> Result<()> {
        if command.is_for_coordinator() {
            let (_, slot) = self.current()?;
            if let Some(waiting) = &mut slot.waiting {
                waiting.push(command);
                return Ok(());
            }
        }
        self.carry_out(command).await
    }

    async fn carry_out(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Use(_)
            | Command::Crash
            | Command::Failover
            | Command::Hold(_)
            | Command::Release(_)
            | Command::Stop => self.on_job(command).await,
            Command::Put { .. }
            | Command::Update { .. }
            | Command::Delete { .. }
            | Command::Clear(_)
            | Command::Get { .. }
            | Command::Dump(_)
            | Command::Len { .. }
            | Command::Compact { .. }
            | Command::Fill { .. } => self.on_data(command),
            Command::Objects
            | Command::Fault(_)
            | Command::FaultNone
            | Command::Corrupt { .. }
            | Command::Lose { .. }
            | Command::Verify(_)
            | Command::Sweep { .. }
            | Command::SweepOutside { .. }
            | Command::SweepResume
            | Command::Clock { .. } => self.on_store(command).await,
            other => self.on_checkpoint(other).await,
        }
    }

    fn print(&mut self, line: impl ToString) {
        self.printed.push(line.to_string());
    }

    fn print_error(&mut self, error: &Error) {
        // One error, one line, whatever a cause has to say.
        let message = error.to_string().replace(['\n', '\r'], " ");
        self.print(format!("error {}: {message}", error.kind()));
    }

    /// Prints what a step met: a failure first, since the events are its consequence.
    fn print_step(&mut self, step: Step) {
        if let Some(failure) = &step.failure {
            self.print_error(failure);
        }
        for event in step.events {
            self.print(event);
        }
    }

    /// Prints what requests without events of their own have found out about the current job.
    fn print_found_out(&mut self) {
        let Ok((_, slot)) = self.current() else { return };
        let events = slot.live.as_mut().map(|job| job.take_events()).unwrap_or_default();
        events.into_iter().for_each(|event| self.print(event));
    }

    /// The current job, running or not.
    fn current(&mut self) -> Result<(&str, &mut Slot)> {
        let name = self.current.as_deref();
        let name = name.ok_or_else(|| Error::not_found("no job is current; start one"))?;
        self.jobs
            .get_mut(name)
            .map(|slot| (name, slot))
            .ok_or_else(|| Error::not_found(format!("there is no job {name}")))
    }

    /// The current job, which has to run.
    fn running(&mut self) -> Result<&mut Box<dyn Driven>> {
        let (name, slot) = self.current()?;
        let gone = Error::not_found(format!("job {name} is not running"));
        slot.live.as_mut().ok_or(gone)
    }

    /// The store and the current job, at once.
    fn parts(&mut self) -> Result<(&Depot, &mut Slot)> {
        let missing = || Error::not_found("no job is current; start one");
        let name = self.current.as_deref().ok_or_else(missing)?;
        let slot = self.jobs.get_mut(name).ok_or_else(missing)?;
        Ok((&self.depot, slot))
    }

    fn slot(&mut self, name: &str) -> Result<&mut Slot> {
        self.jobs.get_mut(name).ok_or_else(|| Error::not_found(format!("there is no job {name}")))
    }

    /// Waits for `future` unless a call to the store hangs: then none, and the future is dropped.
    async fn unless_stalled<T>(depot: &Depot, future: impl Future<Output = T>) -> Option<T> {
        let faults = depot.faults().clone();
        let seen = faults.stalled();
        tokio::select! {
            biased;
            done = future => Some(done),
            () = faults.stalled_beyond(seen) => None,
        }
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::new(self.clock.clone())
    }
}
