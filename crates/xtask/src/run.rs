//! Runs the steps, and reports what passed, failed or was skipped.
//!
//! A skipped step has a printed reason, and in CI a skipped step is a failure.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::command_line::CommandLine;
use crate::machine::Machine;
use crate::needs::Need;
use crate::steps::{self, Step, When};

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) ci: bool,
    pub(crate) install: bool,
    /// The steps were named explicitly, so all of them run.
    pub(crate) named: bool,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// Each of the reasons.
    Failed(Vec<String>),
    Skipped(String),
}

impl Outcome {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    fn reasons(&self) -> &[String] {
        match self {
            Self::Passed => &[],
            Self::Failed(reasons) => reasons,
            Self::Skipped(reason) => std::slice::from_ref(reason),
        }
    }
}

/// The report of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

pub(crate) fn run(steps: &[&Step], settings: &Settings, machine: &mut impl Machine) -> Vec<Report> {
    let mut reports = Vec::new();
    for step in steps {
        machine.say(&format!("\n== {}", step.name));
        let begun = Instant::now();
        let late = step.when == When::Long && !settings.named && any_failed(&reports);
        let outcome = if late {
            Outcome::Skipped("it takes long, and a step before it failed".into())
        } else {
            attempt(step, settings, machine)
        };
        let outcome = match outcome {
            Outcome::Skipped(reason) if settings.ci => {
                Outcome::Failed(vec![format!("skipped, which CI does not allow: {reason}")])
            }
            outcome => outcome,
        };
        if settings.ci {
            // In CI it is not needed afterwards, and later steps may need the disk space.
            steps::own_folder(step.name).into_iter().for_each(|folder| machine.remove(folder));
        }
        let took = begun.elapsed();
        machine.say(&format!("== {}: {} in {}", step.name, outcome.word(), spoken(took)));
        for reason in outcome.reasons() {
            machine.say(&format!("   {reason}"));
        }
        reports.push(Report { name: step.name, why: step.why, outcome, took });
    }
    reports
}

fn attempt(step: &Step, settings: &Settings, machine: &mut impl Machine) -> Outcome {
    for need in step.needs {
        if let Err(reason) = provide(need, settings, machine) {
            return Outcome::Skipped(reason);
        }
    }
    let lines = match (step.lines)(machine.root()) {
        Ok(lines) => lines,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    let mut failures = Vec::new();
    for line in lines {
        machine.say(&format!("$ {line}"));
        if let Err(reason) = carry_out(&line, machine) {
            failures.push(format!("{line}: {reason}"));
        }
    }
    if failures.is_empty() { Outcome::Passed } else { Outcome::Failed(failures) }
}

/// Runs a command; a failed download is retried, since a network error is not caused by the change.
fn carry_out(line: &CommandLine, machine: &mut impl Machine) -> Result<(), String> {
    if !line.downloads {
        return machine.run(line);
    }
    let patience = machine.patience();
    let run = || {
        let result = machine.run(line);
        if let Err(reason) = &result {
            machine.say(&format!("   it downloads, and failed: {reason}"));
        }
        result
    };
    let result = patience.retry(run).when(|_: &String| true).call();
    result.map_err(|error| {
        let attempts = error.attempts();
        let last = error.into_last().unwrap_or_default();
        format!("{last}, in attempt {attempts}")
    })
}

/// Installs `need` if necessary, or returns why it is missing.
fn provide(need: &Need, settings: &Settings, machine: &mut impl Machine) -> Result<(), String> {
    if machine.has(need) {
        return Ok(());
    }
    let name = need.name();
    if need.changes_the_machine() && !settings.ci && !settings.install {
        let advice = need.advice();
        return Err(format!("{name} is not installed; --install does `{advice}`"));
    }
    for line in need.install(machine.is_superuser()) {
        machine.say(&format!("$ {line}"));
        carry_out(&line, machine)
            .map_err(|reason| format!("{name} could not be installed: {line}: {reason}"))?;
    }
    if machine.has(need) {
        Ok(())
    } else {
        Err(format!("{name} was installed and still does not answer"))
    }
}

pub(crate) fn any_failed(reports: &[Report]) -> bool {
    reports.iter().any(|report| matches!(report.outcome, Outcome::Failed(_)))
}

/// The line above the table of a long run: the results belong to this commit.
pub(crate) fn long_run_heading(commit: &str) -> String {
    let commit = if commit.is_empty() { "unknown" } else { commit };
    format!("\nlong run, commit {commit}")
}

/// One row for each step: result, time and purpose, with the reasons of steps that did not pass.
pub(crate) fn table(reports: &[Report]) -> String {
    let mut text = format!("{:<16} {:<8} {:>12}  checks\n", "step", "result", "time");
    for report in reports {
        let word = report.outcome.word();
        // Writing to a string cannot fail.
        let (name, time, why) = (report.name, spoken(report.took), report.why);
        let _ = writeln!(text, "{name:<16} {word:<8} {time:>12}  {why}");
        for reason in report.outcome.reasons() {
            let _ = writeln!(text, "{:<16} {reason}", "");
        }
    }
    let total = reports.iter().map(|report| report.took).sum();
    let _ = write!(text, "{:<16} {:<8} {:>12}", "total", "", spoken(total));
    text
}

/// The summary line that other tools parse.
pub(crate) fn last_line(reports: &[Report]) -> String {
    let count = |word| reports.iter().filter(|report| report.outcome.word() == word).count();
    format!("{} passed, {} failed, {} skipped", count("passed"), count("failed"), count("skipped"))
}

pub(crate) fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: nothing is skipped silently, and the final counts are correct. Method: a machine that
    //! records its commands.

    use std::path::Path;

    use super::*;

    use redial::{Policy, Throttle};

    const TOOL: Need = Need::CargoTool { name: "cargo-tool", version: "1.0.0" };
    const PROGRAM: Need = Need::Program { name: "program", package: "package" };

    #[derive(Default)]
    struct Scripted {
        present: Vec<Need>,
        /// What an install makes available.
        installable: Vec<Need>,
        /// Commands with one of these prefixes fail.
        broken: Vec<&'static str>,
        /// How many commands fail before any succeeds.
        outage: usize,
        lines: Vec<String>,
        said: Vec<String>,
        removed: Vec<String>,
    }

    impl Machine for Scripted {
        fn root(&self) -> &Path {
            Path::new(".")
        }

        fn has(&self, need: &Need) -> bool {
            self.present.contains(need)
        }

        fn is_superuser(&self) -> bool {
            true
        }

        fn run(&mut self, line: &CommandLine) -> Result<(), String> {
            let line = line.to_string();
            let outage = self.lines.len() < self.outage;
            let broken = outage || self.broken.iter().any(|start| line.starts_with(start));
            if line.contains(" install ") && !broken {
                self.present.append(&mut self.installable);
            }
            self.lines.push(line);
            if broken { Err("exit status: 1".into()) } else { Ok(()) }
        }

        fn remove(&mut self, folder: &str) {
            self.removed.push(folder.to_owned());
        }

        fn patience(&self) -> &'static Policy {
            &AT_ONCE
        }

        fn say(&mut self, text: &str) {
            self.said.push(text.to_owned());
        }
    }

    /// Without delays, and without a budget that tests would share.
    static AT_ONCE: Policy = Policy::immediate().attempts(3).throttle(Throttle::none()).build();

    const PLAIN: Step = Step {
        name: "plain",
        why: "why",
        when: When::Always,
        needs: &[],
        lines: |_| Ok(vec![CommandLine::new("one"), CommandLine::new("two")]),
    };
    const TOOLED: Step = Step { name: "tooled", needs: &[TOOL], when: When::Long, ..PLAIN };
    const PROGRAMMED: Step = Step { name: "programmed", needs: &[PROGRAM], ..PLAIN };

    const USER: Settings = Settings { ci: false, install: false, named: false };
    const CI: Settings = Settings { ci: true, ..USER };
    const INSTALL: Settings = Settings { install: true, ..USER };
    const NAMED: Settings = Settings { named: true, ..USER };

    fn outcomes(
        steps: &[&Step],
        settings: &Settings,
        machine: &mut Scripted,
    ) -> (Vec<Outcome>, String) {
        let reports = run(steps, settings, machine);
        let line = last_line(&reports);
        (reports.into_iter().map(|report| report.outcome).collect(), line)
    }

    #[test]
    fn run_continues_after_a_failed_line_and_step() {
        let mut machine = Scripted { broken: vec!["one"], ..Scripted::default() };
        let other = Step { name: "other", lines: |_| Ok(vec![CommandLine::new("three")]), ..PLAIN };
        let (outcomes, line) = outcomes(&[&PLAIN, &other], &USER, &mut machine);
        assert_eq!(machine.lines, ["one", "two", "three"]);
        assert_eq!(
            outcomes,
            [Outcome::Failed(vec!["one: exit status: 1".into()]), Outcome::Passed]
        );
        assert_eq!(line, "1 passed, 1 failed, 0 skipped");
    }

    const FETCHING: Step = Step {
        name: "fetching",
        lines: |_| Ok(vec![CommandLine::new("fetch").downloads(), CommandLine::new("play")]),
        ..PLAIN
    };

    #[test]
    fn run_retries_only_the_failed_download() {
        let mut machine = Scripted { outage: 2, ..Scripted::default() };
        let (fetched, _) = outcomes(&[&FETCHING], &CI, &mut machine);
        assert_eq!(fetched, [Outcome::Passed]);
        assert_eq!(machine.lines, ["fetch", "fetch", "fetch", "play"]);
        assert!(machine.said.iter().any(|text| text.contains("it downloads, and failed")));

        let mut machine = Scripted { outage: 3, ..Scripted::default() };
        let (late, _) = outcomes(&[&FETCHING], &CI, &mut machine);
        assert_eq!(late, [Outcome::Failed(vec!["fetch: exit status: 1, in attempt 3".into()])]);
        assert_eq!(machine.lines, ["fetch", "fetch", "fetch", "play"]);
    }

    #[test]
    fn run_does_not_retry_without_a_download() {
        let mut machine = Scripted { broken: vec!["one"], ..Scripted::default() };
        let _ = outcomes(&[&PLAIN], &CI, &mut machine);
        assert_eq!(machine.lines, ["one", "two"]);
    }

    #[test]
    fn run_removes_step_folders_only_in_ci() {
        let loom = Step { name: "loom", ..PLAIN };
        let mut machine = Scripted { broken: vec!["one"], ..Scripted::default() };
        let _ = outcomes(&[&loom, &PLAIN], &CI, &mut machine);
        assert_eq!(machine.removed, ["target/loom"], "whether it passed or not");
        let mut machine = Scripted::default();
        let _ = outcomes(&[&loom], &USER, &mut machine);
        assert!(machine.removed.is_empty());
    }

    #[test]
    fn run_retries_a_failed_install() {
        let mut machine = Scripted { installable: vec![TOOL], outage: 1, ..Scripted::default() };
        let (outcomes, _) = outcomes(&[&TOOLED], &CI, &mut machine);
        assert_eq!(outcomes, [Outcome::Passed]);
        assert_eq!(machine.lines.len(), 4, "install, install, one, two");
    }

    #[test]
    fn run_step_without_lines_fails() {
        let broken = Step { lines: |_| Err("no metadata".into()), ..PLAIN };
        let (outcomes, _) = outcomes(&[&broken], &USER, &mut Scripted::default());
        assert_eq!(outcomes, [Outcome::Failed(vec!["no metadata".into()])]);
    }

    #[test]
    fn run_installs_system_packages_only_on_request() {
        let mut machine = Scripted { installable: vec![PROGRAM], ..Scripted::default() };
        let (outcomes, line) = outcomes(&[&PROGRAMMED], &USER, &mut machine);
        assert!(machine.lines.is_empty());
        assert_eq!(
            outcomes,
            [Outcome::Skipped(
                "program is not installed; --install does \
                 `apt-get install --yes --no-install-recommends package`"
                    .into()
            )]
        );
        assert_eq!(line, "0 passed, 0 failed, 1 skipped");
        assert!(machine.said.iter().any(|text| text.contains("program is not installed")));
    }

    #[test]
    fn run_installs_system_packages_in_ci_and_with_option() {
        for settings in [CI, INSTALL] {
            let mut machine = Scripted { installable: vec![PROGRAM], ..Scripted::default() };
            let (outcomes, _) = outcomes(&[&PROGRAMMED], &settings, &mut machine);
            assert_eq!(outcomes, [Outcome::Passed]);
            assert_eq!(machine.lines.len(), 4, "update, install, one, two");
        }
    }

    #[test]
    fn run_installs_cargo_tools_without_an_option() {
        let mut machine = Scripted { installable: vec![TOOL], ..Scripted::default() };
        let (outcomes, _) = outcomes(&[&TOOLED], &USER, &mut machine);
        assert_eq!(outcomes, [Outcome::Passed]);
        assert_eq!(machine.lines[0], "cargo install --locked --root target/tools cargo-tool@1.0.0");
    }

    #[test]
    fn run_does_not_reinstall_existing_tools() {
        let mut machine = Scripted { present: vec![TOOL, PROGRAM], ..Scripted::default() };
        let (outcomes, _) = outcomes(&[&TOOLED, &PROGRAMMED], &CI, &mut machine);
        assert_eq!(outcomes, [Outcome::Passed, Outcome::Passed]);
        assert_eq!(machine.lines, ["one", "two", "one", "two"]);
    }

    #[test]
    fn run_failed_install_skips_locally_and_fails_in_ci() {
        let offline = || Scripted { broken: vec!["cargo install"], ..Scripted::default() };
        let (user, line) = outcomes(&[&TOOLED], &USER, &mut offline());
        assert!(matches!(&user[..], [Outcome::Skipped(why)] if why.contains("not be installed")));
        assert_eq!(line, "0 passed, 0 failed, 1 skipped");

        let (ci, line) = outcomes(&[&TOOLED], &CI, &mut offline());
        assert!(matches!(&ci[..], [Outcome::Failed(why)] if why[0].starts_with("skipped, which")));
        assert_eq!(line, "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn run_install_without_effect_is_reported() {
        let (outcomes, _) = outcomes(&[&TOOLED], &USER, &mut Scripted::default());
        assert!(matches!(&outcomes[..], [Outcome::Skipped(why)] if why.contains("still does not")));
    }

    #[test]
    fn run_long_step_after_a_failure_must_be_named() {
        let machine =
            || Scripted { present: vec![TOOL], broken: vec!["broken"], ..Scripted::default() };
        let broken = Step { lines: |_| Ok(vec![CommandLine::new("broken")]), ..PLAIN };

        let (by_default, line) = outcomes(&[&broken, &TOOLED], &USER, &mut machine());
        assert!(matches!(&by_default[1], Outcome::Skipped(why) if why.contains("takes long")));
        assert_eq!(line, "0 passed, 1 failed, 1 skipped");

        let (named, _) = outcomes(&[&broken, &TOOLED], &NAMED, &mut machine());
        assert_eq!(named[1], Outcome::Passed);
    }

    #[test]
    fn run_fails_for_failed_but_not_for_skipped_steps() {
        let report = |outcome| Report { name: "a", why: "", outcome, took: Duration::ZERO };
        let failed = report(Outcome::Failed(Vec::new()));
        let skipped = report(Outcome::Skipped(String::new()));
        assert!(any_failed(&[report(Outcome::Passed), failed]));
        assert!(!any_failed(&[report(Outcome::Passed), skipped]));
    }

    #[test]
    fn run_table_lists_steps_times_and_reasons() {
        let reports = [
            Report {
                name: "a",
                why: "layout",
                outcome: Outcome::Passed,
                took: Duration::from_millis(59_900),
            },
            Report {
                name: "b",
                why: "licences",
                outcome: Outcome::Skipped("no tool".into()),
                took: Duration::from_secs(60),
            },
        ];
        let table = table(&reports);
        let rows: Vec<_> =
            table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>()).collect();
        let expected: [Vec<_>; 5] = [
            vec!["step", "result", "time", "checks"],
            vec!["a", "passed", "59.9", "s", "layout"],
            vec!["b", "skipped", "1", "min", "00", "s", "licences"],
            vec!["no", "tool"],
            vec!["total", "1", "min", "59", "s"],
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn run_long_heading_names_the_commit() {
        assert_eq!(long_run_heading("v0.1.0-3-gabc"), "\nlong run, commit v0.1.0-3-gabc");
        assert_eq!(long_run_heading(""), "\nlong run, commit unknown", "outside of a repository");
    }
}
