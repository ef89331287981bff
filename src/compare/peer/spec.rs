//! The description of a peer measurement, as it is typed.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

use super::workload::{self, Bytes100, Bytes100c, Kind, Long};
use crate::compare::error::CompareError;

/// Which suite is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suite {
    /// Rounds of updates, each with a checkpoint, then a restore.
    Rounds,
    /// Operations one by one.
    Micro,
}

impl Suite {
    pub(super) fn name(self) -> &'static str {
        match self {
            Suite::Rounds => "rounds",
            Suite::Micro => "micro",
        }
    }
}

/// The kind of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// A number of 8 bytes.
    Long,
    /// 100 random bytes.
    Bytes100,
    /// 50 random bytes, twice.
    Bytes100c,
}

impl ValueKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            ValueKind::Long => Long::NAME,
            ValueKind::Bytes100 => Bytes100::NAME,
            ValueKind::Bytes100c => Bytes100c::NAME,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            ValueKind::Long => Long::BYTES,
            ValueKind::Bytes100 => Bytes100::BYTES,
            ValueKind::Bytes100c => Bytes100c::BYTES,
        }
    }
}

/// How updates choose their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// All keys alike.
    Uniform,
    /// YCSB's scrambled Zipfian.
    Zipf,
}

impl Choice {
    pub(super) fn name(self) -> &'static str {
        match self {
            Choice::Uniform => "uniform",
            Choice::Zipf => "zipf",
        }
    }

    pub(super) fn function(self) -> fn(u64, u64) -> u64 {
        match self {
            Choice::Uniform => workload::uniform,
            Choice::Zipf => workload::zipf,
        }
    }
}

/// A peer measurement: suite, sizes, distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerSpec {
    /// The suite.
    pub suite: Suite,
    /// Keys, 1 to 10^9.
    pub n: u64,
    /// The kind of the values.
    pub value: ValueKind,
    /// How updates choose their keys, in suite `rounds`.
    pub dist: Choice,
    /// Updates a round in per cent of the keys, above 0 and at most 100; rounded down to whole updates.
    pub upct: f64,
    /// Rounds of updates, 1 to 1,000,000.
    pub rounds: u32,
    /// Where the stream of updates begins.
    pub seed: u64,
    /// Repetitions, 1 to 1,000.
    pub reps: u32,
    /// Operations of each step of suite `micro`, 1 to 10^9.
    pub ops: u64,
    /// Snapshots of suite `micro` with nothing else running, 1 to 1,000.
    pub snapshots: u32,
}

impl Default for PeerSpec {
    /// Three repetitions of ten rounds on a million longs, 1 % of updates a round, Zipfian.
    fn default() -> Self {
        Self {
            suite: Suite::Rounds,
            n: 1_000_000,
            value: ValueKind::Long,
            dist: Choice::Zipf,
            upct: 1.0,
            rounds: 10,
            seed: 42,
            reps: 3,
            ops: 1_000_000,
            snapshots: 3,
        }
    }
}

/// What is wrong with a part of a description.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerProblem {
    /// Not of the form name=value.
    #[error("is not of the form name=value")]
    Form,
    /// A name that the description does not know.
    #[error("is unknown; known are suite, n, value, dist, upct, rounds, seed, reps, ops and snapshots")]
    Name,
    /// The name stands there a second time.
    #[error("is given twice")]
    Twice,
    /// Not a number, or one outside its range.
    #[error("is no whole number from {} to {}", range.start(), range.end())]
    Number {
        /// What is possible.
        range: RangeInclusive<u64>,
    },
    /// Not a share in per cent.
    #[error("is no number above 0 and at most 100")]
    Percent,
    /// None of the words that are possible.
    #[error("is not one of {known}")]
    Word {
        /// The words that are.
        known: &'static str,
    },
}

impl FromStr for PeerSpec {
    type Err = CompareError;

    /// Reads `n=1000000,value=long,dist=zipf,upct=1,rounds=10`; what is left out is as in [`PeerSpec::default`].
    fn from_str(text: &str) -> Result<Self, CompareError> {
        let mut spec = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let failed = |problem| CompareError::Peer { part: part.to_owned(), problem };
            let (name, value) = part.split_once('=').ok_or(failed(PeerProblem::Form))?;
            if seen.contains(&name) {
                return Err(failed(PeerProblem::Twice));
            }
            seen.push(name);
            spec.set(name, value).map_err(failed)?;
        }
        Ok(spec)
    }
}

impl PeerSpec {
    fn set(&mut self, name: &str, value: &str) -> Result<(), PeerProblem> {
        match name {
            "n" => self.n = number(value, 1..=1_000_000_000)?,
            "ops" => self.ops = number(value, 1..=1_000_000_000)?,
            "seed" => self.seed = number(value, 0..=u64::MAX)?,
            "rounds" => self.rounds = number(value, 1..=1_000_000)? as u32,
            "reps" => self.reps = number(value, 1..=1_000)? as u32,
            "snapshots" => self.snapshots = number(value, 1..=1_000)? as u32,
            "upct" => self.upct = percent(value)?,
            "suite" => {
                self.suite =
                    word(value, "rounds, micro", &[("rounds", Suite::Rounds), ("micro", Suite::Micro)])?;
            }
            "dist" => {
                let words = [("uniform", Choice::Uniform), ("zipf", Choice::Zipf)];
                self.dist = word(value, "uniform, zipf", &words)?;
            }
            "value" => {
                let words = [ValueKind::Long, ValueKind::Bytes100, ValueKind::Bytes100c];
                self.value =
                    word(value, "long, bytes100, bytes100c", &words.map(|kind| (kind.name(), kind)))?;
            }
            _ => return Err(PeerProblem::Name),
        }
        Ok(())
    }

    /// Updates of one round.
    pub(super) fn updates(&self) -> u64 {
        (self.n as f64 * self.upct / 100.0) as u64
    }
}

fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, PeerProblem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && range.contains(number));
    number.ok_or(PeerProblem::Number { range })
}

fn percent(text: &str) -> Result<f64, PeerProblem> {
    let text = text.strip_suffix('%').unwrap_or(text);
    text.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0).ok_or(PeerProblem::Percent)
}

fn word<T: Copy>(text: &str, known: &'static str, words: &[(&str, T)]) -> Result<T, PeerProblem> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meant)| *meant).ok_or(PeerProblem::Word { known })
}

impl fmt::Display for PeerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { suite, n, value, dist, upct, rounds, seed, reps, ops, snapshots } = self;
        write!(f, "suite={},n={n},value={},seed={seed},reps={reps}", suite.name(), value.name())?;
        write!(f, ",dist={},upct={upct},rounds={rounds},ops={ops},snapshots={snapshots}", dist.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_prints_as_it_is_read() {
        let text = "n=1000,value=bytes100c,dist=uniform,upct=0.5,rounds=3,seed=9,reps=2,suite=micro,ops=7,snapshots=1";
        let spec: PeerSpec = text.parse().unwrap();
        assert_eq!((spec.n, spec.value, spec.updates()), (1_000, ValueKind::Bytes100c, 5));
        assert_eq!(spec.to_string().parse::<PeerSpec>().unwrap(), spec);
        assert_ne!(spec, PeerSpec::default());
    }

    #[test]
    fn updates_are_rounded_down() {
        let spec = |text: &str| text.parse::<PeerSpec>().unwrap().updates();
        assert_eq!((spec("n=1000,upct=1%"), spec("n=99,upct=1"), spec("n=999,upct=10")), (10, 0, 99));
    }

    #[test]
    fn each_part_that_makes_no_sense_is_named_with_what_is_possible() {
        for (text, says) in [
            ("", "'' is not of the form name=value"),
            ("n=1000,", "'' is not of the form name=value"),
            ("n=0", "'n=0' is no whole number from 1 to 1000000000"),
            ("n=+7", "'n=+7' is no whole number from 1 to 1000000000"),
            ("n=1e6", "'n=1e6' is no whole number from 1 to 1000000000"),
            ("n=1000000001", "'n=1000000001' is no whole number from 1 to 1000000000"),
            ("rounds=0", "'rounds=0' is no whole number from 1 to 1000000"),
            ("reps=-1", "'reps=-1' is no whole number from 1 to 1000"),
            ("seed=18446744073709551616", "is no whole number from 0 to 18446744073709551615"),
            ("upct=0", "'upct=0' is no number above 0 and at most 100"),
            ("upct=100.1", "'upct=100.1' is no number above 0 and at most 100"),
            ("upct=NaN", "'upct=NaN' is no number above 0 and at most 100"),
            ("value=string", "'value=string' is not one of long, bytes100, bytes100c"),
            ("dist=normal", "'dist=normal' is not one of uniform, zipf"),
            ("suite=all", "'suite=all' is not one of rounds, micro"),
            ("keys=7", "'keys=7' is unknown; known are suite, n, "),
            ("n=1,n=2", "'n=2' is given twice"),
        ] {
            let message = text.parse::<PeerSpec>().unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
