//! What is in a store: jobs, checkpoints, files, and why a file is kept. A data model for tools; read only.
//!
//! Owns: the shape of the answer. Does not own: reading the sequence and manifests (`coordinator`).

use std::collections::BTreeMap;

use lowtide_format::{CheckpointKind, Manifest, ManifestFile, ObjectName, Store};
use serde::Serialize;

use crate::coordinator::{Published, PublishedCheckpoint, read_published};
use crate::error::{Error, Result};

/// Everything that [`inspect`] found below one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The jobs, by directory.
    pub jobs: Vec<InspectedJob>,
}

/// One directory of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedJob {
    /// Directory relative to the store's root; empty for the root itself.
    pub directory: String,
    /// Retained checkpoints and savepoints, ascending.
    pub checkpoints: Vec<InspectedCheckpoint>,
    /// Data objects that some checkpoint lists, and why.
    pub files: Vec<KeptFile>,
    /// What could not be read, and why. What only that lists is among the unlisted.
    pub faults: Vec<InspectedFault>,
    /// Data objects in the directory that no manifest lists: of a pending checkpoint, or left over.
    pub unlisted: Vec<StoredObject>,
    /// Bytes of all data objects in the directory.
    pub data_bytes: u64,
    /// Bytes of manifests and of the coordinator's own objects.
    pub meta_bytes: u64,
}

/// A damaged manifest or sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedFault {
    /// The checkpoint whose manifest it is; none for the sequence.
    pub checkpoint: Option<String>,
    /// `missing`, `corrupt` or `incompatible`.
    pub kind: String,
    /// What is wrong, naming the object.
    pub problem: String,
}

/// One retained checkpoint or savepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedCheckpoint {
    /// Its id, as `chk-3`.
    pub id: String,
    /// `checkpoint`, `full` or `savepoint`.
    pub kind: &'static str,
    /// The base of its deltas; none if everything was written.
    pub base: Option<String>,
    /// The coordinator's generation that published it.
    pub generation: u64,
    /// Milliseconds since 1970, by the coordinator's clock.
    pub created_millis: u64,
    /// Name of the job that wrote it.
    pub job: String,
    /// Name of the backend.
    pub backend: String,
    /// Key groups of the job.
    pub key_groups: u16,
    /// Entries of all states and subtasks.
    pub entries: u64,
    /// Names of its states.
    pub states: Vec<String>,
    /// Bytes of the files it wrote.
    pub new_bytes: u64,
    /// Bytes of all files it lists.
    pub listed_bytes: u64,
    /// The parts of its subtasks.
    pub subtasks: Vec<InspectedSubtask>,
}

/// One subtask's chain in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedSubtask {
    /// Number of the subtask.
    pub subtask: u32,
    /// Its key groups, as `kg-000..=kg-007`.
    pub range: String,
    /// Entries of its states.
    pub entries: u64,
    /// Elements, oldest first.
    pub chain: Vec<InspectedElement>,
}

/// A file and the key groups for which it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedElement {
    /// Object name.
    pub object: String,
    /// Checkpoint that wrote it.
    pub checkpoint: String,
    /// Ranges of key groups.
    pub key_groups: Vec<String>,
    /// Puts that are the newest record of a present key.
    pub live_puts: u64,
    /// Tombstones that still hide something.
    pub live_tombstones: u64,
    /// Clears that still void something.
    pub live_clears: u64,
}

/// A data object that is kept, and who lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptFile {
    /// Object name.
    pub object: String,
    /// Checkpoint that wrote it.
    pub checkpoint: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Puts in it.
    pub puts: u64,
    /// Tombstones in it.
    pub tombstones: u64,
    /// Clears in it.
    pub clears: u64,
    /// The retained checkpoints and savepoints that list it: while one of them is kept, so is the file.
    pub listed_by: Vec<String>,
    /// Live records in the newest of them, all subtasks together.
    pub live_records: u64,
}

/// An object and its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredObject {
    /// Object name.
    pub object: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// Looks at every directory of checkpoints below a store.
///
/// Lists the store once and reads the newest member of each sequence and all manifests; no data is read. What is damaged
/// is among the faults of its job.
///
/// # Errors
///
/// `store` if listing or reading failed.
pub async fn inspect(store: &Store) -> Result<Inspection> {
    let mut directories: BTreeMap<String, Vec<StoredObject>> = BTreeMap::new();
    for object in store.list_all().await? {
        let Some((directory, rest)) = split_directory(&object.path) else { continue };
        let stored = StoredObject { object: rest.to_owned(), bytes: object.length };
        directories.entry(directory.to_owned()).or_default().push(stored);
    }
    let mut jobs = Vec::new();
    for (directory, objects) in directories {
        let place =
            if directory.is_empty() { store.clone() } else { store.sub(&ObjectName::new(&directory)?) };
        jobs.push(inspect_job(directory, &place, objects).await?);
    }
    Ok(Inspection { jobs })
}

/// The directory an object of ours belongs to, and its name in it.
fn split_directory(name: &str) -> Option<(&str, &str)> {
    let cut = ["seq/", "meta/", "data/"].into_iter().filter_map(|part| {
        let at = name.rfind(part)?;
        (at == 0 || name.get(..at)?.ends_with('/')).then_some(at)
    });
    let at = cut.max()?;
    let (directory, rest) = name.split_at_checked(at)?;
    Some((directory.trim_end_matches('/'), rest))
}

async fn inspect_job(directory: String, store: &Store, objects: Vec<StoredObject>) -> Result<InspectedJob> {
    let mut faults = Vec::new();
    let published = match read_published(store).await {
        Ok(published) => published,
        Err(error) => {
            faults.push(fault(None, error)?);
            Published::default()
        }
    };
    let mut manifests = Vec::new();
    let mut found: Vec<&PublishedCheckpoint> =
        published.checkpoints.iter().chain(&published.savepoints).collect();
    found.sort_by_key(|checkpoint| checkpoint.id());
    for checkpoint in found {
        match checkpoint.manifest(store).await {
            Ok(manifest) => manifests.push(manifest),
            Err(error) => faults.push(fault(Some(checkpoint), error)?),
        }
    }
    let mut files: BTreeMap<String, KeptFile> = BTreeMap::new();
    for manifest in &manifests {
        for (index, file) in manifest.files.iter().enumerate() {
            let kept = files.entry(file.entry.object.to_string()).or_insert_with(|| kept_file(file));
            kept.listed_by.push(manifest.checkpoint.to_string());
            kept.live_records = live_records(manifest, index);
        }
    }
    let (data, meta): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.object.starts_with("data/"));
    let data_bytes = data.iter().map(|object| object.bytes).sum();
    let meta_bytes = meta.iter().map(|object| object.bytes).sum();
    let unlisted = data.into_iter().filter(|object| !files.contains_key(&object.object)).collect();
    Ok(InspectedJob {
        directory,
        checkpoints: manifests.iter().map(inspect_checkpoint).collect(),
        files: files.into_values().collect(),
        faults,
        unlisted,
        data_bytes,
        meta_bytes,
    })
}

fn fault(checkpoint: Option<&PublishedCheckpoint>, error: Error) -> Result<InspectedFault> {
    let error = error.into_finding()?;
    let checkpoint = checkpoint.map(|checkpoint| checkpoint.id().to_string());
    Ok(InspectedFault { checkpoint, kind: error.kind().to_string(), problem: error.to_string() })
}

fn kept_file(file: &ManifestFile) -> KeptFile {
    KeptFile {
        object: file.entry.object.to_string(),
        checkpoint: file.checkpoint.to_string(),
        bytes: file.entry.length,
        puts: file.records.map_or(0, |records| records.totals.puts),
        tombstones: file.records.map_or(0, |records| records.totals.tombstones),
        clears: file.records.map_or(0, |records| records.clears),
        listed_by: Vec::new(),
        live_records: 0,
    }
}

fn live_records(manifest: &Manifest, file: usize) -> u64 {
    let elements = manifest.subtasks.iter().flat_map(|part| &part.elements);
    let of_file = elements.filter(|element| usize::try_from(element.file) == Ok(file));
    of_file.map(|element| element.live_puts + element.live_tombstones + element.live_clears).sum()
}

fn inspect_checkpoint(manifest: &Manifest) -> InspectedCheckpoint {
    let own = manifest.files.iter().filter(|file| file.checkpoint == manifest.checkpoint);
    InspectedCheckpoint {
        id: manifest.checkpoint.to_string(),
        kind: match manifest.kind {
            CheckpointKind::Checkpoint => "checkpoint",
            CheckpointKind::Full => "full",
            CheckpointKind::Savepoint => "savepoint",
        },
        base: manifest.base.map(|base| base.to_string()),
        generation: manifest.generation.0,
        created_millis: manifest.created_millis,
        job: manifest.job.clone(),
        backend: manifest.backend.clone(),
        key_groups: manifest.key_groups.get(),
        entries: manifest.subtasks.iter().map(|part| part.entries).sum(),
        states: manifest.states.iter().map(|state| state.name.clone()).collect(),
        new_bytes: own.map(|file| file.entry.length).sum(),
        listed_bytes: manifest.files.iter().map(|file| file.entry.length).sum(),
        subtasks: manifest.subtasks.iter().map(|part| inspect_subtask(manifest, part)).collect(),
    }
}

fn inspect_subtask(manifest: &Manifest, part: &lowtide_format::SubtaskPart) -> InspectedSubtask {
    let chain = part.elements.iter().filter_map(|element| {
        let file = manifest.files.get(usize::try_from(element.file).ok()?)?;
        Some(InspectedElement {
            object: file.entry.object.to_string(),
            checkpoint: file.checkpoint.to_string(),
            key_groups: element.key_groups.ranges().iter().map(ToString::to_string).collect(),
            live_puts: element.live_puts,
            live_tombstones: element.live_tombstones,
            live_clears: element.live_clears,
        })
    });
    InspectedSubtask {
        subtask: part.index,
        range: part.range.to_string(),
        entries: part.entries,
        chain: chain.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_what_stands_before_our_own_folders() {
        assert_eq!(split_directory("seq/1"), Some(("", "seq/1")));
        assert_eq!(split_directory("a/b/data/x.seg"), Some(("a/b", "data/x.seg")));
        assert_eq!(split_directory("data/meta/chk-1-x"), Some(("data", "meta/chk-1-x")));
        assert_eq!(split_directory("notes.txt"), None);
        assert_eq!(split_directory("mydata/x"), None, "the name of a folder must match as a whole");
    }
}
