//! Call logs in files (JSON lines), and the policies that made them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use redial::CallLog;
use redial::time::Ns;

use crate::scenarios::source::Source;

/// The largest call log.
pub const LOG_BYTES_MAX: u64 = 1 << 28;

/// Reads a call log; `-` is standard input.
///
/// # Errors
/// It cannot be read, or the first line that is not valid.
pub fn open(path: &Path) -> Result<CallLog, String> {
    let name = path.to_string_lossy();
    let source = Source::open_or_stdin(&name, LOG_BYTES_MAX).map_err(|error| error.to_string())?;
    let log = CallLog::from_json_lines(source.text()).map_err(|error| {
        let error = error.to_string();
        let hint = match error.starts_with("line 1: ") {
            true => "; `redial run --log` and CallLog::to_json_lines write call logs",
            false => "",
        };
        format!("{name}: {error}{hint}")
    })?;
    if log.events().is_empty() {
        return Err(format!("{name}: the call log has no events"));
    }
    Ok(log)
}

/// The file beside a call log in which `redial run --log` writes the policy.
#[must_use]
pub fn policy_beside(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".policy.json");
    name.into()
}

/// A span for people, in milliseconds or seconds.
pub(crate) fn human(span: Ns) -> String {
    match span {
        0 => "0 ms".to_owned(),
        1..1_000_000 => format!("{} µs", span / 1_000),
        1_000_000..10_000_000 => format!("{:.1} ms", span as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", span / 1_000_000),
        _ => format!("{:.2} s", span as f64 / 1e9),
    }
}
