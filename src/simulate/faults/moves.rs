//! What may happen next, and how likely it is.
//!
//! Owns: the choice. Does not own: what a move does (its sub-modules), what is right (`history`).

mod data;
mod starts;
mod steps;
mod store;

use super::history::{History, Verdict};
use super::world::Kind;

/// Jobs of one history, at most.
const JOBS_MAX: usize = 7;

/// One move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Put,
    Update,
    Remove,
    Again,
    Clear,
    Dump,
    Checkpoint(Kind),
    Trigger(Kind),
    Overlap,
    SlowUpload,
    Ahead,
    Churn,
    Write,
    Acknowledge,
    GiveUp,
    Late,
    Foreign,
    DeleteSavepoint,
    Failover,
    Crash,
    Stop,
    Claim,
    NoClaim,
    Fresh,
    Hold,
    Release,
    Notices,
    Fault,
    Sweep,
    SweepOutside,
    ResumeSweep,
    Objects,
    Verify,
}

impl History {
    /// One random move.
    pub(super) async fn step(&mut self) -> Verdict {
        let moves = self.possible();
        let total: u32 = moves.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.random.below(total.max(1));
        for (weight, chosen) in moves {
            if drawn < weight {
                return self.make(chosen).await;
            }
            drawn -= weight;
        }
        Ok(())
    }

    fn possible(&self) -> Vec<(u32, Move)> {
        let Some(job) = self.world.job() else { return vec![(1, Move::Fresh)] };
        let room = self.world.jobs.len() < JOBS_MAX;
        let directory = self.world.directories.get(&job.directory);
        let latest = directory.and_then(super::world::Directory::latest).is_some();
        let anything = directory.is_some_and(|directory| !directory.is_empty());
        let mut moves =
            vec![(u32::from(self.stage.sweep_is_paused()) * 30, Move::ResumeSweep), (1, Move::Objects)];
        if !job.running {
            moves.push((12, Move::Fresh));
            if latest && room {
                moves.extend([(40, Move::Claim), (8, Move::NoClaim)]);
            }
            moves.push((u32::from(anything) * 6, Move::SweepOutside));
            let alone = self.world.owner(&job.directory).is_none();
            let saved = directory.is_some_and(|directory| !directory.savepoints.is_empty());
            moves.push((u32::from(saved && alone) * 6, Move::DeleteSavepoint));
            return moves;
        }
        self.add_data_and_steps(&mut moves);
        let held_elsewhere = self.world.jobs.iter().any(|other| other.held.is_some());
        let crashes = u32::from(self.mood.crashes);
        let saved = directory.is_some_and(|directory| !directory.savepoints.is_empty());
        moves.extend([
            (u32::from(saved) * 3, Move::DeleteSavepoint),
            (u32::from(job.held.is_none() && !self.world.replaced(job)) * 3, Move::Failover),
            (1 + 2 * crashes, Move::Crash),
            (1, Move::Stop),
            (u32::from(room && latest) * (1 + 2 * crashes), Move::Claim),
            (u32::from(room && anything) * 2, Move::NoClaim),
            (u32::from(room) * crashes, Move::Fresh),
            (u32::from(job.held.is_none()) * 2, Move::Hold),
            (u32::from(held_elsewhere) * 8, Move::Release),
            (2, Move::Notices),
            (u32::from(self.mood.faults) * 9, Move::Fault),
            (2, Move::Sweep),
            (crashes, Move::SweepOutside),
            (1, Move::Verify),
        ]);
        moves
    }

    fn add_data_and_steps(&self, moves: &mut Vec<(u32, Move)>) {
        let Some(job) = self.world.job() else { return };
        moves.extend([
            (26, Move::Put),
            (8, Move::Update),
            (10, Move::Remove),
            (6, Move::Again),
            (3, Move::Clear),
            (1, Move::Dump),
        ]);
        let free = u32::from(job.held.is_none());
        let left_behind =
            self.world.jobs.iter().any(|other| !other.running && other.directory == job.directory);
        let safe = free * u32::from(!self.hang_planned());
        moves.extend([
            (safe * 16, Move::Checkpoint(Kind::Checkpoint)),
            (safe, Move::Checkpoint(Kind::Full)),
            (safe * 2, Move::Checkpoint(Kind::Savepoint)),
            (free * 12, Move::Trigger(Kind::Checkpoint)),
            (free, Move::Trigger(Kind::Full)),
            (free * 2, Move::Trigger(Kind::Savepoint)),
            (free * 8, Move::Overlap),
            (free * u32::from(left_behind) * 2, Move::SlowUpload),
            (free * u32::from(job.settings.acknowledged) * 8, Move::Ahead),
            (safe * 2, Move::Churn),
        ]);
        if !job.pending.is_empty() {
            moves.extend([(16, Move::Write), (20, Move::Acknowledge), (4, Move::GiveUp)]);
        }
        if !job.ended.is_empty() {
            moves.push((2, Move::Late));
        }
        let foreign = self.world.jobs.iter().any(|other| {
            other.directory == job.directory && other.generation < job.generation && !other.pending.is_empty()
        });
        moves.push((u32::from(foreign && job.held.is_none()) * 10, Move::Foreign));
    }

    async fn make(&mut self, chosen: Move) -> Verdict {
        match chosen {
            Move::Put => self.put().await,
            Move::Update => self.update().await,
            Move::Remove => self.remove().await,
            Move::Again => self.put_again().await,
            Move::Clear => self.clear().await,
            Move::Dump => self.dump().await,
            Move::Checkpoint(kind) => self.checkpoint(kind).await.map(|_| ()),
            Move::Trigger(kind) => self.trigger(kind).await,
            Move::Overlap => self.overlap().await,
            Move::SlowUpload => self.slow_upload().await,
            Move::Ahead => self.ahead().await,
            Move::Churn => self.churn().await,
            Move::Write => self.write().await,
            Move::Acknowledge => self.acknowledge().await,
            Move::GiveUp => self.give_up().await,
            Move::Late => self.late().await,
            Move::Foreign => self.foreign().await,
            Move::DeleteSavepoint => self.delete_savepoint().await,
            Move::Failover => self.failover().await,
            Move::Crash => self.crash().await,
            Move::Stop => self.stop().await,
            Move::Claim => self.claim().await,
            Move::NoClaim => self.no_claim().await,
            Move::Fresh => self.fresh().await,
            Move::Hold => self.hold().await,
            Move::Release => self.release_one().await,
            Move::Notices => self.notices().await,
            Move::Fault => self.fault().await,
            Move::Sweep => self.sweep().await,
            Move::SweepOutside => self.sweep_outside().await,
            Move::ResumeSweep => self.resume_sweep().await,
            Move::Objects => self.objects().await.map(|_| ()),
            Move::Verify => self.verify().await,
        }
    }
}
