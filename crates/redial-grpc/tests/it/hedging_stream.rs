//! Hedging of streams: replay to several attempts, buffer limits, pushback and transparent retries. Up to
//! six attempts, one every 100 s.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, Reason, Server, StatusNumber};
use tonic::Code;

use crate::common::streaming::{
    StreamingHarness, buffered_size, cancels, config_json, fails, harness_with, hedging_policy,
    no_hang, payloads, previous, replies, replies_at, s, sleep_until, starts, stop_reason,
    throttled_config, without_jitter,
};

/// The policy of grpc-java's hedging tests.
fn six_hedges_policy() -> String {
    hedging_policy(6, "100s", "UNAVAILABLE DATA_LOSS")
}

fn six_hedges_config() -> String {
    config_json(&six_hedges_policy())
}

fn six_hedges(script: Vec<Answer>) -> StreamingHarness {
    harness_with(without_jitter(&six_hedges_config()).attempts_cap(6), Server::new(script))
}

/// A stream that the server refuses without processing it.
fn refused() -> Answer {
    Answer::reset(Reason::REFUSED_STREAM)
}

/// Hedging with a throttle of four tokens.
fn four_hedging_tokens(script: Vec<Answer>) -> StreamingHarness {
    let layer = without_jitter(&throttled_config(&six_hedges_policy(), 4, 0.8)).attempts_cap(6);
    harness_with(layer, Server::new(script))
}

// Peer test: grpc-java:
// hedging_everythingDrained_oneHedgeReceivesNonFatal_oneHedgeReceivesFatalStatus.
#[tokio::test(start_paused = true)]
async fn hedging_replays_all_messages_until_a_fatal_failure() {
    let script = vec![
        Answer::hang(),
        fails(StatusNumber::INTERNAL).after(s(200)),
        fails(StatusNumber::UNAVAILABLE).after(s(60)),
        Answer::hang(),
    ];
    let harness = six_hedges(script);
    let mut bidi = harness.bidi();
    bidi.write(&["1", "2"]);
    harness.settle().await;
    bidi.write(&["3"]);
    sleep_until(&harness, s(150)).await;
    bidi.write(&["4", "5"]);
    sleep_until(&harness, s(250)).await;
    bidi.write(&["6"]);
    sleep_until(&harness, s(265)).await;
    bidi.write(&["7"]);
    let status = bidi.response().await.unwrap_err();
    assert_eq!(
        (status.code(), bidi.stop_reason(), harness.elapsed()),
        (Code::Internal, StopReason::NotRetryable, s(300))
    );
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");

    let record = harness.finish().await;
    // grpc-java keeps the hedging delay after a non-fatal failure; here the next hedge starts at once (G17).
    assert_eq!(starts(&record), [0, 100_000, 200_000, 260_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3)]);
    assert_eq!(cancels(&record), [Some(300_000), None, None, Some(300_000)]);
    let all = ["1", "2", "3", "4", "5", "6", "7"];
    let sent: Vec<_> = record.streams.iter().map(payloads).collect();
    assert_eq!(sent, [&all[..], &all[..], &all[..6], &all[..]]);
}

// Peer test: grpc-java: hedging_maxAttempts.
#[tokio::test(start_paused = true)]
async fn hedging_stops_at_max_attempts_and_last_outstanding_attempt_wins() {
    let wins = Answer::headers().after(s(500)).trailers(StatusNumber::OK);
    let script = vec![
        fails(StatusNumber::DATA_LOSS).after(s(600)),
        fails(StatusNumber::UNAVAILABLE).after(s(250)),
        wins,
        fails(StatusNumber::DATA_LOSS).after(s(310)),
        fails(StatusNumber::DATA_LOSS).after(s(270)),
        fails(StatusNumber::UNAVAILABLE).after(s(180)),
    ];
    let harness = six_hedges(script);
    let mut bidi = harness.bidi();
    sleep_until(&harness, s(650)).await;
    bidi.write(&["after the others"]);
    let mut stream = bidi.response().await.unwrap().into_inner();
    assert_eq!(harness.elapsed(), s(700));
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(
        (bidi.stop_reason(), harness.statistics("Bidi").hedges_won),
        (StopReason::Succeeded, 1)
    );
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100, 200, 300, 350, 450].map(|s| s * 1000));
    assert_eq!(payloads(&record.streams[2]), ["after the others"]);
    assert_eq!(cancels(&record), [None; 6]);
}

// Peer test: grpc-java: hedging_receiveHeaders.
#[tokio::test(start_paused = true)]
async fn hedging_response_headers_win_and_cancel_the_others() {
    let wins = Answer::headers().after(s(150)).trailers(StatusNumber::OK).after(s(160));
    let harness = six_hedges(vec![Answer::hang(), wins, Answer::hang()]);
    let mut bidi = harness.bidi();
    bidi.half_close();
    let response = bidi.response().await.unwrap();
    assert_eq!(response.metadata().get("grpc-previous-rpc-attempts").unwrap(), "1");
    assert_eq!(response.into_inner().message().await.unwrap(), None);
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [Some(250_000), None, Some(250_000)]);
}

// Peer test: grpc-java: hedging_pushback_negative.
#[tokio::test(start_paused = true)]
async fn hedging_negative_pushback_stops_hedges_but_outstanding_ones_continue() {
    let script = vec![
        Answer::hang(),
        fails(StatusNumber::UNAVAILABLE).pushback("-1").after(s(150)),
        replies_at(s(800), "a"),
    ];
    let harness = six_hedges(script);
    let outcome = harness.unary("x").await;
    assert_eq!((outcome.code, outcome.previous, harness.elapsed()), (Code::Ok, Some(2), s(1000)));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000]);
}

// Peer test: grpc-java: hedging_pushback_positive.
#[tokio::test(start_paused = true)]
async fn hedging_positive_pushback_replaces_the_hedge_timer() {
    let script = vec![
        fails(StatusNumber::UNAVAILABLE).pushback("101000").after(s(150)),
        fails(StatusNumber::UNAVAILABLE).pushback("99000").after(s(160)),
        Answer::hang(),
        fails(StatusNumber::INTERNAL).after(s(50)),
    ];
    let harness = six_hedges(script);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!(
        (outcome.code, outcome.previous, stop_reason),
        (Code::Internal, Some(3), StopReason::NotRetryable)
    );
    let record = harness.finish().await;
    // 150 + 101 s; the second pushback arrives at 260 s: 260 + 99 s.
    assert_eq!(starts(&record), [0, 100_000, 251_000, 359_000]);
    assert_eq!(cancels(&record), [None, None, Some(409_000), None]);
}

// Peer test: grpc-java: hedging_deadlock.
#[tokio::test(start_paused = true)]
async fn hedging_losers_started_with_the_winner_are_cancelled() {
    let layer = without_jitter(&six_hedges_config().replace("100s", "0s")).attempts_cap(6);
    let mut script = vec![Answer::hang(); 6];
    script[2] = replies("a");
    let harness = harness_with(layer, Server::new(script));
    let outcome = harness.unary("x").await;
    assert_eq!((&*outcome.text, outcome.previous, harness.elapsed()), ("a", Some(2), s(0)));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0; 6]);
    let lost = Some(0);
    assert_eq!(cancels(&record), [lost, lost, None, lost, lost, lost]);
}

// Peer test: grpc-java: hedging_cancelled.
#[tokio::test(start_paused = true)]
async fn hedging_cancellation_resets_every_stream() {
    let harness = six_hedges(vec![Answer::hang(), Answer::hang()]);
    let bidi = harness.bidi();
    bidi.write(&["1"]);
    sleep_until(&harness, s(150)).await;
    assert_eq!(stop_reason(&bidi.cancel().await), StopReason::Cancelled);
    sleep_until(&harness, s(1000)).await;
    assert_eq!(cancels(&harness.finish().await), [Some(150_000), Some(150_000)]);
}

// Peer test: grpc-java: hedging_perRpcBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn hedging_over_per_rpc_limit_commits_attempt_with_most_messages() {
    let layer =
        without_jitter(&six_hedges_config()).per_rpc_buffer_limit_in_bytes(buffered_size("1"));
    let answer = Answer::headers().after(s(300)).trailers(StatusNumber::OK);
    let harness = harness_with(layer, Server::new([answer, Answer::hang()]));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    sleep_until(&harness, s(150)).await;
    assert_eq!(harness.control.bytes_kept(), buffered_size("1"), "counted once for both");
    bidi.write(&["2"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 0);
    assert_eq!(bidi.collect().await, (vec![], Code::Ok));
    let record = harness.finish().await;
    // Both sent one message: grpc-java keeps the attempt that exceeded the limit, we keep the first (G24).
    assert_eq!(cancels(&record), [None, Some(150_000)]);
    assert_eq!(payloads(&record.streams[0]), ["1", "2"]);
}

// Peer test: grpc-java: hedging_perRpcBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn hedging_over_limit_can_commit_a_later_attempt() {
    let layer =
        without_jitter(&six_hedges_config()).per_rpc_buffer_limit_in_bytes(2 * buffered_size("1"));
    let answer = Answer::headers().after(s(300)).trailers(StatusNumber::OK);
    let harness = harness_with(layer, Server::new([Answer::hang().accepts(0), answer]));
    let mut bidi = harness.bidi();
    harness.settle().await;
    bidi.write(&["1"]);
    sleep_until(&harness, s(110)).await;
    bidi.write(&["2"]);
    sleep_until(&harness, s(120)).await;
    bidi.write(&["3"]);
    assert_eq!(bidi.collect().await, (vec![], Code::Ok));
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [Some(120_000), None]);
    assert_eq!(payloads(&record.streams[1]), ["1", "2", "3"]);
}

// Peer test: grpc-java: hedging_channelBufferLimitExceeded.
#[tokio::test(start_paused = true)]
async fn hedging_over_channel_limit_commits_the_call_exceeding_it() {
    let layer =
        without_jitter(&six_hedges_config()).retry_buffer_size_in_bytes(2 * buffered_size("1"));
    let answer = Answer::headers().after(s(300)).trailers(StatusNumber::OK);
    let harness = harness_with(layer, Server::new([answer, Answer::hang(), Answer::hang()]));
    let mut bidi = harness.bidi();
    bidi.write(&["1"]);
    sleep_until(&harness, s(150)).await;
    let other = harness.bidi();
    other.write(&["1"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), 2 * buffered_size("1"));
    bidi.write(&["2"]);
    harness.settle().await;
    assert_eq!(harness.control.bytes_kept(), buffered_size("1"), "the bytes of the other call");
    other.cancel().await;
    assert_eq!(bidi.collect().await, (vec![], Code::Ok));
    let record = harness.finish().await;
    assert_eq!(cancels(&record), [None, Some(150_001), Some(150_002)]);
}

// Peer test: grpc-java: hedging_transparentRetry.
#[tokio::test(start_paused = true)]
async fn hedging_second_refused_stream_counts_as_a_failure() {
    let script =
        vec![Answer::hang(), refused().after(s(150)), refused().after(s(60)), Answer::hang()];
    let config = six_hedges_config().replace("UNAVAILABLE", "ABORTED");
    let harness = harness_with(without_jitter(&config).attempts_cap(6), Server::new(script));
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    assert_eq!(
        (outcome.code, outcome.previous, stop_reason),
        (Code::Unavailable, Some(2), StopReason::NotRetryable)
    );
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000, 250_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(1)]);
    assert_eq!(cancels(&record), [Some(260_000), None, None, Some(260_000)]);
}

// Peer test: grpc-java: hedging_transparentRetryNotAllowed.
#[tokio::test(start_paused = true)]
async fn hedging_refused_stream_after_a_failure_is_still_replaced() {
    // grpc-java has no transparent retry after an attempt was processed (G26).
    let script = vec![
        Answer::hang(),
        fails(StatusNumber::UNAVAILABLE).after(s(150)),
        refused().after(s(60)),
        Answer::hang(),
        replies_at(s(10), "a"),
    ];
    let harness = six_hedges(script);
    let outcome = harness.unary("x").await;
    assert_eq!((outcome.code, outcome.previous), (Code::Ok, Some(2)));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 200_000, 250_000, 260_000]);
    assert_eq!(previous(&record), [None, Some(1), Some(2), Some(3), Some(2)]);
    assert_eq!(cancels(&record), [Some(270_000), None, None, Some(270_000), None]);
}

// Peer test: grpc-java: hedging_throttledByOtherCall.
#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_another_call_keeps_outstanding_attempts() {
    let script = vec![
        fails(StatusNumber::UNAVAILABLE).after(s(150)),
        Answer::hang(),
        replies_at(s(1000), "a"),
        fails(StatusNumber::INTERNAL).pushback("-1"),
    ];
    let harness = four_hedging_tokens(script);
    let call = harness.spawn("x");
    sleep_until(&harness, s(160)).await;
    assert_eq!((harness.attempts(), harness.control.tokens()), (3, Some(3.0)));
    harness.unary("the other").await;
    assert_eq!(harness.control.tokens(), Some(2.0));
    let outcome = no_hang(call).await.unwrap();
    assert_eq!((outcome.code, outcome.previous), (Code::Ok, Some(2)));
    assert_eq!(harness.statistics("Unary").throttled, 1);
    let record = harness.finish().await;
    // The third attempt follows the failure at once (G17); the throttle prevents a fourth at 250 s.
    assert_eq!(starts(&record), [0, 100_000, 150_000, 160_000]);
}

// Peer test: grpc-java: hedging_throttledByHedgingStreams.
#[tokio::test(start_paused = true)]
async fn hedging_throttled_by_own_failures_returns_the_last_failure() {
    let script = vec![
        fails(StatusNumber::UNAVAILABLE).text("first").after(s(150)),
        fails(StatusNumber::UNAVAILABLE).text("second").after(s(60)),
        fails(StatusNumber::UNAVAILABLE).text("third").after(s(20)),
    ];
    let harness = four_hedging_tokens(script);
    let (outcome, stop_reason) = harness.unary_with_stop_reason("x").await;
    // grpc-java returns the failure that took the last token, and cancels the other attempts (G14).
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Unavailable, "third", StopReason::Throttled)
    );
    assert_eq!((harness.elapsed(), harness.control.tokens()), (s(170), Some(1.0)));
    let record = harness.finish().await;
    assert_eq!(starts(&record), [0, 100_000, 150_000]);
    assert_eq!(cancels(&record), [None; 3]);
}
