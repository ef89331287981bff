//! The histories of `chain::exhaustive` on the backend itself: what it lists is what the engine there lists, and
//! every checkpoint restores (the harness sees to that). All of them take minutes; every eighth is followed here.

use super::harness::{Harness, options};
use crate::chain::Element;
use crate::chain::exhaustive::{Change, Outcome, Step, representatives};
use crate::{BaseMode, FreezeKind};

/// One history in so many is followed; 1 follows all.
const EVERY: usize = 8;

fn change(harness: &mut Harness, key: u64, change: Change, value: u64) {
    if matches!(change, Change::Remove | Change::RemovePut) {
        harness.remove(key);
    }
    if matches!(change, Change::Put | Change::PutRemove | Change::RemovePut) {
        harness.put(key, value);
    }
    if matches!(change, Change::PutRemove) {
        harness.remove(key);
    }
}

/// Follows a history; returns the first checkpoint that lists something else, with both listings.
fn follow(history: &[Step]) -> Option<(usize, Vec<[u64; 4]>)> {
    let mut harness = Harness::new(options(1, BaseMode::Confirmed));
    let (mut base, mut waiting) = (None, None);
    for (at, step) in history.iter().enumerate() {
        if step.clear {
            harness.clear();
        }
        for (key, what) in step.changes.into_iter().enumerate() {
            change(&mut harness, key as u64, what, 10 * at as u64 + key as u64);
        }
        let id = harness.freeze(base, FreezeKind::Checkpoint).unwrap();
        let chain = &harness.finish(0).acknowledgement.chain;
        let figures = |e: &Element| [e.id().get(), e.live_puts, e.live_tombstones, e.live_clears];
        let listed: Vec<_> = chain.elements().iter().map(figures).collect();
        if listed != step.listed {
            return Some((at, listed));
        }
        let late = waiting.take();
        match step.outcome {
            Outcome::Complete => {
                harness.backend.completed(id);
                base = Some(id.get());
                continue;
            }
            Outcome::Abort => harness.backend.aborted(id),
            Outcome::Pending => waiting = Some(id),
        }
        if let Some(late) = late {
            harness.backend.completed(late);
            base = Some(late.get());
        }
    }
    None
}

#[test]
fn the_backend_lists_and_restores_what_the_engine_of_all_histories_does() {
    let histories = representatives();
    let followed: Vec<_> = histories.iter().step_by(EVERY).collect();
    println!("{} of {} histories, one for each state at the fourth freeze", followed.len(), histories.len());
    assert!(followed.len() > 5_000);
    for history in followed {
        let differs = follow(history);
        assert!(differs.is_none(), "{differs:?} of {history:#?}");
    }
}
