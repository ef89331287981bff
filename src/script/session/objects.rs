//! Commands about the store: counting, damaging, verifying, sweeping, faults, time.

use futures::FutureExt;

use super::Session;
use crate::clock::{Clock, UploadIdSource};
use crate::coordinator::read_published;
use crate::error::{Error, Result};
use crate::fault::{FaultMode, FaultPlan};
use crate::script::command::Command;
use crate::sweep::{SweepMode, SweepOptions, SweepReport, sweep_directory};
use crate::verify::verify;

/// How often deletes that fail are tried before `objects` counts.
const DELETION_RUNS_MAX: usize = 3;

impl Session {
    pub(super) async fn on_store(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Objects => self.objects().await?,
            Command::Fault(plan) => self.depot.faults().plan(plan),
            Command::FaultNone => self.depot.faults().clear(),
            Command::Corrupt { id, victim, at } => {
                let (_, slot) = self.current()?;
                let directory = slot.directory.clone();
                let directory = self.depot.truth(&directory)?;
                let name = directory.victim(id, victim).await?;
                directory.flip_bit(&name, at).await?;
            }
            Command::Lose { id, victim } => {
                let (_, slot) = self.current()?;
                let directory = slot.directory.clone();
                let directory = self.depot.truth(&directory)?;
                let name = directory.victim(Some(id), victim).await?;
                directory.lose(&name).await?;
            }
            Command::Verify(id) => self.verify(id).await?,
            Command::Sweep { age_millis, dry_run } => self.sweep(age_millis, dry_run).await?,
            Command::SweepOutside { age_millis, pause } => self.sweep_outside(age_millis, pause).await?,
            Command::SweepResume => self.resume_sweep().await?,
            Command::Clock { millis } => self.clock.advance(millis),
            _ => {}
        }
        Ok(())
    }

    /// Counts the objects of all jobs, once what they have decided to delete is deleted.
    async fn objects(&mut self) -> Result<()> {
        for slot in self.jobs.values_mut() {
            let (Some(job), None) = (&mut slot.live, &slot.waiting) else { continue };
            for _ in 0..DELETION_RUNS_MAX {
                match Self::unless_stalled(&self.depot, job.run_deletions()).await {
                    Some(Ok(failed)) if failed > 0 => {}
                    _ => break,
                }
            }
        }
        let directories = self.directories.iter().map(String::as_str).collect();
        let census = self.depot.census(directories).await?;
        self.print(format!(
            "referenced={} orphaned={} missing={} meta={}",
            census.referenced, census.orphaned, census.missing, census.meta
        ));
        Ok(())
    }

    async fn verify(&mut self, id: Option<lowtide_format::CheckpointId>) -> Result<()> {
        let (_, slot) = self.current()?;
        let directory = slot.directory.clone();
        let directory = self.depot.directory(&directory)?;
        let checked = async {
            let id = match id {
                Some(id) => id,
                None => read_published(&directory)
                    .await?
                    .latest_id()
                    .ok_or_else(|| Error::not_found("there is no completed checkpoint"))?,
            };
            verify(&directory, Some(id)).await
        };
        let Some(found) = Self::unless_stalled(&self.depot, checked).await else { return Ok(()) };
        for verification in found? {
            match verification.faults.into_iter().next() {
                Some(fault) => self.print_error(&fault),
                None => self.print(format!("{} ok entries={}", verification.id, verification.entries)),
            }
        }
        Ok(())
    }

    /// Another process sweeps the current job's directory, and stands still at a call to the store.
    async fn sweep_outside(&mut self, age_millis: Option<u64>, pause: FaultPlan) -> Result<()> {
        let (now, ids) = (self.clock.now(), UploadIdSource::counted(u16::MAX));
        let (_, slot) = self.current()?;
        let directory = slot.directory.clone();
        let directory = self.depot.directory(&directory)?;
        let options = SweepOptions::default();
        let options = SweepOptions { age_millis: age_millis.unwrap_or(options.age_millis), ..options };
        self.depot.faults().plan(pause);
        self.paused_sweep =
            Some(async move { sweep_directory(&directory, options, now, &ids).await }.boxed_local());
        self.continue_sweep().await
    }

    /// A sweep that stands still goes on.
    async fn resume_sweep(&mut self) -> Result<()> {
        self.depot.faults().resume();
        let continued = self.continue_sweep().await;
        // If it stands still once more, it has met a call that never returns.
        self.paused_sweep = None;
        continued
    }

    async fn continue_sweep(&mut self) -> Result<()> {
        let Some(mut sweep) = self.paused_sweep.take() else {
            return Err(Error::invalid_argument("no sweep stands still"));
        };
        let Some(swept) = Self::unless_stalled(&self.depot, &mut sweep).await else {
            self.paused_sweep = Some(sweep);
            return Ok(());
        };
        self.depot.faults().forget(FaultMode::Pause);
        let SweepReport { orphans, failed } = swept?;
        self.print(format!("swept {}", orphans.len() - failed.len()));
        Ok(())
    }

    async fn sweep(&mut self, age_millis: Option<u64>, dry_run: bool) -> Result<()> {
        let mode = if dry_run { SweepMode::DryRun } else { SweepMode::Delete };
        let (now, ids) = (self.clock.now(), UploadIdSource::counted(u16::MAX));
        let (depot, slot) = self.parts()?;
        let swept = match &mut slot.live {
            // A job knows what it has in use, so that any age will do.
            Some(job) => {
                let age_millis = age_millis.unwrap_or(0);
                let options = SweepOptions { age_millis, mode, ..SweepOptions::default() };
                Self::unless_stalled(depot, job.sweep(options)).await
            }
            None => {
                let directory = depot.directory(&slot.directory)?;
                let age_millis = age_millis.unwrap_or(SweepOptions::default().age_millis);
                let options = SweepOptions { age_millis, mode, ..SweepOptions::default() };
                Self::unless_stalled(depot, sweep_directory(&directory, options, now, &ids)).await
            }
        };
        self.print_found_out();
        let Some(swept) = swept else { return Ok(()) };
        let SweepReport { orphans, failed } = swept?;
        self.print(format!("swept {}", orphans.len() - failed.len()));
        Ok(())
    }
}
