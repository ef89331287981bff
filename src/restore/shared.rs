//! Small objects that hold several files of one restore: each is read once, as a whole.
//!
//! Owns: which objects those are, and their bytes while files of them are still to come. Does not own: checking the bytes
//! of a file (`source`).

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use lowtide_format::{FileEntry, ObjectName};
use tokio::sync::Mutex;

use super::plan::PlannedFile;
use crate::error::Result;

/// Files of one object are read by one request if they lie within so many bytes.
const SPAN_BYTES_MAX: u64 = 8 << 20;

/// The part of an object from the first wanted file to the last.
#[derive(Debug)]
struct SharedObject {
    span: Range<u64>,
    files: usize,
    /// The bytes, once read, and how many files are still to come.
    read: Mutex<(Option<Bytes>, usize)>,
}

/// The objects of a plan that hold more than one of its files.
#[derive(Debug, Default)]
pub(super) struct SharedObjects {
    objects: HashMap<ObjectName, SharedObject>,
}

impl SharedObjects {
    /// Those of these files. O(files).
    pub(super) fn of(files: &[PlannedFile]) -> Self {
        let mut objects: HashMap<ObjectName, SharedObject> = HashMap::new();
        for FileEntry { object, offset, length, .. } in files.iter().map(|planned| &planned.file.entry) {
            let end = offset.saturating_add(*length);
            let known = objects.entry(object.clone()).or_insert_with(|| SharedObject {
                span: *offset..end,
                files: 0,
                read: Mutex::default(),
            });
            known.span = known.span.start.min(*offset)..known.span.end.max(end);
            known.files += 1;
        }
        objects.retain(|_, object| object.files > 1 && object.span.end - object.span.start <= SPAN_BYTES_MAX);
        for object in objects.values_mut() {
            object.read.get_mut().1 = object.files;
        }
        Self { objects }
    }

    /// The bytes of a file that shares its object, `read` giving those of a range that counts from the file's own start;
    /// `None` for a file that does not. To be called once for each file.
    pub(super) async fn take<F, R>(&self, file: &FileEntry, read: R) -> Option<Result<Bytes>>
    where
        F: Future<Output = Result<Bytes>>,
        R: FnOnce(FileEntry, Range<u64>) -> F,
    {
        let object = self.objects.get(&file.object)?;
        let mut guard = object.read.lock().await;
        let (bytes, to_come) = &mut *guard;
        *to_come = to_come.saturating_sub(1);
        if bytes.is_none() {
            let whole = FileEntry { offset: object.span.start, ..file.clone() };
            match read(whole, 0..object.span.end - object.span.start).await {
                Ok(read) => *bytes = Some(read),
                Err(error) => return Some(Err(error)),
            }
        }
        let all = if *to_come == 0 { bytes.take() } else { bytes.clone() };
        let start = file.offset - object.span.start;
        let range = usize::try_from(start).ok().zip(usize::try_from(start.saturating_add(file.length)).ok());
        // A span that the store cut short gives fewer bytes than the file has, which its check then tells.
        let part =
            all.zip(range).map(|(all, (start, end))| all.slice(start.min(all.len())..end.min(all.len())));
        Some(Ok(part.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lowtide_format::{CheckpointId, FileKind, Generation, KeyGroupSet, ManifestFile};

    use super::*;

    fn planned(object: &str, offset: u64, length: u64) -> PlannedFile {
        let object = ObjectName::new(object).unwrap();
        let entry = FileEntry { object, offset, length, checksum: 0, kind: FileKind::Segment };
        let file = ManifestFile {
            entry,
            checkpoint: CheckpointId::FIRST,
            generation: Generation(1),
            owned: true,
            records: None,
            object_bytes: None,
        };
        PlannedFile { file, key_groups: KeyGroupSet::new() }
    }

    #[tokio::test]
    async fn an_object_is_read_once_and_kept_until_its_last_file() {
        let files = [planned("a", 4, 2), planned("b", 0, 3), planned("a", 1, 3), planned("a", 6, 1)];
        let shared = SharedObjects::of(&files);
        let (store, reads) = (Bytes::from_static(b"0123456789"), AtomicUsize::new(0));
        let mut got = Vec::new();
        for file in &files {
            let read = async |entry: FileEntry, range: Range<u64>| {
                reads.fetch_add(1, Ordering::Relaxed);
                let start = (entry.offset + range.start) as usize;
                Ok(store.slice(start..(entry.offset + range.end) as usize))
            };
            got.push(shared.take(&file.file.entry, read).await.map(|bytes| bytes.unwrap()));
        }
        let expected = [Some("45"), None, Some("123"), Some("6")];
        assert_eq!(got, expected.map(|bytes| bytes.map(Bytes::from)));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert!(
            shared.objects[&files[0].file.entry.object].read.lock().await.0.is_none(),
            "Q2: nothing to come"
        );
    }

    #[test]
    fn files_far_apart_are_read_one_by_one() {
        let files = [planned("a", 0, 1), planned("a", SPAN_BYTES_MAX, 1)];
        assert!(SharedObjects::of(&files).objects.is_empty());
    }
}
