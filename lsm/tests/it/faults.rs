//! Faults that systems of this kind have had, each shown not to be here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lowtide_lsm::{LsmBackend, LsmError, LsmOptions, LsmState, OptionsScope};

use crate::support::{Store, checkpoint, count, id, options, range, request, restore, restore_with, write};

type State = LsmState<u64, (), Vec<u8>>;

fn open(options: &LsmOptions) -> (LsmBackend, State) {
    let mut backend = LsmBackend::open(options, range(0, 7), count(8)).unwrap();
    let state = backend.value_state("s").unwrap();
    (backend, state)
}

fn entries(backend: &LsmBackend, state: State) -> BTreeMap<u64, Vec<u8>> {
    let entries = backend.iter(state, None).unwrap();
    entries.map(|entry| entry.map(|(key, (), value)| (key, value)).unwrap()).collect()
}

/// Bytes that do not compress.
fn value(key: u64, round: u64) -> Vec<u8> {
    let mut seed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..100).map(byte).collect()
}

/// Bytes of all files under a directory, each once, however many links it has.
fn bytes_under(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut files = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => drop(files.insert(metadata.ino(), metadata.len())),
                // Merged away meanwhile.
                Err(_) => {}
            }
        }
    }
    files.into_values().sum()
}

#[test]
fn every_one_of_many_checkpoints_opens_whatever_the_manifest_does_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::default();
    // The manifest is written anew after nearly every flush and merge.
    let hook = |scope: OptionsScope<'_>| {
        if let OptionsScope::Database(options) = scope {
            options.set_max_manifest_file_size(500);
        }
    };
    let eager = LsmOptions {
        hook: Some(Arc::new(hook)),
        flushes_per_merge: 2,
        memory_budget: 1 << 20,
        ..options(directory.path())
    };
    let (mut backend, hot) = open(&eager);
    let other: State = backend.value_state("other").unwrap();
    let idle: State = backend.value_state("idle").unwrap();
    backend.put(idle, &(), &1, &vec![1]).unwrap();
    let (mut expected, mut base) = (BTreeMap::new(), None);
    for number in 1..=60 {
        for n in 0..300 {
            let key = (number * 131 + n * 7) % 900;
            backend.put(hot, &(), &key, &value(key, number)).unwrap();
            backend.put(other, &(), &key, &value(key, number)).unwrap();
            expected.insert(key, value(key, number));
        }
        let taken = checkpoint(&mut backend, &mut store, request(number, base));
        backend.completed(id(number));
        base = Some(number);
        let mut copy = restore_with(&eager, &mut store, range(0, 7), &[&taken]).unwrap();
        for name in ["s", "other"] {
            let state = copy.value_state(name).unwrap();
            assert_eq!(entries(&copy, state), expected, "chk-{number}, {name}");
        }
        let idle = copy.value_state("idle").unwrap();
        assert_eq!(entries(&copy, idle).len(), 1, "chk-{number}");
    }
}

#[test]
fn aborted_and_cancelled_checkpoints_hold_no_disk_space() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::default();
    let (mut backend, state) = open(&options(directory.path()));
    for key in 0..3000 {
        backend.put(state, &(), &key, &value(key, 0)).unwrap();
    }
    let mut base = None;
    for number in 1..=60 {
        for key in 0..300 {
            backend.put(state, &(), &(key * 10), &value(key, number)).unwrap();
        }
        let mut snapshot = backend.freeze(request(number, base)).unwrap();
        if number % 5 == 0 {
            snapshot.write(|| true, |_| Ok::<_, LsmError>(())).unwrap_err();
            backend.aborted(id(number));
            continue;
        }
        let files = write(&mut snapshot, &mut store).unwrap();
        snapshot.finish(files).unwrap();
        if number % 3 == 0 {
            backend.aborted(id(number));
        } else {
            backend.completed(id(number));
            base = Some(number);
        }
    }
    backend.compact().unwrap();
    let live = checkpoint(&mut backend, &mut store, request(61, base)).figures.traffic.live_bytes;
    let on_disk = bytes_under(directory.path());
    // Beside the tables lie RocksDB's own small files.
    assert!(on_disk <= live + live / 2 + (256 << 10), "{on_disk} bytes on disk for {live} live ones");
}

#[test]
fn a_local_directory_may_have_any_name_and_be_relative() {
    let parent = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(".").join(parent.path().file_name().unwrap());
    for name in ["a b", "c:d", "50%", "ü", "s3:", "%20"] {
        let mut store = Store::default();
        let directory = relative.join(name);
        let (mut backend, state) = open(&options(&directory));
        (0..50).for_each(|key| backend.put(state, &(), &key, &vec![1]).unwrap());
        let taken = checkpoint(&mut backend, &mut store, request(1, None));
        for wanted in [range(0, 7), range(2, 5)] {
            let copy = restore(&directory, &mut store, wanted, &[&taken]);
            assert!(copy.unwrap().entries().unwrap() > 0, "{name:?}");
        }
        drop(backend);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "{name:?}");
    }
}

#[test]
fn a_completion_heard_between_any_two_steps_of_a_checkpoint_leaves_its_base_as_it_was() {
    for step in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::default();
        let (mut backend, state) = open(&options(directory.path()));
        let put = |backend: &mut LsmBackend, key: u64| backend.put(state, &(), &key, &vec![1]).unwrap();
        put(&mut backend, 4);
        let fourth = checkpoint(&mut backend, &mut store, request(4, None));
        backend.completed(id(4));
        put(&mut backend, 5);
        let fifth = checkpoint(&mut backend, &mut store, request(5, Some(4)));
        put(&mut backend, 6);
        if step == 0 {
            backend.completed(id(5));
        }
        let mut snapshot = backend.freeze(request(6, Some(4))).unwrap();
        if step == 1 {
            backend.completed(id(5));
        }
        let files = write(&mut snapshot, &mut store).unwrap();
        if step == 2 {
            backend.completed(id(5));
        }
        let sixth = snapshot.finish(files).unwrap();
        let kept: Vec<_> = sixth.files.iter().filter(|file| !file.new).map(|file| &file.stored).collect();
        let of = |taken: &lowtide_lsm::LsmAcknowledgement, stored: &lowtide_lsm::StoredTable| {
            taken.files.iter().any(|file| file.stored == *stored)
        };
        match sixth.base {
            Some(base) => {
                assert_eq!(base, id(4));
                assert!(!kept.is_empty() && kept.iter().all(|stored| of(&fourth, stored)), "step {step}");
            }
            // Its tables were forgotten before the freeze: everything is uploaded, nothing reused.
            None => assert!(step == 0 && kept.is_empty()),
        }
        assert!(!kept.iter().any(|stored| !of(&fourth, stored) && of(&fifth, stored)), "a mix, step {step}");
        let mut copy = restore(directory.path(), &mut store, range(0, 7), &[&sixth]).unwrap();
        let state = copy.value_state("s").unwrap();
        assert_eq!(entries(&copy, state).into_keys().collect::<Vec<_>>(), [4, 5, 6]);
    }
}

#[test]
fn a_state_that_comes_into_being_after_the_freeze_is_in_the_next_checkpoint_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::default();
    let (mut backend, state) = open(&options(directory.path()));
    backend.put(state, &(), &1, &vec![1]).unwrap();
    let mut snapshot = backend.freeze(request(1, None)).unwrap();
    let late: State = backend.value_state("late").unwrap();
    backend.put(late, &(), &2, &vec![2]).unwrap();
    let files = write(&mut snapshot, &mut store).unwrap();
    let first = snapshot.finish(files).unwrap();
    assert_eq!(first.states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["s"]);
    backend.completed(id(1));
    let second = checkpoint(&mut backend, &mut store, request(2, Some(1)));
    for (taken, states) in [(&first, 1), (&second, 2)] {
        let copy = restore(directory.path(), &mut store, range(0, 7), &[taken]).unwrap();
        assert_eq!(copy.states().count(), states);
        assert_eq!(copy.entries().unwrap(), states as u64);
    }
}
