//! N subtasks to M subtasks: every key once, nothing comes back, nothing is lost.

use std::collections::BTreeSet;

use lowtide::{
    Backend, CheckpointKind, ErrorKind, Job, JobBuilder, ProgressSink, RestoreFrom, Routing, Store,
    key_group_of,
};
use lowtide_format::KeyGroupCount;

use crate::support::{TextJob, map_of, run};

fn builder(name: &str, subtasks: u32) -> JobBuilder {
    Job::builder(name).subtasks(subtasks).key_groups(8)
}

/// The job that goes on in its own directory with another number of subtasks.
async fn recover(name: &str, subtasks: u32, store: &Store) -> TextJob {
    TextJob::of(builder(name, subtasks).recover(store).await.unwrap())
}

#[test]
fn after_a_rescale_each_key_is_in_the_one_subtask_that_the_routing_names() {
    run(async {
        let store = Store::memory();
        let mut two = TextJob::create("j", 2, &store).await;
        for number in 0..100 {
            two.put(&format!("k{number}"), "v");
        }
        two.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let mut three = recover("j", 3, &store).await;
        let mut found = BTreeSet::new();
        for subtask in 0..3 {
            let backend = three.job.subtask_mut(subtask).unwrap();
            let token = backend.value_state::<String, (), String>("s").unwrap();
            let range = backend.range();
            for entry in Backend::iter(backend, token, None).unwrap() {
                let (key, _, _) = entry.unwrap();
                let group = key_group_of::<String, str>(key.as_str(), KeyGroupCount::new(8).unwrap());
                assert!(range.contains(group), "B4: {key} of {group} in {range}");
                assert!(found.insert(key.clone()), "J1: {key} twice");
            }
        }
        assert_eq!(found.len(), 100);
    });
}

#[test]
fn routing_restore_and_key_group_agree_for_every_number_of_subtasks() {
    let key_groups = KeyGroupCount::new(16).unwrap();
    for subtasks in 1..=16 {
        let routing = Routing::even(subtasks, key_groups).unwrap();
        for number in 0..200_u64 {
            let group = key_group_of::<u64, u64>(&number, key_groups);
            let owner = routing.subtask_of::<u64, u64>(&number);
            let holders: Vec<(u32, _)> =
                (0..).zip(routing.ranges()).filter(|(_, range)| range.contains(group)).collect();
            assert_eq!(holders.len(), 1, "{group} of {subtasks}");
            assert_eq!(holders[0].0, owner);
        }
    }
}

#[test]
fn a_removal_before_a_rescale_is_applied_after_it() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        for key in ["a", "b", "c", "d"] {
            job.put(key, "1");
        }
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.remove("a");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        for subtasks in [2, 4, 8, 1] {
            let mut job = recover("j", subtasks, &store).await;
            assert_eq!(job.dump(), map_of(&[("b", "1"), ("c", "1"), ("d", "1")]), "{subtasks} subtasks");
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
    });
}

#[test]
fn another_number_of_key_groups_is_refused_with_both_numbers() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        job.put("a", "1");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        let error = Job::builder("j").key_groups(16).recover(&store).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        let text = error.to_string();
        assert!(text.contains('8') && text.contains("16"), "{text}");
        let mut job = recover("j", 1, &store).await;
        assert_eq!(job.dump(), map_of(&[("a", "1")]), "the refused restore has changed nothing");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    });
}

#[test]
fn more_subtasks_than_key_groups_are_refused() {
    run(async {
        let error = builder("j", 9).create(&Store::memory()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn subtasks_that_had_come_to_different_versions_merge_without_losing_a_key() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for number in 0..40 {
            let key = format!("k{number}");
            let side =
                if job.job.routing().subtask_of::<String, str>(&key) == 0 { &mut left } else { &mut right };
            side.push(key);
        }
        for key in left.iter().chain(&right) {
            job.put(key, "0");
        }
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        for round in 0..100 {
            job.put(&left[0], &round.to_string());
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        let mut expected = job.dump();
        let mut job = recover("j", 1, &store).await;
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        for key in [&left[1], &right[1]] {
            job.put(key, "new");
            expected.insert(key.clone(), "new".to_owned());
        }
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        assert_eq!(recover("j", 1, &store).await.dump(), expected);
    });
}

#[test]
fn out_and_in_again_five_times_keeps_the_newest_value_of_every_key() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        for number in 0..30 {
            job.put(&format!("k{number}"), "0");
        }
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let mut expected = job.dump();
        drop(job);
        for round in 1..=10 {
            let mut job = recover("j", 1 + round % 2, &store).await;
            assert_eq!(job.dump(), expected, "round {round}");
            for number in (0..30).filter(|number| (number + round) % 3 == 0) {
                let (key, value) = (format!("k{number}"), round.to_string());
                job.put(&key, &value);
                expected.insert(key, value);
            }
            let gone = format!("k{}", 20 + round % 10);
            job.remove(&gone);
            expected.remove(&gone);
            let figures = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            assert!(figures.base.is_some(), "a restore must be followed by a delta");
        }
        assert_eq!(recover("j", 3, &store).await.dump(), expected);
    });
}

#[test]
fn a_rescaled_restore_reports_its_progress_to_the_end() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        for number in 0..50 {
            job.put(&format!("k{number}"), "v");
        }
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let reports = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&reports);
        let mut from = RestoreFrom::latest("j");
        from.progress = Some(ProgressSink::new(move |progress| seen.lock().unwrap().push(progress)));
        let restored = builder("k", 3).restore(&store, from).await.unwrap();
        assert_eq!(restored.entries(), 50);
        let reports = reports.lock().unwrap();
        let last = reports.last().expect("progress was reported");
        assert_eq!((last.bytes, last.entries), (last.bytes_total, 50), "{last:?}");
    });
}
