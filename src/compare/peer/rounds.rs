//! Suite `rounds`: load, rounds of updates each with a checkpoint, loss, restore, check of every value.

use std::path::Path;

use super::PeerOptions;
use super::engine::{CheckpointBytes, Engine};
use super::line::Out;
use super::spec::{Choice, PeerSpec};
use super::timing::{
    Times, checkpoint, core_wait_nanos, load, millis, process_cpu_nanos, read_calls, thread_cpu_nanos, update,
};
use super::workload::{Kind, Model, key, share};
use crate::compare::error::CompareError;
use crate::compare::stopwatch::Stopwatch;

/// The warm-up, of which nothing is written.
const WARM_UP_KEYS: u64 = 100_000;
const WARM_UP_ROUNDS: u32 = 3;

pub(super) fn run<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    options: &PeerOptions,
    out: &mut Out<'_>,
) -> Result<(), CompareError> {
    let spec = options.spec;
    let warm_up = PeerSpec {
        n: spec.n.min(WARM_UP_KEYS),
        dist: Choice::Uniform,
        upct: 10.0,
        rounds: WARM_UP_ROUNDS.min(spec.rounds),
        ..spec
    };
    let reps = std::iter::once((None, warm_up)).chain((0..spec.reps).map(|rep| (Some(rep), spec)));
    for (rep, spec) in reps {
        out.begin(rep);
        super::in_directory(&options.directory, |directory| {
            repetition::<T, E>(setting, (&spec, directory), out)
        })?;
    }
    Ok(())
}

fn repetition<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    place: (&PeerSpec, &Path),
    out: &mut Out<'_>,
) -> Result<(), CompareError> {
    let (clock, cpu, wait) = (Stopwatch::start(), process_cpu_nanos(), core_wait_nanos());
    let model = fill::<T, E>(setting, place, out)?;
    restore::<T, E>(setting, &model, (place.1, out))?;
    out.figure(("rep", 0, "process_cpu_ms", (process_cpu_nanos() - cpu) / 1e6, "ms"))?;
    out.figure(("rep", 0, "wall_ms", millis(clock), "ms"))?;
    out.figure(("rep", 0, "core_wait_ms", (core_wait_nanos() - wait) / 1e6, "ms"))
}

/// Loads, updates and takes the checkpoints; what is in memory is lost when it returns.
fn fill<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    (spec, directory): (&PeerSpec, &Path),
    out: &mut Out<'_>,
) -> Result<Model, CompareError> {
    let name = out.backend().to_owned();
    let failed = |source| CompareError::Engine { backend: name.clone(), source };
    let mut model = Model::new(spec.n, spec.seed);
    let mut engine = E::create(setting, directory).map_err(failed)?;
    load::<T, E>(&mut engine, spec.n).map_err(failed)?.emit(out, "load", 0)?;
    emit(out, 1, checkpoint::<T, E>(&mut engine).map_err(failed)?)?;
    for number in 2..=spec.rounds + 1 {
        let round = model.round(spec.updates(), spec.dist.function());
        out.figure(("update", number, "distinct_keys", round.distinct as f64, "keys"))?;
        update::<T, E>(&mut engine, &round.keys, &round.seeds)
            .map_err(failed)?
            .emit(out, "update", number)?;
        emit(out, number, checkpoint::<T, E>(&mut engine).map_err(failed)?)?;
    }
    Ok(model)
}

fn emit(out: &mut Out<'_>, ckpt: u32, (times, bytes): (Times, CheckpointBytes)) -> Result<(), CompareError> {
    let CheckpointBytes { claimed, state, new_files, retained } = bytes;
    let confirm_ms = times.confirm;
    times.emit(out, "ckpt", ckpt)?;
    out.figure(("ckpt", ckpt, "confirm_ms", confirm_ms, "ms"))?;
    for (metric, value) in [
        ("checkpointed_bytes", claimed),
        ("state_bytes", state),
        ("new_file_bytes", new_files),
        ("retained_bytes", retained),
    ] {
        out.figure(("ckpt", ckpt, metric, value as f64, "B"))?;
    }
    Ok(())
}

fn restore<T: Kind, E: Engine<T>>(
    setting: &E::Setting,
    model: &Model,
    (directory, out): (&Path, &mut Out<'_>),
) -> Result<(), CompareError> {
    let name = out.backend().to_owned();
    let failed = |source| CompareError::Engine { backend: name.clone(), source };
    let (reads, cpu, own) = (read_calls(), process_cpu_nanos(), thread_cpu_nanos());
    let clock = Stopwatch::start();
    let engine = E::recover(setting, directory).map_err(failed)?;
    let first = engine.with(key(0), T::touch).map_err(failed)?;
    let wall_ms = millis(clock);
    out.figure(("restore", 0, "wall_ms", wall_ms, "ms"))?;
    out.figure(("restore", 0, "process_cpu_ms", (process_cpu_nanos() - cpu) / 1e6, "ms"))?;
    out.figure(("restore", 0, "thread_cpu_ms", (thread_cpu_nanos() - own) / 1e6, "ms"))?;
    out.figure(("restore", 0, "read_calls", read_calls() - reads, "calls"))?;
    let unequal = |difference| CompareError::Unequal { backend: name.clone(), difference };
    if first.is_none() {
        return Err(unequal("the key of index 0 is lost".to_owned()));
    }
    let mut sum = 0_u64;
    for index in 0..model.len() {
        let key = key(index);
        let folded = engine.with(key, T::fold).map_err(failed)?.flatten();
        let folded =
            folded.ok_or_else(|| unequal(format!("the value of index {index} is lost or damaged")))?;
        sum = sum.wrapping_add(share(key, folded));
    }
    let (count, expected) = (engine.count().map_err(failed)?, model.checksum::<T>());
    out.figure(("verify", 0, "count", count as f64, "keys"))?;
    out.checksum("verify", sum)?;
    if count != model.len() || sum != expected {
        let counts = format!("{count} of {} entries", model.len());
        return Err(unequal(format!("{counts}, checksum {sum:016x} instead of {expected:016x}")));
    }
    Ok(())
}
