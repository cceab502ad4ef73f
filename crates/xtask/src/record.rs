//! The record of long runs, `docs/long.md`: few people run them, and all may want to know. A run
//! that names its steps brings their rows up to date and leaves the others.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command_line::CommandLine;
use crate::machine;
use crate::run::{self, Report};
use crate::steps::STEPS;

const PATH: &str = "docs/long.md";

/// Writes the record, and gives back where it is.
pub(crate) fn write(root: &Path, reports: &[Report]) -> io::Result<&'static str> {
    let ask = |words| machine::output(root, &CommandLine::new(words)).unwrap_or_default();
    let commit = ask("git describe --always --dirty");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = root.join(PATH);
    // Without one, all rows are new.
    let before = fs::read_to_string(&path).unwrap_or_default();
    let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
    let when = format!("{} | {}", date(since.as_secs() / 86_400), commit.trim());
    fs::write(path, text(&names, &before, &when, reports))?;
    Ok(PATH)
}

/// The record with a row for each step that has run, now or before.
fn text(names: &[&str], before: &str, when: &str, reports: &[Report]) -> String {
    let mut text = "# The last long runs\n\n`cargo xtask test --long` writes this; with the names of steps behind it, \
                    their rows.\n\n| step | result | time | date | commit | what holds |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for name in names {
        // Writing to a string cannot fail.
        let _ = match reports.iter().find(|report| report.name == *name) {
            Some(Report { outcome, took, why, .. }) => {
                let (result, time) = (outcome.word(), run::spoken(*took));
                writeln!(text, "| {name} | {result} | {time} | {when} | {why} |")
            }
            None => match before.lines().find(|row| row.starts_with(&format!("| {name} |"))) {
                Some(row) => writeln!(text, "{row}"),
                None => Ok(()),
            },
        };
    }
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

    fn report(name: &'static str, outcome: Outcome) -> Report {
        Report { name, why: "it holds", outcome, took: Duration::from_secs(61) }
    }

    #[test]
    fn a_run_writes_its_rows_and_keeps_those_of_others() {
        let names = ["a", "b", "c"];
        let first = [report("a", Outcome::Passed), report("b", Outcome::Passed)];
        let first = text(&names, "", "2026-01-02 | abc", &first);
        let of_b = [report("b", Outcome::Failed(Vec::new()))];
        let second = text(&names, &first, "2026-01-03 | def", &of_b);
        let rows: Vec<_> = second.lines().skip_while(|row| !row.starts_with("| ---")).collect();
        assert_eq!(
            rows[1..],
            [
                "| a | passed | 1 min 01 s | 2026-01-02 | abc | it holds |",
                "| b | failed | 1 min 01 s | 2026-01-03 | def | it holds |",
            ]
        );
    }

    #[test]
    fn a_step_that_is_gone_has_no_row_any_more() {
        let before = text(&["a"], "", "2026-01-02 | abc", &[report("a", Outcome::Passed)]);
        assert!(!text(&["b"], &before, "2026-01-03 | def", &[]).contains("| a |"));
    }
}
