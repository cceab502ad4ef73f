//! Options of a call that replace a part of its policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial::throttle::{Bucket, RetryBudget};
use redial::{CallLog, Hedged, Policy, StopReason, Throttle, ms, rules::Rules, s};

async fn fails() -> Result<(), &'static str> {
    tokio::time::sleep(ms(5)).await;
    Err("busy")
}

#[tokio::test(start_paused = true)]
async fn override_of_attempts_lowers_and_raises_the_limit() {
    let policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none()).build();
    for (attempts, made) in [(0, 1), (1, 1), (2, 2), (7, 7)] {
        let call = policy.retry(fails).when(|_| true).attempts(attempts);
        let error = call.await.expect_err("always busy");
        let report = error.report();
        assert_eq!((report.attempts, report.attempts_max), (made, Some(made)), "{attempts}");
        assert_eq!(error.stop_reason(), StopReason::AttemptsExhausted);

        let call = policy.retry(|| Err::<(), _>("busy")).when(|_| true).attempts(attempts);
        assert_eq!(call.call().expect_err("always busy").attempts(), made, "blocking");
        let mut unit = ();
        let call = policy.retry_on(&mut unit, async |()| fails().await).attempts(attempts);
        let error = call.when(|_| true).await.expect_err("always busy");
        assert_eq!(error.attempts(), made, "borrowing");
    }
    let error = policy.retry(fails).when(|_| true).await.expect_err("always busy");
    assert_eq!(error.attempts(), 3, "the policy is as before");
}

#[tokio::test(start_paused = true)]
async fn override_of_attempts_bounds_an_endless_policy() {
    let policy = Policy::constant(ms(10)).forever().throttle(Throttle::none()).build();
    let error = policy.retry(fails).when(|_| true).attempts(4).await.expect_err("always busy");
    assert_eq!(error.attempts(), 4);
}

#[tokio::test(start_paused = true)]
async fn override_of_hedged_attempts_stays_within_32() {
    static READ: Hedged = Policy::hedged(ms(1)).attempts(2).throttle(Throttle::none()).build();
    let started = AtomicU32::new(0);
    let slow = async || {
        started.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(s(1)).await;
        Err::<(), _>("busy")
    };
    for (attempts, made) in [(1, 1), (32, 32), (33, 32)] {
        let error = READ.retry(slow).when(|_| true).attempts(attempts).await;
        assert_eq!(error.expect_err("always busy").attempts(), made);
        assert_eq!(started.swap(0, Ordering::Relaxed), made);
    }
}

#[tokio::test(start_paused = true)]
async fn override_of_the_attempt_timeout_and_its_retry() {
    let policy = Policy::constant(ms(10)).attempts(2).deadline(s(1));
    let policy = policy.throttle(Throttle::none()).build();
    let hangs = std::future::pending::<Result<(), &str>>;
    let ends = async |timeout, retry_timeouts: bool| {
        let call = policy.retry(hangs).when(|_| true).attempt_timeout(timeout);
        let call = if retry_timeouts { call.retry_timeouts() } else { call };
        let error = call.await.expect_err("it hangs");
        (error.stop_reason(), error.attempts(), error.elapsed())
    };
    assert_eq!(ends(ms(20), false).await, (StopReason::AttemptTimeout, 1, ms(20)));
    assert_eq!(ends(ms(20), true).await, (StopReason::AttemptsExhausted, 2, ms(50)));
    // Not before the deadline: no effect.
    assert_eq!(ends(s(1), true).await, (StopReason::Deadline, 1, s(1)));

    let call = policy.retry(hangs).when(|_| true).attempt_timeout(ms(20)).not_idempotent();
    let error = call.retry_timeouts().await.expect_err("it hangs");
    assert_eq!(error.attempts(), 1, "it may have run");
}

#[tokio::test(start_paused = true)]
async fn override_of_the_throttle_charges_the_other_budget() {
    let own = Arc::new(RetryBudget::new(10.0, 0.5));
    let policy = Policy::immediate().attempts(3).build().with_budget(own.clone());
    let tenant = Arc::new(RetryBudget::new(3.0, 0.5));
    let call = || policy.retry(fails).when(|_| true).with_budget(tenant.clone());
    assert_eq!(call().await.expect_err("always busy").stop_reason(), StopReason::AttemptsExhausted);
    let error = call().await.expect_err("always busy");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 2));
    assert_eq!(error.report().tokens, Some(0.0), "of the budget of the call");
    assert_eq!((own.tokens(0), tenant.tokens(0)), (Some(10.0), Some(0.0)));

    let works = || policy.retry(|| async { Ok::<_, &str>(7) }).when(|_| true);
    works().with_budget(tenant.clone()).await.expect("it works");
    assert_eq!(tenant.tokens(0), Some(0.5), "a success refills it");
    let free = policy.retry(fails).when(|_| true).throttle(Throttle::none());
    assert_eq!(free.await.expect_err("always busy").attempts(), 3);
    assert_eq!(own.tokens(0), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn override_keeps_the_name_and_works_without_a_policy() {
    let call = redial::retry(fails).when(|_| true).attempts(2).throttle(Throttle::none());
    let here = format!("{}:{}", file!(), line!() - 1);
    let error = call.await.expect_err("always busy");
    assert_eq!((error.attempts(), error.report().policy.to_string()), (2, here));
    let named = Policy::immediate().name("fetch").build();
    let error = named.retry(fails).when(|_| true).attempts(1).await.expect_err("always busy");
    assert_eq!(error.report().policy.custom(), Some("fetch"));
}

#[tokio::test(start_paused = true)]
async fn override_of_the_name_reaches_hooks_reports_and_call_logs() {
    let policy = Policy::constant(ms(10)).attempts(2).name("query").build();
    let (mut names, mut call_log) = (Vec::new(), CallLog::new());
    let call = policy.retry(fails).when(|_| true).name("load user").call_log(&mut call_log);
    let call = call.on_event(|context, _| names.push(context.policy.to_string()));
    let error = call.await.expect_err("always busy");
    assert_eq!(error.report().policy.custom(), Some("load user"));
    assert!(names.len() > 2 && names.iter().all(|name| name == "load user"), "{names:?}");
    assert_eq!(call_log.policy(), Some("load user"));
    assert_eq!(policy.tokens(0), Some(9.0), "the budget is still that of the policy");

    let call = redial::retry(|| Ok::<_, &str>(7)).when(|_| true).name("default policy");
    let (_, report) = call.with_report().call().expect("it works");
    assert_eq!(report.policy.custom(), Some("default policy"));
    let mut unit = ();
    let call = policy.retry_on(&mut unit, async |()| fails().await).name("borrowing");
    let error = call.when(|_| true).await.expect_err("always busy");
    assert_eq!(error.report().policy.custom(), Some("borrowing"));
}

/// A call log is replayed with the policy that the call had.
#[tokio::test(start_paused = true)]
async fn override_is_replayed_with_the_changed_policy() {
    let policy = Policy::constant(ms(10)).attempts(3).throttle(Throttle::none());
    let mut call_log = CallLog::new();
    let three = policy.build();
    let call = three.retry(fails).when(|_| true).attempts(5).call_log(&mut call_log);
    call.await.expect_err("always busy");
    call_log.replay(policy.attempts(5).build()).expect("the same decisions");
    call_log.replay(&three).expect_err("three attempts are fewer");
}

/// No override makes valid rules invalid.
#[tokio::test(start_paused = true)]
async fn override_never_contradicts_valid_rules() {
    let deadline = Policy::constant(ms(10)).attempts(2).deadline(ms(0)).build();
    let table = Policy::table(&[]).try_build_with_table(vec![ms(1), ms(2)]).expect("valid");
    let function = Policy::immediate().try_build_with(|_| ms(1)).expect("valid");
    let unlimited = Policy::from_rules(Rules { forever: true, attempts: None, ..Rules::DEFAULT });
    for policy in [deadline, table, function, unlimited.build()] {
        for (attempts, timeout) in [(0, ms(0)), (1, ms(1)), (3, s(1)), (u32::MAX, s(99))] {
            let call = policy.retry(|| async { Ok::<_, ()>(7) }).when(|()| true);
            let call = call.attempts(attempts).attempt_timeout(timeout).retry_timeouts();
            assert_eq!(call.await.ok(), Some(7), "{policy:?} {attempts} {timeout:?}");
        }
    }
}
