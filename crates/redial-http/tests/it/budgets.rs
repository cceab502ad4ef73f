//! Retry budgets per host, shared, or of the policy.

use std::sync::Arc;

use redial::throttle::{Bucket, KeyedBudgets, RetryBudget};
use redial::{Report, StopReason, ms};
use redial_http::reqwest::SendWith;
use redial_http::{RequestOptions, RetryLayer};

use crate::server::{Answer, FAST, Server, client};

/// Two retries per host, and none more.
fn two_retries(hosts_max: usize) -> RetryLayer {
    let budgets = KeyedBudgets::like(hosts_max, RetryBudget::new(2.0, 0.0));
    RetryLayer::new(&FAST).host_budgets(budgets)
}

async fn get(server: &Server, retries: &RetryLayer) -> Report {
    let response = client().get(server.url("/")).send_with(retries).await.unwrap();
    response.extensions().get::<Report>().unwrap().clone()
}

#[tokio::test]
async fn budget_of_a_failing_host_leaves_other_hosts_alone() {
    let (one, other) = (
        Server::answering([Answer::status(503)]).await,
        Server::answering([Answer::status(503)]).await,
    );
    let retries = two_retries(10);
    let report = get(&one, &retries).await;
    assert_eq!((report.attempts, report.stop_reason), (3, StopReason::Throttled));
    assert_eq!(get(&one, &retries).await.attempts, 1);
    assert_eq!(get(&other, &retries).await.attempts, 3, "another port is another host");
}

#[tokio::test]
async fn budget_of_the_least_recent_host_is_dropped() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::answering([Answer::status(503)]).await);
    }
    let retries = two_retries(2);
    // At the bound both keep their budgets; one past it, the first one starts anew.
    for (server, attempts) in [(0, 3), (1, 3), (0, 1), (1, 1), (2, 3), (1, 1), (0, 3)] {
        assert_eq!(get(&servers[server], &retries).await.attempts, attempts, "server {server}");
    }
}

#[tokio::test]
async fn budget_can_be_shared_with_other_clients() {
    let server = Server::answering([Answer::status(503)]).await;
    let budget = Arc::new(RetryBudget::new(3.0, 0.5));
    let retries = RetryLayer::new(&FAST).shared_budget(budget.clone());
    assert_eq!(get(&server, &retries).await.attempts, 4);
    assert_eq!(budget.tokens(0), Some(0.0));
    let other = RetryLayer::new(&FAST).shared_budget(budget.clone());
    assert_eq!(get(&server, &other).await.attempts, 1);
    let healthy = Server::answering([Answer::status(404)]).await;
    client().get(healthy.url("/")).send_with(&other).await.unwrap();
    assert_eq!(budget.tokens(0), Some(0.5), "a response that is not retried is a success");
}

#[tokio::test]
async fn budget_of_the_policy_is_used_by_option() {
    let server = Server::answering([Answer::status(503)]).await;
    let policy = redial::Policy::exponential(ms(1)).attempts(4).build();
    let policy = policy.with_budget(Arc::new(RetryBudget::new(1.0, 0.0)));
    assert_eq!(get(&server, &RetryLayer::new(&policy).policy_throttle()).await.attempts, 2);
}

#[tokio::test]
async fn budget_of_the_layer_applies_to_policies_of_requests() {
    let server = Server::answering([Answer::status(503)]).await;
    let retries = two_retries(10);
    let options = RequestOptions::new().policy(&FAST);
    let request = client().get(server.url("/"));
    let response = request.send_with_options(&retries, options).await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 3);
}

#[tokio::test]
async fn budget_limits_the_load_in_an_outage() {
    let server = Server::answering([Answer::status(503)]).await;
    let retries = RetryLayer::new(&FAST);
    for _ in 0..100 {
        client().get(server.url("/")).send_with(&retries).await.unwrap();
    }
    // A reserve of 10 retries and 1 per second; three times as many without a budget. Generous: a busy
    // machine may take many seconds.
    assert!((110..=200).contains(&server.requests()), "{}", server.requests());
}
