//! Whole jobs: publish, restore, rescale, take-over, sweep.

use lowtide::{CheckpointKind, ErrorKind, Job, RestoreFrom, Store, SweepOptions, ValueState, verify};

use crate::places;

async fn filled(store: &Store, name: &str) -> Job {
    let mut job = Job::builder(name).subtasks(2).key_groups(16).create(store).await.unwrap();
    let state: ValueState<u64, String> = job.value_state("s").unwrap();
    for round in 0..3 {
        for key in 0..500 {
            job.state_mut(&state).put(key * 3 % 700, format!("{round}-{key}")).unwrap();
        }
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_restored_and_rescaled() {
    for place in places() {
        let mut job = filled(&place.store, "clicks").await;
        let state: ValueState<u64, String> = job.value_state("s").unwrap();
        let entries = job.state(&state).len().unwrap();
        job.checkpoint(CheckpointKind::Savepoint).await.unwrap();
        drop(job);
        for subtasks in [1, 5] {
            let builder = Job::builder("copy").directory(&format!("copy-{subtasks}"));
            let builder = builder.subtasks(subtasks).key_groups(16);
            let mut copy = builder.restore(&place.store, RestoreFrom::latest("clicks")).await.unwrap();
            let state: ValueState<u64, String> = copy.value_state("s").unwrap();
            assert_eq!(copy.state(&state).len().unwrap(), entries, "{}", place.name);
            let value = copy.state(&state).get(&0).unwrap().cloned();
            assert_eq!(value.as_deref(), Some("2-0"), "{}", place.name);
            copy.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            for verification in verify(copy.store(), None).await.unwrap() {
                assert!(verification.faults.is_empty(), "{}: {:?}", place.name, verification.faults);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_coordinators_of_one_directory_the_first_is_fenced() {
    for place in places() {
        let mut first = filled(&place.store, "clicks").await;
        let builder = Job::builder("clicks").subtasks(2).key_groups(16);
        let mut second = builder.recover(&place.store).await.unwrap();
        let fenced = first.checkpoint(CheckpointKind::Checkpoint).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{}: {fenced}", place.name);
        second.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_takes_orphans_and_nothing_else() {
    for place in places() {
        let mut job = filled(&place.store, "clicks").await;
        // An attempt of which the process forgets everything.
        let id = job.trigger(CheckpointKind::Savepoint).unwrap().id;
        for subtask in 0..2 {
            job.write(id, subtask).await.into_result().unwrap();
        }
        drop(job);
        let builder = Job::builder("clicks").subtasks(2).key_groups(16);
        let mut job = builder.recover(&place.store).await.unwrap();
        let options = SweepOptions { age_millis: 0, ..SweepOptions::default() };
        let swept = job.sweep(options).await.unwrap();
        assert_eq!((swept.orphans.len(), swept.failed.len()), (2, 0), "{}", place.name);
        let again = job.sweep(options).await.unwrap();
        assert!(again.orphans.is_empty(), "{}: {:?}", place.name, again.orphans);
        for verification in verify(job.store(), None).await.unwrap() {
            assert!(verification.faults.is_empty(), "{}: {:?}", place.name, verification.faults);
        }
    }
}
