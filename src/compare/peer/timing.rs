//! Clocks of the suites, and the timed loops.
//!
//! Each loop reads keys and seeds from arrays that were filled before the clock starts, and the clock once per batch.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use super::engine::{CheckpointBytes, Engine, Writing};
use super::line::Out;
use super::workload::{Kind, key, load_value};
use crate::compare::error::CompareError;
use crate::compare::stopwatch::Stopwatch;
use crate::error::{Error, Result};

/// Whether lines could be written.
type Emitted = std::result::Result<(), CompareError>;

/// Operations between two readings of the clock.
pub(super) const BATCH: usize = 1_000;

fn nanos(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU nanoseconds of the calling thread: waiting for a core does not count.
pub(super) fn thread_cpu_nanos() -> f64 {
    nanos(ClockId::ThreadCPUTime)
}

/// CPU nanoseconds of all threads, those that have ended included.
pub(super) fn process_cpu_nanos() -> f64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Nanoseconds that the calling thread was ready to run with no core free; 0 where the system does not tell.
pub(super) fn core_wait_nanos() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Read calls of the process so far; 0 where the system does not tell.
pub(super) fn read_calls() -> f64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let calls = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0.0)
}

/// What a loop took.
pub(super) struct Timing {
    operations: usize,
    nanos: f64,
    cpu_nanos: f64,
    /// Of each batch.
    batches: Vec<f64>,
}

/// A loop that is being timed.
struct Laps {
    cpu: f64,
    lap: Stopwatch,
    batches: Vec<f64>,
}

impl Laps {
    fn start() -> Self {
        Self { batches: Vec::with_capacity(1 << 14), cpu: thread_cpu_nanos(), lap: Stopwatch::start() }
    }

    /// Notes the end of a batch.
    fn lap(&mut self) {
        let now = Stopwatch::start();
        self.batches.push(now.since(self.lap).as_nanos() as f64);
        self.lap = now;
    }

    fn stop(self, operations: usize) -> Timing {
        let cpu_nanos = thread_cpu_nanos() - self.cpu;
        Timing { operations, nanos: self.batches.iter().sum(), cpu_nanos, batches: self.batches }
    }
}

impl Timing {
    /// Writes it out; nothing if there was no operation.
    pub(super) fn emit(mut self, out: &mut Out<'_>, phase: &'static str, ckpt: u32) -> Emitted {
        if self.operations == 0 {
            return Ok(());
        }
        let operations = self.operations as f64;
        out.figure((phase, ckpt, "ns_per_op", self.nanos / operations, "ns"))?;
        out.figure((phase, ckpt, "cpu_ns_per_op", self.cpu_nanos / operations, "ns"))?;
        self.batches.sort_by(f64::total_cmp);
        let at = |index: usize| self.batches.get(index).copied().unwrap_or_default() / 1e3;
        let count = self.batches.len();
        out.figure((phase, ckpt, "batch1000_p50_us", at(count / 2), "us"))?;
        out.figure((phase, ckpt, "batch1000_p99_us", at((count as f64 * 0.99) as usize), "us"))?;
        out.figure((phase, ckpt, "batch1000_max_us", at(count - 1), "us"))
    }
}

/// Puts the keys of the indices below `n`.
pub(super) fn load<T: Kind, E: Engine<T>>(engine: &mut E, n: u64) -> Result<Timing> {
    let mut laps = Laps::start();
    for first in (0..n).step_by(BATCH) {
        for index in first..n.min(first + BATCH as u64) {
            engine.put(key(index), T::make(load_value(index)))?;
        }
        laps.lap();
    }
    Ok(laps.stop(n as usize))
}

/// Puts a fresh value at each key.
pub(super) fn update<T: Kind, E: Engine<T>>(engine: &mut E, keys: &[u64], seeds: &[u64]) -> Result<Timing> {
    let mut laps = Laps::start();
    for (keys, seeds) in keys.chunks(BATCH).zip(seeds.chunks(BATCH)) {
        for (key, seed) in keys.iter().zip(seeds) {
            engine.put(*key, T::make(*seed))?;
        }
        laps.lap();
    }
    Ok(laps.stop(keys.len()))
}

/// As [`update`], round and round until `is_done`, at least one batch.
pub(super) fn update_until<T: Kind, E: Engine<T>>(
    engine: &mut E,
    (keys, seeds): (&[u64], &[u64]),
    is_done: impl Fn() -> bool,
) -> Result<Timing> {
    let mut laps = Laps::start();
    let mut all = keys.iter().zip(seeds).cycle();
    let mut operations = 0;
    while operations == 0 || !is_done() {
        for (key, seed) in all.by_ref().take(BATCH) {
            engine.put(*key, T::make(*seed))?;
        }
        laps.lap();
        operations += BATCH;
    }
    Ok(laps.stop(operations))
}

/// Looks each key up, and at its value if it is to be there.
pub(super) fn get<T: Kind, E: Engine<T>>(engine: &E, keys: &[u64], hit: bool) -> Result<Timing> {
    let mut sum = 0_u64;
    let mut laps = Laps::start();
    for keys in keys.chunks(BATCH) {
        for key in keys {
            let found = engine.with(*key, T::touch)?;
            if found.is_some() != hit {
                return Err(Error::invalid_argument(format!("a look-up of key {key:016x} found {found:?}")));
            }
            sum = sum.wrapping_add(found.unwrap_or_default());
        }
        laps.lap();
    }
    std::hint::black_box(sum);
    Ok(laps.stop(keys.len()))
}

/// Reads each value and puts one made from it.
pub(super) fn read_modify_write<T: Kind, E: Engine<T>>(engine: &mut E, keys: &[u64]) -> Result<Timing> {
    let mut laps = Laps::start();
    for keys in keys.chunks(BATCH) {
        for key in keys {
            let seen = engine.with(*key, T::touch)?.unwrap_or_default();
            engine.put(*key, T::make(seen.wrapping_add(1)))?;
        }
        laps.lap();
    }
    Ok(laps.stop(keys.len()))
}

/// Removes the keys of the indices below `n`.
pub(super) fn remove<T: Kind, E: Engine<T>>(engine: &mut E, n: u64) -> Result<Timing> {
    let mut laps = Laps::start();
    for first in (0..n).step_by(BATCH) {
        for index in first..n.min(first + BATCH as u64) {
            engine.remove(key(index))?;
        }
        laps.lap();
    }
    Ok(laps.stop(n as usize))
}

/// The times of a checkpoint, in milliseconds.
pub(super) struct Times {
    frozen: FreezeTimes,
    write: f64,
    write_cpu: f64,
    /// Making it count, and dropping the one before.
    pub(super) confirm: f64,
}

impl Times {
    /// Writes out what writing took as well.
    pub(super) fn emit(self, out: &mut Out<'_>, phase: &'static str, ckpt: u32) -> Emitted {
        self.frozen.emit(out, phase, ckpt)?;
        out.figure((phase, ckpt, "async_ms", self.write, "ms"))?;
        out.figure((phase, ckpt, "async_cpu_ms", self.write_cpu, "ms"))
    }
}

/// The times of the synchronous part, in milliseconds.
pub(super) struct FreezeTimes {
    /// How long the task stood still.
    pause: f64,
    /// The whole call, if a coordinator did something in it.
    trigger: Option<f64>,
    /// CPU time of the whole call.
    cpu: f64,
}

impl FreezeTimes {
    pub(super) fn emit(self, out: &mut Out<'_>, phase: &'static str, ckpt: u32) -> Emitted {
        out.figure((phase, ckpt, "sync_ms", self.pause, "ms"))?;
        out.figure((phase, ckpt, "sync_cpu_ms", self.cpu, "ms"))?;
        self.trigger.map_or(Ok(()), |trigger| out.figure((phase, ckpt, "trigger_ms", trigger, "ms")))
    }
}

/// Takes a checkpoint with nothing else running.
pub(super) fn checkpoint<T: Kind, E: Engine<T>>(engine: &mut E) -> Result<(Times, CheckpointBytes)> {
    let (writing, frozen) = freeze(engine)?;
    let (clock, cpu) = (Stopwatch::start(), process_cpu_nanos());
    let written = std::thread::spawn(writing).join();
    let (write, write_cpu) = (millis(clock), (process_cpu_nanos() - cpu) / 1e6);
    let written = written.map_err(|_panic| Error::invalid_argument("a writer panicked"))?;
    let clock = Stopwatch::start();
    let bytes = engine.complete(written)?;
    let confirm = millis(clock);
    Ok((Times { frozen, write, write_cpu, confirm }, bytes))
}

/// The synchronous part, and what it took.
pub(super) fn freeze<T: Kind, E: Engine<T>>(engine: &mut E) -> Result<(Writing<E::Written>, FreezeTimes)> {
    // The other clock first: asking for it is a call of the kernel, which is no part of the pause.
    let cpu = thread_cpu_nanos();
    let clock = Stopwatch::start();
    let frozen = engine.freeze()?;
    let whole = millis(clock);
    let cpu = (thread_cpu_nanos() - cpu) / 1e6;
    let pause = frozen.pause.map(|pause| pause.as_secs_f64() * 1e3);
    let times = FreezeTimes { pause: pause.unwrap_or(whole), trigger: pause.map(|_| whole), cpu };
    Ok((frozen.writing, times))
}

/// Milliseconds since the stopwatch was started.
pub(super) fn millis(clock: Stopwatch) -> f64 {
    clock.elapsed().as_secs_f64() * 1e3
}
