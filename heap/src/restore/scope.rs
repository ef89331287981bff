//! The clears of the elements that are restored, and what they cover of a run.

use std::sync::Arc;

use hashbrown::HashMap;
use lowtide_format::{CheckpointId, KeyGroup, KeyGroupSet};

use crate::chain::{ClearFact, StateIndex};

/// A clear, as far as the state and namespace it is filed under do not tell.
#[derive(Clone, Debug)]
struct DatedClear {
    checkpoint: CheckpointId,
    key_groups: KeyGroupSet,
}

impl DatedClear {
    fn covers(&self, at: (KeyGroup, CheckpointId)) -> bool {
        let (key_group, checkpoint) = at;
        self.checkpoint > checkpoint && self.key_groups.contains(key_group)
    }
}

/// Clears of namespaces of one state, by the encoded namespace.
type OfNamespaces = HashMap<Arc<[u8]>, Vec<DatedClear>>;

/// The clears of the elements so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ClearIndex {
    all: HashMap<StateIndex, Vec<DatedClear>>,
    of_namespaces: HashMap<StateIndex, OfNamespaces>,
}

impl ClearIndex {
    pub(super) fn add(&mut self, checkpoint: CheckpointId, fact: &ClearFact) {
        let list = match &fact.namespace {
            None => self.all.entry(fact.state).or_default(),
            Some(namespace) => {
                let of_state = self.of_namespaces.entry(fact.state).or_default();
                of_state.entry(Arc::clone(namespace)).or_default()
            }
        };
        list.push(DatedClear { checkpoint, key_groups: fact.key_groups.clone() });
    }

    /// What clears newer than an element's checkpoint cover of its run of a state in a key group.
    pub(super) fn scope(&self, state: StateIndex, at: (KeyGroup, CheckpointId)) -> RunScope<'_> {
        let all = self.all.get(&state).into_iter().flatten().any(|clear| clear.covers(at));
        RunScope { all, of_namespaces: self.of_namespaces.get(&state), at }
    }
}

/// What newer clears cover of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunScope<'a> {
    /// Everything.
    pub(super) all: bool,
    of_namespaces: Option<&'a OfNamespaces>,
    at: (KeyGroup, CheckpointId),
}

impl RunScope<'_> {
    /// Whether a newer clear covers a record of an encoded namespace.
    #[inline]
    pub(crate) fn covers(&self, namespace: &[u8]) -> bool {
        self.all || self.of_namespaces.is_some_and(|clears| self.is_cleared(clears, namespace))
    }

    fn is_cleared(&self, clears: &OfNamespaces, namespace: &[u8]) -> bool {
        clears.get(namespace).into_iter().flatten().any(|clear| clear.covers(self.at))
    }
}
