//! The arithmetic against numbers that two other implementations agree on, one in Java and one in Python.

use super::*;

#[test]
fn keys_and_loaded_values_are_those_of_the_other_implementations() {
    let keys = [0xe220_a839_7b1d_cdaf, 0x910a_2dec_8902_5cc1, 0x9758_35de_1c97_56ce, 0x1d0b_14e4_db01_8fed];
    let values = [0x4396_d60d_bd85_37af, 0x63a1_8318_3ed6_d2e0, 0x407a_9fa7_67c0_39cd, 0xc79f_e586_ba3e_05f6];
    assert_eq!([0, 1, 2, 3].map(key), keys);
    assert_eq!([0, 1, 2, 3].map(load_value), values);
}

const DRAWS: [u64; 8] = [
    0xbdd7_3226_2feb_6e95,
    0x28ef_e333_b266_f103,
    0x4752_6757_130f_9f52,
    0x581c_e1ff_0e4a_e394,
    0x09bc_585a_2448_23f2,
    0xde44_31fa_3c80_db06,
    0x37e9_671c_4537_6d5d,
    0xccf6_35ee_9e9e_2fa4,
];

#[test]
fn draws_and_what_they_choose_are_those_of_the_other_implementations() {
    let draws: Vec<u64> = Draws::new(42).take(8).collect();
    assert_eq!(draws, DRAWS);
    assert_eq!(update_value(DRAWS[0]), 0x0778_2989_815c_29e4);
    let n = 1_000_000;
    let chosen = DRAWS.map(|draw| uniform(draw, n));
    assert_eq!(chosen, [741_564, 159_910, 278_601, 344_190, 38_030, 868_228, 218_405, 800_631]);
    assert_eq!(DRAWS.map(zipf_rank), [35_525_160, 29, 608, 3_105, 1, 586_575_639, 133, 132_641_727]);
    let chosen = DRAWS.map(|draw| zipf(draw, n));
    assert_eq!(chosen, [420_525, 281_672, 853_457, 490_304, 966_620, 407_937, 154_144, 921_579]);
}

#[test]
fn a_hash_without_an_absolute_value_chooses_by_the_remainder_towards_the_floor() {
    // -2^63 = -9223372036854775808; floor mod 1000 is 192.
    assert_eq!((folded(i64::MIN, 1_000), folded(-7, 1_000), folded(1_007, 1_000)), (192, 7, 7));
}

#[test]
fn values_of_bytes_are_those_of_the_other_implementations() {
    let head = [0xc1, 0x5c, 0x02, 0x89, 0xec, 0x2d, 0x0a, 0x91, 0xce, 0x56];
    let random = Bytes100::make(1);
    assert_eq!((random.len(), &random[..10], &random[96..]), (100, &head[..], &[0xff, 0x8a, 0xad, 0xf8][..]));
    assert_eq!(Bytes100::fold(&random), Some(0x581a_85af_e59e_f5a3));
    let twice = Bytes100c::make(1);
    assert_eq!((twice.len(), &twice[..50]), (100, &twice[50..]));
    assert_eq!(&twice[..50], &random[..50]);
    assert_eq!(Bytes100c::fold(&twice), Some(0xe25b_c074_2673_63ae));
    assert_eq!(Bytes100::fold(&random[..99].to_vec()), None);
}

/// Ten rounds of seed 42.
fn rounds<T: Kind>(n: u64, choose: fn(u64, u64) -> u64, percent: u64) -> (u64, Vec<u64>) {
    let mut model = Model::new(n, 42);
    let distinct = (0..10).map(|_| model.round(n * percent / 100, choose).distinct).collect();
    (model.checksum::<T>(), distinct)
}

const UNIFORM_10: [u64; 10] = [95, 93, 96, 94, 96, 97, 97, 99, 96, 100];
const ZIPF_1: [u64; 10] = [10, 10, 9, 10, 10, 9, 10, 10, 10, 10];
const ZIPF_10: [u64; 10] = [89, 90, 90, 92, 93, 89, 81, 87, 88, 86];

#[test]
fn ten_rounds_on_a_thousand_keys_end_where_the_other_implementations_end() {
    let ends = |checksum, distinct: [u64; 10]| (checksum, distinct.to_vec());
    assert_eq!(rounds::<Long>(1_000, uniform, 1), ends(0xe455_1a67_e3d7_1bf6, [10; 10]));
    assert_eq!(rounds::<Long>(1_000, uniform, 10), ends(0x5164_2b4b_b5b5_2733, UNIFORM_10));
    assert_eq!(rounds::<Long>(1_000, zipf, 1), ends(0x0165_7cfd_b10d_4b00, ZIPF_1));
    assert_eq!(rounds::<Long>(1_000, zipf, 10), ends(0x2685_a6eb_08d4_9d2d, ZIPF_10));
    assert_eq!(rounds::<Bytes100>(1_000, uniform, 1), ends(0xdb9b_b400_16e6_d230, [10; 10]));
    assert_eq!(rounds::<Bytes100>(1_000, uniform, 10), ends(0xb363_9f3c_40dc_7256, UNIFORM_10));
    assert_eq!(rounds::<Bytes100>(1_000, zipf, 1), ends(0xf040_37e9_1dec_da21, ZIPF_1));
    assert_eq!(rounds::<Bytes100>(1_000, zipf, 10), ends(0x69ba_0cfb_8aed_46c4, ZIPF_10));
    assert_eq!(rounds::<Bytes100c>(1_000, uniform, 1), ends(0xd2f5_39f4_84c1_bd44, [10; 10]));
    assert_eq!(rounds::<Bytes100c>(1_000, uniform, 10), ends(0x9346_e713_96a6_8cca, UNIFORM_10));
    assert_eq!(rounds::<Bytes100c>(1_000, zipf, 1), ends(0xa44c_ee4b_79df_3d2d, ZIPF_1));
    assert_eq!(rounds::<Bytes100c>(1_000, zipf, 10), ends(0x2d0b_e20f_decb_0417, ZIPF_10));
}

#[test]
fn ten_rounds_on_a_million_keys_end_where_the_other_implementations_end() {
    let (checksum, distinct) = rounds::<Long>(1_000_000, zipf, 1);
    assert_eq!(checksum, 0x39b5_285f_eef5_d3f0);
    assert_eq!(distinct, [7_556, 7_503, 7_542, 7_574, 7_500, 7_521, 7_456, 7_570, 7_475, 7_521]);
    let (checksum, distinct) = rounds::<Bytes100>(1_000_000, uniform, 10);
    assert_eq!(checksum, 0x3158_ebce_713e_cd1f);
    assert_eq!(distinct, [95_155, 95_115, 95_209, 95_104, 95_243, 95_056, 95_142, 95_215, 95_087, 95_135]);
}
