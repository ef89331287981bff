//! Memory outside Rust's sight: databases that are opened and closed again and again leave none behind.
//!
//! A process of its own, because what is measured is the whole process.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "says what was measured, or why not")]

#[path = "../it/support.rs"]
mod support;

use lowtide_lsm::{LsmBackend, LsmOptions, LsmState, OptionsScope};
use support::{Store, checkpoint, count, files_under, options, range, request, restore, write};

const WARM: u64 = 150;
const ROUNDS: u64 = 600;

/// Bytes of the process in memory; none where the system does not say.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

/// Open, write, checkpoint, close; every second time something goes wrong on the way.
fn round(number: u64, directory: &std::path::Path) {
    let mut store = Store::default();
    let options = options(directory);
    let mut backend = LsmBackend::open(&options, range(0, 7), count(8)).unwrap();
    let state: LsmState<u64, (), u64> = backend.value_state("s").unwrap();
    (0..200).for_each(|key| backend.put(state, &(), &key, &number).unwrap());
    let taken = checkpoint(&mut backend, &mut store, request(1, None));
    match number % 6 {
        // A state that is refused, in a database that was opened.
        1 => {
            let hook = |scope: OptionsScope<'_>| {
                if let OptionsScope::State(_, options) = scope {
                    options.set_enable_blob_files(true);
                }
            };
            let hook = Some(std::sync::Arc::new(hook) as _);
            let mut refusing =
                LsmBackend::open(&LsmOptions { hook, ..options.clone() }, range(0, 7), count(8)).unwrap();
            refusing.value_state::<u64, (), u64>("s").unwrap_err();
        }
        // A restore that meets damage, behind the checksum of the file.
        3 => {
            let object =
                taken.files.iter().find(|file| file.new && file.local_name.ends_with(".sst")).unwrap();
            let object = object.stored.file.object.to_string();
            let mut bytes = store.objects[&object].to_vec();
            let middle = bytes.len() / 2;
            bytes.truncate(middle);
            let staging = staging_of(&options, &mut store, &taken);
            let path = staging.path(&staging.plan().fetches()[0]).unwrap();
            std::fs::write(path, bytes).unwrap();
            staging.restore().unwrap_err();
        }
        // A snapshot that is left, with an iterator open meanwhile.
        5 => {
            let mut snapshot = backend.freeze(request(2, Some(1))).unwrap();
            let mut entries = backend.iter(state, None).unwrap();
            entries.next().unwrap().unwrap();
            write(&mut snapshot, &mut store).unwrap();
        }
        _ => {
            let copy = restore(directory, &mut store, range(0, 3), &[&taken]).unwrap();
            assert!(copy.entries().unwrap() > 0);
        }
    }
}

fn staging_of(
    options: &LsmOptions,
    store: &mut Store,
    taken: &lowtide_lsm::LsmAcknowledgement,
) -> lowtide_lsm::Staging {
    let part = support::part(taken, store);
    let plan = lowtide_lsm::RestorePlan::new(range(0, 7), count(8), taken.id, vec![part]).unwrap();
    lowtide_lsm::Staging::create(options, plan).unwrap()
}

#[test]
fn opening_and_closing_again_and_again_leaves_no_memory_behind() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let mut warm = None;
    for number in 1..=ROUNDS {
        round(number, directory.path());
        if number == WARM {
            warm = resident();
        }
    }
    assert_eq!(files_under(directory.path()), 0, "files are left");
    let (Some(warm), Some(end)) = (warm, resident()) else {
        eprintln!("NOT MEASURED: this system does not say how much memory a process has");
        return;
    };
    eprintln!("{warm} bytes after {WARM} rounds, {end} after {ROUNDS}");
    assert!(end <= warm + warm / 10, "{warm} bytes after {WARM} rounds and {end} after {ROUNDS}");
}
