//! A state whose types its users know: a token names them, and each access checks that it is right.
//!
//! Owns: the check; it holds unsafe code because [`Any`](std::any::Any) asks for a type by a call that cannot be inlined,
//! and that everything after it waits for. Does not own: the state's entries (`map`).
//!
//! # Invariants
//!
//! - T1. `types` is the type that `state` was made with. Nothing but [`ErasedState::new`] sets either.

#![expect(
    unsafe_code,
    reason = "a look-up through a token takes 76 instead of 88 instructions, see papers/state-map.md"
)]

use std::any::TypeId;
use std::ops::{Deref, DerefMut};

use crate::map::{AnyState, StateMap};

/// A [`StateMap`] of some types.
pub(crate) struct ErasedState {
    types: TypeId,
    state: Box<dyn AnyState>,
}

impl ErasedState {
    /// The map, its types forgotten.
    pub(crate) fn new<S: AnyState>(map: S) -> Self {
        Self { types: TypeId::of::<S>(), state: Box::new(map) }
    }

    /// The state as one of these types; `None` if its types are others.
    #[inline]
    pub(crate) fn of_types<K: 'static, N: 'static, V: 'static>(&self) -> Option<&StateMap<K, N, V>> {
        if self.types != TypeId::of::<StateMap<K, N, V>>() {
            return None;
        }
        // SAFETY: the value in the box is a map of these types (T1), and is borrowed like the box.
        Some(unsafe { &*(&raw const *self.state).cast() })
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn of_types_mut<K: 'static, N: 'static, V: 'static>(
        &mut self,
    ) -> Option<&mut StateMap<K, N, V>> {
        if self.types != TypeId::of::<StateMap<K, N, V>>() {
            return None;
        }
        // SAFETY: as above, and the box is borrowed to change.
        Some(unsafe { &mut *(&raw mut *self.state).cast() })
    }
}

impl Deref for ErasedState {
    type Target = dyn AnyState;

    fn deref(&self) -> &Self::Target {
        &*self.state
    }
}

impl DerefMut for ErasedState {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.state
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lowtide_format::{AutoCodec, KeyGroupCount};

    use super::*;
    use crate::codecs::Typed;
    use crate::map::Layout;

    #[test]
    fn a_state_is_of_its_own_types_only() {
        let typed = Typed::new(AutoCodec);
        let descriptor = Arc::new(typed.descriptor::<u64, (), String>("names"));
        let count = KeyGroupCount::new(4).unwrap();
        let layout = Layout { range: count.all(), count };
        let map = StateMap::<u64, (), String>::new(descriptor, Arc::new(typed), layout);
        let mut state = ErasedState::new(map);
        assert!(state.of_types::<u64, (), Vec<u8>>().is_none(), "T1: other types are not its own");
        assert!(state.of_types_mut::<u32, (), String>().is_none());
        assert_eq!(state.of_types::<u64, (), String>().unwrap().descriptor().name, "names");
        assert_eq!(state.of_types_mut::<u64, (), String>().unwrap().descriptor().name, "names");
        assert_eq!(state.descriptor().name, "names");
    }
}
