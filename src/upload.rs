//! The asynchronous phase of one subtask: its snapshot is written on a thread of its own, and the files go to
//! the store while it is being written.
//!
//! Owns: the hand-over from the writer to the store, with bounded memory; the list of names that an attempt has
//! begun to upload; copying small files of the base into one object. Does not own: what is in the files (the backend), when they are deleted (the job, on abort;
//! the coordinator, once published).
//!
//! # Rules
//!
//! - U1. A name is in the ledger before the first byte of its object can exist, so that the abort of an attempt
//!   can delete whatever it has left.
//! - U2. At most `uploads_max` files are on their way, one waits and one is being made.
//! - U3. Dropping the future stops the writer, which lets go of its snapshot; nothing is acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use lowtide_format::{DecodeLimits, FileEntry, ObjectName, ObjectPath, Store, UploadId, xxh3};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::Instrument;

use lowtide_heap::CancelToken;

use crate::backend::{NewFile, Snapshot, WriteOptions};
use crate::clock::{Clock, UploadIdSource};
use crate::coordinator::Acknowledgement;
use crate::error::{Error, Result};

/// Small files of the base that are read at the same time to be copied.
const READS_MAX: usize = 8;

/// The names under which an attempt has begun to upload; none once it is closed. Clones share the list.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Arc<Mutex<Option<Vec<ObjectName>>>>);

impl Default for Ledger {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }
}

impl Ledger {
    fn begin(&self, name: ObjectName) -> Result<()> {
        let mut names = self.0.lock();
        names.as_mut().ok_or_else(ended)?.push(name);
        Ok(())
    }

    /// The objects begun so far; none once it is closed.
    pub(crate) fn names(&self) -> Vec<ObjectName> {
        self.0.lock().clone().unwrap_or_default()
    }

    /// All names so far; no upload can begin afterwards.
    pub(crate) fn close(&self) -> Vec<ObjectName> {
        self.0.lock().take().unwrap_or_default()
    }

    fn is_closed(&self) -> bool {
        self.0.lock().is_none()
    }
}

fn ended() -> Error {
    Error::cancelled("the checkpoint attempt has ended")
}

/// Where and how the files of one attempt go.
#[derive(Clone)]
pub(crate) struct UploadRequest {
    /// The job's directory.
    pub(crate) store: Store,
    /// Where the upload's id comes from, and its time. Not made before it is needed, which is after the pause.
    pub(crate) uploads: UploadIdSource,
    pub(crate) clock: Arc<dyn Clock>,
    /// Learns every name before it is used.
    pub(crate) ledger: Ledger,
    /// Files on their way at the same time, at least 1.
    pub(crate) uploads_max: usize,
    /// Stops the writer.
    pub(crate) cancel: CancelToken,
}

/// Sets the flag when the future that holds it is dropped (rule U3).
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Writes the snapshot and uploads its files; returns once all of them are in the store.
///
/// # Errors
///
/// What the writer or the store says, the first of them. The writer has let go of its snapshot by then.
pub(crate) async fn write_and_upload<S: Snapshot>(
    snapshot: S,
    request: UploadRequest,
) -> Result<Acknowledgement> {
    let _cancel_on_drop = CancelOnDrop(request.cancel.clone());
    let (sender, files) = mpsc::channel(1);
    let options = WriteOptions { cancel: request.cancel.clone() };
    let span = tracing::Span::current();
    let writer =
        tokio::task::spawn_blocking(move || span.in_scope(|| run_writer(snapshot, &options, &sender)));
    // Unique to this attempt of this subtask.
    let upload = request.uploads.next(request.clock.now());
    let uploaded = upload_all(files, &request, upload).await;
    if uploaded.is_err() {
        request.cancel.cancel();
    }
    // The channel is closed by now, so a writer that still runs stops at its next file.
    let written = writer.await.map_err(|lost| Error::writer_lost(&lost))?;
    let entries = uploaded?;
    let mut snapshot = written?;
    let copies = snapshot.copies(&entries)?;
    if let Some(bytes) = read_copies(&request.store, &copies).await {
        // No object of the snapshot has that number: there are at most as many as files.
        let places = upload_one(&request, (upload, entries.len()), bytes).await?;
        snapshot.copied(&copies, &places);
    }
    snapshot.finish(entries)
}

/// Reads files of the base that are to share an object; `None` if there are none, or if they cannot be read: nothing
/// depends on it, they can stay where they are.
async fn read_copies(store: &Store, copies: &[FileEntry]) -> Option<NewFile> {
    let kind = copies.first()?.kind;
    let read = |file: FileEntry| {
        let store = store.clone();
        async move { store.get_file(&file, DecodeLimits::default()).await }
    };
    let reads: Vec<_> = copies.iter().cloned().map(read).collect();
    let bytes: Vec<Bytes> = match futures::stream::iter(reads).buffered(READS_MAX).try_collect().await {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!(error = %error, files = copies.len(), "small files stay in objects of their own");
            return None;
        }
    };
    let mut bytes = bytes.into_iter();
    Some(NewFile { kind, bytes: bytes.next()?, more: bytes.collect() })
}

/// Runs on a blocking thread: hands the files over and gives the snapshot back if all went well.
fn run_writer<S: Snapshot>(
    mut snapshot: S,
    options: &WriteOptions,
    sender: &mpsc::Sender<NewFile>,
) -> Result<S> {
    let mut sink = |file: NewFile| {
        sender.blocking_send(file).map_err(|_closed| Error::cancelled("the upload has ended"))
    };
    snapshot.write(options, &mut sink)?;
    Ok(snapshot)
}

/// Uploads what comes through the channel, in order of arrival, several at a time (rule U2).
async fn upload_all(
    mut files: mpsc::Receiver<NewFile>,
    request: &UploadRequest,
    upload: UploadId,
) -> Result<Vec<FileEntry>> {
    let mut entries: Vec<Option<Vec<FileEntry>>> = Vec::new();
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(done) = running.next(), if !running.is_empty() => {
                let (at, entry): (usize, Vec<FileEntry>) = done?;
                if let Some(place) = entries.get_mut(at) {
                    *place = Some(entry);
                }
            }
            file = files.recv(), if running.len() < request.uploads_max.max(1) => {
                let Some(file) = file else { break };
                let at = entries.len();
                entries.push(None);
                running.push(async move { upload_one(request, (upload, at), file).await.map(|entry| (at, entry)) });
            }
        }
    }
    while let Some(done) = running.next().await {
        let (at, entry) = done?;
        if let Some(place) = entries.get_mut(at) {
            *place = Some(entry);
        }
    }
    Ok(entries.into_iter().flatten().flatten().collect())
}

/// Uploads the object of that number; returns the files in it.
async fn upload_one(
    request: &UploadRequest,
    (upload, at): (UploadId, usize),
    file: NewFile,
) -> Result<Vec<FileEntry>> {
    let NewFile { kind, bytes, more } = file;
    let number =
        u32::try_from(at).map_err(|_beyond| Error::invalid_argument("a snapshot has too many files"))?;
    let object = ObjectPath::Data { upload, number, kind }.name();
    request.ledger.begin(object.clone())?;
    let (mut entries, mut offset) = (Vec::with_capacity(1 + more.len()), 0);
    for part in std::iter::once(&bytes).chain(&more) {
        let (object, length) = (object.clone(), part.len() as u64);
        entries.push(FileEntry { object, offset, length, checksum: xxh3(part), kind });
        offset += length;
    }
    let bytes = if more.is_empty() { bytes } else { joined(&bytes, &more) };
    let span = tracing::debug_span!("upload", object = %object, bytes = offset);
    request.store.put_data(&object, bytes).instrument(span).await?;
    if request.ledger.is_closed() {
        // Whoever closed it may have deleted the name before the object was there.
        let report = request.store.delete(std::slice::from_ref(&object)).await;
        if let Some((name, error)) = report.failed.first() {
            tracing::warn!(object = %name, error = %error, "left to the sweeper");
        }
        return Err(ended());
    }
    Ok(entries)
}

fn joined(first: &Bytes, more: &[Bytes]) -> Bytes {
    let parts: Vec<&[u8]> = std::iter::once(first).chain(more).map(|part| &**part).collect();
    Bytes::from(parts.concat())
}

#[cfg(test)]
mod tests;
