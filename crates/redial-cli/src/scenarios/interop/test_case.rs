//! A scenario, prepared for a client of another language.
//!
//! Such a client draws its own delays within 20 % of the backoff, and runs in real time. So the
//! scenario runs through the core with the shortest and with the longest delays, which gives a span
//! for each time; and once more with late answers, which must change nothing but times.

use std::collections::BTreeMap;
use std::time::Duration;

use redial::{Jitter, time::Ns};
use redial_faults::grpc::{Answer, CALL_HEADER, Script, StatusNumber};
use redial_service_config::{
    ATTEMPTS_CAP_DEFAULT, ClientOptions, PER_RPC_BUFFER_LIMIT_DEFAULT, RETRY_BUFFER_SIZE_DEFAULT,
    Retries,
};

use super::super::configs::Case;
use super::super::designs::Plan;
use super::super::live::{Sizes, TimeScale, answer, answer_text};
use super::super::model::{Call, Outcome, Scenario};
use super::super::play::{self, Actual, ActualCall};
use super::super::skip::{SkipReason, interop};
use super::expected::{Expected, ExpectedCall, ExpectedEnd, Span};
use super::protocol::{CallRequest, Kind, Message, Options};

/// The jitter of gRPC's libraries (gRFC A6, "Exponential backoff").
const JITTER: Jitter = Jitter::Proportional(0.2);
/// The draws for the shortest and the longest delays.
const DRAWS: [f64; 2] = [0.0, 0.999_999_999];
/// The target duration of a scenario.
const LENGTH: Ns = 10_000 * MILLISECOND;
/// The smallest and largest slowdown of a scenario.
const SLOWDOWN: [Ns; 2] = [5, 100];
/// The longest allowed duration of a scenario.
const LENGTH_MAX: Ns = 60_000 * MILLISECOND;
/// The tolerance, in real time.
const TOLERANCE: Ns = 300 * MILLISECOND;
/// If answers that are this late change more than times, the scenario is a race.
const LATE: Ns = 150 * MILLISECOND;
/// How long after its last expected event an open call counts as never ending.
const PATIENCE: Duration = Duration::from_secs(2);
const MILLISECOND: Ns = 1_000_000;

/// The requests, the server's script and the expectation.
#[derive(Debug)]
pub(super) struct TestCase {
    pub(super) name: String,
    pub(super) config: String,
    pub(super) options: Options,
    pub(super) calls: Vec<CallRequest>,
    pub(super) script: Script,
    pub(super) time_scale: TimeScale,
    pub(super) expected: Expected,
    /// In scenario time.
    pub(super) tolerance: Ns,
    /// The start of its last call.
    last_call: Ns,
}

impl TestCase {
    /// Prepares a scenario, or returns why it is skipped. Replaces its jitter.
    pub(super) fn of(scenario: &mut Scenario) -> Result<TestCase, &'static SkipReason> {
        let Scenario { plan: Plan::Grpc(plan), calls, .. } = scenario else {
            return Err(&interop::DESIGN);
        };
        plan.jitter(JITTER, calls);
        let (client, text) = (plan.client(), plan.text().to_owned());
        if scenario.refused {
            return Ok(TestCase::refused(scenario, text));
        }
        let core = play::play(scenario);
        if let Some(because) = interop::skips(scenario, &core) {
            return Err(because);
        }
        let [low, high] = DRAWS.map(|draw| {
            scenario.draws = vec![draw];
            play::play(scenario)
        });
        let time_scale = time_scale(&high);
        if length(&high).saturating_mul(time_scale.slowdown()) > LENGTH_MAX {
            return Err(&interop::LONG);
        }
        let (Some(config), Some(sizes)) =
            (time_scale.config_text(&text), Sizes::of(scenario, &client))
        else {
            return Err(&interop::LONG);
        };
        if !differ_only_in_time(&low, &high)
            || !differ_only_in_time(&high, &played_late(scenario, LATE / time_scale.slowdown()))
        {
            return Err(&interop::NONDETERMINISTIC);
        }
        let calls = scenario.calls.iter().enumerate();
        let requests = calls
            .clone()
            .map(|(index, call)| call_request(index, call, time_scale, sizes))
            .collect();
        let script =
            calls.fold(Script::new().default_answer(Answer::hang()), |script, (index, call)| {
                let answers =
                    (1..).zip(&call.attempts).map(|(number, it)| answer(it, number, time_scale));
                script.call(&index.to_string(), answers)
            });
        let expected = scenario.calls.iter().zip(low.calls.iter().zip(&high.calls));
        let expected = expected.map(|(call, (low, high))| expected_of(call, low, high));
        Ok(TestCase {
            name: scenario.name.clone(),
            config,
            options: options(sizes.client(client)),
            calls: requests,
            script,
            time_scale,
            expected: Expected::Calls(expected.collect()),
            tolerance: TOLERANCE / time_scale.slowdown(),
            last_call: scenario.calls.iter().map(|call| call.at).max().unwrap_or(0),
        })
    }

    /// A scenario whose config must be refused: one call shows whether it is.
    fn refused(scenario: &Scenario, config: String) -> TestCase {
        TestCase {
            name: scenario.name.clone(),
            config,
            expected: Expected::Refused,
            ..TestCase::warm_up()
        }
    }

    /// A service config case: one call shows whether it is refused.
    pub(super) fn of_config(case: &Case) -> TestCase {
        let expected = if case.is_valid() { Expected::Accepted } else { Expected::Refused };
        let config = case.text().to_owned();
        TestCase { name: case.name.clone(), config, expected, ..TestCase::warm_up() }
    }

    /// One call that succeeds.
    pub(super) fn warm_up() -> TestCase {
        let time_scale = TimeScale::slower_by(1);
        let mut call = CallRequest {
            at: 0.0,
            method: "/redial.test.Echo/Unary".to_owned(),
            kind: Kind::Unary,
            metadata: BTreeMap::new(),
            deadline: None,
            cancel: None,
            messages: vec![Message { at: 0.0, bytes: 0 }],
        };
        call.metadata.insert(CALL_HEADER.to_owned(), "0".to_owned());
        let reply = Answer::headers().message("").trailers(StatusNumber::OK);
        TestCase {
            name: String::new(),
            config: "{}".to_owned(),
            options: Options::default(),
            calls: vec![call],
            script: Script::new().call("0", [reply]).default_answer(Answer::hang()),
            time_scale,
            expected: Expected::Accepted,
            tolerance: TOLERANCE,
            last_call: 0,
        }
    }

    /// The real time after which an open call counts as never ending.
    pub(super) fn give_up(&self) -> Duration {
        self.time_scale.span(self.last_call.saturating_add(self.expected.last())) + PATIENCE
    }
}

/// The slowdown that gives the target duration.
fn time_scale(high: &Actual) -> TimeScale {
    TimeScale::slower_by((LENGTH / length(high).max(1)).clamp(SLOWDOWN[0], SLOWDOWN[1]))
}

/// The duration without slowdown.
fn length(high: &Actual) -> Ns {
    high.calls.iter().flat_map(ActualCall::moments).max().unwrap_or(0)
}

/// Runs it through the core with each answer this much later.
fn played_late(scenario: &mut Scenario, late: Ns) -> Actual {
    let shift = |scenario: &mut Scenario, by: fn(Ns, Ns) -> Ns| {
        for attempt in scenario.calls.iter_mut().flat_map(|call| &mut call.attempts) {
            attempt.after = by(attempt.after, late);
            attempt.headers = attempt.headers.map(|headers| by(headers, late));
        }
    };
    shift(scenario, Ns::saturating_add);
    let actual = play::play(scenario);
    shift(scenario, Ns::saturating_sub);
    actual
}

/// Whether only times differ.
fn differ_only_in_time(one: &Actual, other: &Actual) -> bool {
    let shape = |call: &ActualCall| {
        let end = call.end.as_ref().map(|end| (end.outcome.clone(), end.attempt, end.stop_reason));
        let cancels: Vec<_> = call.cancels.iter().map(|(attempt, _)| *attempt).collect();
        (call.starts.len(), cancels, end, call.previous.clone(), call.sent.clone())
    };
    one.calls.iter().map(shape).eq(other.calls.iter().map(shape))
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn call_request(index: usize, call: &Call, time_scale: TimeScale, sizes: Sizes) -> CallRequest {
    let time = |span: Ns| ms(time_scale.span(span));
    let grpc = call.grpc.as_ref();
    let mut written: Vec<_> = grpc.map_or(Vec::new(), |grpc| grpc.messages.clone());
    written.sort_by_key(|(at, _)| *at);
    let is_unary = matches!(written.as_slice(), [(0, _)]);
    let messages = written.iter().map(|(at, bytes)| {
        let bytes = sizes.encoded(*bytes);
        Message { at: time(*at), bytes }
    });
    CallRequest {
        at: time(call.at),
        method: grpc.map_or(String::new(), |grpc| grpc.method.clone()),
        kind: if is_unary { Kind::Unary } else { Kind::ClientStream },
        metadata: BTreeMap::from([(CALL_HEADER.to_owned(), index.to_string())]),
        deadline: call.deadline.map(time),
        cancel: call.cancel.map(time),
        messages: messages.collect(),
    }
}

/// The options that differ from the defaults.
fn options(client: ClientOptions) -> Options {
    let other = |value: u64, default: u64| (value != default).then_some(value);
    Options {
        attempts_cap: (client.attempts_cap != ATTEMPTS_CAP_DEFAULT).then_some(client.attempts_cap),
        retries: (client.retries == Retries::Off).then_some(false),
        per_rpc_buffer_limit_in_bytes: other(
            client.per_rpc_buffer_limit_in_bytes,
            PER_RPC_BUFFER_LIMIT_DEFAULT,
        ),
        retry_buffer_size_in_bytes: other(
            client.retry_buffer_size_in_bytes,
            RETRY_BUFFER_SIZE_DEFAULT,
        ),
    }
}

fn expected_of(call: &Call, low: &ActualCall, high: &ActualCall) -> ExpectedCall {
    let span = |(a, b): (Ns, Ns)| Span { from: a.min(b), to: a.max(b) };
    let spans =
        |a: &[Ns], b: &[Ns]| a.iter().copied().zip(b.iter().copied()).map(span).collect::<Vec<_>>();
    let said = low.previous.as_deref().unwrap_or_default();
    let cancels = low.cancels.iter().zip(&high.cancels);
    let timeouts = low.timeouts.iter().flatten().zip(high.timeouts.iter().flatten());
    let end = low.end.as_ref().zip(high.end.as_ref()).map(|(low, high)| {
        let listed = low.attempt.and_then(|number| call.attempts.get(number as usize - 1));
        let answered = listed.filter(|it| it.grpc.as_ref().is_none_or(|it| it.seen.is_none()));
        let failed =
            answered.filter(|it| matches!(it.outcome, Outcome::Comes { name, .. } if name != "OK"));
        let number = low.attempt.unwrap_or_default();
        // The application gets the attempt's own count of previous attempts (decision G30).
        let index = (number as usize).checked_sub(1);
        let previous = || index.and_then(|index| said.get(index).cloned());
        ExpectedEnd {
            at: span((low.at, high.at)),
            outcome: if low.outcome == "cancelled" {
                "CANCELLED".into()
            } else {
                low.outcome.clone()
            },
            attempt: answered.and(low.attempt),
            text: failed.map(|_| answer_text(number)),
            previous: answered.and_then(|_| previous()),
        }
    });
    ExpectedCall {
        starts: spans(&low.starts, &high.starts),
        cancels: cancels.map(|(a, b)| (a.0, span((a.1, b.1)))).collect(),
        previous: low.previous.clone().unwrap_or_default(),
        timeouts: Some(timeouts.map(|(a, b)| a.zip(*b).map(span)).collect()),
        // An immediate answer may arrive before the first message.
        sent: low.sent.clone().filter(|_| call.expect.sent.is_some()),
        end,
    }
}
