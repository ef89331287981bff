//! Compaction storms: seen, and told with their cause.

use lowtide_lsm::{LsmBackend, LsmOptions, LsmState, StormOptions};

use crate::support::{Store, checkpoint, count, id, options, range, request};

fn storm_options(directory: &std::path::Path) -> LsmOptions {
    let storm = StormOptions { new_bytes_min: 10 << 10, ..StormOptions::default() };
    LsmOptions { storm, ..options(directory) }
}

fn fill(backend: &mut LsmBackend, state: LsmState<u64, (), Vec<u8>>, keys: std::ops::Range<u64>) {
    for key in keys {
        let value: Vec<u8> =
            (0..100).map(|n| (key.wrapping_mul(2_654_435_761).wrapping_add(n * 97) >> 3) as u8).collect();
        backend.put(state, &(), &key, &value).unwrap();
    }
}

#[test]
fn a_compaction_between_two_checkpoints_is_a_storm_that_names_it_and_the_next_one_is_small_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut backend = LsmBackend::open(&storm_options(directory.path()), range(0, 7), count(8)).unwrap();
    let mut store = Store::default();
    let state = backend.value_state("orders").unwrap();
    fill(&mut backend, state, 0..5000);
    let first = checkpoint(&mut backend, &mut store, request(1, None));
    assert_eq!(first.figures.storm, None, "without a base everything is new");
    backend.completed(id(1));
    fill(&mut backend, state, 0..5000);
    let large = checkpoint(&mut backend, &mut store, request(2, Some(1)));
    assert_eq!(large.figures.storm, None, "everything has changed");
    backend.completed(id(2));
    fill(&mut backend, state, 0..10);
    backend.compact().unwrap();
    let third = checkpoint(&mut backend, &mut store, request(3, Some(2)));
    let storm = third.figures.storm.expect("the compaction went unnoticed");
    assert!(storm.new_per_live > 0.9 && storm.new_per_changed > 10.0, "{storm}");
    let cause = storm.cause.expect("the cause is not known");
    assert_eq!(cause.state, "orders");
    assert!(cause.reason.contains("ManualCompaction") && cause.output_bytes > 100_000, "{cause:?}");
    backend.completed(id(3));
    fill(&mut backend, state, 0..10);
    let fourth = checkpoint(&mut backend, &mut store, request(4, Some(3)));
    assert_eq!((fourth.figures.storm, fourth.figures.tables_new), (None, 1));
    assert!(fourth.figures.traffic.new_bytes < 10 << 10);
}

/// A backend whose second checkpoint makes RocksDB merge, which waits for as long as it is written.
fn waiting_merge(directory: &std::path::Path, store: &mut Store) -> (LsmBackend, lowtide_lsm::LsmSnapshot) {
    let merge_delay_max = Some(std::time::Duration::from_secs(3600));
    let options = LsmOptions { merge_delay_max, flushes_per_merge: 2, ..options(directory) };
    let mut backend = LsmBackend::open(&options, range(0, 7), count(8)).unwrap();
    let state = backend.value_state("orders").unwrap();
    fill(&mut backend, state, 0..100);
    checkpoint(&mut backend, store, request(1, None));
    fill(&mut backend, state, 0..100);
    let snapshot = backend.freeze(request(2, Some(1))).unwrap();
    assert!(comes_true(|| property(&backend, "rocksdb.num-running-compactions") == 1), "no merge began");
    (backend, snapshot)
}

fn property(backend: &LsmBackend, name: &str) -> u64 {
    let (database, family) = backend.database("orders").unwrap();
    database.property_int_value_cf(family, name).unwrap().unwrap()
}

fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let wait = || std::thread::sleep(std::time::Duration::from_millis(1));
    (0..60_000).any(|_| condition() || (wait(), false).1)
}

#[test]
fn a_merge_waits_while_a_checkpoint_is_written_if_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::default();
    let (backend, mut snapshot) = waiting_merge(directory.path(), &mut store);
    let files = crate::support::write(&mut snapshot, &mut store).unwrap();
    assert_eq!(property(&backend, "rocksdb.num-running-compactions"), 1, "the merge did not wait");
    let taken = snapshot.finish(files).unwrap();
    assert_eq!(taken.files.len(), 3, "two tables and the table list");
    let merged = || property(&backend, "rocksdb.num-running-compactions") == 0;
    assert!(comes_true(merged), "the merge waits for ever");
    // By hand it does not wait.
    let mut backend = backend;
    let _held = backend.freeze(request(3, Some(2))).unwrap();
    backend.compact().unwrap();
}

#[test]
fn closing_does_not_wait_for_a_merge_that_waits_for_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let (backend, snapshot) = waiting_merge(directory.path(), &mut Store::default());
    drop(backend);
    drop(snapshot);
}
