//! What a restore reads, and what it says about damage.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use lowtide::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan};
use lowtide::{
    CheckpointId, CheckpointKind, Claim, CountingStore, ErrorKind, HeapSettings, Job, JobOptions,
    ObjectClass, ObjectName, OnDamage, RestoreFrom, Retention, Store, ValueState, verify,
};

use crate::support::{TextJob, faulty, map_of, run};

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

/// A job that keeps two checkpoints and rewrites nothing.
async fn two_checkpoints(store: &Store) -> TextJob {
    let backend = HeapSettings { rewriting: None, ..HeapSettings::default() };
    let builder = Job::builder("j").key_groups(8).retained(Retention::newest(2).unwrap()).backend(backend);
    let mut job = TextJob::of(builder.create(store).await.unwrap());
    job.put("a", "1");
    job.put("b", "1");
    job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    job.put("a", "2");
    job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
    job
}

/// The object that only the second checkpoint lists.
async fn newest_object(job: &TextJob) -> ObjectName {
    let manifest = job.job.manifest(id(2)).await.unwrap();
    let own: Vec<_> = manifest.files.iter().filter(|file| file.checkpoint == id(2)).collect();
    assert_eq!(own.len(), 1);
    own[0].entry.object.clone()
}

async fn replace(store: &Store, name: &ObjectName, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = store.get(name, Default::default()).await.unwrap().to_vec();
    change(&mut bytes);
    store.delete(std::slice::from_ref(name)).await;
    store.put_data(name, Bytes::from(bytes)).await.unwrap();
}

async fn restored(store: &Store, on_damage: OnDamage) -> lowtide::Result<TextJob> {
    let from = RestoreFrom { on_damage, ..RestoreFrom::latest("j") };
    Ok(TextJob::of(Job::builder("k").key_groups(8).restore(store, from).await?))
}

#[test]
fn a_flipped_bit_is_corrupt_and_names_object_and_checkpoint_and_fallback_takes_the_one_before() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let object = newest_object(&job).await;
        replace(job.job.store(), &object, |bytes| bytes[12] ^= 1).await;
        let error = restored(&store, OnDamage::Refuse).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "Q1: nothing unchecked reaches the backend");
        let text = error.to_string();
        assert!(text.contains(object.as_str()) && text.contains("chk-2"), "{text}");
        let older = restored(&store, OnDamage::FallBack).await.unwrap();
        assert_eq!(older.job.restored(), Some(id(1)));
        assert_eq!(older.dump(), map_of(&[("a", "1"), ("b", "1")]));
    });
}

#[test]
fn an_object_that_is_cut_anywhere_or_goes_on_is_corrupt() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let object = newest_object(&job).await;
        let whole = job.job.store().get(&object, Default::default()).await.unwrap().to_vec();
        for length in (0..whole.len()).chain([whole.len() + 1, 2 * whole.len()]) {
            replace(job.job.store(), &object, |bytes| {
                bytes.clone_from(&whole);
                bytes.resize(length, 0);
            })
            .await;
            let error = restored(&store, OnDamage::Refuse).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "of {length} bytes: {error}");
            assert!(error.to_string().contains(object.as_str()), "{error}");
        }
        let older = restored(&store, OnDamage::FallBack).await.unwrap();
        assert_eq!(older.job.restored(), Some(id(1)));
    });
}

#[test]
fn a_lost_object_is_missing_and_names_object_and_checkpoint() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let object = newest_object(&job).await;
        job.job.store().delete(std::slice::from_ref(&object)).await;
        let error = restored(&store, OnDamage::Refuse).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Missing);
        let text = error.to_string();
        assert!(text.contains(object.as_str()) && text.contains("chk-2"), "{text}");
        let older = restored(&store, OnDamage::FallBack).await.unwrap();
        assert_eq!(older.job.restored(), Some(id(1)));
    });
}

#[test]
fn two_sound_files_that_were_swapped_are_refused() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let directory = job.job.store();
        let names: Vec<ObjectName> = job
            .job
            .manifest(id(2))
            .await
            .unwrap()
            .files
            .iter()
            .map(|file| file.entry.object.clone())
            .collect();
        let (first, second) = (&names[0], &names[1]);
        let (one, two) = (
            directory.get(first, Default::default()).await.unwrap(),
            directory.get(second, Default::default()).await.unwrap(),
        );
        directory.delete(&names).await;
        directory.put_data(first, two).await.unwrap();
        directory.put_data(second, one).await.unwrap();
        assert_eq!(restored(&store, OnDamage::Refuse).await.err().unwrap().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn verify_finds_every_damaged_file_and_passes_what_is_sound() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let sound = verify(job.job.store(), None).await.unwrap();
        assert_eq!(
            sound.iter().map(|one| (one.id, one.entries)).collect::<Vec<_>>(),
            [(id(1), 2), (id(2), 2)]
        );
        assert!(sound.iter().all(|one| one.faults.is_empty()), "{sound:?}");
        let object = newest_object(&job).await;
        replace(job.job.store(), &object, |bytes| bytes[20] ^= 1).await;
        let damaged = verify(job.job.store(), None).await.unwrap();
        assert!(damaged[0].faults.is_empty(), "chk-1 does not list the file");
        assert_eq!(damaged[1].faults.len(), 1);
        assert!(damaged[1].faults[0].to_string().contains(object.as_str()));
        assert_eq!(verify(job.job.store(), Some(id(7))).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_restore_of_a_directory_that_cannot_be_read_is_an_error_and_no_empty_start() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        drop(two_checkpoints(&store).await);
        for operation in [FaultOperation::List, FaultOperation::Get] {
            let plan = FaultPlan::first(operation, FaultMode::Before);
            faults.plan(FaultPlan { times: 1000, ..plan });
            let opened = Job::builder("j").key_groups(8).open(&store).await;
            assert_eq!(opened.err().unwrap().kind(), ErrorKind::Store, "{operation:?}");
            faults.clear();
        }
        let opened = Job::builder("j").key_groups(8).open(&store).await.unwrap();
        assert_eq!(opened.restored(), Some(id(2)));
    });
}

#[test]
fn a_store_that_does_not_answer_is_no_damage_to_fall_back_from() {
    run(async {
        let (store, faults) = faulty(&Store::memory());
        drop(two_checkpoints(&store).await);
        let failing = async |times, on_damage| {
            let plan = FaultPlan::first(FaultOperation::Get, FaultMode::Before);
            faults.plan(FaultPlan { class: FaultClass::Data, times, ..plan });
            let restored = restored(&store, on_damage).await;
            faults.clear();
            restored
        };
        // As many failures as a restore does not put up with, and not one more: an older checkpoint could be read.
        let mut times = 1;
        while failing(times, OnDamage::Refuse).await.is_ok() {
            times += 1;
        }
        let refused = failing(times, OnDamage::FallBack).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Store, "{refused}");
    });
}

#[test]
fn a_damaged_member_of_the_sequence_is_corrupt_and_only_a_fallback_without_claim_looks_past_it() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let directory = job.job.store().clone();
        drop(job);
        let newest =
            directory.list(ObjectClass::Sequence).await.unwrap().into_iter().map(|one| one.path).max();
        let newest = ObjectName::new(&newest.unwrap()).unwrap();
        replace(&directory, &newest, |bytes| bytes.truncate(bytes.len() / 2)).await;
        let refused = restored(&store, OnDamage::Refuse).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains(newest.as_str()), "{refused}");
        let claim =
            RestoreFrom { claim: Claim::Claim, on_damage: OnDamage::FallBack, ..RestoreFrom::latest("j") };
        let claimed = Job::builder("j").key_groups(8).restore(&store, claim).await;
        assert_eq!(claimed.err().unwrap().kind(), ErrorKind::Corrupt, "nobody takes over past damage");
        let started = Job::builder("j").key_groups(8).open(&store).await;
        assert_eq!(started.err().unwrap().kind(), ErrorKind::Corrupt, "damage is not emptiness");
        let older = restored(&store, OnDamage::FallBack).await.unwrap();
        assert_eq!((older.job.restored(), older.dump()), (Some(id(1)), map_of(&[("a", "1"), ("b", "1")])));
    });
}

/// A restore that stands still at its first data object while the job it reads from completes two checkpoints, keeps
/// one, and deletes the rest.
async fn restore_overtaken(wanted: Option<CheckpointId>) -> lowtide::Result<TextJob> {
    let truth = Store::memory();
    let mut job = TextJob::of(Job::builder("j").key_groups(8).create(&truth).await?);
    job.put("a", "1");
    job.job.checkpoint(CheckpointKind::Checkpoint).await?;
    let (store, faults) = faulty(&truth);
    let plan = FaultPlan::first(FaultOperation::Get, FaultMode::Pause);
    faults.plan(FaultPlan { class: FaultClass::Data, ..plan });
    let from = RestoreFrom { checkpoint: wanted, ..RestoreFrom::latest("j") };
    let mut restore = Box::pin(Job::builder("k").key_groups(8).restore(&store, from));
    tokio::select! {
        biased;
        _ = &mut restore => panic!("the restore read no data object"),
        () = faults.stalled_beyond(0) => {}
    }
    for value in ["2", "3"] {
        job.put("a", value);
        job.job.checkpoint(CheckpointKind::Full).await?;
        job.job.run_deletions().await?;
    }
    faults.resume();
    restore.await.map(TextJob::of)
}

#[test]
fn a_restore_whose_checkpoint_is_let_go_meanwhile_starts_over_with_a_newer_one() {
    run(async {
        let restored = restore_overtaken(None).await.unwrap();
        assert_eq!((restored.job.restored(), restored.dump()), (Some(id(3)), map_of(&[("a", "3")])));
    });
}

#[test]
fn a_restore_of_a_checkpoint_by_name_that_is_let_go_meanwhile_finds_it_no_more() {
    run(async {
        let gone = restore_overtaken(Some(id(1))).await.err().unwrap();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    });
}

#[test]
fn one_of_eight_subtasks_reads_little_more_than_its_own_blocks_of_a_large_segment() {
    run(async {
        let counting: Arc<OnceLock<CountingStore>> = Arc::default();
        let seen = Arc::clone(&counting);
        let wrap = move |inner| {
            let store = CountingStore::new(inner);
            seen.set(store.clone()).unwrap();
            Arc::new(store) as Arc<_>
        };
        let store = Store::memory().wrapped(wrap);
        // One object: a policy would have it cut into parts that are read as a whole.
        let backend = HeapSettings { rewriting: None, ..HeapSettings::default() };
        let mut job = Job::builder("j").key_groups(64).backend(backend).create(&store).await.unwrap();
        let state: ValueState<u64, Vec<u8>> = job.value_state("s").unwrap();
        // Values that do not compress, so that stored bytes are what is counted.
        for key in 0..20_000_u64 {
            let mut value = Vec::new();
            for word in 0..12 {
                let mixed = (key * 12 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                value.extend_from_slice(
                    &(mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes(),
                );
            }
            job.state_mut(&state).put(key, value).unwrap();
        }
        let figures = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        drop(job);
        let counting = counting.get().unwrap();
        let before = counting.counts(Some(ObjectClass::Data)).get_bytes;
        let job = Job::builder("j").key_groups(64).subtasks(8).recover(&store).await.unwrap();
        assert_eq!(job.entries(), 20_000);
        let read = counting.counts(Some(ObjectClass::Data)).get_bytes - before;
        // Eight subtasks read the file once between them, a footer each, and blocks at their borders twice.
        let footers = 8 * (64 << 10);
        let limit = figures.new_bytes + figures.new_bytes / 10 + footers;
        assert!(read <= limit, "{read} bytes were read of {}, at most {limit}", figures.new_bytes);
    });
}

#[test]
fn a_declared_state_restores_to_the_same_entries_as_one_that_is_opened_later() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let expected = job.dump();
        drop(job);
        let options = JobOptions {
            key_groups: 8,
            backend: HeapSettings::default().declare::<String, String, ()>("s"),
            ..JobOptions::default()
        };
        let job = TextJob::of(Job::builder("j").options(options.clone()).recover(&store).await.unwrap());
        assert_eq!(job.dump(), expected);
        drop(job);
        let wrong =
            JobOptions { backend: HeapSettings::default().declare::<String, u64, ()>("s"), ..options };
        let refused = Job::builder("j").options(wrong).recover(&store).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
    });
}

#[test]
fn a_state_that_nobody_opens_goes_into_later_checkpoints_unchanged() {
    run(async {
        let store = Store::memory();
        let job = two_checkpoints(&store).await;
        let expected = job.dump();
        drop(job);
        for round in 0..3 {
            let mut job = Job::builder("j").key_groups(8).subtasks(1 + round).recover(&store).await.unwrap();
            let other: ValueState<u64, u64> = job.value_state("other").unwrap();
            job.state_mut(&other).put(u64::from(round), 1).unwrap();
            let kind = if round == 1 { CheckpointKind::Full } else { CheckpointKind::Checkpoint };
            job.checkpoint(kind).await.unwrap();
        }
        let job = TextJob::of(Job::builder("j").key_groups(8).recover(&store).await.unwrap());
        assert_eq!(job.dump(), expected);
        let states: BTreeSet<_> =
            job.job.manifest(id(5)).await.unwrap().states.into_iter().map(|state| state.name).collect();
        assert_eq!(states, BTreeSet::from(["other".to_owned(), "s".to_owned()]));
    });
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_directory_that_was_copied_elsewhere_restores_and_goes_on_without_the_original() {
    run(async {
        let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let job = two_checkpoints(&Store::local(original.path()).unwrap()).await;
        let expected = job.dump();
        drop(job);
        copy_folder(&original.path().join("j"), &copy.path().join("moved/here"));
        drop(original);
        let store = Store::local(copy.path()).unwrap();
        let from = RestoreFrom { claim: Claim::Claim, ..RestoreFrom::latest("moved/here") };
        let mut job = TextJob::of(Job::builder("k").key_groups(8).restore(&store, from).await.unwrap());
        assert_eq!(job.dump(), expected);
        job.put("a", "3");
        job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        let verified = verify(job.job.store(), None).await.unwrap();
        assert!(verified.iter().all(|one| one.faults.is_empty()), "{verified:?}");
    });
}
