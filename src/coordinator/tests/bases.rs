//! What a delta may be taken against, and what an acknowledgement may keep.

use super::*;

#[tokio::test]
async fn only_a_completed_checkpoint_is_a_base_in_mode_confirmed() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    assert_eq!(job.trigger(CheckpointKind::Checkpoint).base(), None, "there is none yet");
    let second = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!(second.base(), None, "the first is pending");
    job.finish(&second).await.unwrap();
    assert_eq!(job.trigger(CheckpointKind::Checkpoint).base(), Some(id(2)));
    assert_eq!(job.trigger(CheckpointKind::Full).base(), None);
    assert_eq!(job.trigger(CheckpointKind::Savepoint).base(), None);
}

#[tokio::test]
async fn the_files_of_a_base_stay_until_the_last_checkpoint_against_it_has_ended() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let savepoint_like = job.trigger(CheckpointKind::Checkpoint);
    let newer = job.trigger(CheckpointKind::Full);
    // Out of order: the newer one completes, retention lets the base go, and the older one is overtaken.
    assert_eq!(
        printed(&job.finish(&newer).await.unwrap()),
        ["chk-3 complete", "chk-1 subsumed", "chk-2 aborted"]
    );
    assert_eq!(printed(&job.write_and_ack(&savepoint_like, 0).await.unwrap()), ["chk-2 ignored"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn duplicates_of_concurrent_checkpoints_are_two_files_whoever_completes_first() {
    for (first_done, then) in [(0, 1), (1, 0)] {
        let world = World::new();
        let mut job = world.fresh(options(1, 2)).await;
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let pending = [job.trigger(CheckpointKind::Checkpoint), job.trigger(CheckpointKind::Checkpoint)];
        let parts = [job.write(&pending[0], 0).await, job.write(&pending[1], 0).await];
        job.ack(&pending[first_done], 0, parts[first_done].clone()).await.unwrap();
        job.ack(&pending[then], 0, parts[then].clone()).await.unwrap();
        job.clean().await;
        world.assert_tidy().await;
    }
}

#[tokio::test]
async fn in_mode_acknowledged_a_pending_and_even_an_aborted_checkpoint_is_a_base() {
    let world = World::new();
    let mut options = options(2, 1);
    options.base_mode = BaseMode::Acknowledged;
    let mut job = world.fresh(options).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    job.write_and_ack(&second, 0).await.unwrap();
    job.coordinator.abort(second.id, job.now).await.unwrap();
    let third = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!(third.bases, [Some(id(2)), Some(id(1))]);
    assert_eq!(third.base(), Some(id(1)), "the oldest");
    job.clean().await;
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 3, "the aborted one's file is in a chain");
    assert_eq!(printed(&job.finish(&third).await.unwrap()), ["chk-3 complete", "chk-1 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn in_mode_acknowledged_a_new_generation_starts_from_published_bases() {
    let world = World::new();
    let mut options = options(1, 1);
    options.base_mode = BaseMode::Acknowledged;
    let mut job = world.fresh(options.clone()).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let mut two = options.clone();
    two.subtasks = super::options(2, 1).subtasks;
    let mut job = world.start(options, Start::Recover).await.unwrap();
    assert_eq!(job.trigger(CheckpointKind::Checkpoint).bases, [Some(id(1))]);
}

#[tokio::test]
async fn in_mode_acknowledged_a_kept_file_that_is_gone_fails_the_publish() {
    let world = World::new();
    let mut options = options(1, 1);
    options.base_mode = BaseMode::Acknowledged;
    let mut job = world.fresh(options).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&first, 0).await;
    let file = name_of(&part.files[0].entry.id());
    let second = {
        // Only subtask 0 exists, so its acknowledgement would publish: make the publish fail.
        world.fail(FaultOperation::Put, FaultClass::Publish, FaultMode::Before, 99);
        job.ack(&first, 0, part).await.unwrap();
        world.faults.clear();
        job.trigger(CheckpointKind::Checkpoint)
    };
    assert_eq!(second.base(), Some(id(1)), "acknowledged, although never published");
    let _ = world.store.delete(&[file]).await;
    assert_eq!(printed(&job.finish(&second).await.unwrap()), ["chk-2 aborted"]);
    assert_eq!(job.coordinator.take_failure().unwrap().kind(), ErrorKind::Missing);
}

#[tokio::test]
async fn a_subtask_that_has_lost_its_base_writes_everything() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    let alone = Trigger { bases: vec![None], ..second.clone() };
    let part = job.write(&alone, 0).await;
    assert_eq!(part.base, None);
    assert_eq!(printed(&job.ack(&second, 0, part).await.unwrap()), ["chk-2 complete", "chk-1 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn an_acknowledgement_that_contradicts_its_base_aborts_the_checkpoint() {
    let unlisted = |part: &mut Acknowledgement| {
        part.elements[0].file.object = ObjectName::new("data/elsewhere.seg").unwrap();
    };
    let outside = |part: &mut Acknowledgement| part.elements[0].key_groups = options(1, 1).subtasks[0].into();
    let other_base = |part: &mut Acknowledgement| part.base = Some(id(9));
    let other_checkpoint = |part: &mut Acknowledgement| part.files[0].checkpoint = id(1);
    let spoilers: [&dyn Fn(&mut Acknowledgement); 4] = [&unlisted, &outside, &other_base, &other_checkpoint];
    for spoil in spoilers {
        let world = World::new();
        let mut job = world.fresh(options(2, 1)).await;
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let second = job.trigger(CheckpointKind::Checkpoint);
        let mut part = job.write(&second, 0).await;
        spoil(&mut part);
        assert_eq!(printed(&job.ack(&second, 0, part).await.unwrap()), ["chk-2 aborted"]);
        job.clean().await;
        world.assert_tidy().await;
    }
}

#[tokio::test]
async fn a_rescale_never_widens_the_key_groups_of_an_element() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let chains = job.chains.clone();
    let mut job = world.restore(options(1, 1), 1, Claim::Claim).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    job.chains.insert((id(1), 0), chains[&(id(1), 0)].clone());
    // The old subtask listed its file for key groups 0 to 3 only; the new one claims all eight.
    assert_eq!(printed(&job.write_and_ack(&second, 0).await.unwrap()), ["chk-2 aborted"]);
}
