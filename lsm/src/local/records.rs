//! Entries as records: the way out to any other backend, and the way in from one.
//!
//! Owns: writing all entries as segments, and replaying the records of a chain.
//! Does not own: where segments come from and go to.

use lowtide_format::{
    CheckpointId, Clear, FinishedSegment, KeyGroup, KeyGroupRange, RecordRef, SegmentOptions, SegmentWriter,
    StateDescriptor,
};
use rocksdb::{DBRawIterator, WriteBatch};

use super::backend::LsmBackend;
use super::engine::rocks;
use crate::error::LsmError;
use crate::key::{self, StoredKey};

/// A segment is closed once it has about this many bytes.
const SEGMENT_BYTES_TARGET: u64 = 32 << 20;
/// Records are replayed in batches of about this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The segments of one checkpoint while they are written.
struct SegmentSeries<'a> {
    id: CheckpointId,
    states: &'a [StateDescriptor],
    options: SegmentOptions,
    open: Option<SegmentWriter>,
}

impl SegmentSeries<'_> {
    fn writer(&mut self) -> Result<&mut SegmentWriter, LsmError> {
        let writer = match self.open.take() {
            Some(writer) => writer,
            None => SegmentWriter::new(self.id, self.states.to_vec(), self.options)?,
        };
        Ok(self.open.insert(writer))
    }

    fn close<E: From<LsmError>>(
        &mut self,
        sink: &mut impl FnMut(FinishedSegment) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.open.take() {
            Some(writer) if !writer.is_empty() => sink(writer.finish().map_err(LsmError::from)?),
            _ => Ok(()),
        }
    }
}

/// Writes every entry of `range` as segments of `id`, by key group and then state.
///
/// RocksDB keeps no versions: every entry counts as written, and its key as born, in this very checkpoint.
/// Memory: one segment.
pub(crate) fn write_segments<'d, E: From<LsmError>>(
    (id, range): (CheckpointId, KeyGroupRange),
    states: &[StateDescriptor],
    options: SegmentOptions,
    read: impl Fn(&StateDescriptor, KeyGroupRange) -> Result<DBRawIterator<'d>, LsmError>,
    mut sink: impl FnMut(FinishedSegment) -> Result<(), E>,
) -> Result<(), E> {
    let mut iterators = Vec::with_capacity(states.len());
    for (at, state) in states.iter().enumerate() {
        let number = u16::try_from(at)
            .map_err(|_| LsmError::Option { option: "states", problem: "there are more than 65,535" })?;
        iterators.push((number, read(state, range)?));
    }
    let mut series = SegmentSeries { id, states, options, open: None };
    for group in range.iter() {
        for (state, iterator) in &mut iterators {
            write_run(&mut series, (group, *state), iterator, &mut sink)?;
        }
    }
    series.close(&mut sink)
}

/// Writes the entries of one key group and state, at which the iterator stands.
fn write_run<E: From<LsmError>>(
    series: &mut SegmentSeries<'_>,
    (group, state): (KeyGroup, u16),
    iterator: &mut DBRawIterator<'_>,
    sink: &mut impl FnMut(FinishedSegment) -> Result<(), E>,
) -> Result<(), E> {
    let id = series.id;
    let mut run = series.writer()?.new_run();
    while let Some((stored, value)) = iterator.item() {
        let parts = StoredKey::decode(stored).map_err(LsmError::from)?;
        if parts.group != group {
            break;
        }
        let (key, namespace) = (parts.key, parts.namespace);
        run.push(RecordRef::Put { key, namespace, value, version: id, born: id }).map_err(LsmError::from)?;
        iterator.next();
        if run.len() as u64 >= SEGMENT_BYTES_TARGET {
            series.writer()?.append(group, state, &run).map_err(LsmError::from)?;
            series.close(sink)?;
            run = series.writer()?.new_run();
        }
    }
    iterator.status().map_err(rocks("iterate"))?;
    let writer = series.writer()?;
    writer.append(group, state, &run).map_err(LsmError::from)?;
    if writer.bytes_written() >= SEGMENT_BYTES_TARGET {
        series.close(sink)?;
    }
    Ok(())
}

impl LsmBackend {
    /// Writes every entry of the backend as segments of `id`, which any backend can restore.
    ///
    /// # Errors
    ///
    /// What `sink` returned, or an error of reading or encoding.
    pub fn write_records<E: From<LsmError>>(
        &self,
        id: CheckpointId,
        sink: impl FnMut(FinishedSegment) -> Result<(), E>,
    ) -> Result<(), E> {
        let states: Vec<StateDescriptor> = self.states().cloned().collect();
        let read = |state: &StateDescriptor, range: KeyGroupRange| {
            self.engine.iterate(&super::engine::family_of_state(&state.name), range)
        };
        write_segments((id, self.range), &states, SegmentOptions::default(), read, sink)
    }

    /// Begins to replay a segment whose records refer to `states` by index; states come into being as needed.
    ///
    /// # Errors
    ///
    /// [`LsmError::Format`] if a state exists with other codecs.
    pub fn load_segment(&mut self, states: &[StateDescriptor]) -> Result<RecordLoader<'_>, LsmError> {
        let states = states.iter().map(|state| self.register(state.clone())).collect::<Result<_, _>>()?;
        Ok(RecordLoader { backend: self, states, batch: WriteBatch::default(), stored: Vec::new() })
    }
}

/// Replays the records of one segment. Segments come oldest first; within one, its clears come before its records.
pub struct RecordLoader<'a> {
    backend: &'a mut LsmBackend,
    /// State numbers of the backend by state index of the segment.
    states: Vec<u32>,
    batch: WriteBatch,
    stored: Vec<u8>,
}

impl RecordLoader<'_> {
    fn family(&self, state: u16) -> Result<String, LsmError> {
        let number = self.states.get(usize::from(state)).ok_or(LsmError::ForeignState)?;
        let state = self.backend.states.get(*number as usize).ok_or(LsmError::ForeignState)?;
        Ok(state.family.clone())
    }

    /// Replays a clear within the backend's key groups.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] for an unknown state, [`LsmError::Rocks`] if RocksDB fails.
    pub fn clear(&mut self, clear: &Clear) -> Result<(), LsmError> {
        self.write()?;
        let family = self.family(clear.state)?;
        for range in clear.key_groups.ranges() {
            let Some(range) = range.intersect(self.backend.range) else { continue };
            match &clear.namespace {
                None => self.backend.engine.delete_range(&family, range)?,
                Some(namespace) => self.clear_namespace(&family, range, namespace)?,
            }
        }
        Ok(())
    }

    fn clear_namespace(
        &mut self,
        family: &str,
        range: KeyGroupRange,
        namespace: &[u8],
    ) -> Result<(), LsmError> {
        let handle = self.backend.engine.family(family)?;
        let mut batch = WriteBatch::default();
        let mut iterator = self.backend.engine.iterate(family, range)?;
        while let Some((stored, _)) = iterator.item() {
            if StoredKey::decode(stored)?.namespace == namespace {
                batch.delete_cf(handle, stored);
            }
            iterator.next();
        }
        iterator.status().map_err(rocks("iterate"))?;
        drop(iterator);
        let engine = &self.backend.engine;
        engine.db().write_opt(&batch, engine.write_options()).map_err(rocks("write"))
    }

    /// Replays a record of one key group and state; records of other key groups than the backend's are passed over.
    ///
    /// # Errors
    ///
    /// [`LsmError::ForeignState`] for an unknown state, [`LsmError::Rocks`] if RocksDB fails.
    pub fn apply(&mut self, group: KeyGroup, state: u16, record: RecordRef<'_>) -> Result<(), LsmError> {
        if !self.backend.range.contains(group) {
            return Ok(());
        }
        let family = self.family(state)?;
        let family = self.backend.engine.family(&family)?;
        let (key, namespace, value) = match record {
            RecordRef::Put { key, namespace, value, .. } => (key, namespace, Some(value)),
            RecordRef::Tombstone { key, namespace, .. } => (key, namespace, None),
        };
        let append = |bytes: &[u8], out: &mut Vec<u8>| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        key::encode(&mut self.stored, group, |out| append(key, out), |out| append(namespace, out))?;
        match value {
            Some(value) => self.batch.put_cf(family, &self.stored, value),
            None => self.batch.delete_cf(family, &self.stored),
        }
        if self.batch.size_in_bytes() >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), LsmError> {
        let batch = std::mem::take(&mut self.batch);
        let engine = &self.backend.engine;
        engine.db().write_opt(&batch, engine.write_options()).map_err(rocks("write"))
    }

    /// Completes the segment.
    ///
    /// # Errors
    ///
    /// [`LsmError::Rocks`] if RocksDB fails.
    pub fn finish(mut self) -> Result<(), LsmError> {
        self.write()
    }
}
