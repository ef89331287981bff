//! The commands as a user runs them: what they print, where they fail, how they exit.

#![expect(clippy::unwrap_used, reason = "what a test prepares outside its own function fails the test too")]

mod compare;
mod page;
mod peer;
mod store_commands;

use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary.
fn lowtide(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowtide"))
        .args(arguments)
        .env_remove("RUST_LOG")
        .output()
        .expect("the binary starts")
}

/// Runs the binary and returns standard output; it must exit with 0.
fn succeed(arguments: &[&str]) -> String {
    let output = lowtide(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} exited with {}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the binary and returns the last line of standard error; it must exit with 2 and print nothing else.
fn refuse(arguments: &[&str]) -> String {
    let output = lowtide(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed to standard output");
    stderr.trim_end().lines().last().unwrap_or_default().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
