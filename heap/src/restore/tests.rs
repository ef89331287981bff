//! What a restore refuses. That it restores what was written is shown by the histories (`model`).

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, DecodeLimits, FinishedSegment, Key, KeyGroup, KeyGroupCount, KeyGroupSet,
    ObjectName, RecordRef, RecordRun, SegmentOptions, SegmentWriter, StateDescriptor, StateKind, key_group,
};

use super::{HeapRestore, RestoredFile};
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
    let state = StateDescriptor {
        name: "s".to_owned(),
        kind: StateKind::Value,
        key: Codec::<u64>::identity(&AutoCodec),
        namespace: Codec::<()>::identity(&AutoCodec),
        value: Codec::<u64>::identity(&AutoCodec),
    };
    let mut writer = SegmentWriter::new(id(checkpoint), vec![state], SegmentOptions::default()).unwrap();
    let mut run = RecordRun::new(id(checkpoint), 1_000);
    let (version, born) = (id(checkpoint), id(checkpoint));
    run.push(RecordRef::Put { key: &key.to_le_bytes(), namespace: &[], value, version, born }).unwrap();
    writer.append(key_group, 0, &run).unwrap();
    writer.finish().unwrap()
}

fn group_of(key: u64) -> KeyGroup {
    key_group(key.key_hash(), options().key_groups)
}

fn feed(restore: &mut HeapRestore, segment: &FinishedSegment) -> Result<(), HeapError> {
    let object = ObjectName::new(&format!("object-{}", segment.summary.checkpoint.get())).unwrap();
    let key_groups = KeyGroupSet::from(options().range);
    restore
        .segment(RestoredFile { file: segment.summary.file_entry(object).into(), key_groups }, &segment.bytes)
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
