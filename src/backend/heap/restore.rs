//! A heap backend from the segments of a checkpoint.
//!
//! Owns: which segments, in which order, how many at a time. Does not own: fetching and checking
//! them (`restore`), what their records mean (`lowtide-heap`).

use std::future::Future;
use std::pin::Pin;

use futures::future::{Either, select};
use futures::{Stream, StreamExt};
use lowtide_format::{KeyGroupRange, KeyGroupSet};
use lowtide_heap::chain::SegmentFile;
use lowtide_heap::{ElementBlocks, HeapBackend, HeapOptions, HeapRestore, RestoredFile};

use super::HeapSettings;
use crate::backend::Assignment;
use crate::error::{Error, Result};
use crate::restore::{FetchedSegment, RestorePlan, RestoreSource};

/// Segments up to this length together are decoded where they are; longer ones on threads of their own.
const INLINE_BYTES_MAX: u64 = 256 << 10;

/// Segments are collected up to this length and then decoded together, so that a table is in the processor's caches once
/// for many of them. As many bytes again are on their way meanwhile.
const BATCH_BYTES: u64 = 64 << 20;

/// Reads what `assignment` asks for from the checkpoint of `source`, whichever backend wrote it.
pub(super) async fn restore(
    settings: &HeapSettings,
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<HeapBackend> {
    let mut backend = restore_any(settings, assignment, source).await?;
    backend.set_rewriting(settings.rewriting.clone());
    backend.set_antimatter(settings.antimatter);
    Ok(backend)
}

async fn restore_any(
    settings: &HeapSettings,
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<HeapBackend> {
    let options = super::heap_options(assignment);
    #[cfg(feature = "rocksdb")]
    if crate::backend::rocks::is_table_checkpoint(source.manifest()) {
        let records = crate::backend::rocks::records_of_tables(assignment, source).await?;
        let mut backend = restore_records(settings, options, (&records, source)).await?;
        // Its segments are in no checkpoint of the job.
        backend.forget_bases();
        return Ok(backend);
    }
    #[cfg(not(feature = "rocksdb"))]
    if source.manifest().subtasks.iter().any(|part| !part.local_files.is_empty()) {
        let message = format!("{} is in RocksDB's tables, which this build cannot read", source.id());
        return Err(Error::incompatible(message));
    }
    restore_records(settings, options, (source, source)).await
}

/// Reads what `options` ask for, newest segment first; the next segments are on their way while some are decoded. Who reads
/// meanwhile asks the checkpoint `asked`.
async fn restore_records(
    settings: &HeapSettings,
    options: HeapOptions,
    (source, asked): (&RestoreSource, &RestoreSource),
) -> Result<HeapBackend> {
    let plan = RestorePlan::new(source.manifest(), options.range)?;
    source.announce(&plan);
    let mut restore = HeapRestore::new(options, source.id(), source.options().limits);
    restore.completed(&source.manifest().completed);
    restore.expect(entries_of(source, options.range), source.manifest().states.len());
    for declared in &settings.declared {
        declared.0(&mut restore)?;
    }
    if let Some(readers) = asked.readers() {
        readers.offer(&restore.reader(plan.files.iter().map(|planned| &planned.key_groups))?);
    }
    let mut segments = std::pin::pin!(source.segments(plan));
    let Some(readers) = asked.readers() else {
        let mut batch = next_batch(segments.as_mut()).await?;
        while !batch.is_empty() {
            let decoding = decode(restore, batch, source);
            (restore, batch) = futures::try_join!(decoding, next_batch(segments.as_mut()))?;
        }
        return Ok(restore.finish());
    };
    let mut batch = Vec::new();
    loop {
        if batch.is_empty() {
            batch.extend(segments.next().await.transpose()?);
        }
        if batch.is_empty() {
            break;
        }
        (restore, batch) = arriving(decode(restore, batch, source), segments.as_mut()).await?;
    }
    readers.loaded().await;
    Ok(restore.finish())
}

/// Goes on with `decoding`, and returns what arrived of the segments meanwhile: somebody waits for what can be read.
async fn arriving(
    decoding: impl Future<Output = Result<HeapRestore>>,
    mut segments: Pin<&mut impl Stream<Item = Result<FetchedSegment>>>,
) -> Result<(HeapRestore, Vec<FetchedSegment>)> {
    let mut decoding = std::pin::pin!(decoding);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        match select(decoding.as_mut(), segments.next()).await {
            Either::Left((restore, _)) => return Ok((restore?, batch)),
            Either::Right((None, _)) => break,
            Either::Right((Some(segment), _)) => {
                let segment = segment?;
                bytes += segment.bytes();
                batch.push(segment);
            }
        }
    }
    Ok((decoding.await?, batch))
}

/// Entries of the checkpoint in some key groups, as far as its manifest tells: elements are taken to be even.
fn entries_of(source: &RestoreSource, range: KeyGroupRange) -> u64 {
    let own = KeyGroupSet::from(range);
    let count =
        |groups: &KeyGroupSet| groups.ranges().iter().map(|range| u64::from(range.len())).sum::<u64>();
    let elements = source.manifest().subtasks.iter().flat_map(|part| &part.elements);
    let entries = elements.map(|element| {
        let share = u128::from(count(&element.key_groups.intersect(&own)));
        u128::from(element.live_puts) * share / u128::from(count(&element.key_groups).max(1))
    });
    u64::try_from(entries.sum::<u128>()).unwrap_or(u64::MAX)
}

/// The next segments: one, or as many as are small together.
async fn next_batch(
    mut segments: Pin<&mut impl Stream<Item = Result<FetchedSegment>>>,
) -> Result<Vec<FetchedSegment>> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        let Some(segment) = segments.next().await else { break };
        let segment = segment?;
        bytes += segment.bytes();
        batch.push(segment);
    }
    Ok(batch)
}

async fn decode(
    mut restore: HeapRestore,
    batch: Vec<FetchedSegment>,
    source: &RestoreSource,
) -> Result<HeapRestore> {
    let bytes: u64 = batch.iter().map(FetchedSegment::bytes).sum();
    let take = move || take(&mut restore, &batch).map(|()| (restore, batch));
    let taken = if bytes <= INLINE_BYTES_MAX {
        take()
    } else {
        let taking = tokio::task::spawn_blocking(take).await;
        taking.map_err(|lost| Error::cancelled(format!("a decoding thread is lost: {lost}")))?
    };
    let (restore, batch) = taken.map_err(|error| source.in_checkpoint(error))?;
    let before = restore.live_puts().len() - batch.len();
    for (segment, live_puts) in batch.iter().zip(restore.live_puts().skip(before)) {
        source.advance(segment.planned.file.entry.length, live_puts);
    }
    Ok(restore)
}

fn take(restore: &mut HeapRestore, batch: &[FetchedSegment]) -> Result<()> {
    let mut elements = Vec::with_capacity(batch.len());
    for segment in batch {
        let FetchedSegment { planned, reader, .. } = segment;
        let (entry, summary) = (planned.file.entry.clone(), planned.file.summary());
        let file = SegmentFile { entry, summary, object_bytes: planned.file.bytes_of_object() };
        let file = RestoredFile { file, key_groups: planned.key_groups.clone() };
        let blocks = segment.blocks().collect::<Result<_, _>>()?;
        elements.push(ElementBlocks { file, reader, blocks });
    }
    Ok(restore.elements(&elements)?)
}
