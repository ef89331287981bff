//! Removing orphans: objects under our prefix that no manifest named by the sequence lists.
//!
//! Owns: which objects a sweep takes, and in which order it reads, appends and deletes. Does not own: the sequence
//! (`publish`), what a live coordinator knows to be in use (`coordinator`).
//!
//! # Order
//!
//! 1. List the objects.
//! 2. Read the sequence, and every manifest that it names. If one cannot be read, nothing is swept.
//! 3. Append a sweep boundary. In a live job it proves that this coordinator still is the one: what was listed before
//!    and is not known to it belongs to nobody, as a later coordinator's objects are younger than the listing. From
//!    another process it says which uploads will be taken: a publish that lists an older one is refused.
//! 4. Delete.
//!
//! Whatever is published between 2 and 4 lists only files of the base, which the sweep has seen listed, or files that
//! the boundary protects.
//!
//! Step 3 is left out where the newest member says it already. If that is a boundary as late as this one, whoever
//! appends after it knows it. If it is the end of a generation, then what was listed before it was read, and no manifest
//! lists, belongs to generations that are over: whoever takes over later uploads later.

use std::collections::HashSet;

use lowtide_format::broken::{Break, is_broken};
use lowtide_format::{ObjectClass, ObjectName, ObjectPath, SequenceMember, SequenceStep, Store, UploadId};

use crate::clock::{Millis, UploadIdSource};
use crate::coordinator::{Deleter, read_manifest};
use crate::error::{Error, ErrorKind, Result};
use crate::publish::{AppendError, Sequence};

/// How often a sweep starts over because somebody appended to the sequence meanwhile.
const STARTS_MAX: usize = 16;

/// What a sweep takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// Orphans whose upload began this long ago, in milliseconds; by the time in their upload ids, never by the
    /// store's.
    pub age_millis: u64,
    /// Whether orphans are deleted, or only named.
    pub mode: SweepMode,
    /// The checkpoint timeout of the job. From outside the job a smaller age is refused, unless the job has stopped in
    /// order: what a running checkpoint has uploaded looks like an orphan.
    pub timeout_millis: u64,
}

/// Whether orphans are deleted, or only named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepMode {
    /// Deleted.
    Delete,
    /// Only named; nothing is written.
    DryRun,
}

impl Default for SweepOptions {
    /// Orphans of a day and more are deleted; ten minutes of checkpoint timeout.
    fn default() -> Self {
        Self { age_millis: 86_400_000, mode: SweepMode::Delete, timeout_millis: 600_000 }
    }
}

/// What a sweep has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The orphans, in name order; in a dry run those that would be deleted.
    pub orphans: Vec<ObjectName>,
    /// Those among them that could not be deleted; a later sweep finds them again.
    pub failed: Vec<ObjectName>,
}

/// Sweeps the directory `store` from outside its job.
///
/// # Errors
///
/// `invalid-argument` if the age is below the checkpoint timeout and the job has not stopped in order; `not-found` if
/// there is no job; `store`, `corrupt`, `missing` if the sequence or a manifest cannot be read: nothing is deleted then.
pub async fn sweep_directory(
    store: &Store,
    options: SweepOptions,
    now: Millis,
    ids: &UploadIdSource,
) -> Result<SweepReport> {
    let before = now.minus(options.age_millis);
    for _ in 0..STARTS_MAX {
        let stale = if is_broken(Break::SweepReadsFirst) {
            Sequence::read(store.clone()).await?.head().cloned()
        } else {
            None
        };
        let listed = candidates(store, before).await?;
        let mut sequence = Sequence::read(store.clone()).await?;
        let Some(head) = sequence.head().cloned() else {
            return Err(Error::not_found(format!("there is no job in {}", store.location())));
        };
        let stopped = head.step == SequenceStep::Stop;
        if !stopped && options.age_millis < options.timeout_millis {
            return Err(Error::invalid_argument(format!(
                "an age of {} ms is below the checkpoint timeout of {} ms, and the job has not stopped; ask it to sweep",
                options.age_millis, options.timeout_millis
            )));
        }
        let needed = match needed_objects(store, stale.as_ref().unwrap_or(&head)).await {
            // The job has let the checkpoint go meanwhile.
            Err(error) if error.kind() == ErrorKind::Missing && !sequence.is_newest().await? => continue,
            needed => needed?,
        };
        let orphans: Vec<ObjectName> = listed.into_iter().filter(|object| !needed.contains(object)).collect();
        if options.mode == SweepMode::DryRun || orphans.is_empty() {
            return Ok(SweepReport { orphans, failed: Vec::new() });
        }
        // Everything that was begun up to `before` is taken, so the boundary lies behind it.
        let before_millis = before.0.saturating_add(1);
        let said = stopped || head.sweep_boundary_millis >= before_millis;
        if said || is_broken(Break::SweepWithoutBoundary) {
            return Ok(delete(store, orphans).await);
        }
        let after_boundary = matches!(head.step, SequenceStep::SweepBoundary { .. });
        let boundary = SequenceMember {
            number: sequence.next_number(),
            token: ids.next(now),
            created_millis: now.0,
            step: SequenceStep::SweepBoundary { before_millis },
            sweep_boundary_millis: head.sweep_boundary_millis.max(before_millis),
            ..head
        };
        match sequence.append(boundary).await {
            Ok(()) => {
                let report = delete(store, orphans).await;
                // After a boundary, which member the job knows cannot be told.
                if !after_boundary {
                    let deleter = Deleter::new(store.clone());
                    deleter.add_members(sequence.take_superseded_beside());
                    deleter.prune().await;
                }
                return Ok(report);
            }
            Err(AppendError::Fenced { .. } | AppendError::Moved | AppendError::Settled(_)) => {}
            Err(
                AppendError::NotApplied(error)
                | AppendError::Doubtful(error)
                | AppendError::Unreadable(error),
            ) => {
                return Err(error);
            }
        }
    }
    Err(Error::new(ErrorKind::Store, "the job appends faster than the sweep can read, try again"))
}

/// Manifests and data objects whose upload began before `before`, in name order. What is not spelled as one of ours is
/// left alone.
pub(crate) async fn candidates(store: &Store, before: Millis) -> Result<Vec<ObjectName>> {
    let mut found = Vec::new();
    for class in [ObjectClass::Data, ObjectClass::Manifest] {
        for object in store.list(class).await? {
            let parsed = ObjectPath::parse(&object.path);
            let upload = parsed.and_then(ObjectPath::upload).map(UploadId::millis);
            if let (Some(parsed), Some(millis)) = (parsed, upload)
                && millis <= before.0
            {
                found.push(parsed.name());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Everything that the newest member names, and what the manifests list.
async fn needed_objects(store: &Store, head: &SequenceMember) -> Result<HashSet<ObjectName>> {
    let mut needed = HashSet::new();
    for reference in head.checkpoints.iter().chain(&head.savepoints) {
        let manifest = read_manifest(store, reference).await?;
        needed.insert(reference.manifest.clone());
        needed.extend(manifest.entries().map(|entry| entry.object.clone()));
    }
    Ok(needed)
}

pub(crate) async fn delete(store: &Store, orphans: Vec<ObjectName>) -> SweepReport {
    let failed = store.delete(&orphans).await.failed;
    for (object, error) in &failed {
        tracing::warn!(object = %object, error = %error, "orphan could not be deleted");
    }
    SweepReport { orphans, failed: failed.into_iter().map(|(object, _)| object).collect() }
}
