//! The steps of `clients/redial-couchbase-sdk`.

use std::path::Path;

use crate::client_crate::ClientCrate;
use crate::command_line::CommandLine;
use crate::steps;

const CRATE: ClientCrate = ClientCrate {
    manifest: "clients/redial-couchbase-sdk/Cargo.toml",
    target: "target/couchbase-sdk",
};

pub(crate) fn checks() -> Vec<CommandLine> {
    CRATE.checks()
}

/// Installs `CouchbaseMock` and runs the tests that need it.
pub(crate) fn mock(root: &Path) -> Result<Vec<CommandLine>, String> {
    let (fetch, jar) = steps::couchbase_mock_jar(root)?;
    let test = CRATE.cargo("test").arg("--test").arg("mock").arg("--").arg("--ignored");
    // Each test starts a server of its own.
    let test = test.arg("--test-threads=1").env(steps::MOCK, &jar);
    Ok(vec![fetch, test])
}

/// Builds the program around the SDK for the tests that compare clients; its path.
pub(crate) fn peer(root: &Path) -> (CommandLine, String) {
    let program = root.join(CRATE.target).join("debug/examples/peer");
    (CRATE.cargo("build").arg("--example").arg("peer"), program.display().to_string())
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
