//! What users build with the default budget, on virtual time: a poller, a reconnect loop, a nightly job
//! and a client of many hosts. None of them ends with `throttled`, except for the host that is down.

use std::cell::Cell;
use std::time::Duration;

use redial::testing::{Clock, block_on};
use redial::throttle::KeyedBudgets;
use redial::{Error, Policy, Sleeper, StopReason, ms, s};

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
fn reconnect_loop_runs_for_a_day_of_short_and_long_connections() {
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
