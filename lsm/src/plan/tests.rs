use super::*;
use crate::meta::tests::{example_of, table};
use lowtide_format::{FileKind, KeyGroup, ObjectName};

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end)).unwrap()
}

/// A part for `groups` with tables over the given groups.
fn part(groups: KeyGroupRange, tables: &[(u16, u16)]) -> RestorePart {
    let key = |group: u16| vec![(group >> 8) as u8, group as u8, 1, 7];
    let metas: Vec<TableMeta> = tables
        .iter()
        .enumerate()
        .map(|(at, &(first, last))| TableMeta {
            checksum: (u64::from(groups.start().0) << 32) + at as u64,
            ..table(&format!("{at:06}.sst"), &key(first), &key(last))
        })
        .collect();
    let stored = metas.iter().map(|meta| {
        let object = ObjectName::new(&format!("data/{:x}.sst", meta.checksum)).unwrap();
        let file = FileEntry {
            object,
            offset: 0,
            length: meta.length,
            checksum: meta.checksum,
            kind: FileKind::Sst,
        };
        (meta.local_name.clone(), StoredTable { file, checkpoint: CheckpointId::FIRST })
    });
    let tables = stored.collect();
    RestorePart { meta: example_of(groups, metas), tables }
}

fn plan(target: KeyGroupRange, parts: Vec<RestorePart>) -> Result<RestorePlan, LsmError> {
    RestorePlan::new(target, KeyGroupCount::new(128).unwrap(), CheckpointId::FIRST, parts)
}

fn takes(plan: &RestorePlan) -> Vec<Take> {
    plan.parts.iter().map(|(_, take)| *take).collect()
}

fn fetched(plan: &RestorePlan) -> Vec<(usize, usize)> {
    plan.fetches().iter().map(|fetch| (fetch.part, fetch.table)).collect()
}

#[test]
fn one_part_for_the_same_groups_is_opened_with_all_its_tables() {
    let plan =
        plan(range(0, 3), vec![part(range(0, 3), &[(0, 1), (2, 3)]), part(range(4, 7), &[(4, 7)])]).unwrap();
    assert_eq!(takes(&plan), [Take::Open]);
    assert_eq!(fetched(&plan), [(0, 0), (0, 1)]);
}

#[test]
fn of_a_part_for_other_groups_only_the_tables_that_reach_into_them_are_fetched() {
    let parts = vec![part(range(0, 3), &[(0, 1), (1, 2), (3, 3)]), part(range(4, 7), &[(4, 5), (6, 7)])];
    let plan = plan(range(2, 5), parts).unwrap();
    assert_eq!(takes(&plan), [Take::Import(range(2, 3)), Take::Import(range(4, 5))]);
    assert_eq!(fetched(&plan), [(0, 1), (0, 2), (1, 0)]);
}

#[test]
fn no_table_is_fetched_twice_and_only_those_on_a_boundary_by_two_subtasks() {
    let parts = || {
        vec![part(range(0, 63), &[(0, 41), (42, 50), (51, 63)]), part(range(64, 127), &[(64, 90), (91, 127)])]
    };
    let count = KeyGroupCount::new(128).unwrap();
    let mut reads = std::collections::BTreeMap::new();
    for subtask in 0..3 {
        let plan = plan(KeyGroupRange::of_subtask(subtask, 3, count).unwrap(), parts()).unwrap();
        for fetch in plan.fetches() {
            *reads.entry(fetch.stored.file.object.to_string()).or_insert(0) += 1;
        }
    }
    // 0..=42, 43..=85, 86..=127: the boundaries lie within the second table of each part.
    assert_eq!(reads.values().copied().collect::<Vec<_>>(), [1, 2, 1, 2, 1]);
}

// P1 and P2
#[test]
fn a_part_whose_tables_hold_groups_that_are_not_its_own_is_copied() {
    let parts = vec![part(range(0, 3), &[(0, 1), (2, 5)]), part(range(4, 7), &[(4, 7)])];
    let plan = plan(range(0, 7), parts).unwrap();
    assert_eq!(takes(&plan), [Take::Copy(range(0, 3)), Take::Import(range(4, 7))]);
    assert_eq!(plan.fetches().len(), 3, "a part opens only with all its tables");
}

#[test]
fn a_group_that_no_part_holds_is_missing_not_empty() {
    let error = plan(range(2, 6), vec![part(range(0, 3), &[]), part(range(5, 7), &[])]).unwrap_err();
    assert_eq!(error.to_string(), "no part of the checkpoint holds kg-004 of the range kg-002..=kg-006");
}

#[test]
fn a_table_that_the_manifest_does_not_list_is_named() {
    let mut lost = part(range(0, 3), &[(0, 1), (2, 3)]);
    lost.tables.remove("000001.sst");
    let error = plan(range(0, 3), vec![lost]).unwrap_err();
    assert!(matches!(&error, LsmError::TableUnlisted { table, .. } if table == "000001.sst"), "{error}");
}

#[test]
fn another_number_of_key_groups_is_refused_with_both_numbers() {
    let parts = vec![part(range(0, 3), &[])];
    let count = KeyGroupCount::new(64).unwrap();
    let error = RestorePlan::new(range(0, 3), count, CheckpointId::FIRST, parts).unwrap_err();
    assert_eq!(error.to_string(), "the checkpoint has 128 key groups, the backend 64; open it with 128");
}

#[test]
fn what_lies_outside_is_two_ranges_at_most() {
    let outside = |of: (u16, u16), of_range: (u16, u16)| {
        crate::key::outside(range(of.0, of.1), range(of_range.0, of_range.1)).collect::<Vec<_>>()
    };
    assert_eq!(outside((0, 7), (2, 5)), [range(0, 1), range(6, 7)]);
    assert_eq!(outside((2, 5), (0, 7)), []);
    assert_eq!(outside((0, 3), (2, 7)), [range(0, 1)]);
    assert_eq!(outside((0, 3), (5, 7)), [range(0, 3)]);
}
