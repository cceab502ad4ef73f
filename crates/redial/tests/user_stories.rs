//! What users build, on virtual time: pollers, reconnect loops, a pool that connects at start-up, a nightly
//! job and a client of many hosts. None of them ends with `throttled`, except for the host that is down.
//! The policies of the pool, the consumers and the poller of a job are those of `docs/cookbook.md`.
#![cfg(feature = "tokio")]

use std::cell::Cell;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::throttle::KeyedBudgets;
use redial::time::Sleeper;
use redial::{Error, Policy, StopReason, Throttle, ms, s};
use tokio::time::Instant;

const DAY: Duration = s(86_400);

/// The time since `start`.
fn since(start: u64) -> Duration {
    Duration::from_nanos(Clock.now() - start)
}

#[test]
fn poller_of_100_polls_is_never_throttled() {
    // Ten polls per second, for which the budget would not last.
    static POLL: Policy = Policy::constant(ms(100)).attempts(100).build();
    let polls = Cell::new(0);
    let status = POLL
        .retry(|| {
            polls.set(polls.get() + 1);
            let status = polls.get();
            async move { Ok::<_, std::io::Error>(status) }
        })
        .until(|status| *status == 100)
        .when(|_| true)
        .sleeping_on(Clock);
    assert_eq!(block_on(status.into_future()).expect("it is ready"), 100);
    assert_eq!(POLL.tokens(0), Some(10.0), "waiting for a value is free");
    let never = POLL.retry(|| async { Ok::<_, ()>(0) }).until(|_| false).when(|()| true);
    let error = block_on(never.sleeping_on(Clock).into_future()).expect_err("it is never ready");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 100));
}

#[test]
fn reconnect_loop_runs_through_short_and_long_connections() {
    static RECONNECT: Policy =
        Policy::exponential(s(1)).cap(s(60)).forever().reset_after(s(300)).build();
    let (start, connections) = (Clock.now(), Cell::new(0u32));
    let consume = RECONNECT
        .retry(|| async {
            connections.set(connections.get() + 1);
            let hour = since(start).as_secs() / 3600;
            match hour {
                24.. => return Ok("a day is over"),
                // The server is down for two hours.
                8 | 9 => {}
                // Every other hour, connections are lost after seconds.
                odd if odd % 2 == 1 => Clock.sleep(s(20)).await,
                _ => Clock.sleep(s(600)).await,
            }
            Err("connection lost")
        })
        .when(|_| true)
        .sleeping_on(Clock);
    let end = block_on(consume.into_future());
    assert_eq!(end.expect("it never gives up"), "a day is over");
    assert!(since(start) >= DAY);
    assert!((200..5000).contains(&connections.get()), "{connections:?}");
}

#[tokio::test(start_paused = true)]
async fn pool_of_ten_connections_outlasts_an_outage_below_the_deadline() {
    static CONNECT: Policy = Policy::exponential(ms(50))
        .cap(s(2))
        .unlimited()
        .deadline(s(30))
        .throttle(Throttle::none())
        .build();
    let start = Instant::now();
    let connect = move || async move {
        if start.elapsed() < s(27) { Err("connection refused") } else { Ok(()) }
    };
    let mut pool = tokio::task::JoinSet::new();
    for _ in 0..10 {
        pool.spawn(CONNECT.retry(connect).when(|_| true).into_future());
    }
    assert!(pool.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn consumers_that_lose_the_broker_together_all_reconnect() {
    static CONSUME: Policy =
        Policy::exponential(s(1)).cap(s(60)).forever().reset_after(s(300)).build();
    let start = Instant::now();
    // The broker is down for an hour.
    let consume = move || async move {
        if start.elapsed() < s(3600) { Err("connection refused") } else { Ok(()) }
    };
    let mut consumers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        consumers.spawn(CONSUME.retry(consume).when(|_| true).into_future());
    }
    assert!(consumers.join_all().await.iter().all(Result::is_ok));
    assert!(start.elapsed() <= s(3660), "the longest delay is 60 s: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn poller_outlasts_an_outage_of_the_server_below_the_deadline() {
    static POLL: Policy =
        Policy::constant(ms(250)).unlimited().deadline(s(60)).throttle(Throttle::none()).build();
    let start = Instant::now();
    let status = move || async move {
        match start.elapsed() {
            outage if outage > s(10) && outage < s(50) => Err("timed out"),
            elapsed => Ok(elapsed > s(55)),
        }
    };
    let done = POLL.retry(status).until(|done| *done).when(|_| true).await;
    assert_eq!(done.ok(), Some(true));
}

#[test]
fn nightly_job_has_retries_after_three_failing_nights() {
    static EXPORT: Policy = Policy::exponential(s(1)).attempts(8).build();
    for night in 1..=3 {
        let start = Clock.now();
        let export = EXPORT.retry(|| async { Err::<(), _>("maintenance") }).when(|_| true);
        let error = block_on(export.sleeping_on(Clock).into_future()).expect_err("it fails");
        let ended = (error.stop_reason(), error.attempts());
        assert_eq!(ended, (StopReason::AttemptsExhausted, 8), "night {night}");
        block_on(Clock.sleep(DAY - since(start)));
    }
    let tries = Cell::new(0);
    let export = EXPORT.retry(|| {
        tries.set(tries.get() + 1);
        let failed = tries.get() < 8;
        async move { if failed { Err("maintenance") } else { Ok(()) } }
    });
    let export = export.when(|_| true).sleeping_on(Clock);
    assert!(block_on(export.into_future()).is_ok(), "the fourth night needs all its retries");
}

#[test]
fn host_that_is_down_spends_only_its_own_budget() {
    static FETCH: Policy = Policy::immediate().attempts(3).build();
    static HOSTS: KeyedBudgets<String> = KeyedBudgets::new(100);
    let fetch = |host: &str| -> Result<(), Error<&str>> {
        let policy = FETCH.with_budget(HOSTS.get(host));
        let tries = Cell::new(0);
        let get = || {
            tries.set(tries.get() + 1);
            if host == "down" || tries.get() < 3 { Err("refused") } else { Ok(()) }
        };
        policy.retry(get).when(|_| true).call()
    };
    let stopped: Vec<_> =
        (0..20).map(|_| fetch("down").expect_err("it is down").stop_reason()).collect();
    assert_eq!(stopped.last(), Some(&StopReason::Throttled));
    for host in ["a", "b", "c", "d"] {
        assert!(fetch(host).is_ok(), "{host}");
    }
    assert_eq!(FETCH.tokens(0), Some(10.0));
}
