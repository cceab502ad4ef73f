//! Misuse does not compile, and the compiler's message contains the fix. trybuild compiles each file in
//! `compile/` and compares rustc's output with the `.stderr` file beside it. After an update of rustc, run
//! `TRYBUILD=overwrite cargo test -p redial --all-features --test compile`; a second test checks that our
//! part of each message is still there.
//!
//! The expected outputs are those with the feature `serde`, for which rustc prints longer paths.
#![cfg(all(feature = "tokio", feature = "serde", feature = "tower"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile").join(name)
}

/// The version of rustc whose output is stored. With another version, only our part of each message is
/// checked.
const RUSTC: &str = "rustc 1.95.";

fn is_that_rustc() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().map(|output| output.stdout);
    version.is_ok_and(|version| String::from_utf8_lossy(&version).starts_with(RUSTC))
}

#[test]
fn compile_fail_cases_fail_and_call_sites_pass() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile/passes/*.rs");
    if is_that_rustc() {
        cases.compile_fail("tests/compile/fails/*.rs");
    } else {
        eprintln!("not compared: the expected compile errors are those of {RUSTC}x");
    }
}

/// Our part of the message of each failing case.
const HELP_TEXTS: [(&str, &str); 19] = [
    ("missing_when", "NeedsWhen"),
    ("zero_attempts", "attempts: 0 would never try; write 1 for a single attempt"),
    (
        "hedging_too_many_attempts",
        "attempts: a hedged policy runs 32 attempts at the most; lower it",
    ),
    ("first_delay_above_cap", "backoff: the first delay is above the cap"),
    ("attempts_above_reserve", "attempts: the retry budget has no refill"),
    ("blocking_sleeper", "a blocking call waits in its thread: remove `.sleeping_on(..)`"),
    ("hedging_blocking", "and where it is hedged a future"),
    ("hedging_not_idempotent", "a hedged call runs its operation more than once"),
    ("hedging_strategy", "a hedged call has no strategy: hedges start before there is a failure"),
    ("builder_without_build", "expected `Policy`, found `Builder<Policy>`"),
    ("builder_retry", "method not found in `redial::Builder<redial::Policy>`"),
    ("attempt_keeps_a_borrow", "captured variable"),
    (
        "when_wrong_type",
        "return `true` or `false`, a `Failure`, an `Option<Failure>` or a `Directive`",
    ),
    ("operation_without_result", "an operation returns a `Result` or a future of one"),
    ("until_without_when", "NeedsWhen"),
    ("notify_without_when", "NeedsWhen"),
    ("retry_on_without_when", "NeedsWhen"),
    ("tower_missing_when", "NeedsWhen"),
    ("tower_service_without_clone", "Connection: Clone"),
];

#[test]
fn compile_fail_messages_contain_the_help_text() {
    for (name, word) in HELP_TEXTS {
        let said = fs::read_to_string(folder("fails").join(name).with_extension("stderr"));
        let said = said.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(said.contains(word), "{name}: `{word}` is not in\n{said}");
    }
    let files = fs::read_dir(folder("fails")).expect("the folder is there");
    let cases = files.filter(|file| {
        let path = file.as_ref().expect("it can be read").path();
        path.extension().is_some_and(|extension| extension == "rs")
    });
    assert_eq!(cases.count(), HELP_TEXTS.len(), "each case has a help text");
}

/// rustc shortens long types to the width of the terminal. trybuild sees full names, so this test asks
/// rustc itself. Another rustc may shorten them in another way, and is asked for full names.
#[test]
fn compile_fail_help_texts_are_visible_at_80_columns() {
    let width = if is_that_rustc() { 80 } else { 100_000 };
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("columns");
    let cases = folder("fails");
    let bins: String = HELP_TEXTS
        .iter()
        .map(|(name, _)| {
            let path = cases.join(name).with_extension("rs");
            format!("[[bin]]\nname = {name:?}\npath = {path:?}\n")
        })
        .collect();
    let manifest = format!(
        "[workspace]\n[package]\nname = \"columns\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [dependencies]\nredial = {{ path = {package:?}, features = [\"tower\"] }}\n\
         tower = {{ version = \"0.5\", features = [\"util\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n{bins}"
    );
    fs::create_dir_all(&project).expect("a folder");
    fs::write(project.join("Cargo.toml"), manifest).expect("a manifest");
    fs::copy(package.join("../../Cargo.lock"), project.join("Cargo.lock")).expect("the lock file");
    for (name, word) in HELP_TEXTS {
        let output = Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "--offline", "--bin", name, "--"])
            .arg(format!("--diagnostic-width={width}"))
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", project.join("target"))
            .env_remove("RUSTFLAGS")
            .output()
            .expect("cargo runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name} compiles");
        assert!(message.contains(word), "{name}: `{word}` is not in\n{message}");
    }
}
