//! Transparent retries of requests that the server provably did not process.

use redial::StopReason;
use redial_core::Proof;
use redial_faults::grpc::{
    Answer, Close, LastStream, Reason, Script, Server, StatusNumber, WaitFor,
};
use redial_grpc::{CallOptions, RetryLayer, SharedCallLog};
use tonic::Code;

use crate::common::harness::{HEDGE, Harness, ms};
use crate::common::streaming::{
    UnaryOutcome, cancels, fails, four_attempts_config, harness, harness_with, no_hang, payloads,
    previous, replies, request, response_bytes, s, six_attempts_config, sleep_until, starts,
    stop_reason,
};

fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

// Peer test: grpc-java: transparentRetry_onlyOnceOnRefused.
#[tokio::test(start_paused = true)]
async fn transparent_retry_happens_once_for_refused_streams() {
    let harness = harness(&six_attempts_config(), [refused(), refused(), replies("a")]);
    let outcome = harness.unary("x").await;
    assert_eq!((outcome.code, outcome.previous), (Code::Ok, Some(1)));
    let statistics = harness.statistics("Unary").retries;
    assert_eq!((statistics.transparent, statistics.retries, statistics.failed), (1, 1, 0));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 0, 100_000]);
    assert_eq!(previous(&record), [None, None, Some(1)]);
}

// Peer test: grpc-java: transparentRetry_unlimitedTimesOnMiscarried.
#[tokio::test(start_paused = true)]
async fn transparent_retry_of_unsent_requests_stops_after_a_thousand() {
    // grpc-java has no delays between them, and stops after ten thousand (G27).
    let script = Script::new().attempts(vec![Answer::unsent(); 1001]);
    let harness = harness(&six_attempts_config().replace("UNAVAILABLE", "ABORTED"), script);
    let call_log = SharedCallLog::new();
    let mut request = tonic::Request::new(request("x"));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let outcome = harness.unary_request(request).await;
    assert_eq!((outcome.code, outcome.previous), (Code::Unavailable, None));
    assert_eq!(stop_reason(&call_log), StopReason::NotRetryable);
    assert_eq!(harness.statistics("Unary").retries.transparent, 1000);
    let record = harness.finish().await;
    assert_eq!((record.counts.streams, record.counts.connections), (0, 1001));
    let opened: Vec<_> = record.connections.iter().map(|it| it.opened.as_millis()).collect();
    assert_eq!(opened[..9], [0, 0, 10, 30, 70, 150, 310, 630, 1270]);
    assert_eq!(opened[9..11], [2270, 3270]);
}

// Peer test: grpc-java: normalRetry_thenNoTransparentRetry_butNormalRetry.
#[tokio::test(start_paused = true)]
async fn transparent_retry_still_happens_once_after_a_retry() {
    // grpc-java has no transparent retry after an attempt was processed (G26).
    let harness = harness(
        &six_attempts_config(),
        [fails(StatusNumber::UNAVAILABLE), refused(), refused(), replies("a")],
    );
    let outcome = harness.unary("x").await;
    assert_eq!((outcome.code, outcome.previous), (Code::Ok, Some(2)));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 100_000, 300_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(1), Some(2)]);
}

// Peer test: grpc-java: normalRetry_thenNoTransparentRetry_andNoMoreRetry.
#[tokio::test(start_paused = true)]
async fn transparent_retry_exhausted_and_code_not_retryable_ends_call() {
    let script = [fails(StatusNumber::DATA_LOSS), refused(), refused()];
    let harness = harness(&six_attempts_config().replace("UNAVAILABLE", "ABORTED"), script);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!(
        (outcome.code, outcome.previous, stop_reason),
        (Code::Unavailable, Some(1), StopReason::NotRetryable)
    );
    assert_eq!(starts(&harness.finish().await), [0, 100_000, 100_000]);
}

// Peer test: grpc-java: noRetry_transparentRetry_noEarlyCommit.
#[tokio::test(start_paused = true)]
async fn transparent_retry_without_policy_replays_the_stream() {
    let script = [refused(), fails(StatusNumber::UNAVAILABLE)];
    let harness = harness_with(RetryLayer::builder(), Server::new(script));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!((status.code(), bidi.stop_reason()), (Code::Unavailable, StopReason::NotRetryable));
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, None]);
    assert_eq!(payloads(&record.streams[1]), ["1"]);
}

// Peer test: grpc-java: transparentRetry_cancel_race.
#[tokio::test(start_paused = true)]
async fn transparent_retry_cancelled_as_it_starts_leaves_no_stream() {
    // The first transparent retry starts at once, the second after 10 ms.
    for moment in [1, 5, 10, 11] {
        let harness = harness(
            &six_attempts_config(),
            vec![Answer::unsent(), Answer::unsent(), Answer::hang()],
        );
        let call = harness.spawn("x");
        sleep_until(&harness, ms(moment)).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        harness.settle().await;
        assert_eq!(harness.statistics("Unary").retries.retries, 0);
        let record = harness.finish().await;
        // At exactly its start the stream may or may not exist.
        match moment {
            10 => assert!(record.streams.len() <= 1),
            11 => assert_eq!(record.streams.len(), 1),
            _ => assert_eq!((record.streams.len(), record.counts.connections), (0, 2)),
        }
        assert!(cancels(&record).iter().all(Option::is_some), "{moment}: {record:#?}");
    }
}

// Peer test: C-core: retry_transparent_goaway.
#[tokio::test(start_paused = true)]
async fn transparent_retry_follows_a_goaway_below_the_stream() {
    // Without any policy.
    let script = [Answer::go_away(LastStream::Below, Reason::NO_ERROR), replies("bar")];
    let harness = harness_with(RetryLayer::builder(), Server::new(script));
    let outcome = harness.unary("foo").await;
    assert_eq!((&*outcome.text, outcome.previous), ("bar", None));
    let record = harness.finish().await;
    assert_eq!((previous(&record), starts(&record)), (vec![None, None], vec![0, 0]));
    let connections: Vec<_> = record.streams.iter().map(|stream| stream.connection).collect();
    assert_eq!(connections, [1, 2]);
}

// Peer test: C-core: retry_transparent_max_concurrent_streams.
#[tokio::test(start_paused = true)]
async fn transparent_retry_of_waiting_streams_needs_proof_from_hyper() {
    // One stream is open. The second request waits inside hyper for a free stream, the third is in hyper's
    // queue. hyper proves only for the third that it was never sent.
    let ends = Answer::go_away(LastStream::This, Reason::NO_ERROR).after(s(1));
    let ends = ends.then_headers().message(response_bytes("baz")).trailers(StatusNumber::OK);
    let script =
        Script::new().attempts([ends.then_close(Close::Graceful)]).default_answer(replies("qux"));
    let harness = harness_with(RetryLayer::builder(), Server::new(script).concurrent_streams(1));
    let mut calls = Vec::new();
    for text in ["foo", "bar", "bar"] {
        calls.push(harness.spawn(text));
        harness.settle().await;
    }
    let mut outcome = Vec::new();
    for call in calls {
        let UnaryOutcome { code, text, previous } = no_hang(call).await.unwrap();
        outcome.push((code, previous, text));
    }
    assert_eq!(outcome[0], (Code::Ok, None, "baz".to_owned()));
    assert_eq!((outcome[1].0, outcome[1].1), (Code::Unavailable, None));
    assert_eq!(outcome[2], (Code::Ok, None, "qux".to_owned()));
    assert_eq!(harness.statistics("Unary").retries.transparent, 1);
    assert_eq!(harness.attempts(), 2);
}

// Peer test: C-core: retry_transparent_not_sent_on_wire.
#[tokio::test(start_paused = true)]
async fn transparent_retry_repeats_while_nothing_was_sent() {
    let mut script = vec![Answer::unsent(); 10];
    script.push(replies("bar"));
    let harness = harness_with(RetryLayer::builder(), Server::new(script));
    let outcome = harness.unary("foo").await;
    assert_eq!((&*outcome.text, outcome.previous), ("bar", None));
    assert_eq!(harness.statistics("Unary").retries.transparent, 10);
    let record = harness.finish().await;
    assert_eq!((previous(&record), record.counts.connections), (vec![None], 11));
}

// Peer test: grpc-go: TestRetryTransparentWhenCommitted.
#[tokio::test(start_paused = true)]
async fn transparent_retry_does_not_happen_after_commit() {
    let gone = |reason| Answer::headers().then_go_away(LastStream::Below, reason);
    let lost = [
        (
            Answer::headers().then_reset(Reason::REFUSED_STREAM),
            Code::Unavailable,
            StopReason::Committed,
        ),
        (gone(Reason::ENHANCE_YOUR_CALM), Code::Unavailable, StopReason::Committed),
        // hyper reports this one as a regular end of the body, so the status is missing.
        (gone(Reason::NO_ERROR), Code::Unknown, StopReason::NotRetryable),
    ];
    for (answer, code, expected) in lost {
        let harness = harness(&four_attempts_config(), answer.wait_for(WaitFor::Messages(1)));
        let mut bidi = harness.bidi();
        bidi.write(&["1"]);
        let (messages, outcome) = bidi.collect().await;
        assert_eq!((messages.len(), outcome, bidi.stop_reason()), (0, code, expected));
        let transparent = harness.statistics("Bidi").retries.transparent;
        assert_eq!((transparent, harness.attempts()), (0, 1));
        harness.finish().await;
    }
}

/// grpc-java: #5075, an open question is whether a transparent retry is allowed once per call or once per
/// hedge. Here it is once per call.
#[tokio::test(start_paused = true)]
async fn transparent_retry_happens_once_per_hedged_call() {
    let mut harness = Harness::new(HEDGE, [refused(), Answer::hang(), refused(), Answer::echo()]);
    let outcome = harness.call().await;
    // The first refusal is retried transparently. The second counts as a failure, which starts the third
    // attempt at once.
    assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 0, 20, 20]));
    assert_eq!(outcome.previous(), [None, None, Some(1), Some(2)]);
    assert_eq!((harness.statistics(), harness.tokens()), ((2, 1, 1), 9_100));
}

/// grpc-java: #8394 and #10533, a stream rejected by GOAWAY is not always distinguished from a failed one.
#[tokio::test(start_paused = true)]
async fn transparent_retry_follows_goaway_without_policy() {
    for reason in [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM] {
        let gone = Answer::go_away(LastStream::Below, reason);
        for answer in [gone.clone(), gone.then_close(Close::Abrupt)] {
            let mut harness = Harness::new("", [answer, Answer::echo()]);
            let outcome = harness.call().await;
            assert_eq!((outcome.code(), outcome.starts()), (Code::Ok, vec![0, 0]), "{reason:?}");
            assert_eq!(outcome.proofs()[0], Some(Proof::Unprocessed));
        }
    }
}

/// grpc-go: #5503, the permission for a transparent retry outlived its attempt, and the call looped until
/// its context ended.
#[tokio::test(start_paused = true)]
async fn transparent_retry_permission_ends_with_its_attempt() {
    let script = [refused(), Answer::close(Close::Graceful), Answer::echo()];
    let mut harness = Harness::new("", script);
    let outcome = harness.call().await;
    assert_eq!((outcome.code(), outcome.end().0), (Code::Unavailable, StopReason::NotRetryable));
    assert_eq!(
        (outcome.starts(), outcome.proofs()),
        (vec![0, 0], vec![Some(Proof::Unprocessed), None])
    );
    assert_eq!(harness.statistics(), (0, 0, 1));
}
