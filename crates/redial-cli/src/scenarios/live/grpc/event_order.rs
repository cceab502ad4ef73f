//! Compares the events of two call logs, independent of their order within one instant.
//!
//! The call logs of the layer and of the core may order simultaneous events differently, and a
//! network reports later than a script that a message cannot be buffered. Everything else must be
//! equal.

use redial::{CallLog, Directive, Event, time::Ns};

use crate::scenarios::time::to_ms;

/// An event as text, and its time since the start of the call.
pub(super) type TimedEvent = (String, Ns);

/// The comparable events, sorted.
pub(super) fn timed_events(began: Ns, call_log: &CallLog) -> Vec<TimedEvent> {
    let events = call_log.events().iter();
    let mut events: Vec<_> = events
        .filter_map(|(at, event)| describe(event).map(|text| (text, at.saturating_sub(began))))
        .collect();
    events.sort();
    events
}

fn describe(event: &Event) -> Option<String> {
    Some(match event {
        Event::AttemptStarted { attempt, number } => {
            format!("attempt {attempt} starts, number {number}")
        }
        Event::AttemptOutcome { attempt, classification } => {
            let how = match classification.directive {
                Directive::Succeed => "succeeds",
                Directive::Fail => "fails, not retryable",
                Directive::Retry(_) => "fails, retryable",
            };
            let proof = classification.proof.map_or(String::new(), |proof| format!(", {proof:?}"));
            let drains = if classification.drains { ", drains" } else { "" };
            format!("attempt {attempt} {how}{proof}{drains}")
        }
        Event::AttemptCancelled { attempt } => format!("attempt {attempt} is cancelled"),
        Event::RandomDraw(draw) => format!("draw {draw}"),
        Event::RetryScheduled { .. } => "a retry follows".to_owned(),
        Event::TransparentRetryScheduled { attempt, proof, .. } => {
            format!("attempt {attempt} is replaced, {proof:?}")
        }
        Event::CallEnded { stop_reason, attempt } => {
            format!("ends with {attempt:?}, {}", stop_reason.name())
        }
        _ => return None,
    })
}

/// The first difference of more than `tolerance`, as text from both sides.
pub(super) fn differs(
    one: &[TimedEvent],
    other: &[TimedEvent],
    tolerance: Ns,
) -> Option<(String, String)> {
    let text = |event: Option<&TimedEvent>| {
        event.map_or("nothing more".to_owned(), |(what, at)| format!("{what} at {}", to_ms(*at)))
    };
    let length = one.len().max(other.len());
    let mut pairs = (0..length).map(|at| (one.get(at), other.get(at)));
    let found = pairs.find(|pair| match pair {
        (Some(one), Some(other)) => one.0 != other.0 || one.1.abs_diff(other.1) > tolerance,
        _ => true,
    });
    found.map(|(one, other)| (text(one), text(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redial::StopReason;

    fn events(list: impl IntoIterator<Item = (Ns, Event)>) -> Vec<TimedEvent> {
        timed_events(100, &list.into_iter().collect())
    }

    #[test]
    fn event_order_ignores_only_the_order_within_one_instant() {
        let start = (100, Event::AttemptStarted { attempt: 1, number: 1 });
        let cancel = (105, Event::AttemptCancelled { attempt: 1 });
        let end = (105, Event::CallEnded { stop_reason: StopReason::Deadline, attempt: None });
        let expected_events = events([start, cancel, end]);
        assert_eq!(differs(&expected_events, &events([start, end, cancel]), 0), None);
        assert_eq!(
            differs(
                &expected_events,
                &events([start, (104, Event::NotReplayable), cancel, end]),
                0
            ),
            None
        );
        let later = events([start, (107, cancel.1), end]);
        assert_eq!(differs(&expected_events, &later, 2), None);
        let text = |text: &str| text.to_owned();
        let expected = (
            text("attempt 1 is cancelled at 0.000005"),
            text("attempt 1 is cancelled at 0.000007"),
        );
        assert_eq!(differs(&expected_events, &later, 1), Some(expected));
        let (one, other) =
            differs(&expected_events, &events([start, cancel]), 0).expect("it lacks the end");
        assert_eq!((&*one, &*other), ("ends with None, deadline at 0.000005", "nothing more"));
    }
}
