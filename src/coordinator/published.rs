//! Reading what is published in a directory, without taking it over.

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, DecodeLimits, Generation, Manifest, PublishedRef, SequenceMember, Store, StoreErrorKind,
};

use crate::error::{Error, ErrorKind, Result};
use crate::publish::{Sequence, newest_sound_member};

/// A completed checkpoint or savepoint of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedCheckpoint {
    reference: PublishedRef,
    savepoint: bool,
    location: String,
}

impl PublishedCheckpoint {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.reference.checkpoint
    }

    /// Whether the user has to delete it: a claimed savepoint is an ordinary checkpoint.
    #[must_use]
    pub fn is_savepoint(&self) -> bool {
        self.savepoint
    }

    /// Where its directory is, for messages.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// How the sequence names it.
    #[must_use]
    pub fn reference(&self) -> &PublishedRef {
        &self.reference
    }

    /// Its manifest, read from the directory `store` and checked.
    ///
    /// # Errors
    ///
    /// `missing`, `corrupt` and `incompatible` naming object and checkpoint; `store`.
    pub async fn manifest(&self, store: &Store) -> Result<Manifest> {
        read_manifest(store, &self.reference).await
    }
}

/// What is published in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Completed checkpoints, ids ascending.
    pub checkpoints: Vec<PublishedCheckpoint>,
    /// Savepoints, ids ascending.
    pub savepoints: Vec<PublishedCheckpoint>,
    /// The generation that appended last; none in a directory without a job.
    pub generation: Option<Generation>,
}

impl Published {
    pub(crate) fn of(member: Option<&SequenceMember>, location: &str) -> Self {
        let Some(member) = member else { return Self::default() };
        let published = |references: &[PublishedRef], savepoint| {
            let one = |reference: &PublishedRef| PublishedCheckpoint {
                reference: reference.clone(),
                savepoint,
                location: location.to_owned(),
            };
            references.iter().map(one).collect()
        };
        Self {
            checkpoints: published(&member.checkpoints, false),
            savepoints: published(&member.savepoints, true),
            generation: Some(member.generation),
        }
    }

    /// The newest completed checkpoint; savepoints do not count.
    #[must_use]
    pub fn latest(&self) -> Option<&PublishedCheckpoint> {
        self.checkpoints.last()
    }

    /// The id of the newest completed checkpoint.
    #[must_use]
    pub fn latest_id(&self) -> Option<CheckpointId> {
        self.latest().map(PublishedCheckpoint::id)
    }

    /// The completed checkpoint or savepoint with this id.
    #[must_use]
    pub fn get(&self, id: CheckpointId) -> Option<&PublishedCheckpoint> {
        self.checkpoints.iter().chain(&self.savepoints).find(|published| published.id() == id)
    }

    /// The same, if that generation published it: another job may have used the id since.
    #[must_use]
    pub fn of_generation(&self, generation: Generation, id: CheckpointId) -> Option<&PublishedCheckpoint> {
        self.get(id).filter(|published| published.reference.generation == generation)
    }

    /// Whether there is neither a checkpoint nor a savepoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checkpoints.is_empty() && self.savepoints.is_empty()
    }
}

/// What is published in the directory `store`, whether its job runs or not; nothing is taken over.
///
/// A running job may let go what was read here at any time, and then deletes manifest and files. A reader that misses
/// one reads this again: a newer checkpoint is there, or the loss is real.
///
/// # Errors
///
/// `store` if it could not be listed or read, which is never the same as nothing; `corrupt`, `incompatible`.
pub async fn read_published(store: &Store) -> Result<Published> {
    let sequence = Sequence::read(store.clone()).await?;
    Ok(Published::of(sequence.head(), &store.location()))
}

/// As [`read_published`], but past a damaged newest member, to the one before it: what that lists may be gone. For a
/// restore that may fall back and claims nothing.
pub(crate) async fn read_published_past_damage(store: &Store) -> Result<Published> {
    let member = newest_sound_member(store).await?;
    Ok(Published::of(member.as_ref(), &store.location()))
}

/// The manifest that `reference` names.
pub(crate) async fn read_manifest(store: &Store, reference: &PublishedRef) -> Result<Manifest> {
    decode_manifest(reference, &read_manifest_bytes(store, reference).await?)
}

/// The bytes of the manifest that `reference` names, not checked.
pub(crate) async fn read_manifest_bytes(store: &Store, reference: &PublishedRef) -> Result<Bytes> {
    let (id, name) = (reference.checkpoint, &reference.manifest);
    store.get(name, DecodeLimits::default()).await.map_err(|error| match error.kind() {
        StoreErrorKind::NotFound => {
            Error::new(ErrorKind::Missing, format!("manifest {name} of {id} is not there")).caused_by(error)
        }
        _ => Error::from(error),
    })
}

/// The manifest in these bytes, if they are the ones that `reference` means.
pub(crate) fn decode_manifest(reference: &PublishedRef, bytes: &[u8]) -> Result<Manifest> {
    let (id, name) = (reference.checkpoint, &reference.manifest);
    reference.check(bytes)?;
    let manifest =
        Manifest::decode(bytes, DecodeLimits::default()).map_err(|error| error.in_object(name.as_str()))?;
    if manifest.checkpoint != id {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("manifest {name} is of {}, the sequence says {id}", manifest.checkpoint),
        ));
    }
    Ok(manifest)
}
