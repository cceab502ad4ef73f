//! Goal: comments, documents and test names use the terms of the field, and test names are short.
//! Method: the list of `xtask::words`, and a count of words, on the repository itself.

use xtask::names::Names;
use xtask::words;

/// How many words the name of a test may have.
const TEST_NAME_WORDS_MAX: usize = 10;

#[test]
fn words_of_the_project_are_those_of_the_field() {
    let problems = words::problems_in(&xtask::root()).expect("the sources are readable");
    assert!(problems.is_empty(), "{} lines:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn names_of_tests_have_at_most_ten_words() {
    let names = Names::existing_in(&xtask::root()).expect("the sources are readable");
    assert!(names.tests.len() > 2000, "{} tests were found", names.tests.len());
    let is_wrong = |name: &&String| {
        let words: Vec<&str> = name.split('_').collect();
        words.len() > TEST_NAME_WORDS_MAX || ["a", "an", "it", "the", "test"].contains(&words[0])
    };
    let wrong: Vec<_> = names.tests.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "more than ten words, or no feature first: {wrong:#?}");
}
