use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn set_of(groups: &BTreeSet<u16>) -> KeyGroupSet {
    groups.iter().map(|group| KeyGroup(*group)).collect()
}

fn groups_of(set: &KeyGroupSet) -> BTreeSet<u16> {
    set.iter().map(|group| group.0).collect()
}

#[test]
fn the_subtasks_of_any_parallelism_cover_every_group_once_and_in_order() {
    for count in [1, 2, 7, 128, 500, 32_768] {
        let count = KeyGroupCount::new(count).unwrap();
        for subtasks in [1_u32, 2, 3, 7, 64, 127, 128, 32_768] {
            if subtasks > u32::from(count.get()) {
                assert_eq!(KeyGroupRange::of_subtask(0, subtasks, count), None);
                continue;
            }
            let mut next = 0;
            for index in 0..subtasks {
                let range = KeyGroupRange::of_subtask(index, subtasks, count).unwrap();
                assert_eq!(u32::from(range.start().0), next, "{index} of {subtasks}, {count} groups");
                next = u32::from(range.end().0) + 1;
            }
            assert_eq!(next, u32::from(count.get()));
            assert_eq!(KeyGroupRange::of_subtask(subtasks, subtasks, count), None);
        }
    }
}

#[test]
fn ranges_of_subtasks_are_those_of_flink() {
    let count = KeyGroupCount::new(10).unwrap();
    let starts: Vec<(u16, u16)> = (0..3)
        .filter_map(|index| KeyGroupRange::of_subtask(index, 3, count))
        .map(|range| (range.start().0, range.end().0))
        .collect();
    assert_eq!(starts, [(0, 3), (4, 6), (7, 9)]);
}

#[test]
fn a_count_of_zero_or_above_the_maximum_is_refused() {
    assert_eq!(KeyGroupCount::new(0), None);
    assert_eq!(KeyGroupCount::new(32_769), None);
    assert!(KeyGroupCount::new(32_768).is_some());
}

#[test]
fn a_key_group_has_one_spelling() {
    for group in [0, 3, 999, 1000, 32_767] {
        let group = KeyGroup(group);
        assert_eq!(group.to_string().parse::<KeyGroup>().unwrap(), group);
    }
    for text in ["kg-3", "kg-0003", "kg-70000", "kg-", "kg-+03"] {
        assert!(text.parse::<KeyGroup>().is_err(), "{text}");
    }
}

#[test]
fn a_key_keeps_its_group_in_every_release() {
    let count = KeyGroupCount::new(128).unwrap();
    let groups: Vec<u16> =
        ["a", "b", "user-1", ""].iter().map(|key| key_group(crate::xxh3(key.as_bytes()), count).0).collect();
    assert_eq!(groups, [31, 63, 73, 66]);
}

proptest! {
    #[test]
    fn set_operations_agree_with_sets_of_numbers(
        a in proptest::collection::btree_set(0_u16..40, 0..30),
        b in proptest::collection::btree_set(0_u16..40, 0..30),
        probe in 0_u16..45,
    ) {
        let (x, y) = (set_of(&a), set_of(&b));
        prop_assert_eq!(groups_of(&x), a.clone());
        prop_assert_eq!(x.len() as usize, a.len());
        prop_assert_eq!(x.contains(KeyGroup(probe)), a.contains(&probe));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.intersect(&y), set_of(&(&a & &b)));
        prop_assert_eq!(x.union(&y), set_of(&(&a | &b)), "G1: equal sets are equal values");
        prop_assert_eq!(x.difference(&y), set_of(&(&a - &b)));
    }

    #[test]
    fn a_union_at_the_upper_end_of_the_numbers_does_not_wrap(a: u16, b: u16) {
        let whole = KeyGroupRange::new(KeyGroup(a.min(b)), KeyGroup(a.max(b))).unwrap();
        let set: KeyGroupSet = [whole, KeyGroupRange::new(KeyGroup(u16::MAX), KeyGroup(u16::MAX)).unwrap()]
            .into_iter()
            .collect();
        prop_assert!(set.contains(KeyGroup(u16::MAX)) && set.contains(KeyGroup(a)));
        prop_assert!(set.difference(&set).is_empty());
    }
}
