//! The codec for any serde type: plain little-endian bytes where that is enough, bincode otherwise.
//!
//! Which way a type goes is decided by its `TypeId`; the comparison is folded by the compiler, so a `u64` is eight
//! bytes stored in one instruction.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use bincode::enc::write::Writer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hashing::short_hash_of;
use super::{Codec, CodecIdentity, DecodeLimits};
use crate::error::FormatError;
use crate::hash::{HashWriter, xxh3, xxh3_of_u32, xxh3_of_u64};

const NAME: &str = "lowtide.auto";
const VERSION: u32 = 1;

/// The codec for any type that serde can write and read; the default everywhere.
///
/// Integers, floats and `bool` are plain little-endian bytes (`usize` and `isize` take eight); `String`, `Box<str>`
/// and `Arc<str>` are their UTF-8 bytes; `Vec<u8>` and `Box<[u8]>` are themselves; `()` is nothing. Everything else
/// is bincode 2 in its standard configuration.
///
/// The fingerprint of a plain type tells its width and sign. That of any other type is taken from its name as Rust
/// spells it: renaming or moving the type changes the fingerprint, and changing a field of it does not, so a changed
/// type wants a new name or a codec of its own.
///
/// Decoding a type that is not plain may take up to 512 times the length of its encoding (and 1 MiB in any case) for an
/// instant before damage is noticed, and never more than 4 GiB at a time.
///
/// ```
/// use lowtide_format::{AutoCodec, Codec, DecodeLimits};
///
/// let mut bytes = Vec::new();
/// AutoCodec.encode(&0x0102_u16, &mut bytes)?;
/// assert_eq!(bytes, [2, 1]);
/// let number: u16 = AutoCodec.decode(&bytes, DecodeLimits::default())?;
/// assert_eq!(number, 0x0102);
/// # Ok::<(), lowtide_format::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutoCodec;

/// Runs `$plain` for the types that are stored as plain little-endian numbers.
macro_rules! for_each_number {
    ($plain:ident) => {
        $plain!(u8, 1, "u8");
        $plain!(u16, 2, "u16");
        $plain!(u32, 4, "u32");
        $plain!(u64, 8, "u64");
        $plain!(u128, 16, "u128");
        $plain!(i8, 1, "i8");
        $plain!(i16, 2, "i16");
        $plain!(i32, 4, "i32");
        $plain!(i64, 8, "i64");
        $plain!(i128, 16, "i128");
        $plain!(f32, 4, "f32");
        $plain!(f64, 8, "f64");
    };
}

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> for AutoCodec {
    #[inline]
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let any: &dyn Any = value;
        macro_rules! plain {
            ($number:ty, $width:literal, $shape:literal) => {
                if let Some(number) = any.downcast_ref::<$number>() {
                    out.extend_from_slice(&number.to_le_bytes());
                    return Ok(());
                }
            };
        }
        for_each_number!(plain);
        if let Some(number) = any.downcast_ref::<usize>() {
            out.extend_from_slice(&(*number as u64).to_le_bytes());
        } else if let Some(number) = any.downcast_ref::<isize>() {
            out.extend_from_slice(&(*number as i64).to_le_bytes());
        } else if let Some(flag) = any.downcast_ref::<bool>() {
            out.push(u8::from(*flag));
        } else if let Some(bytes) = raw_bytes(any) {
            out.extend_from_slice(bytes);
        } else if !any.is::<()>() {
            let config = bincode::config::standard();
            bincode::serde::encode_into_writer(value, VecWriter(out), config)
                .map_err(|source| FormatError::Encode { codec: NAME, source: Arc::new(source) })?;
        }
        Ok(())
    }

    #[inline]
    fn decode(&self, bytes: &[u8], limits: DecodeLimits) -> Result<T, FormatError> {
        limits.check("value", bytes.len() as u64)?;
        macro_rules! plain {
            ($number:ty, $width:literal, $shape:literal) => {
                if TypeId::of::<T>() == TypeId::of::<$number>() {
                    let number = <[u8; $width]>::try_from(bytes).map(<$number>::from_le_bytes);
                    return same_type(number.ok());
                }
            };
        }
        for_each_number!(plain);
        if TypeId::of::<T>() == TypeId::of::<usize>() {
            let number = <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes).ok();
            return same_type(number.and_then(|number| usize::try_from(number).ok()));
        }
        if TypeId::of::<T>() == TypeId::of::<isize>() {
            let number = <[u8; 8]>::try_from(bytes).map(i64::from_le_bytes).ok();
            return same_type(number.and_then(|number| isize::try_from(number).ok()));
        }
        if TypeId::of::<T>() == TypeId::of::<bool>() {
            return same_type(match bytes {
                [0] => Some(false),
                [1] => Some(true),
                _ => None,
            });
        }
        if TypeId::of::<T>() == TypeId::of::<()>() {
            return same_type(bytes.is_empty().then_some(()));
        }
        decode_raw(bytes).unwrap_or_else(|| decode_serde(bytes))
    }

    #[inline]
    fn touch(&self, value: &T) -> u8 {
        let bytes = raw_bytes(value).unwrap_or_default();
        // Both ends: most lie in two or three lines of the cache.
        bytes.first().copied().unwrap_or_default() ^ bytes.last().copied().unwrap_or_default()
    }

    fn identity(&self) -> CodecIdentity {
        CodecIdentity::new(NAME, VERSION, shape_of::<T>())
    }
}

/// xxh3-64 of the encoding of `value`, without a buffer.
///
/// A value whose `Serialize` fails (none of the standard library's does) hashes as what was written up to there:
/// still the same for equal values, and encoding it reports the error.
#[inline]
pub(super) fn hash_of<T: Serialize + 'static>(value: &T) -> u64 {
    let any: &dyn Any = value;
    macro_rules! plain {
        ($number:ty, $width:literal, $shape:literal) => {
            if let Some(number) = any.downcast_ref::<$number>() {
                return hash_of_number(number.to_le_bytes());
            }
        };
    }
    for_each_number!(plain);
    if let Some(number) = any.downcast_ref::<usize>() {
        return xxh3_of_u64(*number as u64);
    }
    if let Some(number) = any.downcast_ref::<isize>() {
        return hash_of_number((*number as i64).to_le_bytes());
    }
    if let Some(flag) = any.downcast_ref::<bool>() {
        return xxh3(&[u8::from(*flag)]);
    }
    if any.is::<()>() {
        return xxh3(&[]);
    }
    if let Some(bytes) = raw_bytes(any) {
        return xxh3(bytes);
    }
    short_hash_of(value).unwrap_or_else(|| long_hash_of(value))
}

#[cold]
fn long_hash_of<T: Serialize>(value: &T) -> u64 {
    let mut writer = HashWriter::new();
    // The result is about the value, not about the hash: see above.
    let _ = bincode::serde::encode_into_writer(value, &mut writer, bincode::config::standard());
    writer.finish()
}

#[inline]
fn hash_of_number<const WIDTH: usize>(bytes: [u8; WIDTH]) -> u64 {
    // The branches are decided at compile time.
    if let Ok(word) = <[u8; 8]>::try_from(bytes.as_slice()) {
        xxh3_of_u64(u64::from_le_bytes(word))
    } else if let Ok(word) = <[u8; 4]>::try_from(bytes.as_slice()) {
        xxh3_of_u32(u32::from_le_bytes(word))
    } else {
        xxh3(&bytes)
    }
}

/// The bytes of a value that is stored as it is; `None` for every other type.
#[inline]
fn raw_bytes(any: &dyn Any) -> Option<&[u8]> {
    if let Some(text) = any.downcast_ref::<String>() {
        Some(text.as_bytes())
    } else if let Some(bytes) = any.downcast_ref::<Vec<u8>>() {
        Some(bytes)
    } else if let Some(bytes) = any.downcast_ref::<Box<[u8]>>() {
        Some(bytes)
    } else if let Some(text) = any.downcast_ref::<Box<str>>() {
        Some(text.as_bytes())
    } else {
        any.downcast_ref::<Arc<str>>().map(|text| text.as_bytes())
    }
}

/// The value of a type that is stored as it is; `None` for every other type.
#[inline]
fn decode_raw<T: 'static>(bytes: &[u8]) -> Option<Result<T, FormatError>> {
    let text = || std::str::from_utf8(bytes).ok();
    if TypeId::of::<T>() == TypeId::of::<String>() {
        Some(same_type(text().map(str::to_owned)))
    } else if TypeId::of::<T>() == TypeId::of::<Vec<u8>>() {
        Some(same_type(Some(bytes.to_vec())))
    } else if TypeId::of::<T>() == TypeId::of::<Box<[u8]>>() {
        Some(same_type(Some(Box::<[u8]>::from(bytes))))
    } else if TypeId::of::<T>() == TypeId::of::<Box<str>>() {
        Some(same_type(text().map(Box::<str>::from)))
    } else if TypeId::of::<T>() == TypeId::of::<Arc<str>>() {
        Some(same_type(text().map(Arc::<str>::from)))
    } else {
        None
    }
}

/// Turns the decoded `U` into the `T` that it is; the caller has compared the types.
#[inline]
fn same_type<T: 'static, U: 'static>(mut value: Option<U>) -> Result<T, FormatError> {
    let any: &mut dyn Any = &mut value;
    let value = any.downcast_mut::<Option<T>>().and_then(Option::take);
    value.ok_or_else(|| FormatError::Invalid { part: "value", problem: "the bytes are none of its type" })
}

/// How the shape of a type enters its fingerprint.
fn shape_of<T: 'static>() -> &'static str {
    let this = TypeId::of::<T>();
    macro_rules! plain {
        ($number:ty, $width:literal, $shape:literal) => {
            if this == TypeId::of::<$number>() {
                return $shape;
            }
        };
    }
    for_each_number!(plain);
    let text = [TypeId::of::<String>(), TypeId::of::<Box<str>>(), TypeId::of::<Arc<str>>()];
    let bytes = [TypeId::of::<Vec<u8>>(), TypeId::of::<Box<[u8]>>()];
    if this == TypeId::of::<usize>() {
        "u64"
    } else if this == TypeId::of::<isize>() {
        "i64"
    } else if this == TypeId::of::<bool>() {
        "bool"
    } else if this == TypeId::of::<()>() {
        "unit"
    } else if text.contains(&this) {
        "text"
    } else if bytes.contains(&this) {
        "bytes"
    } else {
        type_name::<T>()
    }
}

fn decode_serde<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormatError> {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    // bincode checks a claimed length against a limit that is part of the type, and counts up to 16 bytes for a byte
    // read. So the limit is 16 times the upper end of the size class, which bounds what a forged length can allocate.
    match bytes.len() {
        0..=4096 => decode_within::<T, { 64 * KIB }>(bytes),
        4097..=131_072 => decode_within::<T, { 2 * MIB }>(bytes),
        131_073..=4_194_304 => decode_within::<T, { 64 * MIB }>(bytes),
        4_194_305..=33_554_432 => decode_within::<T, { 512 * MIB }>(bytes),
        _ => decode_within::<T, { 4096 * MIB }>(bytes),
    }
}

fn decode_within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, FormatError> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((value, read)) if read == bytes.len() => Ok(value),
        Ok((_, read)) => {
            Err(FormatError::TrailingBytes { part: "value", bytes: bytes.len().saturating_sub(read) as u64 })
        }
        Err(source) => Err(FormatError::Decode { codec: NAME, source: Arc::new(source) }),
    }
}

struct VecWriter<'a>(&'a mut Vec<u8>);

impl Writer for VecWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
