//! Events made from a seed: a state of `n` entries, then updates of which each interval holds a share.

use std::fmt;
use std::str::FromStr;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::Zipf;

use super::Events;
use crate::compare::error::{CompareError, SyntheticProblem};
use crate::compare::event::Event;

const VALUE_BYTES_MAX: u64 = 1 << 20;
const COUNT_MAX: u64 = 1_000_000_000;
/// Exponent of the Zipf distribution, the one of YCSB.
const ZIPF_EXPONENT: f64 = 0.99;

/// Which keys are updated how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// Nine updates of ten go to a tenth of the keys.
    Hot,
    /// Zipf with exponent 0.99, ranks scattered over the keys.
    Zipf,
}

/// A synthetic input: `n` puts and a checkpoint, then for each of the `checkpoints` an interval of
/// `update` × `n` updates and a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Entries, 1 to 10^9.
    pub entries: u64,
    /// Bytes of a value, at most 2^20; they do not compress.
    pub value_bytes: u64,
    /// Which keys are updated.
    pub distribution: Distribution,
    /// Updates per checkpoint as a share of the entries, above 0 and at most 1. Draws are independent, so
    /// that fewer keys than this change.
    pub update_share: f64,
    /// Checkpoints after the first.
    pub checkpoints: u64,
    /// Seed of the generator: equal seeds, equal events.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            value_bytes: 100,
            distribution: Distribution::Uniform,
            update_share: 0.01,
            checkpoints: 100,
            seed: 1,
        }
    }
}

impl FromStr for Synthetic {
    type Err = CompareError;

    /// Reads `n=1000000,value=100,dist=zipf,update=1%,checkpoints=100,seed=1`; what is left out is as here,
    /// with `dist=uniform`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut synthetic = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            synthetic
                .set(part)
                .map_err(|problem| CompareError::Synthetic { part: part.to_owned(), problem })?;
        }
        Ok(synthetic)
    }
}

impl fmt::Display for Synthetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, value_bytes, distribution, update_share, checkpoints, seed } = self;
        let distribution = match distribution {
            Distribution::Uniform => "uniform",
            Distribution::Hot => "hot",
            Distribution::Zipf => "zipf",
        };
        write!(f, "n={entries},value={value_bytes},dist={distribution},update={update_share},")?;
        write!(f, "checkpoints={checkpoints},seed={seed}")
    }
}

impl Synthetic {
    fn set(&mut self, part: &str) -> Result<(), SyntheticProblem> {
        let (name, value) = part.split_once('=').ok_or(SyntheticProblem::Form)?;
        match name {
            "n" => self.entries = number(value, 1..=COUNT_MAX)?,
            "value" => self.value_bytes = number(value, 0..=VALUE_BYTES_MAX)?,
            "checkpoints" => self.checkpoints = number(value, 1..=COUNT_MAX)?,
            "seed" => self.seed = number(value, 0..=u64::MAX)?,
            "update" => self.update_share = share(value)?,
            "dist" => {
                self.distribution = match value {
                    "uniform" => Distribution::Uniform,
                    "hot" => Distribution::Hot,
                    "zipf" => Distribution::Zipf,
                    _ => return Err(SyntheticProblem::Distribution),
                }
            }
            _ => return Err(SyntheticProblem::Name),
        }
        Ok(())
    }

    /// Updates between two checkpoints, at least one.
    fn updates_per_checkpoint(&self) -> u64 {
        ((self.entries as f64 * self.update_share).round() as u64).max(1)
    }

    /// The events, from the beginning.
    pub(super) fn events(&self) -> Events {
        let updates = self.updates_per_checkpoint();
        let mut generator = Generator::new(self);
        let load = (0..self.entries).map(|key| (Some(key), false));
        let run = (0..self.checkpoints * updates).map(move |update| (None, (update + 1) % updates == 0));
        let last = self.entries - 1;
        let steps = load.map(move |(key, _)| (key, key == Some(last))).chain(run);
        Box::new(steps.flat_map(move |(key, mark)| {
            let put = generator.put(key);
            [Some(Ok(put)), mark.then_some(Ok(Event::Mark))].into_iter().flatten()
        }))
    }
}

fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, SyntheticProblem> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or(SyntheticProblem::Range)
}

/// A share: `1%` or `0.01`.
fn share(text: &str) -> Result<f64, SyntheticProblem> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    };
    parsed.filter(|share| *share > 0.0 && *share <= 1.0).ok_or(SyntheticProblem::Range)
}

struct Generator {
    random: Xoshiro256PlusPlus,
    entries: u64,
    value_bytes: usize,
    distribution: Distribution,
    zipf: Option<Zipf<f64>>,
}

impl Generator {
    fn new(synthetic: &Synthetic) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(synthetic.seed),
            entries: synthetic.entries,
            value_bytes: usize::try_from(synthetic.value_bytes).unwrap_or(0),
            distribution: synthetic.distribution,
            // Both parameters are in range for every synthetic input that can be described.
            zipf: Zipf::new(synthetic.entries as f64, ZIPF_EXPONENT).ok(),
        }
    }

    /// A put of the given key, or of one drawn from the distribution.
    fn put(&mut self, key: Option<u64>) -> Event {
        let key = key.unwrap_or_else(|| self.draw());
        let mut value = vec![0; self.value_bytes];
        self.random.fill_bytes(&mut value);
        Event::Put { key: key.to_le_bytes().to_vec(), value }
    }

    fn draw(&mut self) -> u64 {
        match (self.distribution, &self.zipf) {
            (Distribution::Zipf, Some(zipf)) => (self.random.sample(*zipf) as u64).clamp(1, self.entries) - 1,
            (Distribution::Hot, _) => {
                let hot = (self.entries / 10).max(1);
                if hot == self.entries || self.random.random_bool(0.9) {
                    self.random.random_range(0..hot)
                } else {
                    self.random.random_range(hot..self.entries)
                }
            }
            _ => self.random.random_range(0..self.entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of_updates(text: &str) -> Vec<u64> {
        let synthetic: Synthetic = text.parse().unwrap();
        let puts = synthetic.events().filter_map(|event| match event.unwrap() {
            Event::Put { key, .. } => Some(u64::from_le_bytes(key.try_into().unwrap())),
            _ => None,
        });
        puts.skip(synthetic.entries as usize).collect()
    }

    #[test]
    fn the_same_description_gives_the_same_events_with_a_mark_after_each_interval() {
        let synthetic: Synthetic = "n=100,value=8,dist=zipf,update=5%,checkpoints=7".parse().unwrap();
        let events = || synthetic.events().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(events(), events());
        assert_eq!(events().iter().filter(|event| **event == Event::Mark).count(), 8);
        assert_eq!(events().len(), 100 + 7 * 5 + 8);
        assert_eq!(events().last(), Some(&Event::Mark));
    }

    #[test]
    fn a_description_prints_as_it_is_read() {
        let synthetic: Synthetic = "n=100,value=8,dist=hot,update=5%,checkpoints=7,seed=9".parse().unwrap();
        assert_eq!(synthetic.to_string().parse::<Synthetic>().unwrap(), synthetic);
    }

    #[test]
    fn nine_of_ten_hot_updates_go_to_a_tenth_of_the_keys() {
        let keys = keys_of_updates("n=1000,value=0,dist=hot,update=100%,checkpoints=10");
        let hot = keys.iter().filter(|key| **key < 100).count();
        assert!((8_800..9_200).contains(&hot), "{hot} of {}", keys.len());
    }

    #[test]
    fn zipf_updates_favour_the_first_ranks_and_stay_among_the_keys() {
        let keys = keys_of_updates("n=1000,value=0,dist=zipf,update=100%,checkpoints=10");
        let first = keys.iter().filter(|key| **key == 0).count();
        assert!(first > 800, "{first} of {}", keys.len());
        assert!(keys.iter().all(|key| *key < 1000));
    }

    #[test]
    fn a_description_that_makes_no_sense_is_refused_with_the_part_named() {
        for (text, part) in [
            ("n=0", "n=0"),
            ("value", "value"),
            ("n=1,dist=normal", "dist=normal"),
            ("update=101%", "update=101%"),
        ] {
            let message = text.parse::<Synthetic>().unwrap_err().to_string();
            assert!(message.contains(&format!("'{part}'")), "{message}");
        }
    }
}
