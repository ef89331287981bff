//! The fault kit on the library: a power cut at every write, uploads in parts that fail at every step, and
//! how many objects a directory keeps.

use std::cell::Cell;

use lowtide::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan, PowerCut};
use lowtide::{CheckpointKind, ErrorKind, Job, ObjectClass, ObjectName, Retention, Store};
use lowtide_format::StoreOptions;

use crate::support::{TextJob, faulty, run};

/// The step that completes an upload of five parts, the first being its creation.
const COMPLETION: u64 = 7;

fn builder() -> lowtide::JobBuilder {
    Job::builder("a").key_groups(8).retained(Retention::newest(2).unwrap())
}

/// Puts 1, 2, … under one key and takes a checkpoint after each; `completed` follows.
async fn live(store: &Store, completed: &Cell<u32>) {
    let mut text = TextJob::of(builder().create(store).await.unwrap());
    for number in 1..=5 {
        text.put("k", &number.to_string());
        text.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        completed.set(number);
        text.job.run_deletions().await.unwrap();
    }
}

#[test]
fn after_a_power_cut_at_any_write_the_last_complete_checkpoint_or_the_one_under_way_restores() {
    let mut cuts = 0;
    for last_write_kept in [false, true] {
        for writes_before in 0.. {
            let survived = run(async {
                let truth = Store::memory();
                let (store, faults) = faulty(&truth);
                faults.cut_power(PowerCut { writes_before, last_write_kept });
                let completed = Cell::new(0);
                tokio::select! {
                    () = live(&store, &completed) => return true,
                    () = faults.stalled_beyond(0) => {}
                }
                let found = match builder().recover(&truth).await {
                    Ok(job) => TextJob::of(job).dump()["k"].parse().unwrap(),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NotFound, "cut after {writes_before} writes");
                        0
                    }
                };
                let completed = completed.get();
                assert!(
                    found == completed || found == completed + 1,
                    "cut after {writes_before} writes: {completed} complete, {found} restored"
                );
                false
            });
            if survived {
                break;
            }
            cuts += 1;
        }
    }
    // Each checkpoint is at least a data object, a manifest and a member of the sequence.
    assert!(cuts >= 2 * 5 * 3, "only {cuts} cuts");
}

#[test]
fn an_upload_in_parts_that_fails_at_any_step_is_given_up() {
    let options = StoreOptions { multipart_above_bytes: 100, part_bytes: 64, parallel_max: 2 };
    let name = ObjectName::new("data/x").unwrap();
    let bytes = vec![7_u8; 300];
    let mut steps = 0;
    for mode in [FaultMode::Before, FaultMode::After, FaultMode::Hang] {
        for nth in 1.. {
            let done = run(async {
                let (store, faults) = faulty(&Store::memory());
                let store = store.with_options(options);
                let class = FaultClass::Any;
                faults.plan(FaultPlan { operation: FaultOperation::Multipart, class, mode, nth, times: 1 });
                let upload = store.put_data(&name, bytes.clone().into());
                let outcome = tokio::select! {
                    outcome = upload => Some(outcome),
                    () = faults.stalled_beyond(0) => None,
                };
                if faults.plans_open() > 0 {
                    assert!(outcome.unwrap().is_ok());
                    return true;
                }
                assert!(outcome.is_none_or(|outcome| outcome.is_err()), "step {nth}, {mode:?}");
                // A dropped upload is given up by a task of its own.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                // An upload whose creation is not heard of, or whose completion never ends, cannot be given up.
                let lost =
                    nth == 1 && mode == FaultMode::After || nth == COMPLETION && mode == FaultMode::Hang;
                assert_eq!(faults.multiparts_open(), u64::from(lost), "step {nth}, {mode:?}");
                false
            });
            if done {
                break;
            }
            steps += 1;
        }
    }
    assert_eq!(steps, 3 * COMPLETION, "create, five parts and complete, each in three ways");
}

#[test]
fn manifests_and_members_of_the_sequence_stay_few() {
    for retained in [1_u32, 2, 5] {
        run(async {
            let store = Store::memory();
            let retention = Retention::newest(retained).unwrap();
            let job = Job::builder("a").key_groups(8).retained(retention).create(&store).await.unwrap();
            let mut text = TextJob::of(job);
            for number in 0..20 {
                text.put("k", &number.to_string());
                text.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
                if number % 6 == 5 {
                    text.job.failover().await.unwrap();
                }
            }
            text.job.checkpoint(CheckpointKind::Savepoint).await.unwrap();
            text.job.run_deletions().await.unwrap();
            let directory = store.sub(&ObjectName::new("a").unwrap());
            let all = directory.list_all().await.unwrap();
            let meta = all.iter().filter(|object| !object.path.starts_with("data/")).count();
            let bound = 2 * (retained as usize + 1) + 4;
            assert!(meta <= bound, "{meta} objects beside data, {bound} allowed for {retained} retained");
        });
    }
}

#[test]
fn deletions_that_never_return_keep_no_checkpoint_waiting() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        let mut text = TextJob::create("a", 1, &store).await;
        faults
            .plan(FaultPlan { times: u64::MAX, ..FaultPlan::first(FaultOperation::Delete, FaultMode::Hang) });
        for number in 1..=6 {
            text.put("k", &number.to_string());
            let report = text.job.checkpoint(CheckpointKind::Full).await;
            assert!(report.is_ok(), "checkpoint {number}: {report:?}");
        }
        assert_eq!(text.job.checkpoints().len(), 1);
        // A memory store keeps no checkpoint waiting, so that the deletions beside it may not have had a turn yet.
        for _ in 0..1_000 {
            if faults.stalled() > 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("nothing was to be deleted");
    });
}

#[test]
fn a_publish_in_doubt_keeps_no_job_from_its_next_checkpoint_once_the_store_answers() {
    for mode in [FaultMode::Before, FaultMode::After] {
        run(async {
            let (store, faults) = faulty(&Store::memory());
            let mut text = TextJob::create("a", 1, &store).await;
            text.put("k", "1");
            for (operation, mode) in [(FaultOperation::Put, mode), (FaultOperation::Get, FaultMode::Before)] {
                let plan = FaultPlan { class: FaultClass::Publish, ..FaultPlan::first(operation, mode) };
                faults.plan(FaultPlan { times: u64::MAX, ..plan });
            }
            assert!(text.job.checkpoint(CheckpointKind::Checkpoint).await.is_err());
            let error = text.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "the store still fails: {error}");
            faults.clear();
            text.put("k", "2");
            let report = text.job.checkpoint_report(CheckpointKind::Checkpoint).await.unwrap();
            assert!(report.figures.is_some(), "{mode:?}: {:?}", report.step);
            let happened = mode == FaultMode::After;
            let first = report.step.events.first().map(ToString::to_string);
            assert_eq!(first.as_deref(), Some(if happened { "chk-1 complete" } else { "chk-1 aborted" }));
            text.job.run_deletions().await.unwrap();
            let kept = text.job.store().list(ObjectClass::Data).await.unwrap();
            assert_eq!(kept.len(), 1, "{mode:?}");
        });
    }
}

#[test]
fn checkpoints_and_their_clean_up_list_nothing() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        let mut text = TextJob::create("a", 2, &store).await;
        let lists = faults.calls(FaultOperation::List);
        for number in 1..=20 {
            text.put("k", &number.to_string());
            text.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            text.job.run_deletions().await.unwrap();
        }
        assert_eq!(faults.calls(FaultOperation::List), lists);
    });
}
