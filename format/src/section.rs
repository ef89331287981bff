//! Sections: how objects leave room for what later releases add.
//!
//! A section is a tag byte, a varint length and that many bytes. A reader skips a section that it does not know,
//! unless bit 7 of the tag is set: then it must understand it. No tag occurs twice.

use crate::cursor::{Cursor, put_bytes};
use crate::error::FormatError;

/// Set in the tag of a section that a reader must understand.
pub(crate) const REQUIRED: u8 = 0x80;

/// Appends a section.
pub(crate) fn put_section(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    put_bytes(out, body);
}

/// The sections of an object by tag.
pub(crate) struct Sections<'a> {
    part: &'static str,
    found: Vec<(u8, &'a [u8])>,
}

impl<'a> Sections<'a> {
    /// Splits `bytes` into sections; those with a tag in `known` are kept.
    pub(crate) fn split(part: &'static str, bytes: &'a [u8], known: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new(part, bytes);
        let mut found: Vec<(u8, &[u8])> = Vec::new();
        // One bit per tag: an object of many unknown sections stays cheap to read.
        let mut seen = [0_u128; 2];
        while !cursor.is_empty() {
            let tag = cursor.u8()?;
            let body = cursor.counted()?;
            let bit = 1_u128 << (tag & 0x7f);
            let [plain, required] = &mut seen;
            let word = if tag & REQUIRED == 0 { plain } else { required };
            if *word & bit != 0 {
                return Err(cursor.invalid("a section occurs twice"));
            }
            *word |= bit;
            if known.contains(&tag) {
                found.push((tag, body));
            } else if tag & REQUIRED != 0 {
                return Err(FormatError::UnknownSection { part, tag });
            }
        }
        Ok(Self { part, found })
    }

    /// The body of the section with this tag, if there is one.
    pub(crate) fn get(&self, tag: u8) -> Option<Cursor<'a>> {
        let body = self.found.iter().find(|(found, _)| *found == tag);
        body.map(|(_, body)| Cursor::new(self.part, body))
    }

    /// The body of a section that every object of its kind has.
    pub(crate) fn need(&self, tag: u8) -> Result<Cursor<'a>, FormatError> {
        self.get(tag).ok_or(FormatError::Invalid { part: self.part, problem: "a section is missing" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FormatErrorKind;

    #[test]
    fn an_unknown_section_is_skipped_unless_it_is_required() {
        let mut bytes = Vec::new();
        put_section(&mut bytes, 3, b"later");
        put_section(&mut bytes, 1 | REQUIRED, b"now");
        let sections = Sections::split("test", &bytes, &[1 | REQUIRED]).unwrap();
        assert_eq!(sections.need(1 | REQUIRED).unwrap().take(3).unwrap(), b"now");
        assert!(sections.get(3).is_none());
        let error = Sections::split("test", &bytes, &[3]).err().unwrap();
        assert_eq!(error.kind(), FormatErrorKind::Incompatible);
    }

    #[test]
    fn a_section_that_is_missing_or_occurs_twice_is_refused() {
        let mut bytes = Vec::new();
        put_section(&mut bytes, 5, b"");
        assert!(Sections::split("test", &bytes, &[5]).unwrap().need(6).is_err());
        put_section(&mut bytes, 5, b"");
        assert!(Sections::split("test", &bytes, &[5]).is_err());
        assert!(Sections::split("test", &bytes, &[]).is_err(), "also if it is unknown");
    }
}
