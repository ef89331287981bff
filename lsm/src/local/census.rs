//! How many entries a linked database has.
//!
//! Owns: when they are counted one by one and when told from a sample. Does not own: opening the database (`engine`).
//!
//! What the tables say of themselves is no help: an overwritten entry is in several of them, and one range deletion voids
//! any number. But key groups are filled by hash, so that some of them tell about all.

use lowtide_format::{KeyGroup, KeyGroupRange, StateDescriptor};

use super::engine::{LinkedDatabase, rocks};
use crate::error::LsmError;
use crate::key;

/// A sample ends with the first key group behind so many entries; off by 1 % in the mean where groups are filled evenly.
const SAMPLE_ENTRIES: u64 = 1 << 14;

/// The entries of `states` in `range`: counted if the `records` in their tables are at most `counted_max`, and told from a
/// sample of whole key groups of each state otherwise. O(entries of the sample).
pub(crate) fn entries(
    database: &LinkedDatabase,
    (states, range): (&[StateDescriptor], KeyGroupRange),
    records: u64,
    counted_max: u64,
) -> Result<u64, LsmError> {
    let sample = if records > counted_max { SAMPLE_ENTRIES } else { u64::MAX };
    let mut entries = 0_u64;
    for state in states {
        entries = entries.saturating_add(of_state(database, state, range, sample)?);
    }
    // No more than there are records, however unevenly the groups are filled.
    Ok(entries.min(records))
}

fn of_state(
    database: &LinkedDatabase,
    state: &StateDescriptor,
    range: KeyGroupRange,
    sample: u64,
) -> Result<u64, LsmError> {
    let mut iterator = database.iterate(&state.name, range)?;
    let mut counted = 0_u64;
    let mut last: Option<KeyGroup> = None;
    while let Some(stored) = iterator.key() {
        let group = key::group_of(stored);
        if counted >= sample && last.is_some_and(|last| last != group) {
            // All groups before this one are counted, empty ones too.
            return Ok(scaled(counted, u64::from(group.0 - range.start().0), groups_of(range)));
        }
        (counted, last) = (counted + 1, Some(group));
        iterator.next();
    }
    iterator.status().map_err(rocks("iterate"))?;
    Ok(counted)
}

fn groups_of(range: KeyGroupRange) -> u64 {
    u64::from(range.end().0 - range.start().0) + 1
}

fn scaled(counted: u64, groups_counted: u64, groups: u64) -> u64 {
    let scaled = u128::from(counted) * u128::from(groups) / u128::from(groups_counted.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_scaled_by_key_groups_without_overflow() {
        assert_eq!(scaled(1000, 2, 8), 4000);
        assert_eq!(scaled(u64::MAX, 1, 32_768), u64::MAX);
        assert_eq!(scaled(7, 0, 3), 21);
    }
}
