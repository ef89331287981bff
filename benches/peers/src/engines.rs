//! Engines of other projects in the suites of `lowtide::compare::peer`.
//!
//! Each is used as its documentation shows it to somebody who wants a map that survives a crash, with a full dump
//! where the engine has nothing better.

pub mod dump;
#[cfg(feature = "rocksdb")]
pub mod raw_rocksdb;

use lowtide::{Error, ErrorKind};

/// An engine's failure as one of the suites.
fn failed(what: &str) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |source| Error::new(ErrorKind::Store, what.to_owned()).caused_by(source)
}
