//! What one segment holds in the key groups for which a subtask lists it: figures that never change.

use std::fmt;
use std::sync::Arc;

use lowtide_format::{CheckpointId, FileEntry, KeyGroupSet, SegmentSummary};

use super::tally::TombstoneTally;

/// Number of a segment within one backend: small, local, in memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seg-{}", self.0)
    }
}

/// Number of a named state within one backend: local, in memory only. Segments carry the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateIndex(pub u16);

/// A clear record: everything of a state, or of one namespace of it, in older elements is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearFact {
    /// The state that was cleared.
    pub state: StateIndex,
    /// The encoded namespace that was cleared; `None` for all of them.
    pub namespace: Option<Arc<[u8]>>,
    /// The writer's key groups at that time, as far as the element is listed for them.
    pub key_groups: KeyGroupSet,
}

impl ClearFact {
    /// Whether records of this state and namespace are in its scope; `None` asks for all namespaces.
    #[must_use]
    pub fn covers(&self, state: StateIndex, namespace: Option<&[u8]>) -> bool {
        self.state == state && (self.namespace.is_none() || self.namespace.as_deref() == namespace)
    }
}

/// Where the bytes of a segment are. Copying it changes this, and nothing else about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// The file.
    pub entry: FileEntry,
    /// What its writer reported; `None` if it was restored without: it is then never copied.
    pub summary: Option<SegmentSummary>,
    /// Length in bytes of the object it lies in, parts that nothing lists among it.
    pub object_bytes: u64,
}

impl From<FileEntry> for SegmentFile {
    /// A file that is alone in its object.
    fn from(entry: FileEntry) -> Self {
        let object_bytes = entry.offset.saturating_add(entry.length);
        Self { entry, summary: None, object_bytes }
    }
}

/// What a segment holds, counted in the key groups for which this subtask lists it.
#[derive(Clone, Debug)]
pub struct SegmentFacts {
    /// The segment's number in this backend.
    pub number: SegmentNumber,
    /// The checkpoint that wrote it.
    pub checkpoint: CheckpointId,
    /// Where its bytes are; `None` where only the accounting is run.
    pub file: Option<SegmentFile>,
    /// Whether it holds rewritten survivors only.
    pub cold: bool,
    /// Number of puts.
    pub puts: u64,
    /// Encoded bytes of the puts, before compression.
    pub put_bytes: u64,
    /// Encoded bytes of the tombstones and clears, before compression.
    pub tombstone_bytes: u64,
    /// The tombstones by what they may hide, without those that are known to be dead for every later chain. (A
    /// restore sees every key, and may leave out those that a newer clear covers.)
    pub tombstones: TombstoneTally,
    /// The clears.
    pub clears: Vec<ClearFact>,
    /// The states with a put or a tombstone, ascending.
    pub states: Vec<StateIndex>,
}

impl SegmentFacts {
    /// Encoded bytes of all its records, before compression.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.put_bytes + self.tombstone_bytes
    }

    /// Encoded bytes of so many of its puts, by their mean size.
    #[must_use]
    pub fn bytes_of_puts(&self, puts: u64) -> u64 {
        if self.puts == 0 {
            return 0;
        }
        let bytes = u128::from(self.put_bytes) * u128::from(puts) / u128::from(self.puts);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Whether it may hold a put or a tombstone of the state.
    #[must_use]
    pub fn may_hold(&self, state: StateIndex) -> bool {
        self.states.binary_search(&state).is_ok()
    }
}
