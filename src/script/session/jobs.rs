//! Commands about jobs as wholes: starting, restoring, losing, pausing them.

use std::num::NonZeroU32;
use std::sync::Arc;

use lowtide_heap::rewrite::{Bound, BoundedRewriting, RewriteBudget, RewritePolicy};
use lowtide_heap::{Antimatter, HeapBackend};
use lowtide_registry::Retention;

use super::{Session, Slot};
use crate::backend::{Backend, HeapSettings};
use crate::clock::UploadIdSource;
use crate::coordinator::{BaseMode, Claim, Cleanup};
use crate::error::{Error, Result};
use crate::job::{Deletions, Failover, JobBuilder, JobOptions, OnDamage, RestoreFrom};
use crate::script::ScriptError;
use crate::script::command::{self, Command, JobWords, Rewrite};
use crate::script::driven::{self, Driven, Origin};

impl Session {
    /// `job` and `restore`.
    pub(super) async fn start(&mut self, command: Command) -> Result<Result<()>, ScriptError> {
        let medium = match &command {
            Command::Job { words, .. } | Command::Restore { words, .. } => words.medium,
            _ => None,
        };
        if let Err(error) = self.depot.open(medium)? {
            return Ok(Err(error));
        }
        Ok(match command {
            Command::Job { name, words } => self.create(name, words).await,
            Command::Restore { name, from, words } => self.restore(name, from, words).await,
            _ => Ok(()),
        })
    }

    async fn create(&mut self, name: String, words: JobWords) -> Result<()> {
        let directory = words.dir.clone().unwrap_or_else(|| name.clone());
        let origin = Origin::Fresh { force: words.force };
        self.launch(name, directory, words, origin).await?;
        Ok(())
    }

    async fn restore(&mut self, name: String, from: command::RestoreWords, words: JobWords) -> Result<()> {
        let source = self.slot(&from.from)?;
        let (source_directory, words) = (source.directory.clone(), words.or(&source.words));
        let directory = match (from.claim, &words.dir) {
            (true, Some(directory)) if *directory != source_directory => {
                return Err(Error::invalid_argument(format!(
                    "a claim goes on in {source_directory}, the directory of {}, not in {directory}",
                    from.from
                )));
            }
            (true, _) => source_directory.clone(),
            (false, Some(directory)) => directory.clone(),
            (false, None) => name.clone(),
        };
        let origin = Origin::Restore(RestoreFrom {
            checkpoint: from.id,
            claim: if from.claim { Claim::Claim } else { Claim::NoClaim },
            on_damage: if from.fallback { OnDamage::FallBack } else { OnDamage::Refuse },
            force: words.force,
            ..RestoreFrom::latest(&source_directory)
        });
        let Some(job) = self.launch(name, directory, words, origin).await? else { return Ok(()) };
        if let (Some(id), entries) = (job.restored(), job.entries()) {
            self.print(format!("restored {id} entries={entries}"));
        }
        Ok(())
    }

    /// Starts a job and makes it current; none if a call to the store hangs.
    async fn launch(
        &mut self,
        name: String,
        directory: String,
        words: JobWords,
        origin: Origin,
    ) -> Result<Option<&dyn Driven>> {
        self.started = self.started.wrapping_add(1);
        let backend = words.backend.clone().unwrap_or_else(|| self.backend.clone());
        let store = self.depot.store()?.clone();
        let launched = async {
            match backend.as_str() {
                "heap" => {
                    let options =
                        job_options::<HeapBackend>(&words, heap_settings(&words, HeapSettings::default()))?;
                    let builder = self.builder(&name, &directory, options);
                    driven::start(builder, &store, origin).await
                }
                #[cfg(feature = "rocksdb")]
                "rocksdb" => {
                    let options = job_options::<crate::RocksBackend>(&words, rocks_settings())?;
                    let builder = self.builder(&name, &directory, options);
                    driven::start(builder, &store, origin).await
                }
                other => Err(Error::invalid_argument(format!(
                    "backend `{other}` is not in this build, which has {}",
                    driven::BACKENDS.join(", ")
                ))),
            }
        };
        let Some(job) = Self::unless_stalled(&self.depot, launched).await else { return Ok(None) };
        let live = Some(job?);
        self.directories.insert(directory.clone());
        let slot = Slot { words, directory, live, waiting: None, steps: Default::default() };
        self.jobs.insert(name.clone(), slot);
        let slot = self.jobs.get(&name);
        self.current = Some(name);
        Ok(slot.and_then(|slot| slot.live.as_deref()))
    }

    fn builder<B: Backend>(&self, name: &str, directory: &str, options: JobOptions<B>) -> JobBuilder<B> {
        JobBuilder::new(name)
            .directory(directory)
            .options(options)
            .clock(self.clock())
            .upload_ids(UploadIdSource::counted(self.started))
    }

    pub(super) async fn on_job(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Use(name) => {
                self.slot(&name)?;
                self.current = Some(name);
            }
            Command::Crash => {
                self.running()?;
                let (_, slot) = self.current()?;
                (slot.live, slot.waiting) = (None, None);
                slot.steps.clear();
            }
            Command::Stop => {
                self.running()?;
                let (_, slot) = self.current()?;
                // What waits for a coordinator that stands still has nobody left to wait for.
                slot.waiting = None;
                slot.steps.clear();
                if let Some(job) = slot.live.take() {
                    Self::unless_stalled(&self.depot, job.stop()).await.transpose()?;
                }
            }
            Command::Failover => self.failover().await?,
            Command::Hold(name) => {
                let slot = self.slot(&name)?;
                slot.job()?.hold();
                slot.waiting.get_or_insert_default();
            }
            Command::Release(name) => self.release(&name).await?,
            _ => {}
        }
        Ok(())
    }

    async fn failover(&mut self) -> Result<()> {
        let (depot, slot) = self.parts()?;
        slot.waiting = None;
        slot.steps.clear();
        let Some(outcome) = Self::unless_stalled(depot, slot.job()?.failover()).await else {
            return Ok(());
        };
        let Failover { events, checkpoints, files } = outcome?;
        events.iter().for_each(|event| self.print(event));
        self.print(format!("recovered checkpoints={checkpoints} files={files}"));
        Ok(())
    }

    /// The coordinator goes on: first with what its subtasks told it, then with what was asked of it.
    async fn release(&mut self, name: &str) -> Result<()> {
        let slot = self.jobs.get_mut(name);
        let slot = slot.ok_or_else(|| Error::not_found(format!("there is no job {name}")))?;
        let waiting = slot.waiting.take().unwrap_or_default();
        let job = slot.job()?;
        if let Some(step) = Self::unless_stalled(&self.depot, job.release()).await {
            self.print_step(step);
        }
        let current = self.current.replace(name.to_owned());
        for command in waiting {
            // Boxed, because a command that waited may be anything but another release.
            if let Err(error) = Box::pin(self.carry_out(command)).await {
                self.print_error(&error);
            }
        }
        self.current = current;
        Ok(())
    }
}

/// Options of a job on any backend, with the defaults of scripts.
fn job_options<B: Backend>(words: &JobWords, backend: B::Options) -> Result<JobOptions<B>> {
    let retained = match words.retain.map(NonZeroU32::new) {
        None => Retention::default(),
        Some(Some(count)) => Retention::Newest(count),
        Some(None) => {
            return Err(Error::invalid_argument("retain=0 would keep no checkpoint at all"));
        }
    };
    let key_groups = words.key_groups.unwrap_or(8);
    let key_groups = u16::try_from(key_groups).map_err(|_| {
        Error::invalid_argument(format!("{key_groups} key groups are more than there can be"))
    })?;
    Ok(JobOptions {
        subtasks: words.subtasks.unwrap_or(1),
        key_groups,
        retained,
        concurrent_max: words.concurrent.unwrap_or(8),
        base_mode: match words.base {
            Some(command::Base::Acknowledged) => BaseMode::Acknowledged,
            _ => BaseMode::Confirmed,
        },
        cleanup: match words.cleanup {
            Some(command::Cleanup::Participant) => Cleanup::Participant,
            _ => Cleanup::Coordinator,
        },
        // One at a time, so that data puts come in subtask order.
        writers_max: 1,
        uploads_max: 1,
        deletions: Deletions::ByHand,
        backend,
        ..JobOptions::default()
    })
}

/// Settings of the RocksDB backend. What a script holds is little and its local database no more than a cache, which
/// RocksDB syncs all the same: it lies in memory where the system has a place for that.
#[cfg(feature = "rocksdb")]
fn rocks_settings() -> lowtide_lsm::LsmOptions {
    let mut settings = lowtide_lsm::LsmOptions::default();
    let in_memory = std::path::Path::new("/dev/shm");
    if in_memory.is_dir() {
        settings.directory = in_memory.join("lowtide");
    }
    settings
}

/// Settings of the heap backend, with the defaults of scripts.
fn heap_settings(words: &JobWords, mut settings: HeapSettings) -> HeapSettings {
    settings.antimatter = match words.antimatter {
        Some(command::Antimatter::Always) => Antimatter::Always,
        _ => Antimatter::Elide,
    };
    settings.rewriting = rewriting(words);
    settings
}

/// The policy that rewrites what the bounds of a script need and nothing before, so that counts can be
/// told beforehand; none if there is no bound.
fn rewriting(words: &JobWords) -> Option<Arc<dyn RewritePolicy>> {
    let (mut bounds, mut objects_max) = (Vec::new(), None);
    for rewrite in words.rewrite.iter().flatten() {
        match *rewrite {
            Rewrite::Never => {}
            Rewrite::MaxAge(checkpoints) => bounds.push(Bound::MaxAge { checkpoints }),
            Rewrite::Space(ratio) => bounds.push(Bound::SpaceAmplification { ratio }),
            Rewrite::Segments(count) => bounds.push(Bound::MaxSegments { count }),
            Rewrite::Objects(count) => objects_max = Some(count),
        }
    }
    let exactly = match (bounds.first(), objects_max) {
        (Some(bound), _) => BoundedRewriting::exactly(*bound),
        (None, Some(count)) => BoundedRewriting::packing(count),
        (None, None) => return None,
    };
    let budget = words.rewrite_bytes.map_or(RewriteBudget::Unlimited, RewriteBudget::Bytes);
    Some(Arc::new(BoundedRewriting { bounds, budget, objects_max, ..exactly }))
}
