//! A scenario, made ready for a client of another language.
//!
//! Such a client draws its own delays, within 20 % of what the backoff says, and runs in real time. So a
//! scenario is played through the core with the shortest and with the longest delays, which gives spans;
//! and again with every answer a little late, which must change nothing but moments.

use std::collections::BTreeMap;
use std::time::Duration;

use redial::{Jitter, time::Ns};
use redial_faults::grpc::{Answer, CALL_HEADER, Script, StatusNumber};
use redial_service_config::{
    ATTEMPTS_CAP, ClientOptions, PER_RPC_BUFFER_LIMIT, RETRY_BUFFER_SIZE, Retries,
};

use super::super::configs::Case;
use super::super::designs::Plan;
use super::super::live::{LatencyEstimator, Sizes, answer, answer_text};
use super::super::model::{Call, Outcome, Scenario};
use super::super::play::{self, Actual, ActualCall};
use super::super::traits::{Trait, foreign};
use super::expected::{Expected, ExpectedCall, ExpectedEnd, Span};
use super::protocol::{Kind, Message, Options, ToldCall};

/// What gRPC's libraries draw (gRFC A6, "Exponential backoff").
const JITTER: Jitter = Jitter::Proportional(0.2);
/// The draws of the shortest and of the longest delays.
const DRAWS: [f64; 2] = [0.0, 0.999_999_999];
/// About how long a scenario takes.
const LENGTH: Ns = 10_000 * MILLISECOND;
/// How many times slower than it says a scenario is played: at least, and at most.
const SLOWER: [Ns; 2] = [5, 100];
/// The longest that a scenario may take.
const LENGTH_MAX: Ns = 60_000 * MILLISECOND;
/// Times are compared to within this, in real time.
const TOLERANCE: Ns = 300 * MILLISECOND;
/// If an answer that comes so much later changes more than moments, a scenario is a matter of luck.
const LATE: Ns = 150 * MILLISECOND;
/// How long after its last moment a call has not ended for good.
const PATIENCE: Duration = Duration::from_secs(2);
const MILLISECOND: Ns = 1_000_000;

/// What is played, and what is expected.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) name: String,
    pub(super) config: String,
    pub(super) options: Options,
    pub(super) calls: Vec<ToldCall>,
    pub(super) script: Script,
    pub(super) estimator: LatencyEstimator,
    pub(super) expected: Expected,
    /// In the scenario's time.
    pub(super) tolerance: Ns,
    /// When its last call begins.
    last_call: Ns,
}

impl Scene {
    /// The scenario made ready, or why it cannot be played like this. It gets another jitter.
    pub(super) fn of(scenario: &mut Scenario) -> Result<Scene, &'static Trait> {
        let Scenario { plan: Plan::Grpc(plan), calls, .. } = scenario else {
            return Err(&foreign::DESIGN);
        };
        plan.jitter(JITTER, calls);
        let (client, text) = (plan.client(), plan.text().to_owned());
        if scenario.refused {
            return Ok(Scene::refused(scenario, text));
        }
        let core = play::play(scenario);
        if let Some(because) = foreign::skips(scenario, &core) {
            return Err(because);
        }
        let [low, high] = DRAWS.map(|draw| {
            scenario.draws = vec![draw];
            play::play(scenario)
        });
        let estimator = estimator(&high);
        if length(&high).saturating_mul(estimator.slower()) > LENGTH_MAX {
            return Err(&foreign::LONG);
        }
        let (Some(config), Some(sizes)) =
            (estimator.config_text(&text), Sizes::of(scenario, &client))
        else {
            return Err(&foreign::LONG);
        };
        if !is_alike(&low, &high)
            || !is_alike(&high, &played_late(scenario, LATE / estimator.slower()))
        {
            return Err(&foreign::LUCK);
        }
        let calls = scenario.calls.iter().enumerate();
        let told = calls.clone().map(|(index, call)| told(index, call, estimator, sizes)).collect();
        let script =
            calls.fold(Script::new().otherwise(Answer::hang()), |script, (index, call)| {
                let answers =
                    (1..).zip(&call.attempts).map(|(number, it)| answer(it, number, estimator));
                script.call(&index.to_string(), answers)
            });
        let expected = scenario.calls.iter().zip(low.calls.iter().zip(&high.calls));
        let expected = expected.map(|(call, (low, high))| expected_of(call, low, high));
        Ok(Scene {
            name: scenario.name.clone(),
            config,
            options: options(sizes.client(client)),
            calls: told,
            script,
            estimator,
            expected: Expected::Calls(expected.collect()),
            tolerance: TOLERANCE / estimator.slower(),
            last_call: scenario.calls.iter().map(|call| call.at).max().unwrap_or(0),
        })
    }

    /// A scenario whose config is to be refused: a call shows whether it is.
    fn refused(scenario: &Scenario, config: String) -> Scene {
        Scene {
            name: scenario.name.clone(),
            config,
            expected: Expected::Refused,
            ..Scene::warm_up()
        }
    }

    /// A service config of its own: a call shows whether it is refused.
    pub(super) fn of_config(case: &Case) -> Scene {
        let expected = if case.is_valid() { Expected::Withdrawal } else { Expected::Refused };
        let config = case.text().to_owned();
        Scene { name: case.name.clone(), config, expected, ..Scene::warm_up() }
    }

    /// One call that succeeds.
    pub(super) fn warm_up() -> Scene {
        let estimator = LatencyEstimator::slower_by(1);
        let mut call = ToldCall {
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
        Scene {
            name: String::new(),
            config: "{}".to_owned(),
            options: Options::default(),
            calls: vec![call],
            script: Script::new().call("0", [reply]).otherwise(Answer::hang()),
            estimator,
            expected: Expected::Withdrawal,
            tolerance: TOLERANCE,
            last_call: 0,
        }
    }

    /// After how long a call that has not ended never will, in real time.
    pub(super) fn give_up(&self) -> Duration {
        self.estimator.span(self.last_call.saturating_add(self.expected.last())) + PATIENCE
    }
}

/// As slow as makes it about as long as scenarios are to be.
fn estimator(high: &Actual) -> LatencyEstimator {
    LatencyEstimator::slower_by((LENGTH / length(high).max(1)).clamp(SLOWER[0], SLOWER[1]))
}

/// How long it takes as it is written.
fn length(high: &Actual) -> Ns {
    high.calls.iter().flat_map(ActualCall::moments).max().unwrap_or(0)
}

/// Plays it with each answer that much later.
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

/// Whether nothing but moments differs.
fn is_alike(one: &Actual, other: &Actual) -> bool {
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

fn told(index: usize, call: &Call, estimator: LatencyEstimator, sizes: Sizes) -> ToldCall {
    let time = |span: Ns| ms(estimator.span(span));
    let grpc = call.grpc.as_ref();
    let mut written: Vec<_> = grpc.map_or(Vec::new(), |grpc| grpc.messages.clone());
    written.sort_by_key(|(at, _)| *at);
    let is_unary = matches!(written.as_slice(), [(0, _)]);
    let messages = written.iter().map(|(at, bytes)| {
        let bytes = sizes.encoded(*bytes);
        Message { at: time(*at), bytes }
    });
    ToldCall {
        at: time(call.at),
        method: grpc.map_or(String::new(), |grpc| grpc.method.clone()),
        kind: if is_unary { Kind::Unary } else { Kind::ClientStream },
        metadata: BTreeMap::from([(CALL_HEADER.to_owned(), index.to_string())]),
        deadline: call.deadline.map(time),
        cancel: call.cancel.map(time),
        messages: messages.collect(),
    }
}

/// What is not as by default.
fn options(client: ClientOptions) -> Options {
    let other = |value: u64, default: u64| (value != default).then_some(value);
    Options {
        attempts_cap: (client.attempts_cap != ATTEMPTS_CAP).then_some(client.attempts_cap),
        retries: (client.retries == Retries::Off).then_some(false),
        per_rpc_buffer_limit_in_bytes: other(
            client.per_rpc_buffer_limit_in_bytes,
            PER_RPC_BUFFER_LIMIT,
        ),
        retry_buffer_size_in_bytes: other(client.retry_buffer_size_in_bytes, RETRY_BUFFER_SIZE),
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
        // What the application is told of earlier attempts is what its attempt said (decision G30).
        let place = (number as usize).checked_sub(1);
        let previous = || place.and_then(|place| said.get(place).cloned());
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
        // An answer at once may be there before the first message.
        sent: low.sent.clone().filter(|_| call.expect.sent.is_some()),
        end,
    }
}
