//! Checks of `docs/statements.md`: every statement of a design names the tests and scenarios that show it.
//!
//! A design has a heading, the line `N statements, finished.` or `N statements, in progress.`, and a table
//! with the columns `no`, `statement`, `library`, `client`, `live` and `remark`. A cell of the three columns
//! in the middle has names (tests in backticks, scenarios in double quotes, separated by commas) or one of
//! these words:
//!
//! | word | meaning | where |
//! | --- | --- | --- |
//! | `same` | the scenarios of the library column | client, live |
//! | `core only` | works without a network | client |
//! | `no` | nothing shows it | everywhere |
//! | `–` | there is nothing to show | everywhere |
//!
//! A row without any name has a remark that starts with [`UNTESTED`]; the number of these rows is pinned. In a
//! design with a client, `–` in the client column needs a remark, and the number of these rows is pinned.

use std::collections::BTreeSet;

use crate::names::Names;

/// The start of the remark of a statement without a test or scenario.
pub const UNTESTED: &str = "no test:";

const CORE_ONLY: &str = "core only";
const NO: &str = "no";
const NOTHING_TO_SHOW: &str = "–";
const SAME: &str = "same";

/// What the page must have about a design.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// The heading of its section.
    pub heading: &'static str,
    /// The number of its statements.
    pub statements: usize,
    /// The number of statements without a test or scenario.
    pub untested: usize,
    /// The number of statements that no client can show; 0 for a design whose users call the library.
    pub without_client: usize,
    /// Whether all of it works in a client.
    pub state: State,
    /// The code that its users call.
    pub users: Users,
}

/// Whether a design is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Statements may be core only.
    InProgress,
    /// Every statement has a test and works in the client, if there is one.
    Finished,
}

/// The code that the users of a design call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The library itself.
    Library,
    /// A client.
    Client,
}

/// The problems of the page.
#[must_use]
pub fn problems_in(text: &str, existing: &Names, designs: &[Design]) -> Vec<String> {
    let mut problems = Vec::new();
    let sections: Vec<_> = text.split("\n## ").skip(1).collect();
    for design in designs {
        let is_its = |section: &&&str| section.lines().next() == Some(design.heading);
        match sections.iter().find(is_its) {
            Some(section) => check_design(section, existing, design, &mut problems),
            None => problems.push(format!("there is no section \"{}\"", design.heading)),
        }
    }
    for heading in sections.iter().filter_map(|section| section.lines().next()) {
        if designs.iter().all(|design| design.heading != heading) {
            problems.push(format!("there is no design \"{heading}\""));
        }
    }
    problems
}

fn check_design(section: &str, existing: &Names, design: &Design, problems: &mut Vec<String>) {
    let mut report =
        |problem: String| problems.push(format!("{}: {problem}", first_word(design.heading)));
    let rows: Vec<_> = rows_in(section).collect();
    let state = match design.state {
        State::InProgress => "in progress",
        State::Finished => "finished",
    };
    let summary = format!("{} statements, {state}.", design.statements);
    if !section.lines().any(|line| line == summary) {
        report(format!("there is no line \"{summary}\""));
    }
    if rows.len() != design.statements {
        report(format!("{} rows, {} statements", rows.len(), design.statements));
    }
    let (mut untested, mut without_client) = (0, 0);
    let mut seen = BTreeSet::new();
    for (number, row) in (1..).zip(&rows) {
        match Row::parse(row) {
            Ok(row) => {
                untested += usize::from(row.names().is_empty());
                without_client += usize::from(row.is_without_client(design));
                row.check(existing, design, &mut |problem| {
                    report(format!("row {number}: {problem}"));
                });
                if row.number != number.to_string() {
                    report(format!("row {number} has the number {}", row.number));
                }
                if !seen.insert(row.statement) {
                    report(format!("row {number} repeats \"{}\"", row.statement));
                }
            }
            Err(problem) => report(format!("row {number}: {problem}")),
        }
    }
    if untested != design.untested {
        report(format!("{untested} statements have no test, {} are pinned", design.untested));
    }
    let pinned = design.without_client;
    if without_client != pinned {
        report(format!("{without_client} statements are not for a client, {pinned} are pinned"));
    }
}

/// The word that stands for a heading in messages.
fn first_word(heading: &str) -> &str {
    heading.split([' ', ':']).next().unwrap_or(heading)
}

/// The lines of the table of statements, without its head.
fn rows_in(section: &str) -> impl Iterator<Item = &str> {
    let lines = section.lines().map(str::trim);
    let table = lines.skip_while(|line| !line.starts_with("| no | statement |"));
    table.skip(2).take_while(|line| line.starts_with('|'))
}

/// A statement.
struct Row<'a> {
    number: &'a str,
    statement: &'a str,
    library: Cell<'a>,
    client: Cell<'a>,
    live: Cell<'a>,
    remark: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Result<Self, String> {
        let line = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        let cells: Vec<_> = line.unwrap_or_default().split('|').map(str::trim).collect();
        let [number, statement, library, client, live, remark] = cells[..] else {
            return Err(format!("{} columns, 6 are expected", cells.len()));
        };
        let [library, client, live] = [library, client, live].map(Cell::parse);
        Ok(Row { number, statement, library: library?, client: client?, live: live?, remark })
    }

    fn names(&self) -> Names {
        let mut names = Names::default();
        for cell in [&self.library, &self.client, &self.live] {
            names.tests.extend(cell.names.tests.iter().cloned());
            names.scenarios.extend(cell.names.scenarios.iter().cloned());
        }
        names
    }

    /// Whether no client can show the statement, although the design has one.
    fn is_without_client(&self, design: &Design) -> bool {
        design.users == Users::Client && self.client.word == Some(NOTHING_TO_SHOW)
    }

    fn check(&self, existing: &Names, design: &Design, report: &mut impl FnMut(String)) {
        let names = self.names();
        names.missing_from(existing).into_iter().for_each(&mut *report);
        let excused = self.remark.starts_with(UNTESTED);
        if names.is_empty() != excused {
            report(format!("it needs either a test, or a remark that starts with \"{UNTESTED}\""));
        }
        if [self.library.word, self.live.word].contains(&Some(CORE_ONLY)) {
            report(format!("\"{CORE_ONLY}\" belongs in the client column"));
        }
        let same = [self.library.word, self.client.word, self.live.word].map(|it| it == Some(SAME));
        if same[0] || same.contains(&true) && self.library.names.scenarios.is_empty() {
            report(format!("\"{SAME}\" needs a scenario in the library column"));
        }
        self.check_client(design, report);
    }

    fn check_client(&self, design: &Design, report: &mut impl FnMut(String)) {
        match self.client.word {
            Some(word @ (CORE_ONLY | NO)) if design.state == State::Finished => {
                report(format!("the design is finished, and the client column has \"{word}\""));
            }
            Some(CORE_ONLY) if self.library.names.is_empty() => {
                report(format!("\"{CORE_ONLY}\" needs a name in the library column"));
            }
            Some(NOTHING_TO_SHOW) if self.is_without_client(design) && self.remark.is_empty() => {
                report(format!("\"{NOTHING_TO_SHOW}\" in the client column needs a remark"));
            }
            _ => {}
        }
    }
}

/// The names in a cell, or the word in their place.
struct Cell<'a> {
    names: Names,
    word: Option<&'a str>,
}

impl<'a> Cell<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        if [CORE_ONLY, NO, NOTHING_TO_SHOW, SAME].contains(&text) {
            return Ok(Cell { names: Names::default(), word: Some(text) });
        }
        let mut names = Names::default();
        let mut rest = text;
        while !rest.is_empty() {
            let quote = rest.chars().next().filter(|first| ['`', '"'].contains(first));
            let name = quote.and_then(|quote| rest[1..].split_once(quote));
            let Some((name, after)) = name else {
                return Err(format!("neither a name nor a word of the page: {rest}"));
            };
            match quote {
                Some('`') => names.tests.insert(name.to_owned()),
                _ => names.scenarios.insert(name.to_owned()),
            };
            rest = after.strip_prefix(", ").unwrap_or(after);
        }
        if names.is_empty() {
            Err("a cell is empty".to_owned())
        } else {
            Ok(Cell { names, word: None })
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: each kind of mistake on the page is found. Method: a page with one row, changed in one place.

    use super::*;

    const DESIGN: Design = Design {
        heading: "Sample: one",
        statements: 1,
        untested: 0,
        without_client: 0,
        state: State::Finished,
        users: Users::Client,
    };

    fn page(library: &str, client: &str, live: &str, remark: &str) -> String {
        format!(
            "# Statements\n\n## Sample: one\n\n1 statements, finished.\n\n\
             | no | statement | library | client | live | remark |\n| --- | --- | --- | --- | --- | --- |\n\
             | 1 | It works | {library} | {client} | {live} | {remark} |\n"
        )
    }

    fn problems_of(text: &str, design: Design) -> Vec<String> {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let existing =
            Names { tests: set(&["sample_one", "sample_two"]), scenarios: set(&["a, b: c"]) };
        problems_in(text, &existing, &[design])
    }

    #[track_caller]
    fn check(cells: [&str; 4], design: Design, expected: &[&str]) {
        let [library, client, live, remark] = cells;
        assert_eq!(problems_of(&page(library, client, live, remark), design), expected);
    }

    const IN_PROGRESS: Design = Design { state: State::InProgress, ..DESIGN };

    fn in_progress(text: &str, untested: usize) -> Vec<String> {
        let text = text.replace("finished.", "in progress.");
        problems_of(&text, Design { untested, ..IN_PROGRESS })
    }

    #[test]
    fn statements_may_have_names_and_words() {
        check(["`sample_one`, \"a, b: c\"", "`sample_two`", "same", ""], DESIGN, &[]);
        check(["\"a, b: c\"", "same", "same", ""], DESIGN, &[]);
        check(["–", "`sample_one`", "no", ""], DESIGN, &[]);
        let without_client = Design { without_client: 1, ..DESIGN };
        check(["`sample_one`", "–", "–", "there is no client for it"], without_client, &[]);
        let library = Design { users: Users::Library, ..DESIGN };
        check(["`sample_one`", "–", "–", ""], library, &[]);
        assert_eq!(in_progress(&page("`sample_one`", "core only", "no", ""), 0), [""; 0]);
        assert_eq!(in_progress(&page("no", "no", "no", "no test: later"), 1), [""; 0]);
    }

    #[test]
    fn statements_name_existing_tests_and_scenarios() {
        let missing = ["Sample: row 1: there is no test `sample_gone`"];
        check(["`sample_gone`", "`sample_one`", "no", ""], DESIGN, &missing);
        check(["`sample_one`", "`sample_gone`", "no", ""], DESIGN, &missing);
        let missing = ["Sample: row 1: there is no scenario \"gone\""];
        check(["`sample_one`", "`sample_one`", "\"gone\"", ""], DESIGN, &missing);
        let unknown = ["Sample: row 1: neither a name nor a word of the page: later"];
        assert_eq!(problems_of(&page("later", "no", "no", ""), DESIGN)[..1], unknown);
        let empty = ["Sample: row 1: a cell is empty"];
        assert_eq!(problems_of(&page("`sample_one`", "", "no", ""), DESIGN)[..1], empty);
    }

    #[test]
    fn statements_without_a_test_are_excused_and_pinned() {
        let both =
            "Sample: row 1: it needs either a test, or a remark that starts with \"no test:\"";
        let pinned = "Sample: 1 statements have no test, 0 are pinned";
        assert_eq!(in_progress(&page("no", "no", "no", ""), 1), [both]);
        assert_eq!(in_progress(&page("`sample_one`", "no", "no", "no test: x"), 0), [both]);
        assert_eq!(in_progress(&page("no", "no", "no", "no test: x"), 0), [pinned]);
        let fewer = "Sample: 0 statements have no test, 1 are pinned";
        assert_eq!(in_progress(&page("`sample_one`", "no", "no", ""), 1), [fewer]);
    }

    #[test]
    fn statements_of_a_finished_design_work_in_the_client() {
        let finished = |word| {
            format!("Sample: row 1: the design is finished, and the client column has \"{word}\"")
        };
        check(["`sample_one`", "core only", "no", ""], DESIGN, &[&finished("core only")]);
        check(["`sample_one`", "no", "no", ""], DESIGN, &[&finished("no")]);
        let without_client = Design { without_client: 1, ..DESIGN };
        let remark = ["Sample: row 1: \"–\" in the client column needs a remark"];
        check(["`sample_one`", "–", "no", ""], without_client, &remark);
        let pinned = ["Sample: 1 statements are not for a client, 0 are pinned"];
        check(["`sample_one`", "–", "no", "about the documentation"], DESIGN, &pinned);
        let fewer = ["Sample: 0 statements are not for a client, 1 are pinned"];
        check(["`sample_one`", "`sample_two`", "no", ""], without_client, &fewer);
    }

    #[test]
    fn statements_words_belong_in_their_columns() {
        let client = "Sample: row 1: \"core only\" belongs in the client column";
        check(["`sample_one`", "`sample_one`", "core only", ""], DESIGN, &[client]);
        let library = "Sample: row 1: \"core only\" needs a name in the library column";
        assert_eq!(in_progress(&page("no", "core only", "`sample_one`", ""), 0), [library]);
        let scenario = "Sample: row 1: \"same\" needs a scenario in the library column";
        check(["`sample_one`", "`sample_one`", "same", ""], DESIGN, &[scenario]);
        check(["same", "`sample_one`", "no", ""], DESIGN, &[scenario]);
    }

    #[test]
    fn statements_are_counted_and_numbered() {
        let text = page("`sample_one`", "`sample_one`", "no", "");
        let two = text.clone() + "| 3 | It works | `sample_one` | `sample_one` | no | |\n";
        assert_eq!(
            problems_of(&two, DESIGN),
            [
                "Sample: 2 rows, 1 statements",
                "Sample: row 2 has the number 3",
                "Sample: row 2 repeats \"It works\""
            ]
        );
        assert_eq!(
            problems_of(&text.replace("1 statements", "2 statements"), DESIGN),
            ["Sample: there is no line \"1 statements, finished.\""]
        );
        assert_eq!(
            problems_of(&text.replace("| no |  |", "| no |"), DESIGN),
            ["Sample: row 1: 5 columns, 6 are expected"]
        );
        assert_eq!(
            problems_of(&text.replace("Sample: one", "Other"), DESIGN),
            ["there is no section \"Sample: one\"", "there is no design \"Other\""]
        );
    }
}
