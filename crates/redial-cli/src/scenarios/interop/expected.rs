//! Expectations for a client that draws its own delays: time spans instead of exact times.

use std::collections::BTreeMap;

use redial::time::Ns;

use super::super::compare::Difference;
use super::super::time::to_ms;
use super::known_differences::{CallDeviation, Deviation, ExpectedTime};
use super::observed::{Observed, ObservedAttempt, ObservedCall, ObservedEnd};

/// A range of allowed times, in scenario time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Ns,
    pub(super) to: Ns,
}

impl Span {
    pub(super) const fn at(moment: Ns) -> Self {
        Span { from: moment, to: moment }
    }

    fn holds(self, moment: Ns, tolerance: Ns) -> bool {
        moment.saturating_add(tolerance) >= self.from && moment <= self.to.saturating_add(tolerance)
    }

    fn text(self) -> String {
        if self.from == self.to {
            to_ms(self.from)
        } else {
            format!("{} to {}", to_ms(self.from), to_ms(self.to))
        }
    }
}

/// The expectation of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected {
    /// The config is refused.
    Refused,
    /// The config is accepted, and calls are made.
    Accepted,
    /// Anything.
    Open,
    Calls(Vec<ExpectedCall>),
}

/// The expectation of a call. `None` is not compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedCall {
    pub(super) starts: Vec<Span>,
    pub(super) cancels: BTreeMap<u32, Span>,
    pub(super) previous: Vec<Option<String>>,
    pub(super) timeouts: Option<Vec<Option<Span>>>,
    pub(super) sent: Option<Vec<u64>>,
    /// `None`: it never ends.
    pub(super) end: Option<ExpectedEnd>,
}

/// The expected end of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedEnd {
    pub(super) at: Span,
    pub(super) outcome: String,
    pub(super) attempt: Option<u32>,
    pub(super) text: Option<String>,
    /// The number of previous attempts that the application receives with an answer.
    pub(super) previous: Option<Option<String>>,
}

impl Expected {
    /// The last expected time, since the start of its call.
    pub(super) fn last(&self) -> Ns {
        let Expected::Calls(calls) = self else { return 0 };
        let of_call = |call: &ExpectedCall| {
            let starts = call.starts.iter();
            let spans = starts.chain(call.cancels.values()).chain(call.end.iter().map(|it| &it.at));
            spans.map(|span| span.to).max().unwrap_or(0)
        };
        calls.iter().map(of_call).max().unwrap_or(0)
    }

    /// The expectation with a known difference applied.
    pub(super) fn with_deviation(self, deviation: &Deviation) -> Expected {
        match (self, deviation) {
            (_, Deviation::Refused) | (Expected::Accepted, Deviation::Opposite) => {
                Expected::Refused
            }
            (_, Deviation::Opposite) => Expected::Accepted,
            (_, Deviation::Otherwise) => Expected::Open,
            (it @ (Expected::Refused | Expected::Accepted | Expected::Open), _) => it,
            (Expected::Calls(calls), Deviation::EachCall(deviation)) => Expected::Calls(
                calls.into_iter().map(|call| call.with_deviation(deviation)).collect(),
            ),
            (Expected::Calls(calls), Deviation::Calls(others)) => {
                let others = others.iter().map(Some).chain(std::iter::repeat(None));
                let calls =
                    calls.into_iter().zip(others).map(|(call, deviation)| match deviation {
                        Some(deviation) => call.with_deviation(deviation),
                        None => call,
                    });
                Expected::Calls(calls.collect())
            }
        }
    }

    /// All differences between the expected and the observed behaviour.
    pub(super) fn compare(&self, observed: &Observed, tolerance: Ns) -> Vec<Difference> {
        let mut list = Vec::new();
        let one = |what, expected: &str, actual: String| {
            vec![Difference { call: None, what, expected: expected.to_owned(), actual }]
        };
        match (self, observed) {
            (Expected::Open, _) => {}
            (Expected::Refused, observed) => {
                if observed.refusal().is_none() {
                    return one("config", "refused", "calls are made".to_owned());
                }
            }
            (Expected::Accepted, observed) => {
                if let Some(text) = observed.refusal() {
                    return one("config", "calls are made", format!("refused: {text}"));
                }
            }
            (Expected::Calls(_), Observed::Refused(text)) => {
                return one("config", "calls are made", format!("refused: {text}"));
            }
            (Expected::Calls(expected), Observed::Calls(observed)) => {
                for (index, (expected, observed)) in expected.iter().zip(observed).enumerate() {
                    expected.compare(observed, tolerance, &mut |what, expected, actual| {
                        let call = Some(index + 1);
                        list.push(Difference { call, what, expected, actual });
                    });
                }
            }
        }
        list
    }
}

type Add<'a> = dyn FnMut(&'static str, String, String) + 'a;

impl ExpectedCall {
    fn with_deviation(mut self, deviation: &CallDeviation) -> Self {
        if let Some(starts) = &deviation.starts {
            self.starts = starts.iter().map(|when| when.span()).collect();
            // By default attempts are numbered as usual, and the rest is not compared.
            let number = |number: usize| (number > 0).then(|| number.to_string());
            self.previous = (0..starts.len()).map(number).collect();
            (self.timeouts, self.sent) = (None, None);
        }
        if let Some(previous) = &deviation.previous {
            self.previous.clone_from(previous);
        }
        if let Some(cancels) = &deviation.cancels {
            self.cancels = cancels.iter().map(|(attempt, when)| (*attempt, when.span())).collect();
        }
        if let Some(timeouts) = &deviation.timeouts {
            self.timeouts =
                Some(timeouts.iter().map(|when| when.map(ExpectedTime::span)).collect());
        }
        if let Some(sent) = &deviation.sent {
            self.sent = Some(sent.clone());
        }
        let Some(end) = &deviation.end else { return self };
        let Some(end) = end else {
            self.end = None;
            return self;
        };
        if let Some(ours) = &mut self.end {
            if let Some(at) = &end.at {
                ours.at = at.span();
            }
            if let Some(outcome) = &end.outcome {
                ours.outcome.clone_from(outcome);
                (ours.text, ours.previous) = (None, None);
            }
            if let Some(attempt) = end.attempt {
                ours.attempt = attempt;
            }
            if let Some(text) = &end.text {
                ours.text = Some(text.clone());
            }
            if let (Some(previous), Some(reported)) = (&end.previous, &mut ours.previous) {
                reported.clone_from(previous);
            }
        }
        self
    }

    fn compare(&self, observed: &ObservedCall, tolerance: Ns, add: &mut Add<'_>) {
        let near = |span: &Span, moment: Ns| span.holds(moment, tolerance);
        let attempts = &observed.attempts;
        let same = self.starts.len() == attempts.len()
            && self.starts.iter().zip(attempts).all(|(span, it)| near(span, it.at));
        if !same {
            let starts = list(attempts, |it| to_ms(it.at));
            add("starts", list(&self.starts, |span| span.text()), starts);
        }
        let cancels = observed.cancels();
        let same =
            self.cancels.len() == cancels.len()
                && self.cancels.iter().zip(&cancels).all(|(expected, actual)| {
                    expected.0 == actual.0 && near(expected.1, *actual.1)
                });
        if !same {
            let text = |(attempt, at): (&u32, String)| format!("{attempt} at {at}");
            let expected: Vec<_> =
                self.cancels.iter().map(|(attempt, it)| text((attempt, it.text()))).collect();
            let actual: Vec<_> =
                cancels.iter().map(|(attempt, at)| text((attempt, to_ms(*at)))).collect();
            add("cancels", list(&expected, String::clone), list(&actual, String::clone));
        }
        let previous = self.sort_by_number(attempts.iter().map(|it| it.previous.clone()).collect());
        if self.previous != previous {
            add("previous", list(&self.previous, quoted), list(&previous, quoted));
        }
        if let Some(timeouts) = &self.timeouts {
            let same = timeouts.len() == attempts.len()
                && timeouts.iter().zip(attempts).all(|pair| match (pair.0, pair.1.timeout) {
                    (Some(span), Some(moment)) => near(span, moment),
                    (None, None) => true,
                    _ => false,
                });
            if !same {
                let expected = |it: &Option<Span>| it.map_or("null".to_owned(), Span::text);
                let actual = list(attempts, |it| it.timeout.map_or("null".to_owned(), to_ms));
                add("timeouts", list(timeouts, expected), actual);
            }
        }
        if let Some(sent) = &self.sent {
            let actual: Vec<_> = attempts.iter().map(|it| it.sent).collect();
            if *sent != actual {
                add("sent", list(sent, u64::to_string), list(&actual, u64::to_string));
            }
        }
        match (&self.end, &observed.end) {
            (Some(expected), Some(actual)) => {
                // The number of the same attempt after sorting concurrent ones.
                let said = |it: &ObservedAttempt| it.previous == actual.previous;
                let index = attempts.iter().position(said);
                let reported = index.map_or(&actual.previous, |index| &previous[index]);
                expected.compare(actual, reported, tolerance, add);
            }
            (Some(expected), None) => {
                add("end", format!("{} at {}", expected.outcome, expected.at.text()), NEVER.into());
            }
            (None, Some(actual)) => {
                add("end", NEVER.into(), format!("{} at {}", actual.outcome, to_ms(actual.at)));
            }
            (None, None) => {}
        }
    }

    /// The attempts' counts of previous attempts, with concurrent attempts sorted: they arrive in
    /// any order, even over one connection.
    fn sort_by_number(&self, mut previous: Vec<Option<String>>) -> Vec<Option<String>> {
        if previous.len() == self.starts.len() {
            let mut rest = previous.as_mut_slice();
            for at_once in self.starts.chunk_by(PartialEq::eq) {
                let (these, others) = rest.split_at_mut(at_once.len());
                these.sort_by_key(|it| it.as_ref().map(|it| it.parse::<u32>().ok()));
                rest = others;
            }
        }
        previous
    }
}

impl ExpectedEnd {
    /// `reported` is the count of previous attempts that the application received.
    fn compare(
        &self,
        observed: &ObservedEnd,
        reported: &Option<String>,
        tolerance: Ns,
        add: &mut Add<'_>,
    ) {
        if !self.at.holds(observed.at, tolerance) {
            add("end.at", self.at.text(), to_ms(observed.at));
        }
        if self.outcome != observed.outcome {
            add(
                "end.outcome",
                self.outcome.clone(),
                format!("{} ({})", observed.outcome, observed.text),
            );
        }
        if self.attempt != observed.attempt {
            let text = |it: Option<u32>| it.map_or("none".to_owned(), |it| it.to_string());
            add("end.attempt", text(self.attempt), text(observed.attempt));
        }
        if let Some(text) = &self.text
            && *text != observed.text
        {
            add("end.text", format!("{text:?}"), format!("{:?}", observed.text));
        }
        if let Some(previous) = &self.previous
            && previous != reported
        {
            add("end.previous", quoted(previous), quoted(reported));
        }
    }
}

const NEVER: &str = "it never ends";

fn quoted(text: &Option<String>) -> String {
    text.as_ref().map_or("null".to_owned(), |text| format!("{text:?}"))
}

fn list<T>(entries: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<_> = entries.iter().map(text).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests {
    //! Goal: every observed value is compared with its exact span.

    use super::*;

    const MS: Ns = 1_000_000;

    fn expected() -> ExpectedCall {
        ExpectedCall {
            starts: vec![Span::at(0), Span { from: 80 * MS, to: 120 * MS }],
            cancels: BTreeMap::from([(2, Span::at(200 * MS))]),
            previous: vec![None, Some("1".to_owned())],
            timeouts: Some(vec![Some(Span::at(200 * MS)), None]),
            sent: Some(vec![1, 1]),
            end: Some(ExpectedEnd {
                at: Span::at(200 * MS),
                outcome: "UNAVAILABLE".to_owned(),
                attempt: Some(2),
                text: Some("busy".to_owned()),
                previous: Some(Some("1".to_owned())),
            }),
        }
    }

    fn observed(second: Ns) -> ObservedCall {
        let attempt = |at, previous: Option<&str>, timeout, cancelled| ObservedAttempt {
            at,
            cancelled,
            previous: previous.map(str::to_owned),
            timeout,
            sent: 1,
        };
        ObservedCall {
            attempts: vec![
                attempt(0, None, Some(200 * MS), None),
                attempt(second, Some("1"), None, Some(200 * MS)),
            ],
            end: Some(ObservedEnd {
                at: 200 * MS,
                outcome: "UNAVAILABLE".to_owned(),
                text: "busy".to_owned(),
                attempt: Some(2),
                previous: Some("1".to_owned()),
            }),
        }
    }

    fn differences(expected: &ExpectedCall, observed: ObservedCall) -> Vec<&'static str> {
        let list = Expected::Calls(vec![expected.clone()])
            .compare(&Observed::Calls(vec![observed]), 5 * MS);
        list.into_iter().map(|difference| difference.what).collect()
    }

    #[test]
    fn interop_span_includes_its_ends_and_the_tolerance() {
        for second in [75, 80, 100, 120, 125] {
            assert!(differences(&expected(), observed(second * MS)).is_empty(), "{second}");
        }
        for second in [74, 126] {
            assert_eq!(differences(&expected(), observed(second * MS)), ["starts"], "{second}");
        }
    }

    #[test]
    fn interop_comparison_covers_every_observed_value() {
        let changed = |change: fn(&mut ObservedCall)| {
            let mut observed = observed(100 * MS);
            change(&mut observed);
            differences(&expected(), observed)
        };
        assert_eq!(
            changed(|it| drop(it.attempts.pop())),
            ["starts", "cancels", "previous", "timeouts", "sent"]
        );
        assert_eq!(changed(|it| it.attempts[0].previous = Some("0".into())), ["previous"]);
        assert_eq!(changed(|it| it.attempts[0].timeout = Some(206 * MS)), ["timeouts"]);
        assert_eq!(changed(|it| it.attempts[1].sent = 0), ["sent"]);
        assert_eq!(changed(|it| it.attempts[1].cancelled = None), ["cancels"]);
        let ended = |change: fn(&mut ObservedEnd)| {
            let mut observed = observed(100 * MS);
            observed.end.iter_mut().for_each(change);
            differences(&expected(), observed)
        };
        assert_eq!(ended(|end| end.at = 0), ["end.at"]);
        assert_eq!(ended(|end| end.outcome = "OK".into()), ["end.outcome"]);
        assert_eq!(ended(|end| end.attempt = None), ["end.attempt"]);
        assert_eq!(ended(|end| end.text = String::new()), ["end.text"]);
        assert_eq!(ended(|end| end.previous = None), ["end.previous"]);
        // Who gives a call up that does not end cancels it.
        assert_eq!(changed(|it| it.end = None), ["cancels", "end"]);
    }

    #[test]
    fn interop_concurrent_attempts_may_arrive_in_any_order() {
        let mut both = expected();
        both.starts[1] = Span::at(0);
        let mut swapped = observed(0);
        swapped.attempts[0].previous = Some("1".into());
        swapped.attempts[1].previous = None;
        let end = |observed: &mut ObservedCall, previous: Option<&str>| {
            observed.end.iter_mut().for_each(|end| end.previous = previous.map(str::to_owned));
        };
        // The second one to arrive answered; it was sent first, and its count shows that.
        end(&mut swapped, None);
        assert!(differences(&both, swapped).is_empty());
        let mut lying = observed(0);
        end(&mut lying, None);
        assert_eq!(differences(&both, lying), ["end.previous"]);
        let mut doubled = observed(0);
        doubled.attempts[1].previous = None;
        assert_eq!(differences(&both, doubled), ["previous"]);
        let mut apart = observed(100 * MS);
        apart.attempts[0].previous = Some("1".into());
        apart.attempts[1].previous = None;
        assert!(differences(&expected(), apart).contains(&"previous"));
    }

    #[test]
    fn interop_deviation_changes_only_the_listed_fields() {
        let with_deviation = |text: &str| -> ExpectedCall {
            expected().with_deviation(&serde_json::from_str(text).expect("it is right"))
        };
        assert_eq!(with_deviation("{}"), expected());
        let fewer = with_deviation(r#"{"starts": [0, [1, 2], 3], "cancels": {}}"#);
        assert_eq!(fewer.starts[1], Span { from: MS, to: 2 * MS });
        assert_eq!(fewer.previous, [None, Some("1".into()), Some("2".into())]);
        assert_eq!((fewer.cancels.len(), &fewer.sent, &fewer.end), (0, &None, &expected().end));
        assert_eq!(with_deviation(r#"{"end": null}"#).end, None);
        let end = with_deviation(r#"{"end": {"outcome": "OK", "attempt": null}}"#).end.unwrap();
        assert_eq!((&*end.outcome, end.attempt, end.text), ("OK", None, None));
        let end = with_deviation(r#"{"end": {"previous": null}}"#).end.unwrap();
        assert_eq!((end.previous, end.attempt), (Some(None), Some(2)));
    }

    #[test]
    fn interop_config_is_refused_by_channel_or_by_every_call() {
        let refused = Observed::Refused("no".into());
        let mut call = observed(0);
        call.attempts.clear();
        let by_call = Observed::Calls(vec![call]);
        let taken = Observed::Calls(vec![observed(0)]);
        for (expected, observed, holds) in [
            (Expected::Refused, &refused, true),
            (Expected::Refused, &by_call, true),
            (Expected::Refused, &taken, false),
            (Expected::Accepted, &taken, true),
            (Expected::Accepted, &by_call, false),
            (Expected::Open, &taken, true),
        ] {
            assert_eq!(
                expected.compare(observed, 0).is_empty(),
                holds,
                "{expected:?} {observed:?}"
            );
        }
        assert_eq!(Expected::Accepted.with_deviation(&Deviation::Opposite), Expected::Refused);
        assert_eq!(Expected::Refused.with_deviation(&Deviation::Opposite), Expected::Accepted);
    }
}
