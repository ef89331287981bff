//! What lies in a directory, counted from the file system alone.

use std::fs;
use std::io;
use std::path::Path;

/// Objects of a store on local disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Files that hold state.
    pub(super) data_objects: u64,
    /// Bytes of those files.
    pub(super) data_bytes: u64,
    /// Manifests and the coordinator's own objects.
    pub(super) meta_objects: u64,
    /// Bytes of those.
    pub(super) meta_bytes: u64,
}

/// Folder of the objects that hold state, as FORMAT.md names it.
const DATA_FOLDER: &str = "data";

impl Listing {
    /// Counts every file below `directory`. A file that vanishes meanwhile does not count.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        let mut folders = vec![(directory.to_owned(), false)];
        while let Some((folder, is_data)) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let metadata = match entry.metadata() {
                    Ok(metadata) => metadata,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                if metadata.is_dir() {
                    folders.push((entry.path(), is_data || entry.file_name() == DATA_FOLDER));
                } else {
                    listing.add(metadata.len(), is_data);
                }
            }
        }
        Ok(listing)
    }

    fn add(&mut self, bytes: u64, is_data: bool) {
        if is_data {
            self.data_objects += 1;
            self.data_bytes += bytes;
        } else {
            self.meta_objects += 1;
            self.meta_bytes += bytes;
        }
    }

    pub(super) fn objects(&self) -> u64 {
        self.data_objects + self.meta_objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_data_folder_count_as_data_and_all_others_as_meta() {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in [("data/a.seg", 7), ("data/deep/b.seg", 5), ("seq/1", 3), ("meta/chk-1", 2)] {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; bytes]).unwrap();
        }
        let listing = Listing::of(directory.path()).unwrap();
        assert_eq!((listing.data_objects, listing.data_bytes), (2, 12));
        assert_eq!((listing.meta_objects, listing.meta_bytes, listing.objects()), (2, 5, 4));
    }
}
