#![doc = include_str!("../FORMAT.md")]

#[doc(hidden)]
pub mod broken;
mod codec;
mod compression;
mod cursor;
mod envelope;
mod error;
mod hash;
mod ids;
mod key_group;
mod manifest;
mod object_name;
mod path;
mod record;
mod section;
mod segment;
mod sequence;
mod state;
#[cfg(feature = "store")]
mod store;
mod version;

pub use codec::{AutoCodec, Codec, CodecIdentity, DecodeLimits, Key, Lookup, Namespace, Value};
pub use compression::Compression;
pub use error::{ErrorSource, FormatError, FormatErrorKind};
pub use hash::xxh3;
pub use ids::{CheckpointId, Generation, UploadId};
pub use key_group::{KeyGroup, KeyGroupCount, KeyGroupRange, KeyGroupSet, key_group};
pub use manifest::{
    CheckpointKind, Element, KeyGrouping, LocalFile, Manifest, ManifestFile, SegmentRecords, SubtaskPart,
};
pub use object_name::{FileCheck, FileEntry, FileId, FileKind, ObjectName};
pub use path::{ObjectClass, ObjectPath};
pub use record::{BlockRecords, Clear, PutIds, PutParts, PutRef, RecordRef, RecordRun, RunPart};
pub use segment::{
    Block, BlockDecoder, BlockEntry, FinishedSegment, RecordTotals, Run, SegmentBuffers, SegmentFooter,
    SegmentOptions, SegmentReader, SegmentSummary, SegmentTail, SegmentTrailer, SegmentWriter, VersionSpan,
};
pub use sequence::{PublishedRef, RestoredFrom, SequenceMember, SequenceStep};
pub use state::{StateDescriptor, StateKind};
#[cfg(feature = "store")]
pub use store::{
    CountingStore, CreateOutcome, DeleteReport, ListedObject, Operation, Outcome, ReadError, Store,
    StoreCounts, StoreError, StoreErrorKind, StoreOptions,
};
pub use version::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};
