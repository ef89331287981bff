//! Which coming call meets which fault, and how often each operation was called.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::power::{Power, PowerCut};

/// A kind of call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultOperation {
    /// Writing a whole object, conditional or not.
    Put,
    /// Reading an object or a range of it; asking for its size alone does not count.
    Get,
    /// Deleting one object.
    Delete,
    /// Listing objects.
    List,
    /// A step of a multipart upload: creating it, a part, completing it. Giving it up never fails.
    Multipart,
}

/// What happens to the call that a plan picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultMode {
    /// It fails and did not happen.
    Before,
    /// It happens, and then reports a failure.
    After,
    /// Its body is cut in half: a put leaves the first half under the name and fails, or nothing if
    /// it creates on condition, which stores do whole or not at all; a get returns the first half as
    /// if that were all, a listing ends half-way with an error. A delete has no body and fails as
    /// by [`FaultMode::Before`].
    Cut,
    /// It does not happen and never returns.
    Hang,
    /// It waits until [`Faults::resume`] and then happens as if nothing had been.
    Pause,
    /// A create on condition does not happen and reports that the object exists, as stores do that answer a conflict of
    /// two creates so. Every other call fails as by [`FaultMode::Before`].
    Conflict,
}

/// Objects that a plan applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultClass {
    /// Segments and other data files.
    Data,
    /// Members of the numbered sequence, whose creation publishes a checkpoint.
    Publish,
    /// Every object. Listings name no single object and are always met.
    Any,
}

/// Picks coming calls: those with the numbers `nth`, `nth + 1`, … `nth + times - 1` among the calls
/// of `operation` on objects of `class`, counted from 1 and from the moment the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The calls that count.
    pub operation: FaultOperation,
    /// The objects that count.
    pub class: FaultClass,
    /// What happens to the calls picked.
    pub mode: FaultMode,
    /// Number of the first call picked, from 1.
    pub nth: u64,
    /// How many calls are picked.
    pub times: u64,
}

impl FaultPlan {
    /// Picks the next call of `operation` on any object.
    #[must_use]
    pub fn first(operation: FaultOperation, mode: FaultMode) -> Self {
        Self { operation, class: FaultClass::Any, mode, nth: 1, times: 1 }
    }
}

/// The plans of one [`FaultStore`](super::FaultStore) and what it counted; a handle, clones share everything.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    signals: Arc<Signals>,
}

#[derive(Debug)]
struct Signals {
    /// Number of calls that stand still for ever.
    hung: watch::Sender<u64>,
    /// Number of times that waiting calls were let go.
    resumed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    plans: Vec<(FaultPlan, u64)>,
    calls: BTreeMap<FaultOperation, u64>,
    multiparts_open: u64,
    power: Power,
}

impl Default for Faults {
    fn default() -> Self {
        Self::new()
    }
}

impl Faults {
    /// No plan, nothing counted.
    #[must_use]
    pub fn new() -> Self {
        let signals = Signals { hung: watch::Sender::new(0), resumed: watch::Sender::new(0) };
        Self { state: Arc::default(), signals: Arc::new(signals) }
    }

    /// Adds a plan. Plans count independently; of two that pick the same call the older decides.
    pub fn plan(&self, plan: FaultPlan) {
        self.state.lock().plans.push((plan, 0));
    }

    /// Forgets all plans; counts stay.
    pub fn clear(&self) {
        self.state.lock().plans.clear();
    }

    /// Forgets the plans of one mode; counts stay.
    pub fn forget(&self, mode: FaultMode) {
        self.state.lock().plans.retain(|(plan, _)| plan.mode != mode);
    }

    /// Number of plans that have not picked all their calls yet.
    #[must_use]
    pub fn plans_open(&self) -> usize {
        self.state.lock().plans.len()
    }

    /// Number of calls of `operation` so far, failed ones included.
    #[must_use]
    pub fn calls(&self, operation: FaultOperation) -> u64 {
        self.state.lock().calls.get(&operation).copied().unwrap_or(0)
    }

    /// Number of multipart uploads that were created and neither completed nor given up.
    #[must_use]
    pub fn multiparts_open(&self) -> u64 {
        self.state.lock().multiparts_open
    }

    /// Cuts the power at a coming write, as [`PowerCut`] says. From then on no call returns.
    pub fn cut_power(&self, cut: PowerCut) {
        self.state.lock().power = Power::On { cut: Some(cut) };
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state.lock().power, Power::Off)
    }

    /// Lets all calls go that wait because of [`FaultMode::Pause`].
    pub fn resume(&self) {
        self.signals.resumed.send_modify(|count| *count += 1);
    }

    /// Number of calls that hang or wait, or did at some time.
    #[must_use]
    pub fn stalled(&self) -> u64 {
        *self.signals.hung.borrow()
    }

    /// Returns when more than `seen` calls have stalled, see [`Faults::stalled`].
    pub async fn stalled_beyond(&self, seen: u64) {
        let mut hung = self.signals.hung.subscribe();
        // The sender lives in `self`, so waiting cannot fail while it is borrowed.
        let _ = hung.wait_for(|count| *count > seen).await;
    }

    /// Counts a call and says what is to happen to it.
    pub(super) fn meet(&self, operation: FaultOperation, class: FaultClass) -> Option<FaultMode> {
        let mut state = self.state.lock();
        *state.calls.entry(operation).or_default() += 1;
        let writes = !matches!(operation, FaultOperation::Get | FaultOperation::List);
        if let Some(fate) = state.power.meet(writes) {
            return Some(fate);
        }
        let mut met = None;
        state.plans.retain_mut(|(plan, seen)| {
            let listing = operation == FaultOperation::List;
            let fits = plan.class == FaultClass::Any || plan.class == class || listing;
            if plan.operation != operation || !fits {
                return true;
            }
            *seen += 1;
            if *seen >= plan.nth && *seen - plan.nth < plan.times {
                met = met.or(Some(plan.mode));
            }
            *seen < plan.nth || *seen - plan.nth + 1 < plan.times
        });
        met
    }

    /// Stands still for ever, visibly.
    pub(super) async fn hang<T>(&self) -> T {
        self.signals.hung.send_modify(|count| *count += 1);
        std::future::pending().await
    }

    /// Stands still until [`Faults::resume`], visibly.
    pub(super) async fn pause(&self) {
        let mut resumed = self.signals.resumed.subscribe();
        let seen = *resumed.borrow_and_update();
        self.signals.hung.send_modify(|count| *count += 1);
        let _ = resumed.wait_for(|count| *count > seen).await;
    }

    /// Notes that a multipart upload was created, or that one ended.
    pub(super) fn note_multipart(&self, opened: Opened) {
        let mut state = self.state.lock();
        state.multiparts_open = match opened {
            Opened::Created => state.multiparts_open + 1,
            Opened::Ended => state.multiparts_open.saturating_sub(1),
        };
    }
}

/// What became of a multipart upload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opened {
    Created,
    Ended,
}
