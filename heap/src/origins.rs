//! Where entries come from: a small label beside each entry, and how many live entries bear each label.
//!
//! Owns: what a label means, and the counts. Does not own: which entry bears which label (the pieces).
//!
//! A *label* names the interval in which an entry was last changed, or, for a restored or rewritten entry, the
//! segment that holds its record. Two bytes an entry tell its version and, together with the history of a base
//! ([`Homes`](crate::lineage::Homes)), its home.
//!
//! Counts are kept per label and *part*, a fixed share of the key groups, because a large checkpoint is cut into
//! several segments by parts, and each of them lives or dies by the entries of its own.
//!
//! # Invariants
//!
//! - H2. The counts of all labels add up to the entries of the state. Each is right once the origins have caught up,
//!   which they have when a snapshot gets them.
//! - H3. A label without entries is given away only by a freeze: within the interval of its last change an entry
//!   that was changed still bears it (it tells where older records of the key are).

use lowtide_format::CheckpointId;

use crate::chain::SegmentNumber;
use crate::epochs::Epoch;

/// Two bytes that stand beside an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label(pub(crate) u16);

impl Label {
    /// An entry no earlier value of which was ever written.
    pub(crate) const NEW: Self = Self(0);
}

/// A fixed share of a backend's key groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part(pub(crate) usize);

/// Into how many parts the key groups of a backend are cut at most; also into how many segments one checkpoint.
pub(crate) const PARTS_MAX: usize = 64;

/// The segment that holds the record of an entry whatever the base, and the epoch that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedHome {
    pub(crate) segment: SegmentNumber,
    pub(crate) epoch: Epoch,
}

/// What a label means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The interval of the last change.
    pub(crate) version: Epoch,
    /// The newest checkpoint that may have written such an entry; `None` before the first.
    pub(crate) newest: Option<CheckpointId>,
    /// Known for restored and rewritten entries; for others it follows from the base.
    pub(crate) home: Option<FixedHome>,
    used: bool,
}

/// The labels of one state and their counts. What a freeze asks lies together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Origins {
    origins: Vec<Origin>,
    unused: Vec<Label>,
    counts: Vec<u32>,
    parts: usize,
    /// The labels of intervals, oldest first.
    intervals: Vec<(Epoch, Label)>,
    /// The labels of known homes, by segment and version, ascending: new ones come last, and a copy is one of bytes.
    fixed: Vec<((SegmentNumber, Epoch), Label)>,
    /// Labels that only tell how new a record of a changed entry may be, until the next freeze.
    witnesses: Vec<(CheckpointId, Label)>,
    /// First changes in the running interval that the counts do not know yet.
    uncounted: Uncounted,
}

/// So many labels tell entries of one segment apart by their versions.
#[cfg(not(test))]
pub(crate) const EXACT_MAX: usize = 1024;
/// Few, so that histories meet both sides.
#[cfg(test)]
pub(crate) const EXACT_MAX: usize = 12;

/// Labels that entries had before their first changes, and their parts.
///
/// The label of an entry comes late where the state is larger than the caches. A count that is found by it would be
/// stored late, and no later access to a count could begin before its place is known. What waits here has its place.
#[derive(Clone, Debug)]
struct Uncounted {
    changes: [(Label, u16); UNCOUNTED_MAX],
    length: usize,
}

/// So many that they are counted seldom, and take a few lines of the cache.
const UNCOUNTED_MAX: usize = 64;

impl Uncounted {
    const NONE: Self = Self { changes: [(Label::NEW, 0); UNCOUNTED_MAX], length: 0 };
}

impl Origins {
    /// No labels; `parts` is at least 1.
    pub(crate) fn new(parts: usize) -> Self {
        let new = Origin { version: Epoch(0), newest: None, home: None, used: true };
        Self { origins: vec![new], counts: vec![0; parts], parts, ..Self::NONE }
    }

    /// No labels at all, not even that of new entries.
    pub(crate) const NONE: Self = Self {
        origins: Vec::new(),
        counts: Vec::new(),
        parts: 1,
        intervals: Vec::new(),
        fixed: Vec::new(),
        unused: Vec::new(),
        witnesses: Vec::new(),
        uncounted: Uncounted::NONE,
    };

    /// What a label means.
    #[inline]
    pub(crate) fn get(&self, label: Label) -> Option<&Origin> {
        self.origins.get(usize::from(label.0))
    }

    /// The interval of the last change of entries with this label.
    #[inline]
    pub(crate) fn version(&self, label: Label) -> Epoch {
        self.get(label).map_or(Epoch(0), |origin| origin.version)
    }

    /// The label of an interval in which something changed.
    pub(crate) fn of_interval(&self, epoch: Epoch) -> Label {
        let found = self.intervals.binary_search_by_key(&epoch, |(epoch, _)| *epoch);
        let label = found.ok().and_then(|index| self.intervals.get(index)).map(|(_, label)| *label);
        debug_assert!(label.is_some(), "H3: the label of epoch {} is gone", epoch.0);
        label.unwrap_or(Label::NEW)
    }

    /// Whether all changes are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.uncounted.length == 0
    }

    /// Counts the first changes that are not counted yet.
    #[inline]
    pub(crate) fn catch_up(&mut self) {
        if !self.is_counted() {
            self.count_changes();
        }
    }

    fn count_changes(&mut self) {
        let Uncounted { changes, length } = std::mem::replace(&mut self.uncounted, Uncounted::NONE);
        // The first of them has begun the interval, and none outlives it.
        let now = self.intervals.last().map_or(Label::NEW, |(_, label)| *label);
        for (old, part) in changes.into_iter().take(length) {
            let part = Part(usize::from(part));
            self.take_one(old, part);
            self.add_counted(now, part, 1);
        }
    }

    #[inline]
    fn count_mut(&mut self, label: Label, part: Part) -> Option<&mut u32> {
        self.counts.get_mut(usize::from(label.0) * self.parts + part.0)
    }

    /// Counts an entry that appears in the interval `now`.
    #[inline]
    pub(crate) fn appear(&mut self, part: Part, now: Epoch) {
        let label = self.now(now);
        self.add(label, part, 1);
    }

    /// Counts so many more entries under a label.
    #[inline]
    pub(crate) fn add(&mut self, label: Label, part: Part, entries: u32) {
        self.catch_up();
        self.add_counted(label, part, entries);
    }

    #[inline]
    fn add_counted(&mut self, label: Label, part: Part, entries: u32) {
        if let Some(count) = self.count_mut(label, part) {
            *count += entries;
        }
    }

    /// Counts one entry less.
    #[inline]
    pub(crate) fn disappear(&mut self, label: Label, part: Part) {
        self.catch_up();
        self.take_one(label, part);
    }

    #[inline]
    fn take_one(&mut self, label: Label, part: Part) {
        if let Some(count) = self.count_mut(label, part) {
            debug_assert!(*count > 0, "H2: label {} counts one entry too few", label.0);
            *count = count.saturating_sub(1);
        }
    }

    /// Counts the first change of an entry in the interval `now`, some time before anybody looks.
    #[inline]
    pub(crate) fn change(&mut self, old: Label, part: Part, now: Epoch) {
        let Uncounted { changes, length } = &mut self.uncounted;
        match changes.get_mut(*length) {
            Some(place) if *length > 0 => {
                *place = (old, part.0 as u16);
                *length += 1;
            }
            _ => self.change_first(old, part, now),
        }
    }

    #[cold]
    fn change_first(&mut self, old: Label, part: Part, now: Epoch) {
        self.catch_up();
        self.now(now);
        self.uncounted.length = 1;
        let [first, ..] = &mut self.uncounted.changes;
        *first = (old, part.0 as u16);
    }

    /// The label of the running interval, which gets one with its first change.
    #[inline]
    pub(crate) fn now(&mut self, now: Epoch) -> Label {
        match self.intervals.last() {
            Some(&(epoch, label)) if epoch == now => label,
            _ => self.begin(now),
        }
    }

    #[cold]
    fn begin(&mut self, now: Epoch) -> Label {
        let label = self.allocate(Origin { version: now, newest: None, home: None, used: true });
        // The freeze keeps `RESERVE` labels free, so there is one; sharing the oldest would only misplace counts.
        let label = label.unwrap_or(Label::NEW);
        self.intervals.push((now, label));
        label
    }

    fn allocate(&mut self, origin: Origin) -> Option<Label> {
        if let Some(label) = self.unused.pop() {
            *self.origins.get_mut(usize::from(label.0))? = origin;
            return Some(label);
        }
        let label = Label(u16::try_from(self.origins.len()).ok()?);
        self.origins.push(origin);
        self.counts.resize(self.counts.len() + self.parts, 0);
        Some(label)
    }

    /// A label for entries of `version` whose record is in a known segment of checkpoint `newest`. O(log labels), and O(labels) if there
    /// is none yet and the segment is not the newest.
    ///
    /// When there are many labels, entries of one segment share one, under the version of the segment: each costs the owner
    /// a row of counts to copy and to look through in each interval.
    pub(crate) fn fixed(&mut self, version: Epoch, home: FixedHome, newest: CheckpointId) -> Option<Label> {
        let in_use = self.origins.len() - self.unused.len();
        let version = if in_use < EXACT_MAX { version } else { home.epoch };
        let name = (home.segment, version);
        match self.fixed.binary_search_by_key(&name, |(name, _)| *name) {
            Ok(at) => self.fixed.get(at).map(|(_, label)| *label),
            Err(at) => {
                let origin = Origin { version, newest: Some(newest), home: Some(home), used: true };
                let label = self.allocate(origin)?;
                self.fixed.insert(at, (name, label));
                Some(label)
            }
        }
    }

    /// A label, valid until the next freeze, for a changed entry that `newest` may have written again before: no
    /// entry is counted under it. `None` if there are no labels left.
    pub(crate) fn witness(&mut self, newest: CheckpointId) -> Option<Label> {
        if let Some((_, label)) = self.witnesses.iter().find(|(id, _)| *id == newest) {
            return Some(*label);
        }
        let label =
            self.allocate(Origin { version: Epoch(0), newest: Some(newest), home: None, used: true })?;
        self.witnesses.push((newest, label));
        Some(label)
    }

    /// How many more labels there are.
    pub(crate) fn left(&self) -> usize {
        usize::from(u16::MAX) + 1 - self.origins.len() + self.unused.len()
    }

    /// What a freeze does with the labels: entries changed after `after` may now be written as part of `id`, and
    /// labels without entries may be given away. O(labels · parts).
    /// Those that `pinned` names stay: settled rewrites have taken their entries, which do not all know it yet.
    pub(crate) fn freeze(&mut self, id: CheckpointId, after: Option<Epoch>, pinned: impl Fn(Label) -> bool) {
        self.catch_up();
        for (epoch, label) in self.intervals.iter().rev() {
            if after.is_some_and(|after| *epoch <= after) {
                break;
            }
            if let Some(origin) = self.origins.get_mut(usize::from(label.0)) {
                origin.newest = Some(id);
            }
        }
        if after.is_none() {
            let fixed = self.origins.iter_mut().filter(|origin| origin.used && origin.home.is_some());
            fixed.for_each(|origin| origin.newest = Some(id));
        }
        self.recycle(pinned);
    }

    fn recycle(&mut self, pinned: impl Fn(Label) -> bool) {
        self.witnesses.clear();
        let rows = self.counts.chunks_exact(self.parts).zip(&mut self.origins).enumerate().skip(1);
        for (index, (counts, origin)) in rows {
            let Ok(label) = u16::try_from(index).map(Label) else { break };
            if origin.used && counts.iter().all(|count| *count == 0) && !pinned(label) {
                origin.used = false;
                self.unused.push(label);
            }
        }
        let origins = &self.origins;
        self.fixed.retain(|(_, label)| origins.get(usize::from(label.0)).is_some_and(|origin| origin.used));
        self.intervals.retain(|(epoch, label)| {
            let origin = origins.get(usize::from(label.0));
            origin.is_some_and(|origin| origin.used && origin.version == *epoch)
        });
    }

    /// Moves so many entries from one label to another.
    pub(crate) fn transfer(&mut self, (from, to): (Label, Label), part: Part, entries: u32) {
        self.catch_up();
        if let Some(count) = self.count_mut(from, part) {
            debug_assert!(*count >= entries, "H2: label {} counts too few entries to move", from.0);
            *count = count.saturating_sub(entries);
        }
        self.add(to, part, entries);
    }

    /// Forgets all entries: the state was cleared.
    pub(crate) fn clear_counts(&mut self) {
        self.uncounted.length = 0;
        self.counts.fill(0);
    }

    /// The labels with the counts of their parts; those without entries included.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Label, &Origin, &[u32])> {
        debug_assert!(self.is_counted(), "H2: a snapshot sees counts that are behind");
        let rows = self.origins.iter().zip(self.counts.chunks_exact(self.parts)).enumerate();
        rows.filter_map(|(index, (origin, counts))| Some((Label(u16::try_from(index).ok()?), origin, counts)))
    }

    /// All entries. O(labels · parts).
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn labels_of_a_segment_tell_versions_apart_while_there_are_few() {
        let mut origins = Origins::new(1);
        let home = |segment| FixedHome { segment: SegmentNumber(segment), epoch: Epoch(1_000 + segment) };
        let id = CheckpointId::FIRST;
        let label = |origins: &mut Origins, version, segment| {
            let label = origins.fixed(Epoch(version), home(segment), id).unwrap();
            origins.add(label, Part(0), 1);
            (label, origins.version(label).0)
        };
        let many = EXACT_MAX as u32;
        let exact: Vec<(Label, u32)> =
            (1..many).map(|version| label(&mut origins, version, version % 3)).collect();
        assert!((1..many).zip(&exact).all(|(version, (_, of))| *of == version));
        assert_eq!(
            label(&mut origins, 5, 5 % 3).0,
            label(&mut origins, 6, 5 % 3).0,
            "one for all of a segment"
        );
        assert_eq!(label(&mut origins, 5, 2).1, 1_002, "and its version is the segment's");
        // Their entries leave, and so do the labels: what comes then has labels of its own again.
        origins.clear_counts();
        origins.freeze(id, None, |_| false);
        let (again, version) = label(&mut origins, 7, 1);
        assert_eq!((version, label(&mut origins, 7, 1).0), (7, again));
        assert_eq!(label(&mut origins, 8, 1).1, 8);
    }

    #[test]
    fn changes_are_counted_before_anybody_looks_however_many_there_are() {
        let mut origins = Origins::new(2);
        let old = Label(1);
        assert_eq!(origins.now(Epoch(1)), old);
        let mut expected = HashMap::new();
        for part in [Part(0), Part(1)] {
            origins.add(old, part, 1_000);
            expected.insert((old, part), 1_000_u32);
        }
        let id = CheckpointId::FIRST;
        origins.freeze(id, None, |_| false);
        let new = Label(2);
        for round in 0..3 * UNCOUNTED_MAX {
            let part = Part(round % 2);
            origins.change(old, part, Epoch(2));
            *expected.entry((old, part)).or_default() -= 1;
            *expected.entry((new, part)).or_default() += 1;
            // Some look in between, at any distance from the last.
            if round % 7 == 0 || round % 50 == 49 {
                origins.disappear(new, part);
                *expected.entry((new, part)).or_default() -= 1;
            }
            if round % 97 == 0 {
                origins.transfer((old, new), part, 10);
                *expected.entry((old, part)).or_default() -= 10;
                *expected.entry((new, part)).or_default() += 10;
            }
        }
        origins.catch_up();
        for (label, _, counts) in origins.rows() {
            for (part, count) in counts.iter().enumerate() {
                let known = expected.get(&(label, Part(part))).copied().unwrap_or_default();
                assert_eq!(*count, known, "label {} of part {part}", label.0);
            }
        }
        origins.change(old, Part(0), Epoch(2));
        origins.clear_counts();
        assert_eq!(origins.total(), 0, "a change from before a clear is counted after it");
        origins.catch_up();
        assert_eq!(origins.total(), 0);
    }
}
