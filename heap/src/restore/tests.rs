//! What a restore refuses. That it restores what was written is shown by the histories (`model`).

use std::collections::BTreeMap;

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, DecodeLimits, FinishedSegment, Key, KeyGroup, KeyGroupCount, KeyGroupSet,
    ObjectName, RecordRef, RecordRun, SegmentOptions, SegmentReader, SegmentWriter, StateDescriptor,
    StateKind, key_group,
};

use super::{ElementBlocks, HeapRestore, RestoredFile};
use crate::{BaseMode, HeapError, HeapErrorKind, HeapOptions};

const GROUPS: u16 = 4;

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn options() -> HeapOptions {
    let key_groups = KeyGroupCount::new(GROUPS).unwrap();
    HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed }
}

/// A segment with one entry, in a key group of choice.
fn segment(checkpoint: u64, key: u64, key_group: KeyGroup, value: &[u8]) -> FinishedSegment {
    let states = vec![descriptor()];
    let mut writer = SegmentWriter::new(id(checkpoint), states, SegmentOptions::default()).unwrap();
    let mut run = RecordRun::new(id(checkpoint), 1_000);
    let (version, born) = (id(checkpoint), id(checkpoint));
    run.push(RecordRef::Put { key: &key.to_le_bytes(), namespace: &[], value, version, born }).unwrap();
    writer.append(key_group, 0, &run).unwrap();
    writer.finish().unwrap()
}

fn descriptor() -> StateDescriptor {
    StateDescriptor {
        name: "s".to_owned(),
        kind: StateKind::Value,
        key: Codec::<u64>::identity(&AutoCodec),
        namespace: Codec::<()>::identity(&AutoCodec),
        value: Codec::<u64>::identity(&AutoCodec),
    }
}

fn group_of(key: u64) -> KeyGroup {
    key_group(key.key_hash(), options().key_groups)
}

fn file_of(segment: &FinishedSegment) -> RestoredFile {
    let object = ObjectName::new(&format!("object-{}", segment.summary.checkpoint.get())).unwrap();
    let key_groups = KeyGroupSet::from(options().range);
    RestoredFile { file: segment.summary.file_entry(object).into(), key_groups }
}

fn feed(restore: &mut HeapRestore, segment: &FinishedSegment) -> Result<(), HeapError> {
    restore.segment(file_of(segment), &segment.bytes)
}

fn restore_of(number: u64) -> HeapRestore {
    HeapRestore::new(options(), id(number), DecodeLimits::default())
}

#[test]
fn of_two_records_of_a_key_the_newer_counts() {
    let mut restore = restore_of(2);
    let state = restore.value_state::<u64, (), u64>("s").unwrap();
    feed(&mut restore, &segment(2, 7, group_of(7), &20_u64.to_le_bytes())).unwrap();
    feed(&mut restore, &segment(1, 7, group_of(7), &10_u64.to_le_bytes())).unwrap();
    let backend = restore.finish();
    assert_eq!(backend.state(state).unwrap().get(&7), Some(&20));
    assert_eq!(backend.figures().entries, 1);
}

#[test]
fn elements_from_the_oldest_to_the_newest_are_refused() {
    let mut restore = restore_of(2);
    feed(&mut restore, &segment(1, 7, group_of(7), &[0; 8])).unwrap();
    let error = feed(&mut restore, &segment(2, 7, group_of(7), &[0; 8])).unwrap_err();
    assert!(matches!(error, HeapError::ElementOrder { .. }), "{error}");
    let error = feed(&mut restore_of(2), &segment(3, 7, group_of(7), &[0; 8])).unwrap_err();
    assert!(matches!(error, HeapError::ElementOrder { .. }), "{error}");
}

#[test]
fn a_key_in_another_key_group_than_its_own_is_damage() {
    let wrong = KeyGroup((group_of(7).0 + 1) % GROUPS);
    let error = feed(&mut restore_of(1), &segment(1, 7, wrong, &[0; 8])).unwrap_err();
    assert_eq!(error.kind(), HeapErrorKind::Corrupt, "{error}");
}

#[test]
fn a_value_that_is_none_of_its_type_is_damage_and_names_the_state() {
    let mut restore = restore_of(1);
    restore.value_state::<u64, (), u64>("s").unwrap();
    let error = feed(&mut restore, &segment(1, 7, group_of(7), &[0; 3])).unwrap_err();
    assert_eq!(error.kind(), HeapErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("\"s\""), "{error}");
}

#[test]
fn a_state_of_other_types_is_incompatible_before_a_record_is_read() {
    let mut restore = restore_of(1);
    restore.value_state::<String, (), u64>("s").unwrap();
    let error = feed(&mut restore, &segment(1, 7, group_of(7), &[0; 8])).unwrap_err();
    assert_eq!(error.kind(), HeapErrorKind::Incompatible, "{error}");
}

#[test]
fn a_state_is_not_opened_once_its_entries_were_read_as_bytes() {
    let mut restore = restore_of(1);
    feed(&mut restore, &segment(1, 7, group_of(7), &70_u64.to_le_bytes())).unwrap();
    let refused = restore.value_state::<u64, (), u64>("s");
    assert!(matches!(refused, Err(HeapError::StateRead { .. })), "{refused:?}");
    let mut backend = restore.finish();
    let state = backend.value_state::<u64, (), u64>("s").unwrap();
    assert_eq!(backend.state(state).unwrap().get(&7), Some(&70));
}

#[test]
fn damage_in_a_block_names_its_object() {
    let file = segment(1, 7, group_of(7), &[0; 8]);
    let mut bytes = file.bytes.to_vec();
    bytes[10] ^= 1;
    let error = feed(&mut restore_of(1), &FinishedSegment { bytes: bytes.into(), ..file }).unwrap_err();
    assert_eq!(error.kind(), HeapErrorKind::Corrupt);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("object-1") && source.contains("block"), "{source}");
}

/// A chain of elements of many entries, each of which puts some keys again and removes others.
fn chain(elements: u64, keys: u64) -> (Vec<FinishedSegment>, BTreeMap<u64, u64>) {
    let mut expected = BTreeMap::new();
    let mut segments = Vec::new();
    for number in 1..=elements {
        let mut records: BTreeMap<KeyGroup, Vec<(u64, Option<u64>)>> = BTreeMap::new();
        for key in (0..keys).filter(|key| number == 1 || (key * 31 + number) % 7 < 2) {
            let value = (!(key + number).is_multiple_of(5)).then_some(key * 1_000 + number);
            records.entry(group_of(key)).or_default().push((key, value));
            match value {
                Some(value) => expected.insert(key, value),
                None => expected.remove(&key),
            };
        }
        let mut writer =
            SegmentWriter::new(id(number), vec![descriptor()], SegmentOptions::default()).unwrap();
        for (group, records) in records {
            let mut run = writer.new_run();
            for (key, value) in records {
                let (key, value) = (key.to_le_bytes(), value.map(u64::to_le_bytes));
                let (oldest, newest) = (id(1), id(number));
                run.push(match &value {
                    Some(value) => {
                        RecordRef::Put { key: &key, namespace: &[], value, version: newest, born: oldest }
                    }
                    None => RecordRef::Tombstone { key: &key, namespace: &[], oldest, newest },
                })
                .unwrap();
            }
            writer.append(group, 0, &run).unwrap();
        }
        segments.push(writer.finish().unwrap());
    }
    (segments, expected)
}

#[test]
fn elements_taken_together_one_by_one_and_with_any_expectation_restore_the_same() {
    let (segments, expected) = chain(9, 4_000);
    let readers: Vec<SegmentReader> =
        segments.iter().map(|it| SegmentReader::open(&it.bytes, DecodeLimits::default()).unwrap()).collect();
    let live = expected.len() as u64;
    for (together, expectation) in [
        (1, None),
        (9, None),
        (4, Some((live, 2))),
        (9, Some((live, 1))),
        (3, Some((0, 1))),
        (2, Some((u64::MAX, 1))),
    ] {
        let mut restore = restore_of(9);
        let state = restore.value_state::<u64, (), u64>("s").unwrap();
        if let Some((entries, states)) = expectation {
            restore.expect(entries, states);
        }
        let elements: Vec<ElementBlocks<'_>> = segments.iter().zip(&readers).rev().map(element).collect();
        elements.chunks(together).for_each(|elements| restore.elements(elements).unwrap());
        assert_eq!(restore.entries(), live);
        assert_eq!(restore.live_puts().sum::<u64>(), live);
        let backend = restore.finish();
        backend.check_invariants();
        let found: BTreeMap<u64, u64> =
            backend.state(state).unwrap().iter().map(|entry| (*entry.key, *entry.value)).collect();
        assert_eq!(found, expected, "{together} elements together, {expectation:?} expected");
    }
}

fn element<'a>((segment, reader): (&'a FinishedSegment, &'a SegmentReader)) -> ElementBlocks<'a> {
    ElementBlocks::whole(file_of(segment), reader, &segment.bytes).unwrap()
}

#[test]
fn values_of_any_length_are_restored() {
    let lengths = [0_usize, 1, 127, 128, 300, 20_000, 5];
    let mut descriptor = descriptor();
    descriptor.value = Codec::<String>::identity(&AutoCodec);
    let mut writer = SegmentWriter::new(id(1), vec![descriptor], SegmentOptions::default()).unwrap();
    let mut records: BTreeMap<KeyGroup, RecordRun> = BTreeMap::new();
    for (key, length) in (0_u64..).zip(lengths) {
        let value = "v".repeat(length);
        let run = records.entry(group_of(key)).or_insert_with(|| RecordRun::new(id(1), 100_000));
        let (version, born, value) = (id(1), id(1), value.as_bytes());
        run.push(RecordRef::Put { key: &key.to_le_bytes(), namespace: &[], value, version, born }).unwrap();
    }
    records.into_iter().for_each(|(group, run)| writer.append(group, 0, &run).unwrap());
    let mut restore = restore_of(1);
    let state = restore.value_state::<u64, (), String>("s").unwrap();
    feed(&mut restore, &writer.finish().unwrap()).unwrap();
    let live: Vec<u64> = restore.live_puts().collect();
    assert_eq!((restore.entries(), &live[..]), (7, &[7][..]));
    let backend = restore.finish();
    for (key, length) in (0_u64..).zip(lengths) {
        assert_eq!(backend.state(state).unwrap().get(&key).map(String::len), Some(length));
    }
}
