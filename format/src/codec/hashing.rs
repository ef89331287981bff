//! Hashes what bincode 2 would write of a value in its standard configuration, without writing it.
//!
//! Owns: the layout of that encoding as far as a hash needs it. Does not own: the hash (`hash`), encodings that are
//! too long for it and all that is decoded (bincode).
//!
//! bincode's own serializer hands bytes to a writer one part after the other; the parts of a key are worth less than
//! the calls. Everything here is small enough to end up in registers.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

use crate::hash::short::{ShortXxh3, TooLong};

/// xxh3-64 of the encoding of a value; `None` if that is longer than a short hash takes, or cannot be made.
#[inline]
pub(super) fn short_hash_of<T: Serialize>(value: &T) -> Option<u64> {
    let mut hash = ShortXxh3::default();
    value.serialize(Hashing(&mut hash)).ok()?;
    Some(hash.finish())
}

/// The short hash is of no use: ask bincode.
#[derive(Debug)]
struct NotShort;

impl fmt::Display for NotShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no short encoding")
    }
}

impl std::error::Error for NotShort {}

impl ser::Error for NotShort {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl From<TooLong> for NotShort {
    fn from(_: TooLong) -> Self {
        Self
    }
}

struct Hashing<'h>(&'h mut ShortXxh3);

type Done = Result<(), NotShort>;

/// The largest number that is its own byte. Two, four and eight bytes come after one of the next three.
const SINGLE_BYTE_MAX: u64 = 250;
const TWO_BYTES: u64 = 251;
const FOUR_BYTES: u64 = 252;
const EIGHT_BYTES: u64 = 253;

impl Hashing<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) -> Done {
        Ok(self.0.push(u64::from(byte), 1)?)
    }

    #[inline]
    fn number(&mut self, number: u64) -> Done {
        if number > u64::from(u32::MAX) {
            self.0.push(EIGHT_BYTES, 1)?;
            return Ok(self.0.push(number, 8)?);
        }
        let (word, bytes) = if number <= SINGLE_BYTE_MAX {
            (number, 1)
        } else if number <= u64::from(u16::MAX) {
            (TWO_BYTES | number << 8, 3)
        } else {
            (FOUR_BYTES | number << 8, 5)
        };
        Ok(self.0.push(word, bytes)?)
    }

    /// Small negative numbers are small, too: the sign is the lowest bit.
    #[inline]
    fn signed(&mut self, number: i64) -> Done {
        self.number((number << 1 ^ number >> 63) as u64)
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> Done {
        self.number(bytes.len() as u64)?;
        Ok(self.0.write(bytes)?)
    }

    #[inline]
    fn length(mut self, length: Option<usize>) -> Result<Self, NotShort> {
        self.number(length.ok_or(NotShort)? as u64)?;
        Ok(self)
    }

    #[inline]
    fn variant(mut self, index: u32) -> Result<Self, NotShort> {
        self.number(u64::from(index))?;
        Ok(self)
    }

    #[inline]
    fn part<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(Hashing(self.0))
    }
}

impl Serializer for Hashing<'_> {
    type Ok = ();
    type Error = NotShort;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    #[inline]
    fn serialize_bool(mut self, value: bool) -> Done {
        self.byte(u8::from(value))
    }

    #[inline]
    fn serialize_i8(mut self, value: i8) -> Done {
        self.byte(value.cast_unsigned())
    }

    #[inline]
    fn serialize_i16(mut self, value: i16) -> Done {
        self.signed(i64::from(value))
    }

    #[inline]
    fn serialize_i32(mut self, value: i32) -> Done {
        self.signed(i64::from(value))
    }

    #[inline]
    fn serialize_i64(mut self, value: i64) -> Done {
        self.signed(value)
    }

    #[inline]
    fn serialize_u8(mut self, value: u8) -> Done {
        self.byte(value)
    }

    #[inline]
    fn serialize_u16(mut self, value: u16) -> Done {
        self.number(u64::from(value))
    }

    #[inline]
    fn serialize_u32(mut self, value: u32) -> Done {
        self.number(u64::from(value))
    }

    #[inline]
    fn serialize_u64(mut self, value: u64) -> Done {
        self.number(value)
    }

    #[inline]
    fn serialize_u128(mut self, value: u128) -> Done {
        // Larger ones are rare, and bincode knows them.
        self.number(u64::try_from(value).map_err(|_| NotShort)?)
    }

    #[inline]
    fn serialize_i128(self, value: i128) -> Done {
        self.serialize_u128((value << 1 ^ value >> 127).cast_unsigned())
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Done {
        Ok(self.0.push(u64::from(value.to_bits()), 4)?)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Done {
        Ok(self.0.push(value.to_bits(), 8)?)
    }

    #[inline]
    fn serialize_char(self, value: char) -> Done {
        let mut bytes = [0; 4];
        Ok(self.0.write(value.encode_utf8(&mut bytes).as_bytes())?)
    }

    #[inline]
    fn serialize_str(mut self, value: &str) -> Done {
        self.bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(mut self, value: &[u8]) -> Done {
        self.bytes(value)
    }

    #[inline]
    fn serialize_none(mut self) -> Done {
        self.byte(0)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(mut self, value: &T) -> Done {
        self.byte(1)?;
        self.part(value)
    }

    #[inline]
    fn serialize_unit(self) -> Done {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Done {
        self.variant(index).map(drop)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(mut self, _: &'static str, value: &T) -> Done {
        self.part(value)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Done {
        self.variant(index)?.part(value)
    }

    #[inline]
    fn serialize_seq(self, length: Option<usize>) -> Result<Self, NotShort> {
        self.length(length)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, NotShort> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NotShort> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotShort> {
        self.variant(index)
    }

    #[inline]
    fn serialize_map(self, length: Option<usize>) -> Result<Self, NotShort> {
        self.length(length)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NotShort> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotShort> {
        self.variant(index)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// All compounds are their parts, one after the other.
macro_rules! compounds {
    ($($compound:ident: $($method:ident($($name:ident)?)),*;)*) => {$(
        impl ser::$compound for Hashing<'_> {
            type Ok = ();
            type Error = NotShort;
            $(
                #[inline]
                fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Done {
                    self.part(value)
                }
            )*
            #[inline]
            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

compounds! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(_name);
    SerializeStructVariant: serialize_field(_name);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;
    use crate::hash::xxh3;

    #[derive(Clone, Debug, Serialize)]
    enum Shape {
        Nothing,
        One(i16),
        Two(u8, i64),
        Named { id: u64, tag: Option<char> },
    }

    #[derive(Clone, Debug, Serialize)]
    struct Unit;

    #[derive(Clone, Debug, Serialize)]
    struct Wrapped(i32);

    #[derive(Clone, Debug, Serialize)]
    struct Pair(u16, bool);

    #[derive(Clone, Debug, Serialize)]
    struct Named {
        id: u32,
        name: String,
    }

    /// The short hash is that of bincode's bytes, or there is none and they are long or odd.
    fn agrees<T: Serialize>(value: &T) {
        let bytes = bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap();
        match short_hash_of(value) {
            Some(hash) => assert_eq!(hash, xxh3(&bytes), "of {bytes:02x?}"),
            None => assert!(bytes.len() > 32 || bytes.contains(&254), "no hash of {bytes:02x?}"),
        }
    }

    #[test]
    fn numbers_hash_as_they_are_written_at_every_width() {
        for bits in 0..64 {
            for near in [-6_i64, -1, 0, 1, 5] {
                let number = (1_u64 << bits).wrapping_add_signed(near);
                agrees(&(number, number as u32, number as u16, number as u8));
                agrees(&(number.cast_signed(), number as i32, number as i16, number as i8));
                agrees(&(u128::from(number), i128::from(number.cast_signed())));
            }
        }
        for number in 245..260_u64 {
            agrees(&(number, -(number.cast_signed())));
        }
        agrees(&(i64::MIN, i64::MAX, i16::MIN, i32::MIN));
        agrees(&(u128::MAX, 1_u8));
        agrees(&(i128::MIN, 1_u8));
    }

    proptest! {
        #[test]
        fn every_shape_hashes_as_it_is_written(
            (a, b, c) in any::<(u64, i64, u32)>(),
            (flag, letter, floats) in any::<(bool, char, (f32, f64))>(),
            text in ".{0,14}",
            list in proptest::collection::vec(any::<u16>(), 0..8),
        ) {
            agrees(&(c, text.clone()));
            agrees(&Named { id: c, name: text.clone() });
            agrees(&(flag, letter, floats.0));
            agrees(&(floats.1, Unit, (), Wrapped(b as i32), Pair(a as u16, flag)));
            agrees(&(Some(a), None::<u8>, Some(text.as_str())));
            agrees(&[Shape::Nothing, Shape::One(b as i16), Shape::Two(a as u8, b)]);
            agrees(&Shape::Named { id: a, tag: flag.then_some(letter) });
            agrees(&list);
            agrees(&list.iter().map(|at| (*at, flag)).collect::<BTreeMap<_, _>>());
            agrees(&(list.as_slice(), text.as_str()));
        }
    }
}
