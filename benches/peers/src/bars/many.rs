//! `get_many` and `update_many` of 64 keys beside the same keys one by one.
//!
//! u64 → u64, the same million random keys for both sides of each round.

use std::hint::black_box;

use super::Scale;
use super::access::Ours;
use crate::kinds::Numbers;
use crate::measure::{below, median, timed};
use crate::record::Record;

const VISITS: u64 = 1_000_000;
/// Keys of a call.
pub const BATCH: usize = 64;

/// Nanoseconds a key, of the two sides of each round.
#[derive(Default)]
pub struct Sides {
    /// Together.
    pub many: Vec<f64>,
    /// One by one.
    pub one: Vec<f64>,
    least: bool,
}

impl Sides {
    /// Of a program that does strictly less.
    #[must_use]
    pub fn least() -> Self {
        Self { least: true, ..Self::default() }
    }

    /// Prints the row.
    pub fn print(self, case: &str, entries: u64) {
        let (many, one) = (median(self.many), median(self.one));
        Record::new("many", &format!("{case}, {} M", entries as f64 / 1e6), (many / one, "ratio"))
            .at_most(0.5)
            .detail(format!("{many:.1} ns against {one:.1} ns a key"))
            .least(self.least)
            .print();
    }
}

/// Measures both.
pub fn run(scale: Scale) {
    let Scale { entries, rounds } = scale;
    let mut ours = Ours::<Numbers>::filled(entries);
    let (mut gets, mut updates) = (Sides::default(), Sides::default());
    for round in 0..rounds as u64 {
        let visits = round * VISITS..(round + 1) * VISITS;
        let keys: Vec<u64> = visits.map(|visit| below(visit, entries)).collect();
        let map = ours.backend.state(ours.state).expect("our state");
        let one = || {
            keys.iter().for_each(|key| {
                black_box(map.get(key));
            });
        };
        gets.one.push(timed(one).0 / VISITS as f64);
        let many = || {
            keys.chunks(BATCH).for_each(|keys| {
                map.get_many(keys, |_, value| {
                    black_box(value);
                });
            });
        };
        gets.many.push(timed(many).0 / VISITS as f64);
        let mut map = ours.backend.state_mut(ours.state).expect("our state");
        let many = || {
            for keys in keys.chunks(BATCH) {
                black_box(map.update_many(keys, |_, value| *value = value.wrapping_add(1)));
            }
        };
        updates.many.push(timed(many).0 / VISITS as f64);
        let one = || {
            for key in &keys {
                black_box(map.update(key, |value| *value = value.wrapping_add(1)));
            }
        };
        updates.one.push(timed(one).0 / VISITS as f64);
    }
    gets.print("get_many of 64 ÷ one by one", entries);
    updates.print("update_many of 64 ÷ one by one", entries);
}
