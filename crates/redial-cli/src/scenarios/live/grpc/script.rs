//! Translates an attempt of a scenario into an answer of `redial-faults`.

use redial_faults::grpc::{Answer, OnConnect, Reason, StatusNumber};
use redial_service_config::Code;

use super::time_scale::TimeScale;
use crate::scenarios::model::{Attempt, Outcome, Proof};

/// The metadata key for the number of the answered attempt.
pub(in crate::scenarios) const ATTEMPT: &str = "x-redial-attempt";

/// The status message of the server.
pub(in crate::scenarios) fn text(attempt: u32) -> String {
    format!("the server's answer to attempt {attempt}: 100 %")
}

/// The connect behaviour of an attempt without a stream.
pub(super) fn on_connect(attempt: &Attempt) -> Option<OnConnect> {
    match attempt.grpc.as_ref()?.seen? {
        Proof::Unsent => Some(OnConnect::CloseAfterPreface),
        Proof::Unconnected => Some(OnConnect::Refuse),
        Proof::Unprocessed => None,
    }
}

/// The answer on the stream of an attempt.
pub(in crate::scenarios) fn answer(
    attempt: &Attempt,
    number: u32,
    time_scale: TimeScale,
) -> Answer {
    let answer = steps(attempt, number, time_scale);
    match attempt.accepts {
        Some(messages) => answer.accepts(messages),
        None => answer,
    }
}

fn steps(attempt: &Attempt, number: u32, time_scale: TimeScale) -> Answer {
    let after = time_scale.span(attempt.after);
    let marked = |answer: Answer| answer.metadata(ATTEMPT, number.to_string());
    let begun = |at| marked(Answer::headers()).after(at);
    let grpc = attempt.grpc.clone().unwrap_or_default();
    if grpc.seen == Some(Proof::Unprocessed) {
        let refused = Reason::REFUSED_STREAM;
        let headers = attempt.headers.map(|at| begun(time_scale.span(at)));
        let answer = headers.map_or_else(|| Answer::reset(refused), |it| it.then_reset(refused));
        return answer.after(after);
    }
    let Outcome::Comes { name, .. } = &attempt.outcome else {
        return attempt.headers.map_or_else(Answer::hang, |at| begun(time_scale.span(at)));
    };
    let code = Code::from_name(name).unwrap_or(Code::Unknown);
    let status = StatusNumber::from(code);
    let headers = attempt.headers.map(|at| time_scale.span(at));
    let answer = match (headers, code) {
        // A unary client needs a response message.
        (headers, Code::Ok) => {
            let begun = begun(headers.unwrap_or(after)).message("").after(after);
            marked(begun.trailers(status).after(after))
        }
        (Some(headers), _) => {
            let failed = begun(headers).trailers(status).after(after);
            marked(failed).text(&text(number))
        }
        (None, _) => marked(Answer::trailers_only(status)).after(after).text(&text(number)),
    };
    // Invalid header values are skipped.
    let pushback = time_scale.pushback(&grpc.pushback).unwrap_or_default();
    pushback.iter().fold(answer, |answer, text| answer.pushback(text))
}
