//! A registry from what is published, one listing after the other: no more than one of them is in memory at a time.
//!
//! Owns: what a listing shares with the one before it. Does not own: reading manifests (the caller).

use crate::error::RegistryError;
use crate::fileset::FileSet;
use crate::registry::{Holder, Listing, Registry};

/// A registry that is being rebuilt.
///
/// Memory: the distinct files, and what changes from one listing to the next.
#[derive(Debug, Default)]
pub struct Rebuilding {
    registry: Registry,
    before: Option<(Holder, FileSet)>,
}

impl Rebuilding {
    /// Nothing is listed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one more listing. Those that follow each other share structure, so give them in ascending order of their
    /// ids.
    ///
    /// Cost: O(its files) look-ups; memory O(files that are new + changes from the listing before).
    ///
    /// # Errors
    ///
    /// [`RegistryError::Full`].
    pub fn list(&mut self, Listing { holder, files, owner }: Listing) -> Result<(), RegistryError> {
        let numbers = files.into_iter().map(|file| self.registry.learn(file, owner));
        let mut numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        let (parent, files) = match &self.before {
            Some((holder, files)) => (Some(*holder), files.derive(&numbers)),
            None => (None, FileSet::from_sorted(numbers)),
        };
        self.before = Some((holder, files.clone()));
        self.registry.hold(holder, parent, files);
        Ok(())
    }

    /// The registry of what was listed.
    #[must_use]
    pub fn finish(self) -> Registry {
        self.registry.check_small();
        self.registry
    }
}
