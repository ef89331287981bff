//! What comes too late: an upload of an attempt that was given up, and the end of an attempt while its files are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use lowtide::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan, Faults};
use lowtide::heap::rewrite::{BoundedRewriting, RewriteBudget};
use lowtide::{BaseMode, CheckpointId, CheckpointKind, ErrorKind, HeapSettings, Job, ObjectClass, Store};
use lowtide_format::StoreOptions;

use crate::support::{self, TextJob, map_of, run};

fn faulty(options: StoreOptions) -> (Store, Faults) {
    let (store, faults) = support::faulty(&Store::memory());
    (store.with_options(options), faults)
}

/// The data objects that are stored, and those that the kept checkpoints list.
async fn stored_and_listed(job: &TextJob) -> (BTreeSet<String>, BTreeSet<String>) {
    let stored = job.job.store().list(ObjectClass::Data).await.unwrap();
    let mut listed = BTreeSet::new();
    for id in job.job.checkpoints() {
        let manifest = job.job.manifest(id).await.unwrap();
        listed.extend(manifest.entries().map(|entry| entry.object.to_string()));
    }
    (stored.into_iter().map(|object| object.path).collect(), listed)
}

/// Data objects that the newest checkpoint wrote itself.
async fn written_by(job: &TextJob, id: CheckpointId) -> usize {
    let manifest = job.job.manifest(id).await.unwrap();
    manifest.files.iter().filter(|file| file.checkpoint == id).count()
}

#[test]
fn an_upload_that_is_done_after_a_second_attempt_has_won_leaves_no_object() {
    let whole = StoreOptions::default();
    let in_parts = StoreOptions { multipart_above_bytes: 10, part_bytes: 64, parallel_max: 2 };
    for (options, operation) in [(whole, FaultOperation::Put), (in_parts, FaultOperation::Multipart)] {
        run(async {
            let (store, faults) = faulty(options);
            let mut job = TextJob::create("a", 1, &store).await;
            job.put("k", "1");
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            job.put("k", "2");
            let pause = FaultPlan::first(operation, FaultMode::Pause);
            faults.plan(FaultPlan { class: FaultClass::Data, ..pause });
            let first = job.job.start_checkpoint(CheckpointKind::Checkpoint).unwrap();
            let slow = first.id();
            let writing = tokio::spawn(first.run());
            faults.stalled_beyond(0).await;
            job.job.expire(slow).await.into_result().unwrap();
            // The second attempt carries the same change, and wins.
            let second = job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap().id;
            job.job.run_deletions().await.unwrap();
            faults.resume();
            let late = job.job.finish_checkpoint(writing.await.unwrap()).await.unwrap_err();
            assert!(
                matches!(late.kind(), ErrorKind::Aborted | ErrorKind::Cancelled),
                "{operation:?}: {late}"
            );
            job.job.run_deletions().await.unwrap();
            let (stored, listed) = stored_and_listed(&job).await;
            assert_eq!(stored, listed, "{operation:?}: what came late is still there");
            assert_eq!(written_by(&job, second).await, 1, "{operation:?}: one handle");
            assert_eq!(faults.multiparts_open(), 0, "{operation:?}");
            drop(job);
            let job = Job::builder("a").key_groups(8).recover(&store).await.unwrap();
            assert_eq!(job.restored(), Some(second));
            assert_eq!(TextJob::of(job).dump(), map_of(&[("k", "2")]));
        });
    }
}

#[test]
fn a_file_of_an_aborted_checkpoint_stays_while_a_later_one_copies_it_and_goes_then() {
    run(async {
        let (store, faults) = faulty(StoreOptions::default());
        let policy = BoundedRewriting { budget: RewriteBudget::Unlimited, ..BoundedRewriting::packing(4) };
        let backend = HeapSettings { rewriting: Some(Arc::new(policy)), ..HeapSettings::default() };
        let builder = || {
            let builder = Job::builder("a").subtasks(2).key_groups(8).concurrent_max(2);
            builder.base_mode(BaseMode::Acknowledged).backend(backend.clone())
        };
        let mut job = TextJob::of(builder().create(&store).await.unwrap());
        // All but `a` belong to the first subtask.
        for key in ["c", "d", "e"] {
            job.put("a", key);
            job.put(key, "1");
            job.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        }
        job.job.run_deletions().await.unwrap();
        let (before, _) = stored_and_listed(&job).await;
        job.put("f", "1");
        let pending = job.job.trigger(CheckpointKind::Checkpoint).unwrap().id;
        job.job.write(pending, 0).await.into_result().unwrap();
        job.job.acknowledge(pending, 0).await.into_result().unwrap();
        let (with_pending, _) = stored_and_listed(&job).await;
        let of_pending: Vec<_> = with_pending.difference(&before).cloned().collect();
        assert_eq!(of_pending.len(), 1);

        // The fifth object of the chain is one too many: the four others are read to be copied into one.
        job.put("j", "1");
        let get = FaultPlan::first(FaultOperation::Get, FaultMode::Pause);
        faults.plan(FaultPlan { class: FaultClass::Data, times: 4, ..get });
        let writing = tokio::spawn(job.job.start_checkpoint(CheckpointKind::Checkpoint).unwrap().run());
        faults.stalled_beyond(3).await;
        job.job.abort(pending).await.into_result().unwrap();
        job.job.run_deletions().await.unwrap();
        let (stored, _) = stored_and_listed(&job).await;
        assert!(stored.contains(&of_pending[0]), "deleted while it is read");
        faults.resume();
        let figures = job.job.finish_checkpoint(writing.await.unwrap()).await.unwrap();
        assert!(figures.copied_bytes > 0, "nothing was read to be copied");

        job.job.run_deletions().await.unwrap();
        let (stored, listed) = stored_and_listed(&job).await;
        assert_eq!(stored, listed);
        assert!(!stored.contains(&of_pending[0]), "nothing needs it any more");
        let expected = job.dump();
        drop(job);
        let job = TextJob::of(builder().recover(&store).await.unwrap());
        assert_eq!((job.dump().len(), job.dump()), (6, expected));
    });
}
