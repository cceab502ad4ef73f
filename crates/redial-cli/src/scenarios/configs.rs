//! Test cases for the service config validator: a text, its problems, and the policies of its
//! methods (docs/scenarios.md, "Service configs").

use std::collections::HashSet;
use std::time::Duration;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use redial_service_config::{
    Code, Codes, HedgingPolicy, MethodPolicy, Problem, RetryPolicy, Rule, ServiceConfig,
};
use serde_json::json;

use super::compare::Difference;
use super::json::{Fields, Reader, quoted};
use super::load::{not_empty, unique_name};

const CASE: [&str; 6] = ["name", "from", "text", "valid", "problems", "lookup"];
const RETRY: [&str; 5] = ["attempts", "first", "cap", "factor", "codes"];
const HEDGE: [&str; 3] = ["attempts", "delay", "codes"];

/// The tolerance of times, in milliseconds.
const MS_TOLERANCE: f64 = 0.001;

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Its name, unique in its file.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    text: String,
    valid: bool,
    /// Every problem, if the case lists them: path and rule.
    problems: Option<Vec<(String, String)>>,
    /// The expected policies of methods.
    lookup: Vec<(String, ExpectedPolicy)>,
}

/// The expected policy of a method; absent parts are not compared.
#[derive(Debug)]
enum ExpectedPolicy {
    Nothing,
    Retry(Parts),
    Hedge(Parts),
}

/// The expected parameters of a policy.
#[derive(Debug, Default)]
struct Parts {
    attempts: Option<u64>,
    /// `first` of a retry policy, `delay` of a hedging policy.
    first: Option<f64>,
    cap: Option<f64>,
    factor: Option<f64>,
    codes: Option<Codes>,
}

/// The result of the validator for a case.
#[derive(Debug)]
pub(super) struct ConfigResult {
    config: Result<ServiceConfig, Vec<Problem>>,
    warnings: Vec<Problem>,
    /// The policies of the case's methods.
    lookup: Vec<(String, Option<MethodPolicy>)>,
}

/// Reads the cases of a file.
pub(super) fn read<'t>(reader: &Reader<'t>, list: &'t Value<'t>) -> Option<Vec<Case>> {
    let mut names = HashSet::new();
    // All are read before the first error returns, so that every error is reported.
    let list = not_empty(reader, list, "configs")?;
    let cases: Vec<_> = list.iter().map(|value| case(reader, value, &mut names)).collect();
    cases.into_iter().collect()
}

fn case<'t>(
    reader: &Reader<'t>,
    value: &'t Value<'t>,
    names: &mut HashSet<&'t str>,
) -> Option<Case> {
    let what = "a config";
    let fields = reader.object(value, what, &CASE)?;
    let name = unique_name(reader, &fields, what, names);
    let text = reader.needs(&fields, "text", what).and_then(|it| reader.string(it, "text"));
    let valid = reader.needs(&fields, "valid", what).and_then(|it| reader.boolean(it, "valid"));
    let problems = match fields.get("problems") {
        None => Some(None),
        Some(value) => problems(reader, value).map(Some),
    };
    let lookup = fields.get("lookup").map_or(Some(Vec::new()), |value| lookup(reader, value));
    let (valid, problems, lookup) = (valid?, problems?, lookup?);
    let listed = problems.as_ref().is_some_and(|problems| !problems.is_empty());
    if valid && listed {
        let at = fields.get("problems").map_or(fields.at, Ranged::start);
        return reader.diagnostic(at, "problems: a valid config has none");
    }
    if !valid && !lookup.is_empty() {
        let at = fields.get("lookup").map_or(fields.at, Ranged::start);
        return reader.diagnostic(at, "lookup: only a valid config has methods");
    }
    let line = reader.source().line(fields.at);
    let (name, text) = (name?.to_owned(), text?.to_owned());
    Some(Case { name, line, text, valid, problems, lookup })
}

fn problems<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<(String, String)>> {
    let problem = |value: &'t Value<'t>| {
        let fields = reader.object(value, "a problem", &["path", "rule"])?;
        let part = |name: &str| {
            let value = reader.needs(&fields, name, "a problem")?;
            reader.string(value, name).map(ToOwned::to_owned)
        };
        Some((part("path")?, part("rule")?))
    };
    reader.array(value, "problems")?.iter().map(problem).collect()
}

fn lookup<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Vec<(String, ExpectedPolicy)>> {
    let method = |property: &'t jsonc_parser::ast::ObjectProp<'t>| {
        Some((property.name.as_str().to_owned(), expected_policy(reader, &property.value)?))
    };
    reader.any_object(value, "lookup")?.properties.iter().map(method).collect()
}

fn expected_policy<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<ExpectedPolicy> {
    if let Value::NullKeyword(_) = value {
        return Some(ExpectedPolicy::Nothing);
    }
    let what = "what a method gets";
    let fields = reader.object(value, what, &["retry", "hedge"])?;
    match (fields.get("retry"), fields.get("hedge")) {
        (Some(value), None) => {
            parts(reader, &reader.object(value, "retry", &RETRY)?).map(ExpectedPolicy::Retry)
        }
        (None, Some(value)) => {
            parts(reader, &reader.object(value, "hedge", &HEDGE)?).map(ExpectedPolicy::Hedge)
        }
        _ => reader.diagnostic(fields.at, format!("{what}: \"retry\", \"hedge\" or null")),
    }
}

fn parts<'t>(reader: &Reader<'t>, fields: &Fields<'t>) -> Option<Parts> {
    let number = |name: &str| {
        fields.get(name).map_or(Some(None), |value| reader.number(value, name).map(Some))
    };
    let attempts = fields
        .get("attempts")
        .map_or(Some(None), |value| reader.whole(value, "attempts", 0, u64::MAX).map(Some));
    let codes = fields.get("codes").map_or(Some(None), |value| codes(reader, value).map(Some));
    let first = if fields.get("delay").is_some() { number("delay") } else { number("first") };
    let (cap, factor) = (number("cap"), number("factor"));
    Some(Parts { attempts: attempts?, first: first?, cap: cap?, factor: factor?, codes: codes? })
}

fn codes<'t>(reader: &Reader<'t>, value: &'t Value<'t>) -> Option<Codes> {
    let code = |value: &'t Value<'t>| {
        let name = reader.string(value, "codes")?;
        Code::from_name(name).or_else(|| {
            let expected = quoted(&Code::ALL.map(Code::name));
            let text = format!("codes: unknown status {name:?}; expected one of {expected}");
            reader.diagnostic(value.start(), text)
        })
    };
    reader.array(value, "codes")?.iter().map(code).collect()
}

impl Case {
    /// The text of the config.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is expected to be valid.
    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }

    /// Runs the validator.
    pub(super) fn evaluate(&self) -> ConfigResult {
        match ServiceConfig::parse(&self.text) {
            Ok(config) => {
                let policy = |path: &str| config.method(path).and_then(|method| method.policy);
                let lookup = self.lookup.iter().map(|(path, _)| (path.clone(), policy(path)));
                let (warnings, lookup) = (config.warnings().to_vec(), lookup.collect());
                ConfigResult { config: Ok(config), warnings, lookup }
            }
            Err(problems) => {
                let warnings = problems.warnings().to_vec();
                ConfigResult {
                    config: Err(problems.into_iter().collect()),
                    warnings,
                    lookup: Vec::new(),
                }
            }
        }
    }

    /// All differences from the expectation.
    pub(super) fn compare(&self, result: &ConfigResult) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut add = |what: &'static str, expected: String, actual: String| {
            differences.push(Difference { call: None, what, expected, actual });
        };
        if self.valid != result.config.is_ok() {
            let word = |valid| if valid { "valid" } else { "not valid" }.to_owned();
            add("valid", word(self.valid), word(result.config.is_ok()));
        }
        let found = result.config.as_ref().err().map_or(&[][..], Vec::as_slice);
        let found: Vec<_> =
            found.iter().map(|it| (it.path.clone(), it.rule.name().to_owned())).collect();
        if let Some(expected) = &self.problems
            && !same_problems(expected, &found)
        {
            add("problems", listed(expected), listed(&found));
        }
        for ((path, expected), (_, found)) in self.lookup.iter().zip(&result.lookup) {
            if !expected.is(found.as_ref()) {
                let found = found.as_ref().map_or(serde_json::Value::Null, policy);
                add("lookup", format!("{path} {}", expected.to_json()), format!("{path} {found}"));
            }
        }
        differences
    }
}

/// Whether the problems match, in any order. If a key is duplicated, other problems need not be
/// found (decision G33).
fn same_problems(expected: &[(String, String)], found: &[(String, String)]) -> bool {
    let sorted = |list: &[(String, String)]| {
        let key = Rule::DuplicateKey.name();
        let twice = expected.iter().any(|(_, rule)| rule == key);
        let mut list: Vec<_> =
            list.iter().filter(|(_, rule)| !twice || rule == key).cloned().collect();
        list.sort();
        if twice {
            // The number of duplicates does not matter.
            list.dedup();
        }
        list
    };
    sorted(expected) == sorted(found)
}

fn listed(problems: &[(String, String)]) -> String {
    let texts: Vec<_> = problems.iter().map(|(path, rule)| format!("{path} [{rule}]")).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

impl ExpectedPolicy {
    fn is(&self, found: Option<&MethodPolicy>) -> bool {
        match (self, found) {
            (ExpectedPolicy::Nothing, None) => true,
            (ExpectedPolicy::Retry(parts), Some(MethodPolicy::Retry(found))) => {
                let RetryPolicy { initial_backoff, max_backoff, backoff_multiplier, .. } = *found;
                parts.are(found.max_attempts, initial_backoff, found.retryable_status_codes)
                    && parts.cap.is_none_or(|cap| is_near(cap, ms(max_backoff)))
                    && parts.factor.is_none_or(|factor| factor == backoff_multiplier)
            }
            (ExpectedPolicy::Hedge(parts), Some(MethodPolicy::Hedging(found))) => {
                let HedgingPolicy { max_attempts, hedging_delay, non_fatal_status_codes, .. } =
                    *found;
                parts.are(max_attempts, hedging_delay, non_fatal_status_codes)
            }
            _ => false,
        }
    }

    /// In the notation of a case.
    fn to_json(&self) -> serde_json::Value {
        let (name, first, parts) = match self {
            ExpectedPolicy::Nothing => return serde_json::Value::Null,
            ExpectedPolicy::Retry(parts) => ("retry", "first", parts),
            ExpectedPolicy::Hedge(parts) => ("hedge", "delay", parts),
        };
        let mut written = serde_json::Map::new();
        let mut add = |name: &str, value: Option<serde_json::Value>| {
            if let Some(value) = value {
                written.insert(name.to_owned(), value);
            }
        };
        add("attempts", parts.attempts.map(Into::into));
        add(first, parts.first.map(Into::into));
        add("cap", parts.cap.map(Into::into));
        add("factor", parts.factor.map(Into::into));
        add("codes", parts.codes.map(names));
        json!({ name: written })
    }
}

impl Parts {
    fn are(&self, attempts: u32, first: Duration, codes: Codes) -> bool {
        // More attempts than the cap count as the cap (decision G2).
        self.attempts.is_none_or(|it| it.min(u64::from(u32::MAX)) == u64::from(attempts))
            && self.first.is_none_or(|expected| is_near(expected, ms(first)))
            && self.codes.is_none_or(|expected| expected == codes)
    }
}

/// Whether two times in milliseconds are equal; floats of long times are not exact.
fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= MS_TOLERANCE.max(b.abs() * f64::EPSILON)
}

fn ms(span: Duration) -> f64 {
    span.as_secs() as f64 * 1e3 + f64::from(span.subsec_nanos()) / 1e6
}

fn names(codes: Codes) -> serde_json::Value {
    codes.iter().map(Code::name).collect::<Vec<_>>().into()
}

fn policy(policy: &MethodPolicy) -> serde_json::Value {
    match policy {
        MethodPolicy::Retry(policy) => json!({ "retry": {
            "attempts": policy.max_attempts,
            "first": ms(policy.initial_backoff),
            "cap": ms(policy.max_backoff),
            "factor": policy.backoff_multiplier,
            "codes": names(policy.retryable_status_codes),
        } }),
        MethodPolicy::Hedging(policy) => json!({ "hedge": {
            "attempts": policy.max_attempts,
            "delay": ms(policy.hedging_delay),
            "codes": names(policy.non_fatal_status_codes),
        } }),
    }
}

impl ConfigResult {
    /// The result in the notation of a case.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let problems = |list: &[Problem]| -> serde_json::Value {
            let problem = |it: &Problem| {
                json!({ "path": it.path, "rule": it.rule.name(), "line": it.line,
                        "column": it.column, "what": it.what, "hint": it.hint })
            };
            list.iter().map(problem).collect::<Vec<_>>().into()
        };
        let found = self.config.as_ref().err().map_or(&[][..], Vec::as_slice);
        let lookup = self.lookup.iter().map(|(path, found)| {
            (path.clone(), found.as_ref().map_or(serde_json::Value::Null, policy))
        });
        json!({
            "valid": self.config.is_ok(),
            "problems": problems(found),
            "warnings": problems(&self.warnings),
            "lookup": lookup.collect::<serde_json::Map<_, _>>(),
        })
    }
}
