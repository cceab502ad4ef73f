//! Crates in `clients/`, which are outside the workspace: their SDKs have many crates or need a newer Rust.

use crate::command_line::CommandLine;

/// A crate in `clients/`. All of its steps build in one folder.
pub(crate) struct ClientCrate {
    pub(crate) manifest: &'static str,
    pub(crate) target: &'static str,
}

impl ClientCrate {
    pub(crate) fn cargo(&self, words: &str) -> CommandLine {
        let ClientCrate { manifest, target } = self;
        let line =
            format!("cargo {words} --locked --manifest-path {manifest} --target-dir {target}");
        CommandLine::new(&line)
    }

    /// Formatting, lints, tests that need only Rust, and documentation.
    pub(crate) fn checks(&self) -> Vec<CommandLine> {
        let format = format!("cargo fmt --manifest-path {} --check", self.manifest);
        let lints = self.cargo("clippy").arg("--all-targets").arg("--").arg("-D").arg("warnings");
        let docs = self.cargo("doc").arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
        vec![CommandLine::new(&format), lints, self.cargo("test"), docs]
    }
}
