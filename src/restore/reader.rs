//! Reads key groups that are restored already while the rest of a job's restore goes on.
//!
//! Owns: which attempt is read, that all subtasks stay readable until the last one is loaded, how readers end. Does not
//! own: which key groups are ready and what is in them (`lowtide-heap`), when an attempt begins and ends (`job`).
//!
//! An *attempt* reads one checkpoint. If it fails and another checkpoint is taken, readers go over to that one: an answer
//! is given only if its attempt is still the present one when it was found, and says which checkpoint it is of.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures::future::{Either, select};
use lowtide_format::{CheckpointId, Key, KeyGroup, KeyGroupCount, Lookup, Namespace, Value};
use lowtide_heap::{HeapError, HeapErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::backend::key_group_of;
use crate::error::{Error, ErrorKind, Result};

/// What readers read at present.
#[derive(Clone, Debug)]
enum Phase {
    /// No checkpoint: not yet, or not any more.
    Between,
    Reading(Arc<Attempt>),
    /// There is a job.
    Started,
    /// There will be no job.
    Failed,
}

/// One checkpoint that is being read.
#[derive(Clone, Debug)]
struct Attempt {
    checkpoint: CheckpointId,
    key_groups: KeyGroupCount,
    /// Of the subtasks that have begun.
    subtasks: Vec<lowtide_heap::RestoreReader>,
}

impl Attempt {
    fn reader_of(&self, key_group: KeyGroup) -> Option<&lowtide_heap::RestoreReader> {
        self.subtasks.iter().find(|subtask| subtask.range().contains(key_group))
    }
}

/// Reads a job's entries while it is being restored, from any task or thread: key groups that are restored answer, others
/// say `not-ready`, or are waited for. Got from [`JobBuilder::reader`](crate::JobBuilder::reader); clones share everything.
///
/// A key group is ready once no file to come lists it; it stays so until all subtasks are loaded. Then nothing is ready,
/// for the moment that the subtasks take to take over what was loaded and the job to start, and whoever waits is told.
/// Restores with a reader take what has arrived of the files instead of collecting it, and cost a little more for it.
///
/// A restore may begin again with another checkpoint: with an older one because of damage
/// ([`OnDamage::FallBack`](crate::OnDamage::FallBack)), with a newer one because the first was let go. From then on nothing
/// of the first is served any more. Each value says which checkpoint it is of, so that values of two are never taken for
/// one state; what was read of a checkpoint that the job was not restored from in the end is to be thrown away.
///
/// RocksDB's backend opens its tables as a whole: nothing is ready there before the job is.
///
/// # Errors
///
/// All methods end with kind `restored` once there is a job, also one that starts empty: read from it. They end with
/// `cancelled` if the restore failed or was dropped.
#[derive(Clone)]
pub struct RestoreReader {
    phase: Arc<watch::Sender<Phase>>,
}

impl fmt::Debug for RestoreReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreReader").field("checkpoint", &self.checkpoint()).finish_non_exhaustive()
    }
}

/// What was read, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredValue<V> {
    /// The checkpoint that was being restored.
    pub checkpoint: CheckpointId,
    /// The value; none if the checkpoint has no such key.
    pub value: Option<V>,
}

fn not_ready(key_group: KeyGroup) -> Error {
    Error::new(ErrorKind::NotReady, format!("{key_group} is not restored yet; wait until it is ready"))
}

impl RestoreReader {
    /// The checkpoint that is being read; none before the first file is, between two attempts, and after the end.
    #[must_use]
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        match &*self.phase.borrow() {
            Phase::Reading(attempt) => Some(attempt.checkpoint),
            _ => None,
        }
    }

    /// Whether a key group can be read now.
    #[must_use]
    pub fn is_ready(&self, key_group: KeyGroup) -> bool {
        match &*self.phase.borrow() {
            Phase::Reading(attempt) => {
                attempt.reader_of(key_group).is_some_and(|reader| reader.is_ready(key_group))
            }
            _ => false,
        }
    }

    /// Waits until a key group can be read, over all attempts; returns the checkpoint it is of.
    ///
    /// # Errors
    ///
    /// `restored` and `cancelled` if the restore has ended or does so meanwhile; `invalid-argument` if the job has no such
    /// key group.
    pub async fn ready(&self, key_group: KeyGroup) -> Result<CheckpointId> {
        let mut changes = self.phase.subscribe();
        loop {
            let phase = changes.borrow_and_update().clone();
            let attempt = present(phase)?;
            if let Some(count) = attempt.as_ref().map(|attempt| attempt.key_groups)
                && key_group.0 >= count.get()
            {
                let message = format!("there is no {key_group}, the job has {count} key groups");
                return Err(Error::invalid_argument(message));
            }
            let reader = attempt.as_ref().and_then(|attempt| attempt.reader_of(key_group));
            // The sender lives in `self`: a change can always be waited for.
            let changed = std::pin::pin!(changes.changed());
            let Some(reader) = reader else {
                let _ = changed.await;
                continue;
            };
            match select(reader.ready(key_group), changed).await {
                Either::Left((Ok(()), _)) => return Ok(reader.checkpoint()),
                // The attempt ends, and says how next.
                Either::Left((Err(_), changed)) => drop(changed.await),
                Either::Right(_) => {}
            }
        }
    }

    /// The value state of that name, to read. Nothing is checked yet: there may be no such state, which has no entries.
    ///
    /// States that are declared ([`HeapSettings::declare`](crate::HeapSettings::declare)) are read as they are; of others
    /// each value that is found is decoded.
    #[must_use]
    pub fn value_state<K: Key, V: Value, N: Namespace>(&self, name: &str) -> RestoringState<K, V, N> {
        RestoringState { reader: self.clone(), name: name.into(), state: Arc::default() }
    }
}

/// What is to be read of a phase; none if nothing is at present.
fn present(phase: Phase) -> Result<Option<Arc<Attempt>>> {
    match phase {
        Phase::Between => Ok(None),
        Phase::Reading(attempt) => Ok(Some(attempt)),
        Phase::Started => Err(Error::new(ErrorKind::Restored, "the job has started; read from it")),
        Phase::Failed => {
            let message = "the restore ended without a job; restore again and take a new reader";
            Err(Error::cancelled(message))
        }
    }
}

/// A value state of a job that is being restored. Cloning is cheap.
pub struct RestoringState<K: Key, V: Value, N: Namespace = ()> {
    reader: RestoreReader,
    name: Arc<str>,
    /// The state as some subtask sees it.
    state: Arc<OnceLock<lowtide_heap::RestoringState<K, N, V>>>,
}

impl<K: Key, V: Value, N: Namespace> Clone for RestoringState<K, V, N> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), name: Arc::clone(&self.name), state: Arc::clone(&self.state) }
    }
}

impl<K: Key, V: Value, N: Namespace> RestoringState<K, V, N> {
    /// The value of a key in a namespace, cloned. O(subtasks + states) and one look-up.
    ///
    /// # Errors
    ///
    /// `not-ready` if the key's group is not ready; `incompatible` if it holds entries of the state that are of other
    /// types, `corrupt` if the value is none of its type; `restored` and `cancelled` once the restore has ended.
    pub fn get_in<Q: Lookup<K> + ?Sized>(&self, namespace: &N, key: &Q) -> Result<RestoredValue<V>> {
        loop {
            let phase = self.reader.phase.borrow().clone();
            let Some(attempt) = present(phase)? else {
                let message = "nothing of the job is restored yet; wait until the key's group is ready";
                return Err(Error::new(ErrorKind::NotReady, message));
            };
            let key_group = key_group_of::<K, Q>(key, attempt.key_groups);
            let subtask = attempt.reader_of(key_group).ok_or_else(|| not_ready(key_group))?;
            let state = self.state.get_or_init(|| subtask.value_state(&self.name));
            let value =
                state.of(subtask).get_in(namespace, key).map_err(|error| refused(error, key_group))?;
            // Not of a checkpoint that was given up while it was read.
            let checkpoint = attempt.checkpoint;
            if self.reader.checkpoint() == Some(checkpoint) {
                return Ok(RestoredValue { checkpoint, value });
            }
        }
    }

    /// The value of a key in a namespace, as soon as its key group is ready.
    ///
    /// # Errors
    ///
    /// As [`get_in`](Self::get_in), never `not-ready`.
    pub async fn get_when_ready_in<Q: Lookup<K> + ?Sized>(
        &self,
        namespace: &N,
        key: &Q,
    ) -> Result<RestoredValue<V>> {
        let mut changes = self.reader.phase.subscribe();
        loop {
            let phase = changes.borrow_and_update().clone();
            match present(phase)? {
                None => drop(changes.changed().await),
                Some(attempt) => {
                    self.reader.ready(key_group_of::<K, Q>(key, attempt.key_groups)).await?;
                    match self.get_in(namespace, key) {
                        // The attempt ended in between.
                        Err(error) if error.kind() == ErrorKind::NotReady => {}
                        read => return read,
                    }
                }
            }
        }
    }
}

impl<K: Key, V: Value> RestoringState<K, V> {
    /// The value of a key, in a state without namespaces. See [`RestoringState::get_in`].
    ///
    /// # Errors
    ///
    /// As [`RestoringState::get_in`].
    pub fn get<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<RestoredValue<V>> {
        self.get_in(&(), key)
    }

    /// The value of a key as soon as its key group is ready. See [`RestoringState::get_when_ready_in`].
    ///
    /// # Errors
    ///
    /// As [`RestoringState::get_when_ready_in`].
    pub async fn get_when_ready<Q: Lookup<K> + ?Sized>(&self, key: &Q) -> Result<RestoredValue<V>> {
        self.get_when_ready_in(&(), key).await
    }
}

/// Why a subtask did not answer. One whose restore has ended belongs to an attempt that ends.
fn refused(error: HeapError, key_group: KeyGroup) -> Error {
    match error.kind() {
        HeapErrorKind::NotReady | HeapErrorKind::Restored | HeapErrorKind::Abandoned => not_ready(key_group),
        _ => error.into(),
    }
}

/// The readers of one start of a job, which end with it.
#[derive(Debug)]
pub(crate) struct Readers(RestoreReader);

impl Readers {
    pub(crate) fn new() -> Self {
        Self(RestoreReader { phase: Arc::new(watch::Sender::new(Phase::Between)) })
    }

    pub(crate) fn reader(&self) -> RestoreReader {
        self.0.clone()
    }

    /// A checkpoint is read by `subtasks`, so many at a time.
    pub(crate) fn attempt(
        &self,
        (checkpoint, key_groups): (CheckpointId, KeyGroupCount),
        (subtasks, at_a_time): (usize, usize),
    ) -> ReadAttempt {
        let phase = Arc::clone(&self.0.phase);
        let attempt = Attempt { checkpoint, key_groups, subtasks: Vec::new() };
        phase.send_replace(Phase::Reading(Arc::new(attempt)));
        ReadAttempt { phase, turns: Semaphore::new(at_a_time), loading: watch::Sender::new(subtasks) }
    }

    /// There is a job.
    pub(crate) fn started(self) {
        self.0.phase.send_replace(Phase::Started);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.phase.send_if_modified(|phase| {
            let failed = !matches!(phase, Phase::Started);
            if failed {
                *phase = Phase::Failed;
            }
            failed
        });
    }
}

/// An attempt to restore a checkpoint that is read meanwhile. Readers go over to the next one when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadAttempt {
    phase: Arc<watch::Sender<Phase>>,
    /// For the subtasks that load at a time.
    turns: Semaphore,
    /// How many subtasks are not loaded yet.
    loading: watch::Sender<usize>,
}

impl ReadAttempt {
    /// Waits for a subtask's turn to load.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// What a subtask has loaded is read by this.
    pub(crate) fn offer(&self, reader: &lowtide_heap::RestoreReader) {
        self.phase.send_modify(|phase| {
            if let Phase::Reading(attempt) = phase {
                Arc::make_mut(attempt).subtasks.push(reader.clone());
            }
        });
    }

    /// A subtask is loaded: the next one has its turn. Returns when all are, so that what is ready stays so until then.
    pub(crate) async fn loaded(&self) {
        self.turns.add_permits(1);
        let mut loading = self.loading.subscribe();
        self.loading.send_modify(|subtasks| *subtasks = subtasks.saturating_sub(1));
        // The sender lives in `self`.
        let _ = loading.wait_for(|subtasks| *subtasks == 0).await;
    }
}

impl Drop for ReadAttempt {
    fn drop(&mut self) {
        self.phase.send_modify(|phase| {
            if matches!(phase, Phase::Reading(_)) {
                *phase = Phase::Between;
            }
        });
    }
}
