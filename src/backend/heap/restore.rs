//! A heap backend from the segments of a checkpoint.
//!
//! Owns: which segments, in which order, on which thread they are decoded. Does not own: fetching and checking
//! them (`restore`), what their records mean (`lowtide-heap`).

use lowtide_format::FormatError;
use lowtide_heap::{HeapBackend, HeapOptions, HeapRestore, RestoredFile};

use crate::error::{Error, Result};
use crate::restore::{FetchedSegment, RestorePlan, RestoreSource};

/// A segment up to this length is decoded where it is; a longer one on a thread of its own.
const INLINE_BYTES_MAX: u64 = 256 << 10;

/// Reads what `options` ask for from the checkpoint of `source`, newest segment first.
pub(super) async fn restore(options: HeapOptions, source: &RestoreSource) -> Result<HeapBackend> {
    let plan = RestorePlan::new(source.manifest(), options.range)?;
    source.announce(&plan);
    let mut restore = HeapRestore::new(options, source.id(), source.options().limits);
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
    let file = RestoredFile { file: planned.file.entry.clone(), key_groups: planned.key_groups.clone() };
    let mut element = restore.begin(file, segment.reader.footer())?;
    let mut decoder = segment.reader.block_decoder();
    for block in segment.blocks() {
        let (entry, stored) = block?;
        element.block(&decoder.decode(entry, stored).map_err(named)?)?;
    }
    element.finish();
    Ok(restore)
}
