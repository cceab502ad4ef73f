//! A call log as text: one line for each event, with its time.

use std::fmt::Write;

use redial::classify::Hint;
use redial::throttle::Grant;
use redial::{CallLog, Directive, Event, Failure, FailureKind, Stage, time::Ns};

use super::time::to_ms;

/// The events, one per line, in milliseconds since the start of the call. Without a throttle its
/// answers are left out.
pub(super) fn lines(began: Ns, call_log: &CallLog, throttled: bool) -> Vec<String> {
    let since = |at: Ns| to_ms(at.saturating_sub(began));
    let line = |(at, event): &(Ns, Event)| format!("{:>10} ms  {}", since(*at), text(event, began));
    let shown = |event: &Event| throttled || !matches!(event, Event::ThrottleAnswered(_));
    call_log.events().iter().filter(|(_, event)| shown(event)).map(line).collect()
}

fn text(event: &Event, began: Ns) -> String {
    match event {
        Event::CallStarted { deadline, idempotent } => {
            let mut text = "the call begins".to_owned();
            if let Some(deadline) = deadline {
                // Writing to a string cannot fail.
                let _ = write!(text, ", deadline {} ms", to_ms(deadline.saturating_sub(began)));
            }
            if !idempotent {
                text.push_str(", not idempotent");
            }
            text
        }
        Event::AttemptStarted { attempt, number } if attempt == number => {
            format!("attempt {attempt} starts")
        }
        Event::AttemptStarted { attempt, number } => {
            format!("attempt {attempt} starts, number {number} for the policy")
        }
        Event::AttemptOutcome { attempt, classification } => {
            let what = match classification.directive {
                Directive::Succeed => "succeeds".to_owned(),
                Directive::Fail => "fails, not retryable".to_owned(),
                Directive::Retry(failure) => format!("fails: {}", cause(&failure)),
            };
            format!("attempt {attempt} {what}")
        }
        Event::AttemptTimedOut { attempt } => format!("attempt {attempt} times out"),
        Event::AttemptCancelled { attempt } => format!("attempt {attempt} is cancelled"),
        Event::RandomDraw(draw) => format!("draw {draw}"),
        Event::ThrottleAnswered(Grant::Now(_)) => "throttle allows another attempt".to_owned(),
        Event::ThrottleAnswered(Grant::After(debt, _)) => {
            format!("throttle allows another attempt in {} ms", to_ms(*debt))
        }
        Event::ThrottleAnswered(Grant::Later) => "throttle will answer later".to_owned(),
        Event::ThrottleAnswered(Grant::Refused) => "throttle refuses another attempt".to_owned(),
        Event::StrategyAsked(_) => "strategy is asked".to_owned(),
        Event::StrategyAnswered(advice) => format!("strategy answers: {advice:?}"),
        Event::RetryScheduled { after, .. } => {
            format!("retry scheduled in {} ms", to_ms(*after))
        }
        Event::TransparentRetryScheduled { attempt, after, .. } => {
            format!("attempt {attempt} did not run; transparent retry in {} ms", to_ms(*after))
        }
        Event::Committed { attempt } => format!("committed to attempt {attempt}"),
        Event::NotReplayable => "request can no longer be replayed".to_owned(),
        Event::CallEnded { stop_reason, attempt: Some(attempt) } => {
            format!("the call ends with attempt {attempt}: {}", stop_reason.name())
        }
        Event::CallEnded { stop_reason, attempt: None } => {
            format!("the call ends: {}", stop_reason.name())
        }
        other => format!("{other:?}"),
    }
}

fn cause(failure: &Failure) -> String {
    let kind = match failure.kind {
        FailureKind::Server => "server",
        FailureKind::Client => "client",
        FailureKind::Throttling => "throttling",
        FailureKind::Timeout => "timeout",
        FailureKind::NotReady => "not ready",
    };
    let stage = match failure.stage {
        Stage::Unsent => ", unsent",
        Stage::InFlight => ", in flight",
        Stage::Answered => "",
    };
    let hint = match failure.hint {
        Hint::None => String::new(),
        Hint::After(span) => format!(", asks for {} ms", to_ms(redial::testing::nanoseconds(span))),
        Hint::Stop => ", asks for no retry".to_owned(),
    };
    let what = failure.reason.map_or(kind, |reason| reason.name());
    format!("{what}{stage}{hint}")
}
