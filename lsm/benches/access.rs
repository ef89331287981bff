//! Access through the backend against the same calls made on RocksDB directly, with the same options.
//!
//! `cargo bench -p lowtide-lsm --features rocksdb`; machine and results: benches/README.md.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench fails by panicking")]

use std::cell::Cell;

use divan::{Bencher, black_box};
use lowtide_format::{KeyGroup, KeyGroupCount, KeyGroupRange};
use lowtide_lsm::{LsmBackend, LsmOptions, LsmState};

const ENTRIES: u64 = 200_000;
const VALUE_BYTES: usize = 100;

fn main() {
    divan::main();
}

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ENTRIES
}

struct Ours {
    _directory: tempfile::TempDir,
    backend: LsmBackend,
    state: LsmState<u64, (), Vec<u8>>,
}

fn ours() -> Ours {
    let directory = tempfile::tempdir().unwrap();
    let options = LsmOptions { directory: directory.path().to_path_buf(), ..LsmOptions::default() };
    let all = KeyGroupRange::new(KeyGroup(0), KeyGroup(127)).unwrap();
    let mut backend = LsmBackend::open(&options, all, KeyGroupCount::new(128).unwrap()).unwrap();
    let state = backend.value_state("s").unwrap();
    for n in 0..ENTRIES {
        backend.put(state, &(), &n, &vec![n as u8; VALUE_BYTES]).unwrap();
    }
    Ours { _directory: directory, backend, state }
}

/// The same database, reached around the backend.
fn stored_key(n: u64) -> Vec<u8> {
    let group =
        lowtide_format::key_group(lowtide_format::Key::key_hash(&n), KeyGroupCount::new(128).unwrap());
    let mut stored = Vec::new();
    let append = |out: &mut Vec<u8>| {
        out.extend_from_slice(&n.to_le_bytes());
        Ok(())
    };
    lowtide_lsm::key::encode(&mut stored, group, append, |_| Ok(())).unwrap();
    stored
}

#[divan::bench(sample_count = 20, sample_size = 20_000)]
fn get_through_the_backend(bencher: Bencher<'_, '_>) {
    let Ours { _directory, backend, state } = ours();
    let next = Cell::new(0);
    bencher.bench_local(|| {
        next.set(next.get() + 1);
        black_box(backend.get(state, &(), &key(next.get())).unwrap())
    });
}

#[divan::bench(sample_count = 20, sample_size = 20_000)]
fn get_directly(bencher: Bencher<'_, '_>) {
    let Ours { _directory, backend, .. } = ours();
    let keys: Vec<Vec<u8>> = (0..ENTRIES).map(stored_key).collect();
    let (db, family) = backend.database("s").unwrap();
    let next = Cell::new(0);
    bencher.bench_local(|| {
        next.set(next.get() + 1);
        let found = db.get_pinned_cf(family, &keys[key(next.get()) as usize]).unwrap();
        black_box(found.map(|value| value.to_vec()))
    });
}

#[divan::bench(sample_count = 20, sample_size = 20_000)]
fn put_through_the_backend(bencher: Bencher<'_, '_>) {
    let Ours { _directory, mut backend, state } = ours();
    let value = vec![7; VALUE_BYTES];
    let mut next = 0;
    bencher.bench_local(|| {
        next += 1;
        backend.put(state, &(), &key(next), &value).unwrap();
    });
}

#[divan::bench(sample_count = 20, sample_size = 20_000)]
fn put_directly(bencher: Bencher<'_, '_>) {
    let Ours { _directory, backend, .. } = ours();
    let keys: Vec<Vec<u8>> = (0..ENTRIES).map(stored_key).collect();
    let (db, family) = backend.database("s").unwrap();
    let mut write = rocksdb::WriteOptions::default();
    write.disable_wal(true);
    let value = vec![7; VALUE_BYTES];
    let mut next = 0;
    bencher.bench_local(|| {
        next += 1;
        db.put_cf_opt(family, &keys[key(next) as usize], &value, &write).unwrap();
    });
}
