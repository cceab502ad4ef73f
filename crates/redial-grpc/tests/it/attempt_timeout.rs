//! The attempt timeout, an option of the client (decision G42). It limits one attempt; the deadline limits
//! the whole call.

use std::time::Duration;

use redial::{Event, StopReason};
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber, StreamOutcome};
use redial_grpc::{
    AttemptTimeout, CallOptions, DeadlineAction, Retries, RetryLayerBuilder, SharedCallLog,
};
use tokio::time::Instant;
use tonic::{Code, Request};
use tower::ServiceBuilder;

use crate::common::harness::{
    HEDGE, Harness, RETRY, channel, endpoint, layer, message, ms, sent_timeouts, within,
};

const TIMEOUT: AttemptTimeout = AttemptTimeout::after(ms_const(100));

const RETRYABLE: AttemptTimeout = TIMEOUT.retryable();

const TEXT: &str = "the attempt timed out after 100ms";

const fn ms_const(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The policy with `DEADLINE_EXCEEDED` added to its codes.
fn listing(policy: &str) -> String {
    policy.replace(r#"["UNAVAILABLE"]"#, r#"["UNAVAILABLE", "DEADLINE_EXCEEDED"]"#)
}

fn with(fields: &str, timeout: AttemptTimeout) -> RetryLayerBuilder {
    layer(fields).attempt_timeout(timeout)
}

fn attempt_timeout_harness(layer: RetryLayerBuilder, script: impl Into<Script>) -> Harness {
    Harness::with_layer(layer.build(), Server::new(script))
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_is_retried_if_listed_and_retryable() {
    let mut harness =
        attempt_timeout_harness(with(&listing(RETRY), RETRYABLE), [Answer::hang(), Answer::echo()]);
    let outcome = harness.call().await;
    // A timeout of 100 ms and a backoff of 50 ms.
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 150]));
    assert_eq!((harness.tokens(), harness.statistics()), (9_100, (1, 0, 0)));
    assert_eq!(
        (outcome.previous(), outcome.previous_attempts_header().as_deref()),
        (vec![None, Some(1)], Some("1"))
    );
    assert_eq!(sent_timeouts(&harness), [Some(ms(100)), Some(ms(100))]);
    let first = &harness.server.record().streams[0];
    assert_eq!(first.end.unwrap().outcome, StreamOutcome::ResetByClient(Reason::CANCEL));
    assert_eq!(first.reset.unwrap().at, ms(100));
}

/// The server may have processed an attempt that timed out, so listing its code is not enough (P13).
#[tokio::test(start_paused = true)]
async fn attempt_timeout_is_final_unless_listed_and_retryable() {
    let cases = [
        (listing(RETRY), TIMEOUT, 9_000),
        (RETRY.to_owned(), RETRYABLE, 10_000),
        (RETRY.to_owned(), TIMEOUT, 10_000),
        (listing(HEDGE), TIMEOUT, 9_000),
        (HEDGE.to_owned(), RETRYABLE, 10_000),
        (String::new(), RETRYABLE, 10_000),
    ];
    for (fields, timeout, tokens) in cases {
        let mut harness = attempt_timeout_harness(with(&fields, timeout), vec![Answer::hang(); 3]);
        let outcome = harness.call().await;
        let status = outcome.status();
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, TEXT), "{fields}");
        assert_eq!(outcome.end(), (StopReason::NotRetryable, 100), "{fields}");
        // A listed status takes a token whether or not it is retried (G13).
        assert_eq!((harness.tokens(), harness.control.bytes_kept()), (tokens, 0), "{fields}");
        tokio::time::timeout(ms(1), harness.server.idle()).await.expect("every stream is reset");
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_of_every_attempt_returns_the_last() {
    let mut harness =
        attempt_timeout_harness(with(&listing(RETRY), RETRYABLE), vec![Answer::hang(); 3]);
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.status().code(), outcome.status().message()),
        (Code::DeadlineExceeded, TEXT)
    );
    assert_eq!(
        (outcome.starts(), outcome.end()),
        (vec![0, 150, 350], (StopReason::AttemptsExhausted, 450))
    );
    assert_eq!((harness.tokens(), harness.statistics()), (7_000, (2, 2, 0)));
    assert_eq!(outcome.previous_attempts_header().as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_holds_without_retries() {
    for retries in [Retries::Transparent, Retries::Off] {
        for call in [false, true] {
            let layer = layer(RETRY).retries(retries);
            let layer = if call { layer } else { layer.attempt_timeout(RETRYABLE) };
            let mut harness = attempt_timeout_harness(layer, [Answer::hang()]);
            let mut request = Request::new(message("x"));
            if call {
                let options = CallOptions::new().attempt_timeout(RETRYABLE);
                request.extensions_mut().insert(options);
            }
            let began = Instant::now();
            let status = harness.client.unary(request).await.unwrap_err();
            assert_eq!((status.message(), began.elapsed()), (TEXT, ms(100)), "{retries:?}");
            assert_eq!((sent_timeouts(&harness), harness.tokens()), (vec![Some(ms(100))], 10_000));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_of_a_call_replaces_that_of_layer() {
    let longer = AttemptTimeout::after(ms(300)).retryable();
    for (layer, starts) in
        [(with(&listing(RETRY), TIMEOUT), [0, 350]), (layer(&listing(RETRY)), [0, 350])]
    {
        let mut harness = attempt_timeout_harness(layer, [Answer::hang(), Answer::echo()]);
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().attempt_timeout(longer));
        let outcome = harness.call_with(request).await;
        assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, starts.to_vec()));
        assert_eq!(sent_timeouts(&harness), [Some(ms(300)), Some(ms(300))]);
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_of_a_hedge_starts_the_next_one() {
    let two = listing(HEDGE).replace(r#""0.02s""#, r#""0.08s""#);
    // One hedge starts at 80 ms, the next when the first attempt times out at 100 ms.
    let script = [Answer::hang(), Answer::hang(), Answer::echo().after(ms(40))];
    let mut harness = attempt_timeout_harness(with(&two, RETRYABLE), script);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 80, 100]));
    assert_eq!(outcome.end(), (StopReason::Succeeded, 140));
    assert_eq!(sent_timeouts(&harness), [Some(ms(100)); 3]);
    assert_eq!(harness.tokens(), 9_100);
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_restarts_for_a_transparent_retry() {
    let refused = Answer::reset(Reason::REFUSED_STREAM).after(ms(60));
    let mut harness = attempt_timeout_harness(
        with(&listing(RETRY), TIMEOUT),
        [refused, Answer::echo().after(ms(90))],
    );
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end()), (Code::Ok, (StopReason::Succeeded, 150)));
    assert_eq!(sent_timeouts(&harness), [Some(ms(100)), Some(ms(100))]);
}

/// As Envoy's `per_try_timeout`: after the response headers only the deadline applies.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_ends_with_response_headers() {
    let slow =
        || Answer::headers().after(ms(90)).message("").after(ms(500)).trailers(StatusNumber::OK);
    let mut harness = attempt_timeout_harness(with(&listing(RETRY), RETRYABLE), [slow(), slow()]);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end()), (Code::Ok, (StopReason::Succeeded, 500)));
    let began = Instant::now();
    let mut stream = harness.client.server_stream(within(ms(300))).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(began.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_or_deadline_whichever_is_shorter_is_sent() {
    let mut harness =
        attempt_timeout_harness(with(&listing(RETRY), RETRYABLE), vec![Answer::hang(); 3]);
    let outcome = harness.call_with(within(ms(200))).await;
    assert_eq!(
        (outcome.code(), outcome.end()),
        (Code::DeadlineExceeded, (StopReason::Deadline, 200))
    );
    assert_eq!(sent_timeouts(&harness), [Some(ms(100)), Some(ms(50))]);
    let text = "the deadline passed (2 attempts); \
                last failed attempt: DEADLINE_EXCEEDED: the attempt timed out after 100ms";
    assert_eq!(outcome.status().message(), text);
    assert_eq!(harness.tokens(), 9_000, "the deadline does not count as a failure");
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_not_below_the_deadline_is_never_reached() {
    for (config, own, deadline) in
        [(Some("0.1s"), None, 100), (None, Some(100), 100), (None, Some(60), 60)]
    {
        let timeout = config.map_or(String::new(), |it| format!(r#", "timeout": "{it}""#));
        let fields = format!("{}{timeout}", listing(RETRY));
        let mut harness =
            attempt_timeout_harness(with(&fields, RETRYABLE), vec![Answer::hang(); 3]);
        let request = own.map_or_else(|| Request::new(message("x")), |own| within(ms(own)));
        let outcome = harness.call_with(request).await;
        assert_eq!(outcome.end(), (StopReason::Deadline, deadline));
        assert_eq!(
            (outcome.starts(), sent_timeouts(&harness)),
            (vec![0], vec![Some(ms(deadline))])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_with_fail_fast_deadline_returns_the_timeout() {
    let layer = with(&listing(RETRY), RETRYABLE).deadline_action(DeadlineAction::FailFast);
    let mut harness = attempt_timeout_harness(layer, vec![Answer::hang(); 3]);
    let outcome = harness.call_with(within(ms(140))).await;
    assert_eq!((outcome.status().message(), outcome.end()), (TEXT, (StopReason::Deadline, 100)));
}

/// A server that enforces `grpc-timeout` fails the attempt at the same time, and a client that is polled
/// late finds that failure. The race must not decide whether the call is retried.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_wins_over_a_later_failure() {
    let late = || Answer::trailers_only(StatusNumber::DEADLINE_EXCEEDED).after(ms(120));
    for (timeout, ended) in [(TIMEOUT, Some(TEXT)), (RETRYABLE, None)] {
        let mut harness =
            attempt_timeout_harness(with(&listing(RETRY), timeout), [late(), Answer::echo()]);
        let call_log = SharedCallLog::new();
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
        let mut call = Box::pin(harness.client.unary(request));
        assert!(tokio::time::timeout(ms(50), &mut call).await.is_err());
        // Meanwhile the connection is polled, but the call is not.
        tokio::time::sleep(ms(100)).await;
        let answer = call.await;
        assert_eq!(answer.err().as_ref().map(tonic::Status::message), ended);
        let timed_out = |(_, event): &(u64, Event)| *event == Event::AttemptTimedOut { attempt: 1 };
        assert!(call_log.read().events().iter().any(timed_out));
    }
}

/// A full buffer commits the call to an attempt that has no response yet.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_after_a_full_buffer_ends_the_call() {
    let layer = with(&listing(RETRY), RETRYABLE).per_rpc_buffer_limit_in_bytes(10);
    let mut harness = attempt_timeout_harness(layer, [Answer::hang()]);
    let outcome = harness.call_with(Request::new(message("more than ten bytes"))).await;
    assert_eq!((outcome.status().message(), outcome.end()), (TEXT, (StopReason::Committed, 100)));
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn attempt_timeout_is_the_status_in_metrics() {
    use metrics_util::debugging::DebuggingRecorder;

    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let mut harness =
        attempt_timeout_harness(with(RETRY, TIMEOUT).metrics(), [busy, Answer::hang()]);
    assert_eq!(harness.call().await.code(), Code::DeadlineExceeded);
    let mut seen = Vec::new();
    for (key, ..) in recorder.snapshotter().snapshot().into_vec() {
        let key = key.key();
        let status = key.labels().find(|label| label.key() == "grpc.status");
        if let (Some((_, what)), Some(status)) = (key.name().split_once("client."), status)
            && what.ends_with(".duration")
        {
            seen.push((what.to_owned(), status.value().to_owned()));
        }
    }
    seen.sort();
    let seen: Vec<_> = seen.iter().map(|(what, status)| (&**what, &**status)).collect();
    assert_eq!(
        seen,
        [
            ("attempt.duration", "DEADLINE_EXCEEDED"),
            ("attempt.duration", "UNAVAILABLE"),
            ("call.duration", "DEADLINE_EXCEEDED"),
        ]
    );
}

/// A retry that waits for a permit of the inner service sends the rest of its timeout, and is not sent
/// after it.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_runs_while_the_service_is_not_ready() {
    for (busy_ms, code) in [(120, Code::Ok), (200, Code::DeadlineExceeded)] {
        let slow = Answer::headers().after(ms(busy_ms)).message("").trailers(StatusNumber::OK);
        let answers = [Answer::trailers_only(StatusNumber::UNAVAILABLE), slow, Answer::echo()];
        let harness = attempt_timeout_harness(layer(RETRY), answers);
        let channel = channel(&endpoint(), &harness.server.connector());
        let one_permit = tower::limit::GlobalConcurrencyLimitLayer::new(1);
        let service =
            ServiceBuilder::new().layer(harness.layer.clone()).layer(one_permit).service(channel);
        let mut client = redial_echo::echo_client::EchoClient::new(service);
        let mut other = client.clone();
        let mut request = Request::new(message("x"));
        request.extensions_mut().insert(CallOptions::new().attempt_timeout(TIMEOUT));
        let call = tokio::spawn(async move { client.unary(request).await });
        tokio::time::sleep(ms(10)).await;
        // The retry is due at 50 ms.
        other.unary(message("x")).await.unwrap();
        let answer = call.await.unwrap();
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), code);
        let sent = sent_timeouts(&harness);
        match code {
            Code::Ok => assert_eq!(sent, [Some(ms(100)), None, Some(ms(20))]),
            _ => assert_eq!(sent, [Some(ms(100)), None]),
        }
    }
}

/// The report distinguishes an attempt that timed out from a cancelled one.
#[tokio::test(start_paused = true)]
async fn attempt_timeout_is_named_in_the_report() {
    let layer = layer(RETRY).attempt_timeout(AttemptTimeout::after(ms(40))).build();
    let mut harness = Harness::with_layer(layer, Server::new([Answer::hang()]));
    let outcome = harness.call().await;
    let attempt = &outcome.report().history()[0];
    assert_eq!(attempt.status(), Some(redial_grpc::Code::DeadlineExceeded));
    assert_eq!((attempt.message(), attempt.elapsed()), (Some("the attempt timed out"), ms(40)));
}
