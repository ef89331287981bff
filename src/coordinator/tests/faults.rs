//! Every failure of the store around a publish.

use super::*;

#[tokio::test]
async fn a_publish_whose_reply_is_lost_is_read_back_and_counts() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::After, 1);
    assert_eq!(
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(),
        ["chk-2 complete", "chk-1 subsumed"]
    );
    assert!(job.coordinator.take_failure().is_none());
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(read_published(&world.store).await.unwrap().latest_id(), Some(id(2)));
}

#[tokio::test]
async fn a_publish_that_did_not_happen_is_repeated() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Before, 1);
    assert_eq!(job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(), ["chk-1 complete"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_publish_that_keeps_failing_is_given_up_and_the_next_one_works() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Before, 5);
    assert_eq!(job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(), ["chk-2 aborted"]);
    assert_eq!(job.coordinator.take_failure().unwrap().kind(), ErrorKind::Store);
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 2, "in doubt, nothing is deleted");
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(),
        ["chk-3 complete", "chk-1 subsumed"]
    );
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn in_doubt_nothing_is_deleted_until_another_member_takes_the_number() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Before, 1_000);
    assert_eq!(job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(), ["chk-2 aborted"]);
    job.clean().await;
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 2, "the doubt cannot be ended yet");
    assert_eq!(job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(), ["chk-3 aborted"]);
    world.faults.clear();
    assert_eq!(
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(),
        ["chk-4 complete", "chk-1 subsumed"]
    );
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_publish_that_cannot_be_read_back_stays_pending_and_turns_out_to_have_happened() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::After, 1);
    world.fail(FaultOperation::Get, FaultClass::Publish, FaultMode::Before, 1);
    assert!(job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().is_empty());
    assert_eq!(job.coordinator.take_failure().unwrap().kind(), ErrorKind::Store);
    assert_eq!(job.coordinator.pending(), [id(2)]);
    job.clean().await;
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 2);
    let events = job.coordinator.expire_one(id(2), job.now).await.unwrap();
    assert_eq!(printed(&events), ["chk-2 complete", "chk-1 subsumed"], "it was published all along");
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_publish_that_hangs_is_given_up_by_its_expiry_and_leaves_nothing() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&second, 0).await;
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Hang, 1);
    let seen = world.faults.stalled();
    tokio::select! {
        _ = job.coordinator.acknowledge(second.id, second.generation, 0, part, world.now) => panic!("it hangs"),
        () = world.faults.stalled_beyond(seen) => {}
    }
    assert_eq!(job.coordinator.pending(), [id(2)], "K4: it may have happened");
    let events = job.coordinator.expire_one(id(2), job.now).await.unwrap();
    assert_eq!(printed(&events), ["chk-2 aborted"]);
    job.clean().await;
    world.assert_tidy().await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_newer_checkpoint_settles_a_publish_that_was_interrupted() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&first, 0).await;
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Hang, 1);
    tokio::select! {
        _ = job.coordinator.acknowledge(first.id, first.generation, 0, part, world.now) => panic!("it hangs"),
        () = world.faults.stalled_beyond(0) => {}
    }
    assert_eq!(
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap(),
        ["chk-2 complete", "chk-1 aborted"]
    );
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_manifest_that_cannot_be_stored_fails_the_attempt() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&first, 0).await;
    world.fail(FaultOperation::Put, FaultClass::Any, FaultMode::After, 1);
    assert_eq!(printed(&job.ack(&first, 0, part).await.unwrap()), ["chk-1 aborted"]);
    assert_eq!(job.coordinator.take_failure().unwrap().kind(), ErrorKind::Store);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_failed_delete_is_tried_again_and_survives_the_coordinator() {
    for failover in [false, true] {
        let world = World::new();
        let mut job = world.fresh(options(1, 1)).await;
        job.checkpoint(CheckpointKind::Full).await.unwrap();
        world.fail(FaultOperation::Delete, FaultClass::Any, FaultMode::Before, 1_000);
        job.checkpoint(CheckpointKind::Full).await.unwrap();
        let report = job.coordinator.run_deletions(job.now).await.unwrap();
        assert!(report.failed > 0);
        job.checkpoint(CheckpointKind::Full).await.unwrap();
        world.faults.clear();
        if failover {
            job = world.start(options(1, 1), Start::Recover).await.unwrap();
        }
        job.clean().await;
        world.assert_tidy().await;
    }
}

#[tokio::test]
async fn as_long_as_a_manifest_is_there_its_files_are() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    // The first that is deleted.
    world.fail(FaultOperation::Delete, FaultClass::Any, FaultMode::Before, 1);
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    let report = job.coordinator.run_deletions(job.now).await.unwrap();
    assert_eq!(report.failed, 2, "the manifest, and its file for its sake");
    assert_eq!(world.objects(ObjectClass::Manifest).await.len(), 2);
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 2);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn what_retention_let_go_is_deleted_by_the_next_coordinator_after_a_crash_right_after_the_publish() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    drop(job);
    let mut job = world.start(options(2, 1), Start::Recover).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_or_read_is_an_error_and_never_empty() {
    let world = World::new();
    world.fail(FaultOperation::List, FaultClass::Any, FaultMode::Before, 1);
    assert_eq!(read_published(&world.store).await.unwrap_err().kind(), ErrorKind::Store);
    world.fail(FaultOperation::List, FaultClass::Any, FaultMode::Before, 1);
    let error = world.start(options(1, 1), Start::Fresh { force: true }).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Store);
    world.fresh(options(1, 1)).await;
    world.fail(FaultOperation::Get, FaultClass::Publish, FaultMode::Before, 1);
    let error = world.start(options(1, 1), Start::Fresh { force: false }).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Store);
}
