//! A job and the map it must agree with, driven by random steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lowtide::{
    BaseMode, CheckpointId, CheckpointKind, Claim, Event, HeapSettings, Job, JobBuilder, ObjectClass,
    ObjectName, OnDamage, RestoreFrom, Retention, Step, Store, ValueState, read_published,
};

use lowtide::heap::rewrite::{Bound, BoundedRewriting, RewriteBudget, RewritePolicy};

use super::model::{Image, ModelKey, Rng};

/// Keys of a state; few, so that puts and removals meet.
const KEYS: u64 = 14;
const NAMESPACES: u64 = 3;
const STATES: [&str; 2] = ["s", "t"];
const KEY_GROUPS: u16 = 8;
const PENDING_MAX: usize = 3;

/// What a history can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Situation {
    /// A pending checkpoint was aborted, declined or expired.
    Aborted,
    /// A completion overtook an older pending checkpoint.
    Overtaken,
    /// Three checkpoints were pending at a time.
    ThreePending,
    /// Retention let a completed checkpoint go.
    Subsumed,
    /// A savepoint completed.
    Savepoint,
    /// A full checkpoint completed after the first one.
    Full,
    /// A savepoint completed although a newer checkpoint had completed before.
    LateSavepoint,
    /// The map was changed while a snapshot was open.
    ChangedWhileOpen,
    /// A state was cleared that had a completed checkpoint.
    Cleared,
    /// A namespace was cleared that had a completed checkpoint.
    ClearedNamespace,
    /// A key was put again after a removal that no completed checkpoint had seen.
    PutAgain,
    /// A removal was first part of a checkpoint that was aborted.
    RemovedInAborted,
    /// The process was lost and the job recovered.
    Recovered,
    /// A restore took an older checkpoint than the newest.
    RestoredOlder,
    /// A restore took a savepoint.
    RestoredSavepoint,
    /// A restore claimed the directory.
    Claimed,
    /// A restore did not claim.
    NotClaimed,
    /// The number of subtasks grew.
    RescaledOut,
    /// The number of subtasks shrank.
    RescaledIn,
    /// Only the coordinator was lost.
    FailedOver,
    /// A delta completed on a base with entries.
    Delta,
    /// A delta was taken against a checkpoint that was only acknowledged.
    AcknowledgedBase,
    /// A checkpoint wrote old entries again.
    Rewritten,
}

impl Situation {
    pub(super) const ALL: [Self; 23] = [
        Self::Aborted,
        Self::Overtaken,
        Self::ThreePending,
        Self::Subsumed,
        Self::Savepoint,
        Self::Full,
        Self::LateSavepoint,
        Self::ChangedWhileOpen,
        Self::Cleared,
        Self::ClearedNamespace,
        Self::PutAgain,
        Self::RemovedInAborted,
        Self::Recovered,
        Self::RestoredOlder,
        Self::RestoredSavepoint,
        Self::Claimed,
        Self::NotClaimed,
        Self::RescaledOut,
        Self::RescaledIn,
        Self::FailedOver,
        Self::Delta,
        Self::AcknowledgedBase,
        Self::Rewritten,
    ];
}

type Handle = ValueState<u32, u64, u8>;

/// A checkpoint under way.
struct Pending {
    id: CheckpointId,
    kind: CheckpointKind,
    /// Steps not taken yet, per subtask: write, then acknowledge.
    left: Vec<u8>,
    image: Image,
    /// Keys removed since the newest completed checkpoint, as of the trigger.
    removed: BTreeSet<ModelKey>,
    base: Option<CheckpointId>,
}

pub(super) struct World {
    store: Store,
    job: Job,
    handles: Vec<Handle>,
    directory: String,
    directories: u32,
    subtasks: u32,
    retained: u32,
    map: Image,
    pending: Vec<Pending>,
    /// Completed and retained, checkpoints and savepoints, of the present directory.
    kept: BTreeMap<CheckpointId, (CheckpointKind, Image)>,
    /// Checkpoints of former directories; nobody may delete them any more.
    foreign: Vec<(String, CheckpointId, Image)>,
    removed: BTreeSet<ModelKey>,
    settings: Settings,
    /// The newest checkpoint that each subtask has acknowledged in this generation.
    acknowledged: Vec<Option<CheckpointId>>,
    reached: BTreeSet<Situation>,
    /// What happened, printed if the history fails.
    trace: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.trace.join("\n"));
        }
    }
}

impl World {
    pub(super) async fn start(rng: &mut Rng) -> Self {
        let store = Store::memory();
        let subtasks = 2 + rng.below(3) as u32;
        let retained = 1 + rng.below(3) as u32;
        let mode = if rng.chance(70) { BaseMode::Confirmed } else { BaseMode::Acknowledged };
        let policy = policy(rng);
        let settings = Settings { mode, policy };
        let trace = format!("start subtasks={subtasks} retain={retained} {settings:?}");
        let mut job = settings.builder("j0", subtasks, retained).create(&store).await.unwrap();
        let handles = open_states(&mut job);
        Self {
            store,
            job,
            handles,
            directory: "j0".to_owned(),
            directories: 1,
            subtasks,
            retained,
            map: Image::new(),
            pending: Vec::new(),
            kept: BTreeMap::new(),
            foreign: Vec::new(),
            removed: BTreeSet::new(),
            settings,
            acknowledged: vec![None; subtasks as usize],
            reached: BTreeSet::new(),
            trace: vec![trace],
        }
    }

    pub(super) async fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..=25 => self.put(rng),
            26..=33 => self.update(rng),
            34..=47 => self.remove(rng),
            48..=49 => self.clear(rng, None),
            50..=51 => {
                let namespace = rng.below(NAMESPACES) as u8;
                self.clear(rng, Some(namespace));
            }
            52 => self.retain(rng),
            53..=66 => self.trigger(rng),
            67..=81 => self.advance(rng).await,
            82..=87 => self.complete_one(rng).await,
            88..=90 => self.give_up(rng).await,
            91 => self.fail_over().await,
            92..=93 => self.recover(rng).await,
            94..=96 => self.restore(rng).await,
            _ => self.compare(),
        }
    }

    /// Restores everything that is kept into empty jobs; looks for objects that nothing lists.
    pub(super) async fn finish(mut self, rng: &mut Rng) -> Vec<Situation> {
        self.compare();
        while !self.pending.is_empty() {
            self.complete_one(rng).await;
        }
        if self.settings.mode == BaseMode::Acknowledged {
            // What was only acknowledged is kept until a completed checkpoint is newer.
            self.trigger_as(CheckpointKind::Checkpoint);
            self.complete_one(rng).await;
        }
        self.job.run_deletions().await.unwrap();
        self.count_objects().await;
        let kept: Vec<_> =
            self.kept.iter().map(|(id, (_, image))| (self.directory.clone(), *id, image.clone())).collect();
        for (directory, id, image) in kept.into_iter().chain(std::mem::take(&mut self.foreign)) {
            let subtasks = 1 + rng.below(4) as u32;
            let from = RestoreFrom { checkpoint: Some(id), ..RestoreFrom::latest(&directory) };
            let scratch = format!("scratch-{}", self.directories);
            self.directories += 1;
            let mut job = builder(&scratch, subtasks, 1).restore(&self.store, from).await.unwrap();
            let handles = open_states(&mut job);
            assert_eq!(image_of(&job, &handles), image, "{directory}/{id} restored into {subtasks} subtasks");
        }
        std::mem::take(&mut self.reached).into_iter().collect()
    }

    fn key(rng: &mut Rng) -> ModelKey {
        (rng.below(STATES.len() as u64) as u8, rng.below(NAMESPACES) as u8, rng.below(KEYS) as u32)
    }

    fn touched(&mut self) {
        if !self.pending.is_empty() {
            self.reached.insert(Situation::ChangedWhileOpen);
        }
    }

    fn put(&mut self, rng: &mut Rng) {
        let (key, value) = (Self::key(rng), rng.next());
        let (state, namespace, number) = key;
        if self.removed.contains(&key) {
            self.reached.insert(Situation::PutAgain);
        }
        self.trace.push(format!("put {key:?}"));
        let absent = self.map.insert(key, value).is_none();
        let handle = &self.handles[usize::from(state)];
        assert_eq!(self.job.state_mut(handle).put_in(namespace, number, value).unwrap(), absent);
        self.touched();
    }

    fn update(&mut self, rng: &mut Rng) {
        let (key, added) = (Self::key(rng), rng.below(1000));
        self.trace.push(format!("update {key:?}"));
        let (state, namespace, number) = key;
        let present = self.map.get_mut(&key).map(|value| *value = value.wrapping_add(added)).is_some();
        let handle = &self.handles[usize::from(state)];
        let mut access = self.job.state_mut(handle);
        let changed =
            access.update_in(&namespace, &number, |value| *value = value.wrapping_add(added)).unwrap();
        assert_eq!(changed, present);
        self.touched();
    }

    fn remove(&mut self, rng: &mut Rng) {
        let key = Self::key(rng);
        let (state, namespace, number) = key;
        self.trace.push(format!("remove {key:?}"));
        let value = self.map.remove(&key);
        if value.is_some() {
            self.removed.insert(key);
        }
        let handle = &self.handles[usize::from(state)];
        assert_eq!(self.job.state_mut(handle).remove_in(&namespace, &number).unwrap(), value);
        self.touched();
    }

    fn clear(&mut self, rng: &mut Rng, namespace: Option<u8>) {
        let state = rng.below(STATES.len() as u64) as u8;
        self.trace.push(format!("clear state={state} namespace={namespace:?}"));
        let scope = |key: &ModelKey| key.0 == state && namespace.is_none_or(|namespace| key.1 == namespace);
        self.removed.extend(self.map.keys().filter(|key| scope(key)));
        self.map.retain(|key, _| !scope(key));
        let handle = &self.handles[usize::from(state)];
        match namespace {
            None => self.job.state_mut(handle).clear().unwrap(),
            Some(namespace) => self.job.state_mut(handle).clear_in(&namespace).unwrap(),
        }
        if !self.kept.is_empty() {
            let situation =
                if namespace.is_none() { Situation::Cleared } else { Situation::ClearedNamespace };
            self.reached.insert(situation);
        }
        self.touched();
    }

    fn retain(&mut self, rng: &mut Rng) {
        let (state, odd) = (rng.below(STATES.len() as u64) as u8, rng.below(2));
        self.trace.push(format!("retain state={state} odd={odd}"));
        let goes = |key: &ModelKey, value: &u64| key.0 == state && value % 2 == odd;
        let before = self.map.len();
        self.removed.extend(self.map.iter().filter(|(key, value)| goes(key, value)).map(|(key, _)| *key));
        self.map.retain(|key, value| !goes(key, value));
        let handle = &self.handles[usize::from(state)];
        let removed = self.job.state_mut(handle).retain(|_, _, value| value % 2 != odd).unwrap();
        assert_eq!(removed, (before - self.map.len()) as u64);
        self.touched();
    }

    fn compare(&self) {
        assert_eq!(image_of(&self.job, &self.handles), self.map, "memory differs");
        assert_eq!(self.job.entries(), self.map.len() as u64);
    }

    fn newest_checkpoint(&self) -> Option<CheckpointId> {
        self.kept.iter().rev().find(|(_, (kind, _))| *kind != CheckpointKind::Savepoint).map(|(id, _)| *id)
    }

    fn trigger(&mut self, rng: &mut Rng) {
        let kind = match rng.below(20) {
            0..=1 => CheckpointKind::Full,
            2..=4 => CheckpointKind::Savepoint,
            _ => CheckpointKind::Checkpoint,
        };
        if self.pending.len() < PENDING_MAX {
            self.trigger_as(kind);
        }
    }

    fn trigger_as(&mut self, kind: CheckpointKind) {
        let trigger = self.job.trigger(kind).unwrap();
        self.trace.push(format!("{} triggered {kind:?} bases={:?}", trigger.id, trigger.bases));
        let expected = self.bases(trigger.kind);
        assert_eq!(trigger.bases, expected);
        let expected = expected.into_iter().flatten().min();
        self.pending.push(Pending {
            id: trigger.id,
            kind,
            left: vec![2; self.subtasks as usize],
            image: self.map.clone(),
            removed: self.removed.clone(),
            base: expected,
        });
        if self.pending.len() == PENDING_MAX {
            self.reached.insert(Situation::ThreePending);
        }
    }

    /// What the deltas of a checkpoint triggered now must be taken against.
    fn bases(&mut self, kind: CheckpointKind) -> Vec<Option<CheckpointId>> {
        let completed = if kind == CheckpointKind::Checkpoint { self.newest_checkpoint() } else { None };
        let mut bases = vec![completed; self.subtasks as usize];
        if kind == CheckpointKind::Checkpoint && self.settings.mode == BaseMode::Acknowledged {
            for (base, acknowledged) in bases.iter_mut().zip(&self.acknowledged) {
                if *acknowledged > completed {
                    *base = *acknowledged;
                    self.reached.insert(Situation::AcknowledgedBase);
                }
            }
        }
        bases
    }

    /// One step of one subtask of one pending checkpoint.
    async fn advance(&mut self, rng: &mut Rng) {
        let Some(place) = (!self.pending.is_empty()).then(|| rng.below(self.pending.len() as u64) as usize)
        else {
            return;
        };
        let subtask = rng.below(u64::from(self.subtasks)) as u32;
        self.advance_subtask(self.pending[place].id, subtask).await;
    }

    async fn advance_subtask(&mut self, id: CheckpointId, subtask: u32) {
        let Some(pending) = self.pending.iter_mut().find(|pending| pending.id == id) else { return };
        let left = &mut pending.left[subtask as usize];
        self.trace
            .push(format!("{id} subtask={subtask} {}", ["", "acknowledge", "write"][usize::from(*left)]));
        let step = match *left {
            2 => self.job.write(id, subtask).await,
            1 => self.job.acknowledge(id, subtask).await,
            _ => return,
        };
        *left -= 1;
        let acknowledged = *left == 0 && pending.kind != CheckpointKind::Savepoint;
        if acknowledged {
            let newest = &mut self.acknowledged[subtask as usize];
            *newest = (*newest).max(Some(id));
        }
        self.observe(step);
        if acknowledged && self.kept.contains_key(&id) {
            let stat = self.job.stat(id).await.unwrap();
            self.trace.push(format!("  {stat:?}"));
            if stat.rewritten > 0 {
                self.reached.insert(Situation::Rewritten);
            }
        }
    }

    async fn complete_one(&mut self, rng: &mut Rng) {
        let Some(id) = rng.pick(&self.pending).map(|pending| pending.id) else { return };
        for _ in 0..2 {
            for subtask in 0..self.subtasks {
                self.advance_subtask(id, subtask).await;
            }
        }
        assert!(self.pending.iter().all(|pending| pending.id != id), "{id} has not come to an end");
    }

    async fn give_up(&mut self, rng: &mut Rng) {
        let Some(id) = rng.pick(&self.pending).map(|pending| pending.id) else { return };
        self.trace.push(format!("{id} given up"));
        let step = match rng.below(3) {
            0 => self.job.abort(id).await,
            1 => self.job.expire(id).await,
            _ => self.job.decline(id, rng.below(u64::from(self.subtasks)) as u32).await,
        };
        self.observe(step);
        assert!(self.pending.iter().all(|pending| pending.id != id), "{id} is still pending");
        let late = self.job.abort(id).await.into_result().unwrap();
        assert!(matches!(late[..], [Event::Ignored(ignored)] if ignored == id), "{late:?}");
    }

    /// Follows what the job reports, and checks that it reports what must happen.
    fn observe(&mut self, step: Step) {
        let mut completed = false;
        for event in step.into_result().unwrap() {
            self.trace.push(format!("  {event}"));
            match event {
                Event::Completed(id) => completed |= self.completed(id) != CheckpointKind::Savepoint,
                Event::Subsumed(id) => {
                    let oldest = self.kept.iter().find(|(_, (kind, _))| *kind != CheckpointKind::Savepoint);
                    assert_eq!(oldest.map(|(id, _)| *id), Some(id), "not the oldest was let go");
                    self.kept.remove(&id);
                    self.reached.insert(Situation::Subsumed);
                }
                Event::Aborted(id, _) => {
                    let place = self.pending.iter().position(|pending| pending.id == id).unwrap();
                    let pending = self.pending.remove(place);
                    let overtaken = self.newest_checkpoint().is_some_and(|newest| newest > id);
                    self.reached.insert(if overtaken { Situation::Overtaken } else { Situation::Aborted });
                    if !pending.removed.is_empty() {
                        self.reached.insert(Situation::RemovedInAborted);
                    }
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        let checkpoints = self.kept.values().filter(|(kind, _)| *kind != CheckpointKind::Savepoint).count();
        // A claim may take more; the next completion lets them go.
        assert!(!completed || checkpoints <= self.retained as usize, "{checkpoints} are kept");
    }

    fn completed(&mut self, id: CheckpointId) -> CheckpointKind {
        let place = self.pending.iter().position(|pending| pending.id == id).unwrap();
        let Pending { kind, image, removed, base, .. } = self.pending.remove(place);
        match kind {
            CheckpointKind::Savepoint => {
                self.reached.insert(Situation::Savepoint);
                if self.newest_checkpoint().is_some_and(|newest| newest > id) {
                    self.reached.insert(Situation::LateSavepoint);
                }
            }
            kind => {
                if kind == CheckpointKind::Full && self.newest_checkpoint().is_some() {
                    self.reached.insert(Situation::Full);
                }
                self.removed.retain(|key| !removed.contains(key));
                if base.is_some() && !image.is_empty() {
                    self.reached.insert(Situation::Delta);
                }
            }
        }
        self.kept.insert(id, (kind, image));
        kind
    }

    async fn fail_over(&mut self) {
        let pending: Vec<_> = self.pending.drain(..).map(|pending| pending.id).collect();
        self.trace.push("failover".to_owned());
        let failover = self.job.failover().await.unwrap();
        let aborted: Vec<_> = failover
            .events
            .iter()
            .map(|event| match event {
                Event::Aborted(id, _) => *id,
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(aborted, pending);
        self.acknowledged.fill(None);
        self.reached.insert(Situation::FailedOver);
    }

    /// The process is lost, and the job goes on from its newest checkpoint.
    async fn recover(&mut self, rng: &mut Rng) {
        let Some(newest) = self.newest_checkpoint() else { return };
        let subtasks = self.other_subtasks(rng);
        self.trace.push(format!("recover {newest} subtasks={subtasks}"));
        let builder = self.settings.builder(&self.directory, subtasks, self.retained);
        self.job = builder.recover(&self.store).await.unwrap();
        self.reached.insert(Situation::Recovered);
        self.after_restore(newest, subtasks);
    }

    /// The process is lost, and a job goes on from any checkpoint, in the same or in a new directory.
    async fn restore(&mut self, rng: &mut Rng) {
        let ids: Vec<_> = self.kept.keys().copied().collect();
        let Some(&id) = rng.pick(&ids) else { return };
        let claim = if rng.chance(50) { Claim::Claim } else { Claim::NoClaim };
        let subtasks = self.other_subtasks(rng);
        self.trace.push(format!("restore {id} {claim:?} subtasks={subtasks}"));
        let from = RestoreFrom {
            directory: self.directory.clone(),
            checkpoint: Some(id),
            claim,
            on_damage: OnDamage::Refuse,
            force: false,
            progress: None,
        };
        let name = format!("j{}", self.directories);
        let builder = self.settings.builder(&name, subtasks, self.retained);
        self.job = builder.restore(&self.store, from).await.unwrap();
        if self.newest_checkpoint().is_some_and(|newest| newest > id) {
            self.reached.insert(Situation::RestoredOlder);
        }
        if self.kept[&id].0 == CheckpointKind::Savepoint {
            self.reached.insert(Situation::RestoredSavepoint);
        }
        let image = self.kept[&id].1.clone();
        match claim {
            Claim::Claim => {
                self.reached.insert(Situation::Claimed);
                self.kept.retain(|other, (kind, _)| *other <= id || *kind == CheckpointKind::Savepoint);
                self.kept.insert(id, (CheckpointKind::Checkpoint, image.clone()));
            }
            Claim::NoClaim => {
                self.reached.insert(Situation::NotClaimed);
                self.directories += 1;
                let directory = std::mem::replace(&mut self.directory, name);
                let kept = std::mem::take(&mut self.kept);
                self.foreign.extend(kept.into_iter().map(|(id, (_, image))| (directory.clone(), id, image)));
                self.kept.clear();
            }
        }
        self.after_restore_of(image, subtasks);
    }

    fn after_restore(&mut self, id: CheckpointId, subtasks: u32) {
        let image = self.kept[&id].1.clone();
        self.after_restore_of(image, subtasks);
    }

    fn after_restore_of(&mut self, image: Image, subtasks: u32) {
        self.pending.clear();
        self.removed.clear();
        self.map = image;
        self.handles = open_states(&mut self.job);
        if subtasks > self.subtasks {
            self.reached.insert(Situation::RescaledOut);
        } else if subtasks < self.subtasks {
            self.reached.insert(Situation::RescaledIn);
        }
        self.subtasks = subtasks;
        self.acknowledged = vec![None; subtasks as usize];
        self.compare();
    }

    fn other_subtasks(&self, rng: &mut Rng) -> u32 {
        if rng.chance(40) { self.subtasks } else { 2 + rng.below(3) as u32 }
    }

    /// An independent count: what the manifests list is there, and nothing else.
    async fn count_objects(&self) {
        let directory = self.store.sub(&ObjectName::new(&self.directory).unwrap());
        let published = read_published(&directory).await.unwrap();
        let mut listed = BTreeSet::new();
        for checkpoint in published.checkpoints.iter().chain(&published.savepoints) {
            let manifest = checkpoint.manifest(&directory).await.unwrap();
            listed.extend(manifest.files.iter().map(|file| file.entry.object.to_string()));
        }
        let ids: Vec<_> = published.checkpoints.iter().chain(&published.savepoints).map(|c| c.id()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>(), self.kept.keys().collect(), "kept checkpoints");
        let stored: BTreeSet<_> =
            directory.list(ObjectClass::Data).await.unwrap().into_iter().map(|object| object.path).collect();
        assert!(listed.is_subset(&stored), "missing: {:?}", listed.difference(&stored));
        // A lost process leaves what it had uploaded; that is for the sweeper.
        if !self.reached.contains(&Situation::Recovered) && !self.reached.contains(&Situation::Claimed) {
            assert_eq!(stored, listed, "objects that nothing lists");
        }
    }
}

/// What stays the same over restores.
#[derive(Clone, Debug)]
struct Settings {
    mode: BaseMode,
    policy: Option<Arc<dyn RewritePolicy>>,
}

impl Settings {
    fn builder(&self, name: &str, subtasks: u32, retained: u32) -> JobBuilder {
        let backend = HeapSettings { rewriting: self.policy.clone(), ..HeapSettings::default() };
        builder(name, subtasks, retained).base_mode(self.mode).backend(backend)
    }
}

/// No rewriting, or one of the bounds with a small or an unlimited budget; small segments in few objects or each in its own.
fn policy(rng: &mut Rng) -> Option<Arc<dyn RewritePolicy>> {
    let objects_max = rng.chance(40).then(|| 1 + rng.below(4) as u32);
    let bound = match rng.below(5) {
        0 => return objects_max.map(|count| Arc::new(BoundedRewriting::packing(count)) as Arc<_>),
        1 => Bound::MaxAge { checkpoints: rng.below(3) as u32 },
        2 => Bound::SpaceAmplification { ratio: 1.0 + rng.below(10) as f64 / 10.0 },
        _ => Bound::MaxSegments { count: 1 + rng.below(3) as u32 },
    };
    let budget = if rng.chance(50) { RewriteBudget::Unlimited } else { RewriteBudget::Bytes(rng.below(200)) };
    Some(Arc::new(BoundedRewriting { budget, objects_max, ..BoundedRewriting::exactly(bound) }))
}

fn builder(name: &str, subtasks: u32, retained: u32) -> JobBuilder {
    Job::builder(name)
        .subtasks(subtasks)
        .key_groups(KEY_GROUPS)
        .retained(Retention::newest(retained).unwrap())
        .concurrent_max(PENDING_MAX as u32)
}

fn open_states(job: &mut Job) -> Vec<Handle> {
    STATES.iter().map(|name| job.value_state(name).unwrap()).collect()
}

fn image_of(job: &Job, handles: &[Handle]) -> Image {
    let mut image = Image::new();
    for (state, handle) in handles.iter().enumerate() {
        let access = job.state(handle);
        for entry in access.iter().unwrap() {
            let (key, namespace, value) = entry.unwrap();
            assert!(image.insert((state as u8, *namespace, *key), *value).is_none(), "key {key} twice");
            assert_eq!(access.get_in(namespace, key).unwrap(), Some(value));
        }
    }
    image
}
