//! Name resolution while calls run: address updates, TTL, and configs from the resolver.

use std::sync::Arc;
use std::time::Duration;

use redial_echo::EchoRequest;
use redial_grpc_balance::CallReport;
use redial_grpc_balance::{RESOLVE_INTERVAL_MIN_DEFAULT, Resolution, ResolveFuture, Resolver};
use tokio::time::Instant;
use tonic::{Code, Request};

use super::support::{
    Client, Log, Pipes, RETRY, ScriptedResolver, address, config, failing, responding_server,
};

fn found(nths: &[usize]) -> Resolution {
    Resolution::new(nths.iter().map(|nth| address(*nth)).collect())
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn address_update_keeps_connections_and_finishes_calls_in_flight() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    for nth in 1..=3 {
        pipes.serve(nth, &log);
    }
    resolver.set(found(&[1, 2]));
    let channel = pipes.channel(&config("round_robin", RETRY)).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    // A stream of two minutes on each of the two backends.
    let ask = EchoRequest { responses: Some(12), delay_ms: 10_000, ..EchoRequest::default() };
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(client.server_stream(ask.clone()).await.unwrap().into_inner());
    }
    resolver.set(found(&[2, 3]));
    tokio::time::sleep(s(61)).await;
    let addresses: Vec<_> = channel.snapshot().backends.iter().map(|it| it.address).collect();
    assert_eq!(addresses, [address(2), address(3)]);
    log.take();
    for _ in 0..6 {
        assert_ne!(responding_server(&mut client, failing(0)).await.unwrap(), 1);
    }
    assert!(log.counts().contains_key(&3));
    for mut stream in streams {
        let mut messages = 0;
        while stream.message().await.unwrap().is_some() {
            messages += 1;
        }
        assert_eq!(messages, 12, "also on the backend that is no longer listed");
    }
    assert_eq!(pipes.connect_attempts(2).len(), 1, "what stays keeps its connection");
}

#[tokio::test(start_paused = true)]
async fn resolution_that_fails_or_is_empty_keeps_the_addresses() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver.set(found(&[1]));
    let channel = pipes.channel(&config("round_robin", "")).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(0)).await.unwrap();
    resolver.set(found(&[]));
    tokio::time::sleep(s(61)).await;
    assert_eq!(channel.snapshot().resolution_error.as_deref(), Some("the answer has no address"));
    resolver.fail();
    tokio::time::sleep(s(200)).await;
    assert_eq!(channel.snapshot().resolution_error.as_deref(), Some("the resolver is out"));
    client.unary(failing(0)).await.unwrap();
    // After 60 s, then 1, 1.6, 2.56 ... s apart, ±20 %.
    let queries = resolver.queries();
    let first = queries[2] - queries[1];
    assert!(
        first >= Duration::from_millis(800) && first <= Duration::from_millis(1202),
        "{first:?}"
    );
    assert!((8..=14).contains(&queries.len()), "{}", queries.len());
    resolver.set(found(&[1]));
    tokio::time::sleep(s(121)).await;
    assert_eq!(channel.snapshot().resolution_error, None);
}

#[tokio::test(start_paused = true)]
async fn resolution_failure_before_any_address_is_unavailable_with_cause() {
    let (pipes, resolver) = (Pipes::default(), ScriptedResolver::default());
    let channel = pipes.channel("{}").resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    let status = client.unary(failing(0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status.message(),
        "no backend is known: the name cannot be resolved: the resolver is out"
    );
    let log = Log::default();
    pipes.serve(1, &log);
    resolver.set(found(&[1]));
    tokio::time::sleep(s(2)).await;
    client.unary(failing(0)).await.unwrap();
}

/// A resolver that never answers. The field says whether it may return a config.
#[derive(Debug)]
struct Mute(bool);

impl Resolver for Mute {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(std::future::pending())
    }

    fn may_return_config(&self) -> bool {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn resolver_without_config_is_awaited_under_the_call_deadline() {
    let started = Instant::now();
    let channel = Pipes::default().channel("{}").resolver(Mute(false)).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(s(2));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    assert_eq!((status.code(), started.elapsed()), (Code::DeadlineExceeded, s(2)));
}

#[tokio::test(start_paused = true)]
async fn resolver_that_hangs_does_not_block_calls_forever() {
    let started = Instant::now();
    let channel = Pipes::default().channel("{}").resolver(Mute(true)).build().unwrap();
    let mut client = Client::new(channel);
    let mut request = Request::new(failing(0));
    request.set_timeout(s(2));
    let status = client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), started.elapsed()), (Code::DeadlineExceeded, s(2)));
    let status = client.unary(failing(0)).await.unwrap_err();
    assert!(
        status.message().ends_with("the name cannot be resolved: no answer in 20s"),
        "{status}"
    );
    // The timer has a resolution of one millisecond.
    assert!(started.elapsed() - s(20) < Duration::from_millis(10), "{:?}", started.elapsed());
}

/// The wait for a config ends at the call's deadline, its own or the active config's. After the
/// wait, the layer gets the remaining time.
#[tokio::test(start_paused = true)]
async fn deadline_bounds_the_wait_for_the_first_config() {
    let ms = Duration::from_millis;
    let timeout = config("pick_first", r#""timeout": "0.3s""#);
    for (own, default, expected) in [
        (Some(ms(200)), "{}", ms(200)),
        (None, &*timeout, ms(300)),
        (Some(ms(200)), &timeout, ms(200)),
        (Some(s(8)), "{}", s(8)),
    ] {
        let channel = Pipes::default().channel(default).resolver(Mute(true)).build().unwrap();
        let mut client = Client::new(channel);
        for _ in 0..2 {
            let started = Instant::now();
            let mut request = Request::new(failing(0));
            if let Some(own) = own {
                request.set_timeout(own);
            }
            let status = client.unary(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            // The timer has a resolution of one millisecond.
            let late = started.elapsed() - expected;
            assert!(late <= ms(2), "{own:?} {default}: {:?}", started.elapsed());
        }
    }
}

/// A resolver that answers after a delay.
#[derive(Debug)]
struct Slow(Duration, String);

impl Resolver for Slow {
    fn resolve(&self) -> ResolveFuture<'_> {
        Box::pin(async move {
            tokio::time::sleep(self.0).await;
            Ok(found(&[1]).with_config(&self.1))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_of_a_resolvers_config_includes_the_wait_for_it() {
    let (pipes, log) = (Pipes::default(), Log::default());
    pipes.serve(1, &log).delay(s(60));
    let config = config("pick_first", r#""timeout": "3s""#);
    let channel = pipes.channel("{}").resolver(Slow(s(1), config)).build().unwrap();
    let started = Instant::now();
    let status = Client::new(channel).unary(failing(0)).await.unwrap_err();
    assert_eq!((status.code(), started.elapsed()), (Code::DeadlineExceeded, s(3)));
    assert_eq!(log.take(), [1]);
    // The latency of the call includes the wait.
    let report = CallReport::of_status(&status).unwrap();
    let attempt = &report.history()[0];
    assert_eq!((report.elapsed(), attempt.started(), attempt.elapsed()), (s(3), s(1), s(2)));
}

/// A call whose deadline passes before the config arrives makes no attempt, and its latency
/// includes the wait.
#[tokio::test(start_paused = true)]
async fn report_counts_the_wait_for_a_config_that_never_comes() {
    let pipes = Pipes::default();
    let channel = pipes.channel("{}").resolver(Slow(s(60), "{}".to_owned())).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(Duration::from_millis(500));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    assert_eq!((report.attempts(), report.elapsed()), (0, Duration::from_millis(500)));
}

#[tokio::test(start_paused = true)]
async fn resolution_repeats_after_a_connection_failure_at_the_minimum_interval() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    resolver.set(found(&[1]));
    let channel =
        pipes.channel(&config("round_robin", "")).resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    client.unary(failing(0)).await.unwrap_err();
    tokio::time::sleep(RESOLVE_INTERVAL_MIN_DEFAULT - s(1)).await;
    assert_eq!(resolver.queries().len(), 1);
    pipes.serve(2, &log);
    resolver.set(found(&[2]));
    // The jitter adds up to 10 %.
    tokio::time::sleep(s(5)).await;
    assert_eq!(resolver.queries().len(), 2);
    client.unary(failing(0)).await.unwrap();
    tokio::time::sleep(s(3600)).await;
    assert_eq!(resolver.queries().len(), 2, "all is healthy, and no resolution was requested");
}

#[tokio::test(start_paused = true)]
async fn resolver_config_replaces_the_default_unless_it_is_invalid() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    for nth in 1..=2 {
        pipes.serve(nth, &log);
    }
    resolver.set(found(&[1, 2]).with_config(config("round_robin", RETRY)));
    let channel = pipes.channel("{}").resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(1)).await.expect("also the first call has the resolver's config");
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 2, "round_robin is active");

    resolver.set(found(&[1, 2]).with_config(r#"{ "methodConfig": 1 }"#));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_some());
    client.unary(failing(1)).await.expect("the current config stays active");

    resolver.set(found(&[1, 2]));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_none());
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable);
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 1, "the default is active again: pick_first");
}

#[tokio::test(start_paused = true)]
async fn resolver_config_error_keeps_the_current_config() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver.set(found(&[1]).with_config_result(Err(Arc::new(std::io::Error::other("no answer")))));
    let channel = pipes.channel(&config("pick_first", RETRY)).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(1)).await.expect("the default is active");
    assert_eq!(channel.snapshot().config_error.unwrap().to_string(), "no answer");
    resolver.set(found(&[1]).with_config("{}"));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_none());
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable);
    resolver.set(found(&[1]).with_config_result(Err(Arc::new(std::io::Error::other("no answer")))));
    tokio::time::sleep(s(61)).await;
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable, "it stays");
}

#[tokio::test(start_paused = true)]
async fn resolution_repeats_when_its_ttl_expires() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver.set(found(&[1]).ttl(s(100)));
    let channel = pipes.channel("{}").resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    client.unary(failing(0)).await.unwrap();
    tokio::time::sleep(s(99)).await;
    assert_eq!(resolver.queries().len(), 1);
    // The TTL is now below the minimum interval. The jitter adds up to 10 %.
    resolver.set(found(&[1]).ttl(s(1)));
    tokio::time::sleep(s(12)).await;
    assert_eq!(resolver.queries().len(), 2);
    tokio::time::sleep_until(resolver.queries()[1] + RESOLVE_INTERVAL_MIN_DEFAULT * 11).await;
    assert!((12..=13).contains(&resolver.queries().len()), "{}", resolver.queries().len());
}

#[tokio::test(start_paused = true)]
async fn config_swap_through_control_changes_the_load_balancing_policy() {
    let (pipes, log) = (Pipes::default(), Log::default());
    for nth in 1..=2 {
        pipes.serve(nth, &log);
    }
    let channel = pipes.to(2, "{}").build().unwrap();
    let mut client = Client::new(channel.clone());
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 1);
    channel.control().set_json(&config("round_robin", "")).unwrap();
    client.unary(failing(0)).await.unwrap();
    tokio::time::sleep(s(1)).await;
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 2);
    let warnings = channel.control().set_json(r#"{ "loadBalancingPolicy": "fastest" }"#).unwrap();
    assert_eq!(warnings.len(), 1);
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 1, "an unknown one is pick_first");
}

/// Clients must not resolve at the same moment (thundering herd).
#[tokio::test(start_paused = true)]
async fn resolution_interval_has_jitter_across_clients() {
    // An expired TTL; a backend that all clients lose, after the minimum interval of 30 s.
    for (ttl, refuses, seconds) in [(1000, false, 1000..=1100), (9000, true, 30..=33)] {
        let (pipes, log, resolver) =
            (Pipes::default(), Log::default(), ScriptedResolver::default());
        if !refuses {
            pipes.serve(1, &log);
        }
        resolver.set(found(&[1]).ttl(s(ttl)));
        let channel = |_| pipes.channel("{}").resolver(resolver.clone()).build().unwrap();
        let channels: Vec<_> = (0..50).map(channel).collect();
        let started = Instant::now();
        for channel in &channels {
            channel.start();
        }
        tokio::time::sleep(s(seconds.end() + 1)).await;
        let again = resolver.queries().split_off(50);
        let times: Vec<_> = again.iter().map(|at| at.duration_since(started)).collect();
        assert!(times.iter().all(|time| seconds.contains(&time.as_secs())), "{times:?}");
        let distinct = times.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert!(times.len() == 50 && distinct > 25, "{times:?}");
    }
}

/// Without a minimum interval the channel would resolve in a tight loop, and this test would not
/// end.
#[tokio::test(start_paused = true)]
async fn resolution_with_a_tiny_ttl_keeps_the_minimum_interval() {
    let (pipes, resolver) = (Pipes::default(), ScriptedResolver::default());
    resolver.set(found(&[1]).ttl(s(0)));
    let channel =
        pipes.channel("{}").resolver(resolver.clone()).min_resolve_interval(s(0)).build().unwrap();
    channel.start();
    tokio::time::sleep(s(1)).await;
    assert!((50..=101).contains(&resolver.queries().len()), "{}", resolver.queries().len());
}
