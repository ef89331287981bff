//! Builds one segment in memory.

use bytes::Bytes;

use super::buffers::SegmentBuffers;
use super::footer::SegmentFooter;
use super::index::{BlockEntry, Index, Run};
use super::totals::{RecordTotals, SegmentSummary};
use super::trailer::SegmentTrailer;
use crate::compression::{Compression, Compressor, Packing};
use crate::error::FormatError;
use crate::hash::RunningXxh3;
use crate::ids::CheckpointId;
use crate::key_group::KeyGroup;
use crate::record::{Clear, RecordRef, RecordRun};
use crate::state::StateDescriptor;
use crate::version::{FORMAT_VERSION, MAGIC_SEGMENT};

/// How a segment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// How blocks and footer are compressed.
    pub compression: Compression,
    /// A block is closed once it has this many bytes before compression; a single record may be longer.
    pub block_bytes: usize,
}

impl Default for SegmentOptions {
    /// zstd at level 1, blocks of 64 KiB.
    fn default() -> Self {
        Self { compression: Compression::default(), block_bytes: 64 << 10 }
    }
}

/// A segment that is complete, in memory.
#[derive(Clone, Debug)]
pub struct FinishedSegment {
    /// The bytes of the file.
    pub bytes: Bytes,
    /// What a manifest needs to know about it.
    pub summary: SegmentSummary,
}

/// Builds one segment in memory.
///
/// Runs come in ascending order of (key group, state). Memory is that of the finished file and one block; the caller
/// keeps it bounded by starting another segment once [`SegmentWriter::bytes_written`] is large.
///
/// ```
/// use lowtide_format::{
///     AutoCodec, CheckpointId, Codec, DecodeLimits, FormatError, KeyGroup, KeyGroupSet, RecordRef, SegmentOptions,
///     SegmentReader, SegmentWriter, StateDescriptor, StateKind,
/// };
///
/// let state = StateDescriptor {
///     name: "count".to_owned(),
///     kind: StateKind::Value,
///     key: Codec::<String>::identity(&AutoCodec),
///     namespace: Codec::<()>::identity(&AutoCodec),
///     value: Codec::<u8>::identity(&AutoCodec),
/// };
/// let id = CheckpointId::FIRST;
/// let mut writer = SegmentWriter::new(id, vec![state], SegmentOptions::default())?;
/// let put = RecordRef::Put { key: b"k", namespace: b"", value: &[7], version: id, born: id };
/// writer.append_records(KeyGroup(3), 0, [put])?;
/// let file = writer.finish()?.bytes;
///
/// let reader = SegmentReader::open(&file, DecodeLimits::default())?;
/// let wanted: KeyGroupSet = [KeyGroup(3)].into_iter().collect();
/// let mut found = 0;
/// reader.visit::<FormatError>(&file, &wanted, |run, record| {
///     assert_eq!((run.key_group, record), (KeyGroup(3), put));
///     found += 1;
///     Ok(())
/// })?;
/// assert_eq!(found, 1);
/// # Ok::<(), FormatError>(())
/// ```
pub struct SegmentWriter {
    checkpoint: CheckpointId,
    states: Vec<StateDescriptor>,
    clears: Vec<Clear>,
    block_bytes: usize,
    compressor: Compressor,
    file: Vec<u8>,
    /// Where the memory of the file is from and goes; none if it is the file's own.
    buffers: Option<SegmentBuffers>,
    /// The open block, if it is to be compressed; what is stored as it is goes into the file at once.
    block: Vec<u8>,
    /// Where the open block will begin in the file.
    block_start: usize,
    /// The checksum of the file up to there: taken while a block is in the processor's caches.
    checksum: Box<RunningXxh3>,
    /// Index of the first run of the open block.
    block_first_run: usize,
    index: Index,
    /// The place of a run of which more is to come.
    unfinished: Option<(KeyGroup, u16)>,
}

impl SegmentWriter {
    /// A segment of `checkpoint` whose runs and clears refer to `states` by index.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] for more than 65,535 states, [`FormatError::Compression`] if there is no memory.
    pub fn new(
        checkpoint: CheckpointId,
        states: Vec<StateDescriptor>,
        options: SegmentOptions,
    ) -> Result<Self, FormatError> {
        Self::start(checkpoint, states, options, None)
    }

    /// The same, in memory that `buffers` have to spare; it goes back once nobody holds the finished segment.
    ///
    /// # Errors
    ///
    /// As [`SegmentWriter::new`].
    pub fn with_buffers(
        checkpoint: CheckpointId,
        states: Vec<StateDescriptor>,
        options: SegmentOptions,
        buffers: &SegmentBuffers,
    ) -> Result<Self, FormatError> {
        Self::start(checkpoint, states, options, Some(buffers.clone()))
    }

    fn start(
        checkpoint: CheckpointId,
        states: Vec<StateDescriptor>,
        options: SegmentOptions,
        buffers: Option<SegmentBuffers>,
    ) -> Result<Self, FormatError> {
        if states.len() > usize::from(u16::MAX) {
            return Err(unwritable("a segment has more than 65,535 states"));
        }
        let mut file = buffers.as_ref().map(SegmentBuffers::take).unwrap_or_default();
        file.extend_from_slice(&MAGIC_SEGMENT);
        file.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        file.extend_from_slice(&[0, 0]);
        let (block_start, mut checksum) = (file.len(), Box::<RunningXxh3>::default());
        checksum.update(&file);
        Ok(Self {
            checkpoint,
            states,
            clears: Vec::new(),
            block_bytes: options.block_bytes.max(1),
            compressor: Compressor::new(options.compression)?,
            file,
            buffers,
            block: Vec::new(),
            block_start,
            checksum,
            block_first_run: 0,
            index: Index::default(),
            unfinished: None,
        })
    }

    /// An empty run that fits this segment: encode into it, on any thread, and append it.
    #[must_use]
    pub fn new_run(&self) -> RecordRun {
        RecordRun::new(self.checkpoint, self.block_bytes)
    }

    /// Appends the records of one key group and state. An empty run is nothing.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] if the run is not after all before it, of another checkpoint, or of an unknown
    /// state; the segment is as before.
    pub fn append(&mut self, key_group: KeyGroup, state: u16, run: &RecordRun) -> Result<(), FormatError> {
        if run.is_empty() {
            return Ok(());
        }
        self.check_place((key_group, state), run)?;
        self.unfinished = None;
        for (bytes, totals) in run.parts() {
            self.append_part((key_group, state), bytes, totals)?;
        }
        Ok(())
    }

    /// Appends what of a run is settled while it is being encoded: all its parts but the last, which it keeps. The rest
    /// comes by [`SegmentWriter::append`], so that the file is the same as if all had come by it.
    ///
    /// A run that is handed over in pieces stays in the processor's caches. Returns what it was relieved of, counted.
    ///
    /// # Errors
    ///
    /// As [`SegmentWriter::append`]; the run is as before as well.
    pub fn append_settled(
        &mut self,
        key_group: KeyGroup,
        state: u16,
        run: &mut RecordRun,
    ) -> Result<RecordTotals, FormatError> {
        self.check_place((key_group, state), run)?;
        self.unfinished = Some((key_group, state));
        let mut settled = RecordTotals::default();
        for (bytes, totals) in run.settled_parts() {
            self.append_part((key_group, state), bytes, totals)?;
            settled.add(totals);
        }
        run.forget_settled();
        Ok(settled)
    }

    /// Checks that a run may come next.
    fn check_place(&self, place: (KeyGroup, u16), run: &RecordRun) -> Result<(), FormatError> {
        if run.checkpoint() != self.checkpoint {
            return Err(unwritable("a run was encoded for another checkpoint"));
        }
        if usize::from(place.1) >= self.states.len() {
            return Err(unwritable("a run refers to a state that is not listed"));
        }
        let last = self.index.runs.last().map(|last| (last.key_group, last.state));
        if last.is_some_and(|last| last >= place) && self.unfinished != Some(place) {
            return Err(unwritable("runs do not ascend by key group and state"));
        }
        Ok(())
    }

    /// Appends the same as one run of these records.
    ///
    /// # Errors
    ///
    /// As [`SegmentWriter::append`] and [`RecordRun::push`].
    pub fn append_records<'a>(
        &mut self,
        key_group: KeyGroup,
        state: u16,
        records: impl IntoIterator<Item = RecordRef<'a>>,
    ) -> Result<(), FormatError> {
        let mut run = self.new_run();
        for record in records {
            run.push(record)?;
        }
        self.append(key_group, state, &run)
    }

    /// Adds a clear, which voids records of older segments and none of this one.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] if its state is not listed.
    pub fn clear(&mut self, clear: Clear) -> Result<(), FormatError> {
        if usize::from(clear.state) >= self.states.len() {
            return Err(unwritable("a clear refers to a state that is not listed"));
        }
        self.clears.push(clear);
        Ok(())
    }

    /// Bytes of the file so far, the open block counted before compression; the footer comes on top.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        (self.file.len() + self.block.len()) as u64
    }

    /// Whether it has neither record nor clear.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.runs.is_empty() && self.clears.is_empty()
    }

    /// Completes the segment.
    ///
    /// # Errors
    ///
    /// [`FormatError::Unwritable`] if a name of a state is empty or above 255 bytes, [`FormatError::Compression`].
    pub fn finish(mut self) -> Result<FinishedSegment, FormatError> {
        self.close_block()?;
        let Self {
            checkpoint, states, clears, mut compressor, mut file, buffers, mut checksum, index, ..
        } = self;
        let footer = SegmentFooter::new(checkpoint, states, clears, index);
        let raw = footer.encode()?;
        let start = file.len();
        let packing = compressor.append("segment footer", &raw, &mut file)?;
        let stored = file.get(start..).unwrap_or_default();
        let trailer = SegmentTrailer {
            checkpoint,
            footer_offset: start as u64,
            footer_length: stored.len() as u64,
            checksum: 0,
            footer_raw_length: raw.len() as u64,
            footer_packing: packing,
            footer_checksum: crc32c::crc32c(stored),
        };
        let trailer_checksum = trailer.encode(&mut file);
        checksum.update(file.get(start..).unwrap_or_default());
        let summary = SegmentSummary {
            checkpoint,
            totals: footer.totals(),
            clears: footer.clears().len() as u64,
            length: file.len() as u64,
            checksum: checksum.finish(),
            trailer_checksum,
        };
        let bytes = match buffers {
            Some(buffers) => buffers.lend(file),
            None => file.into(),
        };
        Ok(FinishedSegment { bytes, summary })
    }

    fn append_part(
        &mut self,
        place: (KeyGroup, u16),
        bytes: &[u8],
        totals: RecordTotals,
    ) -> Result<(), FormatError> {
        if self.block_length() > 0 && self.block_length() + bytes.len() > self.block_bytes {
            self.close_block()?;
        }
        let offset = self.block_length() as u64;
        let (key_group, state) = place;
        let open = self.index.runs.len() > self.block_first_run;
        match self.index.runs.last_mut() {
            Some(last) if open && (last.key_group, last.state) == place => last.totals.add(totals),
            _ => self.index.runs.push(Run { key_group, state, offset, totals }),
        }
        let open = if self.compressor.compresses() { &mut self.block } else { &mut self.file };
        open.extend_from_slice(bytes);
        Ok(())
    }

    /// Bytes of the open block before compression.
    fn block_length(&self) -> usize {
        self.block.len() + self.file.len() - self.block_start
    }

    fn close_block(&mut self) -> Result<(), FormatError> {
        let raw_length = self.block_length() as u64;
        if raw_length == 0 {
            return Ok(());
        }
        let packing = match self.compressor.compresses() {
            true => self.compressor.append("block", &self.block, &mut self.file)?,
            false => Packing::Plain,
        };
        let stored = self.file.get(self.block_start..).unwrap_or_default();
        self.checksum.update(stored);
        self.index.blocks.push(BlockEntry {
            offset: self.block_start as u64,
            stored_length: stored.len() as u64,
            raw_length,
            checksum: crc32c::crc32c(stored),
            packing,
            first_run: self.block_first_run,
            run_count: self.index.runs.len() - self.block_first_run,
        });
        self.block_first_run = self.index.runs.len();
        self.block_start = self.file.len();
        self.block.clear();
        Ok(())
    }
}

fn unwritable(problem: &'static str) -> FormatError {
    FormatError::Unwritable { part: "segment", problem }
}
