use proptest::prelude::*;

use super::*;
use crate::codec::{AutoCodec, Codec, DecodeLimits};
use crate::compression::Compression;
use crate::error::{FormatError, FormatErrorKind};
use crate::ids::CheckpointId;
use crate::key_group::{KeyGroup, KeyGroupCount, KeyGroupSet};
use crate::record::{Clear, RecordRef};
use crate::state::{StateDescriptor, StateKind};

type Owned = (u16, u16, Vec<u8>, Option<Vec<u8>>);

fn id(id: u64) -> CheckpointId {
    CheckpointId::new(id).unwrap()
}

fn all_groups() -> KeyGroupSet {
    KeyGroupCount::new(KeyGroupCount::MAX).unwrap().all().into()
}

fn states(count: usize) -> Vec<StateDescriptor> {
    let describe = |at| StateDescriptor {
        name: format!("state-{at}"),
        kind: StateKind::Value,
        key: Codec::<String>::identity(&AutoCodec),
        namespace: Codec::<()>::identity(&AutoCodec),
        value: Codec::<u64>::identity(&AutoCodec),
    };
    (0..count).map(describe).collect()
}

fn options(compression: Compression, block_bytes: usize) -> SegmentOptions {
    SegmentOptions { compression, block_bytes }
}

/// A segment of `groups` × 3 states × `keys` records, every fifth a tombstone, with two clears.
fn segment(groups: u16, keys: u16, options: SegmentOptions) -> (FinishedSegment, Vec<Owned>) {
    let mut writer = SegmentWriter::new(id(9), states(3), options).unwrap();
    let mut expected = Vec::new();
    for group in 0..groups {
        for state in 0..3 {
            let mut run = writer.new_run();
            for key in 0..keys {
                let name = format!("key-{group}-{key}").into_bytes();
                let value = (key % 5 != 4).then(|| u64::from(key).to_le_bytes().to_vec());
                run.push(match &value {
                    Some(value) => {
                        RecordRef::Put { key: &name, namespace: b"", value, version: id(8), born: id(3) }
                    }
                    None => RecordRef::Tombstone { key: &name, namespace: b"", oldest: id(2), newest: id(7) },
                })
                .unwrap();
                expected.push((group, state, name, value));
            }
            writer.append(KeyGroup(group), state, &run).unwrap();
        }
    }
    writer.clear(Clear { state: 1, namespace: None, key_groups: all_groups() }).unwrap();
    writer.clear(Clear { state: 2, namespace: Some(b"w".to_vec()), key_groups: KeyGroupSet::new() }).unwrap();
    (writer.finish().unwrap(), expected)
}

fn read(file: &[u8], key_groups: &KeyGroupSet) -> Result<(Vec<Owned>, Vec<Clear>), FormatError> {
    let reader = SegmentReader::open(file, DecodeLimits::default())?;
    reader.verify(file)?;
    let mut records = Vec::new();
    reader.visit::<FormatError>(file, key_groups, |run, record| {
        let (key, value) = match record {
            RecordRef::Put { key, value, .. } => (key, Some(value.to_vec())),
            RecordRef::Tombstone { key, .. } => (key, None),
        };
        records.push((run.key_group.0, run.state, key.to_vec(), value));
        Ok(())
    })?;
    Ok((records, reader.footer().clears().to_vec()))
}

#[test]
fn a_segment_survives_with_any_block_size_and_compression() {
    for compression in [Compression::None, Compression::default(), Compression::Zstd { level: 19 }] {
        for block_bytes in [1, 64, 500, 1 << 16] {
            let (finished, expected) = segment(7, 11, options(compression, block_bytes));
            let (records, clears) = read(&finished.bytes, &all_groups()).unwrap();
            assert_eq!(records, expected, "{compression:?}, {block_bytes}");
            assert_eq!(clears.len(), 2);
            let puts = expected.iter().filter(|record| record.3.is_some()).count() as u64;
            assert_eq!(finished.summary.totals.puts, puts);
            assert_eq!(finished.summary.totals.tombstones, expected.len() as u64 - puts);
            assert_eq!(finished.summary.totals.span, Some(VersionSpan { oldest: id(8), newest: id(8) }));
            assert_eq!(finished.summary.length, finished.bytes.len() as u64);
        }
    }
}

#[test]
fn only_the_blocks_of_the_wanted_key_groups_are_read() {
    let (finished, expected) = segment(20, 10, options(Compression::None, 400));
    let wanted: KeyGroupSet = [KeyGroup(3), KeyGroup(17)].into_iter().collect();
    let (records, _) = read(&finished.bytes, &wanted).unwrap();
    let all = expected.into_iter().filter(|record| [3, 17].contains(&record.0)).collect::<Vec<_>>();
    assert_eq!(records, all);
    let reader = SegmentReader::open(&finished.bytes, DecodeLimits::default()).unwrap();
    let bytes: u64 = reader.footer().blocks_of(&wanted).map(|block| block.stored_length).sum();
    assert!(bytes < finished.bytes.len() as u64 / 4, "{bytes} of {}", finished.bytes.len());
}

#[test]
fn many_small_groups_cost_less_than_ten_bytes_each_beside_their_records() {
    let mut writer = SegmentWriter::new(id(1), states(4), SegmentOptions::default()).unwrap();
    let mut raw = 0;
    for group in 0..128 {
        for state in 0..4 {
            let mut run = writer.new_run();
            for record in 0..2_u64 {
                // Keys that do not compress, so that what is left is overhead.
                let key = crate::xxh3(&(u64::from(group) * 8 + u64::from(state) * 2 + record).to_le_bytes());
                let key = key.to_le_bytes();
                let put =
                    RecordRef::Put { key: &key, namespace: b"", value: b"v", version: id(1), born: id(1) };
                run.push(put).unwrap();
            }
            raw += run.len() as u64;
            writer.append(KeyGroup(group), state, &run).unwrap();
        }
    }
    let finished = writer.finish().unwrap();
    assert!(finished.summary.length < raw + 512 * 10, "{} for {raw} record bytes", finished.summary.length);
}

#[test]
fn a_footer_can_be_read_from_the_end_of_the_file() {
    let (finished, _) = segment(20, 10, options(Compression::None, 400));
    let length = finished.bytes.len();
    let end = |bytes: u64| finished.bytes.slice(length - bytes as usize..);
    let limits = DecodeLimits::default();
    let first = SegmentReader::from_tail(&end(SegmentTrailer::LENGTH as u64), length as u64, limits).unwrap();
    let SegmentTail::Incomplete { bytes } = first else { panic!("the footer is longer than nothing") };
    let SegmentTail::Complete(reader) = SegmentReader::from_tail(&end(bytes), length as u64, limits).unwrap()
    else {
        panic!("{bytes} bytes were asked for")
    };
    reader.check_summary(&finished.summary).unwrap();
    let mut decoder = reader.block_decoder();
    let entry = reader.footer().blocks()[1];
    let stored = finished.bytes.slice(entry.offset as usize..(entry.offset + entry.stored_length) as usize);
    let block = decoder.decode(&entry, &stored).unwrap();
    assert!(block.runs().iter().all(|run| block.records(run).all(|record| record.is_ok())));
}

#[test]
fn another_segment_of_the_same_length_is_noticed_by_its_trailer() {
    let value = |value: u8| {
        let mut writer = SegmentWriter::new(id(1), states(1), SegmentOptions::default()).unwrap();
        let value = [value];
        let put = RecordRef::Put { key: b"k", namespace: b"", value: &value, version: id(1), born: id(1) };
        writer.append_records(KeyGroup(0), 0, [put]).unwrap();
        writer.finish().unwrap()
    };
    let (one, two) = (value(1), value(2));
    assert_eq!(one.bytes.len(), two.bytes.len());
    let reader = SegmentReader::open(&two.bytes, DecodeLimits::default()).unwrap();
    assert!(reader.check_summary(&one.summary).is_err());
    assert!(reader.check_summary(&two.summary).is_ok());
}

#[test]
fn runs_out_of_order_and_unknown_states_are_not_written() {
    let mut writer = SegmentWriter::new(id(2), states(2), SegmentOptions::default()).unwrap();
    let put = RecordRef::Put { key: b"k", namespace: b"", value: b"v", version: id(1), born: id(1) };
    writer.append_records(KeyGroup(3), 1, [put]).unwrap();
    for (group, state) in [(3, 1), (3, 0), (2, 1), (4, 2)] {
        let error = writer.append_records(KeyGroup(group), state, [put]).unwrap_err();
        assert_eq!(error.kind(), FormatErrorKind::InvalidArgument, "{group}, {state}");
    }
    let mut other = crate::RecordRun::new(id(1), 100);
    other.push(put).unwrap();
    assert!(writer.append(KeyGroup(5), 0, &other).is_err(), "another checkpoint");
    assert!(writer.clear(Clear { state: 2, namespace: None, key_groups: KeyGroupSet::new() }).is_err());
    assert_eq!(read(&writer.finish().unwrap().bytes, &all_groups()).unwrap().0.len(), 1);
}

#[test]
fn a_run_handed_over_in_pieces_makes_the_same_file() {
    for (compression, records) in
        [(Compression::None, 200_u64), (Compression::default(), 200), (Compression::None, 1)]
    {
        let made = |settles_every: u64| {
            let buffers = SegmentBuffers::default();
            let options = options(compression, 300);
            let mut writer = SegmentWriter::with_buffers(id(9), states(2), options, &buffers).unwrap();
            for (group, state) in [(0, 0), (0, 1), (5, 0)] {
                let mut run = writer.new_run();
                for record in 0..records {
                    let key = record.to_le_bytes();
                    let value = vec![7; record as usize % 90];
                    run.push(RecordRef::Put {
                        key: &key,
                        namespace: b"",
                        value: &value,
                        version: id(9),
                        born: id(1),
                    })
                    .unwrap();
                    if record % settles_every == 0 {
                        writer.append_settled(KeyGroup(group), state, &mut run).unwrap();
                    }
                }
                writer.append(KeyGroup(group), state, &run).unwrap();
                assert!(writer.append(KeyGroup(group), state, &run).is_err(), "a run that has ended goes on");
            }
            writer.finish().unwrap()
        };
        let whole = made(u64::MAX);
        for settles_every in [1, 3, 50] {
            let pieces = made(settles_every);
            assert_eq!(
                (&pieces.bytes, pieces.summary),
                (&whole.bytes, whole.summary),
                "every {settles_every}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_every_cut_and_every_tail_is_refused() {
    for compression in [Compression::None, Compression::default()] {
        let (finished, _) = segment(5, 7, options(compression, 300));
        let good = finished.bytes.to_vec();
        assert!(read(&good, &all_groups()).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad, &all_groups()).is_err(), "bit {bit} of {} went unnoticed", good.len() * 8);
        }
        for length in 0..good.len() {
            assert!(read(&good[..length], &all_groups()).is_err(), "cut to {length}");
        }
        assert!(read(&[good.as_slice(), &[0]].concat(), &all_groups()).is_err());
    }
}

#[test]
fn a_newer_version_is_incompatible_not_corrupt() {
    let (finished, _) = segment(1, 1, options(Compression::None, 300));
    let mut newer = finished.bytes.to_vec();
    newer[4] = 2;
    assert_eq!(read(&newer, &all_groups()).unwrap_err().kind(), FormatErrorKind::Incompatible);
    let mut newer = finished.bytes.to_vec();
    let version = newer.len() - 10;
    newer[version] = 2;
    assert_eq!(read(&newer, &all_groups()).unwrap_err().kind(), FormatErrorKind::Incompatible);
}

/// Decodes an index of one block with these runs.
fn index_of(runs: &[(u16, u16)]) -> Result<index::Index, FormatError> {
    let totals = RecordTotals {
        puts: 1,
        put_bytes: 8,
        span: Some(VersionSpan { oldest: id(1), newest: id(1) }),
        ..RecordTotals::default()
    };
    let run =
        |(group, state): &(u16, u16)| Run { key_group: KeyGroup(*group), state: *state, offset: 0, totals };
    let block = BlockEntry {
        offset: HEADER_LENGTH,
        stored_length: 8,
        raw_length: 8,
        checksum: 0,
        packing: crate::compression::Packing::Plain,
        first_run: 0,
        run_count: runs.len(),
    };
    let made = index::Index { blocks: vec![block], runs: runs.iter().map(run).collect() };
    let mut bytes = Vec::new();
    made.encode(id(1), &mut bytes);
    index::Index::decode(&mut crate::cursor::Cursor::new("index", &bytes), id(1), DecodeLimits::default())
}

#[test]
fn an_index_whose_runs_do_not_ascend_is_refused() {
    assert_eq!(index_of(&[(1, 0), (1, 1), (2, 0)]).unwrap().runs.len(), 3);
    assert!(index_of(&[(1, 1), (1, 1)]).is_err(), "twice in one block");
    assert!(index_of(&[(1, 1), (1, 0)]).is_err());
    assert!(index_of(&[]).is_err(), "an empty block");
}

#[test]
fn a_set_of_key_groups_has_one_spelling() {
    let read = |bytes: &[u8]| {
        take_key_groups(&mut crate::cursor::Cursor::new("test", bytes), DecodeLimits::default())
    };
    let set: KeyGroupSet = [0, 1, 5, 6, 7].into_iter().map(KeyGroup).collect();
    let mut bytes = Vec::new();
    put_key_groups(&mut bytes, &set);
    assert_eq!(bytes, [2, 0, 1, 3, 2]);
    assert_eq!(read(&bytes).unwrap(), set);
    assert!(read(&[2, 0, 1, 0, 2]).is_err(), "two ranges that would be one");
    assert!(read(&[1, 0xff, 0xff, 3, 1]).is_err(), "past the last number");
}

#[test]
fn a_footer_that_refers_to_a_state_it_does_not_list_is_refused() {
    let forge = |state_of_run, state_of_clear| {
        let totals = RecordTotals { tombstones: 1, tombstone_bytes: 5, ..RecordTotals::default() };
        let run = Run { key_group: KeyGroup(0), state: state_of_run, offset: 0, totals };
        let block = BlockEntry {
            offset: HEADER_LENGTH,
            stored_length: 5,
            raw_length: 5,
            checksum: 0,
            packing: crate::compression::Packing::Plain,
            first_run: 0,
            run_count: 1,
        };
        let clear = Clear { state: state_of_clear, namespace: None, key_groups: KeyGroupSet::new() };
        let index = index::Index { blocks: vec![block], runs: vec![run] };
        let footer = SegmentFooter::new(id(1), states(1), vec![clear], index).encode().unwrap();
        let mut tail = footer.clone();
        SegmentTrailer {
            checkpoint: id(1),
            footer_offset: HEADER_LENGTH + 5,
            footer_length: footer.len() as u64,
            checksum: 0,
            footer_raw_length: footer.len() as u64,
            footer_packing: crate::compression::Packing::Plain,
            footer_checksum: crc32c::crc32c(&footer),
        }
        .encode(&mut tail);
        let length = HEADER_LENGTH + 5 + tail.len() as u64;
        SegmentReader::from_tail(&tail, length, DecodeLimits::default())
    };
    assert!(forge(0, 0).is_ok());
    assert!(forge(1, 0).is_err());
    assert!(forge(0, 1).is_err());
}

#[test]
fn a_gap_between_blocks_and_footer_is_refused() {
    let (finished, _) = segment(2, 3, options(Compression::None, 300));
    let file = &finished.bytes;
    let trailer = SegmentTrailer::decode(file, file.len() as u64).unwrap();
    let start = trailer.footer_offset as usize;
    let footer = &file[start..file.len() - SegmentTrailer::LENGTH];
    for gap in [0, 1] {
        let mut forged = [&file[..start], [7].repeat(gap).as_slice(), footer].concat();
        SegmentTrailer { footer_offset: (start + gap) as u64, ..trailer }.encode(&mut forged);
        assert_eq!(read(&forged, &all_groups()).is_ok(), gap == 0);
    }
}

proptest! {
    #[test]
    fn hostile_footers_behind_a_sound_checksum_never_panic(
        raw in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((0_usize..2000, any::<u8>()), 0..4),
    ) {
        let (finished, _) = segment(3, 4, options(Compression::None, 100));
        let file = &finished.bytes;
        let trailer = SegmentTrailer::decode(file, file.len() as u64).unwrap();
        let start = trailer.footer_offset as usize;
        let mut footer = file[start..file.len() - SegmentTrailer::LENGTH].to_vec();
        for (at, byte) in &flips {
            let at = at % footer.len();
            footer[at] = *byte;
        }
        if flips.is_empty() {
            footer = raw;
        }
        let mut forged = file[..start].to_vec();
        forged.extend_from_slice(&footer);
        SegmentTrailer {
            footer_length: footer.len() as u64,
            footer_raw_length: footer.len() as u64,
            footer_checksum: crc32c::crc32c(&footer),
            ..trailer
        }
        .encode(&mut forged);
        let limits = DecodeLimits { bytes_max: 1 << 20 };
        if let Ok(reader) = SegmentReader::open(&forged, limits) {
            let _ = reader.verify(&forged);
            let _ = reader.visit::<FormatError>(&forged, &all_groups(), |_, _| Ok(()));
        }
    }
}
