//! Reads key groups that are restored while others are not yet.
//!
//! Owns: the look-up of a key, waiting for its key group. Does not own: which key groups are ready (`served`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lowtide_format::{
    AutoCodec, CheckpointId, Key, KeyGroup, KeyGroupRange, Lookup, Namespace, StateDescriptor, Value,
    key_group,
};

use super::served::Served;
use crate::backend::check_codecs;
use crate::codecs::{Raw, StateCodecs, Typed, place_hash};
use crate::error::HeapError;
use crate::filling::Filling;
use crate::piece::Slot;
use crate::state::namespace_hash;

/// Reads the entries of a [`HeapRestore`](super::HeapRestore) whose key groups are ready, from any thread, while the
/// other key groups are still being filled. Clones share everything.
///
/// A key group is *ready* once no element to come lists it. What is read then is what the backend will hold. Readers
/// take no lock of a key group that is still being filled; only the end of the restore waits for a value that is just being
/// cloned.
///
/// The reader ends with the restore: [`HeapError::RestoreFinished`] once there is a backend,
/// [`HeapError::RestoreAbandoned`] once the restore has failed or was dropped. Whoever waits is told as well. It keeps no
/// entry in memory after that.
///
/// # Examples
///
/// ```
/// use lowtide_format::{CheckpointId, DecodeLimits, KeyGroup, KeyGroupCount, KeyGroupSet};
/// use lowtide_heap::{BaseMode, HeapError, HeapOptions, HeapRestore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let key_groups = KeyGroupCount::new(1).ok_or("no key groups")?;
/// let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
/// let mut restore = HeapRestore::new(options, CheckpointId::FIRST, DecodeLimits::default());
/// // No element lists any key group: there is nothing to wait for.
/// let none: [KeyGroupSet; 0] = [];
/// let reader = restore.reader(&none)?;
/// let visits = reader.value_state::<String, (), u64>("visits");
/// assert!(reader.is_ready(KeyGroup(0)));
/// assert_eq!(visits.get("ada")?, None);
///
/// let backend = restore.finish();
/// assert!(matches!(visits.get("ada"), Err(HeapError::RestoreFinished { .. })));
/// # drop(backend);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RestoreReader {
    served: Arc<Served>,
}

impl RestoreReader {
    pub(super) fn new(served: Arc<Served>) -> Self {
        Self { served }
    }

    /// The checkpoint that is restored: all values are of it.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.served.id
    }

    /// The key groups that are restored.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        self.served.range
    }

    /// Whether the entries of a key group can be read now: not before it is complete, and not after the restore has
    /// ended. O(1), without a lock.
    #[must_use]
    pub fn is_ready(&self, key_group: KeyGroup) -> bool {
        self.served.shard_of(key_group).is_ok_and(|shard| self.served.is_ready(shard))
    }

    /// Waits until a key group is ready.
    ///
    /// On any executor. Each wait holds one waker until it is over or dropped.
    ///
    /// # Errors
    ///
    /// [`HeapError::RestoreFinished`] and [`HeapError::RestoreAbandoned`] if the restore has ended or does so meanwhile;
    /// [`HeapError::ForeignKey`] if the key group is not restored here.
    pub fn ready(&self, key_group: KeyGroup) -> WhenReady {
        WhenReady { served: Arc::clone(&self.served), shard: self.served.shard_of(key_group), number: None }
    }

    /// The value state of that name, to read.
    ///
    /// Nothing is checked yet: there may be no such state, which then has no entries. A state that was not opened in the
    /// restore is read as well; each value that is found is then decoded by the default codec.
    #[must_use]
    pub fn value_state<K: Key, N: Namespace, V: Value>(&self, name: &str) -> RestoringState<K, N, V> {
        let typed = Typed::new(AutoCodec);
        let descriptor = typed.descriptor::<K, N, V>(name);
        RestoringState { reader: self.clone(), state: Arc::new((descriptor, Arc::new(typed))) }
    }
}

/// The codecs of a state by its types, and how it would be described.
type Asked<K, N, V> = (StateDescriptor, Arc<dyn StateCodecs<K, N, V>>);

/// A value state that is being restored, to read where it is ready. Cloning is cheap.
pub struct RestoringState<K, N, V> {
    reader: RestoreReader,
    state: Arc<Asked<K, N, V>>,
}

impl<K, N, V> Clone for RestoringState<K, N, V> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), state: Arc::clone(&self.state) }
    }
}

impl<K, N, V> fmt::Debug for RestoringState<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoringState")
            .field("name", &self.state.0.name)
            .field("reader", &self.reader)
            .finish()
    }
}

impl<K: Key, N: Namespace, V: Value> RestoringState<K, N, V> {
    /// The same state as another reader sees it, of other key groups or of another restore. O(1).
    #[must_use]
    pub fn of(&self, reader: &RestoreReader) -> Self {
        Self { reader: reader.clone(), state: Arc::clone(&self.state) }
    }

    /// The value of a key in a namespace, cloned. O(states) and one look-up.
    ///
    /// # Errors
    ///
    /// [`HeapError::NotReady`] naming the key group if it is not ready; [`HeapError::RestoreFinished`] and
    /// [`HeapError::RestoreAbandoned`] once the restore has ended; [`HeapError::ForeignKey`] if the key's group is not
    /// restored here. If the key group holds entries of the state: [`HeapError::StateTypeMismatch`] and
    /// [`HeapError::StateTypesDiffer`] if they are of other types, and, where the state was not opened in the restore,
    /// [`HeapError::Record`] if the value is no encoding of its type.
    pub fn get_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> Result<Option<V>, HeapError> {
        let served = &self.reader.served;
        let key_hash = key.lookup_hash();
        let filled = served.read(served.shard_of(key_group(key_hash, served.count))?)?;
        let Some(filling) = filled.named(&self.state.0.name) else { return Ok(None) };
        let hash = place_hash(key_hash, namespace_hash(namespace));
        if let Some(typed) = filling.of_types::<K, N, V>() {
            let is_it = |slot: &Slot<K, N, V>| key.equals(&slot.key) && slot.namespace == *namespace;
            return Ok(typed.find(hash, is_it).map(|slot| slot.value.clone()));
        }
        let (asked, _) = &*self.state;
        check_codecs(filling.descriptor(), asked)?;
        match filling.of_types::<Raw, Raw, Raw>() {
            Some(raw) => self.decode_from(raw, hash, (namespace, key)),
            None => Err(HeapError::StateTypesDiffer { name: asked.name.clone() }),
        }
    }

    /// The value of a key in a namespace of a state whose entries are still bytes.
    fn decode_from<Q: Lookup<K> + ?Sized>(
        &self,
        filling: &Filling<Raw, Raw, Raw>,
        hash: u64,
        (namespace, key): (&N, &Q),
    ) -> Result<Option<V>, HeapError> {
        let (StateDescriptor { name, .. }, codecs) = &*self.state;
        let (mut key_bytes, mut namespace_bytes) = (Vec::new(), Vec::new());
        let encoded = key.lookup_encode(&mut key_bytes);
        let encoded = encoded.and_then(|()| codecs.encode_namespace(namespace, &mut namespace_bytes));
        encoded.map_err(|source| HeapError::record(name, "a key", source))?;
        let found = filling
            .find(hash, |slot| slot.key.bytes() == key_bytes && slot.namespace.bytes() == namespace_bytes);
        let value = found.map(|slot| codecs.decode_value(slot.value.bytes(), self.reader.served.limits));
        value.transpose().map_err(|source| HeapError::record(name, "a value", source))
    }

    /// The value of a key in a namespace, as soon as its key group is ready.
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in), never [`HeapError::NotReady`].
    pub async fn get_when_ready_in<Q: Lookup<K> + ?Sized>(
        &self,
        namespace: &N,
        key: &Q,
    ) -> Result<Option<V>, HeapError> {
        let key_group = key_group(key.lookup_hash(), self.reader.served.count);
        loop {
            self.reader.ready(key_group).await?;
            match self.get_in(namespace, key) {
                // The backend began to take over in between.
                Err(HeapError::NotReady { .. }) => {}
                read => return read,
            }
        }
    }
}

impl<K: Key, V: Value> RestoringState<K, (), V> {
    /// The value of a key. See [`get_in`](Self::get_in).
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in).
    pub fn get<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, HeapError> {
        self.get_in(&(), key)
    }

    /// The value of a key, as soon as its key group is ready. See [`get_when_ready_in`](Self::get_when_ready_in).
    ///
    /// # Errors
    ///
    /// As [`get_when_ready_in`](Self::get_when_ready_in).
    pub async fn get_when_ready<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<Option<V>, HeapError> {
        self.get_when_ready_in(&(), key).await
    }
}

/// Waits for a key group to become ready: see [`RestoreReader::ready`].
#[derive(Debug)]
#[must_use = "nobody waits until it is awaited"]
pub struct WhenReady {
    served: Arc<Served>,
    shard: Result<usize, HeapError>,
    /// Of the wait, once it has begun.
    number: Option<u64>,
}

impl Future for WhenReady {
    type Output = Result<(), HeapError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { served, shard, number } = self.get_mut();
        match shard {
            Ok(shard) => served.poll_ready(*shard, number, context.waker()),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl Drop for WhenReady {
    fn drop(&mut self) {
        if let (Ok(shard), Some(number)) = (&self.shard, self.number) {
            self.served.forget(*shard, number);
        }
    }
}

#[cfg(test)]
mod tests;
