use proptest::prelude::*;

use super::*;

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
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
