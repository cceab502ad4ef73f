//! What `redial simulate` and `redial plan` share: input files, pictures, and the terminal.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use redial_sim::chart::{self, Style};
use redial_sim::file::FILE_MAX;

use crate::color;

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
    /// Write the picture as SVG, which follows the light or dark theme of its page. `-` is standard output,
    /// in place of the text.
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
    /// Writes the files that were asked for, and the text or the JSON to standard output, unless a picture
    /// goes there. Returns the exit code.
    pub(crate) fn show(
        &self,
        title: &str,
        svg: &str,
        text: &dyn Fn(Style) -> String,
        json: &str,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<u8> {
        let files = [&self.svg, &self.png, &self.html].into_iter().flatten();
        let to_output = files.filter(|path| *path == "-").count();
        if to_output + usize::from(self.json) > 1 && to_output > 0 {
            let text = "only one of --json, --svg, --png and --html can be on standard output; \
                        name a file for the others";
            return fail(err, UNREADABLE, text);
        }
        let mut save = |path: &str, bytes: &[u8]| match path {
            "-" => out.write_all(bytes).map(|()| None),
            _ => Ok(fs::write(path, bytes).err().map(|error| cannot_write(path, &error))),
        };
        let mut problem = None;
        if let Some(path) = &self.svg {
            problem = save(path, svg.as_bytes())?;
        }
        if let (Some(path), None) = (&self.png, &problem) {
            problem = match chart::png(svg) {
                Ok(png) => save(path, &png)?,
                Err(error) => Some(format!("{path}: {error}")),
            };
        }
        if let (Some(path), None) = (&self.html, &problem) {
            let page = chart::page(title, &[svg.to_owned()], &text(Style::plain(100)), json);
            problem = save(path, page.as_bytes())?;
        }
        match problem {
            Some(problem) => return fail(err, UNREADABLE, &problem),
            None if to_output > 0 => {}
            None if self.json => writeln!(out, "{json}")?,
            None => write!(out, "{}", text(style()))?,
        }
        Ok(OK)
    }
}

fn cannot_write(path: &str, error: &io::Error) -> String {
    format!("{path}: cannot be written: {error}")
}

/// The text of a file, or of standard input for `-`.
pub(crate) fn read(path: &str) -> Result<String, String> {
    let text = match path {
        "-" => read_text(io::stdin().lock()),
        _ => read_file(path),
    };
    text.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => format!("{path}: {error}"),
        _ => format!("{path}: cannot be read: {error}"),
    })
}

/// The text of a file.
pub(crate) fn read_file(path: impl AsRef<Path>) -> io::Result<String> {
    File::open(path).and_then(read_text)
}

fn read_text(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_MAX} bytes")));
    }
    let not_text =
        |_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8: save the text as UTF-8");
    String::from_utf8(bytes).map_err(not_text)
}

/// The exit code of a command after its result was printed. A reader that has gone does not change it.
pub(crate) fn printed(code: u8, result: io::Result<()>) -> io::Result<u8> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(code),
    }
}

/// Writes an error and returns its exit code.
pub(crate) fn fail(err: &mut dyn Write, code: u8, text: &str) -> io::Result<u8> {
    writeln!(err, "{text}")?;
    Ok(code)
}

/// The width of the terminal, and colours as [`color::is_on`] says.
pub(crate) fn style() -> Style {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = terminal.or_else(stated).unwrap_or(80);
    match color::is_on(&io::stdout()) {
        true => Style::coloured(columns),
        false => Style::plain(columns),
    }
}
