//! The object store that meets faults.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use lowtide_format::ObjectClass;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::plan::{FaultClass, FaultMode, FaultOperation, Faults, Opened};
use super::upload::FaultUpload;

/// Wraps an object store; its [`Faults`] decide what becomes of each call.
#[derive(Clone, Debug)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultStore {
    /// Wraps `inner`, without a plan.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, faults: Faults::new() }
    }

    /// Wraps `inner`; the plans and counts are those of `faults`, which other stores may share.
    #[must_use]
    pub fn with_faults(inner: Arc<dyn ObjectStore>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    /// The plans and counts of this store.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The store that is wrapped: what is done there meets no fault and is not counted.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// Meets a plan for a call on one object; `Some` if the call goes wrong in some way.
    async fn meet(&self, operation: FaultOperation, object: &Path) -> Option<FaultMode> {
        let met = self.faults.meet(operation, class_of(object))?;
        settle(&self.faults, met).await
    }
}

/// Waits out a pause, never returns from a hang; what is left for the caller to do.
pub(super) async fn settle(faults: &Faults, met: FaultMode) -> Option<FaultMode> {
    match met {
        FaultMode::Hang => faults.hang().await,
        FaultMode::Pause => {
            faults.pause().await;
            None
        }
        other => Some(other),
    }
}

/// After a call that was carried out and reports a failure: the failure, or, if the machine died
/// over it, nothing for ever.
pub(super) async fn lost_reply<T>(faults: &Faults, object: &Path) -> Result<T> {
    if faults.is_dead() {
        return faults.hang().await;
    }
    Err(failure("the reply is lost", object))
}

/// The error that every planned failure reports; it does not say whether the call happened.
pub(super) fn failure(what: &'static str, object: &Path) -> Error {
    Error::Generic { store: "fault", source: format!("planned fault on {object}: {what}").into() }
}

/// Which class of plans an object belongs to, by its name alone.
fn class_of(object: &Path) -> FaultClass {
    match ObjectClass::of_path(object.as_ref()) {
        Some(ObjectClass::Data) => FaultClass::Data,
        Some(ObjectClass::Sequence) => FaultClass::Publish,
        Some(ObjectClass::Manifest) | None => FaultClass::Any,
    }
}

/// The first half of `bytes`, never all of them.
pub(super) fn half(bytes: &Bytes) -> Bytes {
    bytes.slice(..bytes.len() / 2)
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faults over {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        match self.meet(FaultOperation::Put, location).await {
            None => self.inner.put_opts(location, payload, opts).await,
            Some(FaultMode::After) => {
                self.inner.put_opts(location, payload, opts).await?;
                lost_reply(&self.faults, location).await
            }
            // A store that creates on condition takes a body whole or not at all.
            Some(FaultMode::Cut) if matches!(opts.mode, PutMode::Overwrite) => {
                let cut = half(&Bytes::from(payload));
                self.inner.put_opts(location, cut.into(), opts).await?;
                Err(failure("the body is cut", location))
            }
            Some(FaultMode::Cut) => Err(failure("the body is cut, and refused", location)),
            Some(FaultMode::Conflict) if matches!(opts.mode, PutMode::Create) => {
                let source = "planned conflict with a create that fails".into();
                Err(Error::AlreadyExists { path: location.to_string(), source })
            }
            Some(_) => Err(failure("it did not happen", location)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let met = self.meet(FaultOperation::Multipart, location).await;
        if !matches!(met, None | Some(FaultMode::After)) {
            return Err(failure("it did not happen", location));
        }
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        self.faults.note_multipart(Opened::Created);
        if met.is_some() {
            return lost_reply(&self.faults, location).await;
        }
        Ok(Box::new(FaultUpload::new(upload, location.clone(), self.faults.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head && !self.faults.is_dead() {
            return self.inner.get_opts(location, options).await;
        }
        match self.meet(FaultOperation::Get, location).await {
            None => self.inner.get_opts(location, options).await,
            Some(FaultMode::Cut) => cut_body(self.inner.get_opts(location, options).await?).await,
            Some(_) => Err(failure("it cannot be read", location)),
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.meet(FaultOperation::Get, location).await {
            None => self.inner.get_ranges(location, ranges).await,
            Some(FaultMode::Cut) => {
                let whole = self.inner.get_ranges(location, ranges).await?;
                Ok(whole.iter().map(half).collect())
            }
            Some(_) => Err(failure("it cannot be read", location)),
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = self.inner.list(prefix);
        self.listing(prefix.cloned().unwrap_or_default(), inner)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let inner = self.inner.list_with_offset(prefix, offset);
        self.listing(prefix.cloned().unwrap_or_default(), inner)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let named = prefix.cloned().unwrap_or_default();
        match self.meet(FaultOperation::List, &named).await {
            None => self.inner.list_with_delimiter(prefix).await,
            Some(_) => Err(failure("it cannot be listed", &named)),
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        if self.faults.is_dead() {
            return self.faults.hang().await;
        }
        self.inner.copy_opts(from, to, options).await
    }
}

impl FaultStore {
    async fn delete_one(&self, location: Path) -> Result<Path> {
        let met = self.meet(FaultOperation::Delete, &location).await;
        if !matches!(met, None | Some(FaultMode::After)) {
            return Err(failure("it did not happen", &location));
        }
        let one = stream::iter([Ok(location.clone())]).boxed();
        let _: Vec<Path> = self.inner.delete_stream(one).try_collect().await?;
        match met {
            None => Ok(location),
            Some(_) => lost_reply(&self.faults, &location).await,
        }
    }

    fn listing(
        &self,
        prefix: Path,
        inner: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let whole = async move {
            match store.meet(FaultOperation::List, &prefix).await {
                None => inner,
                Some(FaultMode::Cut) => {
                    let all: Vec<Result<ObjectMeta>> = inner.collect().await;
                    let kept = all.len() / 2;
                    let broken = stream::iter([Err(failure("the listing is cut", &prefix))]);
                    stream::iter(all).take(kept).chain(broken).boxed()
                }
                Some(_) => stream::iter([Err(failure("it cannot be listed", &prefix))]).boxed(),
            }
        };
        stream::once(whole).flatten().boxed()
    }
}

/// The first half of a body, with everything else as it was: a reader that does not count its bytes
/// does not notice.
async fn cut_body(whole: GetResult) -> Result<GetResult> {
    let (meta, range, attributes) = (whole.meta.clone(), whole.range.clone(), whole.attributes.clone());
    let extensions = whole.extensions.clone();
    let cut = half(&whole.bytes().await?);
    let payload = GetResultPayload::Stream(stream::iter([Ok(cut)]).boxed());
    Ok(GetResult { payload, meta, range, attributes, extensions })
}

#[cfg(test)]
mod tests;
