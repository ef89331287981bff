//! Random histories of a backend against an ordered map.

use proptest::prelude::*;

use super::harness::{Harness, options};
use crate::{BaseMode, FreezeKind};

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u64),
    PutMany(u64, u64),
    Update(u64),
    Remove(u64),
    PutText(u64, u32, u64),
    BumpText(u64, u32),
    RemoveText(u64, u32),
    Clear,
    ClearTexts(Option<u32>),
    RetainEven,
    /// Against the base the mode calls for.
    Trigger,
    Full,
    Savepoint,
    /// Writes one of the pending snapshots.
    Finish(usize),
    Complete(usize),
    Abort(usize),
    Drop(usize),
    Reopen,
    /// From now on, this share of the segments is to be emptied.
    Rewrite(Picky),
}

fn step(keys: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..keys, 0_u64..100).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (0..keys, 1_u64..60).prop_map(|(from, count)| Step::PutMany(from, count)),
        6 => (0..keys).prop_map(Step::Update),
        8 => (0..keys).prop_map(Step::Remove),
        5 => (0..keys, 0_u32..3, 0_u64..100).prop_map(|(key, of, value)| Step::PutText(key, of, value)),
        3 => (0..keys, 0_u32..3).prop_map(|(key, of)| Step::BumpText(key, of)),
        5 => (0..keys, 0_u32..3).prop_map(|(key, of)| Step::RemoveText(key, of)),
        1 => Just(Step::Clear),
        1 => proptest::option::of(0_u32..3).prop_map(Step::ClearTexts),
        1 => Just(Step::RetainEven),
        8 => Just(Step::Trigger),
        1 => Just(Step::Full),
        1 => Just(Step::Savepoint),
        8 => (0_usize..4).prop_map(Step::Finish),
        6 => (0_usize..4).prop_map(Step::Complete),
        2 => (0_usize..4).prop_map(Step::Abort),
        1 => (0_usize..4).prop_map(Step::Drop),
        1 => Just(Step::Reopen),
        3 => picky().prop_map(Step::Rewrite),
    ]
}

/// Empties some segments, for no good reason.
#[derive(Clone, Copy, Debug)]
struct Picky {
    every: u32,
    bytes: u64,
    apart: bool,
}

impl crate::rewrite::RewritePolicy for Picky {
    fn plan(&self, stats: &crate::rewrite::ChainStats) -> crate::rewrite::RewritePlan {
        use crate::rewrite::{RewritePlan, Survivors};
        let numbers = stats.segments.iter().map(|segment| segment.number);
        RewritePlan {
            victims: numbers.clone().filter(|number| number.0 % self.every == 0).collect(),
            prospects: numbers.filter(|number| number.0 % 2 == 0).collect(),
            budget_bytes: self.bytes,
            survivors: if self.apart { Survivors::Apart } else { Survivors::WithDelta },
            ..RewritePlan::none()
        }
    }

    fn part_bytes(&self, _bytes: u64) -> Option<u64> {
        Some(self.bytes)
    }
}

fn picky() -> impl Strategy<Value = Picky> {
    let bytes = prop_oneof![Just(u64::MAX), 0_u64..500];
    (0_u32..4, bytes, any::<bool>()).prop_map(|(every, bytes, apart)| Picky { every, bytes, apart })
}

/// Plays the coordinator's part: knows which checkpoints are complete.
struct Job {
    harness: Harness,
    mode: BaseMode,
    /// Written, not complete, not aborted.
    acknowledged: Vec<u64>,
    completed: Option<u64>,
    /// The newest checkpoint that was written, whatever became of it.
    newest_written: Option<u64>,
    policy: Option<std::sync::Arc<dyn crate::rewrite::RewritePolicy>>,
}

impl Job {
    fn base(&self) -> Option<u64> {
        match self.mode {
            BaseMode::Confirmed => self.completed,
            BaseMode::Acknowledged => self.newest_written.max(self.completed),
        }
    }

    fn play(&mut self, step: &Step) {
        let harness = &mut self.harness;
        match *step {
            Step::Put(key, value) => harness.put(key, value),
            Step::PutMany(from, count) => (from..from + count).for_each(|key| harness.put(key, count)),
            Step::Update(key) => harness.update(key, 1),
            Step::Remove(key) => harness.remove(key),
            Step::PutText(key, namespace, value) => harness.put_text(key, namespace, value),
            Step::BumpText(key, namespace) => harness.bump_text(key, namespace),
            Step::RemoveText(key, namespace) => harness.remove_text(key, namespace),
            Step::Clear => harness.clear(),
            Step::ClearTexts(namespace) => harness.clear_texts(namespace),
            Step::RetainEven => harness.retain_even(),
            Step::Trigger => {
                let base = self.base();
                self.harness.freeze(base, FreezeKind::Checkpoint).expect("the base is remembered");
            }
            Step::Full => {
                harness.freeze(None, FreezeKind::Full).unwrap();
            }
            Step::Savepoint => {
                harness.freeze(None, FreezeKind::Savepoint).unwrap();
            }
            Step::Finish(at) => self.finish(at),
            Step::Complete(at) => self.complete(at),
            Step::Abort(at) => self.abort(at),
            Step::Drop(at) => {
                if at < harness.pending.len() {
                    let id = harness.pending.remove(at).snapshot.id();
                    harness.backend.aborted(id);
                }
            }
            Step::Rewrite(picky) => {
                let policy: Option<std::sync::Arc<dyn crate::rewrite::RewritePolicy>> = match picky.every {
                    0 => None,
                    _ => Some(std::sync::Arc::new(picky)),
                };
                self.policy = policy.clone();
                harness.backend.set_rewriting(policy);
            }
            Step::Reopen => {
                if let Some(id) = self.completed {
                    harness.reopen(super::harness::id(id));
                    harness.backend.set_rewriting(self.policy.clone());
                    self.acknowledged.clear();
                    self.newest_written = None;
                }
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let Some(pending) = self.harness.pending.get(at) else { return };
        let (id, kind) = (pending.snapshot.id().get(), pending.kind);
        // Overtaken ones are only read back.
        self.harness.finish(at);
        if kind != FreezeKind::Savepoint {
            self.newest_written = self.newest_written.max(Some(id));
            if self.completed.is_none_or(|completed| id > completed) {
                self.acknowledged.push(id);
            }
        }
    }

    fn complete(&mut self, at: usize) {
        if at < self.acknowledged.len() {
            let id = self.acknowledged.remove(at);
            self.completed = Some(id);
            self.harness.backend.completed(super::harness::id(id));
            self.acknowledged.retain(|other| *other > id);
            if self.mode == BaseMode::Confirmed {
                // A newer completion aborts older pending checkpoints.
                let overtaken = |pending: &super::harness::Pending| {
                    pending.kind != FreezeKind::Savepoint && pending.snapshot.id().get() < id
                };
                self.harness.pending.retain(|pending| !overtaken(pending));
            }
        }
    }

    fn abort(&mut self, at: usize) {
        if at < self.acknowledged.len() {
            let id = self.acknowledged.remove(at);
            self.harness.backend.aborted(super::harness::id(id));
        }
    }
}

fn run(mode: BaseMode, key_groups: u16, steps: &[Step]) {
    let harness = Harness::new(options(key_groups, mode));
    let mut job =
        Job { harness, mode, acknowledged: Vec::new(), completed: None, newest_written: None, policy: None };
    for step in steps {
        job.play(step);
        job.harness.backend.check_invariants();
    }
    job.harness.check();
    while !job.harness.pending.is_empty() {
        job.finish(0);
    }
    job.harness.check();
    assert_eq!(job.harness.backend.figures().live_snapshots, 0);
    assert_eq!(job.harness.backend.figures().records_held, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_checkpoint_restores_what_was_there_at_its_freeze(
        steps in proptest::collection::vec(step(12), 40..80),
    ) {
        run(BaseMode::Confirmed, 2, &steps);
    }

    #[test]
    fn many_keys_split_pieces_while_snapshots_are_open(
        steps in proptest::collection::vec(step(300), 40..80),
    ) {
        run(BaseMode::Confirmed, 3, &steps);
    }

    #[test]
    fn an_acknowledged_checkpoint_can_be_a_base_whatever_becomes_of_it(
        steps in proptest::collection::vec(step(12), 40..80),
    ) {
        run(BaseMode::Acknowledged, 2, &steps);
    }
}
