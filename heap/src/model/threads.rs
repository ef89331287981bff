//! Owner and writers at once. Small, seeded and free of I/O, so that miri and sanitizers can run it.

use std::sync::Arc;
use std::thread;

use lowtide_format::{CheckpointId, Compression, FinishedSegment, SegmentOptions};

use super::harness::{All, Contents, Harness, options, write};
use crate::{BaseMode, FreezeKind, HeapSnapshot, WriteOptions};

const SEEDS: u64 = 20;
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 8 };
const CHANGES_A_ROUND: u64 = 90;
const KEYS: u64 = if cfg!(miri) { 90 } else { 160 };

/// A small generator of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)) % below
    }
}

fn change(harness: &mut Harness, numbers: &mut Numbers, keys: u64) {
    let (key, value) = (numbers.next(keys), numbers.next(1_000));
    match numbers.next(12) {
        0..=4 => harness.put(key, value),
        5..=7 => harness.update(key, 1),
        8 => harness.remove(key),
        9 => harness.put_text(key, (value % 3) as u32, value),
        10 => harness.bump_text(key, (value % 3) as u32),
        _ => harness.remove_text(key, (value % 3) as u32),
    }
    if numbers.next(400) == 0 {
        harness.clear();
    }
}

/// As a job writes; uncompressed under miri, which runs no C.
fn write_options() -> WriteOptions {
    let compression = if cfg!(miri) { Compression::None } else { Compression::default() };
    let segment = SegmentOptions { compression, ..SegmentOptions::default() };
    WriteOptions { segment, ..WriteOptions::default() }
}

/// Writes a snapshot on another thread while `meanwhile` runs here.
fn write_beside(
    snapshots: Vec<HeapSnapshot>,
    meanwhile: impl FnOnce(),
) -> Vec<(HeapSnapshot, Vec<FinishedSegment>)> {
    thread::scope(|scope| {
        let writers: Vec<_> = snapshots
            .into_iter()
            .map(|mut snapshot| {
                scope.spawn(move || {
                    let segments = write(&mut snapshot, &write_options());
                    (snapshot, segments)
                })
            })
            .collect();
        meanwhile();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

fn run(seed: u64) {
    let mut numbers = Numbers(seed);
    let mut harness = Harness::new(options(2, BaseMode::Confirmed));
    if seed.is_multiple_of(2) {
        harness.backend.set_rewriting(Some(Arc::new(All)));
    }
    let mut base = None;
    for round in 0..ROUNDS {
        // Few keys at first, so that pieces split while they are written.
        let keys = KEYS * (round + 1) / ROUNDS;
        let id = harness.freeze(base, FreezeKind::Checkpoint).unwrap();
        if round % 3 == 2 {
            harness.freeze(None, FreezeKind::Savepoint).unwrap();
        }
        let pending: Vec<_> = harness.pending.drain(..).collect();
        let (snapshots, expected): (Vec<HeapSnapshot>, Vec<Contents>) =
            pending.into_iter().map(|pending| (pending.snapshot, pending.expected)).unzip();
        let written = write_beside(snapshots, || {
            (0..CHANGES_A_ROUND).for_each(|_| change(&mut harness, &mut numbers, keys));
        });
        for ((snapshot, segments), expected) in written.into_iter().zip(expected) {
            harness.store(snapshot, segments, expected);
        }
        // Miri looks at accesses, not at results, and takes a thousand times as long.
        if !cfg!(miri) || round + 1 == ROUNDS {
            harness.check();
        }
        if numbers.next(4) == 0 {
            harness.backend.aborted(id);
        } else {
            harness.backend.completed(id);
            base = Some(id.get());
        }
    }
    if let Some(base) = base {
        harness.check_restores(CheckpointId::new(base).unwrap());
    }
    assert_eq!(harness.backend.figures().live_snapshots, 0);
    assert_eq!(harness.backend.figures().records_held, 0);
}

#[test]
fn what_a_writer_writes_beside_the_owner_is_what_was_there_at_the_freeze() {
    const { assert!(ROUNDS * CHANGES_A_ROUND >= 500) };
    (0..SEEDS).for_each(run);
}
