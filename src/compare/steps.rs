//! Cuts a stream of events into batches and says where the checkpoints fall.

use std::num::NonZeroU64;

use super::error::CompareError;
use super::event::Event;
use super::input::{Events, Input};

/// Events handed over at once: enough that the clock is not read too often, few enough to stay in cache.
const BATCH_EVENTS: usize = 512;

/// What a contender has to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Take these events, at most [`BATCH_EVENTS`].
    Feed(Vec<Event>),
    /// Take a checkpoint; there were events since the last one.
    Checkpoint,
}

/// Where the checkpoints of a stream fall, and where it ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cadence {
    /// Events between two checkpoints; none: where the input has marks.
    pub(super) every: Option<NonZeroU64>,
    /// Events after which the stream ends; none: all.
    pub(super) limit: Option<u64>,
}

/// The steps of an input. The last one is a checkpoint, unless there is no event at all.
pub(super) struct Steps {
    events: Events,
    cadence: Cadence,
    /// Events seen so far.
    seen: u64,
    /// Whether there were events since the last checkpoint.
    is_dirty: bool,
    /// A checkpoint that is due before anything else.
    is_due: bool,
    is_over: bool,
}

impl Steps {
    pub(super) fn new(input: &Input, cadence: Cadence) -> Result<Self, CompareError> {
        let events = input.open()?;
        Ok(Self { events, cadence, seen: 0, is_dirty: false, is_due: false, is_over: false })
    }

    /// Takes one event over; true when a checkpoint follows it.
    fn take(&mut self, event: Event, batch: &mut Vec<Event>) -> bool {
        if event == Event::Mark {
            return self.cadence.every.is_none() && self.is_dirty;
        }
        let is_counted = event.is_counted();
        batch.push(event);
        self.is_dirty = true;
        self.seen += u64::from(is_counted);
        is_counted && self.cadence.every.is_some_and(|every| self.seen.is_multiple_of(every.get()))
    }

    fn is_past_limit(&self, event: &Event) -> bool {
        event.is_counted() && self.cadence.limit.is_some_and(|limit| self.seen >= limit)
    }

    /// The next batch; empty at the end.
    fn batch(&mut self) -> Result<Vec<Event>, CompareError> {
        let mut batch = Vec::with_capacity(BATCH_EVENTS);
        while !self.is_over && !self.is_due && batch.len() < BATCH_EVENTS {
            match self.events.next().transpose()? {
                Some(event) if !self.is_past_limit(&event) => self.is_due = self.take(event, &mut batch),
                _ => self.is_over = true,
            }
        }
        Ok(batch)
    }
}

impl Iterator for Steps {
    type Item = Result<Step, CompareError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.is_due {
            match self.batch() {
                Ok(batch) if !batch.is_empty() => return Some(Ok(Step::Feed(batch))),
                Ok(_) => {}
                Err(error) => {
                    self.is_over = true;
                    self.is_dirty = false;
                    return Some(Err(error));
                }
            }
        }
        self.is_due = false;
        if self.is_dirty {
            self.is_dirty = false;
            return Some(Ok(Step::Checkpoint));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::input::Synthetic;

    fn synthetic() -> Input {
        Input::Synthetic("n=1000,value=0,update=10%,checkpoints=3".parse::<Synthetic>().unwrap())
    }

    /// Events between the checkpoints of an input.
    fn intervals(input: &Input, every: Option<u64>, limit: Option<u64>) -> Vec<usize> {
        let cadence = Cadence { every: every.and_then(NonZeroU64::new), limit };
        let mut intervals = vec![0];
        for step in Steps::new(input, cadence).unwrap() {
            match step.unwrap() {
                Step::Feed(events) => *intervals.last_mut().unwrap() += events.len(),
                Step::Checkpoint => intervals.push(0),
            }
        }
        assert_eq!(intervals.pop(), Some(0), "events after the last checkpoint");
        intervals
    }

    #[test]
    fn checkpoints_fall_at_the_marks_of_the_input() {
        assert_eq!(intervals(&synthetic(), None, None), [1000, 100, 100, 100]);
    }

    #[test]
    fn a_number_of_events_replaces_the_marks_and_the_rest_gets_a_checkpoint() {
        assert_eq!(intervals(&synthetic(), Some(600), None), [600, 600, 100]);
        assert_eq!(intervals(&synthetic(), Some(650), None), [650, 650]);
    }

    #[test]
    fn a_limit_ends_the_stream_with_a_checkpoint() {
        assert_eq!(intervals(&synthetic(), None, Some(1050)), [1000, 50]);
        assert_eq!(intervals(&synthetic(), Some(600), Some(600)), [600]);
        assert_eq!(intervals(&synthetic(), None, Some(0)), [0_usize; 0]);
    }
}
