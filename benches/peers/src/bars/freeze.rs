//! The synchronous phase, at ten million entries and at ten thousand.
//!
//! 128 key groups, 4 states, a chain of 500 live segments, 1 % of the entries removed, a hundredth changed since the
//! last freeze, caches written over before each freeze. A figure is the median of 31 freezes.

use lowtide_format::{CheckpointId, FileEntry, FileKind, KeyGroupCount, ObjectName};
use lowtide_heap::{
    BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, HeapSnapshot, ValueState, WriteOptions,
};

use super::Scale;
use crate::measure::{below, chill, median, timed};
use crate::record::Record;

const STATES: u64 = 4;
const SEGMENTS: u64 = 500;
const FREEZES: u64 = 31;

type State = ValueState<u64, (), u64>;

struct Subject {
    backend: HeapBackend,
    states: Vec<State>,
    entries: u64,
    id: CheckpointId,
    base: Option<CheckpointId>,
}

impl Subject {
    fn new(entries: u64) -> Self {
        let key_groups = KeyGroupCount::new(128).expect("not zero");
        let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
        let mut backend = HeapBackend::new(options);
        let states = (0..STATES)
            .map(|state| backend.value_state(&format!("state-{state}")).expect("a new state"))
            .collect();
        let mut subject = Self { backend, states, entries, id: CheckpointId::FIRST, base: None };
        for (index, state) in subject.states.iter().enumerate() {
            let mut map = subject.backend.state_mut(*state).expect("our state");
            for key in (index as u64..entries).step_by(STATES as usize) {
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

    fn checkpoint(&mut self) {
        let mut snapshot = self.freeze();
        let id = snapshot.id();
        let mut files = Vec::new();
        snapshot
            .write(&WriteOptions::default(), &mut |segment| {
                let object = ObjectName::new(&format!("{id}-{}", files.len()))?;
                let (length, checksum) = (segment.summary.length, segment.summary.checksum);
                files.push(FileEntry { object, offset: 0, length, checksum, kind: FileKind::Segment });
                Ok(())
            })
            .expect("nothing cancels it");
        snapshot.finish(files).expect("as many files as segments");
        self.backend.completed(id);
        self.base = Some(id);
    }

    fn state_of(&self, key: u64) -> State {
        *self.states.get((key % STATES) as usize).expect("as many states")
    }

    /// Changes one entry of each `step`, from `from` on.
    fn update(&mut self, from: u64, step: u64) {
        for key in (from..self.entries).step_by(step as usize) {
            let state = self.state_of(key);
            self.backend.state_mut(state).expect("our state").update(&key, |value| *value += 1);
        }
    }

    fn remove_a_hundredth(&mut self) {
        for draw in 0..self.entries / 100 {
            let key = below(draw, self.entries);
            let state = self.state_of(key);
            self.backend.state_mut(state).expect("our state").delete(&key);
        }
    }
}

/// Microseconds of a freeze, and of the worst.
fn pause(entries: u64) -> (f64, f64) {
    let mut subject = Subject::new(entries);
    subject.checkpoint();
    for segment in 0..SEGMENTS {
        subject.update(segment, SEGMENTS + 1);
        subject.checkpoint();
    }
    subject.remove_a_hundredth();
    let mut cold = vec![0_u8; 128 << 20];
    let mut pauses = Vec::new();
    for round in 0..=FREEZES {
        subject.update(round, 100);
        chill(&mut cold);
        let (nanos, snapshot) = timed(|| subject.freeze());
        let id = snapshot.id();
        drop(snapshot);
        subject.backend.aborted(id);
        if round > 0 {
            pauses.push(nanos / 1e3);
        }
    }
    let worst = pauses.iter().copied().fold(0.0, f64::max);
    (median(pauses), worst)
}

/// Measures both sizes.
pub fn run(scale: Scale) {
    let (small, worst_small) = pause(10_000);
    let (large, worst_large) = pause(scale.entries);
    let millions = scale.entries as f64 / 1e6;
    Record::new("freeze", &format!("pause, {millions} M entries, {SEGMENTS} segments"), (large, "us"))
        .at_most(10.0)
        .detail(format!("worst of {FREEZES}: {worst_large:.1} us"))
        .print();
    Record::new("freeze", &format!("pause, {millions} M ÷ 10 k"), (large / small, "ratio"))
        .at_most(1.5)
        .detail(format!("10 k: {small:.1} us, worst {worst_small:.1} us"))
        .print();
}
