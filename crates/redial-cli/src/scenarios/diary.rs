//! The diary of a call as people read it: one line for each note, with its moment.

use std::fmt::Write;

use redial::throttles::Grant;
use redial::{Diary, Directive, Failure, Hint, Kind, Note, Ns, Stage};

use super::time::to_ms;

/// The notes, one to a line, with the milliseconds since the call began. Without a throttle what it
/// would have answered is left out.
pub(super) fn lines(began: Ns, diary: &Diary, throttled: bool) -> Vec<String> {
    let since = |at: Ns| to_ms(at.saturating_sub(began));
    let line = |(at, note): &(Ns, Note)| format!("{:>10} ms  {}", since(*at), text(note, began));
    let told = |note: &Note| throttled || !matches!(note, Note::Granted(_));
    diary.notes().iter().filter(|(_, note)| told(note)).map(line).collect()
}

fn text(note: &Note, began: Ns) -> String {
    match note {
        Note::Began { deadline, idempotent } => {
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
        Note::Started { attempt, number } if attempt == number => {
            format!("attempt {attempt} starts")
        }
        Note::Started { attempt, number } => {
            format!("attempt {attempt} starts, number {number} for the policy")
        }
        Note::Outcome { attempt, judgement } => {
            let what = match judgement.directive {
                Directive::Succeed => "succeeds".to_owned(),
                Directive::Fail => "fails, not retryable".to_owned(),
                Directive::Retry(failure) => format!("fails: {}", cause(&failure)),
            };
            format!("attempt {attempt} {what}")
        }
        Note::TimedOut { attempt } => format!("attempt {attempt} has taken too long"),
        Note::Cancelled { attempt } => format!("attempt {attempt} is cancelled"),
        Note::Drew(draw) => format!("draw {draw}"),
        Note::Granted(Grant::Now(_)) => "the throttle agrees".to_owned(),
        Note::Granted(Grant::After(debt, _)) => {
            format!("the throttle agrees, in {} ms", to_ms(*debt))
        }
        Note::Granted(Grant::Later) => "the throttle will answer later".to_owned(),
        Note::Granted(Grant::Refused) => "the throttle refuses".to_owned(),
        Note::Asked(_) => "the strategy is asked".to_owned(),
        Note::Answered(advice) => format!("the strategy answers: {advice:?}"),
        Note::Retrying { after, .. } => format!("a retry follows after {} ms", to_ms(*after)),
        Note::Replacing { attempt, after, .. } => {
            format!("attempt {attempt} did not run; it is replaced after {} ms", to_ms(*after))
        }
        Note::Committed { attempt } => format!("the call belongs to attempt {attempt}"),
        Note::Sealed => "what was written cannot be kept".to_owned(),
        Note::Ended { why, attempt: Some(attempt) } => {
            format!("the call ends with attempt {attempt}: {}", why.name())
        }
        Note::Ended { why, attempt: None } => format!("the call ends: {}", why.name()),
        other => format!("{other:?}"),
    }
}

fn cause(failure: &Failure) -> String {
    let kind = match failure.kind {
        Kind::Server => "server",
        Kind::Client => "client",
        Kind::Throttling => "throttling",
        Kind::Timeout => "timeout",
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
