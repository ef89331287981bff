//! One subtask's state: named states over a range of key groups, frozen and restored together.
//!
//! Owns: the states, the present interval, which freezes may become bases. Does not own: the entries (`map`),
//! what a snapshot writes (`snapshot`), files and their transport (the caller).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, DecodeLimits, Key, KeyGroupCount, KeyGroupRange, Namespace,
    StateDescriptor, Value,
};
use smallvec::SmallVec;

use crate::chain::{Chain, Element, StateIndex};
use crate::codecs::{Raw, StateCodecs, Typed, Untyped};
use crate::epochs::{Epoch, Epochs};
use crate::error::HeapError;
use crate::handover::{Clock, Stamp};
use crate::lineage::{BaseFacts, BaseMode, ChainRewrites, Lineage};
use crate::map::{AnyState, FreezeFacts, Layout, Loaded, StateMap};
use crate::origins::{FixedHome, Label};
use crate::overlay::{OutcomeSlot, RewriteStart};
use crate::places::Places;
use crate::rewrite::RewritePolicy;
use crate::snapshot::{HeapSnapshot, SnapshotParts};
use crate::state::{StateMut, StateRef, ValueState};
use crate::turn::{Counters, Turn};

/// Snapshots that may be open at a time.
pub const OPEN_SNAPSHOTS_MAX: usize = 64;

const STATES_MAX: usize = u16::MAX as usize;

/// How a backend is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapOptions {
    /// The number of key groups of the job.
    pub key_groups: KeyGroupCount,
    /// The key groups that this backend holds.
    pub range: KeyGroupRange,
    /// Which checkpoints a trigger may name as the base.
    pub base_mode: BaseMode,
}

/// What a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeKind {
    /// A checkpoint, against a base if one is given. It may become a base.
    Checkpoint,
    /// A checkpoint without a base. It may become a base.
    Full,
    /// A frozen view that never becomes a base and leaves no trace in the backend.
    Savepoint,
}

/// What is asked of a backend at a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeRequest {
    /// The checkpoint; ids only increase.
    pub id: CheckpointId,
    /// The checkpoint that the delta is taken against; `None` writes every entry.
    pub base: Option<CheckpointId>,
    /// What the checkpoint is.
    pub kind: FreezeKind,
}

/// Figures of a backend at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapFigures {
    /// Entries in all states.
    pub entries: u64,
    /// Snapshots that are open.
    pub live_snapshots: usize,
    /// Records held at present because an open snapshot wants them.
    pub records_held: usize,
    /// Records set aside so far, each counted once for all snapshots that share it.
    pub records_set_aside: u64,
    /// Writes so far that had to take a piece's lock.
    pub locked_writes: u64,
    /// Pieces that writers have gone through so far.
    pub pieces_visited: u64,
    /// Records that writers have encoded so far, those set aside not counted.
    pub records_encoded: u64,
    /// Buckets that writers have looked at so far to find entries to write again.
    pub buckets_scanned: u64,
}

/// Keyed state of one subtask, in memory.
///
/// Everything that writes takes `&mut self`, so a freeze cannot race with a write. A snapshot is written by another
/// thread while the backend goes on.
///
/// # Examples
///
/// ```
/// use lowtide_format::{CheckpointId, KeyGroupCount};
/// use lowtide_heap::{BaseMode, FreezeKind, FreezeRequest, HeapBackend, HeapOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let key_groups = KeyGroupCount::new(128).ok_or("no key groups")?;
/// let options = HeapOptions { key_groups, range: key_groups.all(), base_mode: BaseMode::Confirmed };
/// let mut backend = HeapBackend::new(options);
/// let visits = backend.value_state::<String, (), u64>("visits")?;
/// backend.state_mut(visits)?.put("ada".to_owned(), 1)?;
/// assert!(backend.state_mut(visits)?.update("ada", |count| *count += 1));
/// assert_eq!(backend.state(visits)?.get("ada"), Some(&2));
///
/// let request = FreezeRequest { id: CheckpointId::FIRST, base: None, kind: FreezeKind::Checkpoint };
/// let snapshot = backend.freeze(request)?;
/// assert_eq!(backend.figures().live_snapshots, 1);
/// drop(snapshot);
/// assert_eq!(backend.figures().live_snapshots, 0);
/// # Ok(())
/// # }
/// ```
pub struct HeapBackend {
    layout: Layout,
    states: Vec<Box<dyn AnyState>>,
    turn: Turn,
    lineage: Lineage,
    newest: Option<CheckpointId>,
    open: Arc<AtomicUsize>,
    segments: Arc<AtomicU32>,
    policy: Option<Arc<dyn RewritePolicy>>,
    /// Completed checkpoints, ascending, as far back as elements may be listed.
    completed: Arc<Vec<CheckpointId>>,
    places: Places,
}

impl std::fmt::Debug for HeapBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapBackend")
            .field("range", &self.layout.range)
            .field("states", &self.states.len())
            .field("newest", &self.newest)
            .finish_non_exhaustive()
    }
}

impl HeapBackend {
    /// An empty backend. O(1).
    #[must_use]
    pub fn new(options: HeapOptions) -> Self {
        Self::with_epochs(options, Clock::new(), Epochs::new())
    }

    pub(crate) fn with_epochs(options: HeapOptions, clock: Clock, epochs: Epochs) -> Self {
        let layout = Layout { range: options.range, count: options.key_groups };
        let turn = Turn {
            clock,
            interval: epochs.next().unwrap_or(Epoch(u32::MAX)),
            floor: Epoch(0),
            boundaries: SmallVec::new(),
            epochs,
            counters: Arc::new(Counters::default()),
        };
        Self {
            layout,
            states: Vec::new(),
            turn,
            lineage: Lineage::new(options.base_mode),
            newest: None,
            open: Arc::default(),
            segments: Arc::default(),
            policy: None,
            completed: Arc::default(),
            places: Places::default(),
        }
    }

    /// Lets snapshots frozen from now on write old entries again as the policy says; `None` rewrites nothing.
    ///
    /// Costs nothing in the pause; while a rewriting snapshot is being written, an owner's write locks the piece it
    /// goes to until the writer has looked through it.
    pub fn set_rewriting(&mut self, policy: Option<Arc<dyn RewritePolicy>>) {
        self.policy = policy;
    }

    /// The key groups that it holds.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        self.layout.range
    }

    /// The value state of that name, with the default codec; it comes into being at the first call.
    ///
    /// A restored state that nobody has opened yet is decoded now: O(its entries).
    ///
    /// # Errors
    ///
    /// [`HeapError::StateTypeMismatch`] or [`HeapError::StateTypesDiffer`] if it has other types, the state being
    /// untouched then; [`HeapError::StateName`], [`HeapError::TooManyStates`].
    pub fn value_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        self.value_state_with(name, Arc::new(AutoCodec))
    }

    /// The value state of that name, whose values are encoded by `codec`.
    ///
    /// # Errors
    ///
    /// As [`value_state`](Self::value_state).
    pub fn value_state_with<K: Key, N: Namespace, V: Value>(
        &mut self,
        name: &str,
        codec: Arc<dyn Codec<V>>,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        let typed = Typed::new(codec);
        let descriptor = Arc::new(typed.descriptor::<K, N>(name));
        let codecs: Arc<dyn StateCodecs<K, N, V>> = Arc::new(typed);
        let number = self.turn.clock.number();
        if let Some(index) = self.states.iter().position(|state| state.descriptor().name == name) {
            self.open_state::<K, N, V>(index, descriptor, codecs)?;
            return Ok(ValueState::new(index as u16, number));
        }
        let index = self.add_state(Box::new(StateMap::new(Arc::clone(&descriptor), codecs, self.layout)))?;
        Ok(ValueState::new(index, number))
    }

    /// Adds a state that does not exist yet.
    fn add_state(&mut self, state: Box<dyn AnyState>) -> Result<u16, HeapError> {
        let name = &state.descriptor().name;
        if name.is_empty() || name.len() > 255 {
            return Err(HeapError::StateName { bytes: name.len() });
        }
        if self.states.len() >= STATES_MAX {
            return Err(HeapError::TooManyStates { name: name.clone(), max: STATES_MAX });
        }
        self.states.push(state);
        Ok((self.states.len() - 1) as u16)
    }

    /// The index of a restored state, which stays bytes until somebody opens it with its types.
    pub(crate) fn untyped_state(&mut self, descriptor: &StateDescriptor) -> Result<u16, HeapError> {
        let known = self.states.iter().position(|state| state.descriptor().name == descriptor.name);
        if let Some(index) = known {
            let state = self.states.get(index).map(|state| Arc::clone(state.descriptor()));
            let Some(state) = state else { return Err(HeapError::ForeignState) };
            check_codecs(descriptor, &state)?;
            return Ok(index as u16);
        }
        let descriptor = Arc::new(descriptor.clone());
        self.add_state(Box::new(StateMap::new(descriptor, Arc::new(Untyped), self.layout)))
    }

    /// Numbers an epoch of before this life.
    pub(crate) fn number_epoch(&self, id: CheckpointId) -> Epoch {
        let epoch = self.turn.epochs.next().unwrap_or(Epoch(u32::MAX));
        self.turn.epochs.push(id);
        epoch
    }

    /// Adds a restored entry unless its key is there; tells whether it was added.
    pub(crate) fn load(
        &mut self,
        state: StateIndex,
        loaded: Loaded<'_>,
        limits: DecodeLimits,
    ) -> Result<bool, HeapError> {
        let Some(state) = self.states.get_mut(usize::from(state.0)) else { return Ok(false) };
        state
            .load(loaded, &self.turn, limits)
            .map_err(|source| HeapError::record(&state.descriptor().name, "an entry", source))
    }

    /// The label of restored entries of one version in one segment.
    pub(crate) fn fixed_label(
        &mut self,
        state: StateIndex,
        version: Epoch,
        home: FixedHome,
        newest: CheckpointId,
    ) -> Label {
        let origins = self.states.get_mut(usize::from(state.0)).map(|state| state.origins_mut());
        origins.and_then(|origins| origins.fixed(version, home, newest)).unwrap_or(Label::NEW)
    }

    /// Everything is restored: the chain's checkpoint is the base of the next one, and a new interval begins.
    pub(crate) fn begin_life(&mut self, chain: Chain) {
        let segments = chain.elements().iter().map(|element| element.facts.number.0 + 1).max();
        self.segments.store(segments.unwrap_or(0), Ordering::Relaxed);
        self.newest = Some(chain.id());
        let mut completed: Vec<CheckpointId> = chain.elements().iter().map(Element::id).collect();
        completed.push(chain.id());
        completed.dedup();
        self.completed = Arc::new(completed);
        // Epochs of before this life tell nothing by their order; the base's is the highest of them.
        let root = self.number_epoch(chain.id());
        self.lineage = Lineage::restored(self.lineage.mode(), chain, root);
        self.turn.floor = self.lineage.floor();
        self.turn.boundaries = self.lineage.boundaries();
        self.turn.interval = self.turn.epochs.next().unwrap_or(Epoch(u32::MAX));
        // As a freeze does: so that the first write of a piece begins the interval there.
        let _ = self.turn.clock.freeze();
    }

    fn open_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        index: usize,
        descriptor: Arc<StateDescriptor>,
        codecs: Arc<dyn StateCodecs<K, N, V>>,
    ) -> Result<(), HeapError> {
        let Some(state) = self.states.get_mut(index) else { return Err(HeapError::ForeignState) };
        check_codecs(state.descriptor(), &descriptor)?;
        if state.as_any().is::<StateMap<K, N, V>>() {
            return Ok(());
        }
        let name = descriptor.name.clone();
        let Some(untyped) = state.as_any_mut().downcast_mut::<StateMap<Raw, Raw, Raw>>() else {
            return Err(HeapError::StateTypesDiffer { name });
        };
        let typed = untyped.typed(descriptor, codecs, &self.turn);
        *state = Box::new(typed.map_err(|source| HeapError::record(&name, "an entry", source))?);
        Ok(())
    }

    /// A state, to read.
    ///
    /// # Errors
    ///
    /// [`HeapError::ForeignState`] if the token is of another backend.
    #[inline]
    pub fn state<K: Key, N: Namespace, V: Value>(
        &self,
        state: ValueState<K, N, V>,
    ) -> Result<StateRef<'_, K, N, V>, HeapError> {
        let ours = state.backend == self.turn.clock.number();
        let known = self.states.get(usize::from(state.index)).filter(|_| ours);
        let map = known.and_then(|map| map.as_any().downcast_ref()).ok_or(HeapError::ForeignState)?;
        Ok(StateRef::new(map))
    }

    /// A state, to read and to change.
    ///
    /// # Errors
    ///
    /// [`HeapError::ForeignState`] if the token is of another backend.
    #[inline]
    pub fn state_mut<K: Key, N: Namespace, V: Value>(
        &mut self,
        state: ValueState<K, N, V>,
    ) -> Result<StateMut<'_, K, N, V>, HeapError> {
        let ours = state.backend == self.turn.clock.number();
        let known = self.states.get_mut(usize::from(state.index)).filter(|_| ours);
        let map = known.and_then(|map| map.as_any_mut().downcast_mut()).ok_or(HeapError::ForeignState)?;
        Ok(StateMut::new(map, &self.turn))
    }

    /// The states, in the order in which they came into being.
    pub fn descriptors(&self) -> impl Iterator<Item = &StateDescriptor> {
        self.states.iter().map(|state| &**state.descriptor())
    }

    /// The synchronous phase of a checkpoint: what was changed before is in the snapshot, what is changed after is
    /// not. Touches no entry; O(states · (origins + open snapshots)).
    ///
    /// # Errors
    ///
    /// [`HeapError::BaseForgotten`] if the base is not remembered, was not written or is not of this life: freeze
    /// without one then. [`HeapError::IdNotAbove`], [`HeapError::BaseNotAllowed`], [`HeapError::TooManySnapshots`],
    /// [`HeapError::EpochsExhausted`], [`HeapError::OriginsExhausted`]. After an error nothing has changed.
    pub fn freeze(&mut self, request: FreezeRequest) -> Result<HeapSnapshot, HeapError> {
        let base = self.check_freeze(request)?;
        let epoch = self.turn.interval;
        let cuts = request.kind != FreezeKind::Savepoint;
        let next = Epoch(epoch.0.checked_add(1).ok_or(HeapError::EpochsExhausted)?);
        let stamp = self.turn.clock.freeze().ok_or(HeapError::EpochsExhausted)?;
        if cuts {
            self.trigger(request.base, stamp);
        }
        // Looked up again: the trigger may have settled rewrites in its chain.
        let base = base.and_then(|base| self.lineage.base(base.id));
        let rewrite = base.as_ref().filter(|_| self.may_rewrite()).map(|base| RewriteStart {
            epoch,
            id: request.id,
            ancestors: base.rewrites.clone(),
            outcome: OutcomeSlot::default(),
        });
        let facts = FreezeFacts {
            stamp,
            base: base.as_ref().map(|base| base.epoch),
            cut: cuts.then_some(request.id),
            rewrite: rewrite.as_ref(),
        };
        let turn = &self.turn;
        let states = self.states.iter_mut().map(|state| state.freeze(facts, turn)).collect();
        let slot = cuts.then(|| {
            self.turn.epochs.push(request.id);
            self.turn.interval = next;
            let of_base = base.as_ref().map(|base| base.rewrites.clone()).unwrap_or_default();
            self.lineage.push(request.id, epoch, ChainRewrites { of_base, own: rewrite.is_some() })
        });
        self.turn.boundaries = self.lineage.boundaries();
        if let Some(oldest) = self.lineage.oldest_element() {
            self.turn.epochs.forget_below(oldest);
            self.forget_completed_below(oldest);
        }
        self.newest = Some(request.id);
        Ok(HeapSnapshot::new(SnapshotParts {
            id: request.id,
            base,
            epoch,
            states,
            layout: self.layout,
            slot,
            epochs: self.turn.epochs.clone(),
            segments: Arc::clone(&self.segments),
            counters: Arc::clone(&self.turn.counters),
            open: Arc::clone(&self.open),
            policy: self.policy.clone(),
            rewrite: rewrite.map(|start| start.outcome),
            completed: Arc::clone(&self.completed),
            places: self.places.clone(),
        }))
    }

    /// The trigger names a base: what that settles is settled.
    fn trigger(&mut self, base: Option<CheckpointId>, stamp: Stamp) {
        let ended = Epoch(self.turn.interval.0.saturating_sub(1));
        let settlement = self.lineage.trigger(base, ended);
        self.turn.floor = self.lineage.floor();
        if let Some(base) = base {
            self.note_completed(base);
        }
        for (index, state) in self.states.iter_mut().enumerate() {
            state.settle(&settlement, stamp, index);
        }
    }

    /// Whether one more checkpoint may rewrite: few wait to be settled, and there are labels for them.
    fn may_rewrite(&self) -> bool {
        const UNSETTLED_MAX: usize = 4;
        const ORIGINS_LEFT_MIN: usize = 4096;
        self.policy.is_some()
            && self.lineage.unsettled() < UNSETTLED_MAX
            && self.states.iter().all(|state| state.origins_left() >= ORIGINS_LEFT_MIN)
    }

    fn note_completed(&mut self, id: CheckpointId) {
        if let Err(at) = self.completed.binary_search(&id) {
            Arc::make_mut(&mut self.completed).insert(at, id);
        }
    }

    fn forget_completed_below(&mut self, oldest: CheckpointId) {
        // Seldom, as it may copy the list.
        const SLACK: usize = 64;
        if self.completed.partition_point(|id| *id < oldest) > SLACK {
            Arc::make_mut(&mut self.completed).retain(|id| *id >= oldest);
        }
    }

    fn check_freeze(&self, request: FreezeRequest) -> Result<Option<BaseFacts>, HeapError> {
        let FreezeRequest { id, base, kind } = request;
        if let Some(newest) = self.newest.filter(|newest| id <= *newest) {
            return Err(HeapError::IdNotAbove { id, newest });
        }
        if let (Some(base), FreezeKind::Full | FreezeKind::Savepoint) = (base, kind) {
            return Err(HeapError::BaseNotAllowed { id, base });
        }
        let open = self.open.load(Ordering::Acquire);
        if open >= OPEN_SNAPSHOTS_MAX {
            return Err(HeapError::TooManySnapshots { open });
        }
        // One label for the interval that ends, one for the next.
        if self.states.iter().any(|state| state.origins_left() < 2) {
            return Err(HeapError::OriginsExhausted { origins: usize::from(u16::MAX) });
        }
        base.map(|base| self.lineage.base(base).ok_or(HeapError::BaseForgotten { base })).transpose()
    }

    /// The checkpoint is complete everywhere. Older pending ones never will be. Harmless for unknown ids.
    pub fn completed(&mut self, id: CheckpointId) {
        /// How many pieces of each state are looked after.
        const TIDIED: usize = 64;
        if self.lineage.completed(id) {
            self.note_completed(id);
        }
        self.turn.boundaries = self.lineage.boundaries();
        self.states.iter_mut().for_each(|state| state.tidy(TIDIED, &self.turn));
    }

    /// The checkpoint will never be complete. Idempotent, harmless for unknown ids. No change is lost: the next
    /// checkpoint carries it. In mode [`BaseMode::Acknowledged`] it may still be a base if it was written.
    pub fn aborted(&mut self, id: CheckpointId) {
        self.lineage.aborted(id);
        self.turn.boundaries = self.lineage.boundaries();
    }

    /// Forgets every checkpoint that could be a base, so that the next one writes everything.
    ///
    /// For entries that were restored from files which no checkpoint of the job lists: those of another backend,
    /// translated on the way.
    pub fn forget_bases(&mut self) {
        self.lineage.forget();
        self.turn.boundaries = self.lineage.boundaries();
    }

    /// Figures of the moment. O(states · open snapshots · key groups).
    #[must_use]
    pub fn figures(&self) -> HeapFigures {
        let counters = &self.turn.counters;
        HeapFigures {
            entries: self.states.iter().map(|state| state.len() as u64).sum(),
            live_snapshots: self.open.load(Ordering::Acquire),
            records_held: self.states.iter().map(|state| state.held()).sum(),
            records_set_aside: counters.set_aside(),
            locked_writes: counters.locked_writes(),
            pieces_visited: counters.pieces_visited(),
            records_encoded: counters.records_encoded(),
            buckets_scanned: counters.buckets_scanned(),
        }
    }

    /// Bytes of memory of the tables and what stands beside them; not what keys and values own. O(pieces).
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.states.iter().map(|state| state.memory_bytes()).sum()
    }

    /// Checks the invariants of all states. O(entries): for tests.
    ///
    /// # Panics
    ///
    /// If one does not hold; the text names it.
    pub fn check_invariants(&self) {
        self.states.iter().for_each(|state| state.check_invariants());
    }
}

fn check_codecs(stored: &StateDescriptor, asked: &StateDescriptor) -> Result<(), HeapError> {
    let name = &stored.name;
    let parts = [
        ("key", &stored.key, &asked.key),
        ("namespace", &stored.namespace, &asked.namespace),
        ("value", &stored.value, &asked.value),
    ];
    match parts.into_iter().find(|(_, stored, asked)| stored != asked) {
        None => Ok(()),
        Some((part, stored, asked)) => Err(HeapError::StateTypeMismatch {
            name: name.clone(),
            part,
            stored: Box::new(stored.clone()),
            asked: Box::new(asked.clone()),
        }),
    }
}
