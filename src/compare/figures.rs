//! The figures of a comparison: one record per checkpoint, one summary per backend.
//!
//! Bytes come from the counting store and from listing the directory, times from a clock outside the
//! engine, entries and changes from the model; only what no observer can see (records, tombstones,
//! rewritten entries) is told by the engine.
//!
//! Ratios are in one unit. What changed and what is live is known in bytes before encoding and compression,
//! what was written and is retained in stored bytes. The *density* links the two: the stored size of
//! the final state, written once as a whole, divided by its bytes before encoding. The first checkpoint
//! is left out of ratios that speak of a delta, because every backend writes it in full.

use std::time::Duration;

use serde::Serialize;

/// What one checkpoint cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckpointFigures {
    /// Name of the backend.
    pub backend: String,
    /// Checkpoint id.
    pub checkpoint: u64,
    /// Events since the checkpoint before.
    pub events: u64,
    /// Time of the synchronous phase on all subtasks, in microseconds.
    pub pause_us: f64,
    /// Time from the end of the pause to the completion, in milliseconds.
    pub async_ms: f64,
    /// Bytes written, manifests and coordinator objects included.
    pub new_bytes: u64,
    /// Of these, bytes of objects that hold no state.
    pub meta_bytes: u64,
    /// Bytes of the data objects in the directory that this checkpoint did not write.
    pub referenced_bytes: u64,
    /// Bytes in the directory after the checkpoint.
    pub stored_bytes: u64,
    /// Objects in the directory after the checkpoint.
    pub objects: u64,
    /// Records written: puts, rewritten ones included.
    pub records: u64,
    /// Tombstones written.
    pub tombstones: u64,
    /// Entries written again to empty an old segment.
    pub rewritten: u64,
    /// Encoded bytes of those entries.
    pub rewritten_bytes: u64,
    /// Records set aside because they were changed before they were written.
    pub set_aside: u64,
    /// Segments that the manifest lists.
    pub segments: u64,
    /// Keys changed since the checkpoint before, each once.
    pub changed_keys: u64,
    /// Bytes of those keys and their values, before encoding.
    pub changed_bytes: u64,
    /// Entries at the checkpoint.
    pub entries: u64,
    /// Bytes of those entries, before encoding.
    pub live_bytes: u64,
    /// Bytes written ÷ stored bytes of the live state. A checkpoint of an incremental backend that comes near 1 is a storm.
    pub new_over_live: f64,
    /// Bytes written ÷ stored bytes of what changed; zero if nothing changed.
    pub new_over_changed: f64,
    /// Whether the backend itself says that it was a compaction storm. Only RocksDB knows of them.
    pub storm: bool,
    /// The largest compaction since the checkpoint before, in words; empty if there was none.
    pub cause: String,
}

impl CheckpointFigures {
    /// Fills in what can be told only once it is known how densely the state is stored.
    pub(super) fn relate(&mut self, density: f64) {
        self.new_over_live = ratio(self.new_bytes as f64, self.live_bytes as f64 * density);
        self.new_over_changed = ratio(self.new_bytes as f64, self.changed_bytes as f64 * density);
    }

    /// Data bytes in the directory ÷ stored bytes of the live state; zero if nothing is live.
    pub fn retained_over_live(&self, density: f64) -> f64 {
        let data_bytes = self.referenced_bytes + self.new_bytes - self.meta_bytes;
        ratio(data_bytes as f64, self.live_bytes as f64 * density)
    }
}

/// How one backend did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Name of the backend.
    pub backend: String,
    /// Events fed.
    pub events: u64,
    /// Events per second while feeding, checkpoints not counted.
    pub updates_per_s: f64,
    /// Median time of one event fed alone, in microseconds.
    pub access_p50_us: f64,
    /// 99th percentile of these times, in microseconds.
    pub access_p99_us: f64,
    /// The times themselves, one of some hundred events each, in microseconds.
    #[serde(skip)]
    pub access_us: Vec<f64>,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Median pause in microseconds.
    pub pause_p50_us: f64,
    /// 99th percentile of the pauses in microseconds.
    pub pause_p99_us: f64,
    /// Longest pause in microseconds.
    pub pause_max_us: f64,
    /// Mean asynchronous time of a checkpoint in milliseconds.
    pub async_mean_ms: f64,
    /// Longest asynchronous time of a checkpoint in milliseconds.
    pub async_max_ms: f64,
    /// Bytes written by all checkpoints.
    pub written_bytes: u64,
    /// Bytes written per checkpoint, mean.
    pub written_mean_bytes: f64,
    /// Bytes written by the largest checkpoint.
    pub written_largest_bytes: u64,
    /// Bytes of manifests and coordinator objects ÷ all bytes written.
    pub meta_over_written: f64,
    /// Bytes before encoding of the keys that changed, over all checkpoints.
    pub changed_bytes: u64,
    /// Stored bytes of the final state written as a whole.
    pub full_bytes: u64,
    /// Stored bytes per byte before encoding, of the final state.
    pub density: f64,
    /// Bytes written ÷ stored bytes of what changed, without the first checkpoint.
    pub written_over_changed: f64,
    /// Largest checkpoint after the first ÷ stored bytes of the mean change.
    pub largest_over_delta: f64,
    /// Highest share of the live state that a checkpoint after the first wrote: bytes written ÷ stored bytes of the live state.
    pub new_over_live_max: f64,
    /// Checkpoints that the backend itself calls compaction storms.
    pub storms: u64,
    /// The largest compaction before the largest of them, in words; empty if there was none.
    pub storm_cause: String,
    /// Data bytes in the directory at the end ÷ stored bytes of the final state.
    pub retained_over_live: f64,
    /// The same at its highest, over all checkpoints.
    pub retained_over_live_max: f64,
    /// Encoded bytes of entries written again to empty old segments.
    pub rewritten_bytes: u64,
    /// Objects in the directory at the end.
    pub objects: u64,
    /// Segments that the last manifest lists.
    pub segments: u64,
    /// Time of the restore into a fresh process state, in milliseconds.
    pub restore_ms: f64,
    /// Entries that the model expects.
    pub entries: u64,
    /// Whether the restored state is the model, entry by entry, both ways.
    pub verified: bool,
    /// Entries that differ, are missing or should not be there.
    pub mismatches: u64,
}

/// What a trial measures besides its checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Time spent feeding.
    pub(super) feeding: Duration,
    /// Times of single events, in microseconds.
    pub(super) access_us: Vec<f64>,
    /// Stored data bytes of the final state written as a whole.
    pub(super) full_bytes: u64,
    /// Data bytes and objects in the directory at the end.
    pub(super) retained_bytes: u64,
    pub(super) objects: u64,
    pub(super) restore: Duration,
    pub(super) entries: u64,
    pub(super) mismatches: u64,
}

impl Summary {
    /// Sums up a trial. With no checkpoint every figure that needs one is zero.
    pub(super) fn of(backend: &str, checkpoints: &[CheckpointFigures], mut measured: Measured) -> Self {
        let mut pauses: Vec<f64> = checkpoints.iter().map(|figures| figures.pause_us).collect();
        pauses.sort_by(f64::total_cmp);
        measured.access_us.sort_by(f64::total_cmp);
        let sum = |of: fn(&CheckpointFigures) -> u64| checkpoints.iter().map(of).sum::<u64>();
        let events = sum(|figures| figures.events);
        let written_bytes = sum(|figures| figures.new_bytes);
        let count = checkpoints.len() as f64;
        let live_bytes = checkpoints.last().map_or(0, |figures| figures.live_bytes);
        let density = match live_bytes {
            0 => 1.0,
            _ => measured.full_bytes as f64 / live_bytes as f64,
        };
        let ratios = Ratios::of(checkpoints, density);
        Self {
            backend: backend.to_owned(),
            events,
            updates_per_s: ratio(events as f64, measured.feeding.as_secs_f64()),
            access_p50_us: percentile(&measured.access_us, 0.50),
            access_p99_us: percentile(&measured.access_us, 0.99),
            access_us: measured.access_us,
            checkpoints: checkpoints.len() as u64,
            pause_p50_us: percentile(&pauses, 0.50),
            pause_p99_us: percentile(&pauses, 0.99),
            pause_max_us: percentile(&pauses, 1.0),
            async_mean_ms: ratio(checkpoints.iter().map(|figures| figures.async_ms).sum(), count),
            async_max_ms: checkpoints.iter().map(|figures| figures.async_ms).fold(0.0, f64::max),
            written_bytes,
            written_mean_bytes: ratio(written_bytes as f64, count),
            written_largest_bytes: checkpoints.iter().map(|figures| figures.new_bytes).max().unwrap_or(0),
            meta_over_written: ratio(sum(|figures| figures.meta_bytes) as f64, written_bytes as f64),
            changed_bytes: sum(|figures| figures.changed_bytes),
            full_bytes: measured.full_bytes,
            density,
            written_over_changed: ratios.written_over_changed,
            largest_over_delta: ratios.largest_over_delta,
            new_over_live_max: ratios.new_over_live_max,
            storms: sum(|figures| u64::from(figures.storm)),
            storm_cause: cause_of_the_largest(checkpoints),
            retained_over_live: ratio(measured.retained_bytes as f64, measured.full_bytes as f64),
            retained_over_live_max: ratios.retained_over_live_max,
            rewritten_bytes: sum(|figures| figures.rewritten_bytes),
            objects: measured.objects,
            segments: checkpoints.last().map_or(0, |figures| figures.segments),
            restore_ms: measured.restore.as_secs_f64() * 1e3,
            entries: measured.entries,
            verified: measured.mismatches == 0,
            mismatches: measured.mismatches,
        }
    }
}

/// Ratios between what was written or kept and what changed or lives.
struct Ratios {
    written_over_changed: f64,
    largest_over_delta: f64,
    new_over_live_max: f64,
    retained_over_live_max: f64,
}

impl Ratios {
    fn of(checkpoints: &[CheckpointFigures], density: f64) -> Self {
        let deltas = checkpoints.get(1..).unwrap_or_default();
        let written: u64 = deltas.iter().map(|figures| figures.new_bytes).sum();
        let largest = deltas.iter().map(|figures| figures.new_bytes).max().unwrap_or(0);
        let changed = deltas.iter().map(|figures| figures.changed_bytes).sum::<u64>() as f64 * density;
        let mut related = deltas.to_vec();
        related.iter_mut().for_each(|figures| figures.relate(density));
        let retained_over_live = checkpoints.iter().map(|figures| figures.retained_over_live(density));
        Self {
            written_over_changed: ratio(written as f64, changed),
            largest_over_delta: ratio(largest as f64, changed / deltas.len() as f64),
            new_over_live_max: related.iter().map(|figures| figures.new_over_live).fold(0.0, f64::max),
            retained_over_live_max: retained_over_live.fold(0.0, f64::max),
        }
    }
}

/// Why the largest checkpoint after the first was large, if the backend knows.
fn cause_of_the_largest(checkpoints: &[CheckpointFigures]) -> String {
    let largest = checkpoints.iter().skip(1).max_by_key(|figures| figures.new_bytes);
    largest.map_or_else(String::new, |figures| figures.cause.clone())
}

/// A quotient; zero where it makes no sense, so that the figures stay numbers.
fn ratio(numerator: f64, denominator: f64) -> f64 {
    let ratio = numerator / denominator;
    if ratio.is_finite() { ratio } else { 0.0 }
}

/// The smallest value that at least `share` of the sorted values do not exceed; zero of none.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(new_bytes: u64, changed_bytes: u64) -> CheckpointFigures {
        CheckpointFigures { new_bytes, changed_bytes, live_bytes: 1_000, events: 10, ..Default::default() }
    }

    #[test]
    fn ratios_leave_out_the_first_checkpoint_and_count_in_stored_bytes() {
        let checkpoints = [checkpoint(5_000, 1_000), checkpoint(60, 100), checkpoint(90, 100)];
        let measured = Measured { full_bytes: 500, retained_bytes: 750, ..Default::default() };
        let summary = Summary::of("heap", &checkpoints, measured);
        assert_eq!(summary.density, 0.5);
        assert_eq!(summary.written_over_changed, 1.5);
        assert_eq!(summary.largest_over_delta, 1.8);
        assert_eq!(summary.retained_over_live, 1.5);
        assert_eq!((summary.written_bytes, summary.written_largest_bytes), (5_150, 5_000));
    }

    #[test]
    fn a_storm_is_counted_and_its_share_and_cause_are_those_of_the_largest_checkpoint_after_the_first() {
        let mut checkpoints = [checkpoint(5_000, 1_000), checkpoint(400, 100), checkpoint(90, 100)];
        (checkpoints[1].storm, checkpoints[1].cause) = (true, "a large merge".to_owned());
        checkpoints[2].cause = "a small merge".to_owned();
        let measured = Measured { full_bytes: 500, ..Default::default() };
        let summary = Summary::of("rocksdb", &checkpoints, measured);
        assert_eq!((summary.storms, summary.storm_cause.as_str()), (1, "a large merge"));
        assert_eq!(summary.new_over_live_max, 0.8);
        checkpoints[1].relate(summary.density);
        assert_eq!((checkpoints[1].new_over_live, checkpoints[1].new_over_changed), (0.8, 8.0));
    }

    #[test]
    fn a_percentile_is_the_smallest_value_that_covers_its_share() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 100.0);
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&[7.0], 0.5), 7.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_trial_without_checkpoints_has_numbers_everywhere() {
        let summary = Summary::of("heap", &[], Measured::default());
        let text = serde_json::to_string(&summary).unwrap();
        assert!(!text.contains("null"), "{text}");
    }
}
