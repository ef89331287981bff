//! The RocksDB path of lowtide: the same typed state in RocksDB, with checkpoints that carry only new tables.
//!
//! Without the feature `rocksdb` the crate holds what needs no C++: the identity of tables, the diff, the table list,
//! the plan of a restore, the storm detector.

mod diff;
mod directory;
mod error;
pub mod key;
#[cfg(feature = "rocksdb")]
mod local;
mod meta;
mod plan;
mod storm;
mod table;

pub use diff::{Diff, StoredTable, TableSet, diff};
pub use directory::{Scratch, WorkingDirectory};
pub use error::{LsmError, LsmErrorKind};
#[cfg(feature = "rocksdb")]
pub use local::{
    AcknowledgedTable, LsmAcknowledgement, LsmBackend, LsmEntries, LsmFigures, LsmOptions, LsmSnapshot,
    LsmState, OptionsHook, OptionsScope, RecordLoader, SegmentFile, SnapshotKind, SnapshotRequest, Staging,
    WrittenFile,
};
pub use meta::{CheckpointMeta, SmallFile, TABLE_LIST, TableMeta};
pub use plan::{Fetch, RestorePart, RestorePlan, Take};
pub use storm::{Compaction, Storm, StormOptions, TrafficFigures};
pub use table::{TableIdentity, TableProperties};
