//! Compaction storms: checkpoints that carry far more than what changed, because compaction replaced old tables.
//!
//! Owns: when a checkpoint counts as a storm, and what the warning says.
//! Does not own: the figures (`snapshot`), the list of compactions (`local`).

use std::fmt;

/// One finished compaction, as the cause of new tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// State whose tables were merged.
    pub state: String,
    /// Why RocksDB ran it, in its own words.
    pub reason: String,
    /// Level the tables came from.
    pub from_level: i32,
    /// Level they went to.
    pub to_level: i32,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes written: these are new to the next checkpoint.
    pub output_bytes: u64,
}

/// What one checkpoint moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficFigures {
    /// Bytes of tables that were not in the base.
    pub new_bytes: u64,
    /// Bytes of all tables.
    pub live_bytes: u64,
    /// Encoded bytes of keys and values written since the last checkpoint.
    pub changed_bytes: u64,
    /// Compactions that ended since the last checkpoint, the largest output first.
    pub compactions: Vec<Compaction>,
}

impl TrafficFigures {
    /// Adds what another subtask moved for the same checkpoint.
    pub fn add(&mut self, other: Self) {
        let Self { new_bytes, live_bytes, changed_bytes, compactions } = other;
        self.new_bytes += new_bytes;
        self.live_bytes += live_bytes;
        self.changed_bytes += changed_bytes;
        self.compactions.extend(compactions);
        self.compactions.sort_by_key(|compaction| std::cmp::Reverse(compaction.output_bytes));
    }

    /// The compaction that wrote most, if one was seen.
    #[must_use]
    pub fn cause(&self) -> Option<&Compaction> {
        self.compactions.iter().max_by_key(|compaction| compaction.output_bytes)
    }

    /// New bytes per live byte; 0 if nothing is live.
    #[must_use]
    pub fn new_per_live(&self) -> f64 {
        ratio(self.new_bytes, self.live_bytes)
    }

    /// New bytes per changed byte; infinite if there is something new although nothing changed.
    #[must_use]
    pub fn new_per_changed(&self) -> f64 {
        if self.changed_bytes == 0 && self.new_bytes > 0 {
            f64::INFINITY
        } else {
            ratio(self.new_bytes, self.changed_bytes)
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// When a checkpoint counts as a storm: all three must be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StormOptions {
    /// At least this share of the live bytes is new.
    pub new_per_live_min: f64,
    /// At least this many times the changed bytes are new.
    pub new_per_changed_min: f64,
    /// Smaller checkpoints are never worth a warning.
    pub new_bytes_min: u64,
}

impl Default for StormOptions {
    /// Half of the state, four times the change, 1 MiB.
    fn default() -> Self {
        Self { new_per_live_min: 0.5, new_per_changed_min: 4.0, new_bytes_min: 1 << 20 }
    }
}

/// A checkpoint that carried far more than what changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Storm {
    /// New bytes per live byte.
    pub new_per_live: f64,
    /// New bytes per changed byte.
    pub new_per_changed: f64,
    /// Its new bytes.
    pub new_bytes: u64,
    /// The compaction that wrote most, if one was seen.
    pub cause: Option<Compaction>,
}

impl StormOptions {
    /// Judges a checkpoint that had a base. One without is as large as the state by its nature.
    #[must_use]
    pub fn judge(&self, figures: &TrafficFigures) -> Option<Storm> {
        let (new_per_live, new_per_changed) = (figures.new_per_live(), figures.new_per_changed());
        let reached = figures.new_bytes >= self.new_bytes_min
            && new_per_live >= self.new_per_live_min
            && new_per_changed >= self.new_per_changed_min;
        let cause = figures.cause().cloned();
        reached.then_some(Storm { new_per_live, new_per_changed, new_bytes: figures.new_bytes, cause })
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { new_per_live, new_per_changed, new_bytes, cause } = self;
        write!(
            f,
            "compaction storm: {new_bytes} new bytes, {:.0} % of the state, {new_per_changed:.1} times what changed",
            new_per_live * 100.0
        )?;
        if let Some(cause) = cause {
            write!(f, "; largest compaction: {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, reason, from_level, to_level, input_bytes, output_bytes } = self;
        write!(
            f,
            "state {state:?}, level {from_level} to {to_level}, {input_bytes} bytes to {output_bytes}, reason {reason}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compaction(state: &str, output_bytes: u64) -> Compaction {
        let (state, reason) = (state.to_owned(), "LevelMaxLevelSize".to_owned());
        Compaction { state, reason, from_level: 1, to_level: 2, input_bytes: output_bytes, output_bytes }
    }

    fn figures(new_bytes: u64, changed_bytes: u64) -> TrafficFigures {
        let compactions = vec![compaction("small", 10), compaction("large", 20)];
        TrafficFigures { new_bytes, live_bytes: 100 << 20, changed_bytes, compactions }
    }

    #[test]
    fn a_checkpoint_as_large_as_the_state_after_a_small_change_is_a_storm_that_names_its_cause() {
        let storm = StormOptions::default().judge(&figures(90 << 20, 1 << 20)).unwrap();
        assert_eq!(storm.cause.as_ref().unwrap().state, "large");
        let text = storm.to_string();
        assert!(text.contains("90 % of the state, 90.0 times what changed"), "{text}");
        assert!(text.contains("state \"large\", level 1 to 2"), "{text}");
    }

    #[test]
    fn a_large_change_and_a_small_checkpoint_are_no_storms() {
        assert_eq!(StormOptions::default().judge(&figures(90 << 20, 60 << 20)), None);
        assert_eq!(StormOptions::default().judge(&figures(40 << 20, 1 << 10)), None);
        let small = TrafficFigures { new_bytes: 1000, live_bytes: 1000, ..TrafficFigures::default() };
        assert_eq!(StormOptions::default().judge(&small), None);
    }

    #[test]
    fn what_subtasks_moved_adds_up_and_the_largest_compaction_of_all_is_the_cause() {
        let mut all = figures(10, 1);
        let other = TrafficFigures { compactions: vec![compaction("other", 30)], ..figures(5, 2) };
        all.add(other);
        assert_eq!((all.new_bytes, all.live_bytes, all.changed_bytes), (15, 200 << 20, 3));
        assert_eq!(all.cause().unwrap().state, "other");
        assert_eq!(all.compactions.iter().map(|one| one.output_bytes).collect::<Vec<_>>(), [30, 20, 10]);
    }

    #[test]
    fn new_tables_without_a_change_are_infinitely_many_per_change() {
        assert_eq!(figures(5, 0).new_per_changed(), f64::INFINITY);
        assert_eq!(TrafficFigures::default().new_per_changed(), 0.0);
    }
}
