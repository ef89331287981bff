//! Reads everything a checkpoint needs and checks every checksum, length and count.
//!
//! Owns: what is checked. Does not own: how bytes are checked (`restore`, `lowtide-format`).

use std::sync::Arc;

use lowtide_format::{CheckpointId, FileKind, Manifest, SegmentReader, Store, SubtaskPart};

use crate::backend::{Assignment, Backend};
use crate::coordinator::{BaseMode, PublishedCheckpoint, read_published};
use crate::error::{Error, Result};
use crate::restore::{ReadOptions, RestoreSource, check_summary};
use lowtide_heap::HeapBackend;

/// What reading one checkpoint found.
#[derive(Debug)]
#[must_use = "a checkpoint can be damaged"]
pub struct Verification {
    /// The checkpoint or savepoint.
    pub id: CheckpointId,
    /// Entries that it restores to.
    pub entries: u64,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong, in the order of the manifest; empty if all is well.
    pub faults: Vec<Error>,
}

/// Reads one checkpoint or savepoint of a directory, or all of them, and checks it.
///
/// Takes as much memory as one subtask's state. Nothing is changed in the store.
///
/// # Errors
///
/// `not-found` if the directory has no such checkpoint, `store` if it could not be read. What is wrong with a
/// checkpoint is in its [`Verification`].
pub async fn verify(directory: &Store, id: Option<CheckpointId>) -> Result<Vec<Verification>> {
    let published = read_published(directory).await?;
    let all = published.checkpoints.iter().chain(&published.savepoints);
    let mut wanted: Vec<_> = all.filter(|found| id.is_none_or(|id| found.id() == id)).collect();
    wanted.sort_by_key(|found| found.id());
    if let (Some(id), true) = (id, wanted.is_empty()) {
        return Err(Error::not_found(format!(
            "{id} is not among the checkpoints and savepoints of this directory"
        )));
    }
    let mut verifications = Vec::with_capacity(wanted.len());
    for found in wanted {
        verifications.push(verify_one(directory, found).await?);
    }
    Ok(verifications)
}

async fn verify_one(directory: &Store, found: &PublishedCheckpoint) -> Result<Verification> {
    let mut verification =
        Verification { id: found.id(), entries: 0, files: 0, bytes: 0, faults: Vec::new() };
    let manifest = match found.manifest(directory).await {
        Ok(manifest) => Arc::new(manifest),
        Err(error) => return settle(verification, error),
    };
    let source = RestoreSource::new(directory.clone(), Arc::clone(&manifest), ReadOptions::default(), None);
    for file in &manifest.files {
        let entry = &file.entry;
        verification.files += 1;
        verification.bytes += entry.length;
        let checked = async {
            let bytes = source.fetch_file(entry).await?;
            if entry.kind == FileKind::Segment {
                let named = |error: lowtide_format::FormatError| error.in_object(entry.object.as_str());
                let reader = SegmentReader::open(&bytes, source.options().limits).map_err(named)?;
                check_summary(&reader, file).map_err(named)?;
                reader.verify(&bytes).map_err(named)?;
            }
            Ok(())
        };
        if let Err(error) = checked.await {
            verification = settle(verification, source.with_checkpoint(error, file))?;
        }
    }
    if !verification.faults.is_empty() || !can_open(&manifest) {
        verification.entries = manifest.subtasks.iter().map(|part| part.entries).sum();
        return Ok(verification);
    }
    for part in &manifest.subtasks {
        let assignment = Assignment {
            subtask: part.index,
            key_groups: manifest.key_groups,
            range: part.range,
            base_mode: BaseMode::Confirmed,
        };
        match restored_entries(assignment, part, &source).await {
            Ok(entries) => {
                verification.entries += entries;
                if entries != part.entries {
                    verification.faults.push(Error::new(
                        crate::error::ErrorKind::Corrupt,
                        format!(
                            "{} restores to {entries} entries in subtask {}, its manifest says {}",
                            found.id(),
                            part.index,
                            part.entries
                        ),
                    ));
                }
            }
            Err(error) => verification = settle(verification, error)?,
        }
    }
    Ok(verification)
}

/// Whether this build has what the checkpoint opens with.
fn can_open(manifest: &Manifest) -> bool {
    cfg!(feature = "rocksdb") || manifest.subtasks.iter().all(|part| part.local_files.is_empty())
}

/// The entries that a subtask's part restores to, which is done to find out.
async fn restored_entries(assignment: Assignment, part: &SubtaskPart, source: &RestoreSource) -> Result<u64> {
    #[cfg(feature = "rocksdb")]
    if !part.local_files.is_empty() {
        // RocksDB only estimates how many entries it has: that it opens with these tables is what counts.
        crate::RocksBackend::restore(&Default::default(), assignment, source).await?;
        return Ok(part.entries);
    }
    let _estimated = part.entries;
    Ok(Backend::figures(&HeapBackend::restore(&Default::default(), assignment, source).await?).entries)
}

fn settle(mut verification: Verification, error: Error) -> Result<Verification> {
    verification.faults.push(error.into_finding()?);
    Ok(verification)
}
