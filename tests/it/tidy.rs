//! House rules that a compiler does not check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each member crate and the workspace crates it may name in `[dependencies]`.
const MAY_IMPORT: [(&str, &[&str]); 4] = [
    ("format", &[]),
    ("heap", &["lowtide-format"]),
    ("lsm", &["lowtide-format"]),
    ("registry", &["lowtide-format"]),
];

/// Packages that only some places may name in code, and those places (prefixes of paths).
const CONFINED: [(&str, &[&str]); 3] = [
    (
        "object_store",
        &["format/src/store", "src/fault", "tests/", "benches/", "format/tests/", "registry/tests/"],
    ),
    ("rocksdb", &["lsm/", "src/compare", "src/backend/rocks", "benches/"]),
    ("tokio", &["format/src/store", "format/tests/", "lsm/", "src/", "tests/", "benches/", "examples/"]),
];

/// Lines of code in one file, tests not counted.
const FILE_LINES_MAX: usize = 500;

/// Texts that no source file may hold; split in two so that this file does not.
const REFUSED: [(&str, &str); 11] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X:"),
    ("to", "do!("),
    ("unimple", "mented!("),
    ("#[ig", "nore"),
    ("allow(dead", "_code)"),
    ("db", "g!("),
    ("blaz", "ing"),
    ("see l", "ogs"),
    ("lazy_", "static"),
];

/// Module names that say nothing.
const NAMES_REFUSED: [&str; 8] = ["common", "util", "utils", "misc", "core", "manager", "helper", "helpers"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the workspace, as (path relative to the root, text).
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["src", "format", "heap", "lsm", "registry", "tests", "benches", "examples"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 30, "the sources were not found: {} files", found.len());
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Whether the whole file is test code.
fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.starts_with("benches/")
        || path.ends_with("tests.rs")
        || path.ends_with("_test.rs")
}

/// The text up to the unit tests at its end.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

/// The lines of a `[section]` of a Cargo.toml.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let header = format!("[{name}]");
    manifest
        .lines()
        .skip_while(|line| *line != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .collect()
}

#[test]
fn dependencies_between_crates_point_down_only() {
    for (folder, allowed) in MAY_IMPORT {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let dependencies = section(&manifest, "dependencies");
        assert!(!dependencies.is_empty(), "{folder}: no dependencies found, the check would be blind");
        for line in dependencies {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(
                !name.starts_with("lowtide") || allowed.contains(&name),
                "{folder} may not depend on {name}"
            );
        }
    }
}

#[test]
fn packages_are_named_only_where_they_belong() {
    for (path, text) in sources() {
        for (package, places) in CONFINED {
            if places.iter().any(|place| path.starts_with(place)) {
                continue;
            }
            for line in without_tests(&text).lines().map(str::trim_start) {
                let code = !line.starts_with("//");
                let named =
                    line.contains(&format!("{package}::")) || line.contains(&format!("use {package};"));
                assert!(!(code && named), "{path} names {package}: {line}");
            }
        }
    }
}

#[test]
fn no_file_is_longer_than_the_ceiling() {
    for (path, text) in sources() {
        if is_test_file(&path) {
            continue;
        }
        let lines = without_tests(&text).lines().count();
        assert!(
            lines <= FILE_LINES_MAX,
            "{path} has {lines} lines, at most {FILE_LINES_MAX}: split it by topic"
        );
    }
}

#[test]
fn no_source_file_holds_a_refused_text() {
    for (path, text) in sources() {
        for (first, second) in REFUSED {
            let refused = format!("{first}{second}");
            assert!(!text.contains(&refused), "{path} holds {refused:?}");
        }
    }
}

#[test]
fn no_module_has_a_name_that_says_nothing() {
    for (path, _) in sources() {
        for part in path.trim_end_matches(".rs").split('/') {
            assert!(!NAMES_REFUSED.contains(&part), "{path}: name the module after what it holds");
        }
    }
}

#[test]
fn every_source_file_begins_with_what_it_holds() {
    for (path, text) in sources() {
        // The unit tests of a module stand under the header of the module.
        let first = text.lines().next().unwrap_or_default();
        let described = first.starts_with("//!") || first.starts_with("#![doc") || path.ends_with("tests.rs");
        assert!(described || path.contains("/tests/"), "{path} begins with {first:?}, not with `//!`");
    }
}

/// Ids such as `C2` in list items `- C2. …` of the header of a file.
fn invariants_of(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("//! - "))
        .filter_map(|item| item.split_once(". ").map(|(id, _)| id.to_owned()))
        .filter(|id| {
            let mut letters = id.chars();
            letters.next().is_some_and(|first| first.is_ascii_uppercase())
                && id.len() > 1
                && letters.all(|letter| letter.is_ascii_digit())
        })
        .collect()
}

#[test]
fn every_numbered_invariant_is_named_where_it_is_checked() {
    let sources = sources();
    let mut seen = 0;
    for (path, text) in &sources {
        let crate_prefix = path.split('/').next().unwrap_or_default();
        for id in invariants_of(text) {
            seen += 1;
            let named = sources.iter().any(|(other, code)| {
                let near = other.starts_with(crate_prefix) || other.starts_with("tests/");
                let code = if other == "tests/it/tidy.rs" { "" } else { code.as_str() };
                near && code.lines().any(|line| !line.starts_with("//!") && names(line, &id))
            });
            assert!(named, "{path} promises {id}, which a check or test has to name");
        }
    }
    assert!(seen > 5, "only {seen} invariants were found, the check would be blind");
}

/// Whether the line holds the id as a word.
fn names(line: &str, id: &str) -> bool {
    line.match_indices(id).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + id.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}
