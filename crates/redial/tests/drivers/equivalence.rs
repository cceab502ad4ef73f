//! The same scripts through every driver: the machine on virtual time says what must happen, and
//! each driver must do it.

use std::time::Duration;

use redial::testing::{self, Meets, Play, Script};
use redial::throttle::RetryBudget;
use redial::{
    Attempt, Builder, CallLog, Directive, Error, Event, Failure, Hint, Jitter, Policy, Reason,
    Stage, StopReason, Throttle, ms,
    rules::{LastDelayAction, Limits, OverLimitAction},
    s,
    time::Ns,
};

/// A policy, what its attempts meet, why the call ends and after how many of them.
type Row<'a> = (&'a dyn Fn() -> Policy, &'a [(Duration, Directive)], StopReason, u32);

/// What attempts can meet. An error carries the number of its attempt.
const OK: Directive = Directive::Succeed;
const FATAL: Directive = Directive::Fail;
const FAIL: Directive = Directive::Retry(Failure::server());
const SLOW_DOWN: Directive = Directive::Retry(Failure::throttling().retry_after(Duration::ZERO));
const STOP: Directive = Directive::Retry(Failure::client().hint(Hint::Stop));

/// A result as an operation returns it: the number of its attempt, and how it is to be judged.
type Answer = Result<u32, (u32, Directive)>;

/// What became of a call.
#[derive(Debug, PartialEq)]
struct Became {
    result: Result<u32, Option<u32>>,
    stop_reason: StopReason,
    attempts: u32,
}

impl Became {
    fn of(result: Result<u32, Error<(u32, Directive)>>) -> Self {
        match result {
            Ok(number) => {
                Became { result: Ok(number), stop_reason: StopReason::Succeeded, attempts: number }
            }
            Err(error) => Became {
                stop_reason: error.stop_reason(),
                attempts: error.attempts(),
                result: Err(error.into_last().map(|(number, _)| number)),
            },
        }
    }
}

/// The notes with times since the call began.
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

/// What every driver plays. Past the end of the list its last entry repeats.
struct Case<'a> {
    /// Makes the policy anew, so that no driver spends another's budget.
    policy: &'a dyn Fn() -> Policy,
    meets: &'a [(Duration, Directive)],
}

impl Case<'_> {
    fn meets(&self, number: u32) -> (Duration, Directive) {
        let index = (number as usize - 1).min(self.meets.len() - 1);
        self.meets[index]
    }

    fn answer(number: u32, directive: Directive) -> Answer {
        match directive {
            Directive::Succeed => Ok(number),
            directive => Err((number, directive)),
        }
    }

    /// The diary of the machine alone.
    fn reference(&self) -> CallLog {
        let meets = (1..=64).map(|number| {
            let (after, directive) = self.meets(number);
            testing::meets(directive).after(after)
        });
        let policy = (self.policy)();
        let played = Play::new().call(Script::new(&policy, meets.collect::<Vec<Meets>>())).run();
        assert_eq!(played[0].unscripted(), None, "no script goes on for ever");
        played[0].call_log().clone()
    }

    async fn attempt(&self, number: u32) -> Answer {
        let (took, directive) = self.meets(number);
        if !took.is_zero() {
            tokio::time::sleep(took).await;
        }
        Case::answer(number, directive)
    }

    /// The async driver with its machine, and what its diary says.
    async fn with_diary(&self) -> (Became, CallLog) {
        let (policy, mut call_log, mut number) = ((self.policy)(), CallLog::new(), 0);
        let result = policy
            .retry(|| {
                number += 1;
                self.attempt(number)
            })
            .when(|error: &(u32, Directive)| error.1)
            .call_log(&mut call_log)
            .await;
        (Became::of(result), call_log)
    }

    /// The async driver, which plays a plain policy without the machine.
    async fn plain(&self) -> Became {
        let (policy, mut number) = ((self.policy)(), 0);
        let call = policy.retry(|| {
            number += 1;
            self.attempt(number)
        });
        Became::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    /// The async driver for an operation that sees its attempts.
    async fn seeing(&self) -> Became {
        let policy = (self.policy)();
        let call = policy.retry_with(|attempt: Attempt| self.attempt(attempt.number()));
        Became::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    async fn lending(&self) -> Became {
        let (policy, mut number) = ((self.policy)(), 0_u32);
        let call = policy.retry_on(&mut number, async |number| {
            *number += 1;
            self.attempt(*number).await
        });
        Became::of(call.when(|error: &(u32, Directive)| error.1).await)
    }

    fn blocking_attempt(&self, number: u32) -> Answer {
        let (took, directive) = self.meets(number);
        assert!(took <= ms(1), "a test does not sleep");
        std::thread::sleep(took);
        Case::answer(number, directive)
    }

    fn blocking(&self) -> Became {
        let (policy, mut number) = ((self.policy)(), 0);
        let call = policy.retry(|| {
            number += 1;
            self.blocking_attempt(number)
        });
        Became::of(call.when(|error: &(u32, Directive)| error.1).call())
    }

    fn blocking_with_diary(&self) -> (Became, CallLog) {
        let (policy, mut call_log) = ((self.policy)(), CallLog::new());
        let result = policy
            .retry_with(|attempt: Attempt| self.blocking_attempt(attempt.number()))
            .when(|error: &(u32, Directive)| error.1)
            .call_log(&mut call_log)
            .call();
        (Became::of(result), call_log)
    }
}

/// How the async drivers must end: what the machine on virtual time says.
async fn check_async(case: &Case<'_>) -> (Became, CallLog) {
    let reference = case.reference();
    let (became, call_log) = case.with_diary().await;
    assert_eq!(since_start(&call_log), since_start(&reference));
    let (ended, attempts) = (call_log.events().last(), became.attempts);
    assert!(
        matches!(ended, Some((_, Event::CallEnded { stop_reason, .. })) if *stop_reason == became.stop_reason)
    );
    let starts = |(_, event): &&(Ns, Event)| matches!(event, Event::AttemptStarted { .. });
    assert_eq!(call_log.events().iter().filter(starts).count(), attempts as usize);
    assert_eq!(case.plain().await, became, "without a diary");
    assert_eq!(case.seeing().await, became, "seeing its attempts");
    assert_eq!(case.lending().await, became, "lending");
    (became, reference)
}

/// The same, and the blocking driver besides; its diary differs in its times alone.
async fn check(case: &Case<'_>) -> Became {
    let (became, reference) = check_async(case).await;
    assert_eq!(case.blocking(), became, "blocking");
    let (blocking, call_log) = case.blocking_with_diary();
    assert_eq!(blocking, became, "blocking, with a diary");
    assert_eq!(without_times(&call_log), without_times(&reference));
    became
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
        // The default budget of a policy that is built is its own, and pays for every retry here.
        &|| Policy::immediate().attempts(4).try_build().expect("valid"),
        &|| {
            let budget = std::sync::Arc::new(RetryBudget::try_new(1.0, 0.1).expect("valid"));
            Policy::immediate().attempts(4).build().sharing(budget)
        },
    ];
    let mut ends = Vec::new();
    for meets in every_script(&[OK, FATAL, FAIL, SLOW_DOWN, STOP]) {
        for policy in policies {
            let became = check(&Case { policy, meets: &meets }).await;
            if !ends.contains(&became.stop_reason) {
                ends.push(became.stop_reason);
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
        // An hour does not fit before the deadline: nobody waits for it.
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
    for (policy, meets, stop_reason, attempts) in cases {
        let became = check(&Case { policy, meets }).await;
        assert_eq!((became.stop_reason, became.attempts), (stop_reason, attempts), "{meets:?}");
    }
}

/// What needs cancelling is not for the blocking driver (P12).
#[tokio::test(start_paused = true)]
async fn driver_equivalence_of_async_and_borrowing_cancellation() {
    let (now, hour) = (Duration::ZERO, s(3600));
    let cases: [Row<'_>; 7] = [
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
        // An outcome at the very moment of the deadline still counts (P4).
        (
            &|| free(Policy::constant(ms(5)).deadline(ms(20))),
            &[(ms(20), OK)],
            StopReason::Succeeded,
            1,
        ),
        // An attempt's own timeout is a failure, and the next one may do better.
        (
            &|| free(Policy::constant(ms(5)).attempt_timeout(ms(10))),
            &[(hour, OK), (ms(10), OK)],
            StopReason::Succeeded,
            2,
        ),
        (
            &|| free(Policy::constant(ms(5)).attempt_timeout(ms(10)).deadline(ms(28))),
            &[(hour, OK)],
            StopReason::Deadline,
            2,
        ),
        // Without a delay the next one starts in the moment in which the first is cancelled.
        (
            &|| free(Policy::immediate().attempt_timeout(ms(10))),
            &[(ms(25), OK), (hour, OK), (ms(3), OK)],
            StopReason::Succeeded,
            3,
        ),
        (
            &|| free(Policy::immediate().attempt_timeout(now)),
            &[(hour, OK)],
            StopReason::AttemptsExhausted,
            3,
        ),
    ];
    for (policy, meets, stop_reason, attempts) in cases {
        let (became, _) = check_async(&Case { policy, meets }).await;
        assert_eq!((became.stop_reason, became.attempts), (stop_reason, attempts), "{meets:?}");
    }
}
