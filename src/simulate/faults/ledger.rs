//! The world brought up to what sequences say, and sequences held to what the world allows.
//!
//! Owns: which checkpoints a directory may keep after a step, a start, a deletion.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Breach, History, Verdict, ensure};
use super::image::Image;
use super::truth::Truth;
use super::world::{Directory, Kind};

/// Why a directory may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A step of its job.
    Step,
    /// A savepoint was to be deleted.
    Delete(u64),
    /// Another coordinator was to take over, for one of these reasons.
    TakeOver(TakeOver),
}

/// How a directory is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// The coordinator was lost.
    Failover,
    /// From nothing, in spite of what is there.
    Fresh,
    /// By a claim of that checkpoint.
    Claim(u64),
    /// To delete that savepoint, and for nothing else.
    Delete(u64),
}

/// Ids that a directory names, by what they are.
type Named = (BTreeSet<u64>, BTreeSet<u64>, BTreeSet<u64>);

fn named(directory: &Directory) -> Named {
    let keys = |images: &BTreeMap<u64, Image>| images.keys().copied().collect();
    (keys(&directory.own), keys(&directory.foreign), keys(&directory.savepoints))
}

impl History {
    /// Reads a directory's sequence and checks that it changed as `cause` allows.
    pub(super) async fn sync(&mut self, name: &str, cause: Cause) -> Verdict {
        let Some(store) = self.stage.truth() else { return Ok(()) };
        let truth = Truth::read(&store, name).await?;
        let before = self.world.directories.get(name).cloned().unwrap_or_default();
        let taken_over = truth.generation > before.generation;
        ensure(truth.generation >= before.generation, || format!("the generation of {name} went back"))?;
        let mut after = match cause {
            Cause::TakeOver(how) if taken_over => self.taken_over(before.clone(), how)?,
            _ => {
                ensure(!taken_over, || format!("somebody has taken {name} over"))?;
                before.clone()
            }
        };
        if let Cause::Delete(id) | Cause::TakeOver(TakeOver::Delete(id)) = cause
            && !truth.savepoints.contains(&id)
        {
            after.savepoints.remove(&id);
        }
        after.generation = truth.generation;
        self.add_published(name, &mut after, &truth)?;
        let there = (truth.own, truth.foreign, truth.savepoints);
        let expected = named(&after);
        ensure(there == expected, || {
            format!("own, foreign and savepoints of {name} are {there:?} and should be {expected:?}")
        })?;
        self.world.directories.insert(name.to_owned(), after);
        Ok(())
    }

    /// Adds what the owner has published, and lets go what retention does not keep then.
    fn add_published(&self, name: &str, directory: &mut Directory, truth: &Truth) -> Verdict {
        let candidate = |id: &u64, savepoint: bool| {
            let candidate = directory.candidates.get(id).cloned();
            let fits = candidate.filter(|found| (found.kind == Kind::Savepoint) == savepoint);
            fits.map(|found| (*id, found.image)).ok_or_else(|| {
                Breach(format!("chk-{id} is published in {name} and was not triggered by its owner"))
            })
        };
        let new = |ids: &BTreeSet<u64>, known: &BTreeMap<u64, Image>, savepoint| {
            ids.iter().filter(|id| !known.contains_key(id)).map(|id| candidate(id, savepoint)).collect()
        };
        let own: Verdict<Vec<(u64, Image)>> = new(&truth.own, &directory.own, false);
        let savepoints: Verdict<Vec<(u64, Image)>> = new(&truth.savepoints, &directory.savepoints, true);
        let (own, savepoints) = (own?, savepoints?);
        directory.savepoints.extend(savepoints);
        if own.is_empty() {
            return Ok(());
        }
        let oldest_new = own.first().map_or(0, |(id, _)| *id);
        let newest_known = directory.own.keys().next_back().copied().unwrap_or(0);
        ensure(oldest_new > newest_known, || {
            format!("chk-{oldest_new} was published after chk-{newest_known}")
        })?;
        directory.own.extend(own);
        let owner = self.world.owner(name).and_then(|at| self.world.jobs.get(at));
        let retain = owner.map_or(usize::MAX, |job| job.settings.retain);
        while directory.own.len() > retain {
            directory.own.pop_first();
        }
        Ok(())
    }

    fn taken_over(&self, mut directory: Directory, how: TakeOver) -> Verdict<Directory> {
        match how {
            TakeOver::Failover | TakeOver::Delete(_) => {}
            TakeOver::Fresh => {
                let own = std::mem::take(&mut directory.own);
                directory.foreign.extend(own);
                directory.candidates.clear();
            }
            TakeOver::Claim(id) => {
                let all = directory.published();
                let foreign = std::mem::take(&mut directory.foreign);
                directory.own.extend(foreign);
                directory.own.retain(|kept, _| *kept <= id);
                if let Some(image) = directory.savepoints.remove(&id).or_else(|| all.get(&id).cloned()) {
                    directory.own.insert(id, image);
                }
                directory.candidates.clear();
            }
        }
        Ok(directory)
    }
}
