//! Names, and what they resolve to while calls run.

use std::sync::Arc;
use std::time::Duration;

use redial_echo::EchoRequest;
use redial_grpc_balance::CallReport;
use redial_grpc_balance::{RESOLVE_INTERVAL_MIN_DEFAULT, Resolution, ResolveFuture, Resolver};
use tokio::time::Instant;
use tonic::{Code, Request};

use super::support::{
    Client, Log, Pipes, RETRY, ScriptedResolver, address, answered_by, config, failing,
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
    resolver.tell(found(&[1, 2]));
    let channel = pipes.dialled(&config("round_robin", RETRY)).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    // A stream of two minutes on each of both.
    let ask = EchoRequest { responses: Some(12), delay_ms: 10_000, ..EchoRequest::default() };
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(client.server_stream(ask.clone()).await.unwrap().into_inner());
    }
    resolver.tell(found(&[2, 3]));
    tokio::time::sleep(s(61)).await;
    let addresses: Vec<_> = channel.snapshot().backends.iter().map(|it| it.address).collect();
    assert_eq!(addresses, [address(2), address(3)]);
    log.take();
    for _ in 0..6 {
        assert_ne!(answered_by(&mut client, failing(0)).await.unwrap(), 1);
    }
    assert!(log.counts().contains_key(&3));
    for mut stream in streams {
        let mut messages = 0;
        while stream.message().await.unwrap().is_some() {
            messages += 1;
        }
        assert_eq!(messages, 12, "also on the backend that is no longer listed");
    }
    assert_eq!(pipes.dials(2).len(), 1, "what stays keeps its connection");
}

#[tokio::test(start_paused = true)]
async fn resolution_that_fails_or_is_empty_keeps_the_addresses() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver.tell(found(&[1]));
    let channel = pipes.dialled(&config("round_robin", "")).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(0)).await.unwrap();
    resolver.tell(found(&[]));
    tokio::time::sleep(s(61)).await;
    assert_eq!(channel.snapshot().resolution_error.as_deref(), Some("the answer has no address"));
    resolver.fail();
    tokio::time::sleep(s(200)).await;
    assert_eq!(channel.snapshot().resolution_error.as_deref(), Some("the resolver is out"));
    client.unary(failing(0)).await.unwrap();
    // 60 s, then 1, 1.6, 2.56 ... s apart, each more or less by a fifth.
    let asked = resolver.asked();
    let first = asked[2] - asked[1];
    assert!(
        first >= Duration::from_millis(800) && first <= Duration::from_millis(1202),
        "{first:?}"
    );
    assert!((8..=14).contains(&asked.len()), "{}", asked.len());
    resolver.tell(found(&[1]));
    tokio::time::sleep(s(121)).await;
    assert_eq!(channel.snapshot().resolution_error, None);
}

#[tokio::test(start_paused = true)]
async fn resolution_failure_before_any_address_is_unavailable_with_cause() {
    let (pipes, resolver) = (Pipes::default(), ScriptedResolver::default());
    let channel = pipes.dialled("{}").resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    let status = client.unary(failing(0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status.message(),
        "no backend is known: the name cannot be resolved: the resolver is out"
    );
    let log = Log::default();
    pipes.serve(1, &log);
    resolver.tell(found(&[1]));
    tokio::time::sleep(s(2)).await;
    client.unary(failing(0)).await.unwrap();
}

/// Never answers; whether a config might have come.
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
    let began = Instant::now();
    let channel = Pipes::default().dialled("{}").resolver(Mute(false)).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(s(2));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    assert_eq!((status.code(), began.elapsed()), (Code::DeadlineExceeded, s(2)));
}

#[tokio::test(start_paused = true)]
async fn resolver_that_hangs_does_not_block_calls_forever() {
    let began = Instant::now();
    let channel = Pipes::default().dialled("{}").resolver(Mute(true)).build().unwrap();
    let mut client = Client::new(channel);
    let mut request = Request::new(failing(0));
    request.set_timeout(s(2));
    let status = client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), began.elapsed()), (Code::DeadlineExceeded, s(2)));
    let status = client.unary(failing(0)).await.unwrap_err();
    assert!(
        status.message().ends_with("the name cannot be resolved: no answer in 20s"),
        "{status}"
    );
    // A timer's grain is a millisecond.
    assert!(began.elapsed() - s(20) < Duration::from_millis(10), "{:?}", began.elapsed());
}

/// The wait for a config that may come ends with the call's deadline, its own or that of the config
/// in force, and what remains of the deadline is what is left after the wait.
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
        let channel = Pipes::default().dialled(default).resolver(Mute(true)).build().unwrap();
        let mut client = Client::new(channel);
        for _ in 0..2 {
            let began = Instant::now();
            let mut request = Request::new(failing(0));
            if let Some(own) = own {
                request.set_timeout(own);
            }
            let status = client.unary(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            // A timer's grain is a millisecond.
            let late = began.elapsed() - expected;
            assert!(late <= ms(2), "{own:?} {default}: {:?}", began.elapsed());
        }
    }
}

/// A resolver that takes its time.
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
    let channel = pipes.dialled("{}").resolver(Slow(s(1), config)).build().unwrap();
    let began = Instant::now();
    let status = Client::new(channel).unary(failing(0)).await.unwrap_err();
    assert_eq!((status.code(), began.elapsed()), (Code::DeadlineExceeded, s(3)));
    assert_eq!(log.take(), [1]);
    // What measures the call counts the wait, too.
    let report = CallReport::of_status(&status).unwrap();
    let attempt = &report.history()[0];
    assert_eq!((report.elapsed(), attempt.started(), attempt.elapsed()), (s(3), s(1), s(2)));
}

/// A call that its deadline ends before the config is there makes no attempt, and took as long.
#[tokio::test(start_paused = true)]
async fn report_counts_the_wait_for_a_config_that_never_comes() {
    let pipes = Pipes::default();
    let channel = pipes.dialled("{}").resolver(Slow(s(60), "{}".to_owned())).build().unwrap();
    let mut request = Request::new(failing(0));
    request.set_timeout(Duration::from_millis(500));
    let status = Client::new(channel).unary(request).await.unwrap_err();
    let report = CallReport::of_status(&status).unwrap();
    assert_eq!((report.attempts(), report.elapsed()), (0, Duration::from_millis(500)));
}

#[tokio::test(start_paused = true)]
async fn resolution_repeats_after_a_connection_failure_at_the_minimum_interval() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    resolver.tell(found(&[1]));
    let channel =
        pipes.dialled(&config("round_robin", "")).resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    client.unary(failing(0)).await.unwrap_err();
    tokio::time::sleep(RESOLVE_INTERVAL_MIN_DEFAULT - s(1)).await;
    assert_eq!(resolver.asked().len(), 1);
    pipes.serve(2, &log);
    resolver.tell(found(&[2]));
    // It may be a tenth later.
    tokio::time::sleep(s(5)).await;
    assert_eq!(resolver.asked().len(), 2);
    client.unary(failing(0)).await.unwrap();
    tokio::time::sleep(s(3600)).await;
    assert_eq!(resolver.asked().len(), 2, "all is well, and nobody asked for more");
}

#[tokio::test(start_paused = true)]
async fn resolver_config_replaces_the_default_unless_it_is_invalid() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    for nth in 1..=2 {
        pipes.serve(nth, &log);
    }
    resolver.tell(found(&[1, 2]).with_config(config("round_robin", RETRY)));
    let channel = pipes.dialled("{}").resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(1)).await.expect("also the first call has the resolver's config");
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 2, "round_robin is in force");

    resolver.tell(found(&[1, 2]).with_config(r#"{ "methodConfig": 1 }"#));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_some());
    client.unary(failing(1)).await.expect("the config in force stays");

    resolver.tell(found(&[1, 2]));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_none());
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable);
    log.take();
    for _ in 0..4 {
        client.unary(failing(0)).await.unwrap();
    }
    assert_eq!(log.counts().len(), 1, "the default is in force again: pick_first");
}

#[tokio::test(start_paused = true)]
async fn resolver_config_error_keeps_the_current_config() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver
        .tell(found(&[1]).with_config_result(Err(Arc::new(std::io::Error::other("no answer")))));
    let channel = pipes.dialled(&config("pick_first", RETRY)).resolver(resolver.clone());
    let channel = channel.resolve_every(s(60)).build().unwrap();
    let mut client = Client::new(channel.clone());
    client.unary(failing(1)).await.expect("the default is in force");
    assert_eq!(channel.snapshot().config_error.unwrap().to_string(), "no answer");
    resolver.tell(found(&[1]).with_config("{}"));
    tokio::time::sleep(s(61)).await;
    assert!(channel.snapshot().config_error.is_none());
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable);
    resolver
        .tell(found(&[1]).with_config_result(Err(Arc::new(std::io::Error::other("no answer")))));
    tokio::time::sleep(s(61)).await;
    assert_eq!(client.unary(failing(1)).await.unwrap_err().code(), Code::Unavailable, "it stays");
}

#[tokio::test(start_paused = true)]
async fn resolution_repeats_when_its_ttl_expires() {
    let (pipes, log, resolver) = (Pipes::default(), Log::default(), ScriptedResolver::default());
    pipes.serve(1, &log);
    resolver.tell(found(&[1]).ttl(s(100)));
    let channel = pipes.dialled("{}").resolver(resolver.clone()).build().unwrap();
    let mut client = Client::new(channel);
    client.unary(failing(0)).await.unwrap();
    tokio::time::sleep(s(99)).await;
    assert_eq!(resolver.asked().len(), 1);
    // From now on it is good for less than the channel waits at least; each time may be a tenth more.
    resolver.tell(found(&[1]).ttl(s(1)));
    tokio::time::sleep(s(12)).await;
    assert_eq!(resolver.asked().len(), 2);
    tokio::time::sleep_until(resolver.asked()[1] + RESOLVE_INTERVAL_MIN_DEFAULT * 11).await;
    assert!((12..=13).contains(&resolver.asked().len()), "{}", resolver.asked().len());
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

/// Red without `SPREAD`: all of them would ask in one moment.
#[tokio::test(start_paused = true)]
async fn resolution_interval_has_jitter_across_clients() {
    // An answer that is no longer good; a backend that is lost to all, thirty seconds ago at least.
    for (ttl, refuses, seconds) in [(1000, false, 1000..=1100), (9000, true, 30..=33)] {
        let (pipes, log, resolver) =
            (Pipes::default(), Log::default(), ScriptedResolver::default());
        if !refuses {
            pipes.serve(1, &log);
        }
        resolver.tell(found(&[1]).ttl(s(ttl)));
        let channel = |_| pipes.dialled("{}").resolver(resolver.clone()).build().unwrap();
        let channels: Vec<_> = (0..50).map(channel).collect();
        let began = Instant::now();
        for channel in &channels {
            channel.start();
        }
        tokio::time::sleep(s(seconds.end() + 1)).await;
        let again = resolver.asked().split_off(50);
        let times: Vec<_> = again.iter().map(|at| at.duration_since(began)).collect();
        assert!(times.iter().all(|time| seconds.contains(&time.as_secs())), "{times:?}");
        let distinct = times.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert!(times.len() == 50 && distinct > 25, "{times:?}");
    }
}

/// Red without `PAUSE_MIN`: the channel would ask all the time, and this would never end.
#[tokio::test(start_paused = true)]
async fn resolution_with_a_tiny_ttl_keeps_the_minimum_interval() {
    let (pipes, resolver) = (Pipes::default(), ScriptedResolver::default());
    resolver.tell(found(&[1]).ttl(s(0)));
    let channel =
        pipes.dialled("{}").resolver(resolver.clone()).min_resolve_interval(s(0)).build().unwrap();
    channel.start();
    tokio::time::sleep(s(1)).await;
    assert!((50..=101).contains(&resolver.asked().len()), "{}", resolver.asked().len());
}
