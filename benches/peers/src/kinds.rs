//! The types of keys and values that the bars are about.

use std::fmt;
use std::hash::Hash;

use lowtide_format::{Key, Value};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A hundred bytes in the slot itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hundred(pub [u8; 100]);

impl Hundred {
    /// Made from a number, which stands in its first eight bytes.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let mut bytes = [7; 100];
        if let Some(head) = bytes.first_chunk_mut::<8>() {
            *head = number.to_le_bytes();
        }
        Self(bytes)
    }

    /// Changes it a little.
    pub fn step(&mut self) {
        if let Some(head) = self.0.first_mut() {
            *head = head.wrapping_add(1);
        }
    }
}

impl Serialize for Hundred {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

struct HundredVisitor;

impl Visitor<'_> for HundredVisitor {
    type Value = Hundred;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("100 bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Hundred, E> {
        bytes.try_into().map(Hundred).map_err(|_| E::invalid_length(bytes.len(), &self))
    }
}

impl<'de> Deserialize<'de> for Hundred {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(HundredVisitor)
    }
}

/// A type of key and one of value, both made from a number.
pub trait Kind: 'static {
    /// As the bars spell it.
    const NAME: &'static str;
    /// The key.
    type K: Key + Hash;
    /// The value.
    type V: Value;
    /// The key of that number.
    fn key(number: u64) -> Self::K;
    /// The value of that number.
    fn value(number: u64) -> Self::V;
    /// Changes a value in place.
    fn change(value: &mut Self::V);
}

/// u64 → u64.
pub struct Numbers;
/// u64 → 100 bytes.
pub struct Hundreds;
/// String → u64.
pub struct Texts;
/// (u32, String) → u64.
pub struct Pairs;

impl Kind for Numbers {
    const NAME: &'static str = "u64→u64";
    type K = u64;
    type V = u64;
    fn key(number: u64) -> u64 {
        number
    }
    fn value(number: u64) -> u64 {
        number
    }
    fn change(value: &mut u64) {
        *value = value.wrapping_add(1);
    }
}

impl Kind for Hundreds {
    const NAME: &'static str = "u64→100 bytes";
    type K = u64;
    type V = Hundred;
    fn key(number: u64) -> u64 {
        number
    }
    fn value(number: u64) -> Hundred {
        Hundred::of(number)
    }
    fn change(value: &mut Hundred) {
        value.step();
    }
}

impl Kind for Texts {
    const NAME: &'static str = "String→u64";
    type K = String;
    type V = u64;
    fn key(number: u64) -> String {
        format!("customer-{number:08}")
    }
    fn value(number: u64) -> u64 {
        number
    }
    fn change(value: &mut u64) {
        *value = value.wrapping_add(1);
    }
}

impl Kind for Pairs {
    const NAME: &'static str = "(u32,String)→u64";
    type K = (u32, String);
    type V = u64;
    fn key(number: u64) -> (u32, String) {
        ((number % 1_000) as u32, format!("customer-{number:08}"))
    }
    fn value(number: u64) -> u64 {
        number
    }
    fn change(value: &mut u64) {
        *value = value.wrapping_add(1);
    }
}
