//! A job of one subtask over 128 key groups as an engine, on either backend of the library.
//!
//! Owns: settings and where a repetition keeps its files. The entries are reached as a host reaches them, through the
//! subtask's backend.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use lowtide_heap::HeapBackend;
use tokio::runtime::{Builder, Runtime};

use super::engine::{CheckpointBytes, Engine, Frozen};
use super::workload::Kind;
use crate::backend::Backend;
use crate::compare::BackendName;
use crate::compare::listing::Listing;
use crate::compare::meter::{Meter, Written};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Deletions, Job, JobBuilder, JobOptions, WrittenParts};
use crate::{CheckpointKind, HeapSettings};

const JOB: &str = "peer";
const STATE: &str = "peer-state";

/// A backend as the suites set it up, each repetition in a directory of its own.
pub(super) trait PeerBackend: Backend {
    /// Its settings; what it keeps beside the store goes to `local`.
    fn settings<T: Kind>(name: BackendName, local: PathBuf) -> Self::Options;

    /// Bytes of its tables, if it knows.
    fn table_bytes(&self) -> Option<u64>;
}

impl PeerBackend for HeapBackend {
    fn settings<T: Kind>(name: BackendName, _local: PathBuf) -> HeapSettings {
        let mut settings = HeapSettings::default().declare::<u64, T::Stored, ()>(STATE);
        if name != BackendName::Heap {
            settings.rewriting = None;
        }
        settings
    }

    fn table_bytes(&self) -> Option<u64> {
        Some(Self::table_bytes(self) as u64)
    }
}

#[cfg(feature = "rocksdb")]
impl PeerBackend for crate::RocksBackend {
    fn settings<T: Kind>(_name: BackendName, local: PathBuf) -> crate::lsm::LsmOptions {
        crate::lsm::LsmOptions { directory: local, ..Default::default() }
    }

    fn table_bytes(&self) -> Option<u64> {
        None
    }
}

/// A running job.
pub(super) struct JobEngine<B: Backend, T: Kind> {
    runtime: Runtime,
    job: Job<B>,
    token: B::State<u64, (), T::Stored>,
    name: BackendName,
    meter: Meter,
    directory: PathBuf,
    /// Written up to the last completed checkpoint.
    written: Written,
    /// Checkpoints taken so far.
    taken: u64,
    kind: PhantomData<T>,
}

enum Launch {
    Create,
    Recover,
}

fn lost(what: &str) -> Error {
    Error::invalid_argument(format!("{what} is gone from a job of one subtask"))
}

impl<B: PeerBackend, T: Kind> JobEngine<B, T> {
    fn launch(name: BackendName, directory: &Path, launch: &Launch) -> Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|source| {
                Error::new(ErrorKind::Store, "the threads that write checkpoints cannot be started")
                    .caused_by(source)
            })?;
        let place = directory.join("checkpoints");
        let meter = Meter::open(&place)?;
        // What is retained is listed after each checkpoint: nothing may be half deleted then.
        let backend = B::settings::<T>(name, directory.join("local"));
        let options = JobOptions::<B> { deletions: Deletions::ByHand, backend, ..JobOptions::default() };
        let builder = JobBuilder::new(JOB).options(options);
        let mut job = runtime.block_on(async {
            match launch {
                Launch::Create => builder.create(meter.store()).await,
                Launch::Recover => builder.recover(meter.store()).await,
            }
        })?;
        let token = job
            .value_state::<u64, T::Stored, ()>(STATE)?
            .of_subtask(0)
            .ok_or_else(|| lost("the token of the state"))?;
        let written = meter.written();
        let directory = place;
        Ok(Self { runtime, job, token, name, meter, directory, written, taken: 0, kind: PhantomData })
    }

    fn backend(&self) -> Result<&B> {
        self.job.subtask(0).ok_or_else(|| lost("the backend"))
    }

    fn backend_mut(&mut self) -> Result<&mut B> {
        self.job.subtask_mut(0).ok_or_else(|| lost("the backend"))
    }

    /// What the next checkpoint writes.
    fn next_kind(&self) -> CheckpointKind {
        let is_full = match self.name {
            BackendName::HeapFull => true,
            BackendName::HeapFullEvery(checkpoints) => self.taken.is_multiple_of(checkpoints.get()),
            _ => false,
        };
        if is_full { CheckpointKind::Full } else { CheckpointKind::Checkpoint }
    }
}

impl<B: PeerBackend, T: Kind> Engine<T> for JobEngine<B, T> {
    type Setting = BackendName;
    type Written = WrittenParts;

    fn name(setting: &BackendName) -> String {
        format!("lowtide-{setting}")
    }

    fn repeats(setting: &BackendName) -> bool {
        *setting == BackendName::HeapFull
    }

    fn create(setting: &BackendName, directory: &Path) -> Result<Self> {
        Self::launch(*setting, directory, &Launch::Create)
    }

    fn recover(setting: &BackendName, directory: &Path) -> Result<Self> {
        Self::launch(*setting, directory, &Launch::Recover)
    }

    #[inline(always)]
    fn put(&mut self, key: u64, value: T::Stored) -> Result<()> {
        let token = self.token;
        self.backend_mut()?.set(token, (), key, value)
    }

    #[inline(always)]
    fn with<R>(&self, key: u64, look: impl FnOnce(&T::Stored) -> R) -> Result<Option<R>> {
        Ok(self.backend()?.get(self.token, &(), &key)?.map(|value| look(&value)))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> Result<()> {
        let token = self.token;
        self.backend_mut()?.discard(token, &(), &key)
    }

    fn count(&self) -> Result<u64> {
        let mut count = 0;
        for entry in self.backend()?.iter(self.token, None)? {
            entry?;
            count += 1;
        }
        Ok(count)
    }

    fn memory_bytes(&self) -> Option<u64> {
        let backend = self.backend().ok()?;
        let owned = if T::BYTES > 8 { T::BYTES as u64 * backend.figures().entries } else { 0 };
        Some(backend.table_bytes()? + owned)
    }

    fn freeze(&mut self) -> Result<Frozen<WrittenParts>> {
        let background = self.job.start_checkpoint(self.next_kind())?;
        self.taken += 1;
        let runtime = self.runtime.handle().clone();
        let pause = Some(background.pause());
        Ok(Frozen { writing: Box::new(move || runtime.block_on(background.run())), pause })
    }

    fn complete(&mut self, parts: WrittenParts) -> Result<CheckpointBytes> {
        let figures = self.runtime.block_on(self.job.finish_checkpoint(parts))?;
        let written = self.meter.written();
        let new = written.since(&self.written);
        self.written = written;
        self.runtime.block_on(self.job.run_deletions())?;
        let listing = Listing::of(&self.directory).map_err(|source| {
            let message = format!("cannot list {}", self.directory.display());
            Error::new(ErrorKind::Store, message).caused_by(source)
        })?;
        Ok(CheckpointBytes {
            claimed: figures.new_bytes,
            state: figures.new_bytes + figures.referenced_bytes,
            new_files: new.data_bytes + new.meta_bytes,
            retained: listing.data_bytes + listing.meta_bytes,
        })
    }
}
