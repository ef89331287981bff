//! The comparison as a page: charts, table, settings, and what the figures mean.
//!
//! One self-contained HTML file that works offline, in light and dark, and the same charts as SVG files beside it.

mod chart;
mod machine;
mod page;
mod words;

use std::fs;
use std::io;
use std::path::Path;

use self::chart::{Chart, Curve, Scale};
use super::figures::{CheckpointFigures, Summary};
use super::{CompareOptions, Comparison};

/// Name of the page in the report's directory.
const PAGE: &str = "index.html";

/// Writes `index.html` and one SVG file a chart into a directory that is there. Files of these names are replaced, others
/// stay.
pub(super) fn write(comparison: &Comparison, options: &CompareOptions, directory: &Path) -> io::Result<()> {
    let charts = charts(comparison);
    let mut drawn = Vec::with_capacity(charts.len());
    for chart in &charts {
        let svg = chart.draw().map_err(io::Error::other)?;
        fs::write(directory.join(chart.file_name()), &svg)?;
        drawn.push((chart, svg));
    }
    fs::write(directory.join(PAGE), page::render(comparison, options, &drawn))
}

fn charts(comparison: &Comparison) -> Vec<Chart> {
    let by_checkpoint = |figure: fn(&CheckpointFigures, &Summary) -> f64| {
        let curve = |summary: &Summary| Curve {
            name: summary.backend.clone(),
            points: (1_u32..)
                .zip(of(comparison, summary))
                .map(|(ordinal, figures)| (f64::from(ordinal), figure(figures, summary)))
                .collect(),
        };
        comparison.summaries.iter().map(curve).collect::<Vec<_>>()
    };
    let by_rank = |values: fn(&CheckpointFigures) -> f64| {
        let curve = |summary: &Summary| Curve {
            name: summary.backend.clone(),
            points: ranked(of(comparison, summary).map(values).collect()),
        };
        comparison.summaries.iter().map(curve).collect::<Vec<_>>()
    };
    let bars = |figure: fn(&Summary) -> f64| {
        let bar =
            |summary: &Summary| Curve { name: summary.backend.clone(), points: vec![(0.0, figure(summary))] };
        comparison.summaries.iter().map(bar).collect::<Vec<_>>()
    };
    vec![
        Chart {
            name: "bytes-per-checkpoint",
            title: "Bytes written by each checkpoint",
            across: "checkpoint",
            up: "bytes",
            scale: Scale::Logarithmic,
            curves: by_checkpoint(|figures, _| figures.new_bytes as f64),
        },
        Chart {
            name: "new-over-live",
            title: "Share of the live state that each checkpoint wrote: storms stand out",
            across: "checkpoint",
            up: "written ÷ live",
            scale: Scale::Logarithmic,
            curves: by_checkpoint(|figures, _| figures.new_over_live),
        },
        Chart {
            name: "pause",
            title: "Pause: share of the checkpoints below",
            across: "per cent of the checkpoints",
            up: "µs",
            scale: Scale::Logarithmic,
            curves: by_rank(|figures| figures.pause_us),
        },
        Chart {
            name: "access",
            title: "Time of one event, all accesses included: share of the samples below",
            across: "per cent of the samples",
            up: "µs",
            scale: Scale::Logarithmic,
            curves: comparison
                .summaries
                .iter()
                .map(|summary| Curve {
                    name: summary.backend.clone(),
                    points: ranked(summary.access_us.clone()),
                })
                .collect(),
        },
        Chart {
            name: "retained",
            title: "Data in the directory ÷ live state",
            across: "checkpoint",
            up: "retained ÷ live",
            scale: Scale::Linear,
            curves: by_checkpoint(|figures, summary| figures.retained_over_live(summary.density)),
        },
        Chart {
            name: "restore",
            title: "Restore time",
            across: "",
            up: "ms",
            scale: Scale::Bars,
            curves: bars(|summary| summary.restore_ms),
        },
    ]
}

/// The checkpoints of one backend.
fn of<'a>(
    comparison: &'a Comparison,
    summary: &'a Summary,
) -> impl Iterator<Item = &'a CheckpointFigures> + use<'a> {
    comparison.checkpoints.iter().filter(|figures| figures.backend == summary.backend)
}

/// Values by the share of values that they are not below, in per cent.
fn ranked(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    (1_u32..).zip(values).map(|(rank, value)| (f64::from(rank) * 100.0 / count, value)).collect()
}

#[cfg(test)]
mod tests;
