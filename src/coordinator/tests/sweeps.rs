//! Orphans, from inside and from outside the job.

use super::*;
use crate::sweep::{SweepMode, SweepOptions, sweep_directory};

const AGE: SweepOptions =
    SweepOptions { age_millis: 600_000, mode: SweepMode::Delete, timeout_millis: 600_000 };
const ALL: SweepOptions = SweepOptions { age_millis: 0, ..AGE };

async fn orphan(world: &World, at: Millis) -> String {
    let object = ObjectPath::Data { upload: world.ids.next(at), number: 0, kind: FileKind::Segment }.name();
    world.store.put_data(&object, Bytes::from_static(b"junk")).await.unwrap();
    object.to_string()
}

#[tokio::test]
async fn a_live_job_sweeps_any_age_and_keeps_what_is_in_flight() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    job.write_and_ack(&second, 0).await.unwrap();
    let unacknowledged = job.write(&second, 1).await;
    let object = unacknowledged.files[0].entry.object.clone();
    let upload = ObjectPath::parse(object.as_str()).and_then(ObjectPath::upload).unwrap();
    let junk = orphan(&world, job.now).await;
    let dry = SweepOptions { mode: SweepMode::DryRun, ..ALL };
    let named = job.coordinator.sweep(dry, &[upload], job.now).await.unwrap().orphans;
    assert_eq!(named.iter().map(ToString::to_string).collect::<Vec<_>>(), [junk]);
    let swept = job.coordinator.sweep(ALL, &[upload], job.now).await.unwrap();
    assert_eq!(swept.orphans, named, "the dry run names what a sweep takes");
    assert!(job.coordinator.sweep(ALL, &[upload], job.now).await.unwrap().orphans.is_empty());
    assert_eq!(
        printed(&job.ack(&second, 1, unacknowledged).await.unwrap()),
        ["chk-2 complete", "chk-1 subsumed"]
    );
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn from_outside_an_age_below_the_checkpoint_timeout_is_refused() {
    let world = World::new();
    world.fresh(options(1, 1)).await;
    let error = sweep_directory(&world.store, ALL, world.now, &world.ids).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn a_sweep_from_outside_takes_old_orphans_and_the_job_goes_on() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let old = orphan(&world, job.now).await;
    let second = job.trigger(CheckpointKind::Checkpoint);
    job.now = job.now.plus(700_000);
    let young = orphan(&world, job.now).await;
    let report = sweep_directory(&world.store, AGE, job.now, &world.ids).await.unwrap();
    assert_eq!(report.orphans.len(), 1);
    let left = world.objects(ObjectClass::Data).await;
    assert!(!left.contains(&old) && left.contains(&young));
    assert_eq!(printed(&job.finish(&second).await.unwrap()), ["chk-2 complete", "chk-1 subsumed"]);
    assert!(!job.coordinator.is_fenced());
}

#[tokio::test]
async fn a_publish_whose_files_fall_under_a_sweep_boundary_is_refused() {
    let world = World::new();
    let mut job = world.fresh(options(2, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    let second = job.trigger(CheckpointKind::Checkpoint);
    job.write_and_ack(&second, 0).await.unwrap();
    job.now = job.now.plus(700_000);
    // The slow upload of subtask 0 is older than the age: the sweep takes it.
    let report = sweep_directory(&world.store, AGE, job.now, &world.ids).await.unwrap();
    assert_eq!(report.orphans.len(), 1);
    assert_eq!(printed(&job.write_and_ack(&second, 1).await.unwrap()), ["chk-2 aborted"]);
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    job.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn a_sweep_does_not_run_when_the_sequence_or_a_manifest_cannot_be_read() {
    let world = World::new();
    let mut job = world.fresh(options(1, 1)).await;
    job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    orphan(&world, job.now).await;
    let later = job.now.plus(700_000);
    for (operation, nth) in [
        (FaultOperation::List, 1),
        (FaultOperation::List, 3),
        (FaultOperation::Get, 1),
        (FaultOperation::Get, 2),
    ] {
        world.faults.plan(FaultPlan {
            operation,
            class: FaultClass::Any,
            mode: FaultMode::Before,
            nth,
            times: 1,
        });
        let error = sweep_directory(&world.store, AGE, later, &world.ids).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{operation:?} {nth}");
        world.faults.clear();
        assert_eq!(world.objects(ObjectClass::Data).await.len(), 2);
    }
    let deletes = world.faults.calls(FaultOperation::Delete);
    let dry = SweepOptions { mode: SweepMode::DryRun, ..AGE };
    assert_eq!(sweep_directory(&world.store, dry, later, &world.ids).await.unwrap().orphans.len(), 1);
    assert_eq!(world.faults.calls(FaultOperation::Delete), deletes, "a dry run deletes nothing");
}

#[tokio::test]
async fn a_replaced_coordinator_cannot_sweep_what_its_successor_has_written() {
    let world = World::new();
    let mut old = world.fresh(options(1, 1)).await;
    old.checkpoint(CheckpointKind::Full).await.unwrap();
    let mut new = world.start(options(1, 1), Start::Recover).await.unwrap();
    new.checkpoint(CheckpointKind::Full).await.unwrap();
    let error = old.coordinator.sweep(ALL, &[], old.now).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    new.clean().await;
    world.assert_tidy().await;
}

#[tokio::test]
async fn whatever_the_clocks_of_sweeper_and_job_say_nothing_published_later_is_missing() {
    for (ahead, behind) in [(0, 0), (600_000, 0), (1_200_000, 0), (0, 600_000), (0, 900_000)] {
        let world = World::new();
        let mut job = world.fresh(options(1, 1)).await;
        job.now = job.now.plus(2_000_000);
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let second = job.trigger(CheckpointKind::Checkpoint);
        let part = job.write(&second, 0).await;
        let sweeper = job.now.plus(ahead).minus(behind);
        sweep_directory(&world.store, AGE, sweeper, &world.ids).await.unwrap();
        let told = printed(&job.ack(&second, 0, part).await.unwrap());
        // A sweeper that is ten minutes ahead takes what was uploaded just now, and says so first.
        let expected: &[&str] =
            if ahead == 0 { &["chk-2 complete", "chk-1 subsumed"] } else { &["chk-2 aborted"] };
        assert_eq!(told, expected, "{ahead} ms ahead, {behind} ms behind");
        job.clean().await;
        world.assert_tidy().await;
        job.now = job.now.plus(2_000_000);
        job.chains.clear();
        job.checkpoint(CheckpointKind::Full).await.unwrap();
    }
}
