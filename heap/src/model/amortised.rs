//! What rewriting costs over many checkpoints, by counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use lowtide_format::ObjectName;

use super::harness::{Harness, options, write};
use crate::chain::Chain;
use crate::origins::EXACT_MAX;
use crate::rewrite::BoundedRewriting;
use crate::{BaseMode, FreezeKind};

const KEYS: u64 = 20_000;
const CHECKPOINTS: u64 = 800;
const WARM: u64 = 300;

/// Takes a checkpoint without reading it back.
fn checkpoint_of(harness: &mut Harness, base: Option<u64>) -> Arc<Chain> {
    let id = harness.freeze(base, FreezeKind::Checkpoint).unwrap();
    let Some(mut pending) = harness.pending.pop() else { unreachable!("just frozen") };
    let segments = write(&mut pending.snapshot, &harness.write);
    let object = |index: usize| ObjectName::new(&format!("{}-{index}", id.get())).unwrap();
    let files = segments.iter().enumerate().map(|(index, segment)| segment.summary.file_entry(object(index)));
    let chain = pending.snapshot.finish(files.collect()).unwrap().chain;
    harness.backend.completed(id);
    chain
}

#[test]
fn what_is_remembered_of_checkpoints_does_not_grow_with_their_number() {
    let mut harness = Harness::new(options(4, BaseMode::Confirmed));
    harness.backend.set_rewriting(Some(Arc::new(BoundedRewriting::default())));
    (0..20).for_each(|key| harness.put(key, key));
    let mut base = None;
    for checkpoint in 1..=600 {
        harness.update(checkpoint % 20, 1);
        checkpoint_of(&mut harness, base);
        base = Some(checkpoint);
    }
    let (epochs, completed) = harness.backend.remembered();
    assert!(epochs <= 200, "{epochs} epochs of 600 are remembered");
    assert!(completed <= 200, "{completed} completed checkpoints of 600 are remembered");
}

#[test]
fn each_bucket_is_looked_at_at_most_three_times_in_the_life_of_a_segment_and_labels_stay_few() {
    let mut harness = Harness::new(options(4, BaseMode::Confirmed));
    harness.backend.set_rewriting(Some(Arc::new(BoundedRewriting::default())));
    (0..KEYS).for_each(|key| harness.put(key, key));
    let (mut number, mut base) = (1_u64, None);
    let (mut seen, mut lives): (BTreeMap<u64, u64>, Vec<u64>) = (BTreeMap::new(), Vec::new());
    let mut before = 0;
    let (mut worst, mut most_labels): (f64, usize) = (0.0, 0);
    for checkpoint in 1..=CHECKPOINTS {
        for _ in 0..KEYS / 100 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            harness.update((number >> 33) % KEYS, 1);
        }
        let chain = checkpoint_of(&mut harness, base);
        base = Some(checkpoint);
        if checkpoint == WARM {
            before = harness.backend.figures().buckets_scanned;
        }
        let (labels, unsettled) = harness.backend.labels_and_unsettled();
        most_labels = most_labels.max(labels.saturating_sub(chain.elements().len()));
        assert!(unsettled <= 1, "the pause of {} is left {unsettled} rewrites to settle", checkpoint + 1);
        let listed: Vec<u64> = chain.elements().iter().map(|element| element.id().get()).collect();
        for id in seen.keys().copied().filter(|id| !listed.contains(id)).collect::<Vec<_>>() {
            let born = seen.remove(&id).unwrap_or(checkpoint);
            if checkpoint > WARM {
                lives.push(checkpoint - born);
            }
        }
        listed.iter().for_each(|id| {
            seen.entry(*id).or_insert(checkpoint);
        });
        if checkpoint > WARM {
            let space = chain.space();
            worst = worst.max(space.retained_bytes as f64 / space.live_bytes as f64);
        }
    }
    let scanned = harness.backend.figures().buckets_scanned - before;
    let buckets = harness.backend.buckets() as f64;
    let life = lives.iter().sum::<u64>() as f64 / lives.len() as f64;
    let looks = scanned as f64 / buckets / ((CHECKPOINTS - WARM) as f64 / life);
    println!(
        "retained / live at most {worst:.2}, mean life {life:.0} checkpoints, {looks:.2} looks a bucket and life"
    );
    assert!(looks <= 3.0, "each bucket was looked at {looks:.2} times in the life of a segment");
    // Without a limit there are hundreds: one for each interval whose value some entry still has.
    assert!(most_labels <= 4 * EXACT_MAX, "{most_labels} labels more than segments are in use");
    assert!(worst <= 2.1, "retained / live reached {worst:.2}");
}
