//! What is read of a job while it is being restored.

use lowtide::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan, Faults};
use lowtide::{
    CheckpointId, CheckpointKind, ErrorKind, HeapSettings, Job, JobBuilder, KeyGroupCount, OnDamage,
    RestoreFrom, RestoreReader, RestoredValue, RestoringState, Retention, Routing, Store, key_group_of,
};

use crate::support::{TextJob, faulty, run};

const GROUPS: u16 = 8;

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

fn builder(name: &str) -> JobBuilder {
    // No rewriting: a checkpoint is one file for each subtask.
    let backend = HeapSettings { rewriting: None, ..HeapSettings::default() };
    Job::builder(name).key_groups(GROUPS).retained(Retention::newest(3).unwrap()).backend(backend)
}

/// Holds up the read of the data file with that number, counted from now on, until the faults are told to resume.
fn hold_up(faults: &Faults, nth: u64) {
    let plan = FaultPlan::first(FaultOperation::Get, FaultMode::Pause);
    faults.plan(FaultPlan { class: FaultClass::Data, nth, ..plan });
}

/// A key of each of so many subtasks.
fn keys(subtasks: u32) -> Vec<String> {
    let routing = Routing::even(subtasks, KeyGroupCount::new(GROUPS).unwrap()).unwrap();
    let of = |subtask| {
        let mut keys = (0..).map(|number| format!("key-{number}"));
        keys.find(|key| routing.subtask_of::<String, str>(key) == subtask).unwrap()
    };
    (0..subtasks).map(of).collect()
}

fn state_of(reader: &RestoreReader) -> RestoringState<String, String> {
    reader.value_state("s")
}

fn found(checkpoint: u64, value: &str) -> RestoredValue<String> {
    RestoredValue { checkpoint: id(checkpoint), value: Some(value.to_owned()) }
}

/// Each key with the value of each round, in a full checkpoint for each.
async fn full_checkpoints(store: &Store, subtasks: u32, rounds: &[&str]) -> TextJob {
    let mut job = TextJob::of(builder("j").subtasks(subtasks).create(store).await.unwrap());
    for round in rounds {
        keys(subtasks).iter().for_each(|key| job.put(key, round));
        job.job.checkpoint(CheckpointKind::Full).await.unwrap();
    }
    job
}

#[test]
fn restored_key_groups_are_read_while_others_are_still_on_their_way() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        drop(full_checkpoints(&store, 2, &["1"]).await);
        let keys = keys(2);
        for declared in [true, false] {
            let mut builder = builder("j");
            if declared {
                builder = builder.backend(HeapSettings::default().declare::<String, String, ()>("s"));
            }
            let reader = builder.reader();
            let state = state_of(&reader);
            assert_eq!(state.get(&keys[0]).unwrap_err().kind(), ErrorKind::NotReady, "nothing has begun");
            hold_up(&faults, 2);
            let seen = faults.stalled();
            let at = store.clone();
            let restoring = tokio::spawn(async move { builder.recover(&at).await });
            faults.stalled_beyond(seen).await;
            assert_eq!(state.get_when_ready(&keys[0]).await.unwrap(), found(1, "1"));
            assert_eq!(state.get(&keys[0]).unwrap(), found(1, "1"));
            let group = key_group_of::<String, str>(&keys[1], KeyGroupCount::new(GROUPS).unwrap());
            let refused = state.get(&keys[1]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotReady);
            assert!(refused.to_string().contains(&group.to_string()), "{refused}");
            assert!(!reader.is_ready(group));
            assert_eq!(reader.checkpoint(), Some(id(1)));
            let wrong = reader.value_state::<String, u64, ()>("s").get(&keys[0]).unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::Incompatible);
            assert_eq!(
                reader.ready(lowtide::KeyGroup(GROUPS)).await.unwrap_err().kind(),
                ErrorKind::InvalidArgument
            );

            let waiting = {
                let (state, key) = (state.clone(), keys[1].clone());
                tokio::spawn(async move { state.get_when_ready(&key).await })
            };
            tokio::task::yield_now().await;
            faults.resume();
            let job = TextJob::of(restoring.await.unwrap().unwrap());
            match waiting.await.unwrap() {
                Ok(value) => assert_eq!(value, found(1, "1")),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Restored, "all was there before it looked"),
            }
            assert_eq!(state.get(&keys[0]).unwrap_err().kind(), ErrorKind::Restored);
            assert_eq!(job.job.state(&job.state).get(&keys[0]).unwrap().unwrap(), "1");
        }
    });
}

#[test]
fn a_restored_subtask_is_read_until_the_last_one_is_restored() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        drop(full_checkpoints(&store, 4, &["1"]).await);
        let keys = keys(4);
        let mut options = lowtide::JobOptions { key_groups: GROUPS, subtasks: 4, ..Default::default() };
        options.read.subtasks_max = 1;
        let mut builder = Job::builder("j").options(options);
        let reader = builder.reader();
        let state = state_of(&reader);
        hold_up(&faults, 4);
        let at = store.clone();
        let restoring = tokio::spawn(async move { builder.recover(&at).await });
        faults.stalled_beyond(0).await;
        for key in &keys[..3] {
            assert_eq!(state.get_when_ready(key).await.unwrap(), found(1, "1"));
        }
        assert_eq!(state.get(&keys[3]).unwrap_err().kind(), ErrorKind::NotReady);
        faults.resume();
        let job = TextJob::of(restoring.await.unwrap().unwrap());
        assert_eq!(job.dump().len(), 4);
    });
}

#[test]
fn one_subtask_that_was_written_in_parts_is_read_part_by_part() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        let backend = HeapSettings { segment_bytes_max: 1, rewriting: None, ..HeapSettings::default() };
        let mut job = TextJob::of(builder("j").backend(backend).create(&store).await.unwrap());
        let keys = keys(u32::from(GROUPS));
        keys.iter().for_each(|key| job.put(key, "1"));
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        let mut builder = builder("j");
        let reader = builder.reader();
        let state = state_of(&reader);
        hold_up(&faults, u64::from(GROUPS));
        let at = store.clone();
        let restoring = tokio::spawn(async move { builder.recover(&at).await });
        faults.stalled_beyond(0).await;
        let (last, others) = keys.split_last().unwrap();
        for key in others {
            assert_eq!(state.get_when_ready(key).await.unwrap(), found(1, "1"));
        }
        assert_eq!(state.get(last).unwrap_err().kind(), ErrorKind::NotReady);
        faults.resume();
        assert_eq!(restoring.await.unwrap().unwrap().entries(), u64::from(GROUPS));
    });
}

#[test]
fn nothing_of_a_damaged_checkpoint_is_read_once_the_restore_has_fallen_back() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        let job = full_checkpoints(&store, 2, &["1", "2"]).await;
        let files = job.job.manifest(id(2)).await.unwrap().files;
        let damaged = &files.last().unwrap().entry.object;
        let directory = job.job.store();
        let mut bytes = directory.get(damaged, Default::default()).await.unwrap().to_vec();
        bytes[12] ^= 1;
        directory.delete(std::slice::from_ref(damaged)).await;
        directory.put_data(damaged, bytes.into()).await.unwrap();
        drop(job);

        let keys = keys(2);
        let mut builder = builder("k");
        let reader = builder.reader();
        let state = state_of(&reader);
        hold_up(&faults, 2);
        hold_up(&faults, 4);
        let at = store.clone();
        let restoring = tokio::spawn(async move {
            let from = RestoreFrom { on_damage: OnDamage::FallBack, ..RestoreFrom::latest("j") };
            builder.restore(&at, from).await
        });
        faults.stalled_beyond(0).await;
        assert_eq!(state.get_when_ready(&keys[0]).await.unwrap(), found(2, "2"));
        let waiting = {
            let (state, key) = (state.clone(), keys[1].clone());
            tokio::spawn(async move { state.get_when_ready(&key).await })
        };
        tokio::task::yield_now().await;
        faults.resume();
        faults.stalled_beyond(1).await;
        assert_eq!(reader.checkpoint(), Some(id(1)));
        assert_eq!(state.get_when_ready(&keys[0]).await.unwrap(), found(1, "1"));
        assert_eq!(state.get(&keys[1]).unwrap_err().kind(), ErrorKind::NotReady);
        faults.resume();
        assert_eq!(restoring.await.unwrap().unwrap().restored(), Some(id(1)));
        match waiting.await.unwrap() {
            Ok(value) => assert_eq!(value, found(1, "1"), "a wait goes over to the checkpoint that is taken"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Restored),
        }
    });
}

#[test]
fn readers_and_waits_end_with_a_restore_that_fails_or_is_dropped_or_finds_nothing_to_restore() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        drop(full_checkpoints(&store, 3, &["1"]).await);
        let keys = keys(3);
        for fails in [true, false] {
            let mut builder = builder("j");
            let reader = builder.reader();
            hold_up(&faults, 2);
            if fails {
                let plan = FaultPlan::first(FaultOperation::Get, FaultMode::Before);
                faults.plan(FaultPlan { class: FaultClass::Data, nth: 3, times: 1000, ..plan });
            }
            let seen = faults.stalled();
            let at = store.clone();
            let restoring = tokio::spawn(async move { builder.recover(&at).await });
            faults.stalled_beyond(seen).await;
            let state = state_of(&reader);
            let waiting = {
                let (state, key) = (state.clone(), keys[1].clone());
                tokio::spawn(async move { state.get_when_ready(&key).await })
            };
            tokio::task::yield_now().await;
            if fails {
                faults.resume();
                assert_eq!(restoring.await.unwrap().err().unwrap().kind(), ErrorKind::Store);
            } else {
                restoring.abort();
                assert!(restoring.await.is_err());
            }
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(state.get(&keys[0]).unwrap_err().kind(), ErrorKind::Cancelled);
            faults.clear();
            faults.resume();
        }
        let mut builder = builder("other");
        let reader = builder.reader();
        let job = builder.open(&store).await.unwrap();
        assert_eq!(state_of(&reader).get(&keys[0]).unwrap_err().kind(), ErrorKind::Restored);
        assert_eq!(job.restored(), None);
    });
}
