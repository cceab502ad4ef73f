//! The random responses of the servers: everything that a script can express.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::StatusCode;
use prost::Message;
use redial_echo::EchoResponse;
use redial_faults::grpc::{
    Answer, Close, LastStream, OnConnect, Reason, Script, StatusNumber as Code, WaitFor,
};

use super::marks::{Mark, Source};

/// The statuses in scripts: some that policies list and some that they do not.
const CODES: [Code; 6] = [
    Code::UNAVAILABLE,
    Code::UNAVAILABLE,
    Code::ABORTED,
    Code::RESOURCE_EXHAUSTED,
    Code::INVALID_ARGUMENT,
    Code::DEADLINE_EXCEEDED,
];

/// One response in this many closes its connection.
const ENDS_CONNECTION: u32 = 500;

const REASONS: [Reason; 6] = [
    Reason::REFUSED_STREAM,
    Reason::REFUSED_STREAM,
    Reason::CANCEL,
    Reason::NO_ERROR,
    Reason::ENHANCE_YOUR_CALM,
    Reason::INTERNAL_ERROR,
];

/// Valid and invalid values.
const PUSHBACKS: [&str; 5] = ["0", "3", "20", "-1", "soon"];

/// The suffix of a scripted status message, which identifies the call.
pub(crate) fn text_of(call: u64) -> String {
    format!("scripted for {call}")
}

fn up_to(random: &mut Rng, ms: u64) -> Duration {
    Duration::from_millis(random.u64(0..=ms))
}

fn code(random: &mut Rng) -> Code {
    CODES[random.usize(0..CODES.len())]
}

fn reason(random: &mut Rng) -> Reason {
    REASONS[random.usize(0..REASONS.len())]
}

/// A message that is not an echo.
fn reply(call: u64, index: u32, total: u32) -> Bytes {
    let mark = Mark { source: Source::Server, call, index, total };
    let payload = mark.to_bytes(16);
    EchoResponse { payload, ..Default::default() }.encode_to_vec().into()
}

/// Headers and some of `total` messages.
fn some_replies(answer: Answer, random: &mut Rng, call: u64, count: u32, total: u32) -> Answer {
    let mut answer = answer.then_headers().after(up_to(random, 5));
    for index in 0..count {
        answer = answer.message(reply(call, index, total));
    }
    answer
}

/// Closes the connection in a random way.
fn ends_connection(random: &mut Rng) -> Answer {
    let last = [LastStream::Below, LastStream::This, LastStream::Above];
    let away = Answer::go_away(last[random.usize(0..last.len())], Reason::NO_ERROR);
    match random.u32(0..4) {
        0 => away,
        1 => away.then_close(Close::Graceful),
        2 => Answer::close(Close::Graceful).after(up_to(random, 5)),
        _ => Answer::close(Close::Abrupt).after(up_to(random, 5)),
    }
}

/// The response to an attempt of this call.
pub(crate) fn answer(random: &mut Rng, call: u64) -> Answer {
    let start = || Answer::of([]);
    let failure = |random: &mut Rng| {
        Answer::trailers_only(code(random)).text(&text_of(call)).after(up_to(random, 10))
    };
    // Kept rare, because closing a connection ends every call on it and would hide other faults.
    if random.u32(0..ENDS_CONNECTION) == 0 {
        return ends_connection(random);
    }
    let total = random.u32(1..=4);
    let answer = match random.u32(0..14) {
        0..=2 => failure(random),
        3 => {
            let pushback = PUSHBACKS[random.usize(0..PUSHBACKS.len())];
            failure(random).pushback(pushback)
        }
        4 => failure(random).without_end_stream().then_end_stream(),
        5 => {
            let count = random.u32(0..=total);
            let cut = some_replies(start(), random, call, count, total);
            cut.trailers(code(random)).text(&text_of(call))
        }
        6 => {
            let count = random.u32(0..=total);
            let reason = reason(random);
            some_replies(start(), random, call, count, total).then_reset(reason)
        }
        7 => Answer::reset(reason(random)).after(up_to(random, 5)),
        8 => {
            let status = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND];
            Answer::http(status[random.usize(0..2)], "text/html", "<h1>no</h1>")
        }
        9 => Answer::http_empty(StatusCode::BAD_GATEWAY),
        10 => Answer::hang(),
        // The accepted part of the request stays without a response, and the rest is not read.
        11 => Answer::hang().accepts(random.u64(0..3)),
        12 => some_replies(start(), random, call, total, total).trailers(Code::OK),
        _ => Answer::echo(),
    };
    match random.u32(0..4) {
        0 => answer.wait_for(WaitFor::Headers),
        1 => answer.wait_for(WaitFor::Request),
        _ => answer,
    }
}

/// The failure that policies retry.
pub(crate) fn unavailable(call: u64) -> Answer {
    Answer::trailers_only(Code::UNAVAILABLE).text(&text_of(call))
}

/// A script that echoes unless a response is prepared.
pub(crate) fn quiet() -> Script {
    Script::new().default_answer(Answer::echo())
}

/// The script of a server that has just started: faults for its first connections, and an echo for
/// requests without a prepared response.
pub(crate) fn script(random: &mut Rng) -> Script {
    let mut script = quiet();
    for _ in 0..random.u32(0..3) {
        let actions = [
            OnConnect::CloseImmediately,
            OnConnect::CloseAfterPreface,
            OnConnect::SendNothing,
            OnConnect::Serve,
        ];
        script = script.on_connect(actions[random.usize(0..actions.len())], up_to(random, 5));
    }
    script
}
