//! What is expected of a client whose delays are drawn by itself: spans in place of moments.

use std::collections::BTreeMap;

use redial::time::Ns;

use super::super::compare::Difference;
use super::super::time::to_ms;
use super::rows::{Instead, InsteadCall, When};
use super::seen::{Seen, SeenAttempt, SeenCall, SeenEnd};

/// A moment that may be any of these, in the scenario's time.
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

/// What is expected of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected {
    /// There is no channel with this config.
    Refused,
    /// There is one, and calls over it are made.
    Withdrawal,
    /// Anything.
    Open,
    Calls(Vec<ExpectedCall>),
}

/// What is expected of a call. What is `None` is not compared.
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

/// How a call is expected to end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedEnd {
    pub(super) at: Span,
    pub(super) outcome: String,
    pub(super) attempt: Option<u32>,
    pub(super) text: Option<String>,
    /// What the application is told of earlier attempts, where an answer is handed on.
    pub(super) previous: Option<Option<String>>,
}

impl Expected {
    /// The last moment of it, since the start of the call that it belongs to.
    pub(super) fn last(&self) -> Ns {
        let Expected::Calls(calls) = self else { return 0 };
        let of_call = |call: &ExpectedCall| {
            let starts = call.starts.iter();
            let spans = starts.chain(call.cancels.values()).chain(call.end.iter().map(|it| &it.at));
            spans.map(|span| span.to).max().unwrap_or(0)
        };
        calls.iter().map(of_call).max().unwrap_or(0)
    }

    /// The same, but for what a row says.
    pub(super) fn instead(self, instead: &Instead) -> Expected {
        match (self, instead) {
            (_, Instead::Refused) | (Expected::Withdrawal, Instead::Opposite) => Expected::Refused,
            (_, Instead::Opposite) => Expected::Withdrawal,
            (_, Instead::Otherwise) => Expected::Open,
            (it @ (Expected::Refused | Expected::Withdrawal | Expected::Open), _) => it,
            (Expected::Calls(calls), Instead::EachCall(instead)) => {
                Expected::Calls(calls.into_iter().map(|call| call.instead(instead)).collect())
            }
            (Expected::Calls(calls), Instead::Calls(others)) => {
                let others = others.iter().map(Some).chain(std::iter::repeat(None));
                let calls = calls.into_iter().zip(others).map(|(call, instead)| match instead {
                    Some(instead) => call.instead(instead),
                    None => call,
                });
                Expected::Calls(calls.collect())
            }
        }
    }

    /// Everything in which what was seen is not as expected.
    pub(super) fn compare(&self, seen: &Seen, tolerance: Ns) -> Vec<Difference> {
        let mut list = Vec::new();
        let one = |what, expected: &str, actual: String| {
            vec![Difference { call: None, what, expected: expected.to_owned(), actual }]
        };
        match (self, seen) {
            (Expected::Open, _) => {}
            (Expected::Refused, seen) => {
                if seen.refusal().is_none() {
                    return one("config", "refused", "calls are made".to_owned());
                }
            }
            (Expected::Withdrawal, seen) => {
                if let Some(text) = seen.refusal() {
                    return one("config", "calls are made", format!("refused: {text}"));
                }
            }
            (Expected::Calls(_), Seen::Refused(text)) => {
                return one("config", "calls are made", format!("refused: {text}"));
            }
            (Expected::Calls(expected), Seen::Calls(seen)) => {
                for (index, (expected, seen)) in expected.iter().zip(seen).enumerate() {
                    expected.compare(seen, tolerance, &mut |what, expected, actual| {
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
    fn instead(mut self, instead: &InsteadCall) -> Self {
        if let Some(starts) = &instead.starts {
            self.starts = starts.iter().map(|when| when.span()).collect();
            // Unless more is said: numbered as ever, and no word about the rest.
            let number = |number: usize| (number > 0).then(|| number.to_string());
            self.previous = (0..starts.len()).map(number).collect();
            (self.timeouts, self.sent) = (None, None);
        }
        if let Some(previous) = &instead.previous {
            self.previous.clone_from(previous);
        }
        if let Some(cancels) = &instead.cancels {
            self.cancels = cancels.iter().map(|(attempt, when)| (*attempt, when.span())).collect();
        }
        if let Some(timeouts) = &instead.timeouts {
            self.timeouts = Some(timeouts.iter().map(|when| when.map(When::span)).collect());
        }
        if let Some(sent) = &instead.sent {
            self.sent = Some(sent.clone());
        }
        let Some(end) = &instead.end else { return self };
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
            if let (Some(previous), Some(told)) = (&end.previous, &mut ours.previous) {
                told.clone_from(previous);
            }
        }
        self
    }

    fn compare(&self, seen: &SeenCall, tolerance: Ns, add: &mut Add<'_>) {
        let near = |span: &Span, moment: Ns| span.holds(moment, tolerance);
        let attempts = &seen.attempts;
        let same = self.starts.len() == attempts.len()
            && self.starts.iter().zip(attempts).all(|(span, it)| near(span, it.at));
        if !same {
            let starts = list(attempts, |it| to_ms(it.at));
            add("starts", list(&self.starts, |span| span.text()), starts);
        }
        let cancels = seen.cancels();
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
        let previous = self.by_number(attempts.iter().map(|it| it.previous.clone()).collect());
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
        match (&self.end, &seen.end) {
            (Some(expected), Some(actual)) => {
                // The same attempt's number, had those sent at once come in order.
                let said = |it: &SeenAttempt| it.previous == actual.previous;
                let place = attempts.iter().position(said);
                let told = place.map_or(&actual.previous, |place| &previous[place]);
                expected.compare(actual, told, tolerance, add);
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

    /// What attempts say of those before them, in their order. Attempts that are sent at the same moment
    /// come in any order, over one connection too: then it is theirs to be told apart by number.
    fn by_number(&self, mut previous: Vec<Option<String>>) -> Vec<Option<String>> {
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
    /// `told`: what the application is told of earlier attempts.
    fn compare(&self, seen: &SeenEnd, told: &Option<String>, tolerance: Ns, add: &mut Add<'_>) {
        if !self.at.holds(seen.at, tolerance) {
            add("end.at", self.at.text(), to_ms(seen.at));
        }
        if self.outcome != seen.outcome {
            add("end.outcome", self.outcome.clone(), format!("{} ({})", seen.outcome, seen.text));
        }
        if self.attempt != seen.attempt {
            let text = |it: Option<u32>| it.map_or("none".to_owned(), |it| it.to_string());
            add("end.attempt", text(self.attempt), text(seen.attempt));
        }
        if let Some(text) = &self.text
            && *text != seen.text
        {
            add("end.text", format!("{text:?}"), format!("{:?}", seen.text));
        }
        if let Some(previous) = &self.previous
            && previous != told
        {
            add("end.previous", quoted(previous), quoted(told));
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
    //! Goal: each thing that can be seen is compared, within its span and no further.

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

    fn seen(second: Ns) -> SeenCall {
        let attempt = |at, previous: Option<&str>, timeout, cancelled| SeenAttempt {
            at,
            cancelled,
            previous: previous.map(str::to_owned),
            timeout,
            sent: 1,
        };
        SeenCall {
            attempts: vec![
                attempt(0, None, Some(200 * MS), None),
                attempt(second, Some("1"), None, Some(200 * MS)),
            ],
            end: Some(SeenEnd {
                at: 200 * MS,
                outcome: "UNAVAILABLE".to_owned(),
                text: "busy".to_owned(),
                attempt: Some(2),
                previous: Some("1".to_owned()),
            }),
        }
    }

    fn differences(expected: &ExpectedCall, seen: SeenCall) -> Vec<&'static str> {
        let list =
            Expected::Calls(vec![expected.clone()]).compare(&Seen::Calls(vec![seen]), 5 * MS);
        list.into_iter().map(|difference| difference.what).collect()
    }

    #[test]
    fn a_span_holds_to_its_ends_and_the_tolerance_beyond() {
        for second in [75, 80, 100, 120, 125] {
            assert!(differences(&expected(), seen(second * MS)).is_empty(), "{second}");
        }
        for second in [74, 126] {
            assert_eq!(differences(&expected(), seen(second * MS)), ["starts"], "{second}");
        }
    }

    #[test]
    fn everything_that_can_be_seen_is_compared() {
        let changed = |change: fn(&mut SeenCall)| {
            let mut seen = seen(100 * MS);
            change(&mut seen);
            differences(&expected(), seen)
        };
        assert_eq!(
            changed(|it| drop(it.attempts.pop())),
            ["starts", "cancels", "previous", "timeouts", "sent"]
        );
        assert_eq!(changed(|it| it.attempts[0].previous = Some("0".into())), ["previous"]);
        assert_eq!(changed(|it| it.attempts[0].timeout = Some(206 * MS)), ["timeouts"]);
        assert_eq!(changed(|it| it.attempts[1].sent = 0), ["sent"]);
        assert_eq!(changed(|it| it.attempts[1].cancelled = None), ["cancels"]);
        let ended = |change: fn(&mut SeenEnd)| {
            let mut seen = seen(100 * MS);
            seen.end.iter_mut().for_each(change);
            differences(&expected(), seen)
        };
        assert_eq!(ended(|end| end.at = 0), ["end.at"]);
        assert_eq!(ended(|end| end.outcome = "OK".into()), ["end.outcome"]);
        assert_eq!(ended(|end| end.attempt = None), ["end.attempt"]);
        assert_eq!(ended(|end| end.text = String::new()), ["end.text"]);
        assert_eq!(ended(|end| end.previous = None), ["end.previous"]);
        // Who gives a call up that does not end cancels it.
        assert_eq!(changed(|it| it.end = None), ["cancels", "end"]);
    }

    /// Red without `by_number`: a client with threads sends both at once, in any order.
    #[test]
    fn attempts_that_are_sent_at_once_come_in_any_order() {
        let mut both = expected();
        both.starts[1] = Span::at(0);
        let mut swapped = seen(0);
        swapped.attempts[0].previous = Some("1".into());
        swapped.attempts[1].previous = None;
        let end = |seen: &mut SeenCall, previous: Option<&str>| {
            seen.end.iter_mut().for_each(|end| end.previous = previous.map(str::to_owned));
        };
        // The second to come answered; it was sent first, and says so to the application too.
        end(&mut swapped, None);
        assert!(differences(&both, swapped).is_empty());
        let mut lying = seen(0);
        end(&mut lying, None);
        assert_eq!(differences(&both, lying), ["end.previous"]);
        let mut doubled = seen(0);
        doubled.attempts[1].previous = None;
        assert_eq!(differences(&both, doubled), ["previous"]);
        let mut apart = seen(100 * MS);
        apart.attempts[0].previous = Some("1".into());
        apart.attempts[1].previous = None;
        assert!(differences(&expected(), apart).contains(&"previous"));
    }

    #[test]
    fn a_row_changes_what_it_says_and_leaves_the_rest() {
        let instead = |text: &str| -> ExpectedCall {
            expected().instead(&serde_json::from_str(text).expect("it is right"))
        };
        assert_eq!(instead("{}"), expected());
        let fewer = instead(r#"{"starts": [0, [1, 2], 3], "cancels": {}}"#);
        assert_eq!(fewer.starts[1], Span { from: MS, to: 2 * MS });
        assert_eq!(fewer.previous, [None, Some("1".into()), Some("2".into())]);
        assert_eq!((fewer.cancels.len(), &fewer.sent, &fewer.end), (0, &None, &expected().end));
        assert_eq!(instead(r#"{"end": null}"#).end, None);
        let end = instead(r#"{"end": {"outcome": "OK", "attempt": null}}"#).end.unwrap();
        assert_eq!((&*end.outcome, end.attempt, end.text), ("OK", None, None));
        let end = instead(r#"{"end": {"previous": null}}"#).end.unwrap();
        assert_eq!((end.previous, end.attempt), (Some(None), Some(2)));
    }

    #[test]
    fn a_config_is_refused_by_the_channel_or_by_every_call() {
        let refused = Seen::Refused("no".into());
        let mut call = seen(0);
        call.attempts.clear();
        let by_call = Seen::Calls(vec![call]);
        let taken = Seen::Calls(vec![seen(0)]);
        for (expected, seen, holds) in [
            (Expected::Refused, &refused, true),
            (Expected::Refused, &by_call, true),
            (Expected::Refused, &taken, false),
            (Expected::Withdrawal, &taken, true),
            (Expected::Withdrawal, &by_call, false),
            (Expected::Open, &taken, true),
        ] {
            assert_eq!(expected.compare(seen, 0).is_empty(), holds, "{expected:?} {seen:?}");
        }
        assert_eq!(Expected::Withdrawal.instead(&Instead::Opposite), Expected::Refused);
        assert_eq!(Expected::Refused.instead(&Instead::Opposite), Expected::Withdrawal);
    }
}
