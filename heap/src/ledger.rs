//! The labels of one state and what its rewrites mean for them, handed to each snapshot without copying a table.
//!
//! Owns: who has the labels at present. Does not own: what they are (`origins`), what becomes of rewrites (`overlay`).
//!
//! A freeze gives the labels away; the first change after it takes a copy back, so that the pause does not pay for
//! it, and does then what the freeze asks for.

use std::sync::Arc;

use lowtide_format::CheckpointId;

use crate::epochs::Epoch;
use crate::origins::Origins;
use crate::origins::Part;
use crate::overlay::Rewrites;
use crate::piece::Accounts;
use crate::prefetch::prefetch_shared;
use crate::turn::Turn;

/// So many freezes may pass before what they ask for is done, even if nothing changes.
const CUTS_MAX: usize = 16;

/// A freeze that ended an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) id: CheckpointId,
    /// The epoch of its base.
    pub(crate) after: Option<Epoch>,
}

/// The labels of one state.
#[derive(Debug)]
pub(crate) struct Ledger {
    own: Origins,
    /// While nothing has changed since a freeze, the labels are here, and `own` is empty.
    shared: Option<Arc<Origins>>,
    cuts: Vec<Cut>,
    rewrites: Rewrites,
}

impl Ledger {
    pub(crate) fn new(origins: Origins, rewrites: Rewrites) -> Self {
        Self { own: origins, shared: None, cuts: Vec::new(), rewrites }
    }

    /// Asks for the labels where a freeze looks at them.
    pub(crate) fn prefetch(&self) {
        self.shared.iter().for_each(prefetch_shared);
    }

    /// The labels, to read.
    pub(crate) fn view(&self) -> &Origins {
        self.shared.as_deref().unwrap_or(&self.own)
    }

    pub(crate) fn rewrites(&self) -> &Rewrites {
        &self.rewrites
    }

    /// The labels and the rewrites, to change.
    #[inline]
    pub(crate) fn open(&mut self) -> (&mut Origins, &mut Rewrites) {
        if self.shared.is_some() {
            self.take_back();
        }
        (&mut self.own, &mut self.rewrites)
    }

    /// The rewrites, to change without a look at the labels.
    pub(crate) fn rewrites_mut(&mut self) -> &mut Rewrites {
        &mut self.rewrites
    }

    /// What a change in one part moves.
    #[inline]
    pub(crate) fn accounts<'a>(&'a mut self, turn: &'a Turn, part: Part) -> Accounts<'a> {
        let (origins, rewrites) = self.open();
        Accounts { turn, origins, rewrites, part }
    }

    #[cold]
    fn take_back(&mut self) {
        if let Some(shared) = self.shared.take() {
            self.own = Arc::try_unwrap(shared).unwrap_or_else(|shared| (*shared).clone());
        }
        for Cut { id, after } in std::mem::take(&mut self.cuts) {
            self.own.freeze(id, after, |label| self.rewrites.pins(label));
        }
    }

    /// Gives the labels to a snapshot. O(1), but for a freeze after many without any change.
    pub(crate) fn freeze(&mut self, cut: Option<Cut>) -> Arc<Origins> {
        if self.cuts.len() >= CUTS_MAX {
            self.open();
        }
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => {
                self.own.catch_up();
                Arc::new(std::mem::replace(&mut self.own, Origins::elsewhere()))
            }
        };
        self.shared = Some(Arc::clone(&shared));
        self.cuts.extend(cut);
        shared
    }
}
