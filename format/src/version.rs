//! The window of format versions, and the magic numbers.

use crate::error::FormatError;

/// The version that this build writes.
pub const FORMAT_VERSION: u16 = 1;

/// The oldest version that this build reads.
pub const FORMAT_VERSION_OLDEST: u16 = 1;

/// First and last bytes of a segment.
pub(crate) const MAGIC_SEGMENT: [u8; 4] = *b"LTSG";
/// First bytes of a manifest.
pub(crate) const MAGIC_MANIFEST: [u8; 4] = *b"LTMF";
/// First bytes of a member of the numbered sequence.
pub(crate) const MAGIC_SEQUENCE: [u8; 4] = *b"LTSQ";

/// Checks the magic number first and the version second, so that another file is not called a newer release.
pub(crate) fn check_head(
    part: &'static str,
    magic: ([u8; 4], [u8; 4]),
    version: u16,
) -> Result<(), FormatError> {
    let (found, expected) = magic;
    if found != expected {
        return Err(FormatError::Magic { part, found });
    }
    if (FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&version) {
        Ok(())
    } else {
        Err(FormatError::Version {
            part,
            found: version,
            oldest: FORMAT_VERSION_OLDEST,
            newest: FORMAT_VERSION,
        })
    }
}
