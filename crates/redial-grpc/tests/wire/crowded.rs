//! Many calls at once through a few places: nobody keeps one, and no server is promised time that its
//! client does not have (decision G5). Method: a limit of concurrency below the layer, random answers, deadlines
//! and drops, each seed a crowd of its own.

use fastrand::Rng;
use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, SharedCallLog};
use tokio::time::Instant;
use tonic::Request;
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;

use super::rig::{HEDGE, RETRY, channel, endpoint, layer, message, ms};

const CROWDS: u64 = 30;
const CALLS: usize = 20;
const PLACES: usize = 3;

fn answer(random: &mut Rng) -> Answer {
    let answer = match random.u8(..8) {
        0..=2 => Answer::trailers_only(Peer::UNAVAILABLE),
        3 => Answer::trailers_only(Peer::UNAVAILABLE).pushback("20"),
        4 => Answer::reset(Reason::REFUSED_STREAM),
        5 => Answer::hang(),
        _ => Answer::headers(),
    };
    let answer = answer.after(ms(random.u64(..60)));
    if random.bool() { answer } else { Answer::reply("") }
}

async fn crowd(seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let layer = layer([RETRY, HEDGE][random.usize(..2)]).build();
    let answers = (0..CALLS * 3).map(|_| answer(random));
    let server = Server::new(Script::new().attempts(answers).otherwise(Answer::reply("")));
    let server = server.on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let places = GlobalConcurrencyLimitLayer::new(PLACES);
    let service = ServiceBuilder::new().layer(layer.clone()).layer(places).service(channel);
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
        // One that waited for its first place in vain was no call.
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
    for _ in 0..=PLACES {
        // The server may still have an answer that never comes, but a place it must get.
        let mut request = Request::new(message("x"));
        request.set_timeout(ms(1000));
        let last = tokio::time::timeout(ms(60_000), client.unary(request)).await;
        last.unwrap_or_else(|_| panic!("seed {seed}: somebody keeps a place")).ok();
    }
}

/// Red: `if false && !stamp(&mut request)` in `Attempt::poll`.
#[tokio::test(start_paused = true)]
async fn of_many_calls_for_few_places_none_keeps_one_and_none_promises_time_that_it_has_not() {
    for seed in 0..CROWDS {
        crowd(seed).await;
    }
}

/// One thread, one connection and one place in the service below: a call that waits for its retry
/// holds none of them (decision L6).
#[tokio::test(start_paused = true)]
async fn sleeping_retry_does_not_delay_other_calls() {
    let hour = "3600000";
    let answers = [Answer::trailers_only(Peer::UNAVAILABLE).pushback(hour), Answer::reply("")];
    let script = Script::new().call("sleeper", answers).otherwise(Answer::reply(""));
    let server = Server::new(script).on_pipe();
    let channel = channel(&endpoint(), &server.connector());
    let place = GlobalConcurrencyLimitLayer::new(1);
    let layer = layer(RETRY).build();
    let service = ServiceBuilder::new().layer(layer).layer(place).service(channel);
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
