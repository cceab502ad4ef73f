//! Statistics of methods: retries, transparent retries, full buffers and throttled calls.

use std::time::Duration;

use redial_core::{Event, Proof, StopReason};
use redial_echo::{EchoRequest, Failing};
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber, WaitFor};
use redial_grpc::{CallOptions, MethodStatistics, RetryLayer, ServiceConfig, SharedCallLog};
use tonic::Code;

use crate::common::harness::{Harness, UNARY};
use crate::common::streaming::{
    BidiCall, cancels, config_json, fails, four_attempts_config, harness, harness_with, no_hang,
    previous, replies, response_bytes, retry_policy, s, sleep_until, starts, stop_reason,
};
use crate::common::{echo, retry_config};

/// The config of grpc-java's interop tests.
fn ten_seconds_config() -> String {
    config_json(&retry_policy(4, "10s", "10s", 1.0, "UNAVAILABLE"))
}

/// The events of a call that matter for statistics, with their time in seconds since its start.
fn statistics_events(bidi: &BidiCall) -> Vec<(u64, String)> {
    let call_log = bidi.call_log.read();
    let began = call_log.events()[0].0;
    let lines = call_log.events().iter().filter_map(|(at, event)| {
        let text = match *event {
            Event::AttemptStarted { attempt, .. } => format!("{attempt} started"),
            Event::AttemptOutcome { attempt, .. } => format!("{attempt} ended"),
            Event::RetryScheduled { after, .. } => format!("retry in {}", after / 1_000_000_000),
            Event::CallEnded { stop_reason, .. } => format!("{stop_reason}"),
            _ => return None,
        };
        Some(((at - began) / 1_000_000_000, text))
    });
    lines.collect()
}

// Peer test: grpc-java: RetryTest: statsRecorded.
#[tokio::test(start_paused = true)]
async fn statistics_count_retries() {
    let answer =
        Answer::headers().after(s(2)).message(response_bytes("a")).trailers(StatusNumber::OK);
    let harness =
        harness(&ten_seconds_config(), [fails(StatusNumber::UNAVAILABLE).after(s(1)), answer]);
    let mut bidi = harness.bidi();
    bidi.write(&["String of length 20."]);
    sleep_until(&harness, s(12)).await;
    bidi.write(&["new message"]);
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));
    let expected = [
        (0, "1 started"),
        (1, "1 ended"),
        (1, "retry in 10"),
        (11, "2 started"),
        (13, "2 ended"),
        (13, "succeeded"),
    ];
    assert_eq!(statistics_events(&bidi), expected.map(|(at, text)| (at, text.to_owned())));
    let statistics = harness.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (1, 0, 0));
    let record = harness.finish().await;
    let messages: Vec<_> = record.streams.iter().map(|stream| stream.messages).collect();
    assert_eq!(messages, [1, 2]);
}

// Peer test: grpc-java: RetryTest: statsRecorde_callCancelledBeforeCommit.
#[tokio::test(start_paused = true)]
async fn statistics_count_the_retry_of_a_cancelled_call() {
    let harness = harness(
        &ten_seconds_config(),
        [fails(StatusNumber::UNAVAILABLE).after(s(1)), Answer::hang()],
    );
    let bidi = harness.bidi();
    bidi.write(&["String of length 20."]);
    sleep_until(&harness, s(18)).await;
    let call_log = bidi.cancel().await;
    assert_eq!(stop_reason(&call_log), StopReason::Cancelled);
    // The retry is counted, but neither as success nor as failure (G31).
    let statistics = harness.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed), (1, 0));
    assert_eq!(cancels(&harness.finish().await), [None, Some(18_000)]);
}

// Peer test: grpc-java: RetryTest: transparentRetryStatsRecorded.
#[tokio::test(start_paused = true)]
async fn statistics_count_transparent_retries() {
    let script = [Answer::reset(Reason::REFUSED_STREAM), Answer::hang()];
    let harness = harness_with(RetryLayer::builder(), Server::new(script));
    let bidi = harness.bidi();
    no_hang(harness.server.until_counts(|counts| counts.streams == 2)).await;
    bidi.cancel().await;
    let statistics = harness.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (0, 0, 1));
    harness.finish().await;
}

// Peer test: grpc-go: TestRetryStats.
#[tokio::test(start_paused = true)]
async fn statistics_distinguish_transparent_retries_from_others() {
    let script = [
        Answer::reset(Reason::REFUSED_STREAM).wait_for(WaitFor::Request),
        fails(StatusNumber::UNAVAILABLE).pushback("10").wait_for(WaitFor::Request),
        replies("a").wait_for(WaitFor::Request),
    ];
    let harness = harness(&four_attempts_config(), script);
    let mut bidi = harness.bidi();
    bidi.write(&["x"]);
    bidi.half_close();
    assert_eq!(bidi.collect().await, (vec!["a".to_owned()], Code::Ok));

    let call_log = bidi.call_log.take();
    let began = call_log.events()[0].0;
    let story: Vec<_> = call_log
        .events()
        .iter()
        .filter_map(|(at, event)| {
            let text = match *event {
                Event::AttemptStarted { attempt, number } => {
                    format!("attempt {attempt} started as number {number}")
                }
                Event::TransparentRetryScheduled { attempt, proof: Proof::Unprocessed, .. } => {
                    format!("attempt {attempt} is retried transparently")
                }
                Event::RetryScheduled { .. } => "retry scheduled".to_owned(),
                Event::Committed { attempt } => format!("committed to attempt {attempt}"),
                Event::CallEnded { stop_reason, .. } => format!("call ended: {stop_reason}"),
                _ => return None,
            };
            Some(((at - began) / 1_000_000, text))
        })
        .collect();
    let expected = [
        (0, "attempt 1 started as number 1"),
        (0, "attempt 1 is retried transparently"),
        (0, "attempt 2 started as number 1"),
        (0, "retry scheduled"),
        (10, "attempt 3 started as number 2"),
        (10, "committed to attempt 3"),
        (10, "call ended: succeeded"),
    ];
    assert_eq!(story, expected.map(|(at, text)| (at, text.to_owned())));

    let statistics = harness.statistics("Bidi").retries;
    assert_eq!((statistics.retries, statistics.failed, statistics.transparent), (1, 0, 1));
    assert_eq!(statistics.histogram, [1, 0, 0, 0, 0, 0, 0, 0]);
    let record = harness.finish().await;
    assert_eq!(previous(&record), [None, None, Some(1)]);
    assert_eq!(starts(&record), [0, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn statistics_count_no_full_buffer_without_policy() {
    let layer = RetryLayer::builder()
        .config(ServiceConfig::default())
        .per_rpc_buffer_limit_in_bytes(3)
        .build();
    let mut harness =
        Harness::with_layer(layer, Server::new(Script::new().default_answer(Answer::echo())));
    assert_eq!(harness.call().await.code(), Code::Ok);
    assert_eq!(harness.control.statistics()[UNARY].buffers_full, 0);
}

fn failing(failures: u32, payload: &'static str) -> EchoRequest {
    EchoRequest { payload: payload.into(), failures, ..EchoRequest::default() }
}

/// The observable result of a call: number of messages, status, statistics, tokens of the throttle.
type Observed = (usize, Option<Code>, Option<MethodStatistics>, Option<f64>);

/// Makes a call with a throttle of `tokens`, of which four are used, and cancels it after `dropped_after`.
async fn observe(
    request: EchoRequest,
    tokens: u32,
    dropped_after: Duration,
    call_log: Option<&SharedCallLog>,
) -> Observed {
    let throttle =
        format!(r#"{{ "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.5 }},"#);
    let throttled = retry_config(4).replacen('{', &throttle, 1);
    let layer = RetryLayer::from_json(&throttled).unwrap();
    let mut client = echo(&layer);
    // A success does not change a full throttle.
    client.unary(failing(4, "x")).await.unwrap_err();
    let mut request = tonic::Request::new(request);
    if let Some(call_log) = call_log {
        request.extensions_mut().insert(CallOptions::new().call_log(call_log));
    }
    let mut messages = 0;
    let call = async {
        let mut stream = client.server_stream(request).await?.into_inner();
        while stream.message().await?.is_some() {
            messages += 1;
        }
        Ok::<_, tonic::Status>(())
    };
    let ended = tokio::time::timeout(dropped_after, call).await;
    let code = ended.ok().map(|ended| ended.map_or_else(|status| status.code(), |()| Code::Ok));
    let control = layer.control();
    assert_eq!(control.bytes_kept(), 0);
    let counted = control.statistics().get("/redial.test.Echo/ServerStream").copied();
    (messages, code, counted, control.tokens())
}

/// Without a call log the state machine of a call is created only when needed. The results must be equal.
#[tokio::test(start_paused = true)]
async fn statistics_are_the_same_with_and_without_call_log() {
    let (fails, slow) = (failing(9, "x"), EchoRequest { delay_ms: 60_000, ..failing(0, "x") });
    let after_messages =
        EchoRequest { failing: Failing::AtEnd as i32, responses: Some(2), ..fails.clone() };
    let fatal = |request: &EchoRequest| EchoRequest { code: 3, ..request.clone() };
    let refused = |request: &EchoRequest| EchoRequest { pushback_ms: Some(-1), ..request.clone() };
    let cases = [
        (failing(0, "x"), (1, Some(Code::Ok))),
        (failing(2, "x"), (1, Some(Code::Ok))),
        (fails.clone(), (0, Some(Code::Unavailable))),
        (fatal(&fails), (0, Some(Code::InvalidArgument))),
        (refused(&fails), (0, Some(Code::Unavailable))),
        (fatal(&refused(&fails)), (0, Some(Code::InvalidArgument))),
        (after_messages.clone(), (2, Some(Code::Unavailable))),
        (fatal(&after_messages), (2, Some(Code::InvalidArgument))),
        (refused(&after_messages), (2, Some(Code::Unavailable))),
        (EchoRequest { responses: Some(3), ..slow.clone() }, (1, None)),
        (slow, (0, None)),
    ];
    for (request, expected) in cases {
        // Long enough for the first message of the slow stream.
        let dropped_after = Duration::from_secs(if expected.0 == 1 { 90 } else { 30 });
        // With 8 tokens the throttle allows no retry.
        for tokens in [100, 8] {
            let call_log = SharedCallLog::new();
            let read = observe(request.clone(), tokens, dropped_after, Some(&call_log)).await;
            let unread = observe(request.clone(), tokens, dropped_after, None).await;
            assert_eq!(read, unread, "{request:?}");
            if tokens == 100 {
                assert_eq!((unread.0, unread.1), expected, "{request:?}");
            }
            assert!(matches!(call_log.take().events().last(), Some((_, Event::CallEnded { .. }))));
        }
    }
}
