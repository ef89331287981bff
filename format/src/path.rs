//! Object names: the one place that spells and parses them.
//!
//! ```text
//! seq/00000000000000000042               member 42 of the numbered sequence
//! meta/chk-7-<upload id>                 manifest of checkpoint 7
//! data/<upload id>-<number>.seg          a data file; .sst, .meta and .log likewise
//! ```
//!
//! A name in any other spelling is not ours: parsing gives nothing, and a sweep leaves it alone.

use crate::ids::{CheckpointId, UploadId, parse_decimal};
use crate::object_name::{FileKind, ObjectName};

/// Digits of a sequence number, so that listings come in numeric order: as many as 64 bits can need.
const SEQUENCE_DIGITS: usize = 20;

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectClass {
    /// A member of the numbered sequence.
    Sequence,
    /// A manifest.
    Manifest,
    /// A data object: segments, tables, changelog files.
    Data,
}

impl ObjectClass {
    /// The folder of its objects, without a slash.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Sequence => "seq",
            Self::Manifest => "meta",
            Self::Data => "data",
        }
    }

    /// The class of an object by the folder of its name, which may have any other folders before it.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let folder = path.rsplit('/').nth(1)?;
        [Self::Sequence, Self::Manifest, Self::Data].into_iter().find(|class| class.folder() == folder)
    }
}

/// A parsed object name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectPath {
    /// A member of the numbered sequence.
    Sequence {
        /// Its number.
        number: u64,
    },
    /// A manifest.
    Manifest {
        /// The checkpoint it describes.
        checkpoint: CheckpointId,
        /// Makes the name unique to one attempt.
        upload: UploadId,
    },
    /// A data object.
    Data {
        /// Unique to one attempt of one subtask.
        upload: UploadId,
        /// Number of the object within the upload.
        number: u32,
        /// What its bytes are.
        kind: FileKind,
    },
}

impl ObjectPath {
    /// The name, relative to the root of the job directory.
    #[must_use]
    pub fn name(self) -> ObjectName {
        let folder = self.class().folder();
        ObjectName::spelled(match self {
            Self::Sequence { number } => format!("{folder}/{number:0SEQUENCE_DIGITS$}"),
            Self::Manifest { checkpoint, upload } => format!("{folder}/{checkpoint}-{upload}"),
            Self::Data { upload, number, kind } => format!("{folder}/{upload}-{number}.{}", kind.extension()),
        })
    }

    /// The meaning of a name; `None` if it is not spelled as one of ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (folder, rest) = name.split_once('/')?;
        match folder {
            "seq" => {
                let sound = rest.len() == SEQUENCE_DIGITS && rest.bytes().all(|byte| byte.is_ascii_digit());
                if sound { rest.parse().ok().map(|number| Self::Sequence { number }) } else { None }
            }
            "meta" => {
                let (checkpoint, upload) = rest.rsplit_once('-')?;
                Some(Self::Manifest { checkpoint: checkpoint.parse().ok()?, upload: upload.parse().ok()? })
            }
            "data" => {
                let (stem, extension) = rest.split_once('.')?;
                let (upload, number) = stem.split_once('-')?;
                let number = u32::try_from(parse_decimal(number)?).ok()?;
                let kind = FileKind::from_extension(extension)?;
                Some(Self::Data { upload: upload.parse().ok()?, number, kind })
            }
            _ => None,
        }
    }

    /// What the object is for.
    #[must_use]
    pub const fn class(self) -> ObjectClass {
        match self {
            Self::Sequence { .. } => ObjectClass::Sequence,
            Self::Manifest { .. } => ObjectClass::Manifest,
            Self::Data { .. } => ObjectClass::Data,
        }
    }

    /// The upload that made it; `None` for members of the sequence.
    #[must_use]
    pub const fn upload(self) -> Option<UploadId> {
        match self {
            Self::Sequence { .. } => None,
            Self::Manifest { upload, .. } | Self::Data { upload, .. } => Some(upload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paths(number: u64, millis: u64, random: [u8; 10]) -> Vec<ObjectPath> {
        let upload = UploadId::from_parts(millis, random);
        let checkpoint = CheckpointId::new(number.max(1)).unwrap();
        let mut paths = vec![ObjectPath::Sequence { number }, ObjectPath::Manifest { checkpoint, upload }];
        for kind in [FileKind::Segment, FileKind::Sst, FileKind::RocksMeta, FileKind::Changelog] {
            paths.push(ObjectPath::Data { upload, number: number as u32, kind });
        }
        paths
    }

    proptest! {
        #[test]
        fn every_name_survives_and_keeps_the_rules_of_names(number: u64, millis in 0_u64..1 << 48, random: [u8; 10]) {
            for path in paths(number, millis, random) {
                let name = path.name();
                prop_assert_eq!(ObjectPath::parse(name.as_str()), Some(path));
                prop_assert!(ObjectName::new(name.as_str()).is_ok());
                prop_assert_eq!(ObjectClass::of_path(&format!("some/job/{name}")), Some(path.class()));
            }
        }

        #[test]
        fn what_parses_is_spelled_in_the_one_way(text in "(seq|meta|data)/[-0-9a-f.segchkt]{0,45}") {
            if let Some(path) = ObjectPath::parse(&text) {
                let name = path.name();
                prop_assert_eq!(name.as_str(), text.as_str());
            }
        }
    }

    #[test]
    fn sequence_numbers_sort_as_text_as_they_do_as_numbers() {
        let name = |number| ObjectPath::Sequence { number }.name();
        assert!(name(9) < name(10));
        assert!(name(99) < name(100));
        assert!(name(1 << 53) < name(u64::MAX));
    }

    #[test]
    fn a_second_spelling_is_not_ours() {
        let upload = UploadId::from_parts(1, [1; 10]);
        for text in [
            "seq/42".to_owned(),
            "seq/+0000000000000000042".to_owned(),
            "seq/99999999999999999999".to_owned(),
            format!("meta/chk-07-{upload}"),
            format!("data/{upload}-01.seg"),
            format!("data/{upload}-1.SEG"),
            format!("data/{upload}-1.seg.tmp"),
            format!("data/{upload}-4294967296.seg"),
            "other/x".to_owned(),
        ] {
            assert_eq!(ObjectPath::parse(&text), None, "{text}");
        }
    }
}
