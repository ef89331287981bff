//! Checkpoint ids, generations and upload ids, with the one spelling of each.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::error::FormatError;

/// Identifies one checkpoint or savepoint of a job: given by the coordinator, increasing, never reused.
///
/// Never zero, so that zero cannot be both "none" and an id. Printed as `chk-42`; compared as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(NonZeroU64);

impl CheckpointId {
    /// The first id of a job.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The largest id there can be.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The id with this number; `None` for zero.
    #[must_use]
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number, at least 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The id after this one; `None` after the largest.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chk-{}", self.0)
    }
}

impl FromStr for CheckpointId {
    type Err = FormatError;

    /// Parses `chk-42`; leading zeros and signs are refused, so that an id has one spelling.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        text.strip_prefix("chk-").and_then(parse_decimal).and_then(Self::new).ok_or_else(|| {
            FormatError::InvalidName { text: text.to_owned(), expected: "a checkpoint id such as chk-42" }
        })
    }
}

/// A decimal number in its only spelling: digits, no sign, no leading zero.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let sound = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if sound { text.parse().ok() } else { None }
}

/// One life of a job's coordinator; a larger generation fences a smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this one; `None` after the largest.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(generation) => Some(Self(generation)),
            None => None,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl FromStr for Generation {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        text.strip_prefix('g').and_then(parse_decimal).map(Self).ok_or_else(|| FormatError::InvalidName {
            text: text.to_owned(),
            expected: "a generation such as g7",
        })
    }
}

/// Makes the names of one upload unique: a version 7 UUID, so that ids sort by the time they were made.
///
/// Printed as 32 lower-case hexadecimal digits; text order is time order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(u128);

impl UploadId {
    /// The id made at `created_millis` (milliseconds since 1970, 48 bits are kept) with this randomness.
    ///
    /// 74 of the 80 random bits are kept. Time and randomness are arguments: this crate has neither.
    #[must_use]
    pub fn from_parts(created_millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(created_millis, &random).into_uuid().as_u128())
    }

    /// The id with this number; `None` if it is not a version 7 UUID.
    #[must_use]
    pub fn new(id: u128) -> Option<Self> {
        let id = uuid::Uuid::from_u128(id);
        (id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122).then(|| Self(id.as_u128()))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// When it was made, in milliseconds since 1970, by the clock of the maker.
    #[must_use]
    pub const fn millis(self) -> u64 {
        (self.0 >> 80) as u64
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for UploadId {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let digits =
            text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let id = if digits { u128::from_str_radix(text, 16).ok() } else { None };
        id.and_then(Self::new).ok_or_else(|| FormatError::InvalidName {
            text: text.to_owned(),
            expected: "an upload id of 32 hexadecimal digits",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_survives_printing() {
        let id = CheckpointId::new(42).unwrap();
        assert_eq!(id.to_string(), "chk-42");
        assert_eq!(id.to_string().parse::<CheckpointId>().unwrap(), id);
        assert_eq!(Generation(7).to_string().parse::<Generation>().unwrap(), Generation(7));
        let upload = UploadId::from_parts(1_700_000_000_000, [0xff; 10]);
        assert_eq!(upload.millis(), 1_700_000_000_000);
        assert_eq!(upload.to_string().parse::<UploadId>().unwrap(), upload);
    }

    #[test]
    fn a_second_spelling_of_an_id_is_refused() {
        for text in ["chk-0", "chk-042", "chk-+1", "chk-", "chk-18446744073709551616", "CHK-1", "1"] {
            assert!(text.parse::<CheckpointId>().is_err(), "{text}");
        }
        let upload = UploadId::from_parts(1, [1; 10]).to_string();
        assert!(upload.to_uppercase().parse::<UploadId>().is_err() || upload == upload.to_uppercase());
        assert!("00000000000000000000000000000000".parse::<UploadId>().is_err(), "not a version 7 UUID");
    }

    #[test]
    fn the_last_checkpoint_id_has_no_successor() {
        assert_eq!(CheckpointId::MAX.next(), None);
        assert_eq!(CheckpointId::FIRST.next(), CheckpointId::new(2));
        assert_eq!(CheckpointId::new(0), None);
    }

    #[test]
    fn upload_ids_sort_by_time_as_numbers_and_as_text() {
        let early = UploadId::from_parts(999, [0xff; 10]);
        let late = UploadId::from_parts(1000, [0; 10]);
        assert!(early < late);
        assert!(early.to_string() < late.to_string());
    }
}
