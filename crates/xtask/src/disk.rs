//! Reports the free disk space before anything is built.
//!
//! It only warns: existing build files and other processes change the need, and a step without
//! space fails by itself.

use crate::command_line::CommandLine;

/// The space of a whole run from scratch, without incremental files and debug information as in
/// `.ci/run`: 3.2 GB were measured in the target folder, and 1.1 GB in the caches of cargo, Go,
/// Maven and npm.
const NEEDED_MB: u64 = 4_400;

/// Queries the free space of the target folder's disk, in kilobytes and on one line.
pub(crate) fn question(target_exists: bool) -> CommandLine {
    CommandLine::new("df -Pk").arg(if target_exists { "target" } else { "." })
}

/// The free megabytes in the output of `df -Pk`.
pub(crate) fn free_mb(printed: &str) -> Option<u64> {
    // Names of devices and folders may have blanks; only the used share is a percentage.
    let words: Vec<_> = printed.lines().nth(1)?.split_whitespace().collect();
    let used = words.iter().position(|word| word.ends_with('%'))?;
    let free: u64 = words.get(used.checked_sub(1)?)?.parse().ok()?;
    Some(free / 1024)
}

/// The message for a run of all steps or of some.
pub(crate) fn message(free_mb: Option<u64>, all: bool) -> String {
    match free_mb {
        None => "free disk: unknown".to_owned(),
        Some(free) if all && free < NEEDED_MB => format!(
            "free disk: {free} MB, and a run from nothing takes {NEEDED_MB}: \
             it may end with \"no space left on device\""
        ),
        Some(free) => format!("free disk: {free} MB"),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: too little disk space is reported first. Method: variants of the output of `df`.

    use super::*;

    #[test]
    fn disk_free_space_is_parsed_for_any_device_name() {
        let printed = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n\
                       /dev/a b         263940717 40000000  53687092      43% /\n";
        assert_eq!(free_mb(printed), Some(52_428));
        assert_eq!(free_mb(&printed.replace("a b", "a")), Some(52_428));
        assert_eq!(free_mb(""), None);
        assert_eq!(free_mb("Filesystem\n"), None);
        assert_eq!(free_mb("Filesystem\n43% /\n"), None);
        assert_eq!(free_mb("Filesystem\n/dev/a 1 1 - 43% /\n"), None);
    }

    #[test]
    fn disk_warning_appears_only_below_the_needed_space() {
        assert!(message(Some(NEEDED_MB - 1), true).contains("no space left"));
        assert_eq!(message(Some(NEEDED_MB), true), format!("free disk: {NEEDED_MB} MB"));
        assert_eq!(message(Some(1), false), "free disk: 1 MB", "one step may need less");
        assert_eq!(message(None, true), "free disk: unknown");
    }
}
