//! From a checkpoint of either kind to an open RocksDB backend, and from RocksDB's tables to records.

use std::io::Write;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use lowtide_format::{
    Clear, Element, KeyGroupSet, Manifest, ManifestFile, ObjectPath, Store, SubtaskPart, UploadId,
};
use lowtide_lsm::{
    CheckpointMeta, Fetch, LsmBackend, LsmOptions, RestorePart, RestorePlan as TablePlan, Staging,
    StoredTable, TABLE_LIST,
};

use super::{RocksBackend, overlaps};
use crate::backend::Assignment;
use crate::error::{Error, Result};
use crate::restore::{FetchedSegment, ReadOptions, RestorePlan, RestoreSource};

/// So many bytes of a table are read, checked and written at a time: they stay in the processor's caches, and several tables
/// take turns on all cores.
const PIECE_BYTES: u64 = 2 << 20;

/// Whether the checkpoint consists of RocksDB's tables rather than of records.
pub(crate) fn is_table_checkpoint(manifest: &Manifest) -> bool {
    manifest.subtasks.iter().any(|part| !part.local_files.is_empty())
}

pub(super) async fn restore(
    options: &LsmOptions,
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<RocksBackend> {
    let manifest = source.manifest();
    if manifest.key_groups != assignment.key_groups {
        return Err(Error::incompatible(format!(
            "{} has {} key groups, the job {}; open it with {0}",
            manifest.checkpoint, manifest.key_groups, assignment.key_groups
        )));
    }
    let lsm = if is_table_checkpoint(manifest) {
        restore_tables(options, assignment, source).await?
    } else {
        restore_records(options, assignment, source).await?
    };
    Ok(RocksBackend::from_lsm(lsm, assignment))
}

/// Fetches the needed tables, several at a time, and opens them.
async fn restore_tables(
    options: &LsmOptions,
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<LsmBackend> {
    let manifest = source.manifest();
    let mut parts = Vec::new();
    for part in manifest.subtasks.iter().filter(|part| overlaps(part.range, assignment.range)) {
        parts.push(table_part(part, source).await?);
    }
    let plan = TablePlan::new(assignment.range, assignment.key_groups, manifest.checkpoint, parts)
        .map_err(Error::from)?;
    let staging = Staging::create(options, plan)?;
    let fetches: Vec<Fetch> = staging.plan().fetches().to_vec();
    futures::stream::iter(fetches)
        .map(|fetch| fetch_table(source, &staging, fetch))
        .buffer_unordered(source.options().files_max.max(1))
        .try_collect::<()>()
        .await?;
    let opened = tokio::task::spawn_blocking(move || staging.restore()).await;
    Ok(opened.map_err(|lost| Error::writer_lost(&lost))??)
}

async fn fetch_table(source: &RestoreSource, staging: &Staging, fetch: Fetch) -> Result<()> {
    let entry = &fetch.stored.file;
    let listed = source.manifest().files.iter().find(|file| file.entry.id() == entry.id());
    let named = |error: Error| match listed {
        Some(file) => source.with_checkpoint(error, file),
        None => error,
    };
    let path = staging.path(&fetch)?;
    let failed = |error: std::io::Error| {
        let message = format!("cannot write {}: {error}", path.display());
        Error::new(crate::error::ErrorKind::Store, message).caused_by(error)
    };
    let mut check = entry.check_pieces();
    let mut file = tokio::fs::File::create(&path).await.map_err(failed)?.into_std().await;
    let mut at = 0;
    while at < entry.length {
        let end = entry.length.min(at + PIECE_BYTES);
        let piece = source.read(entry, at..end).await.map_err(named)?;
        let taken = tokio::task::spawn_blocking(move || {
            check.update(&piece);
            file.write_all(&piece).map(|()| (check, file))
        });
        (check, file) = taken.await.map_err(|lost| Error::writer_lost(&lost))?.map_err(failed)?;
        at = end;
    }
    check.finish().map_err(|error| named(error.into()))?;
    source.advance(entry.length, 0);
    Ok(())
}

/// What one former subtask wrote: its table list, and where its tables lie.
async fn table_part(part: &SubtaskPart, source: &RestoreSource) -> Result<RestorePart> {
    let manifest = source.manifest();
    let mut list = None;
    let mut tables = std::collections::BTreeMap::new();
    for local in &part.local_files {
        let Some(file) = manifest.file(local.file) else { continue };
        if local.name == TABLE_LIST {
            list = Some(file);
        } else {
            let stored = StoredTable { file: file.entry.clone(), checkpoint: file.checkpoint };
            tables.insert(local.name.clone(), stored);
        }
    }
    let file = list.ok_or_else(|| {
        let message = format!("{} lists no table list for subtask {}", manifest.checkpoint, part.index);
        Error::new(crate::error::ErrorKind::Corrupt, message)
    })?;
    let fetch = async {
        let bytes = source.fetch_file(&file.entry).await?;
        let decoded = CheckpointMeta::decode(&bytes, source.options().limits);
        Ok(decoded.map_err(|error| error.in_object(file.entry.object.as_str()))?)
    };
    let mut meta = fetch.await.map_err(|error| source.with_checkpoint(error, file))?;
    // The manifest has the last word on what a subtask is responsible for.
    meta.range = part.range;
    Ok(RestorePart { meta, tables })
}

/// Replays the records of a chain, oldest first.
async fn restore_records(
    options: &LsmOptions,
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<LsmBackend> {
    let manifest = source.manifest();
    let mut lsm = LsmBackend::open(options, assignment.range, assignment.key_groups)?;
    let mut plan = RestorePlan::new(manifest, assignment.range)?;
    source.announce(&plan);
    // Oldest first; and of one checkpoint those with clears first, which void nothing of their own checkpoint.
    let clears = |file: &ManifestFile| file.records.is_some_and(|records| records.clears > 0);
    plan.files.sort_by_key(|planned| (planned.file.checkpoint, !clears(&planned.file)));
    for state in &manifest.states {
        lsm.load_segment(std::slice::from_ref(state))?.finish()?;
    }
    let mut held: Vec<FetchedSegment> = Vec::new();
    let mut segments = std::pin::pin!(source.segments(plan));
    while let Some(segment) = segments.next().await {
        let segment = segment?;
        let same = |other: &FetchedSegment| other.planned.file.checkpoint == segment.planned.file.checkpoint;
        let clears = clears(&segment.planned.file);
        if !clears || !held.last().is_none_or(same) {
            replay(&mut lsm, &std::mem::take(&mut held), source)?;
        }
        if clears {
            held.push(segment);
        } else {
            replay(&mut lsm, &[segment], source)?;
        }
    }
    replay(&mut lsm, &held, source)?;
    lsm.restored_from(manifest.checkpoint);
    Ok(lsm)
}

/// Replays segments of one checkpoint: all their clears, then all their records.
fn replay(lsm: &mut LsmBackend, segments: &[FetchedSegment], source: &RestoreSource) -> Result<()> {
    for segment in segments {
        let footer = segment.reader.footer();
        let mut loader = lsm.load_segment(footer.states())?;
        for clear in footer.clears() {
            let key_groups = clear.key_groups.intersect(&segment.planned.key_groups);
            loader.clear(&Clear { key_groups, ..clear.clone() })?;
        }
        loader.finish()?;
    }
    for segment in segments {
        let named = |error: Error| source.with_checkpoint(error, &segment.planned.file);
        replay_records(lsm, segment).map_err(named)?;
        let puts = segment.planned.file.records.map_or(0, |records| records.totals.puts);
        source.advance(segment.planned.file.entry.length, puts);
    }
    Ok(())
}

fn replay_records(lsm: &mut LsmBackend, segment: &FetchedSegment) -> Result<()> {
    let wanted = &segment.planned.key_groups;
    let object = segment.planned.file.entry.object.as_str();
    let mut decoder = segment.reader.block_decoder();
    let mut loader = lsm.load_segment(segment.reader.footer().states())?;
    for block in segment.blocks() {
        let (entry, stored) = block?;
        let block = decoder.decode(entry, stored).map_err(|error| error.in_object(object))?;
        for run in block.runs().iter().filter(|run| wanted.contains(run.key_group)) {
            for record in block.records(run) {
                let record = record.map_err(|error| error.in_object(object))?;
                loader.apply(run.key_group, run.state, record)?;
            }
        }
    }
    Ok(loader.finish()?)
}

/// The entries of a checkpoint of tables as a checkpoint of records in memory, for the key groups of the assignment.
///
/// RocksDB keeps no versions: every entry has that of the checkpoint.
pub(crate) async fn records_of_tables(
    assignment: Assignment,
    source: &RestoreSource,
) -> Result<RestoreSource> {
    let id = source.id();
    let lsm = restore_tables(&LsmOptions::default(), assignment, source).await?;
    let mut segments = Vec::new();
    lsm.write_records::<Error>(id, |segment| {
        segments.push(segment);
        Ok(())
    })?;
    drop(lsm);
    let store = Store::memory();
    let mut files = Vec::new();
    let mut elements = Vec::new();
    let manifest = source.manifest();
    for (number, segment) in segments.into_iter().enumerate() {
        let number = u32::try_from(number).map_err(|_beyond| Error::invalid_argument("too many segments"))?;
        let kind = lowtide_format::FileKind::Segment;
        let object = ObjectPath::Data { upload: UploadId::from_parts(0, [0; 10]), number, kind }.name();
        store.put_data(&object, segment.bytes).await?;
        files.push(ManifestFile::of_segment(object, &segment.summary, manifest.generation));
        elements.push(Element {
            file: number,
            key_groups: KeyGroupSet::from(assignment.range),
            live_puts: segment.summary.totals.puts,
            live_tombstones: 0,
            live_clears: 0,
        });
    }
    let entries = elements.iter().map(|element| element.live_puts).sum();
    let (index, range) = (assignment.subtask, assignment.range);
    let part = SubtaskPart { index, range, elements, local_files: Vec::new(), entries };
    let records = Manifest { files, subtasks: vec![part], base: None, ..Manifest::clone(manifest) };
    let options = ReadOptions::clone(source.options());
    Ok(RestoreSource::new(store, Arc::new(records), options, None))
}
