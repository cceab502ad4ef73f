//! Connection attempts and their backoff, queued calls, and cleanup when a channel is dropped.

use std::error::Error as _;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use redial_grpc_balance::CallReport;
use redial_grpc_balance::{
    self as balance, CONNECT_BACKOFF_CAP_DEFAULT, CONNECT_BACKOFF_FIRST_DEFAULT,
    CONNECT_TIMEOUT_DEFAULT, ConnectFuture, ConnectivityState, Connector, Io, ResolveFuture,
    Resolver, Unreachable,
};
use tokio::time::Instant;
use tonic::{Code, Request};

use super::support::{
    Client, Log, Pipes, RETRY, Replica, ScriptedResolver, address, config, failing,
    responding_server, until,
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn connect_backoff_grows_exponentially_with_jitter() {
    let pipes = Pipes::default();
    let channel = pipes.to(1, &config("round_robin", ""));
    let channel =
        channel.connect_backoff(CONNECT_BACKOFF_FIRST_DEFAULT, CONNECT_BACKOFF_CAP_DEFAULT);
    let channel = channel.build().unwrap();
    channel.start();
    tokio::time::sleep(s(1200)).await;
    let attempts = pipes.connect_attempts(1);
    let gaps: Vec<_> = attempts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(gaps.len() > 15, "{gaps:?}");
    for (nth, gap) in gaps.iter().enumerate() {
        let base = (0.05 * 1.6_f64.powi(nth as i32)).min(120.0);
        // The timer has a resolution of one millisecond.
        let range = base * 0.8 - 0.001..=(base * 1.2).min(120.0) + 0.002;
        assert!(range.contains(gap), "attempt {}: {gap} s is not in {range:?}", nth + 2);
    }
    let even = gaps.windows(2).all(|pair| (pair[1] / pair[0] - 1.6).abs() < 1e-3);
    assert!(!even, "there is jitter");
}

/// The status message names the addresses that were connecting.
#[tokio::test(start_paused = true)]
async fn deadline_while_connecting_names_the_addresses() {
    let pipes = Pipes::default();
    pipes.leave_pending_at(1);
    pipes.stay_silent_at(2);
    let channel = pipes.to(2, &config("round_robin", RETRY)).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(Duration::from_millis(500));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    let waited = "no connection was ready: connecting to 10.0.0.1:50051, 10.0.0.2:50051";
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), format!("the deadline passed (1 attempt); {waited}"));
    let report = CallReport::of_status(&status).unwrap();
    assert_eq!(report.history()[0].message(), Some(waited), "{report}");
}

/// The same before the name has an address.
#[tokio::test(start_paused = true)]
async fn deadline_while_resolving_is_explained() {
    let pipes = Pipes::default();
    let channel = pipes.channel("{}").resolver(Never).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(Duration::from_millis(500));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    assert!(status.message().ends_with("the name was being resolved"), "{}", status.message());
}

/// A resolver that never answers and returns no config.
#[derive(Debug)]
struct Never;

impl Resolver for Never {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(std::future::pending())
    }

    fn may_return_config(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn connect_backoff_applies_to_servers_that_accept_and_close() {
    let pipes = Pipes::default();
    pipes.close_connections_at(1);
    let channel = pipes.to(1, &config("round_robin", "")).build().unwrap();
    channel.start();
    tokio::time::sleep(s(30)).await;
    // About 1, 2.6, 5.2, 9.3, 15.8 and 26 s after the first.
    let attempts = pipes.connect_attempts(1).len();
    assert!((5..=8).contains(&attempts), "{attempts} attempts in 30 s");
    let ConnectivityState::TransientFailure(reason) = &channel.snapshot().backends[0].state else {
        panic!("failed")
    };
    assert!(reason.contains("closed"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn reconnect_is_immediate_after_a_connection_of_one_second() {
    for (lived_ms, attempts) in [(990, 5..=9), (1010, 28..=30)] {
        let pipes = Pipes::default();
        pipes.close_after_at(1, Duration::from_millis(lived_ms));
        let channel = pipes.to(1, &config("round_robin", "")).build().unwrap();
        channel.start();
        tokio::time::sleep(s(30)).await;
        let made = pipes.connect_attempts(1).len();
        assert!(attempts.contains(&made), "{lived_ms} ms: {made} attempts in 30 s");
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_to_a_silent_server_times_out() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.stay_silent_at(1);
    pipes.serve(2, &log);
    let channel = pipes.to(2, &config("round_robin", "")).build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..4 {
        assert_eq!(responding_server(&mut client, failing(0)).await.unwrap(), 2);
    }
    tokio::time::sleep(CONNECT_TIMEOUT_DEFAULT + Duration::from_millis(500)).await;
    let ConnectivityState::TransientFailure(reason) = &channel.snapshot().backends[0].state else {
        panic!("failed")
    };
    assert_eq!(reason, "not connected within 20s");
}

#[tokio::test(start_paused = true)]
async fn unreachable_error_names_each_backend_and_cause() {
    let pipes = Pipes::default();
    pipes.close_connections_at(2);
    for balancing in ["round_robin", "pick_first"] {
        let mut client = Client::new(pipes.to(2, &config(balancing, "")).build().unwrap());
        let status = client.unary(failing(0)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(
            status.message(),
            "none of 2 backends can be reached: 10.0.0.1:50051: connection refused; \
             10.0.0.2:50051: closed before the server sent anything",
            "{balancing}"
        );
        let source = CallReport::of_status(&status).and_then(CallReport::source);
        let source = source.and_then(|it| it.downcast_ref::<Unreachable>()).unwrap();
        assert_eq!(source.backends().count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_ready_call_waits_while_others_follow_their_policy() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let waits = format!(r#""waitForReady": true, {RETRY}"#);
    let mut waiting = Client::new(pipes.to(1, &config("round_robin", &waits)).build().unwrap());
    let mut policy = Client::new(pipes.to(1, &config("round_robin", RETRY)).build().unwrap());
    let call = tokio::spawn(async move { responding_server(&mut waiting, failing(0)).await });
    let status = policy.unary(failing(0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("grpc-previous-rpc-attempts").unwrap(), "4");
    tokio::time::sleep(s(60)).await;
    assert!(!call.is_finished());
    pipes.serve(1, &log);
    assert_eq!(call.await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_bounds_the_wait_for_a_connection() {
    let pipes = Pipes::default();
    pipes.stay_silent_at(1);
    let channel = pipes.to(1, &config("round_robin", RETRY)).build().unwrap();
    let mut client = Client::new(channel.clone());
    let mut request = Request::new(failing(0));
    request.set_timeout(s(3));
    let started = Instant::now();
    let status = client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), started.elapsed()), (Code::DeadlineExceeded, s(3)));
    assert_eq!(channel.snapshot().backends[0].in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn queued_calls_are_all_served_by_the_first_connection() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.leave_pending_at(1);
    pipes.leave_pending_at(2);
    let channel = pipes.to(2, &config("round_robin", "")).build().unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let mut client = Client::new(channel.clone());
            tokio::spawn(async move { responding_server(&mut client, failing(0)).await })
        })
        .collect();
    tokio::time::sleep(s(1)).await;
    pipes.serve(1, &log);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), 1);
    }
    assert_eq!(log.counts().into_iter().collect::<Vec<_>>(), [(1, 100)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_channel_ends_its_tasks_and_connections() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    pipes.serve(2, &log);
    tokio::time::sleep(s(1)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // The third address refuses, and is in connection backoff.
    let channel = pipes.to(3, &config("round_robin", RETRY)).build().unwrap();
    assert_eq!(tasks(), before, "nothing is spawned before the first call");
    let mut client = Client::new(channel.clone());
    for _ in 0..4 {
        client.unary(failing(1)).await.unwrap();
    }
    assert!(tasks() > before);
    drop(channel);
    client.unary(failing(0)).await.unwrap();
    drop(client);
    // Connections have tasks on both sides.
    tokio::time::sleep(s(1)).await;
    assert_eq!(tasks(), before);
    let attempts = pipes.connect_attempts(3).len();
    tokio::time::sleep(s(300)).await;
    assert_eq!(pipes.connect_attempts(3).len(), attempts, "no more connection attempts");
}

#[tokio::test(start_paused = true)]
async fn cancellation_of_a_queued_or_running_call_leaves_no_state() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let server_control = pipes.serve(1, &log);
    server_control.delay(s(100));
    pipes.stay_silent_at(2);
    let channel = pipes.to(2, &config("round_robin", "")).build().unwrap();
    let silent = pipes.channel(&config("pick_first", "")).addresses([address(2)]).build().unwrap();
    for channel in [channel, silent] {
        let mut client = Client::new(channel.clone());
        let call = tokio::time::timeout(s(1), client.unary(failing(0))).await;
        assert!(call.is_err());
        tokio::time::sleep(s(1)).await;
        let all = channel.snapshot().backends;
        assert!(all.iter().all(|it| it.in_flight == 0 && it.consecutive_failures == 0), "{all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn throttle_is_shared_by_channels_to_one_target() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    let config = r#"{ "methodConfig": [{ "name": [{}], "retryPolicy": { "maxAttempts": 2,
        "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"] } }],
        "retryThrottling": { "maxTokens": 10, "tokenRatio": 1 } }"#;
    let to = |target: &str| {
        let channel = balance::channel(target).addresses([address(1)]).connector(pipes.clone());
        channel.default_service_config(config).build().unwrap()
    };
    let (one, same, other) = (to("throttle.test:1"), to("throttle.test:1"), to("throttle.test:2"));
    Client::new(one).unary(failing(9)).await.unwrap_err();
    assert_eq!(same.control().tokens(), Some(8.0));
    assert_eq!(other.control().tokens(), Some(10.0));
}

#[tokio::test]
async fn build_error_names_the_cause() {
    let text = |channel: balance::ChannelBuilder| channel.build().unwrap_err().to_string();
    assert!(text(balance::channel("orders/")).contains("write host:port"));
    let server = "dns://10.0.0.9/orders:50051";
    for channel in [balance::channel(server), balance::channel(server).addresses([address(1)])] {
        assert!(text(channel).contains("write .dns(|dns| dns)"));
    }
    let none = balance::channel("a:1").addresses([]);
    assert_eq!(text(none), "the address list is empty");
    let config = balance::channel("a:1").default_service_config(r#"{ "methodConfig": 1 }"#);
    assert!(text(config).starts_with("default service config: "));
    let backoff = balance::channel("a:1").connect_backoff(s(0), s(1));
    assert_eq!(text(backoff), "connect backoff: the first delay must be above zero");
}

#[tokio::test]
async fn resolver_of_the_operating_system_finds_localhost() {
    // IPv4 or IPv6, depending on the machine.
    let known = ("localhost", 0).to_socket_addrs().expect("the machine knows its own name");
    let can_listen = |at: &SocketAddr| TcpListener::bind(at).is_ok();
    let at = known.into_iter().find(can_listen).expect("an address to listen on");
    let log = Log::default();
    let replica = Replica::start_at(at, 0, &log, None);
    let target = format!("dns:///localhost:{}", replica.address.port());
    let channel = balance::channel(&target).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(0)).await.unwrap();
    assert_eq!(log.take(), [0]);
    until("it is shown", || {
        let mut all = channel.snapshot().backends.into_iter();
        all.any(|it| it.address == replica.address && it.state == ConnectivityState::Ready)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn endpoint_settings_apply_to_every_connection() {
    let (pipes, log) = (Pipes::default(), Log::default());
    let server_control = pipes.serve(1, &log);
    let channel = pipes.to(1, "{}").endpoint(|endpoint| endpoint.user_agent("orders/1"));
    let mut client = Client::new(channel.build().unwrap());
    client.unary(failing(0)).await.unwrap();
    let agent = server_control.agent.lock().unwrap().clone().unwrap();
    assert!(agent.starts_with("orders/1"), "{agent}");
    let bad = pipes.to(1, "{}").endpoint(|endpoint| endpoint.user_agent("no\nagent"));
    assert_eq!(bad.build().unwrap_err().to_string(), "the endpoint is not valid");
}

#[test]
fn runtime_shutdown_fails_calls_with_its_cause() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let pipes = Pipes::default();
    pipes.leave_pending_at(1);
    let channel = pipes.to(1, "{}").build().unwrap();
    let mut client = Client::new(channel.clone());
    let waiting = second.spawn(async move { client.unary(failing(0)).await });
    first.block_on(async {
        channel.start();
        tokio::task::yield_now().await;
    });
    drop(first);
    for call in [waiting, second.spawn(async move { Client::new(channel).unary(failing(0)).await })]
    {
        let status = second.block_on(call).unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "the runtime that the channel was started on has ended");
    }
}

/// The task may be dropped before its first poll. Calls must not wait for it forever, and with
/// `waitForReady` the error must not count as a failed connection attempt, which would make them
/// wait for a quarter of an hour.
#[test]
fn runtime_shutdown_before_the_first_poll_fails_calls() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for fields in ["", r#""waitForReady": true"#] {
        let channel = Pipes::default().to(1, &config("pick_first", fields)).build().unwrap();
        runtime().block_on(async { channel.start() });
        let mut client = Client::new(channel);
        // Ends a test that hangs.
        let call = async { tokio::time::timeout(s(60), client.unary(failing(0))).await };
        let status = runtime().block_on(call).expect("it does not hang").unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "the runtime that the channel was started on has ended");
    }
}

/// The first address, which is in backoff, becomes idle and is needed again at the same moment. It
/// must connect immediately instead of waiting for the old backoff.
#[tokio::test(start_paused = true)]
async fn connect_backoff_ends_when_an_idle_address_is_needed_again() {
    const HEDGE_AT_ONCE: &str = r#""hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0s",
        "nonFatalStatusCodes": ["UNAVAILABLE"] }"#;
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.leave_pending_at(2);
    let channel = pipes.to(2, &config("pick_first", HEDGE_AT_ONCE));
    let channel = channel.connect_backoff(s(100), s(100)).build().unwrap();
    let mut client = Client::new(channel.clone());
    let call = tokio::spawn(async move { responding_server(&mut client, failing(0)).await });
    tokio::time::sleep(s(1)).await;
    assert_eq!(pipes.connect_attempts(1).len(), 1, "it was refused");
    // One hedge uses it, and the other needs another backend.
    pipes.serve(2, &log);
    assert_eq!(call.await.unwrap().unwrap(), 2);
    tokio::time::sleep(s(1)).await;
    assert_eq!(pipes.connect_attempts(1).len(), 2);
    let first = channel.snapshot().backends.swap_remove(0);
    assert_eq!(first.state, ConnectivityState::TransientFailure("connection refused".to_owned()));
}

/// A connector and a resolver that panic.
#[derive(Debug)]
struct Panics;

impl Connector for Panics {
    fn connect(&self, _: std::net::SocketAddr) -> ConnectFuture<'_> {
        Box::pin(async { panic!("the test's own") })
    }
}

impl Resolver for Panics {
    fn resolve(&self) -> ResolveFuture<'_> {
        panic!("the test's own")
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_connector_or_resolver_fails_the_call() {
    let attempts = balance::channel("http://panics.test").addresses([address(1)]).connector(Panics);
    let resolves = balance::channel("http://panics.test").resolver(Panics);
    for (channel, text) in [
        (attempts, "the backend cannot be reached: 10.0.0.1:50051: the connector panicked"),
        (resolves, "no backend is known: the name cannot be resolved: the resolver panicked"),
    ] {
        let mut client = Client::new(channel.build().unwrap());
        let call = tokio::time::timeout(s(3600), client.unary(failing(0)));
        let status = call.await.expect("it does not hang").unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, text));
    }
}

/// A stream that panics.
#[derive(Debug)]
struct Broken;

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl tokio::io::AsyncWrite for Broken {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        panic!("the test's own")
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The first connection panics; all others are those of the pipes.
#[derive(Debug)]
struct BrokenFirst(Pipes, AtomicBool);

impl Connector for BrokenFirst {
    fn connect(&self, address: std::net::SocketAddr) -> ConnectFuture<'_> {
        if self.1.swap(true, Ordering::Relaxed) {
            return self.0.connect(address);
        }
        Box::pin(async { Ok(Box::new(Broken) as Box<dyn Io>) })
    }
}

/// The connect task writes the connection's first bytes, so a panic there must not end the task.
#[tokio::test(start_paused = true)]
async fn panic_in_a_connection_is_a_failed_connect() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    let channel = pipes.to(1, "{}").connector(BrokenFirst(pipes.clone(), AtomicBool::new(false)));
    let mut client = Client::new(channel.build().unwrap());
    let call = tokio::time::timeout(s(3600), client.unary(failing(0)));
    let status = call.await.expect("it does not hang").unwrap_err();
    let text = "the backend cannot be reached: 10.0.0.1:50051: the connection panicked";
    assert_eq!((status.code(), status.message()), (Code::Unavailable, text));
    tokio::time::sleep(s(2)).await;
    client.unary(failing(0)).await.expect("it reconnected");
}

#[tokio::test(start_paused = true)]
async fn dropped_channel_ends_tasks_that_are_connecting() {
    let pipes = Pipes::default();
    pipes.leave_pending_at(1);
    pipes.stay_silent_at(2);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for balancing in ["round_robin", "pick_first"] {
        let channel = pipes.to(3, &config(balancing, "")).build().unwrap();
        let mut client = Client::new(channel.clone());
        let call = tokio::time::timeout(s(1), client.unary(failing(0))).await;
        assert!(call.is_err(), "no server responds");
        assert!(tasks() > before);
        drop((channel, client));
        tokio::time::sleep(s(1)).await;
        assert_eq!(tasks(), before, "{balancing}");
    }
}

/// Whether another task makes progress next to a loop of failing calls.
async fn other_tasks_progress(client: &mut Client) -> bool {
    let turns = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..100 {
        client.unary(failing(0)).await.unwrap_err();
    }
    other.abort();
    turns.load(Ordering::Relaxed) >= 100
}

/// A loop of calls that fail immediately must not starve timers and the channel's connection
/// attempts.
#[tokio::test(start_paused = true)]
async fn failed_call_yields_to_the_runtime() {
    let pipes = Pipes::default();
    for balancing in ["round_robin", "pick_first"] {
        let mut refused = Client::new(pipes.to(2, &config(balancing, "")).build().unwrap());
        refused.unary(failing(0)).await.unwrap_err();
        assert!(other_tasks_progress(&mut refused).await, "{balancing}: no backend can be reached");
    }
    let channel = balance::channel("http://panics.test").resolver(Panics).build().unwrap();
    let mut unresolved = Client::new(channel);
    unresolved.unary(failing(0)).await.unwrap_err();
    assert!(other_tasks_progress(&mut unresolved).await, "the name cannot be resolved");
    let ended = pipes.to(1, "{}").build().unwrap();
    let start = ended.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { start.start() });
    })
    .join()
    .unwrap();
    assert!(other_tasks_progress(&mut Client::new(ended)).await, "the channel has ended");
}

/// The same with sockets in real time: a client that loops until its server is up.
#[test]
fn failing_calls_in_a_loop_recover_when_the_port_opens() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        Replica::start_at(port, 0, &Log::default(), None)
    });
    let (done, answered) = std::sync::mpsc::channel();
    // A separate thread, because no timeout fires in a starved runtime.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let channel = balance::channel(format!("http://{port}")).build().unwrap();
            let mut client = Client::new(channel);
            while client.unary(failing(0)).await.is_err() {}
        });
        done.send(()).unwrap();
    });
    let server = server.join().unwrap();
    // It takes about a second, the first delay of the connection backoff.
    answered.recv_timeout(s(60)).expect("the calls find the server");
    drop(server);
}

/// The panic of `start` outside of a runtime leaves the channel usable.
#[test]
fn channel_first_used_outside_a_runtime_still_works_inside_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pipes = Pipes::default();
    let channel = pipes.to(1, "{}").build().unwrap();
    let outside = channel.clone();
    let start = std::panic::AssertUnwindSafe(|| outside.start());
    assert!(std::panic::catch_unwind(start).is_err(), "there is no runtime");
    runtime.block_on(async {
        pipes.serve(1, &Log::default());
        Client::new(channel).unary(failing(0)).await.unwrap();
    });
}

/// A connection attempt or a resolution that never ends, and panics when it is dropped.
#[derive(Debug)]
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the test's own");
    }
}

/// The first connection attempt and the first resolution never end and panic when dropped; later
/// ones succeed.
#[derive(Clone, Debug)]
struct PanicsFirst(Pipes, std::sync::Arc<AtomicBool>);

impl PanicsFirst {
    fn new(pipes: &Pipes) -> Self {
        PanicsFirst(pipes.clone(), std::sync::Arc::default())
    }

    async fn hang_once(&self) {
        if !self.1.swap(true, Ordering::Relaxed) {
            let _panics = PanicsOnDrop;
            std::future::pending::<()>().await;
        }
    }
}

impl Connector for PanicsFirst {
    fn connect(&self, address: std::net::SocketAddr) -> ConnectFuture<'_> {
        Box::pin(async move {
            self.hang_once().await;
            self.0.connect(address).await
        })
    }
}

impl Resolver for PanicsFirst {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(async move {
            self.hang_once().await;
            Ok(balance::Resolution::new(vec![address(1)]))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_connector_or_resolver_destructor_is_a_failure() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    let attempts = pipes.to(1, "{}").connector(PanicsFirst::new(&pipes));
    let resolves = pipes.channel("{}").resolver(PanicsFirst::new(&pipes));
    for (channel, text) in [(attempts, "not connected within 20s"), (resolves, "no answer in 20s")]
    {
        let mut client = Client::new(channel.build().unwrap());
        let call = tokio::time::timeout(s(3600), client.unary(failing(0)));
        let status = call.await.expect("it does not hang").unwrap_err();
        assert!(status.message().ends_with(text), "{status}");
        tokio::time::sleep(s(2)).await;
        client.unary(failing(0)).await.expect("the next one succeeds");
    }
}

#[tokio::test(start_paused = true)]
async fn reset_connect_backoff_connects_and_resolves_at_once() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    let listed = pipes.to(2, &config("round_robin", "")).connect_backoff(s(100), s(100));
    let resolved = pipes.channel(&config("round_robin", "")).resolver(resolver.clone());
    let (listed, resolved) = (listed.build().unwrap(), resolved.build().unwrap());
    for channel in [&listed, &resolved] {
        Client::new(channel.clone()).unary(failing(0)).await.unwrap_err();
    }
    let counts = |channel: &balance::BalancedChannel| {
        let counts = channel.counts();
        (counts.known, counts.connected)
    };
    assert_eq!((counts(&listed), counts(&resolved)), ((2, 0), (0, 0)));
    pipes.serve(1, &log);
    resolver.set(balance::Resolution::new(vec![address(1)]));
    let started = Instant::now();
    for channel in [&listed, &resolved] {
        channel.reset_connect_backoff();
        // Lets the resolving task run.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Client::new(channel.clone()).unary(failing(0)).await.unwrap();
    }
    // Otherwise it takes 100 s for the connection and 1 s for the resolution.
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    assert_eq!((counts(&listed), counts(&resolved)), ((2, 1), (1, 1)));
}
