//! Goal: completions and manual pages come from the arguments. Method: the binary prints them.

use std::process::{Command, Output};

fn redial(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_redial")).args(arguments).output();
    let Output { status, stdout, .. } = output.expect("it runs");
    (status.code(), String::from_utf8(stdout).expect("it is text"))
}

#[test]
fn completions_know_every_subcommand_and_option() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, text) = redial(&["completions", shell]);
        assert_eq!(code, Some(0));
        for word in ["check", "replay", "kill-after", "budget-reserve"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(redial(&["completions", "cmd"]).0, Some(2));
}

#[test]
fn man_prints_one_page_or_writes_them_all() {
    let (code, text) = redial(&["man"]);
    assert_eq!(code, Some(0));
    assert!(text.contains(".TH redial 1"), "{text:.200}");
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let path = folder.path().join("man");
    let path = path.to_str().expect("it is text");
    assert_eq!(redial(&["man", "--out", path]).0, Some(0));
    let run = std::fs::read_to_string(format!("{path}/redial-run.1")).expect("it is there");
    assert!(run.contains("kill\\-after") && run.contains("124"), "{run:.200}");
    assert_eq!(redial(&["man", "--out", "/dev/null/man"]).0, Some(2));
}

#[test]
fn help_of_each_command_lists_its_exit_codes() {
    for command in ["run", "check", "replay", "explain", "scenarios", "faults", "simulate", "plan"]
    {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_redial"))
            .args([command, "--help"])
            .output()
            .expect("it runs");
        let help = String::from_utf8(output.stdout).expect("it is text");
        assert!(help.contains("Exit codes:"), "{command}: {help}");
    }
}
