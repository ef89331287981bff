//! Messages that reach the coordinator of another job, as they do where a job was replaced and its subtasks do not know
//! it yet. Test support of scenario scripts.

use lowtide_format::{CheckpointId, Generation};

use super::Job;
use super::attempt::Phase;
use super::steps::Step;
use crate::backend::Backend;
use crate::coordinator::Acknowledgement;

impl<B: Backend> Job<B> {
    /// What a subtask that has written would tell its coordinator; none if it has not, or has told it already.
    pub(crate) fn message(&self, id: CheckpointId, subtask: u32) -> Option<(Generation, Acknowledgement)> {
        let attempt = self.subtasks.get(usize::try_from(subtask).ok()?)?.attempts.get(&id)?;
        match &attempt.phase {
            Phase::Written(part) => Some((attempt.generation, (**part).clone())),
            Phase::Frozen(_) | Phase::Writing | Phase::Acknowledged => None,
        }
    }

    /// The coordinator is told something by a subtask of another job.
    pub(crate) async fn receive(
        &mut self,
        id: CheckpointId,
        subtask: u32,
        (generation, part): (Generation, Acknowledgement),
    ) -> Step {
        let answer = self.coordinator.acknowledge(id, generation, subtask, part, self.clock.now()).await;
        self.follow(answer)
    }
}
