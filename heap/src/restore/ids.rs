//! Epochs and labels of restored records: few for many records, so that each thread asks for one once in a while.
//!
//! Owns: the numbers given out so far, and what a run has asked for. Does not own: what an epoch or a label means
//! (`epochs`, `origins`).

use hashbrown::HashMap;
use lowtide_format::CheckpointId;
use parking_lot::Mutex;

use crate::backend::HeapBackend;
use crate::chain::StateIndex;
use crate::epochs::Epoch;
use crate::origins::{FixedHome, Label};

/// The epochs that stand for ids, each numbered at its first use.
type EpochsById = HashMap<CheckpointId, Epoch>;

/// The backend that is restored, which gives out epochs and labels to the threads that restore.
#[derive(Debug)]
pub(super) struct Numbering {
    numbers: Mutex<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    backend: HeapBackend,
    epochs: EpochsById,
}

impl Numbers {
    fn epoch(&mut self, id: CheckpointId) -> Epoch {
        let Self { backend, epochs } = self;
        *epochs.entry(id).or_insert_with(|| backend.number_epoch(id))
    }
}

impl Numbering {
    pub(super) fn new(backend: HeapBackend) -> Self {
        Self { numbers: Mutex::new(Numbers { backend, epochs: EpochsById::new() }) }
    }

    /// The backend, while no thread asks for numbers.
    pub(super) fn backend(&mut self) -> &mut HeapBackend {
        &mut self.numbers.get_mut().backend
    }

    pub(super) fn into_backend(self) -> HeapBackend {
        self.numbers.into_inner().backend
    }

    /// The epoch that stands for an id.
    pub(super) fn epoch(&self, id: CheckpointId) -> Epoch {
        self.numbers.lock().epoch(id)
    }

    fn label(&self, of: RunHome, version: CheckpointId) -> Label {
        let mut numbers = self.numbers.lock();
        let epoch = numbers.epoch(version);
        numbers.backend.fixed_label(of.state, epoch, of.home, of.checkpoint)
    }
}

/// Where the records of a run lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunHome {
    pub(super) state: StateIndex,
    /// The element.
    pub(super) home: FixedHome,
    pub(super) checkpoint: CheckpointId,
}

/// The epochs and labels of one run; neighbours mostly have the same.
pub(crate) struct RunIds<'a> {
    numbering: &'a Numbering,
    of: RunHome,
    version: Option<(CheckpointId, Label)>,
    born: Option<(CheckpointId, Epoch)>,
    labels: HashMap<CheckpointId, Label>,
    epochs: EpochsById,
}

impl<'a> RunIds<'a> {
    pub(super) fn new(numbering: &'a Numbering, of: RunHome) -> Self {
        let (labels, epochs) = (HashMap::new(), EpochsById::new());
        Self { numbering, of, version: None, born: None, labels, epochs }
    }

    /// The state whose run it is.
    pub(crate) fn state(&self) -> StateIndex {
        self.of.state
    }

    /// The label of entries of a version.
    #[inline]
    pub(crate) fn label(&mut self, version: CheckpointId) -> Label {
        match self.version {
            Some((known, label)) if known == version => label,
            _ => self.find_label(version),
        }
    }

    /// The epoch that stands for an id.
    #[inline]
    pub(crate) fn epoch(&mut self, id: CheckpointId) -> Epoch {
        match self.born {
            Some((known, epoch)) if known == id => epoch,
            _ => self.find_epoch(id),
        }
    }

    #[cold]
    fn find_label(&mut self, version: CheckpointId) -> Label {
        let (numbering, of) = (self.numbering, self.of);
        let label = *self.labels.entry(version).or_insert_with(|| numbering.label(of, version));
        self.version = Some((version, label));
        label
    }

    #[cold]
    fn find_epoch(&mut self, id: CheckpointId) -> Epoch {
        let numbering = self.numbering;
        let epoch = *self.epochs.entry(id).or_insert_with(|| numbering.epoch(id));
        self.born = Some((id, epoch));
        epoch
    }
}
