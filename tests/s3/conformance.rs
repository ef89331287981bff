//! What the protocol needs of a store.

use bytes::Bytes;
use futures::future::join_all;
use lowtide::{DecodeLimits, FileKind, ObjectClass, ObjectName, Store};
use lowtide_format::{CreateOutcome, ObjectPath, UploadId};

use crate::places;

fn data(number: u32) -> ObjectName {
    let upload = UploadId::from_parts(1_700_000_000_000, [7; 10]);
    ObjectPath::Data { upload, number, kind: FileKind::Segment }.name()
}

fn member(number: u64) -> ObjectName {
    ObjectPath::Sequence { number }.name()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creates_of_a_number_wins() {
    for place in places() {
        for number in 1..=5 {
            let creates = (0..16_u8).map(|writer| {
                let store = place.store.clone();
                async move { store.create(&member(number), Bytes::from(vec![writer; 64])).await }
            });
            let outcomes: Vec<_> = join_all(creates.map(tokio::spawn)).await;
            let created: Vec<usize> = outcomes
                .iter()
                .enumerate()
                .filter(|(_, outcome)| matches!(outcome, Ok(Ok(CreateOutcome::Created))))
                .map(|(writer, _)| writer)
                .collect();
            let there = place.store.get(&member(number), DecodeLimits::default()).await.unwrap();
            assert_eq!(created.len(), 1, "{}: writers {created:?} won number {number}", place.name);
            assert!(there.iter().all(|byte| usize::from(*byte) == created[0]), "{}", place.name);
        }
    }
}

#[tokio::test]
async fn ranges_are_read_from_the_middle_and_lengths_are_known() {
    for place in places() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        place.store.put_data(&data(1), Bytes::from(bytes.clone())).await.unwrap();
        let part = place.store.get_range(&data(1), 70_000..70_500).await.unwrap();
        assert_eq!(part, &bytes[70_000..70_500], "{}", place.name);
        assert_eq!(place.store.length(&data(1)).await.unwrap(), Some(100_000), "{}", place.name);
        assert_eq!(place.store.length(&data(2)).await.unwrap(), None, "{}", place.name);
        assert!(place.store.get_range(&data(1), 99_999..100_001).await.is_err(), "{}", place.name);
        let absent = place.store.get(&data(2), DecodeLimits::default()).await.unwrap_err();
        assert!(absent.is_not_found(), "{}: {absent}", place.name);
    }
}

#[tokio::test]
async fn a_large_object_goes_up_in_parts() {
    for place in places() {
        let bytes: Vec<u8> = (0..(18_u32 << 20)).map(|at| (at / 4_096) as u8).collect();
        place.store.put_data(&data(3), Bytes::from(bytes.clone())).await.unwrap();
        let limits = DecodeLimits { bytes_max: 64 << 20 };
        let there = place.store.get(&data(3), limits).await.unwrap();
        assert!(there == bytes, "{}: other bytes came back", place.name);
    }
}

#[tokio::test]
async fn listings_show_what_is_there_and_deletes_take_what_is_not() {
    for place in places() {
        let names: Vec<ObjectName> = (10..40).map(data).collect();
        for name in &names {
            place.store.put_data(name, Bytes::from_static(b"x")).await.unwrap();
        }
        let created = place.store.create(&member(99), Bytes::from_static(b"y")).await.unwrap();
        assert!(matches!(created, CreateOutcome::Created), "{}", place.name);
        assert_eq!(count(&place.store).await, names.len(), "{}", place.name);
        let gone = place.store.delete(&[names.clone(), vec![data(77)]].concat()).await;
        assert!(gone.failed.is_empty(), "{}: {:?}", place.name, gone.failed);
        assert_eq!(count(&place.store).await, 0, "{}", place.name);
        assert_eq!(place.store.list(ObjectClass::Sequence).await.unwrap().len(), 1, "{}", place.name);
    }
}

async fn count(store: &Store) -> usize {
    store.list(ObjectClass::Data).await.unwrap().len()
}
