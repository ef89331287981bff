//! The figures that people look at first, a row per engine.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use super::line::{Line, LineValue};
use crate::compare::units::{bytes, micros, millis};

/// Medians of what was seen, by engine.
#[derive(Clone, Debug, Default)]
pub struct PeerSummary {
    engines: Vec<(String, Vec<(Column, f64)>)>,
}

/// What a column shows: of which phase, which metric; the first checkpoint of an engine is no part of it.
type Column = (&'static str, &'static str);

/// A column, what it is called, and how its figures are printed.
type Shown = (Column, &'static str, fn(f64) -> String);

const COLUMNS: [Shown; 9] = [
    (("get_hit", "ns_per_op"), "get", nanos),
    (("update", "ns_per_op"), "update", nanos),
    (("snapshot", "sync_ms"), "pause", pause),
    (("snapshot", "async_ms"), "writing", millis),
    (("ckpt", "sync_ms"), "pause", pause),
    (("ckpt", "async_ms"), "writing", millis),
    (("ckpt", "new_file_bytes"), "bytes", bytes),
    (("restore", "wall_ms"), "restore", millis),
    (("verify", "count"), "verified", |_count| "yes".to_owned()),
];

fn nanos(nanos: f64) -> String {
    format!("{nanos:.0} ns")
}

fn pause(millis: f64) -> String {
    micros(millis * 1e3)
}

impl PeerSummary {
    pub(super) fn add(&mut self, line: &Line) {
        let LineValue::Number(value) = line.value else { return };
        let column = (line.phase, line.metric);
        let is_first = line.phase == "ckpt" && line.ckpt == Some(1);
        if is_first || COLUMNS.iter().all(|(known, ..)| *known != column) {
            return;
        }
        match self.engines.last_mut() {
            Some((name, figures)) if *name == line.backend => figures.push((column, value)),
            _ => self.engines.push((line.backend.clone(), vec![(column, value)])),
        }
    }

    /// As a table: medians over repetitions, and over the checkpoints after the first.
    #[must_use]
    pub fn table(&self) -> String {
        let is_seen = |column: &Column| {
            self.engines.iter().flat_map(|(_, figures)| figures).any(|(seen, _)| seen == column)
        };
        let columns: Vec<_> = COLUMNS.iter().filter(|(column, ..)| is_seen(column)).collect();
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
        table.set_header(std::iter::once("").chain(columns.iter().map(|(_, name, _)| *name)));
        for (name, figures) in &self.engines {
            let cells = columns.iter().map(|(column, _, show)| {
                let of_it = figures.iter().filter(|(seen, _)| seen == column).map(|(_, value)| *value);
                median(of_it.collect()).map_or_else(String::new, show)
            });
            table.add_row(std::iter::once(name.clone()).chain(cells));
        }
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table.to_string()
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
