//! The typed state API against an ordered map.

use std::collections::BTreeMap;

use lowtide_format::{FinishedSegment, SegmentReader};
use lowtide_lsm::{LsmBackend, LsmErrorKind, LsmState, OptionsScope};
use proptest::prelude::*;

use crate::support::{Store, checkpoint, count, id, options, range, request, restore};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, String),
    Update(u8, u8),
    Remove(u8, u8),
    ClearNamespace(u8),
    Clear,
    Retain(u8),
    /// Take a checkpoint, lose everything, restore.
    Restart,
    /// Move all entries into a fresh backend as records.
    Move,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0_u8..20, 0_u8..3, "[a-z]{0,6}").prop_map(|(key, namespace, value)| Step::Put(key, namespace, value)),
        4 => (0_u8..20, 0_u8..3).prop_map(|(key, namespace)| Step::Update(key, namespace)),
        4 => (0_u8..20, 0_u8..3).prop_map(|(key, namespace)| Step::Remove(key, namespace)),
        1 => (0_u8..3).prop_map(Step::ClearNamespace),
        1 => Just(Step::Clear),
        1 => (0_u8..4).prop_map(Step::Retain),
        1 => Just(Step::Restart),
        1 => Just(Step::Move),
    ];
    proptest::collection::vec(step, 1..60)
}

type Model = BTreeMap<(String, u8), String>;

struct Run {
    directory: tempfile::TempDir,
    store: Store,
    backend: LsmBackend,
    state: LsmState<String, u8, String>,
    model: Model,
    next: u64,
}

fn open(directory: &std::path::Path) -> LsmBackend {
    LsmBackend::open(&options(directory), range(0, 7), count(8)).unwrap()
}

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut backend = open(directory.path());
        let state = backend.value_state("s").unwrap();
        Self { directory, store: Store::default(), backend, state, model: Model::new(), next: 1 }
    }

    fn step(&mut self, step: Step) {
        let key = |key: u8| format!("key{key}");
        let Self { backend, state, model, .. } = self;
        match step {
            Step::Put(k, n, value) => {
                backend.put(*state, &n, key(k).as_str(), &value).unwrap();
                model.insert((key(k), n), value);
            }
            Step::Update(k, n) => {
                let changed = backend.update(*state, &n, key(k).as_str(), |value| value.push('+')).unwrap();
                let expected = model.get_mut(&(key(k), n)).map(|value| value.push('+'));
                assert_eq!(changed, expected.is_some());
            }
            Step::Remove(k, n) => {
                assert_eq!(backend.contains(*state, &n, &key(k)).unwrap(), model.contains_key(&(key(k), n)));
                backend.remove(*state, &n, &key(k)).unwrap();
                model.remove(&(key(k), n));
            }
            Step::ClearNamespace(n) => {
                backend.clear(*state, Some(&n)).unwrap();
                model.retain(|(_, namespace), _| *namespace != n);
            }
            Step::Clear => {
                backend.clear(*state, None).unwrap();
                model.clear();
            }
            Step::Retain(length) => {
                let before = model.len();
                model.retain(|_, value| value.len() > usize::from(length));
                let removed =
                    backend.retain(*state, |_, _, value| value.len() > usize::from(length)).unwrap();
                assert_eq!(removed as usize, before - model.len());
            }
            Step::Restart => self.restart(),
            Step::Move => self.move_as_records(),
        }
    }

    fn restart(&mut self) {
        let base = self.next.checked_sub(1).filter(|base| *base > 0);
        let taken = checkpoint(&mut self.backend, &mut self.store, request(self.next, base));
        assert_eq!(taken.entries, self.model.len() as u64);
        self.next += 1;
        self.backend = restore(self.directory.path(), &mut self.store, range(0, 7), &[&taken]).unwrap();
        self.state = self.backend.value_state("s").unwrap();
    }

    fn move_as_records(&mut self) {
        let mut fresh = open(self.directory.path());
        for segment in records(&self.backend, self.next) {
            replay(&mut fresh, &segment);
        }
        fresh.restored_from(id(self.next));
        self.next += 1;
        self.backend = fresh;
        self.state = self.backend.value_state("s").unwrap();
    }

    fn check(&self) {
        let all = |namespace: Option<&u8>| -> Model {
            let entries = self.backend.iter(self.state, namespace).unwrap();
            entries
                .map(|entry| entry.map(|(key, namespace, value)| ((key, namespace), value)).unwrap())
                .collect()
        };
        assert_eq!(all(None), self.model);
        let one: Model =
            self.model.iter().filter(|((_, n), _)| *n == 1).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(all(Some(&1)), one);
        assert_eq!(self.backend.len(self.state).unwrap(), self.model.len() as u64);
        for ((key, namespace), value) in &self.model {
            let found = self.backend.get(self.state, namespace, key.as_str()).unwrap();
            assert_eq!(found.as_ref(), Some(value));
        }
    }
}

fn records(backend: &LsmBackend, checkpoint: u64) -> Vec<FinishedSegment> {
    let mut segments = Vec::new();
    let taken = backend.write_records(id(checkpoint), |segment| {
        segments.push(segment);
        Ok::<_, lowtide_lsm::LsmError>(())
    });
    taken.unwrap();
    segments
}

fn replay(backend: &mut LsmBackend, segment: &FinishedSegment) {
    let reader = SegmentReader::open(&segment.bytes, Default::default()).unwrap();
    let mut loader = backend.load_segment(reader.footer().states()).unwrap();
    let all = backend_range();
    reader.visit(&segment.bytes, &all, |run, record| loader.apply(run.key_group, run.state, record)).unwrap();
    loader.finish().unwrap();
}

fn backend_range() -> lowtide_format::KeyGroupSet {
    lowtide_format::KeyGroupSet::from(range(0, 7))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_history_of_operations_restarts_and_moves_equals_the_ordered_map(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
        }
        run.check();
        run.restart();
        run.check();
    }
}

#[test]
fn types_of_every_width_keep_keys_and_namespaces_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut backend = open(directory.path());
    let state: LsmState<String, String, u32> = backend.value_state("text").unwrap();
    let pairs = [("", "ab"), ("a", "b"), ("ab", ""), ("a", ""), ("", "a"), ("", "")];
    for (value, (key, namespace)) in pairs.iter().enumerate() {
        backend.put(state, &(*namespace).to_owned(), *key, &(value as u32)).unwrap();
    }
    for (value, (key, namespace)) in pairs.iter().enumerate() {
        assert_eq!(backend.get(state, &(*namespace).to_owned(), *key).unwrap(), Some(value as u32));
    }
    let state: LsmState<(u64, Option<String>), (), Vec<u8>> = backend.value_state("tuples").unwrap();
    backend.put(state, &(), &(7, None), &vec![0; 300_000]).unwrap();
    assert_eq!(backend.get(state, &(), &(7, None)).unwrap().map(|value| value.len()), Some(300_000));
    assert_eq!(backend.get(state, &(), &(7, Some(String::new()))).unwrap(), None);
    assert_eq!(backend.entries().unwrap(), 7);
}

#[test]
fn a_state_opened_with_other_types_is_incompatible_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut backend = open(directory.path());
    let state: LsmState<String, (), u32> = backend.value_state("s").unwrap();
    backend.put(state, &(), "a", &1).unwrap();
    let error = backend.value_state::<String, (), u64>("s").unwrap_err();
    assert_eq!(error.kind(), LsmErrorKind::Incompatible);
    assert_eq!(backend.get(state, &(), "a").unwrap(), Some(1));
    // The types outlive a restart.
    let mut store = Store::default();
    let taken = checkpoint(&mut backend, &mut store, request(1, None));
    let mut copy = restore(directory.path(), &mut store, range(0, 7), &[&taken]).unwrap();
    assert_eq!(copy.value_state::<u8, (), u32>("s").unwrap_err().kind(), LsmErrorKind::Incompatible);
    assert!(copy.value_state::<String, (), u32>("s").is_ok());
}

#[test]
fn a_name_that_is_none_is_refused_and_one_like_rocksdbs_own_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut backend = open(directory.path());
    for name in ["", "a\0b"] {
        assert_eq!(
            backend.value_state::<u8, (), u8>(name).unwrap_err().kind(),
            LsmErrorKind::InvalidArgument
        );
    }
    let state = backend.value_state::<u8, (), u8>("default").unwrap();
    backend.put(state, &(), &1, &2).unwrap();
    assert_eq!(backend.states().count(), 1);
}

#[test]
fn the_hook_changes_rocksdbs_options_and_blob_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = seen.clone();
    let hook = move |scope: OptionsScope<'_>| match scope {
        OptionsScope::Database(_) => told.lock().unwrap().push("database".to_owned()),
        OptionsScope::State(name, options) => {
            told.lock().unwrap().push(name.to_owned());
            options.set_enable_blob_files(name == "blobs");
        }
    };
    let mut options = options(directory.path());
    options.hook = Some(std::sync::Arc::new(hook));
    let mut backend = LsmBackend::open(&options, range(0, 7), count(8)).unwrap();
    backend.value_state::<u8, (), u8>("s").unwrap();
    assert_eq!(*seen.lock().unwrap(), ["database", "s"]);
    let error = backend.value_state::<u8, (), u8>("blobs").unwrap_err();
    assert!(error.to_string().contains("blob files are not part of checkpoints"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused_and_leave_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.memory_budget = 1000;
    assert_eq!(
        LsmBackend::open(&options, range(0, 7), count(8)).unwrap_err().kind(),
        LsmErrorKind::InvalidArgument
    );
    options.memory_budget = 8 << 20;
    assert!(LsmBackend::open(&options, range(0, 8), count(8)).is_err(), "a range beyond the key groups");
    assert_eq!(crate::support::files_under(directory.path()), 0);
}

#[test]
fn entries_are_told_within_some_per_cent_where_there_are_too_many_to_count() {
    let directory = tempfile::tempdir().unwrap();
    let options = lowtide_lsm::LsmOptions { entries_counted_max: 0, ..options(directory.path()) };
    let mut backend = LsmBackend::open(&options, range(0, 127), count(128)).unwrap();
    let mut store = Store::default();
    let state: LsmState<u64, (), u64> = backend.value_state("s").unwrap();
    let told = |backend: &mut LsmBackend, store: &mut Store, number| {
        checkpoint(backend, store, request(number, None)).entries
    };
    assert_eq!(told(&mut backend, &mut store, 1), 0);
    (0..100).for_each(|key| backend.put(state, &(), &key, &1).unwrap());
    assert_eq!(told(&mut backend, &mut store, 2), 100, "few entries are counted anyway");
    // Half of them lie in two tables, a quarter is removed again.
    (0..80_000).for_each(|key| backend.put(state, &(), &key, &1).unwrap());
    told(&mut backend, &mut store, 3);
    (0..40_000).for_each(|key| backend.put(state, &(), &key, &2).unwrap());
    (0..20_000).for_each(|key| backend.remove(state, &(), &key).unwrap());
    let entries = told(&mut backend, &mut store, 4);
    assert!((57_000..=63_000).contains(&entries), "{entries} instead of 60,000");
    backend.clear(state, None).unwrap();
    (0..50).for_each(|key| backend.put(state, &(), &key, &3).unwrap());
    assert_eq!(told(&mut backend, &mut store, 5), 50);
}
