//! Merges that wait while a checkpoint is being written.
//!
//! Owns: who waits for what, and that nobody waits for ever. Does not own: which merges there are (RocksDB), that a
//! checkpoint is being written (`snapshot`).
//!
//! # Invariants
//!
//! - A1. A waiting merge goes on when the last checkpoint is written, when the database closes, and in any case after
//!   `delay_max`: closing waits for merges, and writers may wait for them too.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Closed while checkpoints are being written. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct MergeGate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// None: the gate is always open.
    delay_max: Option<Duration>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    checkpoints: usize,
    open_for_good: bool,
}

impl State {
    fn is_closed(&self) -> bool {
        self.checkpoints > 0 && !self.open_for_good
    }
}

/// A checkpoint being written, for as long as it lives.
pub(crate) struct GateHold(MergeGate);

impl MergeGate {
    pub(crate) fn new(delay_max: Option<Duration>) -> Self {
        Self(Arc::new(Inner { delay_max, ..Inner::default() }))
    }

    /// Closes the gate until what is returned is dropped.
    pub(crate) fn hold(&self) -> GateHold {
        self.state().checkpoints += 1;
        GateHold(self.clone())
    }

    /// Waits while the gate is closed, at most as long as it may (A1).
    pub(crate) fn pass(&self) {
        let Some(delay_max) = self.0.delay_max else { return };
        let waited = self.0.changed.wait_timeout_while(self.state(), delay_max, |state| state.is_closed());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Nobody waits from now on: the database is being closed.
    pub(crate) fn open_for_good(&self) {
        self.state().open_for_good = true;
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GateHold {
    fn drop(&mut self) {
        self.0.state().checkpoints -= 1;
        self.0.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, TryRecvError, channel};
    use std::thread;

    const LONG: Duration = Duration::from_secs(3600);

    /// A thread that passes the gate and then says so.
    fn passing(gate: &MergeGate) -> (thread::JoinHandle<()>, Receiver<()>) {
        let (gate, (told, passed)) = (gate.clone(), channel());
        let thread = thread::spawn(move || {
            gate.pass();
            told.send(()).unwrap();
        });
        (thread, passed)
    }

    // A1
    #[test]
    fn a_merge_waits_for_the_last_checkpoint_and_then_goes_on() {
        let gate = MergeGate::new(Some(LONG));
        let (first, second) = (gate.hold(), gate.hold());
        let (thread, passed) = passing(&gate);
        drop(first);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(passed.try_recv(), Err(TryRecvError::Empty), "it did not wait for the second checkpoint");
        drop(second);
        thread.join().unwrap();
        passed.try_recv().unwrap();
    }

    // A1
    #[test]
    fn nobody_waits_beyond_the_longest_delay_nor_once_the_database_closes() {
        let short = MergeGate::new(Some(Duration::from_millis(1)));
        let _held = short.hold();
        short.pass();
        let closing = MergeGate::new(Some(LONG));
        let _held = closing.hold();
        let (thread, _passed) = passing(&closing);
        closing.open_for_good();
        thread.join().unwrap();
        closing.pass();
    }

    #[test]
    fn a_gate_without_a_delay_is_always_open() {
        let gate = MergeGate::new(None);
        let _held = gate.hold();
        gate.pass();
    }
}
