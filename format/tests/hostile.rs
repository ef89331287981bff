//! Hostile bytes behind sound checksums: an error, never a panic, and memory in proportion to the bytes.
//!
//! The objects are sealed here after FORMAT.md, without the crate's own writer.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a whole file of tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use lowtide_format::{
    AutoCodec, BlockRecords, CheckpointId, CheckpointKind, Codec, Compression, DecodeLimits, Element,
    FormatError, Generation, KeyGroup, KeyGroupCount, KeyGroupSet, KeyGrouping, Manifest, ManifestFile,
    ObjectPath, RecordRef, SegmentOptions, SegmentReader, SegmentWriter, SequenceMember, StateDescriptor,
    StateKind, SubtaskPart, UploadId, xxh3,
};

struct Measured;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator that measures cannot be written otherwise")]
// SAFETY: all calls go to the system's allocator unchanged; only numbers are kept.
unsafe impl GlobalAlloc for Measured {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
        PEAK.fetch_max(now, Ordering::SeqCst);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measured = Measured;

/// Runs `work` and returns the bytes that were allocated at once beyond those before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    work();
    PEAK.load(Ordering::SeqCst).saturating_sub(before)
}

/// Numbers that a length can be forged to, as varints.
fn forged_numbers(left: u64) -> Vec<Vec<u8>> {
    let varint = |mut value: u64| {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    [u64::MAX, 1 << 48, 1 << 31, left + 1, left, left / 2, 0].map(varint).to_vec()
}

fn seal(magic: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut object = magic.to_vec();
    object.extend([1, 0, 1, 0]);
    object.extend((body.len() as u64).to_le_bytes());
    object.extend((body.len() as u64).to_le_bytes());
    let hash = xxh3(&[object.as_slice(), body].concat());
    object.extend(hash.to_le_bytes());
    object.extend(body);
    object
}

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn states() -> Vec<StateDescriptor> {
    vec![StateDescriptor {
        name: "s".to_owned(),
        kind: StateKind::Value,
        key: Codec::<String>::identity(&AutoCodec),
        namespace: Codec::<()>::identity(&AutoCodec),
        value: Codec::<u64>::identity(&AutoCodec),
    }]
}

fn segment() -> lowtide_format::FinishedSegment {
    let options = SegmentOptions { compression: Compression::None, block_bytes: 64 };
    let mut writer = SegmentWriter::new(id(9), states(), options).unwrap();
    for group in 0..6 {
        let put =
            RecordRef::Put { key: b"key", namespace: b"", value: &[1; 30], version: id(8), born: id(2) };
        let tombstone = RecordRef::Tombstone { key: b"gone", namespace: b"", oldest: id(2), newest: id(8) };
        writer.append_records(KeyGroup(group), 0, [put, tombstone, put]).unwrap();
    }
    writer.finish().unwrap()
}

fn manifest() -> Manifest {
    let summary = segment().summary;
    let key_groups = KeyGroupCount::new(8).unwrap();
    let kind = lowtide_format::FileKind::Segment;
    let name = |number| ObjectPath::Data { upload: UploadId::from_parts(5, [1; 10]), number, kind }.name();
    let element = |file| Element {
        file,
        key_groups: key_groups.all().into(),
        live_puts: 3,
        live_tombstones: 1,
        live_clears: 0,
    };
    Manifest {
        checkpoint: id(10),
        generation: Generation(1),
        kind: CheckpointKind::Checkpoint,
        base: Some(id(9)),
        job: "job".to_owned(),
        key_groups,
        key_grouping: KeyGrouping::Xxh3,
        created_millis: 5,
        unclaimed: false,
        completed: vec![id(3), id(7), id(8), id(9)],
        backend: "heap".to_owned(),
        states: states(),
        files: (0..3).map(|number| ManifestFile::of_segment(name(number), &summary, Generation(1))).collect(),
        subtasks: vec![SubtaskPart {
            index: 0,
            range: key_groups.all(),
            elements: (0..3).map(element).collect(),
            local_files: Vec::new(),
            entries: 9,
        }],
    }
}

/// Replaces the bytes at every place of `good` by every forged number and hands the result to `read`, which must stay
/// within a small multiple of the bytes.
fn forge_every_place(good: &[u8], mut read: impl FnMut(Vec<u8>)) {
    for at in 0..good.len() {
        for number in forged_numbers((good.len() - at) as u64) {
            let bytes = [&good[..at], number.as_slice(), &good[at + 1..]].concat();
            let bound = (64 << 10) + 64 * bytes.len();
            let peak = peak_of(|| read(bytes));
            assert!(peak <= bound, "{peak} bytes at once for {} bytes, {number:?} at {at}", good.len());
        }
    }
}

/// One test, since the measuring is of the whole process.
#[test]
fn forged_lengths_are_errors_within_memory_in_proportion_to_the_bytes() {
    manifests_and_members();
    footers();
    records();
    values();
}

fn manifests_and_members() {
    let limits = DecodeLimits::default();
    let good = manifest().encode(Compression::None).unwrap();
    assert_eq!(seal(b"LTMF", &good[32..]), good, "this file seals as the crate does");
    forge_every_place(&good[32..], |body| drop(Manifest::decode(&seal(b"LTMF", &body), limits)));
    // Lengths of the envelope itself.
    for at in [8, 16] {
        for length in [u64::MAX, 1 << 60, 1 << 48, 1 << 31, good.len() as u64] {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&length.to_le_bytes());
            let hash = xxh3(&[&bad[..24], &bad[32..]].concat());
            bad[24..32].copy_from_slice(&hash.to_le_bytes());
            let peak = peak_of(|| assert!(Manifest::decode(&bad, limits).is_err()));
            assert!(peak < 64 << 10, "{peak} bytes for a length of {length}");
        }
    }
    let member = SequenceMember {
        number: 1,
        generation: Generation(1),
        token: UploadId::from_parts(1, [1; 10]),
        created_millis: 1,
        step: lowtide_format::SequenceStep::TakeOver,
        checkpoints: Vec::new(),
        savepoints: Vec::new(),
        sweep_boundary_millis: 0,
        next_checkpoint: id(1),
        restored_from: None,
        trash: vec![lowtide_format::ObjectName::new("data/x").unwrap()],
    };
    let good = member.encode(Compression::None).unwrap();
    forge_every_place(&good[32..], |body| drop(SequenceMember::decode(&seal(b"LTSQ", &body), 1, limits)));
}

fn footers() {
    let good = segment().bytes;
    let trailer = good.len() - 48;
    let footer_offset = u64::from_le_bytes(good[trailer + 8..trailer + 16].try_into().unwrap()) as usize;
    let all: KeyGroupSet = KeyGroupCount::new(KeyGroupCount::MAX).unwrap().all().into();
    forge_every_place(&good[footer_offset..trailer], |footer| {
        let mut bytes = good[..footer_offset].to_vec();
        bytes.extend(&footer);
        let mut end = good[trailer..].to_vec();
        end[16..24].copy_from_slice(&(footer.len() as u64).to_le_bytes());
        end[24..32].copy_from_slice(&(footer.len() as u64).to_le_bytes());
        end[32..36].copy_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        let crc = crc32c::crc32c(&end[..40]);
        end[40..44].copy_from_slice(&crc.to_le_bytes());
        bytes.extend(end);
        if let Ok(reader) = SegmentReader::open(&bytes, DecodeLimits::default()) {
            let _ = reader.verify(&bytes);
            let _ = reader.visit::<FormatError>(&bytes, &all, |_, _| Ok(()));
        }
    });
}

fn records() {
    let mut run = lowtide_format::RecordRun::new(id(9), 1 << 20);
    let put = RecordRef::Put { key: b"key", namespace: b"ns", value: &[1; 30], version: id(8), born: id(2) };
    run.push(put).unwrap();
    let mut good = vec![1, 3];
    good.extend(b"key\x02ns\x1e");
    good.extend([1; 30]);
    good.extend([1, 7]);
    assert_eq!(good.len(), run.len());
    assert_eq!(BlockRecords::new(&good, id(9)).next().unwrap().unwrap(), put);
    forge_every_place(&good, |bytes| {
        assert!(peak_of(|| BlockRecords::new(&bytes, id(9)).for_each(drop)) == 0, "records borrow");
    });
}

fn values() {
    type Nested = (String, Vec<u64>, std::collections::BTreeMap<String, Vec<String>>);
    let value: Nested =
        ("text".to_owned(), vec![1, 2, 3], [("a".to_owned(), vec!["b".to_owned()])].into_iter().collect());
    let mut good = Vec::new();
    AutoCodec.encode(&value, &mut good).unwrap();
    // bincode's own numbers: 253 announces eight bytes.
    for at in 0..good.len() {
        for length in [u64::MAX, 1 << 48, 1 << 31, 1 << 20] {
            let number = [[253].as_slice(), &length.to_le_bytes()].concat();
            let bytes = [&good[..at], number.as_slice(), &good[at + 1..]].concat();
            let peak = peak_of(|| drop(Codec::<Nested>::decode(&AutoCodec, &bytes, DecodeLimits::default())));
            // serde itself takes up to 1 MiB ahead for a list, however short the input.
            assert!(peak <= (1 << 20) + (128 << 10), "{peak} bytes at once for {length} at {at}");
        }
    }
}
