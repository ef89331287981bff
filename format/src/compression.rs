//! Compression of blocks, footers and bodies.
//!
//! Owns: which compressors there are and their numbers on disk, and that decompression is bounded.
//! Does not own: checksums; the callers verify those of the stored bytes first.

use std::borrow::Cow;
use std::sync::Arc;

use zstd::bulk;
use zstd::zstd_safe;

use crate::codec::DecodeLimits;
use crate::error::FormatError;

/// How bytes are compressed before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Stored as they are.
    None,
    /// zstd at this level, 1 (fast) to 19 (small); bytes that do not shrink are stored as they are.
    Zstd {
        /// The level; others than 1 to 19 are moved to the nearest.
        level: i32,
    },
}

impl Default for Compression {
    /// zstd at level 1.
    fn default() -> Self {
        Self::Zstd { level: 1 }
    }
}

/// How some stored bytes are compressed. The numbers are those on disk: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Packing {
    Plain = 1,
    Zstd = 2,
}

impl Packing {
    pub(crate) fn from_tag(part: &'static str, tag: u8) -> Result<Self, FormatError> {
        match tag {
            1 => Ok(Self::Plain),
            2 => Ok(Self::Zstd),
            _ => Err(FormatError::Invalid { part, problem: "its compression has no known number" }),
        }
    }
}

/// Compresses pieces one after the other; its memory is used again.
pub(crate) struct Compressor {
    zstd: Option<bulk::Compressor<'static>>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Result<Self, FormatError> {
        let zstd = match compression {
            Compression::None => None,
            Compression::Zstd { level } => Some(
                bulk::Compressor::new(level.clamp(1, 19)).map_err(|source| failed("compressor", source))?,
            ),
        };
        Ok(Self { zstd })
    }

    /// Whether it may make anything shorter.
    pub(crate) fn compresses(&self) -> bool {
        self.zstd.is_some()
    }

    /// Appends `raw` to `out`, compressed if that makes it shorter; returns how it is stored.
    pub(crate) fn append(
        &mut self,
        part: &'static str,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Packing, FormatError> {
        if let Some(zstd) = &mut self.zstd {
            let packed = zstd.compress(raw).map_err(|source| failed(part, source))?;
            if packed.len() < raw.len() {
                out.extend_from_slice(&packed);
                return Ok(Packing::Zstd);
            }
        }
        out.extend_from_slice(raw);
        Ok(Packing::Plain)
    }
}

/// What is needed to unpack some stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) part: &'static str,
    pub(crate) packing: Packing,
    pub(crate) raw_length: u64,
    pub(crate) stored: &'a [u8],
}

/// Unpacks pieces one after the other; its memory is used again.
pub(crate) struct Decompressor {
    zstd: Option<bulk::Decompressor<'static>>,
    limits: DecodeLimits,
}

impl Decompressor {
    pub(crate) fn new(limits: DecodeLimits) -> Self {
        Self { zstd: None, limits }
    }

    pub(crate) fn limits(&self) -> DecodeLimits {
        self.limits
    }

    /// The raw bytes: exactly as many as declared, no more than the limit, from exactly one frame.
    ///
    /// Costs nothing for what is stored as it is. Decompression in one step takes no window beside the output, whatever the frame asks for.
    pub(crate) fn unpack<'a>(&mut self, packed: Packed<'a>) -> Result<Cow<'a, [u8]>, FormatError> {
        let Packed { part, packing, raw_length, stored } = packed;
        self.limits.check(part, raw_length)?;
        let invalid = |problem| FormatError::Invalid { part, problem };
        match packing {
            Packing::Plain if raw_length == stored.len() as u64 => Ok(Cow::Borrowed(stored)),
            Packing::Plain => Err(invalid("its stored and raw lengths differ without compression")),
            Packing::Zstd => {
                // Both are checked before anything is allocated: a forged length must agree with the frame's own.
                // Nothing is never compressed; a frame of length zero could be a skippable one, which holds anything.
                if raw_length == 0
                    || zstd_safe::get_frame_content_size(stored).ok().flatten() != Some(raw_length)
                {
                    return Err(invalid("its frame declares another length"));
                }
                if zstd_safe::find_frame_compressed_size(stored).ok() != Some(stored.len()) {
                    return Err(invalid("it is not exactly one frame"));
                }
                let capacity =
                    usize::try_from(raw_length).map_err(|_| invalid("its length is out of range"))?;
                let raw = self.zstd()?.decompress(stored, capacity).map_err(|source| failed(part, source))?;
                if raw.len() == capacity {
                    Ok(Cow::Owned(raw))
                } else {
                    Err(invalid("it unpacks to another length"))
                }
            }
        }
    }

    fn zstd(&mut self) -> Result<&mut bulk::Decompressor<'static>, FormatError> {
        let zstd = match self.zstd.take() {
            Some(zstd) => zstd,
            None => bulk::Decompressor::new().map_err(|source| failed("decompressor", source))?,
        };
        Ok(self.zstd.insert(zstd))
    }
}

fn failed(part: &'static str, source: std::io::Error) -> FormatError {
    FormatError::Compression { part, source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(raw: &[u8]) -> (Packing, Vec<u8>) {
        let mut out = Vec::new();
        let packing = Compressor::new(Compression::default()).unwrap().append("test", raw, &mut out).unwrap();
        (packing, out)
    }

    fn unpack(
        packing: Packing,
        raw_length: u64,
        stored: &[u8],
        bytes_max: u64,
    ) -> Result<Vec<u8>, FormatError> {
        Decompressor::new(DecodeLimits { bytes_max })
            .unpack(Packed { part: "test", packing, raw_length, stored })
            .map(Cow::into_owned)
    }

    #[test]
    fn what_does_not_shrink_is_stored_as_it_is() {
        assert_eq!(packed(b"abc"), (Packing::Plain, b"abc".to_vec()));
        let (packing, stored) = packed(&[7; 1000]);
        assert_eq!(packing, Packing::Zstd);
        assert!(stored.len() < 100);
        assert_eq!(unpack(packing, 1000, &stored, 1000).unwrap(), [7; 1000]);
    }

    #[test]
    fn a_wrong_length_a_second_frame_and_a_tail_are_refused() {
        let (packing, stored) = packed(&[7; 1000]);
        for length in [0, 999, 1001, u64::MAX] {
            assert!(unpack(packing, length, &stored, u64::MAX).is_err(), "{length}");
        }
        assert!(unpack(packing, 1000, &stored, 999).is_err(), "above the limit");
        let twice = [stored.clone(), stored.clone()].concat();
        assert!(unpack(packing, 2000, &twice, 4000).is_err());
        assert!(unpack(packing, 1000, &twice, 4000).is_err());
        assert!(unpack(packing, 1000, &[stored.as_slice(), &[0]].concat(), 4000).is_err());
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
        assert!(unpack(packing, 1000, &[stored.as_slice(), &skippable].concat(), 4000).is_err());
        // A skippable frame has no content.
        assert!(unpack(packing, 0, &skippable, 4000).is_err());
    }
}
