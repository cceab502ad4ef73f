//! Reading a service config from a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use redial_service_config::{ClientOptions, Problems, ServiceConfig, TEXT_MAX};

use crate::{RetryLayer, RetryLayerBuilder};

impl RetryLayer {
    /// A layer with the service config in this file. [`Control::watch_file`] applies later changes of
    /// the file. Reads the file on the calling thread.
    ///
    /// # Errors
    /// The file cannot be read, or its contents are not a valid config; all problems are listed.
    ///
    /// [`Control::watch_file`]: crate::Control::watch_file
    pub fn from_file(path: impl AsRef<Path>) -> Result<RetryLayer, ConfigFileError> {
        Ok(RetryLayer::builder().config_file(path)?.build())
    }
}

impl RetryLayerBuilder {
    /// Sets the service config from this file. Reads the file on the calling thread. The warnings take
    /// into account the options that were set before.
    ///
    /// # Errors
    /// The file cannot be read, or its contents are not a valid config; all problems are listed.
    pub fn config_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigFileError> {
        let path = path.as_ref();
        let config = read(path).and_then(|text| parse(&text, &self.client));
        Ok(self.config(config.map_err(|problem| problem.at(path))?))
    }
}

/// Why a file does not contain a valid service config. The text names the file and all problems.
///
/// `{:?}`, which `main` and `unwrap` use, prints that text and its cause; `{:#?}` prints all fields.
pub struct ConfigFileError {
    path: PathBuf,
    problem: FileProblem,
}

impl ConfigFileError {
    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The problems of the config, if the file could be read.
    #[must_use]
    pub const fn problems(&self) -> Option<&Problems> {
        match &self.problem {
            FileProblem::Config(problems) => Some(problems),
            FileProblem::Io(..)
            | FileProblem::NotAFile
            | FileProblem::TooLarge
            | FileProblem::NotUtf8 { .. } => None,
        }
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.problem, FileProblem::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            FileProblem::Io(_) => write!(f, "{path}: the file cannot be read"),
            FileProblem::NotAFile => write!(f, "{path}: not a file"),
            FileProblem::TooLarge => write!(f, "{path}: a config has at most {TEXT_MAX} bytes"),
            FileProblem::NotUtf8 { at } => write!(f, "{path}: not UTF-8 from byte {at} on"),
            FileProblem::Config(problems) => {
                let text = problems.to_string();
                let mut lines = text.lines().map(|line| format!("{path}:{line}"));
                f.write_str(&lines.next().unwrap_or_default())?;
                lines.try_for_each(|line| write!(f, "\n{line}"))
            }
        }
    }
}

impl fmt::Debug for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigFileError { path, problem } = self;
        match problem {
            _ if f.alternate() => f
                .debug_struct("ConfigFileError")
                .field("path", path)
                .field("problem", problem)
                .finish(),
            FileProblem::Io(cause) => write!(f, "{self}: {cause}"),
            // The caller has already printed a prefix such as `Error: `, so the list starts on a new line.
            FileProblem::Config(_) => write!(f, "\n{self}"),
            FileProblem::NotAFile | FileProblem::TooLarge | FileProblem::NotUtf8 { .. } => {
                write!(f, "{self}")
            }
        }
    }
}

impl std::error::Error for ConfigFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            FileProblem::Io(error) => Some(error),
            FileProblem::NotAFile
            | FileProblem::TooLarge
            | FileProblem::NotUtf8 { .. }
            | FileProblem::Config(_) => None,
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) enum FileProblem {
    Io(io::Error),
    NotAFile,
    TooLarge,
    NotUtf8 { at: usize },
    Config(Problems),
}

impl FileProblem {
    pub(crate) fn at(self, path: &Path) -> ConfigFileError {
        ConfigFileError { path: path.into(), problem: self }
    }
}

/// Reads a file of at most `TEXT_MAX` bytes.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileProblem> {
    // Opening a named pipe would block until a writer opens it.
    if !std::fs::metadata(path).map_err(FileProblem::Io)?.is_file() {
        return Err(FileProblem::NotAFile);
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(FileProblem::Io)?;
    // One byte over the limit, to distinguish a file that is too large from one that just fits.
    file.take(TEXT_MAX as u64 + 1).read_to_end(&mut bytes).map_err(FileProblem::Io)?;
    if bytes.len() > TEXT_MAX {
        return Err(FileProblem::TooLarge);
    }
    Ok(bytes)
}

/// Parses the contents of a file, with the client's options.
pub(crate) fn parse(bytes: &[u8], client: &ClientOptions) -> Result<ServiceConfig, FileProblem> {
    match str::from_utf8(bytes) {
        Ok(text) => ServiceConfig::parse_for(text, client).map_err(FileProblem::Config),
        Err(error) => Err(FileProblem::NotUtf8 { at: error.valid_up_to() }),
    }
}
