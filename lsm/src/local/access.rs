//! Reading and writing typed entries.
//!
//! Owns: from typed key, namespace and value to RocksDB's bytes and back. Does not own: iteration (`entries`).

use std::cell::Cell;

use lowtide_format::{AutoCodec, Codec, DecodeLimits, Key, KeyGroup, Lookup, Namespace, Value, key_group};
use rocksdb::{DBPinnableSlice, WriteBatch};

use super::backend::{LsmBackend, LsmState, State};
use super::engine::rocks;
use super::entries::LsmEntries;
use crate::error::LsmError;
use crate::key;

thread_local! {
    /// Where keys are put together for reading. Taken out while in use, because encoding runs the user's code.
    static KEY_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl LsmBackend {
    #[inline]
    fn state<K, N, V>(&self, token: LsmState<K, N, V>) -> Result<&State, LsmError> {
        if token.tag != self.tag {
            return Err(LsmError::ForeignState);
        }
        self.states.get(token.index as usize).ok_or(LsmError::ForeignState)
    }

    #[inline]
    fn group_of(&self, hash: u64) -> Result<KeyGroup, LsmError> {
        let group = key_group(hash, self.key_groups);
        if self.range.contains(group) {
            Ok(group)
        } else {
            Err(LsmError::ForeignKey { group, range: self.range })
        }
    }

    /// Calls `with` with the column family and the stored bytes of an entry's value.
    #[inline]
    fn read<K: Key, N: Namespace, V: Value, R>(
        &self,
        token: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        with: impl FnOnce(Option<DBPinnableSlice<'_>>) -> Result<R, LsmError>,
    ) -> Result<R, LsmError> {
        let family = self.engine.family(&self.state(token)?.family)?;
        let group = self.group_of(key.lookup_hash())?;
        let mut stored = KEY_BUFFER.take();
        let encoded = key::encode(
            &mut stored,
            group,
            |out| key.lookup_encode(out),
            |out| AutoCodec.encode(namespace, out),
        );
        let found = match encoded {
            Ok(()) => self.engine.db().get_pinned_cf(family, &stored).map_err(rocks("read")),
            Err(error) => Err(error.into()),
        };
        KEY_BUFFER.set(stored);
        with(found?)
    }

    /// The value of a key in a namespace.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] for a token of another backend, [`LsmError::ForeignKey`] for a key of another
    /// subtask, [`LsmError::Rocks`] if RocksDB fails, [`LsmError::Format`] for bytes that are no such value.
    pub fn get<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<Option<V>, LsmError> {
        self.read(state, namespace, key, |bytes| {
            bytes.map(|bytes| Ok(AutoCodec.decode(&bytes, DecodeLimits::default())?)).transpose()
        })
    }

    /// Whether a key has a value in a namespace. Does not decode it.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn contains<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<bool, LsmError> {
        self.read(state, namespace, key, |bytes| Ok(bytes.is_some()))
    }

    /// Sets the value of a key in a namespace. Reads nothing: whether there was a value before is not known.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn put<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        value: &V,
    ) -> Result<(), LsmError> {
        self.locate(state, namespace, key)?;
        self.value_buffer.clear();
        AutoCodec.encode(value, &mut self.value_buffer)?;
        let family = self.engine.family(&self.state(state)?.family)?;
        self.engine
            .db()
            .put_cf_opt(family, &self.key_buffer, &self.value_buffer, self.engine.write_options())
            .map_err(rocks("write"))?;
        self.changed_bytes += (self.key_buffer.len() + self.value_buffer.len()) as u64;
        Ok(())
    }

    /// Removes a key from a namespace. Reads nothing: whether there was a value is not known.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn remove<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<(), LsmError> {
        self.locate(state, namespace, key)?;
        let family = self.engine.family(&self.state(state)?.family)?;
        self.engine
            .db()
            .delete_cf_opt(family, &self.key_buffer, self.engine.write_options())
            .map_err(rocks("write"))?;
        self.changed_bytes += self.key_buffer.len() as u64;
        Ok(())
    }

    /// Puts the stored key into the key buffer.
    fn locate<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
    ) -> Result<(), LsmError> {
        self.state(state)?;
        let group = self.group_of(key.lookup_hash())?;
        key::encode(
            &mut self.key_buffer,
            group,
            |out| key.lookup_encode(out),
            |out| AutoCodec.encode(namespace, out),
        )?;
        Ok(())
    }

    /// Changes the value of a key in place by reading and writing it; false, and nothing happens, if it is absent.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn update<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: &N,
        key: &(impl Lookup<K> + ?Sized),
        change: impl FnOnce(&mut V),
    ) -> Result<bool, LsmError> {
        let Some(mut value) = self.get(state, namespace, key)? else { return Ok(false) };
        change(&mut value);
        self.put(state, namespace, key, &value)?;
        Ok(true)
    }

    /// Empties the state, or one namespace of it.
    ///
    /// The whole state is one record whatever its size. One namespace is read and deleted entry by entry, the key
    /// coming before the namespace in the order of the tables: O(entries of the state).
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn clear<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<(), LsmError> {
        match namespace {
            None => {
                let family = self.state(state)?.family.clone();
                self.engine.delete_range(&family, self.range)
            }
            Some(namespace) => self.retain_in(state, Some(namespace), |_, _, _| false).map(drop),
        }
    }

    /// Removes the entries for which `keep` says no; returns how many. Reads every entry.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn retain<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64, LsmError> {
        self.retain_in(state, None, keep)
    }

    fn retain_in<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
        mut keep: impl FnMut(&K, &N, &V) -> bool,
    ) -> Result<u64, LsmError> {
        const BATCH: usize = 1000;
        let family = self.engine.family(&self.state(state)?.family)?;
        let (mut removed, mut bytes, mut batch) = (0_u64, 0_u64, WriteBatch::default());
        let write = |batch: WriteBatch| {
            self.engine.db().write_opt(&batch, self.engine.write_options()).map_err(rocks("write"))
        };
        // The iterator sees the database as of its beginning, whatever is deleted meanwhile.
        let mut entries = self.iter(state, namespace)?;
        while let Some(entry) = entries.next_stored() {
            let (stored, key, namespace, value) = entry?;
            if !keep(&key, &namespace, &value) {
                batch.delete_cf(family, &stored);
                (removed, bytes) = (removed + 1, bytes + stored.len() as u64);
                if batch.len() >= BATCH {
                    write(std::mem::take(&mut batch))?;
                }
            }
        }
        drop(entries);
        write(batch)?;
        self.changed_bytes += bytes;
        Ok(removed)
    }

    /// The entries of the state, or of one namespace of it, by key group; as of now, whatever is written meanwhile.
    ///
    /// One namespace costs as much as the whole state.
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn iter<K: Key, N: Namespace, V: Value>(
        &self,
        state: LsmState<K, N, V>,
        namespace: Option<&N>,
    ) -> Result<LsmEntries<'_, K, N, V>, LsmError> {
        let family = &self.state(state)?.family;
        let namespace = namespace.map(|namespace| {
            let mut encoded = Vec::new();
            AutoCodec.encode(namespace, &mut encoded).map(|()| encoded)
        });
        Ok(LsmEntries::new(self.engine.iterate(family, self.range)?, namespace.transpose()?))
    }

    /// How many entries the state has, in all namespaces. RocksDB does not know: O(entries).
    ///
    /// # Errors
    ///
    /// As [`LsmBackend::get`].
    pub fn len<K: Key, N: Namespace, V: Value>(&self, state: LsmState<K, N, V>) -> Result<u64, LsmError> {
        self.count(&self.state(state)?.family)
    }
}
