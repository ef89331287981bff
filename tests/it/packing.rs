//! Small segments that are copied into one object: how many objects a checkpoint lists, how often a restore reads, what
//! nothing lists of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use lowtide::heap::rewrite::{BoundedRewriting, RewriteBudget};
use lowtide::{CheckpointKind, CountingStore, HeapSettings, Job, JobBuilder, ObjectClass, Store};
use lowtide_format::Manifest;

use crate::support::{TextJob, run};

/// Objects that a chain may lie in.
const OBJECTS_MAX: u32 = 8;

fn counted() -> (Store, Arc<OnceLock<CountingStore>>) {
    let counting: Arc<OnceLock<CountingStore>> = Arc::default();
    let seen = Arc::clone(&counting);
    let wrap = move |inner| {
        let store = CountingStore::new(inner);
        seen.set(store.clone()).unwrap();
        Arc::new(store) as Arc<_>
    };
    (Store::memory().wrapped(wrap), counting)
}

/// Jobs that never rewrite and never have a budget: whatever is copied, the bound on objects has asked for.
fn builder() -> JobBuilder {
    let policy =
        BoundedRewriting { budget: RewriteBudget::Bytes(0), ..BoundedRewriting::packing(OBJECTS_MAX) };
    let backend = HeapSettings { rewriting: Some(Arc::new(policy)), ..HeapSettings::default() };
    Job::builder("j").key_groups(8).backend(backend)
}

fn objects(manifest: &Manifest) -> usize {
    manifest.entries().map(|entry| &entry.object).collect::<BTreeSet<_>>().len()
}

/// Bytes in the listed objects that nothing lists, and those that are listed.
fn waste(manifest: &Manifest) -> (u64, u64) {
    let mut bytes: BTreeMap<_, u64> = BTreeMap::new();
    for file in &manifest.files {
        bytes.insert(file.entry.object.clone(), file.bytes_of_object());
    }
    let listed: u64 = manifest.entries().map(|entry| entry.length).sum();
    (bytes.values().sum::<u64>() - listed, listed)
}

/// The bytes that a store holds in data objects.
async fn stored(job: &TextJob) -> u64 {
    job.job.store().list(ObjectClass::Data).await.unwrap().iter().map(|object| object.length).sum()
}

async fn newest(job: &TextJob) -> Manifest {
    let published = lowtide::read_published(job.job.store()).await.unwrap();
    published.checkpoints.last().unwrap().manifest(job.job.store()).await.unwrap()
}

#[test]
fn after_every_checkpoint_a_chain_lies_in_few_objects_and_a_restore_reads_each_once() {
    run(async {
        let (store, counting) = counted();
        let mut job = TextJob::of(builder().create(&store).await.unwrap());
        for number in 0..64 {
            job.put(&format!("old{number}"), "a value that stays");
        }
        let mut segments_max = 0;
        for number in 0..60 {
            job.put(&format!("key{number}"), "1");
            if number % 3 == 0 {
                // Its tombstone is live as long as the first segment is listed: rewriting cannot help.
                job.remove(&format!("old{number}"));
            }
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            let manifest = newest(&job).await;
            segments_max = segments_max.max(manifest.files.len());
            assert!(objects(&manifest) <= OBJECTS_MAX as usize, "W3: {} objects", objects(&manifest));
        }
        assert_eq!(segments_max, 60, "none of them is dry");
        job.job.run_deletions().await.unwrap();
        let (manifest, expected) = (newest(&job).await, job.dump());
        assert_eq!(
            stored(&job).await,
            manifest.entries().map(|entry| entry.length).sum::<u64>(),
            "no waste yet"
        );
        drop(job);
        let before = counting.get().unwrap().counts(Some(ObjectClass::Data));
        let job = TextJob::of(builder().recover(&store).await.unwrap());
        let after = counting.get().unwrap().counts(Some(ObjectClass::Data));
        assert_eq!(after.gets - before.gets, objects(&manifest) as u64, "one request for each object");
        assert_eq!(job.dump(), expected);
    });
}

#[test]
fn waste_is_copied_away_within_the_budget_also_after_a_restore() {
    for restored in [false, true] {
        run(async {
            let store = Store::memory();
            let policy = Arc::new(BoundedRewriting::packing(OBJECTS_MAX));
            let backend = HeapSettings { rewriting: Some(policy), ..HeapSettings::default() };
            let builder = || Job::builder("j").key_groups(8).backend(backend.clone());
            let mut job = TextJob::of(builder().create(&store).await.unwrap());
            for number in 0..24 {
                job.put(&format!("key{number}"), "1");
                job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            }
            let (nothing, _) = waste(&newest(&job).await);
            assert_eq!(nothing, 0);
            if restored {
                job = TextJob::of(builder().recover(&store).await.unwrap());
            }
            // Newest first: the ends of the objects are what nothing lists any more.
            for number in (2..24).rev() {
                job.put(&format!("key{number}"), "2");
                job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
                let (wasted, listed) = waste(&newest(&job).await);
                assert!(wasted * 4 <= listed, "{wasted} bytes wasted for {listed} listed");
                job.job.run_deletions().await.unwrap();
                assert_eq!(stored(&job).await, wasted + listed, "what the manifest says is what there is");
            }
        });
    }
}

#[test]
fn subtasks_pack_what_they_share_after_a_rescale_each_for_itself() {
    run(async {
        let store = Store::memory();
        let mut job = TextJob::of(builder().create(&store).await.unwrap());
        for number in 0..30 {
            job.put(&format!("key{number}"), "1");
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        for subtasks in [3, 2, 1] {
            let expected = job.dump();
            drop(job);
            job = TextJob::of(builder().subtasks(subtasks).recover(&store).await.unwrap());
            assert_eq!(job.dump(), expected);
            for number in 0..20 {
                job.put(&format!("{subtasks}-{number}"), "1");
                job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            }
            let objects = objects(&newest(&job).await);
            assert!(objects <= (OBJECTS_MAX * subtasks) as usize, "{objects} objects of {subtasks} subtasks");
            job.job.run_deletions().await.unwrap();
            let listed: u64 = newest(&job).await.entries().map(|entry| entry.length).sum();
            assert!(stored(&job).await >= listed);
        }
        assert_eq!(job.dump().len(), 90);
    });
}

#[test]
fn what_two_subtasks_have_copied_each_for_itself_is_copied_again() {
    run(async {
        let store = Store::memory();
        let policy = Arc::new(BoundedRewriting::packing(1));
        let backend = HeapSettings { rewriting: Some(policy), ..HeapSettings::default() };
        let builder = || Job::builder("j").key_groups(8).backend(backend.clone());
        let mut job = TextJob::of(builder().create(&store).await.unwrap());
        for round in 0..5 {
            (0..20).for_each(|key| job.put(&format!("{round}-{key}"), "1"));
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        drop(job);
        let mut job = TextJob::of(builder().subtasks(3).recover(&store).await.unwrap());
        let mut copied = 0;
        for round in 0..6 {
            (0..20).for_each(|key| job.put(&format!("more-{round}-{key}"), "1"));
            // Each copies what all have listed, and then its own copies.
            copied += job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().copied_bytes;
        }
        assert!(copied > 0, "nothing was copied");
        let expected = job.dump();
        drop(job);
        let job = TextJob::of(builder().subtasks(1).recover(&store).await.unwrap());
        assert_eq!((job.dump().len(), job.dump()), (220, expected));
    });
}
