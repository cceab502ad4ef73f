//! Goal: tests and scenarios that `docs/` names exist, every decision has a complete entry, and every
//! statement of the designs is shown by a test.
//! Method: the checks of `xtask::documents` and `xtask::statements` on the repository itself.

use std::collections::BTreeSet;
use std::fs;

use xtask::names::{self, Names};
use xtask::statements::{self, Design, State, Users};
use xtask::{documents, item_docs};

/// How many decisions are covered by tests at least. It only grows.
const COVERED_MIN: usize = 96;

/// The designs of `docs/statements.md`. A statement without a test needs a reason to be here.
const DESIGNS: [Design; 5] = [
    Design {
        heading: "Milvus: the retry interceptor",
        statements: 32,
        untested: 0,
        without_client: 0,
        state: State::Finished,
        users: Users::Client,
    },
    Design {
        heading: "Soft and hard limits: the decision record",
        statements: 20,
        untested: 0,
        without_client: 0,
        state: State::Finished,
        users: Users::Library,
    },
    Design {
        heading: "gRPC: A6",
        statements: 133,
        untested: 0,
        without_client: 1,
        state: State::Finished,
        users: Users::Client,
    },
    Design {
        heading: "Couchbase: RFC 49",
        statements: 113,
        untested: 0,
        without_client: 4,
        state: State::Finished,
        users: Users::Client,
    },
    Design {
        heading: "Smithy: the standard retry strategy",
        statements: 46,
        untested: 0,
        without_client: 0,
        state: State::Finished,
        users: Users::Client,
    },
];

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

#[test]
fn documents_statements_are_shown_by_existing_tests() {
    let page = fs::read_to_string(xtask::root().join("docs/statements.md")).expect("it exists");
    let problems = statements::problems_in(&page, &existing(), &DESIGNS);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The documentation and attributes of an item of `redial-couchbase`.
fn couchbase_docs(item: &str) -> String {
    let folder = xtask::root().join("crates/redial-couchbase/src");
    let docs = item_docs::of(&folder, item).expect("the sources are readable");
    assert!(!docs.is_empty(), "there is no {item}");
    docs
}

#[test]
fn couchbase_docs_hide_the_fail_fast_strategy() {
    assert!(couchbase_docs("pub struct FailFast").contains("#[doc(hidden)]"));
}

#[test]
fn couchbase_docs_name_the_default_strategy() {
    let docs = couchbase_docs("pub struct FastFailOnTerminalError");
    assert!(docs.contains("default strategy of a new client"), "{docs}");
    assert!(!docs.contains("#[doc(hidden)]"), "{docs}");
}

#[test]
fn couchbase_docs_call_the_terminal_strategy_volatile() {
    let docs = couchbase_docs("pub struct FastFailOnTerminalError");
    assert!(docs.contains("volatile: it may grow in any release"), "{docs}");
    assert!(docs.contains("write your own strategy"), "{docs}");
}

#[test]
fn couchbase_docs_exclude_the_couchbase2_protocol() {
    let file = xtask::root().join("crates/redial-couchbase/src/lib.rs");
    let source = fs::read_to_string(file).expect("it exists");
    assert!(source.contains("//! The `couchbase2` protocol is out of scope"));
}

#[test]
fn grpc_docs_name_every_event_of_a_balanced_channel() {
    let read = |path: &str| fs::read_to_string(xtask::root().join(path)).expect("it exists");
    let docs = read("crates/redial-grpc/src/lib.rs");
    let (_, list) = docs.split_once("A balanced channel emits its own events").expect("a list");
    let (list, _) = list.split_once("//!\n").expect("its end");
    let quoted = list.split('`').skip(1).step_by(2);
    let documented: BTreeSet<&str> = quoted.filter(|name| name.contains(' ')).collect();
    let source = read("crates/redial-grpc-balance/src/trace.rs");
    let events = source.lines().filter(|line| line.contains("tracing::"));
    let emitted: BTreeSet<&str> = events.filter_map(|line| line.rsplit('"').nth(1)).collect();
    assert_eq!(documented, emitted);
}
