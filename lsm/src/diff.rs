//! Which tables of a checkpoint are new, and which its base has already.
//!
//! Owns: the comparison. Does not own: where the tables come from (`local`), what happens to them (the caller).
//!
//! # Invariants
//!
//! - T1. A table counts as known only if its identity *and* its length are those of a table of the base. A name or
//!   a file number decides nothing: both come again with other content after a retry or a rollback.
//! - T2. Only tables of the base itself are known: what a checkpoint uploaded that failed, was aborted or is
//!   abandoned is not among them.

use std::collections::BTreeMap;

use lowtide_format::{CheckpointId, FileEntry};

use crate::table::TableIdentity;

/// A table that lies in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTable {
    /// Where it lies, with length and checksum.
    pub file: FileEntry,
    /// The checkpoint that wrote it.
    pub checkpoint: CheckpointId,
}

/// The tables of one checkpoint of one backend, by identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSet {
    tables: BTreeMap<TableIdentity, StoredTable>,
}

impl TableSet {
    /// The table with this identity and length; O(log tables).
    #[must_use]
    pub fn find(&self, identity: &TableIdentity, length: u64) -> Option<&StoredTable> {
        self.tables.get(identity).filter(|table| table.file.length == length)
    }

    /// How many tables there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether there is no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

impl FromIterator<(TableIdentity, StoredTable)> for TableSet {
    fn from_iter<I: IntoIterator<Item = (TableIdentity, StoredTable)>>(tables: I) -> Self {
        Self { tables: tables.into_iter().collect() }
    }
}

/// The tables of a checkpoint, sorted by what is to be done with them; numbers are positions in `now`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// To be uploaded.
    pub new: Vec<usize>,
    /// In the store already, with the table as the base knows it.
    pub kept: Vec<(usize, StoredTable)>,
    /// In the base and no longer needed.
    pub gone: Vec<TableIdentity>,
}

/// Compares the tables of a checkpoint, each with its length in bytes, with those of its base.
///
/// Without a base everything is new. O(n log n).
#[must_use]
pub fn diff(base: Option<&TableSet>, now: &[(TableIdentity, u64)]) -> Diff {
    let mut diff = Diff::default();
    let nothing = TableSet::default();
    let base = base.unwrap_or(&nothing);
    let mut gone: BTreeMap<&TableIdentity, ()> = base.tables.keys().map(|identity| (identity, ())).collect();
    for (at, (identity, length)) in now.iter().enumerate() {
        match base.find(identity, *length) {
            Some(table) => {
                gone.remove(identity);
                diff.kept.push((at, table.clone()));
            }
            None => diff.new.push(at),
        }
    }
    diff.gone = gone.into_keys().cloned().collect();
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_format::{FileKind, ObjectName};

    fn identity(session: &str, number: u64) -> TableIdentity {
        TableIdentity { database: "db".into(), session: session.into(), number }
    }

    fn stored(object: &str, length: u64) -> StoredTable {
        let object = ObjectName::new(object).unwrap();
        let file = FileEntry { object, offset: 0, length, checksum: 1, kind: FileKind::Sst };
        StoredTable { file, checkpoint: CheckpointId::FIRST }
    }

    // T1
    #[test]
    fn only_a_table_of_the_same_origin_and_length_is_kept() {
        let base: TableSet = [(identity("s1", 7), stored("a", 100)), (identity("s1", 8), stored("b", 100))]
            .into_iter()
            .collect();
        let now = [
            (identity("s1", 7), 100), // The same table.
            (identity("s2", 8), 100), // The same number and length from another session.
            (identity("s1", 9), 100), // A new number.
        ];
        let diff = diff(Some(&base), &now);
        assert_eq!(diff.kept, [(0, stored("a", 100))]);
        assert_eq!(diff.new, [1, 2]);
        assert_eq!(diff.gone, [identity("s1", 8)]);
    }

    #[test]
    fn a_table_of_another_length_is_new_whatever_its_identity() {
        let base: TableSet = [(identity("s1", 7), stored("a", 100))].into_iter().collect();
        let diff = diff(Some(&base), &[(identity("s1", 7), 101)]);
        assert_eq!((diff.new, diff.kept.len()), (vec![0], 0));
    }

    // T2: tables that another checkpoint uploaded are not asked for, so none of them can be found.
    #[test]
    fn without_a_base_everything_is_new() {
        let diff = diff(None, &[(identity("s1", 7), 100)]);
        assert_eq!((diff.new, diff.kept.len(), diff.gone.len()), (vec![0], 0, 0));
    }
}
