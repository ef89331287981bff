//! How the keys of a simulation change between two checkpoints.

use super::SimulateOptions;
use super::map::AccountedMap;
use super::random::Random;

/// How the keys change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Workload {
    /// Every key is as likely as any other.
    #[default]
    Uniform,
    /// A share of the changes goes to a share of the keys, the others to the rest.
    Hot {
        /// Share of the changes, 0 to 1.
        changes: f64,
        /// Share of the keys, 0 to 1.
        keys: f64,
    },
    /// The key of rank r is drawn in proportion to r to the power of minus the exponent.
    Zipf {
        /// The exponent, 0.99 in the usual benchmarks.
        exponent: f64,
    },
    /// Keys drawn alike are put, or removed; as many draws as keys that change elsewhere.
    Churn {
        /// Share of the draws that removes, 0 to 1.
        removed: f64,
    },
    /// New keys come and leave three checkpoints later; nothing else is in the map.
    Windows {
        /// How they leave.
        purge: Purge,
    },
    /// New keys come, none changes or leaves.
    Append,
    /// All keys change.
    AllUpdated,
}

/// How a window is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Key by key.
    Remove,
    /// By one clear of its namespace.
    Clear,
}

/// Checkpoints between the insertion of a window and its purge.
const WINDOW_CHECKPOINTS: u32 = 3;

/// A workload under way.
#[derive(Debug)]
pub(super) struct Changes {
    workload: Workload,
    keys: u32,
    per_checkpoint: u32,
    random: Random,
    /// Sums of the weights of the keys up to each rank; only for Zipf.
    cumulated: Vec<f64>,
    checkpoint: u32,
    next_key: u32,
}

impl Changes {
    pub(super) fn new(options: &SimulateOptions) -> Self {
        let mut sum = 0.0;
        let ranks = if matches!(options.workload, Workload::Zipf { .. }) { options.keys } else { 0 };
        let weight = |rank: u32| match options.workload {
            Workload::Zipf { exponent } => (f64::from(rank) + 1.0).powf(-exponent),
            _ => 0.0,
        };
        let cumulated = (0..ranks).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self {
            workload: options.workload,
            keys: options.keys,
            per_checkpoint: ((f64::from(options.keys) * options.changed_share) as u32)
                .clamp(1, options.keys.max(1)),
            random: Random::new(options.seed),
            cumulated: cumulated.collect(),
            checkpoint: 0,
            next_key: 0,
        }
    }

    /// Makes the changes before the next checkpoint; before the first one, all keys come.
    pub(super) fn make(&mut self, map: &mut AccountedMap) {
        let first = self.checkpoint == 0;
        self.checkpoint += 1;
        match self.workload {
            Workload::Windows { purge } => self.slide(map, purge),
            _ if first => self.insert(map, self.keys),
            Workload::Append => self.insert(map, self.per_checkpoint),
            Workload::Churn { removed } => {
                for _ in 0..self.per_checkpoint {
                    let key = self.draw();
                    if self.random.share() < removed {
                        map.remove(key);
                    } else {
                        map.put(key, 0);
                    }
                }
            }
            Workload::AllUpdated => (0..self.keys).for_each(|key| map.put(key, 0)),
            Workload::Uniform | Workload::Hot { .. } | Workload::Zipf { .. } => {
                while map.changed() < self.per_checkpoint as usize {
                    let key = self.draw();
                    map.put(key, 0);
                }
            }
        }
    }

    fn insert(&mut self, map: &mut AccountedMap, count: u32) {
        for _ in 0..count {
            map.put(self.next_key, 0);
            self.next_key += 1;
        }
    }

    /// Inserts a window, and purges the one of three checkpoints ago.
    fn slide(&mut self, map: &mut AccountedMap, purge: Purge) {
        for key in 0..self.per_checkpoint {
            map.put(self.next_key + key, self.checkpoint);
        }
        self.next_key += self.per_checkpoint;
        if self.checkpoint > WINDOW_CHECKPOINTS {
            let start = self.next_key - (WINDOW_CHECKPOINTS + 1) * self.per_checkpoint;
            let keys = start..start + self.per_checkpoint;
            match purge {
                Purge::Remove => keys.for_each(|key| map.remove(key)),
                Purge::Clear => map.clear(self.checkpoint - WINDOW_CHECKPOINTS, keys),
            }
        }
    }

    fn draw(&mut self) -> u32 {
        match self.workload {
            Workload::Hot { changes, keys } => {
                let hot = ((f64::from(self.keys) * keys) as u32).clamp(1, self.keys);
                if hot == self.keys || self.random.share() < changes {
                    self.random.below(hot)
                } else {
                    hot + self.random.below(self.keys - hot)
                }
            }
            Workload::Zipf { .. } => {
                let total = self.cumulated.last().copied().unwrap_or(0.0);
                let point = self.random.share() * total;
                let rank = self.cumulated.partition_point(|sum| *sum <= point);
                u32::try_from(rank).unwrap_or(0).min(self.keys - 1)
            }
            _ => self.random.below(self.keys),
        }
    }
}
