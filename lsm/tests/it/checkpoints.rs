//! Checkpoints of one backend: what is uploaded, what is reused, what never is.

use std::collections::BTreeMap;

use crate::support::{Store, checkpoint, count, files_under, id, options, range, request, restore, write};
use lowtide_lsm::{LsmBackend, LsmError, LsmErrorKind, LsmState, SnapshotKind, SnapshotRequest, TABLE_LIST};

type Entries = BTreeMap<(String, String), String>;

struct Bench {
    directory: tempfile::TempDir,
    store: Store,
    backend: LsmBackend,
    state: LsmState<String, String, String>,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let mut backend = LsmBackend::open(&options(directory.path()), range(0, 7), count(8)).unwrap();
    let state = backend.value_state("s").unwrap();
    Bench { directory, store: Store::default(), backend, state }
}

impl Bench {
    fn put(&mut self, key: &str, value: &str) {
        self.backend.put(self.state, &String::new(), key, &value.to_owned()).unwrap();
    }

    fn checkpoint(&mut self, id: u64, base: Option<u64>) -> lowtide_lsm::LsmAcknowledgement {
        checkpoint(&mut self.backend, &mut self.store, request(id, base))
    }

    fn restore(&mut self, from: &lowtide_lsm::LsmAcknowledgement) {
        self.backend = restore(self.directory.path(), &mut self.store, range(0, 7), &[from]).unwrap();
        self.state = self.backend.value_state("s").unwrap();
    }

    fn entries(&self) -> Entries {
        entries(&self.backend, self.state)
    }
}

fn entries(backend: &LsmBackend, state: LsmState<String, String, String>) -> Entries {
    let entries = backend.iter(state, None).unwrap();
    entries.map(|entry| entry.map(|(key, namespace, value)| ((key, namespace), value)).unwrap()).collect()
}

fn model(entries: &[(&str, &str)]) -> Entries {
    entries.iter().map(|(key, value)| (((*key).to_owned(), String::new()), (*value).to_owned())).collect()
}

fn new_tables(acknowledgement: &lowtide_lsm::LsmAcknowledgement) -> usize {
    acknowledgement.files.iter().filter(|file| file.new && file.local_name != TABLE_LIST).count()
}

#[test]
fn a_checkpoint_carries_only_tables_that_its_base_has_not() {
    let mut bench = bench();
    bench.put("a", "1");
    let first = bench.checkpoint(1, None);
    assert_eq!((new_tables(&first), first.base, first.entries), (1, None, 1));
    bench.backend.completed(id(1));
    bench.put("b", "2");
    let second = bench.checkpoint(2, Some(1));
    assert_eq!((new_tables(&second), second.base, second.entries), (1, Some(id(1)), 2));
    assert_eq!(second.files.len(), 3, "two tables and the table list");
    bench.restore(&second);
    assert_eq!(bench.entries(), model(&[("a", "1"), ("b", "2")]));
}

#[test]
fn a_checkpoint_without_changes_carries_nothing_but_its_table_list() {
    let mut bench = bench();
    bench.put("a", "1");
    bench.checkpoint(1, None);
    let before = bench.store.put_bytes;
    let second = bench.checkpoint(2, Some(1));
    assert_eq!(new_tables(&second), 0);
    assert_eq!(bench.store.put_bytes - before, second.figures.table_list_bytes);
    assert!(second.figures.table_list_bytes <= 64 << 10, "{} bytes", second.figures.table_list_bytes);
    bench.restore(&second);
    assert_eq!(bench.entries(), model(&[("a", "1")]));
}

#[test]
fn a_retry_that_makes_a_table_of_the_same_number_and_length_uploads_it_again() {
    let mut bench = bench();
    bench.put("a", "1");
    let first = bench.checkpoint(1, None);
    // The first attempt uploads its table and is lost before it is acknowledged.
    bench.put("b", "x");
    let mut snapshot = bench.backend.freeze(request(2, Some(1))).unwrap();
    let lost = write(&mut snapshot, &mut bench.store).unwrap();
    drop(snapshot);
    bench.restore(&first);
    bench.put("b", "y");
    let second = bench.checkpoint(3, Some(1));
    assert_eq!(new_tables(&second), 1);
    let new = second.files.iter().find(|file| file.new && file.local_name != TABLE_LIST).unwrap();
    assert_eq!(new.stored.file.length, lost[0].length, "the trap of this test: same length, other content");
    bench.restore(&second);
    assert_eq!(bench.entries(), model(&[("a", "1"), ("b", "y")]));
}

// E2
#[test]
fn after_going_back_several_checkpoints_nothing_of_the_abandoned_future_is_reused() {
    let mut bench = bench();
    let mut taken = Vec::new();
    for number in 1..=5 {
        bench.put(&format!("k{number}"), "old");
        taken.push(bench.checkpoint(number, number.checked_sub(1).filter(|base| *base > 0)));
        bench.backend.completed(id(number));
    }
    bench.restore(&taken[1]);
    assert_eq!(bench.entries(), model(&[("k1", "old"), ("k2", "old")]));
    bench.put("k3", "new");
    let again = bench.checkpoint(6, Some(2));
    assert!(again.files.iter().all(|file| file.new || file.stored.checkpoint <= id(2)));
    bench.restore(&again);
    assert_eq!(bench.entries(), model(&[("k1", "old"), ("k2", "old"), ("k3", "new")]));
}

#[test]
fn a_base_that_is_not_known_is_taken_as_none_and_everything_is_uploaded() {
    let mut bench = bench();
    bench.put("a", "1");
    bench.checkpoint(1, None);
    bench.backend.aborted(id(1));
    let second = bench.checkpoint(2, Some(1));
    assert_eq!((second.base, new_tables(&second)), (None, 1));
    bench.backend.completed(id(1));
    assert_eq!(bench.checkpoint(3, Some(2)).base, Some(id(2)), "a notice for an unknown id took a base away");
}

#[test]
fn tables_uploaded_for_a_checkpoint_that_is_not_the_base_are_uploaded_again() {
    let mut bench = bench();
    bench.put("a", "1");
    bench.checkpoint(1, None);
    bench.put("b", "2");
    let pending = bench.checkpoint(2, Some(1));
    let third = bench.checkpoint(3, Some(1));
    assert_eq!((new_tables(&pending), new_tables(&third)), (1, 1));
    let fourth = bench.checkpoint(4, Some(2));
    assert_eq!(new_tables(&fourth), 0, "the acknowledged one may be named as a base");
}

#[test]
fn a_savepoint_is_no_base_and_a_full_checkpoint_is() {
    let mut bench = bench();
    bench.put("a", "1");
    bench.checkpoint(1, None);
    let savepoint = SnapshotRequest { may_be_base: false, ..request(2, None) };
    checkpoint(&mut bench.backend, &mut bench.store, savepoint);
    bench.backend.completed(id(2));
    assert_eq!(bench.checkpoint(3, Some(2)).base, None);
    assert_eq!(bench.checkpoint(4, Some(1)).base, Some(id(1)), "the savepoint took the base away");
    let full = bench.checkpoint(5, None);
    assert_eq!(new_tables(&full), 1);
    assert_eq!(new_tables(&bench.checkpoint(6, Some(5))), 0);
}

#[test]
fn what_is_written_after_the_freeze_is_not_in_the_checkpoint() {
    let mut bench = bench();
    bench.put("a", "before");
    let mut snapshot = bench.backend.freeze(request(1, None)).unwrap();
    bench.put("a", "after");
    bench.backend.clear(bench.state, None).unwrap();
    let files = write(&mut snapshot, &mut bench.store).unwrap();
    let first = snapshot.finish(files).unwrap();
    assert_eq!(bench.entries(), model(&[]));
    bench.restore(&first);
    assert_eq!(bench.entries(), model(&[("a", "before")]));
}

#[test]
fn checkpoints_taken_while_tables_are_flushed_and_merged_all_open_and_equal_the_model() {
    let mut bench = bench();
    let idle: LsmState<String, String, String> = bench.backend.value_state("idle").unwrap();
    bench.backend.put(idle, &String::new(), "i", &"idle".to_owned()).unwrap();
    let (mut expected, mut base) = (Entries::new(), None);
    for number in 1..=40_u64 {
        for n in 0..50 {
            let key = format!("k{}", (number * 7 + n) % 90);
            bench.put(&key, &format!("{number}-{n}"));
            expected.insert((key, String::new()), format!("{number}-{n}"));
        }
        let taken = bench.checkpoint(number, base);
        base = Some(number);
        if number % 4 == 0 {
            let mut copy = restore(bench.directory.path(), &mut bench.store, range(0, 7), &[&taken]).unwrap();
            let state = copy.value_state("s").unwrap();
            assert_eq!(entries(&copy, state), expected, "chk-{number}");
            let idle = copy.value_state("idle").unwrap();
            assert_eq!(entries(&copy, idle).len(), 1);
        }
    }
}

#[test]
fn links_go_on_every_way_out() {
    let mut bench = bench();
    bench.put("a", "1");
    bench.checkpoint(1, None);
    let at_rest = files_under(bench.directory.path());
    // Dropped before, during and after writing; cancelled; failed by the sink; given too few files.
    drop(bench.backend.freeze(request(2, Some(1))).unwrap());
    let mut cancelled = bench.backend.freeze(request(3, None)).unwrap();
    let error = cancelled.write(|| true, |_| Ok::<_, LsmError>(())).unwrap_err();
    assert_eq!(error.kind(), LsmErrorKind::Cancelled);
    drop(cancelled);
    let mut failed = bench.backend.freeze(request(4, None)).unwrap();
    failed.write(|| false, |_| Err::<(), _>(LsmError::ForeignState)).unwrap_err();
    drop(failed);
    let mut short = bench.backend.freeze(request(5, None)).unwrap();
    write(&mut short, &mut bench.store).unwrap();
    let error = short.finish(Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "0 uploaded files were given for 2 written ones");
    assert_eq!(bench.backend.live_snapshots(), 0);
    assert!(files_under(bench.directory.path()) <= at_rest, "links of an ended attempt are still there");
}

#[test]
fn a_snapshot_outlives_its_backend_and_takes_the_directory_with_it() {
    let mut bench = bench();
    bench.put("a", "1");
    let mut snapshot = bench.backend.freeze(request(1, None)).unwrap();
    let Bench { directory, mut store, backend, .. } = bench;
    drop(backend);
    let files = write(&mut snapshot, &mut store).unwrap();
    let taken = snapshot.finish(files).unwrap();
    assert_eq!(files_under(directory.path()), 0);
    let mut copy = restore(directory.path(), &mut store, range(0, 7), &[&taken]).unwrap();
    let state = copy.value_state("s").unwrap();
    assert_eq!(entries(&copy, state), model(&[("a", "1")]));
    drop(copy);
    assert_eq!(files_under(directory.path()), 0);
}

#[test]
fn an_id_that_does_not_rise_is_refused() {
    let mut bench = bench();
    let first = bench.checkpoint(4, None);
    assert!(matches!(bench.backend.freeze(request(4, None)), Err(LsmError::IdNotAbove { .. })));
    bench.restore(&first);
    assert!(matches!(bench.backend.freeze(request(3, None)), Err(LsmError::IdNotAbove { .. })));
}

#[test]
fn many_small_checkpoints_do_not_pile_up_tables() {
    let mut bench = bench();
    let mut base = None;
    let mut tables_max = 0;
    for number in 1..=300_u64 {
        for n in 0..10 {
            bench.put(&format!("hot{n}"), &format!("{number}"));
        }
        bench.put(&format!("cold{number}"), "x");
        let taken = bench.checkpoint(number, base);
        bench.backend.completed(id(number));
        tables_max = tables_max.max(taken.files.len());
        base = Some(number);
    }
    assert!(tables_max < 40, "{tables_max} files in one checkpoint");
}

#[test]
fn records_of_a_savepoint_replayed_into_another_backend_give_the_same_entries() {
    let mut bench = bench();
    for n in 0..500 {
        bench.put(&format!("k{n}"), &format!("v{n}"));
    }
    bench.backend.put(bench.state, &"window".to_owned(), "k1", &"w".to_owned()).unwrap();
    let savepoint = SnapshotRequest { kind: SnapshotKind::Records, may_be_base: false, ..request(1, None) };
    let taken = checkpoint(&mut bench.backend, &mut bench.store, savepoint);
    assert_eq!((taken.files.len(), taken.segments.len(), taken.entries), (0, 1, 501));
    let totals = taken.segments[0].summary.totals;
    assert_eq!((totals.puts, totals.tombstones), (501, 0));
}
