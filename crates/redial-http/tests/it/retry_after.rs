//! `Retry-After` over real connections (decision H3). The forms of the header are tests of its module.

use std::time::{Duration, Instant, SystemTime};

use redial::{Directive, Failure, Policy, Report, StopReason, Throttle, ms, s};
use redial_http::reqwest::SendWith;
use redial_http::{HttpRules, Outcome, RequestOptions, RetryLayer};

#[cfg(feature = "tracing")]
use crate::events::Warnings;
use crate::server::{Answer, Server, client, fast};

/// The time of a GET that is rejected once with this header.
async fn time_of(retries: &RetryLayer, options: RequestOptions, value: impl ToString) -> Duration {
    let rejected = Answer::status(429).header("retry-after", value);
    let server = Server::answering([rejected, Answer::status(200)]).await;
    let start = Instant::now();
    let request = client().get(server.url("/"));
    let response = request.send_with_options(retries, options).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (200, 2));
    start.elapsed()
}

#[tokio::test]
async fn retry_after_in_seconds_lengthens_the_delay() {
    let time = time_of(&fast(), RequestOptions::new(), 1).await;
    assert!(time >= s(1) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn retry_after_date_counts_from_the_response_date() {
    // The clock of this server is an hour behind.
    let now = SystemTime::now() - s(3600);
    let answer = Answer::status(503)
        .header("date", httpdate::fmt_http_date(now))
        .header("retry-after", httpdate::fmt_http_date(now + s(1)));
    let server = Server::answering([answer, Answer::status(200)]).await;
    let start = Instant::now();
    assert_eq!(client().get(server.url("/")).send_with(&fast()).await.unwrap().status(), 200);
    let time = start.elapsed();
    assert!(time >= ms(900) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn retry_after_of_zero_or_unreadable_leaves_the_backoff() {
    for value in ["0", "soon", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let time = time_of(&fast(), RequestOptions::new(), value).await;
        // Generous: the backoff is a millisecond.
        assert!(time < s(10), "{value}: {time:?}");
    }
}

#[tokio::test]
async fn retry_after_shorter_than_the_backoff_leaves_the_backoff() {
    let slow = Policy::constant(ms(1500)).throttle(Throttle::none()).build();
    let time = time_of(&RetryLayer::new(&slow).policy_throttle(), RequestOptions::new(), 1).await;
    assert!(time >= ms(1500), "{time:?}");
}

#[tokio::test]
async fn retry_after_above_its_maximum_returns_the_response_at_once() {
    let server = Server::answering([Answer::status(429).header("retry-after", 61)]).await;
    let response = client().get(server.url("/")).send_with(&fast()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (1, StopReason::HintTooLong));
    assert_eq!(response.status(), 429);
    assert_eq!(response.text().await.unwrap(), "body of 429");
}

#[tokio::test]
async fn retry_after_above_the_deadline_returns_the_response_at_once() {
    let server = Server::answering([Answer::status(503).header("retry-after", 30)]).await;
    let options = RequestOptions::new().deadline(s(20));
    let start = Instant::now();
    let request = client().get(server.url("/"));
    let response = request.send_with_options(&fast(), options).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (1, StopReason::Deadline));
    assert_eq!(response.status(), 503);
    assert!(start.elapsed() < s(15));
}

#[tokio::test]
async fn retry_after_above_its_maximum_is_clamped_by_option() {
    let clamping =
        Policy::exponential(ms(1)).hint_clamp(ms(300)).throttle(Throttle::none()).build();
    let time =
        time_of(&RetryLayer::new(&clamping).policy_throttle(), RequestOptions::new(), 3600).await;
    assert!(time >= ms(300) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn retry_after_of_hedged_get_is_clamped_by_its_policy() {
    let hedged = Policy::hedged(s(30)).attempts(2).hint_clamp(ms(300)).throttle(Throttle::none());
    let retries = fast().hedge_reads(&hedged.build());
    let time = time_of(&retries, RequestOptions::new(), 3600).await;
    assert!(time >= ms(300) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn hint_of_a_classify_function_is_clamped() {
    let clamping =
        Policy::exponential(ms(1)).hint_clamp(ms(300)).throttle(Throttle::none()).build();
    let rules = HttpRules::standard().classify(|_, outcome| match outcome {
        Outcome::Response { status, .. } if status == 429 => {
            Some(Directive::Retry(Failure::server().retry_after(s(3600))))
        }
        _ => None,
    });
    let retries = RetryLayer::new(&clamping).policy_throttle().rules(rules);
    let time = time_of(&retries, RequestOptions::new(), 1).await;
    assert!(time >= ms(300) && time < s(20), "{time:?}");
}

#[tokio::test]
async fn retry_after_is_ignored_by_rule_or_option() {
    let rules = fast().rules(HttpRules::standard().ignore_retry_after());
    let time = time_of(&rules, RequestOptions::new(), 30).await;
    assert!(time < s(15), "{time:?}");
    let time = time_of(&fast(), RequestOptions::new().ignore_retry_after(), 30).await;
    assert!(time < s(15), "{time:?}");
}

#[tokio::test]
async fn retry_after_makes_413_retryable() {
    let server =
        Server::answering([Answer::status(413).header("retry-after", 1), Answer::status(200)])
            .await;
    assert_eq!(
        client().put(server.url("/")).body("x").send_with(&fast()).await.unwrap().status(),
        200
    );
    assert_eq!(server.requests(), 2);
}

#[cfg(feature = "tracing")]
#[tokio::test]
async fn retry_after_that_cannot_be_read_is_one_event() {
    let events = Warnings::default();
    let guard = tracing::subscriber::set_default(events.clone());
    let rejected = Answer::status(429).header("retry-after", "soon");
    let server = Server::answering([rejected, Answer::status(200)]).await;
    client().get(server.url("/")).send_with(&fast()).await.unwrap();
    drop(guard);
    assert_eq!(events.count("unreadable Retry-After"), 1);
}
