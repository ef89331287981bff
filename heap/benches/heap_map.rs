//! Access to value state beside a plain hash map: `get` and `update`, one by one, in random order.
//!
//! Question: what does versioning cost per access? Method: both maps are filled with the same entries and asked for
//! the same keys, batch after batch by turns, so that whatever else the machine does hits both alike; a figure is
//! the median of the batches, a ratio that of two medians of one run. The baseline is `hashbrown::HashMap` with its
//! default hasher. `chained` asks for each key only when the answer before it is there, so it measures latency;
//! elsewhere a processor overlaps as many accesses as it can.
//!
//! `cargo bench -p lowtide-heap --bench heap_map -- [ENTRIES [KIND]]`; results: benches/README.md.

use std::fmt::Debug;
use std::hash::Hash;
use std::hint::black_box;
use std::time::Instant;

use lowtide_format::{CheckpointId, Key, KeyGroupCount, Value};
use lowtide_heap::{BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions, ValueState};
use serde::{Deserialize, Serialize};

/// Accesses per batch: long enough to leave out the clock, short enough that a disturbance hits few of them.
const BATCH: usize = 20_000;
/// Batches per figure.
const ROUNDS: usize = 101;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let entries = arguments.next().and_then(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let only = arguments.next().unwrap_or_default();
    println!("{entries} entries, nanoseconds an access");
    println!("{:44} {:>8} {:>8} {:>7}", "access", "heap", "plain", "ratio");
    of_kind::<Numbers>("u64 -> u64", entries, &only);
    of_kind::<Hundred>("u64 -> 100 bytes", entries, &only);
    of_kind::<Texts>("String -> u64", entries, &only);
    of_kind::<Pairs>("(u32, String) -> u64", entries, &only);
}

/// Keys and values of a kind, made from a number.
trait Kind {
    type K: Key + Hash + Debug;
    type V: Value + Debug;
    fn key(number: u64) -> Self::K;
    fn value(number: u64) -> Self::V;
    /// A part of the value, as a number.
    fn head(value: &mut Self::V) -> &mut u64;
    fn look(value: &Self::V) -> u64;
}

struct Numbers;
struct Hundred;
struct Texts;
struct Pairs;

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

    fn head(value: &mut u64) -> &mut u64 {
        value
    }

    fn look(value: &u64) -> u64 {
        *value
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

    fn head(value: &mut Payload) -> &mut u64 {
        &mut value.head
    }

    fn look(value: &Payload) -> u64 {
        value.head
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

    fn head(value: &mut u64) -> &mut u64 {
        value
    }

    fn look(value: &u64) -> u64 {
        *value
    }
}

impl Kind for Pairs {
    type K = (u32, String);
    type V = u64;

    fn key(number: u64) -> (u32, String) {
        (number as u32 % 100, format!("customer-{number:08}"))
    }

    fn value(number: u64) -> u64 {
        number
    }

    fn head(value: &mut u64) -> &mut u64 {
        value
    }

    fn look(value: &u64) -> u64 {
        *value
    }
}

/// Random numbers below a bound: a linear congruential generator's upper bits.
fn numbers(below: u64, count: usize) -> impl Iterator<Item = u64> {
    let step = |seed: &u64| {
        Some(seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(Some(7), step)
        .skip(1)
        .take(count)
        .map(move |seed| ((u128::from(seed) * u128::from(below)) >> 64) as u64)
}

type State<T> = ValueState<<T as Kind>::K, (), <T as Kind>::V>;

/// The same entries in both maps.
struct Maps<T: Kind> {
    heap: HeapBackend,
    state: State<T>,
    plain: hashbrown::HashMap<T::K, T::V>,
}

impl<T: Kind> Maps<T> {
    fn filled(entries: u64) -> Self {
        let key_groups = KeyGroupCount::new(128).expect("not zero");
        let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
        let mut heap = HeapBackend::new(options);
        let state: State<T> = heap.value_state("state").expect("a new state");
        let mut map = heap.state_mut(state).expect("our state");
        let mut plain = hashbrown::HashMap::new();
        for number in 0..entries {
            map.put(T::key(number), T::value(number)).expect("our key");
            plain.insert(T::key(number), T::value(number));
        }
        Self { heap, state, plain }
    }
}

/// Nanoseconds per access of one batch.
#[expect(clippy::disallowed_methods, reason = "a bench takes the time")]
fn timed(accesses: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / accesses as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Times two ways to go through the same batches, by turns, and prints their medians.
fn compare<T: Kind>(
    name: &str,
    maps: &mut Maps<T>,
    keys: &[T::K],
    mut of_heap: impl FnMut(&mut Maps<T>, &[T::K]),
    mut of_plain: impl FnMut(&mut Maps<T>, &[T::K]),
) {
    let (mut heap, mut plain) = (Vec::new(), Vec::new());
    for (round, batch) in keys.chunks_exact(BATCH).cycle().take(ROUNDS).enumerate() {
        let mut first = |maps: &mut Maps<T>| heap.push(timed(batch.len(), || of_heap(maps, batch)));
        if round % 2 == 0 {
            first(maps);
        }
        plain.push(timed(batch.len(), || of_plain(maps, batch)));
        if round % 2 == 1 {
            first(maps);
        }
    }
    let (heap, plain) = (median(heap), median(plain));
    println!("{name:44} {heap:8.1} {plain:8.1} {:7.2}", heap / plain);
}

fn of_kind<T: Kind>(name: &str, entries: u64, only: &str) {
    if !name.contains(only) {
        return;
    }
    let mut maps = Maps::<T>::filled(entries);
    // Each batch once: a key that was asked for lately would be in the cache.
    let keys: Vec<T::K> = numbers(entries, ROUNDS * BATCH).map(T::key).collect();
    compare(
        &format!("get {name}"),
        &mut maps,
        &keys,
        |maps, keys| {
            let map = maps.heap.state(maps.state).expect("our state");
            black_box(keys.iter().map(|key| map.get(key).map_or(0, T::look)).fold(0, u64::wrapping_add));
        },
        |maps, keys| {
            let map = &maps.plain;
            black_box(keys.iter().map(|key| map.get(key).map_or(0, T::look)).fold(0, u64::wrapping_add));
        },
    );
    compare(
        &format!("get {name}, chained"),
        &mut maps,
        &keys,
        |maps, keys| {
            let map = maps.heap.state(maps.state).expect("our state");
            black_box(
                keys.iter().fold(0, |last, _| chained(last, keys, |key| map.get(key).map_or(0, T::look))),
            );
        },
        |maps, keys| {
            let map = &maps.plain;
            black_box(
                keys.iter().fold(0, |last, _| chained(last, keys, |key| map.get(key).map_or(0, T::look))),
            );
        },
    );
    compare(
        &format!("update {name}"),
        &mut maps,
        &keys,
        |maps, keys| {
            let mut map = maps.heap.state_mut(maps.state).expect("our state");
            for key in keys {
                map.update(key, |value| *T::head(value) += 1);
            }
        },
        |maps, keys| {
            for key in keys {
                if let Some(value) = maps.plain.get_mut(key) {
                    *T::head(value) += 1;
                }
            }
        },
    );
    compare(
        &format!("get_many {name} | one by one"),
        &mut maps,
        &keys,
        |maps, keys| {
            let map = maps.heap.state(maps.state).expect("our state");
            let mut sum = 0_u64;
            for keys in keys.chunks(64) {
                map.get_many(keys, |_, value| sum = sum.wrapping_add(value.map_or(0, T::look)));
            }
            black_box(sum);
        },
        |maps, keys| {
            let map = maps.heap.state(maps.state).expect("our state");
            black_box(keys.iter().map(|key| map.get(key).map_or(0, T::look)).fold(0, u64::wrapping_add));
        },
    );
    compare(
        &format!("update_many {name} | one by one"),
        &mut maps,
        &keys,
        |maps, keys| {
            let mut map = maps.heap.state_mut(maps.state).expect("our state");
            for keys in keys.chunks(64) {
                map.update_many(keys, |_, value| *T::head(value) += 1);
            }
        },
        |maps, keys| {
            let mut map = maps.heap.state_mut(maps.state).expect("our state");
            for key in keys {
                map.update(key, |value| *T::head(value) += 1);
            }
        },
    );
    let mut id = CheckpointId::FIRST;
    compare(
        &format!("update {name}, first since freeze"),
        &mut maps,
        &keys,
        |maps, keys| {
            let mut map = maps.heap.state_mut(maps.state).expect("our state");
            for key in keys {
                map.update(key, |value| *T::head(value) += 1);
            }
            // One freeze per batch: each update is the first of its entry, many the first of their piece.
            let request = FreezeRequest { id, base: None, kind: FreezeKind::Checkpoint };
            drop(maps.heap.freeze(request).expect("ids ascend"));
            maps.heap.aborted(id);
            id = id.next().expect("few checkpoints");
        },
        |maps, keys| {
            for key in keys {
                if let Some(value) = maps.plain.get_mut(key) {
                    *T::head(value) += 1;
                }
            }
        },
    );
}

/// Asks for a key that the last answer selects.
fn chained<K>(last: u64, keys: &[K], get: impl FnOnce(&K) -> u64) -> u64 {
    let at = last.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let answer = keys.get(((at * keys.len() as u64) >> 32) as usize).map_or(0, get);
    last.rotate_left(17) ^ answer.wrapping_add(1)
}
