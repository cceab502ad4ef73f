//! Which backend an attempt goes to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redial_echo::Responder;
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_grpc_balance::{Backend, BalancedChannel, ConnectivityState};
use redial_grpc_balance::{
    BackendId, CallOptions, CallReport, RetryLayer, ServiceConfig, SharedCallLog, UsedBackends,
};
use tonic::Request;
use tower::{Service as _, ServiceBuilder, service_fn};

use super::support::{
    Client, Log, Pipes, RETRY, config, failing, replicas, responding_server, to, until,
};

const HEDGE_AT_ONCE: &str = r#""hedgingPolicy": { "maxAttempts": 3, "hedgingDelay": "0s",
    "nonFatalStatusCodes": ["UNAVAILABLE"] }"#;

/// Waits until all backends are connected: on a busy machine, connecting may take longer than a
/// retry waits.
async fn all_ready(channel: &BalancedChannel) {
    channel.start();
    let ready = |it: &Backend| it.state == ConnectivityState::Ready;
    let all = || {
        let snapshot = channel.snapshot();
        !snapshot.backends.is_empty() && snapshot.backends.iter().all(ready)
    };
    until("all are connected", all).await;
}

fn distinct(servers: &[usize]) -> usize {
    servers.iter().collect::<BTreeSet<_>>().len()
}

#[tokio::test]
async fn retry_picks_another_backend_each_time() {
    for balancing in ["round_robin", "pick_first"] {
        let (replicas, log) = replicas(3);
        let channel = to(&replicas, &config(balancing, RETRY)).build().unwrap();
        let mut client = Client::new(channel.clone());
        // Under `pick_first` a retry connects another address.
        client.unary(failing(2)).await.unwrap();
        all_ready(&channel).await;
        log.take();
        for _ in 0..4 {
            client.unary(failing(2)).await.unwrap();
            let servers = log.take();
            assert_eq!((servers.len(), distinct(&servers)), (3, 3), "{balancing}: {servers:?}");
        }
    }
}

#[tokio::test]
async fn retry_after_all_backends_picks_the_least_recently_used() {
    let (replicas, log) = replicas(2);
    let channel = to(&replicas, &config("round_robin", RETRY)).build().unwrap();
    all_ready(&channel).await;
    let mut client = Client::new(channel);
    client.unary(failing(4)).await.unwrap();
    let servers = log.take();
    assert_eq!(servers.len(), 5);
    assert!(servers.windows(2).all(|pair| pair[0] != pair[1]), "{servers:?}");
}

#[tokio::test]
async fn hedging_at_once_picks_distinct_backends() {
    let (replicas, log) = replicas(3);
    for replica in &replicas {
        replica.server_control.delay(Duration::from_millis(100));
    }
    let channel = to(&replicas, &config("round_robin", HEDGE_AT_ONCE)).build().unwrap();
    all_ready(&channel).await;
    let mut client = Client::new(channel);
    for _ in 0..3 {
        client.unary(failing(0)).await.unwrap();
        until("all three arrived", || log.counts().values().sum::<usize>() == 3).await;
        assert_eq!(distinct(&log.take()), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn hedging_before_any_connection_picks_distinct_backends() {
    for balancing in ["round_robin", "pick_first"] {
        let (pipes, log) = (Pipes::default(), Log::default());
        for nth in 1..=3 {
            pipes.serve(nth, &log).delay(Duration::from_millis(100));
        }
        let channel = pipes.to(3, &config(balancing, HEDGE_AT_ONCE)).build().unwrap();
        Client::new(channel).unary(failing(0)).await.unwrap();
        assert_eq!(distinct(&log.take()), 3, "{balancing}");
    }
}

/// With no other backend to wait for, a hedge must not wait.
#[tokio::test(start_paused = true)]
async fn hedging_with_fewer_backends_shares_them_without_waiting() {
    for (balancing, count) in [("round_robin", 1), ("pick_first", 1), ("round_robin", 2)] {
        let (pipes, log) = (Pipes::default(), Log::default());
        for nth in 1..=count {
            pipes.serve(nth, &log).delay(Duration::from_millis(100));
        }
        let channel = pipes.to(count, &config(balancing, HEDGE_AT_ONCE)).build().unwrap();
        all_ready(&channel).await;
        let started = tokio::time::Instant::now();
        Client::new(channel).unary(failing(0)).await.unwrap();
        let servers = log.take();
        assert_eq!((servers.len(), distinct(&servers)), (3, count), "{balancing}");
        // The server takes 100 ms, and the timer has a resolution of 1 ms.
        assert!(started.elapsed().as_millis() <= 102, "{balancing}: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn retry_waits_briefly_for_another_address() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log);
    pipes.leave_pending_at(2);
    let channel = pipes.to(2, &config("pick_first", RETRY)).build().unwrap();
    let mut client = Client::new(channel);
    let started = tokio::time::Instant::now();
    client.unary(failing(1)).await.unwrap();
    assert_eq!(log.take(), [1, 1]);
    // The wait is 250 ms, the backoff of the retry at most 10 ms, and the timer resolution 1 ms.
    let took = started.elapsed().as_millis();
    assert!((250..=262).contains(&took), "{took} ms");
}

#[tokio::test]
async fn pick_first_uses_the_first_address() {
    let (replicas, log) = replicas(3);
    let channel = to(&replicas, "{}").build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..10 {
        assert_eq!(responding_server(&mut client, failing(0)).await.unwrap(), 0);
    }
    assert_eq!(log.counts(), BTreeMap::from([(0, 10)]));
    let states: Vec<_> = channel.snapshot().backends.into_iter().map(|it| it.state).collect();
    assert_eq!(
        states,
        [ConnectivityState::Ready, ConnectivityState::Idle, ConnectivityState::Idle]
    );
}

#[tokio::test]
async fn pick_first_moves_to_the_next_reachable_address() {
    let (mut replicas, log) = replicas(3);
    replicas[0].kill();
    let mut client = Client::new(to(&replicas, "{}").build().unwrap());
    assert_eq!(responding_server(&mut client, failing(0)).await.unwrap(), 1);
    replicas[1].kill();
    // An attempt that was lost may have been processed, and this config does not retry it.
    until("the loss is seen", || log.counts().contains_key(&1)).await;
    let mut answered = None;
    for _ in 0..10 {
        if let Ok(server) = responding_server(&mut client, failing(0)).await {
            answered = Some(server);
            break;
        }
    }
    assert_eq!(answered, Some(2));
}

#[tokio::test]
async fn round_robin_spreads_calls_evenly() {
    let (replicas, log) = replicas(3);
    let channel = to(&replicas, &config("round_robin", "")).build().unwrap();
    all_ready(&channel).await;
    let calls = (0..60).map(|_| {
        let mut client = Client::new(channel.clone());
        tokio::spawn(async move { client.unary(failing(0)).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.counts(), BTreeMap::from([(0, 20), (1, 20), (2, 20)]));
    assert!(channel.snapshot().backends.iter().all(|it| it.in_flight == 0));
}

/// The number of first attempts per backend.
fn first_attempts(channel: &BalancedChannel, calls: &[UsedBackends]) -> Vec<usize> {
    let first = |used: &UsedBackends| used.to_vec()[0];
    let count = |it: Backend| calls.iter().filter(|used| first(used) == it.id).count();
    channel.snapshot().backends.into_iter().map(count).collect()
}

/// With one rotation for all attempts, each hedge or retry would take the turn of the healthy
/// backend, and the next first attempt would go to the failing one again.
#[tokio::test(start_paused = true)]
async fn round_robin_is_not_skewed_by_hedges_or_retries() {
    const HEDGE: &str = r#""hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0.01s" }"#;
    const RETRY_EXHAUSTED: &str = r#""retryPolicy": { "maxAttempts": 2, "initialBackoff": "0.01s",
        "maxBackoff": "0.01s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"] }"#;
    for (servers, policy) in [(2, HEDGE), (3, HEDGE), (2, RETRY_EXHAUSTED), (3, RETRY_EXHAUSTED)] {
        let (pipes, log) = (Pipes::default(), Log::default());
        let manners: Vec<_> = (1..=servers).map(|nth| pipes.serve(nth, &log)).collect();
        if policy == HEDGE {
            manners[1].delay(Duration::from_millis(100));
        } else {
            manners[1].fail(tonic::Code::ResourceExhausted);
        }
        let channel = pipes.to(servers, &config("round_robin", policy)).build().unwrap();
        all_ready(&channel).await;
        let (mut client, mut calls) = (Client::new(channel.clone()), Vec::new());
        for _ in 0..200 {
            let (mut request, used) = (Request::new(failing(0)), UsedBackends::new());
            request.extensions_mut().insert(used.clone());
            client.unary(request).await.unwrap();
            calls.push(used);
        }
        let counts = first_attempts(&channel, &calls);
        let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
        assert!(spread <= 1, "{servers} servers, {policy}: {counts:?}");
        // Retries are spread over the other backends.
        let retries: BTreeMap<_, usize> = calls
            .iter()
            .filter_map(|it| it.to_vec().get(1).copied())
            .fold(BTreeMap::new(), |mut counts, id| {
                *counts.entry(id).or_default() += 1;
                counts
            });
        assert_eq!(retries.len(), servers - 1, "{retries:?}");
        let (least, most) = (retries.values().min().unwrap(), retries.values().max().unwrap());
        assert!(most - least <= 1, "{retries:?}");
    }
}

#[tokio::test]
async fn used_backends_tells_the_application_where_attempts_went() {
    let (replicas, log) = replicas(3);
    let channel = to(&replicas, &config("round_robin", RETRY)).build().unwrap();
    let mut client = Client::new(channel.clone());
    let used = UsedBackends::new();
    let mut request = Request::new(failing(2));
    request.extensions_mut().insert(used.clone());
    client.unary(request).await.unwrap();
    let snapshot = channel.snapshot();
    let ids: Vec<_> = log.take().into_iter().map(|place| snapshot.backends[place].id).collect();
    assert_eq!(used.to_vec(), ids);
}

/// The panic leaves a poisoned lock, which must not affect other calls.
#[tokio::test(start_paused = true)]
async fn panic_in_a_custom_balancer_fails_only_its_call() {
    let config = ServiceConfig::parse(&config("pick_first", RETRY)).unwrap();
    let layer = RetryLayer::builder().config(config).distinct_backends().build();
    let control = layer.control();
    let turns = Arc::new(AtomicU64::new(0));
    let balancer = service_fn(move |request: http::Request<tonic::body::Body>| {
        let used = request.extensions().get::<UsedBackends>().expect("the layer's").clone();
        used.choose(|_| match turns.fetch_add(1, Ordering::Relaxed) {
            1 => panic!("the test's own"),
            turn => Some((BackendId::new(turn), ())),
        });
        EchoServer::new(Responder).call(request)
    });
    let client = EchoClient::new(ServiceBuilder::new().layer(layer).service(balancer));
    // The second attempt of the first call panics.
    for (panics, servers) in [(true, &[0][..]), (false, &[2, 3])] {
        let (mut client, used) = (client.clone(), UsedBackends::new());
        let mut request = Request::new(failing(1));
        request.extensions_mut().insert(used.clone());
        let call = tokio::spawn(async move { client.unary(request).await.map(drop) }).await;
        assert_eq!(call.is_err_and(|error| error.is_panic()), panics);
        let servers: Vec<_> = servers.iter().copied().map(BackendId::new).collect();
        assert_eq!((used.to_vec(), control.bytes_kept()), (servers, 0));
    }
}

#[tokio::test]
async fn hedging_masks_one_slow_replica() {
    const HEDGE: &str = r#""hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "0.05s",
        "nonFatalStatusCodes": ["UNAVAILABLE"] }"#;
    let (replicas, log) = replicas(3);
    // Longer than any test: a call that waits for it never completes.
    replicas[1].server_control.delay(Duration::from_secs(600));
    let channel = to(&replicas, &config("round_robin", HEDGE)).build().unwrap();
    all_ready(&channel).await;
    let mut client = Client::new(channel.clone());
    for _ in 0..12 {
        assert_ne!(responding_server(&mut client, failing(0)).await.unwrap(), 1);
    }
    assert!(log.counts()[&1] >= 3, "it had its turns");
    let idle = || channel.snapshot().backends.iter().all(|it| it.in_flight == 0);
    until("the attempts there were cancelled", idle).await;
    let slow = &channel.snapshot().backends[1];
    assert_eq!(
        (slow.consecutive_failures, slow.ejected_for),
        (0, None),
        "a losing hedge is not a failure"
    );
}

#[tokio::test]
async fn report_and_call_log_name_the_address_of_each_attempt() {
    let (replicas, _log) = replicas(3);
    let channel = to(&replicas, &config("round_robin", RETRY)).build().unwrap();
    all_ready(&channel).await;
    let mut client = Client::new(channel.clone());
    let call_log = SharedCallLog::new();
    let mut request = Request::new(failing(99));
    request.extensions_mut().insert(CallOptions::new().call_log(&call_log));
    let status = client.unary(request).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    let named: Vec<_> = report.history().iter().map(|it| it.backend().unwrap()).collect();
    assert_eq!(named.len(), 5, "{report}");
    let addresses: Vec<_> = replicas.iter().map(|it| it.address.to_string()).collect();
    assert!(named.iter().all(|name| addresses.contains(&(*name).to_owned())), "{named:?}");
    assert_eq!(named[..3].iter().collect::<BTreeSet<_>>().len(), 3, "{named:?}");
    let log = call_log.take().to_string();
    assert!(named.iter().all(|name| log.contains(&format!("(backend {name})"))), "{log}");
}

#[tokio::test]
async fn control_counts_backends_as_long_as_the_channel_lives() {
    let (replicas, _log) = replicas(2);
    let channel = to(&replicas, &config("round_robin", RETRY)).build().unwrap();
    let control = channel.control();
    assert_eq!(control.backends().map(|it| it.connected), Some(0));
    all_ready(&channel).await;
    let counts = control.backends().unwrap();
    assert_eq!((counts.known, counts.connected), (2, 2));
    assert_eq!(Some(channel.counts()), control.backends());
    drop(channel);
    until("the channel is gone", || control.backends().is_none()).await;
}
