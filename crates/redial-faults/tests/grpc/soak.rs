//! Under random faults from both sides, every stream and connection ends, and the counts match the
//! record.

use redial_faults::grpc::{
    Answer, Close, LastStream, Reason, Script, Server, StatusNumber, WaitFor,
};

use super::raw::{Client, gathered, late, message, ms};

/// A deterministic random generator (linear congruential).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn any_answer(draws: &mut Draws) -> Answer {
    let after = ms(draws.below(20));
    let answer = match draws.below(12) {
        0 => Answer::trailers_only(StatusNumber::UNAVAILABLE),
        1 => Answer::trailers_only(StatusNumber::ABORTED).without_end_stream(),
        2 => Answer::reply("x"),
        3 => Answer::echo(),
        4 => Answer::reset(Reason::REFUSED_STREAM),
        5 => Answer::headers().message(vec![1; 100_000]).then_reset(Reason::NO_ERROR),
        6 => Answer::go_away(LastStream::Below, Reason::NO_ERROR),
        7 => Answer::go_away(LastStream::Above, Reason::NO_ERROR)
            .then_headers()
            .trailers(StatusNumber::OK),
        8 => Answer::close(Close::Abrupt),
        9 => Answer::headers().then_close(Close::Graceful),
        10 => Answer::hang(),
        _ => Answer::trailers_only(StatusNumber::UNAVAILABLE).accepts(draws.below(3)),
    };
    let once = match draws.below(4) {
        0 => WaitFor::Headers,
        1 => WaitFor::Request,
        2 => WaitFor::Messages(1),
        _ => WaitFor::Idle,
    };
    answer.after(after).wait_for(once)
}

/// Makes a call with a timeout, over its own connection or a shared one.
async fn play(
    server: &redial_faults::grpc::Handle<redial_faults::grpc::Pipe>,
    seed: u64,
    calls: u64,
) {
    let mut draws = Draws(seed);
    let mut client = Client::of(server).await;
    for _ in 0..calls {
        let mut call = match client.begin(&[], false).await {
            Ok(call) => call,
            Err(_) => {
                client = Client::of(server).await;
                match client.begin(&[], false).await {
                    Ok(call) => call,
                    Err(_) => continue,
                }
            }
        };
        for _ in 0..draws.below(3) {
            // This fails if the stream has already ended.
            let _ = call.request.send_data(message(vec![1; draws.below(5000) as usize]), false);
        }
        let _ = call.request.send_data(message("last"), draws.below(2) == 0);
        let _ = tokio::time::timeout(ms(draws.below(30)), call.seen()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn soak_every_stream_ends() {
    for seed in 0..5 {
        let mut draws = Draws(seed);
        let answers: Vec<_> = (0..400).map(|_| any_answer(&mut draws)).collect();
        let script = Script::new().attempts(answers).default_answer(Answer::reply("x"));
        let server = Server::new(script).concurrent_streams(50).on_pipe();
        let workers = (0..10).map(|worker| play(&server, seed * 100 + worker, 50));
        let mut all: Vec<_> = workers.map(Box::pin).collect();
        std::future::poll_fn(|cx| {
            all.retain_mut(|worker| worker.as_mut().poll(cx).is_pending());
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        server
            .until_counts(|counts| counts.streams_open == 0 && counts.connections_open == 0)
            .await;
        let record = server.record();
        assert_eq!(record.counts.streams, record.streams.len() as u64);
        assert_eq!(record.counts.connections, record.connections.len() as u64);
        for stream in &record.streams {
            let end = stream.end.unwrap();
            assert!(stream.arrived <= end.at, "{stream:?}");
            assert!(stream.half_closed.is_none_or(|at| at <= end.at), "{stream:?}");
            assert!(stream.messages * 5 <= stream.bytes, "{stream:?}");
        }
        assert!(record.counts.streams > 300, "{:?}", record.counts);
    }
}

#[tokio::test(start_paused = true)]
async fn soak_many_client_resets_are_not_an_attack() {
    let script = Script::new().default_answer(Answer::reply("x").after(ms(5)));
    let server = Server::new(script).pipe_bytes(1024 * 1024).on_pipe();
    let mut client = Client::over(gathered(server.connect().await.unwrap())).await;
    let calls: Vec<_> = (0..1500).map(|_| client.begin_unready(&[], true).unwrap()).collect();
    // The headers are in flight, and the resets follow immediately.
    client.settle().await;
    drop(calls);
    let seen = client.unary("x").await;
    assert_eq!(seen.trailer("grpc-status"), Some("0"), "{seen:?}");
    server.idle().await;
    let record = server.shutdown().await;
    assert_eq!(record.counts.streams, 1501);
    assert_eq!(record.streams.iter().filter(|it| it.reset.is_some()).count(), 1500);
}

#[tokio::test(start_paused = true)]
async fn soak_many_server_resets_still_accept_late_frames() {
    let script = Script::new()
        .attempts(vec![Answer::reset(Reason::CANCEL).wait_for(WaitFor::Headers); 1500])
        .default_answer(Answer::reply("x"));
    let server = Server::new(script).on_pipe();
    let mut client = Client::over(late(server.connect().await.unwrap())).await;
    let mut calls: Vec<_> = (0..1500).map(|_| client.begin_unready(&[], false).unwrap()).collect();
    server.until_counts(|counts| counts.streams == 1500 && counts.streams_open == 0).await;
    for call in &mut calls {
        // The client does not know yet that it was reset.
        call.request.send_data(message("x"), true).unwrap();
    }
    for call in calls {
        assert_eq!(call.seen().await.reason(), Some(Reason::CANCEL));
    }
    assert_eq!(client.unary("x").await.trailer("grpc-status"), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_every_stream_ends_on_several_threads() {
    let mut draws = Draws(7);
    let answers: Vec<_> = (0..800).map(|_| any_answer(&mut draws)).collect();
    let script = Script::new().attempts(answers).default_answer(Answer::reply("x"));
    let server = std::sync::Arc::new(Server::new(script).on_pipe());
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let server = server.clone();
        workers.spawn(async move { play(&server, worker, 100).await });
    }
    workers.join_all().await;
    let over =
        server.until_counts(|counts| counts.streams_open == 0 && counts.connections_open == 0);
    tokio::time::timeout(std::time::Duration::from_secs(20), over).await.unwrap();
    assert!(server.counts().streams > 400, "{:?}", server.counts());
}
