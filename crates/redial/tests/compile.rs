//! Misuse does not compile, and the compiler's message contains the fix. trybuild compiles each file in
//! `compile/` and compares rustc's output with the `.stderr` file beside it. After an update of rustc, run
//! `TRYBUILD=overwrite cargo test -p redial --all-features --test compile`; a second test checks that our
//! part of each message is still there.
//!
//! The expected outputs are those with the feature `serde`, for which rustc prints longer paths.
#![cfg(all(feature = "tokio", feature = "serde"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile").join(name)
}

/// The version of rustc whose output is stored. With another version, only the passing cases are checked.
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
        eprintln!("skipped: the expected compile errors are those of {RUSTC}x");
    }
}

#[test]
fn compile_fail_messages_contain_the_help_text() {
    let words = [
        ("missing_when", "CallWhenToSayWhichErrorsAreRetried"),
        ("zero_attempts", "attempts: 0 would never try; write 1 for a single attempt"),
        (
            "hedging_too_many_attempts",
            "attempts: a hedged policy runs 32 attempts at the most; lower it",
        ),
        ("first_delay_above_cap", "backoff: the first delay is above the cap"),
        ("attempts_above_reserve", "attempts: the retry budget has no refill"),
        ("hedging_blocking", "and where it is hedged a future"),
        ("hedging_not_idempotent", "not_idempotent"),
        ("hedging_strategy", "strategy"),
        ("builder_without_build", "expected `Policy`, found `Builder<Policy>`"),
        ("builder_retry", "method not found in `redial::Builder<redial::Policy>`"),
        ("attempt_keeps_a_borrow", "captured variable"),
        (
            "when_wrong_type",
            "return `true` or `false`, a `Failure`, an `Option<Failure>` or a `Directive`",
        ),
        ("operation_without_result", "an operation returns a `Result` or a future of one"),
        ("until_without_when", "CallWhenToSayWhichErrorsAreRetried"),
    ];
    for (name, word) in words {
        let said = fs::read_to_string(folder("fails").join(name).with_extension("stderr"));
        let said = said.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(said.contains(word), "{name}: `{word}` is not in\n{said}");
    }
    let files = fs::read_dir(folder("fails")).expect("the folder is there");
    let cases = files.filter(|file| {
        let path = file.as_ref().expect("it can be read").path();
        path.extension().is_some_and(|extension| extension == "rs")
    });
    assert_eq!(cases.count(), words.len(), "each case has a help text");
}
