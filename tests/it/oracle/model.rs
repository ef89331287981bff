//! A brute-force model of what a heap job writes, lists and prints: DESIGN, sections 5 and 6, by the
//! letter and with no thought for speed.
//!
//! It knows which records are in which segment, and derives everything else from that: which records
//! are live, what a manifest lists, what a restore finds. It shares no code with the engine except
//! the hash of a key.

use std::collections::{BTreeMap, BTreeSet};

/// State, namespace (the void one is empty), key.
pub(super) type Place = (String, String, String);
/// State, and a namespace of it or all.
pub(super) type Scope = (String, Option<String>);
pub(super) type Id = u64;
pub(super) type Segment = usize;
type Groups = BTreeSet<u16>;

#[derive(Clone)]
pub(super) struct Put {
    pub(super) at: Place,
    pub(super) born: Id,
}

#[derive(Clone)]
pub(super) struct Tombstone {
    pub(super) at: Place,
    pub(super) oldest: Id,
    /// None: no record of the key was ever written.
    pub(super) newest: Option<Id>,
}

#[derive(Clone)]
pub(super) struct Clear {
    pub(super) scope: Scope,
    pub(super) groups: Groups,
}

/// The records of one subtask in one checkpoint.
#[derive(Clone)]
pub(super) struct SegmentRecords {
    pub(super) id: Id,
    pub(super) puts: Vec<Put>,
    pub(super) tombstones: Vec<Tombstone>,
    pub(super) clears: Vec<Clear>,
}

#[derive(Clone)]
pub(super) struct Element {
    pub(super) segment: Segment,
    pub(super) groups: Groups,
    pub(super) live: u64,
}

#[derive(Clone)]
struct Entry {
    value: String,
    changed: u64,
    born: Id,
    written: Option<Id>,
}

#[derive(Clone)]
struct Removal {
    oldest: Id,
    newest: Option<Id>,
    at: u64,
}

/// What one subtask adds to a checkpoint, and what it then lists.
#[derive(Clone, Default)]
pub(super) struct Part {
    entries: BTreeMap<Place, Entry>,
    homes: BTreeMap<Place, Segment>,
    pub(super) elements: Vec<Element>,
    /// The segment it wrote: its delta and what it rewrote.
    pub(super) new: Option<Segment>,
    /// Puts in it that had not changed.
    pub(super) rewritten: usize,
}

/// What a freeze fixes and the write turns into segments.
#[derive(Clone)]
struct Frozen {
    at: u64,
    base: Option<Id>,
    savepoint: bool,
    entries: BTreeMap<Place, Entry>,
    removals: BTreeMap<Place, Removal>,
    clears: Vec<(Scope, u64)>,
    /// Segments older than this are to be emptied.
    oldest: Option<Id>,
}

#[derive(Clone)]
pub(super) struct Checkpoint {
    pub(super) id: Id,
    pub(super) savepoint: bool,
    pub(super) base: Option<Id>,
    pub(super) parts: Vec<Part>,
    /// The checkpoints that had completed before it, savepoints not counted.
    completed: BTreeSet<Id>,
}

#[derive(Clone)]
struct Pending {
    checkpoint: Checkpoint,
    written: BTreeSet<usize>,
    acknowledged: BTreeSet<usize>,
}

#[derive(Clone)]
struct Subtask {
    groups: Groups,
    entries: BTreeMap<Place, Entry>,
    removals: BTreeMap<Place, Removal>,
    clears: Vec<(Scope, u64)>,
    /// When each checkpoint that may be a base was frozen, and the chain it has since it was written.
    bases: BTreeMap<Id, (u64, Part)>,
    frozen: BTreeMap<Id, Frozen>,
    acknowledged: Option<Id>,
    /// Completed checkpoints, savepoints not counted; after a restore those before the restored one.
    completed: BTreeSet<Id>,
    /// Entries that a clear of their whole state took after a freeze: the frozen view still has them.
    cleared: BTreeMap<Place, Entry>,
}

#[derive(Clone)]
pub(super) struct Options {
    pub(super) subtasks: usize,
    pub(super) key_groups: u16,
    pub(super) retain: usize,
    pub(super) concurrent: usize,
    pub(super) always: bool,
    pub(super) acknowledged: bool,
    /// `rewrite=max-age:K` without a budget.
    pub(super) max_age: Option<usize>,
    /// `rewrite=objects:N`: several segments may lie in one object.
    pub(super) packs: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Checkpoint,
    Full,
    Savepoint,
}

/// What outlives a job: its directory.
#[derive(Clone, Default)]
pub(super) struct Directory {
    pub(super) retained: BTreeMap<Id, Checkpoint>,
    pub(super) savepoints: BTreeMap<Id, Checkpoint>,
}

#[derive(Clone)]
pub(super) struct Model {
    pub(super) options: Options,
    pub(super) directory: Directory,
    pub(super) segments: Vec<SegmentRecords>,
    subtasks: Vec<Subtask>,
    pending: BTreeMap<Id, Pending>,
    next: Id,
    /// Last checkpoint that was frozen and not a savepoint: a key put now is born after it.
    last_frozen: Id,
    clock: u64,
    /// The first checkpoint has to be full.
    unclaimed: bool,
    /// Largest id that was published in this directory.
    published_max: Id,
    /// Subtasks may list one segment together, and each copies it into an object of its own.
    shares: bool,
}

pub(super) fn key_group(key: &str, key_groups: u16) -> u16 {
    let hash = lowtide_format::xxh3(key.as_bytes());
    u16::try_from(hash % u64::from(key_groups)).unwrap()
}

fn range(index: usize, subtasks: usize, key_groups: u16) -> Groups {
    let count = usize::from(key_groups);
    let start = (index * count).div_ceil(subtasks);
    let end = ((index + 1) * count - 1) / subtasks;
    (start..=end).map(|group| u16::try_from(group).unwrap()).collect()
}

fn covers(scope: &Scope, at: &Place) -> bool {
    scope.0 == at.0 && scope.1.as_ref().is_none_or(|namespace| *namespace == at.1)
}

impl Subtask {
    fn frozen_at(&self, base: Id) -> u64 {
        self.bases[&base].0
    }

    fn new(groups: Groups) -> Self {
        Self {
            groups,
            entries: BTreeMap::new(),
            removals: BTreeMap::new(),
            clears: Vec::new(),
            bases: BTreeMap::new(),
            frozen: BTreeMap::new(),
            acknowledged: None,
            completed: BTreeSet::new(),
            cleared: BTreeMap::new(),
        }
    }
}

impl Model {
    pub(super) fn new(options: Options) -> Self {
        let subtasks = (0..options.subtasks)
            .map(|index| Subtask::new(range(index, options.subtasks, options.key_groups)))
            .collect();
        Self {
            options,
            directory: Directory::default(),
            segments: Vec::new(),
            subtasks,
            pending: BTreeMap::new(),
            next: 1,
            last_frozen: 0,
            clock: 1,
            unclaimed: false,
            published_max: 0,
            shares: false,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn subtask_of(&mut self, key: &str) -> &mut Subtask {
        let group = key_group(key, self.options.key_groups);
        self.subtasks.iter_mut().find(|subtask| subtask.groups.contains(&group)).unwrap()
    }

    pub(super) fn put(&mut self, at: Place, value: &str) {
        let (changed, fresh) = (self.tick(), self.last_frozen + 1);
        let subtask = self.subtask_of(&at.2);
        // A key in the removal log inherits what may hold it.
        let born = subtask.removals.get(&at).map_or(fresh, |removal| removal.oldest);
        let entry =
            subtask.entries.entry(at).or_insert(Entry { value: String::new(), changed, born, written: None });
        value.clone_into(&mut entry.value);
        entry.changed = changed;
    }

    pub(super) fn update(&mut self, at: &Place, suffix: &str) {
        let changed = self.tick();
        if let Some(entry) = self.subtask_of(&at.2).entries.get_mut(at) {
            entry.value.push_str(suffix);
            entry.changed = changed;
        }
    }

    pub(super) fn delete(&mut self, at: &Place) {
        let (now, always) = (self.tick(), self.options.always);
        let subtask = self.subtask_of(&at.2);
        let Some(entry) = subtask.entries.remove(at) else { return };
        if entry.written.is_none() && !subtask.removals.contains_key(at) && !always {
            // No record of the key was ever written anywhere.
            return;
        }
        let removal = subtask.removals.entry(at.clone()).or_insert(Removal {
            oldest: entry.born,
            newest: None,
            at: now,
        });
        removal.oldest = removal.oldest.min(entry.born);
        removal.newest = removal.newest.max(entry.written);
        removal.at = now;
    }

    pub(super) fn clear(&mut self, scope: &Scope) {
        let now = self.tick();
        for subtask in &mut self.subtasks {
            if scope.1.is_none() {
                let gone = subtask.entries.iter().filter(|(at, _)| covers(scope, at));
                subtask.cleared.extend(gone.map(|(at, entry)| (at.clone(), entry.clone())));
            }
            subtask.entries.retain(|at, _| !covers(scope, at));
            subtask.removals.retain(|at, _| !covers(scope, at));
            subtask.clears.push((scope.clone(), now));
        }
    }

    pub(super) fn get(&self, at: &Place) -> Option<&str> {
        self.subtasks.iter().find_map(|subtask| subtask.entries.get(at)).map(|entry| &*entry.value)
    }

    pub(super) fn entries(&self) -> BTreeMap<&Place, &str> {
        let all = self.subtasks.iter().flat_map(|subtask| &subtask.entries);
        all.map(|(at, entry)| (at, &*entry.value)).collect()
    }

    pub(super) fn pending_ids(&self) -> Vec<Id> {
        self.pending.keys().copied().collect()
    }

    /// Whether a subtask may build on what no published checkpoint lists: a lost process leaves that behind.
    pub(super) fn holds_unpublished(&self) -> bool {
        let published = self.directory.retained.keys().next_back().copied();
        self.options.acknowledged && self.subtasks.iter().any(|subtask| subtask.acknowledged > published)
    }

    pub(super) fn subtasks(&self) -> usize {
        self.subtasks.len()
    }

    /// The synchronous phase; `None` if too many checkpoints are pending.
    pub(super) fn trigger(&mut self, kind: Kind) -> Option<String> {
        let counted = self.pending.values().filter(|pending| !pending.checkpoint.savepoint).count();
        if kind != Kind::Savepoint && counted >= self.options.concurrent {
            return None;
        }
        let id = self.next;
        self.next += 1;
        let published = self.directory.retained.keys().next_back().copied();
        let mut bases = Vec::new();
        for index in 0..self.subtasks.len() {
            let own = self.subtasks[index].acknowledged.filter(|_| self.options.acknowledged);
            let base = match kind {
                Kind::Checkpoint if !self.unclaimed => own.max(published),
                _ => None,
            };
            bases.push(base);
        }
        for (index, base) in bases.iter().enumerate() {
            self.freeze(index, id, *base, kind);
        }
        let base = bases.iter().flatten().copied().min();
        let parts = vec![Part::default(); bases.len()];
        let completed = BTreeSet::new();
        let checkpoint = Checkpoint { id, savepoint: kind == Kind::Savepoint, base, parts, completed };
        if kind != Kind::Savepoint {
            self.last_frozen = id;
        }
        let pending = Pending { checkpoint, written: BTreeSet::new(), acknowledged: BTreeSet::new() };
        self.pending.insert(id, pending);
        Some(format!("chk-{id} triggered base={}", chk(base)))
    }

    /// The synchronous phase of one subtask.
    fn freeze(&mut self, index: usize, id: Id, base: Option<Id>, kind: Kind) {
        let at = self.tick();
        let published = self.directory.retained.keys().next_back().copied();
        let aged = self
            .options
            .max_age
            .and_then(|age| self.subtasks[index].completed.iter().rev().nth(age.checked_sub(1)?));
        let oldest = match self.options.max_age {
            Some(0) => Some(id),
            _ => aged.copied(),
        };
        let subtask = &mut self.subtasks[index];
        // Logs go back to the newest published base, which another generation may fall back to.
        if let (Some(_), Some(published)) = (base, published) {
            let covered = subtask.bases[&published].0;
            subtask.removals.retain(|_, removal| removal.at > covered);
            subtask.clears.retain(|(_, at)| *at > covered);
        }
        let covered = base.map_or(0, |base| subtask.frozen_at(base));
        if kind != Kind::Savepoint {
            for entry in subtask.entries.values_mut().filter(|entry| entry.changed > covered) {
                entry.written = Some(id);
            }
        }
        let frozen = Frozen {
            at,
            base,
            savepoint: kind == Kind::Savepoint,
            entries: subtask.entries.clone(),
            removals: subtask.removals.clone(),
            clears: subtask.clears.clone(),
            oldest: oldest.filter(|_| base.is_some()),
        };
        subtask.frozen.insert(id, frozen);
    }

    /// What one subtask writes and lists: section 5.
    fn part(&mut self, index: usize, id: Id) -> Part {
        let always = self.options.always;
        let key_groups = self.options.key_groups;
        let frozen = self.subtasks[index].frozen.remove(&id).unwrap();
        let based = frozen.base.map(|base| self.subtasks[index].bases[&base].clone());
        let mut delta = SegmentRecords { id, puts: Vec::new(), tombstones: Vec::new(), clears: Vec::new() };
        let mut rewritten = 0;
        let mut reached = Groups::new();
        let mut homes = BTreeMap::new();
        let new = self.segments.len();
        for (at, entry) in &frozen.entries {
            let put = Put { at: at.clone(), born: entry.born.min(id) };
            let unchanged = based.as_ref().filter(|(covered, _)| entry.changed <= *covered);
            let group = key_group(&at.2, key_groups);
            let Some((_, part)) = unchanged else {
                reached.insert(group);
                delta.puts.push(put);
                homes.insert(at.clone(), new);
                continue;
            };
            let home = part.homes[at];
            let victim = frozen.oldest.is_some_and(|oldest| self.segments[home].id < oldest);
            let Subtask { entries, cleared, .. } = &mut self.subtasks[index];
            let as_it_was = |now: &&mut Entry| victim && now.changed <= frozen.at;
            let now = entries.get_mut(at).filter(as_it_was);
            match now.or_else(|| cleared.get_mut(at).filter(as_it_was)) {
                Some(now) => {
                    now.written = Some(id);
                    rewritten += 1;
                    reached.insert(group);
                    delta.puts.push(put);
                    homes.insert(at.clone(), new);
                }
                None => {
                    homes.insert(at.clone(), home);
                }
            }
        }
        let subtask = &self.subtasks[index];
        let groups = subtask.groups.clone();
        let mut elements = Vec::new();
        if let (Some(base), Some((covered, part))) = (frozen.base, &based) {
            let matter = !part.elements.is_empty();
            for (at, removal) in &frozen.removals {
                let absent = !frozen.entries.contains_key(at) && removal.at > *covered;
                if absent && (always || (removal.oldest <= base && matter)) {
                    let Removal { oldest, newest, .. } = removal.clone();
                    reached.insert(key_group(&at.2, key_groups));
                    delta.tombstones.push(Tombstone { at: at.clone(), oldest, newest });
                }
            }
            // One record for each scope; what a later clear covers is dead before it is written.
            let since: Vec<_> = frozen.clears.iter().filter(|(_, at)| matter && at > covered).collect();
            let covered_later = |(scope, at): &(Scope, u64)| {
                since.iter().any(|(other, later)| {
                    later > at && other.0 == scope.0 && (other.1.is_none() || other == scope)
                })
            };
            for (scope, _) in since.iter().filter(|clear| !covered_later(clear)) {
                delta.clears.push(Clear { scope: scope.clone(), groups: groups.clone() });
            }
            elements.clone_from(&part.elements);
        }
        // A segment is listed from its first key group to its last, with clears for all.
        let reach = reached.first().zip(reached.last()).into_iter().flat_map(|(first, last)| *first..=*last);
        let groups = if delta.clears.is_empty() { reach.collect() } else { groups };
        let empty = delta.puts.is_empty() && delta.tombstones.is_empty() && delta.clears.is_empty();
        if !empty {
            self.segments.push(delta);
            elements.push(Element { segment: new, groups, live: 0 });
        }
        let new = (!empty).then_some(new);
        let elements = self.listed(&elements, &homes, id, key_groups);
        let part = Part { entries: frozen.entries, homes, elements, new, rewritten };
        if !frozen.savepoint {
            self.subtasks[index].bases.insert(id, (frozen.at, part.clone()));
        }
        part
    }

    /// The elements that hold a live record, and the new one.
    fn listed(
        &self,
        candidates: &[Element],
        homes: &BTreeMap<Place, Segment>,
        id: Id,
        key_groups: u16,
    ) -> Vec<Element> {
        let in_groups = |groups: &Groups, at: &Place| groups.contains(&key_group(&at.2, key_groups));
        let mut listed: Vec<Element> = Vec::new();
        for candidate in candidates {
            let records = &self.segments[candidate.segment];
            let older: Vec<&Element> =
                listed.iter().filter(|element| self.segments[element.segment].id < records.id).collect();
            let newer_clears: Vec<&Clear> = candidates
                .iter()
                .map(|element| &self.segments[element.segment])
                .filter(|segment| segment.id > records.id)
                .flat_map(|segment| &segment.clears)
                .collect();
            let mut live = homes.values().filter(|home| **home == candidate.segment).count();
            live += records
                .tombstones
                .iter()
                .filter(|tombstone| in_groups(&candidate.groups, &tombstone.at))
                .filter(|tombstone| {
                    let group = key_group(&tombstone.at.2, key_groups);
                    let void =
                        |clear: &&Clear| covers(&clear.scope, &tombstone.at) && clear.groups.contains(&group);
                    let hides = |element: &&Element| {
                        let other = self.segments[element.segment].id;
                        tombstone.oldest <= other && tombstone.newest.is_some_and(|new| other <= new)
                    };
                    older.iter().any(hides) && !newer_clears.iter().any(void)
                })
                .count();
            live += records
                .clears
                .iter()
                .filter(|clear| {
                    let own: Groups = clear.groups.intersection(&candidate.groups).copied().collect();
                    let holds = |element: &&Element| {
                        let segment = &self.segments[element.segment];
                        let puts = segment.puts.iter().map(|put| &put.at);
                        let removed = segment.tombstones.iter().map(|tombstone| &tombstone.at);
                        !element.groups.is_disjoint(&own)
                            && puts
                                .chain(removed)
                                .any(|at| at.0 == clear.scope.0 && in_groups(&element.groups, at))
                    };
                    let covered = own.iter().all(|group| {
                        newer_clears.iter().any(|newer| {
                            let wider = newer.scope.1.is_none() || newer.scope.1 == clear.scope.1;
                            newer.scope.0 == clear.scope.0 && wider && newer.groups.contains(group)
                        })
                    });
                    older.iter().any(holds) && !covered
                })
                .count();
            if live > 0 || records.id == id {
                let live = u64::try_from(live).unwrap();
                listed.push(Element { live, ..candidate.clone() });
            }
        }
        listed
    }

    pub(super) fn write(&mut self, id: Id, subtask: usize) -> Vec<String> {
        if !self.pending.contains_key(&id) {
            return vec![format!("chk-{id} ignored")];
        }
        let part = self.part(subtask, id);
        let pending = self.pending.get_mut(&id).unwrap();
        pending.checkpoint.parts[subtask] = part;
        pending.written.insert(subtask);
        Vec::new()
    }

    /// Whether a subtask has written its part of a pending checkpoint; `None` if it is not pending.
    pub(super) fn has_written(&self, id: Id, subtask: usize) -> Option<bool> {
        self.pending.get(&id).map(|pending| pending.written.contains(&subtask))
    }

    pub(super) fn acknowledge(&mut self, id: Id, subtask: usize) -> Vec<String> {
        let Some(pending) = self.pending.get_mut(&id) else {
            return vec![format!("chk-{id} ignored")];
        };
        if !pending.written.contains(&subtask) {
            return vec!["error invalid-argument: *".to_owned()];
        }
        if !pending.acknowledged.insert(subtask) {
            return vec![format!("chk-{id} ignored")];
        }
        if !pending.checkpoint.savepoint {
            let latest = &mut self.subtasks[subtask].acknowledged;
            *latest = (*latest).max(Some(id));
        }
        if pending.acknowledged.len() < self.subtasks.len() {
            return Vec::new();
        }
        self.complete(id)
    }

    fn complete(&mut self, id: Id) -> Vec<String> {
        let mut done = self.pending.remove(&id).unwrap().checkpoint;
        done.completed = self.subtasks[0].completed.range(..id).copied().collect();
        self.published_max = self.published_max.max(id);
        let mut events = vec![format!("chk-{id} complete")];
        if done.savepoint {
            self.directory.savepoints.insert(id, done);
            return events;
        }
        self.unclaimed = false;
        for subtask in &mut self.subtasks {
            subtask.completed.insert(id);
        }
        self.directory.retained.insert(id, done);
        while self.directory.retained.len() > self.options.retain {
            let (old, _) = self.directory.retained.pop_first().unwrap();
            events.push(format!("chk-{old} subsumed"));
        }
        let overtaken: Vec<Id> = self
            .pending
            .iter()
            .filter(|(other, pending)| **other < id && !pending.checkpoint.savepoint)
            .map(|(other, _)| *other)
            .collect();
        for other in overtaken {
            self.pending.remove(&other);
            events.push(format!("chk-{other} aborted"));
        }
        events
    }

    pub(super) fn abort(&mut self, id: Id) -> String {
        match self.pending.remove(&id) {
            Some(_) => format!("chk-{id} aborted"),
            None => format!("chk-{id} ignored"),
        }
    }

    /// The coordinator is lost and rebuilt; subtasks keep what they have.
    pub(super) fn failover(&mut self) -> Vec<String> {
        let ids = self.pending_ids();
        let mut lines: Vec<String> = ids.into_iter().map(|id| self.abort(id)).collect();
        for subtask in &mut self.subtasks {
            subtask.acknowledged = None;
        }
        let retained = self.directory.retained.values();
        let files: BTreeSet<Segment> = retained.flat_map(segments).collect();
        let checkpoints = self.directory.retained.len();
        let files = if self.options.packs { "*".to_owned() } else { files.len().to_string() };
        lines.push(format!("recovered checkpoints={checkpoints} files={files}"));
        lines
    }

    fn found(&self, id: Id) -> Option<&Checkpoint> {
        self.directory.retained.get(&id).or_else(|| self.directory.savepoints.get(&id))
    }

    pub(super) fn verify(&self, id: Option<Id>) -> String {
        let found = match id {
            Some(id) => self.found(id),
            None => self.directory.retained.values().next_back(),
        };
        let Some(checkpoint) = found else { return "error not-found: *".to_owned() };
        let entries: usize = checkpoint.parts.iter().map(|part| part.entries.len()).sum();
        format!("chk-{} ok entries={entries}", checkpoint.id)
    }

    pub(super) fn stat(&self, id: Id) -> String {
        let Some(checkpoint) = self.found(id) else { return "error not-found: *".to_owned() };
        let new: Vec<&SegmentRecords> = checkpoint
            .parts
            .iter()
            .filter_map(|part| part.new)
            .map(|segment| &self.segments[segment])
            .collect();
        let puts: usize = new.iter().map(|segment| segment.puts.len()).sum();
        let tombstones: usize = new.iter().map(|segment| segment.tombstones.len()).sum();
        let clears: usize = new.iter().map(|segment| segment.clears.len()).sum();
        let rewritten: usize = checkpoint.parts.iter().map(|part| part.rewritten).sum();
        let segments = segments(checkpoint).len();
        let segments = if self.shares && self.options.packs { "*".to_owned() } else { segments.to_string() };
        format!(
            "chk-{id} base={} puts={puts} tombstones={tombstones} clears={clears} rewritten={rewritten} segments={segments}",
            chk(checkpoint.base),
        )
    }

    pub(super) fn chain(&self, id: Id) -> String {
        let Some(checkpoint) = self.found(id) else { return "error not-found: *".to_owned() };
        let mut live: BTreeMap<Id, u64> = BTreeMap::new();
        for element in checkpoint.parts.iter().flat_map(|part| &part.elements) {
            *live.entry(self.segments[element.segment].id).or_default() += element.live;
        }
        if live.is_empty() {
            return "(empty)".to_owned();
        }
        let links: Vec<String> = live.iter().map(|(id, live)| format!("chk-{id}:{live}")).collect();
        links.join(" ")
    }

    /// Distinct segments that the directory's checkpoints and savepoints list.
    pub(super) fn referenced(&self) -> usize {
        let directory = &self.directory;
        let all = directory.retained.values().chain(directory.savepoints.values());
        all.flat_map(segments).collect::<BTreeSet<_>>().len()
    }

    /// The job is lost and started again from a checkpoint, claimed or as a new job, with so many
    /// subtasks.
    pub(super) fn restore(&mut self, id: Id, claim: bool, subtasks: usize) -> usize {
        let source = self.found(id).unwrap().clone();
        self.pending.clear();
        if claim {
            self.directory.retained.retain(|other, _| *other <= id);
            // A claimed savepoint is an ordinary checkpoint from then on.
            self.directory.savepoints.remove(&id);
            self.directory.retained.insert(id, Checkpoint { savepoint: false, ..source.clone() });
        } else {
            self.directory = Directory::default();
            self.published_max = 0;
        }
        self.unclaimed = !claim;
        self.next = if claim { self.next_after_claim(id) } else { id + 1 };
        self.last_frozen = self.next - 1;
        self.shares |= subtasks != self.options.subtasks;
        self.options.subtasks = subtasks;
        let now = self.tick();
        let key_groups = self.options.key_groups;
        self.subtasks = (0..subtasks)
            .map(|index| {
                let mut subtask = Subtask::new(range(index, subtasks, key_groups));
                let part = self.reassembled(&source, &subtask.groups);
                subtask.entries.clone_from(&part.entries);
                subtask.completed.clone_from(&source.completed);
                subtask.completed.insert(id);
                subtask.bases.insert(id, (now, part));
                subtask
            })
            .collect();
        self.subtasks.iter().map(|subtask| subtask.entries.len()).sum()
    }

    /// Ids that were published are never used again; ids that were only triggered may be.
    fn next_after_claim(&self, id: Id) -> Id {
        let directory = &self.directory;
        let published = directory.retained.keys().chain(directory.savepoints.keys()).max();
        self.published_max.max(id).max(*published.unwrap_or(&id)) + 1
    }

    /// What a new subtask finds: the elements of all old ones cut to its groups, and their entries.
    fn reassembled(&self, source: &Checkpoint, groups: &Groups) -> Part {
        let mut part = Part::default();
        let mut cut: BTreeMap<(Id, Segment), Groups> = BTreeMap::new();
        for old in &source.parts {
            for element in &old.elements {
                let own = element.groups.intersection(groups).copied().collect::<Groups>();
                if !own.is_empty() {
                    let key = (self.segments[element.segment].id, element.segment);
                    cut.entry(key).or_default().extend(own);
                }
            }
            for (at, entry) in &old.entries {
                if groups.contains(&key_group(&at.2, self.options.key_groups)) {
                    let home = old.homes[at];
                    let segment = &self.segments[home];
                    let born = segment.puts.iter().find(|put| put.at == *at).unwrap().born;
                    let entry = Entry { born, written: Some(segment.id), ..entry.clone() };
                    part.entries.insert(at.clone(), entry);
                    part.homes.insert(at.clone(), home);
                }
            }
        }
        let cut = cut.into_iter().map(|((_, segment), groups)| Element { segment, groups, live: 0 });
        // In fewer key groups an element may hold no live record: it is not listed for this subtask any more, and neither
        // tombstone nor clear is needed because of it.
        let cut: Vec<Element> = cut.collect();
        part.elements = self.listed(&cut, &part.homes, source.id, self.options.key_groups);
        part
    }
}

fn segments(checkpoint: &Checkpoint) -> BTreeSet<Segment> {
    let elements = checkpoint.parts.iter().flat_map(|part| &part.elements);
    elements.map(|element| element.segment).collect()
}

pub(super) fn chk(id: Option<Id>) -> String {
    id.map_or("none".to_owned(), |id| format!("chk-{id}"))
}
