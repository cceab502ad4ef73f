//! The same scripts through every driver: each must behave as the state machine on virtual time.

use std::time::Duration;

use redial::classify::Hint;
use redial::testing::{self, AttemptOutcome, Play, Script};
use redial::throttle::RetryBudget;
use redial::{
    Attempt, Builder, CallLog, Directive, Error, Event, Failure, Jitter, Policy, Reason, Stage,
    StopReason, Throttle, ms,
    rules::{AttemptTimeoutAction, Backoff, LastDelayAction, Limits, OverLimitAction, Rules},
    s,
    time::Ns,
};

/// A policy, the outcomes of its attempts, the stop reason and the number of attempts.
type Row<'a> = (&'a dyn Fn() -> Policy, &'a [(Duration, Directive)], StopReason, u32);

/// The outcomes of attempts. An error carries the number of its attempt.
const OK: Directive = Directive::Succeed;
const FATAL: Directive = Directive::Fail;
const FAIL: Directive = Directive::Retry(Failure::server());
const SLOW_DOWN: Directive = Directive::Retry(Failure::throttling().retry_after(Duration::ZERO));
const STOP: Directive = Directive::Retry(Failure::client().hint(Hint::Stop));

/// A timeout of zero, which the builder refuses and rules may have.
const WITHOUT_TIME: Rules = Rules {
    backoff: Backoff::Constant(Duration::ZERO),
    attempt_timeout: Some(Duration::ZERO),
    attempt_timeout_action: AttemptTimeoutAction::Retry,
    ..Rules::DEFAULT
};

/// The result of an operation: the number of its attempt, and its classification.
type Answer = Result<u32, (u32, Directive)>;

/// The result of a call.
#[derive(Debug, PartialEq)]
struct CallResult {
    result: Result<u32, Option<u32>>,
    stop_reason: StopReason,
    attempts: u32,
}

impl CallResult {
    fn of(result: Result<u32, Error<(u32, Directive)>>) -> Self {
        match result {
            Ok(number) => CallResult {
                result: Ok(number),
                stop_reason: StopReason::Succeeded,
                attempts: number,
            },
            Err(error) => CallResult {
                stop_reason: error.stop_reason(),
                attempts: error.attempts(),
                result: Err(error.into_last().map(|(number, _)| number)),
            },
        }
    }
}

/// The events with times since the start of the call.
fn since_start(call_log: &CallLog) -> Vec<(Ns, Event)> {
    let began = call_log.events().first().map_or(0, |(at, _)| *at);
    let since = |at: Ns| at.saturating_sub(began);
    let event = |event: Event| match event {
        Event::CallStarted { deadline, idempotent } => {
            Event::CallStarted { deadline: deadline.map(since), idempotent }
        }
        event => event,
    };
    call_log.events().iter().map(|&(at, it)| (since(at), event(it))).collect()
}

fn without_times(call_log: &CallLog) -> Vec<Event> {
    since_start(call_log).into_iter().map(|(_, event)| event).collect()
}

/// The script of all drivers. The last entry repeats.
struct Case<'a> {
    /// Makes a new policy, so that the drivers do not share a budget.
    policy: &'a dyn Fn() -> Policy,
    outcomes: &'a [(Duration, Directive)],
}

impl Case<'_> {
    fn outcome(&self, number: u32) -> (Duration, Directive) {
        let index = (number as usize - 1).min(self.outcomes.len() - 1);
        self.outcomes[index]
    }

    fn answer(number: u32, directive: Directive) -> Answer {
        match directive {
            Directive::Succeed => Ok(number),
            directive => Err((number, directive)),
        }
    }

    /// The call log of the state machine alone.
    fn reference(&self) -> CallLog {
        let outcomes = (1..=64).map(|number| {
            let (after, directive) = self.outcome(number);
            testing::classified_as(directive).after(after)
        });
        let policy = (self.policy)();
        let played =
            Play::new().call(Script::new(&policy, outcomes.collect::<Vec<AttemptOutcome>>())).run();
        assert_eq!(played[0].unscripted(), None, "no script goes on for ever");
        played[0].call_log().clone()
    }

    async fn attempt(&self, number: u32) -> Answer {
        let (took, directive) = self.outcome(number);
        if !took.is_zero() {
            tokio::time::sleep(took).await;
        }
        Case::answer(number, directive)
    }

    /// The async driver with its state machine, and its call log.
    async fn with_call_log(&self) -> (CallResult, CallLog) {
        let (policy, mut call_log, mut number) = ((self.policy)(), CallLog::new(), 0);
        let result = policy
            .retry(|| {
                number += 1;
                self.attempt(number)
            })
            .when(|error: &(u32, Directive)| error.1)
            .call_log(&mut call_log)
            .await;
        (CallResult::of(result), call_log)
    }

    /// The async driver, which runs a plain policy without the state machine.
    async fn plain(&self) -> CallResult {
        let (policy, mut number) = ((self.policy)(), 0);
        let call = policy.retry(|| {
            number += 1;
            self.attempt(number)
        });
        CallResult::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    /// The async driver for an operation that takes its attempt.
    async fn with_attempt(&self) -> CallResult {
        let policy = (self.policy)();
        let call = policy.retry_with(|attempt: Attempt| self.attempt(attempt.number()));
        CallResult::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    async fn borrowing(&self) -> CallResult {
        let (policy, mut number) = ((self.policy)(), 0_u32);
        let call = policy.retry_on(&mut number, async |number| {
            *number += 1;
            self.attempt(*number).await
        });
        CallResult::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    fn blocking_attempt(&self, number: u32) -> Answer {
        let (took, directive) = self.outcome(number);
        assert!(took <= ms(1), "a test does not sleep");
        std::thread::sleep(took);
        Case::answer(number, directive)
    }

    fn blocking(&self) -> CallResult {
        let (policy, mut number) = ((self.policy)(), 0);
        let call = policy.retry(|| {
            number += 1;
            self.blocking_attempt(number)
        });
        CallResult::of(call.when(|error: &(u32, Directive)| error.1).call())
    }

    fn blocking_with_call_log(&self) -> (CallResult, CallLog) {
        let (policy, mut call_log) = ((self.policy)(), CallLog::new());
        let result = policy
            .retry_with(|attempt: Attempt| self.blocking_attempt(attempt.number()))
            .when(|error: &(u32, Directive)| error.1)
            .call_log(&mut call_log)
            .call();
        (CallResult::of(result), call_log)
    }
}

/// Compares the async drivers with the state machine on virtual time.
async fn check_async(case: &Case<'_>) -> (CallResult, CallLog) {
    let reference = case.reference();
    let (result_of_call, call_log) = case.with_call_log().await;
    assert_eq!(since_start(&call_log), since_start(&reference));
    let (ended, attempts) = (call_log.events().last(), result_of_call.attempts);
    assert!(
        matches!(ended, Some((_, Event::CallEnded { stop_reason, .. })) if *stop_reason == result_of_call.stop_reason)
    );
    let starts = |(_, event): &&(Ns, Event)| matches!(event, Event::AttemptStarted { .. });
    assert_eq!(call_log.events().iter().filter(starts).count(), attempts as usize);
    assert_eq!(case.plain().await, result_of_call, "without a call log");
    assert_eq!(case.with_attempt().await, result_of_call, "seeing its attempts");
    assert_eq!(case.borrowing().await, result_of_call, "borrowing");
    (result_of_call, reference)
}

/// The same with the blocking driver, whose call log differs only in the times.
async fn check(case: &Case<'_>) -> CallResult {
    let (result_of_call, reference) = check_async(case).await;
    assert_eq!(case.blocking(), result_of_call, "blocking");
    let (blocking, call_log) = case.blocking_with_call_log();
    assert_eq!(blocking, result_of_call, "blocking, with a call log");
    assert_eq!(without_times(&call_log), without_times(&reference));
    result_of_call
}

fn free(builder: Builder<Policy>) -> Policy {
    builder.jitter(Jitter::None).throttle(Throttle::none()).build()
}

/// Scripts of up to three outcomes out of `alphabet`, in which only the last may end a call.
fn every_script(alphabet: &[Directive]) -> Vec<Vec<(Duration, Directive)>> {
    let mut scripts: Vec<Vec<Directive>> = vec![Vec::new()];
    let mut all = Vec::new();
    for _ in 0..3 {
        let longer = scripts.iter().flat_map(|script| {
            alphabet.iter().map(move |next| [script.as_slice(), &[*next]].concat())
        });
        scripts = longer.collect();
        all.extend(scripts.iter().cloned());
    }
    all.into_iter()
        .map(|script| script.into_iter().map(|directive| (Duration::ZERO, directive)).collect())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn driver_equivalence_for_every_short_script() {
    let hard = Limits { hard: Some(ms(3)), ..Limits::NONE };
    let policies: [&dyn Fn() -> Policy; 7] = [
        &|| free(Policy::immediate().attempts(4)),
        &|| free(Policy::immediate().attempts(1)),
        &|| free(Policy::immediate().attempts(3).deadline(s(3600))),
        &|| free(Policy::immediate().attempts(3).attempt_timeout(s(3600))),
        &|| free(Policy::immediate().attempts(3).limits(hard)),
        // A policy made at run time owns its budget, which allows every retry here.
        &|| Policy::immediate().attempts(4).try_build().expect("valid"),
        &|| {
            let budget = std::sync::Arc::new(RetryBudget::try_new(1.0, 0.1).expect("valid"));
            Policy::immediate().attempts(4).build().sharing(budget)
        },
    ];
    let mut ends = Vec::new();
    for outcomes in every_script(&[OK, FATAL, FAIL, SLOW_DOWN, STOP]) {
        for policy in policies {
            let result_of_call = check(&Case { policy, outcomes: &outcomes }).await;
            if !ends.contains(&result_of_call.stop_reason) {
                ends.push(result_of_call.stop_reason);
            }
        }
    }
    for stop_reason in [
        StopReason::Succeeded,
        StopReason::NotRetryable,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
        StopReason::Throttled,
    ] {
        assert!(ends.contains(&stop_reason), "no script ended with {stop_reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn driver_equivalence_for_every_kind_of_delay() {
    const LATE: Directive = Directive::Retry(Failure::server().retry_after(ms(1)));
    static ALWAYS: Reason = Reason::new("MOVED").always();
    let always = Directive::Retry(Failure::server().because(ALWAYS).at(Stage::InFlight));
    let now = Duration::ZERO;
    let soft = Limits { soft: Some(ms(1)), ..Limits::NONE };
    let cut = Limits {
        hard: Some(ms(1)),
        over_limit_action: OverLimitAction::TruncateDelay,
        ..Limits::NONE
    };
    let fill = Limits {
        hard: Some(ms(2)),
        last_delay_action: LastDelayAction::ExtendToLimit,
        ..Limits::NONE
    };
    let table = [Duration::ZERO, ms(1)];
    let cases: [Row<'_>; 10] = [
        (&|| free(Policy::constant(ms(1))), &[(now, FAIL), (now, OK)], StopReason::Succeeded, 2),
        (&|| free(Policy::constant(ms(1))), &[(ms(1), FAIL)], StopReason::AttemptsExhausted, 3),
        (
            &|| free(Policy::exponential(ms(1)).cap(ms(1))),
            &[(now, FAIL)],
            StopReason::AttemptsExhausted,
            3,
        ),
        (
            &|| free(Policy::constant(s(9))),
            &[(now, LATE), (now, FATAL)],
            StopReason::NotRetryable,
            2,
        ),
        (&|| free(Policy::constant(ms(1)).limits(soft)), &[(now, FAIL)], StopReason::SoftLimit, 2),
        (&|| free(Policy::constant(s(9)).limits(cut)), &[(now, FAIL)], StopReason::HardLimit, 2),
        (
            &|| free(Policy::constant(ms(1)).limits(fill)),
            &[(now, FAIL)],
            StopReason::AttemptsExhausted,
            3,
        ),
        // A delay of an hour does not fit before the deadline, so the call fails at once.
        (
            &|| free(Policy::constant(s(3600)).deadline(s(60))),
            &[(now, FAIL)],
            StopReason::Deadline,
            1,
        ),
        (
            &|| {
                let builder = Policy::immediate().attempts(3).throttle(Throttle::none());
                builder.try_build_with_table(table).expect("valid")
            },
            &[(now, FAIL)],
            StopReason::AttemptsExhausted,
            3,
        ),
        (
            &|| free(Policy::constant(s(9)).attempts(2)),
            &[(now, always)],
            StopReason::AttemptsExhausted,
            2,
        ),
    ];
    for (policy, outcomes, stop_reason, attempts) in cases {
        let result_of_call = check(&Case { policy, outcomes }).await;
        assert_eq!(
            (result_of_call.stop_reason, result_of_call.attempts),
            (stop_reason, attempts),
            "{outcomes:?}"
        );
    }
}

/// The blocking driver cannot cancel attempts (P12).
#[tokio::test(start_paused = true)]
async fn driver_equivalence_of_async_and_borrowing_cancellation() {
    let hour = s(3600);
    let cases: [Row<'_>; 8] = [
        // The deadline cancels a running attempt, the first or a later one.
        (
            &|| free(Policy::constant(ms(5)).deadline(ms(20))),
            &[(hour, OK)],
            StopReason::Deadline,
            1,
        ),
        (
            &|| free(Policy::constant(ms(5)).deadline(ms(20))),
            &[(ms(2), FAIL), (hour, OK)],
            StopReason::Deadline,
            2,
        ),
        // An outcome exactly at the deadline counts (P4).
        (
            &|| free(Policy::constant(ms(5)).deadline(ms(20))),
            &[(ms(20), OK)],
            StopReason::Succeeded,
            1,
        ),
        // An attempt timeout ends the call, unless the policy retries timeouts.
        (
            &|| free(Policy::constant(ms(5)).attempt_timeout(ms(10))),
            &[(hour, OK)],
            StopReason::AttemptTimeout,
            1,
        ),
        (
            &|| free(Policy::constant(ms(5)).attempt_timeout(ms(10)).retry_timeouts()),
            &[(hour, OK), (ms(10), OK)],
            StopReason::Succeeded,
            2,
        ),
        (
            &|| {
                free(
                    Policy::constant(ms(5))
                        .attempt_timeout(ms(10))
                        .retry_timeouts()
                        .deadline(ms(28)),
                )
            },
            &[(hour, OK)],
            StopReason::Deadline,
            2,
        ),
        // Without a delay, the next attempt starts when the first is cancelled.
        (
            &|| free(Policy::immediate().attempt_timeout(ms(10)).retry_timeouts()),
            &[(ms(25), OK), (hour, OK), (ms(3), OK)],
            StopReason::Succeeded,
            3,
        ),
        (
            &|| free(Policy::from_rules(WITHOUT_TIME)),
            &[(hour, OK)],
            StopReason::AttemptsExhausted,
            3,
        ),
    ];
    for (policy, outcomes, stop_reason, attempts) in cases {
        let (result_of_call, _) = check_async(&Case { policy, outcomes }).await;
        assert_eq!(
            (result_of_call.stop_reason, result_of_call.attempts),
            (stop_reason, attempts),
            "{outcomes:?}"
        );
    }
}
