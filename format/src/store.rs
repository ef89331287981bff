//! Reading and writing objects under one root: the one place that names `object_store`.
//!
//! Owns: whole bytes or an error, absence and failure kept apart, whether a failed write can have happened.
//! Does not own: names (`path`), what to do about an error (the callers); nothing is retried here but the rest of a
//! body that was cut.

mod counting;
mod error;
mod multipart;
mod read;
mod staged;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

pub use counting::{CountingStore, StoreCounts};
pub use error::{Operation, Outcome, ReadError, StoreError, StoreErrorKind};

use crate::object_name::ObjectName;
use crate::path::ObjectClass;

/// How a [`Store`] moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Objects above this many bytes are uploaded in parts.
    pub multipart_above_bytes: u64,
    /// Length of a part in bytes; most stores want at least 5 MiB.
    pub part_bytes: usize,
    /// At most this many parts of one object, or deletes of one call, are in flight.
    pub parallel_max: usize,
}

impl Default for StoreOptions {
    /// Parts of 8 MiB for objects above 16 MiB, 16 in flight.
    fn default() -> Self {
        Self { multipart_above_bytes: 16 << 20, part_bytes: 8 << 20, parallel_max: 16 }
    }
}

/// Objects under one root. Cloning is cheap.
///
/// Local disk and memory need no runtime but tokio's when an object is uploaded in parts.
///
/// ```
/// use lowtide_format::{CreateOutcome, DecodeLimits, ObjectPath, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lowtide_format::StoreError> {
/// let store = Store::memory();
/// let member = ObjectPath::Sequence { number: 1 }.name();
/// assert_eq!(store.create(&member, "mine".into()).await?, CreateOutcome::Created);
/// assert_eq!(store.create(&member, "theirs".into()).await?, CreateOutcome::Exists);
/// assert_eq!(store.get(&member, DecodeLimits::default()).await?, "mine");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// Shared: stores are cloned in the pause of a checkpoint.
    prefix: Arc<Path>,
    local_root: Option<Arc<FilePath>>,
    options: StoreOptions,
}

/// Whether a create made the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an object that was there already may be another's"]
pub enum CreateOutcome {
    /// This call made it.
    Created,
    /// The store says that it exists: read it back to see whose it is. It may still be absent (a store may report a
    /// conflict of two creates so): then repeat.
    Exists,
}

/// An object as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedObject {
    /// Its path relative to the store's root; not necessarily a name that we would give.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
}

/// What became of some deletes.
#[derive(Clone, Debug, Default)]
pub struct DeleteReport {
    /// Gone now, whether or not they were there.
    pub deleted: Vec<ObjectName>,
    /// Perhaps still there.
    pub failed: Vec<(ObjectName, StoreError)>,
}

impl Store {
    /// Objects of `inner` below `prefix`, a path without leading slash; empty for all of it.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsupported`] if the prefix has an empty part, `.` or `..`.
    pub fn new(inner: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, StoreError> {
        let prefix = Path::parse(prefix).map_err(|source| StoreError::of_path(prefix, source))?;
        Ok(Self { inner, prefix: Arc::new(prefix), local_root: None, options: StoreOptions::default() })
    }

    /// Objects of `inner`, all of it.
    #[must_use]
    pub fn from_arc(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, prefix: Arc::default(), local_root: None, options: StoreOptions::default() }
    }

    /// Objects in memory, gone with the last clone.
    #[must_use]
    pub fn memory() -> Self {
        Self::from_arc(Arc::new(InMemory::new()))
    }

    /// Objects in the directory `root` of the local disk, which is created if it is missing.
    ///
    /// File and directory are synced before success is reported; directories that become empty are removed.
    ///
    /// # Errors
    ///
    /// If the directory can be neither made nor opened.
    pub fn local(root: &FilePath) -> Result<Self, StoreError> {
        let failed = |source| StoreError::of_local(Operation::List, root, source);
        std::fs::create_dir_all(root).map_err(failed)?;
        Self::open_local(root)
    }

    /// As [`Store::local`], for a directory that must exist: what is only read is not created.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::NotFound`] if it does not exist.
    pub fn open_local(root: &FilePath) -> Result<Self, StoreError> {
        let failed = |source| StoreError::of_local(Operation::List, root, source);
        let root: PathBuf = root.canonicalize().map_err(failed)?;
        let local = LocalFileSystem::new_with_prefix(&root)
            .map_err(|source| StoreError::new(Operation::List, &root.display().to_string(), source))?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        Ok(Self { local_root: Some(root.into()), ..Self::from_arc(Arc::new(local)) })
    }

    /// The same with other options.
    #[must_use]
    pub fn with_options(self, options: StoreOptions) -> Self {
        Self { options, ..self }
    }

    /// The same root with `wrap` around the store, such as a [`CountingStore`].
    #[must_use]
    pub fn wrapped(self, wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self { inner: wrap(self.inner), ..self }
    }

    /// The store one folder further down: `folder` is the new root.
    #[must_use]
    pub fn sub(&self, folder: &ObjectName) -> Self {
        Self { prefix: Arc::new(self.path(folder.as_str())), ..self.clone() }
    }

    /// Where the root is, for messages.
    #[must_use]
    pub fn location(&self) -> String {
        match &self.local_root {
            Some(root) => root.join((*self.prefix).as_ref()).display().to_string(),
            None => format!("{}/{}", self.inner, self.prefix),
        }
    }

    /// Writes an object whose name is used once: repeating it is safe. Large ones go in parts.
    ///
    /// If the future is dropped while parts are under way, they are aborted in the background.
    ///
    /// # Errors
    ///
    /// The object may nevertheless be there; its outcome says whether it can. Nothing is retried.
    pub async fn put_data(&self, name: &ObjectName, bytes: Bytes) -> Result<(), StoreError> {
        let path = self.path(name.as_str());
        let result = if bytes.len() as u64 > self.options.multipart_above_bytes {
            multipart::upload(Arc::clone(&self.inner), path, bytes, self.options).await
        } else {
            self.inner.put(&path, bytes.into()).await.map(|_| ())
        };
        result.map_err(|source| StoreError::new(Operation::Put, name.as_str(), source))
    }

    /// Makes an object that must not exist yet.
    ///
    /// # Errors
    ///
    /// With [`Outcome::Unknown`] the object may have been made: only reading it back tells.
    pub async fn create(&self, name: &ObjectName, bytes: Bytes) -> Result<CreateOutcome, StoreError> {
        let options = PutOptions::from(PutMode::Create);
        match self.inner.put_opts(&self.path(name.as_str()), bytes.into(), options).await {
            Ok(_) => Ok(CreateOutcome::Created),
            // Stores differ in how they spell a failed condition.
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(CreateOutcome::Exists)
            }
            Err(source) => Err(StoreError::new(Operation::Create, name.as_str(), source)),
        }
    }

    /// All objects of a class, by path. O(objects) memory; the order is numeric for members of the sequence.
    ///
    /// # Errors
    ///
    /// Never an empty list for a failure.
    pub async fn list(&self, class: ObjectClass) -> Result<Vec<ListedObject>, StoreError> {
        self.list_folder(class.folder(), None).await
    }

    /// As [`Store::list`], only objects whose path sorts after `after`.
    ///
    /// # Errors
    ///
    /// As [`Store::list`].
    pub async fn list_after(
        &self,
        class: ObjectClass,
        after: &ObjectName,
    ) -> Result<Vec<ListedObject>, StoreError> {
        self.list_folder(class.folder(), Some(after)).await
    }

    /// All objects under the root, whatever they are, by path.
    ///
    /// # Errors
    ///
    /// As [`Store::list`].
    pub async fn list_all(&self) -> Result<Vec<ListedObject>, StoreError> {
        self.list_folder("", None).await
    }

    /// Deletes objects, several at a time. An object that is not there counts as deleted.
    ///
    /// One failure does not stop the others.
    pub async fn delete(&self, names: &[ObjectName]) -> DeleteReport {
        // Names by value: a closure over borrowed names would keep this future from being `Send` for its callers.
        let deletes = names.iter().cloned().map(|name| async move {
            match self.inner.delete(&self.path(name.as_str())).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(name),
                Err(source) => {
                    let error = StoreError::new(Operation::Delete, name.as_str(), source);
                    Err((name, error))
                }
            }
        });
        let mut deletes = futures::stream::iter(deletes).buffer_unordered(self.options.parallel_max.max(1));
        let mut report = DeleteReport::default();
        while let Some(result) = deletes.next().await {
            match result {
                Ok(name) => report.deleted.push(name),
                Err(failed) => report.failed.push(failed),
            }
        }
        report
    }

    fn path(&self, name: &str) -> Path {
        // Names keep the rules of paths, so their parts are taken over unchanged.
        name.split('/')
            .filter(|part| !part.is_empty())
            .fold(Path::clone(&self.prefix), |path, part| path.join(part))
    }

    async fn list_folder(
        &self,
        folder: &str,
        after: Option<&ObjectName>,
    ) -> Result<Vec<ListedObject>, StoreError> {
        let failed = |source| StoreError::new(Operation::List, folder, source);
        // An empty directory and one that is gone, as with a disk that is not mounted, list alike.
        if let Some(root) = &self.local_root {
            root.metadata().map_err(|source| StoreError::of_local(Operation::List, root, source))?;
        }
        let prefix = self.path(folder);
        let stream = match after {
            Some(after) => self.inner.list_with_offset(Some(&prefix), &self.path(after.as_str())),
            None => self.inner.list(Some(&prefix)),
        };
        let mut found: Vec<ListedObject> = stream
            .map_ok(|meta| ListedObject { path: self.relative(&meta.location), length: meta.size })
            .try_collect()
            .await
            .map_err(failed)?;
        found.sort_unstable();
        Ok(found)
    }

    fn relative(&self, path: &Path) -> String {
        let text = path.as_ref();
        let below = text.strip_prefix((*self.prefix).as_ref()).unwrap_or(text);
        below.strip_prefix('/').unwrap_or(below).to_owned()
    }
}

#[cfg(test)]
mod tests;
