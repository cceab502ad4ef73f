use std::time::Duration;

use redial::strategy::{Decision, Request};
use redial::{ms, s};
use redial_couchbase::client::{
    COLLECTION_KEY_BYTES_MAX, Client, KEY_BYTES_MAX, RequestError, VALUE_BYTES_MAX,
};
use redial_couchbase::{TerminalError, reason};
use redial_faults::couchbase::{Answer, Script};

use crate::common::{options, ready, serve, unchanged_options};

#[tokio::test(start_paused = true)]
async fn limits_of_keys_and_values_are_exact() {
    let (client, server) = ready(Script::new().scope("s", ["c"])).await;
    let documents = client.collection("s", "c");
    let longest = "k".repeat(COLLECTION_KEY_BYTES_MAX);
    documents.upsert(longest.clone(), "1").await.unwrap();
    let in_default = "k".repeat(KEY_BYTES_MAX);
    client.default_collection().upsert(in_default.clone(), "1").await.unwrap();
    documents.upsert("a", vec![0; VALUE_BYTES_MAX]).await.unwrap();
    assert_eq!(documents.get("a").await.unwrap().value.len(), VALUE_BYTES_MAX);
    let sent = server.request_count();
    for (key, value, text) in [
        (longest + "k", 0, "the key has 247 bytes; at most 246 are allowed"),
        (String::new(), 0, "the key is empty"),
        (
            "a".to_owned(),
            VALUE_BYTES_MAX + 1,
            "the value has 20971521 bytes; at most 20971520 are allowed",
        ),
    ] {
        let error = documents.upsert(key, vec![0; value]).await.unwrap_err();
        assert_eq!((error.last().unwrap().to_string().as_str(), error.attempts()), (text, 1));
    }
    let error = client.default_collection().upsert(in_default + "k", "1").await.unwrap_err();
    let text = "the key has 251 bytes; at most 250 are allowed";
    assert_eq!(error.last().unwrap().to_string(), text);
    assert_eq!(server.request_count(), sent, "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn limits_of_requests_in_retry_are_exact() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).requests_in_retry_max(2));
    client.wait_until_ready(s(1)).await.unwrap();
    server.push_answers([0x86; 3].map(Answer::status));
    let documents = client.default_collection();
    let slow = |_: &Request<'_>| Decision::Retry(ms(100));
    let waiting = ["a", "b"].map(|key| {
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert(key, "1").strategy(slow).await.map(|_| ()) })
    });
    tokio::time::sleep(ms(1)).await;
    assert_eq!(client.requests_in_retry(), 2);
    let error = documents.upsert("c", "1").await.unwrap_err();
    let Some(RequestError::TooManyRequestsInRetry(cause)) = error.last() else { panic!("{error}") };
    assert_eq!(cause.status(), Some(0x86));
    for request in waiting {
        request.await.unwrap().unwrap();
    }
    assert_eq!(client.requests_in_retry(), 0);
    // What is always retried counts, too.
    let client = Client::open(options(&server).requests_in_retry_max(0));
    tokio::time::sleep(ms(1)).await;
    server.push_answers([Answer::status(0x07)]);
    let error = client.default_collection().upsert("c", "1").await.unwrap_err();
    assert!(matches!(error.last(), Some(RequestError::TooManyRequestsInRetry(_))), "{error}");
    // What would not be retried keeps its own error.
    server.push_answers([Answer::close()]);
    let error = client.default_collection().upsert("c", "1").await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT));
}

#[tokio::test(start_paused = true)]
async fn limits_of_requests_in_retry_keep_final_errors() {
    let server = serve(Script::new().user("app", "secret"));
    let without_retries = unchanged_options(&server).requests_in_retry_max(0);
    let client = Client::open(without_retries.clone().credentials("app", "wrong"));
    tokio::time::sleep(ms(1)).await;
    let error = client.default_collection().upsert("a", "1").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure), "{error}");
    assert_eq!(error.reason(), Some(reason::AUTHENTICATION_ERROR));
    // What the strategy declines, now or later, keeps its error; what it retries has no place.
    let client = Client::open(without_retries.credentials("app", "secret"));
    client.wait_until_ready(s(1)).await.unwrap();
    for (is_retried, decide) in [
        (false, (|_: &Request<'_>| Decision::Decline) as fn(&Request<'_>) -> Decision),
        (false, |_| Decision::later(async { None::<Duration> })),
        (true, |_| Decision::Retry(ms(1))),
        (true, |_| Decision::later(async { Some(ms(1)) })),
    ] {
        server.push_answers([Answer::status(0x86)]);
        let documents = client.default_collection();
        let error = documents.upsert("a", "1").strategy(decide).await.unwrap_err();
        let is_refused = matches!(error.last(), Some(RequestError::TooManyRequestsInRetry(_)));
        assert_eq!((is_refused, error.attempts()), (is_retried, 1), "{error}");
        assert_eq!(error.reason(), Some(reason::KV_TEMPORARY_FAILURE));
    }
    assert_eq!(client.requests_in_retry(), 0);
}
