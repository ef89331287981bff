//! A restore from the memory store beside building as many pre-sized maps from vectors, on all cores.
//!
//! u64 → u64, uncompressed; chains of one element, and of fifty of which each holds live entries of every key group.
//! The other side has one vector of pairs and one pre-sized map per key group, and fills them in parallel.

use std::time::Duration;

use hashbrown::HashMap;
use lowtide::{
    CheckpointKind, Compression, HeapBackend, HeapSettings, Job, JobOptions, SegmentOptions, Store,
    ValueState,
};
use rayon::prelude::*;
use tokio::runtime::Runtime;

use super::Scale;
use crate::measure::{below, median, timed};
use crate::record::Record;

const KEY_GROUPS: u64 = 128;

fn settings() -> HeapSettings {
    let segment = SegmentOptions { compression: Compression::None, ..SegmentOptions::default() };
    let settings = HeapSettings { segment, rewriting: None, ..HeapSettings::default() };
    settings.declare::<u64, u64, ()>("numbers")
}

fn options() -> JobOptions<HeapBackend> {
    JobOptions { backend: settings(), ..JobOptions::default() }
}

/// A store with a checkpoint whose chain has `elements`.
fn prepared(runtime: &Runtime, entries: u64, elements: u64) -> Store {
    let store = Store::memory();
    let mut job: Job =
        runtime.block_on(Job::builder("bench").options(options()).create(&store)).expect("an empty store");
    let numbers: ValueState<u64, u64> = job.value_state("numbers").expect("a new state");
    let put = |job: &mut Job, key: u64| {
        job.state_mut(&numbers).put(key, key).expect("memory holds it");
    };
    (0..entries).for_each(|key| put(&mut job, key));
    for element in 0..elements {
        if element > 0 {
            let draws = element * entries..element * entries + entries / 100;
            draws.for_each(|draw| put(&mut job, below(draw, entries)));
        }
        runtime.block_on(job.checkpoint(CheckpointKind::Checkpoint)).expect("memory does not fail");
    }
    store
}

/// Vectors into pre-sized maps, on all cores.
fn build(vectors: &[Vec<(u64, u64)>]) -> Vec<HashMap<u64, u64>> {
    let fill = |pairs: &Vec<(u64, u64)>| {
        let mut map = HashMap::with_capacity(pairs.len());
        map.extend(pairs.iter().copied());
        map
    };
    vectors.par_iter().map(fill).collect()
}

/// Measures chains of 1 and 50.
pub fn run(scale: Scale) {
    let Scale { entries, rounds } = scale;
    let runtime = Runtime::new().expect("threads");
    for elements in [1, 50] {
        let store = prepared(&runtime, entries, elements);
        let mut vectors = vec![Vec::new(); KEY_GROUPS as usize];
        for key in 0..entries {
            if let Some(vector) = vectors.get_mut(below(key, KEY_GROUPS) as usize) {
                vector.push((key, key));
            }
        }
        let (mut restoring, mut building) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let recover = || runtime.block_on(Job::builder("bench").options(options()).recover(&store));
            let (nanos, job): (f64, lowtide::Result<Job>) = timed(recover);
            restoring.push(nanos);
            let job = job.expect("there is a checkpoint");
            assert_eq!(job.entries(), entries, "everything came back");
            drop(job);
            let (nanos, maps) = timed(|| build(&vectors));
            building.push(nanos);
            drop(maps);
        }
        row(elements, entries, restoring, building).print();
    }
}

/// The row of a chain of so many elements, from the nanoseconds of each round.
#[must_use]
pub fn row(elements: u64, entries: u64, restoring: Vec<f64>, building: Vec<f64>) -> Record {
    let (restoring, building) = (median(restoring), median(building));
    let ms = |nanos: f64| Duration::from_nanos(nanos as u64).as_millis();
    let case = format!("chain of {elements}, {} M", entries as f64 / 1e6);
    Record::new("restore", &case, (restoring / building, "ratio")).at_most(1.25).detail(format!(
        "{} ms against {} ms",
        ms(restoring),
        ms(building)
    ))
}
