use proptest::prelude::*;

use super::*;

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

/// Parts that are bytes, or a value that cannot be encoded.
struct Parts<'a> {
    key: &'a [u8],
    namespace: &'a [u8],
    value: Result<&'a [u8], &'static str>,
}

impl PutParts for Parts<'_> {
    type Error = FormatError;

    fn key(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(self.key);
        Ok(())
    }

    fn namespace(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(self.namespace);
        Ok(())
    }

    fn value(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        match self.value {
            Ok(value) => out.extend_from_slice(value),
            // As a codec does that takes the buffer for its own.
            Err("clears") => out.clear(),
            Err(problem) => return Err(FormatError::Unwritable { part: "value", problem }),
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn records_survive_in_order(
        records in proptest::collection::vec(
            (any::<bool>(), any::<Vec<u8>>(), any::<Vec<u8>>(), any::<Vec<u8>>(), 1_u64..300, 1_u64..300), 0..20)
    ) {
        let checkpoint = id(300);
        let records: Vec<RecordRef<'_>> = records.iter().map(|(put, key, namespace, value, a, b)| {
            let (low, high) = (id(*a.min(b)), id(*a.max(b)));
            if *put {
                RecordRef::Put { key, namespace, value, version: high, born: low }
            } else {
                RecordRef::Tombstone { key, namespace, oldest: low, newest: high }
            }
        }).collect();
        let mut run = RecordRun::new(checkpoint, 40);
        for record in &records {
            run.push(*record).unwrap();
        }
        let read: Vec<RecordRef<'_>> = run
            .parts()
            .flat_map(|(bytes, _)| BlockRecords::new(bytes, checkpoint))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(&read, &records);
        let puts = records.iter().filter(|record| matches!(record, RecordRef::Put { .. })).count() as u64;
        prop_assert_eq!((run.totals().puts, run.totals().tombstones), (puts, records.len() as u64 - puts));
        prop_assert_eq!(run.totals().put_bytes + run.totals().tombstone_bytes, run.len() as u64);
    }

    #[test]
    fn short_puts_and_the_rest_are_the_records_of_whatever_bytes(
        records in proptest::collection::vec(
            (0_u8..8, 0_usize..9, 0_usize..3, prop_oneof![4 => 0_usize..9, 1 => 120_usize..140], 0_usize..4, 0_usize..4),
            0..20),
        damage in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![0_u8..9, any::<u8>()]), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let (filling, checkpoint) = ([9; 140], id(20_000));
        let mut bytes = Vec::new();
        for (kind, key, namespace, value, a, b) in records {
            let ids = [20_000, 19_990, 19_000, 1];
            let (low, high) = (id(ids[a.max(b)]), id(ids[a.min(b)]));
            let (key, namespace, value) = (&filling[..key], &filling[..namespace], &filling[..value]);
            let record = match kind {
                0 => RecordRef::Tombstone { key, namespace, oldest: low, newest: high },
                _ => RecordRef::Put { key, namespace, value, version: high, born: low },
            };
            record.encode(checkpoint, &mut bytes).unwrap();
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len().max(1));
            bytes.iter_mut().skip(at).take(1).for_each(|it| *it = byte);
        }
        if let (Some(at), false) = (cut, bytes.is_empty()) {
            bytes.truncate(at.index(bytes.len()));
        }
        let expected: Vec<_> =
            BlockRecords::new(&bytes, checkpoint).map(|record| record.map_err(|error| error.to_string())).collect();
        let (mut records, mut found) = (BlockRecords::new(&bytes, checkpoint), Vec::new());
        loop {
            if let Some(PutRef { key, namespace, value, version, born }) = records.next_short_put() {
                found.push(Ok(RecordRef::Put { key, namespace, value, version, born }));
            } else if let Some(record) = records.next() {
                found.push(record.map_err(|error| error.to_string()));
            } else {
                break;
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_put_encoded_in_its_place_is_the_same_record(
        puts in proptest::collection::vec(
            (0_usize..200, 0_usize..200, prop_oneof![0_usize..300, 16_000..17_000_usize], 1_u64..300, any::<bool>()),
            0..8),
    ) {
        let bytes = [7; 17_000];
        let (mut whole, mut placed) = (RecordRun::new(id(300), 500), RecordRun::new(id(300), 500));
        for (key, namespace, value, version, fits) in puts {
            let (key, namespace, value) = (&bytes[..key], &bytes[..namespace], &bytes[..value]);
            let (version, born) = (id(version), id(1));
            let put = RecordRef::Put { key, namespace, value, version, born };
            let first = whole.push_if(put, |_| fits).unwrap();
            let parts = Parts { key, namespace, value: Ok(value) };
            let second = placed.put_if(&parts, PutIds { version, born }, |_| fits).unwrap();
            prop_assert_eq!(first, second);
        }
        prop_assert!(whole.parts().eq(placed.parts()));
    }

    #[test]
    fn hostile_records_end_with_one_error(bytes: Vec<u8>) {
        let records: Vec<_> = BlockRecords::new(&bytes, id(9)).collect();
        let errors = records.iter().filter(|record| record.is_err()).count();
        prop_assert!(errors <= 1);
        prop_assert!(errors == 0 || records.last().is_some_and(Result::is_err));
    }
}

#[test]
fn a_small_put_costs_six_bytes_beside_its_key_and_value() {
    let mut bytes = Vec::new();
    let put = RecordRef::Put { key: b"k", namespace: b"", value: b"v", version: id(7), born: id(7) };
    put.encode(id(7), &mut bytes).unwrap();
    assert_eq!(bytes, [1, 1, b'k', 0, 1, b'v', 0, 0]);
}

#[test]
fn ids_that_do_not_ascend_are_neither_written_nor_read() {
    let mut run = RecordRun::new(id(5), 100);
    let put = |version, born| RecordRef::Put { key: b"k", namespace: b"", value: b"v", version, born };
    assert!(run.push(put(id(6), id(1))).is_err(), "version after the segment's id");
    assert!(run.push(put(id(2), id(3))).is_err(), "born after its version");
    assert!(
        run.push(RecordRef::Tombstone { key: b"k", namespace: b"", oldest: id(4), newest: id(3) }).is_err()
    );
    assert!(run.is_empty());
    for bytes in [[1, 1, b'k', 0, 1, b'v', 1, 0], [1, 1, b'k', 0, 1, b'v', 5, 5]] {
        assert!(BlockRecords::new(&bytes, id(5)).next().unwrap().is_err(), "{bytes:?}");
    }
    assert!(BlockRecords::new(&[2, 1, b'k', 0, 2, 1], id(5)).next().unwrap().is_ok());
    assert!(BlockRecords::new(&[2, 1, b'k', 0, 1, 2], id(5)).next().unwrap().is_err(), "oldest after newest");
}

#[test]
fn a_value_longer_than_a_part_is_a_part_of_its_own() {
    let mut run = RecordRun::new(id(1), 10);
    for _ in 0..3 {
        run.push(RecordRef::Put { key: b"k", namespace: b"", value: &[0; 50], version: id(1), born: id(1) })
            .unwrap();
    }
    assert_eq!(run.parts().count(), 3);
}

#[test]
fn a_put_that_cannot_be_encoded_leaves_the_run_as_it_was() {
    let mut run = RecordRun::new(id(5), 100);
    let ids = PutIds { version: id(5), born: id(5) };
    let parts = |value| Parts { key: b"k", namespace: b"", value };
    assert!(run.put_if(&parts(Ok(b"v")), ids, |_| true).unwrap());
    let before = run.clone();
    assert!(run.put_if(&parts(Err("no")), ids, |_| true).is_err());
    assert!(run.put_if(&parts(Ok(b"v")), PutIds { version: id(6), ..ids }, |_| true).is_err());
    assert!(run.parts().eq(before.parts()));
    assert_eq!(run.len(), before.len(), "no part of a record is left behind");
    assert!(run.put_if(&parts(Err("clears")), ids, |_| true).is_err(), "a codec that takes bytes away");
}

#[test]
fn every_put_of_short_parts_is_a_short_one_but_the_last() {
    let (checkpoint, mut bytes) = (id(300), Vec::new());
    for version in [300, 300, 299, 299, 20, 300] {
        let (version, born) = (id(version), id(1));
        RecordRef::Put { key: &[1; 8], namespace: &[], value: &[2; 127], version, born }
            .encode(checkpoint, &mut bytes)
            .unwrap();
    }
    let mut records = BlockRecords::new(&bytes, checkpoint);
    assert_eq!(std::iter::from_fn(|| records.next_short_put()).count(), 5);
    assert_eq!(records.count(), 1);
}
