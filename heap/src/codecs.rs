//! How the keys, namespaces and values of one state become bytes, and how a key is placed.
//!
//! Owns: the choice of codecs of a state, and the hash of (key, namespace). Does not own: the codecs themselves
//! (`lowtide-format`).

use std::sync::Arc;

use bytes::Bytes;
use lowtide_format::{
    AutoCodec, Codec, CodecIdentity, DecodeLimits, FormatError, Key, Namespace, StateDescriptor, StateKind,
    Value, xxh3,
};

use crate::encode::{BucketsToPut, Encoder};
use crate::error::HeapError;
use crate::filling::{FillRun, Filling};
use crate::piece::Slot;

/// xxh3-64 of no bytes: the hash of the void namespace.
pub(crate) const VOID_HASH: u64 = 0x2d06_8005_38d3_94c2;

/// Numbers of key groups have no more bits than this.
pub(crate) const GROUP_BITS: u32 = u16::BITS;

/// The hash by which a piece and a bucket are found. The key group follows from the key's hash alone.
///
/// The void namespace leaves the key's hash as it is, and every other leaves its lowest [`GROUP_BITS`], so that they
/// tell the key group where their number is a power of two.
#[inline]
pub(crate) fn place_hash(key_hash: u64, namespace_hash: u64) -> u64 {
    // An odd factor, so that namespaces that differ in any bit spread over all higher ones.
    let spread = (namespace_hash ^ VOID_HASH).rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key_hash ^ (spread & (u64::MAX << GROUP_BITS))
}

/// The codecs of one state.
pub(crate) trait StateCodecs<K, N, V>: Send + Sync {
    fn encode_key(&self, key: &K, out: &mut Vec<u8>) -> Result<(), FormatError>;
    fn encode_namespace(&self, namespace: &N, out: &mut Vec<u8>) -> Result<(), FormatError>;
    fn encode_value(&self, value: &V, out: &mut Vec<u8>) -> Result<(), FormatError>;
    fn decode_key(&self, bytes: &[u8], limits: DecodeLimits) -> Result<K, FormatError>;
    fn decode_namespace(&self, bytes: &[u8], limits: DecodeLimits) -> Result<N, FormatError>;
    fn decode_value(&self, bytes: &[u8], limits: DecodeLimits) -> Result<V, FormatError>;
    fn key_hash(&self, key: &K) -> u64;
    fn namespace_hash(&self, namespace: &N) -> u64;
    /// Reads a byte of what a slot keeps elsewhere, so that it is on its way into the caches.
    fn touch(&self, slot: &Slot<K, N, V>) -> u8;
    /// [`Encoder::put_buckets`] with these codecs.
    fn put_buckets(
        &self,
        encoder: &mut Encoder<'_, K, N, V>,
        puts: &BucketsToPut<'_, K, N, V>,
    ) -> Result<(), HeapError>;
    /// [`Filling::take`] with these codecs, so that it is compiled for them: a call through a table for each part of
    /// each record costs more than decoding a number.
    fn fill(&self, filling: &mut Filling<K, N, V>, run: &mut FillRun<'_>) -> Result<(), HeapError>;
}

/// Keys and namespaces by the format's own codec, values by one that can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<C> {
    value: C,
}

/// A codec of values that is only known at run time.
pub(crate) struct Chosen<V>(pub(crate) Arc<dyn Codec<V>>);

impl<V> Codec<V> for Chosen<V> {
    fn encode(&self, value: &V, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.0.encode(value, out)
    }

    fn decode(&self, bytes: &[u8], limits: DecodeLimits) -> Result<V, FormatError> {
        self.0.decode(bytes, limits)
    }

    fn touch(&self, value: &V) -> u8 {
        self.0.touch(value)
    }

    fn identity(&self) -> CodecIdentity {
        self.0.identity()
    }
}

impl<C> Typed<C> {
    pub(crate) fn new(value: C) -> Self {
        Self { value }
    }

    pub(crate) fn descriptor<K: Key, N: Namespace, V>(&self, name: &str) -> StateDescriptor
    where
        C: Codec<V>,
    {
        StateDescriptor {
            name: name.to_owned(),
            kind: StateKind::Value,
            key: Codec::<K>::identity(&AutoCodec),
            namespace: Codec::<N>::identity(&AutoCodec),
            value: self.value.identity(),
        }
    }
}

impl<K: Key, N: Namespace, V: Value, C: Codec<V>> StateCodecs<K, N, V> for Typed<C> {
    fn encode_key(&self, key: &K, out: &mut Vec<u8>) -> Result<(), FormatError> {
        AutoCodec.encode(key, out)
    }

    fn encode_namespace(&self, namespace: &N, out: &mut Vec<u8>) -> Result<(), FormatError> {
        AutoCodec.encode(namespace, out)
    }

    fn encode_value(&self, value: &V, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.value.encode(value, out)
    }

    #[inline]
    fn decode_key(&self, bytes: &[u8], limits: DecodeLimits) -> Result<K, FormatError> {
        AutoCodec.decode(bytes, limits)
    }

    #[inline]
    fn decode_namespace(&self, bytes: &[u8], limits: DecodeLimits) -> Result<N, FormatError> {
        AutoCodec.decode(bytes, limits)
    }

    #[inline]
    fn decode_value(&self, bytes: &[u8], limits: DecodeLimits) -> Result<V, FormatError> {
        self.value.decode(bytes, limits)
    }

    #[inline]
    fn key_hash(&self, key: &K) -> u64 {
        key.key_hash()
    }

    #[inline]
    fn namespace_hash(&self, namespace: &N) -> u64 {
        namespace.key_hash()
    }

    #[inline]
    fn touch(&self, slot: &Slot<K, N, V>) -> u8 {
        Codec::<K>::touch(&AutoCodec, &slot.key) ^ self.value.touch(&slot.value)
    }

    fn put_buckets(
        &self,
        encoder: &mut Encoder<'_, K, N, V>,
        puts: &BucketsToPut<'_, K, N, V>,
    ) -> Result<(), HeapError> {
        encoder.put_buckets(self, puts)
    }

    fn fill(&self, filling: &mut Filling<K, N, V>, run: &mut FillRun<'_>) -> Result<(), HeapError> {
        filling.take(self, run)
    }
}

/// An encoded part of an entry of a state that nobody has opened with its types yet.
///
/// A type of its own, so that such a state is never taken for one whose types are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw(Bytes);

/// For a state that was restored and that nobody has opened with its types yet: everything stays bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untyped;

impl Raw {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl StateCodecs<Raw, Raw, Raw> for Untyped {
    fn encode_key(&self, key: &Raw, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&key.0);
        Ok(())
    }

    fn encode_namespace(&self, namespace: &Raw, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&namespace.0);
        Ok(())
    }

    fn encode_value(&self, value: &Raw, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&value.0);
        Ok(())
    }

    fn decode_key(&self, bytes: &[u8], _limits: DecodeLimits) -> Result<Raw, FormatError> {
        Ok(Raw(Bytes::copy_from_slice(bytes)))
    }

    fn decode_namespace(&self, bytes: &[u8], _limits: DecodeLimits) -> Result<Raw, FormatError> {
        Ok(Raw(Bytes::copy_from_slice(bytes)))
    }

    fn decode_value(&self, bytes: &[u8], _limits: DecodeLimits) -> Result<Raw, FormatError> {
        Ok(Raw(Bytes::copy_from_slice(bytes)))
    }

    fn key_hash(&self, key: &Raw) -> u64 {
        xxh3(&key.0)
    }

    fn namespace_hash(&self, namespace: &Raw) -> u64 {
        xxh3(&namespace.0)
    }

    fn touch(&self, slot: &Slot<Raw, Raw, Raw>) -> u8 {
        let first = |raw: &Raw| raw.0.first().copied().unwrap_or_default();
        first(&slot.key) ^ first(&slot.value)
    }

    fn put_buckets(
        &self,
        encoder: &mut Encoder<'_, Raw, Raw, Raw>,
        puts: &BucketsToPut<'_, Raw, Raw, Raw>,
    ) -> Result<(), HeapError> {
        encoder.put_buckets(self, puts)
    }

    fn fill(&self, filling: &mut Filling<Raw, Raw, Raw>, run: &mut FillRun<'_>) -> Result<(), HeapError> {
        filling.take(self, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untyped_state_places_keys_as_the_typed_one_does() {
        let typed = Typed::new(Chosen::<u64>(Arc::new(AutoCodec)));
        let (key, namespace) = ("user-1".to_owned(), 7_u32);
        let codecs: &dyn StateCodecs<String, u32, u64> = &typed;
        let (mut key_bytes, mut namespace_bytes) = (Vec::new(), Vec::new());
        codecs.encode_key(&key, &mut key_bytes).unwrap();
        codecs.encode_namespace(&namespace, &mut namespace_bytes).unwrap();
        assert_eq!(codecs.key_hash(&key), Untyped.key_hash(&Raw(key_bytes.into())));
        assert_eq!(codecs.namespace_hash(&namespace), Untyped.namespace_hash(&Raw(namespace_bytes.into())));
        assert_eq!(VOID_HASH, ().key_hash());
        assert_eq!(place_hash(42, VOID_HASH), 42);
    }
}
