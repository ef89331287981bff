//! Runs engines through the peer suites: `engines NAMES SPEC [FILE]`.
//!
//! `NAMES` are those of other projects (hashbrown, imbl, rocksdb) and of this library's backends (lowtide,
//! lowtide-rocksdb), separated by commas; `SPEC` is that of `lowtide compare --peer`. Prints a line of JSON per figure;
//! those with `FILE` come into the tables of the figures in it.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use lowtide::compare::peer::workload::{Bytes100, Bytes100c, Kind, Long};
use lowtide::compare::peer::{Engine, Labels, Line, PeerOptions, PeerSpec, ValueKind, compare_peer, run};
use lowtide::compare::{BackendName, CompareError};
use lowtide_peers::engines::dump::Dumped;

type Plain<T> = Dumped<hashbrown::HashMap<u64, <T as Kind>::Stored>>;
type Persistent<T> = Dumped<imbl::HashMap<u64, <T as Kind>::Stored>>;

fn emit(line: &Line) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")
}

fn engine<T: Kind, E: Engine<T, Setting = ()>>(options: &PeerOptions) -> Result<(), CompareError> {
    run::<T, E>(&(), options, &mut emit)
}

fn named<T: Kind>(name: &str, options: &PeerOptions) -> Result<(), CompareError> {
    match name {
        "hashbrown" => engine::<T, Plain<T>>(options),
        "imbl" => engine::<T, Persistent<T>>(options),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => engine::<T, lowtide_peers::engines::raw_rocksdb::RawRocks>(options),
        _ => {
            let backend: BackendName = name.strip_prefix("lowtide-").unwrap_or("heap").parse()?;
            let options = PeerOptions { backends: vec![backend], ..options.clone() };
            compare_peer(&options, &mut emit).map(drop)
        }
    }
}

fn all(names: &str, spec: PeerSpec, beside: Option<&str>) -> Result<(), CompareError> {
    let place = tempfile::Builder::new()
        .prefix("lowtide-peers-")
        .tempdir()
        .map_err(|source| CompareError::Directory { directory: std::env::temp_dir(), source })?;
    let labels = beside.map_or_else(|| Ok(Labels::own()), |file| Labels::beside(Path::new(file)))?;
    for name in names.split(',') {
        eprintln!("{name}: {spec}");
        let directory = place.path().join(name);
        let options = PeerOptions { spec, backends: Vec::new(), directory, labels: labels.clone() };
        match spec.value {
            ValueKind::Bytes100 => named::<Bytes100>(name, &options),
            ValueKind::Bytes100c => named::<Bytes100c>(name, &options),
            _ => named::<Long>(name, &options),
        }?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (names, spec, beside) = match words.as_slice() {
        [names, spec] => (names, spec, None),
        [names, spec, file] => (names, spec, Some(file.as_str())),
        _ => {
            eprintln!("usage: engines NAMES SPEC [FILE]");
            return ExitCode::from(2);
        }
    };
    match spec.parse().and_then(|spec| all(names, spec, beside)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engines: {error}");
            ExitCode::from(2)
        }
    }
}
