//! `redial completions` and `redial man`: completions for shells and manual pages, made from the
//! arguments, so that they cannot disagree with them.

use std::io::{self, Write};
use std::path::PathBuf;

use clap_complete::Shell;

/// The arguments of `redial completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArguments {
    /// The shell.
    pub shell: Shell,
}

/// The arguments of `redial man`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManArguments {
    /// Write one page per subcommand into this folder, instead of the main page to standard output.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Prints the completions of a shell. Returns 0.
///
/// # Errors
/// The output cannot be written.
pub fn completions(
    arguments: &CompletionsArguments,
    mut command: clap::Command,
    out: &mut dyn Write,
) -> io::Result<u8> {
    // The generator panics if it cannot write, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "redial", &mut text);
    out.write_all(&text)?;
    Ok(0)
}

/// Prints the manual page, or writes all pages into a folder. Returns 0, and 2 if the folder cannot
/// be written.
///
/// # Errors
/// The output cannot be written.
pub fn man(
    arguments: &ManArguments,
    command: clap::Command,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let Some(folder) = &arguments.out else {
        clap_mangen::Man::new(command).render(out)?;
        return Ok(0);
    };
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    match written {
        Ok(()) => Ok(0),
        Err(error) => {
            writeln!(err, "redial: {} cannot be written: {error}", folder.display())?;
            Ok(2)
        }
    }
}
