use super::*;
use crate::codec::DecodeLimits;
use crate::compression::Compression;

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn published(checkpoint: u64, kind: CheckpointKind) -> PublishedRef {
    let upload = UploadId::from_parts(checkpoint, [3; 10]);
    PublishedRef {
        checkpoint: id(checkpoint),
        generation: Generation(1),
        kind,
        manifest: ObjectPath::Manifest { checkpoint: id(checkpoint), upload }.name(),
        length: 100,
        checksum: 7,
        unclaimed: kind == CheckpointKind::Full,
        owned: true,
    }
}

fn member(step: SequenceStep) -> SequenceMember {
    SequenceMember {
        number: 12,
        generation: Generation(3),
        token: UploadId::from_parts(99, [9; 10]),
        created_millis: 1_700_000_000_000,
        step,
        checkpoints: vec![published(4, CheckpointKind::Full), published(6, CheckpointKind::Checkpoint)],
        savepoints: vec![published(5, CheckpointKind::Savepoint)],
        sweep_boundary_millis: 55,
        next_checkpoint: id(7),
        restored_from: Some(RestoredFrom {
            location: "s3://a/b".to_owned(),
            checkpoint: id(2),
            claimed: false,
        }),
        trash: vec![ObjectName::new("data/x").unwrap()],
    }
}

fn decode(bytes: &[u8]) -> Result<SequenceMember, FormatError> {
    SequenceMember::decode(bytes, 12, DecodeLimits::default())
}

#[test]
fn a_member_survives_with_every_step() {
    let checkpoint = id(6);
    for step in [
        SequenceStep::TakeOver,
        SequenceStep::Publish { checkpoint },
        SequenceStep::Retention,
        SequenceStep::Claim { checkpoint },
        SequenceStep::Abandon { checkpoint },
        SequenceStep::SweepBoundary { before_millis: 0 },
        SequenceStep::DeleteSavepoint { checkpoint },
    ] {
        let made = member(step);
        assert_eq!(decode(&made.encode(Compression::default()).unwrap()).unwrap(), made);
    }
    let mut made = member(SequenceStep::TakeOver);
    made.restored_from = None;
    assert_eq!(decode(&made.encode(Compression::None).unwrap()).unwrap(), made);
    assert_eq!(made.latest().unwrap().checkpoint, id(6), "a savepoint is not the latest");
    assert_eq!(made.published(id(5)).unwrap().kind, CheckpointKind::Savepoint);
}

#[test]
fn every_flipped_bit_and_another_number_are_refused() {
    let good = member(SequenceStep::TakeOver).encode(Compression::default()).unwrap();
    assert!(SequenceMember::decode(&good, 13, DecodeLimits::default()).is_err());
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad).is_err(), "bit {bit} went unnoticed");
    }
}

#[test]
fn lists_that_do_not_ascend_and_a_full_trash_are_not_written() {
    let broken: [fn(&mut SequenceMember); 4] = [
        |m| m.checkpoints.swap(0, 1),
        |m| m.next_checkpoint = id(6),
        |m| m.savepoints.push(m.savepoints[0].clone()),
        |m| m.trash = vec![ObjectName::new("x").unwrap(); SequenceMember::TRASH_MAX + 1],
    ];
    for (at, break_it) in broken.iter().enumerate() {
        let mut bad = member(SequenceStep::Retention);
        break_it(&mut bad);
        assert!(bad.encode(Compression::None).is_err(), "{at}");
    }
}

#[test]
fn hostile_bodies_behind_a_sound_envelope_never_panic() {
    let limits = DecodeLimits { bytes_max: 1 << 20 };
    let good = member(SequenceStep::TakeOver).encode(Compression::None).unwrap();
    let body = encode::ENVELOPE.open(&good, limits).unwrap();
    for at in 0..body.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = body.clone();
            bad[at] = byte;
            let _ = decode(&encode::ENVELOPE.seal(&bad, Compression::None).unwrap());
        }
    }
}

#[test]
fn a_published_manifest_is_known_by_length_and_checksum() {
    let mut published = published(4, CheckpointKind::Full);
    published.length = 3;
    published.checksum = crate::xxh3(b"abc");
    assert!(published.check(b"abc").is_ok());
    assert!(published.check(b"abd").is_err());
    assert!(published.check(b"ab").is_err());
    assert!(published.check(b"abcd").is_err());
}
