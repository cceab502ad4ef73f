//! Concurrency limits below the layer: permits are released, and `grpc-timeout` stays true after a wait
//! (decision G5).

use std::time::Duration;

use fastrand::Rng;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber};
use redial_grpc::{CallOptions, SharedCallLog};
use tokio::time::Instant;
use tonic::Request;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;

use crate::common::harness::{
    HEDGE, Harness, RETRY, channel, endpoint, layer, message, ms, within,
};

const SEEDS: u64 = 30;

const CALLS: usize = 20;

const PERMITS: usize = 3;

fn answer(random: &mut Rng) -> Answer {
    let answer = match random.u8(..8) {
        0..=2 => Answer::trailers_only(StatusNumber::UNAVAILABLE),
        3 => Answer::trailers_only(StatusNumber::UNAVAILABLE).pushback("20"),
        4 => Answer::reset(Reason::REFUSED_STREAM),
        5 => Answer::hang(),
        _ => Answer::headers(),
    };
    let answer = answer.after(ms(random.u64(..60)));
    if random.bool() { answer } else { Answer::reply("") }
}

async fn check_seed(seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let layer = layer([RETRY, HEDGE][random.usize(..2)]).build();
    let answers = (0..CALLS * 3).map(|_| answer(random));
    let server = Server::new(Script::new().attempts(answers).default_answer(Answer::reply("")));
    let server = server.on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let permits = GlobalConcurrencyLimitLayer::new(PERMITS);
    let service = ServiceBuilder::new().layer(layer.clone()).layer(permits).service(channel);
    let calls: Vec<_> = (0..CALLS)
        .map(|id| {
            let mut client = EchoClient::new(service.clone());
            let call_log = SharedCallLog::new();
            let mut request = Request::new(message("x"));
            let deadline = ms(random.u64(1..400));
            request.set_timeout(deadline);
            request.metadata_mut().insert("id", (id as u64).into());
            request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
            let patience = ms(random.u64(1..600));
            let call = async move { tokio::time::timeout(patience, client.unary(request)).await };
            (tokio::spawn(call), call_log, deadline)
        })
        .collect();
    let mut ends = Vec::new();
    for (call, call_log, deadline) in calls {
        let _ = call.await.unwrap();
        // A call that never got its first permit has an empty call log.
        let began = call_log.take().events().first().map(|(at, _)| *at);
        ends.push(began.map(|at| std::time::Duration::from_nanos(at) + deadline));
    }
    for stream in server.record().streams {
        let id: usize = stream.headers["id"].to_str().unwrap().parse().unwrap();
        let (end, remains) = (ends[id].unwrap(), stream.timeout().unwrap());
        assert!(stream.arrived + remains <= end, "seed {seed}: {stream:#?} ends at {end:?}");
        assert!(!remains.is_zero(), "seed {seed}: {stream:#?}");
    }
    assert_eq!(layer.control().bytes_kept(), 0, "seed {seed}");
    let mut client = EchoClient::new(service);
    for _ in 0..=PERMITS {
        // The server may never respond, but each call must get a permit.
        let mut request = Request::new(message("x"));
        request.set_timeout(ms(1000));
        let last = tokio::time::timeout(ms(60_000), client.unary(request)).await;
        last.unwrap_or_else(|_| panic!("seed {seed}: a permit was not released")).ok();
    }
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_permits_are_released_and_timeouts_stay_true() {
    for seed in 0..SEEDS {
        check_seed(seed).await;
    }
}

/// A call in backoff blocks neither the thread nor the connection nor the only permit (decision L6).
#[tokio::test(start_paused = true)]
async fn concurrency_limit_is_not_held_by_a_sleeping_retry() {
    let hour = "3600000";
    let answers =
        [Answer::trailers_only(StatusNumber::UNAVAILABLE).pushback(hour), Answer::reply("")];
    let script = Script::new().call("sleeper", answers).default_answer(Answer::reply(""));
    let server = Server::new(script).on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let permit = GlobalConcurrencyLimitLayer::new(1);
    let layer = layer(RETRY).build();
    let service = ServiceBuilder::new().layer(layer).layer(permit).service(channel);
    let client = EchoClient::new(service);
    let mut sleeper = client.clone();
    let mut request = Request::new(message("x"));
    request.metadata_mut().insert("x-redial-call", "sleeper".parse().unwrap());
    let began = Instant::now();
    let sleeping = tokio::spawn(async move { sleeper.unary(request).await });
    server.until_counts(|counts| counts.streams == 1).await;
    for _ in 0..100 {
        client.clone().unary(message("x")).await.unwrap();
    }
    assert_eq!(began.elapsed(), ms(0), "no other call waited");
    assert!(!sleeping.is_finished());
    sleeping.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), ms(3_600_000));
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_is_not_held_by_a_call_without_attempt() {
    let harness = Harness::new(RETRY, Script::new().default_answer(Answer::echo()));
    let channel = channel(&endpoint(), &harness.server.connector());
    let service =
        ServiceBuilder::new().layer(harness.layer.clone()).concurrency_limit(1).service(channel);
    let mut one = EchoClient::new(service.clone());
    let mut other = EchoClient::new(service);
    one.unary(within(Duration::ZERO)).await.unwrap_err();
    let answer = tokio::time::timeout(ms(60_000), other.unary(message("x"))).await;
    answer.expect("the first client released the only permit").unwrap();
}
