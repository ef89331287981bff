//! Rewriting within a budget of bytes: never a byte more, and enough of it keeps the bound.

use std::sync::Arc;

use lowtide::heap::rewrite::{Bound, BoundedRewriting, RewriteBudget};
use lowtide::{CheckpointId, CheckpointKind, HeapSettings, Job, Store};

use crate::support::{TextJob, run};

const KEYS: usize = 40;
const CHECKPOINTS: usize = 60;

/// A number that looks like chance, the same at every run.
fn mixed(number: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 10_007
}

/// Values of one to sixty bytes, so that what is left of a budget seldom fits a record.
fn value(number: usize) -> String {
    "x".repeat(1 + mixed(number) % 60)
}

/// Few keys change often and the others seldom; some go.
fn change(job: &mut TextJob, round: usize) {
    for step in 0..4 {
        let number = round * 4 + step;
        let key = if step < 3 { mixed(number) % 5 } else { mixed(number) % KEYS };
        if mixed(number + 1).is_multiple_of(7) {
            job.remove(&format!("key{key}"));
        } else {
            job.put(&format!("key{key}"), &value(number));
        }
    }
}

#[test]
fn no_checkpoint_rewrites_a_byte_more_than_its_budget() {
    let bounds = [
        Bound::MaxAge { checkpoints: 3 },
        Bound::SpaceAmplification { ratio: 1.2 },
        Bound::MaxSegments { count: 3 },
    ];
    for bound in bounds {
        for budget in [0, 1, 40, 150, 1500] {
            run(async {
                let policy = BoundedRewriting {
                    budget: RewriteBudget::Bytes(budget),
                    ..BoundedRewriting::exactly(bound)
                };
                let backend = HeapSettings { rewriting: Some(Arc::new(policy)), ..HeapSettings::default() };
                let builder = Job::builder("a").key_groups(8).backend(backend);
                let mut job = TextJob::of(builder.create(&Store::memory()).await.unwrap());
                (0..KEYS).for_each(|key| job.put(&format!("key{key}"), &value(key)));
                let mut rewritten = 0;
                for round in 0..CHECKPOINTS {
                    let figures = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
                    let bytes = figures.rewritten_bytes;
                    assert!(bytes <= budget, "{bound:?}: {} rewrote {bytes} of {budget} bytes", figures.id);
                    rewritten += bytes;
                    change(&mut job, round);
                }
                assert_eq!(rewritten > 0, budget > 1, "{bound:?} with {budget} bytes rewrote {rewritten}");
            });
        }
    }
}

#[test]
fn a_budget_that_is_enough_empties_every_delta_beyond_the_age_though_nothing_changes() {
    const AGE: u64 = 3;
    run(async {
        let bound = Bound::MaxAge { checkpoints: AGE as u32 };
        let policy =
            BoundedRewriting { budget: RewriteBudget::Bytes(1500), ..BoundedRewriting::exactly(bound) };
        let backend = HeapSettings { rewriting: Some(Arc::new(policy)), ..HeapSettings::default() };
        let builder = Job::builder("a").key_groups(8).backend(backend);
        let mut job = TextJob::of(builder.create(&Store::memory()).await.unwrap());
        for round in 0..8 {
            let keys = round * 5..(round + 1) * 5;
            keys.for_each(|key| job.put(&format!("key{key}"), &value(key)));
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        let expected = job.dump();
        for _ in 0..20 {
            let id = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().id;
            let oldest = job.job.chain(id).await.unwrap().first().map(|link| link.checkpoint);
            assert!(oldest >= CheckpointId::new(id.get() - AGE), "{id} lists {oldest:?}");
        }
        assert_eq!((job.dump().len(), job.dump()), (KEYS, expected));
    });
}
