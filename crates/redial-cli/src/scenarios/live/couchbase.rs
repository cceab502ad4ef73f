//! Runs Couchbase scenarios through the reference client and the scripted cluster, or through an HTTP
//! client and a scripted HTTP server, on pipes and tokio's paused clock.
//!
//! Every call gets a client and a server of its own, since calls of this design share nothing.

mod environment;
mod http;
mod kv;

use std::time::Duration;

use redial::{CallLog, Event, time::Ns};
use redial_couchbase::{Error, Response, RetryableError, retry_log_lines};

use super::Live;
use crate::scenarios::compare::Difference;
use crate::scenarios::designs::couchbase::Plan;
use crate::scenarios::model::{Call, Outcome, Scenario};
use crate::scenarios::play::{Actual, ActualCall, ActualEnd};

pub(in crate::scenarios) use environment::UnsentState;

/// Runs a scenario; `core` is the result of the core level.
pub(super) fn play(scenario: &Scenario, plan: &Plan, core: Actual) -> Live {
    let strategy = match plan.strategy() {
        Ok(strategy) => strategy,
        Err(problem) => {
            let actual = Actual { refused: Some(problem.to_string()), ..Actual::default() };
            return Live { actual, differences: Vec::new() };
        }
    };
    let mut live = Live::default();
    for (call, core) in scenario.calls.iter().zip(core.calls) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing from the system");
        let (mut actual, differences) = runtime.block_on(async {
            match Service::of(call) {
                Some(Service::Kv(operation)) => {
                    kv::play(call, &operation, strategy.clone(), &core).await
                }
                Some(Service::Http) => http::play(call, strategy.clone()).await,
                // Such scenarios are skipped.
                None => (ActualCall::default(), Vec::new()),
            }
        });
        // The call log of the core level explains differences.
        actual.call_log = core.call_log;
        live.actual.calls.push(actual);
        live.differences.extend(differences);
    }
    live
}

/// What an attempt meets on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scenarios) enum Step {
    Succeed,
    Response(Response),
    Close,
    WrongCommand,
    Hang,
    Unsent(UnsentState),
    /// A reason that nothing raises.
    NoSource,
}

/// What each attempt of a call meets, and after how long.
pub(in crate::scenarios) fn steps(call: &Call) -> Vec<(Ns, Step)> {
    let step =
        |attempt: &crate::scenarios::model::Attempt| match (&attempt.response, &attempt.outcome) {
            (Some(response), _) => of_response(response),
            (None, Outcome::Hang) => Step::Hang,
            (None, Outcome::Comes { name, .. }) => of_name(name),
        };
    call.attempts.iter().map(|attempt| (attempt.after, step(attempt))).collect()
}

fn of_response(response: &Response) -> Step {
    match response {
        // The handshake: its failures are states of the connection.
        Response::Kv { status: 0x20, command, .. } if command.starts_with("sasl_") => {
            Step::Unsent(UnsentState::WrongPassword)
        }
        Response::Kv { status: 0x24, command, .. } if command == "select_bucket" => {
            Step::Unsent(UnsentState::RefusedBucket)
        }
        Response::Kv { status: 0x01, command, .. } if command == "select_bucket" => {
            Step::Unsent(UnsentState::WarmingUp)
        }
        Response::Kv { status: 0, .. } => Step::Succeed,
        response => Step::Response(response.clone()),
    }
}

fn of_name(name: &str) -> Step {
    let kv = |status| Step::Response(Response::kv(status));
    match name {
        "ok" => Step::Succeed,
        "SOCKET_CLOSED_WHILE_IN_FLIGHT" => Step::Close,
        "UNKNOWN" => Step::WrongCommand,
        "KV_NOT_MY_VBUCKET" => kv(0x07),
        "KV_LOCKED" => kv(0x09),
        "KV_TEMPORARY_FAILURE" => kv(0x86),
        "KV_COLLECTION_OUTDATED" => kv(0x88),
        "KV_SYNC_WRITE_IN_PROGRESS" => kv(0xa2),
        "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS" => kv(0xa4),
        "KV_ERROR_MAP_RETRY_INDICATED" => {
            let entry = redial_couchbase::ErrorMapEntry::of(["retry-now"]);
            Step::Response(Response::kv(0x7ff0).with_error_map_entry(entry))
        }
        "QUERY_PREPARED_STATEMENT_FAILURE" => Step::Response(Response::query(4040, "")),
        "QUERY_INDEX_NOT_FOUND" => Step::Response(Response::query(5000, "queryport.indexNotFound")),
        "ANALYTICS_TEMPORARY_FAILURE" => Step::Response(Response::analytics(23000)),
        "SEARCH_TOO_MANY_REQUESTS" => Step::Response(Response::search(429)),
        "VIEWS_TEMPORARY_FAILURE" => Step::Response(Response::views(503, "")),
        "VIEWS_NO_ACTIVE_PARTITION" => Step::Response(Response::views(302, "")),
        name => UnsentState::raising(name).map_or(Step::NoSource, Step::Unsent),
    }
}

/// The service of a call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scenarios) enum Service {
    /// KV, with the operation.
    Kv(String),
    Http,
}

impl Service {
    /// The service of a call; `None` if its attempts belong to several.
    pub(in crate::scenarios) fn of(call: &Call) -> Option<Self> {
        let steps = steps(call);
        let is_kv_step = |step: &Step| match step {
            Step::Response(Response::Kv { .. }) | Step::Unsent(_) => Some(true),
            Step::Response(_) => Some(false),
            _ => None,
        };
        let mut kinds = steps.iter().filter_map(|(_, step)| is_kv_step(step));
        let first = kinds.next();
        if kinds.any(|kind| Some(kind) != first) {
            return None;
        }
        let commands = steps.iter().filter_map(|(_, step)| match step {
            Step::Response(Response::Kv { command, .. }) if !command.is_empty() => Some(command),
            _ => None,
        });
        let mut commands: Vec<_> = commands.map(|command| format!("kv.{command}")).collect();
        commands.extend(call.operation.clone().filter(|name| name.starts_with("kv.")));
        commands.dedup();
        let is_kv = match (&call.operation, first) {
            (Some(name), first) => {
                let is_kv = name.starts_with("kv.");
                if first.is_some_and(|first| first != is_kv) {
                    return None;
                }
                is_kv
            }
            (None, first) => first.unwrap_or(true),
        };
        match commands.as_slice() {
            _ if !is_kv => Some(Service::Http),
            [] => Some(Service::Kv(default_operation(call, &steps).to_owned())),
            [one] => Some(Service::Kv(one.clone())),
            _ => None,
        }
    }
}

/// An operation with the idempotency of the call. A call that may not be connected at first takes one
/// that needs no document.
fn default_operation(call: &Call, steps: &[(Ns, Step)]) -> &'static str {
    let unsent = steps.iter().any(|(_, step)| matches!(step, Step::Unsent(_)));
    match (call.idempotent, unsent) {
        (true, false) => "kv.get",
        (true, true) => "kv.lookup_in",
        (false, _) => "kv.upsert",
    }
}

fn timeout(call: &Call) -> Duration {
    call.deadline.map_or(Duration::MAX, Duration::from_nanos)
}

/// Runs a request; `None` if the application drops it first.
async fn unless_dropped<T>(call: &Call, request: impl Future<Output = T>) -> Option<T> {
    match call.cancel {
        None => Some(request.await),
        Some(cancel) => {
            // What happens at the same instant comes first (decision P4).
            let dropped = async {
                tokio::time::sleep(Duration::from_nanos(cancel)).await;
                for _ in 0..64 {
                    tokio::task::yield_now().await;
                }
            };
            super::clock::first(request, dropped).await
        }
    }
}

/// The result of a call, from what the client returned and its call log.
fn observed<E: RetryableError>(
    result: Option<&Result<(), Error<E>>>,
    log: &CallLog,
    ran_for: Duration,
) -> ActualCall {
    let events = log.events();
    let began = events.first().map_or(0, |(at, _)| *at);
    let (mut starts, mut cancels, mut end) = (Vec::new(), Vec::new(), None);
    for (at, event) in events {
        let is_drop = matches!(event, Event::AttemptCancelled { .. } | Event::CallEnded { .. });
        // The log does not read the clock when a call is dropped.
        let at = if result.is_none() && is_drop {
            redial::testing::nanoseconds(ran_for)
        } else {
            at - began
        };
        match event {
            Event::AttemptStarted { .. } => starts.push(at),
            Event::AttemptCancelled { attempt } => cancels.push((*attempt, at)),
            Event::CallEnded { stop_reason, attempt } => end = Some((at, *stop_reason, *attempt)),
            _ => {}
        }
    }
    let error = result.and_then(|result| result.as_ref().err());
    let outcome = match (result, error) {
        (None, _) => "cancelled",
        (_, None) => "ok",
        (_, Some(error)) if error.is_timeout() => "timeout",
        (_, Some(error)) => error.reason().map_or("failed", |reason| reason.name()),
    };
    let terminal = error.and_then(Error::terminal).map(|error| error.name().to_owned());
    let end = end.map(|(at, stop_reason, attempt)| ActualEnd {
        at,
        outcome: outcome.to_owned(),
        attempt,
        stop_reason,
        error: terminal,
    });
    let lines = retry_log_lines(events).iter().map(ToString::to_string).collect();
    ActualCall { starts, cancels, end, log: Some(lines), ..ActualCall::default() }
}

/// The difference between the attempts of the client and the requests at the server.
fn arrivals_differ(expected: &[Ns], arrived: &[Ns]) -> Option<Difference> {
    let list = |times: &[Ns]| {
        let times: Vec<_> = times.iter().map(|at| format!("{} ms", at / 1_000_000)).collect();
        times.join(", ")
    };
    (expected != arrived).then(|| Difference {
        call: None,
        what: "requests at the server",
        expected: list(expected),
        actual: list(arrived),
    })
}
