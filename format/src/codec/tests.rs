use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use crate::error::FormatErrorKind;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    id: u64,
    items: Vec<String>,
    note: Option<Vec<u8>>,
}

fn encoded<T: Value>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    AutoCodec.encode(value, &mut out).unwrap();
    out
}

fn survives<T: Key + Debug>(value: &T) {
    let bytes = encoded(value);
    assert_eq!(&Codec::<T>::decode(&AutoCodec, &bytes, DecodeLimits::default()).unwrap(), value);
    assert_eq!(value.key_hash(), xxh3(&bytes), "the hash is that of the encoding");
}

fn identity<T: Value>() -> CodecIdentity {
    Codec::<T>::identity(&AutoCodec)
}

#[test]
fn plain_types_are_plain_bytes() {
    assert_eq!(encoded(&0x0102_0304_u32), [4, 3, 2, 1]);
    assert_eq!(encoded(&-1_i16), [0xff, 0xff]);
    assert_eq!(encoded(&1_usize), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded(&true), [1]);
    assert!(encoded(&()).is_empty());
    assert_eq!(encoded(&"ab".to_owned()), *b"ab");
    assert_eq!(encoded(&vec![1_u8, 2]), [1, 2]);
    assert_eq!(encoded(&1.5_f64), 1.5_f64.to_le_bytes());
}

proptest! {
    #[test]
    fn every_value_survives_and_hashes_as_its_encoding(
        a: u64, b: i8, c: String, d: Vec<u8>, e: u128, f: (u16, bool, i32), g: usize, h: i64, i: u8
    ) {
        survives(&a);
        survives(&b);
        survives(&c);
        survives(&c.clone().into_boxed_str());
        survives(&d);
        survives(&d.clone().into_boxed_slice());
        survives(&e);
        survives(&f);
        survives(&g);
        survives(&h);
        survives(&i);
        survives(&(a as u32));
        survives(&(h as isize));
        survives(&());
        survives(&f.1);
        survives(&(a, c.clone()));
        survives(&Order { id: a, items: vec![c.clone(); 3], note: Some(d.clone()) });
        survives(&BTreeMap::from([(a, c)]));
    }

    #[test]
    fn hostile_bytes_are_a_value_or_an_error(bytes: Vec<u8>) {
        let limits = DecodeLimits::default();
        let _ = Codec::<Order>::decode(&AutoCodec, &bytes, limits);
        let _ = Codec::<BTreeMap<String, Vec<u64>>>::decode(&AutoCodec, &bytes, limits);
        let _ = Codec::<bool>::decode(&AutoCodec, &bytes, limits);
        let _ = Codec::<String>::decode(&AutoCodec, &bytes, limits);
        let _ = Codec::<(char, u128)>::decode(&AutoCodec, &bytes, limits);
    }
}

#[test]
fn a_borrowed_key_finds_the_owned_one() {
    let (text, bytes) = ("user-1".to_owned(), vec![1_u8, 2]);
    assert_eq!(Lookup::<String>::lookup_hash("user-1"), text.key_hash());
    assert!(Lookup::<String>::equals("user-1", &text));
    assert!(!Lookup::<String>::equals("user-2", &text));
    assert_eq!(Lookup::<Vec<u8>>::lookup_hash([1_u8, 2].as_slice()), bytes.key_hash());
    assert!(Lookup::<Vec<u8>>::equals([1_u8, 2].as_slice(), &bytes));
    assert!(Lookup::<u64>::equals(&7_u64, &7));
}

#[test]
fn bytes_of_another_length_are_not_a_number() {
    let limits = DecodeLimits::default();
    for length in [0, 7, 9] {
        assert!(Codec::<u64>::decode(&AutoCodec, &vec![1; length], limits).is_err(), "{length} bytes");
    }
    assert!(Codec::<bool>::decode(&AutoCodec, &[2], limits).is_err());
    assert!(Codec::<()>::decode(&AutoCodec, &[0], limits).is_err());
    assert!(Codec::<String>::decode(&AutoCodec, &[0xff], limits).is_err());
    let mut pair = encoded(&(1_u8, 2_u8));
    pair.push(0);
    let error = Codec::<(u8, u8)>::decode(&AutoCodec, &pair, limits).unwrap_err();
    assert!(matches!(error, FormatError::TrailingBytes { bytes: 1, .. }), "{error}");
}

#[test]
fn bytes_above_the_limit_are_refused_before_they_are_read() {
    let error = Codec::<Vec<u8>>::decode(&AutoCodec, &[0; 11], DecodeLimits { bytes_max: 10 }).unwrap_err();
    assert_eq!(error.kind(), FormatErrorKind::LimitExceeded);
}

#[test]
fn a_fingerprint_tells_width_sign_and_type() {
    let all = [
        identity::<u32>(),
        identity::<u64>(),
        identity::<i64>(),
        identity::<f64>(),
        identity::<String>(),
        identity::<Vec<u8>>(),
        identity::<()>(),
        identity::<bool>(),
        identity::<Order>(),
        identity::<(u32, u32)>(),
        identity::<Vec<u32>>(),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{one} twice");
    }
    assert_eq!(identity::<String>(), identity::<Box<str>>(), "the bytes are the same");
    assert_eq!(identity::<u64>(), identity::<usize>());
}
