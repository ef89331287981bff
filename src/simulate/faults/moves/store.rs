//! The store fails, is swept, is counted.

use crate::simulate::faults::Situation;
use crate::simulate::faults::history::{Breach, History, Verdict, ensure};
use crate::simulate::faults::ledger::Cause;
use crate::simulate::faults::world::{Job, Kind};

/// A sweep from outside takes nothing younger: the checkpoint timeout.
const SWEEP_AGE_MILLIS: u64 = 600_000;

impl History {
    /// Whether a call that never returns is planned and has not come yet.
    pub(super) fn hang_planned(&self) -> bool {
        self.hang_planned && self.stage.faults().plans_open() > 0
    }

    pub(super) async fn fault(&mut self) -> Verdict {
        let pick = |random: &mut crate::simulate::random::Random, words: &[&'static str]| {
            let drawn = random.below(u32::try_from(words.len()).unwrap_or(1)) as usize;
            words.get(drawn).copied().unwrap_or("put")
        };
        let publish = self.random.below(2) == 0;
        let operation =
            if publish { "put" } else { pick(&mut self.random, &["put", "put", "get", "delete", "list"]) };
        let modes = ["before", "after", "after", "cut", "hang"];
        let mode =
            pick(&mut self.random, if publish { &["before", "after", "after", "hang"] } else { &modes });
        let object = if publish { "publish" } else { pick(&mut self.random, &["data", "any", "publish"]) };
        // A store that creates an object creates all of it: half a member of the sequence is damage, not a fault.
        let object = if operation == "put" && mode == "cut" { "data" } else { object };
        let nth = 1 + self.random.below(if publish { 1 } else { 4 });
        let times = if self.random.below(4) == 0 { 8 } else { 1 };
        let command = format!("fault {operation} nth={nth} mode={mode} times={times} object={object}");
        self.stage.run(&command).await?;
        self.world.faulty = true;
        self.hang_planned = (self.hang_planned && self.stage.faults().plans_open() > 1) || mode == "hang";
        self.lost_reply_planned |= publish && mode == "after";
        Ok(())
    }

    pub(super) async fn sweep(&mut self) -> Verdict {
        if self.job()?.held.is_some() {
            return Ok(());
        }
        let dry = if self.random.below(4) == 0 { " dry-run" } else { "" };
        let rest = self.run(&format!("sweep age=0{dry}"), &[]).await?;
        self.reach(Situation::Sweep);
        ensure(rest.len() <= 1, || format!("a sweep printed `{rest:?}`"))
    }

    /// Another process sweeps a directory, whether its job runs or not.
    pub(super) async fn sweep_outside(&mut self) -> Verdict {
        let gone: Vec<usize> =
            self.world.jobs.iter().enumerate().filter(|(_, job)| !job.running).map(|(at, _)| at).collect();
        let drawn = self.random.below(u32::try_from(gone.len()).unwrap_or(1).max(1)) as usize;
        let Some(sweeper) = gone.get(drawn).copied() else { return Ok(()) };
        if self.stage.sweep_is_paused() {
            return Ok(());
        }
        if self.random.below(2) == 0 {
            self.stage.run(&format!("clock {}", SWEEP_AGE_MILLIS + 1)).await?;
        }
        let paused = self.random.below(2) == 0 && self.stage.faults().plans_open() == 0;
        let calls = ["list:1", "list:2", "list:3", "get:1", "get:2", "put:1", "delete:1"];
        let call = calls.get(self.random.below(7) as usize).copied().unwrap_or("list:3");
        let pause = if paused { format!(" pause={call}") } else { String::new() };
        // Refused unless the directory's job has stopped in order.
        let age = if self.random.below(3) == 0 { 0 } else { SWEEP_AGE_MILLIS };
        self.reach(if paused { Situation::SweepPaused } else { Situation::SweepOutside });
        self.sweep_as(sweeper, age, &pause).await
    }

    /// A checkpoint is uploaded for longer than a sweep from outside waits, and then acknowledged.
    pub(super) async fn slow_upload(&mut self) -> Verdict {
        let (at, directory) = (self.world.current, self.job()?.directory.clone());
        let gone = |job: &Job| !job.running && job.directory == directory;
        let sweeper = self.world.jobs.iter().position(gone);
        let Some(sweeper) = sweeper.filter(|_| !self.stage.sweep_is_paused()) else { return Ok(()) };
        let id = self.job()?.next_id;
        self.put().await?;
        self.trigger(Kind::Checkpoint).await?;
        if self.job_at(at)?.pending.contains_key(&id) {
            self.write_all(id).await?;
        }
        self.stage.run(&format!("clock {}", SWEEP_AGE_MILLIS + 1)).await?;
        self.reach(Situation::SweepOutside);
        self.sweep_as(sweeper, SWEEP_AGE_MILLIS, "").await?;
        if self.job_at(at)?.pending.contains_key(&id) {
            self.acknowledge_all(id).await?;
        }
        Ok(())
    }

    async fn sweep_as(&mut self, sweeper: usize, age: u64, pause: &str) -> Verdict {
        let current = self.world.current;
        self.switch(sweeper).await?;
        let printed = self.stage.run(&format!("sweep age={age}{pause}")).await?;
        self.world.swept_outside = true;
        self.judge_sweep(sweeper, age == 0, &printed).await?;
        self.switch(current).await
    }

    async fn judge_sweep(&mut self, sweeper: usize, young: bool, printed: &[String]) -> Verdict {
        let directory = self.job_at(sweeper)?.directory.clone();
        self.sync(&directory, Cause::Step).await?;
        for line in printed.iter().filter(|line| !line.starts_with("swept ")) {
            let excused = line.starts_with("error store") && self.world.faulty && !self.world.calm;
            // A directory that holds no job any more, or never did, has nothing to sweep.
            let nothing = line.starts_with("error not-found");
            let refused = young && line.starts_with("error invalid-argument");
            ensure(excused || nothing || refused, || format!("a sweep printed `{line}`"))?;
        }
        Ok(())
    }

    /// A sweep that stands still goes on.
    pub(in crate::simulate::faults) async fn resume_sweep(&mut self) -> Verdict {
        let printed = self.stage.run("sweep resume").await?;
        let names: Vec<String> = self.world.directories.keys().cloned().collect();
        for name in names {
            self.sync(&name, Cause::Step).await?;
        }
        for line in printed.iter().filter(|line| !line.starts_with("swept ")) {
            let excused = line.starts_with("error store") && self.world.faulty && !self.world.calm;
            // It may have been asked to take what is young, and finds now that the job has not stopped.
            let refused = line.starts_with("error invalid-argument: an age of 0 ms");
            ensure(excused || refused, || format!("a sweep printed `{line}`"))?;
        }
        Ok(())
    }

    /// Nothing that is listed is missing; returns the number of orphans.
    pub(in crate::simulate::faults) async fn objects(&mut self) -> Verdict<u64> {
        let printed = self.stage.run("objects").await?;
        let names: Vec<String> = self.world.directories.keys().cloned().collect();
        for name in names {
            self.sync(&name, Cause::Step).await?;
        }
        let line = printed.first().cloned().unwrap_or_default();
        let number = |name: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.and_then(|word| word.parse::<u64>().ok())
        };
        let (missing, orphaned, meta) = (number("missing"), number("orphaned"), number("meta"));
        if missing != Some(0) {
            self.stage.transcript().correct(vec!["referenced=* orphaned=* missing=0 meta=*".to_owned()]);
            return Err(Breach(format!("`objects` printed `{line}`: something listed is missing")));
        }
        self.meta = meta.unwrap_or(0);
        Ok(orphaned.unwrap_or(0))
    }

    pub(super) async fn verify(&mut self) -> Verdict {
        let directory = self.job()?.directory.clone();
        let published =
            self.world.directories.get(&directory).map(|found| found.published()).unwrap_or_default();
        let drawn = self.random.below(u32::try_from(published.len()).unwrap_or(1).max(1)) as usize;
        match published.iter().nth(drawn) {
            Some((id, image)) => self.check_verify(*id, image.len()).await,
            None => Ok(()),
        }
    }

    /// A checkpoint of the current job's directory is whole.
    pub(in crate::simulate::faults) async fn check_verify(&mut self, id: u64, entries: usize) -> Verdict {
        let expected = format!("chk-{id} ok entries={entries}");
        let command = format!("verify chk-{id}");
        let printed = self.stage.run(&command).await?;
        let excused = self.world.faulty && !self.world.calm;
        let excused = excused && printed.iter().all(|line| line.starts_with("error store"));
        if printed != [expected.clone()] && !excused {
            self.stage.transcript().correct(vec![expected]);
            return Err(Breach(format!("`{command}` printed `{}`", printed.join("; "))));
        }
        Ok(())
    }
}
