use redial::strategy::{Decision, Request};
use redial::{ms, s};
use redial_couchbase::client::{CircuitBreakerOptions, CircuitBreakerState, Client};
use redial_couchbase::reason;
use redial_faults::couchbase::{Answer, Handle, Script};

use crate::common::{options, serve};

fn breaker() -> CircuitBreakerOptions {
    let mut breaker = CircuitBreakerOptions::DEFAULT;
    (breaker.requests_min, breaker.open_for) = (4, s(1));
    breaker
}

fn state(client: &Client) -> CircuitBreakerState {
    client.endpoints()[0].circuit_breaker
}

async fn opened() -> (Client, Handle) {
    let server = serve(Script::new());
    let client = Client::open(options(&server).circuit_breaker(Some(breaker())));
    client.wait_until_ready(s(1)).await.unwrap();
    server.push_answers([Answer::hang(), Answer::hang(), Answer::hang(), Answer::hang()]);
    for _ in 0..4 {
        let error = client.default_collection().get("a").timeout(ms(10)).await.unwrap_err();
        assert!(error.is_timeout());
    }
    (client, server)
}

#[tokio::test(start_paused = true)]
async fn breaker_opens_after_timeouts_and_closes_after_a_probe() {
    let (client, server) = opened().await;
    assert_eq!(state(&client), CircuitBreakerState::Open);
    let sent = server.request_count();
    let documents = client.default_collection();
    let declined = documents.upsert("a", "1").strategy(|_: &Request<'_>| Decision::Decline);
    let error = declined.await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::CIRCUIT_BREAKER_OPEN));
    assert_eq!(server.request_count(), sent, "nothing was sent");
    // Not idempotent, and retried all the same: it was never sent.
    documents.upsert("a", "1").await.unwrap();
    assert_eq!(server.request_count(), sent + 1);
    assert_eq!(state(&client), CircuitBreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn breaker_sends_one_probe_at_a_time() {
    let (client, server) = opened().await;
    tokio::time::sleep(s(1)).await;
    let sent = server.request_count();
    server.push_answers([Answer::serve().after(ms(100))]);
    let documents = client.default_collection();
    let requests = (0..5).map(|_| {
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert("a", "1").await.map(|_| ()) })
    });
    let requests: Vec<_> = requests.collect();
    tokio::time::sleep(ms(50)).await;
    assert_eq!(state(&client), CircuitBreakerState::HalfOpen);
    for request in requests {
        request.await.unwrap().unwrap();
    }
    let arrived: Vec<_> =
        server.requests()[sent as usize..].iter().map(|request| request.at).collect();
    assert_eq!(arrived.len(), 5);
    assert!(arrived[1] - arrived[0] >= ms(100), "the others waited for the probe");
}

#[tokio::test(start_paused = true)]
async fn breaker_counts_every_response_as_success() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).circuit_breaker(Some(breaker())));
    client.wait_until_ready(s(1)).await.unwrap();
    server.push_answers([0x86; 8].map(Answer::status));
    client.default_collection().upsert("a", "1").await.unwrap();
    assert_eq!(state(&client), CircuitBreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn breaker_ignores_requests_from_before_it_opened() {
    let server = serve(Script::new());
    let client = Client::open(options(&server).circuit_breaker(Some(breaker())));
    client.wait_until_ready(s(1)).await.unwrap();
    let documents = client.default_collection();
    let early = |timeout| {
        server.push_answers([Answer::hang()]);
        let documents = documents.clone();
        tokio::spawn(async move { documents.get("a").timeout(timeout).await.map(|_| ()) })
    };
    // It times out, and the other one is dropped, while the probe is in flight.
    let (timed_out, dropped) = (early(ms(1060)), early(s(10)));
    tokio::time::sleep(ms(1)).await;
    server.push_answers([(); 4].map(|()| Answer::hang()));
    for _ in 0..4 {
        documents.get("a").timeout(ms(10)).await.unwrap_err();
    }
    assert_eq!(state(&client), CircuitBreakerState::Open);
    tokio::time::sleep(s(1)).await;
    let sent = server.request_count();
    server.push_answers([Answer::serve().after(ms(100))]);
    let probe = {
        let documents = documents.clone();
        tokio::spawn(async move { documents.upsert("a", "1").await.map(|_| ()) })
    };
    tokio::time::sleep(ms(50)).await;
    timed_out.await.unwrap().unwrap_err();
    dropped.abort();
    dropped.await.unwrap_err();
    assert_eq!(state(&client), CircuitBreakerState::HalfOpen);
    let declined = documents.upsert("b", "1").strategy(|_: &Request<'_>| Decision::Decline);
    assert_eq!(declined.await.unwrap_err().reason(), Some(reason::CIRCUIT_BREAKER_OPEN));
    probe.await.unwrap().unwrap();
    assert_eq!(state(&client), CircuitBreakerState::Closed);
    assert_eq!(server.request_count(), sent + 1, "one probe");
}

#[tokio::test(start_paused = true)]
async fn breaker_sends_another_probe_when_one_takes_too_long() {
    let (client, server) = opened().await;
    tokio::time::sleep(s(1)).await;
    server.push_answers([Answer::hang()]);
    let documents = client.default_collection();
    let silent = {
        let documents = documents.clone();
        tokio::spawn(async move { documents.get("a").timeout(s(3600)).await.map(|_| ()) })
    };
    tokio::time::sleep(ms(1)).await;
    assert_eq!(state(&client), CircuitBreakerState::HalfOpen);
    documents.upsert("a", "1").await.unwrap();
    assert_eq!(state(&client), CircuitBreakerState::Closed);
    silent.abort();
}
