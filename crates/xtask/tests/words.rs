//! Goal: comments, documents and test names use the terms of the field.
//! Method: the list of `xtask::words` on the repository itself.

use xtask::words;

#[test]
fn words_of_the_project_are_those_of_the_field() {
    let problems = words::problems_in(&xtask::root()).expect("the sources are readable");
    assert!(problems.is_empty(), "{} lines:\n{}", problems.len(), problems.join("\n"));
}
