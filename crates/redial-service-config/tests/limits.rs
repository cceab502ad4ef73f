//! Limits: no text causes excessive time, memory or stack use. Texts at each limit and one past it.

use std::time::Instant;

use redial_service_config::{DEPTH_MAX, ENTRIES_MAX, PROBLEMS_MAX, Rule, ServiceConfig, TEXT_MAX};

/// The rules of the problems of a text.
fn rules(text: &str) -> Vec<Rule> {
    match ServiceConfig::parse(text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|problem| problem.rule).collect(),
    }
}

#[test]
fn limits_config_text_to_one_mebibyte() {
    let padded = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    assert_eq!(TEXT_MAX, 1 << 20);
    assert_eq!(rules(&padded(TEXT_MAX)), []);
    assert_eq!(rules(&padded(TEXT_MAX + 1)), [Rule::Limit]);
    let problems = ServiceConfig::parse(&padded(TEXT_MAX + 1)).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "1:1: error[limit]: a config has at most 1048576 bytes, this one has 1048577"
    );
}

#[test]
fn limits_nesting_depth_to_a_hundred() {
    let lists =
        |depth: usize| format!("{{\"x\": {}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let objects = |depth: usize| format!("{}1{}", "{\"x\":".repeat(depth), "}".repeat(depth));
    for text in [lists, objects] as [fn(usize) -> String; 2] {
        assert_eq!(rules(&text(DEPTH_MAX)), []);
        assert_eq!(rules(&text(DEPTH_MAX + 1)), [Rule::Limit]);
        // Any depth, and even if the text ends with a syntax error.
        for depth in [400, 600, 100_000] {
            assert_eq!(rules(&text(depth)), [Rule::Limit], "{depth}");
        }
    }
    assert_eq!(rules(&"[".repeat(TEXT_MAX)), [Rule::Limit]);
    // Brackets in strings do not count.
    assert_eq!(rules(&format!("{{\"{}\": \"\\\"{}\"}}", "[".repeat(500), "{".repeat(500))), []);
}

/// A stack that suffices for the deepest config in a debug build.
const SMALL_STACK: usize = 512 << 10;

#[test]
fn limits_nesting_depth_on_a_small_stack() {
    let read = || {
        for open in ["[", "{\"x\":"] {
            for depth in [DEPTH_MAX, DEPTH_MAX + 1, 511, 512, 513, 1_000, 100_000] {
                let closed = if open == "[" { "]" } else { "}" };
                let text = format!("{}1{}", open.repeat(depth), closed.repeat(depth));
                let limited = rules(&text) == [Rule::Limit];
                assert_eq!(limited, depth > DEPTH_MAX, "{depth}");
                assert_eq!(rules(&open.repeat(depth)) == [Rule::Limit], depth > DEPTH_MAX);
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
    thread.spawn(read).expect("a thread").join().expect("no overflow");
}

#[test]
fn limits_entries_to_ten_thousand() {
    let entries = |count: usize| format!("{{\"methodConfig\": [{}]}}", vec!["{}"; count].join(","));
    let config = ServiceConfig::parse(&entries(ENTRIES_MAX)).expect("as many as are allowed");
    assert_eq!(config.entries().len(), 10_000);
    assert_eq!(rules(&entries(ENTRIES_MAX + 1)), [Rule::Limit]);
}

#[test]
fn limits_problems_and_warnings_to_a_thousand() {
    let entries = |count: usize| format!("{{\"methodConfig\": [{}]}}", vec!["5"; count].join(","));
    let kept = ServiceConfig::parse(&entries(PROBLEMS_MAX)).unwrap_err();
    assert_eq!((kept.iter().count(), kept.omitted()), (1_000, 0));
    let kept = ServiceConfig::parse(&entries(PROBLEMS_MAX + 7)).unwrap_err();
    assert_eq!((kept.iter().count(), kept.omitted()), (1_000, 7));
    assert!(kept.to_string().ends_with("\nand 7 more"));
    let nameless = format!("{{\"methodConfig\": [{}]}}", vec!["{}"; PROBLEMS_MAX + 1].join(","));
    assert_eq!(ServiceConfig::parse(&nameless).unwrap().warnings().len(), 1_000);
}

#[test]
fn limits_length_of_values_in_messages() {
    let long = "ü".repeat(10_000);
    let text = format!("{{\"{long}\": {{\"{long}\": [{{\"a\": 1, \"a\": 2}}]}}}}");
    let problems = ServiceConfig::parse(&text).unwrap_err();
    let path = &problems.as_slice()[0].path;
    let cut = format!("{}...", "ü".repeat(60));
    assert_eq!(*path, format!("{cut}.{cut}[0].a"));
    let text = format!(
        "{{\"methodConfig\": [{{\"timeout\": \"{long}\"}}, {{\"timeout\": {}}}]}}",
        "9".repeat(5000)
    );
    let problems = ServiceConfig::parse(&text).unwrap_err();
    for problem in &problems {
        assert!(problem.to_string().chars().count() < 300, "{problem}");
    }
}

#[test]
fn limits_parse_time_at_the_largest_size() {
    let fill = |unit: &str| unit.repeat((TEXT_MAX - 200) / unit.len());
    let list = |unit: &str| {
        let mut list = fill(&format!("{unit},"));
        list.pop();
        list
    };
    let name = |index: usize| format!("{{\"service\":\"s{index}\",\"method\":\"m\"}}");
    let names: Vec<_> = (0..25_000).map(name).collect();
    let keys: Vec<_> = (0..60_000).map(|key| format!("\"k{key}\":0")).collect();
    for text in [
        format!("{{\"x\": [{}]}}", list("0")),
        format!("{{\"x\": [{}]}}", list("{}")),
        format!("{{\"x\": \"{}\"}}", fill("\\n")),
        format!("{{\"x\": {}}}", fill("9")),
        format!("{{\"methodConfig\": [{{\"retryPolicy\": {{\"maxAttempts\": {}}}}}]}}", fill("9")),
        format!("{{\"methodConfig\": [{{\"timeout\": \"{}s\"}}]}}", fill("9")),
        format!(
            "{{\"methodConfig\": [{{\"hedgingPolicy\": {{\"maxAttempts\": 2, \"nonFatalStatusCodes\": [{}]}}}}]}}",
            list("\"UNAVAILABEL\"")
        ),
        format!("{{\"methodConfig\": [{{\"name\": [{}]}}]}}", list("{\"service\":\"a\"}")),
        format!(
            "{{\"methodConfig\": [{{\"name\": [{}]}}, {{\"name\": [{{}}], \"timeout\": \"1s\"}}]}}",
            names.join(",")
        ),
        format!("{{{}}}", keys.join(",")),
        format!("{{{}}}", list("\"a\":0")),
        format!("{{\"methodConfig\": [{{\"retryPolicy\": {{{}}}}}]}}", keys.join(",")),
        fill("\n"),
        fill("{\"a\":"),
        fill("\u{1f600}"),
    ] {
        let began = Instant::now();
        let read = ServiceConfig::parse(&text);
        let took = began.elapsed();
        let start: String = text.chars().take(60).collect();
        assert!(took.as_secs() < 20, "{took:?} for {start}... ({})", read.is_ok());
    }
}
