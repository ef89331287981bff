//! Whole jobs under faults: histories from seeds, each checked against a model.
//!
//! A history drives jobs through the commands of scenario scripts: entries change, checkpoints are triggered, written,
//! acknowledged and given up in any order, coordinators stand still and are replaced, jobs crash, are restored, claimed
//! and rescaled, the store fails before and after the fact, sweeps run. What is printed is judged at every step, and
//! at the end every checkpoint that is kept must restore to what the model held at its barrier. The same seed is the
//! same history, on every platform; a violation comes with the scenario script that replays it.
//!
//! Owns: which histories there are and what is right. Does not own: what commands do (`script`).
//!
//! # Examples
//!
//! ```
//! use lowtide::simulate::faults::{FaultOptions, simulate_faults};
//!
//! let report = simulate_faults(&FaultOptions { seeds: 20, ..FaultOptions::default() });
//! assert_eq!(report.histories, 20);
//! assert!(report.violations.is_empty());
//! ```

mod finale;
mod history;
mod image;
mod ledger;
mod moves;
mod situation;
mod stage;
mod truth;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

pub use situation::{Situation, Situations};

use self::history::{History, Mood};
use self::stage::{Stage, Transcript};
use self::world::World;
use super::random::Random;

/// Which histories are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// Seed of the first history; the others follow.
    pub first_seed: u64,
    /// How many histories.
    pub seeds: u64,
    /// Threads that play them, at least 1.
    pub threads: usize,
    /// No further history is begun after so many violations, at least 1.
    pub violations_max: usize,
}

impl Default for FaultOptions {
    /// A thousand histories on two threads, up to ten violations.
    fn default() -> Self {
        Self { first_seed: 1, seeds: 1_000, threads: 2, violations_max: 10 }
    }
}

/// A history that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its seed.
    pub seed: u64,
    /// Which rule, in words.
    pub rule: String,
    /// The scenario script that replays it; where the last command should have printed something else, it says so.
    pub script: String,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Histories played.
    pub histories: u64,
    /// Those that broke a rule, by seed.
    pub violations: Vec<Violation>,
    /// What they reached.
    pub situations: Situations,
}

/// Plays histories, and returns what they broke.
///
/// Cost: some ten milliseconds a history and thread, and a few megabytes a thread.
#[must_use]
pub fn simulate_faults(options: &FaultOptions) -> FaultReport {
    let next = AtomicU64::new(0);
    let report = Mutex::new(FaultReport::default());
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let stop = report.lock().violations.len() >= options.violations_max.max(1);
                    if number >= options.seeds || stop {
                        break;
                    }
                    let (reached, violation) = play(&runtime, options.first_seed.wrapping_add(number));
                    let mut report = report.lock();
                    report.histories += 1;
                    report.situations.add(reached);
                    report.violations.extend(violation);
                }
            });
        }
    });
    let mut report = report.into_inner();
    report.violations.sort_unstable_by_key(|violation| violation.seed);
    report
}

/// Plays one history.
fn play(runtime: &Runtime, seed: u64) -> (BTreeSet<Situation>, Option<Violation>) {
    let transcript = Transcript::default();
    let played = catch_unwind(AssertUnwindSafe(|| runtime.block_on(history(seed, transcript.clone()))));
    let (reached, rule) = played.unwrap_or_else(|_| (BTreeSet::new(), Some("a panic".to_owned())));
    let violation = rule.map(|rule| Violation { seed, rule, script: transcript.script() });
    (reached, violation)
}

async fn history(seed: u64, transcript: Transcript) -> (BTreeSet<Situation>, Option<String>) {
    let mut random = Random::new(seed);
    let mood = Mood {
        faults: random.below(2) == 0,
        crashes: random.below(3) != 0,
        keys: 3 + random.below(10),
        states: 1 + random.below(2),
    };
    let stage = match Stage::new(transcript) {
        Ok(stage) => stage,
        Err(error) => return (BTreeSet::new(), Some(error.to_string())),
    };
    let mut history = History {
        stage,
        world: World::default(),
        random,
        mood,
        reached: BTreeSet::new(),
        expected: BTreeMap::new(),
        values: 0,
        names: 0,
        hang_planned: false,
        lost_reply_planned: false,
        store_failed: false,
        refused: false,
        meta: 0,
    };
    let verdict = history.play().await;
    (history.reached, verdict.err().map(|breach| breach.0))
}
