//! What is set aside for open snapshots: each wanted value once, as little else as may be, and nothing that outlives them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lowtide_format::{DecodeLimits, FormatError, RecordRef, SegmentReader, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::harness::{Harness, id, options, request, write};
use crate::{BaseMode, FreezeKind, HeapBackend, HeapError, WriteOptions};

fn harness() -> Harness {
    Harness::new(options(4, BaseMode::Confirmed))
}

/// A value that cannot be cloned or written when it is told so.
#[derive(Debug, PartialEq, Eq)]
struct Fragile(u64);

const NEVER_CLONED: u64 = 1_000;
const NEVER_WRITTEN: u64 = 2_000;

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(self.0 != NEVER_CLONED, "this value cannot be cloned");
        Self(self.0)
    }
}

impl Serialize for Fragile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 != NEVER_WRITTEN, "this value cannot be written");
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

type Fragiles = crate::ValueState<u64, (), Fragile>;

fn fragile(entries: u64) -> (HeapBackend, Fragiles) {
    let mut backend = HeapBackend::new(options(8, BaseMode::Confirmed));
    let state = backend.value_state("fragile").unwrap();
    for key in 0..entries {
        backend.state_mut(state).unwrap().put(key, Fragile(key)).unwrap();
    }
    (backend, state)
}

#[test]
fn every_way_out_of_a_snapshot_lets_go_of_the_map() {
    let ways: [fn(&mut HeapBackend, Fragiles); 5] = [
        |backend, _| drop(backend.freeze(request(1, None)).unwrap()),
        |backend, _| {
            let mut snapshot = backend.freeze(request(1, None)).unwrap();
            let options = WriteOptions { segment_bytes_max: 1, ..WriteOptions::default() };
            let mut calls = 0;
            let error = snapshot.write(&options, &mut |_| {
                calls += 1;
                if calls == 3 { Err("full".into()) } else { Ok(()) }
            });
            assert!(matches!(error, Err(HeapError::Sink { .. })), "{error:?}");
        },
        |backend, _| {
            let mut snapshot = backend.freeze(request(1, None)).unwrap();
            let options = WriteOptions::default();
            options.cancel.cancel();
            let error = snapshot.write(&options, &mut |_| Ok(()));
            assert!(matches!(error, Err(HeapError::Cancelled)), "{error:?}");
        },
        |backend, state| {
            backend.state_mut(state).unwrap().put(5, Fragile(NEVER_WRITTEN)).unwrap();
            let mut snapshot = backend.freeze(request(1, None)).unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| write(&mut snapshot, &WriteOptions::default())));
            assert!(panicked.is_err());
        },
        |backend, _| {
            let mut snapshot = backend.freeze(request(1, None)).unwrap();
            write(&mut snapshot, &WriteOptions::default());
            assert!(matches!(snapshot.finish(Vec::new()), Err(HeapError::FilesMismatch { .. })));
        },
    ];
    for way in ways {
        let (mut backend, state) = fragile(200);
        way(&mut backend, state);
        assert_eq!(backend.figures().live_snapshots, 0);
        assert_eq!(backend.figures().records_held, 0);
        let before = backend.figures().records_set_aside;
        for key in 0..200 {
            assert!(backend.state_mut(state).unwrap().update(&key, |value| value.0 += 1));
        }
        assert_eq!(backend.figures().records_set_aside, before, "nobody wants the old values");
        backend.check_invariants();
    }
}

#[test]
fn an_open_snapshot_holds_one_old_value_of_each_entry_however_often_it_changes() {
    let mut harness = harness();
    (0..500).for_each(|key| harness.put(key, key));
    harness.freeze(None, FreezeKind::Checkpoint).unwrap();
    for _ in 0..2 {
        (0..500).for_each(|key| harness.update(key, 1));
    }
    assert_eq!(harness.backend.figures().records_held, 500);
    assert_eq!(harness.backend.figures().records_set_aside, 500);
    harness.finish(0);
    assert_eq!(harness.backend.figures().records_held, 0);
}

#[test]
fn a_snapshot_that_is_never_released_holds_no_later_values() {
    let mut harness = harness();
    (0..100).for_each(|key| harness.put(key, key));
    harness.checkpoint(None);
    harness.freeze(None, FreezeKind::Savepoint).unwrap();
    for number in 3..60 {
        (0..100).for_each(|key| harness.update(key, 1));
        let base = if number == 3 { 1 } else { number - 1 };
        let at = harness.pending.len();
        harness.freeze(Some(base), FreezeKind::Checkpoint).unwrap();
        harness.finish(at);
        harness.backend.completed(id(number));
        assert!(harness.backend.figures().records_held <= 100);
    }
    harness.finish(0);
}

#[test]
fn two_snapshots_that_want_the_same_value_share_it() {
    let mut harness = harness();
    (0..300).for_each(|key| harness.put(key, key));
    harness.freeze(None, FreezeKind::Checkpoint).unwrap();
    harness.freeze(None, FreezeKind::Savepoint).unwrap();
    (0..300).for_each(|key| harness.update(key, 1));
    assert_eq!(harness.backend.figures().records_set_aside, 300);
    harness.finish(0);
    harness.finish(0);
}

#[test]
fn a_value_whose_clone_panics_leaves_map_and_snapshot_whole() {
    for keys in [20, 200] {
        let (mut backend, state) = fragile(keys);
        backend.state_mut(state).unwrap().put(7, Fragile(NEVER_CLONED)).unwrap();
        let mut snapshot = backend.freeze(request(1, None)).unwrap();
        let mut panics = 0;
        for key in 0..keys {
            let updated = catch_unwind(AssertUnwindSafe(|| {
                backend.state_mut(state).unwrap().update(&key, |value| value.0 += 1)
            }));
            panics += u64::from(updated.is_err());
        }
        assert!(panics > 0, "the frozen value was cloned");
        backend.check_invariants();
        assert_eq!(backend.state(state).unwrap().get(&7), Some(&Fragile(NEVER_CLONED)));
        let segments = write(&mut snapshot, &WriteOptions::default());
        let mut values = 0;
        for segment in &segments {
            let reader = SegmentReader::open(&segment.bytes, DecodeLimits::default()).unwrap();
            let groups = lowtide_format::KeyGroupSet::from(backend.range());
            let count = |_: &lowtide_format::Run, record: RecordRef<'_>| {
                values += u64::from(matches!(record, RecordRef::Put { .. }));
                Ok::<(), FormatError>(())
            };
            reader.visit(&segment.bytes, &groups, count).unwrap();
        }
        assert_eq!(values, keys, "each frozen entry once");
    }
}

/// Updates of all keys beside an open snapshot: how many of them took a lock, how many records were set aside.
fn updates_beside_a_snapshot<V: Value>(value: impl Fn(u64) -> V, updated: u64) -> (u64, u64) {
    let mut backend = HeapBackend::new(options(4, BaseMode::Confirmed));
    let state = backend.value_state::<u64, (), V>("state").unwrap();
    for key in 0..300 {
        backend.state_mut(state).unwrap().put(key, value(key)).unwrap();
    }
    let snapshot = backend.freeze(request(1, None)).unwrap();
    for key in 0..updated {
        assert!(backend.state_mut(state).unwrap().update(&key, |it| *it = value(key + 1)));
    }
    let figures = backend.figures();
    drop(snapshot);
    (figures.locked_writes, figures.records_set_aside)
}

#[test]
fn a_piece_that_is_written_often_soon_needs_no_lock_where_copies_are_plain() {
    let (plain, texts) = (|key| key, |key: u64| key.to_string());
    let (of_plain, of_texts) = (updates_beside_a_snapshot(plain, 300), updates_beside_a_snapshot(texts, 300));
    assert_eq!((of_plain.1, of_texts.1), (300, 300), "each frozen entry once");
    assert!(of_plain.0 * 3 < of_texts.0 * 2, "{of_plain:?} against {of_texts:?} writes with a lock");
}

#[test]
fn a_piece_that_is_written_seldom_is_not_copied() {
    let (_, of_plain) = updates_beside_a_snapshot(|key| key, 5);
    assert!((6..=10).contains(&of_plain), "{of_plain} records set aside for five updates");
    assert_eq!(updates_beside_a_snapshot(|key: u64| key.to_string(), 5).1, 5);
}
