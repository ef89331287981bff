//! When the next periodic checkpoint is due, and whether too many have failed.

use lowtide_format::CheckpointId;

use super::event::AbortReason;
use super::options::CoordinatorOptions;
use crate::clock::Millis;

/// When the next periodic checkpoint is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now.
    Now,
    /// Not before that time.
    At(Millis),
    /// After a pending checkpoint has ended.
    Blocked,
    /// Never: checkpoints are triggered by hand.
    Never,
}

/// Times and failures of past checkpoints.
///
/// Periodic checkpoints keep the interval from the last trigger and the pause from the last *completion*; those asked
/// for by hand, and savepoints, keep neither. A checkpoint counts as failed once, and only if no newer one completed;
/// a completion starts the count anew.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    last_trigger: Option<Millis>,
    last_completion: Option<Millis>,
    newest_completed: Option<CheckpointId>,
    failures: u32,
}

impl Schedule {
    pub(crate) fn triggered(&mut self, now: Millis) {
        self.last_trigger = Some(now);
    }

    pub(crate) fn completed(&mut self, id: CheckpointId, now: Millis) {
        self.last_completion = Some(now);
        self.newest_completed = self.newest_completed.max(Some(id));
        self.failures = 0;
    }

    pub(crate) fn aborted(&mut self, id: CheckpointId, reason: AbortReason) {
        if reason.is_failure() && self.newest_completed < Some(id) {
            self.failures = self.failures.saturating_add(1);
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn due(&self, options: &CoordinatorOptions, pending: usize, now: Millis) -> Due {
        let Some(interval) = options.interval_millis else { return Due::Never };
        if pending >= options.concurrent_max as usize {
            return Due::Blocked;
        }
        // As users know it, an interval below the pause is raised to it.
        let interval = interval.max(options.pause_min_millis);
        let after_trigger = self.last_trigger.map(|at| at.plus(interval));
        let after_completion = self.last_completion.map(|at| at.plus(options.pause_min_millis));
        match after_trigger.max(after_completion) {
            Some(at) if at > now => Due::At(at),
            _ => Due::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use lowtide_format::{KeyGroup, KeyGroupCount, KeyGroupRange};

    use super::*;

    fn options() -> CoordinatorOptions {
        let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(7)).unwrap();
        let mut options = CoordinatorOptions::new("a", "heap", KeyGroupCount::new(8).unwrap(), vec![range]);
        options.interval_millis = Some(100);
        options.pause_min_millis = 40;
        options
    }

    fn id(id: u64) -> CheckpointId {
        CheckpointId::new(id).unwrap()
    }

    #[test]
    fn the_pause_counts_from_the_last_completion_not_from_a_failure() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.due(&options(), 0, Millis(0)), Due::Now);
        schedule.triggered(Millis(0));
        schedule.aborted(id(1), AbortReason::Expired);
        assert_eq!(schedule.due(&options(), 0, Millis(100)), Due::Now, "a failure starts no pause");
        schedule.completed(id(2), Millis(90));
        assert_eq!(schedule.due(&options(), 0, Millis(100)), Due::At(Millis(130)));
        assert_eq!(schedule.due(&options(), 1, Millis(200)), Due::Blocked);
    }

    #[test]
    fn an_interval_below_the_pause_is_raised_to_it_and_none_is_never_due() {
        let mut options = options();
        options.interval_millis = Some(10);
        let mut schedule = Schedule::default();
        schedule.triggered(Millis(0));
        assert_eq!(schedule.due(&options, 0, Millis(10)), Due::At(Millis(40)));
        options.interval_millis = None;
        assert_eq!(schedule.due(&options, 0, Millis(10)), Due::Never);
    }

    #[test]
    fn failures_count_in_a_row_and_only_above_the_newest_completed() {
        let mut schedule = Schedule::default();
        schedule.aborted(id(1), AbortReason::Declined);
        schedule.aborted(id(2), AbortReason::Overtaken);
        schedule.aborted(id(3), AbortReason::Requested);
        assert_eq!(schedule.failures(), 1, "neither being overtaken nor being asked is a failure");
        schedule.completed(id(5), Millis(0));
        schedule.aborted(id(4), AbortReason::Expired);
        assert_eq!(schedule.failures(), 0, "older than the newest completed");
    }
}
