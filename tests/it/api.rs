//! The public API of a job, as a user meets it.

use std::collections::BTreeSet;

use lowtide::{
    Backend, CheckpointId, CheckpointKind, ErrorKind, Event, Job, ObjectClass, RestoreFrom, Retention, Store,
    ValueState,
};

use crate::support::{TextJob, map_of, run};

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

#[test]
fn a_job_goes_on_where_its_newest_checkpoint_was_and_not_where_memory_was() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        job.put("a", "1");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.put("a", "2");
        job.put("b", "2");
        drop(job);
        let job = Job::builder("j").subtasks(2).key_groups(8).recover(&store).await.unwrap();
        assert_eq!(job.restored(), Some(id(1)));
        assert_eq!(TextJob::of(job).dump(), map_of(&[("a", "1")]));
    });
}

#[test]
fn open_starts_empty_only_where_nothing_is() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::of(Job::builder("j").open(&store).await.unwrap());
        job.put("a", "1");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        let job = TextJob::of(Job::builder("j").open(&store).await.unwrap());
        assert_eq!(job.dump(), map_of(&[("a", "1")]));
        drop(job);
        let refused = Job::builder("j").create(&store).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::NotEmpty);
    });
}

#[test]
fn recovering_a_job_that_has_no_checkpoint_is_not_found() {
    run(async {
        let store = Store::memory();
        assert_eq!(Job::builder("j").recover(&store).await.err().unwrap().kind(), ErrorKind::NotFound);
        let from = RestoreFrom { checkpoint: Some(id(7)), ..RestoreFrom::latest("j") };
        assert_eq!(Job::builder("k").restore(&store, from).await.err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn namespaces_keep_equal_keys_apart_and_are_cleared_alone() {
    run(async {
        let mut job = Job::builder("j").subtasks(3).key_groups(8).create(&Store::memory()).await.unwrap();
        let state: ValueState<u64, u64, String> = job.value_state("windows").unwrap();
        let (first, second) = ("w1".to_owned(), "w2".to_owned());
        for key in 0..20 {
            job.state_mut(&state).put_in(first.clone(), key, key).unwrap();
            job.state_mut(&state).put_in(second.clone(), key, key + 100).unwrap();
        }
        assert_eq!(job.state(&state).get_in(&second, &3).unwrap(), Some(&103));
        assert_eq!(job.state(&state).iter_in(&first).unwrap().count(), 20);
        job.state_mut(&state).clear_in(&first).unwrap();
        assert_eq!(job.state(&state).len().unwrap(), 20);
        assert_eq!(job.state(&state).get_in(&first, &3).unwrap(), None);
        assert_eq!(job.state(&state).get_in(&second, &3).unwrap(), Some(&103));
        job.state_mut(&state).clear().unwrap();
        assert!(job.state(&state).is_empty().unwrap());
    });
}

#[test]
fn an_entry_is_modified_if_it_is_there_and_filled_if_not() {
    run(async {
        let mut job = Job::builder("j").create(&Store::memory()).await.unwrap();
        let counts: ValueState<String, u64> = job.value_state("counts").unwrap();
        for _ in 0..3 {
            let entry = job.state_mut(&counts);
            let mut entry = entry;
            entry.entry("a".to_owned()).and_modify(|count| *count += 1).or_insert(1).unwrap();
        }
        assert_eq!(job.state(&counts).get("a").unwrap(), Some(&3));
        assert!(
            !job.state_mut(&counts).entry("b".to_owned()).and_modify(|count| *count += 1).done().unwrap()
        );
        assert_eq!(job.state(&counts).get("b").unwrap(), None);
    });
}

#[test]
fn every_way_to_change_a_value_is_in_the_next_delta() {
    run(async {
        let store = Store::memory();
        let mut job = Job::builder("j").create(&store).await.unwrap();
        let state: ValueState<String, u64> = job.value_state("s").unwrap();
        job.state_mut(&state).put("a".to_owned(), 1).unwrap();
        job.state_mut(&state).put("b".to_owned(), 1).unwrap();
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.state_mut(&state).update("a", |value| *value += 1).unwrap();
        let figures = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((figures.puts, figures.base), (1, Some(id(1))), "update");
        job.state_mut(&state).entry("a".to_owned()).and_modify(|value| *value += 1).or_insert(9).unwrap();
        let figures = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!(figures.puts, 1, "entry");
        job.state_mut(&state).retain(|key, (), _| key == "a").unwrap();
        let figures = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((figures.puts, figures.tombstones), (0, 1), "retain");
        drop(job);
        let mut job = Job::builder("j").recover(&store).await.unwrap();
        let state: ValueState<String, u64> = job.value_state("s").unwrap();
        assert_eq!(job.state(&state).get("a").unwrap(), Some(&3));
        assert_eq!(job.state(&state).get("b").unwrap(), None);
    });
}

#[test]
fn a_state_opened_with_other_types_is_refused_and_keeps_its_entries() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        job.put("a", "1");
        let refused = job.job.value_state::<String, u64, ()>("s").err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        let mut job = Job::builder("j").key_groups(8).recover(&store).await.unwrap();
        let refused = job.value_state::<String, u64, ()>("s").err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        assert_eq!(TextJob::of(job).dump(), map_of(&[("a", "1")]));
    });
}

#[test]
fn a_handle_of_another_job_is_refused() {
    run(async {
        let store = Store::memory();
        let mut one = Job::builder("one").create(&store).await.unwrap();
        let mut two = Job::builder("two").subtasks(2).create(&store).await.unwrap();
        let own: ValueState<u64, u64> = one.value_state("s").unwrap();
        two.value_state::<u64, u64, ()>("s").unwrap();
        for key in 0..10 {
            let refused = two.state_mut(&own).put(key, 1).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(two.entries(), 0);
    });
}

#[test]
fn a_checkpoint_written_meanwhile_holds_the_state_as_of_its_trigger() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        for number in 0..100 {
            job.put(&format!("k{number}"), "before");
        }
        let expected = job.dump();
        let writing = job.job.start_checkpoint(CheckpointKind::Checkpoint).unwrap();
        let written = tokio::spawn(writing.run());
        for number in 0..100 {
            job.put(&format!("k{number}"), "after");
            tokio::task::yield_now().await;
        }
        job.remove("k7");
        let figures = job.job.finish_checkpoint(written.await.unwrap()).await.unwrap();
        assert_eq!((figures.puts, figures.entries), (100, 100));
        drop(job);
        let job = Job::builder("j").subtasks(2).key_groups(8).recover(&store).await.unwrap();
        assert_eq!(TextJob::of(job).dump(), expected);
    });
}

#[test]
fn a_background_write_that_is_dropped_lets_go_and_loses_no_change() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        job.put("a", "1");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        job.put("a", "2");
        let writing = job.job.start_checkpoint(CheckpointKind::Checkpoint).unwrap();
        let pending = writing.id();
        drop(writing);
        for subtask in 0..2 {
            let open = Backend::figures(job.job.subtask(subtask).unwrap()).live_snapshots;
            assert_eq!(open, 0, "J2: the dropped write has let go");
        }
        let events = job.job.abort(pending).await.into_result().unwrap();
        assert!(matches!(events[..], [Event::Aborted(aborted, _)] if aborted == pending), "{events:?}");
        let figures = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((figures.base, figures.puts), (Some(id(1)), 1), "B3: the change is still to be written");
    });
}

#[test]
fn a_late_acknowledgement_changes_nothing_and_leaves_no_object() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 2, &store).await;
        job.put("a", "1");
        let pending = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        for subtask in 0..2 {
            job.job.write(pending, subtask).await.into_result().unwrap();
        }
        job.job.acknowledge(pending, 0).await.into_result().unwrap();
        job.job.abort(pending).await.into_result().unwrap();
        let late = job.job.acknowledge(pending, 1).await.into_result().unwrap();
        assert!(matches!(late[..], [Event::Ignored(ignored)] if ignored == pending), "J3: {late:?}");
        job.job.run_deletions().await.unwrap();
        assert_eq!(job.job.store().list(ObjectClass::Data).await.unwrap().len(), 0, "J2: its files are gone");
    });
}

#[test]
fn the_figures_tell_what_was_written_and_what_was_kept() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::create("j", 1, &store).await;
        for number in 0..50 {
            job.put(&format!("k{number}"), "v");
        }
        let first = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((first.puts, first.entries, first.segments, first.referenced_bytes), (50, 50, 1, 0));
        let stored: u64 =
            job.job.store().list(ObjectClass::Data).await.unwrap().iter().map(|object| object.length).sum();
        assert_eq!(first.new_bytes, stored);
        job.put("k0", "w");
        job.remove("k1");
        let second = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((second.puts, second.tombstones, second.segments), (1, 1, 2));
        assert_eq!((second.entries, second.referenced_bytes), (49, first.new_bytes));
    });
}

#[test]
fn retention_keeps_what_it_says_and_savepoints_stay_until_they_are_deleted() {
    run(async {
        let store = Store::memory();
        let job = Job::builder("j").retained(Retention::newest(2).unwrap()).key_groups(8);
        let mut job = TextJob::of(job.create(&store).await.unwrap());
        job.put("a", "1");
        let savepoint = job.job.checkpoint(CheckpointKind::Savepoint).await.unwrap();
        assert_eq!(savepoint.id, id(1));
        for round in 2..=6 {
            job.put("a", &round.to_string());
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        assert_eq!(job.job.savepoints(), [id(1)]);
        assert_eq!(job.job.checkpoints(), [id(5), id(6)]);
        let from = RestoreFrom { checkpoint: Some(id(1)), ..RestoreFrom::latest("j") };
        let restored = Job::builder("k").key_groups(8).restore(&store, from).await.unwrap();
        assert_eq!(TextJob::of(restored).dump(), map_of(&[("a", "1")]));
        job.job.delete_savepoint(id(1)).await.unwrap();
        assert!(job.job.savepoints().is_empty());
        assert_eq!(job.job.delete_savepoint(id(5)).await.unwrap_err().kind(), ErrorKind::NotFound);
        job.job.run_deletions().await.unwrap();
        let objects = job.job.store().list(ObjectClass::Data).await.unwrap();
        let names: BTreeSet<_> = objects.iter().map(|object| &object.path).collect();
        assert_eq!(names.len(), 2, "one segment for each retained checkpoint: {names:?}");
    });
}

#[test]
fn a_restore_that_does_not_claim_starts_with_a_full_checkpoint_and_leaves_the_source_alone() {
    run(async {
        let store = Store::memory();
        let mut source = TextJob::create("a", 1, &store).await;
        source.put("k", "1");
        source.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let restored =
            Job::builder("b").key_groups(8).restore(&store, RestoreFrom::latest("a")).await.unwrap();
        let mut restored = TextJob::of(restored);
        restored.put("l", "2");
        let first = restored.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!((first.base, first.puts), (None, 2), "everything is written");
        let second = restored.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!(second.base, Some(first.id));
        source.put("m", "3");
        source.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!(source.dump(), map_of(&[("k", "1"), ("m", "3")]), "the source goes on");
    });
}

#[test]
fn a_trigger_beyond_the_concurrent_checkpoints_is_refused_and_savepoints_do_not_count() {
    run(async {
        let mut job = TextJob::create("j", 1, &Store::memory()).await;
        job.put("a", "1");
        let first = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        let refused = job.job.trigger(CheckpointKind::Checkpoint).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        job.job.trigger(CheckpointKind::Savepoint).unwrap();
        job.job.abort(first).await.into_result().unwrap();
        job.job.trigger(CheckpointKind::Checkpoint).unwrap();
    });
}

#[test]
fn messages_wait_while_the_coordinator_stands_still_and_are_heard_in_order_afterwards() {
    run(async {
        let mut job = TextJob::create("j", 1, &Store::memory()).await;
        job.put("a", "1");
        let pending = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        job.job.write(pending, 0).await.into_result().unwrap();
        job.job.hold();
        for step in [job.job.acknowledge(pending, 0).await, job.job.abort(pending).await] {
            assert_eq!(step.into_result().unwrap(), []);
        }
        assert_eq!(job.job.checkpoints(), []);
        let refused = job.job.trigger(CheckpointKind::Savepoint).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let events = job.job.release().await.into_result().unwrap();
        assert_eq!(events, [Event::Completed(pending), Event::Ignored(pending)]);
    });
}
