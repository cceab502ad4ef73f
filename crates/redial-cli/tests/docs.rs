//! Runs the command lines of the documentation, and compares what they print.
//!
//! A separate binary: the lines of docs/run.md run real commands in real time.
#![cfg(unix)]

#[test]
fn docs_command_lines_print_what_they_say() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    // The command lines name files beside the documents. This is the only test of its process.
    std::env::set_current_dir(docs).expect("the documents are there");
    trycmd::TestCases::new()
        .register_bin("redial", std::path::Path::new(env!("CARGO_BIN_EXE_redial")))
        .env("COLUMNS", "80")
        .env("NO_COLOR", "1")
        .case("run.md")
        .case("check.md")
        .case("replay.md")
        .case("simulation.md");
}
