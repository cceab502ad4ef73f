//! A config file that is followed while calls run.
//!
//! What counts is what the file holds, not when it was written: whether it was written in place,
//! replaced by another, reached through a link that now leads elsewhere, or written twice within the
//! resolution of the file system's clock makes no difference. So the file is read each time; it is
//! small ([`TEXT_MAX`]).
//!
//! A file that is being written may be seen half. Half a config is not a config, so what is bad is
//! looked at once more, [`SETTLE`] later, before it is told.
//!
//! Invariants: nothing is spawned but the reading itself, which must not hold up an executor; each
//! state of the file is told once; nothing but a config that was checked whole gets into force.
//!
//! [`TEXT_MAX`]: redial_service_config::TEXT_MAX

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redial_service_config::{Problem, ServiceConfig};
use tokio::time::Instant;

use crate::config_file::{self, ConfigFileError, FileProblem};
use crate::control::Control;
use crate::shared::Shared;
use crate::timer::after;

/// The shortest time between two looks at a file; a shorter one becomes this.
pub const WATCH_MIN: Duration = Duration::from_millis(10);

/// How long a file may be in the middle of being written.
const SETTLE: Duration = Duration::from_millis(100);

impl Control {
    /// Follows a config file: what it holds is put in force now, and again whenever it changes. The
    /// file is looked at that often; each look reads it.
    ///
    /// Nothing happens until the result is run or asked: spawn [`ConfigWatch::run`], or a loop
    /// around [`ConfigWatch::changed`] to hear of changes.
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
    ///             Err(error) => eprintln!("the config in force stays: {error:?}"), // and stop_reason
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

/// A config file that is followed; see [`Control::watch_file`]. It does not keep its layer: it ends
/// when the layer, its services and its controls are gone.
///
/// # Cancel safety
/// Dropping it, or a future of its methods, stops following the file. The config in force stays.
#[derive(Debug)]
#[must_use = "a file is followed while somebody asks"]
pub struct ConfigWatch {
    shared: Weak<Shared>,
    path: PathBuf,
    every: Duration,
    /// What the file held when it was last told of.
    last_reported: Option<FileContents>,
    /// When the file is looked at next; the first time at once. It is kept here, since whoever drops
    /// a future before that would otherwise begin to wait anew each time, and never come to look.
    due: Option<Instant>,
    /// The last look found it bad, which is not told before the next one does.
    unconfirmed_error: bool,
}

/// What a file holds: bytes, or an error by its kind.
#[derive(Debug, PartialEq)]
enum FileContents {
    Bytes(Vec<u8>),
    Unreadable(io::ErrorKind),
    NotAFile,
    TooLarge,
}

impl ConfigWatch {
    /// Waits until the file has changed. A config that is right is in force then, and what is legal
    /// in it and surely not meant is returned; calls under way are left alone. `None`: the layer is
    /// gone.
    ///
    /// The first time it does not wait: what the file holds is put in force.
    ///
    /// # Errors
    /// The file is missing or cannot be read, or everything that is wrong with what it holds; the
    /// config in force stays (decision G39). It is told once, and the file is followed further.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next one finds it.
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

    /// Follows the file until the layer is gone. What is wrong with it is told to `tracing` alone,
    /// if that feature is on; [`ConfigWatch::changed`] returns it.
    pub async fn run(mut self) {
        while self.changed().await.is_some() {}
    }

    /// Looks at the file; outer `None`: the layer is gone; inner: nothing new.
    async fn check(&self) -> Option<Option<(FileContents, Result<ServiceConfig, FileProblem>)>> {
        // Copied, so that nothing holds the layer while the file is read.
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

/// Tells `tracing` of a change.
#[cfg(feature = "tracing")]
fn log_change(path: &Path, change: &Result<Vec<Problem>, ConfigFileError>) {
    let file = path.display();
    match change {
        Ok(warnings) => {
            tracing::info!(target: "redial", %file, warnings = warnings.len(), "config in force");
        }
        Err(error) => {
            // One level: what the file is, and then why.
            let cause = std::error::Error::source(error);
            let cause = cause.map(tracing::field::display);
            tracing::warn!(target: "redial", %file, %error, cause, "config refused");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn log_change(_path: &Path, _change: &Result<Vec<Problem>, ConfigFileError>) {}
