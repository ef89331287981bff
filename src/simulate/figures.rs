//! The figures of a simulation: one row per checkpoint, and what they come to.

use lowtide_format::CheckpointId;
use serde::Serialize;

/// What one checkpoint wrote and left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointFigures {
    /// Encoded bytes of the delta: puts, tombstones and clears.
    pub delta_bytes: u64,
    /// Encoded bytes of rewritten puts.
    pub rewritten_bytes: u64,
    /// Encoded bytes of the segments that were copied into a common object.
    pub packed_bytes: u64,
    /// Puts of the delta.
    pub puts: u64,
    /// Rewritten puts.
    pub rewritten: u64,
    /// Tombstones written.
    pub tombstones: u64,
    /// Live tombstones in the chain.
    pub tombstones_live: u64,
    /// Clears written.
    pub clears: u64,
    /// Record bytes of the listed segments.
    pub retained_bytes: u64,
    /// Record bytes of the live puts.
    pub live_bytes: u64,
    /// Listed segments.
    pub segments: u64,
    /// Listed objects: each segment begins in one of its own.
    pub objects: u64,
    /// Bytes in these objects that nothing lists.
    pub waste_bytes: u64,
    /// Completed checkpoints newer than the oldest listed segment, this one left out.
    pub age_max: u32,
    /// Segments that this checkpoint let go, with the sum of their lives in checkpoints.
    pub gone: u64,
    /// Sum of the lives of these, in checkpoints.
    pub gone_life: u64,
    /// Entries looked at to find those of the victims.
    pub looks: u64,
    /// Entries of the map.
    pub entries: u64,
    /// Bounds that the budget did not allow to keep.
    pub unmet: u64,
}

impl CheckpointFigures {
    /// Encoded bytes of all records written, copies among them.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.delta_bytes + self.rewritten_bytes + self.packed_bytes
    }

    /// Retained ÷ live; live bytes below one delta count as one delta.
    #[must_use]
    pub fn space(&self) -> f64 {
        self.retained_bytes as f64 / self.live_bytes.max(self.delta_bytes).max(1) as f64
    }
}

/// What a simulation comes to. Means are taken after the warm-up, peaks from the first checkpoint on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulateReport {
    /// Bytes written ÷ bytes changed: what rewriting and packing add to the deltas.
    pub write_amplification: f64,
    /// Mean of retained ÷ live.
    pub space_mean: f64,
    /// Peak of retained ÷ live.
    pub space_peak: f64,
    /// The largest checkpoint ÷ the mean delta, the first checkpoint left out.
    pub largest_per_delta: f64,
    /// Mean number of segments listed.
    pub segments_mean: f64,
    /// Largest number of segments listed.
    pub segments_peak: u64,
    /// Largest number of objects listed.
    pub objects_peak: u64,
    /// Bytes copied into common objects ÷ bytes changed.
    pub packed_share: f64,
    /// Most bytes in the listed objects that nothing lists ÷ bytes listed.
    pub waste_peak: f64,
    /// Largest age of a listed segment, in completed checkpoints, after the warm-up.
    pub age_peak: u32,
    /// Bytes of the manifests' listings ÷ bytes of records written.
    pub listing_share: f64,
    /// How often each entry is looked at, during the mean life of a segment, to find those of the victims.
    pub looks_per_life: f64,
    /// Mean life of a segment in checkpoints.
    pub life_mean: f64,
    /// Tombstones written, from the first checkpoint on.
    pub tombstones: u64,
    /// Keys removed that the base may hold, from the first checkpoint on.
    pub removed: u64,
    /// Most live tombstones in any chain.
    pub tombstones_live_peak: u64,
    /// Clears written, from the first checkpoint on.
    pub clears: u64,
    /// Checkpoints after the warm-up at which a bound was not kept.
    pub unmet: u64,
}

/// Sums the rows up.
pub(super) fn report(
    rows: &[CheckpointFigures],
    warmup: usize,
    listing_bytes: u64,
    removed: u64,
) -> SimulateReport {
    let warm = rows.get(warmup..).unwrap_or_default();
    let sum = |figure: fn(&CheckpointFigures) -> u64| warm.iter().map(figure).sum::<u64>() as f64;
    let count = warm.len().max(1) as f64;
    let delta = sum(|row| row.delta_bytes).max(1.0);
    let written = sum(CheckpointFigures::written_bytes).max(1.0);
    let life_mean = sum(|row| row.gone_life) / sum(|row| row.gone).max(1.0);
    let peak = |figure: fn(&CheckpointFigures) -> u64| rows.iter().map(figure).max().unwrap_or(0);
    let largest = rows.iter().skip(1).map(CheckpointFigures::written_bytes).max().unwrap_or(0);
    let looks = sum(|row| row.looks) / sum(|row| row.entries).max(1.0);
    SimulateReport {
        write_amplification: written / delta,
        space_mean: warm.iter().map(CheckpointFigures::space).sum::<f64>() / count,
        space_peak: rows.iter().map(CheckpointFigures::space).fold(0.0, f64::max),
        largest_per_delta: largest as f64 / (delta / count),
        segments_mean: sum(|row| row.segments) / count,
        segments_peak: peak(|row| row.segments),
        objects_peak: peak(|row| row.objects),
        packed_share: sum(|row| row.packed_bytes) / delta,
        waste_peak: rows
            .iter()
            .map(|row| row.waste_bytes as f64 / row.retained_bytes.max(1) as f64)
            .fold(0.0, f64::max),
        age_peak: warm.iter().map(|row| row.age_max).max().unwrap_or(0),
        listing_share: sum(|row| row.segments) * listing_bytes as f64 / written,
        looks_per_life: looks * life_mean,
        life_mean,
        tombstones: rows.iter().map(|row| row.tombstones).sum(),
        removed,
        tombstones_live_peak: peak(|row| row.tombstones_live),
        clears: rows.iter().map(|row| row.clears).sum(),
        unmet: warm.iter().filter(|row| row.unmet > 0).count() as u64,
    }
}

/// Sum of the lives of segments written by these checkpoints that go with checkpoint `id`.
pub(super) fn lives(gone: &[CheckpointId], id: CheckpointId) -> u64 {
    gone.iter().map(|written| id.get() - written.get()).sum()
}
