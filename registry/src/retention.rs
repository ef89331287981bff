//! Which completed checkpoints are kept.

use std::num::NonZeroU32;

use lowtide_format::CheckpointId;

/// How many completed checkpoints are kept; savepoints do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retention {
    /// The newest so many.
    Newest(NonZeroU32),
    /// All of them.
    All,
}

impl Default for Retention {
    fn default() -> Self {
        Self::Newest(NonZeroU32::MIN)
    }
}

impl Retention {
    /// Keeps the newest `count` checkpoints. `None` if `count` is zero: that would delete everything.
    #[must_use]
    pub const fn newest(count: u32) -> Option<Self> {
        match NonZeroU32::new(count) {
            Some(count) => Some(Self::Newest(count)),
            None => None,
        }
    }

    /// Those of `completed` (ascending) that are let go, ascending.
    #[must_use]
    pub fn subsumed(self, completed: &[CheckpointId]) -> Vec<CheckpointId> {
        let kept = match self {
            Self::All => return Vec::new(),
            Self::Newest(count) => usize::try_from(count.get()).unwrap_or(usize::MAX),
        };
        completed.iter().take(completed.len().saturating_sub(kept)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Vec<CheckpointId> {
        ids.iter().map(|id| CheckpointId::new(*id).unwrap()).collect()
    }

    #[test]
    fn the_newest_checkpoint_is_never_let_go() {
        for count in [1, 2, 3, u32::MAX] {
            let let_go = Retention::newest(count).unwrap().subsumed(&ids(&[7, 9, 10]));
            assert!(!let_go.contains(&CheckpointId::new(10).unwrap()), "count {count}");
            assert_eq!(let_go.len(), 3_usize.saturating_sub(count as usize));
        }
        assert_eq!(Retention::newest(0), None, "keeping none would delete everything");
    }

    #[test]
    fn the_oldest_are_let_go_first_and_all_keeps_all() {
        assert_eq!(Retention::newest(1).unwrap().subsumed(&ids(&[1, 2, 3])), ids(&[1, 2]));
        assert_eq!(Retention::All.subsumed(&ids(&[1, 2, 3])), ids(&[]));
    }
}
