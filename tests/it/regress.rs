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

#[test]
fn what_only_a_checkpoint_in_flight_held_of_an_aborted_one_stayed_after_a_failover() {
    run(async {
        let store = Store::memory();
        let builder = Job::builder("j").subtasks(2).key_groups(8).concurrent_max(3);
        let builder = builder.base_mode(BaseMode::Acknowledged);
        let mut job = TextJob::of(builder.create(&store).await.unwrap());
        for number in 0..20 {
            job.put(&format!("k{number}"), "1");
        }
        let aborted = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        let completed = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        job.job.write(aborted, 0).await.into_result().unwrap();
        job.job.acknowledge(aborted, 0).await.into_result().unwrap();
        let in_flight = job.job.trigger(CheckpointKind::Checkpoint).unwrap();
        assert_eq!(in_flight.bases, [Some(aborted), None]);
        for subtask in 0..2 {
            job.job.write(completed, subtask).await.into_result().unwrap();
            job.job.acknowledge(completed, subtask).await.into_result().unwrap();
        }
        assert_eq!(job.job.checkpoints(), [completed], "it overtakes the first");
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 3, "a base in flight");
        job.job.failover().await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 2, "what is published");
    });
}

#[test]
fn what_a_checkpoint_in_flight_was_based_on_stayed_after_a_savepoint_and_a_failover() {
    run(async {
        let store = Store::memory();
        let builder = Job::builder("j").key_groups(8).concurrent_max(3);
        let mut job = TextJob::of(builder.create(&store).await.unwrap());
        job.put("k", "1");
        let first = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().id;
        let full = job.job.trigger(CheckpointKind::Full).unwrap().id;
        let in_flight = job.job.trigger(CheckpointKind::Checkpoint).unwrap();
        assert_eq!(in_flight.bases, [Some(first)]);
        job.job.write(full, 0).await.into_result().unwrap();
        job.job.acknowledge(full, 0).await.into_result().unwrap();
        assert_eq!(job.job.checkpoints(), [full]);
        // The next member of the sequence says nothing of what the one before let go.
        job.job.checkpoint(CheckpointKind::Savepoint).await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 3, "a base in flight");
        job.job.failover().await.unwrap();
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 2, "what is published");
    });
}
