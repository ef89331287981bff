//! Memory beside `HashMap<K, V>`, per bucket.
//!
//! The plain map's bucket is its slot and one byte. Ours are counted by the backend, over tables and everything that
//! stands beside them, with a checkpoint completed.

use hashbrown::HashMap;
use lowtide_heap::WriteOptions;

use super::Scale;
use super::access::Ours;
use crate::kinds::{Hundreds, Kind, Numbers};
use crate::record::Record;

/// Measures two kinds.
pub fn run(scale: Scale) {
    one::<Numbers>(scale);
    one::<Hundreds>(scale);
}

fn one<T: Kind>(scale: Scale) {
    let entries = scale.entries;
    let mut ours = Ours::<T>::filled(entries);
    let snapshot = ours.freeze();
    ours.complete(snapshot, &WriteOptions::default());
    let (bytes, buckets) = (ours.backend.table_bytes() as f64, ours.backend.buckets() as f64);
    drop(ours);
    let plain: HashMap<T::K, T::V> = (0..entries).map(|number| (T::key(number), T::value(number))).collect();
    let plain_bytes = plain.allocation_size() as f64;
    let plain_bucket = (size_of::<(T::K, T::V)>() + 1) as f64;
    let per = |bytes: f64| bytes / entries as f64;
    let case = format!("{}, {} M, over a plain bucket", T::NAME, entries as f64 / 1e6);
    Record::new("memory", &case, (bytes / buckets - plain_bucket, "bytes"))
        .at_most(5.0)
        .detail(format!(
            "{:.2} a bucket, {:.1} an entry; plain map {plain_bucket} and {:.1}",
            bytes / buckets,
            per(bytes),
            per(plain_bytes)
        ))
        .print();
}
