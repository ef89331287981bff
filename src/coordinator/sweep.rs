//! A sweep asked of the coordinator of a live job, which knows what is in use.

use std::collections::HashSet;

use lowtide_format::{ObjectName, ObjectPath, SequenceStep, UploadId};

use super::{Coordinator, Machine};
use crate::clock::Millis;
use crate::error::Result;
use crate::sweep::{SweepMode, SweepOptions, SweepReport, candidates, delete};

impl Coordinator {
    /// Deletes the orphans of this job's directory; any age will do. `uploads` are those that subtasks have under way:
    /// what they have stored and not acknowledged yet looks like an orphan and is not one.
    ///
    /// # Errors
    ///
    /// `fenced`; `store` if the directory could not be listed or a publish is in doubt that cannot be settled;
    /// `missing` or `corrupt` if the manifest of a retained checkpoint or savepoint cannot be read, as what it lists is
    /// unknown. Nothing is deleted then.
    pub async fn sweep(
        &mut self,
        options: SweepOptions,
        uploads: &[UploadId],
        now: Millis,
    ) -> Result<SweepReport> {
        self.check_not_fenced()?;
        self.read_unread_manifests().await?;
        let before = now.minus(options.age_millis);
        self.sequence.find_strays().await?;
        let listed = candidates(&self.store, before).await?;
        if options.mode == SweepMode::Delete {
            self.dispel(now).await?;
        }
        let in_use = self.in_use();
        let writing: HashSet<UploadId> = uploads.iter().copied().collect();
        let orphan = |object: &ObjectName| {
            let upload = ObjectPath::parse(object.as_str()).and_then(ObjectPath::upload);
            !upload.is_some_and(|upload| writing.contains(&upload))
                && !in_use.contains(object)
                && !self.machine.registry.contains_object(object)
        };
        let orphans: Vec<ObjectName> = listed.into_iter().filter(orphan).collect();
        if options.mode == SweepMode::DryRun || orphans.is_empty() {
            return Ok(SweepReport { orphans, failed: Vec::new() });
        }
        // The boundary stays where it is: this coordinator will publish what its subtasks are uploading now. The member
        // proves that nobody has taken over before the listing.
        let step = SequenceStep::SweepBoundary { before_millis: self.sweep_boundary.0 };
        self.append(step, Machine::truth, now).await?;
        let report = delete(&self.store, orphans).await;
        self.hand_over_free();
        self.deleter.prune().await;
        Ok(report)
    }

    /// Manifests that are published or about to be.
    fn in_use(&self) -> HashSet<ObjectName> {
        let completed = self.machine.checkpoints.values().chain(self.machine.savepoints.values());
        let published = completed.map(|completed| completed.reference.manifest.clone());
        let doubts = self.doubts.iter().map(|doubtful| &doubtful.attempt);
        let attempts = self.attempts.values().chain(doubts);
        published.chain(attempts.map(|attempt| attempt.reference.manifest.clone())).collect()
    }

    /// A manifest that was damaged at the start left the registry without its files: a sweep would take them.
    async fn read_unread_manifests(&self) -> Result<()> {
        let completed = self.machine.checkpoints.iter().chain(&self.machine.savepoints);
        for (id, completed) in completed {
            if !self.machine.registry.contains(self.machine.holder(*id)) {
                super::read_manifest(&self.store, &completed.reference).await?;
            }
        }
        Ok(())
    }
}
