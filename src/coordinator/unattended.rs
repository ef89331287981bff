//! The end of a generation, and decisions about a directory on which no job runs.
//!
//! Owns: the member that says that nobody is at work, and taking a directory over for one decision. Does not own: what
//! is deleted and when it is free (`machine`), sweeping such a directory (`crate::sweep`).

use lowtide_format::{CheckpointId, KeyGroupCount, SequenceStep, Store};
use lowtide_registry::Retention;

use super::deletions::DeletionReport;
use super::machine::Machine;
use super::options::CoordinatorOptions;
use super::published::read_published;
use super::start::Start;
use super::{Coordinator, UploadIdSource};
use crate::clock::Millis;
use crate::error::{Error, Result};

impl Coordinator {
    /// Says in the sequence that this generation is over: no checkpoint is pending, no subtask uploads. Another process
    /// may then sweep the directory whatever the age of an orphan is. The last thing that a coordinator does.
    ///
    /// # Errors
    ///
    /// `invalid-argument` while a checkpoint is pending; `fenced`; `store` if it may not be there: sweeps from outside
    /// then keep to the checkpoint timeout, as after a crash.
    pub async fn end(&mut self, now: Millis) -> Result<()> {
        if let Some(id) = self.machine.pending.keys().next() {
            return Err(Error::invalid_argument(format!("{id} is pending: abort it before the end")));
        }
        self.machine.forget_chains();
        self.hand_over_free();
        self.append(SequenceStep::Stop, Machine::truth, now).await?;
        self.hand_over_free();
        self.deleter.prune().await;
        Ok(())
    }
}

/// Deletes a savepoint of the directory `store`, on which no job runs: takes the directory over for that, deletes, and
/// ends. A job that runs there all the same is fenced. The savepoint may be damaged.
///
/// # Errors
///
/// `not-found` if there is no such savepoint, and then nothing is taken over; `store`, `fenced`.
pub async fn delete_savepoint(
    store: &Store,
    id: CheckpointId,
    now: Millis,
    ids: UploadIdSource,
) -> Result<DeletionReport> {
    if !read_published(store).await?.savepoints.iter().any(|savepoint| savepoint.id() == id) {
        return Err(Error::not_found(format!("there is no savepoint {id} in {}", store.location())));
    }
    // One subtask that takes no part in anything: this coordinator triggers nothing and lets nothing else go, so that
    // neither its name nor its key groups are ever written.
    let key_groups = KeyGroupCount::new(1).ok_or_else(|| Error::invalid_argument("no key group"))?;
    let options = CoordinatorOptions {
        retained: Retention::All,
        ..CoordinatorOptions::new("", "", key_groups, vec![key_groups.all()])
    };
    let (mut coordinator, _) = Coordinator::start(store.clone(), options, Start::Recover, now, ids).await?;
    coordinator.delete_savepoint(id, now).await?;
    let report = coordinator.run_deletions(now).await?;
    coordinator.end(now).await?;
    Ok(report)
}
