//! The order of events, retention, late and foreign messages.

use super::*;

#[tokio::test]
async fn a_completion_lets_go_what_retention_no_longer_keeps_and_aborts_what_it_overtakes() {
    let world = World::new();
    let mut job = world.fresh(options(2, 2)).await;
    for _ in 0..2 {
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
    let third = job.trigger(CheckpointKind::Checkpoint);
    let savepoint = job.trigger(CheckpointKind::Savepoint);
    job.write_and_ack(&third, 0).await.unwrap();
    let events = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    assert_eq!(events, ["chk-5 complete", "chk-1 subsumed", "chk-3 aborted"], "M2: only a publish lets go");
    assert_eq!(job.coordinator.pending(), [savepoint.id], "a savepoint is not overtaken");
    assert_eq!(printed(&job.finish(&savepoint).await.unwrap()), ["chk-4 complete"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_savepoint_subsumes_nothing_is_never_a_base_and_goes_by_command() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    assert_eq!(job.checkpoint(CheckpointKind::Savepoint).await.unwrap(), ["chk-2 complete"]);
    let third = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!(third.base(), Some(id(1)));
    assert_eq!(printed(&job.finish(&third).await.unwrap()), ["chk-3 complete", "chk-1 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(job.coordinator.published().savepoints.len(), 1);
    let error = job.coordinator.delete_savepoint(id(3), job.now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "a checkpoint is not a savepoint");
    job.coordinator.delete_savepoint(id(2), job.now).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 2, "the chain of chk-3");
}

#[tokio::test]
async fn late_duplicate_unknown_and_foreign_messages_change_nothing_and_leak_nothing() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&first, 0).await;
    assert!(job.ack(&first, 0, part.clone()).await.unwrap().is_empty());
    assert_eq!(printed(&job.ack(&first, 0, part).await.unwrap()), ["chk-1 ignored"], "duplicate");
    let late = job.write(&first, 1).await;
    let aborted = job.coordinator.abort(id(1), job.now).await.unwrap();
    assert_eq!(printed(&aborted), ["chk-1 aborted"]);
    assert_eq!(printed(&job.coordinator.abort(id(1), job.now).await.unwrap()), ["chk-1 ignored"]);
    assert_eq!(printed(&job.ack(&first, 1, late).await.unwrap()), ["chk-1 ignored"], "late");
    let unknown = Trigger { id: id(77), ..first.clone() };
    assert_eq!(printed(&job.write_and_ack(&unknown, 0).await.unwrap()), ["chk-77 ignored"]);
    let second = job.trigger(CheckpointKind::Checkpoint);
    let foreign = Trigger { generation: lowtide_format::Generation(0), ..second.clone() };
    assert_eq!(printed(&job.write_and_ack(&foreign, 0).await.unwrap()), ["chk-2 ignored"]);
    let declined = job.coordinator.decline(id(2), foreign.generation, 0, job.now).await.unwrap();
    assert_eq!(printed(&declined), ["chk-2 ignored"]);
    job.finish(&second).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_duplicate_acknowledgement_of_a_completed_checkpoint_deletes_nothing() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    let part = job.write(&first, 0).await;
    job.ack(&first, 0, part.clone()).await.unwrap();
    assert_eq!(printed(&job.ack(&first, 0, part).await.unwrap()), ["chk-1 ignored"]);
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(world.objects(ObjectClass::Data).await.len(), 1);
}

#[tokio::test]
async fn the_number_of_concurrent_checkpoints_is_bounded_and_savepoints_do_not_count() {
    let world = World::new();
    let mut options = options(1, 1);
    options.concurrent_max = 1;
    let mut job = world.fresh(options).await;
    job.trigger(CheckpointKind::Savepoint);
    job.trigger(CheckpointKind::Checkpoint);
    let error = job.coordinator.trigger(CheckpointKind::Full, job.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    job.trigger(CheckpointKind::Savepoint);
}

#[tokio::test]
async fn the_hosts_own_ids_may_have_gaps_and_must_increase() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    let kind = CheckpointKind::Checkpoint;
    let far = job.coordinator.trigger_with(id(1 << 60), kind, job.now).unwrap();
    job.finish(&far).await.unwrap();
    let error = job.coordinator.trigger_with(id(7), kind, job.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.trigger(kind).id, id((1 << 60) + 1));
    let error = job.coordinator.trigger_with(CheckpointId::MAX, kind, job.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[tokio::test]
async fn ids_are_ordered_as_numbers_wherever_their_digits_change() {
    let beyond_doubles = 1 << 53;
    for first in [8, 98, 998, beyond_doubles - 2, 9_999_999_999_999_998, u64::MAX - 8] {
        let world = World::new();
        let mut job = world.fresh(options(1, 2)).await;
        for number in first..first + 5 {
            let kind = CheckpointKind::Checkpoint;
            let trigger = job.coordinator.trigger_with(id(number), kind, job.now).unwrap();
            job.finish(&trigger).await.unwrap();
            assert_eq!(job.coordinator.newest(), Some(id(number)));
            assert_eq!(read_published(&world.store).await.unwrap().latest_id(), Some(id(number)));
        }
        let recovered = world.start(options(1, 2), Start::Recover).await.unwrap();
        let kept: Vec<_> = recovered.recovered.published.checkpoints.iter().map(|one| one.id()).collect();
        assert_eq!(kept, [id(first + 3), id(first + 4)]);
    }
}

#[tokio::test]
async fn a_checkpoint_whose_trigger_failed_ends_at_once_and_later_words_about_it_change_nothing() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!(printed(&job.coordinator.abort_untriggered(second.id, job.now)), ["chk-2 aborted"]);
    assert!(job.coordinator.pending().is_empty());
    let late = job.write(&second, 0).await;
    assert_eq!(printed(&job.ack(&second, 0, late).await.unwrap()), ["chk-2 ignored"]);
    let third = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    assert_eq!(third, ["chk-3 complete", "chk-1 subsumed"]);
    assert_eq!(printed(&job.coordinator.abort_untriggered(id(3), job.now)), ["chk-3 ignored"]);
    assert_eq!(job.coordinator.newest(), Some(id(3)));
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn expired_checkpoints_are_given_up_and_too_many_failures_are_told() {
    let world = World::new();
    let mut options = options(1, 1);
    options.timeout_millis = 100;
    options.tolerable_failures = 1;
    let mut job = world.fresh(options).await;
    job.trigger(CheckpointKind::Checkpoint);
    job.now = job.now.plus(60);
    job.trigger(CheckpointKind::Checkpoint);
    job.now = job.now.plus(40);
    assert_eq!(printed(&job.coordinator.expire(job.now).await.unwrap()), ["chk-1 aborted"]);
    assert!(!job.coordinator.too_many_failures());
    job.now = job.now.plus(60);
    assert_eq!(printed(&job.coordinator.expire(job.now).await.unwrap()), ["chk-2 aborted"]);
    assert!(job.coordinator.too_many_failures());
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    assert!(!job.coordinator.too_many_failures(), "a completion starts the count anew");
}

#[tokio::test]
async fn lowering_the_number_of_retained_checkpoints_lets_the_oldest_go() {
    let world = World::new();
    let mut job = world.fresh(options(1, 5)).await;
    for _ in 0..5 {
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
    let events = job.coordinator.set_retained(Retention::newest(1).unwrap(), job.now).await.unwrap();
    assert_eq!(printed(&events), ["chk-1 subsumed", "chk-2 subsumed", "chk-3 subsumed", "chk-4 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(job.coordinator.lowest_retained(), Some(id(5)));
}

#[tokio::test]
async fn twelve_checkpoints_are_ordered_as_numbers() {
    let world = World::new();
    let mut job = world.fresh(options(1, 3)).await;
    for _ in 0..12 {
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.clean().await;
        world.assert_tidy().await;
    }
    let published = read_published(&world.store).await.unwrap();
    assert_eq!(published.latest_id(), Some(id(12)));
    assert_eq!(published.checkpoints.len(), 3);
}

#[test]
fn every_request_can_be_awaited_on_another_thread() {
    fn sendable<T: Send>(_: &T) {}
    fn requests(mut coordinator: Coordinator, start: Start, store: Store, trigger: Trigger) {
        let now = Millis(0);
        let (id, generation) = (trigger.id, trigger.generation);
        sendable(&coordinator.acknowledge(id, generation, 0, Acknowledgement::default(), now));
        sendable(&coordinator.expire(now));
        sendable(&coordinator.run_deletions(now));
        sendable(&coordinator.delete_savepoint(id, now));
        sendable(&coordinator.sweep(crate::sweep::SweepOptions::default(), &[], now));
        sendable(&coordinator.deleter().run());
        sendable(&Coordinator::start(store, options(1, 1), start, now, UploadIdSource::random()));
        sendable(&coordinator);
    }
    let _ = requests;
}
