//! Whether there is as much disk as a run takes, told before anything is built.
//!
//! Rule: it only says so. What is there already, and who else writes to the disk, nobody knows; a step that
//! finds none left fails by itself.

use crate::command_line::CommandLine;

/// What a whole run takes from nothing, without incremental files and debug information as `.ci/run` has
/// it: 3.2 GB were measured in the target folder, and 1.1 GB in what cargo, Go, Maven and npm keep elsewhere.
const NEEDED_MB: u64 = 4_400;

/// Asks how much is free where the target folder is, in kilobytes and on one line whatever the name.
pub(crate) fn question(target_exists: bool) -> CommandLine {
    CommandLine::new("df -Pk").arg(if target_exists { "target" } else { "." })
}

/// The megabytes that are free, of what `df -Pk` printed.
pub(crate) fn free_mb(printed: &str) -> Option<u64> {
    // Names of devices and folders may have blanks; only the share that is used is a percentage.
    let words: Vec<_> = printed.lines().nth(1)?.split_whitespace().collect();
    let used = words.iter().position(|word| word.ends_with('%'))?;
    let free: u64 = words.get(used.checked_sub(1)?)?.parse().ok()?;
    Some(free / 1024)
}

/// What to tell, of a run of all steps or of some.
pub(crate) fn told(free_mb: Option<u64>, all: bool) -> String {
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
    //! Goal: who has too little disk reads so first. Method: what `df` prints, in its variants.

    use super::*;

    #[test]
    fn the_free_megabytes_stand_before_the_percentage_whatever_the_names() {
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
    fn too_little_for_all_steps_is_told_and_enough_is_not_complained_of() {
        assert!(told(Some(NEEDED_MB - 1), true).contains("no space left"));
        assert_eq!(told(Some(NEEDED_MB), true), format!("free disk: {NEEDED_MB} MB"));
        assert_eq!(told(Some(1), false), "free disk: 1 MB", "one step may need less");
        assert_eq!(told(None, true), "free disk: unknown");
    }
}
