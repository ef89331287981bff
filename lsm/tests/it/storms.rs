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
