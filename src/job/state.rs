//! Typed access to the named states of a job, over all of its subtasks.
//!
//! Owns: handles, and the way from a key to the subtask that keeps it. Does not own: the entries (the backend).

use std::sync::Arc;

use lowtide_format::{Key, Lookup, Namespace, Value};

use super::Subtask;
use super::routing::Routing;
use crate::backend::{Backend, EntryRef};
use crate::error::{Error, Result};
use lowtide_heap::HeapBackend;

/// Handle of a value state: one value per key and namespace, with one token for each subtask.
///
/// Got from [`Job::value_state`](super::Job::value_state), of use with that job only. Cloning is cheap.
pub struct ValueState<K: Key, V: Value, N: Namespace = (), B: Backend = HeapBackend> {
    tokens: Arc<[B::State<K, N, V>]>,
}

impl<K: Key, V: Value, N: Namespace, B: Backend> Clone for ValueState<K, V, N, B> {
    fn clone(&self) -> Self {
        Self { tokens: Arc::clone(&self.tokens) }
    }
}

impl<K: Key, V: Value, N: Namespace, B: Backend> ValueState<K, V, N, B> {
    pub(super) fn register(subtasks: &mut [Subtask<B>], name: &str) -> Result<Self> {
        let tokens: Result<Vec<_>> =
            subtasks.iter_mut().map(|subtask| subtask.backend.value_state::<K, N, V>(name)).collect();
        Ok(Self { tokens: tokens?.into() })
    }

    /// The token of one subtask's backend; `None` beyond the job's subtasks.
    #[must_use]
    pub fn of_subtask(&self, subtask: u32) -> Option<B::State<K, N, V>> {
        self.tokens.get(usize::try_from(subtask).ok()?).copied()
    }
}

/// Read access to one state of a job.
pub struct StateRef<'j, K: Key, V: Value, N: Namespace = (), B: Backend = HeapBackend> {
    pub(super) subtasks: &'j [Subtask<B>],
    pub(super) routing: &'j Routing,
    pub(super) handle: &'j ValueState<K, V, N, B>,
}

/// Read and write access to one state of a job.
pub struct StateMut<'j, K: Key, V: Value, N: Namespace = (), B: Backend = HeapBackend> {
    pub(super) subtasks: &'j mut [Subtask<B>],
    pub(super) routing: &'j Routing,
    pub(super) handle: &'j ValueState<K, V, N, B>,
}

/// Access to one subtask's backend, and its token of the state.
type Place<A, B, K, N, V> = (A, <B as Backend>::State<K, N, V>);

fn foreign() -> Error {
    Error::invalid_argument("the state handle belongs to another job; ask this job for its own")
}

impl<'j, K: Key, V: Value, N: Namespace, B: Backend> StateRef<'j, K, V, N, B> {
    fn token(&self, subtask: u32) -> Result<Place<&'j B, B, K, N, V>> {
        let place = usize::try_from(subtask).map_err(|_too_large| foreign())?;
        let token = self.handle.of_subtask(subtask).ok_or_else(foreign)?;
        let subtask = self.subtasks.get(place).ok_or_else(foreign)?;
        Ok((&subtask.backend, token))
    }

    /// The value of a key in a namespace.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for a handle of another job; on backends that read files also theirs.
    pub fn get_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> Result<Option<B::Ref<'j, V>>> {
        let (backend, token) = self.token(self.routing.subtask_of::<K, Q>(key))?;
        backend.get(token, namespace, key)
    }

    /// The entries of all subtasks and namespaces, in no particular order.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn iter(
        &self,
    ) -> Result<impl Iterator<Item = Result<EntryRef<'j, B, K, N, V>>> + use<'j, K, V, N, B>> {
        self.iter_some(None)
    }

    /// The entries of one namespace, of all subtasks, in no particular order.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn iter_in(
        &self,
        namespace: &N,
    ) -> Result<impl Iterator<Item = Result<EntryRef<'j, B, K, N, V>>> + use<'j, K, V, N, B>> {
        self.iter_some(Some(namespace))
    }

    fn iter_some(
        &self,
        namespace: Option<&N>,
    ) -> Result<impl Iterator<Item = Result<EntryRef<'j, B, K, N, V>>> + use<'j, K, V, N, B>> {
        let iterators: Result<Vec<_>> = (0..self.routing.subtasks())
            .map(|subtask| {
                let (backend, token) = self.token(subtask)?;
                backend.iter(token, namespace.cloned())
            })
            .collect();
        Ok(iterators?.into_iter().flatten())
    }

    /// How many entries all subtasks have, in all namespaces. O(subtasks) on the heap backend.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn len(&self) -> Result<u64> {
        (0..self.routing.subtasks()).try_fold(0_u64, |sum, subtask| {
            let (backend, token) = self.token(subtask)?;
            Ok(sum.saturating_add(backend.len(token)?))
        })
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl<'j, K: Key, V: Value, B: Backend> StateRef<'j, K, V, (), B> {
    /// The value of a key, in a state without namespaces.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn get<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<Option<B::Ref<'j, V>>> {
        self.get_in(&(), key)
    }
}

impl<K: Key, V: Value, N: Namespace, B: Backend> StateMut<'_, K, V, N, B> {
    fn token(&mut self, subtask: u32) -> Result<Place<&mut B, B, K, N, V>> {
        let place = usize::try_from(subtask).map_err(|_too_large| foreign())?;
        let token = self.handle.of_subtask(subtask).ok_or_else(foreign)?;
        let subtask = self.subtasks.get_mut(place).ok_or_else(foreign)?;
        Ok((&mut subtask.backend, token))
    }

    /// The value of a key in a namespace.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn get_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> Result<Option<B::Ref<'_, V>>> {
        StateRef { subtasks: self.subtasks, routing: self.routing, handle: self.handle }
            .get_in(namespace, key)
    }

    /// Sets the value of a key in a namespace; says whether the key was absent.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn put_in(&mut self, namespace: N, key: K, value: V) -> Result<bool> {
        let subtask = self.routing.subtask_of::<K, K>(&key);
        let (backend, token) = self.token(subtask)?;
        backend.put(token, namespace, key, value)
    }

    /// Sets the value of a key in a namespace without asking whether it was there, which RocksDB would have to read.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn set_in(&mut self, namespace: N, key: K, value: V) -> Result<()> {
        let subtask = self.routing.subtask_of::<K, K>(&key);
        let (backend, token) = self.token(subtask)?;
        backend.set(token, namespace, key, value)
    }

    /// Changes the value of a key in place; false, and nothing happens, if the key is absent.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn update_in<Q: Lookup<K> + ?Sized>(
        &mut self,
        namespace: &N,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> Result<bool> {
        let subtask = self.routing.subtask_of::<K, Q>(key);
        let (backend, token) = self.token(subtask)?;
        backend.update(token, namespace, key, change)
    }

    /// Removes a key from a namespace and returns the value it had.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn remove_in<Q: Lookup<K> + ?Sized>(&mut self, namespace: &N, key: &Q) -> Result<Option<V>> {
        let subtask = self.routing.subtask_of::<K, Q>(key);
        let (backend, token) = self.token(subtask)?;
        backend.remove(token, namespace, key)
    }

    /// Removes a key from a namespace without asking for the value it had, which RocksDB would have to read.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn discard_in<Q: Lookup<K> + ?Sized>(&mut self, namespace: &N, key: &Q) -> Result<()> {
        let subtask = self.routing.subtask_of::<K, Q>(key);
        let (backend, token) = self.token(subtask)?;
        backend.discard(token, namespace, key)
    }

    /// The place of a key in a namespace, to be changed or filled.
    #[must_use = "an entry does nothing by itself"]
    pub fn entry_in(&mut self, namespace: N, key: K) -> Entry<'_, K, V, N, B> {
        Entry {
            state: StateMut { subtasks: self.subtasks, routing: self.routing, handle: self.handle },
            namespace,
            key,
            modified: Ok(false),
        }
    }

    /// Removes the entries for which `keep` says no, on all subtasks; returns how many.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &N, &V) -> bool) -> Result<u64> {
        let mut removed = 0_u64;
        for subtask in 0..self.routing.subtasks() {
            let (backend, token) = self.token(subtask)?;
            removed = removed.saturating_add(backend.retain(token, &mut keep)?);
        }
        Ok(removed)
    }

    /// Empties the state: one event per subtask, whatever the number of entries.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn clear(&mut self) -> Result<()> {
        self.clear_some(None)
    }

    /// Empties one namespace of the state, as one event per subtask.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn clear_in(&mut self, namespace: &N) -> Result<()> {
        self.clear_some(Some(namespace))
    }

    fn clear_some(&mut self, namespace: Option<&N>) -> Result<()> {
        for subtask in 0..self.routing.subtasks() {
            let (backend, token) = self.token(subtask)?;
            backend.clear(token, namespace)?;
        }
        Ok(())
    }
}

impl<K: Key, V: Value, B: Backend> StateMut<'_, K, V, (), B> {
    /// The value of a key, in a state without namespaces.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn get<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<Option<B::Ref<'_, V>>> {
        self.get_in(&(), key)
    }

    /// Sets the value of a key; says whether the key was absent.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn put(&mut self, key: K, value: V) -> Result<bool> {
        self.put_in((), key, value)
    }

    /// Sets the value of a key; see [`StateMut::set_in`].
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn set(&mut self, key: K, value: V) -> Result<()> {
        self.set_in((), key, value)
    }

    /// Removes a key; see [`StateMut::discard_in`].
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn discard<Q: Lookup<K> + ?Sized>(&mut self, key: &Q) -> Result<()> {
        self.discard_in(&(), key)
    }

    /// Changes the value of a key in place; false, and nothing happens, if the key is absent.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn update<Q: Lookup<K> + ?Sized>(&mut self, key: &Q, change: impl FnOnce(&mut V)) -> Result<bool> {
        self.update_in(&(), key, change)
    }

    /// Removes a key and returns the value it had.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn remove<Q: Lookup<K> + ?Sized>(&mut self, key: &Q) -> Result<Option<V>> {
        self.remove_in(&(), key)
    }

    /// The place of a key, to be changed or filled.
    #[must_use = "an entry does nothing by itself"]
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V, (), B> {
        self.entry_in((), key)
    }
}

/// The place of one key: change the value that is there, or put one.
///
/// No reference to the value escapes, so that no change goes unmarked.
pub struct Entry<'s, K: Key, V: Value, N: Namespace = (), B: Backend = HeapBackend> {
    state: StateMut<'s, K, V, N, B>,
    namespace: N,
    key: K,
    modified: Result<bool>,
}

impl<K: Key, V: Value, N: Namespace, B: Backend> Entry<'_, K, V, N, B> {
    /// Changes the value if the key is present.
    #[must_use = "finish the entry with or_insert, or_insert_with or done"]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if self.modified.is_ok() {
            self.modified = self.state.update_in(&self.namespace, &self.key, change);
        }
        self
    }

    /// Puts `value` if the key is absent; says whether it was.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn or_insert(self, value: V) -> Result<bool> {
        self.or_insert_with(|| value)
    }

    /// Puts what `value` makes if the key is absent; says whether it was.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn or_insert_with(mut self, value: impl FnOnce() -> V) -> Result<bool> {
        if self.modified? || self.state.get_in(&self.namespace, &self.key)?.is_some() {
            return Ok(false);
        }
        self.state.put_in(self.namespace, self.key, value())
    }

    /// Ends an entry that only changes; says whether the key was present.
    ///
    /// # Errors
    ///
    /// As [`StateRef::get_in`].
    pub fn done(self) -> Result<bool> {
        self.modified
    }
}
