//! Keyed in-memory state made durable by incremental snapshots.
//!
//! lowtide keeps typed entries in memory, or in RocksDB, and makes them durable with checkpoints that write each key
//! that changed since the last one, once, and nothing else. A checkpoint pauses its owner for microseconds; it is
//! written by other threads, and restored into any number of subtasks.
//!
//! # From an empty directory to a restored state
//!
//! ```
//! use lowtide::{CheckpointKind, Job, Store, ValueState};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lowtide::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! let store = Store::local(directory)?;
//! let mut job = Job::builder("clicks").create(&store).await?;
//! let clicks: ValueState<String, u64> = job.value_state("clicks")?;
//! job.state_mut(&clicks).put("ann".to_owned(), 1)?;
//! job.checkpoint(CheckpointKind::Checkpoint).await?;
//! drop(job); // the process is lost
//!
//! let mut job = Job::builder("clicks").recover(&store).await?;
//! let clicks: ValueState<String, u64> = job.value_state("clicks")?;
//! assert_eq!(job.state(&clicks).get("ann")?, Some(&1));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! - [`Job`]: subtasks, their states and their checkpoints in one process.
//! - [`Coordinator`]: the protocol alone, for a host that has processes and transport of its own.
//! - [`Backend`]: the typed state API and what a checkpoint needs of it; implemented by [`HeapBackend`].
//! - [`Store`]: where everything goes, through `object_store`.
//! - [`verify`] and [`inspect`]: what is in a store, and whether it is sound.
//! - [`simulate`](mod@simulate): what a rewriting policy costs, by its accounting alone.
//! - `script`: jobs driven step by step from a text file (feature `cli`).
//! - [`fault`]: a store that fails where it is told to, for tests.

mod backend;
mod clock;
#[cfg(feature = "cli")]
pub mod compare;
mod coordinator;
mod error;
pub mod fault;
mod inspect;
mod job;
mod publish;
mod restore;
#[cfg(feature = "cli")]
pub mod script;
pub mod simulate;
mod sweep;
mod upload;
mod verify;

pub use backend::{
    Assignment, Backend, BackendFigures, DeclaredState, EntryRef, FileSink, FreezeRequest, HeapEntries,
    HeapFrozen, HeapSettings, NewFile, Snapshot, WriteOptions, key_group_of,
};
#[cfg(feature = "rocksdb")]
pub use backend::{Decoded, RocksBackend, RocksEntries, RocksSnapshot};
pub use clock::{Clock, ManualClock, Millis, SystemClock, UploadIdSource};
pub use coordinator::{
    AbortReason, AcknowledgedElement, Acknowledgement, BaseMode, Claim, Cleanup, Coordinator,
    CoordinatorOptions, Deleter, DeletionReport, Due, Event, Holdings, Notice, Published,
    PublishedCheckpoint, Recovered, Start, Trigger, WriteFigures, delete_savepoint, read_published,
};
pub use error::{Error, ErrorKind, Result};
pub use inspect::{
    InspectedCheckpoint, InspectedElement, InspectedFault, InspectedJob, InspectedSubtask, Inspection,
    KeptFile, StoredObject, inspect,
};
pub use job::{
    BackgroundWrite, ChainLink, CheckpointFigures, CheckpointReport, CheckpointStat, Deletions, Entry,
    Failover, Job, JobBuilder, JobOptions, OnDamage, RestoreFrom, Routing, StateMut, StateRef, Step,
    ValueState, Writer, WrittenParts,
};
#[cfg(feature = "break")]
#[doc(hidden)]
pub use lowtide_format::broken;
pub use lowtide_format::{
    CheckpointId, CheckpointKind, Codec, CodecIdentity, Compression, CountingStore, DecodeLimits, FileEntry,
    FileKind, Generation, Key, KeyGroup, KeyGroupCount, KeyGroupRange, KeyGroupSet, Lookup, Manifest,
    ManifestFile, Namespace, ObjectClass, ObjectName, SegmentOptions, Store, StoreCounts, UploadId, Value,
};
#[doc(no_inline)]
pub use lowtide_heap as heap;
pub use lowtide_heap::{Antimatter, CancelToken, HeapBackend};
#[cfg(feature = "rocksdb")]
#[doc(no_inline)]
pub use lowtide_lsm as lsm;
pub use lowtide_registry::{Holder, Retention};
pub use restore::{
    FetchedSegment, PlannedFile, ProgressSink, ReadOptions, RestorePlan, RestoreProgress, RestoreReader,
    RestoreSource, RestoredValue, RestoringState,
};
pub use sweep::{SweepMode, SweepOptions, SweepReport, sweep_directory};
pub use verify::{Verification, verify};

/// The example of the README, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
