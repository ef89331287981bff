//! Cleaning the job's directory: orphans on request, and what participants are told to delete.
//!
//! Owns: what the subtasks of this job have under way, and carrying out their part of the clean-up. Does not own: which
//! objects are orphans or nobody's (`coordinator`).

use lowtide_format::{ObjectPath, UploadId};

use super::{Job, Notices};
use crate::backend::Backend;
use crate::error::Result;
use crate::sweep::{SweepOptions, SweepReport};

impl<B: Backend> Job<B> {
    /// Deletes the orphans of this job's directory: what attempts of dead generations have left. Any age will do, since
    /// the job knows what its own subtasks have under way.
    ///
    /// # Errors
    ///
    /// `fenced`; `store` if the directory could not be listed; `missing` or `corrupt` if a manifest cannot be read, as
    /// what it lists is unknown. Nothing is deleted then.
    pub async fn sweep(&mut self, options: SweepOptions) -> Result<SweepReport> {
        let attempts = self.subtasks.iter().flat_map(|subtask| subtask.attempts.values());
        let names = attempts.flat_map(|attempt| attempt.ledger.names());
        let uploads: Vec<UploadId> = names
            .filter_map(|name| ObjectPath::parse(name.as_str()))
            .filter_map(ObjectPath::upload)
            .collect();
        let now = self.clock.now();
        let report = self.coordinator.sweep(options, &uploads, now).await;
        self.deliver_untold();
        report
    }

    /// The subtasks delete what notices tell them to; nothing while they hear of nothing. Returns how many objects could
    /// not be deleted: they are told again.
    pub(super) async fn clean_up_as_participants(&mut self) -> usize {
        let mut failed = 0;
        if self.notices == Notices::Lost {
            return failed;
        }
        for subtask in 0..self.routing.subtasks() {
            let told = self.coordinator.notice(subtask).clean_up;
            if told.is_empty() {
                continue;
            }
            let outcome = self.store.delete(&told).await;
            failed += outcome.failed.len();
            self.coordinator.cleaned(subtask, &outcome.deleted);
        }
        failed
    }
}
