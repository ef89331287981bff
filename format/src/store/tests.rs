use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::*;
use crate::codec::DecodeLimits;
use crate::ids::UploadId;
use crate::object_name::{FileEntry, FileKind};
use crate::path::ObjectPath;
use crate::xxh3;

/// How the faulty store misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Every body ends after half of what was asked for, this many times.
    CutBody(u32),
    /// As `CutBody(1)`, and the object is replaced before the rest is read.
    Replace,
    /// As `Replace`, by a store that ignores conditions on reads.
    ReplaceIgnored,
    /// Ranges are ignored: every read gives the whole object.
    IgnoreRange,
    /// A part fails, panics, or never ends.
    PartFails,
    PartPanics,
    PartHangs,
    CompleteFails,
    ListFails,
    DeleteFails,
    CreateFails,
    /// A create of an absent object says that it exists.
    CreateConflicts,
}

#[derive(Debug)]
struct Faulty {
    inner: InMemory,
    fault: Fault,
    cuts: AtomicU32,
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty")
    }
}

fn broken() -> Error {
    Error::Generic { store: "faulty", source: "broken".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        match self.fault {
            Fault::CreateFails => Err(broken()),
            Fault::CreateConflicts => {
                Err(Error::AlreadyExists { path: location.to_string(), source: "conflict".into() })
            }
            _ => self.inner.put_opts(location, payload, opts).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let inner = self.inner.put_multipart_opts(path, opts).await?;
        Ok(Box::new(FaultyUpload { inner, fault: self.fault, ended: Arc::clone(&self.ended) }))
    }

    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        if self.fault == Fault::ReplaceIgnored {
            options.if_match = None;
        }
        if self.fault == Fault::IgnoreRange {
            options.range = None;
        }
        let found = self.inner.get_opts(location, options).await?;
        let cuts_max = match self.fault {
            Fault::CutBody(times) => times,
            Fault::Replace | Fault::ReplaceIgnored => 1,
            _ => 0,
        };
        if self.cuts.fetch_add(1, Ordering::SeqCst) >= cuts_max {
            return Ok(found);
        }
        let (meta, range, attributes) = (found.meta.clone(), found.range.clone(), found.attributes.clone());
        let extensions = found.extensions.clone();
        let bytes = found.bytes().await?;
        let half = bytes.slice(..bytes.len() / 2);
        if matches!(self.fault, Fault::Replace | Fault::ReplaceIgnored) {
            self.inner.put(location, bytes.into()).await?;
        }
        let chunks = futures::stream::iter([Ok(half), Err(broken())]).boxed();
        Ok(GetResult { payload: GetResultPayload::Stream(chunks), meta, range, attributes, extensions })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        if self.fault == Fault::DeleteFails {
            return locations.map(|_| Err(broken())).boxed();
        }
        // Many stores, unlike the one in memory, report an absent object.
        let inner = self.inner.clone();
        locations
            .then(move |location| {
                let inner = inner.clone();
                async move {
                    let location = location?;
                    inner.head(&location).await?;
                    inner.delete(&location).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.fault == Fault::ListFails {
            // The first page is sound, the second fails.
            return self.inner.list(prefix).take(1).chain(futures::stream::iter([Err(broken())])).boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fault: Fault,
    ended: Arc<AtomicU32>,
}

#[async_trait::async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.fault {
            Fault::PartFails => Box::pin(async { Err(broken()) }),
            Fault::PartPanics => Box::pin(async { panic!("in a part") }),
            Fault::PartHangs => Box::pin(std::future::pending()),
            _ => self.inner.put_part(data),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.fault == Fault::CompleteFails {
            return Err(broken());
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.inner.abort().await
    }
}

fn faulty(fault: Fault) -> (Store, Arc<Faulty>) {
    let faulty = Arc::new(Faulty {
        inner: InMemory::new(),
        fault,
        cuts: AtomicU32::new(0),
        begun: Arc::default(),
        ended: Arc::default(),
    });
    let options = StoreOptions { multipart_above_bytes: 100, part_bytes: 30, parallel_max: 4 };
    (Store::from_arc(faulty.clone()).with_options(options), faulty)
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn body(length: usize) -> Bytes {
    (0..length).map(|at| at as u8).collect::<Vec<u8>>().into()
}

fn limits() -> DecodeLimits {
    DecodeLimits::default()
}

/// What every store must do.
async fn conforms(store: Store) {
    let store = store.sub(&name("jobs/one")).with_options(StoreOptions {
        multipart_above_bytes: 100,
        part_bytes: 30,
        parallel_max: 4,
    });
    assert!(store.list_all().await.unwrap().is_empty());
    assert!(store.get(&name("data/a"), limits()).await.unwrap_err().is_not_found());
    assert_eq!(store.length(&name("data/a")).await.unwrap(), None);
    store.put_data(&name("data/a"), body(50)).await.unwrap();
    store.put_data(&name("data/b"), body(1000)).await.unwrap();
    assert_eq!(store.get(&name("data/a"), limits()).await.unwrap(), body(50));
    assert_eq!(store.get(&name("data/b"), limits()).await.unwrap(), body(1000), "uploaded in parts");
    assert_eq!(store.get_range(&name("data/b"), 10..30).await.unwrap(), body(1000).slice(10..30));
    assert_eq!(store.length(&name("data/b")).await.unwrap(), Some(1000));
    store.put_data(&name("data/none"), body(0)).await.unwrap();
    for (object, range) in [("data/a", 40..51), ("data/a", 50..51), ("data/a", 60..70), ("data/none", 0..1)] {
        let error = store.get_range(&name(object), range.clone()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Changed, "{range:?} of {object}: {error}");
    }
    assert!(store.get_range(&name("data/never"), 60..70).await.unwrap_err().is_not_found());
    assert!(store.get_range(&name("data/a"), 20..20).await.unwrap().is_empty());
    let error = store.get(&name("data/b"), DecodeLimits { bytes_max: 999 }).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TooLarge);
    for number in [10, 9, 2] {
        let member = ObjectPath::Sequence { number }.name();
        assert_eq!(store.create(&member, body(1)).await.unwrap(), CreateOutcome::Created);
        assert_eq!(store.create(&member, body(2)).await.unwrap(), CreateOutcome::Exists);
        assert_eq!(store.get(&member, limits()).await.unwrap(), body(1), "the first create stays");
    }
    let paths = |list: Vec<ListedObject>| list.into_iter().map(|object| object.path).collect::<Vec<_>>();
    let members = [2, 9, 10].map(|number| ObjectPath::Sequence { number }.name().to_string());
    assert_eq!(paths(store.list(ObjectClass::Sequence).await.unwrap()), members);
    let after = ObjectPath::Sequence { number: 2 }.name();
    assert_eq!(paths(store.list_after(ObjectClass::Sequence, &after).await.unwrap()), members[1..]);
    let report = store.delete(&[name("data/a"), name("data/never"), name("data/b"), name("data/none")]).await;
    assert_eq!((report.deleted.len(), report.failed.len()), (4, 0), "{report:?}");
    assert!(store.list(ObjectClass::Data).await.unwrap().is_empty());
    assert_eq!(store.list_all().await.unwrap().len(), 3);
}

#[tokio::test]
async fn memory_local_disk_and_a_counted_store_conform() {
    conforms(Store::memory()).await;
    let folder = tempfile::tempdir().unwrap();
    conforms(Store::local(&folder.path().join("a b/c")).unwrap()).await;
    conforms(faulty(Fault::None).0).await;
    let counting = CountingStore::new(Arc::new(InMemory::new()));
    conforms(Store::new(Arc::new(counting.clone()), "x/y").unwrap()).await;
    let data = counting.counts(Some(ObjectClass::Data));
    assert_eq!((data.puts, data.put_bytes, data.deletes), (3, 1050, 4));
    assert!(data.gets > 0 && data.get_bytes >= 1070);
    assert_eq!(counting.counts(Some(ObjectClass::Sequence)).puts, 6);
    assert_eq!(counting.counts(None), StoreCounts::default());
    assert_eq!(counting.lists(), 5);
}

#[tokio::test]
async fn a_cut_body_is_resumed_and_one_that_is_always_cut_is_an_error() {
    for (cuts, sound) in [(1, true), (4, true), (5, false), (100, false)] {
        let (store, _) = faulty(Fault::CutBody(cuts));
        store.put_data(&name("data/a"), body(90)).await.unwrap();
        let read = store.get_range(&name("data/a"), 5..85).await;
        match read {
            Ok(bytes) => assert!(sound && bytes == body(90).slice(5..85), "{cuts} cuts"),
            Err(error) => {
                assert!(!sound && error.kind() == StoreErrorKind::Transient, "{cuts} cuts: {error}")
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_comes_in_one_piece_is_handed_on_and_not_copied() {
    let (store, whole) = (Store::memory(), body(90));
    store.put_data(&name("data/a"), whole.clone()).await.unwrap();
    let read = store.get_range(&name("data/a"), 5..85).await.unwrap();
    assert_eq!(read, whole.slice(5..85));
    assert_eq!(read.as_ptr(), whole.slice(5..85).as_ptr());
}

#[tokio::test]
async fn an_object_replaced_while_it_is_read_is_an_error() {
    for fault in [Fault::Replace, Fault::ReplaceIgnored] {
        let (store, _) = faulty(fault);
        store.put_data(&name("data/a"), body(90)).await.unwrap();
        let error = store.get(&name("data/a"), limits()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Changed, "{fault:?}: {error}");
    }
}

#[tokio::test]
async fn a_store_that_ignores_ranges_does_not_give_other_bytes() {
    let (store, _) = faulty(Fault::IgnoreRange);
    store.put_data(&name("data/a"), body(90)).await.unwrap();
    for range in [5..85, 80..90, 0..10] {
        let error = store.get_range(&name("data/a"), range).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Changed, "{error}");
    }
}

#[tokio::test]
async fn every_failed_upload_in_parts_is_aborted() {
    for fault in [Fault::PartFails, Fault::PartPanics, Fault::CompleteFails] {
        let (store, faulty) = faulty(fault);
        let error = store.put_data(&name("data/a"), body(1000)).await.unwrap_err();
        assert_eq!(error.outcome, Outcome::Unknown, "{fault:?}");
        assert_eq!(faulty.begun.load(Ordering::SeqCst), 1);
        assert_eq!(faulty.ended.load(Ordering::SeqCst), 1, "{fault:?} was not aborted");
    }
}

#[tokio::test]
async fn an_upload_in_parts_that_is_given_up_is_aborted() {
    let (store, faulty) = faulty(Fault::PartHangs);
    let object = name("data/a");
    let mut put = Box::pin(store.put_data(&object, body(1000)));
    while faulty.begun.load(Ordering::SeqCst) == 0 {
        assert!(futures::poll!(&mut put).is_pending());
        tokio::task::yield_now().await;
    }
    drop(put);
    // The abort needs a few turns of the runtime, and nothing else.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failed_listing_is_an_error_also_after_a_sound_page() {
    let (store, _) = faulty(Fault::ListFails);
    store.put_data(&name("data/a"), body(1)).await.unwrap();
    assert_eq!(store.list(ObjectClass::Data).await.unwrap_err().kind(), StoreErrorKind::Transient);
}

#[tokio::test]
async fn a_root_that_is_gone_is_not_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let store = Store::local(&root).unwrap();
    assert!(store.list_all().await.unwrap().is_empty());
    std::fs::remove_dir_all(&root).unwrap();
    assert!(store.list_all().await.is_err());
    assert!(Store::open_local(&root).unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_failed_delete_is_reported_by_name_and_a_failed_create_is_in_doubt() {
    let (store, _) = faulty(Fault::DeleteFails);
    let report = store.delete(&[name("data/a"), name("data/b")]).await;
    assert_eq!((report.deleted.len(), report.failed.len()), (0, 2));
    let (store, _) = faulty(Fault::CreateFails);
    let error = store.create(&name("seq/1"), body(1)).await.unwrap_err();
    assert_eq!(error.outcome, Outcome::Unknown);
    let (store, _) = faulty(Fault::CreateConflicts);
    assert_eq!(store.create(&name("seq/1"), body(1)).await.unwrap(), CreateOutcome::Exists);
    assert!(store.get(&name("seq/1"), limits()).await.unwrap_err().is_not_found(), "to be repeated");
}

#[tokio::test]
async fn a_file_in_a_larger_object_is_verified() {
    let store = Store::memory();
    store.put_data(&name("data/pack"), body(100)).await.unwrap();
    let slice = body(100).slice(20..60);
    let checksum = xxh3(&slice);
    let mut entry =
        FileEntry { object: name("data/pack"), offset: 20, length: 40, checksum, kind: FileKind::Segment };
    assert_eq!(store.get_file(&entry, limits()).await.unwrap(), slice);
    assert!(store.get_file(&entry, DecodeLimits { bytes_max: 39 }).await.is_err());
    entry.offset = 21;
    assert!(matches!(store.get_file(&entry, limits()).await, Err(ReadError::Format(_))));
    entry.offset = u64::MAX;
    assert!(store.get_file(&entry, limits()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creates_of_a_number_on_local_disk_wins() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::local(folder.path()).unwrap();
    let winners = Arc::new(Mutex::new(Vec::new()));
    let creates = (0..32_u8).map(|writer| {
        let (store, winners) = (store.clone(), Arc::clone(&winners));
        tokio::spawn(async move {
            let bytes = Bytes::from(vec![writer; 10]);
            if store.create(&name("seq/7"), bytes).await.unwrap() == CreateOutcome::Created {
                winners.lock().unwrap().push(writer);
            }
        })
    });
    futures::future::join_all(creates).await.into_iter().for_each(|joined| joined.unwrap());
    let winners = winners.lock().unwrap().clone();
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(store.get(&name("seq/7"), limits()).await.unwrap(), vec![winners[0]; 10]);
}

#[tokio::test]
async fn staging_files_of_dead_writers_are_swept_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::local(folder.path()).unwrap().sub(&name("job"));
    let data = |millis| {
        let upload = UploadId::from_parts(millis, [0; 10]);
        ObjectPath::Data { upload, number: 0, kind: FileKind::Segment }.name()
    };
    store.put_data(&data(10), body(1)).await.unwrap();
    let member = ObjectPath::Sequence { number: 1 }.name();
    assert_eq!(store.create(&member, body(1)).await.unwrap(), CreateOutcome::Created);
    let job = folder.path().join("job");
    let stale = [format!("{}#1", data(10)), format!("{}#12", data(11)), format!("{member}#3")];
    let kept = [
        format!("{}#1", data(100)),
        "data/x#1".to_owned(),
        format!("{}#x", data(10)),
        format!("{}#", data(9)),
    ];
    for path in stale.iter().chain(&kept) {
        std::fs::write(job.join(path), b"").unwrap();
    }
    assert_eq!(store.sweep_staged(100).await.unwrap(), 3);
    assert!(stale.iter().all(|path| !job.join(path).exists()));
    assert!(kept.iter().all(|path| job.join(path).exists()));
    assert_eq!(store.length(&data(10)).await.unwrap(), Some(1));
    assert_eq!(Store::memory().sweep_staged(100).await.unwrap(), 0);
}

#[tokio::test]
async fn directories_that_become_empty_do_not_pile_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::local(folder.path()).unwrap().sub(&name("job"));
    store.put_data(&name("data/a"), body(1)).await.unwrap();
    store.delete(&[name("data/a")]).await;
    assert!(!folder.path().join("job").exists());
    assert!(folder.path().exists(), "the root stays");
}
