//! A map without values: of each key, where its record is and since when it may have one.
//!
//! Owns: the counts of live puts by home, the changed set, the removal log. Every checkpoint completes at once, so
//! one interval is open at a time and the removal log holds the removals since the last checkpoint.

use std::collections::HashMap;
use std::ops::Range;

use lowtide_format::CheckpointId;
use lowtide_heap::chain::{SegmentNumber, TombstoneSpan};

/// A key's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Home {
    #[default]
    Absent,
    /// Put or updated since the last checkpoint.
    Changed,
    In(SegmentNumber),
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    home: Home,
    /// The window that the key belongs to.
    namespace: u32,
    /// The smallest checkpoint that may hold a record of the key; `None` before there is one.
    born: Option<CheckpointId>,
    /// The newest checkpoint that holds one.
    written: Option<CheckpointId>,
}

/// One change of a simulated map, to be made on another one as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key is put into the namespace, 0 unless windows are simulated.
    Put {
        /// The key.
        key: u32,
        /// The window.
        namespace: u32,
    },
    /// The key is removed if it is there.
    Remove {
        /// The key.
        key: u32,
        /// The window.
        namespace: u32,
    },
    /// The namespace is emptied.
    Clear {
        /// The window.
        namespace: u32,
    },
}

/// What one segment holds, in the order of writing.
#[derive(Clone, Debug)]
struct Segment {
    checkpoint: CheckpointId,
    keys: Vec<u32>,
    live: u64,
}

/// The changes since the last checkpoint, taken at a freeze.
#[derive(Debug, Default)]
pub(super) struct Frozen {
    /// Keys to put.
    pub(super) puts: Vec<u32>,
    /// Spans of the removed keys that the base may hold.
    pub(super) tombstones: Vec<TombstoneSpan>,
    /// Namespaces cleared.
    pub(super) clears: Vec<u32>,
}

/// The map.
#[derive(Debug, Default)]
pub(super) struct AccountedMap {
    keys: Vec<Key>,
    entries: u64,
    /// Keys that became changed since the last checkpoint; some may be absent again.
    touched: Vec<u32>,
    changed: usize,
    removals: HashMap<u32, TombstoneSpan>,
    clears: Vec<u32>,
    segments: HashMap<SegmentNumber, Segment>,
    /// The changes made, if somebody wants them.
    recorded: Option<Vec<Change>>,
}

impl AccountedMap {
    /// Records the changes from now on.
    pub(super) fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// The changes recorded since the last call; none unless they are recorded.
    pub(super) fn take_recorded(&mut self) -> Vec<Change> {
        self.recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, change: Change) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(change);
        }
    }

    fn key(&mut self, key: u32) -> &mut Key {
        let place = key as usize;
        if self.keys.len() <= place {
            self.keys.resize_with(place + 1, Key::default);
        }
        // The line above made room for it.
        #[expect(clippy::indexing_slicing, reason = "resized to hold the place")]
        &mut self.keys[place]
    }

    /// Takes the key out of the home it has; says whether it was present.
    fn leave_home(&mut self, home: Home) -> bool {
        match home {
            Home::Absent => return false,
            Home::Changed => self.changed -= 1,
            Home::In(segment) => {
                if let Some(segment) = self.segments.get_mut(&segment) {
                    segment.live -= 1;
                }
            }
        }
        true
    }

    pub(super) fn put(&mut self, key: u32, namespace: u32) {
        self.note(Change::Put { key, namespace });
        let inherited = self.removals.get(&key).map(|span| span.oldest);
        let slot = self.key(key);
        let home = std::mem::replace(&mut slot.home, Home::Changed);
        slot.namespace = namespace;
        if home == Home::Absent {
            slot.born = inherited;
        }
        if !self.leave_home(home) {
            self.entries += 1;
        }
        if home != Home::Changed {
            self.touched.push(key);
        }
        self.changed += 1;
    }

    pub(super) fn remove(&mut self, key: u32) {
        let slot = self.key(key);
        let namespace = slot.namespace;
        let home = std::mem::take(&mut slot.home);
        let (born, written) = (slot.born.take(), slot.written.take());
        self.note(Change::Remove { key, namespace });
        if !self.leave_home(home) {
            return;
        }
        self.entries -= 1;
        if let (Some(oldest), Some(newest)) = (born, written) {
            let span = TombstoneSpan { oldest, newest };
            self.removals
                .entry(key)
                .and_modify(|known| {
                    known.oldest = known.oldest.min(oldest);
                    known.newest = known.newest.max(newest);
                })
                .or_insert(span);
        }
    }

    /// Empties a namespace by one clear; `keys` are those that were ever put into it.
    pub(super) fn clear(&mut self, namespace: u32, keys: Range<u32>) {
        for key in keys {
            let slot = self.key(key);
            if slot.namespace == namespace {
                let home = std::mem::take(&mut slot.home);
                (slot.born, slot.written) = (None, None);
                if self.leave_home(home) {
                    self.entries -= 1;
                }
                self.removals.remove(&key);
            }
        }
        self.clears.push(namespace);
        self.note(Change::Clear { namespace });
    }

    /// How many keys changed since the last checkpoint and are present.
    pub(super) fn changed(&self) -> usize {
        self.changed
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Live puts of a segment.
    pub(super) fn live(&self, segment: SegmentNumber) -> u64 {
        self.segments.get(&segment).map_or(0, |segment| segment.live)
    }

    /// Ends the interval; the changes are to be written by `write`.
    pub(super) fn freeze(&mut self) -> Frozen {
        let mut puts = std::mem::take(&mut self.touched);
        // A key that was removed and put again in one interval was touched twice.
        puts.sort_unstable();
        puts.dedup();
        let keys = &self.keys;
        let home = |key: &u32| keys.get(*key as usize).map(|key| key.home);
        puts.retain(|key| home(key) == Some(Home::Changed));
        let removals = std::mem::take(&mut self.removals);
        let absent = removals.into_iter().filter(|(key, _)| home(key) == Some(Home::Absent));
        let mut tombstones: Vec<_> = absent.map(|(_, span)| span).collect();
        tombstones.sort_unstable();
        self.changed = 0;
        Frozen { puts, tombstones, clears: std::mem::take(&mut self.clears) }
    }

    /// Gives these keys a home in a new segment of the checkpoint; more can be added later.
    pub(super) fn write(&mut self, number: SegmentNumber, checkpoint: CheckpointId, keys: &[u32]) {
        for key in keys {
            let slot = self.key(*key);
            slot.home = Home::In(number);
            slot.born.get_or_insert(checkpoint);
            slot.written = Some(checkpoint);
        }
        let segment =
            self.segments.entry(number).or_insert_with(|| Segment { checkpoint, keys: Vec::new(), live: 0 });
        segment.keys.extend_from_slice(keys);
        segment.live += keys.len() as u64;
    }

    /// Moves at most `count_max` live records of the victim to the segment; returns how many.
    pub(super) fn rewrite(
        &mut self,
        victim: SegmentNumber,
        into: (SegmentNumber, CheckpointId),
        count_max: u64,
    ) -> u64 {
        let Some(segment) = self.segments.get(&victim) else { return 0 };
        let keys = &self.keys;
        let lives = |key: &&u32| keys.get(**key as usize).is_some_and(|key| key.home == Home::In(victim));
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        let moved: Vec<u32> = segment.keys.iter().filter(lives).take(count_max).copied().collect();
        self.write(into.0, into.1, &moved);
        if let Some(segment) = self.segments.get_mut(&victim) {
            segment.live -= moved.len() as u64;
        }
        moved.len() as u64
    }

    /// Forgets segments that the chain does not list any more; returns the checkpoints that wrote them.
    pub(super) fn keep_only(&mut self, listed: impl Fn(SegmentNumber) -> bool) -> Vec<CheckpointId> {
        let mut gone = Vec::new();
        self.segments.retain(|number, segment| {
            let stays = listed(*number);
            if !stays {
                gone.push(segment.checkpoint);
            }
            stays
        });
        gone
    }
}
