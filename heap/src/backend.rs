//! One subtask's state: named states over a range of key groups, frozen and restored together.
//!
//! Owns: the states, the present interval, which freezes may become bases. Does not own: the entries (`map`),
//! what a snapshot writes (`snapshot`), files and their transport (the caller).

mod protocol;
mod restored;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lowtide_format::{
    AutoCodec, CheckpointId, Codec, Key, KeyGroupCount, KeyGroupRange, Namespace, StateDescriptor, Value,
};
use smallvec::SmallVec;

use crate::codecs::{Chosen, Raw, StateCodecs, Typed};
use crate::encode::Antimatter;
use crate::epochs::{Epoch, Epochs};
use crate::erased::ErasedState;
use crate::error::HeapError;
use crate::handover::Clock;
use crate::lineage::{BaseMode, Lineage};
use crate::map::{Layout, StateMap};
use crate::places::Places;
use crate::rewrite::RewritePolicy;
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
    /// The checkpoint that the delta is taken against; `None` writes every entry. One that this backend has frozen or was
    /// restored from: another job may have published its own under the same id, which only the caller can tell.
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
    states: Vec<ErasedState>,
    turn: Turn,
    lineage: Lineage,
    newest: Option<CheckpointId>,
    open: Arc<AtomicUsize>,
    segments: Arc<AtomicU32>,
    policy: Option<Arc<dyn RewritePolicy>>,
    antimatter: Antimatter,
    /// Completed checkpoints, ascending, as far back as elements may be listed.
    completed: Arc<Vec<CheckpointId>>,
    /// The last that was told of them.
    noted: Option<CheckpointId>,
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
            logs_every_removal: false,
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
            antimatter: Antimatter::default(),
            completed: Arc::default(),
            noted: None,
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

    /// Says when tombstones are written, from the next freeze on. A removal is remembered by what was said before it.
    pub fn set_antimatter(&mut self, antimatter: Antimatter) {
        self.antimatter = antimatter;
        self.turn.logs_every_removal = antimatter == Antimatter::Always;
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
        self.value_state_by(name, Typed::new(AutoCodec))
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
        self.value_state_by(name, Typed::new(Chosen(codec)))
    }

    fn value_state_by<K: Key, N: Namespace, V: Value, C: Codec<V> + 'static>(
        &mut self,
        name: &str,
        typed: Typed<C>,
    ) -> Result<ValueState<K, N, V>, HeapError> {
        let descriptor = Arc::new(typed.descriptor::<K, N, V>(name));
        let codecs: Arc<dyn StateCodecs<K, N, V>> = Arc::new(typed);
        let number = self.turn.clock.number();
        if let Some(index) = self.states.iter().position(|state| state.descriptor().name == name) {
            self.open_state::<K, N, V>(index, descriptor, codecs)?;
            return Ok(ValueState::new(index as u16, number));
        }
        let index =
            self.add_state(ErasedState::new(StateMap::new(Arc::clone(&descriptor), codecs, self.layout)))?;
        Ok(ValueState::new(index, number))
    }

    /// Adds a state that does not exist yet.
    fn add_state(&mut self, state: ErasedState) -> Result<u16, HeapError> {
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

    fn open_state<K: Key, N: Namespace, V: Value>(
        &mut self,
        index: usize,
        descriptor: Arc<StateDescriptor>,
        codecs: Arc<dyn StateCodecs<K, N, V>>,
    ) -> Result<(), HeapError> {
        let Some(state) = self.states.get_mut(index) else { return Err(HeapError::ForeignState) };
        check_codecs(state.descriptor(), &descriptor)?;
        if state.of_types::<K, N, V>().is_some() {
            return Ok(());
        }
        let name = descriptor.name.clone();
        let Some(untyped) = state.of_types_mut::<Raw, Raw, Raw>() else {
            return Err(HeapError::StateTypesDiffer { name });
        };
        let typed = untyped.typed(descriptor, codecs, &self.turn);
        *state = ErasedState::new(typed.map_err(|source| HeapError::record(&name, "an entry", source))?);
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
        match known.and_then(|map| map.of_types()) {
            Some(map) => Ok(StateRef::new(map)),
            None => Err(HeapError::ForeignState),
        }
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
        match known.and_then(|map| map.of_types_mut()) {
            Some(map) => Ok(StateMut::new(map, &self.turn)),
            None => Err(HeapError::ForeignState),
        }
    }

    /// The states, in the order in which they came into being.
    pub fn descriptors(&self) -> impl Iterator<Item = &StateDescriptor> {
        self.states.iter().map(|state| &**state.descriptor())
    }

    /// Figures of the moment. O(states · open snapshots · key groups).
    #[must_use]
    pub fn figures(&self) -> HeapFigures {
        let counters = &self.turn.counters;
        HeapFigures {
            entries: self.states.iter().map(|state| state.len() as u64).sum(),
            live_snapshots: self.open.load(Ordering::Acquire),
            records_held: self.states.iter().map(|state| state.held()).sum(),
            records_set_aside: self.records_set_aside(),
            locked_writes: counters.locked_writes(),
            pieces_visited: counters.pieces_visited(),
            records_encoded: counters.records_encoded(),
            buckets_scanned: counters.buckets_scanned(),
        }
    }

    /// Of the [`figures`](Self::figures), [`HeapFigures::records_set_aside`] alone. O(1).
    #[must_use]
    pub fn records_set_aside(&self) -> u64 {
        self.turn.counters.set_aside()
    }

    /// Bytes of memory of the tables and what stands beside them; not what keys and values own. O(pieces).
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.states.iter().map(|state| state.memory_bytes()).sum()
    }

    /// Buckets of all tables, filled or not. O(pieces).
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.states.iter().map(|state| state.buckets()).sum()
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

pub(crate) fn check_codecs(stored: &StateDescriptor, asked: &StateDescriptor) -> Result<(), HeapError> {
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
