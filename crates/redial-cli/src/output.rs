//! What `redial simulate` and `redial plan` share: input files, pictures, and the terminal.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};

use redial_sim::chart::{self, Style};
use redial_sim::file::FILE_MAX;

/// Exit codes: success, problems in the content of a file, and a file that cannot be read or written, or
/// wrong usage.
pub(crate) const OK: u8 = 0;
pub(crate) const PROBLEMS: u8 = 1;
pub(crate) const UNREADABLE: u8 = 2;

/// The files to write.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Pictures {
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Write the picture as SVG, which follows the light or dark theme of its page.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<String>,
    /// Write the picture as PNG. It needs a font of the system.
    #[arg(long, value_name = "FILE")]
    pub png: Option<String>,
    /// Write one self-contained HTML page with the picture, the figures and the JSON.
    #[arg(long, value_name = "FILE")]
    pub html: Option<String>,
}

impl Pictures {
    /// Writes the files that were asked for; the error has the name of the file.
    pub(crate) fn write(
        &self,
        title: &str,
        svg: &str,
        text: &dyn Fn(Style) -> String,
        json: &str,
    ) -> Result<(), String> {
        let save = |path: &str, bytes: &[u8]| {
            fs::write(path, bytes).map_err(|error| format!("{path}: cannot be written: {error}"))
        };
        if let Some(path) = &self.svg {
            save(path, svg.as_bytes())?;
        }
        if let Some(path) = &self.png {
            let png = chart::png(svg).map_err(|error| format!("{path}: {error}"))?;
            save(path, &png)?;
        }
        if let Some(path) = &self.html {
            let page = chart::page(title, &[svg.to_owned()], &text(Style::plain(100)), json);
            save(path, page.as_bytes())?;
        }
        Ok(())
    }
}

/// The text of a file, or of standard input for `-`.
pub(crate) fn read(path: &str) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = FILE_MAX as u64 + 1;
        match path {
            "-" => io::stdin().lock().take(most).read_to_end(&mut bytes)?,
            _ => File::open(path)?.take(most).read_to_end(&mut bytes)?,
        };
        if bytes.len() > FILE_MAX {
            return Err(io::Error::other(format!("it is larger than {FILE_MAX} bytes")));
        }
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("{path}: cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("{path}: not UTF-8: save the text as UTF-8"))
}

/// Writes an error and returns its exit code.
pub(crate) fn fail(err: &mut dyn Write, code: u8, text: &str) -> io::Result<u8> {
    writeln!(err, "{text}")?;
    Ok(code)
}

/// The width of the terminal, and colours if the output is a terminal and `NO_COLOR` is not set.
pub(crate) fn style() -> Style {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = terminal.or_else(stated).unwrap_or(80);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if io::stdout().is_terminal() && !no_colour {
        Style::coloured(columns)
    } else {
        Style::plain(columns)
    }
}
