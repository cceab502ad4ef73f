//! Servers that crash, restart and drain connections while calls run.

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
use super::support::{
    Client, Pipes, RETRY, config, failing, replicas, responding_server, to, until,
};

/// Runs calls until it is stopped, and counts the results.
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

    /// Waits for this many more calls.
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
    replicas.iter().for_each(|it| it.server_control.delay(Duration::from_millis(5)));
    let channel = to(&replicas, &config("round_robin", "")).build().unwrap();
    let load = Load::on(&channel);
    load.more(50).await;
    replicas[0].drain();
    let down = || channel.snapshot().backends[0].state != ConnectivityState::Ready;
    until("the goodbye is seen", down).await;
    load.more(50).await;
    let failed = load.stop().await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(channel.snapshot().backends[0].consecutive_failures, 0, "going is not failing");
}

/// Requests that tonic still holds when its connection has received a GOAWAY were not sent. They
/// must be retried transparently, and not fail as a connection error that no policy retries here.
#[tokio::test]
async fn goaway_drains_the_connection() {
    let (mut replicas, _) = replicas(2);
    let channel = to(&replicas, "{}").build().unwrap();
    let mut client = Client::new(channel.clone());
    let ask = EchoRequest { responses: Some(3), delay_ms: 500, ..EchoRequest::default() };
    let mut stream = client.server_stream(ask).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("the first message");
    replicas[0].drain();
    // The connection stays open for the stream, and only a further request shows that it accepts no
    // more.
    let mut on_other_servers = 0;
    while on_other_servers < 4 {
        match responding_server(&mut client, failing(0)).await.unwrap() {
            1 => on_other_servers += 1,
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

/// Makes calls from eight tasks in parallel. Returns the failures.
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

/// Proxies close connections after a number of requests. If that counted as a failed connection
/// attempt, the calls of the next second would fail, and then those of the next 1.6 s.
#[tokio::test(start_paused = true)]
async fn reconnect_is_immediate_after_a_connection_that_served() {
    for closing in [Closing::GoAway, Closing::Abrupt] {
        for (balancing, backends) in [("round_robin", 1), ("pick_first", 1), ("round_robin", 2)] {
            let pipes = Pipes::default();
            for nth in 1..=backends {
                let requests_max = Some((30, closing));
                let delay = Duration::from_millis(1);
                pipes.serve_faulty(nth, Behaviour { requests_max, delay, ..Behaviour::HEALTHY });
            }
            let channel = pipes.to(backends, &config(balancing, RETRY)).build().unwrap();
            let started = tokio::time::Instant::now();
            let failed = calls_at_once(&channel, 250).await;
            let what = format!("{closing:?} {balancing} {backends}");
            // A closed connection fails the calls on it, and one call may see that five times; but
            // each attempt found a connection.
            let found = |status: &tonic::Status| {
                let report = CallReport::of_status(status).unwrap();
                closing == Closing::Abrupt
                    && report.history().iter().all(|attempt| attempt.backend().is_some())
            };
            assert!(failed.iter().all(found), "{what}: {} failed: {failed:?}", failed.len());
            let attempts = pipes.connect_attempts(1).len();
            assert!(attempts >= 20, "{what}: only {attempts} attempts");
            // 250 calls of 1 ms, each possibly with a retry of up to 50 ms, and no second of
            // connection backoff.
            assert!(started.elapsed() < Duration::from_secs(10), "{what}: {:?}", started.elapsed());
        }
    }
}

/// All backends restart at the same time and are back after 50 ms. With gRPC's first backoff of 1
/// s, calls would fail for most of a second, whatever their retry policy.
#[tokio::test(start_paused = true)]
async fn reconnect_bridges_a_short_outage_of_all_backends() {
    const POLICY: &str = r#""retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.1s",
        "maxBackoff": "2s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] }"#;
    // Delays of 50, 100 and 200 ms.
    let _draws = redial::testing::draws([0.5]);
    let pipes = Pipes::default();
    let behaviour = Behaviour { delay: Duration::from_millis(1), ..Behaviour::HEALTHY };
    let servers: Vec<_> = (1..=3).map(|nth| pipes.serve_faulty(nth, behaviour)).collect();
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
    assert!(pipes.connect_attempts(1).len() >= 3, "there was an outage");
}

/// Each losing hedge resets its stream. Frames that its server still sends count towards a limit of
/// h2 (`too_many_internal_resets`, 1024 by default), at which the connection closes and its calls
/// fail.
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
    assert_eq!(
        [1, 2, 3].map(|nth| pipes.connect_attempts(nth).len()),
        [1, 1, 1],
        "no connection ended"
    );
}

/// The same under load, with replicas over sockets that respond in 3 ms.
#[tokio::test]
async fn hedging_under_load_fails_no_call() {
    for delay in ["0.003s", "0s"] {
        let hedge =
            format!(r#""hedgingPolicy": {{ "maxAttempts": 3, "hedgingDelay": "{delay}" }}"#);
        let (replicas, _) = replicas(3);
        replicas.iter().for_each(|it| it.server_control.delay(Duration::from_millis(3)));
        let channel = to(&replicas, &config("round_robin", &hedge)).build().unwrap();
        let failed = calls_at_once(&channel, 150).await;
        assert!(failed.is_empty(), "{delay}: {} failed: {:?}", failed.len(), failed[0]);
    }
}
