use super::*;
use lowtide_format::{KeyGroup, KeyGroupRange};

fn id(number: u64) -> CheckpointId {
    CheckpointId::new(number).unwrap()
}

fn groups(start: u16, end: u16) -> KeyGroupSet {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end)).unwrap().into()
}

/// Facts of a segment of state 0 with ten-byte puts and no tombstone or clear; its number is its id.
fn segment(checkpoint: u64, puts: u64) -> SegmentFacts {
    SegmentFacts {
        number: SegmentNumber(checkpoint as u32),
        checkpoint: id(checkpoint),
        file: None,
        cold: false,
        puts,
        put_bytes: puts * 10,
        tombstone_bytes: 0,
        tombstones: TombstoneTally::new(),
        clears: Vec::new(),
        states: vec![StateIndex(0)],
    }
}

fn with_tombstones(mut facts: SegmentFacts, oldest: u64, newest: u64, count: u64) -> SegmentFacts {
    let span = TombstoneSpan { oldest: id(oldest), newest: id(newest) };
    facts.tombstones.add_many(StateIndex(0), &Arc::from(&b""[..]), span, count);
    facts
}

fn with_clear(mut facts: SegmentFacts, state: u16, key_groups: KeyGroupSet) -> SegmentFacts {
    facts.clears.push(ClearFact { state: StateIndex(state), namespace: None, key_groups });
    facts
}

/// Lists one new segment after `base`, with these live puts in the base's segments.
fn next(base: Option<&Chain>, live: &[(u64, u64)], new: SegmentFacts) -> Chain {
    let mut counts = LivePuts::new();
    for (segment, puts) in live {
        counts.add(SegmentNumber(*segment as u32), *puts);
    }
    Chain::next(&NextChain {
        id: new.checkpoint,
        base,
        live: &counts,
        rewritten: &LivePuts::new(),
        new: &[Arc::new(new)],
        key_groups: &groups(0, 7),
    })
}

/// The ids listed, each with its live puts, tombstones and clears.
fn listed(chain: &Chain) -> Vec<(u64, u64, u64, u64)> {
    let elements = chain.elements().iter();
    elements.map(|e| (e.id().get(), e.live_puts, e.live_tombstones, e.live_clears)).collect()
}

#[test]
fn an_element_in_the_middle_without_a_live_record_is_not_listed() {
    let one = next(None, &[], segment(1, 3));
    let two = next(Some(&one), &[(1, 2)], segment(2, 1));
    let three = next(Some(&two), &[(1, 2)], segment(3, 1));
    assert_eq!(listed(&three), [(1, 2, 0, 0), (3, 1, 0, 0)]);
    three.check_invariants(Some(3));
}

#[test]
fn a_tombstone_is_live_as_long_as_an_element_of_its_span_is_listed() {
    let one = next(None, &[], segment(1, 2));
    let two = next(Some(&one), &[(1, 1)], with_tombstones(segment(2, 0), 1, 1, 1));
    assert_eq!(listed(&two), [(1, 1, 0, 0), (2, 0, 1, 0)]);
    assert_eq!(two.elements()[1].matter, [(id(1), id(1))]);
    let three = next(Some(&two), &[], segment(3, 1));
    assert_eq!(listed(&three), [(3, 1, 0, 0)], "with its matter the tombstone goes too");
}

#[test]
fn a_tombstone_outside_whose_span_every_older_element_lies_is_dead() {
    let one = next(None, &[], segment(1, 2));
    let two = next(Some(&one), &[(1, 2)], segment(2, 1));
    let three = next(Some(&two), &[(1, 2)], with_tombstones(segment(3, 0), 2, 2, 1));
    assert_eq!(listed(&three), [(1, 2, 0, 0), (3, 0, 0, 0)]);
}

#[test]
fn a_new_segment_is_listed_even_if_nothing_in_it_is_live() {
    let one = next(None, &[], segment(1, 1));
    let two = next(Some(&one), &[], with_tombstones(segment(2, 0), 1, 1, 1));
    assert_eq!(listed(&two), [(2, 0, 0, 0)]);
    let three = next(Some(&two), &[], segment(3, 1));
    assert_eq!(listed(&three), [(3, 1, 0, 0)]);
}

#[test]
fn a_clear_is_live_while_an_older_element_may_hold_its_state() {
    let one = next(None, &[], segment(1, 2));
    let mut other_state = segment(2, 1);
    other_state.states = vec![StateIndex(1)];
    let two = next(Some(&one), &[(1, 2)], other_state);
    let cleared = with_clear(segment(3, 1), 1, groups(0, 7));
    let three = next(Some(&two), &[(1, 2), (2, 0)], cleared);
    assert_eq!(listed(&three), [(1, 2, 0, 0), (3, 1, 0, 0)], "no listed element holds state 1");
    let cleared = with_clear(segment(3, 1), 1, groups(0, 7));
    let kept = next(Some(&two), &[(1, 2), (2, 1)], cleared);
    assert_eq!(listed(&kept), [(1, 2, 0, 0), (2, 1, 0, 0), (3, 1, 0, 1)]);
}

#[test]
fn a_newer_clear_kills_older_tombstones_and_clears_of_its_scope() {
    let one = next(None, &[], segment(1, 2));
    let two = next(Some(&one), &[(1, 1)], with_tombstones(segment(2, 0), 1, 1, 1));
    let mut both = segment(3, 0);
    both.states = vec![StateIndex(0)];
    let three = next(Some(&two), &[(1, 1)], with_clear(both, 0, groups(0, 7)));
    assert_eq!(listed(&three), [(1, 1, 0, 0), (3, 0, 0, 1)]);
    let four = next(Some(&three), &[(1, 1)], with_clear(segment(4, 0), 0, groups(0, 7)));
    assert_eq!(listed(&four), [(1, 1, 0, 0), (4, 0, 0, 1)]);
}

#[test]
fn a_clear_of_some_key_groups_leaves_the_older_clear_of_the_others_live() {
    let one = next(None, &[], segment(1, 2));
    let two = next(Some(&one), &[(1, 1)], with_clear(segment(2, 0), 0, groups(0, 7)));
    let half = next(Some(&two), &[(1, 1)], with_clear(segment(3, 0), 0, groups(0, 3)));
    assert_eq!(listed(&half), [(1, 1, 0, 0), (2, 0, 0, 1), (3, 0, 0, 1)]);
    let whole = next(Some(&half), &[(1, 1)], with_clear(segment(4, 0), 0, groups(4, 7)));
    assert_eq!(listed(&whole), [(1, 1, 0, 0), (3, 0, 0, 1), (4, 0, 0, 1)], "3 and 4 cover 2 together");
}

#[test]
fn a_clear_of_one_namespace_covers_nothing_of_another() {
    let clear =
        ClearFact { state: StateIndex(0), namespace: Some(Arc::from(&b"a"[..])), key_groups: groups(0, 7) };
    assert!(clear.covers(StateIndex(0), Some(b"a")));
    assert!(!clear.covers(StateIndex(0), Some(b"b")));
    assert!(!clear.covers(StateIndex(0), None), "a clear of all namespaces is wider");
    assert!(!clear.covers(StateIndex(1), Some(b"a")));
}

#[test]
fn elements_of_one_id_do_not_keep_each_other_alive() {
    let part =
        |number, facts: SegmentFacts| Arc::new(SegmentFacts { number: SegmentNumber(number), ..facts });
    let new = [part(1, segment(1, 2)), part(2, with_tombstones(segment(1, 0), 1, 1, 1))];
    let key_groups = groups(0, 7);
    let none = LivePuts::new();
    let request = NextChain {
        id: id(1),
        base: None,
        live: &none,
        rewritten: &none,
        new: &new,
        key_groups: &key_groups,
    };
    let chain = Chain::next(&request);
    assert_eq!(listed(&chain), [(1, 2, 0, 0), (1, 0, 0, 0)]);
}

#[test]
fn a_segment_is_left_out_only_when_all_its_live_puts_were_rewritten() {
    let one = next(None, &[], segment(1, 4));
    let cold = SegmentFacts { number: SegmentNumber(9), cold: true, ..segment(2, 3) };
    let chain_with = |rewritten: u64| {
        let (mut live, mut moved) = (LivePuts::new(), LivePuts::new());
        live.add(SegmentNumber(1), 4);
        moved.add(SegmentNumber(1), rewritten);
        Chain::next(&NextChain {
            id: id(2),
            base: Some(&one),
            live: &live,
            rewritten: &moved,
            new: &[Arc::new(SegmentFacts { puts: rewritten, ..cold.clone() })],
            key_groups: &groups(0, 7),
        })
    };
    assert_eq!(listed(&chain_with(3)), [(1, 1, 0, 0), (2, 3, 0, 0)]);
    assert_eq!(listed(&chain_with(4)), [(2, 4, 0, 0)]);
}

#[test]
fn space_counts_live_bytes_by_the_mean_put_of_each_segment() {
    let one = next(None, &[], segment(1, 4));
    let two = next(Some(&one), &[(1, 1)], segment(2, 2));
    assert_eq!(two.space(), ChainSpace { retained_bytes: 60, live_bytes: 30 });
    assert_eq!(two.low_tide(), Some(id(1)));
}

#[test]
#[should_panic(expected = "C4")]
fn a_chain_with_a_needless_element_is_refused() {
    let one = next(None, &[], segment(1, 4));
    let mut element = one.elements()[0].clone();
    element.live_puts = 0;
    drop(Chain::new(id(2), vec![element]));
}

#[test]
fn a_clear_is_no_newer_than_the_tombstones_of_its_own_segment() {
    let one = next(None, &[], segment(1, 2));
    let both = with_tombstones(with_clear(segment(2, 0), 0, groups(0, 7)), 1, 1, 1);
    let two = next(Some(&one), &[(1, 1)], both);
    assert_eq!(listed(&two), [(1, 1, 0, 0), (2, 0, 1, 1)]);
}

#[test]
fn tombstones_that_are_dead_for_good_take_no_room() {
    let mut chain = next(None, &[], segment(1, 100));
    for checkpoint in 2..=20 {
        let live: Vec<_> = (1..checkpoint).map(|segment| (segment, 1)).collect();
        chain = next(Some(&chain), &live, segment(checkpoint, 1));
    }
    let mut newest = segment(21, 1);
    for matter in 1..=20 {
        newest = with_tombstones(newest, matter, matter, 1);
    }
    let live: Vec<_> = (1..=20).map(|segment| (segment, 1)).collect();
    chain = next(Some(&chain), &live, newest);
    let tally = |chain: &Chain| {
        let element = chain.elements().iter().find(|element| element.id() == id(21)).unwrap();
        (element.live_tombstones, element.facts.tombstones.spans())
    };
    assert_eq!(tally(&chain), (20, 20));
    chain = next(Some(&chain), &[(1, 1), (2, 1), (3, 1), (21, 1)], segment(22, 1));
    assert_eq!(tally(&chain), (3, 3));
    chain = next(Some(&chain), &[(1, 1), (2, 1), (21, 1)], segment(23, 1));
    assert_eq!(tally(&chain), (2, 3), "not worth a copy yet");
    chain = next(Some(&chain), &[(21, 1)], segment(24, 1));
    assert_eq!(tally(&chain), (0, 0));
}
