//! `get` and `update` beside `hashbrown::HashMap` with foldhash, as it is and in huge pages.
//!
//! Each round visits a million keys in random order on each subject in turn. The keys are made beforehand, so that a
//! processor may overlap look-ups; `chained` look-ups need each the answer of the one before. Before every round of
//! updates a checkpoint is completed, so that each first change of an entry is marked as in a job that runs; then the same
//! entries are changed again.

use std::hint::black_box;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lowtide_format::{CheckpointId, FileEntry, FileKind, KeyGroupCount, ObjectName};
use lowtide_heap::{BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, ValueState, WriteOptions};

use super::Scale;
use crate::huge::HugePages;
use crate::kinds::Kind;
use crate::measure::{below, median, timed};
use crate::record::Record;

const VISITS: u64 = 1_000_000;

/// The heap backend with one state, and its checkpoints.
pub struct Ours<T: Kind> {
    /// The backend.
    pub backend: HeapBackend,
    /// Its only state.
    pub state: ValueState<T::K, (), T::V>,
    id: CheckpointId,
    base: Option<CheckpointId>,
}

impl<T: Kind> Default for Ours<T> {
    fn default() -> Self {
        let key_groups = KeyGroupCount::new(128).expect("not zero");
        let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
        let mut backend = HeapBackend::new(options);
        let state = backend.value_state("state").expect("a new state");
        Self { backend, state, id: CheckpointId::FIRST, base: None }
    }
}

impl<T: Kind> Ours<T> {
    /// With the entries of the numbers below `entries`.
    #[must_use]
    pub fn filled(entries: u64) -> Self {
        let mut ours = Self::default();
        let mut map = ours.backend.state_mut(ours.state).expect("our state");
        for number in 0..entries {
            map.put(T::key(number), T::value(number)).expect("our key");
        }
        ours
    }

    /// The next snapshot, against the newest completed checkpoint.
    pub fn freeze(&mut self) -> lowtide_heap::HeapSnapshot {
        let request = FreezeRequest { id: self.id, base: self.base, kind: FreezeKind::Checkpoint };
        self.id = self.id.next().expect("few checkpoints");
        self.backend.freeze(request).expect("a remembered base")
    }

    /// The snapshot becomes the base of the next one.
    pub fn complete(&mut self, mut snapshot: lowtide_heap::HeapSnapshot, options: &WriteOptions) {
        let id = snapshot.id();
        let mut files = Vec::new();
        snapshot
            .write(options, &mut |segment| {
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

    fn checkpoint(&mut self) {
        let snapshot = self.freeze();
        self.complete(snapshot, &WriteOptions::default());
    }

    fn get(&self, keys: &[T::K]) -> f64 {
        let map = self.backend.state(self.state).expect("our state");
        timed(|| {
            keys.iter().for_each(|key| {
                black_box(map.get(key));
            })
        })
        .0 / keys.len() as f64
    }

    fn update(&mut self, keys: &[T::K]) -> f64 {
        let mut map = self.backend.state_mut(self.state).expect("our state");
        let all = || {
            keys.iter().for_each(|key| {
                black_box(map.update(key, T::change));
            });
        };
        timed(all).0 / keys.len() as f64
    }
}

/// A plain map in memory of the allocator `A`.
struct Plain<T: Kind, A: allocator_api2::alloc::Allocator>(HashMap<T::K, T::V, RandomState, A>);

impl<T: Kind, A: allocator_api2::alloc::Allocator + Clone> Plain<T, A> {
    fn filled(entries: u64, memory: A) -> Self {
        let mut map = HashMap::with_hasher_in(RandomState::default(), memory);
        map.extend((0..entries).map(|number| (T::key(number), T::value(number))));
        Self(map)
    }

    fn get(&self, keys: &[T::K]) -> f64 {
        timed(|| {
            keys.iter().for_each(|key| {
                black_box(self.0.get(key));
            })
        })
        .0 / keys.len() as f64
    }

    fn update(&mut self, keys: &[T::K]) -> f64 {
        let all = || {
            for key in keys {
                if let Some(value) = self.0.get_mut(key) {
                    T::change(value);
                }
                black_box(&self.0);
            }
        };
        timed(all).0 / keys.len() as f64
    }
}

/// Nanoseconds an operation of the three subjects (ours or what stands for it, a plain map, one in huge pages), of each round.
#[derive(Default)]
pub struct Three {
    sides: [Vec<f64>; 3],
    least: bool,
}

impl Three {
    /// With a program that does strictly less in the place of ours.
    #[must_use]
    pub fn least() -> Self {
        Self { least: true, ..Self::default() }
    }

    /// Adds a round.
    pub fn push(&mut self, round: [f64; 3]) {
        self.sides.iter_mut().zip(round).for_each(|(side, nanos)| side.push(nanos));
    }

    /// Prints the two rows.
    pub fn print(self, case: &str, entries: u64) {
        let [ours, plain, huge] = self.sides.map(median);
        let is_large = entries >= 10_000_000;
        let size = if is_large { "10 M" } else { "1 M" };
        let row = |pages: &str, other: f64| {
            Record::new("access", &format!("{case}, {size}, {pages}"), (ours / other, "ratio"))
                .detail(format!("{ours:.1} ns against {other:.1} ns"))
                .least(self.least)
        };
        row("as shipped", plain).at_most(if is_large { 0.90 } else { 1.15 }).print();
        let row = row("huge pages", huge);
        if is_large { row.at_most(1.10).print() } else { row.print() }
    }
}

/// Measures one kind.
pub fn run<T: Kind>(scale: Scale) {
    let Scale { entries, rounds } = scale;
    let mut ours = Ours::<T>::filled(entries);
    let mut plain = Plain::<T, _>::filled(entries, allocator_api2::alloc::Global);
    let mut huge = Plain::<T, _>::filled(entries, HugePages);
    let [mut gets, mut updates, mut again] = [(); 3].map(|()| Three::default());
    for round in 0..rounds as u64 {
        let visits = round * VISITS..(round + 1) * VISITS;
        let keys: Vec<T::K> = visits.map(|visit| T::key(below(visit, entries))).collect();
        gets.push([ours.get(&keys), plain.get(&keys), huge.get(&keys)]);
        ours.checkpoint();
        for updates in [&mut updates, &mut again] {
            let (plain, huge) = (plain.update(&keys), huge.update(&keys));
            updates.push([ours.update(&keys), plain, huge]);
        }
    }
    gets.print(&format!("get {}", T::NAME), entries);
    updates.print(&format!("update {}", T::NAME), entries);
    again.print(&format!("update {}, changed already", T::NAME), entries);
}

/// Look-ups of numbers that need each the answer of the one before.
pub fn run_chained(scale: Scale) {
    use crate::kinds::Numbers;
    let Scale { entries, rounds } = scale;
    let ours = Ours::<Numbers>::filled(entries);
    let plain = Plain::<Numbers, _>::filled(entries, allocator_api2::alloc::Global);
    let huge = Plain::<Numbers, _>::filled(entries, HugePages);
    let mut chained = Three::default();
    for round in 0..rounds as u64 {
        let visits = round * VISITS..(round + 1) * VISITS;
        let chase = |get: &dyn Fn(u64) -> u64| {
            timed(|| black_box(visits.clone().fold(0, |last, visit| get(below(visit ^ last, entries))))).0
                / VISITS as f64
        };
        let map = ours.backend.state(ours.state).expect("our state");
        chained.push([
            chase(&|key| map.get(&key).copied().unwrap_or_default()),
            chase(&|key| plain.0.get(&key).copied().unwrap_or_default()),
            chase(&|key| huge.0.get(&key).copied().unwrap_or_default()),
        ]);
    }
    chained.print("get u64→u64, each from the one before", entries);
}
