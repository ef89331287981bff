//! Which subtask a key belongs to.
//!
//! Owns: the table from key group to subtask. Does not own: the rule from key to key group
//! ([`crate::backend::key_group_of`]), the ranges of the subtasks (`lowtide-format`).

use std::sync::Arc;

use lowtide_format::{Key, KeyGroup, KeyGroupCount, KeyGroupRange, Lookup};

use crate::backend::{Assignment, key_group_of};
use crate::coordinator::BaseMode;
use crate::error::{Error, Result};

/// The subtasks of a job by key group. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Routing {
    key_groups: KeyGroupCount,
    /// Subtask by key group.
    owners: Arc<[u32]>,
    subtasks: u32,
}

impl Routing {
    /// Key groups spread evenly over the subtasks, in ascending ranges.
    ///
    /// # Errors
    ///
    /// `invalid-argument` unless there is at least one subtask and at most one per key group.
    pub fn even(subtasks: u32, key_groups: KeyGroupCount) -> Result<Self> {
        let mut owners = vec![0; usize::from(key_groups.get())];
        for subtask in 0..subtasks {
            let Some(range) = KeyGroupRange::of_subtask(subtask, subtasks, key_groups) else { break };
            for group in range.iter() {
                if let Some(owner) = owners.get_mut(usize::from(group.0)) {
                    *owner = subtask;
                }
            }
        }
        if subtasks == 0 || KeyGroupRange::of_subtask(0, subtasks, key_groups).is_none() {
            return Err(Error::invalid_argument(format!(
                "{subtasks} subtasks cannot share {key_groups} key groups; take 1 to {key_groups} subtasks"
            )));
        }
        Ok(Self { key_groups, owners: owners.into(), subtasks })
    }

    /// How many subtasks.
    #[must_use]
    pub fn subtasks(&self) -> u32 {
        self.subtasks
    }

    /// How many key groups.
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupCount {
        self.key_groups
    }

    /// The subtask that keeps a key. O(1); a job of one subtask does not look at the key.
    #[must_use]
    pub fn subtask_of<K: Key, Q: Lookup<K> + ?Sized>(&self, key: &Q) -> u32 {
        if self.subtasks == 1 { 0 } else { self.subtask_of_group(key_group_of::<K, Q>(key, self.key_groups)) }
    }

    /// The subtask that keeps a key group.
    #[must_use]
    pub fn subtask_of_group(&self, group: KeyGroup) -> u32 {
        self.owners.get(usize::from(group.0)).copied().unwrap_or(0)
    }

    /// What each subtask keeps, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = KeyGroupRange> + '_ {
        (0..self.subtasks)
            .filter_map(|subtask| KeyGroupRange::of_subtask(subtask, self.subtasks, self.key_groups))
    }

    /// What the backend of each subtask is opened with, in ascending order.
    pub fn assignments(&self, base_mode: BaseMode) -> impl Iterator<Item = Assignment> + '_ {
        let key_groups = self.key_groups;
        (0..).zip(self.ranges()).map(move |(subtask, range)| Assignment {
            subtask,
            key_groups,
            range,
            base_mode,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_group_has_the_subtask_whose_range_holds_it() {
        for groups in [1_u16, 2, 7, 8, 128] {
            let key_groups = KeyGroupCount::new(groups).unwrap();
            for subtasks in 1..=u32::from(groups).min(16) {
                let routing = Routing::even(subtasks, key_groups).unwrap();
                let mut covered = 0;
                for (subtask, range) in (0..).zip(routing.ranges()) {
                    for group in range.iter() {
                        assert_eq!(routing.subtask_of_group(group), subtask, "{groups} / {subtasks}");
                        covered += 1;
                    }
                }
                assert_eq!(covered, u32::from(groups), "{subtasks} subtasks");
            }
        }
    }

    #[test]
    fn more_subtasks_than_key_groups_are_refused() {
        let key_groups = KeyGroupCount::new(8).unwrap();
        assert!(Routing::even(9, key_groups).is_err());
        assert!(Routing::even(0, key_groups).is_err());
    }
}
