//! Compares the expected with the actual behaviour.

use std::fmt;

use redial::time::Ns;
use redial_service_config::Statistics;

use super::model::{Call, ExpectEnd, ExpectStats, Scenario};
use super::play::{Actual, ActualCall, ActualEnd};
use super::report;
use super::time::to_ms;

/// How far tokens may differ.
const TOKENS_TOLERANCE: f64 = 0.001;

/// A difference from the expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The call, from 1; `None`: the scenario.
    pub(super) call: Option<usize>,
    /// What differs.
    pub(super) what: &'static str,
    pub(super) expected: String,
    pub(super) actual: String,
}

/// All differences. Times may differ by `tolerance`.
pub(super) fn compare(scenario: &Scenario, actual: &Actual, tolerance: Ns) -> Vec<Difference> {
    let mut differences = Differences { list: Vec::new(), call: None, tolerance };
    match (&actual.refused, scenario.refused) {
        (Some(_), true) => return Vec::new(),
        (None, true) => differences.add("policy", "refused", "built"),
        (Some(text), false) => {
            differences.add("policy", "built", format_args!("refused: {text}"));
        }
        (None, false) => {}
    }
    for (index, (call, actual)) in scenario.calls.iter().zip(&actual.calls).enumerate() {
        differences.call = Some(index + 1);
        differences.call(call, actual);
    }
    differences.call = None;
    differences.tokens(scenario.expect.tokens, actual.tokens);
    for (method, expected) in &scenario.expect.stats {
        // A method without calls has no statistics.
        let actual = actual.stats.get(method).copied().unwrap_or_default();
        differences.stats(method, expected, &actual);
    }
    differences.list
}

struct Differences {
    list: Vec<Difference>,
    call: Option<usize>,
    tolerance: Ns,
}

impl Differences {
    fn add(&mut self, what: &'static str, expected: impl fmt::Display, actual: impl fmt::Display) {
        let (expected, actual) = (expected.to_string(), actual.to_string());
        self.list.push(Difference { call: self.call, what, expected, actual });
    }

    fn is_near(&self, a: Ns, b: Ns) -> bool {
        a.abs_diff(b) <= self.tolerance
    }

    fn call(&mut self, call: &Call, actual: &ActualCall) {
        let expect = &call.expect;
        if let Some(attempt) = actual.unscripted {
            let listed = call.attempts.len();
            let expected = format!("at most {listed}, as many as the script lists");
            self.add("attempts", expected, format_args!("attempt {attempt} started"));
        }
        if let Some(starts) = &expect.starts {
            let same = starts.len() == actual.starts.len()
                && starts.iter().zip(&actual.starts).all(|(a, b)| self.is_near(*a, *b));
            if !same {
                self.add("starts", times(starts), times(&actual.starts));
            }
        }
        if let Some(expected) = &expect.cancels {
            let same = expected.len() == actual.cancels.len()
                && expected.iter().zip(&actual.cancels).all(|(expected, actual)| {
                    expected.0 == actual.0 && self.is_near(expected.1, actual.1)
                });
            if !same {
                self.add("cancels", cancels(expected), cancels(&actual.cancels));
            }
        }
        match (&expect.end, &actual.end) {
            (Some(expected), Some(actual)) => self.end(expected, actual),
            (Some(_), None) => self.add("end", "an end", "the call never ended"),
            (None, _) => {}
        }
        self.tokens(expect.tokens, actual.tokens);
        if let Some(previous) = &expect.previous
            && actual.previous.as_ref() != Some(previous)
        {
            let happened = actual.previous.as_deref().unwrap_or(&[]);
            self.add("previous", list(previous, quoted), list(happened, quoted));
        }
        if let Some(timeouts) = &expect.timeouts {
            let happened = actual.timeouts.as_deref().unwrap_or(&[]);
            let near = |pair: (&Option<Ns>, &Option<Ns>)| match pair {
                (Some(a), Some(b)) => self.is_near(*a, *b),
                (a, b) => a == b,
            };
            let same = timeouts.len() == happened.len() && timeouts.iter().zip(happened).all(near);
            if !same {
                let time = |at: &Option<Ns>| at.map_or("null".to_owned(), to_ms);
                self.add("timeouts", list(timeouts, time), list(happened, time));
            }
        }
        if let Some(sent) = &expect.sent
            && actual.sent.as_ref() != Some(sent)
        {
            let happened = actual.sent.as_deref().unwrap_or(&[]);
            self.add("sent", list(sent, u64::to_string), list(happened, u64::to_string));
        }
        if expect.text.is_some() && expect.text != actual.text {
            self.add("text", text(expect.text.as_deref()), text(actual.text.as_deref()));
        }
        if let Some(log) = &expect.log
            && actual.log.as_ref() != Some(log)
        {
            let lines =
                |log: &[String]| if log.is_empty() { NONE.to_owned() } else { log.join(", ") };
            self.add(
                "log",
                lines(log),
                actual.log.as_deref().map_or_else(|| NONE.to_owned(), lines),
            );
        }
    }

    fn end(&mut self, expected: &ExpectEnd, actual: &ActualEnd) {
        if let Some(at) = expected.at
            && !self.is_near(at, actual.at)
        {
            self.add("end.at", to_ms(at), to_ms(actual.at));
        }
        if let Some(outcome) = &expected.outcome
            && *outcome != actual.outcome
        {
            self.add("end.outcome", outcome, &actual.outcome);
        }
        if expected.attempt != actual.attempt {
            let attempt = |attempt: Option<u32>| attempt.map_or(NONE.to_owned(), |n| n.to_string());
            self.add("end.attempt", attempt(expected.attempt), attempt(actual.attempt));
        }
        if let Some(stop_reason) = expected.stop_reason
            && stop_reason != actual.stop_reason
        {
            self.add("end.stop_reason", stop_reason.name(), actual.stop_reason.name());
        }
        if expected.error != actual.error {
            self.add("end.error", text(expected.error.as_deref()), text(actual.error.as_deref()));
        }
    }

    fn stats(&mut self, method: &str, expected: &ExpectStats, actual: &Statistics) {
        let histogram = expected.histogram.unwrap_or(actual.histogram);
        if histogram != actual.histogram {
            let of = |counts| format!("{method} {}", report::histogram(counts));
            self.add("histogram", of(&histogram), of(&actual.histogram));
        }
        for (what, expected, actual) in [
            ("retries", expected.retries, actual.retries),
            ("failed", expected.failed, actual.failed),
            ("transparent", expected.transparent, actual.transparent),
        ] {
            if let Some(expected) = expected
                && expected != actual
            {
                self.add(
                    what,
                    format_args!("{method} {expected}"),
                    format_args!("{method} {actual}"),
                );
            }
        }
    }

    fn tokens(&mut self, expected: Option<f64>, actual: Option<f64>) {
        let Some(expected) = expected else { return };
        // Allows for the rounding of floats at the tolerance.
        let near = |actual: f64| (actual - expected).abs() <= TOKENS_TOLERANCE + 1e-9;
        if !actual.is_some_and(near) {
            let actual = actual.map_or("no throttle".to_owned(), |tokens| tokens.to_string());
            self.add("tokens", expected, actual);
        }
    }
}

const NONE: &str = "none";

fn times(times: &[Ns]) -> String {
    list(times, |ns| to_ms(*ns))
}

/// A list with an entry for each attempt.
fn list<T>(entries: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<_> = entries.iter().map(text).collect();
    if texts.is_empty() { NONE.to_owned() } else { texts.join(", ") }
}

fn quoted(text: &Option<String>) -> String {
    text.as_ref().map_or("null".to_owned(), |text| format!("{text:?}"))
}

fn cancels(cancels: &[(u32, Ns)]) -> String {
    list(cancels, |(attempt, at)| format!("{attempt} at {}", to_ms(*at)))
}

fn text(text: Option<&str>) -> String {
    text.map_or(NONE.to_owned(), |text| format!("{text:?}"))
}
