//! State in RocksDB: the modules that name `rocksdb`.

mod access;
mod backend;
mod census;
mod engine;
mod entries;
mod gate;
mod listener;
mod options;
mod records;
mod restore;
mod snapshot;

pub use backend::{LsmBackend, LsmState};
pub use entries::LsmEntries;
pub use options::{LsmOptions, OptionsHook, OptionsScope};
pub use records::RecordLoader;
pub use restore::Staging;
pub use snapshot::{
    AcknowledgedTable, LsmAcknowledgement, LsmFigures, LsmSnapshot, SegmentFile, SnapshotKind,
    SnapshotRequest, WrittenFile,
};
