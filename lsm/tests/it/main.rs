//! Tests of the RocksDB path with RocksDB itself.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod background;
mod checkpoints;
mod faults;
mod operations;
mod rescale;
mod storms;
mod support;
