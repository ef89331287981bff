//! Coordinators that were paused and replaced.

use super::*;

#[tokio::test]
async fn a_replaced_coordinator_is_fenced_and_what_it_had_written_goes() {
    let world = World::new();
    let mut old = world.fresh(options(1, 1)).await;
    old.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = old.trigger(CheckpointKind::Checkpoint);
    let part = old.write(&second, 0).await;
    let mut new = world.start(options(1, 1), Start::Recover).await.unwrap();
    assert_eq!(old.ack(&second, 0, part).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert!(old.coordinator.is_fenced());
    assert_eq!(
        old.coordinator.trigger(CheckpointKind::Checkpoint, old.now).unwrap_err().kind(),
        ErrorKind::Fenced
    );
    old.coordinator.run_deletions(old.now).await.unwrap();
    new.chains = old.chains.clone();
    new.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    new.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_paused_coordinator_is_fenced_although_every_member_it_knew_was_deleted() {
    for take_overs in 1..4 {
        let world = World::new();
        let mut old = world.fresh(options(1, 1)).await;
        old.checkpoint(CheckpointKind::Full).await.unwrap();
        let second = old.trigger(CheckpointKind::Full);
        let part = old.write(&second, 0).await;
        let mut new = world.start(options(1, 1), Start::Recover).await.unwrap();
        for _ in 1..take_overs {
            new = world.start(options(1, 1), Start::Recover).await.unwrap();
        }
        for _ in 0..5 {
            new.checkpoint(CheckpointKind::Full).await.unwrap();
            new.clean().await;
        }
        let members = world.objects(ObjectClass::Sequence).await;
        // Its create succeeds, as the number is free again; only the check afterwards tells.
        assert_eq!(old.ack(&second, 0, part).await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(world.objects(ObjectClass::Sequence).await, members, "its stray member is gone");
        old.coordinator.run_deletions(old.now).await.unwrap();
        world.assert_tidy().await;
        let latest = read_published(&world.store).await.unwrap().latest_id();
        assert_eq!(latest, new.coordinator.newest(), "the truth is the new coordinator's");
        new.checkpoint(CheckpointKind::Full).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_reply_and_a_take_over_together_delete_nothing_that_the_new_coordinator_has() {
    let world = World::new();
    let mut old = world.fresh(options(1, 1)).await;
    old.checkpoint(CheckpointKind::Full).await.unwrap();
    let second = old.trigger(CheckpointKind::Full);
    let part = old.write(&second, 0).await;
    // The publish happens, its reply is lost, and it cannot be read back at once.
    world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::After, 1);
    world.fail(FaultOperation::Get, FaultClass::Publish, FaultMode::Before, 1);
    assert!(old.ack(&second, 0, part).await.unwrap().is_empty());
    let mut new = world.start(options(1, 2), Start::Recover).await.unwrap();
    assert_eq!(new.coordinator.newest(), Some(id(2)), "it was published");
    for _ in 0..3 {
        // Kept by retention, while the members that the old coordinator knew go.
        new.checkpoint(CheckpointKind::Savepoint).await.unwrap();
        new.clean().await;
    }
    let error = old.coordinator.expire_one(id(2), old.now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let _ = old.coordinator.run_deletions(old.now).await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn of_coordinators_that_start_at_the_same_time_exactly_one_goes_on() {
    let world = World::new();
    world.fresh(options(1, 1)).await.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let starts = (0..8).map(|_| world.start(options(1, 1), Start::Recover));
    let mut started: Vec<Job> = futures::future::join_all(starts).await.into_iter().flatten().collect();
    let mut winners = 0;
    for job in &mut started {
        match job.checkpoint(CheckpointKind::Full).await {
            Ok(_) => winners += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced),
        }
    }
    assert_eq!(winners, 1);
}
