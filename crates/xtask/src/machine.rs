//! The outside as the steps see it: programs that run, needs that are met or not, a place to print.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redial::{Jitter, Policy, s};

use crate::command_line::CommandLine;
use crate::needs::{Need, TOOLS};

/// What running steps asks of the outside.
pub(crate) trait Machine {
    fn root(&self) -> &Path;
    fn has(&self, need: &Need) -> bool;
    /// Whether system packages can be installed without sudo.
    fn is_superuser(&self) -> bool;
    /// # Errors
    /// Says why the program did not succeed.
    fn run(&mut self, line: &CommandLine) -> Result<(), String>;
    /// Removes a folder below the root, if it is there.
    fn remove(&mut self, folder: &str);
    /// How often, and how much later, a download that failed is tried again.
    fn patience(&self) -> &'static Policy;
    fn say(&mut self, text: &str);
}

/// A minute in all. The downloads of a run share the policy's budget: where the network is down for good,
/// later ones do not wait for it any more.
static DOWNLOAD: Policy = Policy::exponential(s(5)).attempts(5).jitter(Jitter::None).build();

/// The machine that this runs on.
pub(crate) struct Real {
    root: PathBuf,
    path: OsString,
}

impl Real {
    pub(crate) fn new(root: PathBuf) -> Self {
        // Tools of this project first, so that the version that the steps pin is the one that runs.
        let mut folders = vec![root.join(TOOLS).join("bin")];
        if let Some(path) = env::var_os("PATH") {
            folders.extend(env::split_paths(&path));
        }
        // Only a folder with a separator in its name cannot be joined; then cargo's own folders do.
        let path = env::join_paths(folders).or_else(|_| env::var_os("PATH").ok_or(()));
        Self { root, path: path.unwrap_or_default() }
    }

    fn command(&self, line: &CommandLine) -> Command {
        let mut command = command(&line.program);
        command
            .args(&line.arguments)
            .current_dir(&self.root)
            .env("PATH", &self.path)
            .envs(line.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Machine for Real {
    fn root(&self) -> &Path {
        &self.root
    }

    fn has(&self, need: &Need) -> bool {
        self.command(&need.probe())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    fn is_superuser(&self) -> bool {
        let id = Command::new("id").arg("-u").output();
        id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
    }

    fn run(&mut self, line: &CommandLine) -> Result<(), String> {
        match self.command(line).stdin(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(problem) => Err(format!("`{}` does not start: {problem}", line.program)),
        }
    }

    fn remove(&mut self, folder: &str) {
        // Whoever needs the room fails and says so.
        let _ = fs::remove_dir_all(self.root.join(folder));
    }

    fn patience(&self) -> &'static Policy {
        &DOWNLOAD
    }

    fn say(&mut self, text: &str) {
        println!("{text}");
    }
}

/// What a program prints, for what must be known before there are lines to run.
pub(crate) fn output(root: &Path, line: &CommandLine) -> Result<String, String> {
    let output = command(&line.program)
        .args(&line.arguments)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|problem| format!("`{line}`: {problem}"))?;
    if !output.status.success() {
        return Err(format!("`{line}`: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|problem| format!("`{line}`: {problem}"))
}

fn command(program: &str) -> Command {
    // The cargo that runs us, so that `cargo +toolchain xtask` keeps its toolchain.
    let cargo = env::var_os("CARGO").filter(|_| program == "cargo");
    let mut command = Command::new(cargo.unwrap_or_else(|| program.into()));
    // `cargo run` describes this package to us. Passed on, it would describe it to every build script
    // below, and those that ask would be built again each time.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|own| name.starts_with(own)) {
            command.env_remove(&*name);
        }
    }
    command
}
