//! One test per fixed bug, named by its symptom.

use lowtide::{BaseMode, CheckpointKind, Job, ObjectClass, Store};

use crate::support::{TextJob, run};

#[test]
fn uploads_of_a_lost_coordinator_stayed_when_a_second_one_was_lost_at_once() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        job.put("a", "1");
        let pending = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        job.job.write(pending, 0).await.into_result().unwrap();
        job.job.failover().await.unwrap();
        job.job.failover().await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert!(job.job.store().list(ObjectClass::Data).await.unwrap().is_empty());
    });
}

#[test]
fn what_was_acknowledged_for_an_aborted_checkpoint_stayed_after_a_failover() {
    run(async {
        let store = Store::memory();
        let builder = Job::builder("j").subtasks(2).key_groups(8).base_mode(BaseMode::Acknowledged);
        let mut job = TextJob::of(builder.create(&store).await.unwrap());
        for number in 0..20 {
            job.put(&format!("k{number}"), "1");
        }
        let pending = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        job.job.write(pending, 0).await.into_result().unwrap();
        job.job.acknowledge(pending, 0).await.into_result().unwrap();
        job.job.abort(pending).await.into_result().unwrap();
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 1, "it may still be a base");
        job.job.failover().await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert!(job.job.store().list(ObjectClass::Data).await.unwrap().is_empty());
    });
}
