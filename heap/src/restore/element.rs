//! One element that is being restored: what its footer says, and its blocks.

use std::sync::Arc;

use lowtide_format::{BlockEntry, Clear, FormatError, KeyGroupSet, SegmentFooter, SegmentReader};

use super::{HeapRestore, RestoredFile};
use crate::chain::{ClearFact, SegmentFacts, StateIndex, TombstoneSpan, TombstoneTally};
use crate::error::HeapError;
use crate::origins::FixedHome;

/// An element of a chain with the blocks that are read of it.
#[derive(Clone, Debug)]
pub struct ElementBlocks<'a> {
    /// The element.
    pub file: RestoredFile,
    /// Its footer.
    pub reader: &'a SegmentReader,
    /// The blocks with a record of its key groups, in the order of the file, with their stored bytes, which have not
    /// been checked yet.
    pub blocks: Vec<(&'a BlockEntry, &'a [u8])>,
}

impl<'a> ElementBlocks<'a> {
    /// The element whose whole file is `bytes`. O(runs).
    ///
    /// # Errors
    ///
    /// [`FormatError::Truncated`] if the footer names bytes beyond the file.
    pub fn whole(
        file: RestoredFile,
        reader: &'a SegmentReader,
        bytes: &'a [u8],
    ) -> Result<Self, FormatError> {
        let stored = |entry: &'a BlockEntry| {
            let start = usize::try_from(entry.offset).ok();
            let length = usize::try_from(entry.stored_length).ok();
            let stored = start.zip(length).and_then(|(start, length)| bytes.get(start..)?.get(..length));
            let (need, have) = (entry.offset.saturating_add(entry.stored_length), bytes.len() as u64);
            Ok((entry, stored.ok_or(FormatError::Truncated { part: "block", need, have })?))
        };
        let footer = reader.footer();
        let is_wanted = |entry: &&'a BlockEntry| {
            footer.runs(entry).iter().any(|run| file.key_groups.contains(run.key_group))
        };
        let blocks = footer.blocks().iter().filter(is_wanted).map(stored).collect::<Result<_, _>>()?;
        Ok(Self { file, reader, blocks })
    }

    pub(super) fn object(&self) -> &str {
        self.file.file.entry.object.as_str()
    }
}

/// What threads find out about an element, each for some key groups.
#[derive(Debug)]
pub(crate) struct RunTally {
    pub(crate) live_puts: u64,
    pub(super) tombstones: TombstoneTally,
    /// The encoded namespace of the last tombstone.
    namespace: Arc<[u8]>,
}

impl Default for RunTally {
    fn default() -> Self {
        Self { live_puts: 0, tombstones: TombstoneTally::new(), namespace: Arc::from([]) }
    }
}

impl RunTally {
    /// Counts a tombstone.
    pub(crate) fn tombstone(&mut self, state: StateIndex, namespace: &[u8], span: TombstoneSpan) {
        if *self.namespace != *namespace {
            self.namespace = Arc::from(namespace);
        }
        self.tombstones.add(state, &self.namespace, span);
    }
}

/// An element as the backend sees it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) facts: SegmentFacts,
    /// The key groups that are wanted of it.
    pub(super) key_groups: KeyGroupSet,
    /// The backend's index of each state of the segment.
    pub(super) states: Vec<StateIndex>,
    pub(super) home: FixedHome,
    pub(super) live_puts: u64,
}

impl Opened {
    /// The next element of a restore, from its footer.
    pub(super) fn new(
        restore: &mut HeapRestore,
        file: &RestoredFile,
        footer: &SegmentFooter,
    ) -> Result<Self, HeapError> {
        let (checkpoint, before) = (footer.checkpoint(), restore.newest_so_far());
        if checkpoint > before {
            return Err(HeapError::ElementOrder { before, found: checkpoint });
        }
        let key_groups = file.key_groups.intersect(&KeyGroupSet::from(restore.numbering.backend().range()));
        let mut states = Vec::with_capacity(footer.states().len());
        for state in footer.states() {
            states.push(StateIndex(restore.numbering.backend().untyped_state(state)?));
        }
        let number = restore.next_number();
        let home = FixedHome { segment: number, epoch: restore.numbering.epoch(checkpoint) };
        let mut facts = SegmentFacts {
            number,
            checkpoint,
            file: Some(file.file.clone()),
            cold: false,
            puts: 0,
            put_bytes: 0,
            tombstone_bytes: 0,
            tombstones: TombstoneTally::new(),
            clears: Vec::new(),
            states: Vec::new(),
        };
        let mut span = None;
        for run in footer.all_runs().iter().filter(|run| key_groups.contains(run.key_group)) {
            facts.puts += run.totals.puts;
            facts.put_bytes += run.totals.put_bytes;
            facts.tombstone_bytes += run.totals.tombstone_bytes;
            span = span.max(run.totals.span.map(|span| span.newest));
            let Some(state) = states.get(usize::from(run.state)) else { continue };
            if let Err(at) = facts.states.binary_search(state) {
                facts.states.insert(at, *state);
            }
        }
        // Rewritten survivors are older than the segment that holds them.
        facts.cold = span.is_some_and(|newest| newest < checkpoint);
        for clear in footer.clears() {
            let (Some(state), groups) =
                (states.get(usize::from(clear.state)), clear.key_groups.intersect(&key_groups))
            else {
                continue;
            };
            if !groups.is_empty() {
                let cut = Clear { key_groups: groups.clone(), ..clear.clone() };
                facts.tombstone_bytes += cut.encoded_bytes();
                let namespace = clear.namespace.as_deref().map(Arc::from);
                facts.clears.push(ClearFact { state: *state, namespace, key_groups: groups });
            }
        }
        Ok(Self { facts, key_groups, states, home, live_puts: 0 })
    }
}
