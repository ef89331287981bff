//! The labels of one state and what its rewrites mean for them, handed to each snapshot without copying a table.
//!
//! Owns: who has the labels at present. Does not own: what they are (`origins`), what becomes of rewrites (`overlay`).
//!
//! A freeze gives the labels away; the first change after it takes a copy back, so that the pause does not pay for
//! it, and does then what the freeze asks for.

use std::ops::Deref;
use std::sync::Arc;

use lowtide_format::CheckpointId;

use crate::epochs::Epoch;
use crate::origins::{Origins, Part};
use crate::overlay::Rewrites;
use crate::piece::Accounts;
use crate::prefetch::{prefetch, prefetch_shared};
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

/// Labels that a snapshot sees, and nobody changes. Their counts may be behind.
#[derive(Debug)]
pub(crate) struct SharedOrigins(Box<Origins>);

impl Default for SharedOrigins {
    fn default() -> Self {
        Self(Box::new(Origins::NONE))
    }
}

impl Deref for SharedOrigins {
    type Target = Origins;

    fn deref(&self) -> &Origins {
        &self.0
    }
}

/// The labels of one state.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// In a box, so that a freeze moves a pointer.
    own: Option<Box<Origins>>,
    /// While nothing has changed since a freeze, the labels are here and not in `own`.
    shared: Option<Arc<SharedOrigins>>,
    cuts: Vec<Cut>,
    rewrites: Rewrites,
}

impl Ledger {
    pub(crate) fn new(origins: Origins, rewrites: Rewrites) -> Self {
        Self { own: Some(Box::new(origins)), shared: None, cuts: Vec::new(), rewrites }
    }

    /// Asks for the labels where a freeze looks at them.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.own.iter().for_each(|own| prefetch(&**own));
        self.shared.iter().for_each(prefetch_shared);
    }

    /// The labels, to read.
    #[inline]
    pub(crate) fn view(&self) -> &Origins {
        static NONE: Origins = Origins::NONE;
        self.own.as_deref().or_else(|| self.shared.as_ref().map(|shared| &***shared)).unwrap_or(&NONE)
    }

    pub(crate) fn rewrites(&self) -> &Rewrites {
        &self.rewrites
    }

    /// The labels and the rewrites, to change.
    #[inline]
    pub(crate) fn open(&mut self) -> (&mut Origins, &mut Rewrites) {
        let Self { own, shared, cuts, rewrites } = self;
        let own = match own {
            Some(own) => own,
            None => own.insert(Self::take_back(shared, cuts, rewrites)),
        };
        (own, rewrites)
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
    fn take_back(
        shared: &mut Option<Arc<SharedOrigins>>,
        cuts: &mut Vec<Cut>,
        rewrites: &Rewrites,
    ) -> Box<Origins> {
        let shared = shared.take().unwrap_or_default();
        let mut own = Arc::try_unwrap(shared).map_or_else(|shared| shared.0.clone(), |shared| shared.0);
        for Cut { id, after } in cuts.drain(..) {
            own.freeze(id, after, |label| rewrites.pins(label));
        }
        own
    }

    /// Gives the labels to a snapshot. O(1), but for a freeze after many without any change.
    #[inline]
    pub(crate) fn freeze(&mut self, cut: Option<Cut>) -> Arc<SharedOrigins> {
        if self.cuts.len() >= CUTS_MAX {
            self.open();
        }
        let own = self.own.take().map(|own| Arc::new(SharedOrigins(own)));
        let shared = own.or_else(|| self.shared.take()).unwrap_or_default();
        self.shared = Some(Arc::clone(&shared));
        if let Some(cut) = cut {
            self.cuts.push(cut);
        }
        shared
    }
}
