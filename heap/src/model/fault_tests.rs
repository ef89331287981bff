//! Faults that systems of this kind really had, one test for each kind.

use std::sync::Arc;

use lowtide_format::{CheckpointId, DecodeLimits, SegmentReader};

use super::harness::{All, Harness, Stored, id, options, request, write};
use crate::epochs::{Epoch, Epochs};
use crate::handover::Clock;
use crate::rewrite::{ChainStats, RewritePlan, RewritePolicy};
use crate::{
    Antimatter, BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapError, HeapRestore, WriteOptions,
};

fn harness() -> Harness {
    Harness::new(options(4, BaseMode::Confirmed))
}

/// The listed checkpoints with their live records.
fn chain(stored: &Stored) -> Vec<(u64, u64)> {
    let elements = stored.acknowledgement.chain.elements();
    elements.iter().map(|element| (element.id().get(), element.live())).collect()
}

/// Puts, tombstones, clears that a checkpoint wrote.
fn wrote(stored: &Stored) -> (u64, u64, u64) {
    let report = stored.acknowledgement.report;
    (report.puts, report.tombstones, report.clears)
}

#[test]
fn a_value_changed_in_place_without_a_live_snapshot_is_in_the_next_delta() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put_text(1, 0, 1);
    harness.checkpoint(None);
    harness.update(1, 1);
    harness.bump_text(1, 0);
    assert_eq!(wrote(harness.checkpoint(Some(1))), (2, 0, 0));
    let mut state = harness.backend.state_mut(harness.counts).unwrap();
    assert!(!state.entry(1).unwrap().and_modify(|value| *value += 1).or_insert(9));
    *harness.model.counts.get_mut(&1).unwrap() += 1;
    assert_eq!(wrote(harness.checkpoint(Some(2))), (1, 0, 0));
    assert_eq!(wrote(harness.checkpoint(Some(3))), (0, 0, 0));
}

#[test]
fn removed_keys_stay_away_however_they_were_removed() {
    type Removal = fn(&mut Harness);
    let removals: [Removal; 5] = [
        |harness| harness.remove(1),
        Harness::retain_even,
        Harness::clear,
        |harness| harness.remove_text(1, 0),
        |harness| harness.clear_texts(Some(0)),
    ];
    for removal in removals {
        let mut harness = harness();
        harness.put(1, 1);
        harness.put(2, 2);
        harness.put_text(1, 0, 1);
        harness.put_text(1, 1, 1);
        harness.checkpoint(None);
        removal(&mut harness);
        harness.checkpoint(Some(1));
    }
}

#[test]
fn a_removal_is_repeated_until_a_base_carries_it() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put(2, 2);
    harness.checkpoint(None);
    harness.remove(1);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.finish(0);
    harness.backend.aborted(id(2));
    // Neither acknowledged nor aborted when the next begins.
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    let third = harness.checkpoint(Some(1));
    assert_eq!(wrote(third), (0, 1, 0));
    assert_eq!(chain(third), [(1, 1), (4, 1)]);
    assert_eq!(wrote(harness.checkpoint(Some(4))), (0, 0, 0), "H7: the base carries it");
}

#[test]
fn the_last_of_several_removals_and_puts_counts() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.checkpoint(None);
    harness.remove(1);
    harness.put(1, 2);
    assert_eq!(wrote(harness.checkpoint(Some(1))), (1, 0, 0));
    harness.put(1, 3);
    harness.remove(1);
    harness.put(1, 4);
    harness.remove(1);
    harness.put(5, 1);
    harness.remove(5);
    assert_eq!(
        wrote(harness.checkpoint(Some(2))),
        (0, 1, 0),
        "a key that was never written needs no tombstone"
    );
}

#[test]
fn a_clear_is_one_record_and_is_repeated_until_a_base_carries_it() {
    let mut harness = harness();
    (0..1_000).for_each(|key| harness.put(key, key));
    harness.checkpoint(None);
    harness.clear();
    harness.put(7, 7);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    assert_eq!(wrote(harness.finish(0)), (1, 0, 1));
    harness.backend.aborted(id(2));
    harness.check_restores(id(1));
    let third = harness.checkpoint(Some(1));
    assert_eq!(wrote(third), (1, 0, 1));
    assert_eq!(chain(third), [(3, 1)], "nothing older is listed, so the clear is dead");
    (0..100).for_each(|key| harness.put(key, 1));
    harness.clear();
    assert_eq!(wrote(harness.checkpoint(Some(3))), (0, 0, 1));
    assert_eq!(chain(harness.checkpoint(Some(4))), []);
}

#[test]
fn a_state_that_appears_while_a_snapshot_is_open_is_not_in_it() {
    let mut backend = HeapBackend::new(options(4, BaseMode::Confirmed));
    let first = backend.value_state::<u64, (), u64>("first").unwrap();
    backend.state_mut(first).unwrap().put(1, 1).unwrap();
    let mut snapshot = backend.freeze(request(1, None)).unwrap();
    let second = backend.value_state::<u64, (), u64>("second").unwrap();
    backend.state_mut(second).unwrap().put(2, 2).unwrap();
    let segments = write(&mut snapshot, &WriteOptions::default());
    let names = |bytes: &[u8]| -> Vec<String> {
        let reader = SegmentReader::open(bytes, DecodeLimits::default()).unwrap();
        reader.footer().states().iter().map(|state| state.name.clone()).collect()
    };
    assert_eq!(names(&segments[0].bytes), ["first"]);
    let file = segments[0].summary.file_entry(lowtide_format::ObjectName::new("1").unwrap());
    snapshot.finish(vec![file]).unwrap();
    backend.completed(id(1));
    let mut snapshot = backend.freeze(request(2, Some(1))).unwrap();
    let segments = write(&mut snapshot, &WriteOptions::default());
    assert_eq!(names(&segments[0].bytes), ["first", "second"]);
    assert_eq!(segments[0].summary.totals.puts, 1, "the new state in full, nothing else");
}

#[test]
fn what_was_restored_can_be_updated_written_and_restored_again() {
    for update in 0..3 {
        let mut harness = harness();
        (0..100).for_each(|key| harness.put(key, key));
        harness.checkpoint(None);
        harness.reopen(id(1));
        match update {
            0 => (0..100).for_each(|key| harness.update(key, 1)),
            1 => harness.update(3, 1),
            _ => {}
        }
        let second = harness.checkpoint(Some(1));
        let expected: &[(u64, u64)] = match update {
            0 => &[(2, 100)],
            1 => &[(1, 99), (2, 1)],
            _ => &[(1, 100)],
        };
        assert_eq!(chain(second), expected, "H16: a delta against what was restored");
        harness.reopen(id(2));
        harness.remove(5);
        harness.checkpoint(Some(2));
        harness.reopen(id(3));
        harness.check();
    }
}

#[test]
fn a_segment_is_listed_exactly_as_long_as_it_holds_a_live_record() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put(2, 1);
    harness.checkpoint(None);
    harness.update(1, 1);
    assert_eq!(chain(harness.checkpoint(Some(1))), [(1, 1), (2, 1)]);
    harness.update(2, 1);
    assert_eq!(chain(harness.checkpoint(Some(2))), [(2, 1), (3, 1)]);
    harness.update(1, 1);
    assert_eq!(chain(harness.checkpoint(Some(3))), [(3, 1), (4, 1)]);
}

#[test]
fn a_tombstone_stays_while_an_older_segment_may_hold_its_key() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put(2, 1);
    harness.checkpoint(None);
    harness.remove(2);
    harness.checkpoint(Some(1));
    harness.put(3, 1);
    assert_eq!(chain(harness.checkpoint(Some(2))), [(1, 1), (2, 1), (3, 1)]);
    harness.update(1, 1);
    assert_eq!(
        chain(harness.checkpoint(Some(3))),
        [(3, 1), (4, 1)],
        "the matter and its tombstone go together"
    );
}

/// Empties the oldest segment.
#[derive(Debug)]
struct Oldest;

impl RewritePolicy for Oldest {
    fn plan(&self, stats: &ChainStats) -> RewritePlan {
        let victims = stats.segments.first().map(|segment| segment.number).into_iter().collect();
        RewritePlan { victims, ..RewritePlan::none() }
    }
}

#[test]
fn a_rewrite_takes_no_value_that_changed_after_the_freeze() {
    let mut harness = harness();
    harness.backend.set_rewriting(Some(Arc::new(Oldest)));
    (1..=3).for_each(|key| harness.put(key, 1));
    harness.checkpoint(None);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.update(1, 1);
    harness.remove(2);
    let second = harness.finish(0);
    assert_eq!(second.acknowledgement.report.rewritten, 1);
    assert_eq!(chain(second), [(1, 2), (2, 1)], "the changed ones keep their segment in this manifest");
    harness.backend.completed(id(2));
    let third = harness.checkpoint(Some(2));
    // Key 3 moves on from the segment that has become the oldest.
    assert_eq!(third.acknowledgement.report.puts - third.acknowledgement.report.rewritten, 1);
    assert!(third.acknowledgement.report.tombstones <= 1);
}

#[test]
fn a_late_rewrite_takes_no_value_of_an_interval_that_every_base_has_by_now() {
    let mut harness = Harness::new(options(1, BaseMode::Acknowledged));
    harness.backend.set_rewriting(Some(Arc::new(Oldest)));
    harness.put(1, 1);
    harness.freeze(None, FreezeKind::Checkpoint).unwrap();
    harness.finish(0);
    // The second is written last. Its freeze has the first value of the key, no later checkpoint has.
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.remove(1);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.put(1, 2);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.finish(2);
    harness.backend.completed(id(4));
    // A new interval of the piece, in which only what a base may lack need be kept.
    harness.freeze(Some(4), FreezeKind::Checkpoint).unwrap();
    harness.put(2, 1);
    (0..3).for_each(|_| {
        harness.finish(0);
    });
}

#[test]
fn an_aborted_rewrite_frees_no_segment_and_is_done_again() {
    let mut harness = harness();
    harness.backend.set_rewriting(Some(Arc::new(Oldest)));
    harness.put(1, 1);
    harness.checkpoint(None);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    assert_eq!(chain(harness.finish(0)), [(2, 1)]);
    harness.backend.aborted(id(2));
    harness.check_restores(id(1));
    let third = harness.checkpoint(Some(1));
    assert_eq!(third.acknowledgement.report.rewritten, 1);
    assert_eq!(chain(third), [(3, 1)]);
    // Written again by two, changed and removed: the tombstone must reach the newest of them.
    harness.update(1, 1);
    harness.remove(1);
    harness.put(2, 1);
    harness.checkpoint(Some(3));
}

#[test]
fn a_key_that_is_changed_and_removed_after_a_pending_rewrite_does_not_come_back() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put(2, 1);
    harness.checkpoint(None);
    harness.backend.set_rewriting(Some(Arc::new(Oldest)));
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    assert_eq!(chain(harness.finish(0)), [(2, 2)]);
    harness.backend.set_rewriting(None);
    harness.update(1, 1);
    harness.remove(1);
    harness.backend.completed(id(2));
    let third = harness.checkpoint(Some(2));
    assert_eq!(wrote(third), (0, 1, 0));
    assert_eq!(chain(third), [(2, 1), (3, 1)]);
}

#[test]
fn a_segment_of_several_states_stays_until_the_last_of_them_let_go() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.put_text(1, 0, 1);
    harness.checkpoint(None);
    harness.update(1, 1);
    assert_eq!(chain(harness.checkpoint(Some(1))), [(1, 1), (2, 1)]);
    harness.bump_text(1, 0);
    assert_eq!(chain(harness.checkpoint(Some(2))), [(2, 1), (3, 1)]);
}

#[test]
fn freezes_end_with_an_error_before_epochs_wrap() {
    let options = options(1, BaseMode::Confirmed);
    let mut by_epoch =
        HeapBackend::with_epochs(options, Clock::new(), Epochs::starting_at(Epoch(u32::MAX - 2)));
    let mut by_clock = HeapBackend::with_epochs(options, Clock::with_freezes_left(2), Epochs::new());
    for backend in [&mut by_epoch, &mut by_clock] {
        let state = backend.value_state::<u64, (), u64>("s").unwrap();
        for number in 1..=2 {
            backend.state_mut(state).unwrap().put(number, 1).unwrap();
            drop(backend.freeze(request(number, None)).unwrap());
        }
        let error = backend.freeze(request(3, None));
        assert!(matches!(error, Err(HeapError::EpochsExhausted)), "{error:?}");
        assert!(backend.state_mut(state).unwrap().update(&1, |value| *value += 1), "the map goes on");
        backend.check_invariants();
    }
}

#[test]
fn a_base_that_is_not_remembered_is_an_error_and_changes_nothing() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.checkpoint(None);
    let error = harness.backend.freeze(request(5, Some(3)));
    assert!(matches!(error, Err(HeapError::BaseForgotten { .. })), "{error:?}");
    let full = FreezeRequest { kind: FreezeKind::Full, ..request(5, Some(1)) };
    assert!(matches!(harness.backend.freeze(full), Err(HeapError::BaseNotAllowed { .. })));
    assert!(matches!(harness.backend.freeze(request(1, None)), Err(HeapError::IdNotAbove { .. })));
    harness.backend.completed(id(77));
    harness.backend.aborted(id(78));
    assert_eq!(chain(harness.checkpoint(Some(1))), [(1, 1)]);
}

#[test]
fn a_checkpoint_that_was_aborted_or_overtaken_is_no_base() {
    let mut harness = harness();
    harness.put(1, 1);
    let written = |harness: &mut Harness| {
        let id = harness.freeze(None, FreezeKind::Checkpoint).unwrap();
        harness.finish(0);
        id
    };
    let refused = |harness: &mut Harness, base: CheckpointId| {
        let error = harness.backend.freeze(request(90, Some(base.get())));
        assert!(matches!(error, Err(HeapError::BaseForgotten { .. })), "{base}: {error:?}");
    };
    let aborted = written(&mut harness);
    harness.backend.aborted(aborted);
    refused(&mut harness, aborted);
    let overtaken = written(&mut harness);
    let newer = written(&mut harness);
    harness.backend.completed(newer);
    refused(&mut harness, overtaken);
    assert_eq!(chain(harness.checkpoint(Some(newer.get()))), [(newer.get(), 1)]);
}

#[test]
fn a_snapshot_that_a_rewritten_chain_overtakes_still_knows_its_own_base() {
    let mut harness = Harness::new(options(1, BaseMode::Acknowledged));
    harness.put(1, 1);
    harness.put(2, 1);
    harness.checkpoint(None);
    harness.remove(1);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.backend.set_rewriting(Some(Arc::new(All)));
    let rewritten = harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.finish(1);
    harness.backend.completed(rewritten);
    harness.freeze(Some(rewritten.get()), FreezeKind::Checkpoint).unwrap();
    assert_eq!(wrote(harness.finish(0)), (0, 1, 0), "the base holds a record of the key");
}

#[test]
fn keys_that_no_checkpoint_has_seen_leave_no_removal_behind() {
    let mut harness = harness();
    harness.put(1, 1);
    harness.checkpoint(None);
    let pass = |harness: &mut Harness, keys: std::ops::Range<u64>| {
        for key in keys {
            harness.put(key, 1);
            harness.remove(key);
        }
        harness.backend.table_bytes()
    };
    let after_some = pass(&mut harness, 2..200);
    assert_eq!(pass(&mut harness, 200..4_000), after_some);
    assert_eq!(wrote(harness.checkpoint(Some(1))), (0, 0, 0));
}

#[test]
fn large_and_small_states_of_one_key_group_make_the_same_segments_however_they_are_encoded() {
    for (counts, texts) in [(50_000, 50_000), (10, 50_000), (50_000, 10), (50_000, 0)] {
        let written = [1, 2].map(|parallelism| {
            let mut harness = Harness::new(options(1, BaseMode::Confirmed));
            harness.write.parallelism = parallelism;
            (0..counts).for_each(|key| harness.put(key, key));
            (0..texts).for_each(|key| harness.put_text(key, 0, key));
            harness.checkpoint(None);
            (0..counts).for_each(|key| harness.update(key, 1));
            (0..texts).step_by(2).for_each(|key| harness.remove_text(key, 0));
            assert_eq!(wrote(harness.checkpoint(Some(1))), (counts, texts.div_ceil(2), 0));
            harness.objects
        });
        assert!(written[0] == written[1], "{counts} counts, {texts} texts");
    }
}

#[test]
fn at_most_so_many_snapshots_are_open() {
    let mut harness = harness();
    for _ in 0..crate::OPEN_SNAPSHOTS_MAX {
        harness.freeze(None, FreezeKind::Savepoint).unwrap();
    }
    let refused = harness.freeze(None, FreezeKind::Savepoint);
    assert!(matches!(refused, Err(HeapError::TooManySnapshots { .. })));
    harness.pending.pop();
    harness.freeze(None, FreezeKind::Savepoint).unwrap();
}

#[test]
fn always_writes_a_tombstone_for_every_key_removed_since_the_base() {
    let mut harness = harness();
    harness.backend.set_antimatter(Antimatter::Always);
    harness.put(1, 1);
    harness.checkpoint(None);
    harness.put(2, 1);
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    harness.finish(0);
    harness.backend.aborted(id(2));
    harness.remove(2);
    assert_eq!(wrote(harness.checkpoint(Some(1))), (0, 1, 0), "written by an aborted checkpoint only");
    harness.put(5, 1);
    harness.remove(5);
    assert_eq!(wrote(harness.checkpoint(Some(3))), (0, 1, 0), "written by none");
    harness.freeze(Some(4), FreezeKind::Checkpoint).unwrap();
    harness.put(6, 1);
    harness.remove(6);
    harness.finish(0);
    harness.backend.aborted(id(5));
    assert_eq!(wrote(harness.checkpoint(Some(4))), (0, 1, 0), "removed after a freeze that came to nothing");
    harness.backend.set_antimatter(Antimatter::Elide);
    harness.put(3, 1);
    harness.freeze(Some(6), FreezeKind::Checkpoint).unwrap();
    harness.finish(0);
    harness.backend.aborted(id(7));
    harness.remove(3);
    assert_eq!(wrote(harness.checkpoint(Some(6))), (0, 0, 0), "born after the base");
}

#[test]
fn a_delta_costs_what_changed_and_not_what_there_is() {
    let mut harness = harness();
    (0..5_000).for_each(|key| harness.put(key, key));
    harness.checkpoint(None);
    let before = harness.backend.figures();
    (0..10).for_each(|key| harness.update(key * 100, 1));
    harness.freeze(Some(1), FreezeKind::Checkpoint).unwrap();
    let Some(mut pending) = harness.pending.pop() else { unreachable!("just frozen") };
    write(&mut pending.snapshot, &harness.write);
    let after = harness.backend.figures();
    assert_eq!(
        after.records_encoded - before.records_encoded,
        10,
        "H13: every piece with a change is looked at"
    );
    assert!(after.pieces_visited - before.pieces_visited <= 10, "pieces without a change are not looked at");
    assert_eq!(after.records_set_aside, before.records_set_aside);
}

#[test]
fn a_state_that_nobody_opened_is_carried_along_and_can_be_opened_later() {
    let mut harness = harness();
    (0..50).for_each(|key| harness.put(key, key));
    (0..50).for_each(|key| harness.put_text(key, 1, key));
    harness.checkpoint(None);
    let mut restore = HeapRestore::new(harness.options, id(1), DecodeLimits::default());
    let counts = restore.value_state("counts").unwrap();
    harness.feed(&mut restore, id(1));
    let mut backend = restore.finish();
    backend.set_rewriting(Some(Arc::new(Oldest)));
    let snapshot = backend.freeze(request(2, Some(1))).unwrap();
    let wrong = backend.value_state::<String, u32, u64>("texts");
    assert!(matches!(wrong, Err(HeapError::StateTypeMismatch { part: "value", .. })), "{wrong:?}");
    harness.next_id = 3;
    (harness.backend, harness.counts) = (backend, counts);
    harness.texts = harness.backend.value_state("texts").unwrap();
    harness.bump_text(3, 1);
    let expected = harness.stored[&id(1)].expected.clone();
    let mut snapshot = snapshot;
    let segments = write(&mut snapshot, &harness.write);
    harness.store(snapshot, segments, expected);
    harness.backend.completed(id(2));
    harness.check();
    harness.checkpoint(Some(2));
}

#[test]
fn after_a_rescale_each_key_is_in_one_backend_and_each_segment_in_its_key_groups() {
    let mut harness = harness();
    (0..200).for_each(|key| harness.put(key, key));
    harness.checkpoint(None);
    (0..50).for_each(|key| harness.remove(key));
    harness.checkpoint(Some(1));
    let mut found = 0;
    for subtask in 0..3 {
        let range =
            lowtide_format::KeyGroupRange::of_subtask(subtask, 3, harness.options.key_groups).unwrap();
        let options = crate::HeapOptions { range, ..harness.options };
        let (mut backend, counts, _) = harness.restored(id(2), options);
        let entries = backend.state(counts).unwrap().len() as u64;
        found += entries;
        let foreign = (0..200).find(|key| !range.contains(key_group(*key, harness.options))).unwrap();
        let refused = backend.state_mut(counts).unwrap().put(foreign, 1);
        assert!(matches!(refused, Err(HeapError::ForeignKey { .. })), "{refused:?}");
        let mut snapshot = backend.freeze(request(3, Some(2))).unwrap();
        assert!(write(&mut snapshot, &WriteOptions::default()).is_empty(), "nothing changed");
        let chain = snapshot.finish(Vec::new()).unwrap().chain;
        let live: u64 = chain.elements().iter().map(|element| element.live_puts).sum();
        assert_eq!(live, entries);
    }
    assert_eq!(found, 150);
}

fn key_group(key: u64, options: crate::HeapOptions) -> lowtide_format::KeyGroup {
    lowtide_format::key_group(lowtide_format::Key::key_hash(&key), options.key_groups)
}

#[test]
fn a_token_of_another_backend_is_refused() {
    let (first, second) = (harness(), harness());
    assert!(matches!(second.backend.state(first.counts), Err(HeapError::ForeignState)));
}
