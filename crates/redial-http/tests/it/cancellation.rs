//! Dropped requests: nothing is sent or spent after the drop.

use std::sync::Arc;
use std::time::Duration;

use redial::throttle::{Bucket, RetryBudget};
use redial::{Policy, ms, s};
use redial_http::RetryLayer;
use redial_http::reqwest::SendWith;

use crate::server::{Answer, Server, client};

#[tokio::test]
async fn request_dropped_during_the_backoff_refunds_its_retry() {
    let server = Server::answering([Answer::status(503)]).await;
    let budget = Arc::new(RetryBudget::new(5.0, 0.0));
    let retries = RetryLayer::new(&Policy::constant(s(30)).build()).shared_budget(budget.clone());
    let mut call = Box::pin(client().get(server.url("/")).send_with(&retries));
    while budget.tokens(0) == Some(5.0) {
        assert!(tokio::time::timeout(ms(10), &mut call).await.is_err());
    }
    assert_eq!(budget.tokens(0), Some(4.0), "the retry is decided, and waits");
    drop(call);
    assert_eq!(budget.tokens(0), Some(5.0));
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn request_dropped_during_an_attempt_is_no_failure() {
    let server = Server::answering([Answer::status(200).after(s(30))]).await;
    let budget = Arc::new(RetryBudget::new(5.0, 0.0));
    let retries = RetryLayer::standard().shared_budget(budget.clone());
    let call = client().get(server.url("/")).send_with(&retries);
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    assert_eq!((server.requests(), budget.tokens(0)), (1, Some(5.0)));
}
