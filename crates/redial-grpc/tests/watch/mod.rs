//! Goal: a config file is followed through every way of writing it, and a bad one changes nothing.
//! Method: files in a folder of the test's own, and a paused clock that moves from look to look.

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

struct Rig {
    folder: TempDir,
    path: PathBuf,
    layer: RetryLayer,
    watch: ConfigWatch,
}

impl Rig {
    /// A layer whose config is followed, and was put in force.
    async fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, config(1)).unwrap();
        let layer = RetryLayer::from_file(&path).unwrap();
        let watch = layer.control().watch_file(&path, EVERY);
        let mut rig = Rig { folder, path, layer, watch };
        assert!(rig.change().await.unwrap().is_empty());
        rig
    }

    async fn change(&mut self) -> Result<Vec<Problem>, ConfigFileError> {
        self.watch.changed().await.expect("the layer is there")
    }

    /// Nothing is told for a while.
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
async fn the_first_look_is_at_once_and_puts_the_file_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, config(7)).unwrap();
    let layer = RetryLayer::builder().build();
    let began = Instant::now();
    let mut watch = layer.control().watch_file(&path, EVERY);
    assert!(watch.changed().await.unwrap().is_ok());
    assert_eq!((began.elapsed(), seconds(&layer.control())), (Duration::ZERO, 7));
}

/// Who also has other things to do asks again and again, and each time for less than the interval.
/// Red: `sleep(self.every)` in place of `sleep_until(due)` in `ConfigWatch::changed`.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_asked_for_less_than_its_interval_at_a_time_still_finds_a_change() {
    let mut rig = Rig::new().await;
    for (text, seconds) in [(config(2), 2), ("{".into(), 2), (config(3), 3)] {
        fs::write(&rig.path, &text).unwrap();
        let began = Instant::now();
        let mut found = None;
        while found.is_none() && began.elapsed() < 20 * EVERY {
            found = timeout(EVERY / 40, rig.watch.changed()).await.ok();
        }
        let found = found.expect("nothing was found").expect("the layer is there");
        assert_eq!((found.is_ok(), rig.in_force()), (text.len() > 1, seconds));
        assert!(began.elapsed() < 2 * EVERY, "{:?}", began.elapsed());
    }
}

/// Red: `unwrap_or(start)` in `after` of `timer.rs`.
#[tokio::test(start_paused = true)]
async fn an_interval_that_no_clock_can_show_looks_once() {
    let rig = Rig::new().await;
    let mut watch = rig.layer.control().watch_file(&rig.path, Duration::MAX);
    assert!(watch.changed().await.unwrap().is_ok());
    fs::write(&rig.path, config(2)).unwrap();
    assert!(timeout(1000 * EVERY, watch.changed()).await.is_err());
    assert_eq!(rig.in_force(), 1);
}

#[tokio::test(start_paused = true)]
async fn warnings_are_for_the_options_of_the_layer() {
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
async fn a_file_is_followed_however_it_is_written() {
    let mut rig = Rig::new().await;
    assert!(rig.is_quiet().await);

    // In place, and with the same length and within the same second.
    fs::write(&rig.path, config(2)).unwrap();
    assert!(rig.change().await.is_ok());
    assert_eq!(rig.in_force(), 2);

    // By another file that takes its place, with an older time.
    let other = rig.folder.path().join("other.json");
    fs::write(&other, config(3)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(&other).unwrap().set_modified(old).unwrap();
    fs::rename(&other, &rig.path).unwrap();
    assert!(rig.change().await.is_ok());
    assert_eq!(rig.in_force(), 3);

    // The same again is no change, whenever it was written.
    fs::write(&rig.path, config(3)).unwrap();
    assert!(rig.is_quiet().await);
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_link_that_leads_elsewhere_is_followed() {
    let mut rig = Rig::new().await;
    let (next, link) = (rig.folder.path().join("next.json"), rig.folder.path().join("link"));
    fs::write(&next, config(4)).unwrap();
    std::os::unix::fs::symlink(&next, &link).unwrap();
    fs::rename(&link, &rig.path).unwrap();
    assert!(rig.change().await.is_ok());
    assert_eq!(rig.in_force(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_bad_config_is_told_once_and_the_one_in_force_stays() {
    let mut rig = Rig::new().await;
    fs::write(&rig.path, config(2).replace("2s", "2 s")).unwrap();
    let error = rig.change().await.unwrap_err();
    assert_eq!(error.path(), rig.path);
    assert_eq!(error.problems().unwrap().iter().count(), 1);
    assert!(error.to_string().starts_with(&format!("{}:1:", rig.path.display())), "{error}");
    assert!(error.to_string().contains("[timeout]"), "{error}");
    assert_eq!(rig.in_force(), 1);
    assert!(rig.is_quiet().await);

    // Another bad one is another matter.
    fs::write(&rig.path, "{").unwrap();
    assert!(rig.change().await.is_err());
    fs::write(&rig.path, config(5)).unwrap();
    assert!(rig.change().await.is_ok());
    assert_eq!(rig.in_force(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_being_written_is_given_time() {
    let mut rig = Rig::new().await;
    let whole = config(6);
    let half = &whole[..whole.len() / 2];
    // Emptied, then half, then whole: between the look that is due and the one that makes sure.
    let path = rig.path.clone();
    let text = whole.clone();
    fs::write(&path, "").unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(EVERY + Duration::from_millis(50)).await;
        fs::write(&path, &text).unwrap();
    });
    assert!(rig.change().await.is_ok(), "nobody is told of the empty file");
    assert_eq!(rig.in_force(), 6);

    // What stays half is told.
    fs::write(&rig.path, half).unwrap();
    assert!(rig.change().await.unwrap_err().problems().is_some());
    assert_eq!(rig.in_force(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_missing_file_is_told_and_waited_for() {
    let mut rig = Rig::new().await;
    fs::remove_file(&rig.path).unwrap();
    let error = rig.change().await.unwrap_err();
    assert!(error.is_missing() && error.problems().is_none());
    assert_eq!(error.to_string(), format!("{}: the file cannot be read", rig.path.display()));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(rig.in_force(), 1);
    assert!(rig.is_quiet().await);
    fs::write(&rig.path, config(1)).unwrap();
    assert!(rig.change().await.is_ok(), "it is back, as it was");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_text_and_no_file_is_told() {
    let mut rig = Rig::new().await;
    fs::write(&rig.path, b"{ \xff }").unwrap();
    let error = rig.change().await.unwrap_err();
    assert!(error.to_string().ends_with("not UTF-8 from byte 2 on"), "{error}");
    fs::remove_file(&rig.path).unwrap();
    fs::create_dir(&rig.path).unwrap();
    let error = rig.change().await.unwrap_err();
    assert!(error.to_string().ends_with("not a file") && !error.is_missing(), "{error}");
    assert!(rig.is_quiet().await);
    fs::remove_dir(&rig.path).unwrap();
    fs::write(&rig.path, config(2)).unwrap();
    assert!(rig.change().await.is_ok());
}

/// A config of so many bytes.
fn padded(seconds: u32, size: usize) -> String {
    let text = config(seconds);
    let padding = size - text.len();
    text + &" ".repeat(padding)
}

#[tokio::test(start_paused = true)]
async fn a_file_may_have_so_many_bytes_and_not_one_more() {
    let mut rig = Rig::new().await;
    fs::write(&rig.path, padded(2, TEXT_MAX)).unwrap();
    assert!(rig.change().await.is_ok());
    fs::write(&rig.path, padded(3, TEXT_MAX + 1)).unwrap();
    let error = rig.change().await.unwrap_err();
    assert!(error.to_string().ends_with("a config has at most 1048576 bytes"), "{error}");
    assert_eq!(rig.in_force(), 2);
    assert!(rig.is_quiet().await, "though it is another file each time it is read");
}

#[tokio::test(start_paused = true)]
async fn warnings_come_with_the_config() {
    let mut rig = Rig::new().await;
    fs::write(&rig.path, config(2).replace("timeout", "timeOut")).unwrap();
    assert_eq!(rig.change().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_is_looked_at_no_more_often_than_it_may_be() {
    let rig = Rig::new().await;
    let mut watch = rig.layer.control().watch_file(&rig.path, Duration::ZERO);
    assert!(watch.changed().await.unwrap().is_ok());
    let began = Instant::now();
    fs::write(&rig.path, config(2)).unwrap();
    assert!(watch.changed().await.unwrap().is_ok());
    // The timer's own step is a millisecond.
    assert!((WATCH_MIN..=2 * WATCH_MIN).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_layer() {
    let rig = Rig::new().await;
    let Rig { layer, watch, folder, .. } = rig;
    let running = tokio::spawn(watch.run());
    tokio::time::sleep(20 * EVERY).await;
    assert!(!running.is_finished());
    drop(layer);
    tokio::time::sleep(2 * EVERY).await;
    assert!(running.is_finished());
    drop(folder);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_changes_nothing_any_more() {
    let rig = Rig::new().await;
    let Rig { layer, watch, path, folder } = rig;
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
fn a_layer_from_a_file_says_what_is_wrong_with_it() {
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
