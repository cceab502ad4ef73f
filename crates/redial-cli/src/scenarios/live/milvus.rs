//! Runs Milvus scenarios through the interceptor's layer, a generated client and HTTP/2 connections
//! to a fault server, on a paused clock over a pipe in memory.
//!
//! The result is what the server and the application observed, and the lines that the layer logged.
//!
//! tokio's timers count whole milliseconds. A scenario with fractions of one is slowed down: options, answers
//! and starts of calls are scaled, and what is observed is scaled back, in the text of errors too.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message as _;
use redial::time::{Ns, Sleeper};
use redial::{Directive, StopReason};
use redial_echo::echo_client::EchoClient;
use redial_echo::{EchoRequest, EchoResponse};
use redial_faults::grpc::{
    Answer, CALL_HEADER, Record, Script, Server, StatusNumber, StreamOutcome, StreamRecord,
};
use redial_milvus::{Code, MessageValidity, Options, classify};
use tonic::{Request, Status};
use tower::Layer;

use super::clock::{ScaledClock, all};
use super::grpc::over_pipe;
use super::{HORIZON, Live, SLOWDOWN, TimeScale};
use crate::scenarios::designs::milvus::{INVALID, MESSAGE};
use crate::scenarios::model::{Attempt, Call, Outcome, Scenario};
use crate::scenarios::play::{Actual, ActualCall, ActualEnd};

const MILLISECOND: Ns = 1_000_000;

/// How long the server may need to receive the last frames.
const REST: Duration = Duration::from_millis(50);

/// What the application observes of a call.
struct Ended {
    at: Ns,
    result: Result<(), Status>,
    log: Vec<String>,
}

/// Runs a scenario; `core` is the result of the core level.
pub(super) fn play(scenario: &Scenario, options: Options, core: &Actual) -> Live {
    let time_scale = time_scale(scenario, core);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let actual = runtime.block_on(run(scenario, slowed(options, time_scale), time_scale));
    Live { actual, differences: Vec::new() }
}

/// Slower if something is not at a whole millisecond.
fn time_scale(scenario: &Scenario, core: &Actual) -> TimeScale {
    let written = scenario.calls.iter().flat_map(|call| {
        let answers = call.attempts.iter().map(|attempt| attempt.after);
        answers.chain([call.at])
    });
    let mut moments = written.chain(core.calls.iter().flat_map(ActualCall::moments));
    let is_whole = moments.all(|at| at.is_multiple_of(MILLISECOND));
    TimeScale::slower_by(if is_whole { 1 } else { SLOWDOWN })
}

fn slowed(options: Options, time_scale: TimeScale) -> Options {
    let slower = |span: Duration| time_scale.span(ns(span));
    Options {
        retry_delay: slower(options.retry_delay),
        timeout: slower(options.timeout),
        delay_max: options.delay_max.map(slower),
        deadline: options.deadline.map(slower),
        ..options
    }
}

async fn run(scenario: &Scenario, options: Options, time_scale: TimeScale) -> Actual {
    let server = Server::new(script(scenario, time_scale)).on_pipe();
    let clock = ScaledClock::new(time_scale.slowdown());
    let channel = over_pipe(server.connector());
    let calls = scenario.calls.iter().enumerate().map(|(index, call)| {
        let channel = channel.clone();
        async move {
            clock.wait_until(call.at).await;
            let lines = Arc::new(Mutex::new(Vec::new()));
            let sink = lines.clone();
            let layer =
                options.interceptor().map_err(|error| error.to_string())?.log(move |line| {
                    let mut lines = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    lines.push(line.kind.name().to_owned());
                });
            let invalid = reply(INVALID);
            let layer =
                layer.layer().invalid_when(move |it| it.message() == Some(invalid.as_slice()));
            let mut client = EchoClient::new(layer.layer(channel));
            let mut request = Request::new(EchoRequest::default());
            let name = index.to_string().parse().map_err(|_| "no call name".to_owned())?;
            request.metadata_mut().insert(CALL_HEADER, name);
            let result = client.unary(request).await.map(drop);
            let log = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok::<_, String>(Ended { at: clock.now().saturating_sub(call.at), result, log })
        }
    });
    let (ends, _running) = all(calls, clock.sleep_until(HORIZON)).await;
    tokio::time::sleep(REST).await;
    let record = server.record();
    let mut actual = Actual::default();
    for (index, (call, end)) in scenario.calls.iter().zip(ends).enumerate() {
        match end {
            Some(Err(refused)) => return Actual { refused: Some(refused), ..Actual::default() },
            Some(Ok(end)) => {
                actual.calls.push(read(call, &streams(&record, index), Some(end), time_scale));
            }
            None => actual.calls.push(read(call, &streams(&record, index), None, time_scale)),
        }
    }
    actual
}

fn script(scenario: &Scenario, time_scale: TimeScale) -> Script {
    let calls = scenario.calls.iter().enumerate();
    calls.fold(Script::new().default_answer(Answer::hang()), |script, (index, call)| {
        let answers = call.attempts.iter().map(|attempt| answer(attempt, time_scale));
        script.call(&index.to_string(), answers)
    })
}

fn answer(attempt: &Attempt, time_scale: TimeScale) -> Answer {
    let answer = match &attempt.outcome {
        Outcome::Hang => return Answer::hang(),
        Outcome::Comes { name, .. } if *name == INVALID => Answer::reply(reply(INVALID)),
        Outcome::Comes { name, .. } => match StatusNumber::from_name(name) {
            None | Some(StatusNumber::OK) => Answer::reply(reply("valid")),
            Some(status) => Answer::trailers_only(status).text(MESSAGE),
        },
    };
    answer.after(time_scale.span(attempt.after))
}

fn reply(payload: &'static str) -> Vec<u8> {
    EchoResponse { payload: payload.into(), ..EchoResponse::default() }.encode_to_vec()
}

fn streams(record: &Record, index: usize) -> Vec<StreamRecord> {
    let name = index.to_string();
    record.streams.iter().filter(|it| it.call.as_ref() == Some(&name)).cloned().collect()
}

fn read(
    call: &Call,
    streams: &[StreamRecord],
    end: Option<Ended>,
    time_scale: TimeScale,
) -> ActualCall {
    let since = |at: Duration| time_scale.scenario(at).saturating_sub(call.at);
    let starts = streams.iter().map(|it| since(it.arrived)).collect();
    let resets = (1_u32..).zip(streams);
    let cancels = resets.filter_map(|(number, it)| Some((number, since(it.reset?.at)))).collect();
    let unscripted = (1_u32..).zip(streams).find(|(_, it)| !it.scripted).map(|(number, _)| number);
    let mut actual = ActualCall { starts, cancels, unscripted, ..ActualCall::default() };
    if let Some(Ended { at, result, log }) = end {
        actual.text = result.as_ref().err().map(|status| text(status, time_scale));
        actual.log = Some(log);
        actual.end = Some(end_of(at, &result, streams));
    }
    actual
}

/// The text of an error. Scenarios have one text for every message, also where the server sent none.
fn text(status: &Status, time_scale: TimeScale) -> String {
    match status.message() {
        "deadline exceeded" => MESSAGE.to_owned(),
        text => in_scenario_time(text, time_scale),
    }
}

/// The text with the milliseconds of its suffix ` (retried N times, Mms)` in scenario time.
fn in_scenario_time(text: &str, time_scale: TimeScale) -> String {
    let suffix = text.rsplit_once(" times, ");
    let scaled = suffix.and_then(|(before, after)| {
        let elapsed: Ns = after.strip_suffix("ms)")?.parse().ok()?;
        Some(format!("{before} times, {}ms)", elapsed / time_scale.slowdown()))
    });
    scaled.unwrap_or_else(|| text.to_owned())
}

/// The end of a call. The reason follows from the last answer of the server: the application does
/// not see it.
fn end_of(at: Ns, result: &Result<(), Status>, streams: &[StreamRecord]) -> ActualEnd {
    let number = u32::try_from(streams.len()).unwrap_or(u32::MAX);
    let answered = streams
        .last()
        .and_then(|it| it.end)
        .is_some_and(|it| matches!(it.outcome, StreamOutcome::Answered(_)));
    let end = |outcome: &str, attempt, stop_reason| ActualEnd {
        at,
        outcome: outcome.to_owned(),
        attempt,
        stop_reason,
        error: None,
    };
    let status = match result {
        Ok(()) => return end(Code::Ok.name(), Some(number), StopReason::Succeeded),
        Err(status) => status,
    };
    let code = Code::from_number(i64::from(i32::from(status.code()))).unwrap_or(Code::Unknown);
    if !answered {
        return end(code.name(), None, StopReason::Deadline);
    }
    if status.message().starts_with("invalid message") {
        return end(INVALID, Some(number), StopReason::AttemptsExhausted);
    }
    let stop_reason = match classify(code, MessageValidity::Valid) {
        Directive::Retry(_) => StopReason::AttemptsExhausted,
        Directive::Succeed | Directive::Fail => StopReason::NotRetryable,
    };
    end(code.name(), Some(number), stop_reason)
}

fn ns(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milvus_texts_are_scaled_back() {
        let slow = TimeScale::slower_by(1_000);
        for (text, expected) in [
            ("boom (retried 2 times, 2999ms)", "boom (retried 2 times, 2ms)"),
            ("boom", "boom"),
            ("at times, 5 ms", "at times, 5 ms"),
        ] {
            assert_eq!(in_scenario_time(text, slow), expected);
        }
    }
}
