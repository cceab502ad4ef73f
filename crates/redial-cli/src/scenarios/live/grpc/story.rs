//! What a diary tells of a call that does not depend on who tells it.
//!
//! The layer's diary and that of the first level may order what happens at one moment differently,
//! and a network knows later than a script that something cannot be kept. All else must be the same.

use redial::{CallLog, Directive, Event, time::Ns};

use crate::scenarios::time::to_ms;

/// Something that happened, and when, since the call began.
pub(super) type Told = (String, Ns);

/// What happened, in an order of its own.
pub(super) fn story(began: Ns, call_log: &CallLog) -> Vec<Told> {
    let events = call_log.events().iter();
    let mut story: Vec<_> = events
        .filter_map(|(at, event)| told(event).map(|told| (told, at.saturating_sub(began))))
        .collect();
    story.sort();
    story
}

fn told(event: &Event) -> Option<String> {
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

/// The first thing in which two stories differ by more than `tolerance`: what one tells, and what the
/// other.
pub(super) fn differs(one: &[Told], other: &[Told], tolerance: Ns) -> Option<(String, String)> {
    let text = |told: Option<&Told>| {
        told.map_or("nothing more".to_owned(), |(what, at)| format!("{what} at {}", to_ms(*at)))
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

    fn events(list: impl IntoIterator<Item = (Ns, Event)>) -> Vec<Told> {
        story(100, &list.into_iter().collect())
    }

    #[test]
    fn the_order_of_one_moment_makes_no_difference_and_all_else_does() {
        let start = (100, Event::AttemptStarted { attempt: 1, number: 1 });
        let cancel = (105, Event::AttemptCancelled { attempt: 1 });
        let end = (105, Event::CallEnded { stop_reason: StopReason::Deadline, attempt: None });
        let told = events([start, cancel, end]);
        assert_eq!(differs(&told, &events([start, end, cancel]), 0), None);
        assert_eq!(
            differs(&told, &events([start, (104, Event::NotReplayable), cancel, end]), 0),
            None
        );
        let later = events([start, (107, cancel.1), end]);
        assert_eq!(differs(&told, &later, 2), None);
        let text = |text: &str| text.to_owned();
        let expected = (
            text("attempt 1 is cancelled at 0.000005"),
            text("attempt 1 is cancelled at 0.000007"),
        );
        assert_eq!(differs(&told, &later, 1), Some(expected));
        let (one, other) = differs(&told, &events([start, cancel]), 0).expect("it lacks the end");
        assert_eq!((&*one, &*other), ("ends with None, deadline at 0.000005", "nothing more"));
    }
}
