//! Batches of look-ups and updates against the same ones one by one.

use lowtide_format::CheckpointId;
use proptest::prelude::*;

use super::harness::{Harness, options};
use crate::{BaseMode, FreezeKind};

proptest! {
    #[test]
    fn a_batch_is_what_its_accesses_are_one_by_one(
        puts in proptest::collection::vec((0_u64..300, any::<u64>()), 0..400),
        batch in proptest::collection::vec(0_u64..400, 0..200),
        groups in 1_u16..6,
        frozen: bool,
    ) {
        let mut harness = Harness::new(options(groups, BaseMode::Confirmed));
        puts.iter().for_each(|(key, value)| harness.put(*key, *value / 2));
        if frozen {
            harness.freeze(None, FreezeKind::Checkpoint).unwrap();
        }
        let mut found = Vec::new();
        let state = harness.backend.state(harness.counts).unwrap();
        state.get_many(&batch, |at, value| found.push((at, value.copied())));
        let expected = batch.iter().map(|key| harness.model.counts.get(key).copied());
        prop_assert_eq!(found, expected.enumerate().collect::<Vec<_>>());

        let mut state = harness.backend.state_mut(harness.counts).unwrap();
        let changed = state.update_many(&batch, |at, value| *value += at as u64);
        let mut there = 0;
        for (at, key) in batch.iter().enumerate() {
            if let Some(value) = harness.model.counts.get_mut(key) {
                *value += at as u64;
                there += 1;
            }
        }
        prop_assert_eq!(changed, there);
        harness.check();
        if frozen {
            harness.finish(0);
            harness.backend.completed(CheckpointId::FIRST);
            harness.checkpoint(Some(1));
        }
    }
}
