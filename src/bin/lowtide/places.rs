//! Directories of checkpoints on local disk, as commands name them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lowtide::Store;

use super::Failure;

/// Folder that only a directory of checkpoints has: its numbered sequence.
const SEQUENCE_FOLDER: &str = "seq";

/// A directory that holds the checkpoints of one job.
pub(super) struct Place {
    /// Its path, as the command's argument begins it.
    pub(super) path: PathBuf,
    /// The same directory as a store.
    pub(super) store: Store,
}

/// The store at a directory that has to be there: a command that only looks must not create it.
pub(super) fn store_at(directory: &Path) -> Result<Store, Failure> {
    fs::read_dir(directory)
        .map_err(|source| Failure::Directory { directory: directory.to_owned(), source })?;
    Ok(Store::open_local(directory).map_err(lowtide::Error::from)?)
}

/// Every directory of checkpoints at or below `directory`, in the order of their names.
pub(super) fn places_below(directory: &Path) -> Result<Vec<Place>, Failure> {
    let failed = |path: &Path, source| Failure::Directory { directory: path.to_owned(), source };
    let mut places = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut below = subfolders(&folder).map_err(|source| failed(&folder, source))?;
        if below.iter().any(|folder| folder.ends_with(SEQUENCE_FOLDER)) {
            places.push(Place { store: store_at(&folder)?, path: folder });
        } else {
            below.sort();
            folders.extend(below);
        }
    }
    if places.is_empty() {
        return Err(Failure::Usage(format!("no checkpoints in {} or below", directory.display())));
    }
    places.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(places)
}

/// The one directory of checkpoints at or below `directory`.
pub(super) fn place_below(directory: &Path) -> Result<Place, Failure> {
    let mut places = places_below(directory)?;
    match places.pop() {
        Some(place) if places.is_empty() => Ok(place),
        _ => {
            let directory = directory.display();
            Err(Failure::Usage(format!(
                "several jobs have checkpoints below {directory}; name one of their directories"
            )))
        }
    }
}

fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}
