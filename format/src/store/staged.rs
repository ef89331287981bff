//! What a killed writer leaves on a local disk: staging files `name#number`, which no listing shows.

use std::path::Path as FilePath;

use super::{Operation, Store, StoreError};
use crate::path::{ObjectClass, ObjectPath};

impl Store {
    /// Removes staging files of uploads begun before `before_millis` (milliseconds since 1970, by the upload id in
    /// the name), and those of members of the sequence, whose create then fails and can be repeated.
    ///
    /// Only names that are ours are touched. Returns how many were removed; none on other stores than local disk.
    ///
    /// # Errors
    ///
    /// The first failure to read a directory or remove a file.
    pub async fn sweep_staged(&self, before_millis: u64) -> Result<u64, StoreError> {
        let Some(root) = self.local_root.clone() else { return Ok(0) };
        let root = root.join((*self.prefix).as_ref());
        let display = root.display().to_string();
        let swept = tokio::task::spawn_blocking(move || sweep(&root, before_millis)).await;
        swept.unwrap_or_else(|source| Err(StoreError::new(Operation::Delete, &display, source.into())))
    }
}

fn sweep(root: &FilePath, before_millis: u64) -> Result<u64, StoreError> {
    let mut removed = 0;
    for class in [ObjectClass::Sequence, ObjectClass::Manifest, ObjectClass::Data] {
        let folder = root.join(class.folder());
        let failed = |source| StoreError::of_local(Operation::List, &folder, source);
        let files = match std::fs::read_dir(&folder) {
            Ok(files) => files,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for file in files {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            if name.to_str().is_some_and(|name| is_stale(class, name, before_millis)) {
                match std::fs::remove_file(file.path()) {
                    Ok(()) => removed += 1,
                    // Its writer was faster.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(StoreError::of_local(Operation::Delete, &file.path(), error)),
                }
            }
        }
    }
    Ok(removed)
}

fn is_stale(class: ObjectClass, file: &str, before_millis: u64) -> bool {
    let Some((name, number)) = file.rsplit_once('#') else { return false };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let path = ObjectPath::parse(&format!("{}/{name}", class.folder()));
    path.is_some_and(|path| path.upload().is_none_or(|upload| upload.millis() < before_millis))
}
