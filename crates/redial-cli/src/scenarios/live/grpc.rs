//! Runs gRPC scenarios through the retry layer, a generated client and HTTP/2 connections to a
//! fault server: on a paused clock over pipes in memory, or in real time over loopback TCP.
//!
//! The result is what the servers and the application observed; call logs add only what neither can
//! see, such as the stop reason. Each scenario runs a second time without call logs, with the same
//! result.

mod application;
mod event_order;
mod network;
mod observation;
mod script;
mod sizes;
mod tcp;
mod time_scale;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future;
use std::time::Duration;

use redial::testing::draws;
use redial::time::Sleeper;
use redial_faults::grpc::{Answer, CALLS_MAX, Handle, OnConnect, STREAMS_KEPT, Script, Server};
use redial_grpc::{RetryLayer, RetryService, SharedCallLog};
use redial_service_config::{ClientOptions, ServiceConfig};
use tonic::transport::Channel;
use tower::Layer;

use super::clock::{ScaledClock, all, first};
use super::{Live, TOLERANCE};
use crate::scenarios::model::{Attempt, Call, Scenario};
use crate::scenarios::play::Actual;
use network::{AttemptId, Network};
use observation::{Ended, Observation};

pub(in crate::scenarios) use application::path;
pub(super) use network::over_pipe;
pub(in crate::scenarios) use script::{answer, text as answer_text};
pub(in crate::scenarios) use sizes::{PREFIX_BYTES, Sizes};
pub(in crate::scenarios) use tcp::{TCP_TOLERANCE, play_over_tcp};
pub(in crate::scenarios) use time_scale::TimeScale;

/// How often everything else is polled before the application drops a call at the same instant: the
/// cancellation comes last (decision P4), and an attempt with an immediate answer takes some
/// hundred turns.
const TURNS: u32 = 4_096;
/// How long a server may need to receive the last frames.
const REST: Duration = Duration::from_millis(50);

/// The scenario and how to run it.
#[derive(Clone, Copy)]
struct Setup<'s> {
    scenario: &'s Scenario,
    config: &'s ServiceConfig,
    client: ClientOptions,
    time_scale: TimeScale,
    sizes: Sizes,
}

/// Runs a scenario on a paused clock; `text` is its config, `core` the result of the core level.
pub(super) fn play(scenario: &Scenario, text: &str, client: ClientOptions, core: &Actual) -> Live {
    let time_scale = TimeScale::of(scenario, core);
    let (Some(config), Some(sizes)) = (time_scale.config(text), Sizes::of(scenario, &client))
    else {
        let refused = Some("it cannot be played at this level".to_owned());
        return Live { actual: Actual { refused, ..Actual::default() }, ..Live::default() };
    };
    let client = sizes.client(time_scale.client(client));
    let setup = Setup { scenario, config: &config, client, time_scale, sizes };
    let logged = on_pipe(setup, CallLogMode::Kept);
    let unlogged = on_pipe(setup, CallLogMode::None);
    let mut live = observation::read(setup, &logged, core, TOLERANCE);
    live.differences.extend(observation::compare_observations(&logged, &unlogged));
    live
}

/// Whether calls keep logs: without one the layer reads its clock less often.
#[derive(Clone, Copy, PartialEq)]
enum CallLogMode {
    Kept,
    None,
}

fn on_pipe(setup: Setup<'_>, call_logs: CallLogMode) -> Observation {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let _guard = draws(setup.scenario.draws.iter().copied());
    runtime.block_on(async {
        let server = server(setup).on_pipe();
        let failing = failing_connections(setup, |action, after| {
            Server::new(Script::new().on_connect(action, after)).on_pipe()
        });
        let main = network::over_pipe(server.connector());
        let channels =
            failing.iter().map(|(id, server)| (*id, network::over_pipe(server.connector())));
        run(setup, &server, main, channels.collect(), call_logs).await
    })
}

/// The largest number of attempts in a scenario: the limit of the fault server.
pub(in crate::scenarios) const ATTEMPTS_MAX: usize = CALLS_MAX;

/// The server of the attempts that have a stream.
fn server(setup: Setup<'_>) -> Server {
    let streams_max = attempts(setup.scenario).count().saturating_mul(2);
    Server::new(script(setup)).streams_kept(streams_max.max(STREAMS_KEPT)).payload_bytes_kept(0)
}

/// The script of the server for each stream.
fn script(setup: Setup<'_>) -> Script {
    let mut script = Script::new().default_answer(Answer::hang());
    for (id, attempt) in attempts(setup.scenario) {
        if script::on_connect(attempt).is_none() {
            let answer = script::answer(attempt, id.1, setup.time_scale);
            script = script.call(&network::name(id), [answer]);
        }
    }
    script
}

/// Makes a value for each attempt whose connection fails.
fn failing_connections<T>(
    setup: Setup<'_>,
    make: impl Fn(OnConnect, Duration) -> T,
) -> BTreeMap<AttemptId, T> {
    let failing = attempts(setup.scenario).filter_map(|(id, attempt)| {
        script::on_connect(attempt)
            .map(|action| (id, make(action, setup.time_scale.span(attempt.after))))
    });
    failing.collect()
}

fn attempts(scenario: &Scenario) -> impl Iterator<Item = (AttemptId, &Attempt)> {
    scenario.calls.iter().enumerate().flat_map(|(index, call)| {
        let attempts = (1_u32..).zip(&call.attempts);
        attempts.map(move |(number, attempt)| ((index, number), attempt))
    })
}

/// Makes all calls over these channels, and returns all observations.
async fn run<D>(
    setup: Setup<'_>,
    server: &Handle<D>,
    main: Channel,
    failing: BTreeMap<AttemptId, Channel>,
    call_logs: CallLogMode,
) -> Observation {
    let clock = ScaledClock::new(setup.time_scale.slowdown());
    let layer =
        RetryLayer::builder().config(setup.config.clone()).client_options(setup.client).build();
    let control = layer.control();
    let (network, log) = Network::new(main, failing, clock);
    let service = layer.layer(network);
    let kept: Vec<_> = setup.scenario.calls.iter().map(|_| SharedCallLog::new()).collect();
    let last_tokens = Cell::new(None);
    let calls = setup.scenario.calls.iter().enumerate().map(|(index, call)| {
        let service = service.clone();
        let call_log = kept.get(index).filter(|_| call_logs == CallLogMode::Kept);
        let (control, last_tokens) = (&control, &last_tokens);
        async move {
            let result = make(setup, index, call, service, call_log, clock).await;
            let at = clock.now();
            last_tokens.set(control.tokens());
            Ended::new(at - call.at.min(at), result, control.tokens())
        }
    });
    // Unfinished calls are dropped after the results are read, so that this is not a cancellation.
    let (ends, _running) = all(calls, clock.sleep_until(setup.time_scale.horizon())).await;
    tokio::time::sleep(REST).await;
    let call_logs = kept.iter().map(SharedCallLog::take).collect();
    let record = server.record();
    let stats = control.statistics();
    let stats = stats.into_iter().map(|(path, it)| (path.into(), it.retries)).collect();
    Observation::new(setup, ends, &log.read(), &record, call_logs, last_tokens.get(), stats)
}

/// Makes one call at its time; `None` if the application dropped it.
async fn make(
    setup: Setup<'_>,
    index: usize,
    call: &Call,
    service: RetryService<Network>,
    call_log: Option<&SharedCallLog>,
    clock: ScaledClock,
) -> Option<Result<tonic::Response<redial_echo::EchoResponse>, tonic::Status>> {
    clock.wait_until(call.at).await;
    let made = application::call(setup, index, service, call_log, clock);
    let dropped = async {
        match call.cancel {
            Some(cancel) => clock.wait_until(call.at.saturating_add(cancel)).await,
            None => future::pending().await,
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    };
    first(made, dropped).await
}
