//! From which tables a backend is restored for its key groups.
//!
//! Owns: the decision, from the table lists of the parts alone. Does not own: fetching and opening.
//!
//! A part is what one former subtask wrote. One part for exactly the same groups is opened as it is. Otherwise only
//! the tables that reach into the wanted groups are fetched, and taken over into a new database without being
//! rewritten; what they hold beside the wanted groups is deleted and compacted away before the first access.
//!
//! # Invariants
//!
//! - P1. Nothing of a part is taken beyond the groups that the part was responsible for: a table may still hold
//!   others, given away long ago.
//! - P2. Tables of several parts come together in one tree only if each lies within the groups of its part (it is
//!   *clean*), so that no key is in two of them. A part with an unclean table is opened by itself and copied.

use std::collections::BTreeMap;

use lowtide_format::{CheckpointId, FileEntry, KeyGroupCount, KeyGroupRange, KeyGroupSet};

use crate::diff::StoredTable;
use crate::error::LsmError;
use crate::meta::{CheckpointMeta, TableMeta};

/// What one former subtask wrote for a checkpoint.
#[derive(Clone, Debug)]
pub struct RestorePart {
    /// Its table list.
    pub meta: CheckpointMeta,
    /// The tables that the manifest lists for it, by their local names.
    pub tables: BTreeMap<String, StoredTable>,
}

/// How the entries of a part get into the new backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Open the part's database as it is: same groups, nobody else.
    Open,
    /// Take over the tables that reach into these groups.
    Import(KeyGroupRange),
    /// Open the part beside and copy these groups entry by entry.
    Copy(KeyGroupRange),
}

/// A table to be fetched.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Position of its part.
    pub part: usize,
    /// Position in the table list of the part.
    pub table: usize,
    /// Where it lies in the store.
    pub stored: StoredTable,
}

/// What to fetch and what to do with it.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    range: KeyGroupRange,
    key_groups: KeyGroupCount,
    checkpoint: CheckpointId,
    parts: Vec<(RestorePart, Take)>,
    fetches: Vec<Fetch>,
}

impl RestorePlan {
    /// Plans the restore of `range` from the parts of one checkpoint; those that hold nothing of it may be among them.
    ///
    /// # Errors
    ///
    /// [`LsmError::KeyGroupCount`] if a part has another number of key groups, [`LsmError::PartMissing`] if a group
    /// of the range is in no part, [`LsmError::TableUnlisted`] if a needed table is not among the files of its part.
    pub fn new(
        range: KeyGroupRange,
        key_groups: KeyGroupCount,
        checkpoint: CheckpointId,
        parts: Vec<RestorePart>,
    ) -> Result<Self, LsmError> {
        let mut held = KeyGroupSet::new();
        let mut taken = Vec::new();
        for part in parts {
            let (stored, expected) = (part.meta.key_groups, key_groups);
            if stored != expected {
                return Err(LsmError::KeyGroupCount { stored, expected });
            }
            held = held.union(&part.meta.range.into());
            if let Some(wanted) = part.meta.range.intersect(range) {
                let take = take_of(&part.meta, wanted);
                taken.push((part, take));
            }
        }
        if let Some(group) = KeyGroupSet::from(range).difference(&held).iter().next() {
            return Err(LsmError::PartMissing { group, range });
        }
        if let [(part, take)] = taken.as_mut_slice()
            && part.meta.range == range
        {
            *take = Take::Open;
        }
        let mut fetches = Vec::new();
        for (at, (part, take)) in taken.iter().enumerate() {
            for (table, meta) in
                part.meta.tables.iter().enumerate().filter(|(_, meta)| is_needed(meta, *take))
            {
                let stored = find_stored(part, meta, checkpoint)?.clone();
                fetches.push(Fetch { part: at, table, stored });
            }
        }
        Ok(Self { range, key_groups, checkpoint, parts: taken, fetches })
    }

    /// The tables to be fetched, none of them twice.
    #[must_use]
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    /// The checkpoint to be restored.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// The key groups to be restored, and how many the job has.
    #[must_use]
    pub fn key_groups(&self) -> (KeyGroupRange, KeyGroupCount) {
        (self.range, self.key_groups)
    }

    /// The parts that hold something of the range, and how each is taken.
    #[must_use]
    pub fn parts(&self) -> &[(RestorePart, Take)] {
        &self.parts
    }

    /// The table of a fetch of this plan.
    #[must_use]
    pub fn table(&self, fetch: &Fetch) -> Option<&TableMeta> {
        self.parts.get(fetch.part)?.0.meta.tables.get(fetch.table)
    }
}

/// How a part whose groups are not exactly the wanted ones is taken.
fn take_of(meta: &CheckpointMeta, wanted: KeyGroupRange) -> Take {
    let clean = |table: &TableMeta| {
        let groups = table.key_groups();
        meta.range.contains(groups.start()) && meta.range.contains(groups.end())
    };
    if meta.tables.iter().all(clean) { Take::Import(wanted) } else { Take::Copy(wanted) }
}

fn is_needed(table: &TableMeta, take: Take) -> bool {
    match take {
        // A database opens only with all its tables.
        Take::Open | Take::Copy(_) => true,
        Take::Import(wanted) => table.key_groups().intersect(wanted).is_some(),
    }
}

fn find_stored<'a>(
    part: &'a RestorePart,
    table: &TableMeta,
    checkpoint: CheckpointId,
) -> Result<&'a StoredTable, LsmError> {
    let same = |file: &FileEntry| file.checksum == table.checksum && file.length == table.length;
    part.tables
        .get(&table.local_name)
        .filter(|stored| same(&stored.file))
        .ok_or_else(|| LsmError::TableUnlisted { table: table.local_name.clone(), checkpoint })
}

#[cfg(test)]
mod tests;
