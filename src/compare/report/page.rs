//! The page itself: one HTML file without anything outside it.

use super::chart::Chart;
use super::{machine, words};
use crate::compare::table::rows;
use crate::compare::{CompareOptions, Comparison, Input, NOTES};

const STYLE: &str = "\
:root{color-scheme:light dark;--back:#fdfdfc;--ink:#1d1d1f;--soft:#6b6b70;--line:#dcdcde;--good:#1d7a46;--bad:#c0392b}\
@media(prefers-color-scheme:dark){:root{--back:#17181a;--ink:#e8e8ea;--soft:#a0a0a6;--line:#37383c;--good:#5cc98d;--bad:#ff7a6b}}\
body{background:var(--back);color:var(--ink);font:16px/1.55 system-ui,sans-serif;max-width:52rem;margin:2.5rem auto;padding:0 1.25rem}\
h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.15rem;margin-top:2.2rem}p.notes{color:var(--soft);font-size:.85rem}\
div.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.3rem .8rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}td.yes{color:var(--good)}td.no{color:var(--bad);font-weight:600}\
svg{width:100%;height:auto;margin:.6rem 0}dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}\
dt{color:var(--soft)}dd{margin:0}";

/// Renders the page around the drawn charts.
pub(super) fn render(
    comparison: &Comparison,
    options: &CompareOptions,
    charts: &[(&Chart, String)],
) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.push_str(&format!("<title>lowtide compare</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"));
    html.push_str("<h1>lowtide compare</h1>\n");
    html.push_str(&format!("<p>{}</p>\n", escaped(&words::paragraph(&comparison.summaries))));
    html.push_str(&format!("<div class=\"wide\">\n{}</div>\n", table(comparison)));
    let notes = NOTES.lines().map(escaped).collect::<Vec<_>>().join("<br>");
    html.push_str(&format!("<p class=\"notes\">{notes}</p>\n<h2>Charts</h2>\n"));
    for (chart, svg) in charts {
        html.push_str(&format!("<figure id=\"{}\" style=\"margin:0\">\n{svg}\n</figure>\n", chart.name));
    }
    html.push_str("<h2>Settings</h2>\n<dl>\n");
    for (name, value) in settings(options) {
        html.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(&value)));
    }
    html.push_str("</dl>\n</body>\n</html>\n");
    html
}

fn table(comparison: &Comparison) -> String {
    let mut html = String::from("<table>\n<tr><th></th>");
    for summary in &comparison.summaries {
        html.push_str(&format!("<th>{}</th>", escaped(&summary.backend)));
    }
    html.push_str("</tr>\n");
    for (name, figure) in rows() {
        html.push_str(&format!("<tr><td>{}</td>", escaped(name)));
        for summary in &comparison.summaries {
            let value = figure(summary);
            let class =
                if value == "yes" || value == "no" { format!(" class=\"{value}\"") } else { String::new() };
            html.push_str(&format!("<td{class}>{}</td>", escaped(&value)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

fn settings(options: &CompareOptions) -> Vec<(&'static str, String)> {
    let cadence = match options.cadence().every {
        Some(events) => format!("every {events} events"),
        None => "where the input says".to_owned(),
    };
    let input = match &options.input {
        Input::Flights => "departures from New York, January 2013 (three states)".to_owned(),
        Input::Table { file, key } => format!("{}, key {}", file.display(), key.join(", ")),
        Input::Operations { file } => file.display().to_string(),
        Input::Synthetic(synthetic) => synthetic.to_string(),
    };
    vec![
        ("input", input),
        ("checkpoints", cadence),
        ("retained", options.retain.to_string()),
        ("key groups", options.key_groups.to_string()),
        ("subtasks", options.subtasks.to_string()),
        ("store", "local disk, every file and directory synced".to_owned()),
        ("machine", machine::description()),
        ("lowtide", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Text with the characters that HTML takes for its own replaced.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
