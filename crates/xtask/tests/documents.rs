//! Goal: tests and scenarios that `docs/` names exist, and every decision has a complete entry.
//! Method: the checks of `xtask::documents` on the repository itself.

use std::fs;

use xtask::documents;
use xtask::names::{self, Names};

/// How many decisions are covered by tests at least. It only grows.
const COVERED_MIN: usize = 96;

fn decisions() -> String {
    fs::read_to_string(xtask::root().join("docs/decisions.md")).expect("docs/decisions.md exists")
}

fn existing() -> Names {
    Names::existing_in(&xtask::root()).expect("sources and scenarios are readable")
}

#[test]
fn documents_name_only_existing_tests_and_scenarios() {
    let docs = xtask::root().join("docs");
    let missing = documents::missing_in(&docs, &existing()).expect("docs/ is readable");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn documents_peer_suites_have_a_test_or_reason_per_row() {
    let root = xtask::root();
    let text = fs::read_to_string(root.join("docs/peer-suites.md")).expect("it exists");
    let folder = root.join("crates/redial-grpc/tests");
    let suite = names::tests_marked_below(&folder, documents::PEER_TEST);
    let suite = suite.expect("the tests are readable");
    let problems = documents::problems_in_suites(&text, &existing(), &suite);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(!suite.is_empty());
}

#[test]
fn documents_decisions_have_one_entry_and_a_user_sentence() {
    let problems = documents::problems_in(&decisions());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn documents_covered_decisions_stay_covered() {
    let uncovered = documents::uncovered_in(&decisions(), &existing());
    let covered = documents::expected_count() - uncovered.len();
    assert!(
        covered >= COVERED_MIN,
        "{covered} decisions are covered, {COVERED_MIN} must be; not covered: {}",
        uncovered.join(", ")
    );
}
