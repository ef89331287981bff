//! Checkpoint commands: steps of the current job's checkpoints.

use lowtide_format::{CheckpointId, CheckpointKind};

use super::{Session, Slot};
use crate::clock::{Clock, UploadIdSource};
use crate::coordinator::Event;
use crate::error::{Error, Result};
use crate::job::{Step, read_chain, read_stat};
use crate::script::command::{Command, Kind};

impl From<Kind> for CheckpointKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Checkpoint => Self::Checkpoint,
            Kind::Full => Self::Full,
            Kind::Savepoint => Self::Savepoint,
        }
    }
}

fn base_text(base: Option<CheckpointId>) -> String {
    base.map_or("none".to_owned(), |base| base.to_string())
}

/// A step that subtasks take one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Write,
    Acknowledge,
}

impl Command {
    /// Whether the coordinator has to act, so that the command waits while it stands still.
    pub(super) fn is_for_coordinator(&self) -> bool {
        matches!(
            self,
            Self::Checkpoint(_)
                | Self::Trigger(_)
                | Self::Acknowledge { .. }
                | Self::Misdeliver { .. }
                | Self::Decline { .. }
                | Self::Abort(_)
                | Self::Expire(_)
                | Self::SavepointDelete(_)
                | Self::Sweep { .. }
        )
    }
}

impl Session {
    pub(super) async fn on_checkpoint(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Checkpoint(kind) => self.checkpoint(kind).await?,
            Command::Trigger(kind) => {
                let trigger = self.running()?.trigger(kind.into())?;
                self.print(format!("{} triggered base={}", trigger.id, base_text(trigger.base())));
            }
            Command::Write { id, subtask } => {
                self.all_take(id, subtask, Phase::Write).await?;
            }
            Command::Acknowledge { id, subtask } => {
                self.all_take(id, subtask, Phase::Acknowledge).await?;
            }
            Command::Misdeliver { id, subtask, from } => self.misdeliver(id, subtask, &from).await?,
            Command::Decline { id, subtask } => {
                let (depot, slot) = self.parts()?;
                let job = slot.job()?;
                let step = Self::unless_stalled(depot, job.decline(id, subtask)).await;
                self.conclude(step);
            }
            Command::Abort(id) => {
                let (depot, slot) = self.parts()?;
                let job = slot.job()?;
                let step = Self::unless_stalled(depot, job.abort(id)).await;
                self.conclude(step);
            }
            Command::Expire(id) => {
                let (depot, slot) = self.parts()?;
                let job = slot.job()?;
                let step = Self::unless_stalled(depot, job.expire(id)).await;
                self.conclude(step);
            }
            Command::Stat(id) => {
                self.stat(id).await?;
            }
            Command::Chain(id) => self.chain(id).await?,
            Command::Savepoints => self.savepoints().await?,
            Command::SavepointDelete(id) => self.savepoint_delete(id).await?,
            Command::Mute => self.running()?.mute(),
            Command::Unmute => self.running()?.unmute(),
            _ => {}
        }
        Ok(())
    }

    async fn checkpoint(&mut self, kind: Kind) -> Result<()> {
        let id = self.running()?.trigger(kind.into())?.id;
        for phase in [Phase::Write, Phase::Acknowledge] {
            if !self.all_take(id, None, phase).await? {
                break;
            }
        }
        if self.printed.iter().any(|line| *line == Event::Completed(id).to_string()) {
            self.stat(id).await?;
        }
        Ok(())
    }

    /// A message of another job's subtask reaches the coordinator of the current one.
    async fn misdeliver(&mut self, id: CheckpointId, subtask: u32, from: &str) -> Result<()> {
        let message = self.slot(from)?.job()?.message(id, subtask);
        let message = message.ok_or_else(|| {
            Error::invalid_argument(format!("subtask {subtask} of {from} has not written {id}"))
        })?;
        let (depot, slot) = self.parts()?;
        let job = slot.job()?;
        let step = Self::unless_stalled(depot, job.receive(id, subtask, message)).await;
        self.conclude(step);
        Ok(())
    }

    /// Prints what a completed checkpoint wrote and lists, whether its job runs or not.
    async fn stat(&mut self, id: CheckpointId) -> Result<()> {
        let backend = self.backend.clone();
        let (depot, slot) = self.parts()?;
        let directory = depot.directory(&slot.directory)?;
        let stat = async {
            match &slot.live {
                Some(job) => job.stat(id).await,
                None => read_stat(&directory, id, None).await,
            }
        };
        let Some(stat) = Self::unless_stalled(depot, stat).await else { return Ok(()) };
        let stat = stat?;
        let base = base_text(stat.base);
        let backend = slot.words.backend.as_ref().unwrap_or(&backend);
        let line = if slot.live.as_ref().map_or(backend == "heap", |job| job.writes_segments()) {
            format!(
                "{id} base={base} puts={} tombstones={} clears={} rewritten={} segments={}",
                stat.puts, stat.tombstones, stat.clears, stat.rewritten, stat.files
            )
        } else {
            format!("{id} base={base} files={}", stat.files)
        };
        self.print(line);
        Ok(())
    }

    /// Prints what a completed checkpoint lists, whether its job runs or not.
    async fn chain(&mut self, id: CheckpointId) -> Result<()> {
        let (depot, slot) = self.parts()?;
        let directory = depot.directory(&slot.directory)?;
        let links = async {
            match &slot.live {
                Some(job) => job.chain(id).await,
                None => read_chain(&directory, id).await,
            }
        };
        let Some(links) = Self::unless_stalled(depot, links).await else { return Ok(()) };
        let links: Vec<String> =
            links?.iter().map(|link| format!("{}:{}", link.checkpoint, link.live_records)).collect();
        self.print(if links.is_empty() { "(empty)".to_owned() } else { links.join(" ") });
        Ok(())
    }

    /// One subtask, or all that have not taken it yet, take a step. Whether all went well.
    async fn all_take(&mut self, id: CheckpointId, subtask: Option<u32>, phase: Phase) -> Result<bool> {
        let (_, slot) = self.current()?;
        let count = slot.job()?.subtasks();
        let subtasks = match subtask {
            Some(subtask) => vec![subtask],
            None => slot.left_to_take(id, phase, count),
        };
        for subtask in subtasks {
            let (depot, slot) = self.parts()?;
            let job = slot.job()?;
            let step = match phase {
                Phase::Write => Self::unless_stalled(depot, job.write(id, subtask)).await,
                Phase::Acknowledge => Self::unless_stalled(depot, job.acknowledge(id, subtask)).await,
            };
            let Some(step) = step else {
                return Ok(false);
            };
            let failed = step.failure.is_some();
            let ignored = step.events.contains(&Event::Ignored(id));
            let ended = step.events.iter().any(|event| !matches!(event, Event::Subsumed(_)));
            if !failed && !ignored {
                slot.note(id, phase, subtask);
            }
            self.conclude(Some(step));
            if failed || (ended && phase == Phase::Write) {
                return Ok(false);
            }
            if ended {
                break;
            }
        }
        Ok(true)
    }

    /// Prints what a step met, unless it hangs, and forgets about checkpoints that have ended.
    fn conclude(&mut self, step: Option<Step>) {
        let Some(step) = step else { return };
        if let Ok((_, slot)) = self.current() {
            for event in &step.events {
                if let Event::Completed(id) | Event::Aborted(id, _) = event {
                    slot.steps.remove(id);
                }
            }
        }
        self.print_step(step);
    }

    /// Deletes a savepoint of the current job's directory: by the job that runs there, or, where none does, by taking
    /// the directory over for it.
    async fn savepoint_delete(&mut self, id: CheckpointId) -> Result<()> {
        let (name, slot) = self.current()?;
        let (name, directory) = (name.to_owned(), slot.directory.clone());
        let name = if slot.live.is_some() { Some(name) } else { self.running_in(&directory).await? };
        let job = name.and_then(|name| self.jobs.get_mut(&name)).and_then(|slot| slot.live.as_mut());
        let deleted = match job {
            Some(job) => Self::unless_stalled(&self.depot, job.savepoint_delete(id)).await,
            None => {
                let (now, ids) = (self.clock.now(), UploadIdSource::counted(u16::MAX - 1));
                let store = self.depot.directory(&directory)?;
                let deleted =
                    async { crate::coordinator::delete_savepoint(&store, id, now, ids).await.map(|_| ()) };
                Self::unless_stalled(&self.depot, deleted).await
            }
        };
        deleted.unwrap_or(Ok(()))
    }

    /// The job that runs in a directory and was not replaced.
    async fn running_in(&self, directory: &str) -> Result<Option<String>> {
        let store = self.depot.directory_behind_faults(directory)?;
        let owner = crate::coordinator::read_published(&store).await?.generation;
        let runs = |slot: &&Slot| {
            let generation = slot.live.as_ref().map(|job| job.generation());
            slot.directory == directory && generation.is_some() && generation == owner
        };
        Ok(self.jobs.iter().find(|(_, slot)| runs(slot)).map(|(name, _)| name.clone()))
    }

    /// The savepoints of the current job's directory, whether it runs or not.
    async fn savepoints(&mut self) -> Result<()> {
        let (depot, slot) = self.parts()?;
        let directory = depot.directory(&slot.directory)?;
        let ids = match Self::unless_stalled(depot, crate::coordinator::read_published(&directory)).await {
            Some(published) => published?.savepoints.iter().map(|found| found.id()).collect(),
            None => Vec::new(),
        };
        ids.iter().for_each(|id: &CheckpointId| self.print(id));
        Ok(())
    }
}

impl Slot {
    pub(super) fn job(&mut self) -> Result<&mut Box<dyn super::Driven>> {
        let directory = &self.directory;
        self.live.as_mut().ok_or_else(|| Error::not_found(format!("the job in {directory} is not running")))
    }

    /// The subtasks that have not taken the step; the first one if all have, to be told so.
    fn left_to_take(&self, id: CheckpointId, phase: Phase, count: u32) -> Vec<u32> {
        let left: Vec<u32> = match self.steps.get(&id) {
            None => (0..count).collect(),
            Some(taken) => {
                let done = match phase {
                    Phase::Write => &taken.written,
                    Phase::Acknowledge => &taken.acknowledged,
                };
                (0..count).filter(|subtask| !done.contains(subtask)).collect()
            }
        };
        if left.is_empty() { vec![0] } else { left }
    }

    fn note(&mut self, id: CheckpointId, phase: Phase, subtask: u32) {
        let taken = self.steps.entry(id).or_default();
        match phase {
            Phase::Write => taken.written.insert(subtask),
            Phase::Acknowledge => taken.acknowledged.insert(subtask),
        };
    }
}
