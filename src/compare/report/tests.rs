//! The page and its charts: complete, self-contained, well-formed.

use super::*;
use crate::compare::{BackendName, Input};

fn comparison() -> Comparison {
    let names = ["heap", "heap-full", "a<b"];
    let checkpoints = |name: &str| {
        let factor = if name == "heap" { 1 } else { 40 };
        (1..=20_u64)
            .map(|id| CheckpointFigures {
                backend: name.to_owned(),
                checkpoint: id,
                pause_us: 3.0 + id as f64,
                new_bytes: 1_000 * factor + id * 37,
                live_bytes: 10_000,
                new_over_live: 0.1 * factor as f64,
                ..CheckpointFigures::default()
            })
            .collect::<Vec<_>>()
    };
    let summary = |name: &str| Summary {
        backend: name.to_owned(),
        verified: name != "a<b",
        density: 1.0,
        restore_ms: 12.0,
        written_bytes: checkpoints(name).iter().map(|figures| figures.new_bytes).sum(),
        access_us: vec![0.2, 0.1, 1.5],
        ..Summary::default()
    };
    Comparison {
        checkpoints: names.iter().flat_map(|name| checkpoints(name)).collect(),
        summaries: names.iter().map(|name| summary(name)).collect(),
    }
}

fn options() -> CompareOptions {
    CompareOptions {
        input: Input::Flights,
        backends: vec![BackendName::Heap],
        checkpoint_every: None,
        retain: std::num::NonZeroU32::MIN,
        key_groups: 128,
        subtasks: 1,
        directory: "unused".into(),
        limit: None,
        report: None,
    }
}

fn page() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    write(&comparison(), &options(), directory.path()).unwrap();
    let html = fs::read_to_string(directory.path().join(PAGE)).unwrap();
    (directory, html)
}

#[test]
fn the_page_needs_nothing_outside_itself() {
    let (_directory, html) = page();
    for outside in ["src=", "href=", "@import", "url(", "<script"] {
        assert!(!html.contains(outside), "the page contains {outside}");
    }
    assert!(html.contains("prefers-color-scheme"));
    // The name of an SVG namespace is an identifier; nothing is fetched.
    assert_eq!(html.matches("http").count(), html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
}

#[test]
fn every_chart_is_in_the_page_and_beside_it_with_a_curve_for_each_backend() {
    let (directory, html) = page();
    let charts = charts(&comparison());
    assert_eq!(html.matches("<svg").count(), charts.len());
    for chart in charts {
        let svg = fs::read_to_string(directory.path().join(chart.file_name())).unwrap();
        assert!(html.contains(svg.trim_end()), "{} differs from the page", chart.name);
        assert!(svg.contains("heap-full"), "{} has no legend for heap-full", chart.name);
        assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "{} is not well formed", chart.name);
    }
}

#[test]
fn names_are_escaped_and_a_backend_that_came_back_wrong_is_told_first() {
    let (_directory, html) = page();
    assert!(!html.contains("<b</"), "a name was taken for a tag");
    assert!(html.contains("Do not trust the rest: a&lt;b did not come back"));
}

#[test]
fn the_paragraph_tells_storms_with_their_cause_and_what_to_take_from_it() {
    let summary = |backend: &str, factor: f64| Summary {
        backend: backend.to_owned(),
        verified: true,
        entries: 10,
        updates_per_s: 1e6 / factor,
        pause_p99_us: 10.0 * factor,
        written_bytes: (1e6 * factor) as u64,
        new_over_live_max: 0.1 * factor,
        ..Summary::default()
    };
    let rocksdb = Summary { storms: 2, storm_cause: "a merge".to_owned(), ..summary("rocksdb", 9.0) };
    let text = words::paragraph(&[summary("heap", 1.0), rocksdb.clone()]);
    for part in [
        "no checkpoint of heap carried more than 10 % of the live state; the largest one of rocksdb carried 90 %",
        "2 of its checkpoints count as compaction storms",
        "the largest merge was a merge",
        "the heap is the cheaper one in access, pause and bytes",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let slow = Summary { updates_per_s: 1.0, ..summary("heap", 1.0) };
    assert!(words::paragraph(&[slow, rocksdb]).contains("has to decide"));
    let text = words::paragraph(&[summary("heap", 1.0), summary("heap-full", 9.0)]);
    assert!(text.ends_with("increments pay."), "{text}");
    assert!(!words::paragraph(&[summary("heap", 1.0)]).contains("increments"));
}

#[test]
fn charts_without_points_and_with_zeroes_are_drawn() {
    for scale in [Scale::Linear, Scale::Logarithmic, Scale::Bars] {
        for points in [vec![], vec![(1.0, 0.0)], vec![(0.0, 0.0), (1.0, 5.0)]] {
            let curves = vec![Curve { name: "heap".into(), points }];
            let chart = Chart { name: "c", title: "t", across: "a", up: "u", scale, curves };
            assert!(chart.draw().unwrap().starts_with("<svg"));
        }
    }
}

#[test]
fn no_text_of_a_chart_lies_on_the_same_text() {
    for step in 0..60 {
        let low = 0.01 * 1.3_f64.powi(step);
        for factor in [30.0, 700.0, 9_000.0] {
            let curves = vec![Curve { name: "c".to_owned(), points: vec![(0.0, low), (1.0, low * factor)] }];
            let (scale, name) = (Scale::Logarithmic, "n");
            let chart = Chart { name, title: "t", across: "a", up: "u", scale, curves };
            let svg = chart.draw().unwrap();
            let texts: Vec<&str> = svg.split("<text").skip(1).collect();
            let distinct: std::collections::HashSet<_> =
                texts.iter().filter_map(|text| text.split("</text>").next()).collect();
            assert_eq!(distinct.len(), texts.len(), "from {low} to {factor} times that");
        }
    }
}
