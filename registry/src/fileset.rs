//! The files that one holder lists, as a persistent set of file numbers.
//!
//! Owns: sharing of structure between a set and the set it was derived from. Does not own: what a number means
//! (`catalogue`).

use im::OrdSet;
use im::ordset::DiffItem;

/// Number of a file in the catalogue. In memory only, and reused once its file is forgotten.
pub(crate) type FileNumber = u32;

/// The files that one holder lists. Cloning is O(1); the clone shares its structure with the original.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileSet {
    files: OrdSet<FileNumber>,
}

impl FileSet {
    /// A set of these numbers, given in ascending order.
    pub(crate) fn from_sorted(files: impl IntoIterator<Item = FileNumber>) -> Self {
        Self { files: files.into_iter().collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn contains(&self, file: FileNumber) -> bool {
        self.files.contains(&file)
    }

    pub(crate) fn insert(&mut self, file: FileNumber) {
        self.files.insert(file);
    }

    /// Whether `file` was in the set.
    pub(crate) fn remove(&mut self, file: FileNumber) -> bool {
        self.files.remove(&file).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FileNumber> + '_ {
        self.files.iter().copied()
    }

    /// The files of this set that `other` lacks. Cost: the files in which the two differ, if one was derived from the
    /// other; all files otherwise.
    pub(crate) fn without(&self, other: &Self) -> Vec<FileNumber> {
        let lacking = |item| match item {
            DiffItem::Remove(file) => Some(*file),
            _ => None,
        };
        self.files.diff(&other.files).filter_map(lacking).collect()
    }

    /// Whether both hold the same files. Cost as [`FileSet::without`].
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.files.diff(&other.files).next().is_none()
    }

    /// The same set as `files` (ascending), sharing structure with `self` where they agree.
    pub(crate) fn derive(&self, files: &[FileNumber]) -> Self {
        let mut derived = self.clone();
        let mut wanted = files.iter().copied().peekable();
        for present in self.iter() {
            while let Some(new) = wanted.next_if(|file| *file < present) {
                derived.insert(new);
            }
            if wanted.next_if_eq(&present).is_none() {
                derived.remove(present);
            }
        }
        wanted.for_each(|new| derived.insert(new));
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_derived_set_holds_what_was_asked_and_differs_as_plain_sets_do(
            one in proptest::collection::btree_set(0_u32..500, 0..200),
            two in proptest::collection::btree_set(0_u32..500, 0..200),
        ) {
            let first = FileSet::from_sorted(one.iter().copied());
            let second = first.derive(&two.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(second.iter().collect::<Vec<_>>(), two.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(first.without(&second), one.difference(&two).copied().collect::<Vec<_>>());
            prop_assert_eq!(second.without(&first), two.difference(&one).copied().collect::<Vec<_>>());
            prop_assert_eq!(first.same(&second), one == two);
        }
    }
}
