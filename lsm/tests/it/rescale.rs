//! Restores for other key groups: every key once, nothing foreign, few reads.

use std::collections::BTreeMap;

use crate::support::{Store, checkpoint, count, files_under, id, options, part, range, request, restore};
use lowtide_format::{Key, KeyGroup, KeyGroupRange, key_group};
use lowtide_lsm::{LsmAcknowledgement, LsmBackend, LsmErrorKind, LsmState, TABLE_LIST, key};

const GROUPS: u16 = 16;

struct Job {
    directory: tempfile::TempDir,
    store: Store,
    subtasks: Vec<LsmBackend>,
    expected: BTreeMap<u64, String>,
    taken: Vec<LsmAcknowledgement>,
    next: u64,
}

fn ranges(subtasks: u32) -> Vec<KeyGroupRange> {
    (0..subtasks).map(|index| KeyGroupRange::of_subtask(index, subtasks, count(GROUPS)).unwrap()).collect()
}

fn state(backend: &mut LsmBackend) -> LsmState<u64, (), String> {
    backend.value_state("s").unwrap()
}

impl Job {
    fn new(subtasks: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = |range| LsmBackend::open(&options(directory.path()), range, count(GROUPS)).unwrap();
        let subtasks = ranges(subtasks).into_iter().map(open).collect();
        Self {
            directory,
            store: Store::default(),
            subtasks,
            expected: BTreeMap::new(),
            taken: Vec::new(),
            next: 1,
        }
    }

    fn owner(&mut self, key: u64) -> &mut LsmBackend {
        let group = key_group(key.key_hash(), count(GROUPS));
        self.subtasks.iter_mut().find(|backend| backend.range().contains(group)).unwrap()
    }

    fn put(&mut self, key: u64, value: &str) {
        let backend = self.owner(key);
        let state = state(backend);
        backend.put(state, &(), &key, &value.to_owned()).unwrap();
        self.expected.insert(key, value.to_owned());
    }

    fn remove(&mut self, key: u64) {
        let backend = self.owner(key);
        let state = state(backend);
        backend.remove(state, &(), &key).unwrap();
        self.expected.remove(&key);
    }

    fn checkpoint(&mut self) {
        let base = self.next.checked_sub(1).filter(|base| *base > 0);
        let taken = self
            .subtasks
            .iter_mut()
            .map(|backend| checkpoint(backend, &mut self.store, request(self.next, base)));
        self.taken = taken.collect();
        self.subtasks.iter_mut().for_each(|backend| backend.completed(id(self.next)));
        self.next += 1;
    }

    fn rescale(&mut self, subtasks: u32) {
        self.subtasks.clear();
        let parts: Vec<&LsmAcknowledgement> = self.taken.iter().collect();
        for range in ranges(subtasks) {
            let backend = restore(self.directory.path(), &mut self.store, range, &parts).unwrap();
            self.subtasks.push(backend);
        }
    }

    fn check(&mut self) {
        let mut found = BTreeMap::new();
        for backend in &mut self.subtasks {
            let state = state(backend);
            for entry in backend.iter(state, None).unwrap() {
                let (key, (), value) = entry.unwrap();
                assert!(found.insert(key, value).is_none(), "key {key} is in two subtasks");
            }
        }
        assert_eq!(found, self.expected);
    }

    /// Key groups that tables of the last checkpoint reach into beyond the range of their subtask.
    fn foreign_groups(&mut self) -> usize {
        let Self { taken, store, .. } = self;
        let parts = taken.iter().map(|taken| part(taken, store));
        let foreign = |part: lowtide_lsm::RestorePart| {
            let range = part.meta.range;
            let groups: Vec<KeyGroup> =
                part.meta.tables.iter().flat_map(|table| table.key_groups().iter()).collect();
            groups.into_iter().filter(|group| !range.contains(*group)).count()
        };
        parts.map(foreign).sum()
    }
}

#[test]
fn every_key_is_in_exactly_one_subtask_after_any_rescale() {
    let mut job = Job::new(2);
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for (round, subtasks) in [3, 2, 4, 4, 1, 5, 16, 1, 2].into_iter().enumerate() {
        for _ in 0..3 {
            for _ in 0..150 {
                let key = random(400);
                if random(4) == 0 {
                    job.remove(key)
                } else {
                    job.put(key, &format!("{round}-{}", random(1000)))
                }
            }
            job.checkpoint();
        }
        job.rescale(subtasks);
        job.check();
        // What was restored can be changed and checkpointed, and holds nothing of others.
        job.put(random(400), "after");
        job.checkpoint();
        assert_eq!(job.foreign_groups(), 0, "round {round}");
        assert!(job.taken.iter().all(|taken| taken.base == Some(id(job.next - 2))), "a base was lost");
        job.check();
    }
}

#[test]
fn a_key_given_away_changed_there_and_given_back_has_its_newest_value() {
    let mut job = Job::new(1);
    (0..200).for_each(|key| job.put(key, "first"));
    job.checkpoint();
    for round in 0..5 {
        job.rescale(2);
        (0..200).filter(|key| key % 3 == round % 3).for_each(|key| job.put(key, &format!("split {round}")));
        job.remove(round);
        job.checkpoint();
        job.rescale(1);
        job.check();
        job.put(round, "joined");
        job.checkpoint();
    }
}

#[test]
fn clears_before_a_rescale_bring_nothing_back() {
    let mut job = Job::new(2);
    (0..100).for_each(|key| job.put(key, "old"));
    job.checkpoint();
    for backend in &mut job.subtasks {
        let state = state(backend);
        backend.clear(state, None).unwrap();
    }
    job.expected.clear();
    (0..20).for_each(|key| job.put(key, "new"));
    job.checkpoint();
    job.rescale(3);
    job.check();
    job.checkpoint();
    job.rescale(1);
    job.check();
}

#[test]
fn no_subtask_reads_a_table_twice_and_tables_away_from_a_boundary_are_read_once() {
    let mut job = Job::new(2);
    for key in 0..20_000 {
        job.put(key, "some value that takes a little room");
    }
    job.checkpoint();
    let tables: Vec<(String, KeyGroupRange)> = {
        let Job { taken, store, .. } = &mut job;
        let parts = taken.iter().map(|taken| part(taken, store)).collect::<Vec<_>>();
        let groups = |part: &lowtide_lsm::RestorePart| {
            let of = |table: &lowtide_lsm::TableMeta| {
                (part.tables[&table.local_name].file.object.to_string(), table.key_groups())
            };
            part.meta.tables.iter().map(of).collect::<Vec<_>>()
        };
        parts.iter().flat_map(groups).collect()
    };
    job.store.reads.clear();
    job.rescale(3);
    for (object, groups) in tables {
        let expected = ranges(3).into_iter().filter(|range| range.intersect(groups).is_some()).count() as u64;
        assert_eq!(job.store.reads.get(&object).copied().unwrap_or(0), expected, "{object} over {groups}");
    }
    job.check();
}

#[test]
fn a_million_entries_go_from_two_to_three_subtasks_with_one_more_read_for_each_boundary() {
    const ENTRIES: u64 = 1_000_000;
    const OLD: u32 = 2;
    const NEW: u32 = 3;
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::default();
    let settings = lowtide_lsm::LsmOptions {
        table_bytes_target: 1 << 20,
        level_bytes_base: 8 << 20,
        ..options(directory.path())
    };
    let mut former: Vec<LsmBackend> = ranges(OLD)
        .into_iter()
        .map(|range| LsmBackend::open(&settings, range, count(GROUPS)).unwrap())
        .collect();
    let tokens: Vec<LsmState<u64, (), u64>> =
        former.iter_mut().map(|backend| backend.value_state("s").unwrap()).collect();
    for key in 0..ENTRIES {
        let group = key_group(key.key_hash(), count(GROUPS));
        let at = former.iter().position(|backend| backend.range().contains(group)).unwrap();
        former[at].put(tokens[at], &(), &key, &key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
    }
    // One table over each boundary instead of one for each flush that has not been merged yet.
    former.iter().for_each(|backend| backend.compact().unwrap());
    let taken: Vec<LsmAcknowledgement> =
        former.iter_mut().map(|backend| checkpoint(backend, &mut store, request(1, None))).collect();
    drop(former);
    let is_table = |object: &str| object.ends_with(".sst");
    let tables = store.objects.keys().filter(|object| is_table(object)).count() as u64;
    assert!(tables > 10, "{tables} tables say little");
    let parts: Vec<&LsmAcknowledgement> = taken.iter().collect();
    let mut total = BTreeMap::new();
    let mut entries = 0;
    for range in ranges(NEW) {
        store.reads.clear();
        let mut backend = restore(directory.path(), &mut store, range, &parts).unwrap();
        for (object, reads) in store.reads.iter().filter(|(object, _)| is_table(object)) {
            assert_eq!(*reads, 1, "{object} is read {reads} times by the owner of {range}");
            *total.entry(object.clone()).or_insert(0) += reads;
        }
        let state: LsmState<u64, (), u64> = backend.value_state("s").unwrap();
        entries += backend.len(state).unwrap();
    }
    assert_eq!(entries, ENTRIES);
    let reads: u64 = total.values().sum();
    assert_eq!(total.len() as u64, tables, "a table was not read at all");
    assert!(reads <= tables + u64::from(NEW - 1), "{reads} reads of {tables} tables");
}

#[test]
fn states_that_only_some_subtasks_have_survive_joining() {
    let mut job = Job::new(2);
    (0..50).for_each(|key| job.put(key, "x"));
    let left = job.subtasks[0].range();
    let key = (0_u64..).find(|key| left.contains(key_group(key.key_hash(), count(GROUPS)))).unwrap();
    let only: LsmState<u64, u32, u8> = job.subtasks[0].value_state("only left").unwrap();
    job.subtasks[0].put(only, &5, &key, &1).unwrap();
    job.checkpoint();
    job.rescale(1);
    job.check();
    let only: LsmState<u64, u32, u8> = job.subtasks[0].value_state("only left").unwrap();
    assert_eq!(job.subtasks[0].get(only, &5, &key).unwrap(), Some(1));
}

#[test]
fn a_damaged_missing_or_swapped_table_is_an_error_that_names_it_and_leaves_nothing() {
    let mut job = Job::new(1);
    (0..100).for_each(|key| job.put(key, "1"));
    job.checkpoint();
    (100..200).for_each(|key| job.put(key, "2"));
    job.checkpoint();
    job.subtasks.clear();
    let at_rest = files_under(job.directory.path());
    let whole = range(0, GROUPS - 1);
    for target in [whole, range(0, 3)] {
        let tables = |job: &Job| -> Vec<usize> {
            let listed = job.taken[0].files.iter().enumerate();
            listed.filter(|(_, file)| file.local_name != TABLE_LIST).map(|(at, _)| at).collect()
        };
        // Two sound tables, each listed as the other.
        let mut swapped = job.taken[0].clone();
        let [a, b] = tables(&job)[..] else { panic!("two tables are expected") };
        let first = swapped.files[a].stored.clone();
        swapped.files[a].stored = std::mem::replace(&mut swapped.files[b].stored, first);
        let error = restore(job.directory.path(), &mut job.store, target, &[&swapped]).unwrap_err();
        assert_eq!(error.kind(), LsmErrorKind::Missing, "{error}");
        let mut short = job.taken[0].clone();
        let gone = short.files.remove(a).local_name;
        let error = restore(job.directory.path(), &mut job.store, target, &[&short]).unwrap_err();
        assert!(error.to_string().contains(&gone), "{error}");
        assert_eq!(files_under(job.directory.path()), at_rest, "something half-open is left");
    }
    let other_count =
        lowtide_lsm::RestorePlan::new(whole, count(128), id(2), vec![part(&job.taken[0], &mut job.store)]);
    assert_eq!(other_count.unwrap_err().kind(), LsmErrorKind::Incompatible);
}

// E1
#[test]
fn a_key_of_another_subtask_is_refused_with_its_group() {
    let mut job = Job::new(2);
    let right = job.subtasks[1].range();
    let key = (0_u64..).find(|key| right.contains(key_group(key.key_hash(), count(GROUPS)))).unwrap();
    let token = state(&mut job.subtasks[0]);
    let error = job.subtasks[0].put(token, &(), &key, &String::new()).unwrap_err();
    assert_eq!(error.kind(), LsmErrorKind::InvalidArgument);
    assert!(error.to_string().contains("route it to its own subtask"), "{error}");
    let foreign = state(&mut job.subtasks[1]);
    assert!(job.subtasks[0].get(foreign, &(), &key).is_err(), "a token of another backend was taken");
    assert_eq!(key::group_of(&key::group_prefix(KeyGroup(300))), KeyGroup(300));
}

#[test]
fn parts_whose_tables_hold_groups_of_others_are_copied_without_them() {
    let mut job = Job::new(1);
    (0..300).for_each(|key| job.put(key, "own"));
    job.checkpoint();
    // The same database claimed twice: for its lower groups, and, changed since, for its upper ones.
    let mut lower = part(&job.taken[0], &mut job.store);
    let expected_lower = job.expected.clone();
    (0..300).for_each(|key| job.put(key, "changed"));
    job.checkpoint();
    let mut upper = part(&job.taken[0], &mut job.store);
    (lower.meta.range, upper.meta.range) = (range(0, 6), range(7, GROUPS - 1));
    let whole = range(0, GROUPS - 1);
    let plan = lowtide_lsm::RestorePlan::new(whole, count(GROUPS), id(2), vec![lower, upper]).unwrap();
    let staging = lowtide_lsm::Staging::create(&options(job.directory.path()), plan).unwrap();
    for fetch in staging.plan().fetches() {
        std::fs::write(staging.path(fetch).unwrap(), job.store.get(&fetch.stored.file)).unwrap();
    }
    job.subtasks = vec![staging.restore().unwrap()];
    for (key, value) in expected_lower {
        if key_group(key.key_hash(), count(GROUPS)).0 <= 6 {
            job.expected.insert(key, value);
        }
    }
    job.check();
}
