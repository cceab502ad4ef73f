//! What a scripted server is told to do to an attempt, in the words of `redial-faults`.

use redial_faults::grpc::{Answer, Door, Reason, StatusNumber};
use redial_service_config::Code;

use super::pace::LatencyEstimator;
use crate::scenarios::model::{Attempt, Outcome, Seen};

/// The field with which a server says which attempt its answer is to.
pub(in crate::scenarios) const ATTEMPT: &str = "x-redial-attempt";

/// The text of a status that the server sends.
pub(in crate::scenarios) fn text(attempt: u32) -> String {
    format!("the server's answer to attempt {attempt}: 100 %")
}

/// What an attempt without a stream meets when it connects.
pub(super) fn door(attempt: &Attempt) -> Option<Door> {
    match attempt.grpc.as_ref()?.seen? {
        Seen::Unsent => Some(Door::ClosedAfterPreface),
        Seen::Unconnected => Some(Door::Refused),
        Seen::Unprocessed => None,
    }
}

/// What is done to the stream of an attempt.
pub(in crate::scenarios) fn answer(
    attempt: &Attempt,
    number: u32,
    estimator: LatencyEstimator,
) -> Answer {
    let answer = steps(attempt, number, estimator);
    match attempt.accepts {
        Some(messages) => answer.accepts(messages),
        None => answer,
    }
}

fn steps(attempt: &Attempt, number: u32, estimator: LatencyEstimator) -> Answer {
    let after = estimator.span(attempt.after);
    let marked = |answer: Answer| answer.metadata(ATTEMPT, number.to_string());
    let begun = |at| marked(Answer::headers()).after(at);
    let grpc = attempt.grpc.clone().unwrap_or_default();
    if grpc.seen == Some(Seen::Unprocessed) {
        let refused = Reason::REFUSED_STREAM;
        let headers = attempt.headers.map(|at| begun(estimator.span(at)));
        let answer = headers.map_or_else(|| Answer::reset(refused), |it| it.then_reset(refused));
        return answer.after(after);
    }
    let Outcome::Comes { name, .. } = &attempt.outcome else {
        return attempt.headers.map_or_else(Answer::hang, |at| begun(estimator.span(at)));
    };
    let code = Code::from_name(name).unwrap_or(Code::Unknown);
    let status = StatusNumber::from(code);
    let headers = attempt.headers.map(|at| estimator.span(at));
    let answer = match (headers, code) {
        // A client of one response needs it.
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
    // What no header can say is not played.
    let pushback = estimator.pushback(&grpc.pushback).unwrap_or_default();
    pushback.iter().fold(answer, |answer, text| answer.pushback(text))
}
