//! The clears of one state since the base: each is one record, repeated until a base carries it.
//!
//! Owns: their scopes and intervals. Does not own: removing the entries (`map`).
//!
//! # Why an entry put after a clear is born anew
//!
//! The older records of its key are void, and stay so without a tombstone: the clear stands in the delta of the
//! checkpoint that ends its interval and in every later one until a base carries it, so in the chain of any
//! checkpoint from then on either the clear is listed, or no older element may hold a record of its state. A later
//! removal therefore has to hide only records of elements from the clear on, and none of those holds the key before
//! the interval in which it was put again.
//!
//! # Invariants
//!
//! - H14. At most one clear per scope; a clear of the state leaves no older clear of a namespace.

use std::sync::Arc;

use crate::epochs::Epoch;
use crate::prefetch::prefetch_shared;

/// A clear of the state, or of one of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cleared<N> {
    /// `None` for all namespaces.
    pub(crate) namespace: Option<N>,
    /// The interval of the latest clear of this scope.
    pub(crate) epoch: Epoch,
}

/// The clears since the base. Clones share them until one changes.
#[derive(Clone, Debug)]
pub(crate) struct Clears<N> {
    /// `None` where there are none, so that a freeze, which clones this, mostly touches nothing.
    clears: Option<Arc<Vec<Cleared<N>>>>,
}

impl<N> Clears<N> {
    /// Asks for the list.
    pub(crate) fn prefetch(&self) {
        self.clears.iter().for_each(prefetch_shared);
    }

    fn iter(&self) -> impl Iterator<Item = &Cleared<N>> {
        self.clears.iter().flat_map(|clears| clears.iter())
    }
}

impl<N> Default for Clears<N> {
    fn default() -> Self {
        Self { clears: None }
    }
}

impl<N: Clone + Eq> Clears<N> {
    /// Notes a clear of `namespace`, or of all, in the interval `now`. O(clears since the base).
    pub(crate) fn add(&mut self, namespace: Option<N>, now: Epoch, floor: Epoch) {
        let clears = Arc::make_mut(self.clears.get_or_insert_default());
        clears.retain(|clear| {
            let swallowed = namespace.is_none() || clear.namespace == namespace;
            clear.epoch > floor && !swallowed
        });
        clears.push(Cleared { namespace, epoch: now });
    }

    /// The clears after `base`, one for each scope. A clear of the state has swallowed those before it; one of a namespace
    /// after it is an event of its own.
    pub(crate) fn after(&self, base: Epoch) -> impl Iterator<Item = &Cleared<N>> {
        self.iter().filter(move |clear| clear.epoch > base)
    }

    /// Forgets the clears that every possible base carries. Mostly there are none, and nothing is called.
    #[inline]
    pub(crate) fn forget_through(&mut self, floor: Epoch) {
        if self.clears.is_some() {
            self.forget_some_through(floor);
        }
    }

    #[cold]
    fn forget_some_through(&mut self, floor: Epoch) {
        let Some(clears) = self.clears.as_mut().filter(|clears| clears.iter().any(|it| it.epoch <= floor))
        else {
            return;
        };
        Arc::make_mut(clears).retain(|clear| clear.epoch > floor);
        self.clears = self.clears.take().filter(|clears| !clears.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(clears: &Clears<u32>, base: u32) -> Vec<Option<u32>> {
        clears.after(Epoch(base)).map(|clear| clear.namespace).collect()
    }

    #[test]
    fn a_clear_of_the_state_swallows_those_of_its_namespaces() {
        let mut clears = Clears::default();
        clears.add(Some(1), Epoch(2), Epoch(0));
        clears.add(Some(2), Epoch(3), Epoch(0));
        clears.add(Some(1), Epoch(4), Epoch(0));
        assert_eq!(scopes(&clears, 0), [Some(2), Some(1)], "H14: one clear per scope");
        assert_eq!(scopes(&clears, 3), [Some(1)]);
        clears.add(None, Epoch(5), Epoch(0));
        clears.add(Some(3), Epoch(6), Epoch(0));
        assert_eq!(
            scopes(&clears, 4),
            [None, Some(3)],
            "one record for each scope, and none before a wider one"
        );
        assert_eq!(scopes(&clears, 5), [Some(3)]);
        clears.forget_through(Epoch(5));
        assert_eq!(scopes(&clears, 0), [Some(3)]);
    }

    #[test]
    fn a_frozen_list_of_clears_does_not_change() {
        let mut clears = Clears::default();
        clears.add(Some(1), Epoch(2), Epoch(0));
        let frozen = clears.clone();
        clears.add(None, Epoch(3), Epoch(0));
        assert_eq!(scopes(&frozen, 0), [Some(1)]);
    }
}
