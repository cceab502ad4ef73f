//! The tokens that calls share: 4 at most, 0.8 for a success.

use redial_core::StopReason;
use redial_faults::grpc::{Answer, StatusNumber as Said};
use redial_grpc::MethodStatistics;
use tonic::Code;

use super::policy;
use crate::suites::rig::*;

fn four_tokens(script: Vec<Answer>) -> Rig {
    rig(&throttled(&policy(), 4, 0.8), script)
}

fn tokens(rig: &Rig) -> f64 {
    rig.control.tokens().unwrap()
}

#[tokio::test(start_paused = true)]
async fn throttle_allows_retries_above_half_of_its_tokens() {
    let busy = || fails(Said::UNAVAILABLE);
    let mut script = vec![busy(); 6];
    script.extend(vec![replies("a"); 6]);
    script.extend([busy(), busy()]);
    let rig = four_tokens(script);
    // The first call may retry once; the others find too little, and the tokens end at 0.
    let expected = [(2, 2.0), (3, 1.0), (4, 0.0), (5, 0.0), (6, 0.0)];
    for (attempts, left) in expected {
        assert_eq!(rig.unary("x").await.code, Code::Unavailable);
        assert_eq!((rig.attempts(), tokens(&rig)), (attempts, left));
    }
    for left in [0.8, 1.6, 2.4, 3.2, 4.0, 4.0] {
        assert_eq!(rig.unary("x").await.code, Code::Ok);
        assert_eq!(tokens(&rig), left);
    }
    assert_eq!(rig.unary("x").await.code, Code::Unavailable);
    assert_eq!((rig.attempts(), tokens(&rig)), (14, 2.0));
    assert_eq!(throttled_calls(&rig), 6);
    rig.finish().await;
}

fn throttled_calls(rig: &Rig) -> u64 {
    let MethodStatistics { throttled, .. } = rig.statistics("Unary");
    throttled
}

/// A call that meets this answer while another call has taken one of the four tokens: why it ends,
/// and how many are left.
async fn after_one_failure(answer: Answer) -> (StopReason, f64) {
    let rig = four_tokens(vec![fails(Said::INTERNAL).pushback("-1"), answer]);
    rig.unary("the other").await;
    assert_eq!(tokens(&rig), 3.0);
    let (_, stop_reason) = rig.told("x").await;
    let left = tokens(&rig);
    assert_eq!(rig.attempts(), 2);
    rig.finish().await;
    (stop_reason, left)
}

#[tokio::test(start_paused = true)]
async fn throttled_a_retryable_code_without_pushback_counts_and_is_not_retried() {
    let (stop_reason, left) = after_one_failure(fails(Said::UNAVAILABLE)).await;
    assert_eq!((stop_reason, left), (StopReason::Throttled, 2.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_another_code_without_pushback_does_not_count() {
    let (stop_reason, left) = after_one_failure(fails(Said::INTERNAL)).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 3.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_a_retryable_code_with_a_pushback_counts_and_is_not_retried() {
    let (stop_reason, left) = after_one_failure(fails(Said::UNAVAILABLE).pushback("123")).await;
    assert_eq!((stop_reason, left), (StopReason::Throttled, 2.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_another_code_with_a_pushback_does_not_count_and_is_not_retried() {
    // Theirs retries it: a pushback makes any code retryable there (G9).
    let (stop_reason, left) = after_one_failure(fails(Said::INTERNAL).pushback("123")).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 3.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_a_retryable_code_that_must_not_be_retried_counts_once() {
    let (stop_reason, left) = after_one_failure(fails(Said::UNAVAILABLE).pushback("")).await;
    assert_eq!((stop_reason, left), (StopReason::ServerRefused, 2.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_another_code_that_must_not_be_retried_counts() {
    let (stop_reason, left) = after_one_failure(fails(Said::INTERNAL).pushback("")).await;
    assert_eq!((stop_reason, left), (StopReason::NotRetryable, 2.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_a_success_counts_when_its_status_is_there() {
    let failing = || fails(Said::INTERNAL).pushback("-1");
    let answer = Answer::headers().trailers(Said::OK).after(s(1));
    let rig = four_tokens(vec![failing(), failing(), failing(), answer]);
    for _ in 0..3 {
        rig.unary("the other").await;
    }
    assert_eq!(tokens(&rig), 1.0);
    let mut talk = rig.bidi();
    talk.half_close();
    let mut stream = talk.head().await.unwrap().into_inner();
    // Theirs counts here, with the headers (G12).
    assert_eq!(tokens(&rig), 1.0);
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(tokens(&rig), 1.8);
    rig.finish().await;
}
