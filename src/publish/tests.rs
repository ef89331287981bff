//! The sequence alone: races for a number, strays, pruning.

use std::sync::Arc;

use lowtide_format::{CheckpointId, Generation};

use super::*;
use crate::clock::{Millis, UploadIdSource};
use crate::coordinator::Deleter;
use crate::fault::{FaultClass, FaultMode, FaultOperation, FaultPlan, FaultStore, Faults};

fn member(sequence: &Sequence, generation: u64, ids: &UploadIdSource) -> SequenceMember {
    SequenceMember {
        number: sequence.next_number(),
        generation: Generation(generation),
        token: ids.next(Millis(1)),
        created_millis: 1,
        step: SequenceStep::Retention,
        checkpoints: Vec::new(),
        savepoints: Vec::new(),
        sweep_boundary_millis: 0,
        next_checkpoint: CheckpointId::FIRST,
        restored_from: None,
        trash: Vec::new(),
    }
}

async fn append(sequence: &mut Sequence, generation: u64, ids: &UploadIdSource) -> Result<(), AppendError> {
    let member = member(sequence, generation, ids);
    sequence.append(member).await
}

async fn prune(sequence: &mut Sequence) {
    let deleter = Deleter::new(sequence.store.clone());
    deleter.add_members(sequence.take_superseded());
    deleter.prune().await;
}

fn faulty() -> (Store, Faults) {
    let faults = Faults::new();
    (Store::memory().wrapped(|inner| Arc::new(FaultStore::with_faults(inner, faults.clone()))), faults)
}

fn plan(faults: &Faults, operation: FaultOperation, mode: FaultMode, times: u64) {
    faults.plan(FaultPlan { operation, class: FaultClass::Publish, mode, nth: 1, times });
}

#[tokio::test]
async fn each_number_is_taken_once_however_many_race_for_it() {
    let directory = tempfile::tempdir().unwrap();
    for store in [Store::memory(), Store::local(directory.path()).unwrap()] {
        let ids = UploadIdSource::counted(7);
        append(&mut Sequence::read(store.clone()).await.unwrap(), 1, &ids).await.unwrap();
        let racers = (0..32).map(|racer| {
            let (store, ids) = (store.clone(), UploadIdSource::counted(racer));
            tokio::spawn(async move {
                let mut sequence = Sequence::read(store).await.unwrap();
                // Wait for the others, so that all know the same head.
                tokio::task::yield_now().await;
                append(&mut sequence, 2, &ids).await.is_ok().then_some(sequence.next_number())
            })
        });
        let won: Vec<u64> =
            futures::future::join_all(racers).await.into_iter().filter_map(|racer| racer.unwrap()).collect();
        let distinct: BTreeSet<u64> = won.iter().copied().collect();
        assert_eq!(distinct.len(), won.len(), "no number has two owners");
        assert!(!won.is_empty());
        let newest = Sequence::read(store).await.unwrap();
        assert_eq!(newest.next_number(), *distinct.last().unwrap());
    }
}

#[tokio::test]
async fn superseded_members_go_in_ascending_order_and_two_stay() {
    let (store, faults) = faulty();
    let ids = UploadIdSource::counted(1);
    let mut sequence = Sequence::read(store.clone()).await.unwrap();
    for _ in 0..5 {
        append(&mut sequence, 1, &ids).await.unwrap();
    }
    faults.plan(FaultPlan {
        operation: FaultOperation::Delete,
        class: FaultClass::Publish,
        mode: FaultMode::Before,
        nth: 2,
        times: 1,
    });
    let deleter = Deleter::new(store.clone());
    deleter.add_members(sequence.take_superseded());
    deleter.prune().await;
    assert_eq!(numbers(&store).await.unwrap(), BTreeSet::from([2, 3, 4, 5]), "3 waits for 2 (S1)");
    deleter.prune().await;
    assert_eq!(numbers(&store).await.unwrap(), BTreeSet::from([4, 5]));
}

#[tokio::test]
async fn a_number_that_was_deleted_cannot_be_taken_again_even_over_another_stray() {
    let store = Store::memory();
    let (ids, others) = (UploadIdSource::counted(1), UploadIdSource::counted(2));
    let mut first = Sequence::read(store.clone()).await.unwrap();
    append(&mut first, 1, &ids).await.unwrap();
    let mut second = Sequence::read(store.clone()).await.unwrap();
    append(&mut second, 2, &ids).await.unwrap();
    let mut third = Sequence::read(store.clone()).await.unwrap();
    for _ in 0..4 {
        append(&mut third, 3, &ids).await.unwrap();
    }
    prune(&mut third).await;
    // A stray of a coordinator that has not looked back yet: member 2 once more, with another token.
    let stray = SequenceMember { number: 2, ..member(&first, 1, &others) };
    let bytes = stray.encode(Compression::default()).unwrap();
    assert_eq!(store.create(&stray.object(), bytes.into()).await.unwrap(), CreateOutcome::Created);
    // Its successor, which knew the true member 2, must not take the stray for it.
    let error = append(&mut second, 2, &ids).await.unwrap_err();
    assert!(matches!(error, AppendError::Fenced { answered: true, .. }), "{error:?}");
    assert_eq!(Sequence::read(store).await.unwrap().head().unwrap().number, 6);
}

#[tokio::test]
async fn a_reply_that_is_lost_again_and_again_does_not_make_a_writer_lose_against_itself() {
    let (store, faults) = faulty();
    let ids = UploadIdSource::counted(1);
    let mut sequence = Sequence::read(store.clone()).await.unwrap();
    for _ in 0..3 {
        plan(&faults, FaultOperation::Put, FaultMode::Before, 2);
        plan(&faults, FaultOperation::Put, FaultMode::After, 3);
        append(&mut sequence, 1, &ids).await.unwrap();
        faults.clear();
    }
    assert_eq!(sequence.next_number(), 4);
}

#[tokio::test]
async fn a_look_back_that_fails_leaves_the_member_in_doubt_and_it_is_settled_later() {
    let (store, faults) = faulty();
    let ids = UploadIdSource::counted(1);
    let mut sequence = Sequence::read(store.clone()).await.unwrap();
    append(&mut sequence, 1, &ids).await.unwrap();
    plan(&faults, FaultOperation::Get, FaultMode::Before, 100);
    let error = append(&mut sequence, 1, &ids).await.unwrap_err();
    assert!(matches!(error, AppendError::Unreadable(_)), "{error:?}");
    assert!(sequence.settle().await.is_err(), "still unreadable");
    faults.clear();
    assert!(matches!(sequence.settle().await.unwrap(), Settlement::Applied(_)));
    assert!(matches!(sequence.settle().await.unwrap(), Settlement::Nothing));
    assert_eq!(sequence.next_number(), 3);
}

#[tokio::test]
async fn a_first_member_is_not_the_first_if_a_higher_one_exists() {
    let store = Store::memory();
    let ids = UploadIdSource::counted(1);
    let mut empty = Sequence::read(store.clone()).await.unwrap();
    let mut other = Sequence::read(store.clone()).await.unwrap();
    for _ in 0..4 {
        append(&mut other, 1, &ids).await.unwrap();
    }
    prune(&mut other).await;
    let error = append(&mut empty, 1, &UploadIdSource::counted(2)).await.unwrap_err();
    assert!(matches!(error, AppendError::Fenced { .. }), "{error:?}");
    assert_eq!(numbers(&store).await.unwrap(), BTreeSet::from([3, 4]));
}

#[tokio::test]
async fn while_the_delete_of_a_member_stands_still_no_other_run_deletes_a_higher_one() {
    let (store, faults) = faulty();
    let ids = UploadIdSource::counted(1);
    let mut sequence = Sequence::read(store.clone()).await.unwrap();
    for _ in 0..5 {
        append(&mut sequence, 1, &ids).await.unwrap();
    }
    let deleter = Deleter::new(store.clone());
    deleter.add_members(sequence.take_superseded());
    plan(&faults, FaultOperation::Delete, FaultMode::Pause, 1);
    let first = deleter.clone();
    let first = tokio::spawn(async move { first.prune().await });
    faults.stalled_beyond(0).await;
    assert!(!deleter.has_work());
    deleter.prune().await;
    assert_eq!(numbers(&store).await.unwrap().len(), 5, "2 and 3 wait for 1 (S1)");
    // A run that is given up leaves its work to the next.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    deleter.prune().await;
    assert_eq!(numbers(&store).await.unwrap(), BTreeSet::from([4, 5]));
}

#[tokio::test]
async fn a_number_that_is_said_to_exist_and_is_not_there_is_tried_again() {
    for times in [1, 4] {
        let (store, faults) = faulty();
        let ids = UploadIdSource::counted(1);
        let mut sequence = Sequence::read(store.clone()).await.unwrap();
        append(&mut sequence, 1, &ids).await.unwrap();
        plan(&faults, FaultOperation::Put, FaultMode::Conflict, times);
        append(&mut sequence, 1, &ids).await.unwrap();
        assert!(!sequence.is_fenced());
        assert_eq!(sequence.head().unwrap().number, 2);
    }
    let (store, faults) = faulty();
    let mut sequence = Sequence::read(store).await.unwrap();
    plan(&faults, FaultOperation::Put, FaultMode::Conflict, 100);
    let failed = append(&mut sequence, 1, &UploadIdSource::counted(1)).await.unwrap_err();
    assert!(matches!(failed, AppendError::NotApplied(_)), "nobody is there, so nobody is fenced: {failed:?}");
}
