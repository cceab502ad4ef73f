//! The token bucket: costs, refunds, debts, sharing (S3, S4, S5, S10, B).

use std::sync::Mutex;

use redial::throttle::{Cost, Grant, TokenBucket, Withdrawal};

use super::*;

// S3

#[test]
fn token_bucket_success_refunds_last_retry() {
    let played = play(&Clock::default(), &policy(STILL), &[TIMEOUT, SERVER, OK]);
    assert_eq!((played.tokens, played.ended), (490.0, 25.0));
}

#[test]
fn token_bucket_first_attempt_success_adds_one_up_to_capacity() {
    let (clock, policy) = (Clock::default(), policy(STILL.capacity(20.0)));
    assert_eq!(play(&clock, &policy, &[SERVER, FATAL]).tokens, 15.0);
    assert_eq!(play(&clock, &policy, &[OK]).tokens, 16.0);
    for _ in 0..10 {
        play(&clock, &policy, &[OK]);
    }
    assert_eq!(policy.tokens(now(&clock)), Some(20.0));
}

#[test]
fn token_bucket_failure_refunds_nothing() {
    let clock = Clock::default();
    for (outcomes, tokens) in
        [(vec![SERVER, FATAL], 495.0), (vec![SERVER], 490.0), (vec![THROTTLING, FATAL], 490.0)]
    {
        assert_eq!(play(&clock, &policy(STILL), &outcomes).tokens, tokens);
    }
}

// S4

#[test]
fn retry_token_is_resolved_once() {
    let bucket = STILL.costs().expect("valid");
    let left = || bucket.tokens(0).expect("a bucket");
    let token =
        RetryToken::acquire(&bucket).schedule_retry(FailureKind::Timeout, 0).expect("paid").start();
    let token = token.schedule_retry(FailureKind::Server, 0).expect("paid").start();
    assert_eq!(left(), 485.0);
    token.notify_success();
    assert_eq!(left(), 490.0, "only the tokens of the last retry");

    RetryToken::acquire(&bucket)
        .schedule_retry(FailureKind::Server, 0)
        .expect("paid")
        .start()
        .notify_failure();
    assert_eq!(left(), 485.0);
    RetryToken::acquire(&bucket).notify_success();
    assert_eq!(left(), 486.0);
}

#[test]
fn retry_token_dropped_after_start_counts_as_failure() {
    let bucket = STILL.costs().expect("valid");
    let scheduled =
        RetryToken::acquire(&bucket).schedule_retry(FailureKind::Server, 0).expect("paid");
    assert_eq!((scheduled.after(), bucket.tokens(0)), (ms(0), Some(495.0)));
    drop(scheduled);
    assert_eq!(bucket.tokens(0), Some(500.0), "a retry that never starts is refunded (P6)");
    drop(
        RetryToken::acquire(&bucket).schedule_retry(FailureKind::Server, 0).expect("paid").start(),
    );
    assert_eq!(bucket.tokens(0), Some(495.0));
}

#[test]
fn retry_token_of_empty_bucket_is_refused_or_delayed() {
    let breaker = STILL.capacity(5.0).costs().expect("valid");
    let token =
        RetryToken::acquire(&breaker).schedule_retry(FailureKind::Server, 0).expect("paid").start();
    assert!(token.schedule_retry(FailureKind::Server, 0).is_none());
    assert_eq!(breaker.tokens(0), Some(0.0));

    let lender = PLAIN.capacity(5.0).costs().expect("valid");
    let token =
        RetryToken::acquire(&lender).schedule_retry(FailureKind::Server, 0).expect("paid").start();
    let retry = token.schedule_retry(FailureKind::Server, 0).expect("lent");
    assert_eq!((retry.after(), lender.tokens(0)), (ms(500), Some(-5.0)));
}

#[test]
fn token_bucket_refunds_retry_that_never_started() {
    let clock = Clock::default();
    let policy = policy(STILL.order(TokenOrder::TokenFirst));
    let script = Script::new(&clock, [(0, SERVER)]);
    let call = policy.retry(|| script.attempt()).when(is_retryable).sleeping_on(clock);
    let mut call = Box::pin(call.into_future());
    clock.run(std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    }));
    assert_eq!(policy.tokens(now(&clock)), Some(495.0));
    drop(call);
    assert_eq!(policy.tokens(now(&clock)), Some(500.0));
}

// S5

#[test]
fn token_bucket_empty_waits_for_refill() {
    let played = play(&Clock::default(), &policy(PLAIN.capacity(5.0)), &[SERVER, SERVER, OK]);
    assert_eq!(played.starts, [0.0, 10.0, 510.0]);
    assert!(close(played.tokens, 5.0), "{}", played.tokens);
}

#[test]
fn token_bucket_serves_waiting_retries_in_order() {
    let (clock, policy) = (Clock::default(), policy(PLAIN.capacity(5.0).attempts(2)));
    let scripts: Vec<_> = (0..4).map(|_| Script::new(&clock, [(0, SERVER), (0, FATAL)])).collect();
    let calls = scripts.iter().map(|script| {
        let call = policy.retry(|| script.attempt()).when(is_retryable);
        Box::pin(call.sleeping_on(clock).into_future()) as _
    });
    clock.run(all(calls.collect()));
    let starts: Vec<f64> = scripts.iter().map(|script| script.starts()[1]).collect();
    assert_eq!(starts, [10.0, 510.0, 1010.0, 1510.0]);
}

#[test]
fn token_bucket_refund_does_not_shorten_running_wait() {
    let (clock, policy) = (Clock::default(), policy(PLAIN.capacity(5.0).attempts(2)));
    let lucky = Script::new(&clock, [(0, SERVER), (100, OK)]);
    let waiting = Script::new(&clock, [(0, SERVER), (0, OK)]);
    // The first call's success at 110 ms refunds its 5 tokens.
    let calls = [&lucky, &waiting].into_iter().map(|script| {
        let call = policy.retry(|| script.attempt()).when(is_retryable);
        Box::pin(call.sleeping_on(clock).into_future()) as _
    });
    let results = clock.run(all(calls.collect()));
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(waiting.starts(), [0.0, 510.0]);
}

#[test]
fn token_bucket_empty_without_wait_ends_the_call() {
    let played = play(&Clock::default(), &policy(STILL.capacity(10.0)), &[THROTTLING, SERVER]);
    let error = played.result.expect_err("throttled");
    assert!(error.is_throttled());
    assert_eq!(error.into_last(), Some(Fault::Retryable(Failure::server())));
}

#[test]
fn token_bucket_exact_cost_is_enough() {
    for (capacity, starts) in [(10.0, 3), (9.999, 2), (5.0, 2)] {
        let played = play(&Clock::default(), &policy(STILL.capacity(capacity)), &[SERVER]);
        assert_eq!(played.starts.len(), starts, "{capacity}");
    }
}

#[test]
fn token_bucket_wait_without_refill_is_rejected() {
    let refused = StandardRetryStrategy::standard().refill_per_second(0.0).policy().map(|_| ());
    assert_eq!(refused, Err(PolicyError::WaitWithoutRefill));
    let waits = StandardRetryStrategy::aws_2026().empty(WhenEmpty::Wait).policy().map(|_| ());
    assert_eq!(waits, Err(PolicyError::WaitWithoutRefill));
}

// S10

#[test]
fn token_bucket_empty_error_reports_attempts_and_tokens() {
    let policy = policy(AWS.capacity(17.0));
    let error = play(&Clock::default(), &policy, &[SERVER]).result.expect_err("throttled");
    let text = "boom (2 attempts in 50 ms; gave up: the retry budget is spent, \
                attempt 2 of 3, 3.0 tokens left)";
    assert_eq!(error.to_string(), text);
    let report = error.report();
    assert_eq!((report.attempts, report.attempts_max), (2, Some(3)));
    assert_eq!(report.tokens, Some(3.0));
    assert_eq!(error.last(), Some(&Fault::Retryable(Failure::server())));
}

// B

#[test]
fn token_bucket_is_shared_by_clones_and_sharing_policies() {
    let clock = Clock::default();
    let original = policy(STILL);
    play(&clock, &original.clone(), &[SERVER, FATAL]);
    assert_eq!(original.tokens(0), Some(495.0));
    let bucket = Arc::new(STILL.costs().expect("valid"));
    let shared = policy(STILL).sharing(bucket.clone());
    play(&clock, &shared, &[SERVER, FATAL]);
    assert_eq!(bucket.tokens(0), Some(495.0));
    assert_eq!(policy(STILL).tokens(0), Some(500.0), "another policy has its own");
}

#[test]
fn token_bucket_with_budget_limits_retries_by_both() {
    let clock = Clock::default();
    let bucket = Arc::new(STILL.costs().expect("valid"));
    let budget = Arc::new(RetryBudget::try_new(2.0, 0.1).expect("valid"));
    let funded = WithBudget::new(bucket.clone(), budget.clone());
    let policy = policy(STILL.attempts(5)).sharing(Arc::new(funded));
    let played = play(&clock, &policy, &[SERVER]);
    assert_eq!((played.starts.len(), played.stop_reason()), (3, StopReason::Throttled));
    assert_eq!(played.result.expect_err("throttled").report().tokens, Some(0.0), "the budget's");
    assert_eq!((bucket.tokens(0), budget.tokens(0)), (Some(490.0), Some(0.0)));

    play(&clock, &policy, &[OK]);
    assert_eq!(
        (bucket.tokens(0), budget.tokens(0)),
        (Some(491.0), Some(0.1)),
        "both receive tokens"
    );
}

#[test]
fn token_bucket_refusal_refunds_the_budget() {
    let clock = Clock::default();
    let bucket = Arc::new(STILL.capacity(5.0).costs().expect("valid"));
    let budget = Arc::new(RetryBudget::new(10.0, 0.1));
    let funded = WithBudget::new(bucket, budget.clone());
    let played = play(&clock, &policy(STILL).sharing(Arc::new(funded)), &[SERVER]);
    assert_eq!(played.stop_reason(), StopReason::Throttled);
    assert_eq!(budget.tokens(0), Some(9.0), "one retry was made");
}

#[test]
fn token_bucket_and_budget_refund_unstarted_retry() {
    let bucket = Arc::new(STILL.costs().expect("valid"));
    let budget = Arc::new(RetryBudget::standard());
    let funded = WithBudget::new(bucket.clone(), budget.clone());
    let cost = Cost { kind: FailureKind::Server };
    let Grant::Now(withdrawal) = funded.withdraw(cost, 0) else { panic!("both are full") };
    assert_eq!((bucket.tokens(0), budget.tokens(0)), (Some(495.0), Some(9.0)));
    funded.refund(withdrawal);
    assert_eq!((bucket.tokens(0), budget.tokens(0)), (Some(500.0), Some(10.0)));
}

#[test]
fn token_bucket_with_budget_is_drained_by_failures() {
    let tokens = Arc::new(TokenBucket::new(10.0, 0.1).expect("valid"));
    let funded = WithBudget::new(tokens.clone(), Arc::new(RetryBudget::standard()));
    funded.failed();
    assert_eq!(tokens.tokens(0), Some(9.0));
}

#[test]
fn token_bucket_with_budget_reports_spent_budget() {
    let budget = Arc::new(RetryBudget::try_new(2.0, 0.1).expect("valid"));
    let funded = WithBudget::new(Arc::new(STILL.costs().expect("valid")), budget);
    let left = [0, 1, 2].map(|_| {
        let left = funded.tokens(0);
        funded.withdraw(Cost { kind: FailureKind::Server }, 0);
        left
    });
    assert_eq!(left, [Some(500.0), Some(495.0), Some(0.0)]);
}

#[test]
fn token_bucket_pending_answer_holds_budget_withdrawal() {
    /// A bucket that defers its answer.
    struct Slow(Grant);
    impl redial::throttle::Bucket for Slow {
        fn withdraw(&self, _: Cost, _: u64) -> Grant {
            Grant::Later
        }
        fn later(&self, _: Cost) -> std::pin::Pin<Box<dyn Future<Output = Grant> + Send>> {
            Box::pin(std::future::ready(self.0))
        }
        fn refund(&self, _: Withdrawal) {}
        fn succeeded(&self, _: Option<Withdrawal>) {}
        fn tokens(&self, _: u64) -> Option<f64> {
            None
        }
    }
    let cost = Cost { kind: FailureKind::Server };
    for (answer, left) in [(Grant::Now(Withdrawal(0)), 9.0), (Grant::Refused, 10.0)] {
        let budget = Arc::new(RetryBudget::standard());
        let funded = WithBudget::new(Arc::new(Slow(answer)), budget.clone());
        assert_eq!(funded.withdraw(cost, 0), Grant::Later);
        assert_eq!(Clock::default().run(funded.later(cost)), answer);
        assert_eq!(budget.tokens(0), Some(left), "{answer:?}");
    }
    let budget = Arc::new(RetryBudget::standard());
    let funded = WithBudget::new(Arc::new(Slow(Grant::Refused)), budget.clone());
    assert_eq!(funded.withdraw(cost, 0), Grant::Later);
    drop(funded.later(cost));
    assert_eq!(budget.tokens(0), Some(10.0), "a call that is dropped while it waits is refunded");
}

/// A custom bucket that records the calls of its methods in order.
#[derive(Default)]
struct Watching(Mutex<Vec<String>>);

impl Watching {
    fn push(&self, what: impl Into<String>) {
        self.0.lock().expect("whole").push(what.into());
    }

    fn take_all(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("whole"))
    }
}

impl redial::throttle::Bucket for Watching {
    fn call_started(&self) {
        self.push("acquire");
    }
    fn withdraw(&self, cost: Cost, _: u64) -> Grant {
        self.push(format!("retry {:?}", cost.kind));
        Grant::Now(Withdrawal(7))
    }
    fn refund(&self, _: Withdrawal) {
        self.push("give back");
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        self.push(format!("success {:?}", withdrawal.map(|withdrawal| withdrawal.0)));
    }
    fn call_failed(&self, withdrawal: Option<Withdrawal>) {
        self.push(format!("failure {:?}", withdrawal.map(|withdrawal| withdrawal.0)));
    }
    fn call_cancelled(&self, withdrawal: Option<Withdrawal>) {
        self.push(format!("cancelled {:?}", withdrawal.map(|withdrawal| withdrawal.0)));
    }
    fn tokens(&self, _: u64) -> Option<f64> {
        None
    }
}

/// Runs a call with these outcomes; the last one repeats.
fn drive(driver: &str, policy: &Policy, bucket: &Watching, outcomes: &[Outcome]) {
    let (clock, mut tries) = (Clock::default(), 0);
    let mut next = || {
        bucket.push("run");
        tries += 1;
        outcomes[(tries - 1).min(outcomes.len() - 1)]
    };
    let is_err = match driver {
        "blocking" => policy.retry(next).when(is_retryable).call().is_err(),
        "lending" => {
            let mut lent = ();
            let call = policy.retry_on(&mut lent, async |()| next()).sleeping_on(clock);
            clock.run(call.when(is_retryable)).is_err()
        }
        "logged" => {
            let call = policy.retry(|| std::future::ready(next())).when(is_retryable);
            clock.run(call.sleeping_on(clock).history().into_future()).is_err()
        }
        _ => {
            let call = policy.retry(|| std::future::ready(next())).when(is_retryable);
            clock.run(call.sleeping_on(clock).into_future()).is_err()
        }
    };
    assert_eq!(is_err, *outcomes.last().expect("one at least") != OK);
}

#[test]
fn custom_bucket_observes_call_start_and_end() {
    let cases: [(&[Outcome], &[&str]); 5] = [
        (&[OK], &["acquire", "run", "success None"]),
        (&[FATAL], &["acquire", "run", "failure None"]),
        (&[SERVER, OK], &["acquire", "run", "retry Server", "run", "success Some(7)"]),
        (&[SERVER, FATAL], &["acquire", "run", "retry Server", "run", "failure Some(7)"]),
        (
            &[THROTTLING, TIMEOUT, SERVER],
            &[
                "acquire",
                "run",
                "retry Throttling",
                "run",
                "retry Timeout",
                "run",
                "failure Some(7)",
            ],
        ),
    ];
    for (outcomes, expected) in cases {
        for driver in ["async", "logged", "lending", "blocking"] {
            let bucket = Arc::new(Watching::default());
            let funded = WithBudget::new(bucket.clone(), Arc::new(RetryBudget::standard()));
            for policy in
                [policy(STILL).sharing(bucket.clone()), policy(STILL).sharing(Arc::new(funded))]
            {
                drive(driver, &policy, &bucket, outcomes);
                assert_eq!(bucket.take_all(), expected, "{driver}, {outcomes:?}");
            }
        }
    }
}

#[test]
fn custom_bucket_observes_dropped_call() {
    let bucket = Arc::new(Watching::default());
    let policy = policy(STILL).sharing(bucket.clone());
    let clock = Clock::default();
    // Dropped while the first attempt runs, while the retry waits, and while the retry runs.
    type Case<'a> = (&'a [(u64, Outcome)], u64, &'a [&'a str]);
    let waits: [Case<'_>; 3] = [
        (&[(5, OK)], 1, &["acquire", "cancelled None"]),
        (&[(0, SERVER), (5, OK)], 1, &["acquire", "cancelled None"]),
        (&[(0, SERVER), (5, OK)], 11, &["acquire", "retry Server", "cancelled Some(7)"]),
    ];
    for (steps, after, expected) in waits {
        let script = Script::new(&clock, steps);
        let call = policy.retry(|| script.attempt()).when(is_retryable).sleeping_on(clock);
        let mut call = Box::pin(call.into_future());
        let mut timer = Box::pin(redial::testing::Clock.sleep(ms(after)));
        clock.run(std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending(), "it is dropped before it ends");
            timer.as_mut().poll(cx)
        }));
        drop(call);
        assert_eq!(bucket.take_all(), expected, "after {after} ms");
    }
    // A call that is never polled never starts.
    drop(policy.retry(|| std::future::ready(OK)).when(is_retryable).into_future());
    assert_eq!(bucket.take_all(), Vec::<String>::new());
}

#[test]
fn custom_bucket_can_opt_out_of_call_observation() {
    /// Counts the notifications other than retries.
    #[derive(Default)]
    struct Blind(Watching);
    impl redial::throttle::Bucket for Blind {
        fn watches_calls(&self) -> bool {
            false
        }
        fn call_started(&self) {
            self.0.call_started();
        }
        fn withdraw(&self, cost: Cost, now: u64) -> Grant {
            self.0.withdraw(cost, now)
        }
        fn refund(&self, withdrawal: Withdrawal) {
            self.0.refund(withdrawal);
        }
        fn succeeded(&self, withdrawal: Option<Withdrawal>) {
            self.0.succeeded(withdrawal);
        }
        fn call_failed(&self, withdrawal: Option<Withdrawal>) {
            self.0.call_failed(withdrawal);
        }
        fn tokens(&self, _: u64) -> Option<f64> {
            None
        }
    }
    let bucket = Arc::new(Blind::default());
    let policy = policy(STILL).sharing(bucket.clone());
    let outcomes: [(&[Outcome], &[&str]); 2] =
        [(&[OK], &["run", "success None"]), (&[SERVER, FATAL], &["run", "retry Server", "run"])];
    for (outcomes, expected) in outcomes {
        for driver in ["async", "logged", "lending", "blocking"] {
            drive(driver, &policy, &bucket.0, outcomes);
            assert_eq!(bucket.0.take_all(), expected, "{driver}");
        }
    }
}
