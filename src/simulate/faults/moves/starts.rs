//! Jobs start, are restored, stand still and are lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulate::faults::Situation;
use crate::simulate::faults::history::{Breach, History, Verdict, ensure};
use crate::simulate::faults::image::{Image, Memory};
use crate::simulate::faults::ledger::{Cause, TakeOver};
use crate::simulate::faults::truth::Truth;
use crate::simulate::faults::world::{Job, Settings, Waiting};

/// Key groups of all jobs of a history: they never change.
const KEY_GROUPS: u32 = 8;

/// Rewriting policies, with how often of ten each is drawn.
const REWRITES: [&str; 10] = [
    "",
    "",
    "",
    "",
    " rewrite=max-age:1",
    " rewrite=max-age:2",
    " rewrite=max-age:3 rewrite-bytes=60",
    " rewrite=segments:2",
    " rewrite=space:1.5",
    " rewrite=max-age:4,segments:3",
];

impl History {
    /// Settings of a history's first job.
    pub(in crate::simulate::faults) fn settings(&mut self) -> Settings {
        let acknowledged = self.random.below(4) == 0;
        let participant = self.random.below(5) == 0;
        let drawn = self.random.below(10) as usize;
        let mut policies = REWRITES.get(drawn).copied().unwrap_or("").to_owned();
        if acknowledged {
            policies.push_str(" base=acknowledged");
        }
        if participant {
            policies.push_str(" cleanup=participant");
        }
        if self.random.below(4) == 0 {
            policies.push_str(" antimatter=always");
        }
        Settings {
            subtasks: 1 + self.random.below(4),
            key_groups: KEY_GROUPS,
            retain: [1, 1, 2, 3].get(self.random.below(4) as usize).copied().unwrap_or(1),
            concurrent: [1, 2, 8].get(self.random.below(3) as usize).copied().unwrap_or(8),
            policies,
            acknowledged,
            participant,
        }
    }

    /// A name that no job and no directory has.
    fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("j{}", self.names)
    }

    fn started(name: &str, directory: &str, settings: Settings, image: Image) -> Job {
        Job {
            name: name.to_owned(),
            directory: directory.to_owned(),
            settings,
            generation: 0,
            running: true,
            memory: Memory::restored(image),
            marks: BTreeMap::new(),
            pending: BTreeMap::new(),
            ended: Vec::new(),
            next_id: 1,
            acknowledged: BTreeSet::new(),
            held: None,
            muted: false,
            unclaimed: false,
            unheard: BTreeSet::new(),
            known: None,
        }
    }

    /// The job has taken its directory over: it is the current one from now on.
    async fn install(&mut self, mut job: Job, restored: Option<u64>) -> Verdict {
        let Some(store) = self.stage.truth() else { return Ok(()) };
        let truth = Truth::read(&store, &job.directory).await?;
        job.generation = truth.generation;
        job.next_id = truth.next_id.max(restored.map_or(1, |id| id + 1));
        job.marks.extend(restored.map(|id| (id, 0)));
        job.known = truth.own.last().copied();
        self.world.jobs.push(job);
        self.world.current = self.world.jobs.len() - 1;
        Ok(())
    }

    /// An empty job: in a directory of its own at first, later in spite of what is there.
    pub(in crate::simulate::faults) async fn fresh(&mut self) -> Verdict {
        let name = self.fresh_name();
        let settings = match self.world.job() {
            Some(job) => job.settings.clone(),
            None => self.settings(),
        };
        let current = self.world.job().map(|job| job.directory.clone());
        let directory = current.unwrap_or_else(|| name.clone());
        let holds = self.world.directories.get(&directory).is_some_and(|found| !found.is_empty());
        if holds && self.random.below(3) == 0 {
            let printed = self.stage.run(&format!("job {name} {settings} dir={directory}")).await?;
            let refused = printed.iter().any(|line| line.starts_with("error not-empty"));
            let excused = self.world.faulty && printed.iter().any(|line| line.starts_with("error store"));
            ensure(refused || excused || printed.is_empty() && self.world.faulty, || {
                format!("a start in a directory with checkpoints printed `{printed:?}`")
            })?;
            return self.sync(&directory, Cause::Step).await;
        }
        self.leave_untidy(&directory);
        let force = if holds { " force" } else { "" };
        let printed = self.stage.run(&format!("job {name} {settings} dir={directory}{force}")).await?;
        let running = self.is_current(&name);
        self.sync(&directory, Cause::TakeOver(TakeOver::Fresh)).await?;
        if !running {
            return self.start_failed(&printed);
        }
        if holds {
            self.reach(Situation::Forced);
        }
        let job = Self::started(&name, &directory, settings, Image::default());
        self.install(job, None).await
    }

    fn is_current(&self, name: &str) -> bool {
        self.stage.current() == Some(name)
    }

    /// A start that failed was met by a fault.
    fn start_failed(&mut self, printed: &[String]) -> Verdict {
        let excused =
            printed.iter().all(|line| line.starts_with("error store") || line.starts_with("error fenced"));
        ensure(excused && self.world.faulty && !self.world.calm, || {
            format!("a job did not start: `{}`", printed.join("; "))
        })?;
        self.world.untidy = true;
        Ok(())
    }

    /// Whoever runs in a directory that is taken over leaves files behind.
    fn leave_untidy(&mut self, directory: &str) {
        let left = self.world.jobs.iter().any(|job| job.directory == directory);
        self.world.untidy |=
            left && self.world.jobs.iter().any(|job| job.directory == directory && job.running);
    }

    fn rescaled(&mut self, mut settings: Settings) -> Settings {
        let before = settings.subtasks;
        if self.random.below(2) == 0 {
            settings.subtasks = 1 + self.random.below(5);
        }
        match settings.subtasks.cmp(&before) {
            std::cmp::Ordering::Greater => self.reach(Situation::RescaleOut),
            std::cmp::Ordering::Less => self.reach(Situation::RescaleIn),
            std::cmp::Ordering::Equal => {}
        }
        settings
    }

    /// Which checkpoint a restore takes: mostly the newest, which has no name then.
    fn source(&mut self, directory: &str, savepoints: bool) -> Verdict<(u64, Option<u64>)> {
        let found = self.world.directories.get(directory).cloned().unwrap_or_default();
        let mut all: Vec<u64> = found.published().keys().copied().collect();
        if !savepoints {
            all.retain(|id| !found.savepoints.contains_key(id));
        }
        let drawn = self.random.below(u32::try_from(all.len()).unwrap_or(1).max(1)) as usize;
        let any = all.get(drawn).copied();
        let named = found.latest().is_none() || self.random.below(3) == 0;
        let id = if named { any } else { found.latest() };
        let id = id.ok_or_else(|| Breach(format!("{directory} has nothing to restore")))?;
        Ok((id, named.then_some(id)))
    }

    /// The current job's directory goes on in another process.
    pub(in crate::simulate::faults) async fn claim(&mut self) -> Verdict {
        let source = self.job()?.clone();
        if source.running && source.held.is_none() && self.random.below(3) != 0 {
            // Mostly the old job is gone or stands still by then.
            match self.random.below(4) {
                0 => self.hold().await?,
                1 => self.stand_still().await?,
                _ => self.crash().await?,
            }
        }
        let (id, named) = self.source(&source.directory, true)?;
        let from = named.map_or_else(|| source.name.clone(), |id| format!("{}/chk-{id}", source.name));
        let settings = self.rescaled(source.settings.clone());
        let options = format!("subtasks={} retain={}", settings.subtasks, settings.retain);
        let name = self.fresh_name();
        self.leave_untidy(&source.directory);
        let image = self.image(&source.directory, id)?;
        let command = format!("restore {name} from={from} claim=claim {options}");
        let printed = self.stage.run(&command).await?;
        self.sync(&source.directory, Cause::TakeOver(TakeOver::Claim(id))).await?;
        if !self.is_current(&name) {
            return self.start_failed(&printed);
        }
        self.check_restored(&printed, id, &image)?;
        self.reach(Situation::Claim);
        let job = Self::started(&name, &source.directory, settings, image);
        self.install(job, Some(id)).await
    }

    fn image(&self, directory: &str, id: u64) -> Verdict<Image> {
        let directory = self.world.directories.get(directory);
        let image = directory.and_then(|directory| directory.published().get(&id).cloned());
        image.ok_or_else(|| Breach(format!("chk-{id} has no image")))
    }

    fn check_restored(&self, printed: &[String], id: u64, image: &Image) -> Verdict {
        let expected = format!("restored chk-{id} entries={}", image.len());
        if printed == [expected.clone()] {
            return Ok(());
        }
        let breach = Breach(format!("a restore printed `{}`, not `{expected}`", printed.join("; ")));
        self.stage.transcript().correct(vec![expected]);
        Err(breach)
    }

    /// A copy of the current job in a directory of its own.
    pub(in crate::simulate::faults) async fn no_claim(&mut self) -> Verdict {
        let source = self.job()?.clone();
        let (id, named) = self.source(&source.directory, true)?;
        let settings = self.rescaled(source.settings.clone());
        let from = named.map_or_else(|| source.name.clone(), |id| format!("{}/chk-{id}", source.name));
        self.restore_copy(&from, &source.directory, id, settings).await
    }

    /// Restores a checkpoint without claim.
    pub(in crate::simulate::faults) async fn restore_copy(
        &mut self,
        from: &str,
        directory: &str,
        id: u64,
        settings: Settings,
    ) -> Verdict {
        let name = self.fresh_name();
        let image = self.image(directory, id)?;
        let printed =
            self.stage.run(&format!("restore {name} from={from} subtasks={}", settings.subtasks)).await?;
        self.sync(&name, Cause::TakeOver(TakeOver::Fresh)).await?;
        if !self.is_current(&name) {
            // Nobody can name the directory any more.
            self.world.directories.remove(&name);
            return self.start_failed(&printed);
        }
        self.check_restored(&printed, id, &image)?;
        self.reach(Situation::NoClaim);
        let job = Job { unclaimed: true, ..Self::started(&name, &name, settings, image) };
        self.install(job, Some(id)).await
    }

    pub(super) async fn failover(&mut self) -> Verdict {
        let at = self.world.current;
        let directory = self.job()?.directory.clone();
        let next = self.job()?.next_id;
        let printed = self.stage.run("failover").await?;
        self.sync(&directory, Cause::TakeOver(TakeOver::Failover)).await?;
        let Some(recovered) = printed.last().filter(|line| line.starts_with("recovered")) else {
            self.judge(at, &printed, &["fenced"]).await?;
            for pending in self.job_at_mut(at)?.pending.values_mut() {
                pending.stuck = true;
            }
            return ensure(self.world.faulty && !self.world.calm, || "a failover did nothing".to_owned());
        };
        let Some(store) = self.stage.truth() else { return Ok(()) };
        let truth = Truth::read(&store, &directory).await?;
        let own = self.world.directories.get(&directory).map_or(0, |directory| directory.own.len());
        ensure(recovered.starts_with(&format!("recovered checkpoints={own} ")), || {
            format!("`{recovered}`, retained are {own}")
        })?;
        let job = self.job_at_mut(at)?;
        job.generation = truth.generation;
        job.next_id = next.max(truth.next_id);
        job.acknowledged.clear();
        job.unheard.clear();
        job.unclaimed &= own == 0;
        job.known = truth.own.last().copied();
        let events: Vec<String> = printed.iter().filter(|line| *line != recovered).cloned().collect();
        self.judge(at, &events, &[]).await?;
        let pending = self.job_at(at)?.pending.len();
        ensure(pending == 0, || format!("{pending} checkpoints are pending after a failover"))?;
        self.reach(Situation::Failover);
        Ok(())
    }

    pub(in crate::simulate::faults) async fn crash(&mut self) -> Verdict {
        let at = self.world.current;
        self.stage.run("crash").await?;
        let pending = !self.job()?.pending.is_empty();
        // What was aborted and not heard of is as pending to the subtasks.
        let unheard = self.reached.contains(&Situation::LostNotices);
        // So is what was acknowledged for an aborted checkpoint and is held as a base.
        let settings = &self.job()?.settings;
        let left = pending || unheard || settings.participant || settings.acknowledged;
        self.world.untidy |= left;
        if pending {
            self.reach(Situation::CrashPending);
        }
        self.gone(at)
    }

    fn gone(&mut self, at: usize) -> Verdict {
        let job = self.job_at_mut(at)?;
        job.running = false;
        job.held = None;
        job.pending.clear();
        Ok(())
    }

    pub(super) async fn stop(&mut self) -> Verdict {
        let at = self.world.current;
        let printed = self.stage.run("stop").await?;
        let unheard = self.reached.contains(&Situation::LostNotices);
        self.world.untidy |= self.world.faulty || unheard || self.job()?.settings.participant;
        self.gone(at)?;
        self.judge(at, &printed, &[]).await.map(|_| ())
    }

    pub(super) async fn hold(&mut self) -> Verdict {
        let name = self.job()?.name.clone();
        self.stage.run(&format!("hold {name}")).await?;
        let at = self.world.current;
        self.job_at_mut(at)?.held.get_or_insert_default();
        Ok(())
    }

    pub(super) async fn release_one(&mut self) -> Verdict {
        let held = self.world.jobs.iter().position(|job| job.held.is_some());
        match held {
            Some(at) => self.release(at).await,
            None => Ok(()),
        }
    }

    /// A coordinator goes on, with what waits for it.
    pub(in crate::simulate::faults) async fn release(&mut self, at: usize) -> Verdict {
        let job = self.job_at_mut(at)?;
        let (name, waiting) = (job.name.clone(), job.held.take().unwrap_or_default());
        for waiting in &waiting {
            if let Waiting::Acknowledge { id, subtask } = *waiting {
                job.acknowledge(id, subtask);
            }
        }
        let stalled = self.stage.faults().stalled();
        let printed = self.stage.run(&format!("release {name}")).await?;
        if !self.world.replaced(self.job_at(at)?) && !waiting.is_empty() {
            self.reach(Situation::Held);
        }
        let rest = self.judge(at, &printed, &["invalid-argument", "not-found"]).await?;
        ensure(rest.is_empty(), || format!("`release {name}` printed `{rest:?}`"))?;
        let stuck = self.stage.faults().stalled() > stalled;
        for pending in self.job_at_mut(at)?.pending.values_mut() {
            pending.stuck |= stuck;
        }
        Ok(())
    }

    pub(in crate::simulate::faults) async fn notices(&mut self) -> Verdict {
        let at = self.world.current;
        let muted = self.job()?.muted;
        self.stage.run(if muted { "unmute" } else { "mute" }).await?;
        self.job_at_mut(at)?.muted = !muted;
        self.reach(Situation::LostNotices);
        Ok(())
    }
}
