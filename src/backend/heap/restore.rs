//! A heap backend from the segments of a checkpoint.
//!
//! Owns: which segments, in which order, on which thread they are decoded. Does not own: fetching and checking
//! them (`restore`), what their records mean (`lowtide-heap`).

use lowtide_format::FormatError;
use lowtide_heap::chain::SegmentFile;
use lowtide_heap::{HeapBackend, HeapOptions, HeapRestore, RestoredFile};

use super::HeapSettings;
use crate::backend::Assignment;
use crate::error::{Error, Result};
use crate::restore::{FetchedSegment, RestorePlan, RestoreSource};

/// A segment up to this length is decoded where it is; a longer one on a thread of its own.
const INLINE_BYTES_MAX: u64 = 256 << 10;

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
        let mut backend = restore_records(settings, options, &records).await?;
        // Its segments are in no checkpoint of the job.
        backend.forget_bases();
        return Ok(backend);
    }
    #[cfg(not(feature = "rocksdb"))]
    if source.manifest().subtasks.iter().any(|part| !part.local_files.is_empty()) {
        let message = format!("{} is in RocksDB's tables, which this build cannot read", source.id());
        return Err(Error::incompatible(message));
    }
    restore_records(settings, options, source).await
}

/// Reads what `options` ask for, newest segment first.
async fn restore_records(
    settings: &HeapSettings,
    options: HeapOptions,
    source: &RestoreSource,
) -> Result<HeapBackend> {
    let plan = RestorePlan::new(source.manifest(), options.range)?;
    source.announce(&plan);
    let mut restore = HeapRestore::new(options, source.id(), source.options().limits);
    restore.completed(&source.manifest().completed);
    for declared in &settings.declared {
        declared.0(&mut restore)?;
    }
    let mut segments = std::pin::pin!(source.segments(plan));
    while let Some(segment) = futures::StreamExt::next(&mut segments).await {
        let segment = segment?;
        let (before, file) = (restore.entries(), segment.planned.file.clone());
        let length = file.entry.length;
        restore = if length <= INLINE_BYTES_MAX {
            decode(restore, &segment)
        } else {
            let decoding = tokio::task::spawn_blocking(move || decode(restore, &segment));
            decoding.await.map_err(|lost| Error::cancelled(format!("a decoding thread is lost: {lost}")))?
        }
        .map_err(|error| source.with_checkpoint(error, &file))?;
        source.advance(length, restore.entries() - before);
    }
    Ok(restore.finish())
}

fn decode(mut restore: HeapRestore, segment: &FetchedSegment) -> Result<HeapRestore> {
    let planned = &segment.planned;
    let named = |error: FormatError| error.in_object(planned.file.entry.object.as_str());
    let (entry, summary) = (planned.file.entry.clone(), planned.file.summary());
    let file = SegmentFile { entry, summary, object_bytes: planned.file.bytes_of_object() };
    let file = RestoredFile { file, key_groups: planned.key_groups.clone() };
    let mut element = restore.begin(file, segment.reader.footer())?;
    let mut decoder = segment.reader.block_decoder();
    for block in segment.blocks() {
        let (entry, stored) = block?;
        element.block(&decoder.decode(entry, stored).map_err(named)?)?;
    }
    element.finish();
    Ok(restore)
}
