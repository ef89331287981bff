//! The envelope of manifests and members of the sequence: magic, version, lengths, checksum, packed body.
//!
//! Owns: that a body is whole, of a readable version and unpacked within limits.
//! Does not own: what is in the body.

use crate::codec::DecodeLimits;
use crate::compression::{Compression, Compressor, Decompressor, Packed, Packing};
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::hash::xxh3_of_parts;
use crate::version::{FORMAT_VERSION, check_head};

/// Length of the head in bytes; the last eight are the checksum.
const HEAD_LENGTH: usize = 32;

/// A kind of object that is one envelope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) part: &'static str,
    pub(crate) magic: [u8; 4],
}

impl Envelope {
    /// The whole object around `body`.
    pub(crate) fn seal(self, body: &[u8], compression: Compression) -> Result<Vec<u8>, FormatError> {
        let mut stored = Vec::new();
        let packing = Compressor::new(compression)?.append(self.part, body, &mut stored)?;
        let mut object = Vec::with_capacity(HEAD_LENGTH + stored.len());
        object.extend_from_slice(&self.magic);
        object.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        object.push(packing as u8);
        object.push(0);
        object.extend_from_slice(&(body.len() as u64).to_le_bytes());
        object.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        let checksum = xxh3_of_parts(&[&object, &stored]);
        object.extend_from_slice(&checksum.to_le_bytes());
        object.extend_from_slice(&stored);
        Ok(object)
    }

    /// The body of a whole object. Checks length, magic, version and checksum, in that order.
    pub(crate) fn open(self, object: &[u8], limits: DecodeLimits) -> Result<Vec<u8>, FormatError> {
        let Self { part, magic } = self;
        limits.check(part, object.len() as u64)?;
        let mut cursor = Cursor::new(part, object);
        let head = cursor.take(HEAD_LENGTH as u64)?;
        let mut cursor = Cursor::new(part, head);
        let found = cursor.u32()?.to_le_bytes();
        let version = cursor.u16()?;
        let (packing, zero) = (cursor.u8()?, cursor.u8()?);
        let (raw_length, stored_length) = (cursor.u64()?, cursor.u64()?);
        let checksum = cursor.u64()?;
        check_head(part, (found, magic), version)?;
        let mut cursor = Cursor::new(part, object.get(HEAD_LENGTH..).unwrap_or_default());
        let stored = cursor.take(stored_length)?;
        cursor.finish()?;
        let computed = xxh3_of_parts(&[object.get(..HEAD_LENGTH - 8).unwrap_or_default(), stored]);
        if computed != checksum {
            return Err(FormatError::Checksum { part, stored: checksum, computed });
        }
        if zero != 0 {
            return Err(FormatError::Invalid { part, problem: "a reserved byte is not zero" });
        }
        let packing = Packing::from_tag(part, packing)?;
        let raw = Decompressor::new(limits).unpack(Packed { part, packing, raw_length, stored })?;
        Ok(raw.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FormatErrorKind;

    const TEST: Envelope = Envelope { part: "test", magic: *b"TEST" };

    #[test]
    fn every_flipped_bit_every_cut_and_every_tail_is_refused() {
        for compression in [Compression::None, Compression::default()] {
            let good = TEST.seal(&[5; 300], compression).unwrap();
            assert_eq!(TEST.open(&good, DecodeLimits::default()).unwrap(), [5; 300]);
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(TEST.open(&bad, DecodeLimits::default()).is_err(), "bit {bit}");
            }
            for length in 0..good.len() {
                assert!(TEST.open(&good[..length], DecodeLimits::default()).is_err(), "cut to {length}");
            }
            assert!(TEST.open(&[good.as_slice(), &[0]].concat(), DecodeLimits::default()).is_err());
        }
    }

    #[test]
    fn another_kind_of_object_is_corrupt_and_a_newer_version_incompatible() {
        let mut object = TEST.seal(b"body", Compression::None).unwrap();
        let other = Envelope { part: "other", magic: *b"ELSE" };
        assert_eq!(
            other.open(&object, DecodeLimits::default()).unwrap_err().kind(),
            FormatErrorKind::Corrupt
        );
        object[4] = 2;
        assert_eq!(
            TEST.open(&object, DecodeLimits::default()).unwrap_err().kind(),
            FormatErrorKind::Incompatible
        );
    }
}
