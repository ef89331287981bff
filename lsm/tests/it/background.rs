//! RocksDB's own threads merge and delete tables at any moment; nothing else may depend on when.

use std::sync::Arc;

use lowtide_lsm::{LsmAcknowledgement, LsmBackend, LsmOptions, LsmState, OptionsScope};

use crate::support::{Store, checkpoint, count, id, options, range, request, restore_with};

/// Tables of the state that is never merged: whoever looks at all tables one by one is busy with them for a while.
const IDLE_TABLES: u64 = 100;
/// States of two small tables each, which are merged within a moment.
const MERGED_STATES: u64 = 8;

type State = LsmState<u64, (), u64>;

/// Merges a state as soon as it has two tables, if `eager` and it is not the idle one.
fn options_of(directory: &std::path::Path, eager: bool) -> LsmOptions {
    let hook = move |scope: OptionsScope<'_>| {
        if let OptionsScope::State(name, options) = scope {
            options.set_disable_auto_compactions(!eager || name == "idle");
        }
    };
    LsmOptions { hook: Some(Arc::new(hook)), flushes_per_merge: 2, background_jobs: 2, ..options(directory) }
}

fn merged(backend: &mut LsmBackend) -> Vec<State> {
    (0..MERGED_STATES).map(|number| backend.value_state(&format!("merged {number}")).unwrap()).collect()
}

fn many_tables(directory: &std::path::Path, store: &mut Store) -> LsmAcknowledgement {
    let mut backend = LsmBackend::open(&options_of(directory, false), range(0, 7), count(8)).unwrap();
    let idle: State = backend.value_state("idle").unwrap();
    let merged = merged(&mut backend);
    let mut taken = None;
    for number in 1..=IDLE_TABLES {
        (0..20).for_each(|key| backend.put(idle, &(), &key, &number).unwrap());
        if number > IDLE_TABLES - 2 {
            for state in &merged {
                (0..20).for_each(|key| backend.put(*state, &(), &key, &number).unwrap());
            }
        }
        taken = Some(checkpoint(&mut backend, store, request(number, id_before(number))));
    }
    taken.unwrap()
}

/// In memory if there is such a place: a merge is then over before anybody has looked at all tables.
fn fast_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn id_before(number: u64) -> Option<u64> {
    number.checked_sub(1).filter(|base| *base > 0)
}

#[test]
fn a_restore_goes_well_while_the_tables_it_restored_are_merged_and_deleted() {
    let directory = fast_directory();
    let mut store = Store::default();
    let taken = many_tables(directory.path(), &mut store);
    assert_eq!(taken.files.len() as u64, IDLE_TABLES + 2 * MERGED_STATES + 1, "merged before the restore");
    let eager = options_of(directory.path(), true);
    for wanted in [range(0, 7), range(0, 3)].into_iter().cycle().take(20) {
        let mut backend = restore_with(&eager, &mut store, wanted, &[&taken]).unwrap();
        for state in merged(&mut backend) {
            let entries: Vec<_> = backend.iter(state, None).unwrap().map(Result::unwrap).collect();
            let newest = |(_, (), value): &(u64, (), u64)| *value == IDLE_TABLES;
            assert!(!entries.is_empty() && entries.iter().all(newest), "{entries:?}");
        }
        // What was merged meanwhile is new, what was not is known.
        let next = checkpoint(&mut backend, &mut store, request(IDLE_TABLES + 1, Some(IDLE_TABLES)));
        assert_eq!(next.base, Some(id(IDLE_TABLES)));
        let known = |stored| taken.files.iter().any(|old| old.stored == stored);
        assert!(next.files.into_iter().filter(|file| !file.new).all(|file| known(file.stored)));
    }
}
