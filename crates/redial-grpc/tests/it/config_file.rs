//! Watching a config file: every kind of write is noticed, and an invalid config is never applied.
//! The files are in a temporary folder; the clock is paused.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redial_grpc::{
    ConfigFileError, ConfigWatch, Control, Problem, RetryLayer, ServiceConfig, WATCH_MIN,
};
use redial_service_config::TEXT_MAX;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

const EVERY: Duration = Duration::from_secs(1);

/// A config whose entries have this timeout.
fn config(seconds: u32) -> String {
    format!(r#"{{ "methodConfig": [{{ "name": [{{}}], "timeout": "{seconds}s" }}] }}"#)
}

struct WatchedFile {
    folder: TempDir,
    path: PathBuf,
    layer: RetryLayer,
    watch: ConfigWatch,
}

impl WatchedFile {
    /// A layer that watches its config file, after the first read.
    async fn new() -> WatchedFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, config(1)).unwrap();
        let layer = RetryLayer::from_file(&path).unwrap();
        let watch = layer.control().watch_file(&path, EVERY);
        let mut watched = WatchedFile { folder, path, layer, watch };
        assert!(watched.change().await.unwrap().is_empty());
        watched
    }

    async fn change(&mut self) -> Result<Vec<Problem>, ConfigFileError> {
        self.watch.changed().await.expect("the layer is alive")
    }

    /// Whether the watch reports nothing during twenty intervals.
    async fn is_quiet(&mut self) -> bool {
        timeout(20 * EVERY, self.watch.changed()).await.is_err()
    }

    fn in_force(&self) -> u64 {
        seconds(&self.layer.control())
    }
}

fn seconds(control: &Control) -> u64 {
    control.config().entries()[0].timeout.unwrap().as_secs()
}

#[tokio::test(start_paused = true)]
async fn config_file_is_read_and_applied_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, config(7)).unwrap();
    let layer = RetryLayer::builder().build();
    let began = Instant::now();
    let mut watch = layer.control().watch_file(&path, EVERY);
    assert!(watch.changed().await.unwrap().is_ok());
    assert_eq!((began.elapsed(), seconds(&layer.control())), (Duration::ZERO, 7));
}

/// In a `select!` loop the future of `changed` is dropped and created again before the interval ends.
#[tokio::test(start_paused = true)]
async fn config_file_watch_polled_in_short_slices_finds_changes() {
    let mut watched = WatchedFile::new().await;
    for (text, seconds) in [(config(2), 2), ("{".into(), 2), (config(3), 3)] {
        fs::write(&watched.path, &text).unwrap();
        let began = Instant::now();
        let mut found = None;
        while found.is_none() && began.elapsed() < 20 * EVERY {
            found = timeout(EVERY / 40, watched.watch.changed()).await.ok();
        }
        let found = found.expect("the change is found").expect("the layer is alive");
        assert_eq!((found.is_ok(), watched.in_force()), (text.len() > 1, seconds));
        assert!(began.elapsed() < 2 * EVERY, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn config_file_watch_with_infinite_interval_reads_once() {
    let watched = WatchedFile::new().await;
    let mut watch = watched.layer.control().watch_file(&watched.path, Duration::MAX);
    assert!(watch.changed().await.unwrap().is_ok());
    fs::write(&watched.path, config(2)).unwrap();
    assert!(timeout(1000 * EVERY, watch.changed()).await.is_err());
    assert_eq!(watched.in_force(), 1);
}

#[tokio::test(start_paused = true)]
async fn config_file_warnings_consider_the_layer_options() {
    let text = r#"{ "methodConfig": [{ "name": [{}], "retryPolicy": { "maxAttempts": 8,
        "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"] } }],
        "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 } }"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, text).unwrap();
    for (cap, warnings) in [(8, 0), (7, 1)] {
        let builder = RetryLayer::builder().attempts_cap(cap).config_file(&path).unwrap();
        assert_eq!(builder.warnings().len(), warnings, "from a file, {cap}");
        let control = builder.build().control();
        assert_eq!(control.set_json(text).unwrap().len(), warnings, "swapped, {cap}");
        let watched = control.watch_file(&path, EVERY).changed().await.unwrap().unwrap();
        assert_eq!(watched.len(), warnings, "watched, {cap}");
    }
}

#[tokio::test(start_paused = true)]
async fn config_file_changes_are_found_for_every_kind_of_write() {
    let mut watched = WatchedFile::new().await;
    assert!(watched.is_quiet().await);

    // Written in place, with the same length and within the same second.
    fs::write(&watched.path, config(2)).unwrap();
    assert!(watched.change().await.is_ok());
    assert_eq!(watched.in_force(), 2);

    // Replaced by another file with an older modification time.
    let other = watched.folder.path().join("other.json");
    fs::write(&other, config(3)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(&other).unwrap().set_modified(old).unwrap();
    fs::rename(&other, &watched.path).unwrap();
    assert!(watched.change().await.is_ok());
    assert_eq!(watched.in_force(), 3);

    // The same content is no change, even with a new modification time.
    fs::write(&watched.path, config(3)).unwrap();
    assert!(watched.is_quiet().await);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn config_file_symlink_change_is_found() {
    let mut watched = WatchedFile::new().await;
    let (next, link) =
        (watched.folder.path().join("next.json"), watched.folder.path().join("link"));
    fs::write(&next, config(4)).unwrap();
    std::os::unix::fs::symlink(&next, &link).unwrap();
    fs::rename(&link, &watched.path).unwrap();
    assert!(watched.change().await.is_ok());
    assert_eq!(watched.in_force(), 4);
}

#[tokio::test(start_paused = true)]
async fn config_file_invalid_is_reported_once_and_not_applied() {
    let mut watched = WatchedFile::new().await;
    fs::write(&watched.path, config(2).replace("2s", "2 s")).unwrap();
    let error = watched.change().await.unwrap_err();
    assert_eq!(error.path(), watched.path);
    assert_eq!(error.problems().unwrap().iter().count(), 1);
    assert!(error.to_string().starts_with(&format!("{}:1:", watched.path.display())), "{error}");
    assert!(error.to_string().contains("[timeout]"), "{error}");
    assert_eq!(watched.in_force(), 1);
    assert!(watched.is_quiet().await);

    // Another invalid config is reported again.
    fs::write(&watched.path, "{").unwrap();
    assert!(watched.change().await.is_err());
    fs::write(&watched.path, config(5)).unwrap();
    assert!(watched.change().await.is_ok());
    assert_eq!(watched.in_force(), 5);
}

#[tokio::test(start_paused = true)]
async fn config_file_half_written_is_read_again() {
    let mut watched = WatchedFile::new().await;
    let whole = config(6);
    let half = &whole[..whole.len() / 2];
    // Truncated first, and complete before the second read that confirms an invalid file.
    let path = watched.path.clone();
    let text = whole.clone();
    fs::write(&path, "").unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(EVERY + Duration::from_millis(50)).await;
        fs::write(&path, &text).unwrap();
    });
    assert!(watched.change().await.is_ok(), "the empty file is not reported");
    assert_eq!(watched.in_force(), 6);

    // A file that stays incomplete is reported.
    fs::write(&watched.path, half).unwrap();
    assert!(watched.change().await.unwrap_err().problems().is_some());
    assert_eq!(watched.in_force(), 6);
}

#[tokio::test(start_paused = true)]
async fn config_file_missing_is_reported_and_awaited() {
    let mut watched = WatchedFile::new().await;
    fs::remove_file(&watched.path).unwrap();
    let error = watched.change().await.unwrap_err();
    assert!(error.is_missing() && error.problems().is_none());
    assert_eq!(error.to_string(), format!("{}: the file cannot be read", watched.path.display()));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(watched.in_force(), 1);
    assert!(watched.is_quiet().await);
    fs::write(&watched.path, config(1)).unwrap();
    assert!(watched.change().await.is_ok(), "the file is back with the same content");
}

#[tokio::test(start_paused = true)]
async fn config_file_not_utf8_or_not_a_file_is_reported() {
    let mut watched = WatchedFile::new().await;
    fs::write(&watched.path, b"{ \xff }").unwrap();
    let error = watched.change().await.unwrap_err();
    assert!(error.to_string().ends_with("not UTF-8 from byte 2 on"), "{error}");
    fs::remove_file(&watched.path).unwrap();
    fs::create_dir(&watched.path).unwrap();
    let error = watched.change().await.unwrap_err();
    assert!(error.to_string().ends_with("not a file") && !error.is_missing(), "{error}");
    assert!(watched.is_quiet().await);
    fs::remove_dir(&watched.path).unwrap();
    fs::write(&watched.path, config(2)).unwrap();
    assert!(watched.change().await.is_ok());
}

/// A config padded to this many bytes.
fn padded(seconds: u32, size: usize) -> String {
    let text = config(seconds);
    let padding = size - text.len();
    text + &" ".repeat(padding)
}

#[tokio::test(start_paused = true)]
async fn config_file_size_limit_is_exact() {
    let mut watched = WatchedFile::new().await;
    fs::write(&watched.path, padded(2, TEXT_MAX)).unwrap();
    assert!(watched.change().await.is_ok());
    fs::write(&watched.path, padded(3, TEXT_MAX + 1)).unwrap();
    let error = watched.change().await.unwrap_err();
    assert!(error.to_string().ends_with("a config has at most 1048576 bytes"), "{error}");
    assert_eq!(watched.in_force(), 2);
    assert!(watched.is_quiet().await, "the same error is reported once");
}

#[tokio::test(start_paused = true)]
async fn config_file_warnings_are_returned() {
    let mut watched = WatchedFile::new().await;
    fs::write(&watched.path, config(2).replace("timeout", "timeOut")).unwrap();
    assert_eq!(watched.change().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn config_file_is_read_no_more_often_than_watch_min() {
    let watched = WatchedFile::new().await;
    let mut watch = watched.layer.control().watch_file(&watched.path, Duration::ZERO);
    assert!(watch.changed().await.unwrap().is_ok());
    let began = Instant::now();
    fs::write(&watched.path, config(2)).unwrap();
    assert!(watch.changed().await.unwrap().is_ok());
    // The resolution of the timer is a millisecond.
    assert!((WATCH_MIN..=2 * WATCH_MIN).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn config_file_watch_ends_with_its_layer() {
    let watched = WatchedFile::new().await;
    let WatchedFile { layer, watch, folder, .. } = watched;
    let running = tokio::spawn(watch.run());
    tokio::time::sleep(20 * EVERY).await;
    assert!(!running.is_finished());
    drop(layer);
    tokio::time::sleep(2 * EVERY).await;
    assert!(running.is_finished());
    drop(folder);
}

#[tokio::test(start_paused = true)]
async fn config_file_watch_dropped_applies_no_more_changes() {
    let watched = WatchedFile::new().await;
    let WatchedFile { layer, watch, path, folder } = watched;
    let running = tokio::spawn(watch.run());
    tokio::time::sleep(EVERY).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    fs::write(&path, config(9)).unwrap();
    tokio::time::sleep(20 * EVERY).await;
    assert_eq!(seconds(&layer.control()), 1);
    drop(folder);
}

#[test]
fn config_file_errors_name_the_problem_and_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let missing = RetryLayer::from_file(&path).unwrap_err();
    assert!(missing.is_missing());
    let shown = format!("{missing:?}");
    assert!(shown.contains("the file cannot be read: ") && !shown.contains('{'), "{shown}");
    fs::write(&path, r#"{ "methodConfig": [{ "timeout": "x", "waitForReady": 1 }] }"#).unwrap();
    let error = RetryLayer::from_file(&path).unwrap_err();
    let text = error.to_string();
    let places: Vec<_> =
        text.lines().map(|line| line.starts_with(path.to_str().unwrap())).collect();
    assert_eq!(places, [true, true], "{text}");
    assert_eq!(format!("{error:?}"), format!("\n{text}"), "as `main` prints it");
    fs::write(&path, config(3)).unwrap();
    let layer = RetryLayer::builder().for_server("a").config_file(Path::new(&path)).unwrap();
    assert_eq!(seconds(&layer.build().control()), 3);
    assert!(ServiceConfig::parse(&config(3)).is_ok());
}
