//! Questions about completed checkpoints, answered from manifests.
//!
//! Owns: what is counted. Does not own: which checkpoints are kept (`coordinator`), what is in them
//! (`lowtide-format`).

use std::collections::BTreeMap;
use std::sync::Arc;

use lowtide_format::{
    CheckpointId, FileKind, FormatError, KeyGroupSet, Manifest, RecordRef, SegmentReader, Store,
};

use super::Job;
use super::figures::Parts;
use crate::backend::Backend;
use crate::coordinator::{PublishedCheckpoint, read_published};
use crate::error::{Error, Result};
use crate::restore::{ReadOptions, RestoreSource};

/// What a completed checkpoint wrote and lists; prints nothing by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointStat {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The base of its deltas, the oldest if subtasks differ; none if everything was written.
    pub base: Option<CheckpointId>,
    /// Puts in the segments it wrote, rewritten ones among them.
    pub puts: u64,
    /// Tombstones in the segments it wrote.
    pub tombstones: u64,
    /// Clears in the segments it wrote, one per subtask and scope.
    pub clears: u64,
    /// Puts it wrote again although unchanged.
    pub rewritten: u64,
    /// Files its manifest lists, whoever wrote them.
    pub files: u64,
}

/// The segments of one checkpoint in a chain, all subtasks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// The checkpoint that wrote them.
    pub checkpoint: CheckpointId,
    /// Live puts, tombstones and clears in them, as the chain's manifest counts them.
    pub live_records: u64,
}

impl<B: Backend> Job<B> {
    /// Completed checkpoints that are kept, ids ascending.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<CheckpointId> {
        self.coordinator.published().checkpoints.iter().map(PublishedCheckpoint::id).collect()
    }

    /// The oldest checkpoint of this job that is durable and kept: a host may forget what its sources delivered before
    /// that one's barrier, and nothing later.
    ///
    /// It advances when a publish that subsumes an older checkpoint has been verified, never before; a publish that
    /// fails, or is in doubt, leaves it where it is. `None` while no checkpoint of this job has completed: after a restore
    /// without claim the one restored from is still needed, and it is another job's. Savepoints do not count: one that is
    /// older needs its own place in the sources. Memory only.
    #[must_use]
    pub fn lowest_retained(&self) -> Option<CheckpointId> {
        self.coordinator.lowest_retained()
    }

    /// Savepoints in the job's directory, ids ascending.
    #[must_use]
    pub fn savepoints(&self) -> Vec<CheckpointId> {
        self.coordinator.published().savepoints.iter().map(PublishedCheckpoint::id).collect()
    }

    /// The manifest of a completed checkpoint or savepoint that is kept.
    ///
    /// # Errors
    ///
    /// `not-found` if it is not, or no longer; as [`PublishedCheckpoint::manifest`].
    pub async fn manifest(&self, id: CheckpointId) -> Result<Manifest> {
        read_manifest(&self.store, id).await
    }

    /// What a completed checkpoint or savepoint wrote and lists.
    ///
    /// Reads its manifest, and those of its own segments whose records may have been rewritten.
    ///
    /// # Errors
    ///
    /// As [`Job::manifest`].
    pub async fn stat(&self, id: CheckpointId) -> Result<CheckpointStat> {
        let known = self.rewritten.get(&id).copied();
        let known = known.or_else(|| self.parts.get(&id).map(Parts::rewritten));
        read_stat(&self.store, id, known).await
    }

    /// The checkpoints that wrote the segments a completed checkpoint lists, oldest first.
    ///
    /// # Errors
    ///
    /// As [`Job::manifest`]; `invalid-argument` on a backend without segments.
    pub async fn chain(&self, id: CheckpointId) -> Result<Vec<ChainLink>> {
        read_chain(&self.store, id).await
    }
}

async fn read_manifest(directory: &Store, id: CheckpointId) -> Result<Manifest> {
    let published = read_published(directory).await?;
    let found = published
        .get(id)
        .ok_or_else(|| Error::not_found(format!("{id} is not a completed checkpoint that is kept")))?;
    found.manifest(directory).await
}

/// As [`Job::stat`], whether a job runs on the directory or not; `rewritten` spares the count if it is known.
pub(crate) async fn read_stat(
    directory: &Store,
    id: CheckpointId,
    rewritten: Option<u64>,
) -> Result<CheckpointStat> {
    let manifest = Arc::new(read_manifest(directory, id).await?);
    let rewritten = match rewritten {
        Some(rewritten) => rewritten,
        None => count_rewritten(directory, &manifest).await?,
    };
    let own = manifest.files.iter().filter(|file| file.checkpoint == id).filter_map(|file| file.records);
    let mut stat = CheckpointStat {
        id,
        base: manifest.base,
        puts: 0,
        tombstones: 0,
        clears: 0,
        rewritten,
        files: manifest.files.len() as u64,
    };
    for records in own {
        stat.puts += records.totals.puts;
        stat.tombstones += records.totals.tombstones;
        stat.clears += records.clears;
    }
    Ok(stat)
}

/// Puts in the checkpoint's own segments whose version is not newer than the base.
///
/// A full checkpoint and a savepoint write everything, changed or not, but rewrite nothing.
async fn count_rewritten(directory: &Store, manifest: &Arc<Manifest>) -> Result<u64> {
    let Some(base) = manifest.base else { return Ok(0) };
    let source = RestoreSource::new(directory.clone(), Arc::clone(manifest), ReadOptions::default(), None);
    let groups = KeyGroupSet::from(manifest.key_groups.all());
    let mut rewritten = 0;
    for file in manifest.files.iter().filter(|file| file.checkpoint == manifest.checkpoint) {
        let oldest = file.records.and_then(|records| records.totals.span).map(|span| span.oldest);
        if file.entry.kind != FileKind::Segment || oldest.is_none_or(|oldest| oldest > base) {
            continue;
        }
        let bytes = source.fetch_file(&file.entry).await?;
        let reader = SegmentReader::open(&bytes, source.options().limits)?;
        reader.visit(&bytes, &groups, |_, record| {
            if let RecordRef::Put { version, .. } = record {
                rewritten += u64::from(version <= base);
            }
            Ok::<(), FormatError>(())
        })?;
    }
    Ok(rewritten)
}

/// As [`Job::chain`], whether a job runs on the directory or not.
pub(crate) async fn read_chain(directory: &Store, id: CheckpointId) -> Result<Vec<ChainLink>> {
    let manifest = read_manifest(directory, id).await?;
    if manifest.files.iter().any(|file| file.entry.kind != FileKind::Segment) {
        return Err(Error::invalid_argument(format!("{id} is of a backend without segments")));
    }
    let mut links: BTreeMap<CheckpointId, u64> = BTreeMap::new();
    for element in manifest.subtasks.iter().flat_map(|part| &part.elements) {
        if let Some(file) = manifest.file(element.file) {
            *links.entry(file.checkpoint).or_default() +=
                element.live_puts + element.live_tombstones + element.live_clears;
        }
    }
    let link = |(checkpoint, live_records)| ChainLink { checkpoint, live_records };
    Ok(links.into_iter().map(link).collect())
}
