//! The figures as a table for people: a row per figure, a column per backend.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use super::figures::Summary;
use super::units::{bytes, grouped, micros, millis, times};

/// Name of a figure, and its text.
pub(super) type Row = (&'static str, fn(&Summary) -> String);

const ROWS: [Row; 21] = [
    ("updates/s", |summary| grouped(summary.updates_per_s.round() as u64)),
    ("one event, p99", |summary| micros(summary.access_p99_us)),
    ("checkpoints", |summary| grouped(summary.checkpoints)),
    ("pause p50", |summary| micros(summary.pause_p50_us)),
    ("pause p99", |summary| micros(summary.pause_p99_us)),
    ("pause max", |summary| micros(summary.pause_max_us)),
    ("asynchronous time, mean", |summary| millis(summary.async_mean_ms)),
    ("bytes written", |summary| bytes(summary.written_bytes as f64)),
    ("  per checkpoint, mean", |summary| bytes(summary.written_mean_bytes)),
    ("  per checkpoint, largest", |summary| bytes(summary.written_largest_bytes as f64)),
    ("  rewritten", |summary| bytes(summary.rewritten_bytes as f64)),
    ("written ÷ changed", |summary| times(summary.written_over_changed)),
    ("largest ÷ delta", |summary| times(summary.largest_over_delta)),
    ("largest ÷ live", |summary| times(summary.new_over_live_max)),
    ("compaction storms", |summary| grouped(summary.storms)),
    ("retained ÷ live", |summary| times(summary.retained_over_live)),
    ("objects", |summary| grouped(summary.objects)),
    ("segments", |summary| grouped(summary.segments)),
    ("restore time", |summary| millis(summary.restore_ms)),
    ("entries", |summary| grouped(summary.entries)),
    ("verified", |summary| if summary.verified { "yes" } else { "no" }.to_owned()),
];

/// The rows of the table, for whoever lays it out differently.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    ROWS.into_iter()
}

/// Renders the summaries side by side.
pub(super) fn render(summaries: &[Summary]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    let names = summaries.iter().map(|summary| summary.backend.clone());
    table.set_header(std::iter::once(String::new()).chain(names));
    for (name, figure) in ROWS {
        table.add_row(std::iter::once(name.to_owned()).chain(summaries.iter().map(figure)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_a_column_and_says_whether_it_was_verified() {
        let summary = |name: &str, verified| Summary { backend: name.into(), verified, ..Summary::default() };
        let text = render(&[summary("heap", true), summary("heap-full", false)]);
        let verified = text.lines().find(|line| line.contains("verified")).unwrap();
        assert!(text.contains("heap-full"), "{text}");
        assert!(verified.contains("yes") && verified.contains("no"), "{verified}");
    }
}
