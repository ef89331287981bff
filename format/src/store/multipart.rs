//! Uploads in parts, which are aborted on every way out but success.
//!
//! Abandoned parts are billed and shown by no listing, and dropping an upload does not abort it on every store. So the
//! upload runs in a task of its own, which notices that its caller is gone, and which a panic of a part does not end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, Result};
use tokio::sync::oneshot;

use super::StoreOptions;

/// Uploads `bytes` in parts. Must be called within a tokio runtime.
pub(super) async fn upload(
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: Bytes,
    options: StoreOptions,
) -> Result<()> {
    // Dropping this future drops `_alive`, which the task sees as `gone`.
    let (_alive, gone) = oneshot::channel::<()>();
    tokio::spawn(run(store, path, bytes, (options, gone))).await?
}

async fn run(
    store: Arc<dyn ObjectStore>,
    path: Path,
    bytes: Bytes,
    (options, gone): (StoreOptions, oneshot::Receiver<()>),
) -> Result<()> {
    // Not interrupted: an upload whose id we never learn could not be aborted.
    let mut upload = store.put_multipart(&path).await?;
    let parts = AssertUnwindSafe(put_parts(upload.as_mut(), bytes, options)).catch_unwind();
    let result = tokio::select! {
        result = parts => result.unwrap_or_else(|_| Err(failed("a part panicked"))),
        _ = gone => Err(failed("the upload was given up")),
    };
    let result = match result {
        // Not interrupted either: whether it was applied would be unknown.
        Ok(()) => upload.complete().await.map(|_| ()),
        Err(error) => Err(error),
    };
    if result.is_err()
        && let Err(error) = upload.abort().await
    {
        tracing::warn!(%path, %error, "parts of a failed upload stay; the store's lifecycle rule must remove them");
    }
    result
}

async fn put_parts(upload: &mut dyn MultipartUpload, bytes: Bytes, options: StoreOptions) -> Result<()> {
    let part_bytes = options.part_bytes.max(1);
    let parts = (0..bytes.len())
        .step_by(part_bytes)
        .map(|start| bytes.slice(start..bytes.len().min(start + part_bytes)))
        .map(|part| Ok(upload.put_part(part.into())));
    // Lazily: a part is begun when one before it is done.
    futures::stream::iter(parts).try_for_each_concurrent(options.parallel_max.max(1), |part| part).await
}

fn failed(problem: &'static str) -> Error {
    Error::Generic { store: "multipart upload", source: problem.into() }
}
