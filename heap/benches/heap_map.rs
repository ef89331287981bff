//! Access to value state beside a plain hash map: `get` and `update` at a million entries.
//!
//! Question: what does versioning cost per access? Method: batches of 1,000 accesses in random order, divan's median;
//! the baseline is `hashbrown::HashMap` with its default hasher. Machine and results: benches/README.md.

use std::fmt::Debug;
use std::hash::Hash;

use divan::Bencher;
use divan::counter::ItemsCount;
use lowtide_format::{CheckpointId, Key, KeyGroupCount, Value};
use lowtide_heap::{BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, ValueState};
use serde::{Deserialize, Serialize};

const ENTRIES: u64 = 1_000_000;
const BATCH: usize = 1_000;

fn main() {
    divan::main();
}

/// Keys and values of a kind, made from a number.
trait Kind {
    type K: Key + Hash + Debug;
    type V: Value + Debug;
    fn key(number: u64) -> Self::K;
    fn value(number: u64) -> Self::V;
    fn change(value: &mut Self::V);
}

struct Numbers;
struct Hundred;
struct Texts;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payload {
    head: u64,
    tail: [[u8; 23]; 4],
}

impl Kind for Numbers {
    type K = u64;
    type V = u64;

    fn key(number: u64) -> u64 {
        number
    }

    fn value(number: u64) -> u64 {
        number
    }

    fn change(value: &mut u64) {
        *value += 1;
    }
}

impl Kind for Hundred {
    type K = u64;
    type V = Payload;

    fn key(number: u64) -> u64 {
        number
    }

    fn value(number: u64) -> Payload {
        Payload { head: number, tail: [[1; 23]; 4] }
    }

    fn change(value: &mut Payload) {
        value.head += 1;
    }
}

impl Kind for Texts {
    type K = String;
    type V = u64;

    fn key(number: u64) -> String {
        format!("customer-{number:08}")
    }

    fn value(number: u64) -> u64 {
        number
    }

    fn change(value: &mut u64) {
        *value += 1;
    }
}

/// Spreads numbers as a stream of events would.
fn scattered(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ENTRIES
}

fn keys<T: Kind>() -> Vec<T::K> {
    (0..64 * BATCH as u64).map(|number| T::key(scattered(number))).collect()
}

type State<T> = ValueState<<T as Kind>::K, (), <T as Kind>::V>;

fn heap<T: Kind>() -> (HeapBackend, State<T>) {
    let key_groups = KeyGroupCount::new(128).expect("not zero");
    let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
    let mut backend = HeapBackend::new(options);
    let state: State<T> = backend.value_state("state").expect("a new state");
    let mut map = backend.state_mut(state).expect("our state");
    for number in 0..ENTRIES {
        map.put(T::key(number), T::value(number)).expect("our key");
    }
    (backend, state)
}

fn plain<T: Kind>() -> hashbrown::HashMap<T::K, T::V> {
    (0..ENTRIES).map(|number| (T::key(number), T::value(number))).collect()
}

/// Calls `access` with batch after batch of keys.
fn bench<K>(bencher: Bencher<'_, '_>, keys: &[K], mut access: impl FnMut(&[K])) {
    let mut batches = keys.chunks_exact(BATCH).cycle();
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| access(batches.next().unwrap_or_default()));
}

#[divan::bench(types = [Numbers, Hundred, Texts], sample_count = 300)]
fn get_heap<T: Kind>(bencher: Bencher<'_, '_>) {
    let (backend, state) = heap::<T>();
    bench(bencher, &keys::<T>(), |keys| {
        let map = backend.state(state).expect("our state");
        keys.iter().for_each(|key| {
            divan::black_box(map.get(key));
        });
    });
}

#[divan::bench(types = [Numbers, Hundred, Texts], sample_count = 300)]
fn get_plain<T: Kind>(bencher: Bencher<'_, '_>) {
    let map = plain::<T>();
    bench(bencher, &keys::<T>(), |keys| {
        keys.iter().for_each(|key| {
            divan::black_box(map.get(key));
        });
    });
}

/// Each look-up needs the answer of the one before, so that latency is measured and not how many can overlap.
#[divan::bench(sample_count = 300)]
fn get_chained_heap(bencher: Bencher<'_, '_>) {
    let (backend, state) = heap::<Numbers>();
    bench(bencher, &keys::<Numbers>(), |keys| {
        let map = backend.state(state).expect("our state");
        let last =
            keys.iter().fold(0, |last, key| map.get(&(scattered(key ^ last))).copied().unwrap_or_default());
        divan::black_box(last);
    });
}

/// The same on a plain map.
#[divan::bench(sample_count = 300)]
fn get_chained_plain(bencher: Bencher<'_, '_>) {
    let map = plain::<Numbers>();
    bench(bencher, &keys::<Numbers>(), |keys| {
        let last =
            keys.iter().fold(0, |last, key| map.get(&(scattered(key ^ last))).copied().unwrap_or_default());
        divan::black_box(last);
    });
}

#[divan::bench(types = [Numbers, Hundred, Texts], sample_count = 300)]
fn update_heap<T: Kind>(bencher: Bencher<'_, '_>) {
    let (mut backend, state) = heap::<T>();
    bench(bencher, &keys::<T>(), |keys| {
        let mut map = backend.state_mut(state).expect("our state");
        keys.iter().for_each(|key| {
            divan::black_box(map.update(key, T::change));
        });
    });
}

/// The first change of each entry after a freeze, with the snapshot gone.
#[divan::bench(types = [Numbers, Texts], sample_count = 300)]
fn update_heap_after_freezes<T: Kind>(bencher: Bencher<'_, '_>) {
    let (mut backend, state) = heap::<T>();
    let mut id = CheckpointId::FIRST;
    bench(bencher, &keys::<T>(), |keys| {
        let mut map = backend.state_mut(state).expect("our state");
        keys.iter().for_each(|key| {
            divan::black_box(map.update(key, T::change));
        });
        // One freeze per batch: each update is the first of its entry, many the first of their piece.
        let request = FreezeRequest { id, base: None, kind: FreezeKind::Checkpoint };
        drop(backend.freeze(request).expect("ids ascend"));
        backend.aborted(id);
        id = id.next().expect("few checkpoints");
    });
}

#[divan::bench(types = [Numbers, Hundred, Texts], sample_count = 300)]
fn update_plain<T: Kind>(bencher: Bencher<'_, '_>) {
    let mut map = plain::<T>();
    bench(bencher, &keys::<T>(), |keys| {
        keys.iter().for_each(|key| {
            if let Some(value) = map.get_mut(key) {
                T::change(value);
            }
            divan::black_box(&map);
        });
    });
}
