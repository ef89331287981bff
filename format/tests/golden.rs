//! Each format version still reads; the newest is still written byte for byte.
//!
//! Golden files are written once for each version, by `UPDATE_GOLDEN=1`, and never again.

#![expect(clippy::unwrap_used, reason = "a whole file of tests")]

use std::path::{Path, PathBuf};

use lowtide_format::{
    AutoCodec, CheckpointId, CheckpointKind, Clear, Codec, Compression, DecodeLimits, Element,
    FORMAT_VERSION, FORMAT_VERSION_OLDEST, FileEntry, FileKind, FormatError, Generation, KeyGroup,
    KeyGroupCount, KeyGroupRange, KeyGroupSet, KeyGrouping, LocalFile, Manifest, ManifestFile, ObjectName,
    ObjectPath, PublishedRef, RecordRef, RestoredFrom, SegmentOptions, SegmentReader, SegmentWriter,
    SequenceMember, SequenceStep, StateDescriptor, StateKind, SubtaskPart, UploadId,
};

/// Version-dependent bytes are only those that we write: zstd may pack better in another release.
const PACKED: Compression = Compression::Zstd { level: 3 };

fn golden(version: u16, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}/{name}"))
}

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn upload(number: u8) -> UploadId {
    UploadId::from_parts(1_700_000_000_000 + u64::from(number), [number; 10])
}

fn states() -> Vec<StateDescriptor> {
    let state = |name: &str, kind, value| StateDescriptor {
        name: name.to_owned(),
        kind,
        key: Codec::<String>::identity(&AutoCodec),
        namespace: Codec::<()>::identity(&AutoCodec),
        value,
    };
    vec![
        state("count", StateKind::Value, Codec::<u64>::identity(&AutoCodec)),
        state("name", StateKind::Value, Codec::<String>::identity(&AutoCodec)),
    ]
}

fn segment(compression: Compression) -> lowtide_format::FinishedSegment {
    let options = SegmentOptions { compression, block_bytes: 128 };
    let mut writer = SegmentWriter::new(id(300), states(), options).unwrap();
    for group in [0, 1, 7] {
        for state in [0, 1] {
            let keys: Vec<String> = (0..5).map(|key| format!("key-{group}-{key}")).collect();
            let records = keys.iter().enumerate().map(|(at, key)| {
                let (key, namespace) = (key.as_bytes(), b"".as_slice());
                if at == 4 {
                    RecordRef::Tombstone { key, namespace, oldest: id(3), newest: id(299) }
                } else {
                    RecordRef::Put {
                        key,
                        namespace,
                        value: &[7; 8],
                        version: id(300 - at as u64),
                        born: id(1),
                    }
                }
            });
            writer.append_records(KeyGroup(group), state, records).unwrap();
        }
    }
    let key_groups: KeyGroupSet = KeyGroupRange::new(KeyGroup(0), KeyGroup(7)).unwrap().into();
    writer.clear(Clear { state: 0, namespace: None, key_groups: key_groups.clone() }).unwrap();
    writer.clear(Clear { state: 1, namespace: Some(b"w".to_vec()), key_groups }).unwrap();
    writer.finish().unwrap()
}

fn manifest() -> Manifest {
    let summary = segment(Compression::None).summary;
    let name = |number| ObjectPath::Data { upload: upload(1), number, kind: FileKind::Segment }.name();
    let entry = |object: &str, kind| FileEntry {
        object: ObjectName::new(object).unwrap(),
        offset: 4096,
        length: 1 << 40,
        checksum: 0x0123_4567_89ab_cdef,
        kind,
    };
    let other = |entry| ManifestFile {
        entry,
        checkpoint: id(1),
        generation: Generation(1),
        owned: false,
        records: None,
        object_bytes: None,
    };
    let element = |file, range: KeyGroupRange| Element {
        file,
        key_groups: range.into(),
        live_puts: 12,
        live_tombstones: 3,
        live_clears: 1,
    };
    let range = |start, end| KeyGroupRange::new(KeyGroup(start), KeyGroup(end)).unwrap();
    let local = LocalFile { name: "000012.sst".to_owned(), file: 2 };
    Manifest {
        checkpoint: id(301),
        generation: Generation(4),
        kind: CheckpointKind::Checkpoint,
        base: Some(id(300)),
        job: "job".to_owned(),
        key_groups: KeyGroupCount::new(8).unwrap(),
        key_grouping: KeyGrouping::Xxh3,
        created_millis: 1_700_000_000_000,
        unclaimed: true,
        completed: Vec::new(),
        backend: "heap".to_owned(),
        states: states(),
        files: vec![
            ManifestFile::of_segment(name(0), &summary, Generation(3)),
            ManifestFile::of_segment(name(1), &summary, Generation(4)),
            other(entry("packed/a", FileKind::Sst)),
            other(entry("packed/b", FileKind::RocksMeta)),
            other(entry("packed/c", FileKind::Changelog)),
        ],
        subtasks: vec![
            SubtaskPart {
                index: 0,
                range: range(0, 3),
                elements: vec![element(0, range(0, 2)), element(1, range(0, 3))],
                local_files: Vec::new(),
                entries: 24,
            },
            SubtaskPart {
                index: 1,
                range: range(4, 7),
                elements: Vec::new(),
                local_files: vec![local],
                entries: 1 << 33,
            },
        ],
    }
}

/// The same with files that share an object, and the checkpoints that had completed.
fn shared_manifest() -> Manifest {
    let mut shared = manifest();
    let object = shared.files.first().expect("a manifest with files").entry.object.clone();
    for (file, offset) in shared.files.iter_mut().take(2).zip([0, 4096]) {
        (file.entry.object, file.entry.offset) = (object.clone(), offset);
        file.object_bytes = Some(12_288);
    }
    shared.completed = [7, 8, 9, 200, 298, 299, 300].map(id).to_vec();
    shared
}

fn member() -> SequenceMember {
    let published = |checkpoint, kind| PublishedRef {
        checkpoint: id(checkpoint),
        generation: Generation(4),
        kind,
        manifest: ObjectPath::Manifest { checkpoint: id(checkpoint), upload: upload(2) }.name(),
        length: 1234,
        checksum: 0xfedc_ba98_7654_3210,
        unclaimed: false,
        owned: true,
    };
    SequenceMember {
        number: 17,
        generation: Generation(4),
        token: upload(3),
        created_millis: 1_700_000_000_000,
        step: SequenceStep::Publish { checkpoint: id(301) },
        checkpoints: vec![published(300, CheckpointKind::Full), published(301, CheckpointKind::Checkpoint)],
        savepoints: vec![published(299, CheckpointKind::Savepoint)],
        sweep_boundary_millis: 1_600_000_000_000,
        next_checkpoint: id(302),
        restored_from: Some(RestoredFrom {
            location: "/old/job".to_owned(),
            checkpoint: id(7),
            claimed: true,
        }),
        trash: vec![ObjectPath::Data { upload: upload(4), number: 0, kind: FileKind::Segment }.name()],
    }
}

/// The last member of a job that stopped in order.
fn stop() -> SequenceMember {
    SequenceMember { step: SequenceStep::Stop, restored_from: None, trash: Vec::new(), ..member() }
}

/// Everything a segment says, as text, so that two files can be compared whatever their packing.
fn told(file: &[u8]) -> Result<String, FormatError> {
    let reader = SegmentReader::open(file, DecodeLimits::default())?;
    reader.verify(file)?;
    let footer = reader.footer();
    let mut told = format!("{:?}\n{:?}\n{:?}\n", footer.checkpoint(), footer.states(), footer.clears());
    let all = KeyGroupCount::new(KeyGroupCount::MAX).unwrap().all().into();
    reader.visit::<FormatError>(file, &all, |run, record| {
        told.push_str(&format!("{:?} {} {record:?}\n", run.key_group, run.state));
        Ok(())
    })?;
    Ok(told)
}

fn read(version: u16, name: &str) -> Vec<u8> {
    let path = golden(version, name);
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("add the golden file {} with the version: {error}", path.display()))
}

#[test]
fn every_readable_version_has_golden_files_that_still_read() {
    for version in FORMAT_VERSION_OLDEST..=FORMAT_VERSION {
        let limits = DecodeLimits::default();
        for name in ["segment", "segment-zstd"] {
            let expected = told(&segment(Compression::None).bytes).unwrap();
            assert_eq!(told(&read(version, name)).unwrap(), expected, "version {version}, {name}");
        }
        for name in ["manifest", "manifest-zstd"] {
            let found = Manifest::decode(&read(version, name), limits).unwrap();
            assert_eq!(found, manifest(), "version {version}, {name}");
        }
        let found = Manifest::decode(&read(version, "manifest-shared"), limits).unwrap();
        assert_eq!(found, shared_manifest(), "version {version}");
        let found = SequenceMember::decode(&read(version, "sequence"), 17, limits).unwrap();
        assert_eq!(found, member(), "version {version}");
        let found = SequenceMember::decode(&read(version, "sequence-stop"), 17, limits).unwrap();
        assert_eq!(found, stop(), "version {version}");
    }
}

#[test]
fn this_build_still_writes_the_newest_version_byte_for_byte() {
    let packed = [
        ("segment-zstd", segment(PACKED).bytes.to_vec()),
        ("manifest-zstd", manifest().encode(PACKED).unwrap()),
    ];
    let plain = [
        ("segment", segment(Compression::None).bytes.to_vec()),
        ("manifest", manifest().encode(Compression::None).unwrap()),
        ("manifest-shared", shared_manifest().encode(Compression::None).unwrap()),
        ("sequence", member().encode(Compression::None).unwrap()),
        ("sequence-stop", stop().encode(Compression::None).unwrap()),
    ];
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        for (name, bytes) in plain.iter().chain(&packed) {
            std::fs::write(golden(FORMAT_VERSION, name), bytes).unwrap();
        }
    }
    for (name, bytes) in &plain {
        assert!(
            read(FORMAT_VERSION, name) == *bytes,
            "{name} is written otherwise: that is a new format version"
        );
    }
}
