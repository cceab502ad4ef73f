//! The throttle.

use redial::StopReason;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{RetryLayer, ServiceConfig};
use tonic::Code;

use super::rig::{RETRY, Rig, message};

fn throttled(tokens: &str, attempts: u32) -> String {
    let policy = RETRY.replace(r#""maxAttempts": 3"#, &format!(r#""maxAttempts": {attempts}"#));
    format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], {policy} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    )
}

fn busy() -> Server {
    Server::new(Script::new().otherwise(Answer::trailers_only(Peer::UNAVAILABLE)))
}

/// In grpc-java a throttle from the default config was not respected after the config was applied
/// again (#11274); grpc-go fills it anew.
///
/// Red: make it anew (`Some(Arc::new(throttling.tokens()))` for all in `Server::configure`).
#[tokio::test(start_paused = true)]
async fn same_config_update_keeps_tokens() {
    let text = throttled("10", 3);
    let mut rig = Rig::of(RetryLayer::from_json(&text).unwrap(), busy());
    assert_eq!(rig.call().await.starts().len(), 3);
    rig.control.set_json(&text).unwrap();
    assert_eq!(rig.tokens(), 7_000);
    rig.call().await;
    assert_eq!((rig.call().await.end().0, rig.tokens()), (StopReason::Throttled, 4_000));
}

/// A user of grpc-js saw one attempt instead of three once there was a throttle (grpc-node#2923):
/// with few tokens, that is what the rule says. Retries are allowed while more than half is left,
/// after the failure has been counted.
///
/// Red: allow them at the half (`>=` in `TokenBucket::take`).
#[tokio::test(start_paused = true)]
async fn throttle_boundary_table() {
    let table = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 4), (9, 5), (10, 5)];
    for (tokens, attempts) in table {
        let layer = RetryLayer::from_json(&throttled(&tokens.to_string(), 5)).unwrap();
        let mut rig = Rig::of(layer, busy());
        assert_eq!(rig.call().await.starts().len(), attempts, "{tokens} tokens");
    }
}

/// grpc-go refused the largest number of tokens that is allowed (#2670).
///
/// Red: one less (`999` in `(0, 1000]` of the config's reader).
#[test]
fn max_tokens_1000_valid_1001_invalid() {
    assert!(ServiceConfig::parse(&throttled("1000", 3)).is_ok());
    let problems = ServiceConfig::parse(&throttled("1001", 3)).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-tokens");
    assert!(RetryLayer::from_json(&throttled("1001", 3)).is_err());
}

/// hyper makes a clean end of `RST_STREAM(NO_ERROR)` in a body, so that a response which was cut off
/// looks like one that ended. Without a status it has failed.
///
/// Red: take it for a success (`Code::Ok` where a response just stops in `body::saw`).
#[tokio::test(start_paused = true)]
async fn rst_no_error_without_trailers_is_failure() {
    let cut = Answer::headers().message("").then_reset(Reason::NO_ERROR);
    let mut rig = Rig::new(RETRY, [Answer::trailers_only(Peer::UNAVAILABLE), cut.clone()]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.end().0), (Code::Unknown, StopReason::NotRetryable));
    assert_eq!(rig.tokens(), 9_000, "a success would have added to it");
    let mut rig = Rig::new(RETRY, [cut]);
    let mut stream = rig.client.server_stream(message("x")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unknown);
}
