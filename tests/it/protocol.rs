//! Runs the scenarios of `tests/script` on memory and on local disk, on each backend they name.

use std::path::{Path, PathBuf};

use lowtide::script::{BACKENDS, Medium, Script, ScriptOptions};

/// At least this many scenarios are there: a moved directory must not pass as an empty one.
const SCENARIOS_MIN: usize = 145;

fn scenarios() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/script");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    files.sort();
    files
}

async fn run_all(medium: Medium) -> Vec<String> {
    let mut failures = Vec::new();
    for path in scenarios() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let script = Script::parse(&name, &text).unwrap();
        for backend in script.backends().iter().filter(|name| BACKENDS.contains(&name.as_str())) {
            let options = ScriptOptions { backend: Some(backend.clone()), medium: Some(medium) };
            let run = script.run(&options).await.unwrap();
            failures.extend(run.mismatches().iter().map(|found| format!("[{backend}] {found}")));
        }
    }
    failures
}

#[tokio::test]
async fn every_scenario_prints_what_it_says_in_memory() {
    let failures = run_all(Medium::Memory).await;
    assert!(failures.is_empty(), "{} mismatches\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test]
async fn every_scenario_prints_what_it_says_on_local_disk() {
    let failures = run_all(Medium::File).await;
    assert!(failures.is_empty(), "{} mismatches\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_scenario_says_what_it_shows_and_expects_something() {
    let files = scenarios();
    assert!(files.len() >= SCENARIOS_MIN, "{} scenarios", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} has no header", path.display());
        assert!(text.contains("\n----\n"), "{} expects nothing", path.display());
    }
}

#[tokio::test]
async fn a_scenario_that_expects_something_else_fails_with_file_and_line() {
    let text = "job a\n\nput k=1\nget k\n----\nk=2\n";
    let run = Script::parse("wrong.txt", text).unwrap().run(&ScriptOptions::default()).await.unwrap();
    let [mismatch] = run.mismatches() else { panic!("{:?}", run.mismatches()) };
    assert_eq!((mismatch.file.as_str(), mismatch.line), ("wrong.txt", 6));
    assert_eq!(mismatch.actual, ["k=1"]);
    assert_eq!(run.rewritten(), "job a\n\nput k=1\nget k\n----\nk=1\n");
}
