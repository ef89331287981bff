//! The names of the backends that can be compared.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use super::CompareOptions;
use super::contender::{Entrant, JobEntrant};
use super::error::CompareError;

#[cfg(not(feature = "rocksdb"))]
const KNOWN: &str = "heap, heap-full, heap-full-every-N (rocksdb is not in this build)";
#[cfg(feature = "rocksdb")]
const KNOWN: &str = "heap, heap-full, heap-full-every-N, rocksdb";

/// A backend and the way it takes checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendName {
    /// `heap`: incremental snapshots with the default rewriting.
    Heap,
    /// `heap-full`: the same map, everything written at each checkpoint.
    HeapFull,
    /// `heap-full-every-N`: incremental without rewriting, everything at each N-th checkpoint.
    HeapFullEvery(NonZeroU64),
    /// `rocksdb`: the state in RocksDB, new tables at each checkpoint.
    #[cfg(feature = "rocksdb")]
    RocksDb,
}

impl BackendName {
    pub(super) fn entrant(self, options: &CompareOptions) -> Box<dyn Entrant> {
        Box::new(JobEntrant::new(self, options))
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendName::Heap => f.write_str("heap"),
            BackendName::HeapFull => f.write_str("heap-full"),
            #[cfg(feature = "rocksdb")]
            BackendName::RocksDb => f.write_str("rocksdb"),
            BackendName::HeapFullEvery(checkpoints) => write!(f, "heap-full-every-{checkpoints}"),
        }
    }
}

impl FromStr for BackendName {
    type Err = CompareError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || CompareError::Backend { name: name.to_owned(), known: KNOWN };
        match name {
            "heap" => Ok(BackendName::Heap),
            "heap-full" => Ok(BackendName::HeapFull),
            #[cfg(feature = "rocksdb")]
            "rocksdb" => Ok(BackendName::RocksDb),
            _ => name
                .strip_prefix("heap-full-every-")
                .and_then(|checkpoints| checkpoints.parse().ok())
                .map(BackendName::HeapFullEvery)
                .ok_or_else(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_prints_as_it_is_read() {
        for name in ["heap", "heap-full", "heap-full-every-100"] {
            assert_eq!(name.parse::<BackendName>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_beside_the_known_ones() {
        for name in ["", "Heap", "heap-full-every-0", "heap-full-every-"] {
            let message = name.parse::<BackendName>().unwrap_err().to_string();
            assert!(message.contains(&format!("'{name}'")) && message.contains(KNOWN), "{message}");
        }
    }
}
