use super::*;

fn codec(name: &str) -> CodecIdentity {
    CodecIdentity::new(name, 1, "u64")
}

pub(crate) fn table(local_name: &str, smallest: &[u8], largest: &[u8]) -> TableMeta {
    TableMeta {
        local_name: local_name.to_owned(),
        state: 0,
        level: 6,
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        sequence: (1, 9),
        entries: 10,
        deletions: 2,
        length: 1000,
        checksum: 77,
        identity: ("db".to_owned(), "session".to_owned(), 12),
    }
}

fn example() -> CheckpointMeta {
    let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(3)).unwrap();
    example_of(range, vec![table("000012.sst", &[0, 1, 1, 9], &[0, 3, 1, 9])])
}

pub(crate) fn example_of(range: KeyGroupRange, tables: Vec<TableMeta>) -> CheckpointMeta {
    let [key, namespace, value] = [codec("k"), codec("n"), codec("v")];
    CheckpointMeta {
        checkpoint: CheckpointId::new(42).unwrap(),
        key_groups: KeyGroupCount::new(128).unwrap(),
        range,
        states: vec![StateDescriptor { name: "s".to_owned(), kind: StateKind::Value, key, namespace, value }],
        tables,
        files: vec![SmallFile { name: "CURRENT".to_owned(), bytes: b"MANIFEST-000005\n".to_vec() }],
    }
}

fn decode(bytes: &[u8]) -> Result<CheckpointMeta, FormatError> {
    CheckpointMeta::decode(bytes, DecodeLimits::default())
}

#[test]
fn a_table_list_reads_as_it_was_written() {
    let bytes = example().encode().unwrap();
    assert_eq!(decode(&bytes).unwrap(), example());
}

#[test]
fn every_single_bit_flip_and_every_cut_is_refused() {
    let good = example().encode().unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad).is_err(), "bit {bit} went unnoticed");
    }
    for length in 0..good.len() {
        assert!(decode(&good[..length]).is_err(), "cut to {length} bytes");
    }
}

#[test]
fn a_newer_version_is_incompatible_not_corrupt() {
    let mut bytes = example().encode().unwrap();
    bytes[4] = 9;
    assert_eq!(decode(&bytes).unwrap_err().kind(), lowtide_format::FormatErrorKind::Incompatible);
}

#[test]
fn a_file_name_that_leads_out_of_the_directory_is_refused() {
    for name in ["../x", "a/b", "", ".."] {
        let mut meta = example();
        meta.tables[0].local_name = name.to_owned();
        assert!(decode(&meta.encode().unwrap()).is_err(), "{name:?} as a table");
        let mut meta = example();
        meta.files[0].name = name.to_owned();
        assert!(decode(&meta.encode().unwrap()).is_err(), "{name:?} as a file");
    }
}

#[test]
fn a_range_of_groups_beyond_their_number_and_a_table_of_no_state_are_refused() {
    let mut meta = example();
    meta.range = KeyGroupRange::new(KeyGroup(0), KeyGroup(128)).unwrap();
    assert!(decode(&meta.encode().unwrap()).is_err());
    let mut meta = example();
    meta.tables[0].state = 1;
    assert!(decode(&meta.encode().unwrap()).is_err());
}

#[test]
fn a_claimed_length_beyond_the_limit_is_refused_before_it_is_allocated() {
    let bytes = example().encode().unwrap();
    let error = CheckpointMeta::decode(&bytes, DecodeLimits { bytes_max: 10 }).unwrap_err();
    assert_eq!(error.kind(), lowtide_format::FormatErrorKind::LimitExceeded);
}

#[test]
fn the_end_of_a_range_deletion_does_not_count_as_a_key_group() {
    let groups = |table: TableMeta| (table.key_groups().start().0, table.key_groups().end().0);
    assert_eq!(groups(table("a", &[0, 2, 1, 9], &[0, 4, 0])), (2, 4), "an entry of group 4");
    assert_eq!(groups(table("a", &[0, 2], &[0, 4])), (2, 3), "a deletion of groups 2 and 3");
    assert_eq!(groups(table("a", &[0, 0], &[0, 0])), (0, 0));
}
