//! One element on its way into the backend.

use std::sync::Arc;

use hashbrown::HashMap;
use lowtide_format::{Block, CheckpointId, Clear, KeyGroupSet, RecordRef, Run, SegmentFooter};

use super::{HeapRestore, RestoredFile};
use crate::chain::{ClearFact, SegmentFacts, StateIndex, TombstoneSpan, TombstoneTally};
use crate::codecs::EncodedEntry;
use crate::error::HeapError;
use crate::map::Loaded;
use crate::origins::{FixedHome, Label};

/// Takes the blocks of one element, in any order.
#[must_use = "an element counts only once it is finished"]
pub struct ElementRestore<'a> {
    restore: &'a mut HeapRestore,
    footer: &'a SegmentFooter,
    /// The backend's index of each state of the segment.
    states: Vec<StateIndex>,
    facts: SegmentFacts,
    key_groups: KeyGroupSet,
    live_puts: u64,
    labels: HashMap<(StateIndex, CheckpointId), Label>,
    home: FixedHome,
    /// The encoded namespace of the last tombstone.
    namespace: Arc<[u8]>,
}

impl<'a> ElementRestore<'a> {
    pub(super) fn new(
        restore: &'a mut HeapRestore,
        file: RestoredFile,
        footer: &'a SegmentFooter,
    ) -> Result<Self, HeapError> {
        let (checkpoint, before) = (footer.checkpoint(), restore.newest_so_far());
        if checkpoint > before {
            return Err(HeapError::ElementOrder { before, found: checkpoint });
        }
        let key_groups = file.key_groups.intersect(&KeyGroupSet::from(restore.backend.range()));
        let mut states = Vec::with_capacity(footer.states().len());
        for state in footer.states() {
            states.push(StateIndex(restore.backend.untyped_state(state)?));
        }
        let number = restore.next_number();
        let home = FixedHome { segment: number, epoch: restore.epoch_of(checkpoint) };
        let mut facts = SegmentFacts {
            number,
            checkpoint,
            file: Some(file.file),
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
        let (labels, namespace) = (HashMap::new(), Arc::from([]));
        Ok(Self { restore, footer, states, facts, key_groups, live_puts: 0, labels, home, namespace })
    }

    /// The key groups that are wanted of it.
    #[must_use]
    pub fn key_groups(&self) -> &KeyGroupSet {
        &self.key_groups
    }

    /// Takes the wanted records of a block.
    ///
    /// # Errors
    ///
    /// [`HeapError::Segment`] for a damaged record, [`HeapError::Record`] for a part that is no encoding of its type.
    pub fn block(&mut self, block: &Block<'_>) -> Result<(), HeapError> {
        let wanted = self.key_groups.clone();
        for run in block.runs().iter().filter(|run| wanted.contains(run.key_group)) {
            for record in block.records(run) {
                self.record(run, record?)?;
            }
        }
        Ok(())
    }

    pub(super) fn record(&mut self, run: &Run, record: RecordRef<'_>) -> Result<(), HeapError> {
        let Some(&state) = self.states.get(usize::from(run.state)) else { return Ok(()) };
        match record {
            RecordRef::Put { key, namespace, value, version, born } => {
                if self.is_cleared(run, state, namespace) || self.is_removed(state, key, namespace) {
                    return Ok(());
                }
                let label = self.label(state, version);
                let born = self.restore.epoch_of(born);
                let entry = EncodedEntry { key, namespace, value };
                let loaded = Loaded { entry, key_group: run.key_group, label, born };
                self.live_puts += u64::from(self.restore.load(state, loaded)?);
            }
            RecordRef::Tombstone { key, namespace, oldest, newest } => {
                if self.is_cleared(run, state, namespace) {
                    return Ok(());
                }
                if *self.namespace != *namespace {
                    self.namespace = Arc::from(namespace);
                }
                self.facts.tombstones.add(state, &self.namespace, TombstoneSpan { oldest, newest });
                self.restore.removed.insert((state, framed(key, namespace)));
            }
        }
        Ok(())
    }

    /// Whether a newer clear covers the record.
    fn is_cleared(&self, run: &Run, state: StateIndex, namespace: &[u8]) -> bool {
        let at = (run.key_group, self.footer.checkpoint());
        self.restore.clears.covers(state, namespace, at)
    }

    fn is_removed(&self, state: StateIndex, key: &[u8], namespace: &[u8]) -> bool {
        !self.restore.removed.is_empty() && self.restore.removed.contains(&(state, framed(key, namespace)))
    }

    fn label(&mut self, state: StateIndex, version: CheckpointId) -> Label {
        let (home, newest) = (self.home, self.footer.checkpoint());
        let Self { labels, restore, .. } = self;
        *labels.entry((state, version)).or_insert_with(|| {
            let epoch = restore.epoch_of(version);
            restore.backend.fixed_label(state, epoch, home, newest)
        })
    }

    /// The element is complete.
    pub fn finish(self) {
        let checkpoint = self.footer.checkpoint();
        self.facts.clears.iter().for_each(|fact| self.restore.clears.add(checkpoint, fact));
        self.restore.elements.push((self.facts, self.key_groups, self.live_puts));
    }
}

/// Key and namespace as one string of bytes that tells them apart.
fn framed(key: &[u8], namespace: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(8 + key.len() + namespace.len());
    bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(namespace);
    bytes.into_boxed_slice()
}

impl HeapRestore {
    fn load(&mut self, state: StateIndex, loaded: Loaded<'_>) -> Result<bool, HeapError> {
        self.backend.load(state, loaded, self.limits)
    }
}
