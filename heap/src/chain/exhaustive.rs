//! All histories of two keys over four checkpoints, on an engine of the test's own, against [`Chain::next`].
//!
//! Between two checkpoints each key sees nothing, a put, a removal, a put and a removal, or a removal and a put,
//! after a clear of the state or without one. Each checkpoint completes, is aborted, or stays pending while the next
//! one is triggered: then it is overtaken if that one completes, and completes itself otherwise. Equal states of the
//! engine are followed once, with the number of histories that lead to them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::*;
use lowtide_format::KeyGroup;

const KEYS: usize = 2;
const CHECKPOINTS: u64 = 4;
const STATE: StateIndex = StateIndex(0);

/// A map in the same order at every run.
type States<T> = HashMap<Engine, T, BuildHasherDefault<DefaultHasher>>;

/// What the engine adds to the plain protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Elide,
    Always,
    /// Elide, and the records of the oldest element are rewritten by every checkpoint.
    Rewrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    Put,
    Remove,
    PutRemove,
    RemovePut,
}

const CHANGES: [Change; 5] =
    [Change::Nothing, Change::Put, Change::Remove, Change::PutRemove, Change::RemovePut];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    Abort,
    Pending,
}

const OUTCOMES: [Outcome; 3] = [Outcome::Complete, Outcome::Abort, Outcome::Pending];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    value: u64,
    /// The freeze that ends the interval in which it changed last.
    changed: u64,
    born: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Removal {
    oldest: u64,
    /// `None` if no record of the key was ever written.
    newest: Option<u64>,
    removed: u64,
}

/// A written segment; its place in the list is its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Written {
    id: u64,
    puts: BTreeMap<usize, u64>,
    tombstones: BTreeMap<usize, (u64, u64)>,
    clear: bool,
}

/// A checkpoint: the numbers of the segments it lists, and where each entry's record is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taken {
    id: u64,
    listed: Vec<usize>,
    homes: [Option<usize>; KEYS],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Engine {
    next: u64,
    entries: [Option<Entry>; KEYS],
    /// The newest checkpoint under which a record of the key may have been written, since it was last absent.
    newest: [Option<u64>; KEYS],
    removals: [Option<Removal>; KEYS],
    /// The freeze that ends the interval of the last clear.
    cleared: Option<u64>,
    segments: Vec<Written>,
    base: Option<Taken>,
    pending: Option<Taken>,
    /// Whether removals of keys are remembered of which no record was ever written.
    logs_all: bool,
}

/// One interval of a history and the checkpoint that ends it, with what that lists: of each element its checkpoint,
/// live puts, tombstones and clears.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) clear: bool,
    pub(crate) changes: [Change; KEYS],
    pub(crate) outcome: Outcome,
    pub(crate) listed: Vec<[u64; 4]>,
}

/// Counts over all histories.
#[derive(Debug, Default)]
struct Totals {
    histories: u64,
    states: u64,
    listed: u64,
    needless: u64,
    pruned: u64,
}

impl Engine {
    fn put(&mut self, key: usize) {
        let inherited = self.removals[key].as_ref().map(|removal| removal.oldest);
        let born = self.entries[key].as_ref().map(|entry| entry.born).or(inherited).unwrap_or(self.next);
        self.entries[key] = Some(Entry { value: self.next, changed: self.next, born });
    }

    fn remove(&mut self, key: usize) {
        let Some(entry) = self.entries[key].take() else { return };
        let newest = self.newest[key].take();
        if newest.is_none() && self.removals[key].is_none() && !self.logs_all {
            return;
        }
        let known = self.removals[key].take();
        self.removals[key] = Some(Removal {
            oldest: known.as_ref().map_or(entry.born, |known| known.oldest.min(entry.born)),
            newest: newest.max(known.and_then(|known| known.newest)),
            removed: self.next,
        });
    }

    fn clear(&mut self) {
        self.entries = Default::default();
        self.newest = Default::default();
        self.removals = Default::default();
        self.cleared = Some(self.next);
    }

    fn change(&mut self, key: usize, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Put => self.put(key),
            Change::Remove => self.remove(key),
            Change::PutRemove => {
                self.put(key);
                self.remove(key);
            }
            Change::RemovePut => {
                self.remove(key);
                self.put(key);
            }
        }
    }

    /// What happens between two checkpoints.
    fn pass(&mut self, clear: bool, changes: [Change; KEYS]) {
        if clear {
            self.clear();
        }
        for (key, change) in changes.into_iter().enumerate() {
            self.change(key, change);
        }
    }

    /// Freezes, writes and lists; what is written is checked before it counts.
    fn trigger(&mut self, mode: Mode, weight: u64, totals: &mut Totals) -> (Taken, Chain) {
        let (id, base) = (self.next, self.base.clone());
        self.next += 1;
        let base_id = base.as_ref().map_or(0, |base| base.id);
        for removal in &mut self.removals {
            removal.take_if(|removal| removal.removed <= base_id);
        }
        let has_matter = base.as_ref().is_some_and(|base| !base.listed.is_empty());
        let mut delta = Written { id, puts: BTreeMap::new(), tombstones: BTreeMap::new(), clear: false };
        delta.clear = has_matter && self.cleared.is_some_and(|cleared| cleared > base_id);
        let mut homes = [None; KEYS];
        for (key, home) in homes.iter_mut().enumerate() {
            match (&self.entries[key], &self.removals[key]) {
                (Some(entry), _) if entry.changed > base_id => {
                    delta.puts.insert(key, entry.value);
                    self.newest[key] = Some(id);
                    *home = Some(self.segments.len());
                }
                (Some(_), _) => *home = base.as_ref().and_then(|base| base.homes[key]),
                (None, Some(removal))
                    if has_matter && (mode == Mode::Always || removal.oldest <= base_id) =>
                {
                    let span = removal.newest.map_or((id, id), |newest| (removal.oldest, newest));
                    delta.tombstones.insert(key, span);
                }
                _ => {}
            }
        }
        let live = homes;
        let mut new = Vec::new();
        if !delta.puts.is_empty() || !delta.tombstones.is_empty() || delta.clear {
            new.push(self.segments.len());
            self.segments.push(delta);
        }
        let victim = base.as_ref().and_then(|base| base.listed.first().copied());
        if let Some(victim) = victim.filter(|_| mode == Mode::Rewrite) {
            let number = self.segments.len();
            let mut cold = Written { id, puts: BTreeMap::new(), tombstones: BTreeMap::new(), clear: false };
            for key in (0..KEYS).filter(|key| live[*key] == Some(victim)) {
                cold.puts.insert(key, self.entries[key].as_ref().unwrap().value);
                homes[key] = Some(number);
                self.newest[key] = Some(id);
            }
            if !cold.puts.is_empty() {
                new.push(number);
                self.segments.push(cold);
            }
        }
        let chain = self.list(id, base.as_ref(), &live, &homes, &new);
        let listed = chain.elements().iter().map(|element| element.facts.number.0 as usize).collect();
        let taken = Taken { id, listed, homes };
        self.check(base.as_ref(), &new, &taken, weight, totals);
        (taken, chain)
    }

    fn facts(&self, number: usize) -> Arc<SegmentFacts> {
        let segment = &self.segments[number];
        let mut tombstones = TombstoneTally::new();
        let id = |id| CheckpointId::new(id).unwrap();
        for (oldest, newest) in segment.tombstones.values() {
            let span = TombstoneSpan { oldest: id(*oldest), newest: id(*newest) };
            tombstones.add(STATE, &Arc::from(&b""[..]), span);
        }
        let clear = ClearFact { state: STATE, namespace: None, key_groups: key_groups() };
        Arc::new(SegmentFacts {
            number: SegmentNumber(number as u32),
            checkpoint: id(segment.id),
            file: None,
            cold: false,
            puts: segment.puts.len() as u64,
            put_bytes: segment.puts.len() as u64,
            tombstone_bytes: segment.tombstones.len() as u64,
            tombstones,
            clears: segment.clear.then_some(clear).into_iter().collect(),
            states: if segment.puts.len() + segment.tombstones.len() > 0 { vec![STATE] } else { Vec::new() },
        })
    }

    /// The listing by [`Chain::next`].
    fn list(
        &self,
        id: u64,
        base: Option<&Taken>,
        live: &[Option<usize>; KEYS],
        homes: &[Option<usize>; KEYS],
        new: &[usize],
    ) -> Chain {
        let element = |number: &usize| Element {
            facts: self.facts(*number),
            key_groups: key_groups(),
            live_puts: self.segments[*number].puts.len() as u64,
            live_tombstones: self.segments[*number].tombstones.len() as u64,
            live_clears: u64::from(self.segments[*number].clear),
            matter: Vec::new(),
        };
        let checkpoint = |id| CheckpointId::new(id).unwrap();
        let base =
            base.map(|base| Chain::new(checkpoint(base.id), base.listed.iter().map(element).collect()));
        let (mut counts, mut rewritten) = (LivePuts::new(), LivePuts::new());
        for (was, is) in live.iter().zip(homes) {
            if let Some(was) = was {
                counts.add(SegmentNumber(*was as u32), 1);
                rewritten.add(SegmentNumber(*was as u32), u64::from(was != is.as_ref().unwrap()));
            }
        }
        let new: Vec<_> = new.iter().map(|number| self.facts(*number)).collect();
        let chain = Chain::next(&NextChain {
            id: checkpoint(id),
            base: base.as_ref(),
            live: &counts,
            rewritten: &rewritten,
            new: &new,
            key_groups: &key_groups(),
        });
        chain.check_invariants(Some(live.iter().flatten().count() as u64));
        chain
    }

    /// Checks that the listing restores the map and is the one that the rule of the design gives.
    fn check(&self, base: Option<&Taken>, new: &[usize], taken: &Taken, weight: u64, totals: &mut Totals) {
        let truth: Vec<_> =
            self.entries.iter().map(|entry| entry.as_ref().map(|entry| entry.value)).collect();
        assert_eq!(self.restore(&taken.listed), truth, "{taken:?} of {self:?}");
        let old = base.map(|base| base.listed.as_slice()).unwrap_or_default();
        let candidates: Vec<_> = old.iter().chain(new).copied().collect();
        assert_eq!(taken.listed, self.listed_by_rule(&candidates, taken), "{taken:?} of {self:?}");
        totals.pruned += weight * (candidates.len() - taken.listed.len()) as u64;
        for number in taken.listed.iter().filter(|number| self.segments[**number].id < taken.id) {
            totals.listed += weight;
            let others: Vec<_> = taken.listed.iter().copied().filter(|other| other != number).collect();
            totals.needless += weight * u64::from(self.restore(&others) == truth);
        }
    }

    /// Restores newest first; what is in segments of one checkpoint is disjoint.
    fn restore(&self, listed: &[usize]) -> Vec<Option<u64>> {
        let mut known: [Option<Option<u64>>; KEYS] = [None; KEYS];
        let mut newest_first: Vec<_> = listed.iter().map(|number| &self.segments[*number]).collect();
        newest_first.sort_by_key(|segment| std::cmp::Reverse(segment.id));
        for same in newest_first.chunk_by(|a, b| a.id == b.id) {
            for segment in same {
                for (key, value) in &segment.puts {
                    known[*key].get_or_insert(Some(*value));
                }
                for key in segment.tombstones.keys() {
                    known[*key].get_or_insert(None);
                }
            }
            if same.iter().any(|segment| segment.clear) {
                known.iter_mut().for_each(|key| _ = key.get_or_insert(None));
            }
        }
        known.into_iter().map(Option::flatten).collect()
    }

    /// The largest set in which every element has a live record or is new, found by leaving out those that do not.
    fn listed_by_rule(&self, candidates: &[usize], taken: &Taken) -> Vec<usize> {
        let mut listed = candidates.to_vec();
        loop {
            let stays = |number: &usize| {
                let segment = &self.segments[*number];
                let older =
                    || listed.iter().map(|other| &self.segments[*other]).filter(|o| o.id < segment.id);
                let covered =
                    || listed.iter().any(|o| self.segments[*o].clear && self.segments[*o].id > segment.id);
                let put = taken.homes.contains(&Some(*number));
                let hides =
                    |(oldest, newest): &(u64, u64)| older().any(|o| *oldest <= o.id && o.id <= *newest);
                let tombstone = segment.tombstones.values().any(hides) && !covered();
                let holds = |o: &Written| !o.puts.is_empty() || !o.tombstones.is_empty();
                let clear = segment.clear && older().any(holds) && !covered();
                put || tombstone || clear || segment.id == taken.id
            };
            let next: Vec<_> = listed.iter().copied().filter(stays).collect();
            if next.len() == listed.len() {
                return next;
            }
            listed = next;
        }
    }

    fn settle(&mut self, taken: Taken, outcome: Outcome) {
        let waiting = self.pending.take();
        match outcome {
            Outcome::Complete => self.base = Some(taken),
            Outcome::Abort => self.base = waiting.or(self.base.take()),
            Outcome::Pending => {
                self.base = waiting.or(self.base.take());
                self.pending = Some(taken);
            }
        }
        self.forget_unlisted();
    }

    /// Forgets the segments that nothing lists, so that states which differ in them only are equal.
    fn forget_unlisted(&mut self) {
        let mut kept: Vec<_> =
            self.base.iter().chain(&self.pending).flat_map(|taken| taken.listed.clone()).collect();
        kept.sort_unstable();
        kept.dedup();
        let moved = |number: usize| kept.binary_search(&number).unwrap();
        for taken in self.base.iter_mut().chain(&mut self.pending) {
            taken.listed.iter_mut().for_each(|number| *number = moved(*number));
            taken.homes.iter_mut().flatten().for_each(|number| *number = moved(*number));
        }
        self.segments = kept.iter().map(|number| self.segments[*number].clone()).collect();
    }
}

fn key_groups() -> KeyGroupSet {
    [KeyGroup(0)].into_iter().collect()
}

fn all_histories(mode: Mode) -> Totals {
    let mut totals = Totals::default();
    let logs_all = mode == Mode::Always;
    let mut level: States<u64> =
        [(Engine { next: 1, logs_all, ..Engine::default() }, 1)].into_iter().collect();
    for _ in 0..CHECKPOINTS {
        let mut frozen: States<u64> = States::default();
        for (engine, histories) in &level {
            for (clear, changes) in intervals() {
                let mut changed = engine.clone();
                changed.pass(clear, changes);
                *frozen.entry(changed).or_default() += histories;
            }
        }
        let mut next: States<u64> = States::default();
        for (mut engine, histories) in frozen {
            let (taken, _) = engine.trigger(mode, histories * OUTCOMES.len() as u64, &mut totals);
            for outcome in OUTCOMES {
                let mut settled = engine.clone();
                settled.settle(taken.clone(), outcome);
                *next.entry(settled).or_default() += histories;
            }
        }
        level = next;
        totals.states += level.len() as u64;
    }
    totals.histories = level.values().sum();
    totals
}

fn intervals() -> impl Iterator<Item = (bool, [Change; KEYS])> {
    let pairs = CHANGES.into_iter().flat_map(|first| CHANGES.into_iter().map(move |second| [first, second]));
    pairs.flat_map(|changes| [false, true].map(|clear| (clear, changes)))
}

/// One history for each state that the engine can be in at the freeze of the fourth checkpoint, which completes.
pub(crate) fn representatives() -> Vec<Vec<Step>> {
    let mut level: States<Vec<Step>> =
        [(Engine { next: 1, ..Engine::default() }, Vec::new())].into_iter().collect();
    for checkpoint in 1..=CHECKPOINTS {
        let mut frozen: States<Vec<Step>> = States::default();
        for (engine, history) in &level {
            for (clear, changes) in intervals() {
                let mut changed = engine.clone();
                changed.pass(clear, changes);
                let step = Step { clear, changes, outcome: Outcome::Complete, listed: Vec::new() };
                frozen.entry(changed).or_insert_with(|| history.iter().cloned().chain([step]).collect());
            }
        }
        let taken = frozen.into_iter().map(|(mut engine, mut history)| {
            let (taken, chain) = engine.trigger(Mode::Elide, 0, &mut Totals::default());
            let figures = |e: &Element| [e.id().get(), e.live_puts, e.live_tombstones, e.live_clears];
            history.last_mut().unwrap().listed = chain.elements().iter().map(figures).collect();
            (engine, taken, history)
        });
        if checkpoint == CHECKPOINTS {
            return taken.map(|(_, _, history)| history).collect();
        }
        let mut next: States<Vec<Step>> = States::default();
        for (engine, taken, history) in taken {
            for outcome in OUTCOMES {
                let mut settled = engine.clone();
                settled.settle(taken.clone(), outcome);
                let with_outcome = || {
                    let mut history = history.clone();
                    history.last_mut().unwrap().outcome = outcome;
                    history
                };
                next.entry(settled).or_insert_with(with_outcome);
            }
        }
        level = next;
    }
    Vec::new()
}

fn run(mode: Mode) -> Totals {
    let totals = all_histories(mode);
    println!("{mode:?}: {totals:?}");
    assert_eq!(totals.histories, (2 * 25 * 3_u64).pow(CHECKPOINTS as u32));
    assert!(totals.pruned > 0 && totals.listed > totals.needless);
    totals
}

#[test]
fn every_listing_of_every_history_restores_the_map_and_follows_the_rule() {
    run(Mode::Elide);
}

#[test]
fn the_same_holds_when_every_removal_leaves_a_tombstone() {
    run(Mode::Always);
}

#[test]
fn the_same_holds_while_the_oldest_element_is_always_rewritten() {
    run(Mode::Rewrite);
}
