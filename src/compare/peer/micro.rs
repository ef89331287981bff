//! Suite `micro`: operations one by one, without and with a snapshot in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::PeerOptions;
use super::engine::Engine;
use super::line::Out;
use super::timing::{
    checkpoint, core_wait_nanos, freeze, get, load, millis, process_cpu_nanos, read_modify_write, remove,
    update, update_until,
};
use super::workload::{Draws, Kind, MISS_BASE, key, uniform, update_value};
use crate::compare::error::CompareError;
use crate::compare::stopwatch::Stopwatch;
use crate::error::Error;

/// Where look-ups and updates begin, whatever the seed of the rounds.
const SEED: u64 = 7;
/// Two warm-ups of at most so many keys, of which nothing is written.
const WARM_UP_KEYS: u64 = 200_000;

pub(super) fn run<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    options: &PeerOptions,
    out: &mut Out<'_>,
) -> Result<(), CompareError> {
    let spec = options.spec;
    let warm =
        Sizes { n: spec.n.min(WARM_UP_KEYS), ops: spec.ops.min(WARM_UP_KEYS), snapshots: spec.snapshots };
    let full = Sizes { n: spec.n, ops: spec.ops, snapshots: spec.snapshots };
    let reps = [(None, warm), (None, warm)].into_iter().chain((0..spec.reps).map(|rep| (Some(rep), full)));
    for (rep, sizes) in reps {
        out.begin(rep);
        let (clock, cpu, wait) = (Stopwatch::start(), process_cpu_nanos(), core_wait_nanos());
        super::in_directory(&options.directory, |directory| {
            let name = out.backend().to_owned();
            let failed = |source| CompareError::Engine { backend: name.clone(), source };
            let mut engine = E::create(setting, directory).map_err(failed)?;
            alone::<T, E>(&mut engine, sizes, out)?;
            snapshots::<T, E>(&mut engine, (E::repeats(setting), sizes), out)?;
            beside_snapshots::<T, E>(&mut engine, sizes, out)
        })?;
        out.figure(("rep", 0, "process_cpu_ms", (process_cpu_nanos() - cpu) / 1e6, "ms"))?;
        out.figure(("rep", 0, "wall_ms", millis(clock), "ms"))?;
        out.figure(("rep", 0, "core_wait_ms", (core_wait_nanos() - wait) / 1e6, "ms"))?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    n: u64,
    ops: u64,
    snapshots: u32,
}

fn keys(sizes: Sizes, ops: u64, base: u64) -> Vec<u64> {
    Draws::new(SEED).take(ops as usize).map(|draw| key(base + uniform(draw, sizes.n))).collect()
}

fn seeds(ops: u64) -> Vec<u64> {
    Draws::new(SEED).take(ops as usize).map(update_value).collect()
}

fn engine_failed(out: &Out<'_>) -> impl Fn(Error) -> CompareError + use<> {
    let backend = out.backend().to_owned();
    move |source| CompareError::Engine { backend: backend.clone(), source }
}

/// Load, look-ups and updates with no snapshot.
fn alone<T: Kind, E: Engine<T>>(engine: &mut E, sizes: Sizes, out: &mut Out<'_>) -> Result<(), CompareError> {
    let failed = engine_failed(out);
    load::<T, E>(engine, sizes.n).map_err(&failed)?.emit(out, "load", 0)?;
    if let Some(bytes) = engine.memory_bytes() {
        out.figure(("load", 0, "heap_bytes_per_entry", bytes as f64 / sizes.n as f64, "B"))?;
    }
    let hits = keys(sizes, sizes.ops, 0);
    get::<T, E>(engine, &hits, true).map_err(&failed)?.emit(out, "get_hit", 0)?;
    let misses = keys(sizes, sizes.ops, MISS_BASE);
    get::<T, E>(engine, &misses, false).map_err(&failed)?.emit(out, "get_miss", 0)?;
    update::<T, E>(engine, &hits, &seeds(sizes.ops)).map_err(&failed)?.emit(out, "update", 0)?;
    read_modify_write::<T, E>(engine, &hits).map_err(&failed)?.emit(out, "rmw", 0)
}

/// Checkpoints with nothing else running.
fn snapshots<T: Kind, E: Engine<T>>(
    engine: &mut E,
    (repeats, sizes): (bool, Sizes),
    out: &mut Out<'_>,
) -> Result<(), CompareError> {
    let failed = engine_failed(out);
    // A second checkpoint of an incremental engine would find nothing to write.
    for _ in 0..if repeats { sizes.snapshots } else { 1 } {
        let (times, bytes) = checkpoint::<T, E>(engine).map_err(&failed)?;
        times.emit(out, "snapshot", 0)?;
        out.figure(("snapshot", 0, "checkpointed_bytes", bytes.claimed as f64, "B"))?;
    }
    Ok(())
}

/// The same updates without a snapshot, with one that is frozen and not written, and with one that is being written.
fn beside_snapshots<T: Kind, E: Engine<T>>(
    engine: &mut E,
    sizes: Sizes,
    out: &mut Out<'_>,
) -> Result<(), CompareError> {
    let failed = engine_failed(out);
    let touched = sizes.ops.min(sizes.n / 2);
    let (keys, seeds) = (keys(sizes, touched, 0), seeds(touched));
    let timing = update::<T, E>(engine, &keys, &seeds).map_err(&failed)?;
    timing.emit(out, "update_same_keys_no_snapshot", 0)?;

    let (held, _) = freeze::<T, E>(engine).map_err(&failed)?;
    let timing = update::<T, E>(engine, &keys, &seeds).map_err(&failed)?;
    timing.emit(out, "update_snapshot_held", 0)?;
    let written = std::thread::spawn(held).join();
    engine.complete(written.map_err(|_panic| failed(panicked()))?).map_err(&failed)?;

    let (running, frozen) = freeze::<T, E>(engine).map_err(&failed)?;
    let done = Arc::new(AtomicBool::new(false));
    let (clock, seen) = (Stopwatch::start(), Arc::clone(&done));
    let writer = std::thread::spawn(move || {
        let written = running();
        let async_ms = millis(clock);
        seen.store(true, Ordering::Release);
        (written, async_ms)
    });
    let is_done = || done.load(Ordering::Acquire) || writer.is_finished();
    let timing = update_until::<T, E>(engine, (&keys, &seeds), is_done).map_err(&failed)?;
    timing.emit(out, "update_snapshot_running", 0)?;
    let (written, async_ms) = writer.join().map_err(|_panic| failed(panicked()))?;
    engine.complete(written).map_err(&failed)?;
    frozen.emit(out, "update_snapshot_running", 0)?;
    out.figure(("update_snapshot_running", 0, "async_ms", async_ms, "ms"))?;
    remove::<T, E>(engine, sizes.n / 10).map_err(&failed)?.emit(out, "remove", 0)
}

fn panicked() -> Error {
    Error::invalid_argument("a writer panicked")
}
