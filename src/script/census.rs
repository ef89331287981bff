//! The script's store, and what is truly in it: counted from listings and manifests alone.
//!
//! Owns: the store that all jobs of a script share, its faults, and an account of every directory that
//! asks neither coordinator nor registry. Reads go to the wrapped store, so that they meet no fault
//! and are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use lowtide_format::{
    CheckpointId, DecodeLimits, Manifest, ObjectClass, ObjectName, ObjectPath, PublishedRef, SequenceMember,
    Store,
};
use tempfile::TempDir;

use super::ScriptError;
use super::command::{Medium, Victim};
use crate::error::{Error, ErrorKind, Result};
use crate::fault::{FaultStore, Faults};

/// The one store of a script. It comes into being with the script's first job.
pub(super) struct Depot {
    forced: Option<Medium>,
    opened: Option<Opened>,
    /// Given to each store that is opened; plans made before that hold too.
    faults: Faults,
}

struct Opened {
    medium: Medium,
    /// What jobs see.
    store: Store,
    /// The same objects, without faults.
    truth: Store,
    /// Removed with the run.
    _directory: Option<TempDir>,
}

/// How many objects are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Data objects that some checkpoint or savepoint lists.
    pub(super) referenced: usize,
    /// Data objects that are there and listed by none.
    pub(super) orphaned: usize,
    /// Data objects that are listed and not there.
    pub(super) missing: usize,
    /// Manifests and members of sequences.
    pub(super) meta: usize,
}

impl Depot {
    pub(super) fn new(forced: Option<Medium>) -> Result<Self, ScriptError> {
        Ok(Self { forced, opened: None, faults: Faults::new() })
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Opens the store on the medium that is asked for, or in memory; a later job gets the same store.
    pub(super) fn open(&mut self, wanted: Option<Medium>) -> Result<Result<()>, ScriptError> {
        if let Some(opened) = &self.opened {
            let differs = wanted.is_some_and(|wanted| wanted != opened.medium) && self.forced.is_none();
            return Ok(if differs {
                Err(Error::invalid_argument("all jobs of a script share one store, which is of another kind"))
            } else {
                Ok(())
            });
        }
        let medium = self.forced.or(wanted).unwrap_or(Medium::Memory);
        let (truth, directory) = match medium {
            Medium::Memory => (Store::memory(), None),
            Medium::File => {
                let directory = TempDir::new().map_err(|source| ScriptError::Directory { source })?;
                match Store::local(directory.path()) {
                    Ok(store) => (store, Some(directory)),
                    Err(error) => return Ok(Err(error.into())),
                }
            }
        };
        let faults = self.faults.clone();
        let store = truth.clone().wrapped(|inner| Arc::new(FaultStore::with_faults(inner, faults)));
        self.opened = Some(Opened { medium, store, truth, _directory: directory });
        Ok(Ok(()))
    }

    fn opened(&self) -> Result<&Opened> {
        self.opened.as_ref().ok_or_else(|| Error::not_found("no job was started yet"))
    }

    /// The whole store without faults; none before the first job.
    pub(super) fn truth_root(&self) -> Option<&Store> {
        self.opened.as_ref().map(|opened| &opened.truth)
    }

    /// The store as jobs see it.
    pub(super) fn store(&self) -> Result<&Store> {
        Ok(&self.opened()?.store)
    }

    /// One directory as jobs see it.
    pub(super) fn directory(&self, name: &str) -> Result<Store> {
        Ok(self.opened()?.store.sub(&ObjectName::new(name)?))
    }

    /// One directory as a store without faults.
    pub(super) fn directory_behind_faults(&self, name: &str) -> Result<Store> {
        Ok(self.opened()?.truth.sub(&ObjectName::new(name)?))
    }

    /// One directory without faults.
    pub(super) fn truth(&self, name: &str) -> Result<Directory> {
        Ok(Directory { store: self.directory_behind_faults(name)? })
    }

    /// The objects of these directories.
    pub(super) async fn census(&self, directories: BTreeSet<&str>) -> Result<Census> {
        let mut all = Census::default();
        for name in directories {
            let Census { referenced, orphaned, missing, meta } = self.truth(name)?.census().await?;
            all.referenced += referenced;
            all.orphaned += orphaned;
            all.missing += missing;
            all.meta += meta;
        }
        Ok(all)
    }
}

/// One job directory, read without faults.
pub(super) struct Directory {
    store: Store,
}

impl Directory {
    /// The member of the sequence with the largest number; none if there is no member.
    async fn newest_member(&self) -> Result<Option<SequenceMember>> {
        let listed = self.store.list(ObjectClass::Sequence).await?;
        let numbers = listed.iter().filter_map(|object| match ObjectPath::parse(&object.path) {
            Some(ObjectPath::Sequence { number }) => Some(number),
            _ => None,
        });
        let Some(number) = numbers.max() else { return Ok(None) };
        let bytes = self.get(&ObjectPath::Sequence { number }.name()).await?;
        Ok(Some(SequenceMember::decode(&bytes, number, DecodeLimits::default())?))
    }

    async fn get(&self, name: &ObjectName) -> Result<Bytes> {
        Ok(self.store.get(name, DecodeLimits::default()).await?)
    }

    async fn manifest(&self, published: &PublishedRef) -> Result<Manifest> {
        let bytes = self.get(&published.manifest).await?;
        published.check(&bytes)?;
        Ok(Manifest::decode(&bytes, DecodeLimits::default())?)
    }

    async fn census(&self) -> Result<Census> {
        let mut listed: BTreeSet<String> = BTreeSet::new();
        let mut meta = 0;
        for object in self.store.list_all().await? {
            match ObjectPath::parse(&object.path).map(ObjectPath::class) {
                Some(ObjectClass::Data) => {
                    listed.insert(object.path);
                }
                Some(ObjectClass::Manifest | ObjectClass::Sequence) => meta += 1,
                None => {}
            }
        }
        let mut referenced: BTreeSet<String> = BTreeSet::new();
        if let Some(member) = self.newest_member().await? {
            for published in member.checkpoints.iter().chain(&member.savepoints) {
                let manifest = self.manifest(published).await?;
                referenced.extend(manifest.entries().map(|entry| entry.object.as_str().to_owned()));
            }
        }
        Ok(Census {
            referenced: referenced.len(),
            orphaned: listed.difference(&referenced).count(),
            missing: referenced.difference(&listed).count(),
            meta,
        })
    }

    /// The published checkpoint or savepoint with that id, or the newest completed checkpoint.
    pub(super) async fn published(&self, id: Option<CheckpointId>) -> Result<PublishedRef> {
        let member = self.newest_member().await?;
        let found = member.as_ref().and_then(|member| match id {
            Some(id) => member.published(id),
            None => member.latest(),
        });
        found.cloned().ok_or_else(|| match id {
            Some(id) => Error::not_found(format!("{id} is not a completed checkpoint here")),
            None => Error::not_found("there is no completed checkpoint"),
        })
    }

    /// The object that `corrupt` or `lose` hits.
    pub(super) async fn victim(&self, id: Option<CheckpointId>, victim: Victim) -> Result<ObjectName> {
        let published = self.published(id).await?;
        let Victim::Object(index) = victim else {
            return Ok(published.manifest);
        };
        let manifest = self.manifest(&published).await?;
        let objects: BTreeMap<&str, &ObjectName> =
            manifest.entries().map(|entry| (entry.object.as_str(), &entry.object)).collect();
        let count = objects.len();
        objects.into_values().nth(index).cloned().ok_or_else(|| {
            Error::not_found(format!("{} has {count} data objects, counted from 0", published.checkpoint))
        })
    }

    /// Flips one bit of an object, in the middle unless told where.
    pub(super) async fn flip_bit(&self, name: &ObjectName, at: Option<u64>) -> Result<()> {
        let mut bytes = self.get(name).await?.to_vec();
        let length = bytes.len();
        let at = at.map_or(length / 2, |at| usize::try_from(at).unwrap_or(usize::MAX));
        let byte = bytes
            .get_mut(at)
            .ok_or_else(|| Error::invalid_argument(format!("{name} has {length} bytes, none at {at}")))?;
        *byte ^= 1;
        Ok(self.store.put_data(name, bytes.into()).await?)
    }

    /// Deletes an object behind the library's back.
    pub(super) async fn lose(&self, name: &ObjectName) -> Result<()> {
        match self.store.delete(std::slice::from_ref(name)).await.failed.pop() {
            None => Ok(()),
            Some((name, error)) => {
                Err(Error::new(ErrorKind::Store, format!("{name} could not be deleted")).caused_by(error))
            }
        }
    }
}
