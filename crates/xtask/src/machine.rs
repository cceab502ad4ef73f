//! The interface to the operating system: running programs, checking for tools, printing.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redial::{Jitter, Policy, s};

use crate::command_line::CommandLine;
use crate::needs::{Need, TOOLS};

/// The operations that steps need.
pub(crate) trait Machine {
    fn root(&self) -> &Path;
    fn has(&self, need: &Need) -> bool;
    /// Whether system packages can be installed without sudo.
    fn is_superuser(&self) -> bool;
    /// # Errors
    /// Why the program failed.
    fn run(&mut self, line: &CommandLine) -> Result<(), String>;
    /// Removes a folder below the root, if it exists.
    fn remove(&mut self, folder: &str);
    /// The retry policy of downloads.
    fn patience(&self) -> &'static Policy;
    fn say(&mut self, text: &str);
}

/// A minute in total. The downloads of a run share the policy's retry budget: when the network is
/// down, later ones fail fast.
static DOWNLOAD: Policy = Policy::exponential(s(5)).attempts(5).jitter(Jitter::None).build();

/// The machine that this runs on.
pub(crate) struct Real {
    root: PathBuf,
    path: OsString,
}

impl Real {
    pub(crate) fn new(root: PathBuf) -> Self {
        // The project's own tools first, so that the pinned versions run.
        let mut folders = vec![root.join(TOOLS).join("bin")];
        if let Some(path) = env::var_os("PATH") {
            folders.extend(env::split_paths(&path));
        }
        // This fails only for a folder with a separator in its name; then `PATH` is used unchanged.
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
        // If this fails, a later step without space reports it.
        let _ = fs::remove_dir_all(self.root.join(folder));
    }

    fn patience(&self) -> &'static Policy {
        &DOWNLOAD
    }

    fn say(&mut self, text: &str) {
        println!("{text}");
    }
}

/// The standard output of a program that must succeed.
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

/// Whether a program succeeds, and everything that it prints.
pub(crate) fn captured(folder: &Path, line: &CommandLine) -> Result<(bool, String), String> {
    let output = command(&line.program)
        .args(&line.arguments)
        .current_dir(folder)
        .envs(line.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(|problem| format!("`{line}`: {problem}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout) + &text(&output.stderr)))
}

fn command(program: &str) -> Command {
    // The cargo that runs xtask, so that `cargo +toolchain xtask` keeps its toolchain.
    let cargo = env::var_os("CARGO").filter(|_| program == "cargo");
    let mut command = Command::new(cargo.unwrap_or_else(|| program.into()));
    // `cargo run` sets variables about this package. Inherited by builds, they would make build
    // scripts that read them run again each time.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|own| name.starts_with(own)) {
            command.env_remove(&*name);
        }
    }
    command
}
