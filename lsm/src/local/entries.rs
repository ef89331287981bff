//! Iteration over the entries of a state.

use std::marker::PhantomData;

use lowtide_format::{AutoCodec, Codec, DecodeLimits, Key, Namespace, Value};
use rocksdb::DBRawIterator;

use super::backend::Types;
use super::engine::rocks;
use crate::error::LsmError;
use crate::key::StoredKey;

/// The entries of a state or of one of its namespaces, decoded one by one. Ends after an error.
pub struct LsmEntries<'a, K, N, V> {
    iterator: DBRawIterator<'a>,
    /// Encoded namespace, if only one is wanted.
    namespace: Option<Vec<u8>>,
    ended: bool,
    types: Types<K, N, V>,
}

/// The stored key and the decoded entry.
type StoredEntry<K, N, V> = (Vec<u8>, K, N, V);

impl<'a, K: Key, N: Namespace, V: Value> LsmEntries<'a, K, N, V> {
    pub(crate) fn new(iterator: DBRawIterator<'a>, namespace: Option<Vec<u8>>) -> Self {
        Self { iterator, namespace, ended: false, types: PhantomData }
    }

    /// The next entry with its stored key.
    pub(crate) fn next_stored(&mut self) -> Option<Result<StoredEntry<K, N, V>, LsmError>> {
        let mut stored = Vec::new();
        let entry = self.advance(|bytes| stored = bytes.to_vec())?;
        Some(entry.map(|(key, namespace, value)| (stored, key, namespace, value)))
    }

    /// The next entry; shows its stored key.
    fn advance(&mut self, show: impl FnOnce(&[u8])) -> Option<Result<(K, N, V), LsmError>> {
        while !self.ended {
            let Some((stored, value)) = self.iterator.item() else {
                self.ended = true;
                return self.iterator.status().err().map(|error| Err(rocks("iterate")(error)));
            };
            let entry = decode(stored, value, self.namespace.as_deref()).transpose();
            self.ended = matches!(entry, Some(Err(_)));
            if entry.is_some() {
                show(stored);
                self.iterator.next();
                return entry;
            }
            self.iterator.next();
        }
        None
    }
}

/// The entry, unless it is of another namespace than the wanted one.
fn decode<K: Key, N: Namespace, V: Value>(
    stored: &[u8],
    value: &[u8],
    wanted: Option<&[u8]>,
) -> Result<Option<(K, N, V)>, LsmError> {
    let parts = StoredKey::decode(stored)?;
    if wanted.is_some_and(|wanted| wanted != parts.namespace) {
        return Ok(None);
    }
    let limits = DecodeLimits::default();
    let key = AutoCodec.decode(parts.key, limits)?;
    let namespace = AutoCodec.decode(parts.namespace, limits)?;
    Ok(Some((key, namespace, AutoCodec.decode(value, limits)?)))
}

impl<K: Key, N: Namespace, V: Value> Iterator for LsmEntries<'_, K, N, V> {
    type Item = Result<(K, N, V), LsmError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(|_| ())
    }
}
