//! One backend's run over the stream: feed, checkpoint, lose everything, restore, verify, measure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::contender::{Contender, Entrant, Place};
use super::error::CompareError;
use super::event::Event;
use super::figures::{CheckpointFigures, Measured, Summary};
use super::input::Input;
use super::listing::Listing;
use super::meter::{Meter, Written};
use super::model::{Interval, Model};
use super::progress::{Phase, Progress};
use super::steps::{Cadence, Step, Steps};
use super::stopwatch::Stopwatch;
use super::verification;

/// What every backend is fed and held against.
pub(super) struct Course<'a> {
    pub(super) input: &'a Input,
    pub(super) cadence: Cadence,
    /// What each checkpoint has to hold.
    pub(super) intervals: Vec<Interval>,
    /// What the last checkpoint has to hold.
    pub(super) model: Model,
}

impl<'a> Course<'a> {
    /// Reads the input once, to the end, so that damage in it is found before anything is written.
    ///
    /// Costs one pass and holds the final entries.
    pub(super) fn read(
        input: &'a Input,
        cadence: Cadence,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, CompareError> {
        let mut course = Self { input, cadence, intervals: Vec::new(), model: Model::default() };
        let mut events = 0;
        for step in Steps::new(input, cadence)? {
            match step? {
                Step::Feed(batch) => {
                    batch.iter().for_each(|event| course.model.apply(event));
                    events += batch.len() as u64;
                    progress(Progress { backend: "input", phase: Phase::Reading { events } });
                }
                Step::Checkpoint => course.intervals.push(course.model.checkpoint()),
            }
        }
        if course.intervals.is_empty() { Err(CompareError::Empty) } else { Ok(course) }
    }

    /// Events of the whole stream.
    fn events(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.events).sum()
    }
}

/// What came out of a trial.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) checkpoints: Vec<CheckpointFigures>,
    pub(super) summary: Summary,
}

/// Runs one backend over the course, in a directory of its own that is made for it.
pub(super) fn run(
    entrant: &dyn Entrant,
    course: &Course<'_>,
    directory: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Outcome, CompareError> {
    let name = entrant.name();
    let directory = directory.join(&name);
    let failed = |source| CompareError::Engine { backend: name.clone(), source };
    let meter = Meter::open(&directory).map_err(failed)?;
    let place = Place { directory: &directory, meter: &meter };
    let mut trial = Trial {
        name: name.clone(),
        contender: entrant.start(&place).map_err(failed)?,
        directory: directory.clone(),
        meter: &meter,
        checkpoints: Vec::with_capacity(course.intervals.len()),
        feeding: Duration::ZERO,
        access_us: Vec::new(),
        pending: None,
        written: Written::default(),
    };
    trial.feed_all(course, progress)?;
    let at_end = list(&directory)?;
    let Trial { contender, mut checkpoints, feeding, access_us, .. } = trial;
    // Everything in memory goes, without a word to the store; what follows knows the directory alone.
    drop(contender);

    progress(Progress { backend: &name, phase: Phase::Restoring });
    let meter = Meter::open(&directory).map_err(failed)?;
    let place = Place { directory: &directory, meter: &meter };
    let stopwatch = Stopwatch::start();
    let mut contender = entrant.restore(&place).map_err(failed)?;
    let restore = stopwatch.elapsed();
    progress(Progress { backend: &name, phase: Phase::Verifying });
    let mismatches = verification::mismatches(contender.as_ref(), &course.model).map_err(failed)?;
    let before = meter.written();
    contender.write_whole().map_err(failed)?;
    let measured = Measured {
        feeding,
        access_us,
        full_bytes: meter.written().since(&before).data_bytes,
        retained_bytes: at_end.data_bytes,
        objects: at_end.objects(),
        restore,
        entries: course.model.len() as u64,
        mismatches,
    };
    let summary = Summary::of(&name, &checkpoints, measured);
    checkpoints.iter_mut().for_each(|figures| figures.relate(summary.density));
    Ok(Outcome { checkpoints, summary })
}

fn list(directory: &Path) -> Result<Listing, CompareError> {
    Listing::of(directory)
        .map_err(|source| CompareError::Directory { directory: directory.to_owned(), source })
}

struct Trial<'a> {
    name: String,
    contender: Box<dyn Contender>,
    directory: PathBuf,
    meter: &'a Meter,
    checkpoints: Vec<CheckpointFigures>,
    feeding: Duration,
    access_us: Vec<f64>,
    pending: Option<Pending>,
    /// Written up to the last completed checkpoint.
    written: Written,
}

/// A checkpoint that is being written.
struct Pending {
    pause: Duration,
    interval: Interval,
}

impl Trial<'_> {
    fn feed_all(
        &mut self,
        course: &Course<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), CompareError> {
        let mut intervals = course.intervals.iter();
        let (mut done, total) = (0, course.events());
        for step in Steps::new(course.input, course.cadence)? {
            match step? {
                Step::Feed(events) => self.feed(events)?,
                Step::Checkpoint => {
                    self.settle()?;
                    let interval = intervals.next().copied().unwrap_or_default();
                    self.freeze(interval)?;
                    done += interval.events;
                    let phase = Phase::Feeding { events: done, events_total: total };
                    progress(Progress { backend: &self.name, phase });
                }
            }
        }
        self.settle()
    }

    /// Feeds a batch; its first event is fed alone, as a sample of what one event takes.
    fn feed(&mut self, mut events: Vec<Event>) -> Result<(), CompareError> {
        let rest = events.split_off(events.len().min(1));
        let stopwatch = Stopwatch::start();
        self.contender.feed(events).map_err(|source| self.failure(source))?;
        let first = stopwatch.elapsed();
        let stopwatch = Stopwatch::start();
        self.contender.feed(rest).map_err(|source| self.failure(source))?;
        self.access_us.push(first.as_secs_f64() * 1e6);
        self.feeding += first + stopwatch.elapsed();
        Ok(())
    }

    /// The pause of one checkpoint; it is written while the events of the next one are fed.
    fn freeze(&mut self, interval: Interval) -> Result<(), CompareError> {
        let stopwatch = Stopwatch::start();
        self.contender.freeze().map_err(|source| self.failure(source))?;
        self.pending = Some(Pending { pause: stopwatch.elapsed(), interval });
        // Not part of the pause: to wake the thread that writes may cost this one its processor.
        self.contender.begin_writing().map_err(|source| self.failure(source))
    }

    /// Waits for the checkpoint that is being written, if there is one, and notes what it cost. One at a
    /// time is written, so that what has come into the store since the last one belongs to this one.
    fn settle(&mut self) -> Result<(), CompareError> {
        let Some(Pending { pause, interval }) = self.pending.take() else { return Ok(()) };
        let completed = self.contender.complete().map_err(|source| self.failure(source))?;
        let written = self.meter.written();
        let new = written.since(&self.written);
        self.written = written;
        let listing = list(&self.directory)?;
        self.checkpoints.push(CheckpointFigures {
            backend: self.name.clone(),
            checkpoint: completed.checkpoint,
            events: interval.events,
            pause_us: pause.as_secs_f64() * 1e6,
            async_ms: completed.asynchronous.as_secs_f64() * 1e3,
            new_bytes: new.data_bytes + new.meta_bytes,
            meta_bytes: new.meta_bytes,
            referenced_bytes: listing.data_bytes.saturating_sub(new.data_bytes),
            stored_bytes: listing.data_bytes + listing.meta_bytes,
            objects: listing.objects(),
            records: completed.records,
            tombstones: completed.tombstones,
            rewritten: completed.rewritten,
            rewritten_bytes: completed.rewritten_bytes,
            set_aside: completed.set_aside,
            segments: completed.segments,
            changed_keys: interval.changed_keys,
            changed_bytes: interval.changed_bytes,
            entries: interval.entries,
            live_bytes: interval.live_bytes,
            storm: completed.storm,
            cause: completed.cause,
            ..CheckpointFigures::default()
        });
        Ok(())
    }

    fn failure(&self, source: crate::Error) -> CompareError {
        CompareError::Engine { backend: self.name.clone(), source }
    }
}

#[cfg(test)]
mod tests;
