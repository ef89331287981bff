//! Updates while a snapshot is written, and the slowest operations of an owner.
//!
//! A writer thread encodes one full snapshot after the other, uncompressed or compressed as shipped, and throws the
//! segments away. The owner updates random entries meanwhile. Each round has a phase without a writer, one with, and
//! one with a writer and an empty loop body, whose tail is what the machine does to any thread.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lowtide_heap::WriteOptions;

use super::Scale;
use super::access::Ours;
use crate::kinds::Numbers;
use crate::measure::{below, cpu_nanos, median, now, timed};
use crate::record::Record;

const BATCH: u64 = 1_000;
/// A phase that does not end with the writer lasts so long.
const PHASE: Duration = Duration::from_millis(1_000);

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("a valid range")
}

/// Counts draws, so that each update goes to another entry.
struct Owner {
    ours: Ours<Numbers>,
    entries: u64,
    next: u64,
}

impl Owner {
    fn step(&mut self) {
        let mut map = self.ours.backend.state_mut(self.ours.state).expect("our state");
        map.update(&below(self.next, self.entries), |value| *value = value.wrapping_add(1));
        self.next += 1;
    }

    /// The median batch until `is_done`: nanoseconds by the wall and by the thread's CPU clock.
    fn batches(&mut self, mut is_done: impl FnMut() -> bool) -> (f64, f64) {
        let (mut wall, mut cpu) = (Vec::new(), Vec::new());
        while wall.is_empty() || !is_done() {
            let begun = cpu_nanos();
            wall.push(timed(|| (0..BATCH).for_each(|_| self.step())).0);
            cpu.push((cpu_nanos() - begun) as f64);
        }
        (median(wall), median(cpu))
    }

    /// A histogram of single operations until `is_done`.
    fn singles(&mut self, with_update: bool, mut is_done: impl FnMut() -> bool) -> Histogram<u64> {
        let mut singles = histogram();
        while !is_done() {
            for _ in 0..BATCH {
                let begun = now();
                if with_update {
                    self.step();
                } else {
                    self.next = black_box(self.next + 1);
                }
                singles.saturating_record(nanos(begun.elapsed()));
            }
        }
        singles
    }

    /// Runs `work` while another thread writes a full snapshot; the flag it gets tells that the writer is done.
    fn beside<R>(&mut self, work: impl FnOnce(&mut Self, &AtomicBool) -> R) -> R {
        let mut snapshot = self.ours.freeze();
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let snapshot = &mut snapshot;
            scope.spawn(|| {
                snapshot.write(&WriteOptions::default(), &mut |_| Ok(())).expect("nothing cancels it");
                done.store(true, Ordering::Relaxed);
            });
            work(self, &done)
        });
        let id = snapshot.id();
        drop(snapshot);
        self.ours.backend.aborted(id);
        result
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn after(begun: Instant, phase: Duration) -> impl FnMut() -> bool {
    move || begun.elapsed() >= phase
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Measures the ratio of batches, and the tail of single updates.
pub fn run(scale: Scale) {
    let mut owner = Owner { ours: Ours::filled(scale.entries), entries: scale.entries, next: 0 };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut updates, mut empty) = (histogram(), histogram());
    for _ in 0..scale.rounds {
        alone.push(owner.batches(after(now(), PHASE)));
        beside.push(owner.beside(|owner, done| owner.batches(|| done.load(Ordering::Relaxed))));
        updates += owner.beside(|owner, done| owner.singles(true, || done.load(Ordering::Relaxed)));
        empty += owner.beside(|owner, done| owner.singles(false, || done.load(Ordering::Relaxed)));
    }
    let millions = scale.entries as f64 / 1e6;
    let walls = |rounds: &[(f64, f64)]| median(rounds.iter().map(|round| round.0).collect()) / BATCH as f64;
    let cpus = |rounds: &[(f64, f64)]| median(rounds.iter().map(|round| round.1).collect()) / BATCH as f64;
    let case = format!("updates while a snapshot is written ÷ without, {millions} M");
    Record::new("beside", &case, (walls(&beside) / walls(&alone), "ratio"))
        .at_most(1.15)
        .detail(format!("{:.1} ns against {:.1} ns an update", walls(&beside), walls(&alone)))
        .print();
    // Without waits, for a writer or for a core: what is left is work.
    Record::new("beside", &format!("{case}, CPU time"), (cpus(&beside) / cpus(&alone), "ratio"))
        .detail(format!("{:.1} ns against {:.1} ns an update", cpus(&beside), cpus(&alone)))
        .print();
    let tail = |singles: &Histogram<u64>| micros(singles.value_at_quantile(0.9999));
    let (tail_updates, tail_empty) = (tail(&updates), tail(&empty));
    Record::new(
        "beside",
        &format!("p99.99 of an update above an empty loop, {millions} M"),
        (tail_updates - tail_empty, "us"),
    )
    .at_most(100.0)
    .detail(format!("{tail_updates:.1} us against {tail_empty:.1} us"))
    .print();
    print_histogram("update", &updates);
    print_histogram("empty loop", &empty);
}

fn print_histogram(what: &str, singles: &Histogram<u64>) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)]
    {
        let case = format!("{what} while snapshots run back to back, {name}");
        Record::new("histogram", &case, (micros(singles.value_at_quantile(quantile)), "us"))
            .detail(format!("{} operations", singles.len()))
            .print();
    }
}

/// The slowest of many operations, by the CPU clock of the thread and by the wall.
#[derive(Default)]
struct Slowest {
    cpu: u64,
    wall: u64,
    operations: u64,
}

impl Slowest {
    fn note<R>(&mut self, work: impl FnOnce() -> R) {
        let (wall, cpu) = (now(), cpu_nanos());
        black_box(work());
        self.cpu = self.cpu.max(cpu_nanos() - cpu);
        self.wall = self.wall.max(nanos(wall.elapsed()));
        self.operations += 1;
    }

    fn print(&self, what: &str) {
        slowest_row(what, (self.cpu, self.wall), &format!("of {}", self.operations)).print();
    }
}

/// A put of a new key while the map grows to so many entries.
#[must_use]
pub fn growth(entries: u64) -> String {
    format!("put of a new key, growth from 0 to {} M", entries as f64 / 1e6)
}

/// A put into a map that was cleared.
pub const AFTER_CLEAR: &str = "put after the clear";

/// The row of the slowest operation of a sort, in nanoseconds by the CPU clock and by the wall.
#[must_use]
pub fn slowest_row(what: &str, (cpu, wall): (u64, u64), of: &str) -> Record {
    Record::new("slowest", what, (micros(cpu), "us"))
        .at_most(1_000.0)
        .detail(format!("by the thread's CPU clock, {of}; by the wall {:.0} us", micros(wall)))
}

/// Measures the slowest single operation of each sort while the map grows, shrinks and is emptied.
pub fn run_slowest(scale: Scale) {
    let entries = scale.entries;
    let mut ours = Ours::<Numbers>::default();
    let mut empty = Slowest::default();
    (0..entries).for_each(|number| empty.note(|| number));
    Record::new("slowest", "empty loop body", (micros(empty.cpu), "us"))
        .detail(format!("by the thread's CPU clock, of {entries}; by the wall {:.0} us", micros(empty.wall)))
        .print();
    let mut put = Slowest::default();
    for number in 0..entries {
        let mut map = ours.backend.state_mut(ours.state).expect("our state");
        put.note(|| map.put(number, number));
    }
    put.print(&growth(entries));
    let mut freeze = Slowest::default();
    let mut update = Slowest::default();
    for round in 0..20 {
        let mut snapshot = None;
        freeze.note(|| snapshot = Some(ours.freeze()));
        for visit in 0..100_000 {
            let key = below(round * 100_000 + visit, entries);
            let mut map = ours.backend.state_mut(ours.state).expect("our state");
            update.note(|| map.update(&key, |value| *value = value.wrapping_add(1)));
        }
        if let Some(snapshot) = snapshot {
            ours.complete(snapshot, &WriteOptions::default());
        }
    }
    freeze.print("freeze");
    update.print("update with an open snapshot");
    let mut remove = Slowest::default();
    for visit in 0..entries / 10 {
        let mut map = ours.backend.state_mut(ours.state).expect("our state");
        remove.note(|| map.delete(&below(visit, entries)));
    }
    remove.print("removal");
    let mut clear = Slowest::default();
    let mut map = ours.backend.state_mut(ours.state).expect("our state");
    clear.note(|| map.clear());
    clear.print(&format!("clear of {} M", entries as f64 / 1e6));
    let mut put = Slowest::default();
    (0..entries / 10).for_each(|number| put.note(|| map.put(number, number)));
    put.print(AFTER_CLEAR);
}
