//! Opens an address in the browser.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program that opens a browser is watched for an error.
const WATCHED: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(50);

/// Opens the address. A program that still runs after a while has opened it.
pub(super) fn open(url: &str) -> Result<(), String> {
    let program = program();
    let name = program[0].to_string_lossy().into_owned();
    let mut child = Command::new(&program[0])
        .args(&program[1..])
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("no browser was opened: {name}: {error}"))?;
    let end = Instant::now() + WATCHED;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(None) => thread::sleep(STEP),
            Ok(Some(status)) if !status.success() => {
                return Err(format!("no browser was opened: {name} ended with {status}"));
            }
            Ok(Some(_)) | Err(_) => break,
        }
    }
    Ok(())
}

/// The program in `BROWSER`, or that of the desktop.
fn program() -> Vec<OsString> {
    if let Some(browser) = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        return vec![browser];
    }
    let words: &[&str] = if cfg!(target_os = "macos") {
        &["open"]
    } else if cfg!(windows) {
        &["rundll32", "url.dll,FileProtocolHandler"]
    } else {
        &["xdg-open"]
    };
    words.iter().map(OsString::from).collect()
}
