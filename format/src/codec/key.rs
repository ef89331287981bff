//! What a type must offer to be a key, a namespace or a value, and how keys are looked up by a borrowed form.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AutoCodec, Codec, auto};
use crate::error::FormatError;
use crate::hash::xxh3;

/// A type whose values can be kept as state. Implemented for every type that fits.
///
/// A value must not change behind a shared reference (no `Cell`, no lock inside): such a change is seen by no
/// checkpoint.
pub trait Value: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {}

impl<T: Clone + Send + Sync + Serialize + DeserializeOwned + 'static> Value for T {}

/// A type whose values can be keys. Implemented for every [`Value`] with equality.
///
/// Equal keys must have equal encodings: a `HashMap` inside a key, or `-0.0` beside `0.0`, breaks that.
pub trait Key: Value + Eq {
    /// xxh3-64 of the [`AutoCodec`](super::AutoCodec) encoding: selects the key group and the bucket.
    ///
    /// Stable across processes, platforms and releases. Takes no buffer; O(encoded bytes).
    #[inline]
    fn key_hash(&self) -> u64 {
        auto::hash_of(self)
    }
}

impl<T: Value + Eq> Key for T {}

/// A type whose values can be namespaces, `()` being the void one. Implemented for every [`Value`] with equality.
pub trait Namespace: Value + Eq {}

impl<T: Value + Eq> Namespace for T {}

/// A borrowed form under which a key of type `K` can be found: `str` for `String`, and so on.
pub trait Lookup<K: ?Sized> {
    /// The same number as [`Key::key_hash`] of the key that is meant.
    fn lookup_hash(&self) -> u64;

    /// Whether `key` is the key that is meant.
    fn equals(&self, key: &K) -> bool;

    /// Appends the same bytes as the [`AutoCodec`](super::AutoCodec) encoding of the key that is meant.
    ///
    /// # Errors
    ///
    /// [`FormatError::Encode`] if the key cannot be encoded.
    fn lookup_encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError>;
}

impl<K: Key> Lookup<K> for K {
    #[inline]
    fn lookup_hash(&self) -> u64 {
        self.key_hash()
    }

    #[inline]
    fn equals(&self, key: &K) -> bool {
        self == key
    }

    #[inline]
    fn lookup_encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        AutoCodec.encode(self, out)
    }
}

macro_rules! borrowed_forms {
    ($($borrowed:ty => $owned:ty),*) => {$(
        impl Lookup<$owned> for $borrowed {
            #[inline]
            fn lookup_hash(&self) -> u64 {
                xxh3(self.as_ref())
            }

            #[inline]
            fn equals(&self, key: &$owned) -> bool {
                *self == **key
            }

            #[inline]
            fn lookup_encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
                out.extend_from_slice(self.as_ref());
                Ok(())
            }
        }
    )*};
}

borrowed_forms!(str => String, str => Box<str>, str => Arc<str>, [u8] => Vec<u8>, [u8] => Box<[u8]>);
