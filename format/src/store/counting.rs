//! A store that counts what goes through it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::path::ObjectClass;

/// What went through a [`CountingStore`] for one class of objects, or for objects of no class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Puts and creates asked for, an upload in parts being one.
    pub puts: u64,
    /// Bytes handed over in them.
    pub put_bytes: u64,
    /// Reads asked for.
    pub gets: u64,
    /// Bytes that the answers announced.
    pub get_bytes: u64,
    /// Deletes asked for.
    pub deletes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    get_bytes: AtomicU64,
    deletes: AtomicU64,
}

impl Counters {
    fn read(&self) -> StoreCounts {
        let Self { puts, put_bytes, gets, get_bytes, deletes } = self;
        let [puts, put_bytes, gets, get_bytes, deletes] =
            [puts, put_bytes, gets, get_bytes, deletes].map(|counter| counter.load(Ordering::Relaxed));
        StoreCounts { puts, put_bytes, gets, get_bytes, deletes }
    }
}

#[derive(Debug, Default)]
struct Shared {
    sequence: Counters,
    manifest: Counters,
    data: Counters,
    other: Counters,
    lists: AtomicU64,
}

impl Shared {
    fn of(&self, class: Option<ObjectClass>) -> &Counters {
        match class {
            Some(ObjectClass::Sequence) => &self.sequence,
            Some(ObjectClass::Manifest) => &self.manifest,
            Some(ObjectClass::Data) => &self.data,
            None => &self.other,
        }
    }

    fn of_path(&self, path: &Path) -> &Counters {
        self.of(ObjectClass::of_path(path.as_ref()))
    }
}

/// A store that counts calls and bytes by class of object on the way to another store. Clones count together.
#[derive(Clone, Debug)]
pub struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    shared: Arc<Shared>,
}

impl CountingStore {
    /// Counts what goes to `inner`, from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, shared: Arc::default() }
    }

    /// What has gone through so far for `class`; `None` for objects of no class.
    #[must_use]
    pub fn counts(&self, class: Option<ObjectClass>) -> StoreCounts {
        self.shared.of(class).read()
    }

    /// Listings asked for so far.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.shared.lists.load(Ordering::Relaxed)
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    // Relaxed: the counters are statistics, and order nothing.
    counter.fetch_add(amount, Ordering::Relaxed);
}

#[async_trait::async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let counters = self.shared.of_path(location);
        add(&counters.puts, 1);
        add(&counters.put_bytes, payload.content_length() as u64);
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        add(&self.shared.of_path(location).puts, 1);
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(CountingUpload {
            inner,
            shared: Arc::clone(&self.shared),
            class: ObjectClass::of_path(location.as_ref()),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let counters = self.shared.of_path(location);
        add(&counters.gets, 1);
        let head = options.head;
        let found = self.inner.get_opts(location, options).await?;
        if !head {
            add(&counters.get_bytes, found.range.end.saturating_sub(found.range.start));
        }
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let counters = self.shared.of_path(location);
        add(&counters.gets, 1);
        let found = self.inner.get_ranges(location, ranges).await?;
        add(&counters.get_bytes, found.iter().map(|bytes| bytes.len() as u64).sum());
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shared = Arc::clone(&self.shared);
        let counted = locations.inspect(move |location| {
            if let Ok(location) = location {
                add(&shared.of_path(location).deletes, 1);
            }
        });
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        add(&self.shared.lists, 1);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        add(&self.shared.lists, 1);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        add(&self.shared.lists, 1);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountingUpload {
    inner: Box<dyn MultipartUpload>,
    shared: Arc<Shared>,
    class: Option<ObjectClass>,
}

#[async_trait::async_trait]
impl MultipartUpload for CountingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        add(&self.shared.of(self.class).put_bytes, data.content_length() as u64);
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
