//! The retry throttle: tokens, boundaries, and one throttle per server name in the process (decision G15).

use redial::StopReason;
use redial_faults::grpc::{Answer, Script, Server, StatusNumber};
use redial_grpc::{MethodStatistics, Retries, RetryLayer, ServiceConfig};
use tonic::Code;

use crate::common::harness::{Harness, RETRY, UNARY, layer};
use crate::common::streaming::{
    StreamingHarness, fails, harness, replies, retry_policy, s, six_attempts_policy,
    throttled_config,
};

fn four_tokens(script: Vec<Answer>) -> StreamingHarness {
    harness(&throttled_config(&six_attempts_policy(), 4, 0.8), script)
}

fn tokens(harness: &StreamingHarness) -> f64 {
    harness.control.tokens().unwrap()
}

fn throttled_calls(harness: &StreamingHarness) -> u64 {
    let MethodStatistics { throttled, .. } = harness.statistics("Unary");
    throttled
}

/// Makes a call with this response after another call has taken one of the four tokens. Returns the stop
/// reason and the tokens that are left.
async fn after_one_failure(answer: Answer) -> (StopReason, f64) {
    let harness = four_tokens(vec![fails(StatusNumber::INTERNAL).pushback("-1"), answer]);
    harness.unary("the other").await;
    assert_eq!(tokens(&harness), 3.0);
    let (_, stop_reason) = harness.unary_with_stop_reason("x").await;
    let left = tokens(&harness);
    assert_eq!(harness.attempts(), 2);
    harness.finish().await;
    (stop_reason, left)
}

// Peer test: grpc-java: throttle.
#[tokio::test(start_paused = true)]
async fn throttle_allows_retries_above_half_of_its_tokens() {
    let mut script = vec![fails(StatusNumber::UNAVAILABLE); 6];
    script.extend(vec![replies("a"); 6]);
    script.extend([fails(StatusNumber::UNAVAILABLE), fails(StatusNumber::UNAVAILABLE)]);
    let harness = four_tokens(script);
    // The first call may retry once; for the others the tokens are too low, and they fall to 0.
    let expected = [(2, 2.0), (3, 1.0), (4, 0.0), (5, 0.0), (6, 0.0)];
    for (attempts, left) in expected {
        assert_eq!(harness.unary("x").await.code, Code::Unavailable);
        assert_eq!((harness.attempts(), tokens(&harness)), (attempts, left));
    }
    for left in [0.8, 1.6, 2.4, 3.2, 4.0, 4.0] {
        assert_eq!(harness.unary("x").await.code, Code::Ok);
        assert_eq!(tokens(&harness), left);
    }
    assert_eq!(harness.unary("x").await.code, Code::Unavailable);
    assert_eq!((harness.attempts(), tokens(&harness)), (14, 2.0));
    assert_eq!(throttled_calls(&harness), 6);
    harness.finish().await;
}

// Peer test: grpc-java: throttledStream_FailWithRetriableStatusCode_WithoutPushback.
#[tokio::test(start_paused = true)]
async fn throttle_counts_a_retryable_code_without_pushback() {
    let (stop_reason, left) = after_one_failure(fails(StatusNumber::UNAVAILABLE)).await;
    assert_eq!((stop_reason, left), (StopReason::Throttled, 2.0));
}

// Peer test: grpc-java: throttledStream_FailWithNonRetriableStatusCode_WithoutPushback.
#[tokio::test(start_paused = true)]
async fn throttle_ignores_a_non_retryable_code_without_pushback() {
    let (stop_reason, left) = after_one_failure(fails(StatusNumber::INTERNAL)).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 3.0));
}

// Peer test: grpc-java: throttledStream_FailWithRetriableStatusCode_WithRetriablePushback.
#[tokio::test(start_paused = true)]
async fn throttle_counts_a_retryable_code_with_pushback() {
    let (stop_reason, left) =
        after_one_failure(fails(StatusNumber::UNAVAILABLE).pushback("123")).await;
    assert_eq!((stop_reason, left), (StopReason::Throttled, 2.0));
}

// Peer test: grpc-java: throttledStream_FailWithNonRetriableStatusCode_WithRetriablePushback.
#[tokio::test(start_paused = true)]
async fn throttle_ignores_a_non_retryable_code_with_pushback() {
    // grpc-java retries: there a pushback makes any code retryable (G9).
    let (stop_reason, left) =
        after_one_failure(fails(StatusNumber::INTERNAL).pushback("123")).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 3.0));
}

// Peer test: grpc-java: throttledStream_FailWithRetriableStatusCode_WithNonRetriablePushback.
#[tokio::test(start_paused = true)]
async fn throttle_counts_a_retryable_code_with_refusal_once() {
    let (stop_reason, left) =
        after_one_failure(fails(StatusNumber::UNAVAILABLE).pushback("")).await;
    assert_eq!((stop_reason, left), (StopReason::ServerRefused, 2.0));
}

// Peer test: grpc-java: throttledStream_FailWithNonRetriableStatusCode_WithNonRetriablePushback.
#[tokio::test(start_paused = true)]
async fn throttle_counts_a_non_retryable_code_with_refusal() {
    let (stop_reason, left) = after_one_failure(fails(StatusNumber::INTERNAL).pushback("")).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 2.0));
}

// Peer test: grpc-java: throttleStream_Succeed.
#[tokio::test(start_paused = true)]
async fn throttle_counts_a_success_at_its_final_status() {
    let refusing = || fails(StatusNumber::INTERNAL).pushback("-1");
    let answer = Answer::headers().trailers(StatusNumber::OK).after(s(1));
    let harness = four_tokens(vec![refusing(), refusing(), refusing(), answer]);
    for _ in 0..3 {
        harness.unary("the other").await;
    }
    assert_eq!(tokens(&harness), 1.0);
    let mut bidi = harness.bidi();
    bidi.half_close();
    let mut stream = bidi.response().await.unwrap().into_inner();
    // grpc-java counts here, at the headers (G12).
    assert_eq!(tokens(&harness), 1.0);
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(tokens(&harness), 1.8);
    harness.finish().await;
}

// Peer test: C-core: retry_throttled.
#[tokio::test(start_paused = true)]
async fn throttle_stops_the_retry_after_the_first_failure() {
    let policy = retry_policy(3, "1s", "120s", 1.6, "ABORTED");
    let harness =
        harness(&throttled_config(&policy, 2, 1.0), fails(StatusNumber::ABORTED).text("xyz"));
    let (outcome, stop_reason) = harness.unary_with_stop_reason("foo").await;
    assert_eq!(
        (outcome.code, &*outcome.text, stop_reason),
        (Code::Aborted, "xyz", StopReason::Throttled)
    );
    assert_eq!(harness.control.tokens(), Some(1.0));
    harness.finish().await;
}

// Peer test: grpc-go: TestRetryThrottling.
#[tokio::test(start_paused = true)]
async fn throttle_counts_failures_and_successes_of_all_calls() {
    let (busy, ok) = (|| fails(StatusNumber::UNAVAILABLE), || replies("x"));
    let script = [
        vec![ok(), busy(), busy(), ok(), busy(), busy(), ok()],
        vec![busy(), busy(), busy(), ok(), ok(), ok(), ok(), ok()],
        vec![busy(), ok(), busy()],
    ]
    .concat();
    let policy = retry_policy(4, "0.01s", "0.01s", 1.0, "UNAVAILABLE");
    let harness = harness(&throttled_config(&policy, 10, 0.5), script);
    let expected = [
        (Code::Ok, 1, 10.0),
        (Code::Ok, 4, 8.5),
        (Code::Ok, 7, 7.0),
        (Code::Unavailable, 9, 5.0),
        (Code::Unavailable, 10, 4.0),
        (Code::Ok, 11, 4.5),
        (Code::Ok, 12, 5.0),
        (Code::Ok, 13, 5.5),
        (Code::Ok, 14, 6.0),
        (Code::Ok, 15, 6.5),
        (Code::Ok, 17, 6.0),
        (Code::Unavailable, 18, 5.0),
    ];
    for (index, expected) in expected.into_iter().enumerate() {
        let code = harness.unary("x").await.code;
        let tokens = harness.control.tokens().unwrap();
        assert_eq!((code, harness.attempts(), tokens), expected, "call {index}");
    }
    harness.finish().await;
}

fn throttled_json(tokens: &str, attempts: u32) -> String {
    let policy = RETRY.replace(r#""maxAttempts": 3"#, &format!(r#""maxAttempts": {attempts}"#));
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], {policy} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    )
}

fn busy_server() -> Server {
    Server::new(Script::new().default_answer(Answer::trailers_only(StatusNumber::UNAVAILABLE)))
}

/// grpc-java: #11274, the throttle was ignored after the same config was applied again. grpc-go refills it.
#[tokio::test(start_paused = true)]
async fn throttle_keeps_tokens_when_same_config_is_set_again() {
    let text = throttled_json("10", 3);
    let mut harness = Harness::with_layer(RetryLayer::from_json(&text).unwrap(), busy_server());
    assert_eq!(harness.call().await.starts().len(), 3);
    harness.control.set_json(&text).unwrap();
    assert_eq!(harness.tokens(), 7_000);
    harness.call().await;
    assert_eq!((harness.call().await.end().0, harness.tokens()), (StopReason::Throttled, 4_000));
}

/// grpc-js: grpc-node#2923, a user saw one attempt instead of three with a throttle. With few tokens that is
/// correct: retries are allowed while more than half of the tokens is left after the failure.
#[tokio::test(start_paused = true)]
async fn throttle_boundary_table() {
    let table = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 4), (9, 5), (10, 5)];
    for (tokens, attempts) in table {
        let layer = RetryLayer::from_json(&throttled_json(&tokens.to_string(), 5)).unwrap();
        let mut harness = Harness::with_layer(layer, busy_server());
        assert_eq!(harness.call().await.starts().len(), attempts, "{tokens} tokens");
    }
}

/// grpc-go: #2670, the largest valid number of tokens was refused.
#[test]
fn throttle_max_tokens_1000_valid_1001_invalid() {
    assert!(ServiceConfig::parse(&throttled_json("1000", 3)).is_ok());
    let problems = ServiceConfig::parse(&throttled_json("1001", 3)).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-tokens");
    assert!(RetryLayer::from_json(&throttled_json("1001", 3)).is_err());
}

/// A config with retries and a throttle of this many tokens.
fn throttled_service_config(tokens: u32) -> ServiceConfig {
    let text = format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], {RETRY} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    );
    ServiceConfig::parse(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn throttle_is_shared_by_layers_with_one_server_name() {
    let named = |name: &str| layer(RETRY).for_server(name).build();
    let mut one = Harness::with_layer(named("throttle-shared"), busy_server());
    let mut other = Harness::with_layer(named("throttle-shared"), busy_server());
    let other_name = Harness::with_layer(named("throttle-other"), busy_server());
    let unnamed = Harness::with_layer(layer(RETRY).build(), busy_server());
    assert_eq!(one.call().await.starts().len(), 3);
    assert_eq!((one.tokens(), other.tokens()), (7_000, 7_000));
    // The fifth failure leaves half of the tokens, which stops retries.
    let outcome = other.call().await;
    assert_eq!((outcome.end().0, outcome.starts().len()), (StopReason::Throttled, 2));
    assert_eq!((one.tokens(), other.tokens()), (5_000, 5_000));
    let outcome = one.call().await;
    assert_eq!(
        (outcome.end().0, outcome.code(), outcome.starts().len()),
        (StopReason::Throttled, Code::Unavailable, 1)
    );
    assert_eq!((other_name.tokens(), unnamed.tokens()), (10_000, 10_000));
    let throttled = |harness: &Harness| harness.control.statistics()[UNARY].throttled;
    assert_eq!((throttled(&one), throttled(&other)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn throttle_is_shared_by_clones_of_a_layer() {
    let layer = layer(RETRY).build();
    let mut one = Harness::with_layer(layer.clone(), busy_server());
    let other = Harness::with_layer(layer, busy_server());
    one.call().await;
    assert_eq!(other.tokens(), 7_000);
}

#[tokio::test(start_paused = true)]
async fn throttle_tokens_are_kept_or_scaled_by_new_config() {
    let layer = RetryLayer::builder().config(throttled_service_config(10)).build();
    let mut harness = Harness::with_layer(layer, busy_server());
    harness.call().await;
    assert_eq!(harness.tokens(), 7_000);
    harness.control.set_config(throttled_service_config(10));
    assert_eq!(harness.tokens(), 7_000);
    harness.control.set_config(throttled_service_config(100));
    assert_eq!(harness.tokens(), 70_000);
    harness.control.set_config(throttled_service_config(10));
    assert_eq!(harness.tokens(), 7_000);
    harness.control.set_config(ServiceConfig::default());
    assert_eq!(harness.control.tokens(), None);
    harness.control.set_config(throttled_service_config(10));
    assert_eq!(harness.tokens(), 10_000, "a new throttle is full");
}

#[tokio::test(start_paused = true)]
async fn throttle_tokens_are_taken_over_by_second_layer() {
    let named = |tokens| {
        RetryLayer::builder().config(throttled_service_config(tokens)).for_server("throttle-two")
    };
    let mut first = Harness::with_layer(named(10).build(), busy_server());
    first.call().await;
    let second = Harness::with_layer(named(20).build(), busy_server());
    assert_eq!((first.tokens(), second.tokens()), (14_000, 14_000));
}

#[tokio::test(start_paused = true)]
async fn throttle_is_not_removed_by_a_layer_without_one() {
    let named = || RetryLayer::builder().for_server("throttle-untouched");
    let mut one =
        Harness::with_layer(named().config(throttled_service_config(10)).build(), busy_server());
    one.call().await;
    let other = Harness::with_layer(named().build(), busy_server());
    other.control.set_json("{}").unwrap();
    assert_eq!((one.tokens(), other.tokens()), (7_000, 7_000));
    one.control.set_json("{}").unwrap();
    assert_eq!(other.control.tokens(), None, "the layer that set it removes it for all");
}

#[tokio::test(start_paused = true)]
async fn throttle_with_retries_disabled_counts_nothing() {
    for (retries, tokens) in [(Retries::Off, 7_000), (Retries::Transparent, 7_100)] {
        let script =
            Script::new().attempts(vec![Answer::trailers_only(StatusNumber::UNAVAILABLE); 4]);
        let script = script.default_answer(Answer::echo());
        let mut harness = Harness::with_layer(layer(RETRY).build(), Server::new(script));
        assert_eq!(harness.call().await.starts().len(), 3);
        harness.control.set_retries(retries);
        assert_eq!(harness.call().await.code(), Code::Unavailable);
        assert_eq!(harness.tokens(), 7_000, "without a policy no status takes a token");
        assert_eq!(harness.call().await.code(), Code::Ok);
        assert_eq!(harness.tokens(), tokens, "{retries:?}");
    }
}
