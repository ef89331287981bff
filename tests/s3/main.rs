//! Stores and whole jobs against a real S3-compatible server, and against memory and local disk for comparison.
//!
//! `scripts/s3.sh cargo test --features s3 --test s3` starts the server. Without one, the tests of it say so and pass. What
//! a sound server does not answer comes from one of our own (`server`).
#![cfg(feature = "s3")]
#![expect(clippy::unwrap_used, reason = "whatever fails while a job is set up fails the test")]

mod conformance;
mod errors_inside;
mod jobs;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lowtide::Store;
use object_store::aws::AmazonS3Builder;
use tempfile::TempDir;

/// A store to test, under a prefix of its own.
struct Place {
    name: &'static str,
    store: Store,
    _directory: Option<TempDir>,
}

/// The server's bucket, if there is a server.
fn server() -> Option<Store> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Ok(endpoint) = std::env::var("LOWTIDE_S3_ENDPOINT") else {
        eprintln!("NOT TESTED against an S3 server: LOWTIDE_S3_ENDPOINT is not set, see scripts/s3.sh");
        return None;
    };
    let bucket = std::env::var("LOWTIDE_S3_BUCKET").unwrap_or_else(|_| "lowtide-test".to_owned());
    let s3 = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_access_key_id("test")
        .with_secret_access_key("test")
        .build()
        .unwrap();
    let prefix = format!("run-{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Some(Store::new(Arc::new(s3), &prefix).unwrap())
}

fn places() -> Vec<Place> {
    let directory = tempfile::tempdir().unwrap();
    let local = Store::local(directory.path()).unwrap();
    let mut places = vec![
        Place { name: "memory", store: Store::memory(), _directory: None },
        Place { name: "local disk", store: local, _directory: Some(directory) },
    ];
    places.extend(server().map(|store| Place { name: "s3", store, _directory: None }));
    places
}
