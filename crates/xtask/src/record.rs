//! The record of the last long run, `docs/long.md`: few people run it, and all may want to know.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command_line::CommandLine;
use crate::machine;
use crate::run::{self, Report};

const PATH: &str = "docs/long.md";

/// Writes the record, and gives back where it is.
pub(crate) fn write(root: &Path, reports: &[Report]) -> io::Result<&'static str> {
    let ask = |words| machine::output(root, &CommandLine::new(words)).unwrap_or_default();
    let commit = ask("git describe --always --dirty");
    let toolchain = ask("rustc --version");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = text(&date(since.as_secs() / 86_400), commit.trim(), toolchain.trim(), reports);
    fs::write(root.join(PATH), text)?;
    Ok(PATH)
}

fn text(date: &str, commit: &str, toolchain: &str, reports: &[Report]) -> String {
    let mut text = format!(
        "# The last long run\n\n`cargo xtask test --long` wrote this: {date}, at {commit}, with {toolchain}.\n\n\
         | step | result | time | what holds |\n| --- | --- | --- | --- |\n"
    );
    for report in reports {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            report.name,
            report.outcome.word(),
            run::spoken(report.took),
            report.why
        );
    }
    let _ = writeln!(text, "\n{}", run::last_line(reports));
    text
}

/// The date of a day counted from 1970-01-01, in UTC.
fn date(day: u64) -> String {
    // Years are counted from March, so that the leap day is the last of its year, and in eras of 400
    // years, which all have 146,097 days; day 719,468 of that count is 1970-01-01.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, months have 153 days in every five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    //! Goal: the record says what ran, when, and how it ended.

    use std::time::Duration;

    use super::*;
    use crate::run::Outcome;

    #[test]
    fn days_become_dates_across_leap_years() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_453), "2025-12-31");
        assert_eq!(date(20_454), "2026-01-01");
    }

    #[test]
    fn the_record_holds_every_step_and_the_count() {
        let (outcome, took) = (Outcome::Passed, Duration::from_secs(61));
        let reports = [Report { name: "deny", why: "licences", outcome, took }];
        let text = text("2026-01-02", "abc123", "rustc 1.2.3", &reports);
        assert!(text.contains("2026-01-02, at abc123, with rustc 1.2.3."));
        assert!(text.contains("| deny | passed | 1 min 01 s | licences |"));
        assert!(text.ends_with("\n1 passed, 0 failed, 0 skipped\n"));
    }
}
