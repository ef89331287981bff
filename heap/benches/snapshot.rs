//! The synchronous phase, the delta, updates beside a writer, and memory.
//!
//! Questions: is a freeze flat in the number of entries? Is a delta's cost that of the changes? What do updates cost
//! while a snapshot is written? What does an entry take beside a plain map? Method: each figure is a median over
//! fresh caches where said so; printed as a table. Machine and results: benches/README.md.

use std::time::Instant;

use lowtide_format::{CheckpointId, FileEntry, FileKind, KeyGroupCount, ObjectName};
use lowtide_heap::{
    BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, HeapSnapshot, ValueState, WriteOptions,
};

const STATES: usize = 4;
type State = ValueState<u64, (), u64>;

struct Subject {
    backend: HeapBackend,
    states: Vec<State>,
    entries: u64,
    id: CheckpointId,
    base: Option<CheckpointId>,
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64() * 1e6, result)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

impl Subject {
    fn new(entries: u64) -> Self {
        let key_groups = KeyGroupCount::new(128).expect("not zero");
        let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
        let mut backend = HeapBackend::new(options);
        let mut states = Vec::new();
        for state in 0..STATES {
            states.push(backend.value_state(&format!("state-{state}")).expect("a new state"));
        }
        let mut subject = Self { backend, states, entries, id: CheckpointId::FIRST, base: None };
        for (index, state) in subject.states.iter().enumerate() {
            let mut map = subject.backend.state_mut(*state).expect("our state");
            for key in (index as u64..entries).step_by(STATES) {
                map.put(key, key).expect("our key");
            }
        }
        subject
    }

    fn freeze(&mut self) -> HeapSnapshot {
        let request = FreezeRequest { id: self.id, base: self.base, kind: FreezeKind::Checkpoint };
        self.id = self.id.next().expect("few checkpoints");
        self.backend.freeze(request).expect("a remembered base")
    }

    /// Writes and completes; returns the time in microseconds.
    fn complete(&mut self, mut snapshot: HeapSnapshot) -> f64 {
        let id = snapshot.id();
        let mut files = Vec::new();
        let (time, written) = timed(|| {
            snapshot.write(&WriteOptions::default(), &mut |segment| {
                let object = ObjectName::new(&format!("{id}-{}", files.len()))?;
                let (length, checksum) = (segment.summary.length, segment.summary.checksum);
                files.push(FileEntry { object, offset: 0, length, checksum, kind: FileKind::Segment });
                Ok(())
            })
        });
        written.expect("nothing cancels it");
        snapshot.finish(files).expect("as many files as segments");
        self.backend.completed(id);
        self.base = Some(id);
        time
    }

    /// Updates every `step`-th key from `from` on.
    fn update(&mut self, from: u64, step: u64) -> u64 {
        let mut changed = 0;
        for key in (from..self.entries).step_by(step as usize) {
            let Some(state) = self.states.get(key as usize % STATES) else { continue };
            let mut map = self.backend.state_mut(*state).expect("our state");
            changed += u64::from(map.update(&key, |value| *value += 1));
        }
        changed
    }

    fn remove(&mut self, step: u64) {
        for key in (0..self.entries).step_by(step as usize) {
            let Some(state) = self.states.get(key as usize % STATES) else { continue };
            self.backend.state_mut(*state).expect("our state").delete(&key);
        }
    }
}

/// Something larger than the caches, to be written between two measurements.
fn chill(cold: &mut [u8]) {
    cold.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
}

fn freezes(entries: u64, segments: u64) {
    let mut subject = Subject::new(entries);
    let first = subject.freeze();
    subject.complete(first);
    for segment in 0..segments {
        subject.update(segment, segments + 1);
        let snapshot = subject.freeze();
        subject.complete(snapshot);
    }
    subject.remove(100);
    let mut cold = vec![0_u8; 128 << 20];
    let mut pauses = Vec::new();
    for round in 0..30 {
        subject.update(round, entries / 100 + 1);
        chill(&mut cold);
        let (pause, snapshot) = timed(|| subject.freeze());
        let id = snapshot.id();
        drop(snapshot);
        subject.backend.aborted(id);
        if round > 0 {
            pauses.push(pause);
        }
    }
    let worst = pauses.iter().copied().fold(0.0, f64::max);
    println!(
        "freeze, {entries} entries, {segments} deltas: median {:.1} us, worst {worst:.1} us",
        median(pauses)
    );
}

fn deltas(entries: u64) {
    let mut subject = Subject::new(entries);
    let first = subject.freeze();
    println!("everything of {entries}: {:.1} ms", subject.complete(first) / 1e3);
    for step in [10_000, 100, 1] {
        let before = subject.backend.figures();
        let changed = subject.update(7, step);
        let snapshot = subject.freeze();
        let time = subject.complete(snapshot);
        let after = subject.backend.figures();
        println!(
            "delta of {changed} changes of {entries}: {:.2} ms, {:.3} us a change, {} records, {} pieces",
            time / 1e3,
            time / changed as f64,
            after.records_encoded - before.records_encoded,
            after.pieces_visited - before.pieces_visited,
        );
    }
}

/// Medians of batches of 1,000 updates while another thread writes a snapshot, against as many after a freeze whose
/// snapshot was dropped: the first changes of entries on both sides. And against later changes, which cost less.
fn updates_beside_a_writer(entries: u64) {
    let mut subject = Subject::new(entries);
    let mut next = 0;
    let mut batch = |subject: &mut Subject| {
        let (time, ()) = timed(|| {
            for _ in 0..1_000 {
                next = (next + 7_919_001) % entries;
                let Some(state) = subject.states.get(next as usize % STATES) else { continue };
                subject.backend.state_mut(*state).expect("our state").update(&next, |value| *value += 1);
            }
        });
        time
    };
    (0..2_000).for_each(|_| {
        batch(&mut subject);
    });
    let later = median((0..3_000).map(|_| batch(&mut subject)).collect());
    for (what, is_delta) in [("everything", false), ("a delta", true)] {
        let (mut ratios, mut to_later) = (Vec::new(), Vec::new());
        let (mut batches, mut set_aside) = (0, 0);
        for _ in 0..5 {
            subject.base = None;
            if is_delta {
                let all = subject.freeze();
                subject.complete(all);
                subject.update(3, 100);
            }
            let mut snapshot = subject.freeze();
            let before = subject.backend.figures().records_set_aside;
            let mut beside = Vec::new();
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let snapshot = &mut snapshot;
                scope.spawn(|| {
                    snapshot.write(&WriteOptions::default(), &mut |_| Ok(())).expect("written");
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                });
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    beside.push(batch(&mut subject));
                }
            });
            (batches, set_aside) = (beside.len(), subject.backend.figures().records_set_aside - before);
            let id = snapshot.id();
            drop(snapshot);
            subject.backend.aborted(id);
            let dropped = subject.freeze();
            let id = dropped.id();
            drop(dropped);
            subject.backend.aborted(id);
            let alone = median((0..batches).map(|_| batch(&mut subject)).collect());
            let beside = median(beside);
            ratios.push(beside / alone);
            to_later.push(beside / later);
        }
        println!(
            "updates beside a writer of {what}: {:.2} x of alone, {:.2} x of alone long after a freeze \
             ({later:.1} us a batch), {batches} batches, {set_aside} set aside",
            median(ratios),
            median(to_later),
        );
    }
}

fn memory(entries: u64) {
    let subject = Subject::new(entries);
    let plain: usize = (0..STATES as u64)
        .map(|index| {
            let map: hashbrown::HashMap<u64, u64> =
                (index..entries).step_by(STATES).map(|key| (key, key)).collect();
            map.allocation_size()
        })
        .sum();
    let ours = subject.backend.table_bytes();
    println!(
        "memory of {entries} entries: {:.1} bytes each, plain map {:.1}",
        ours as f64 / entries as f64,
        plain as f64 / entries as f64
    );
}

fn main() {
    // `cargo test` runs benches as tests: then a small round shows that they still work.
    let small = !std::env::args().any(|argument| argument == "--bench");
    let (sizes, segments, large) = if small {
        (vec![10_000], 5, 20_000)
    } else {
        (vec![10_000, 1_000_000, 10_000_000], 500, 10_000_000)
    };
    for entries in sizes {
        freezes(entries, segments);
    }
    deltas(large);
    updates_beside_a_writer(large.min(1_000_000));
    memory(large);
}
