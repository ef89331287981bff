//! Ids, codecs, records, segments, manifests and object names of lowtide.

mod codec;
mod error;
mod hash;
mod ids;
mod key_group;
mod object_name;

pub use codec::{AutoCodec, Codec, CodecIdentity, DecodeLimits, Key, Lookup, Namespace, Value};
pub use error::{ErrorSource, FormatError, FormatErrorKind};
pub use hash::xxh3;
pub use ids::{CheckpointId, Generation, UploadId};
pub use key_group::{KeyGroup, KeyGroupCount, KeyGroupRange, KeyGroupSet, key_group};
pub use object_name::{FileEntry, FileId, FileKind, ObjectName};
