//! `lowtide compare`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{lowtide, refuse, succeed, text};

/// A stream with every operation, in which most keys change and some go.
const OPERATIONS: &str =
    "P\ta\t1\nP\tb\t2\nP\tc\t3\nC\tone\nP\ta\t4\nD\tb\nC\ttwo\nX\nP\td\t5\nC\tthree\nD\tnever\nP\td\t6\n";

fn operations(directory: &Path) -> PathBuf {
    let file = directory.join("ops.tsv");
    fs::write(&file, OPERATIONS).unwrap();
    file
}

fn figures(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_flights_come_back_on_every_backend() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    let backends = "heap,heap-full,heap-full-every-4";
    let arguments =
        ["compare", "--limit", "3000", "--subtasks", "3", "--json", text(&json), "--backends", backends];
    let out = succeed(&arguments);
    let verified = out.lines().find(|line| line.contains("verified")).unwrap();
    assert_eq!(verified.matches("yes").count(), 3, "{out}");

    let figures = figures(&json);
    let summaries: Vec<_> = figures.iter().filter(|figures| figures["kind"] == "summary").collect();
    assert_eq!(summaries.len(), 3);
    for summary in summaries {
        assert_eq!(summary["verified"], true, "{summary}");
        assert_eq!(summary["events"], 3000);
        assert!(summary["restore_ms"].as_f64().unwrap() > 0.0);
    }
    let checkpoints = figures.iter().filter(|figures| figures["kind"] == "checkpoint").count();
    assert_eq!(checkpoints, 3 * 15);
}

#[test]
fn operations_come_back_and_every_byte_counted_as_written_is_in_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = operations(directory.path());
    let (dir, json) = (directory.path().join("out"), directory.path().join("figures.json"));
    let backends = ["--backends", "heap,heap-full", "--key-groups", "4", "--retain", "100"];
    let arguments = ["compare", "--ops", text(&file), "--dir", text(&dir), "--json", text(&json)];
    succeed(&[&arguments[..], &backends[..]].concat());
    let figures = figures(&json);
    for backend in ["heap", "heap-full"] {
        let of = |kind: &str| {
            let mut found =
                figures.iter().filter(|figures| figures["kind"] == kind && figures["backend"] == backend);
            let all: Vec<_> = found.by_ref().collect();
            all
        };
        let written: u64 = of("checkpoint")
            .iter()
            .map(|figures| figures["new_bytes"].as_u64().unwrap() - figures["meta_bytes"].as_u64().unwrap())
            .sum();
        let summary = of("summary").pop().unwrap();
        // Everything is retained; the savepoint that measures the final state comes on top.
        assert_eq!(written + summary["full_bytes"].as_u64().unwrap(), data_bytes(&dir.join(backend)));
        assert_eq!((summary["entries"].as_u64(), summary["verified"].as_bool()), (Some(1), Some(true)));
        assert_eq!(summary["checkpoints"], 4);
    }
}

fn data_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            bytes += data_bytes(&entry.path());
        } else if entry.path().components().any(|part| part.as_os_str() == "data") {
            bytes += metadata.len();
        }
    }
    bytes
}

#[test]
fn a_table_of_ones_own_is_compared_by_the_columns_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("table.csv");
    fs::write(&file, "city,day,rain\nOslo,1,3\nRome,1,0\nOslo,2,5\n").unwrap();
    let json = directory.path().join("figures.json");
    succeed(&["compare", "--csv", text(&file), "--key", "city", "--json", text(&json)]);
    let summary = figures(&json).pop().unwrap();
    assert_eq!((summary["entries"].as_u64(), summary["events"].as_u64()), (Some(2), Some(3)));
}

#[test]
fn incremental_checkpoints_write_a_fraction_of_full_ones() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    let spec = "n=5000,value=50,dist=hot,update=1%,checkpoints=30";
    succeed(&["compare", "--synthetic", spec, "--backends", "heap,heap-full", "--json", text(&json)]);
    let figures = figures(&json);
    let written = |backend: &str| {
        let mut summaries = figures.iter().filter(|figures| figures["kind"] == "summary");
        summaries.find(|summary| summary["backend"] == backend).unwrap()["written_bytes"].as_u64().unwrap()
    };
    assert!(written("heap") * 5 < written("heap-full"));
}

#[test]
fn a_report_is_written_where_it_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (file, report) = (operations(directory.path()), directory.path().join("report"));
    succeed(&["compare", "--ops", text(&file), "--report", text(&report), "--backends", "heap,heap-full"]);
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(report.join("pause.svg").exists());
}

#[test]
fn input_that_cannot_be_used_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad");
    fs::write(&file, "P\ta\t1\nP\tb\n").unwrap();
    let dir = directory.path().join("out");
    let message = refuse(&["compare", "--ops", text(&file), "--dir", text(&dir)]);
    assert!(message.ends_with("line 2: 2 fields, expected 3"), "{message}");
    assert!(!dir.exists(), "something was written for an input that is damaged");

    fs::write(&file, "a,b\n1,2\n").unwrap();
    let message = refuse(&["compare", "--csv", text(&file), "--key", "c"]);
    assert!(message.contains("has no column 'c'"), "{message}");
    let message = refuse(&["compare", "--ops", "no-such-file"]);
    assert!(message.contains("cannot read no-such-file"), "{message}");
    fs::write(&file, "").unwrap();
    let message = refuse(&["compare", "--ops", text(&file)]);
    assert!(message.ends_with("the input has no event"), "{message}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for arguments in [
        &["compare", "--backends", "heap,memory"][..],
        &["compare", "--backends", "heap,heap"],
        &["compare", "--ops", "a", "--data", "flights"],
        &["compare", "--csv", "a"],
        &["compare", "--synthetic", "n=none"],
        &["compare", "--checkpoint-every", "0"],
        &["compare", "--retain", "0"],
        &["compare", "--key-groups", "40000"],
        &["compare", "--key-groups", "2", "--subtasks", "3"],
    ] {
        refuse(arguments);
    }
}

#[test]
fn a_directory_with_anything_in_it_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("out");
    let file = operations(directory.path());
    let arguments = ["compare", "--ops", text(&file), "--dir", text(&dir), "--backends", "heap"];
    succeed(&arguments);
    let before = snapshot(&dir);
    let message = refuse(&arguments);
    assert!(message.contains("is not empty"), "{message}");
    assert_eq!(snapshot(&dir), before);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = operations(directory.path());
    // A file where a directory is wanted: nobody can write there, root included.
    let dir = file.join("out");
    let message = refuse(&["compare", "--ops", text(&file), "--dir", text(&dir)]);
    assert!(message.contains("cannot write to"), "{message}");
}

#[test]
fn figures_on_standard_output_are_lines_of_json_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let file = operations(directory.path());
    let output = lowtide(&["compare", "--ops", text(&file), "--backends", "heap", "--json", "-"]);
    assert!(output.status.success());
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.lines().count(), 5);
    assert!(out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{out}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("verified"));
}

/// Every file with its bytes.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}
