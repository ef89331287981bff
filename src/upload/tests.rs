use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lowtide_format::FileKind;

use super::*;
use crate::clock::{ManualClock, Millis, UploadIdSource};
use crate::error::ErrorKind;
use crate::fault::{FaultMode, FaultOperation, FaultPlan, FaultStore, Faults};

/// What a snapshot does when it is written.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Files(usize),
    PanicAfter(usize),
}

/// Makes files without end or purpose, and tells when it has let go.
struct FakeSnapshot {
    behaviour: Behaviour,
    made: Arc<AtomicUsize>,
    _alive: Arc<()>,
}

impl Snapshot for FakeSnapshot {
    fn write(&mut self, options: &WriteOptions, sink: &mut crate::backend::FileSink<'_>) -> Result<()> {
        let count = match self.behaviour {
            Behaviour::Files(count) | Behaviour::PanicAfter(count) => count,
        };
        for number in 0..count {
            if options.cancel.is_cancelled() {
                return Err(Error::cancelled("told to stop"));
            }
            self.made.fetch_add(1, Ordering::SeqCst);
            let bytes = Bytes::from(vec![number as u8; number + 1]);
            sink(NewFile { kind: FileKind::Segment, bytes, more: Vec::new() })?;
        }
        match self.behaviour {
            Behaviour::Files(_) => Ok(()),
            Behaviour::PanicAfter(_) => panic!("the writer panics on purpose"),
        }
    }

    fn finish(self, files: Vec<FileEntry>) -> Result<Acknowledgement> {
        let private = files.iter().map(|file| (file.length.to_string(), file.id())).collect();
        Ok(Acknowledgement { private, ..Acknowledgement::default() })
    }
}

struct Trial {
    faults: Faults,
    request: UploadRequest,
    made: Arc<AtomicUsize>,
    alive: Arc<()>,
}

impl Trial {
    fn new() -> Self {
        let faults = Faults::new();
        let wrap = |inner| Arc::new(FaultStore::with_faults(inner, faults.clone())) as Arc<_>;
        let store = Store::memory().wrapped(wrap);
        let request = UploadRequest {
            store,
            uploads: UploadIdSource::counted(1),
            clock: Arc::new(ManualClock::starting_at(Millis(1))),
            ledger: Ledger::default(),
            uploads_max: 2,
            cancel: CancelToken::new(),
        };
        Self { faults, request, made: Arc::default(), alive: Arc::new(()) }
    }

    fn snapshot(&self, behaviour: Behaviour) -> FakeSnapshot {
        FakeSnapshot { behaviour, made: Arc::clone(&self.made), _alive: Arc::clone(&self.alive) }
    }

    /// Waits until the snapshot is dropped; the writer runs on a thread of its own.
    async fn let_go(&self) {
        for _ in 0..1000 {
            if Arc::strong_count(&self.alive) == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the snapshot is still held");
    }

    async fn stored(&self) -> Vec<String> {
        let objects = self.request.store.list_all().await.unwrap();
        objects.into_iter().map(|object| object.path).collect()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[test]
fn files_are_acknowledged_in_the_order_in_which_they_were_made() {
    run(async {
        let trial = Trial::new();
        let snapshot = trial.snapshot(Behaviour::Files(9));
        let part = write_and_upload(snapshot, trial.request.clone()).await.unwrap();
        let lengths: Vec<_> = part.private.iter().map(|(length, _)| length.as_str()).collect();
        assert_eq!(lengths, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        for (length, file) in &part.private {
            let stored = trial.request.store.length(&file.object).await.unwrap();
            assert_eq!(stored.unwrap().to_string(), *length, "another file lies under its name");
        }
        trial.let_go().await;
    });
}

#[test]
fn a_put_that_fails_ends_the_attempt_and_every_name_is_in_the_ledger() {
    for mode in [FaultMode::Before, FaultMode::After] {
        run(async {
            let trial = Trial::new();
            trial.faults.plan(FaultPlan { nth: 3, ..FaultPlan::first(FaultOperation::Put, mode) });
            let snapshot = trial.snapshot(Behaviour::Files(9));
            let error = write_and_upload(snapshot, trial.request.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            trial.let_go().await;
            let ledger = trial.request.ledger.close();
            for stored in trial.stored().await {
                assert!(
                    ledger.iter().any(|name| name.as_str() == stored),
                    "U1: {stored} is in nobody's list"
                );
            }
            assert!(!ledger.is_empty());
        });
    }
}

#[test]
fn a_writer_that_panics_is_an_error_and_lets_go() {
    run(async {
        let trial = Trial::new();
        let snapshot = trial.snapshot(Behaviour::PanicAfter(3));
        let error = write_and_upload(snapshot, trial.request.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        trial.let_go().await;
    });
}

#[test]
fn a_store_that_never_answers_bounds_what_is_made_and_dropping_the_future_lets_go() {
    run(async {
        let trial = Trial::new();
        let hang = FaultPlan::first(FaultOperation::Put, FaultMode::Hang);
        trial.faults.plan(FaultPlan { times: u64::MAX, ..hang });
        let upload = write_and_upload(trial.snapshot(Behaviour::Files(100)), trial.request.clone());
        let waited = tokio::time::timeout(Duration::from_millis(50), upload).await;
        assert!(waited.is_err(), "nothing can be acknowledged");
        let made = trial.made.load(Ordering::SeqCst);
        assert!(made <= 2 + 2, "U2: {made} files were made");
        assert!(made >= 2, "several are on their way at a time");
        trial.let_go().await; // U3
    });
}

#[test]
fn no_upload_begins_after_the_attempt_has_ended() {
    run(async {
        let trial = Trial::new();
        assert!(trial.request.ledger.close().is_empty());
        let snapshot = trial.snapshot(Behaviour::Files(3));
        let error = write_and_upload(snapshot, trial.request.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(trial.stored().await.is_empty());
    });
}
