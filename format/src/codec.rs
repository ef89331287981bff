//! Codecs: how a key, a namespace or a value becomes bytes.
//!
//! Owns: the [`Codec`] trait, its identity, the limits of decoding, and the codec for any serde type.
//! Does not own: where the bytes go (`record`, `segment`).

mod auto;
mod hashing;
mod key;

use std::fmt;

use crate::error::FormatError;
use crate::hash::xxh3;

pub use auto::AutoCodec;
pub use key::{Key, Lookup, Namespace, Value};

/// Encodes and decodes values of one type.
///
/// Equal values that serve as keys or namespaces must have equal encodings. The bytes are framed by the record, so an
/// encoding need not carry its own length.
pub trait Codec<T>: Send + Sync {
    /// Appends the encoding of `value` to `out`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Encode`] if the value cannot be encoded; what was appended before is left to the caller.
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), FormatError>;

    /// The value whose encoding is exactly `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Decode`] if `bytes` are no encoding, [`FormatError::TooLarge`] beyond the limits; never a panic.
    fn decode(&self, bytes: &[u8], limits: DecodeLimits) -> Result<T, FormatError>;

    /// Reads a byte of what a value keeps on the heap, if it keeps anything there: called for several values before they
    /// are encoded, so that the waits for memory overlap. Which byte does not matter.
    #[inline]
    fn touch(&self, _value: &T) -> u8 {
        0
    }

    /// What is written into every segment and manifest, so that bytes are not read by another codec.
    fn identity(&self) -> CodecIdentity;
}

/// Says which codec wrote some bytes: two identities are compatible only if they are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodecIdentity {
    /// Name of the codec, at most 255 bytes.
    pub name: String,
    /// Version of the codec.
    pub version: u32,
    /// Hash over the codec and the shape of the type.
    pub fingerprint: u64,
}

impl CodecIdentity {
    /// The identity of codec `name` in `version`, for a type whose shape is told by `shape`.
    #[must_use]
    pub fn new(name: &str, version: u32, shape: &str) -> Self {
        let fingerprint = xxh3(format!("{name}\0{version}\0{shape}").as_bytes());
        Self { name: name.to_owned(), version, fingerprint }
    }
}

impl fmt::Display for CodecIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}#{:016x}", self.name, self.version, self.fingerprint)
    }
}

/// How much memory decoding may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// No single length read from bytes (a file, a block after decompression, a value) may be above this many bytes.
    pub bytes_max: u64,
}

impl Default for DecodeLimits {
    /// 256 MiB.
    fn default() -> Self {
        Self { bytes_max: 256 << 20 }
    }
}

impl DecodeLimits {
    /// Checks that `bytes` are within the limit.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooLarge`] naming `part`.
    pub fn check(self, part: &'static str, bytes: u64) -> Result<(), FormatError> {
        if bytes <= self.bytes_max {
            Ok(())
        } else {
            Err(FormatError::TooLarge { part, bytes, bytes_max: self.bytes_max })
        }
    }
}

#[cfg(test)]
mod tests;
