//! A job of the library as a contender.

use std::num::NonZeroU32;
use std::time::Duration;

use lowtide_heap::HeapBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::{Completed, Contender, Entrant, Place};
use crate::backend::Backend;
use crate::compare::event::{Event, Flight, Totals};
use crate::compare::model::{Cell, Content};
use crate::compare::stopwatch::Stopwatch;
use crate::compare::{BackendName, CompareOptions, Input};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BackgroundWrite, Deletions, Job, JobBuilder, JobOptions, ValueState, WrittenParts};
use crate::{CheckpointKind, HeapSettings, Retention};

/// Name of the job; its directory lies in the directory of the contender.
const JOB: &str = "job";

/// Starts and restores jobs of one backend.
pub(in crate::compare) struct JobEntrant {
    name: BackendName,
    retain: NonZeroU32,
    key_groups: u16,
    subtasks: u32,
    /// Whether the input is made of flights or of operations.
    is_flights: bool,
}

impl JobEntrant {
    pub(in crate::compare) fn new(name: BackendName, options: &CompareOptions) -> Self {
        Self {
            name,
            retain: options.retain,
            key_groups: options.key_groups,
            subtasks: options.subtasks,
            is_flights: options.input == Input::Flights,
        }
    }

    fn launch(&self, place: &Place<'_>, launch: Launch) -> Result<Box<dyn Contender>> {
        tracing::debug!(backend = %self.name, directory = %place.directory.display(), ?launch, "launch");
        match self.name {
            BackendName::Heap | BackendName::HeapFull | BackendName::HeapFullEvery(_) => {
                self.launch_on::<HeapBackend>(place, launch, self.heap_settings())
            }
            #[cfg(feature = "rocksdb")]
            BackendName::RocksDb => {
                // Beside the store, whose listing is to show what is stored and nothing else.
                let directory = place.directory.with_file_name(format!("{}-local", self.name));
                let options = crate::lsm::LsmOptions { directory, ..Default::default() };
                self.launch_on::<crate::RocksBackend>(place, launch, options)
            }
        }
    }

    fn heap_settings(&self) -> HeapSettings {
        let mut settings = HeapSettings::default();
        if self.name != BackendName::Heap {
            // Full snapshots are the other way to bound what is retained: without rewriting.
            settings.rewriting = None;
        }
        if self.is_flights {
            settings
                .declare::<String, Totals, ()>("aircraft")
                .declare::<String, Totals, u32>("routes")
                .declare::<String, Totals, u32>("hours")
        } else {
            settings.declare::<Vec<u8>, Vec<u8>, ()>("entries")
        }
    }

    fn launch_on<B: Backend>(
        &self,
        place: &Place<'_>,
        launch: Launch,
        backend: B::Options,
    ) -> Result<Box<dyn Contender>> {
        let options = JobOptions::<B> {
            subtasks: self.subtasks,
            key_groups: self.key_groups,
            retained: Retention::Newest(self.retain),
            // What is retained is listed after each checkpoint: nothing may be half deleted then.
            deletions: Deletions::ByHand,
            backend,
            ..JobOptions::default()
        };
        let builder = JobBuilder::new(JOB).options(options);
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|source| {
                Error::new(ErrorKind::Store, "the threads that write checkpoints cannot be started")
                    .caused_by(source)
            })?;
        let mut job = runtime.block_on(async {
            match launch {
                Launch::Create => builder.create(place.meter.store()).await,
                Launch::Recover => builder.recover(place.meter.store()).await,
            }
        })?;
        let states = States::open(&mut job, self.is_flights)?;
        Ok(Box::new(JobContender {
            runtime,
            job,
            states,
            name: self.name,
            taken: 0,
            frozen: None,
            writing: None,
        }))
    }
}

/// How a job begins.
#[derive(Clone, Copy, Debug)]
enum Launch {
    Create,
    Recover,
}

impl Entrant for JobEntrant {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Contender>> {
        self.launch(place, Launch::Create)
    }

    fn restore(&self, place: &Place<'_>) -> Result<Box<dyn Contender>> {
        self.launch(place, Launch::Recover)
    }
}

/// The named states of an input.
enum States<B: Backend> {
    Flights {
        aircraft: ValueState<String, Totals, (), B>,
        routes: ValueState<String, Totals, u32, B>,
        hours: ValueState<String, Totals, u32, B>,
    },
    Plain(ValueState<Vec<u8>, Vec<u8>, (), B>),
}

impl<B: Backend> States<B> {
    fn open(job: &mut Job<B>, is_flights: bool) -> Result<Self> {
        if !is_flights {
            return Ok(States::Plain(job.value_state("entries")?));
        }
        Ok(States::Flights {
            aircraft: job.value_state("aircraft")?,
            routes: job.value_state("routes")?,
            hours: job.value_state("hours")?,
        })
    }
}

struct JobContender<B: Backend> {
    runtime: Runtime,
    job: Job<B>,
    states: States<B>,
    name: BackendName,
    /// Checkpoints taken so far.
    taken: u64,
    /// What was frozen and is not being written yet.
    frozen: Option<BackgroundWrite<B>>,
    /// The checkpoint that is being written, and how long writing took.
    writing: Option<JoinHandle<(WrittenParts, Duration)>>,
}

impl<B: Backend> JobContender<B> {
    fn take(&mut self, event: Event) -> Result<()> {
        let job = &mut self.job;
        match (&self.states, event) {
            (States::Flights { aircraft, routes, hours }, Event::Departure(flight)) => {
                if let Some(registration) = &flight.aircraft {
                    add(job, aircraft, (), (registration, &flight))?;
                }
                add(job, routes, flight.day, (&flight.route(), &flight))?;
                add(job, hours, flight.hour, (&flight.carrier, &flight))
            }
            (States::Flights { hours, .. }, Event::Expire { carrier, hour }) => {
                job.state_mut(hours).discard_in(&hour, carrier.as_str())
            }
            (States::Plain(entries), Event::Put { key, value }) => job.state_mut(entries).set(key, value),
            (States::Plain(entries), Event::Remove { key }) => job.state_mut(entries).discard(key.as_slice()),
            (States::Plain(entries), Event::Clear) => job.state_mut(entries).clear(),
            // Marks are not fed, and an input has events of one sort.
            _ => Ok(()),
        }
    }

    /// What the next checkpoint writes.
    fn kind(&self) -> CheckpointKind {
        let is_full = match self.name {
            BackendName::Heap => false,
            #[cfg(feature = "rocksdb")]
            BackendName::RocksDb => false,
            BackendName::HeapFull => true,
            BackendName::HeapFullEvery(checkpoints) => self.taken.is_multiple_of(checkpoints.get()),
        };
        if is_full { CheckpointKind::Full } else { CheckpointKind::Checkpoint }
    }
}

/// Adds a flight to the totals of a key.
fn add<B: Backend, N: lowtide_format::Namespace>(
    job: &mut Job<B>,
    state: &ValueState<String, Totals, N, B>,
    namespace: N,
    (key, flight): (&str, &Flight),
) -> Result<()> {
    let mut state = job.state_mut(state);
    if !state.update_in(&namespace, key, |totals| totals.add(flight))? {
        state.set_in(namespace, key.to_owned(), Totals::of(flight))?;
    }
    Ok(())
}

impl<B: Backend> Contender for JobContender<B> {
    fn feed(&mut self, events: Vec<Event>) -> Result<()> {
        events.into_iter().try_for_each(|event| self.take(event))
    }

    fn freeze(&mut self) -> Result<()> {
        self.frozen = Some(self.job.start_checkpoint(self.kind())?);
        self.taken += 1;
        Ok(())
    }

    fn begin_writing(&mut self) -> Result<()> {
        let Some(frozen) = self.frozen.take() else {
            return Err(Error::invalid_argument("no checkpoint is frozen"));
        };
        self.writing = Some(self.runtime.spawn(async move {
            let stopwatch = Stopwatch::start();
            let parts = frozen.run().await;
            (parts, stopwatch.elapsed())
        }));
        Ok(())
    }

    fn complete(&mut self) -> Result<Completed> {
        let Some(writing) = self.writing.take() else {
            return Err(Error::invalid_argument("no checkpoint is being written"));
        };
        let (parts, written) = self
            .runtime
            .block_on(writing)
            .map_err(|error| Error::invalid_argument(format!("a writer ended early: {error}")))?;
        let stopwatch = Stopwatch::start();
        let figures = self.runtime.block_on(self.job.finish_checkpoint(parts))?;
        let asynchronous = written + stopwatch.elapsed();
        self.runtime.block_on(self.job.run_deletions())?;
        Ok(Completed {
            checkpoint: figures.id.get(),
            asynchronous,
            records: figures.puts,
            tombstones: figures.tombstones,
            rewritten: figures.rewritten,
            rewritten_bytes: figures.rewritten_bytes,
            set_aside: figures.set_aside,
            segments: figures.segments,
            storm: figures.storm,
            cause: figures
                .traffic
                .as_ref()
                .and_then(|traffic| traffic.cause())
                .map_or_else(String::new, ToString::to_string),
        })
    }

    fn write_whole(&mut self) -> Result<()> {
        self.runtime.block_on(self.job.checkpoint(CheckpointKind::Savepoint)).map(drop)
    }

    fn get(&self, cell: &Cell) -> Result<Option<Content>> {
        let job = &self.job;
        Ok(match (&self.states, cell) {
            (States::Flights { aircraft, .. }, Cell::Aircraft(key)) => {
                job.state(aircraft).get(key.as_str())?.map(|totals| Content::Totals(totals.clone()))
            }
            (States::Flights { routes, .. }, Cell::Route(key, day)) => {
                job.state(routes).get_in(day, key.as_str())?.map(|totals| Content::Totals(totals.clone()))
            }
            (States::Flights { hours, .. }, Cell::Hour(key, hour)) => {
                job.state(hours).get_in(hour, key.as_str())?.map(|totals| Content::Totals(totals.clone()))
            }
            (States::Plain(entries), Cell::Entry(key)) => {
                job.state(entries).get(key.as_slice())?.map(|value| Content::Bytes(value.clone()))
            }
            _ => None,
        })
    }

    fn visit(&self, visit: &mut dyn FnMut(Cell, Content)) -> Result<()> {
        match &self.states {
            States::Plain(entries) => {
                for entry in self.job.state(entries).iter()? {
                    let (key, _, value) = entry?;
                    visit(Cell::Entry(key.clone()), Content::Bytes(value.clone()));
                }
            }
            States::Flights { aircraft, routes, hours } => {
                for entry in self.job.state(aircraft).iter()? {
                    let (key, _, totals) = entry?;
                    visit(Cell::Aircraft(key.clone()), Content::Totals(totals.clone()));
                }
                for (state, cell) in [(routes, Cell::Route as fn(_, _) -> _), (hours, Cell::Hour)] {
                    for entry in self.job.state(state).iter()? {
                        let (key, namespace, totals) = entry?;
                        visit(cell(key.clone(), *namespace), Content::Totals(totals.clone()));
                    }
                }
            }
        }
        Ok(())
    }
}
