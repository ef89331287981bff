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

/// Every directory of checkpoints at or below `directory`, in the order of their names: also one in a directory that is one
/// itself, and one that is called as its own folders are.
pub(super) fn places_below(directory: &Path) -> Result<Vec<Place>, Failure> {
    let failed = |path: &Path, source| Failure::Directory { directory: path.to_owned(), source };
    let mut places = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let (below, files) = contents(&folder).map_err(|source| failed(&folder, source))?;
        let is_sequence = files > 0 && folder.ends_with(SEQUENCE_FOLDER) && folder != directory;
        if let Some(place) = folder.parent().filter(|_| is_sequence) {
            places.push(Place { store: store_at(place)?, path: place.to_owned() });
        }
        folders.extend(below);
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

/// The folders in a folder, and how many files it has.
fn contents(folder: &Path) -> io::Result<(Vec<PathBuf>, u64)> {
    let (mut folders, mut files) = (Vec::new(), 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        } else {
            files += 1;
        }
    }
    Ok((folders, files))
}
