//! Goal: what is written about the published crates is true of all of them.
//! Method: the checks of `xtask::published` on the repository itself.

use std::fs;

use xtask::published;

/// The names of public types that more than one crate may define, each with the reason.
const SHARED_TYPES: &[(&str, &str)] = &[
    ("Answer", "what a server or an attempt answers; those of redial-faults are part of a script"),
    (
        "CallEnd",
        "the end of a call: of a scripted one in redial::testing, of an SDK call in redial-aws",
    ),
    ("CallOptions", "options of one call, for the calls of each crate"),
    ("ClientOptions", "options of one client, for the clients of each crate"),
    ("Connector", "opens connections: tower's and hyper's word"),
    ("Delays", "the one in redial is the one in redial-core, with its parameters chosen"),
    ("Error", "the error of a crate, by Rust's convention"),
    ("Handle", "a running server in redial-faults; a hidden part of redial::throttle"),
    ("Metric", "the list of a crate's metrics"),
    ("Policy", "the one in redial is the one in redial-core, with its name, throttle and hooks"),
    ("Problem", "a problem in a file, with its position"),
    ("Problems", "all problems of a file"),
    ("Request", "the RFC's word for the argument of a strategy; the request builder of a client"),
    ("RetryLayer", "the tower layer of a crate"),
    ("RetryService", "the tower service of a crate"),
    ("Rule", "the rule that a problem of a file violates"),
    ("Script", "what a scripted call, server or proxy does"),
    ("Tonic", "the adapter for the bodies of tonic 0.14"),
];

/// The published crates that users do not name in a program: a command, and the service of our own tests.
const WITHOUT_EXAMPLES: &[&str] = &["redial-cli", "redial-echo"];

#[test]
fn published_crates_have_what_crates_io_and_docs_rs_show() {
    let crates = published::crates_in(&xtask::root()).expect("the manifests are readable");
    for it in &crates {
        assert!(it.lacks.is_empty(), "{} lacks {:?}", it.name, it.lacks);
        let is_without = WITHOUT_EXAMPLES.contains(&it.name.as_str());
        assert!(it.has_example != is_without, "an example of {}", it.name);
        let library = fs::read_to_string(it.folder.join("src/lib.rs")).expect("it exists");
        assert!(library.contains("feature(doc_cfg)"), "{} has no doc_cfg", it.name);
    }
}

#[test]
fn published_order_in_releasing_follows_the_dependencies() {
    let root = xtask::root();
    let crates = published::crates_in(&root).expect("the manifests are readable");
    let page = fs::read_to_string(root.join("docs/releasing.md")).expect("it exists");
    let problems = published::order_problems(&page, &crates);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(crates.len(), 17);
}

#[test]
fn published_types_share_a_name_only_for_a_reason() {
    let mut crates = published::crates_in(&xtask::root()).expect("the manifests are readable");
    // A command: its library is for its tests.
    crates.retain(|it| it.name != "redial-cli");
    let shared = published::shared_types(&crates).expect("the sources are readable");
    let is_listed = |name: &str| SHARED_TYPES.iter().any(|(listed, _)| *listed == name);
    let unlisted: Vec<_> = shared.iter().filter(|(name, _)| !is_listed(name)).collect();
    assert!(unlisted.is_empty(), "one name for several types: {unlisted:#?}");
    let unused = SHARED_TYPES.iter().filter(|(name, _)| !shared.contains_key(*name));
    let unused: Vec<_> = unused.map(|(name, _)| name).collect();
    assert!(unused.is_empty(), "no reason is needed: {unused:?}");
    assert!(SHARED_TYPES.iter().all(|(_, reason)| !reason.is_empty()));
}
