//! The status, the call log, the metrics, the statistics and the server agree about every call.
//!
//! Each seed makes one unary or streaming call with a random policy, deadline and server behaviour; some
//! calls are cancelled.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redial::{Event, StopReason};
use redial_faults::grpc::{Answer, Close, Reason, Server, StatusNumber};
use redial_grpc::{CallOptions, Code, Retries, SharedCallLog};
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};

use crate::common::harness::{HEDGE, Harness, RETRY, layer, message, ms};

const CALLS: u64 = 600;

fn code(random: &mut Rng) -> StatusNumber {
    let codes = [
        StatusNumber::UNAVAILABLE,
        StatusNumber::UNAVAILABLE,
        StatusNumber::UNAVAILABLE,
        StatusNumber::ABORTED,
    ];
    codes[random.usize(..codes.len())]
}

fn answer(random: &mut Rng) -> Answer {
    let begun = || Answer::headers().message("");
    let answer = match random.u8(..20) {
        0..=4 => Answer::trailers_only(code(random)),
        5 => Answer::trailers_only(code(random)).pushback("30"),
        6 => Answer::trailers_only(code(random)).pushback("-1"),
        7 => begun().trailers(code(random)),
        8 => begun().then_reset(Reason::INTERNAL_ERROR),
        9 => begun().then_close(Close::Graceful),
        10 => begun().then_end_stream(),
        11 => Answer::reset(Reason::REFUSED_STREAM),
        12 => Answer::reset(Reason::CANCEL),
        13 => Answer::unsent(),
        14 => Answer::unconnected(),
        15 => Answer::http_empty(http::StatusCode::BAD_GATEWAY),
        16 => Answer::hang(),
        // Field 1 of the response is the payload; it exceeds `maxResponseMessageBytes`.
        17 => Answer::headers()
            .message([&b"\x0a\x28"[..], &[b'l'; 40]].concat())
            .trailers(StatusNumber::OK),
        _ => begun().trailers(StatusNumber::OK),
    };
    answer.after(ms(random.u64(..30)))
}

/// The status of a random call; CANCELLED if the application drops it.
async fn make_call(harness: &mut Harness, random: &mut Rng, options: CallOptions) -> Code {
    let deadline = random.bool().then(|| ms(random.u64(..150)));
    let drops = deadline.is_none() || random.u8(..4) == 0;
    let cancel_after = if drops { ms(random.u64(1..400)) } else { Duration::from_secs(3600) };
    let (kind, pause, size) = (random.u8(..3), ms(random.u64(..20)), random.usize(..60));
    let call = async {
        let mut client = harness.client.clone();
        let one = message(&"m".repeat(size));
        let mut stream = match kind {
            0 => return client.unary(request_with(one, deadline, options)).await.map(drop),
            1 => client.server_stream(request_with(one, deadline, options)).await?.into_inner(),
            _ => {
                let all = tokio_stream::iter(vec![message(""), message("x"), one]);
                let slow = all.then(move |it| async move {
                    tokio::time::sleep(pause).await;
                    it
                });
                let slow = Box::pin(slow);
                client.bidi(request_with(slow, deadline, options)).await?.into_inner()
            }
        };
        while stream.message().await?.is_some() {}
        Ok::<(), Status>(())
    };
    let status = match tokio::time::timeout(cancel_after, call).await {
        Ok(Ok(())) => tonic::Code::Ok,
        Ok(Err(error)) => error.code(),
        Err(_) => tonic::Code::Cancelled,
    };
    Code::from_number(status as i64).unwrap()
}

fn request_with<T>(it: T, deadline: Option<Duration>, options: CallOptions) -> Request<T> {
    let mut request = Request::new(it);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    request.extensions_mut().insert(options);
    request
}

/// The count and sum of each histogram by name and status; for a counter both are its value.
fn measured(snapshotter: &Snapshotter) -> BTreeMap<(String, String), (u64, u64)> {
    let values = snapshotter.snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| {
        let key = key.key();
        let status = key.labels().find(|label| label.key() == "grpc.status");
        let status = status.map(|label| label.value().to_owned()).unwrap_or_default();
        let value = match value {
            DebugValue::Counter(number) => (number, number),
            DebugValue::Histogram(values) => {
                (values.len() as u64, values.iter().map(|it| it.0).sum::<f64>() as u64)
            }
            // Gauges describe the layer, not the call.
            DebugValue::Gauge(_) => return None,
        };
        Some(((key.name().to_owned(), status), value))
    });
    values.collect()
}

/// Makes the call of this seed, compares all sources, and returns its stop reason.
async fn check_seed(seed: u64) -> StopReason {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let random = &mut Rng::with_seed(seed);
    let policy = [RETRY, HEDGE, ""][random.usize(..3)];
    let comma = if policy.is_empty() { "" } else { "," };
    let wait = random.bool();
    let limits = r#""maxResponseMessageBytes": 30, "maxRequestMessageBytes": 50"#;
    let fields = format!(r#"{policy} {comma} {limits}, "waitForReady": {wait}"#);
    let retries = [Retries::All, Retries::All, Retries::Transparent, Retries::Off];
    let builder = layer(&fields).metrics().retries(retries[random.usize(..4)]);
    let layer = builder.per_rpc_buffer_limit_in_bytes(random.u64(5..100)).build();
    let answers: Vec<_> = (0..12).map(|_| answer(random)).collect();
    let mut harness = Harness::with_layer(layer, Server::new(answers.clone()));
    let call_log = SharedCallLog::new();
    let status = make_call(&mut harness, random, CallOptions::new().call_log(&call_log)).await;
    let call_log = call_log.take();
    let context = format!("seed {seed}: {status:?} of {fields} and {answers:#?}: {call_log:#?}");

    let events: Vec<_> = call_log.events().iter().map(|(_, event)| *event).collect();
    let ends = events.iter().filter(|event| matches!(event, Event::CallEnded { .. })).count();
    let Some(Event::CallEnded { stop_reason, .. }) = events.last() else {
        panic!("the call log has no end, {context}")
    };
    assert_eq!(ends, 1, "{context}");
    let expected = match stop_reason {
        StopReason::Succeeded => status == Code::Ok,
        StopReason::Deadline => status == Code::DeadlineExceeded,
        _ => status != Code::Ok && status != Code::DeadlineExceeded,
    };
    assert!(expected, "{context}");

    let measured = measured(&recorder.snapshotter());
    let counts = |name: &str| -> (u64, u64) {
        let of = measured.iter().filter(|((it, _), _)| it == name);
        of.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1))
    };
    let called: Vec<_> =
        measured.keys().filter(|(name, _)| name == "grpc.client.call.duration").collect();
    assert_eq!(called.len(), 1, "{context}");
    assert_eq!(called[0].1, status.name(), "{context}");
    let started =
        events.iter().filter(|event| matches!(event, Event::AttemptStarted { .. })).count() as u64;
    assert_eq!(counts("grpc.client.attempt.started").1, started, "{context}");
    assert_eq!(counts("grpc.client.attempt.duration").0, started, "{context}");
    assert_eq!(counts("grpc.client.attempt.sent_total_compressed_message_size").0, started);
    let statistics = harness.control.statistics().into_values().next().unwrap();
    let repeats = counts("grpc.client.call.retries").1 + counts("grpc.client.call.hedges").1;
    assert_eq!(repeats, statistics.retries.retries, "{context}");
    let transparent = counts("grpc.client.call.transparent_retries").1;
    assert_eq!(transparent, statistics.retries.transparent, "{context}");
    assert_eq!(started, repeats + transparent + u64::from(started > 0), "{context}");
    assert!(statistics.retries.failed <= repeats, "{context}");
    assert_eq!(counts("redial.grpc.call.throttled").1, statistics.throttled, "{context}");
    assert_eq!(counts("redial.grpc.call.hedge_won").1, statistics.hedges_won, "{context}");
    assert_eq!(counts("redial.grpc.call.buffer_full").1, statistics.buffers_full, "{context}");
    assert_eq!(harness.control.bytes_kept(), 0, "{context}");
    // The server cannot receive more than was sent.
    let streams = harness.server.record().streams;
    assert!(streams.len() as u64 <= started, "{context}");
    let most =
        streams.iter().filter_map(redial_faults::grpc::StreamRecord::previous_attempts).max();
    assert!(most.unwrap_or(0) <= repeats, "{context}");
    *stop_reason
}

#[tokio::test(start_paused = true)]
async fn metrics_agree_with_status_call_log_statistics_and_server() {
    let mut ends = BTreeMap::new();
    for seed in 0..CALLS {
        *ends.entry(check_seed(seed).await.name()).or_insert(0) += 1;
    }
    let kinds = ["attempts", "cancelled", "committed", "deadline", "fatal", "refused", "succeeded"];
    assert!(
        kinds.iter().all(|kind| ends.contains_key(kind)),
        "the seeds cover all stop reasons: {ends:?}"
    );
}
