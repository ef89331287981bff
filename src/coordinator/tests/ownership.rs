//! Failover, claims, forced starts, and clean-up by participants.

use super::*;

#[tokio::test]
async fn a_failover_keeps_what_is_retained_and_goes_on_with_it() {
    let world = World::new();
    let mut job = world.fresh(options(2, 2)).await;
    for _ in 0..3 {
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
    let chains = job.chains.clone();
    let mut job = world.start(options(2, 2), Start::Recover).await.unwrap();
    assert_eq!(job.recovered.published.checkpoints.len(), 2);
    assert_eq!(job.recovered.files, 6, "three files of each subtask");
    assert_eq!(job.recovered.latest().unwrap().id(), id(3));
    job.chains = chains;
    let fourth = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!((fourth.id, fourth.base()), (id(4), Some(id(3))));
    assert_eq!(printed(&job.finish(&fourth).await.unwrap()), ["chk-4 complete", "chk-2 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn ids_go_on_above_what_a_participant_knows() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let mut known = options(1, 1);
    known.known_id_max = Some(id(9));
    let mut job = world.start(known, Start::Recover).await.unwrap();
    assert_eq!(job.trigger(CheckpointKind::Checkpoint).id, id(10), "M3: above what a participant knows");
    let mut job = world.start(options(1, 1), Start::Recover).await.unwrap();
    assert_eq!(job.trigger(CheckpointKind::Checkpoint).id, id(2), "nothing above 1 was published");
}

#[tokio::test]
async fn a_fresh_start_where_something_is_published_is_refused_and_forced_it_touches_nothing() {
    for kind in [CheckpointKind::Checkpoint, CheckpointKind::Savepoint] {
        let world = World::new();
        let mut job = world.fresh(options(1, 1)).await;
        job.checkpoint(kind).await.unwrap();
        let before = world.objects(ObjectClass::Data).await;
        let error = world.start(options(1, 1), Start::Fresh { force: false }).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotEmpty);
        let mut job = world.start(options(1, 1), Start::Fresh { force: true }).await.unwrap();
        for expected in 2..5 {
            let trigger = job.trigger(CheckpointKind::Checkpoint);
            assert_eq!(trigger.id, id(expected));
            assert_eq!(trigger.base(), (expected > 2).then(|| id(expected - 1)), "never what was there");
            job.finish(&trigger).await.unwrap();
            job.clean().await;
        }
        world.assert_tidy().await;
        assert!(world.objects(ObjectClass::Data).await.is_superset(&before));
        let mut job = world.start(options(1, 1), Start::Recover).await.unwrap();
        job.checkpoint(CheckpointKind::Full).await.unwrap();
        job.clean().await;
        assert!(world.objects(ObjectClass::Data).await.is_superset(&before), "after a failover neither");
    }
}

#[tokio::test]
async fn a_crash_before_the_first_checkpoint_leaves_nothing_to_recover_and_a_fresh_start_is_allowed() {
    let world = World::new();
    let error = world.start(options(1, 1), Start::Recover).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let mut job = world.fresh(options(3, 1)).await;
    let first = job.trigger(CheckpointKind::Checkpoint);
    job.write_and_ack(&first, 0).await.unwrap();
    drop(job);
    assert!(read_published(&world.store).await.unwrap().is_empty(), "never a smaller job");
    world.fresh(options(3, 1)).await;
}

#[tokio::test]
async fn a_claim_owns_what_is_there_and_abandons_what_is_newer() {
    let world = World::new();
    let mut source = world.fresh(options(1, 5)).await;
    for _ in 0..5 {
        source.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
    let mut job = world.restore(options(1, 5), 3, Claim::Claim).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
    let ids: Vec<_> = job.recovered.published.checkpoints.iter().map(PublishedCheckpoint::id).collect();
    assert_eq!(ids, [id(1), id(2), id(3)]);
    let error = source.checkpoint(CheckpointKind::Checkpoint).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    source.coordinator.run_deletions(source.now).await.unwrap();
    job.chains = source.chains.clone();
    let sixth = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!((sixth.id, sixth.base()), (id(6), Some(id(3))), "published ids are never used again");
    job.finish(&sixth).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_claimed_savepoint_is_an_ordinary_checkpoint_from_then_on() {
    let world = World::new();
    let mut source = world.fresh(options(1, 1)).await;
    source.checkpoint(CheckpointKind::Savepoint).await.unwrap();
    let mut job = world.restore(options(1, 1), 1, Claim::Claim).await.unwrap();
    assert!(job.coordinator.published().savepoints.is_empty());
    job.chains = source.chains.clone();
    let second = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!(second.base(), Some(id(1)));
    assert_eq!(printed(&job.finish(&second).await.unwrap()), ["chk-2 complete", "chk-1 subsumed"]);
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn without_a_claim_every_checkpoint_is_full_until_the_first_completes_also_after_failovers() {
    let (source, world) = (World::new(), World::new());
    let mut job = source.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let before = source.objects(ObjectClass::Data).await;
    let from = read_published(&source.store).await.unwrap().latest().unwrap().clone();
    let start = Start::Restore { from, claim: Claim::NoClaim, force: false };
    let mut job = world.start(options(1, 1), start).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!((second.id, second.kind, second.base()), (id(2), CheckpointKind::Full, None));
    assert_eq!(job.checkpoint(CheckpointKind::Savepoint).await.unwrap(), ["chk-3 complete"]);
    let mut job = world.start(options(1, 1), Start::Recover).await.unwrap();
    let fourth = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!((fourth.id, fourth.kind), (id(4), CheckpointKind::Full), "a savepoint does not end it");
    job.finish(&fourth).await.unwrap();
    let fifth = job.trigger(CheckpointKind::Checkpoint);
    assert_eq!((fifth.kind, fifth.base()), (CheckpointKind::Checkpoint, Some(id(4))));
    job.finish(&fifth).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
    assert_eq!(source.objects(ObjectClass::Data).await, before, "nothing of the source is deleted");
}

#[tokio::test]
async fn participants_clean_up_what_only_their_chain_listed_and_the_coordinator_the_rest() {
    let world = World::new();
    let mut options = options(2, 1);
    options.cleanup = Cleanup::Participant;
    let mut job = world.fresh(options.clone()).await;
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    assert_eq!(job.coordinator.holdings(0).may_clean_up.len(), 1);
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    job.clean().await;
    assert_eq!(
        world.objects(ObjectClass::Data).await.len(),
        4,
        "the coordinator leaves them to the participants"
    );
    for subtask in 0..2 {
        let notice = job.coordinator.notice(subtask);
        assert_eq!((notice.completed, notice.lowest_retained), (Some(id(2)), Some(id(2))));
        assert_eq!(notice.clean_up.len(), 1);
        assert_eq!(job.coordinator.notice(subtask), notice, "told again until it is done");
        let _ = world.store.delete(&notice.clean_up).await;
        job.coordinator.cleaned(subtask, &notice.clean_up);
        assert!(job.coordinator.notice(subtask).clean_up.is_empty());
    }
    world.assert_tidy().await;
    // Whatever was restored is the coordinator's, also what a dead participant did not get to.
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    let mut job = world.start(options, Start::Recover).await.unwrap();
    assert!(job.coordinator.holdings(0).may_clean_up.is_empty());
    assert_eq!(job.coordinator.holdings(0).objects.len(), 1);
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_damaged_manifest_does_not_keep_a_coordinator_from_starting_but_a_sweep_from_running() {
    let world = World::new();
    let mut job = world.fresh(options(1, 2)).await;
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    let manifest = job.coordinator.published().checkpoints[0].reference().manifest.clone();
    let _ = world.store.delete(&[manifest]).await;
    let mut job = world.start(options(1, 2), Start::Recover).await.unwrap();
    let everything = crate::sweep::SweepOptions { age_millis: 0, ..Default::default() };
    let error = job.coordinator.sweep(everything, &[], job.now.plus(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    job.checkpoint(CheckpointKind::Full).await.unwrap();
    job.clean().await;
    let report = job.coordinator.sweep(everything, &[], job.now.plus(1)).await.unwrap();
    assert_eq!(report.orphans.len(), 1, "what only the lost manifest listed");
    world.assert_tidy().await;
}
