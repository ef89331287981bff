//! The files that somebody lists: their numbers, the objects that hold them, and who owns those.
//!
//! Owns: the numbering, and the rule that an object is known as long as one of its parts is (R2). Does not own: who
//! lists a file (`registry`).

use std::collections::{BTreeMap, HashMap};

use lowtide_format::{FileId, ObjectName};

use crate::claim::Owner;
use crate::error::RegistryError;
use crate::fileset::FileNumber;

#[derive(Debug, Clone)]
struct Object {
    owner: Owner,
    /// Offset and number of each known file in it; nearly always one.
    parts: Vec<(u64, FileNumber)>,
}

/// Files by name and by number.
#[derive(Debug, Default, Clone)]
pub(crate) struct Catalogue {
    objects: HashMap<ObjectName, Object>,
    /// By number; `None` is a number that can be given again.
    files: Vec<Option<FileId>>,
    unused: Vec<FileNumber>,
}

impl Catalogue {
    pub(crate) fn len(&self) -> usize {
        self.files.len() - self.unused.len()
    }

    pub(crate) fn number(&self, file: &FileId) -> Option<FileNumber> {
        let object = self.objects.get(&file.object)?;
        object.parts.iter().find(|(offset, _)| *offset == file.offset).map(|(_, number)| *number)
    }

    pub(crate) fn file(&self, number: FileNumber) -> Option<&FileId> {
        self.files.get(number as usize).and_then(Option::as_ref)
    }

    /// The numbers of the known files in an object.
    pub(crate) fn numbers(&self, object: &ObjectName) -> impl Iterator<Item = FileNumber> + '_ {
        let parts = self.objects.get(object).map(|object| object.parts.as_slice());
        parts.unwrap_or_default().iter().map(|(_, number)| *number)
    }

    pub(crate) fn owner(&self, object: &ObjectName) -> Option<Owner> {
        self.objects.get(object).map(|object| object.owner)
    }

    /// The number of `file`, given now if it is new; a known object gets the owner that both agree on.
    pub(crate) fn learn(&mut self, file: FileId, owner: Owner) -> Result<FileNumber, RegistryError> {
        if let Some(number) = self.number(&file) {
            self.share(&file.object, owner);
            return Ok(number);
        }
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                let files = self.files.len();
                let number = FileNumber::try_from(files).map_err(|_| RegistryError::Full { files })?;
                self.files.push(None);
                number
            }
        };
        self.share(&file.object, owner);
        let object = self
            .objects
            .entry(file.object.clone())
            .or_insert_with(|| Object { owner, parts: Vec::with_capacity(1) });
        object.parts.push((file.offset, number));
        if let Some(slot) = self.files.get_mut(number as usize) {
            *slot = Some(file);
        }
        Ok(number)
    }

    /// The object, if known, becomes that of the owner on whom its owner and `owner` agree.
    pub(crate) fn share(&mut self, object: &ObjectName, owner: Owner) {
        if let Some(object) = self.objects.get_mut(object) {
            object.owner = object.owner.shared_with(owner);
        }
    }

    /// Everything that participants own becomes the coordinator's.
    pub(crate) fn disown_participants(&mut self) {
        for object in self.objects.values_mut() {
            if matches!(object.owner, Owner::Participant(_)) {
                object.owner = Owner::Coordinator;
            }
        }
    }

    /// Forgets a file. Returns it, and the owner of its object if this was the last part known of it.
    pub(crate) fn forget(&mut self, number: FileNumber) -> Option<(FileId, Option<Owner>)> {
        let file = self.files.get_mut(number as usize)?.take()?;
        self.unused.push(number);
        let object = self.objects.get_mut(&file.object)?;
        object.parts.retain(|(_, part)| *part != number);
        let last = object.parts.is_empty().then_some(object.owner);
        if last.is_some() {
            self.objects.remove(&file.object);
        }
        Some((file, last))
    }

    /// Objects in name order with their owner and the numbers of their known files.
    pub(crate) fn objects(&self) -> BTreeMap<&ObjectName, (Owner, Vec<FileNumber>)> {
        let parts = |object: &Object| object.parts.iter().map(|(_, number)| *number).collect();
        self.objects.iter().map(|(name, object)| (name, (object.owner, parts(object)))).collect()
    }

    pub(crate) fn contains_object(&self, object: &ObjectName) -> bool {
        self.objects.contains_key(object)
    }

    pub(crate) fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// R2: every file in exactly one object under its own name, no object without a file.
    pub(crate) fn check_invariants(&self) {
        let mut parts = 0;
        for (name, object) in &self.objects {
            assert!(!object.parts.is_empty(), "R2: object {name} is known without a file");
            for (offset, number) in &object.parts {
                let file =
                    self.file(*number).unwrap_or_else(|| panic!("R2: file {number} of {name} is unknown"));
                assert!(
                    file.object == *name && file.offset == *offset,
                    "R2: file {number} is of another object"
                );
                parts += 1;
            }
        }
        assert_eq!(parts, self.len(), "R2: {parts} parts, {} files", self.len());
    }
}
