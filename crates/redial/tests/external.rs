//! Goal: a call that another library runs makes the decisions of every other call. Method: the same policies
//! and outcomes through `testing::play`, and the reports of the other library one by one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use redial::external::{ExternalCall, FailedAttempt, Next, StatelessPolicy};
use redial::rules::{AttemptTimeoutAction, Backoff, ChargeAt, Limits, Rules};
use redial::strategy::{Decision, Request};
use redial::testing::{draws, fails, play, succeeds};
use redial::throttle::{
    Bucket, Cost, CostBucket, CostBucketConfig, Grant, RetryBudget, WhenEmpty, Withdrawal,
};
use redial::{Directive, Failure, Jitter, Policy, Stage, StopReason, Throttle, ms, s};

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
    assert_eq!(again.timed_out(ns(120)), Next::Wait(ms(20)));
}

#[test]
fn external_call_timeout_before_the_policys_is_judged_now() {
    let timed_out = |policy: Policy| {
        let mut call = ExternalCall::new(Arc::new(policy)).history().start(0);
        let next = call.timed_out(ns(2_000));
        (call, next)
    };
    let timeouts = || Policy::constant(ms(20)).attempt_timeout(s(10)).throttle(Throttle::none());
    let (mut call, next) = timed_out(timeouts().retry_timeouts().deadline(s(11)).build());
    assert_eq!(next, Next::Wait(ms(20)));
    assert_eq!(call.start_next(ns(2_020)), Next::Start(2));
    assert_eq!(call.ended(Directive::Succeed, ns(2_030)), Next::End(StopReason::Succeeded));
    let (report, _) = call.report().unwrap();
    let first = &report.history[0];
    assert_eq!((first.end, first.ended), (redial::report::AttemptEnd::TimedOut, s(2)));
    assert_eq!((report.elapsed, report.history[1].started), (ms(2_030), ms(2_020)));
    // P13: without permission no attempt that may have run is repeated.
    let (mut call, next) = timed_out(timeouts().build());
    assert_eq!(next, Next::End(StopReason::AttemptTimeout));
    assert_eq!(call.report().unwrap().0.elapsed, s(2));
}

#[test]
fn external_call_timeout_without_the_policys_needs_permission() {
    let call = |attempt_timeout_action| {
        let rules = Rules { attempt_timeout_action, jitter: Jitter::None, ..Rules::DEFAULT };
        let policy = Policy::from_rules(Rules { backoff: Backoff::Constant(ms(20)), ..rules });
        ExternalCall::new(Arc::new(policy.throttle(Throttle::none()).build())).start(0)
    };
    let default = Rules::DEFAULT.attempt_timeout_action;
    assert_eq!(call(default).timed_out(ns(50)), Next::End(StopReason::AttemptTimeout));
    assert_eq!(call(AttemptTimeoutAction::Retry).timed_out(ns(50)), Next::Wait(ms(20)));
    // What the other library's own classification allows is a failure like any other.
    let timeout = Directive::Retry(Failure::timeout());
    assert_eq!(call(default).ended(timeout, ns(50)), Next::Wait(ms(20)));
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
    let hook = move |_: &redial::call_log::EventContext<'_>, _: &redial::Event| {
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

/// What follows the attempts of these numbers, which fail with a server failure.
fn stateless(policy: &StatelessPolicy, numbers: &[u32]) -> Vec<Result<Duration, StopReason>> {
    let failed = |number: &u32| FailedAttempt::new(*number, Failure::server());
    numbers.iter().map(|number| policy.decide(&failed(number), 0)).collect()
}

#[test]
fn stateless_policy_has_the_delays_and_attempts_of_calls() {
    static DELAYS: [Duration; 3] = [ms(20), ms(60), ms(40)];
    let policy = Policy::table(&DELAYS).attempts(5).throttle(Throttle::none()).build();
    let single = StatelessPolicy::new(policy.clone()).unwrap();
    let delays: Vec<_> = policy.delays().map(Ok).collect();
    assert_eq!(stateless(&single, &[1, 2, 3, 4]), delays);
    let stopped = [Err(StopReason::AttemptsExhausted); 2];
    assert_eq!(stateless(&single, &[5, u32::MAX]), stopped);
    // In any order: nothing is remembered.
    assert_eq!(stateless(&single, &[3, 1]), [Ok(ms(40)), Ok(ms(20))]);
}

#[test]
fn stateless_policy_repeats_no_attempt_that_may_have_run() {
    let policy = Policy::constant(ms(1)).throttle(Throttle::none()).build();
    let policy = StatelessPolicy::new(policy).unwrap();
    let decide = |stage| {
        let failed = FailedAttempt::new(1, Failure::client().at(stage)).not_idempotent();
        policy.decide(&failed, 0)
    };
    assert_eq!(decide(Stage::InFlight), Err(StopReason::NotIdempotent));
    assert_eq!(decide(Stage::Unsent), Ok(ms(1)));
}

#[test]
fn stateless_policy_spends_the_budget_of_other_calls() {
    let budget = Arc::new(RetryBudget::new(2.0, 0.5));
    let policy = Policy::constant(ms(1)).attempts(9).build().with_budget(budget.clone());
    let single = StatelessPolicy::new(policy.clone()).unwrap();
    let wait = Ok(ms(1));
    assert_eq!(stateless(&single, &[1, 2, 3]), [wait, wait, Err(StopReason::Throttled)]);
    for _ in 0..2 {
        policy.retry(|| Ok::<_, ()>(())).when(|_| true).call().unwrap();
    }
    assert_eq!(stateless(&single, &[1, 1]), [wait, Err(StopReason::Throttled)]);
}

#[test]
fn stateless_policy_asks_its_strategy_once() {
    let asked = Arc::new(AtomicU32::new(0));
    let counter = asked.clone();
    let strategy = move |request: &Request<'_>| {
        counter.fetch_add(1, Relaxed);
        assert_eq!((request.elapsed(), request.remaining()), (ms(0), None));
        assert_eq!(request.reasons(), [redial::Reason::new("BUSY")]);
        match request.retry_attempts() {
            0 => Decision::Retry(ms(7)),
            1 => Decision::later(async { Some(ms(8)) }),
            2 => Decision::later(std::future::pending::<Option<Duration>>()),
            3 => Decision::Fail("no".into()),
            _ => Decision::Decline,
        }
    };
    let policy = Policy::constant(ms(1)).attempts(9).throttle(Throttle::none()).build();
    let policy = StatelessPolicy::new(policy.with_strategy(strategy).unwrap()).unwrap();
    let reasons = [redial::Reason::new("BUSY")];
    let failed = |number| FailedAttempt::new(number, Failure::server()).reasons(&reasons);
    let decided: Vec<_> = (1..=5).map(|number| policy.decide(&failed(number), 0)).collect();
    let declined = Err(StopReason::StrategyDeclined);
    assert_eq!(decided, [Ok(ms(7)), Ok(ms(8)), declined, declined, declined]);
    assert_eq!(asked.load(Relaxed), 5);
}

/// A throttle that answers later: at once when it is asked, or never.
struct Later(bool);

impl Bucket for Later {
    fn watches_calls(&self) -> bool {
        false
    }
    fn withdraw(&self, _: Cost, _: u64) -> Grant {
        Grant::Later
    }
    fn later(&self, _: Cost) -> Pin<Box<dyn Future<Output = Grant> + Send>> {
        if self.0 {
            return Box::pin(std::future::ready(Grant::After(ns(3), Withdrawal(1))));
        }
        Box::pin(std::future::pending())
    }
    fn refund(&self, _: Withdrawal) {}
    fn succeeded(&self, _: Option<Withdrawal>) {}
    fn tokens(&self, _: u64) -> Option<f64> {
        None
    }
}

#[test]
fn stateless_policy_waits_for_no_throttle() {
    let policy = Policy::constant(ms(1)).throttle(Throttle::none()).build();
    let sharing = |bucket| StatelessPolicy::new(policy.clone().sharing(Arc::new(bucket))).unwrap();
    assert_eq!(stateless(&sharing(Later(true)), &[1]), [Ok(ms(4))], "a debt, then the backoff");
    assert_eq!(stateless(&sharing(Later(false)), &[1]), [Err(StopReason::Throttled)]);
}

/// A throttle that counts calls, as those of applications do by default.
struct Watches;

impl Bucket for Watches {
    fn withdraw(&self, _: Cost, _: u64) -> Grant {
        Grant::Now(Withdrawal(0))
    }
    fn refund(&self, _: Withdrawal) {}
    fn succeeded(&self, _: Option<Withdrawal>) {}
    fn tokens(&self, _: u64) -> Option<f64> {
        None
    }
}

#[test]
fn stateless_policy_refuses_rules_about_whole_calls() {
    let rules = Rules {
        deadline: Some(s(1)),
        attempt_timeout: Some(ms(100)),
        limits: Limits { hard: Some(s(1)), ..Limits::NONE },
        jitter: Jitter::Decorrelated,
        reset_after: Some(s(1)),
        charge_at: ChargeAt::AfterBackoff,
        ..Rules::DEFAULT
    };
    let policy = Policy::from_rules(rules).throttle(Throttle::none()).build();
    let error = StatelessPolicy::new(policy.sharing(Arc::new(Watches))).unwrap_err();
    let expected = [
        "a deadline",
        "an attempt timeout",
        "limits on the time of retries",
        "decorrelated jitter",
        "a reset of its delays",
        "a charge after the backoff",
        "a throttle that watches calls",
    ];
    assert_eq!(error.rules(), expected);
    let policy = Policy::constant(ms(1)).deadline(s(1)).throttle(Throttle::none()).build();
    let text = StatelessPolicy::new(policy).unwrap_err().to_string();
    let start = "the policy has a deadline, which needs the state of a whole call, and";
    assert!(text.starts_with(start), "{text}");
}
