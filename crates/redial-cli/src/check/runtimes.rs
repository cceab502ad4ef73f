//! What gRPC clients in other languages reject, ignore or do differently: the table
//! `runtimes.json`, and the places of a config to which its rows apply.

use std::ops::Range;
use std::sync::LazyLock;

use jsonc_parser::ast::Value;
use serde::Deserialize;

use super::json_file::{elements, field, number, range, string};
use super::{Finding, Severity};

/// A gRPC client library, by its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    /// grpc-go.
    Go,
    /// grpc-java.
    Java,
    /// gRPC for C++, on C-core. It is not measured; it has the rows of Python, which uses C-core,
    /// too.
    Cpp,
    /// @grpc/grpc-js.
    Node,
    /// grpcio, on C-core.
    Python,
}

impl Runtime {
    /// The name in messages.
    const fn name(self) -> &'static str {
        match self {
            Runtime::Go => "Go",
            Runtime::Java => "Java",
            Runtime::Cpp => "C++",
            Runtime::Node => "Node",
            Runtime::Python => "Python",
        }
    }

    /// The beginning of the names of its rules.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Runtime::Cpp => "cpp",
            measured => measured.measured_as(),
        }
    }

    /// The name in the table.
    const fn measured_as(self) -> &'static str {
        match self {
            Runtime::Go => "go",
            Runtime::Java => "java",
            Runtime::Node => "node",
            Runtime::Cpp | Runtime::Python => "python",
        }
    }
}

#[derive(Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    when: When,
    languages: Vec<String>,
    severity: String,
    text: String,
    help: Option<String>,
}

static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    // A test reads it, too.
    serde_json::from_str::<Table>(include_str!("runtimes.json")).map_or(Vec::new(), |it| it.rows)
});

pub(super) fn check(root: &Value<'_>, languages: &[Runtime], findings: &mut Vec<Finding>) {
    if languages.is_empty() {
        return;
    }
    let places = places(root);
    for runtime in languages {
        let applies = |row: &&Row| row.languages.iter().any(|it| it == runtime.measured_as());
        for row in TABLE.iter().filter(applies) {
            for (_, range) in places.iter().filter(|(when, _)| *when == row.when) {
                findings.push(finding(*runtime, row, range.clone()));
            }
        }
    }
}

fn finding(runtime: Runtime, row: &Row, range: Range<usize>) -> Finding {
    let as_python =
        if runtime == Runtime::Cpp { " (as Python, which uses C-core, too)" } else { "" };
    Finding {
        rule: format!("{}-{}", runtime.rule(), row.when.name()),
        severity: match row.severity.as_str() {
            "error" => Severity::Error,
            "warning" => Severity::Warning,
            _ => Severity::Note,
        },
        range,
        path: String::new(),
        text: format!("in {}: {}{as_python}", runtime.name(), row.text),
        help: row.help.clone(),
    }
}

/// The condition of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum When {
    HedgingPolicy,
    HedgingWithThrottling,
    HedgingWithoutDelay,
    CodeNotUpperCase,
    CodeNumber,
    MessageSizeString,
    FirstBackoffAboveMax,
    MoreThanFiveAttempts,
    TimeoutWithPolicy,
    RetryPolicy,
    OkListed,
}

impl When {
    pub(super) const ALL: [When; 11] = [
        When::HedgingPolicy,
        When::HedgingWithThrottling,
        When::HedgingWithoutDelay,
        When::CodeNotUpperCase,
        When::CodeNumber,
        When::MessageSizeString,
        When::FirstBackoffAboveMax,
        When::MoreThanFiveAttempts,
        When::TimeoutWithPolicy,
        When::RetryPolicy,
        When::OkListed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            When::HedgingPolicy => "hedging-policy",
            When::HedgingWithThrottling => "hedging-with-throttling",
            When::HedgingWithoutDelay => "hedging-without-delay",
            When::CodeNotUpperCase => "code-not-upper-case",
            When::CodeNumber => "code-number",
            When::MessageSizeString => "message-size-string",
            When::FirstBackoffAboveMax => "first-backoff-above-max",
            When::MoreThanFiveAttempts => "more-than-five-attempts",
            When::TimeoutWithPolicy => "timeout-with-policy",
            When::RetryPolicy => "retry-policy",
            When::OkListed => "ok-listed",
        }
    }
}

/// The places of a config to which a condition applies.
fn places(root: &Value<'_>) -> Vec<(When, Range<usize>)> {
    let mut places = Vec::new();
    let throttled = field(root, "retryThrottling").is_some();
    let mut first_retry = true;
    for entry in elements(field(root, "methodConfig").map(|it| &it.value)) {
        let retry = field(entry, "retryPolicy");
        let hedging = field(entry, "hedgingPolicy");
        if let Some(policy) = hedging {
            places.push((When::HedgingPolicy, range(&policy.name)));
            if throttled {
                places.push((When::HedgingWithThrottling, range(&policy.name)));
            }
            if field(&policy.value, "hedgingDelay").is_none() {
                places.push((When::HedgingWithoutDelay, range(&policy.name)));
            }
        }
        if let Some(policy) = retry {
            // These are about servers, and not about an entry: once is enough.
            if std::mem::take(&mut first_retry) {
                places.push((When::RetryPolicy, range(&policy.name)));
            }
            if first_is_above_max(&policy.value)
                && let Some(first) = field(&policy.value, "initialBackoff")
            {
                places.push((When::FirstBackoffAboveMax, range(&first.value)));
            }
        }
        if let Some(timeout) = field(entry, "timeout").filter(|_| retry.or(hedging).is_some()) {
            places.push((When::TimeoutWithPolicy, range(&timeout.name)));
        }
        for name in ["maxRequestMessageBytes", "maxResponseMessageBytes"] {
            if let Some(size) = field(entry, name).filter(|it| string(&it.value).is_some()) {
                places.push((When::MessageSizeString, range(&size.value)));
            }
        }
        for policy in [retry, hedging].into_iter().flatten() {
            let attempts = field(&policy.value, "maxAttempts");
            if let Some(attempts) = attempts.filter(|it| number(&it.value) > Some(5.0)) {
                places.push((When::MoreThanFiveAttempts, range(&attempts.value)));
            }
            for list in ["retryableStatusCodes", "nonFatalStatusCodes"] {
                codes(elements(field(&policy.value, list).map(|it| &it.value)), &mut places);
            }
        }
    }
    places
}

fn codes(list: &[Value<'_>], places: &mut Vec<(When, Range<usize>)>) {
    for code in list {
        match (string(code), number(code)) {
            (Some(name), _) => {
                let known = redial_service_config::Code::from_name(name).is_some();
                if known && name != name.to_ascii_uppercase() {
                    places.push((When::CodeNotUpperCase, range(code)));
                }
                if name.eq_ignore_ascii_case("OK") {
                    places.push((When::OkListed, range(code)));
                }
            }
            (None, Some(code_number)) => {
                places.push((When::CodeNumber, range(code)));
                if code_number == 0.0 {
                    places.push((When::OkListed, range(code)));
                }
            }
            (None, None) => {}
        }
    }
}

/// Whether the first delay of a policy is above the longest: as the validator reads it.
fn first_is_above_max(policy: &Value<'_>) -> bool {
    let seconds = |name: &str| {
        let text = string(&field(policy, name)?.value)?;
        text.strip_suffix('s')?.parse::<f64>().ok()
    };
    matches!((seconds("initialBackoff"), seconds("maxBackoff")), (Some(first), Some(max)) if first > max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial_service_config::ServiceConfig;
    use std::collections::BTreeSet;

    const DIFFERENCES: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/differences.json");
    const CONFIGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/grpc-config.json");

    fn table() -> serde_json::Value {
        serde_json::from_str(include_str!("runtimes.json")).expect("the table is JSON")
    }

    fn file(path: &str) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path).expect("it is there")).expect("JSON")
    }

    fn texts(value: &serde_json::Value) -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn runtime_rows_are_measured_differences() {
        let differences = file(DIFFERENCES);
        let measured = differences["differences"].as_array().expect("a list");
        for row in table()["rows"].as_array().expect("a list") {
            let Some(what) = row["difference"].as_str() else {
                let text = row["text"].as_str().unwrap_or_default();
                assert!(text.ends_with("(from its source code, not measured)"), "{row}");
                continue;
            };
            let found = measured.iter().find(|it| it["what"] == what);
            let found = found.unwrap_or_else(|| panic!("no such difference: {what}"));
            assert_eq!(texts(&found["languages"]), texts(&row["languages"]), "{what}");
        }
    }

    #[test]
    fn runtime_differences_in_configs_are_all_in_the_table() {
        let table = table();
        let rows = table["rows"].as_array().expect("a list").iter();
        let mut known: BTreeSet<String> =
            rows.filter_map(|row| row["difference"].as_str().map(str::to_owned)).collect();
        known.extend(texts(&table["reported_for_all"]["rows"]));
        for row in file(DIFFERENCES)["differences"].as_array().expect("a list") {
            let what = row["what"].as_str().expect("a text");
            assert!(row["configs"].is_null() || known.contains(what), "{what}");
        }
    }

    #[test]
    fn runtime_table_uses_each_condition_by_its_name() {
        let rows = table()["rows"].as_array().map_or(0, Vec::len);
        assert_eq!(TABLE.len(), rows);
        for row in TABLE.iter() {
            let name = serde_json::Value::from(row.when.name());
            assert_eq!(serde_json::from_value::<When>(name).ok(), Some(row.when));
        }
        let used: BTreeSet<_> = TABLE.iter().map(|row| row.when).collect();
        assert_eq!(used, BTreeSet::from(When::ALL));
    }

    /// A config that is valid here and rejected by another client, as the interop tests measure it,
    /// is an error for that client.
    #[test]
    fn runtime_rejections_that_are_measured_are_found() {
        let configs = file(CONFIGS);
        let mut compared = 0;
        for row in file(DIFFERENCES)["differences"].as_array().expect("a list") {
            for name in texts(&row["configs"]) {
                let name = name.trim_start_matches("grpc-config.json: ");
                let case = configs["configs"].as_array().expect("a list");
                let case = case.iter().find(|it| it["name"] == name).expect("it is there");
                let text = case["text"].as_str().expect("a text");
                if ServiceConfig::parse(text).is_err() {
                    continue;
                }
                for (language, runtime) in [
                    ("go", Runtime::Go),
                    ("java", Runtime::Java),
                    ("python", Runtime::Python),
                    ("node", Runtime::Node),
                ] {
                    let root = super::super::json_file::parse(text).expect("it is valid");
                    let mut findings = Vec::new();
                    check(&root, &[runtime], &mut findings);
                    let rejected = findings.iter().any(|it| it.severity == Severity::Error);
                    let measured = texts(&row["languages"]).iter().any(|it| it == language);
                    assert!(!measured || rejected, "{name} for {language}: {findings:?}");
                    compared += usize::from(measured);
                }
            }
        }
        assert!(compared >= 5, "the interop tests measure rejections: {compared}");
    }
}
