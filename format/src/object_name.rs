//! Names of objects, and a file as a part of an object.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::FormatError;
use crate::hash::{RunningXxh3, xxh3};

/// The longest object name in bytes.
const NAME_BYTES_MAX: usize = 512;

/// Name of an object relative to the root of its job directory, such as `data/….seg`.
///
/// One or more parts joined by `/`, each of ASCII letters, digits and `-_.=+`, none of them `.` or `..`, at most
/// 512 bytes together: nothing in a manifest can name an object outside its root. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// The name with this text.
    ///
    /// # Errors
    ///
    /// [`FormatError::InvalidName`] if the text breaks a rule above.
    pub fn new(text: &str) -> Result<Self, FormatError> {
        let sound_part = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.=+".contains(&byte))
        };
        if text.len() <= NAME_BYTES_MAX && text.split('/').all(sound_part) {
            Ok(Self(Arc::from(text)))
        } else {
            let text = text.chars().take(80).collect();
            Err(FormatError::InvalidName { text, expected: "a relative object name" })
        }
    }

    /// A name that `path` has spelled, which keeps the rules.
    pub(crate) fn spelled(text: String) -> Self {
        Self(Arc::from(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ObjectName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

/// What the bytes of a file are. The numbers are those on disk: do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum FileKind {
    /// A segment of the heap backend.
    Segment = 1,
    /// A table of RocksDB.
    Sst = 2,
    /// Another file of a RocksDB checkpoint (`CURRENT`, `MANIFEST-…`, `OPTIONS-…`).
    RocksMeta = 3,
    /// A file of the changelog.
    Changelog = 4,
}

impl FileKind {
    /// The kind with this number on disk.
    #[must_use]
    pub const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Segment),
            2 => Some(Self::Sst),
            3 => Some(Self::RocksMeta),
            4 => Some(Self::Changelog),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The extension of its object's name, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Segment => "seg",
            Self::Sst => "sst",
            Self::RocksMeta => "meta",
            Self::Changelog => "log",
        }
    }

    /// The kind whose objects have this extension.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        [Self::Segment, Self::Sst, Self::RocksMeta, Self::Changelog]
            .into_iter()
            .find(|kind| kind.extension() == extension)
    }
}

/// Identity of a file: where its bytes are. Two uploads of the same bytes are two files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The object that holds it.
    pub object: ObjectName,
    /// Where it begins in the object, in bytes.
    pub offset: u64,
}

/// A file: the part of an object that a manifest lists, with what is needed to know it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileEntry {
    /// The object that holds it.
    pub object: ObjectName,
    /// Where it begins in the object, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// xxh3-64 of its bytes.
    pub checksum: u64,
    /// What the bytes are.
    pub kind: FileKind,
}

impl FileEntry {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> FileId {
        FileId { object: self.object.clone(), offset: self.offset }
    }

    /// Checks that `bytes` are those of this file, by length and checksum.
    ///
    /// # Errors
    ///
    /// [`FormatError::Truncated`], [`FormatError::TrailingBytes`] or [`FormatError::Checksum`], with the object's
    /// name.
    pub fn check(&self, bytes: &[u8]) -> Result<(), FormatError> {
        self.judge(bytes.len() as u64, || xxh3(bytes))
    }

    /// As [`FileEntry::check`], for bytes that come one piece after the other.
    #[must_use]
    pub fn check_pieces(&self) -> FileCheck {
        FileCheck { entry: self.clone(), have: 0, sum: RunningXxh3::default() }
    }

    fn judge(&self, have: u64, checksum: impl FnOnce() -> u64) -> Result<(), FormatError> {
        let part = "file";
        let result = if have < self.length {
            Err(FormatError::Truncated { part, need: self.length, have })
        } else if have > self.length {
            Err(FormatError::TrailingBytes { part, bytes: have - self.length })
        } else {
            match checksum() {
                computed if computed == self.checksum => Ok(()),
                computed => Err(FormatError::Checksum { part, stored: self.checksum, computed }),
            }
        };
        result.map_err(|error| error.in_object(self.object.as_str()))
    }
}

/// What is known of the bytes of a file so far.
#[derive(Clone)]
pub struct FileCheck {
    entry: FileEntry,
    have: u64,
    sum: RunningXxh3,
}

impl FileCheck {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.have = self.have.saturating_add(bytes.len() as u64);
        self.sum.update(bytes);
    }

    /// Whether those were the bytes of the file.
    ///
    /// # Errors
    ///
    /// As [`FileEntry::check`].
    pub fn finish(self) -> Result<(), FormatError> {
        self.entry.judge(self.have, || self.sum.finish())
    }
}

impl std::fmt::Debug for FileCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCheck")
            .field("entry", &self.entry)
            .field("have", &self.have)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_its_root_is_refused() {
        for text in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a b", "a%2f", "ä", "a\0", "a#1"]
        {
            assert!(ObjectName::new(text).is_err(), "{text:?}");
        }
        assert!(ObjectName::new(&"a".repeat(513)).is_err());
        assert_eq!(ObjectName::new("data/0-1.seg").unwrap().as_str(), "data/0-1.seg");
    }

    #[test]
    fn every_kind_of_file_survives_its_tag_and_its_extension() {
        for kind in [FileKind::Segment, FileKind::Sst, FileKind::RocksMeta, FileKind::Changelog] {
            assert_eq!(FileKind::from_tag(kind.tag()), Some(kind));
            assert_eq!(FileKind::from_extension(kind.extension()), Some(kind));
        }
        assert_eq!(FileKind::from_tag(0), None, "a zeroed byte is no kind");
    }

    #[test]
    fn other_bytes_of_the_same_length_are_not_the_file() {
        let entry = FileEntry {
            object: ObjectName::new("data/x.seg").unwrap(),
            offset: 0,
            length: 3,
            checksum: xxh3(b"abc"),
            kind: FileKind::Segment,
        };
        assert!(entry.check(b"abc").is_ok());
        assert!(
            entry.check(b"abd").unwrap_err().to_string().starts_with("object data/x.seg: file checksum is")
        );
        assert!(entry.check(b"ab").is_err());
        assert!(entry.check(b"abcd").is_err());
    }
}
