//! `lowtide inspect`, `verify`, `sweep`, `savepoint`: commands on a directory of checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{lowtide, refuse, succeed, text};

/// A directory with the checkpoints of two backends, and a savepoint in each.
fn checkpoints() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("out");
    let spec = "n=400,value=30,dist=hot,update=5%,checkpoints=4";
    let shape = ["--subtasks", "2", "--key-groups", "8", "--retain", "2"];
    let arguments =
        ["compare", "--synthetic", spec, "--dir", text(&dir), "--backends", "heap,heap-full-every-3"];
    succeed(&[&arguments[..], &shape[..]].concat());
    (directory, dir)
}

fn files(directory: &Path, folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, folder));
        } else if path.components().any(|part| part.as_os_str() == folder) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn inspect_accounts_for_every_data_object_and_every_entry() {
    let (_directory, dir) = checkpoints();
    let found: Value = serde_json::from_str(&succeed(&["inspect", text(&dir), "--json"])).unwrap();
    let jobs = found["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    let listed: usize = jobs.iter().map(|job| job["files"].as_array().unwrap().len()).sum();
    assert_eq!(listed, files(&dir, "data").len());
    for job in jobs {
        let checkpoints = job["checkpoints"].as_array().unwrap();
        assert_eq!(checkpoints.len(), 3, "two retained checkpoints and a savepoint");
        for checkpoint in checkpoints {
            assert_eq!(checkpoint["entries"], 400);
            assert_eq!(checkpoint["subtasks"].as_array().unwrap().len(), 2);
        }
    }
}

#[test]
fn inspect_shows_checkpoints_chains_and_segments_to_people() {
    let (_directory, dir) = checkpoints();
    let out = succeed(&["inspect", text(&dir)]);
    for part in ["savepoint", "subtask 1", "chain", "chk-5", "400 entries", "listed by"] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
}

#[test]
fn inspect_shows_what_is_sound_beside_what_is_damaged() {
    let (_directory, dir) = checkpoints();
    let manifest = files(&dir.join("heap"), "meta").remove(0);
    let mut bytes = fs::read(&manifest).unwrap();
    bytes.pop();
    fs::write(&manifest, bytes).unwrap();
    let member = files(&dir.join("heap-full-every-3"), "seq").pop().unwrap();
    fs::write(&member, b"nonsense").unwrap();

    let output = lowtide(&["inspect", text(&dir)]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    for damaged in [name(&manifest), name(&member)] {
        let named = |line: &str| line.contains("cannot be shown: corrupt") && line.contains(&damaged);
        assert!(out.lines().any(named), "{damaged} is not in\n{out}");
    }
    assert_eq!(out.matches("400 entries in").count(), 2, "the other checkpoints\n{out}");
    assert!(!out.contains("sweep"), "nobody knows what the damaged ones list\n{out}");

    let output = lowtide(&["inspect", text(&dir), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let faults: Vec<usize> =
        found["jobs"].as_array().unwrap().iter().map(|job| job["faults"].as_array().unwrap().len()).collect();
    assert_eq!(faults, [1, 1]);
}

#[test]
fn commands_that_look_neither_make_directories_nor_take_anything_for_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = directory.path().join("nothing");
    for command in [&["inspect"][..], &["verify"], &["sweep"], &["savepoint", "list"]] {
        refuse(&[command, &[text(&nothing)]].concat());
        assert!(!nothing.exists(), "{command:?} made a directory");
        let message = refuse(&[command, &[text(directory.path())]].concat());
        assert!(message.contains("no checkpoints"), "{message}");
    }
}

#[test]
fn verify_reads_everything_and_says_so_by_checkpoint() {
    let (_directory, dir) = checkpoints();
    let out = succeed(&["verify", text(&dir)]);
    assert_eq!(out.lines().filter(|line| line.contains(" ok entries=400 ")).count(), 6, "{out}");
}

#[test]
fn a_flipped_bit_a_lost_end_and_a_byte_too_many_are_found_in_any_data_object_and_named() {
    let (_directory, dir) = checkpoints();
    let flip: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    };
    for file in files(&dir, "data") {
        let good = fs::read(&file).unwrap();
        for damage in [flip, |bytes| _ = bytes.pop(), |bytes| bytes.clear(), |bytes| bytes.push(0)] {
            let mut bad = good.clone();
            damage(&mut bad);
            fs::write(&file, bad).unwrap();
            let output = lowtide(&["verify", text(&dir)]);
            let out = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(1), "{out}");
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(
                out.lines().any(|line| line.contains("corrupt") && line.contains(name)),
                "{name} is not in\n{out}"
            );
        }
        fs::write(&file, good).unwrap();
    }
}

#[test]
fn a_job_below_another_and_one_called_like_its_folders_are_looked_at() {
    let (_directory, dir) = checkpoints();
    let [heap, full] = ["heap", "heap-full-every-3"].map(|name| files(&dir.join(name), "seq")[0].clone());
    let [heap, full] = [&heap, &full].map(|member| member.parent().unwrap().parent().unwrap());
    for below in [heap.join("inner"), dir.join("seq"), heap.join("seq").join("seq")] {
        let jobs = if below.starts_with(heap) { heap } else { &dir };
        fs::rename(full, &below).unwrap();
        let out = succeed(&["verify", text(jobs)]);
        let there = format!("{}: ", below.display());
        assert_eq!(out.lines().filter(|line| line.starts_with(&there)).count(), 3, "of {there}\n{out}");
        assert_eq!(out.lines().filter(|line| line.contains(" ok entries=400 ")).count(), 6, "{out}");
        fs::rename(&below, full).unwrap();
    }
    let folder = heap.join("seq");
    assert!(refuse(&["verify", text(&folder)]).contains("no checkpoints"), "a part of a job is none");
    fs::rename(&folder, dir.join("elsewhere")).unwrap();
    fs::create_dir(&folder).unwrap();
    assert!(refuse(&["verify", text(heap)]).contains("no checkpoints"), "an empty sequence passes for a job");
}

#[test]
fn a_lost_object_and_a_damaged_sequence_are_findings() {
    let (_directory, dir) = checkpoints();
    let lost = files(&dir, "data").pop().unwrap();
    fs::remove_file(&lost).unwrap();
    let output = lowtide(&["verify", text(&dir)]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.lines().any(|line| line.contains("missing")), "{out}");

    let newest = files(&dir.join("heap"), "seq").pop().unwrap();
    fs::write(&newest, b"nonsense").unwrap();
    let output = lowtide(&["verify", text(&dir.join("heap"))]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("corrupt") || out.contains("incompatible"), "{out}");
}

#[test]
fn a_sweep_takes_old_orphans_and_nothing_that_a_checkpoint_lists() {
    let (_directory, dir) = checkpoints();
    let before = files(&dir, "data");
    // An object of ours by its name, uploaded in 1970 and listed by nobody.
    let folder = before[0].parent().unwrap();
    let name = before[0].file_name().unwrap().to_str().unwrap();
    let orphan = folder.join(format!("00000000{}", &name[8..]));
    fs::write(&orphan, b"left over").unwrap();
    let stranger = folder.join("notes.txt");
    fs::write(&stranger, b"not ours").unwrap();

    let out = succeed(&["sweep", text(&dir), "--dry-run"]);
    assert!(out.contains(&format!("00000000{}", &name[8..])), "{out}");
    assert!(orphan.exists());
    let out = succeed(&["sweep", text(&dir)]);
    assert!(out.contains("swept 1"), "{out}");
    assert!(!orphan.exists() && stranger.exists());
    fs::remove_file(&stranger).unwrap();
    assert_eq!(files(&dir, "data"), before);
    succeed(&["verify", text(&dir)]);
}

#[test]
fn a_sweep_younger_than_a_running_checkpoint_may_be_is_refused() {
    let (_directory, dir) = checkpoints();
    let message = refuse(&["sweep", text(&dir.join("heap")), "--older-than", "10s"]);
    assert!(message.contains("timeout"), "{message}");
}

#[test]
fn savepoints_are_listed_and_deleted_only_by_somebody_who_takes_the_directory_over() {
    let (_directory, dir) = checkpoints();
    let heap = dir.join("heap");
    let out = succeed(&["savepoint", "list", text(&heap)]);
    let id = out.split_whitespace().next().unwrap().to_owned();
    assert_eq!(out.lines().count(), 1, "{out}");
    let message = refuse(&["savepoint", "delete", text(&heap), &id]);
    assert!(message.contains("--take-over"), "{message}");
    succeed(&["savepoint", "delete", text(&heap), &id, "--take-over"]);
    assert_eq!(succeed(&["savepoint", "list", text(&heap)]), "");
    let out = succeed(&["verify", text(&heap)]);
    assert_eq!(out.lines().filter(|line| line.contains(" ok ")).count(), 2, "{out}");
    refuse(&["savepoint", "delete", text(&heap), &id, "--take-over"]);
}
