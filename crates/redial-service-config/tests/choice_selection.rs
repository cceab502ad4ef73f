//! Selection from a list of service config choices (gRFC A2): a client selects the first matching choice,
//! problems point at their value, and a config for other clients only causes a warning. Tables of lists,
//! with an `@` before every value that has a problem or warning.

use redial_service_config::{
    CHOICES_MAX, CHOICES_TEXT_MAX, ChoiceSelector, DEPTH_MAX, Problem, Problems, RECORD_ATTRIBUTE,
    Rule, SelectedChoice, ServiceConfig,
};

/// A list whose choices have these conditions.
fn list(conditions: &[&str]) -> String {
    let choices: Vec<_> = conditions
        .iter()
        .map(|conditions| format!("{{{conditions}\"serviceConfig\": {{}}}}"))
        .collect();
    format!("[{}]", choices.join(", "))
}

/// The index of the selected choice of a list.
fn index(selector: &ChoiceSelector, conditions: &[&str]) -> Option<usize> {
    let selected =
        selector.select(&list(conditions)).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(selected.config.is_some(), selected.index.is_some());
    selected.index
}

/// The rules and paths of the problems, which must be exactly at the marks.
fn at_marks<'p>(marked: &str, found: impl IntoIterator<Item = &'p Problem>) -> Vec<(Rule, String)> {
    let found: Vec<_> = found.into_iter().collect();
    let marks = marked.match_indices('@').enumerate().map(|(index, (at, _))| at - index);
    let starts: Vec<_> = found.iter().map(|problem| problem.range.start).collect();
    assert_eq!(starts, marks.collect::<Vec<_>>(), "{marked}\n{found:#?}");
    for problem in &found {
        let before = &marked.replace('@', "")[..problem.range.start];
        assert_eq!(problem.line, before.matches('\n').count() + 1, "{problem}");
    }
    found.iter().map(|problem| (problem.rule, problem.path.clone())).collect()
}

fn problems(marked: &str) -> Vec<(Rule, String)> {
    let problems = ChoiceSelector::new(0).select(&marked.replace('@', "")).expect_err(marked);
    at_marks(marked, &problems)
}

fn warnings(marked: &str) -> (SelectedChoice, Vec<(Rule, String)>) {
    let selected = ChoiceSelector::new(0).select(&marked.replace('@', ""));
    let selected = selected.unwrap_or_else(|problems| panic!("{marked}\n{problems}"));
    let found = at_marks(marked, &selected.warnings);
    (selected, found)
}

fn found(rule: Rule, path: &str) -> Vec<(Rule, String)> {
    vec![(rule, path.to_owned())]
}

#[test]
fn choice_selection_takes_first_matching_choice() {
    let here = ChoiceSelector::new(50).hostname("web-1");
    assert_eq!(index(&here, &["", ""]), Some(0));
    assert_eq!(index(&here, &[]), None);
    let java = r#""clientLanguage": ["java", "go"], "#;
    assert_eq!(index(&here, &[java]), None);
    assert_eq!(index(&here, &[java, ""]), Some(1));
    // All conditions must match, not just one.
    let both = r#""clientLanguage": ["rust"], "clientHostname": ["web-2"], "#;
    assert_eq!(index(&here, &[both, r#""clientHostname": ["web-1"], "#]), Some(1));
}

#[test]
fn choice_selection_ignores_language_case_but_not_hostname_case() {
    let here = ChoiceSelector::new(0).hostname("web-1");
    for language in ["rust", "Rust", "RUST"] {
        let condition = format!("\"clientLanguage\": [\"c++\", \"{language}\"], ");
        assert_eq!(index(&here, &[&condition]), Some(0), "{language}");
    }
    for other in ["rus", "rust ", ""] {
        let condition = format!("\"clientLanguage\": [\"{other}\"], ");
        assert_eq!(index(&here, &[&condition]), None, "{other}");
    }
    let named = r#""clientHostname": ["web-0", "web-1"], "#;
    assert_eq!(index(&here, &[named]), Some(0));
    for other in ["WEB-1", "web-1.example.com", "web", ""] {
        assert_eq!(index(&ChoiceSelector::new(0).hostname(other), &[named]), None, "{other}");
    }
    assert_eq!(
        index(&ChoiceSelector::new(0), &[named]),
        None,
        "a machine without a name is none of them"
    );
}

#[test]
fn choice_without_condition_matches_every_client() {
    let nobody = ChoiceSelector::new(99);
    for conditions in [
        "",
        "\"clientLanguage\": [], ",
        "\"clientHostname\": [], ",
        "\"clientLanguage\": null, \"clientHostname\": null, \"percentage\": null, ",
        "\"percentage\": 100, ",
    ] {
        assert_eq!(index(&nobody, &[conditions]), Some(0), "{conditions}");
    }
}

#[test]
fn choice_percentage_matches_that_many_of_hundred_draws() {
    for (written, meant) in [("0", 0), ("1", 1), ("99", 99), ("100", 100), ("5.0", 5), ("1e1", 10)]
    {
        let condition = format!("\"percentage\": {written}, ");
        let met =
            (0..100).filter(|draw| index(&ChoiceSelector::new(*draw), &[&condition]).is_some());
        assert_eq!(met.count(), meant, "{written}");
    }
    assert_eq!(index(&ChoiceSelector::new(255), &["\"percentage\": 99, "]), None, "it is 99");
    assert_eq!(index(&ChoiceSelector::new(255), &["\"percentage\": 100, "]), Some(0));
}

#[test]
fn choice_selection_uses_one_draw_for_all_choices() {
    let list = ["\"percentage\": 10, ", "\"percentage\": 50, ", ""];
    let count = |wanted| {
        (0..100).filter(|draw| index(&ChoiceSelector::new(*draw), &list) == Some(wanted)).count()
    };
    assert_eq!([count(0), count(1), count(2)], [10, 40, 50]);
}

#[test]
fn choice_with_raised_percentage_only_gains_clients() {
    for draw in 0..100 {
        let takes = |percentage: u8| {
            let canary = format!("\"percentage\": {percentage}, ");
            index(&ChoiceSelector::new(draw), &[&canary, ""]) == Some(0)
        };
        let taken: Vec<_> = (0..=100).map(takes).collect();
        assert!(taken.is_sorted(), "{draw}: {taken:?}");
    }
}

#[test]
fn choice_problems_point_at_the_value() {
    let field = |name: &str| format!("[0].{name}");
    for wrong in ["101", "-1", "0.5", "1e3", "\"50\"", "[]", "true"] {
        let text = format!("[{{\"percentage\": @{wrong}, \"serviceConfig\": {{}}}}]");
        assert_eq!(problems(&text), found(Rule::Percentage, "[0].percentage"), "{wrong}");
    }
    for name in ["clientLanguage", "clientHostname"] {
        let text = format!("[{{\"{name}\": @\"rust\", \"serviceConfig\": {{}}}}]");
        assert_eq!(problems(&text), found(Rule::Type, &field(name)));
        for element in ["5", "null", "{}"] {
            let text = format!("[{{\"{name}\": [\"a\", @{element}], \"serviceConfig\": {{}}}}]");
            assert_eq!(problems(&text), found(Rule::Type, &format!("{}[1]", field(name))));
        }
    }
    let config = found(Rule::ServiceConfig, "[0].serviceConfig");
    assert_eq!(problems("[@{}]"), config);
    assert_eq!(problems("[{\"serviceConfig\": @null}]"), config);
    assert_eq!(problems("[{\"serviceConfig\": @[]}]"), config);
    assert_eq!(problems("[\n@5]"), found(Rule::Type, "[0]"));
    assert_eq!(problems("@"), found(Rule::Json, ""));
    assert_eq!(problems("[{\"serviceConfig\": {}}@,]"), found(Rule::Json, ""));
    assert_eq!(
        problems("[{\"serviceConfig\": {\"a\": 1, @\"a\": 1}}]"),
        found(Rule::DuplicateKey, "[0].serviceConfig.a")
    );
    // A choice with an invalid condition is an error even if another one is selected: its condition cannot
    // be evaluated.
    let text = "[{\"serviceConfig\": {}}, @{\"percentage\": @7.5}]";
    let both = [(Rule::ServiceConfig, "[1].serviceConfig"), (Rule::Percentage, "[1].percentage")];
    assert_eq!(problems(text), both.map(|(rule, path)| (rule, path.to_owned())));
}

#[test]
fn choice_list_hint_for_bare_service_config() {
    let problems = ChoiceSelector::new(0).select("{\"methodConfig\": []}").unwrap_err();
    assert_eq!(
        problems.to_string(),
        "1:1: error[type]: expected a list of choices, found an object; write [{\"serviceConfig\": ...}] around a config"
    );
}

#[test]
fn choice_selected_config_is_fully_validated() {
    let config = r#"{"methodConfig": [{"name": [{"service": "a.B"}, {"service": "a.B"}], "timeout": "5m", "retryPolicy": {"maxAttempts": 1}}], "retryThrottling": {"maxTokens": 1}}"#;
    let alone = ServiceConfig::parse(config).unwrap_err();
    let (before, text) = ("[{\"serviceConfig\": ", format!("[{{\"serviceConfig\": {config}}}]"));
    let selected = ChoiceSelector::new(0).select(&text).unwrap_err();
    assert_eq!(alone.as_slice().len(), selected.as_slice().len());
    for (alone, selected) in alone.iter().zip(&selected) {
        assert_eq!(selected.rule, alone.rule);
        assert_eq!(selected.path, format!("[0].serviceConfig.{}", alone.path));
        let (from, to) = (alone.range.start + before.len(), alone.range.end + before.len());
        assert_eq!(selected.range, from..to);
        assert_eq!((selected.line, selected.column), (1, alone.column + before.len()));
        assert_eq!(selected.hint, alone.hint);
    }
    assert!(selected.iter().any(|problem| problem.rule == Rule::DuplicateName));
}

#[test]
fn choice_not_selected_with_bad_config_is_a_warning() {
    let text = "[{\"percentage\": 0, \"serviceConfig\": @{\"retryThrottling\": {}}},\n {\"serviceConfig\": {\"loadBalancingPolicy\": \"round_robin\"}}]";
    let (selected, warned) = warnings(text);
    assert_eq!(selected.index, Some(1));
    assert_eq!(warned, found(Rule::InvalidElsewhere, "[0].serviceConfig"));
    assert_eq!(
        selected.warnings[0].to_string(),
        "1:37: warning[invalid-elsewhere]: [0].serviceConfig: not selected for this client, and has 2 problems; the first is 1:57: error[max-tokens]: [0].serviceConfig.retryThrottling.maxTokens: is required: a whole number from 1 to 1000"
    );
    // The same config is an error for the clients that select it.
    let taken = text.replace("0, ", "100, ").replace('@', "");
    assert_eq!(ChoiceSelector::new(0).select(&taken).unwrap_err().as_slice().len(), 2);
}

#[test]
fn choice_with_unknown_condition_is_skipped() {
    let text = r#"[@{@"percentge": 1, "serviceConfig": {}}, {"serviceConfig": {}}]"#;
    let (selected, warned) = warnings(text);
    assert_eq!(selected.index, Some(1), "a canary config must not apply to all clients");
    let expected = [(Rule::PassedOver, "[0]"), (Rule::UnknownField, "[0].percentge")];
    assert_eq!(warned, expected.map(|(rule, path)| (rule, path.to_owned())));
    assert_eq!(selected.warnings[1].hint.as_deref(), Some("did you mean \"percentage\"?"));
    let (selected, warned) = warnings(r#"[@{@"methodConfig": [], "serviceConfig": {}}]"#);
    assert_eq!((selected.index, warned[1].0), (None, Rule::MisplacedField));
}

#[test]
fn choice_after_catch_all_is_warned_about_once() {
    let (_, warned) = warnings(&list(&["", "\"percentage\": 5, ", ""]).replacen(", {", ", @{", 1));
    assert_eq!(warned, found(Rule::Unreachable, "[1]"));
    for reachable in
        [&["\"percentage\": 99, ", ""][..], &["\"clientHostname\": [\"a\"], ", ""], &[""]]
    {
        assert_eq!(warnings(&list(reachable)).1, []);
    }
}

#[test]
fn choice_warnings_include_selected_config_warnings() {
    let text = r#"[{"clientLanguage": ["go"], "serviceConfig": {"unread": 1}}, {"serviceConfig": {@"colour": 1, "methodConfig": [{"name": [{}], "timeout": @"0s"}]}}]"#;
    let (selected, warned) = warnings(text);
    let expected = [
        (Rule::UnknownField, "[1].serviceConfig.colour"),
        (Rule::ZeroTimeout, "[1].serviceConfig.methodConfig[0].timeout"),
    ];
    assert_eq!(warned, expected.map(|(rule, path)| (rule, path.to_owned())));
    assert_eq!(selected.config.unwrap().warnings(), selected.warnings);
}

/// Selects from records of one string each.
fn from_records(records: &[&[u8]]) -> Result<SelectedChoice, Problems> {
    ChoiceSelector::new(0).select_from_records(records.iter().map(|record| [record]))
}

#[test]
fn choice_record_with_attribute_is_joined_and_used() {
    let record = b"grpc_config=[{\"serviceConfig\": {}}]";
    assert_eq!(from_records(&[]).unwrap().index, None);
    assert_eq!(from_records(&[b"v=spf1 -all", b""]).unwrap().index, None);
    assert_eq!(from_records(&[b"v=spf1 -all", record, b"\xff"]).unwrap().index, Some(0));
    for size in 1..=record.len() {
        let selected = ChoiceSelector::new(0).select_from_records([record.chunks(size)]).unwrap();
        assert_eq!(selected.index, Some(0), "{size}");
    }
    // The prefix is matched exactly, as in other gRPC implementations.
    for other in ["GRPC_CONFIG=", " grpc_config=", "grpc_config =", "_grpc_config="] {
        let record = format!("{other}[{{\"serviceConfig\": {{}}}}]");
        assert_eq!(from_records(&[record.as_bytes()]).unwrap().index, None, "{other}");
    }
}

#[test]
fn choice_records_with_two_lists_are_rejected() {
    let problems = from_records(&[b"grpc_config=[]", b"other", b"grpc_config=[5]"]).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "1:1: error[records]: 2 records begin with \"grpc_config=\", and have no order; write one record, whose strings are joined"
    );
}

#[test]
fn choice_record_with_invalid_utf8_reports_first_bad_byte() {
    let text = "grpc_config=[{\n\"ü";
    let problems = from_records(&[&[text.as_bytes(), b"\xff\xff\"]"].concat()]).unwrap_err();
    let [problem] = problems.as_slice() else { panic!("{problems}") };
    assert_eq!((problem.rule, problem.line, problem.column), (Rule::Json, 2, 3));
    // A character may span two strings.
    let record = "grpc_config=[{\"clientHostname\": [\"ü\"], \"serviceConfig\": {}}]";
    let selector = ChoiceSelector::new(0).hostname("ü");
    let selected = selector.select_from_records([record.as_bytes().chunks(1)]).unwrap();
    assert_eq!(selected.index, Some(0));
}

#[test]
fn choice_list_length_is_limited_to_dns_record() {
    assert_eq!(CHOICES_TEXT_MAX, 65_535);
    let padded = |length: usize| format!("[{}]", " ".repeat(length - 2));
    let rules = |result: Result<SelectedChoice, Problems>| {
        result.map(drop).map_err(|problems| problems.as_slice()[0].rule)
    };
    let (fits, large) = (padded(CHOICES_TEXT_MAX), padded(CHOICES_TEXT_MAX + 1));
    assert_eq!(rules(ChoiceSelector::new(0).select(&fits)), Ok(()));
    assert_eq!(rules(ChoiceSelector::new(0).select(&large)), Err(Rule::Limit));
    for (list, expected) in [(&fits, Ok(())), (&large, Err(Rule::Limit))] {
        let record = format!("{RECORD_ATTRIBUTE}{list}");
        let strings = record.as_bytes().chunks(255);
        assert_eq!(rules(ChoiceSelector::new(0).select_from_records([strings])), expected);
    }
    // A longer record is rejected, even where truncation would split a character.
    let umlauts = format!("{RECORD_ATTRIBUTE}{}", "ü".repeat(CHOICES_TEXT_MAX));
    let strings = umlauts.as_bytes().chunks(255);
    assert_eq!(rules(ChoiceSelector::new(0).select_from_records([strings])), Err(Rule::Limit));
}

#[test]
fn choice_list_is_limited_to_a_thousand_choices() {
    assert_eq!(CHOICES_MAX, 1_000);
    let never = "\"percentage\": 0, ";
    let lists = |count: usize| list(&vec![never; count]);
    assert_eq!(ChoiceSelector::new(0).select(&lists(CHOICES_MAX)).unwrap().index, None);
    let problems = ChoiceSelector::new(0).select(&lists(CHOICES_MAX + 1)).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule, Rule::Limit);
    // At the limit, each choice has problems and each is reported.
    let bad = r#"{"percentage": 0, "serviceConfig": {"retryThrottling": 5}}"#;
    let text = format!("[{}]", vec![bad; CHOICES_MAX].join(","));
    assert_eq!(ChoiceSelector::new(0).select(&text).unwrap().warnings.len(), CHOICES_MAX);
}

#[test]
fn choice_list_has_config_depth_limit() {
    let nested = |depth: usize| {
        let inner = depth - 3;
        let (open, close) = ("[".repeat(inner), "]".repeat(inner));
        format!("[{{\"serviceConfig\": {{\"x\": {open}{close}}}}}]")
    };
    assert!(ChoiceSelector::new(0).select(&nested(DEPTH_MAX)).is_ok());
    let problems = ChoiceSelector::new(0).select(&nested(DEPTH_MAX + 1)).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule, Rule::Limit);
}
