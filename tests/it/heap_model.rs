//! Random histories of a job against an ordered map.
//!
//! A history is forty or more steps of a job with two to four subtasks and up to three pending checkpoints:
//! puts, updates, removals, clears, triggers, writes, acknowledgements, aborts, crashes, restores of any retained
//! checkpoint into another number of subtasks. After every history each retained checkpoint is restored into an
//! empty job and compared with the map as it was at its trigger. The seed of a failing history is in the panic.

mod model;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use model::Rng;
use world::{Situation, World};

/// Histories of all tests of this module together; `LOWTIDE_HISTORIES` asks for more or fewer.
const HISTORIES: u64 = 10_000;
/// Steps of one history, at least.
const STEPS: u64 = 60;
/// Parts that the test runner may run side by side.
const PARTS: u64 = 4;
/// Each situation must be reached in at least one of so many histories.
const RARITY_MAX: u64 = 100;

fn histories() -> u64 {
    std::env::var("LOWTIDE_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(HISTORIES)
}

/// Runs one part of the histories and checks that they reached every situation often enough.
fn run_part(part: u64) {
    let count = histories() / PARTS;
    let first = part * count;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut reached: BTreeMap<Situation, u64> = BTreeMap::new();
    // The seed under way, for the message of a panic anywhere below.
    let seed_now = AtomicU64::new(first);
    let report = PrintSeed(&seed_now);
    for seed in first..first + count {
        seed_now.store(seed, Ordering::Relaxed);
        for situation in runtime.block_on(run_history(seed)) {
            *reached.entry(situation).or_default() += 1;
        }
    }
    drop(report);
    let table: String = reached.iter().map(|(situation, times)| format!("{situation:?} {times}\n")).collect();
    println!("histories {first}..{}\n{table}", first + count);
    for situation in Situation::ALL {
        let times = reached.get(&situation).copied().unwrap_or(0);
        assert!(
            times * RARITY_MAX >= count,
            "{situation:?} was reached in {times} of {count} histories, too rarely to be tested\n{table}"
        );
    }
}

struct PrintSeed<'a>(&'a AtomicU64);

impl Drop for PrintSeed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the failing history has seed {}", self.0.load(Ordering::Relaxed));
        }
    }
}

async fn run_history(seed: u64) -> Vec<Situation> {
    let mut rng = Rng::new(seed);
    let mut world = World::start(&mut rng).await;
    let steps = STEPS + rng.below(40);
    for _ in 0..steps {
        world.step(&mut rng).await;
    }
    world.finish(&mut rng).await
}

#[test]
fn histories_restore_to_the_ordered_map_in_the_first_part() {
    run_part(0);
}

#[test]
fn histories_restore_to_the_ordered_map_in_the_second_part() {
    run_part(1);
}

#[test]
fn histories_restore_to_the_ordered_map_in_the_third_part() {
    run_part(2);
}

#[test]
fn histories_restore_to_the_ordered_map_in_the_fourth_part() {
    run_part(3);
}
