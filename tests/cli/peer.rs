//! `lowtide compare --peer`.

use std::fs;

use serde_json::Value;

use super::{lowtide, refuse, succeed, text};

const SPEC: &str = "n=1000,value=long,dist=zipf,upct=1,rounds=10,reps=2";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn values(lines: &[Value], phase: &str, metric: &str) -> Vec<Value> {
    let of_it = lines.iter().filter(|line| line["phase"] == phase && line["metric"] == metric);
    of_it.map(|line| line["value"].clone()).collect()
}

#[test]
fn ten_rounds_end_with_the_checksum_and_the_distinct_keys_of_the_other_implementations() {
    let lines = lines(&succeed(&["compare", "--peer", SPEC, "--backends", "heap"]));
    assert_eq!(values(&lines, "verify", "checksum"), ["01657cfdb10d4b00"; 2]);
    assert_eq!(values(&lines, "verify", "count"), [1000, 1000]);
    let distinct = [10, 10, 9, 10, 10, 9, 10, 10, 10, 10];
    assert_eq!(values(&lines, "update", "distinct_keys"), [distinct, distinct].concat());
}

#[test]
fn each_kind_of_value_comes_back_with_its_own_checksum() {
    for (spec, checksum) in [
        ("n=1000,value=bytes100,dist=uniform,upct=10,rounds=10,reps=1", "b3639f3c40dc7256"),
        ("n=1000,value=bytes100c,dist=zipf,upct=10,rounds=10,reps=1", "2d0be20fdecb0417"),
    ] {
        let lines = lines(&succeed(&["compare", "--peer", spec, "--backends", "heap,heap-full"]));
        assert_eq!(values(&lines, "verify", "checksum"), [checksum; 2]);
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_build_with_rocksdb_measures_both_backends_unless_told_otherwise() {
    let lines = lines(&succeed(&["compare", "--peer", SPEC]));
    assert_eq!(values(&lines, "verify", "checksum"), ["01657cfdb10d4b00"; 4]);
    assert_eq!(lines.last().unwrap()["backend"], "lowtide-rocksdb");
}

#[test]
fn every_line_of_a_round_has_the_fields_that_tables_are_made_of() {
    let lines = lines(&succeed(&["compare", "--peer", SPEC, "--backends", "heap"]));
    for line in &lines {
        assert_eq!(
            (&line["suite"], &line["backend"], &line["kind"]),
            (&"rounds".into(), &"lowtide-heap".into(), &"long".into())
        );
        assert_eq!(
            (&line["n"], &line["value_bytes"], &line["dist"]),
            (&1000.into(), &8.into(), &"zipf".into())
        );
        assert_eq!(line["upct"], 1.0);
        for field in ["flink", "jvm", "unit"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        assert!(line["load1"].is_number() && line["rep"].as_u64().unwrap() < 2, "{line}");
        assert!(line["value"].is_number() || line["metric"] == "checksum", "{line}");
    }
    for metric in ["sync_ms", "sync_cpu_ms", "async_ms", "async_cpu_ms", "confirm_ms", "checkpointed_bytes"] {
        assert_eq!(values(&lines, "ckpt", metric).len(), 22, "{metric}");
    }
    let positive =
        |phase, metric| values(&lines, phase, metric).iter().all(|value| value.as_f64().unwrap() > 0.0);
    for metric in ["new_file_bytes", "state_bytes", "retained_bytes", "sync_ms"] {
        assert!(positive("ckpt", metric), "{metric}");
    }
    assert!(
        positive("restore", "wall_ms") && positive("update", "ns_per_op") && positive("load", "ns_per_op")
    );
    // What the state's owner waits for is a part of the trigger.
    let (pauses, triggers) = (values(&lines, "ckpt", "sync_ms"), values(&lines, "ckpt", "trigger_ms"));
    assert_eq!(triggers.len(), pauses.len());
    let within =
        |(pause, trigger): (&serde_json::Value, &serde_json::Value)| pause.as_f64() < trigger.as_f64();
    assert!(pauses.iter().zip(&triggers).all(within), "{pauses:?} {triggers:?}");
    let checkpoints: Vec<_> =
        lines.iter().filter(|line| line["metric"] == "sync_ms" && line["rep"] == 0).collect();
    let numbers: Vec<_> = checkpoints.iter().map(|line| line["ckpt"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
}

#[test]
fn the_micro_suite_measures_each_operation() {
    let spec = "suite=micro,n=2000,ops=1000,reps=1,snapshots=2";
    let lines = lines(&succeed(&["compare", "--peer", spec, "--backends", "heap,heap-full"]));
    let phases = [
        "load",
        "get_hit",
        "get_miss",
        "update",
        "rmw",
        "update_same_keys_no_snapshot",
        "update_snapshot_held",
        "update_snapshot_running",
        "remove",
    ];
    for phase in phases {
        for metric in ["ns_per_op", "cpu_ns_per_op", "batch1000_max_us"] {
            assert_eq!(values(&lines, phase, metric).len(), 2, "{phase} {metric}");
        }
    }
    // The second of two incremental snapshots would be empty, so there is one; full ones are taken twice.
    assert_eq!(values(&lines, "snapshot", "checkpointed_bytes").len(), 3);
    assert!(lines.iter().all(|line| line["dist"].is_null() && line["suite"] == "micro"));
}

#[test]
fn figures_go_to_a_file_and_the_table_to_standard_output_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("peer.jsonl");
    let out = succeed(&["compare", "--peer", SPEC, "--backends", "heap", "--json", text(&file)]);
    assert!(out.contains("lowtide-heap") && out.contains("restore"), "{out}");
    assert_eq!(values(&lines(&fs::read_to_string(file).unwrap()), "verify", "count").len(), 2);
}

#[test]
fn figures_beside_another_engine_carry_its_labels() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("others.jsonl");
    fs::write(
        &file,
        "{\"suite\":\"rounds\",\"flink\":\"9.9\",\"jvm\":\"java-99,G9\",\"backend\":\"heap\"}\n",
    )
    .unwrap();
    let arguments = ["compare", "--peer", SPEC, "--backends", "heap", "--beside", text(&file)];
    let lines = lines(&succeed(&arguments));
    assert!(lines.iter().all(|line| line["flink"] == "9.9" && line["jvm"] == "java-99,G9"));
    fs::write(&file, "no figures\n").unwrap();
    let message = refuse(&arguments);
    assert!(message.contains("cannot read") && message.contains("others.jsonl"), "{message}");
}

#[test]
fn a_description_that_cannot_be_run_is_refused_with_the_part_named() {
    for (spec, part) in [
        ("n=0", "'n=0'"),
        ("n=many", "'n=many'"),
        ("value=string", "'value=string' is not one of long, bytes100, bytes100c"),
        ("dist=normal", "'dist=normal' is not one of uniform, zipf"),
        ("upct=0", "'upct=0'"),
        ("upct=101", "'upct=101'"),
        ("rounds=0", "'rounds=0'"),
        ("reps=x", "'reps=x'"),
        ("n", "'n' is not of the form name=value"),
        ("keys=1", "'keys=1' is unknown"),
        ("n=1,n=1", "'n=1' is given twice"),
    ] {
        let output = lowtide(&["compare", "--peer", spec]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{spec}: {message}");
        assert!(output.stdout.is_empty() && message.contains(part), "{spec}: {message}");
    }
}

#[test]
fn options_of_other_inputs_are_refused_beside_a_peer_measurement() {
    for option in [
        &["--limit", "5"][..],
        &["--key-groups", "4"],
        &["--subtasks", "2"],
        &["--retain", "2"],
        &["--checkpoint-every", "5"],
        &["--report", "page"],
        &["--data", "flights"],
        &["--synthetic", "n=5"],
        &["--backends", "heap,heap"],
        &["--backends", "memory"],
    ] {
        refuse(&[&["compare", "--peer", SPEC], option].concat());
    }
    refuse(&["compare", "--beside", "figures.jsonl"]);
}

#[test]
fn a_directory_with_anything_in_it_is_refused_and_one_that_was_empty_is_empty_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("out");
    succeed(&["compare", "--peer", SPEC, "--backends", "heap", "--dir", text(&dir)]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    fs::write(dir.join("somebodys"), "").unwrap();
    let message = refuse(&["compare", "--peer", SPEC, "--backends", "heap", "--dir", text(&dir)]);
    assert!(message.contains("is not empty"), "{message}");
}
