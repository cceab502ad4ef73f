//! Runs the command lines of the documentation, and compares what they print.
//!
//! A separate binary: the lines of docs/run.md run real commands in real time. That every other line is one that
//! the command accepts is a test of `src/main.rs`.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the documents.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

#[test]
fn docs_command_lines_print_what_they_say() {
    // The command lines name files beside the documents. The other tests of this process use absolute paths.
    std::env::set_current_dir(DOCS).expect("the documents are there");
    trycmd::TestCases::new()
        .register_bin("redial", Path::new(env!("CARGO_BIN_EXE_redial")))
        .env("COLUMNS", "80")
        .env("NO_COLOR", "1")
        .case("run.md")
        .case("check.md")
        .case("replay.md")
        .case("simulation.md");
}

/// A temporary folder in which scripts run.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("the temporary folder can be written"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script in the folder, with this command first in the path.
    fn run(&self, script: &str) -> Output {
        let redial = Path::new(env!("CARGO_BIN_EXE_redial")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("sh")
            .args(["-c", script])
            .current_dir(self.0.path())
            .env("PATH", format!("{}:{path}", redial.display()))
            // Those of the test's own checkout, if a git hook runs the test.
            .env_remove("GIT_DIR")
            .env_remove("GIT_INDEX_FILE")
            .output()
            .expect("there is a shell")
    }

    /// Runs a script that must succeed.
    #[track_caller]
    fn succeeds(&self, script: &str) {
        let Output { status, stderr, .. } = self.run(script);
        assert!(status.success(), "{script}: {status}\n{}", String::from_utf8_lossy(&stderr));
    }
}

/// The blocks of a page that are scripts of a shell.
fn scripts(page: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(DOCS).join(page)).expect("the page is there");
    let blocks = text.split("\n```sh\n").skip(1);
    let end = |block: &str| block.split("\n```\n").next().map(|script| format!("{script}\n"));
    blocks.filter_map(end).collect()
}

#[test]
fn docs_scripts_for_plans_and_simulations_succeed() {
    let folder = Folder::new();
    std::os::unix::fs::symlink(Path::new(DOCS).join("examples"), folder.path("examples"))
        .expect("a link");
    let scripts = scripts("simulation.md");
    assert_eq!(scripts.len(), 2);
    for script in scripts {
        folder.succeeds(&format!("set -e\n{script}"));
    }
    for picture in ["a.svg", "a.html", "plan.svg"] {
        assert!(folder.path(picture).exists(), "{picture}");
    }
}

#[test]
fn docs_git_hook_checks_what_is_staged() {
    const VALID: &str = r#"{ "methodConfig": [] }"#;
    let scripts = scripts("check.md");
    let hook = scripts.iter().find(|script| script.starts_with("#!/bin/sh")).expect("a hook");
    let folder = Folder::new();
    let path = "a folder/my_service_config.json";
    let write = |text: &str| fs::write(folder.path(path), text).expect("a file");
    fs::create_dir_all(folder.path("a folder")).expect("a folder");
    folder.succeeds("git init -q .");
    let is_accepted = || folder.run(hook).status.success();
    assert!(is_accepted(), "nothing is staged");
    write("{");
    folder.succeeds("git add .");
    write(VALID);
    assert!(!is_accepted(), "the working tree is valid, the staged file is not");
    folder.succeeds("git add .");
    write("{");
    assert!(is_accepted(), "the staged file is valid, the working tree is not");
    // A file that is renamed and changed is checked, one that is removed is not.
    folder.succeeds("git -c user.name=a -c user.email=a@b commit -qm first");
    folder.succeeds("git mv -f 'a folder/my_service_config.json' service_config.json && git add .");
    assert!(!is_accepted(), "the new name is checked");
    folder.succeeds("git rm -qf --cached service_config.json");
    assert!(is_accepted(), "the file is removed");
}
