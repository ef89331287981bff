//! Starting a job: empty, from its own directory, or from a checkpoint of another job.
//!
//! Owns: the order of reading, restoring and taking over. Does not own: taking over (`coordinator`), reading
//! and decoding (`restore`).
//!
//! A recovery takes over first and reads then, so that nothing can be published in between. A restore reads first:
//! if that fails, nothing has been claimed or abandoned. What it reads may meanwhile be let go by the job that
//! runs; then it starts over with a newer checkpoint, and never goes on with a part.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::TryStreamExt;
use lowtide_format::{CheckpointId, ObjectName, Store};

use super::routing::Routing;
use super::{Job, JobBuilder, JobOptions, Notices, Subtask};
use crate::backend::{Assignment, Backend};
use crate::coordinator::{
    Claim, Coordinator, CoordinatorOptions, Published, PublishedCheckpoint, Recovered, Start, read_published,
    read_published_past_damage,
};
use crate::error::{Error, ErrorKind, Result};
use crate::restore::{ProgressSink, RestoreSource};

/// How often a restore starts over because the checkpoint it reads was let go meanwhile.
const STARTS_OVER_MAX: usize = 10;

/// What a restore does about a checkpoint that is damaged or incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Fails with an error that names the object.
    #[default]
    Refuse,
    /// Takes the next older completed checkpoint, with a warning; without a claim also past a damaged newest member of
    /// the directory's sequence.
    FallBack,
}

/// Which checkpoint a job is restored from, and what becomes of it.
#[derive(Clone, Debug)]
pub struct RestoreFrom {
    /// The source's directory in the store, relative to its root.
    pub directory: String,
    /// The checkpoint or savepoint; none takes the newest completed checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// Whether the new job owns it.
    pub claim: Claim,
    /// What to do if it is damaged.
    pub on_damage: OnDamage,
    /// Start without a claim although the job's own directory holds checkpoints or savepoints. They are neither owned
    /// nor deleted, and ids go on.
    pub force: bool,
    /// Told how far the restore is.
    pub progress: Option<ProgressSink>,
}

impl RestoreFrom {
    /// The newest completed checkpoint of the job in `directory`, not claimed; damage is refused.
    #[must_use]
    pub fn latest(directory: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            checkpoint: None,
            claim: Claim::NoClaim,
            on_damage: OnDamage::Refuse,
            force: false,
            progress: None,
        }
    }
}

/// The checkpoints that a restore may take, best first.
fn wanted(published: &Published, from: &RestoreFrom) -> Result<Vec<PublishedCheckpoint>> {
    let first = match from.checkpoint {
        Some(id) => published.get(id).ok_or_else(|| {
            Error::not_found(format!(
                "{id} is not among the checkpoints and savepoints of {}",
                from.directory
            ))
        })?,
        None => published
            .latest()
            .ok_or_else(|| Error::not_found(format!("{} has no completed checkpoint", from.directory)))?,
    };
    let mut candidates = vec![first.clone()];
    if from.on_damage == OnDamage::FallBack {
        let older = published.checkpoints.iter().rev().filter(|checkpoint| checkpoint.id() < first.id());
        candidates.extend(older.cloned());
    }
    Ok(candidates)
}

/// What is published in the source of a restore. One that may fall back and takes nothing over looks past a damaged
/// member of the sequence as well.
async fn published_for(source: &Store, from: &RestoreFrom) -> Result<Published> {
    match read_published(source).await {
        Err(error)
            if error.kind() == ErrorKind::Corrupt
                && from.on_damage == OnDamage::FallBack
                && from.claim == Claim::NoClaim =>
        {
            read_published_past_damage(source).await
        }
        read => read,
    }
}

/// Backends that hold what a checkpoint held.
struct Restored<B> {
    backends: Vec<B>,
    from: PublishedCheckpoint,
}

/// A job's directory, which is one name below the store's root, or several.
fn sub_directory(store: &Store, directory: &str) -> Result<Store> {
    Ok(store.sub(&ObjectName::new(directory)?))
}

impl<B: Backend> JobBuilder<B> {
    /// Starts an empty job in a directory that holds no checkpoint and no savepoint.
    ///
    /// # Errors
    ///
    /// `not-empty` if it does; `store` if that could not be found out.
    pub async fn create(self, store: &Store) -> Result<Job<B>> {
        self.create_as(store, Start::Fresh { force: false }).await
    }

    /// Starts an empty job whatever the directory holds: that is neither owned nor deleted, and ids go on.
    ///
    /// # Errors
    ///
    /// `store` if the directory could not be read.
    pub async fn create_forced(self, store: &Store) -> Result<Job<B>> {
        self.create_as(store, Start::Fresh { force: true }).await
    }

    async fn create_as(self, store: &Store, start: Start) -> Result<Job<B>> {
        let routing = Routing::even(self.options.subtasks, self.options.key_group_count()?)?;
        let backends = routing
            .assignments(self.options.base_mode)
            .map(|assignment| B::open(&self.options.backend, assignment))
            .collect::<Result<Vec<_>>>()?;
        let store = sub_directory(store, &self.directory)?;
        let (coordinator, _) = self.start_coordinator(&store, &routing, start).await?;
        Ok(self.assemble(store, routing, backends, coordinator))
    }

    /// Starts the job again from the newest completed checkpoint of its directory, which it takes over.
    ///
    /// # Errors
    ///
    /// `not-found` if there is none; `missing`, `corrupt` and `incompatible` naming the object; `store` if
    /// reading failed.
    pub async fn recover(self, store: &Store) -> Result<Job<B>> {
        let store = sub_directory(store, &self.directory)?;
        let routing = Routing::even(self.options.subtasks, self.options.key_group_count()?)?;
        let (coordinator, recovered) = self.start_coordinator(&store, &routing, Start::Recover).await?;
        let own = recovered.published.checkpoints.iter().rev().find(|found| found.reference().owned);
        let Some(from) = own.cloned() else {
            return Err(Error::not_found(format!(
                "job {} has no completed checkpoint to recover from",
                self.name
            )));
        };
        let backends = self.restore_backends(&store, &routing, &from, None).await?;
        let mut job = self.assemble(store, routing, backends, coordinator);
        job.restored = Some(from.id());
        Ok(job)
    }

    /// Recovers the job if its directory holds a completed checkpoint, and starts it empty if it holds nothing.
    ///
    /// # Errors
    ///
    /// As [`JobBuilder::create`] and [`JobBuilder::recover`]; a directory that cannot be read is an error, never
    /// an empty start.
    pub async fn open(self, store: &Store) -> Result<Job<B>> {
        let directory = sub_directory(store, &self.directory)?;
        if read_published(&directory).await?.checkpoints.is_empty() {
            self.create(store).await
        } else {
            self.recover(store).await
        }
    }

    /// Starts the job from a completed checkpoint or savepoint of a job, whether that runs or not.
    ///
    /// Not claimed (the default), the job writes into its own directory, nothing of the source is ever deleted,
    /// and its first checkpoint is full. Claimed, it goes on in the source's directory and owns what is there.
    ///
    /// # Errors
    ///
    /// `not-found` if there is no such checkpoint; `missing`, `corrupt` and `incompatible` naming the object;
    /// `not-empty` if the own directory of a job that does not claim holds checkpoints, unless forced; `store`.
    pub async fn restore(mut self, store: &Store, from: RestoreFrom) -> Result<Job<B>> {
        let source = sub_directory(store, &from.directory)?;
        let routing = Routing::even(self.options.subtasks, self.options.key_group_count()?)?;
        let restored = self.read_source(&source, &routing, &from).await?;
        let target = match from.claim {
            Claim::Claim => source,
            Claim::NoClaim => sub_directory(store, &self.directory)?,
        };
        if from.claim == Claim::Claim {
            self.directory = from.directory;
        }
        let id = restored.from.id();
        let start = Start::Restore { from: restored.from, claim: from.claim, force: from.force };
        let (coordinator, _) = self.start_coordinator(&target, &routing, start).await?;
        let mut job = self.assemble(target, routing, restored.backends, coordinator);
        job.restored = Some(id);
        Ok(job)
    }

    /// Reads the wanted checkpoint, starting over if it was let go meanwhile, falling back if that was asked for.
    async fn read_source(
        &self,
        source: &Store,
        routing: &Routing,
        from: &RestoreFrom,
    ) -> Result<Restored<B>> {
        for _ in 0..STARTS_OVER_MAX {
            let candidates = wanted(&published_for(source, from).await?, from)?;
            let tried = candidates.first().map(|first| first.reference().manifest.clone());
            match self.read_first_sound(source, routing, from, candidates).await {
                Err(error) if error.kind() == ErrorKind::Missing => {
                    // What is still wanted and misses a file is damaged. What was let go meanwhile is not: a newer one
                    // is there, or the one that was asked for by name is not found any more.
                    let now = wanted(&published_for(source, from).await?, from)?;
                    if now.first().map(|first| &first.reference().manifest) == tried.as_ref() {
                        return Err(error);
                    }
                    tracing::warn!(error = %error, "the checkpoint was let go while it was read, starting over");
                }
                other => return other,
            }
        }
        Err(Error::not_found(format!("no checkpoint in {} stayed long enough to be read", from.directory)))
    }

    async fn read_first_sound(
        &self,
        source: &Store,
        routing: &Routing,
        from: &RestoreFrom,
        candidates: Vec<PublishedCheckpoint>,
    ) -> Result<Restored<B>> {
        let mut first_failure = None;
        for candidate in candidates {
            match self.restore_backends(source, routing, &candidate, from.progress.clone()).await {
                Ok(backends) => return Ok(Restored { backends, from: candidate }),
                Err(error) if from.on_damage == OnDamage::FallBack && error.is_damage() => {
                    tracing::warn!(checkpoint = %candidate.id(), error = %error, "falling back to an older checkpoint");
                    first_failure.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(first_failure
            .unwrap_or_else(|| Error::not_found(format!("{} has no checkpoint", from.directory))))
    }

    async fn restore_backends(
        &self,
        store: &Store,
        routing: &Routing,
        from: &PublishedCheckpoint,
        progress: Option<ProgressSink>,
    ) -> Result<Vec<B>> {
        let manifest = Arc::new(from.manifest(store).await?);
        if manifest.key_groups != routing.key_groups() {
            return Err(Error::incompatible(format!(
                "{} has {} key groups, the job asks for {}; the number is fixed for the life of a job",
                from.id(),
                manifest.key_groups,
                routing.key_groups()
            )));
        }
        let assignments: Vec<Assignment> = routing.assignments(self.options.base_mode).collect();
        let (subtasks, at_a_time) = (assignments.len(), self.options.read.subtasks_max.max(1));
        let of = (from.id(), manifest.key_groups);
        let readers = self.readers.as_ref().map(|readers| readers.attempt(of, (subtasks, at_a_time)));
        let source = RestoreSource::new(store.clone(), manifest, self.options.read.clone(), progress);
        let source = &source.read_by(readers);
        // What is read meanwhile is kept until all subtasks are loaded, so that all of them are begun.
        let begun = if source.readers().is_some() { subtasks } else { at_a_time };
        futures::stream::iter(assignments)
            .map(|assignment| async move {
                let _turn = match source.readers() {
                    Some(readers) => readers.turn().await,
                    None => None,
                };
                B::restore(&self.options.backend, assignment, source).await
            })
            .buffered(begun)
            .try_collect()
            .await
    }

    async fn start_coordinator(
        &self,
        store: &Store,
        routing: &Routing,
        start: Start,
    ) -> Result<(Coordinator, Recovered)> {
        let options = coordinator_options(&self.name, &self.options, routing);
        Coordinator::start(store.clone(), options, start, self.clock.now(), self.uploads.clone()).await
    }

    fn assemble(self, store: Store, routing: Routing, backends: Vec<B>, coordinator: Coordinator) -> Job<B> {
        if let Some(readers) = self.readers {
            readers.started();
        }
        Job {
            name: self.name,
            options: self.options,
            store,
            routing,
            subtasks: backends.into_iter().map(Subtask::new).collect(),
            generations: vec![coordinator.generation()],
            coordinator,
            clock: self.clock,
            uploads: self.uploads,
            notices: Notices::Delivered,
            held: None,
            last_triggered: None,
            parts: BTreeMap::new(),
            retired: Vec::new(),
            deleting: None,
            untold: Vec::new(),
            rewritten: BTreeMap::new(),
            restored: None,
            not_ours: None,
        }
    }
}

pub(super) fn coordinator_options<B: Backend>(
    name: &str,
    options: &JobOptions<B>,
    routing: &Routing,
) -> CoordinatorOptions {
    let ranges = routing.ranges().collect();
    CoordinatorOptions {
        retained: options.retained,
        concurrent_max: options.concurrent_max,
        interval_millis: options.interval_millis,
        pause_min_millis: options.pause_min_millis,
        timeout_millis: options.timeout_millis,
        tolerable_failures: options.tolerable_failures,
        base_mode: options.base_mode,
        cleanup: options.cleanup,
        ..CoordinatorOptions::new(name, B::KIND, routing.key_groups(), ranges)
    }
}
