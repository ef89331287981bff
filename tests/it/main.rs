//! Integration tests: one binary, one module per topic.

mod api;
mod heap_model;
#[cfg(feature = "cli")]
mod oracle;
#[cfg(feature = "cli")]
mod protocol;
mod regress;
mod rescale;
mod restore;
#[cfg(feature = "rocksdb")]
mod rocks;
mod support;
mod tidy;
