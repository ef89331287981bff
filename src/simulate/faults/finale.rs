//! The end of a history: faults cease, everybody comes to rest, and the seven assertions are checked.
//!
//! Every completed checkpoint that is kept restores to its barrier; every file that a manifest lists is there and
//! whole; what is stored is what is referenced; nobody has lost what is not ours to delete.

use super::history::{History, Verdict, ensure};
use super::image::Place;
use super::world::Kind;

/// A job whose store works again completes a checkpoint within so many attempts.
const ATTEMPTS_MAX: u32 = 3;

impl History {
    pub(super) async fn finish(&mut self) -> Verdict {
        self.stage.run("fault none").await?;
        if self.stage.sweep_is_paused() {
            self.resume_sweep().await?;
        }
        self.let_go().await?;
        self.settle_running().await?;
        self.world.calm = true;
        self.check_tidy().await?;
        self.take_over_the_rest().await?;
        self.sweep_all().await?;
        self.check_checkpoints().await
    }

    /// Coordinators that stand still go on; those that were replaced are ended.
    async fn let_go(&mut self) -> Verdict {
        for at in 0..self.world.jobs.len() {
            if self.job_at(at)?.held.is_some() {
                self.release(at).await?;
            }
        }
        for at in 0..self.world.jobs.len() {
            let job = self.job_at(at)?;
            if job.running && self.world.replaced(job) {
                self.switch(at).await?;
                self.crash().await?;
            }
        }
        Ok(())
    }

    async fn settle_running(&mut self) -> Verdict {
        for at in 0..self.world.jobs.len() {
            if !self.job_at(at)?.running {
                continue;
            }
            self.switch(at).await?;
            if self.job()?.muted {
                self.notices().await?;
            }
            let pending: Vec<u64> = self.job()?.pending.keys().copied().collect();
            for id in pending {
                self.run(&format!("abort chk-{id}"), &[]).await?;
            }
            self.complete_one().await?;
        }
        Ok(())
    }

    async fn complete_one(&mut self) -> Verdict {
        for _ in 0..ATTEMPTS_MAX {
            if self.checkpoint(Kind::Checkpoint).await? {
                return Ok(());
            }
        }
        let name = self.job()?.name.clone();
        ensure(false, || format!("{name} completes no checkpoint although nothing fails any more"))
    }

    /// If nothing failed and nobody crashed, nothing may have been left behind.
    async fn check_tidy(&mut self) -> Verdict {
        let orphans = self.objects().await?;
        let excused = self.world.untidy || self.world.faulty;
        ensure(orphans == 0 || excused, || format!("{orphans} orphans were left behind"))
    }

    /// Directories without a job get one.
    async fn take_over_the_rest(&mut self) -> Verdict {
        let names: Vec<String> = self.world.directories.keys().cloned().collect();
        for name in names {
            let directory = self.world.directories.get(&name).cloned().unwrap_or_default();
            let job = self.world.jobs.iter().rposition(|job| job.directory == name);
            let Some(at) = job.filter(|_| self.world.owner(&name).is_none()) else { continue };
            self.switch(at).await?;
            if directory.is_empty() {
                self.fresh().await?;
            } else {
                self.claim().await?;
            }
            self.complete_one().await?;
        }
        Ok(())
    }

    async fn sweep_all(&mut self) -> Verdict {
        let mut meta_max = 0;
        let names: Vec<String> = self.world.directories.keys().cloned().collect();
        for name in names {
            let Some(at) = self.world.owner(&name) else { continue };
            self.switch(at).await?;
            let rest = self.run("sweep age=0", &[]).await?;
            ensure(rest.len() == 1, || format!("a sweep printed `{rest:?}`"))?;
            meta_max +=
                4 + 2 * self.world.directories.get(&name).map_or(0, |found| found.published().len() as u64);
        }
        let orphans = self.objects().await?;
        ensure(orphans == 0, || format!("{orphans} orphans are left after a sweep"))?;
        ensure(self.meta <= meta_max, || format!("{} meta objects, at most {meta_max} are right", self.meta))
    }

    async fn check_checkpoints(&mut self) -> Verdict {
        let names: Vec<String> = self.world.directories.keys().cloned().collect();
        for name in names {
            let Some(at) = self.world.owner(&name) else { continue };
            self.switch(at).await?;
            let (job, settings) = (self.job()?.name.clone(), self.job()?.settings.clone());
            for place in Place::ALL {
                self.check_dump(place).await?;
            }
            let published =
                self.world.directories.get(&name).map(|found| found.published()).unwrap_or_default();
            for (id, image) in published {
                self.switch(at).await?;
                self.check_verify(id, image.len()).await?;
                let mut settings = settings.clone();
                settings.subtasks = 1 + self.random.below(4);
                self.restore_copy(&format!("{job}/chk-{id}"), &name, id, settings).await?;
                for place in Place::ALL {
                    self.check_dump(place).await?;
                }
                self.crash().await?;
            }
        }
        Ok(())
    }
}
