//! Two processes and many tasks create the same numbered objects on local disk: each number has one winner.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use lowtide::Store;
use lowtide_format::{CreateOutcome, ObjectPath};

/// The environment variable that makes the child.
const DIRECTORY: &str = "LOWTIDE_RACE_DIRECTORY";

const NUMBERS: u64 = 40;
const TASKS: u64 = 32;

/// What the child does instead of being tested.
#[test]
fn a_child_creates_every_number() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::local(Path::new(&directory)).unwrap();
        for number in 1..=NUMBERS {
            let creates = (0..TASKS).map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    let name = ObjectPath::Sequence { number }.name();
                    let bytes = format!("{}-{task}", std::process::id()).repeat(100);
                    store.create(&name, bytes.into()).await.unwrap()
                })
            });
            for create in creates.collect::<Vec<_>>() {
                if matches!(create.await.unwrap(), CreateOutcome::Created) {
                    println!("won {number}");
                }
            }
        }
    });
}

#[test]
fn of_two_processes_with_many_tasks_one_task_wins_each_number() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..2)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "race::a_child_creates_every_number", "--nocapture"])
                .env(DIRECTORY, directory.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut won: BTreeMap<u64, u32> = BTreeMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "a racer failed");
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some(number) = line.strip_prefix("won ") {
                *won.entry(number.parse().unwrap()).or_default() += 1;
            }
        }
    }
    let expected: BTreeMap<u64, u32> = (1..=NUMBERS).map(|number| (number, 1)).collect();
    assert_eq!(won, expected, "each number has one winner");
}
