//! Jobs on RocksDB: one conformance suite for both backends, and state that moves between them.

use std::collections::{BTreeMap, BTreeSet};

use lowtide::lsm::LsmOptions;
use lowtide::{
    Backend, CheckpointId, CheckpointKind, Claim, ErrorKind, HeapBackend, HeapSettings, Job, JobBuilder,
    KeyGroupSet, RestoreFrom, RocksBackend, Store, ValueState, read_published,
};
use lowtide_format::{DecodeLimits, RecordRef, SegmentReader};

use crate::support::run;

type Entries = BTreeMap<(String, u32), String>;

/// A job with one state of text keys, numbered namespaces and text values.
struct NamedJob<B: Backend> {
    job: Job<B>,
    state: ValueState<String, String, u32, B>,
}

fn builder<B: Backend>(name: &str, subtasks: u32, settings: &B::Options) -> JobBuilder<B> {
    JobBuilder::<B>::new(name).subtasks(subtasks).key_groups(16).backend(settings.clone())
}

fn rocks_settings(directory: &std::path::Path) -> LsmOptions {
    LsmOptions { directory: directory.to_path_buf(), memory_budget: 8 << 20, ..LsmOptions::default() }
}

impl<B: Backend> NamedJob<B> {
    fn of(mut job: Job<B>) -> Self {
        let state = job.value_state("s").unwrap();
        Self { job, state }
    }

    async fn create(name: &str, subtasks: u32, settings: &B::Options, store: &Store) -> Self {
        Self::of(builder::<B>(name, subtasks, settings).create(store).await.unwrap())
    }

    async fn recover(name: &str, subtasks: u32, settings: &B::Options, store: &Store) -> Self {
        Self::of(builder::<B>(name, subtasks, settings).recover(store).await.unwrap())
    }

    fn put(&mut self, key: &str, namespace: u32, value: &str) {
        self.job.state_mut(&self.state).put_in(namespace, key.to_owned(), value.to_owned()).unwrap();
    }

    fn remove(&mut self, key: &str, namespace: u32) -> Option<String> {
        self.job.state_mut(&self.state).remove_in(&namespace, key).unwrap()
    }

    async fn checkpoint(&mut self) -> lowtide::CheckpointFigures {
        self.job.checkpoint(CheckpointKind::Checkpoint).await.unwrap()
    }

    fn entries(&self) -> Entries {
        let entries = self.job.state(&self.state).iter().unwrap();
        entries
            .map(|entry| {
                let (key, namespace, value) = entry.unwrap();
                ((key.clone(), *namespace), value.clone())
            })
            .collect()
    }
}

async fn conforms<B: Backend>(settings: B::Options) {
    let store = Store::memory();
    let mut job = NamedJob::<B>::create("j", 2, &settings, &store).await;
    let mut expected = Entries::new();
    for number in 0..60_u32 {
        let (key, namespace) = (format!("k{}", number % 20), number % 3);
        let absent = !expected.contains_key(&(key.clone(), namespace));
        let said =
            job.job.state_mut(&job.state).put_in(namespace, key.clone(), format!("v{number}")).unwrap();
        assert_eq!(said, absent, "whether {key} was absent");
        expected.insert((key, namespace), format!("v{number}"));
    }
    assert_eq!(job.entries(), expected);
    assert_eq!(job.remove("k1", 1), expected.remove(&("k1".to_owned(), 1)));
    assert_eq!(job.remove("k1", 1), None);
    let access = |job: &mut NamedJob<B>, key: &str, namespace: u32| {
        job.job.state_mut(&job.state).update_in(&namespace, key, |value| value.push('!')).unwrap()
    };
    assert!(access(&mut job, "k2", 2) && !access(&mut job, "nobody", 2));
    expected.get_mut(&("k2".to_owned(), 2)).unwrap().push('!');
    let first = job.checkpoint().await;
    assert_eq!((first.base, first.entries), (None, expected.len() as u64));

    job.job.state_mut(&job.state).clear_in(&0).unwrap();
    expected.retain(|(_, namespace), _| *namespace != 0);
    let removed = job.job.state_mut(&job.state).retain(|key, _, _| key != "k5").unwrap();
    assert_eq!(removed, expected.keys().filter(|(key, _)| key == "k5").count() as u64);
    expected.retain(|(key, _), _| key != "k5");
    let entry =
        job.job.state_mut(&job.state).entry_in(7, "new".to_owned()).or_insert("fresh".to_owned()).unwrap();
    assert!(entry);
    expected.insert(("new".to_owned(), 7), "fresh".to_owned());
    assert_eq!(job.job.state(&job.state).len().unwrap(), expected.len() as u64);
    let one = job.job.state(&job.state).iter_in(&7).unwrap().count();
    assert_eq!(one, 1);
    assert_eq!(job.checkpoint().await.base, Some(first.id));
    drop(job);

    for subtasks in [3, 1, 2] {
        let mut job = NamedJob::<B>::recover("j", subtasks, &settings, &store).await;
        assert_eq!(job.entries(), expected, "{subtasks} subtasks");
        job.put(&format!("after {subtasks}"), 1, "x");
        expected.insert((format!("after {subtasks}"), 1), "x".to_owned());
        assert!(job.checkpoint().await.base.is_some(), "the checkpoint after a rescale has a base");
    }
    let mut job = NamedJob::<B>::recover("j", 2, &settings, &store).await;
    job.job.state_mut(&job.state).clear().unwrap();
    job.put("last", 0, "one");
    job.checkpoint().await;
    let job = NamedJob::<B>::recover("j", 4, &settings, &store).await;
    assert_eq!(job.entries(), Entries::from([(("last".to_owned(), 0), "one".to_owned())]));
}

#[test]
fn the_heap_conforms_to_the_common_suite() {
    run(conforms::<HeapBackend>(HeapSettings::default()));
}

#[test]
fn rocksdb_conforms_to_the_common_suite() {
    let directory = tempfile::tempdir().unwrap();
    run(conforms::<RocksBackend>(rocks_settings(directory.path())));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "local directories are left");
}

/// A history with a chain: overwritten, removed, cleared, put again.
async fn write_history<B: Backend>(name: &str, settings: &B::Options, store: &Store) -> Entries {
    let mut job = NamedJob::<B>::create(name, 2, settings, store).await;
    for number in 0..40 {
        job.put(&format!("k{number}"), number % 2, "old");
    }
    job.checkpoint().await;
    for number in 0..10 {
        job.put(&format!("k{number}"), number % 2, "new");
        job.remove(&format!("k{}", number + 10), number % 2);
    }
    job.checkpoint().await;
    job.job.state_mut(&job.state).clear_in(&1).unwrap();
    job.put("k1", 1, "again");
    job.checkpoint().await;
    let entries = job.entries();
    assert_eq!(entries.len(), 16);
    entries
}

async fn moves<A: Backend, B: Backend>(a: A::Options, b: B::Options, claim: Claim) {
    let store = Store::memory();
    let mut expected = write_history::<A>("a", &a, &store).await;
    let from = RestoreFrom { claim, ..RestoreFrom::latest("a") };
    let mut moved = NamedJob::<B>::of(builder::<B>("b", 3, &b).restore(&store, from).await.unwrap());
    assert_eq!(moved.entries(), expected);
    moved.remove("k0", 0);
    moved.put("k30", 0, "moved");
    expected.remove(&("k0".to_owned(), 0));
    expected.insert(("k30".to_owned(), 0), "moved".to_owned());
    let first = moved.checkpoint().await;
    assert_eq!(first.referenced_bytes, 0, "a file of the other backend is listed");
    moved.put("k31", 1, "delta");
    expected.insert(("k31".to_owned(), 1), "delta".to_owned());
    assert_eq!(moved.checkpoint().await.base, Some(first.id));
    let directory = moved.job.name().to_owned();
    drop(moved);
    let directory = if claim == Claim::Claim { "a".to_owned() } else { directory };
    let recovered = builder::<B>("b", 2, &b).directory(&directory).recover(&store).await.unwrap();
    assert_eq!(NamedJob::of(recovered).entries(), expected);
    // And home again.
    let back = builder::<A>("c", 1, &a).restore(&store, RestoreFrom::latest(&directory)).await.unwrap();
    assert_eq!(NamedJob::of(back).entries(), expected);
}

#[test]
fn a_heap_checkpoint_moves_into_rocksdb_and_back() {
    let directory = tempfile::tempdir().unwrap();
    for claim in [Claim::NoClaim, Claim::Claim] {
        let rocks = rocks_settings(directory.path());
        run(moves::<HeapBackend, RocksBackend>(HeapSettings::default(), rocks, claim));
    }
}

#[test]
fn a_rocksdb_checkpoint_moves_into_the_heap_and_back() {
    let directory = tempfile::tempdir().unwrap();
    for claim in [Claim::NoClaim, Claim::Claim] {
        let rocks = rocks_settings(directory.path());
        run(moves::<RocksBackend, HeapBackend>(rocks, HeapSettings::default(), claim));
    }
}

/// The records of a savepoint, and nothing that depends on who wrote it: group, state, key, namespace, value.
async fn savepoint_content(
    store: &Store,
    directory: &str,
    id: CheckpointId,
) -> BTreeSet<(u16, u16, Vec<u8>)> {
    let directory = store.sub(&lowtide::ObjectName::new(directory).unwrap());
    let published = read_published(&directory).await.unwrap();
    let manifest = published.get(id).unwrap().manifest(&directory).await.unwrap();
    let all = KeyGroupSet::from(manifest.key_groups.all());
    let mut content = BTreeSet::new();
    for file in &manifest.files {
        let bytes = directory.get(&file.entry.object, DecodeLimits::default()).await.unwrap();
        let reader = SegmentReader::open(&bytes, DecodeLimits::default()).unwrap();
        let visited = reader.visit::<lowtide_format::FormatError>(&bytes, &all, |run, record| {
            let RecordRef::Put { key, namespace, value, .. } = record else {
                panic!("a tombstone in a savepoint")
            };
            let length = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
            let record = [&length(key)[..], key, &length(namespace)[..], namespace, value].concat();
            assert!(content.insert((run.key_group.0, run.state, record)), "an entry is there twice");
            Ok(())
        });
        visited.unwrap();
    }
    content
}

#[test]
fn a_savepoint_has_the_same_records_whichever_backend_wrote_it() {
    let directory = tempfile::tempdir().unwrap();
    let rocks = rocks_settings(directory.path());
    run(async {
        let store = Store::memory();
        write_history::<HeapBackend>("a", &HeapSettings::default(), &store).await;
        write_history::<RocksBackend>("b", &rocks, &store).await;
        let mut heap = NamedJob::<HeapBackend>::recover("a", 2, &HeapSettings::default(), &store).await;
        let mut lsm = NamedJob::<RocksBackend>::recover("b", 2, &rocks, &store).await;
        let ids = [
            heap.job.checkpoint(CheckpointKind::Savepoint).await.unwrap().id,
            lsm.job.checkpoint(CheckpointKind::Savepoint).await.unwrap().id,
        ];
        let (ours, theirs) =
            (savepoint_content(&store, "a", ids[0]).await, savepoint_content(&store, "b", ids[1]).await);
        assert_eq!(ours.len(), 16);
        assert_eq!(ours, theirs);
        // The savepoint of RocksDB is no base, and took none away.
        lsm.put("k1", 1, "more");
        assert!(lsm.checkpoint().await.base.unwrap() < ids[1]);
    });
}

#[test]
fn a_checkpoint_without_changes_uploads_metadata_only() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::memory();
        let mut job =
            NamedJob::<RocksBackend>::create("j", 2, &rocks_settings(directory.path()), &store).await;
        for number in 0..2000 {
            job.put(&format!("key {number}"), 0, &"value ".repeat(20));
        }
        let first = job.checkpoint().await;
        let second = job.checkpoint().await;
        assert!(first.new_bytes > 20_000, "{first:?}");
        assert!(second.new_bytes <= 2 * (64 << 10) && second.new_bytes < first.new_bytes / 4, "{second:?}");
        assert!(second.referenced_bytes > 0);
    });
}

/// Lengths of the data objects of the job's directory by name.
async fn data_objects(inside: &Store) -> BTreeMap<String, u64> {
    let objects = inside.list(lowtide::ObjectClass::Data).await.unwrap();
    objects.into_iter().map(|object| (object.path, object.length)).collect()
}

#[test]
fn each_checkpoint_uploads_exactly_its_new_tables_and_a_small_list() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::memory();
        let rocks = rocks_settings(directory.path());
        let mut job = NamedJob::<RocksBackend>::create("j", 1, &rocks, &store).await;
        let inside = store.sub(&lowtide::ObjectName::new("j").unwrap());
        let (mut before, mut listed): (BTreeMap<String, u64>, BTreeSet<String>) = Default::default();
        for number in 1..=12_u32 {
            for key in 0..300 {
                // In every fourth interval nothing changes.
                if number % 4 != 0 {
                    job.put(
                        &format!("k{}", (number * 89 + key * 13) % 1500),
                        0,
                        &format!("{number}-{key}").repeat(9),
                    );
                }
            }
            if number == 7 {
                job.job.subtask(0).unwrap().lsm().compact().unwrap();
            }
            let figures = job.checkpoint().await;
            // Deletions are carried out in between; what came in is what counts.
            let after = data_objects(&inside).await;
            let published = read_published(&inside).await.unwrap();
            let manifest = published.get(figures.id).unwrap().manifest(&inside).await.unwrap();
            let is_table = |entry: &&lowtide::FileEntry| entry.kind == lowtide::FileKind::Sst;
            let tables: BTreeMap<String, u64> = manifest
                .entries()
                .filter(is_table)
                .map(|entry| (entry.object.to_string(), entry.length))
                .collect();
            let came: BTreeMap<&String, u64> = after
                .iter()
                .filter(|(name, _)| !before.contains_key(*name))
                .map(|(name, bytes)| (name, *bytes))
                .collect();
            let is_new =
                |(name, bytes): (&String, &u64)| (!listed.contains(name)).then_some((name.clone(), *bytes));
            let new: BTreeMap<String, u64> = tables.iter().filter_map(is_new).collect();
            let came_tables: u64 =
                came.iter().filter(|(name, _)| name.ends_with(".sst")).map(|(_, bytes)| bytes).sum();
            let metadata: u64 =
                came.iter().filter(|(name, _)| !name.ends_with(".sst")).map(|(_, bytes)| bytes).sum();
            assert_eq!(came_tables, new.values().sum::<u64>(), "chk-{number}");
            assert_eq!(figures.new_bytes, came_tables + metadata, "chk-{number}");
            assert!((1..=64 << 10).contains(&metadata), "chk-{number}: {metadata} bytes of metadata");
            assert_eq!(new.is_empty(), number % 4 == 0, "chk-{number}: {new:?}");
            (before, listed) = (after, tables.into_keys().collect());
        }
    });
}

#[test]
fn a_storm_is_told_with_its_cause_and_passes_and_the_store_gets_rid_of_what_it_replaced() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::memory();
        let storm = lowtide::lsm::StormOptions { new_bytes_min: 10 << 10, ..Default::default() };
        let rocks = LsmOptions { storm, ..rocks_settings(directory.path()) };
        let mut job = NamedJob::<RocksBackend>::create("j", 2, &rocks, &store).await;
        let inside = store.sub(&lowtide::ObjectName::new("j").unwrap());
        let mut figures = Vec::new();
        for number in 1..=4_u32 {
            for key in 0..if number < 3 { 4000_u32 } else { 10 } {
                let text = format!(
                    "{:x}",
                    u128::from(key ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                );
                job.put(&format!("k{key}"), 0, &text);
            }
            if number == 3 {
                (0..2).for_each(|at| job.job.subtask(at).unwrap().lsm().compact().unwrap());
            }
            figures.push(job.checkpoint().await);
            job.job.run_deletions().await.unwrap();
            let stored: u64 = data_objects(&inside).await.values().sum();
            let state = figures[0].new_bytes;
            assert!(stored <= 3 * state, "chk-{number}: {stored} bytes stored for a state of {state}");
        }
        assert_eq!(
            figures.iter().map(|figures| figures.storm).collect::<Vec<_>>(),
            [false, false, true, false]
        );
        let traffic = figures[2].traffic.as_ref().unwrap();
        assert!(traffic.new_per_live() > 0.9 && traffic.new_per_changed() > 4.0, "{traffic:?}");
        // One of each subtask; RocksDB may cut either into several.
        assert!(traffic.compactions.len() >= 2, "{traffic:?}");
        assert!(traffic.cause().unwrap().to_string().contains("ManualCompaction"), "{traffic:?}");
        assert!(figures[3].new_bytes < figures[2].new_bytes / 4, "{figures:?}");
    });
}

#[test]
fn the_first_checkpoint_after_claiming_a_heap_checkpoint_says_that_it_has_no_base() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = Store::memory();
        write_history::<HeapBackend>("a", &HeapSettings::default(), &store).await;
        let from = RestoreFrom { claim: Claim::Claim, ..RestoreFrom::latest("a") };
        let rocks = rocks_settings(directory.path());
        let restored = builder::<RocksBackend>("b", 2, &rocks).restore(&store, from).await.unwrap();
        let mut moved = NamedJob::<RocksBackend>::of(restored);
        let first = moved.checkpoint().await;
        assert_eq!((first.base, moved.job.stat(first.id).await.unwrap().base), (None, None));
        moved.put("k1", 1, "more");
        let second = moved.checkpoint().await;
        assert_eq!(
            (second.base, moved.job.stat(second.id).await.unwrap().base),
            (Some(first.id), Some(first.id))
        );
    });
}

#[test]
fn a_damaged_or_missing_table_is_an_error_that_names_it_and_the_older_checkpoint_stays_usable() {
    let directory = tempfile::tempdir().unwrap();
    let rocks = rocks_settings(directory.path());
    run(async {
        let store = Store::memory();
        let mut job = NamedJob::<RocksBackend>::of(
            builder::<RocksBackend>("j", 1, &rocks)
                .retained(lowtide::Retention::Newest(std::num::NonZeroU32::new(2).unwrap()))
                .create(&store)
                .await
                .unwrap(),
        );
        job.put("a", 0, "1");
        let first = job.checkpoint().await;
        job.put("b", 0, "2");
        let second = job.checkpoint().await;
        drop(job);
        let inside = store.sub(&lowtide::ObjectName::new("j").unwrap());
        let published = read_published(&inside).await.unwrap();
        let of = |id| published.get(id).unwrap();
        let (old, new) =
            (of(first.id).manifest(&inside).await.unwrap(), of(second.id).manifest(&inside).await.unwrap());
        let old: Vec<_> = old.entries().cloned().collect();
        let fresh =
            |entry: &&lowtide::FileEntry| entry.kind == lowtide::FileKind::Sst && !old.contains(entry);
        let table = new.entries().find(fresh).unwrap().object.clone();
        let report = inside.delete(std::slice::from_ref(&table)).await;
        assert!(report.failed.is_empty());
        let failed = builder::<RocksBackend>("c", 1, &rocks).restore(&store, RestoreFrom::latest("j")).await;
        let error = failed.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
        assert!(error.to_string().contains(table.as_str()), "{error}");
        let older = RestoreFrom { checkpoint: Some(first.id), ..RestoreFrom::latest("j") };
        let restored = builder::<RocksBackend>("d", 2, &rocks).restore(&store, older).await.unwrap();
        assert_eq!(NamedJob::of(restored).entries().len(), 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something half-open is left");
    });
}

/// The tables of the newest checkpoints: how many of them list each, in ascending order; and those in the store.
async fn tables(store: &Store) -> (Vec<usize>, usize) {
    let inside = store.sub(&lowtide::ObjectName::new("j").unwrap());
    let published = read_published(&inside).await.unwrap();
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for checkpoint in &published.checkpoints {
        let manifest = checkpoint.manifest(&inside).await.unwrap();
        for entry in manifest.entries().filter(|entry| entry.kind == lowtide::FileKind::Sst) {
            *listed.entry(entry.object.to_string()).or_insert(0) += 1;
        }
    }
    let mut counts: Vec<usize> = listed.into_values().collect();
    counts.sort_unstable();
    let objects = inside.list(lowtide::ObjectClass::Data).await.unwrap();
    (counts, objects.iter().filter(|object| object.path.ends_with(".sst")).count())
}

/// The worked example of RocksDB's incremental checkpoints (2017): retain two, four checkpoints, tables merged by
/// compaction between them; a table is deleted when the last retained checkpoint that lists it goes.
#[test]
fn tables_merged_between_four_checkpoints_are_counted_as_in_the_worked_example() {
    let directory = tempfile::tempdir().unwrap();
    let rocks = rocks_settings(directory.path());
    run(async {
        let store = Store::memory();
        let two = lowtide::Retention::Newest(std::num::NonZeroU32::new(2).unwrap());
        let mut job = builder::<RocksBackend>("j", 1, &rocks).retained(two).create(&store).await.unwrap();
        let a: ValueState<String, u32, (), RocksBackend> = job.value_state("a").unwrap();
        let b: ValueState<String, u32, (), RocksBackend> = job.value_state("b").unwrap();
        let put =
            |job: &mut Job<RocksBackend>, state: &ValueState<String, u32, (), RocksBackend>, value: u32| {
                job.state_mut(state).set(format!("k{value}"), value).unwrap();
            };
        let mut seen = Vec::new();
        for number in 1..=4 {
            match number {
                1 => put(&mut job, &a, 1),
                2 => {
                    put(&mut job, &a, 2);
                    put(&mut job, &b, 2);
                }
                3 => {
                    job.subtask(0).unwrap().lsm().compact_state("a").unwrap();
                    put(&mut job, &b, 3);
                }
                _ => {
                    job.subtask(0).unwrap().lsm().compact_state("b").unwrap();
                    put(&mut job, &a, 4);
                }
            }
            job.checkpoint(CheckpointKind::Checkpoint).await.unwrap();
            job.run_deletions().await.unwrap();
            seen.push(tables(&store).await);
        }
        let expected = [
            (vec![1], 1),             // a1
            (vec![1, 1, 2], 3),       // a1 twice, a2, b1
            (vec![1, 1, 1, 1, 2], 5), // of the second: a1, a2, b1; of the third: a1+2, b1, b2
            (vec![1, 1, 1, 1, 2], 5), // a1 and a2 are gone; a1+2 twice, b1, b2, b1+2, a3
        ];
        assert_eq!(seen, expected);
        let mut job = builder::<RocksBackend>("j", 1, &rocks).recover(&store).await.unwrap();
        let a: ValueState<String, u32, (), RocksBackend> = job.value_state("a").unwrap();
        assert_eq!(job.state(&a).len().unwrap(), 3);
    });
}
