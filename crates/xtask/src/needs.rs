//! What a step needs beside cargo, how to see whether it is there, and how to get it.
//!
//! Rule: what goes into the target folder is installed without asking. What changes the machine (a
//! component of the toolchain, a system package) is installed in CI or when told to.

use crate::command_line::CommandLine;

/// Where cargo tools of this project live, below the workspace's root.
pub(crate) const TOOLS: &str = "target/tools";

/// Something that a step cannot run without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Need {
    /// A component of the Rust toolchain: its name, and the cargo command that it brings.
    Component { name: &'static str, command: &'static str },
    /// A cargo command from the registry. The version is pinned, so that a step gives the same answer
    /// tomorrow; one that the user has already is taken as it is.
    CargoTool { name: &'static str, version: &'static str },
    /// A program of the system, and the apt package that has it.
    Program { name: &'static str, package: &'static str },
    /// The toolchain of another language: its name, what answers if it is there, and the apt package that
    /// has it.
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

    /// Succeeds where the need is met.
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

    /// The lines that install it, to be run in order.
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

    /// The line to show to a person who lacks it.
    pub(crate) fn advice(&self) -> String {
        self.install(true).last().map(ToString::to_string).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    //! Goal: each kind of need is looked for and installed by the right command.

    use super::*;

    const DENY: Need = Need::CargoTool { name: "cargo-deny", version: "1.2.3" };
    const VALGRIND: Need = Need::Program { name: "valgrind", package: "valgrind" };

    #[test]
    fn a_cargo_tool_goes_into_the_target_folder_and_leaves_the_machine_alone() {
        assert_eq!(DENY.probe().to_string(), "cargo deny --version");
        assert_eq!(DENY.advice(), "cargo install --locked --root target/tools cargo-deny@1.2.3");
        assert!(!DENY.changes_the_machine());
    }

    #[test]
    fn a_toolchain_is_asked_as_it_wants_to_be_asked() {
        let go = Need::Toolchain { name: "Go", probe: "go version", package: "golang" };
        assert_eq!((go.name(), go.probe().to_string()), ("Go", "go version".to_owned()));
        assert_eq!(go.advice(), "apt-get install --yes --no-install-recommends golang");
        assert!(go.changes_the_machine());
    }

    #[test]
    fn a_system_package_is_installed_by_root_or_by_sudo_that_asks_nothing() {
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
