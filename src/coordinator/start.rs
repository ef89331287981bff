//! Taking over a directory: fresh, after the loss of its coordinator, or by a restore.
//!
//! Owns: what the first member of a generation says. Does not own: restoring state (`restore`).
//!
//! The member is appended before the manifests are read, so that nothing can be published in between. A manifest that
//! is damaged does not keep a coordinator from starting: what only it lists is left to a sweep, which in turn does not
//! run before it is gone.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use futures::StreamExt;
use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{
    CheckpointId, Generation, Manifest, PublishedRef, RestoredFrom, SequenceMember, SequenceStep, Store,
};
use lowtide_registry::{Holder, Listing, Owner, Rebuilding, Registry};

use super::deletions::Deleter;
use super::machine::{Machine, Truth};
use super::options::{Claim, CoordinatorOptions};
use super::published::{Published, PublishedCheckpoint, decode_manifest, read_manifest_bytes};
use super::view::View;
use super::{Coordinator, UploadIdSource};
use crate::clock::Millis;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::{AppendError, Sequence};

/// Manifests that are read at a time.
const MANIFESTS_IN_FLIGHT_MAX: usize = 16;

/// Manifests that are decoded while one is registered: more would be held in memory together.
const MANIFESTS_DECODED_MAX: usize = 2;

/// How often a take-over is repeated because others append at the same time.
const TAKE_OVERS_MAX: usize = 32;

/// What a coordinator starts with.
#[derive(Clone, Debug)]
pub enum Start {
    /// Nothing.
    Fresh {
        /// Start although the directory holds checkpoints or savepoints. They are neither owned nor deleted.
        force: bool,
    },
    /// What the directory holds: its coordinator is lost.
    Recover,
    /// A checkpoint that a job is restored from.
    Restore {
        /// The checkpoint or savepoint.
        from: PublishedCheckpoint,
        /// With a claim the directory is the checkpoint's own, and later checkpoints in it are abandoned; without, it
        /// must hold neither checkpoints nor savepoints, unless forced.
        claim: Claim,
        /// Start without a claim although the directory holds checkpoints or savepoints. They are neither owned nor
        /// deleted.
        force: bool,
    },
}

/// What a coordinator has found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// What is retained.
    pub published: Published,
    /// Number of data objects that the retained checkpoints list, savepoints not counted.
    pub files: usize,
}

impl Recovered {
    /// The newest completed checkpoint.
    #[must_use]
    pub fn latest(&self) -> Option<PublishedCheckpoint> {
        self.published.latest().cloned()
    }
}

/// What the first member says, and what it leaves out.
#[derive(Debug)]
struct TakeOver {
    truth: Truth,
    step: SequenceStep,
    abandoned: Vec<PublishedRef>,
}

impl Coordinator {
    /// Takes over the directory `store` by the next number of its sequence; the coordinator before is fenced.
    ///
    /// # Errors
    ///
    /// `not-empty` for a fresh start or a restore without claim, unless forced, where there are checkpoints or
    /// savepoints; `not-found` if there is nothing to recover or to claim; `store` if that could not be found out;
    /// `corrupt` and `incompatible` for a sequence that cannot be read; `invalid-argument` for settings without sense.
    pub async fn start(
        store: Store,
        options: CoordinatorOptions,
        start: Start,
        now: Millis,
        ids: UploadIdSource,
    ) -> Result<(Self, Recovered)> {
        if options.subtasks.is_empty() || options.concurrent_max == 0 {
            return Err(Error::invalid_argument(
                "a job needs a subtask, and one checkpoint pending at a time",
            ));
        }
        let (sequence, take_over) = take_over(&store, &start, now, &ids).await?;
        let Some(head) = sequence.head().cloned() else {
            return Err(Error::new(ErrorKind::Store, "the take-over is not there"));
        };
        let generation = head.generation;
        let location = store.location();
        let Found { registry, base, files } = read_manifests(&store, &head, &take_over.abandoned).await?;
        let mut machine = Machine::new(options, generation, take_over.truth, registry, base);
        machine.abandon(&take_over.abandoned);
        let mut coordinator = Self {
            deleter: Deleter::new(store.clone()),
            store,
            machine,
            ids,
            attempts: BTreeMap::new(),
            doubts: Vec::new(),
            untold: Vec::new(),
            sweep_boundary: Millis(head.sweep_boundary_millis),
            failure: None,
            sequence,
        };
        coordinator.hand_over_free();
        Ok((coordinator, Recovered { published: Published::of(Some(&head), &location), files }))
    }
}

/// Appends the first member of the next generation.
async fn take_over(
    store: &Store,
    start: &Start,
    now: Millis,
    ids: &UploadIdSource,
) -> Result<(Sequence, TakeOver)> {
    let mut last = None;
    for _ in 0..TAKE_OVERS_MAX {
        let mut sequence = Sequence::read(store.clone()).await?;
        let take_over = decide(start, sequence.head())?;
        let Truth { checkpoints, savepoints, restored_from, next_checkpoint, trash } =
            take_over.truth.clone();
        let before = sequence.head().map(|head| head.generation);
        let generation = before.map_or(Some(Generation(1)), Generation::next);
        let member = SequenceMember {
            number: sequence.next_number(),
            generation: generation
                .ok_or_else(|| Error::new(ErrorKind::LimitExceeded, "all generations are used up"))?,
            token: ids.next(now),
            created_millis: now.0,
            step: take_over.step,
            checkpoints,
            savepoints,
            sweep_boundary_millis: sequence.head().map_or(0, |head| head.sweep_boundary_millis),
            next_checkpoint,
            restored_from,
            trash,
        };
        match sequence.append(member).await {
            Ok(()) if sequence.is_newest().await? => return Ok((sequence, take_over)),
            // Somebody has taken over after us. Taking over again would only go on for ever.
            Ok(()) => return Err(sequence.fenced_error()),
            Err(AppendError::Fenced { error, .. }) => last = Some(error),
            Err(AppendError::Moved | AppendError::Settled(_)) => {}
            Err(
                AppendError::NotApplied(error)
                | AppendError::Doubtful(error)
                | AppendError::Unreadable(error),
            ) => {
                return Err(error);
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::new(ErrorKind::Store, "the sequence did not stand still")))
}

/// What the first member says, given the newest one.
fn decide(start: &Start, head: Option<&SequenceMember>) -> Result<TakeOver> {
    let holds = head.is_some_and(|head| !head.checkpoints.is_empty() || !head.savepoints.is_empty());
    let before = head.cloned().map(Truth::from).unwrap_or_default();
    let not_empty =
        || Error::new(ErrorKind::NotEmpty, "the directory holds checkpoints or savepoints already");
    let take_over = |truth| TakeOver { truth, step: SequenceStep::TakeOver, abandoned: Vec::new() };
    match start {
        Start::Fresh { force: false } if holds => Err(not_empty()),
        Start::Fresh { .. } => Ok(take_over(disowned(before))),
        Start::Recover if head.is_none() => Err(Error::not_found("there is no job in the directory")),
        Start::Recover => Ok(take_over(before)),
        Start::Restore { claim: Claim::NoClaim, force: false, .. } if holds => Err(not_empty()),
        Start::Restore { from, claim: Claim::NoClaim, .. } => {
            let location = from.location().to_owned();
            let restored_from = RestoredFrom { location, checkpoint: from.id(), claimed: false };
            Ok(take_over(Truth { restored_from: Some(restored_from), ..disowned(before) }))
        }
        Start::Restore { from, claim: Claim::Claim, .. } => claimed(before, from.id(), from.location()),
    }
}

/// A fresh start: what is there is kept, listed, and not ours. Savepoints are their user's as before.
fn disowned(mut truth: Truth) -> Truth {
    for reference in &mut truth.checkpoints {
        reference.owned = is_broken(Break::ForcedStartOwns);
    }
    Truth { restored_from: None, trash: Vec::new(), ..truth }
}

/// A claim: completed checkpoints up to the claimed one become ours, newer ones are abandoned.
fn claimed(before: Truth, id: CheckpointId, location: &str) -> Result<TakeOver> {
    let Truth { checkpoints, mut savepoints, next_checkpoint, trash, .. } = before;
    let (mut kept, mut abandoned): (Vec<_>, Vec<_>) =
        checkpoints.into_iter().partition(|reference| reference.checkpoint <= id);
    if let Some(at) = savepoints.iter().position(|reference| reference.checkpoint == id) {
        kept.push(savepoints.remove(at));
    }
    if kept.last().is_none_or(|reference| reference.checkpoint != id) {
        return Err(Error::not_found(format!("there is no completed checkpoint {id} to claim")));
    }
    // Also those that a forced start had left to nobody: what is abandoned is ours to delete.
    for reference in kept.iter_mut().chain(&mut abandoned) {
        reference.owned = true;
    }
    let restored_from = RestoredFrom { location: location.to_owned(), checkpoint: id, claimed: true };
    let truth =
        Truth { checkpoints: kept, savepoints, restored_from: Some(restored_from), next_checkpoint, trash };
    Ok(TakeOver { truth, step: SequenceStep::Claim { checkpoint: id }, abandoned })
}

/// What the manifests of a directory come to.
struct Found {
    registry: Registry,
    /// What the newest checkpoint of our own lists.
    base: Option<View>,
    /// Number of data objects that retained checkpoints of our own list.
    files: usize,
}

/// Decodes a manifest on another thread.
async fn decode_beside(
    (holder, reference, bytes): (Holder, PublishedRef, Result<Bytes>),
) -> (Holder, PublishedRef, Result<Manifest>) {
    let of = reference.clone();
    let decoded = match bytes {
        Ok(bytes) => tokio::task::spawn_blocking(move || decode_manifest(&of, &bytes))
            .await
            .unwrap_or_else(|lost| Err(Error::cancelled(format!("a manifest was not decoded: {lost}")))),
        Err(error) => Err(error),
    };
    (holder, reference, decoded)
}

/// Reads the manifests of everything that is published, and of what was abandoned just now, checkpoints first and ids
/// ascending. Damaged ones are left out.
///
/// Each is read once, and few are decoded at a time, on other threads than the one that registers them: memory is
/// O(distinct files), not O(files × checkpoints), beside the encoded bytes of those on their way.
///
/// # Errors
///
/// `store` if one could not be read.
async fn read_manifests(store: &Store, head: &SequenceMember, abandoned: &[PublishedRef]) -> Result<Found> {
    let checkpoints = head.checkpoints.iter().chain(abandoned);
    let checkpoints = checkpoints.map(|reference| (Holder::Checkpoint(reference.checkpoint), reference));
    let savepoints =
        head.savepoints.iter().map(|reference| (Holder::Savepoint(reference.checkpoint), reference));
    let wanted: Vec<_> =
        checkpoints.chain(savepoints).map(|(holder, reference)| (holder, reference.clone())).collect();
    let reads = wanted.into_iter().map(|(holder, reference)| async move {
        let bytes = read_manifest_bytes(store, &reference).await;
        (holder, reference, bytes)
    });
    let decoded = futures::stream::iter(reads).buffered(MANIFESTS_IN_FLIGHT_MAX).map(decode_beside);
    let mut manifests = std::pin::pin!(decoded.buffered(MANIFESTS_DECODED_MAX));
    let own = |reference: &&PublishedRef| reference.owned;
    let newest = head.checkpoints.iter().rfind(own).map(|reference| &reference.manifest);
    let (mut rebuilding, mut base) = (Rebuilding::new(), None);
    while let Some((holder, reference, manifest)) = manifests.next().await {
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) if error.is_damage() || error.kind() == ErrorKind::Incompatible => {
                tracing::warn!(checkpoint = %reference.checkpoint, error = %error, "manifest cannot be read");
                continue;
            }
            Err(error) => return Err(error),
        };
        if newest == Some(&reference.manifest) {
            base = Some(View::of_manifest(&manifest));
        }
        let files = manifest.files.iter().map(|file| file.entry.id()).collect();
        let owner = if reference.owned { Owner::Coordinator } else { Owner::Foreign };
        rebuilding.list(Listing { holder, files, owner })?;
    }
    let registry = rebuilding.finish();
    let kept = head.checkpoints.iter().filter(own).map(|kept| Holder::Checkpoint(kept.checkpoint));
    let objects = kept.flat_map(|holder| registry.files(holder)).map(|file| &file.object);
    let files = objects.collect::<HashSet<_>>().len();
    Ok(Found { registry, base, files })
}
