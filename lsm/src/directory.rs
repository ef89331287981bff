//! The local directory of one backend: its database, its hard-linked checkpoints, tables being fetched.
//!
//! Owns: that two backends never share a directory, and that nothing stays when its backend is gone.
//! Does not own: what lies in it.
//!
//! # Invariants
//!
//! - W1. A working directory is made, never found: a name that exists already belongs to somebody else.
//! - W2. It goes with its last user. What a killed process left goes when the next backend starts in the same
//!   parent: the lock file of a directory whose process is gone can be locked.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::LsmError;

const PREFIX: &str = "lowtide-lsm-";
const LOCK: &str = "LOCK.lowtide";

/// Numbers the working directories of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A working directory, removed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct WorkingDirectory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Held for as long as the directory is in use.
    lock: Option<File>,
}

impl WorkingDirectory {
    /// Makes a new directory under `parent`, which comes into being if need be, and removes what dead processes
    /// left there.
    ///
    /// # Errors
    ///
    /// [`LsmError::Io`] naming what could not be made.
    pub fn create(parent: &Path) -> Result<Self, LsmError> {
        fs::create_dir_all(parent).map_err(|source| LsmError::io("create", parent, source))?;
        remove_abandoned(parent);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {}
                // Left by a process of the same number in another container, perhaps alive: not ours.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(source) => return Err(LsmError::io("create", &path, source)),
            }
            let lock_path = path.join(LOCK);
            let lock =
                File::create(&lock_path).map_err(|source| LsmError::io("create", &lock_path, source))?;
            // A file system without locks leaves W2's second half to the user.
            let lock = match lock.try_lock() {
                Ok(()) | Err(TryLockError::Error(_)) => lock,
                // Somebody who cleans up was faster than our lock and is about to remove the directory.
                Err(TryLockError::WouldBlock) => continue,
            };
            // Or was done with it before our lock: what is locked now has no name any more.
            if !lock_path.exists() {
                continue;
            }
            return Ok(Self(Arc::new(Inner { path, lock: Some(lock) })));
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A path inside for something that does not exist yet.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path.join(name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Removed while locked, so that nobody who cleans up meets it half gone. A failure is the next start's work.
        let _ = fs::remove_dir_all(&self.path);
        self.lock.take();
    }
}

/// A directory inside a working directory that goes when it is dropped, and keeps the outer one until then.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    kept: bool,
    // Dropped after `drop` below has run.
    _outer: WorkingDirectory,
}

impl Scratch {
    /// Looks after `name` inside `outer`, whether it exists yet or not.
    #[must_use]
    pub fn new(outer: &WorkingDirectory, name: &str) -> Self {
        Self { path: outer.join(name), kept: false, _outer: outer.clone() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory to the outer one.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the working directories of processes that are gone. What cannot be read or removed stays.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !ours {
            continue;
        }
        // No lock file: its owner is between making the directory and locking it. The next start sees to it if not.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            tracing::info!(path = %entry.path().display(), "removing the working directory of a process that is gone");
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    // W1
    #[test]
    fn two_backends_never_share_a_directory() {
        let parent = tempfile::tempdir().unwrap();
        let a = WorkingDirectory::create(parent.path()).unwrap();
        let b = WorkingDirectory::create(parent.path()).unwrap();
        assert_ne!(a.path(), b.path());
        assert_eq!(entries(parent.path()), 2, "the second start took the first one's directory away");
    }

    #[test]
    fn a_start_beside_others_that_clean_up_gets_a_directory_that_stays() {
        let parent = tempfile::tempdir().unwrap();
        let starts = || {
            for _ in 0..500 {
                let ours = WorkingDirectory::create(parent.path()).unwrap();
                fs::write(ours.join("file"), b"").unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(starts))));
        assert_eq!(entries(parent.path()), 0);
    }

    // W2
    #[test]
    fn a_directory_outlives_its_backend_while_a_checkpoint_is_written_from_it() {
        let parent = tempfile::tempdir().unwrap();
        let outer = WorkingDirectory::create(parent.path()).unwrap();
        let scratch = Scratch::new(&outer, "chk-1");
        fs::create_dir(scratch.path()).unwrap();
        drop(outer);
        assert!(scratch.path().exists());
        drop(scratch);
        assert_eq!(entries(parent.path()), 0);
    }

    #[test]
    fn what_a_dead_process_left_goes_at_the_next_start() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("lowtide-lsm-1-0");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), b"").unwrap();
        fs::write(parent.path().join("somebody-elses-file"), b"").unwrap();
        let ours = WorkingDirectory::create(parent.path()).unwrap();
        assert!(!left.exists() && ours.path().exists());
        assert_eq!(entries(parent.path()), 2, "only what is ours is removed");
    }
}
