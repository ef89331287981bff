//! A process that writes to local disk is killed at random instants, again and again; what it had reported complete
//! must be there.
//!
//! The test runs itself as the child. Operations follow from their number, and the number of operations done is an
//! entry of the state itself, so that whatever is restored says what it should be. `LOWTIDE_CRASH_ROUNDS` asks for more
//! rounds, `LOWTIDE_CRASH_SEED` for other instants.
#![expect(
    clippy::unwrap_used,
    reason = "a child that fails for another reason than being killed fails the test"
)]

mod child;
mod operations;
mod race;

use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lowtide::{Job, JobBuilder, Retention, Store, SweepOptions, ValueState, verify};

use operations::{Mix, model};

/// The environment variable that makes the child.
const DIRECTORY: &str = "LOWTIDE_CRASH_DIRECTORY";

/// The environment variable that tells the child how many subtasks to have.
const SUBTASKS: &str = "LOWTIDE_CRASH_SUBTASKS";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The job that both sides start, each with its own number of subtasks.
fn builder(subtasks: u32) -> JobBuilder {
    let retained = NonZeroU32::new(2).map_or_else(Retention::default, Retention::Newest);
    Job::builder("crash").key_groups(16).subtasks(subtasks).retained(retained)
}

/// What the child does instead of being tested.
#[test]
fn a_child_writes_until_it_is_killed() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let subtasks = u32::try_from(number(SUBTASKS, 1)).unwrap();
        child::write_for_ever(Path::new(&directory), subtasks);
    }
}

#[test]
fn what_was_complete_survives_a_kill_at_any_instant() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut random = Mix::new(number("LOWTIDE_CRASH_SEED", 1));
    let mut reported = 0;
    let mut restored = 0;
    for round in 0..number("LOWTIDE_CRASH_ROUNDS", 20) {
        let subtasks = 1 + random.below(4);
        let told = run_and_kill(directory.path(), subtasks, Duration::from_micros(random.below(250_000)));
        reported = told.unwrap_or(reported).max(reported);
        let subtasks = u32::try_from(1 + random.below(4)).unwrap();
        let found = restore(directory.path(), subtasks);
        assert!(found >= reported, "round {round}: {reported} operations were complete, {found} are there");
        restored = restored.max(found);
    }
    assert!(restored > 0, "no round came as far as a complete checkpoint");
}

/// Starts a child, kills it after a while, and returns the last number of operations that it reported complete.
fn run_and_kill(directory: &Path, subtasks: u64, after: Duration) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_writes_until_it_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(SUBTASKS, subtasks.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let lines = output.lines().map_while(Result::ok);
        let complete = lines.filter_map(|line| line.strip_prefix("complete ")?.parse().ok());
        complete.last()
    });
    // No test waits for this instant: it is the one at which the power goes.
    std::thread::sleep(Duration::from_millis(20) + after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Restores the newest checkpoint, checks it and every other, and returns the number of operations in it.
fn restore(directory: &Path, subtasks: u32) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::local(directory).unwrap();
        let mut job = builder(subtasks).open(&store).await.unwrap();
        let entries: ValueState<u64, u64> = job.value_state("entries").unwrap();
        let counter: ValueState<u64, u64> = job.value_state("counter").unwrap();
        let done = job.state(&counter).get(&0).unwrap().copied().unwrap_or(0);
        let expected = model(done);
        assert_eq!(job.state(&entries).len().unwrap(), expected.len() as u64);
        for (key, value) in &expected {
            assert_eq!(
                job.state(&entries).get(key).unwrap(),
                Some(value),
                "key {key} after {done} operations"
            );
        }
        for verification in verify(job.store(), None).await.unwrap() {
            assert!(verification.faults.is_empty(), "{}: {:?}", verification.id, verification.faults);
        }
        job.sweep(SweepOptions { age_millis: 0, ..SweepOptions::default() }).await.unwrap();
        done
    })
}
