//! Goal: what `docs/` says is tested by name is tested by that name, and every ruling has its entry.
//! Method: the checker of `xtask::documents` on the repository itself.

use std::fs;

use xtask::documents;
use xtask::names::{self, Names};

/// How many rulings are covered at least. It only grows; when it is all of them, it stays there.
const COVERED_MIN: usize = 96;

fn rulings() -> String {
    fs::read_to_string(xtask::root().join("docs/rulings.md")).expect("docs/rulings.md is there")
}

fn existing() -> Names {
    Names::existing_in(&xtask::root()).expect("sources and scenarios are readable")
}

#[test]
fn every_name_in_the_documents_exists() {
    let docs = xtask::root().join("docs");
    let missing = documents::missing_in(&docs, &existing()).expect("docs/ is readable");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_test_of_the_peers_has_one_of_ours_or_a_reason() {
    let root = xtask::root();
    let text = fs::read_to_string(root.join("docs/peer-suites.md")).expect("it is there");
    let suite = names::tests_below(&root.join("crates/redial-grpc/tests/suites"));
    let suite = suite.expect("the suite is readable");
    let problems = documents::problems_in_suites(&text, &existing(), &suite);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(!suite.is_empty());
}

#[test]
fn every_ruling_has_one_entry() {
    let problems = documents::problems_in(&rulings());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn rulings_once_covered_stay_covered() {
    let uncovered = documents::uncovered_in(&rulings(), &existing());
    let covered = documents::expected_count() - uncovered.len();
    assert!(
        covered >= COVERED_MIN,
        "{covered} rulings are covered, {COVERED_MIN} must be; not covered: {}",
        uncovered.join(", ")
    );
}
