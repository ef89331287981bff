//! Holders and the files they list; what a release sets free.
//!
//! Owns: the sets, pins, and the decision that an object may be deleted. Does not own: deleting, nor the order of
//! retention (`retention`).
//!
//! A set is derived from another holder's set by the files in which they differ, so registering costs those files, not
//! all. A release compares the set with one related set: only files in which they differ can have become free, and
//! each of those is looked up in every other set. So the cost of a release is (files changed) × (number of holders).

use std::fmt;

use litemap::LiteMap;
use lowtide_format::{CheckpointId, FileId, ObjectName};

use crate::catalogue::Catalogue;
use crate::claim::Owner;
use crate::error::RegistryError;
use crate::fileset::{FileNumber, FileSet};
use crate::rebuild::Rebuilding;

/// Up to this many files every mutation checks the invariants in debug builds; beyond, tests call the check.
const CHECKED_FILES_MAX: usize = 256;

/// Number of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinId(pub u64);

/// Who lists files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// A completed, retained checkpoint.
    Checkpoint(CheckpointId),
    /// A savepoint.
    Savepoint(CheckpointId),
    /// A checkpoint in flight: the files acknowledged for it so far.
    Pending(CheckpointId),
    /// A checkpoint whose publish may have happened: nothing of it may go.
    Doubtful(CheckpointId),
    /// The latest acknowledged chain of a subtask, which may be the base of its next delta.
    Chain(u32),
    /// What a reader or a checkpoint in flight still needs of another holder.
    Pin(PinId),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(id) => write!(f, "checkpoint {id}"),
            Self::Savepoint(id) => write!(f, "savepoint {id}"),
            Self::Pending(id) => write!(f, "pending checkpoint {id}"),
            Self::Doubtful(id) => write!(f, "doubtful checkpoint {id}"),
            Self::Chain(subtask) => write!(f, "chain of subtask {subtask}"),
            Self::Pin(pin) => write!(f, "pin {}", pin.0),
        }
    }
}

#[derive(Debug, Clone)]
struct Held {
    files: FileSet,
    /// A holder whose set shares structure with this one.
    parent: Option<Holder>,
}

/// An object that nothing lists any more, and who deletes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FreeObject {
    /// The object.
    pub object: ObjectName,
    /// Who deletes it; never [`Owner::Foreign`].
    pub owner: Owner,
}

/// What a release sets free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the returned objects must be deleted or they leak"]
pub struct Released {
    /// Files that nothing lists any more, forgotten now, in order of their identity. Foreign ones are among them.
    pub files: Vec<FileId>,
    /// Objects of which no part is listed any more, in name order, those of others left out.
    pub objects: Vec<FreeObject>,
}

impl Released {
    /// Adds what another release set free.
    pub fn append(&mut self, mut other: Self) {
        self.files.append(&mut other.files);
        self.objects.append(&mut other.objects);
    }
}

/// The files that a holder lists, for [`Registry::rebuild`] and [`Rebuilding`].
#[derive(Clone, Debug)]
pub struct Listing {
    /// Who lists them.
    pub holder: Holder,
    /// The files, in any order.
    pub files: Vec<FileId>,
    /// Who owns them.
    pub owner: Owner,
}

/// Which files are needed, by whom, and who may delete them. See the [crate documentation](crate).
///
/// Memory: the distinct files, plus what differs between related sets.
#[derive(Debug, Default, Clone)]
pub struct Registry {
    held: LiteMap<Holder, Held>,
    catalogue: Catalogue,
    pins_given: u64,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry of what is published, from the listings of all manifests: [`Rebuilding`] takes them one by one.
    ///
    /// Cost: O(all files listed) look-ups; memory O(distinct files + changes from one listing to the next).
    ///
    /// # Errors
    ///
    /// [`RegistryError::Full`].
    pub fn rebuild(listings: impl IntoIterator<Item = Listing>) -> Result<Self, RegistryError> {
        let mut rebuilding = Rebuilding::new();
        for listing in listings {
            rebuilding.list(listing)?;
        }
        Ok(rebuilding.finish())
    }

    /// `holder` lists the files of `base` without `removed`, and `added`, which belong to `owner`.
    ///
    /// Registering the same again changes nothing. Cost: O(added + removed) set operations.
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnknownHolder`] if `base` is not known, [`RegistryError::NotListed`] if it does not list a file
    /// of `removed`, [`RegistryError::Different`] if `holder` lists other files already, [`RegistryError::Full`].
    pub fn register(
        &mut self,
        holder: Holder,
        base: Option<Holder>,
        added: impl IntoIterator<Item = (FileId, Owner)>,
        removed: &[FileId],
    ) -> Result<(), RegistryError> {
        let mut files = match base {
            Some(base) => self.set(base)?.clone(),
            None => FileSet::default(),
        };
        for file in removed {
            let listed = self.catalogue.number(file).is_some_and(|number| files.remove(number));
            if let (false, Some(base)) = (listed, base) {
                return Err(RegistryError::NotListed { file: file.clone(), base });
            }
        }
        let added: Vec<(FileId, Owner)> = added.into_iter().collect();
        if let Some(known) = self.held.get(&holder) {
            return self.registered_again(holder, known, files, &added);
        }
        for (file, owner) in added {
            let number = self.catalogue.learn(file, owner)?;
            files.insert(number);
        }
        self.held.insert(holder, Held { files, parent: base });
        self.check_small();
        Ok(())
    }

    fn registered_again(
        &self,
        holder: Holder,
        known: &Held,
        mut files: FileSet,
        added: &[(FileId, Owner)],
    ) -> Result<(), RegistryError> {
        let mut unknown = 0;
        for (file, _) in added {
            match self.catalogue.number(file) {
                Some(number) => files.insert(number),
                None => unknown += 1,
            }
        }
        if unknown == 0 && files.same(&known.files) {
            return Ok(());
        }
        Err(RegistryError::Different { holder, known: known.files.len(), given: files.len() + unknown })
    }

    /// `holder`, new or known, lists these files as well.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Full`].
    pub fn extend(
        &mut self,
        holder: Holder,
        added: impl IntoIterator<Item = (FileId, Owner)>,
    ) -> Result<(), RegistryError> {
        let mut files = self.held.get(&holder).map(|held| held.files.clone()).unwrap_or_default();
        for (file, owner) in added {
            files.insert(self.catalogue.learn(file, owner)?);
        }
        match self.held.get_mut(&holder) {
            Some(held) => held.files = files,
            None => _ = self.held.insert(holder, Held { files, parent: None }),
        }
        self.check_small();
        Ok(())
    }

    /// `holder` lists exactly these files from now on, whatever it listed before; returns what that sets free.
    ///
    /// Cost: O(files before + files now), times holders for those it lets go.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Full`].
    pub fn replace(
        &mut self,
        holder: Holder,
        files: impl IntoIterator<Item = (FileId, Owner)>,
    ) -> Result<Released, RegistryError> {
        let before = if self.contains(holder) { Some(self.pin(holder)?) } else { None };
        // Nothing is free yet: the pin, if there was something to pin, still lists it.
        let nothing = self.release(holder);
        debug_assert_eq!(nothing, Released::default(), "R1: a pinned file was set free");
        self.register(holder, None, files, &[])?;
        Ok(before.map(|pin| self.release(Holder::Pin(pin))).unwrap_or_default())
    }

    /// The files that `holder` lists and `related` does not; all of them if `related` is not known.
    ///
    /// Cost: the files in which the two differ, if one was derived from the other; all files otherwise.
    #[must_use]
    pub fn difference(&self, holder: Holder, related: Holder) -> Vec<FileId> {
        let Some(held) = self.held.get(&holder) else { return Vec::new() };
        let numbers = match self.held.get(&related) {
            Some(related) => held.files.without(&related.files),
            None => held.files.iter().collect(),
        };
        numbers.into_iter().filter_map(|number| self.catalogue.file(number)).cloned().collect()
    }

    /// Keeps what `holder` lists now until the pin is released as [`Holder::Pin`], whatever becomes of `holder`. O(1).
    ///
    /// # Errors
    ///
    /// [`RegistryError::UnknownHolder`].
    pub fn pin(&mut self, holder: Holder) -> Result<PinId, RegistryError> {
        let files = self.set(holder)?.clone();
        let pin = PinId(self.pins_given);
        self.pins_given += 1;
        self.held.insert(Holder::Pin(pin), Held { files, parent: Some(holder) });
        Ok(pin)
    }

    /// Forgets `holder` and returns what only it listed. An unknown holder sets nothing free.
    ///
    /// Cost: O(files in which its set differs from a related one) × holders.
    pub fn release(&mut self, holder: Holder) -> Released {
        let Some(held) = self.held.remove(&holder) else { return Released::default() };
        let heir = self.heir(holder, held.parent);
        let candidates = match heir.and_then(|heir| self.held.get(&heir)) {
            Some(related) => held.files.without(&related.files),
            None => held.files.iter().collect(),
        };
        let mut released = Released::default();
        for number in candidates {
            if self.held.values().any(|other| other.files.contains(number)) {
                continue;
            }
            let Some((file, last)) = self.catalogue.forget(number) else { continue };
            match last {
                Some(Owner::Foreign) | None => {}
                Some(owner) => released.objects.push(FreeObject { object: file.object.clone(), owner }),
            }
            released.files.push(file);
        }
        released.files.sort_unstable();
        released.objects.sort_unstable();
        self.check_small();
        released
    }

    /// A holder whose set is related to that of `gone`; those derived from `gone` count as derived from it from now on.
    fn heir(&mut self, gone: Holder, parent: Option<Holder>) -> Option<Holder> {
        let mut children = self.held.iter_mut().filter(|(_, held)| held.parent == Some(gone));
        let Some((first, held)) = children.next() else { return parent };
        held.parent = parent;
        let first = *first;
        for (_, held) in children {
            held.parent = Some(first);
        }
        Some(first)
    }

    fn set(&self, holder: Holder) -> Result<&FileSet, RegistryError> {
        self.held.get(&holder).map(|held| &held.files).ok_or(RegistryError::UnknownHolder { holder })
    }

    /// Whether `holder` is known.
    #[must_use]
    pub fn contains(&self, holder: Holder) -> bool {
        self.held.contains_key(&holder)
    }

    /// Whether `holder` lists `file`.
    #[must_use]
    pub fn lists(&self, holder: Holder, file: &FileId) -> bool {
        let number = self.catalogue.number(file);
        number.zip(self.held.get(&holder)).is_some_and(|(number, held)| held.files.contains(number))
    }

    /// The files that `holder` lists, in no particular order; none if it is not known.
    pub fn files(&self, holder: Holder) -> impl Iterator<Item = &FileId> + '_ {
        let set = self.held.get(&holder).map(|held| &held.files);
        set.into_iter().flat_map(FileSet::iter).filter_map(|number| self.catalogue.file(number))
    }

    /// Who lists `file`, in order: the answer to why it is kept. Its reference count is their number.
    #[must_use]
    pub fn holders(&self, file: &FileId) -> Vec<Holder> {
        let Some(number) = self.catalogue.number(file) else { return Vec::new() };
        self.held.iter().filter(|(_, held)| held.files.contains(number)).map(|(holder, _)| *holder).collect()
    }

    /// Whether one of those holders for which `of` says yes lists `file`. Cheaper than [`Registry::holders`] where few do.
    #[must_use]
    pub fn is_listed(&self, file: &FileId, of: impl Fn(Holder) -> bool) -> bool {
        let Some(number) = self.catalogue.number(file) else { return false };
        self.held.iter().any(|(holder, held)| of(*holder) && held.files.contains(number))
    }

    /// Whether one of those holders for which `of` says yes lists a file in `object`. Cost: files in it × holders.
    #[must_use]
    pub fn is_object_listed(&self, object: &ObjectName, of: impl Fn(Holder) -> bool) -> bool {
        let mut holders = self.held.iter().filter(|(holder, _)| of(**holder));
        holders.any(|(_, held)| self.catalogue.numbers(object).any(|number| held.files.contains(number)))
    }

    /// Who owns `object`; `None` if no file in it is listed.
    #[must_use]
    pub fn owner(&self, object: &ObjectName) -> Option<Owner> {
        self.catalogue.owner(object)
    }

    /// Whether a file in `object` is listed.
    #[must_use]
    pub fn contains_object(&self, object: &ObjectName) -> bool {
        self.catalogue.contains_object(object)
    }

    /// `owner` has a part in `object` as well: the two agree on an owner as [`Owner::shared_with`] says.
    pub fn share(&mut self, object: &ObjectName, owner: Owner) {
        self.catalogue.share(object, owner);
    }

    /// The participants of this life are gone: what they owned is the coordinator's. Cost: O(objects).
    pub fn disown_participants(&mut self) {
        self.catalogue.disown_participants();
    }

    /// Number of files that somebody lists.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.catalogue.len()
    }

    /// Number of objects of which a file is listed.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.catalogue.object_count()
    }

    /// The known holders, in order.
    pub fn all_holders(&self) -> impl Iterator<Item = Holder> + '_ {
        self.held.keys().copied()
    }

    /// Checks R1 to R3. Cost: O(files × holders).
    ///
    /// # Panics
    ///
    /// If one is broken.
    pub fn check_invariants(&self) {
        for (holder, held) in &self.held {
            for number in held.files.iter() {
                assert!(self.catalogue.file(number).is_some(), "R1: {holder} lists unknown file {number}");
            }
            if let Some(parent) = held.parent {
                assert!(self.held.contains_key(&parent), "R3: parent {parent} of {holder} is gone");
            }
        }
        self.catalogue.check_invariants();
        let listed = |number: FileNumber| self.held.values().any(|held| held.files.contains(number));
        for (name, (_, parts)) in self.catalogue.objects() {
            assert!(parts.into_iter().all(listed), "R1: a file of {name} is known and not listed");
        }
    }

    /// The number of a file of a rebuild.
    pub(crate) fn learn(&mut self, file: FileId, owner: Owner) -> Result<FileNumber, RegistryError> {
        self.catalogue.learn(file, owner)
    }

    /// `holder` lists these files, which are known.
    pub(crate) fn hold(&mut self, holder: Holder, parent: Option<Holder>, files: FileSet) {
        self.held.insert(holder, Held { files, parent });
    }

    pub(crate) fn check_small(&self) {
        if cfg!(debug_assertions) && self.catalogue.len() <= CHECKED_FILES_MAX {
            self.check_invariants();
        }
    }
}

#[cfg(test)]
mod tests;
