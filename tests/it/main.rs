//! Integration tests: one binary, one module per topic.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails; clippy excuses test functions only, not what they call"
)]

mod api;
mod budget;
mod faults;
mod heap_model;
mod late;
#[cfg(feature = "cli")]
mod oracle;
mod packing;
#[cfg(feature = "cli")]
mod protocol;
mod reading;
mod regress;
mod rescale;
mod restore;
mod retained;
#[cfg(feature = "rocksdb")]
mod rocks;
mod simulator;
mod support;
mod tidy;
