//! A typed view of one named state: what the owner of the data sees.
//!
//! Owns: nothing; translates keys and namespaces into places. Does not own: entries and marks (`map`).

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use lowtide_format::{Key, KeyGroupRange, Lookup, Namespace, Value, key_group};

use crate::codecs::VOID_HASH;
use crate::error::HeapError;
use crate::map::{BATCH, Place, StateMap};
use crate::piece::Slot;
use crate::turn::Turn;

/// Types without values: neither owned nor shared.
type Types<K, N, V> = fn() -> (K, N, V);

/// Names a value state of one backend; copy it freely. Using it with another backend is an error.
pub struct ValueState<K, N, V> {
    pub(crate) index: u16,
    pub(crate) backend: u32,
    types: PhantomData<Types<K, N, V>>,
}

impl<K, N, V> ValueState<K, N, V> {
    pub(crate) fn new(index: u16, backend: u32) -> Self {
        Self { index, backend, types: PhantomData }
    }
}

impl<K, N, V> Clone for ValueState<K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for ValueState<K, N, V> {}

impl<K, N, V> fmt::Debug for ValueState<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueState({})", self.index)
    }
}

/// A value state, to read. Reads take no lock and touch nothing but the entry, as in a plain hash map.
pub struct StateRef<'a, K, N, V> {
    map: &'a StateMap<K, N, V>,
}

/// A value state, to read and to change.
///
/// Values are changed by its methods only, which mark the entry first, so no change can be missing from the next
/// delta. A value must not be changed behind a shared reference (by a `Cell` or a lock inside it): no snapshot
/// could see that.
pub struct StateMut<'a, K, N, V> {
    map: &'a mut StateMap<K, N, V>,
    turn: &'a Turn,
}

/// An entry of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a, K, N, V> {
    /// The key.
    pub key: &'a K,
    /// The namespace.
    pub namespace: &'a N,
    /// The value.
    pub value: &'a V,
}

fn entry_of<K, N, V>(slot: &Slot<K, N, V>) -> EntryRef<'_, K, N, V> {
    EntryRef { key: &slot.key, namespace: &slot.namespace, value: &slot.value }
}

/// The hash of a namespace; that of the void one is known.
#[inline]
pub(crate) fn namespace_hash<N: Namespace>(namespace: &N) -> u64 {
    if TypeId::of::<N>() == TypeId::of::<()>() { VOID_HASH } else { namespace.key_hash() }
}

#[inline(always)]
fn find_in<'a, K: Key, N: Namespace, V: Value, Q: Lookup<K> + ?Sized>(
    map: &'a StateMap<K, N, V>,
    key: &Q,
    namespace: &N,
) -> Option<&'a V> {
    let place = Place::new(key.lookup_hash(), namespace_hash(namespace));
    map.find(place, |slot| key.equals(&slot.key) && slot.namespace == *namespace).map(|slot| &slot.value)
}

macro_rules! reading {
    () => {
        /// The value of a key in a namespace. O(1).
        #[inline]
        pub fn get_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> Option<&V> {
            find_in(&self.map, key, namespace)
        }

        /// Calls `visit` with the value of each key in a namespace, in order, and the key's number among `keys`.
        ///
        /// Faster than one call per key where the state is larger than the caches: the keys' waits for memory
        /// overlap. O(keys).
        pub fn get_many_in<Q: Lookup<K>>(
            &self,
            namespace: &N,
            keys: &[Q],
            mut visit: impl FnMut(usize, Option<&V>),
        ) {
            let namespace_hash = namespace_hash(namespace);
            let place_of = |key: &Q| Place::new(key.lookup_hash(), namespace_hash);
            let is_it = |key: &Q, slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
            let mut at = 0;
            for keys in keys.chunks(BATCH) {
                self.map.find_batch(keys, place_of, is_it, |value| {
                    visit(at, value);
                    at += 1;
                });
            }
        }

        /// Whether a key has a value in a namespace. O(1).
        #[inline]
        pub fn contains_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> bool {
            self.get_in(namespace, key).is_some()
        }

        /// All entries, by key group, in no order within one.
        pub fn iter(&self) -> impl Iterator<Item = EntryRef<'_, K, N, V>> {
            self.map.iter().map(entry_of)
        }

        /// The entries of one namespace. O(entries of the state).
        pub fn iter_in<'n>(&'n self, namespace: &'n N) -> impl Iterator<Item = (&'n K, &'n V)> {
            let of_it = self.map.iter().filter(move |slot| slot.namespace == *namespace);
            of_it.map(|slot| (&slot.key, &slot.value))
        }

        /// Number of entries in all namespaces. O(1).
        pub fn len(&self) -> usize {
            self.map.len()
        }

        /// Whether there is no entry. O(1).
        pub fn is_empty(&self) -> bool {
            self.map.len() == 0
        }
    };
}

macro_rules! reading_void {
    () => {
        /// The value of a key. O(1).
        #[inline]
        pub fn get<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
            self.get_in(&(), key)
        }

        /// Calls `visit` with the value of each key, in order. See [`get_many_in`](Self::get_many_in).
        pub fn get_many<Q: Lookup<K>>(&self, keys: &[Q], visit: impl FnMut(usize, Option<&V>)) {
            self.get_many_in(&(), keys, visit);
        }

        /// Whether a key has a value. O(1).
        #[inline]
        pub fn contains<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> bool {
            self.contains_in(&(), key)
        }
    };
}

impl<'a, K: Key, N: Namespace, V: Value> StateRef<'a, K, N, V> {
    pub(crate) fn new(map: &'a StateMap<K, N, V>) -> Self {
        Self { map }
    }

    reading!();

    /// The value of a key in a namespace, for as long as the backend is borrowed. O(1).
    #[inline]
    pub fn find_in<Q: Lookup<K> + ?Sized>(self, namespace: &N, key: &Q) -> Option<&'a V> {
        find_in(self.map, key, namespace)
    }

    /// All entries, for as long as the backend is borrowed.
    pub fn into_entries(self) -> impl Iterator<Item = EntryRef<'a, K, N, V>> + use<'a, K, N, V> {
        self.map.iter().map(entry_of)
    }
}

impl<K: Key, V: Value> StateRef<'_, K, (), V> {
    reading_void!();
}

impl<'a, K: Key, N: Namespace, V: Value> StateMut<'a, K, N, V> {
    pub(crate) fn new(map: &'a mut StateMap<K, N, V>, turn: &'a Turn) -> Self {
        Self { map, turn }
    }

    reading!();

    #[inline]
    fn place_of(&self, key_hash: u64, namespace: &N) -> Result<Place, HeapError> {
        let place = Place::new(key_hash, namespace_hash(namespace));
        if self.map.holds(place) { Ok(place) } else { Err(self.foreign(key_hash)) }
    }

    #[cold]
    fn foreign(&self, key_hash: u64) -> HeapError {
        let layout = self.map.layout();
        let range: KeyGroupRange = layout.range;
        HeapError::ForeignKey { key_group: key_group(key_hash, layout.count), range }
    }

    /// Sets the value of a key in a namespace; tells whether the key was absent. O(1), a bounded number of entries
    /// moving now and then; a value that an open snapshot wants moves to it.
    ///
    /// # Errors
    ///
    /// [`HeapError::ForeignKey`] if this backend does not hold the key's group; nothing is changed then.
    #[inline(always)]
    pub fn put_in(&mut self, namespace: N, key: K, value: V) -> Result<bool, HeapError> {
        let place = Place::new(key.key_hash(), namespace_hash(&namespace));
        let was_absent = self.map.put(place, Slot { key, namespace, value }, self.turn);
        was_absent.ok_or_else(|| self.foreign(place.key_hash))
    }

    /// Sets the value of a key in a namespace and returns the one before, cloned if an open snapshot wants it.
    ///
    /// # Errors
    ///
    /// As [`put_in`](Self::put_in).
    pub fn replace_in(&mut self, namespace: N, key: K, value: V) -> Result<Option<V>, HeapError> {
        let place = self.place_of(key.key_hash(), &namespace)?;
        Ok(self.map.replace(place, Slot { key, namespace, value }, self.turn))
    }

    /// Changes a value in place; false if the key is absent. The value is cloned first if an open snapshot wants it.
    ///
    /// If `change` panics, the value is as `change` left it and counts as changed.
    #[inline]
    pub fn update_in<Q: Lookup<K> + ?Sized>(
        &mut self,
        namespace: &N,
        key: &Q,
        change: impl FnOnce(&mut V),
    ) -> bool {
        let place = Place::new(key.lookup_hash(), namespace_hash(namespace));
        let is_it = |slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
        self.map.update(place, is_it, self.turn, change).is_some()
    }

    /// Changes the value of each of `keys` that is there, in order; returns how many are. `change` gets the key's
    /// number among `keys`; a key that comes twice is changed twice.
    ///
    /// As [`update_in`](Self::update_in) for each, faster where the state is larger than the caches: the keys' waits
    /// for memory overlap. O(keys).
    pub fn update_many_in<Q: Lookup<K>>(
        &mut self,
        namespace: &N,
        keys: &[Q],
        mut change: impl FnMut(usize, &mut V),
    ) -> usize {
        let namespace_hash = namespace_hash(namespace);
        let place_of = |key: &Q| Place::new(key.lookup_hash(), namespace_hash);
        let is_it = |key: &Q, slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
        let mut changed = 0;
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let change = |at: usize, value: &mut V| change(batch * BATCH + at, value);
            changed += self.map.update_batch(keys, place_of, is_it, self.turn, change);
        }
        changed
    }

    /// Removes a key and returns its value, cloned if an open snapshot wants it.
    pub fn remove_in<Q: Lookup<K> + ?Sized>(&mut self, namespace: &N, key: &Q) -> Option<V> {
        let place = Place::new(key.lookup_hash(), namespace_hash(namespace));
        let is_it = |slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
        self.map.remove(place, is_it, self.turn)
    }

    /// Removes a key; tells whether it was there. Never clones a value.
    pub fn delete_in<Q: Lookup<K> + ?Sized>(&mut self, namespace: &N, key: &Q) -> bool {
        let place = Place::new(key.lookup_hash(), namespace_hash(namespace));
        let is_it = |slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
        self.map.delete(place, is_it, self.turn)
    }

    /// The place of a key in a namespace, to fill or change.
    ///
    /// # Errors
    ///
    /// As [`put_in`](Self::put_in).
    #[inline]
    pub fn entry_in(&mut self, namespace: N, key: K) -> Result<Entry<'_, K, N, V>, HeapError> {
        let place = self.place_of(key.key_hash(), &namespace)?;
        Ok(Entry { map: self.map, turn: self.turn, place, key, namespace })
    }

    /// Removes the entries for which `keep` says no; returns how many. O(entries).
    pub fn retain(&mut self, mut keep: impl FnMut(EntryRef<'_, K, N, V>) -> bool) -> u64 {
        self.map.retain(self.turn, |slot| keep(entry_of(slot)))
    }

    /// Removes everything. One record, O(pieces): the entries are dropped in steps by later insertions.
    pub fn clear(&mut self) {
        self.map.clear(self.turn);
    }

    /// Removes the entries of one namespace. One record, O(entries of the state).
    pub fn clear_namespace(&mut self, namespace: &N) {
        self.map.clear_namespace(namespace, self.turn);
    }
}

impl<K: Key, V: Value> StateMut<'_, K, (), V> {
    reading_void!();

    /// Sets the value of a key; tells whether the key was absent. See [`put_in`](Self::put_in).
    ///
    /// # Errors
    ///
    /// [`HeapError::ForeignKey`] if this backend does not hold the key's group; nothing is changed then.
    #[inline]
    pub fn put(&mut self, key: K, value: V) -> Result<bool, HeapError> {
        self.put_in((), key, value)
    }

    /// Sets the value of a key and returns the one before. See [`replace_in`](Self::replace_in).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn replace(&mut self, key: K, value: V) -> Result<Option<V>, HeapError> {
        self.replace_in((), key, value)
    }

    /// Changes a value in place; false if the key is absent. See [`update_in`](Self::update_in).
    #[inline]
    pub fn update<Q: Lookup<K> + ?Sized>(&mut self, key: &Q, change: impl FnOnce(&mut V)) -> bool {
        self.update_in(&(), key, change)
    }

    /// Changes the value of each of `keys` that is there. See [`update_many_in`](Self::update_many_in).
    pub fn update_many<Q: Lookup<K>>(&mut self, keys: &[Q], change: impl FnMut(usize, &mut V)) -> usize {
        self.update_many_in(&(), keys, change)
    }

    /// Removes a key and returns its value. See [`remove_in`](Self::remove_in).
    pub fn remove<Q: Lookup<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        self.remove_in(&(), key)
    }

    /// Removes a key; tells whether it was there. See [`delete_in`](Self::delete_in).
    pub fn delete<Q: Lookup<K> + ?Sized>(&mut self, key: &Q) -> bool {
        self.delete_in(&(), key)
    }

    /// The place of a key, to fill or change. See [`entry_in`](Self::entry_in).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    #[inline]
    pub fn entry(&mut self, key: K) -> Result<Entry<'_, K, (), V>, HeapError> {
        self.entry_in((), key)
    }
}

/// The place of a key in a state, filled or not.
#[must_use = "an entry does nothing until it is filled or changed"]
pub struct Entry<'a, K, N, V> {
    map: &'a mut StateMap<K, N, V>,
    turn: &'a Turn,
    place: Place,
    key: K,
    namespace: N,
}

impl<K: Key, N: Namespace, V: Value> Entry<'_, K, N, V> {
    /// The value, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<&V> {
        let is_it = |slot: &Slot<K, N, V>| slot.key == self.key && slot.namespace == self.namespace;
        self.map.find(self.place, is_it).map(|slot| &slot.value)
    }

    /// Changes the value in place, if there is one.
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Self {
        let Self { map, turn, place, key, namespace } = self;
        map.update(place, |slot| slot.key == key && slot.namespace == namespace, turn, change);
        Self { map, turn, place, key, namespace }
    }

    /// Fills the place if it is empty; tells whether it was.
    pub fn or_insert(self, value: V) -> bool {
        self.or_insert_with(|| value)
    }

    /// Fills the place with the default value if it is empty; tells whether it was.
    pub fn or_default(self) -> bool
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Fills the place if it is empty; tells whether it was.
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> bool {
        let absent = self.get().is_none();
        if absent {
            let Self { map, turn, place, key, namespace } = self;
            map.insert(place, Slot { key, namespace, value: value() }, turn);
        }
        absent
    }

    /// Fills the place with `value` if it is empty, and changes what is there in place otherwise; tells whether it
    /// was empty.
    pub fn insert_or_update(self, value: impl FnOnce() -> V, change: impl FnOnce(&mut V)) -> bool {
        let Self { map, turn, place, key, namespace } = self;
        let is_it = |slot: &Slot<K, N, V>| slot.key == key && slot.namespace == namespace;
        let absent = map.update(place, is_it, turn, change).is_none();
        if absent {
            map.insert(place, Slot { key, namespace, value: value() }, turn);
        }
        absent
    }
}
