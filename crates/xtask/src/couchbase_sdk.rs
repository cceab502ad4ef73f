//! The steps of `clients/redial-couchbase-sdk`, which is outside the workspace because the SDK has many crates.

use std::path::Path;

use crate::command_line::CommandLine;
use crate::steps;

/// Both steps build here: the SDK has many crates.
const TARGET: &str = "target/couchbase-sdk";

const MANIFEST: &str = "clients/redial-couchbase-sdk/Cargo.toml";

fn cargo(words: &str) -> CommandLine {
    let line = format!("cargo {words} --locked --manifest-path {MANIFEST} --target-dir {TARGET}");
    CommandLine::new(&line)
}

pub(crate) fn checks() -> Vec<CommandLine> {
    let format = format!("cargo fmt --manifest-path {MANIFEST} --check");
    let lints = cargo("clippy").arg("--all-targets").arg("--").arg("-D").arg("warnings");
    let docs = cargo("doc").arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
    vec![CommandLine::new(&format), lints, cargo("test"), docs]
}

/// Installs `CouchbaseMock` and runs the tests that need it.
pub(crate) fn mock(root: &Path) -> Result<Vec<CommandLine>, String> {
    let (fetch, jar) = steps::couchbase_mock_jar(root)?;
    let test = cargo("test").arg("--test").arg("mock").arg("--").arg("--ignored");
    // Each test starts a server of its own.
    let test = test.arg("--test-threads=1").env(steps::MOCK, &jar);
    Ok(vec![fetch, test])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn couchbase_sdk_steps_build_in_one_folder_below_target() {
        let mut lines = checks();
        lines.extend(mock(&crate::root()).unwrap());
        let texts: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let builds = texts.iter().filter(|line| line.contains("--target-dir target/couchbase-sdk"));
        assert_eq!(builds.count(), 4, "{texts:?}");
        assert!(texts[4].contains("target/couchbase/mock"), "{}", texts[4]);
        assert!(texts[5].ends_with("--test mock -- --ignored --test-threads=1"), "{}", texts[5]);
    }
}
