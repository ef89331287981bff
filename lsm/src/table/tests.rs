use super::*;
use proptest::prelude::*;

/// A table as RocksDB lays it out, with nothing in it but what is read here.
fn table(version: u32, database: &str, number: u64) -> Vec<u8> {
    let mut file = vec![0xaa; 100];
    let properties = block(&[
        (b"rocksdb.creating.db.identity", database.as_bytes()),
        (b"rocksdb.creating.session.identity", b"SESSION"),
        (b"rocksdb.deleted.keys", &leb(2)),
        (b"rocksdb.num.entries", &leb(1000)),
        (b"rocksdb.original.file.number", &leb(number)),
    ]);
    let handle = [leb(file.len() as u64), leb(properties.len() as u64)].concat();
    file.extend(properties);
    file.extend([0; 5]);
    let metaindex = block(&[(b"fullfilter", b""), (b"rocksdb.properties", &handle)]);
    let (at, size) = (file.len() as u64, metaindex.len() as u32);
    file.extend(metaindex);
    file.extend([0; 5]);
    let mut footer = vec![4];
    if version < 6 {
        footer.extend([leb(at), leb(u64::from(size)), leb(0), leb(0)].concat());
    } else {
        footer.extend([&EXTENDED_MAGIC[..], &[0; 8], &size.to_le_bytes()].concat());
    }
    footer.resize(41, 0);
    footer.extend(version.to_le_bytes());
    footer.extend(MAGIC.to_le_bytes());
    file.extend(footer);
    file
}

fn leb(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn block(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (mut out, mut last): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
    for &(key, value) in entries {
        let shared = key.iter().zip(last).take_while(|(a, b)| a == b).count();
        out.extend([leb(shared as u64), leb((key.len() - shared) as u64), leb(value.len() as u64)].concat());
        out.extend([&key[shared..], value].concat());
        last = key;
    }
    out.extend([0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat());
    out
}

#[test]
fn identity_and_counts_are_read_from_every_table_format() {
    for version in [2, 5, 6, 7] {
        let found = TableProperties::of_bytes(&table(version, "DB", 300)).unwrap();
        assert_eq!(found.identity.to_string(), "DB/SESSION/300", "format {version}");
        assert_eq!((found.records, found.deletions), (1000, 2), "format {version}");
    }
}

#[test]
fn a_table_without_a_unique_id_is_refused() {
    let error = TableProperties::of_bytes(&table(6, "", 1)).unwrap_err();
    assert_eq!(error.to_string(), "table footer is damaged: its unique id is no text");
}

#[test]
fn a_cut_table_and_other_bytes_are_refused() {
    let good = table(6, "DB", 1);
    for length in 0..good.len() {
        assert!(TableProperties::of_bytes(&good[..length]).is_err(), "cut to {length}");
    }
    assert!(TableProperties::of_bytes(&[0; 200]).is_err());
}

proptest! {
    #[test]
    fn damaged_tables_never_panic(version in prop_oneof![Just(5_u32), Just(6), Just(8)], changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = table(version, "DB", 1);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = TableProperties::of_bytes(&bytes);
    }
}
