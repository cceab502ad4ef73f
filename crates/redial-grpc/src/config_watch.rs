//! Watching a config file and applying its changes at run time.
//!
//! Changes are detected by contents, not by modification time. That covers files written in place,
//! files replaced by a rename, symlinks that point to a new target, and two writes within the
//! resolution of the file system clock. Each check reads the whole file, which is small ([`TEXT_MAX`]).
//!
//! A check may see a file that is only partly written. Therefore an invalid file is checked again after
//! [`SETTLE`] before the error is reported.
//!
//! Invariants: only the blocking read is spawned, so that it cannot block an executor; each state of
//! the file is reported once; only a config that was validated as a whole takes effect.
//!
//! [`TEXT_MAX`]: redial_service_config::TEXT_MAX

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redial_service_config::{Problem, ServiceConfig};
use tokio::time::Instant;

use crate::clock::after;
use crate::config_file::{self, ConfigFileError, FileProblem};
use crate::control::Control;
use crate::shared::Shared;

/// The minimum interval between two checks of a file; shorter intervals are raised to it.
pub const WATCH_MIN: Duration = Duration::from_millis(10);

/// How long an invalid file may be the result of a write in progress.
const SETTLE: Duration = Duration::from_millis(100);

impl Control {
    /// Watches a config file: its config takes effect now and again whenever the contents change. The
    /// file is read once per `every`.
    ///
    /// Nothing happens until the result is polled: spawn [`ConfigWatch::run`], or call
    /// [`ConfigWatch::changed`] in a loop to observe changes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redial_grpc::RetryLayer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("service-config.json");
    /// # std::fs::write(&path, r#"{ "methodConfig": [] }"#)?;
    /// let layer = RetryLayer::from_file(&path)?;
    /// let mut watch = layer.control().watch_file(&path, Duration::from_secs(5));
    /// tokio::spawn(async move {
    ///     while let Some(change) = watch.changed().await {
    ///         match change {
    ///             Ok(warnings) => warnings.iter().for_each(|warning| eprintln!("{warning}")),
    ///             Err(error) => eprintln!("the config in force stays: {error:?}"),
    ///         }
    ///     }
    /// });
    /// # drop(layer); Ok(())
    /// # }
    /// ```
    pub fn watch_file(&self, path: impl Into<PathBuf>, every: Duration) -> ConfigWatch {
        ConfigWatch {
            shared: Arc::downgrade(&self.shared),
            path: path.into(),
            every: every.max(WATCH_MIN),
            last_reported: None,
            due: None,
            unconfirmed_error: false,
        }
    }
}

/// A watched config file; see [`Control::watch_file`]. It holds only a weak reference to its layer: it
/// ends when the layer, its services and its controls have been dropped.
///
/// # Cancel safety
/// Dropping it, or a future of its methods, stops watching the file. The current config stays.
#[derive(Debug)]
#[must_use = "a config file is watched only while this is polled"]
pub struct ConfigWatch {
    shared: Weak<Shared>,
    path: PathBuf,
    every: Duration,
    /// Contents of the file at the last report.
    last_reported: Option<FileContents>,
    /// Time of the next check; `None` for an immediate first check. Kept across futures: if each future
    /// started a new interval, a caller that drops futures early (as `select!` does) would never reach a
    /// check.
    due: Option<Instant>,
    /// The last check found an error, which the next check must confirm before it is reported.
    unconfirmed_error: bool,
}

/// Contents of a file, or the kind of error; compared to detect changes.
#[derive(Debug, PartialEq)]
enum FileContents {
    Bytes(Vec<u8>),
    Unreadable(io::ErrorKind),
    NotAFile,
    TooLarge,
}

impl ConfigWatch {
    /// Waits until the contents of the file change. A valid config takes effect, and its warnings are
    /// returned; running calls are not affected. `None`: the layer has been dropped.
    ///
    /// The first call does not wait: it applies the current contents.
    ///
    /// # Errors
    /// The file is missing, cannot be read or is not a valid config; all problems are listed. The
    /// current config stays (decision G39). Each error is reported once, and the watch continues.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call finds it.
    pub async fn changed(&mut self) -> Option<Result<Vec<Problem>, ConfigFileError>> {
        loop {
            if let Some(due) = self.due {
                tokio::time::sleep_until(due).await;
            }
            let checked = self.check().await?;
            let is_bad = matches!(checked, Some((_, Err(_))));
            self.unconfirmed_error = is_bad && !self.unconfirmed_error;
            let wait = if self.unconfirmed_error { SETTLE } else { self.every };
            self.due = Some(after(Instant::now(), wait));
            let Some((contents, config)) = checked.filter(|_| !self.unconfirmed_error) else {
                continue;
            };
            let shared = self.shared.upgrade()?;
            self.last_reported = Some(contents);
            let change = config.map(|config| {
                let warnings = config.warnings().to_vec();
                shared.set_config(config);
                warnings
            });
            let change = change.map_err(|problem| problem.at(&self.path));
            log_change(&self.path, &change);
            return Some(change);
        }
    }

    /// Watches the file until the layer has been dropped. Errors are only logged (feature `tracing`);
    /// use [`ConfigWatch::changed`] to handle them.
    pub async fn run(mut self) {
        while self.changed().await.is_some() {}
    }

    /// Reads the file. Outer `None`: the layer has been dropped; inner `None`: no change.
    async fn check(&self) -> Option<Option<(FileContents, Result<ServiceConfig, FileProblem>)>> {
        // Copied, so that the layer is not kept alive while the file is read.
        let client = self.shared.upgrade()?.client;
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || config_file::read(&path)).await;
        let read = read.unwrap_or_else(|error| Err(FileProblem::Io(io::Error::other(error))));
        let (contents, problem) = match read {
            Ok(bytes) => (FileContents::Bytes(bytes), None),
            Err(FileProblem::Io(error)) => {
                (FileContents::Unreadable(error.kind()), Some(FileProblem::Io(error)))
            }
            Err(FileProblem::TooLarge) => (FileContents::TooLarge, Some(FileProblem::TooLarge)),
            Err(problem) => (FileContents::NotAFile, Some(problem)),
        };
        if self.last_reported.as_ref() == Some(&contents) {
            return Some(None);
        }
        let config = match (&contents, problem) {
            (FileContents::Bytes(bytes), None) => config_file::parse(bytes, &client),
            (_, problem) => Err(problem.unwrap_or(FileProblem::NotAFile)),
        };
        Some(Some((contents, config)))
    }
}

/// Logs a change through `tracing`.
#[cfg(feature = "tracing")]
fn log_change(path: &Path, change: &Result<Vec<Problem>, ConfigFileError>) {
    let file = path.display();
    match change {
        Ok(warnings) => {
            tracing::info!(target: "redial", %file, warnings = warnings.len(), "config in force");
        }
        Err(error) => {
            // One level of `source`: the error of the file system.
            let cause = std::error::Error::source(error);
            let cause = cause.map(tracing::field::display);
            tracing::warn!(target: "redial", %file, %error, cause, "config refused");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn log_change(_path: &Path, _change: &Result<Vec<Problem>, ConfigFileError>) {}
