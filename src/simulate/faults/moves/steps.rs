//! Checkpoints are triggered, written, acknowledged, given up.

use std::collections::BTreeSet;

use crate::simulate::faults::Situation;
use crate::simulate::faults::history::{Breach, History, Verdict, checkpoint, ensure};
use crate::simulate::faults::ledger::{Cause, TakeOver};
use crate::simulate::faults::world::{Candidate, Expected, Kind, Pending, Waiting};

impl History {
    /// Notes what a trigger froze.
    fn begin(&mut self, id: u64, kind: Kind, base: Option<u64>) -> Verdict {
        let at = self.world.current;
        let job = self.job()?;
        let allowed = self.world.bases(job, kind);
        // A coordinator that was replaced may have taken ids that nobody heard of.
        ensure(id == job.next_id || allowed.is_none(), || {
            format!("chk-{id} was triggered, chk-{} was next", job.next_id)
        })?;
        if let Some(allowed) = &allowed {
            ensure(allowed.contains(&base), || {
                format!("chk-{id} has base {base:?}, allowed are {allowed:?}")
            })?;
        }
        let mark = base.and_then(|base| job.marks.get(&base)).copied();
        ensure(base.is_none() || mark.is_some() || allowed.is_none(), || {
            format!("chk-{id} has a base of another life")
        })?;
        // The first base is the published one; the others a subtask has acknowledged and nobody published.
        let unpublished = job.settings.acknowledged && job.unheard.is_empty();
        if unpublished && allowed.as_ref().is_some_and(|allowed| allowed.len() > 1) {
            self.reach(Situation::AcknowledgedBase);
        }
        let replaced = allowed.is_none();
        let job = self.job_at_mut(at)?;
        let bound = job.memory.bound(mark);
        job.marks.insert(id, job.memory.barrier());
        job.next_id = id + 1;
        let (written, acknowledged) = (BTreeSet::new(), BTreeSet::new());
        job.pending.insert(
            id,
            Pending { kind, base, bound, written, acknowledged, stuck: false, base_is_known: true },
        );
        let concurrent = job.pending.len() > 1;
        let (directory, image) = (job.directory.clone(), job.memory.image().clone());
        if concurrent {
            self.reach(Situation::Concurrent);
        }
        if !replaced && let Some(directory) = self.world.directories.get_mut(&directory) {
            directory.candidates.insert(id, Candidate { kind, image });
        }
        Ok(())
    }

    fn beyond_the_limit(&self, kind: Kind) -> Verdict<bool> {
        let job = self.job()?;
        Ok(kind != Kind::Savepoint && job.in_flight() >= job.settings.concurrent)
    }

    /// Whether the coordinator may have read back a publish of which nothing was heard: then fewer are pending.
    fn may_be_within_the_limit(&self) -> Verdict<bool> {
        let job = self.job()?;
        Ok(job.unheard.iter().any(|id| job.pending.contains_key(id)))
    }

    /// The kind that a trigger has in the end: full while a restored checkpoint is not claimed.
    fn kind(&self, kind: Kind) -> Verdict<Kind> {
        let job = self.job()?;
        Ok(if kind == Kind::Checkpoint && job.unclaimed { Kind::Full } else { kind })
    }

    pub(super) async fn trigger(&mut self, kind: Kind) -> Verdict {
        let full = self.beyond_the_limit(kind)?;
        let replaced = self.world.replaced(self.job()?);
        let errors: &[&str] = if full || replaced { &["invalid-argument"] } else { &[] };
        let rest = self.run(&format!("trigger{}", kind.word()), errors).await?;
        let kind = self.kind(kind)?;
        let Some(line) = rest.first() else {
            return ensure(full || replaced, || "a trigger printed nothing".to_owned());
        };
        let within = !full || replaced || self.may_be_within_the_limit()?;
        ensure(within, || "a checkpoint was triggered beyond the limit".to_owned())?;
        let (id, base) = line.split_once(" triggered base=").unwrap_or((line, ""));
        let id = checkpoint(id).ok_or_else(|| Breach(format!("`{line}` names no checkpoint")))?;
        self.begin(id, kind, checkpoint(base))
    }

    /// All steps at once; returns whether it completed.
    pub(in crate::simulate::faults) async fn checkpoint(&mut self, kind: Kind) -> Verdict<bool> {
        let at = self.world.current;
        let command = format!("checkpoint{}", kind.word());
        let doubtful = self.may_be_within_the_limit()?;
        let base_is_known = self.job()?.unheard.is_empty();
        if (self.beyond_the_limit(kind)? && !doubtful) || self.world.replaced(self.job()?) {
            // Then it must not get far.
            let next = self.job()?.next_id;
            let printed = self.stage.run(&command).await?;
            let replaced = self.world.replaced(self.job()?);
            if replaced && printed.iter().any(|line| !line.starts_with("error invalid-argument")) {
                // A coordinator that has not noticed yet takes an id, and stops at the publish.
                self.job_at_mut(at)?.next_id = next.max(self.ids_printed(&printed) + 1);
            }
            self.forget_aborted(at, &printed)?;
            let rest = self.judge(at, &printed, &["invalid-argument"]).await?;
            return ensure(rest.is_empty(), || format!("`{command}` got as far as `{rest:?}`"))
                .map(|()| false);
        }
        let kind = self.kind(kind)?;
        let job = self.job()?;
        let id = job.next_id;
        let base = self.world.bases(job, kind).and_then(|bases| bases.into_iter().next()).flatten();
        self.begin(id, kind, base)?;
        let job = self.job_at_mut(at)?;
        job.acknowledge(id, None);
        // Which of several bases it takes is told by its figures only.
        job.pending.entry(id).and_modify(|pending| pending.base_is_known = base_is_known);
        let errors: &[&str] = if doubtful { &["invalid-argument"] } else { &[] };
        let rest = self.run(&command, errors).await?;
        if self.refused {
            // It was beyond the limit after all.
            let job = self.job_at_mut(at)?;
            job.pending.remove(&id);
            job.next_id = id;
            return Ok(false);
        }
        self.job_at_mut(at)?.pending.entry(id).and_modify(|pending| pending.stuck = true);
        let completed = self.expected.contains_key(&(at, id));
        // What it wrote is read from the store, which may fail.
        let unread = completed && rest.is_empty() && self.world.faulty && !self.world.calm;
        ensure(completed == (rest.len() == 1) || unread, || format!("`{command}` printed `{rest:?}`"))?;
        if let Some(line) = rest.first() {
            self.check_stat(at, id, line)?;
        }
        Ok(completed)
    }

    fn ids_printed(&self, printed: &[String]) -> u64 {
        let words = printed.iter().flat_map(|line| line.split(' '));
        words.filter_map(checkpoint).max().unwrap_or(0)
    }

    /// A replaced coordinator may abort what it has just triggered itself.
    fn forget_aborted(&mut self, at: usize, printed: &[String]) -> Verdict {
        for line in printed {
            if let Some(id) = line.strip_suffix(" aborted").and_then(checkpoint) {
                let bound = self.job_at(at)?.memory.bound(None);
                let (written, acknowledged) = (BTreeSet::new(), BTreeSet::new());
                let pending = Pending {
                    kind: Kind::Full,
                    base: None,
                    bound,
                    written,
                    acknowledged,
                    stuck: true,
                    base_is_known: false,
                };
                self.job_at_mut(at)?.pending.entry(id).or_insert(pending);
            }
        }
        Ok(())
    }

    /// A checkpoint is triggered before an older one has ended, and both are acknowledged in order.
    pub(super) async fn overlap(&mut self) -> Verdict {
        let at = self.world.current;
        let mut pair = Vec::new();
        for _ in 0..2 {
            let id = self.job()?.next_id;
            self.trigger(Kind::Checkpoint).await?;
            pair.extend(self.job()?.pending.contains_key(&id).then_some(id));
            self.put().await?;
        }
        for id in pair {
            if self.job_at(at)?.pending.contains_key(&id) {
                self.write_all(id).await?;
            }
            if self.job_at(at)?.pending.contains_key(&id) {
                self.acknowledge_all(id).await?;
            }
        }
        Ok(())
    }

    /// Some subtasks have acknowledged a checkpoint and others not when the next one is triggered; then the older one
    /// completes, is given up, or is overtaken.
    pub(super) async fn ahead(&mut self) -> Verdict {
        let at = self.world.current;
        let id = self.job()?.next_id;
        self.trigger(Kind::Checkpoint).await?;
        let some = 1 + self.random.below(self.job()?.settings.subtasks);
        for subtask in 0..some {
            for step in 0..2 {
                let Some(pending) = self.job_at(at)?.pending.get(&id).cloned() else { break };
                match step {
                    0 => self.write_one(id, &pending, Some(subtask)).await?,
                    _ => self.acknowledge_one(id, &pending, Some(subtask)).await?,
                }
            }
        }
        self.put().await?;
        if self.random.below(3) == 0 && self.job_at(at)?.pending.contains_key(&id) {
            self.run(&format!("abort chk-{id}"), &[]).await?;
        }
        let next = self.job()?.next_id;
        self.trigger(Kind::Checkpoint).await?;
        let first = if self.random.below(2) == 0 { [id, next] } else { [next, id] };
        for id in first {
            self.write_all(id).await?;
            self.acknowledge_all(id).await?;
        }
        Ok(())
    }

    /// A coordinator stands still with an acknowledgement waiting.
    pub(super) async fn stand_still(&mut self) -> Verdict {
        let id = self.job()?.next_id;
        self.trigger(Kind::Checkpoint).await?;
        if self.job()?.pending.contains_key(&id) {
            self.write_all(id).await?;
        }
        self.hold().await?;
        if self.job()?.pending.contains_key(&id) {
            self.acknowledge_all(id).await?;
        }
        Ok(())
    }

    pub(super) async fn write_all(&mut self, id: u64) -> Verdict {
        let pending = self.job()?.pending.get(&id).cloned();
        let Some(pending) = pending else { return Ok(()) };
        self.write_one(id, &pending, None).await
    }

    pub(super) async fn acknowledge_all(&mut self, id: u64) -> Verdict {
        let pending = self.job()?.pending.get(&id).cloned();
        let Some(pending) = pending else { return Ok(()) };
        self.acknowledge_one(id, &pending, None).await
    }

    fn any_pending(&mut self) -> Verdict<(u64, Pending)> {
        let pending: Vec<(u64, Pending)> =
            self.job()?.pending.iter().map(|(id, pending)| (*id, pending.clone())).collect();
        let drawn = self.random.below(u32::try_from(pending.len()).unwrap_or(1).max(1)) as usize;
        pending.into_iter().nth(drawn).ok_or_else(|| Breach("nothing is pending".to_owned()))
    }

    pub(super) async fn write(&mut self) -> Verdict {
        let (id, pending) = self.any_pending()?;
        let subtasks = self.job()?.settings.subtasks;
        let one = self.random.below(3) == 0;
        let subtask = one.then(|| self.random.below(subtasks));
        self.write_one(id, &pending, subtask).await
    }

    async fn write_one(&mut self, id: u64, pending: &Pending, subtask: Option<u32>) -> Verdict {
        let at = self.world.current;
        let subtasks = self.job()?.settings.subtasks;
        let wanted: Vec<u32> = subtask.map_or_else(|| (0..subtasks).collect(), |subtask| vec![subtask]);
        let again = wanted.iter().all(|subtask| pending.written.contains(subtask));
        let command = subtask
            .map_or_else(|| format!("write chk-{id}"), |subtask| format!("write chk-{id} subtask={subtask}"));
        let errors: &[&str] = if again || pending.stuck { &["invalid-argument"] } else { &[] };
        let stalled = self.stage.faults().stalled();
        self.run(&command, errors).await?;
        // A coordinator that was replaced has given everything up.
        let replaced = self.world.replaced(self.job_at(at)?);
        let stuck = self.stage.faults().stalled() > stalled || self.store_failed || replaced;
        if let Some(pending) = self.job_at_mut(at)?.pending.get_mut(&id) {
            pending.stuck |= stuck;
            if !pending.stuck {
                pending.written.extend(wanted);
            }
        }
        Ok(())
    }

    pub(super) async fn acknowledge(&mut self) -> Verdict {
        let (id, pending) = self.any_pending()?;
        let subtasks = self.job()?.settings.subtasks;
        let left: Vec<u32> =
            (0..subtasks).filter(|subtask| !pending.acknowledged.contains(subtask)).collect();
        let ready: Vec<u32> =
            left.iter().filter(|subtask| pending.written.contains(*subtask)).copied().collect();
        let all = !ready.is_empty() && ready.len() == left.len() && self.random.below(2) == 0;
        let drawn = self.random.below(subtasks);
        let subtask = if all { None } else { Some(ready.first().copied().unwrap_or(drawn)) };
        self.acknowledge_one(id, &pending, subtask).await
    }

    async fn acknowledge_one(&mut self, id: u64, pending: &Pending, subtask: Option<u32>) -> Verdict {
        let at = self.world.current;
        let subtasks = self.job()?.settings.subtasks;
        let written =
            |subtask: u32| pending.written.contains(&subtask) && !pending.acknowledged.contains(&subtask);
        let early = !subtask.map_or_else(|| (0..subtasks).any(written), written);
        let command = subtask
            .map_or_else(|| format!("ack chk-{id}"), |subtask| format!("ack chk-{id} subtask={subtask}"));
        let waits = (!early || pending.stuck) && self.wait(Waiting::Acknowledge { id, subtask })?;
        if early && !pending.stuck && self.job()?.held.is_some() {
            // It would fail only when the coordinator goes on.
            return Ok(());
        }
        let unwritten = subtask.is_none() && pending.written.len() < subtasks as usize;
        let errors: &[&str] = if early || unwritten || pending.stuck { &["invalid-argument"] } else { &[] };
        let stalled = self.stage.faults().stalled();
        let rest = self.run(&command, errors).await?;
        ensure(rest.is_empty(), || format!("`{command}` printed `{rest:?}`"))?;
        if self.stage.faults().stalled() > stalled
            && let Some(pending) = self.job_at_mut(at)?.pending.get_mut(&id)
        {
            pending.stuck = true;
        }
        if !waits { self.stat(at, id).await } else { Ok(()) }
    }

    /// What a checkpoint that has just completed wrote.
    async fn stat(&mut self, at: usize, id: u64) -> Verdict {
        let directory = self.world.directories.get(&self.job_at(at)?.directory);
        let kept = directory.is_some_and(|directory| {
            directory.own.contains_key(&id) || directory.savepoints.contains_key(&id)
        });
        if !kept || !self.expected.contains_key(&(at, id)) {
            return Ok(());
        }
        let rest = self.run(&format!("stat chk-{id}"), &[]).await?;
        rest.first().map_or(Ok(()), |line| self.check_stat(at, id, line))
    }

    fn check_stat(&mut self, at: usize, id: u64, line: &str) -> Verdict {
        let number = |name: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.and_then(|word| word.parse::<u64>().ok())
                .ok_or_else(|| Breach(format!("`{line}` has no {name}")))
        };
        let (puts, tombstones, clears) = (number("puts")?, number("tombstones")?, number("clears")?);
        let rewritten = number("rewritten")?;
        let base = line.split(' ').find_map(|word| checkpoint(word.strip_prefix("base=")?));
        let Some(expected) = self.expected.get(&(at, id)).copied().filter(|found| found.base_is_known) else {
            return Ok(());
        };
        let Expected { kind, base: expected, bound, .. } = expected;
        let job = self.job_at(at)?;
        let exact = !job.settings.acknowledged;
        ensure(!exact || base == expected, || format!("`{line}`: its base should be {expected:?}"))?;
        ensure(base.is_some() || kind != Kind::Checkpoint || expected.is_none(), || {
            format!("`{line}`: it should have a base")
        })?;
        let changed = puts.saturating_sub(rewritten);
        let right = if exact { changed == bound.puts } else { changed <= bound.entries };
        ensure(right, || format!("`{line}`: {changed} changed entries, should be {}", bound.puts))?;
        ensure(rewritten <= bound.entries, || format!("`{line}`: more rewritten than there is"))?;
        ensure(!exact || tombstones <= bound.tombstones, || {
            format!("`{line}`: at most {} tombstones are needed", bound.tombstones)
        })?;
        let clears_max = bound.scopes_cleared * u64::from(job.settings.subtasks);
        ensure(!exact || clears <= clears_max, || {
            format!("`{line}`: at most {clears_max} clears are needed")
        })?;
        let reached = [
            (rewritten > 0, Situation::Rewrite),
            (tombstones > 0, Situation::Tombstone),
            (clears > 0, Situation::Clear),
        ];
        self.reached.extend(reached.into_iter().filter(|(there, _)| *there).map(|(_, situation)| situation));
        Ok(())
    }

    pub(super) async fn give_up(&mut self) -> Verdict {
        let (id, _) = self.any_pending()?;
        let subtasks = self.job()?.settings.subtasks;
        let (command, situation) = match self.random.below(3) {
            0 => (format!("abort chk-{id}"), Situation::Abort),
            1 => (format!("expire chk-{id}"), Situation::Expired),
            _ => (format!("decline chk-{id} subtask={}", self.random.below(subtasks)), Situation::Declined),
        };
        if !self.wait(Waiting::Other)? {
            self.reach(situation);
        }
        let rest = self.run(&command, &[]).await?;
        ensure(rest.is_empty(), || format!("`{command}` printed `{rest:?}`"))
    }

    /// A message for a checkpoint that has ended.
    pub(super) async fn late(&mut self) -> Verdict {
        let job = self.job()?;
        let ended = job.ended.clone();
        let drawn = self.random.below(u32::try_from(ended.len()).unwrap_or(1).max(1)) as usize;
        let Some(id) = ended.get(drawn).copied() else { return Ok(()) };
        let word = match self.random.below(5) {
            0 => "abort",
            1 => "expire",
            2 => "write",
            _ => "ack",
        };
        if word != "write" {
            self.wait(Waiting::Other)?;
        }
        let rest = self.run(&format!("{word} chk-{id}"), &["invalid-argument"]).await?;
        ensure(rest.is_empty(), || format!("`{word} chk-{id}` printed `{rest:?}`"))
    }

    /// What a subtask of a replaced job has written reaches the coordinator that replaced it.
    pub(super) async fn foreign(&mut self) -> Verdict {
        let job = self.job()?;
        let sender = self.world.jobs.iter().find_map(|other| {
            let older =
                other.directory == job.directory && other.generation < job.generation && other.running;
            let pending = other.pending.iter().rev().find(|(_, pending)| !pending.written.is_empty());
            older.then_some(())?;
            pending
                .map(|(id, pending)| (other.name.clone(), *id, pending.written.first().copied().unwrap_or(0)))
        });
        let Some((sender, id, subtask)) = sender else { return Ok(()) };
        self.reach(Situation::ForeignMessage);
        let command = format!("ack chk-{id} subtask={subtask} from={sender}");
        let printed = self.stage.run(&command).await?;
        let replaced = self.world.replaced(self.job()?);
        let fenced = if replaced { "error fenced" } else { "ignored" };
        let events = ["ignored", "error not-found", "error invalid-argument", fenced];
        let harmless = printed.iter().all(|line| events.iter().any(|event| line.contains(event)));
        ensure(harmless, || format!("`{command}` printed `{printed:?}`"))?;
        let directory = self.job()?.directory.clone();
        self.sync(&directory, Cause::Step).await
    }

    pub(super) async fn delete_savepoint(&mut self) -> Verdict {
        let at = self.world.current;
        let job = self.job()?;
        let directory = job.directory.clone();
        let savepoints = self.world.directories.get(&directory).map(|found| found.savepoints.clone());
        let Some(id) = savepoints.and_then(|savepoints| savepoints.keys().next().copied()) else {
            return Ok(());
        };
        if job.held.is_some() {
            return Ok(());
        }
        let cause = if job.running { Cause::Delete(id) } else { Cause::TakeOver(TakeOver::Delete(id)) };
        let printed = self.stage.run(&format!("savepoint-delete chk-{id}")).await?;
        self.sync(&directory, cause).await?;
        let deleted =
            !self.world.directories.get(&directory).is_some_and(|found| found.savepoints.contains_key(&id));
        ensure(deleted || !printed.is_empty() || self.world.faulty, || {
            format!("savepoint chk-{id} was not deleted")
        })?;
        let errors: &[&str] = if self.world.faulty { &["not-found"] } else { &[] };
        self.judge(at, &printed, errors).await.map(|_| ())
    }
}
