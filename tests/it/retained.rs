//! What is retained, as a host sees it: how far it may trim its sources, and what a take-over reads.

use std::sync::{Arc, OnceLock};

use lowtide::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan};
use lowtide::{
    CheckpointId, CheckpointKind, CountingStore, Job, JobBuilder, ObjectClass, RestoreFrom, Retention, Store,
    read_published,
};

use crate::support::{TextJob, faulty, run};

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

fn builder(retained: u32) -> JobBuilder {
    // A publish that is in doubt stays pending until it can be read back.
    Job::builder("a").key_groups(8).concurrent_max(4).retained(Retention::newest(retained).unwrap())
}

/// The oldest and the newest checkpoint that any process would find in the store.
async fn found(truth: &Store) -> (Option<CheckpointId>, Option<CheckpointId>) {
    let directory = truth.sub(&lowtide::ObjectName::new("a").unwrap());
    let published = read_published(&directory).await.unwrap();
    (published.checkpoints.first().map(lowtide::PublishedCheckpoint::id), published.latest_id())
}

#[test]
fn what_may_be_trimmed_advances_by_a_verified_publish_and_by_nothing_else() {
    let modes = [FaultMode::Before, FaultMode::After, FaultMode::Cut, FaultMode::Conflict];
    for mode in modes {
        for class in [FaultClass::Publish, FaultClass::Data] {
            run(async {
                let truth = Store::memory();
                let (store, faults) = faulty(&truth);
                let mut job = TextJob::of(builder(2).create(&store).await.unwrap());
                assert_eq!(job.job.lowest_retained(), None, "nothing may be trimmed before a checkpoint");
                for number in 1..=3 {
                    job.put("k", &number.to_string());
                    job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
                }
                assert_eq!(job.job.lowest_retained(), Some(id(2)));
                // No publish, and no reading back of one, is answered.
                for operation in [FaultOperation::Put, FaultOperation::Get] {
                    let plan = FaultPlan::first(operation, mode);
                    faults.plan(FaultPlan { class, times: u64::MAX, ..plan });
                }
                for number in 4..=5 {
                    job.put("k", &number.to_string());
                    let failed = job.job.checkpoint(CheckpointKind::Checkpoint).await;
                    assert!(failed.is_err(), "{mode:?} of {class:?}");
                    assert_eq!(job.job.lowest_retained(), Some(id(2)), "{mode:?} of {class:?}: moved");
                    let (oldest, _) = found(&truth).await;
                    assert!(
                        oldest >= Some(id(2)),
                        "{mode:?} of {class:?}: {oldest:?} needs what was trimmed"
                    );
                }
                faults.clear();
                job.put("k", "6");
                let done = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().id;
                let lowest = job.job.lowest_retained();
                assert_eq!((lowest, Some(done)), found(&truth).await, "{mode:?} of {class:?}");
                // What it names is restored by a process that knows nothing else.
                job.job.run_deletions().await.unwrap();
                drop(job);
                let from = RestoreFrom { checkpoint: lowest, ..RestoreFrom::latest("a") };
                let copy = Job::builder("copy").key_groups(8).restore(&truth, from).await.unwrap();
                assert_eq!(copy.lowest_retained(), None, "what was restored from is another job's");
                assert_eq!(TextJob::of(copy).dump().len(), 1);
            });
        }
    }
}

#[test]
fn savepoints_and_refused_changes_of_retention_trim_nothing() {
    run(async {
        let truth = Store::memory();
        let (store, faults) = faulty(&truth);
        let mut job = TextJob::of(builder(3).create(&store).await.unwrap());
        job.put("k", "0");
        job.job.checkpoint(CheckpointKind::Savepoint).await.unwrap();
        assert_eq!(job.job.lowest_retained(), None, "a savepoint is its user's");
        for number in 2..=4 {
            job.put("k", &number.to_string());
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        assert_eq!(job.job.lowest_retained(), Some(id(2)));
        let plan = FaultPlan::first(FaultOperation::Put, FaultMode::Before);
        faults.plan(FaultPlan { class: FaultClass::Publish, times: u64::MAX, ..plan });
        let fewer = Retention::newest(1).unwrap();
        assert!(job.job.set_retained(fewer).await.is_err());
        assert_eq!(job.job.lowest_retained(), Some(id(2)));
        faults.clear();
        job.job.set_retained(fewer).await.unwrap();
        assert_eq!(job.job.lowest_retained(), Some(id(4)));
        assert_eq!(found(&truth).await, (Some(id(4)), Some(id(4))));
        // A claim takes what is retained over; so does the loss of the coordinator alone.
        job.job.failover().await.unwrap();
        assert_eq!(job.job.lowest_retained(), Some(id(4)));
        drop(job);
        let job = builder(1).recover(&truth).await.unwrap();
        assert_eq!(job.lowest_retained(), Some(id(4)));
    });
}

#[test]
fn a_take_over_reads_each_retained_manifest_once_however_many_files_they_list() {
    const RETAINED: u32 = 20;
    run(async {
        let counting: Arc<OnceLock<CountingStore>> = Arc::default();
        let seen = Arc::clone(&counting);
        let store = Store::memory().wrapped(move |inner| {
            let store = CountingStore::new(inner);
            seen.set(store.clone()).unwrap();
            Arc::new(store)
        });
        let counting = counting.get().unwrap();
        let reads = |class| counting.counts(Some(class)).gets;
        let mut job = TextJob::of(builder(RETAINED).create(&store).await.unwrap());
        for number in 0..60 {
            job.put(&format!("key{number}"), "1");
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        job.job.run_deletions().await.unwrap();

        let before = [ObjectClass::Manifest, ObjectClass::Data].map(reads);
        let failover = job.job.failover().await.unwrap();
        assert_eq!((failover.checkpoints, failover.files), (20, 60));
        let after = [ObjectClass::Manifest, ObjectClass::Data].map(reads);
        assert_eq!(after[0] - before[0], u64::from(RETAINED), "each manifest once");
        assert_eq!(after[1], before[1], "no data object");

        // Nothing is read again by what follows, but the manifest that a checkpoint's own figures are told from.
        job.put("key0", "2");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert_eq!(reads(ObjectClass::Manifest) - after[0], 1);

        // A process that starts from nothing reads one more: that of the checkpoint it restores.
        drop(job);
        let before = reads(ObjectClass::Manifest);
        let job = TextJob::of(builder(RETAINED).recover(&store).await.unwrap());
        assert_eq!(reads(ObjectClass::Manifest) - before, u64::from(RETAINED) + 1);
        assert_eq!(job.dump().len(), 60);
    });
}
