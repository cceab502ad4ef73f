//! Goal: without Go the command reports it, and fails in CI. Method: the command itself, with a
//! `PATH` on which nothing is found.

use std::process::{Command, Output};

fn without_go(words: &[&str], ci: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redial-interop"));
    command.args(words).env("PATH", "").env_remove("CI");
    if let Some(ci) = ci {
        command.env("CI", ci);
    }
    command.output().unwrap()
}

#[test]
fn interop_command_without_go_skips_by_name() {
    let output = without_go(&["official"], None);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "skipped: Go is not installed\n");
}

#[test]
fn interop_command_in_ci_skips_nothing() {
    let output = without_go(&["official"], Some("true"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "Go is not installed, and in CI nothing is skipped\n");
}

#[test]
fn interop_command_unknown_arguments_print_the_usage() {
    let output = without_go(&["unofficial"], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: redial-interop official"));
}
