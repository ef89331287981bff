//! A full snapshot of 108-byte entries, uncompressed, on one core, beside a loop that copies the same fields.
//!
//! The loop walks the same table and appends key and value to blocks as large as a segment; it makes no frames, no
//! checksums and no index.

use std::hint::black_box;

use lowtide_format::{Compression, SegmentOptions, Value};
use lowtide_heap::WriteOptions;

use super::Scale;
use super::access::Ours;
use crate::kinds::{Hundred, Hundreds, Kind};
use crate::measure::{median, timed};
use crate::record::Record;

/// u64 → 100 bytes on the heap of their own.
pub struct Vectors;

impl Kind for Vectors {
    const NAME: &'static str = "u64→Vec<u8> of 100";
    type K = u64;
    type V = Vec<u8>;
    fn key(number: u64) -> u64 {
        number
    }
    fn value(number: u64) -> Vec<u8> {
        Hundred::of(number).0.to_vec()
    }
    fn change(_: &mut Vec<u8>) {}
}

/// Measures both ways to keep 100 bytes.
pub fn run(scale: Scale) {
    one::<Hundreds>(scale, |value| &value.0);
    one::<Vectors>(scale, |value| value);
}

fn one<T: Kind<K = u64>>(scale: Scale, bytes_of: fn(&T::V) -> &[u8])
where
    T::V: Value,
{
    let segment = SegmentOptions { compression: Compression::None, ..SegmentOptions::default() };
    let options = WriteOptions { segment, ..WriteOptions::default() };
    let block_bytes = options.segment_bytes_max as usize;
    let mut ours = Ours::<T>::filled(scale.entries);
    let (mut encoding, mut copying, mut encoded) = (Vec::new(), Vec::new(), 0);
    for _ in 0..scale.rounds {
        let mut snapshot = ours.freeze();
        encoded = 0;
        let (nanos, _) = timed(|| {
            snapshot
                .write(&options, &mut |segment| {
                    encoded += segment.bytes.len();
                    Ok(())
                })
                .expect("nothing cancels it")
        });
        encoding.push(nanos);
        let id = snapshot.id();
        drop(snapshot);
        ours.backend.aborted(id);
        let map = ours.backend.state(ours.state).expect("our state");
        let copy = || {
            let mut block = Vec::with_capacity(block_bytes);
            for entry in map.iter() {
                if block.len() + 108 > block_bytes {
                    black_box(std::mem::replace(&mut block, Vec::with_capacity(block_bytes)));
                }
                block.extend_from_slice(&entry.key.to_le_bytes());
                block.extend_from_slice(bytes_of(entry.value));
            }
            black_box(block);
        };
        copying.push(timed(copy).0);
    }
    let user_bytes = scale.entries as f64 * 108.0;
    let (encoding, copying) = (median(encoding), median(copying));
    let (ours, copied) = (encoded as f64 / encoding, user_bytes / copying);
    let detail = format!("copy loop {copied:.2} GB/s, {encoded} bytes for {user_bytes:.0} of entries");
    let case = format!("full, {}, {} M", T::NAME, scale.entries as f64 / 1e6);
    // Either way is enough.
    if ours / copied >= 0.8 {
        let record = Record::new("encode", &case, (ours / copied, "of copy"));
        record.at_least(0.8).detail(format!("{ours:.2} GB/s; {detail}")).print();
    } else {
        let record = Record::new("encode", &case, (ours, "GB/s"));
        record.at_least(0.8).detail(format!("{:.0} % of copy; {detail}", 100.0 * ours / copied)).print();
    }
}
