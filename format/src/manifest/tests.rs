use super::*;
use crate::codec::{AutoCodec, Codec, DecodeLimits};
use crate::compression::Compression;
use crate::error::FormatErrorKind;
use crate::ids::UploadId;
use crate::object_name::ObjectName;
use crate::path::ObjectPath;
use crate::segment::{RecordTotals, SegmentSummary, VersionSpan};
use crate::state::StateKind;
use crate::xxh3;

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn noise(seed: u64) -> u64 {
    xxh3(&seed.to_le_bytes())
}

fn segment(checkpoint: u64, subtask: u64) -> ManifestFile {
    let seed = noise(checkpoint * 1000 + subtask);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&seed.to_le_bytes());
    let upload = UploadId::from_parts(1_700_000_000_000 + checkpoint * 1000, random);
    let summary = SegmentSummary {
        checkpoint: id(checkpoint),
        totals: RecordTotals {
            puts: 1000 + seed % 100,
            tombstones: 20 + seed % 10,
            put_bytes: 100_000 + seed % 10_000,
            tombstone_bytes: 400,
            span: Some(VersionSpan { oldest: id(1), newest: id(checkpoint) }),
        },
        clears: 1,
        length: 50_000 + seed % 1000,
        checksum: noise(seed),
        trailer_checksum: noise(seed + 1) as u32,
    };
    let name = ObjectPath::Data { upload, number: subtask as u32, kind: FileKind::Segment }.name();
    ManifestFile::of_segment(name, &summary, Generation(2))
}

/// A manifest of `subtasks` × `checkpoints` segments.
fn manifest(subtasks: u32, checkpoints: u64) -> Manifest {
    let key_groups = KeyGroupCount::new(128).unwrap();
    let mut made = Manifest {
        checkpoint: id(checkpoints + 1),
        generation: Generation(2),
        kind: CheckpointKind::Checkpoint,
        base: Some(id(checkpoints)),
        job: "job".to_owned(),
        key_groups,
        key_grouping: KeyGrouping::Xxh3,
        created_millis: 1_700_000_000_000,
        unclaimed: false,
        completed: Vec::new(),
        backend: "heap".to_owned(),
        states: vec![StateDescriptor {
            name: "s".to_owned(),
            kind: StateKind::Value,
            key: Codec::<String>::identity(&AutoCodec),
            namespace: Codec::<()>::identity(&AutoCodec),
            value: Codec::<String>::identity(&AutoCodec),
        }],
        files: Vec::new(),
        subtasks: Vec::new(),
    };
    for index in 0..subtasks {
        let range = KeyGroupRange::of_subtask(index, subtasks, key_groups).unwrap();
        let mut elements = Vec::new();
        for checkpoint in 1..=checkpoints {
            let file = made.files.len() as u32;
            made.files.push(segment(checkpoint, index.into()));
            let live_puts = noise(checkpoint) % 1000;
            elements.push(Element {
                file,
                key_groups: range.into(),
                live_puts,
                live_tombstones: 3,
                live_clears: 0,
            });
        }
        made.subtasks.push(SubtaskPart { index, range, elements, local_files: Vec::new(), entries: 12_345 });
    }
    made
}

fn decode(bytes: &[u8]) -> Result<Manifest, FormatError> {
    Manifest::decode(bytes, DecodeLimits::default())
}

#[test]
fn a_manifest_survives_with_every_kind_of_file_and_name() {
    let mut made = manifest(3, 4);
    for (at, kind) in [FileKind::Sst, FileKind::RocksMeta, FileKind::Changelog].into_iter().enumerate() {
        let entry = FileEntry {
            object: ObjectName::new(&format!("packed/{at}")).unwrap(),
            offset: 77,
            length: u64::MAX,
            checksum: u64::MAX,
            kind,
        };
        made.subtasks[1]
            .local_files
            .push(LocalFile { name: format!("00001{at}.sst"), file: made.files.len() as u32 });
        made.files.push(ManifestFile {
            entry,
            checkpoint: id(1),
            generation: Generation(0),
            owned: false,
            records: None,
            object_bytes: None,
        });
    }
    made.kind = CheckpointKind::Savepoint;
    made.base = None;
    made.unclaimed = true;
    made.key_grouping = KeyGrouping::Host;
    for compression in [Compression::None, Compression::default()] {
        assert_eq!(decode(&made.encode(compression).unwrap()).unwrap(), made);
    }
    assert!(made.covers_all_key_groups());
    assert_eq!(
        made.files[0].summary().unwrap().file_entry(made.files[0].entry.object.clone()),
        made.files[0].entry
    );
}

#[test]
fn a_listed_segment_costs_at_most_80_bytes() {
    let (small, large) = (manifest(4, 1), manifest(4, 101));
    let length = |manifest: &Manifest| manifest.encode(Compression::default()).unwrap().len();
    let each = (length(&large) - length(&small)) as f64 / 400.0;
    assert!(each <= 80.0, "{each} bytes for a segment");
}

#[test]
fn every_flipped_bit_of_a_manifest_is_refused() {
    let good = manifest(2, 3).encode(Compression::default()).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad).is_err(), "bit {bit} went unnoticed");
    }
}

#[test]
fn a_manifest_that_contradicts_itself_is_neither_written_nor_read() {
    let good = manifest(2, 3);
    assert!(good.check_invariants().is_ok());
    let broken: [fn(&mut Manifest); 9] = [
        |m| m.files.push(m.files[0].clone()),
        |m| m.files[0].checkpoint = id(99),
        |m| m.subtasks.swap(0, 1),
        |m| m.subtasks[1].range = m.subtasks[0].range,
        |m| m.key_groups = KeyGroupCount::new(100).unwrap(),
        |m| m.subtasks[0].elements[0].file = 99,
        |m| m.subtasks[0].elements.swap(0, 2),
        |m| m.subtasks[0].elements[0].key_groups = m.key_groups.all().into(),
        |m| m.subtasks[0].local_files.push(LocalFile { name: "../x".to_owned(), file: 0 }),
    ];
    for (at, break_it) in broken.iter().enumerate() {
        let mut bad = good.clone();
        break_it(&mut bad);
        assert!(bad.check_invariants().is_err(), "{at}");
        assert!(bad.encode(Compression::None).is_err(), "{at}");
    }
}

#[test]
fn a_missing_subtask_leaves_key_groups_uncovered() {
    let mut partial = manifest(3, 1);
    assert!(partial.covers_all_key_groups());
    partial.subtasks.pop();
    assert!(!partial.covers_all_key_groups());
}

#[test]
fn hostile_bodies_behind_a_sound_envelope_never_panic_and_a_required_section_is_incompatible() {
    let limits = DecodeLimits { bytes_max: 1 << 20 };
    let body_of = |manifest: Manifest| {
        encode::ENVELOPE.open(&manifest.encode(Compression::None).unwrap(), limits).unwrap()
    };
    let body = body_of(manifest(2, 3));
    for (body, at) in
        [&body, &body_of(shared())].into_iter().flat_map(|body| (0..body.len()).map(move |at| (body, at)))
    {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = body.clone();
            bad[at] = byte;
            let _ = Manifest::decode(&encode::ENVELOPE.seal(&bad, Compression::None).unwrap(), limits);
        }
    }
    let mut later = body.clone();
    crate::section::put_section(&mut later, 60, b"optional");
    assert!(Manifest::decode(&encode::ENVELOPE.seal(&later, Compression::None).unwrap(), limits).is_ok());
    crate::section::put_section(&mut later, 61 | crate::section::REQUIRED, b"required");
    let error =
        Manifest::decode(&encode::ENVELOPE.seal(&later, Compression::None).unwrap(), limits).unwrap_err();
    assert_eq!(error.kind(), FormatErrorKind::Incompatible);
}

/// A manifest of three segments, two of which share an object, after some completed checkpoints.
fn shared() -> Manifest {
    let mut made = manifest(1, 3);
    let object = made.files[0].entry.object.clone();
    made.files[1].entry =
        FileEntry { object, offset: made.files[0].entry.length, ..made.files[1].entry.clone() };
    let bytes = made.files[1].entry.offset + made.files[1].entry.length;
    (made.files[0].object_bytes, made.files[1].object_bytes) = (Some(bytes), Some(bytes + 7));
    made.completed = vec![id(1), id(2), id(3)];
    made
}

#[test]
fn a_manifest_names_completed_checkpoints_and_the_length_of_shared_objects() {
    let mut made = shared();
    for completed in [vec![], vec![1], vec![3], vec![1, 3], vec![1, 2, 3]] {
        made.completed = completed.into_iter().map(id).collect();
        assert_eq!(decode(&made.encode(Compression::None).unwrap()).unwrap(), made);
    }
    let end = made.files[1].entry.offset + made.files[1].entry.length;
    assert_eq!(
        (made.files[1].bytes_of_object(), made.files[2].bytes_of_object()),
        (end + 7, made.files[2].entry.length)
    );
    let mut long = manifest(1, 3);
    long.checkpoint = id(10_000);
    long.completed = (1..10_000).map(id).collect();
    assert!(long.encode(Compression::None).is_err(), "M5: too many");
    long.completed.drain(..10_000 - 1 - Manifest::COMPLETED_MAX);
    let bytes = long.encode(Compression::None).unwrap();
    assert_eq!(decode(&bytes).unwrap().completed.len(), Manifest::COMPLETED_MAX);
    long.completed.clear();
    assert!(
        bytes.len() - long.encode(Compression::None).unwrap().len() < 12,
        "ids that follow each other are one run"
    );
}

#[test]
fn completed_checkpoints_and_shared_objects_that_cannot_be_are_refused() {
    type Change = fn(&mut Manifest);
    let broken: [(&str, Change); 4] = [
        ("M5", |made| made.completed = vec![id(4)]),
        ("M5", |made| made.completed = vec![id(2), id(2)]),
        ("M4", |made| made.files[1].object_bytes = Some(10)),
        ("M4", |made| made.files[2].object_bytes = Some(made.files[2].entry.length - 1)),
    ];
    for (invariant, change) in broken {
        let mut made = shared();
        change(&mut made);
        let error = made.encode(Compression::None).unwrap_err();
        assert!(error.to_string().contains(invariant), "{error}");
    }
}
