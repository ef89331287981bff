//! What a subtask says when its part of a checkpoint is in the store.

use lowtide_format::{CheckpointId, FileId, KeyGroupSet, ManifestFile, StateDescriptor};
use lowtide_lsm::TrafficFigures;

/// One element of an acknowledged chain: a file and the key groups for which it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcknowledgedElement {
    /// The file: a new one of the same acknowledgement, or one that the base's chain lists.
    pub file: FileId,
    /// The key groups for which it is listed; never wider than in the base.
    pub key_groups: KeyGroupSet,
    /// Live puts as of the freeze.
    pub live_puts: u64,
    /// Live tombstones as of the freeze.
    pub live_tombstones: u64,
    /// Live clears as of the freeze.
    pub live_clears: u64,
}

/// A subtask's part of a checkpoint, as a difference against its base: new files are described, kept ones named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The base in fact used: that of the trigger, or none if the subtask had lost it and wrote everything.
    pub base: Option<CheckpointId>,
    /// The new files, all of them in the store.
    pub files: Vec<ManifestFile>,
    /// The chain, oldest first: new and kept files.
    pub elements: Vec<AcknowledgedElement>,
    /// Files of a RocksDB database by their local names, new and kept.
    pub private: Vec<(String, FileId)>,
    /// The states of this subtask.
    pub states: Vec<StateDescriptor>,
    /// Entries as of the freeze.
    pub entries: u64,
    /// What writing it took.
    pub figures: WriteFigures,
}

impl Acknowledgement {
    /// The files that it names, new and kept.
    pub fn listed(&self) -> impl Iterator<Item = &FileId> + '_ {
        self.elements.iter().map(|element| &element.file).chain(self.private.iter().map(|(_, file)| file))
    }
}

/// What writing one part took, beyond what its files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFigures {
    /// Puts among the new records that were written again although unchanged.
    pub rewritten: u64,
    /// Encoded bytes of those.
    pub rewritten_bytes: u64,
    /// Bytes of files of the base that were copied into one object.
    pub copied_bytes: u64,
    /// Records set aside for this snapshot.
    pub set_aside: u64,
    /// Tables moved and the compactions behind them; none from a backend without tables.
    pub traffic: Option<TrafficFigures>,
    /// Whether it was a compaction storm, by the options of the backend.
    pub storm: bool,
}
