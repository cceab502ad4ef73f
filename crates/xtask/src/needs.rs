//! The tools that a step needs besides cargo: how to detect and how to install them.
//!
//! Tools in the target folder are installed automatically. Changes of the machine (toolchain
//! components, system packages) are made only in CI or with `--install`.

use crate::command_line::CommandLine;

/// The folder of the project's cargo tools, below the workspace's root.
pub(crate) const TOOLS: &str = "target/tools";

/// A tool that a step requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Need {
    /// A component of the Rust toolchain, and its cargo command.
    Component { name: &'static str, command: &'static str },
    /// A cargo command from the registry. The version is pinned for reproducible results; an
    /// installed one is used as it is.
    CargoTool { name: &'static str, version: &'static str },
    /// A system program and its apt package.
    Program { name: &'static str, package: &'static str },
    /// The toolchain of another language: its name, a command that detects it, and its apt package.
    Toolchain { name: &'static str, probe: &'static str, package: &'static str },
}

impl Need {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Component { name, .. }
            | Self::CargoTool { name, .. }
            | Self::Program { name, .. }
            | Self::Toolchain { name, .. } => name,
        }
    }

    /// A command that succeeds if the tool is installed.
    pub(crate) fn probe(&self) -> CommandLine {
        match self {
            Self::Component { command, .. } => CommandLine::new("cargo").arg(*command),
            Self::CargoTool { name, .. } => {
                CommandLine::new("cargo").arg(name.trim_start_matches("cargo-"))
            }
            Self::Program { name, .. } => CommandLine::new(name),
            Self::Toolchain { probe, .. } => return CommandLine::new(probe),
        }
        .arg("--version")
    }

    /// The commands that install it, in order.
    pub(crate) fn install(&self, root: bool) -> Vec<CommandLine> {
        match self {
            Self::Component { name, .. } => {
                vec![CommandLine::new("rustup component add").arg(*name).downloads()]
            }
            Self::CargoTool { name, version } => vec![
                CommandLine::new("cargo install --locked --root")
                    .arg(TOOLS)
                    .arg(format!("{name}@{version}"))
                    .downloads(),
            ],
            Self::Program { package, .. } | Self::Toolchain { package, .. } => {
                let apt = if root { "apt-get" } else { "sudo -n apt-get" };
                vec![
                    CommandLine::new(&format!("{apt} update")).downloads(),
                    CommandLine::new(&format!("{apt} install --yes --no-install-recommends"))
                        .arg(*package)
                        .downloads(),
                ]
            }
        }
    }

    pub(crate) fn changes_the_machine(&self) -> bool {
        !matches!(self, Self::CargoTool { .. })
    }

    /// The install command to show to the user.
    pub(crate) fn advice(&self) -> String {
        self.install(true).last().map(ToString::to_string).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    //! Goal: each kind of tool is detected and installed by the right command.

    use super::*;

    const DENY: Need = Need::CargoTool { name: "cargo-deny", version: "1.2.3" };
    const VALGRIND: Need = Need::Program { name: "valgrind", package: "valgrind" };

    #[test]
    fn needs_cargo_tool_is_installed_below_target() {
        assert_eq!(DENY.probe().to_string(), "cargo deny --version");
        assert_eq!(DENY.advice(), "cargo install --locked --root target/tools cargo-deny@1.2.3");
        assert!(!DENY.changes_the_machine());
    }

    #[test]
    fn needs_toolchain_has_its_own_probe() {
        let go = Need::Toolchain { name: "Go", probe: "go version", package: "golang" };
        assert_eq!((go.name(), go.probe().to_string()), ("Go", "go version".to_owned()));
        assert_eq!(go.advice(), "apt-get install --yes --no-install-recommends golang");
        assert!(go.changes_the_machine());
    }

    #[test]
    fn needs_system_package_uses_apt_or_sudo_without_prompt() {
        let words = |root| VALGRIND.install(root).last().map(ToString::to_string);
        assert_eq!(
            words(true).as_deref(),
            Some("apt-get install --yes --no-install-recommends valgrind")
        );
        assert_eq!(
            words(false).as_deref(),
            Some("sudo -n apt-get install --yes --no-install-recommends valgrind")
        );
        assert!(VALGRIND.changes_the_machine());
    }
}
