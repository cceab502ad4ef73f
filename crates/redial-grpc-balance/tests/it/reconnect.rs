//! Servers that die, come back and say goodbye while calls run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redial_echo::EchoRequest;
use redial_grpc_balance::CallReport;
use redial_grpc_balance::{
    BalancedChannel, CONNECT_BACKOFF_CAP_DEFAULT, CONNECT_BACKOFF_FIRST_DEFAULT, ConnectivityState,
};
use tokio::task::JoinHandle;

use super::faulty_server::{Behaviour, Closing, Faulty};
use super::support::{Client, Pipes, RETRY, answered_by, config, failing, replicas, to, until};

/// Calls that go on until they are stopped; each result is counted.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<Vec<tonic::Status>>>,
}

impl Load {
    fn on(channel: &BalancedChannel) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let call = |_| {
            let mut client = Client::new(channel.clone());
            let (stop, done) = (stop.clone(), done.clone());
            tokio::spawn(async move {
                let mut failed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    failed.extend(client.unary(failing(0)).await.err());
                    done.fetch_add(1, Ordering::Relaxed);
                }
                failed
            })
        };
        let tasks = (0..4).map(call).collect();
        Load { stop, done, tasks }
    }

    /// Until so many more calls are done.
    async fn more(&self, calls: usize) {
        let before = self.done.load(Ordering::Relaxed);
        until("calls go on", || self.done.load(Ordering::Relaxed) >= before + calls).await;
    }

    async fn stop(self) -> Vec<tonic::Status> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        for task in self.tasks {
            failed.extend(task.await.unwrap());
        }
        failed
    }
}

#[tokio::test]
async fn server_restarts_fail_no_retryable_call() {
    for balancing in ["round_robin", "pick_first"] {
        let (mut replicas, log) = replicas(3);
        let first = Duration::from_millis(100);
        let channel = to(&replicas, &config(balancing, RETRY))
            .connect_backoff(first, 4 * first)
            .build()
            .unwrap();
        let load = Load::on(&channel);
        load.more(50).await;
        for dies in [0, 1, 0] {
            replicas[dies].kill();
            load.more(50).await;
            let down = || channel.snapshot().backends[dies].state != ConnectivityState::Ready;
            until("the loss is seen", down).await;
            replicas[dies].restart();
            if balancing == "round_robin" {
                log.take();
                let back = || log.counts().contains_key(&dies);
                until("it has calls again", back).await;
            }
            load.more(50).await;
        }
        let failed = load.stop().await;
        assert!(failed.is_empty(), "{balancing}: {failed:?}");
        assert!(channel.snapshot().backends.iter().all(|it| it.in_flight == 0));
    }
}

#[tokio::test]
async fn goaway_fails_no_call_even_without_a_retry_policy() {
    let (mut replicas, _) = replicas(2);
    replicas.iter().for_each(|it| it.manner.delay(Duration::from_millis(5)));
    let channel = to(&replicas, &config("round_robin", "")).build().unwrap();
    let load = Load::on(&channel);
    load.more(50).await;
    replicas[0].say_goodbye();
    let down = || channel.snapshot().backends[0].state != ConnectivityState::Ready;
    until("the goodbye is seen", down).await;
    load.more(50).await;
    let failed = load.stop().await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(channel.snapshot().backends[0].consecutive_failures, 0, "going is not failing");
}

/// Red if `evidence::of_balance` does not know `Spent`: what tonic still takes for a connection that has
/// said goodbye would be a failure to connect, which no policy repeats here.
#[tokio::test]
async fn goaway_drains_the_connection() {
    let (mut replicas, _) = replicas(2);
    let channel = to(&replicas, "{}").build().unwrap();
    let mut client = Client::new(channel.clone());
    let ask = EchoRequest { responses: Some(3), delay_ms: 500, ..EchoRequest::default() };
    let mut stream = client.server_stream(ask).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("the first message");
    replicas[0].say_goodbye();
    // Its connection lives on with the stream, and only trying tells that it takes nothing any more.
    let mut elsewhere = 0;
    while elsewhere < 4 {
        match answered_by(&mut client, failing(0)).await.unwrap() {
            1 => elsewhere += 1,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    assert_ne!(channel.snapshot().backends[0].state, ConnectivityState::Ready);
    let mut messages = 1;
    while stream.message().await.unwrap().is_some() {
        messages += 1;
    }
    assert_eq!(messages, 3);
}

/// Calls of eight tasks at once, so many each; what failed.
async fn calls_at_once(channel: &BalancedChannel, calls: usize) -> Vec<tonic::Status> {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mut client = Client::new(channel.clone());
            tokio::spawn(async move {
                let mut failed = Vec::new();
                for _ in 0..calls {
                    failed.extend(client.unary(failing(0)).await.err());
                }
                failed
            })
        })
        .collect();
    let mut failed = Vec::new();
    for task in tasks {
        failed.extend(task.await.unwrap());
    }
    failed
}

/// Proxies close connections after so many requests. Where that counts as a failed dial, the calls of
/// the next second fail, and then those of 1.6 s.
#[tokio::test(start_paused = true)]
async fn reconnect_is_immediate_after_a_connection_that_served() {
    for closing in [Closing::GoAway, Closing::Abrupt] {
        for (balancing, backends) in [("round_robin", 1), ("pick_first", 1), ("round_robin", 2)] {
            let pipes = Pipes::default();
            for nth in 1..=backends {
                let requests_max = Some((30, closing));
                let delay = Duration::from_millis(1);
                pipes.misbehave_at(nth, Behaviour { requests_max, delay, ..Behaviour::HEALTHY });
            }
            let channel = pipes.to(backends, &config(balancing, RETRY)).build().unwrap();
            let began = tokio::time::Instant::now();
            let failed = calls_at_once(&channel, 250).await;
            let what = format!("{closing:?} {balancing} {backends}");
            // A connection that is cut takes the calls on it with it, and one call may meet that five
            // times; but each attempt found a connection.
            let found = |status: &tonic::Status| {
                let report = CallReport::of_status(status).unwrap();
                closing == Closing::Abrupt
                    && report.history().iter().all(|attempt| attempt.backend().is_some())
            };
            assert!(failed.iter().all(found), "{what}: {} failed: {failed:?}", failed.len());
            let dials = pipes.dials(1).len();
            assert!(dials >= 20, "{what}: only {dials} dials");
            // 250 calls of 1 ms, each of them perhaps with a retry of up to 50 ms; no second of
            // connection backoff.
            assert!(began.elapsed() < Duration::from_secs(10), "{what}: {:?}", began.elapsed());
        }
    }
}

/// All backends restart at once and are back in 50 ms. With gRPC's own first backoff of 1 s calls would
/// fail for most of a second, whatever their retry policy.
#[tokio::test(start_paused = true)]
async fn reconnect_bridges_a_short_outage_of_all_backends() {
    const POLICY: &str = r#""retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s",
        "maxBackoff": "2s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;
    // Delays of 50, 100 and 200 ms.
    let _draws = redial::testing::draws([0.5]);
    let pipes = Pipes::default();
    let behaviour = Behaviour { delay: Duration::from_millis(1), ..Behaviour::HEALTHY };
    let servers: Vec<_> = (1..=3).map(|nth| pipes.misbehave_at(nth, behaviour)).collect();
    let channel = pipes.to(3, &config("round_robin", POLICY));
    let channel =
        channel.connect_backoff(CONNECT_BACKOFF_FIRST_DEFAULT, CONNECT_BACKOFF_CAP_DEFAULT);
    let channel = channel.build().unwrap();
    let calls = {
        let channel = channel.clone();
        tokio::spawn(async move { calls_at_once(&channel, 1000).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    (1..=3).for_each(|nth| pipes.refuse_at(nth));
    servers.iter().for_each(Faulty::cut_connections);
    tokio::time::sleep(Duration::from_millis(50)).await;
    for (index, server) in servers.iter().enumerate() {
        pipes.let_misbehave_at(index + 1, server);
    }
    let failed = calls.await.unwrap();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed[0]);
    assert!(pipes.dials(1).len() >= 3, "there was an outage");
}

/// Each lost hedge resets its stream, and what its server still sends counts against a limit of h2's
/// (`too_many_internal_resets`, 1024 by default), at which the connection ends and its calls fail.
#[tokio::test(start_paused = true)]
async fn hedging_losers_that_are_answered_late_keep_their_connections() {
    const HEDGE_AT_ONCE: &str = r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0s" }"#;
    let pipes = Pipes::default();
    for nth in 1..=3 {
        pipes.answer_cancelled_at(nth, Duration::from_millis(nth as u64));
    }
    let channel = pipes.to(3, &config("round_robin", HEDGE_AT_ONCE)).build().unwrap();
    let failed = calls_at_once(&channel, 300).await;
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed[0]);
    assert_eq!([1, 2, 3].map(|nth| pipes.dials(nth).len()), [1, 1, 1], "no connection ended");
}

/// The same under load, with replicas over sockets that answer in 3 ms.
#[tokio::test]
async fn hedging_under_load_fails_no_call() {
    for delay in ["0.003s", "0s"] {
        let hedge =
            format!(r#""hedgingPolicy": {{ "maxAttempts": 3, "hedgingDelay": "{delay}" }}"#);
        let (replicas, _) = replicas(3);
        replicas.iter().for_each(|it| it.manner.delay(Duration::from_millis(3)));
        let channel = to(&replicas, &config("round_robin", &hedge)).build().unwrap();
        let failed = calls_at_once(&channel, 150).await;
        assert!(failed.is_empty(), "{delay}: {} failed: {:?}", failed.len(), failed[0]);
    }
}
