//! Goal: a call that another library runs makes the decisions of every other call. Method: the same policies
//! and outcomes through `testing::play`, and the reports of the other library one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use redial::external::{ExternalCall, Next};
use redial::rules::{AttemptTimeoutAction, Backoff, ChargeAt, Rules};
use redial::strategy::{Decision, Request};
use redial::testing::{draws, fails, play, succeeds};
use redial::throttle::{CostBucket, CostBucketConfig, RetryBudget, WhenEmpty};
use redial::{Directive, Failure, Policy, Stage, StopReason, Throttle, ms, s};

const SERVER: Directive = Directive::Retry(Failure::server());

const fn ns(millis: u64) -> u64 {
    millis * 1_000_000
}

/// The starts and the end of a call whose attempts end at once with these directives.
fn run(policy: &Arc<Policy>, directives: &[Directive]) -> (Vec<Duration>, StopReason) {
    let mut now = ns(1_000);
    let mut starts = vec![ms(0)];
    let mut call = ExternalCall::new(policy.clone()).start(now);
    for directive in directives {
        let mut next = call.ended(*directive, now);
        while let Next::Wait(delay) = next {
            now += u64::try_from(delay.as_nanos()).unwrap();
            next = call.start_next(now);
        }
        match next {
            Next::Start(number) => {
                starts.push(Duration::from_nanos(now - ns(1_000)));
                assert_eq!(number as usize, starts.len());
            }
            Next::End(stop_reason) => return (starts, stop_reason),
            Next::Wait(_) => unreachable!(),
        }
    }
    panic!("the call goes on")
}

fn bucket(capacity: f64) -> Arc<CostBucket> {
    let spec = CostBucketConfig {
        capacity,
        refill_per_second: 0.0,
        empty: WhenEmpty::Fail,
        ..CostBucketConfig::STANDARD
    };
    Arc::new(CostBucket::new(spec).unwrap())
}

#[test]
fn external_call_starts_attempts_when_the_driver_does() {
    let own = || Throttle::none();
    let policies = [
        Policy::constant(ms(20)).throttle(own()).build(),
        Policy::exponential(ms(10)).attempts(5).throttle(own()).build(),
        Policy::immediate().attempts(4).throttle(own()).build(),
        Policy::constant(ms(20)).attempts(9).deadline(ms(70)).throttle(own()).build(),
        Policy::from_rules(Rules { charge_at: ChargeAt::AfterBackoff, ..Rules::DEFAULT })
            .throttle(own())
            .build()
            .sharing(bucket(500.0)),
    ];
    for policy in policies {
        let _guard = draws([0.5]);
        let played = play(&policy, (0..9).map(|_| fails()));
        let _guard = draws([0.5]);
        let (starts, stop_reason) = run(&Arc::new(policy.clone()), &[SERVER; 9]);
        assert_eq!(starts, played.starts(), "{policy:?}");
        assert_eq!(Some(stop_reason), played.stop_reason(), "{policy:?}");
        let played = play(&policy, [fails(), succeeds()]);
        let (starts, stop_reason) = run(&Arc::new(policy.clone()), &[SERVER, Directive::Succeed]);
        assert_eq!((starts.len(), Some(stop_reason)), (2, played.stop_reason()));
    }
}

#[test]
fn external_call_first_success_credits_the_budget() {
    let budget = Arc::new(RetryBudget::new(10.0, 0.5));
    let policy = Arc::new(Policy::constant(ms(20)).build().with_budget(budget));
    let (_, stop_reason) = run(&policy, &[SERVER, Directive::Fail]);
    assert_eq!((stop_reason, policy.tokens(0)), (StopReason::NotRetryable, Some(9.0)));
    let mut call = ExternalCall::new(policy.clone()).start(0);
    assert_eq!(call.start_next(0), Next::Start(1), "the first attempt runs already");
    assert_eq!(call.ended(Directive::Succeed, 0), Next::End(StopReason::Succeeded));
    assert_eq!(call.ended(Directive::Succeed, 0), Next::End(StopReason::Succeeded));
    assert_eq!(policy.tokens(0), Some(9.5), "credited once");
    assert_eq!(call.report().unwrap().0.attempts, 1);
}

#[test]
fn external_call_refunds_a_retry_that_never_starts() {
    let policy = Arc::new(Policy::constant(ms(20)).throttle(Throttle::none()).build());
    let policy = Arc::new(Policy::clone(&policy).sharing(bucket(20.0)));
    let mut call = ExternalCall::new(policy.clone()).start(0);
    assert_eq!(call.ended(SERVER, 0), Next::Wait(ms(20)));
    assert_eq!(policy.tokens(0), Some(15.0));
    drop(call);
    assert_eq!(policy.tokens(0), Some(20.0), "the application dropped the call");

    let mut call = ExternalCall::new(policy.clone()).start(0);
    assert_eq!(call.ended(SERVER, 0), Next::Wait(ms(20)));
    assert_eq!(call.stop(StopReason::Committed, 0), StopReason::Committed);
    assert_eq!(policy.tokens(0), Some(20.0), "the other library made no further attempt");
    assert_eq!(call.stop(StopReason::Cancelled, 0), StopReason::Committed, "ended once");

    let mut call = ExternalCall::new(policy.clone()).start(0);
    assert_eq!(call.ended(SERVER, 0), Next::Wait(ms(20)));
    assert_eq!(call.start_next(ns(20)), Next::Start(2));
    assert_eq!(call.stop(StopReason::Cancelled, ns(30)), StopReason::NotRetryable);
    assert_eq!(policy.tokens(0), Some(15.0), "the retry had started");
}

#[test]
fn external_call_ends_at_its_deadline() {
    let policy = Arc::new(Policy::constant(ms(20)).throttle(Throttle::none()).build());
    let mut call = ExternalCall::new(policy.clone()).deadline(ms(15)).start(0);
    assert_eq!(call.ended(SERVER, 0), Next::End(StopReason::Deadline), "it would start too late");
    let mut call = ExternalCall::new(policy).deadline(ms(30)).start(0);
    assert_eq!(call.ended(SERVER, 0), Next::Wait(ms(20)));
    assert_eq!(call.start_next(ns(31)), Next::End(StopReason::Deadline), "it was late");
    let rules = Rules { deadline: Some(s(1)), ..Rules::DEFAULT };
    let policy = Arc::new(Policy::from_rules(rules).throttle(Throttle::none()).build());
    let mut call = ExternalCall::new(policy).start(0);
    assert_eq!(call.ended(SERVER, 0), call.ended(SERVER, 0), "a second report changes nothing");
    assert_eq!(call.stop(StopReason::Cancelled, ns(1_000)), StopReason::Deadline);
}

#[test]
fn external_call_timeout_follows_the_policy() {
    let rules = Rules { attempt_timeout: Some(ms(50)), ..Rules::DEFAULT };
    let backoff = Backoff::Constant(ms(20));
    let retry = Rules { attempt_timeout_action: AttemptTimeoutAction::Retry, backoff, ..rules };
    let call = |rules: Rules| {
        let policy = Policy::from_rules(Rules { jitter: redial::Jitter::None, ..rules });
        ExternalCall::new(Arc::new(policy.throttle(Throttle::none()).build())).start(0)
    };
    assert_eq!(call(rules).timed_out(ns(50)), Next::End(StopReason::AttemptTimeout));
    let mut again = call(retry);
    assert_eq!(again.timed_out(ns(50)), Next::Wait(ms(20)));
    assert_eq!(again.start_next(ns(70)), Next::Start(2));
    let none = Rules { attempt_timeout: None, ..retry };
    assert_eq!(call(none).timed_out(ns(50)), Next::Wait(ms(20)), "not the policy's timeout");
}

#[test]
fn external_call_options_limit_retries() {
    let policy = Arc::new(Policy::constant(ms(20)).throttle(Throttle::none()).build());
    let mut call = ExternalCall::new(policy.clone()).not_idempotent().start(0);
    assert_eq!(call.ended(SERVER, 0), Next::End(StopReason::NotIdempotent));
    let mut call = ExternalCall::new(policy.clone()).not_idempotent().start(0);
    let unsent = Directive::Retry(Failure::client().at(Stage::Unsent));
    assert_eq!(call.ended(unsent, 0), Next::Wait(ms(20)));
    let mut call = ExternalCall::new(policy.clone()).not_replayable().start(0);
    assert_eq!(call.ended(unsent, 0), Next::End(StopReason::Committed));
    let events = Arc::new(AtomicU32::new(0));
    let seen = events.clone();
    let hook = move |_, _: &redial::Event| {
        seen.fetch_add(1, Relaxed);
    };
    let mut call = ExternalCall::new(policy).on_event(hook).history().start(0);
    assert_eq!(call.ended(Directive::Fail, ns(5)), Next::End(StopReason::NotRetryable));
    let (report, strategy_error) = call.report().unwrap();
    assert_eq!((report.elapsed, report.history.len()), (ms(5), 1));
    assert!(strategy_error.is_none());
    assert_eq!(events.load(Relaxed), 4, "call and attempt start, outcome and end");
}

#[test]
fn external_call_strategy_must_answer_at_once() {
    let with = |strategy: fn(&Request<'_>) -> Decision| {
        let policy = Policy::constant(ms(20)).throttle(Throttle::none()).build();
        ExternalCall::new(Arc::new(policy.with_strategy(strategy).unwrap())).start(0)
    };
    assert_eq!(with(|_| Decision::Retry(ms(7))).ended(SERVER, 0), Next::Wait(ms(7)));
    let declined = Next::End(StopReason::StrategyDeclined);
    assert_eq!(with(|_| Decision::Decline).ended(SERVER, 0), declined);
    let ready = |_: &Request<'_>| Decision::later(async { Some(ms(8)) });
    assert_eq!(with(ready).ended(SERVER, 0), Next::Wait(ms(8)), "it needs no waiting");
    let mut call = with(|_| Decision::later(std::future::pending::<Option<Duration>>()));
    assert_eq!(call.ended(SERVER, 0), declined);
    let error = call.report().unwrap().1.unwrap();
    assert!(error.to_string().contains("decides later"), "{error}");
}
