//! How a backend is filled from a chain, and begins its life with the restored checkpoint as its base.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lowtide_format::{CheckpointId, StateDescriptor};

use super::{HeapBackend, check_codecs};
use crate::chain::{Chain, Element, StateIndex};
use crate::codecs::{Raw, Untyped};
use crate::epochs::Epoch;
use crate::erased::ErasedState;
use crate::error::HeapError;
use crate::filling::AnyFilling;
use crate::lineage::Lineage;
use crate::map::StateMap;
use crate::origins::{FixedHome, Label};

impl HeapBackend {
    /// The index of a restored state, which stays bytes until somebody opens it with its types.
    pub(crate) fn untyped_state(&mut self, descriptor: &StateDescriptor) -> Result<u16, HeapError> {
        let known = self.states.iter().position(|state| state.descriptor().name == descriptor.name);
        if let Some(index) = known {
            let state = self.states.get(index).map(|state| Arc::clone(state.descriptor()));
            let Some(state) = state else { return Err(HeapError::ForeignState) };
            check_codecs(descriptor, &state)?;
            return Ok(index as u16);
        }
        let descriptor = Arc::new(descriptor.clone());
        self.add_state(ErasedState::new(StateMap::new(descriptor, Arc::new(Untyped), self.layout)))
    }

    /// Numbers an epoch of before this life.
    pub(crate) fn number_epoch(&self, id: CheckpointId) -> Epoch {
        let epoch = self.turn.epochs.next().unwrap_or(Epoch(u32::MAX));
        self.turn.epochs.push(id);
        epoch
    }

    /// What the entries of a state in a shard are collected in; `pieces` counts those of the state.
    pub(crate) fn filling(
        &self,
        state: StateIndex,
        shard: usize,
        pieces: &Arc<AtomicUsize>,
    ) -> Option<Box<dyn AnyFilling>> {
        let state = self.states.get(usize::from(state.0))?;
        Some(state.filling(shard, Arc::clone(pieces), &self.turn))
    }

    /// Takes over what was collected.
    pub(crate) fn adopt(&mut self, state: StateIndex, filling: Box<dyn AnyFilling>) {
        if let Some(state) = self.states.get_mut(usize::from(state.0)) {
            state.adopt(filling, &self.turn);
        }
    }

    /// The index of a state of that name that nobody has opened with its types yet.
    pub(crate) fn index_of_untyped(&self, name: &str) -> Option<StateIndex> {
        let index = self.states.iter().position(|state| state.descriptor().name == name)?;
        let untyped = self.states.get(index)?.of_types::<Raw, Raw, Raw>().is_some();
        untyped.then_some(StateIndex(index as u16))
    }

    /// The label of restored entries of one version in one segment.
    pub(crate) fn fixed_label(
        &mut self,
        state: StateIndex,
        version: Epoch,
        home: FixedHome,
        newest: CheckpointId,
    ) -> Label {
        let origins = self.states.get_mut(usize::from(state.0)).map(|state| state.origins_mut());
        origins.and_then(|origins| origins.fixed(version, home, newest)).unwrap_or(Label::NEW)
    }

    /// Everything is restored: the chain's checkpoint is the base of the next one, and a new interval begins.
    pub(crate) fn begin_life(&mut self, chain: Chain, mut completed: Vec<CheckpointId>) {
        let segments = chain.elements().iter().map(|element| element.facts.number.0 + 1).max();
        self.segments.store(segments.unwrap_or(0), Ordering::Relaxed);
        self.newest = Some(chain.id());
        completed.extend(chain.elements().iter().map(Element::id));
        completed.push(chain.id());
        completed.sort_unstable();
        completed.dedup();
        self.completed = Arc::new(completed);
        // Epochs of before this life tell nothing by their order; the base's is the highest of them.
        let root = self.number_epoch(chain.id());
        self.lineage = Lineage::restored(self.lineage.mode(), chain, root);
        self.turn.floor = self.lineage.floor();
        self.lineage.list_boundaries(&mut self.turn.boundaries);
        self.turn.interval = self.turn.epochs.next().unwrap_or(Epoch(u32::MAX));
        // As a freeze does: so that the first write of a piece begins the interval there.
        let _ = self.turn.clock.freeze();
    }
}
