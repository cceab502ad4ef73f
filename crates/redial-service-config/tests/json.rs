//! The JSON parser accepts exactly the texts that `serde_json` accepts: texts from random fragments, and
//! randomly changed configs.

use redial_core::Random;
use redial_service_config::json;
use serde::de::IgnoredAny;

/// The number of random texts.
const TEXTS: usize = 200_000;

const PIECES: [&str; 60] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"\"",
    "\"\\\"\"",
    "\"\\n\"",
    "\"\\u00e9\"",
    "\"ü\"",
    "\"😀\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\t\"",
    "\"\u{7f}\"",
    "\"",
    "'",
    "0",
    "1",
    "-",
    "+",
    ".",
    "e",
    "E",
    "10",
    "00",
    "-0",
    "0.5",
    "1.",
    ".5",
    "1e5",
    "1E+5",
    "1e",
    "0x1",
    "true",
    "false",
    "null",
    "tru",
    "nul",
    "NaN",
    "Infinity",
    " ",
    "\t",
    "\n",
    "\r",
    "\u{b}",
    "\u{c}",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\u{0}",
    "//",
    "/*",
    "*/",
    "\\",
    "ü",
    "$",
    "_",
];

fn agree(text: &str) -> bool {
    let ours = json::parse(text);
    let theirs = serde_json::from_str::<IgnoredAny>(text);
    assert_eq!(ours.is_ok(), theirs.is_ok(), "{text:?}\n{ours:?}\n{theirs:?}");
    if let Err(error) = &ours {
        assert!(error.range.start <= error.range.end && error.range.end <= text.len());
        assert!(text.is_char_boundary(error.range.start), "{text:?} {error:?}");
        assert!(text.is_char_boundary(error.range.end), "{text:?} {error:?}");
        assert!(!error.what.is_empty());
    }
    ours.is_ok()
}

#[test]
fn json_parser_agrees_with_serde_json() {
    let mut random = Random::new(8259);
    let mut valid = 0;
    for _ in 0..TEXTS {
        let length = random.bits() % 9;
        let piece = |random: &mut Random| PIECES[(random.bits() % PIECES.len() as u64) as usize];
        let text: String = (0..length).map(|_| piece(&mut random)).collect();
        valid += usize::from(agree(&text));
    }
    assert!(valid > TEXTS / 100, "only {valid} were JSON");
}

#[test]
fn json_parser_agrees_with_serde_json_on_mutated_configs() {
    let mut random = Random::new(7159);
    let config =
        r#"{ "a": [1, -2.5e+3, "x\u0041\n", {"b": null, "c": true}], "d": {"e": [[], {}]} }"#;
    let mut valid = 0;
    for _ in 0..TEXTS {
        let mut text = config.to_owned();
        for _ in 0..=random.bits() % 2 {
            let at = (random.bits() % text.len() as u64) as usize;
            if !text.is_char_boundary(at) {
                continue;
            }
            let piece = PIECES[(random.bits() % PIECES.len() as u64) as usize];
            if random.bits().is_multiple_of(2) {
                text.insert_str(at, piece);
            } else if text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, piece);
            }
        }
        valid += usize::from(agree(&text));
    }
    assert!(valid > TEXTS / 50, "only {valid} were JSON");
}
