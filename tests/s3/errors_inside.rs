//! `200 OK` with an error inside is a failure: of an upload in parts, of a delete, and of the checkpoint that needs it.

use bytes::Bytes;
use lowtide::{CheckpointKind, Job, ObjectClass, ObjectName, Store, ValueState, verify};
use lowtide_format::StoreOptions;

use crate::server::{RETRIES, Refusals, Server};

/// Codes that a sender should repeat the request for, and others.
const TRANSIENT: [&str; 2] = ["InternalError", "SlowDown"];
const FINAL: [&str; 2] = ["AccessDenied", "NoSuchUpload"];

const BYTES: &[u8] = &[7; 300];

/// Everything above a hundred bytes goes up in parts.
fn in_parts(server: &Server) -> Store {
    let options = StoreOptions { multipart_above_bytes: 100, part_bytes: 64, parallel_max: 2 };
    server.store().with_options(options)
}

fn name() -> ObjectName {
    ObjectName::new("data/x").unwrap()
}

#[tokio::test]
async fn an_upload_whose_completion_holds_an_error_fails_and_is_given_up() {
    for (codes, asked) in [(TRANSIENT, 1 + RETRIES), (FINAL, 1)] {
        for code in codes {
            let server = Server::start();
            server.refuse(Refusals { code, completions: usize::MAX, deletes: 0 });
            let put = in_parts(&server).put_data(&name(), Bytes::from_static(BYTES)).await;
            assert!(put.is_err(), "{code}: taken for success");
            server.with(|bucket| {
                assert_eq!(bucket.completions, asked, "{code}");
                assert!(bucket.objects.is_empty(), "{code}");
                assert!(bucket.uploads.is_empty(), "{code}: parts stay");
            });
        }
    }
}

#[tokio::test]
async fn an_upload_whose_completion_holds_a_passing_error_is_completed_again() {
    for code in TRANSIENT {
        let server = Server::start();
        server.refuse(Refusals { code, completions: RETRIES, deletes: 0 });
        in_parts(&server).put_data(&name(), Bytes::from_static(BYTES)).await.unwrap();
        server.with(|bucket| {
            assert_eq!(bucket.completions, 1 + RETRIES, "{code}");
            assert_eq!(bucket.objects.get("data/x").map(Vec::as_slice), Some(BYTES), "{code}");
            assert!(bucket.uploads.is_empty(), "{code}");
        });
    }
}

#[tokio::test]
async fn a_delete_that_holds_an_error_is_repeated_or_told_as_one_that_failed() {
    let cases = [(TRANSIENT, RETRIES, 0), (TRANSIENT, usize::MAX, 2), (FINAL, 1, 1), (FINAL, usize::MAX, 2)];
    for (codes, deletes, expected) in cases {
        for code in codes {
            let server = Server::start();
            let store = server.store();
            let names = [name(), ObjectName::new("data/y").unwrap()];
            for name in &names {
                store.put_data(name, Bytes::from_static(BYTES)).await.unwrap();
            }
            server.refuse(Refusals { code, completions: 0, deletes });
            let report = store.delete(&names).await;
            let left = server.with(|bucket| bucket.objects.keys().cloned().collect::<Vec<_>>());
            let mut failed: Vec<_> = report.failed.iter().map(|(name, _)| name.to_string()).collect();
            failed.sort_unstable();
            assert_eq!(failed.len(), expected, "{code}, {deletes} times");
            assert_eq!((failed, report.deleted.len()), (left, 2 - expected), "{code}, {deletes} times");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_whose_upload_holds_an_error_is_aborted_and_the_next_one_carries_its_changes() {
    for code in TRANSIENT.into_iter().chain(FINAL) {
        let server = Server::start();
        let store = in_parts(&server);
        let mut job = Job::builder("clicks").key_groups(8).create(&store).await.unwrap();
        let state: ValueState<u64, u64> = job.value_state("s").unwrap();
        let fill = |job: &mut Job, value| {
            for key in 0..1000_u64 {
                job.state_mut(&state).put(key, key * value).unwrap();
            }
        };
        fill(&mut job, 1);
        job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        fill(&mut job, 3);
        server.refuse(Refusals { code, completions: usize::MAX, deletes: 0 });
        let failed = job.checkpoint(CheckpointKind::Checkpoint).await;
        assert!(failed.is_err(), "{code}: published");
        assert_eq!(job.checkpoints().len(), 1, "{code}");
        server.refuse(Refusals::default());
        let done = job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
        assert_eq!(done.puts, 1000, "{code}");
        job.run_deletions().await.unwrap();
        for verification in verify(job.store(), None).await.unwrap() {
            assert!(verification.faults.is_empty(), "{code}: {:?}", verification.faults);
        }
        let stored = job.store().list(ObjectClass::Data).await.unwrap().len();
        assert_eq!(stored as u64, done.segments, "{code}: what failed is gone");
        assert!(server.with(|bucket| bucket.uploads.is_empty()), "{code}");
        drop(job);
        let mut job = Job::builder("clicks").key_groups(8).recover(&store).await.unwrap();
        let state: ValueState<u64, u64> = job.value_state("s").unwrap();
        assert_eq!(job.state(&state).get(&7).unwrap(), Some(&21), "{code}");
    }
}
