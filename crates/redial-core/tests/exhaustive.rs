//! An exhaustive walk: for each policy of a table that covers every option, every sequence of up to
//! four outcomes from a small alphabet.
//!
//! Calls run on virtual time, and each attempt takes one millisecond, so that many events coincide.
//! The tree of sequences branches only if a call needs one more outcome. Each call runs twice: both
//! runs must satisfy the invariants and record the same events. Each row also lists stop reasons
//! that must occur, so that every row tests the option that it is named after.

mod common;

use common::{Model, Spec, TestDriver, TestEnvironment, at, policy};
use redial_core::throttle::{CostBucketConfig, WhenEmpty};
use redial_core::{
    Advice, AttemptTimeoutAction, Backoff, CallParams, ChargeAt, Classification, DeadlineAction,
    Directive, Event, ExpiredDeadlineAction, Failure, FailureKind, HintRule, Jitter, LIVE_MAX,
    LastDelayAction, LimitBasis, Limits, NEVER, Ns, Numbering, OverLimitAction, Policy, Proof,
    Reason, Rules, Stage, StopReason, ms,
};
use std::time::Duration;

/// The maximum length of a sequence; later attempts hang.
const LETTERS_MAX: usize = 4;
/// The maximum number of steps of one call.
const STEPS_MAX: usize = 1000;
/// The duration of an attempt.
const TAKES: Ns = at(1);

/// The behaviour of one attempt.
#[derive(Clone, Copy, Debug)]
enum Letter {
    Outcome(Classification),
    /// Response headers at once, then the outcome.
    Headers(Classification),
    Hang,
}

fn retry(failure: Failure) -> Letter {
    Letter::Outcome(Directive::Retry(failure).into())
}

fn proven(proof: Proof) -> Letter {
    let directive = Directive::Retry(Failure::client().at(Stage::Unsent));
    Letter::Outcome(Classification { directive, proof: Some(proof), drains: false })
}

/// The letters for every policy.
fn alphabet() -> Vec<Letter> {
    vec![
        Letter::Outcome(Directive::Succeed.into()),
        Letter::Outcome(Classification { drains: true, ..Directive::Fail.into() }),
        retry(Failure::server()),
        retry(Failure::throttling().at(Stage::Unsent)),
        retry(Failure::timeout()),
        retry(Failure::client().retry_after(ms(2))),
        retry(Failure::client().at(Stage::InFlight).retry_after(Duration::ZERO)),
        retry(Failure::server().stop()),
    ]
}

/// One row of the table.
struct Row {
    name: &'static str,
    policy: Policy,
    params: CallParams,
    throttle: Spec,
    /// Which of the throttle's answers are deferred.
    later: &'static [bool],
    /// Letters in addition to those for every policy.
    letters: Vec<Letter>,
    /// Stop reasons that must occur.
    expects: &'static [StopReason],
}

impl Row {
    fn of(name: &'static str, policy: Policy) -> Self {
        Row {
            name,
            policy,
            params: CallParams::default(),
            throttle: Spec::Free,
            later: &[],
            letters: Vec::new(),
            expects: &[StopReason::Succeeded, StopReason::NotRetryable],
        }
    }

    fn new(name: &'static str, rules: Rules) -> Self {
        Row::of(name, policy(rules))
    }

    fn throttle(mut self, throttle: Spec) -> Self {
        self.throttle = throttle;
        self
    }

    fn params(mut self, params: CallParams) -> Self {
        self.params = params;
        self
    }

    fn letters(mut self, letters: &[Letter]) -> Self {
        self.letters.extend(letters);
        self
    }

    fn later(mut self, later: &'static [bool]) -> Self {
        self.later = later;
        self
    }

    fn expects(mut self, expects: &'static [StopReason]) -> Self {
        self.expects = expects;
        self
    }

    /// Runs every sequence; returns their number.
    fn run_all(&self) -> usize {
        let alphabet: Vec<Letter> = alphabet().into_iter().chain(self.letters.clone()).collect();
        let mut seen = Vec::new();
        let mut count = 0;
        let mut open: Vec<Vec<Letter>> = vec![Vec::new()];
        while let Some(letters) = open.pop() {
            let played = self.run(&letters);
            let Played { call_log, stop_reason, needs_more } = played;
            if needs_more && letters.len() < LETTERS_MAX {
                for &letter in &alphabet {
                    open.push(letters.iter().copied().chain([letter]).collect());
                }
                continue;
            }
            let again = self.run(&letters);
            assert_eq!(call_log, again.call_log, "{}: {letters:?} runs differently", self.name);
            if !seen.contains(&stop_reason) {
                seen.push(stop_reason);
            }
            count += 1;
        }
        for stop_reason in self.expects {
            assert!(
                seen.contains(stop_reason),
                "{}: no call ended with {stop_reason:?}",
                self.name
            );
        }
        count
    }

    /// Runs one sequence.
    fn run(&self, letters: &[Letter]) -> Played {
        let (shared, mut model) = (self.throttle.build(), Model::new(self.throttle));
        let env = TestEnvironment::with_later(&self.throttle, &shared, 7, self.later);
        let mut driver = TestDriver::begin(&self.policy, self.params, 0, env, &mut model);
        let mut letters = letters.iter().copied();
        // When each running attempt completes, and its outcome, by slot.
        let mut outcomes: [Option<(Ns, Classification)>; LIVE_MAX] = [None; LIVE_MAX];
        let mut grant_at = None;
        let mut needs_more = false;
        for step in 0.. {
            if driver.end.is_some() {
                break;
            }
            assert!(step < STEPS_MAX, "{}: the call does not end", self.name);
            for start in std::mem::take(&mut driver.started) {
                // The attempt may have ended before this step.
                if driver.running[start.slot] != Some(start.attempt) {
                    continue;
                }
                let letter = letters.next();
                needs_more |= letter.is_none();
                outcomes[start.slot] = match letter {
                    None | Some(Letter::Hang) => None,
                    Some(Letter::Outcome(classification)) => {
                        Some((driver.now + TAKES, classification))
                    }
                    Some(Letter::Headers(classification)) => {
                        let outcome = (driver.now + TAKES, classification);
                        driver.headers(start.slot);
                        Some(outcome)
                    }
                };
            }
            if let Some(failure) = driver.asking {
                driver.answer(match failure.kind {
                    FailureKind::Client => Advice::Decline,
                    FailureKind::Timeout => Advice::After(0),
                    _ => Advice::After(at(2)),
                });
                continue;
            }
            // The deferred answer of the throttle takes as long as an attempt, so an outcome may
            // come first.
            if driver.awaiting.is_some() && grant_at.is_none() {
                grant_at = Some(driver.now + TAKES);
            }
            for (outcome, running) in outcomes.iter_mut().zip(&driver.running) {
                if running.is_none() {
                    *outcome = None;
                }
            }
            let next = (0..LIVE_MAX)
                .filter_map(|slot| {
                    outcomes[slot].map(|(at, classification)| (at, slot, classification))
                })
                .min_by_key(|&(at, slot, _)| (at, driver.running[slot]));
            // Outcomes come before everything else, timers last (P4).
            let outcome_at = next.map_or(NEVER, |(at, _, _)| at);
            let timer_at = driver.call.wake_at().unwrap_or(NEVER);
            match (next, grant_at) {
                (Some((at, slot, classification)), grant)
                    if at <= timer_at && at <= grant.unwrap_or(NEVER) =>
                {
                    driver.now = at;
                    outcomes[slot] = None;
                    driver.outcome(slot, classification);
                }
                (_, Some(at)) if at <= timer_at && at < outcome_at => {
                    driver.now = at;
                    grant_at = None;
                    driver.grant();
                }
                _ if timer_at != NEVER => assert!(driver.next_timer()),
                _ => driver.cancel(),
            }
        }
        driver.check_after_end();
        let stop_reason = driver.stop_reason().expect("every call ends");
        Played { call_log: std::mem::take(&mut driver.env.call_log), stop_reason, needs_more }
    }
}

struct Played {
    call_log: Vec<(Ns, Event)>,
    stop_reason: StopReason,
    /// Whether the call started more attempts than it had letters.
    needs_more: bool,
}

/// Four attempts, two milliseconds apart, no jitter: the base of each row.
const BASE: Rules = Rules {
    attempts: Some(4),
    backoff: Backoff::Constant(ms(2)),
    jitter: Jitter::None,
    attempt_timeout_action: AttemptTimeoutAction::Retry,
    hint: HintRule::Exact(None),
    ..Rules::DEFAULT
};

const EXPONENTIAL: Backoff = Backoff::Exponential { first: ms(1), factor: 2.0, cap: Some(ms(3)) };

const COSTS: CostBucketConfig =
    CostBucketConfig { capacity: 20.0, refill_per_second: 1000.0, ..CostBucketConfig::STANDARD };

const HEDGED: Rules = Rules { hedge: Some(ms(2)), ..BASE };

#[track_caller]
fn run(rows: &[Row]) {
    let count: usize = rows.iter().map(Row::run_all).sum();
    assert!(count >= rows.len() * 40, "only {count} sequences");
}

#[test]
fn exhaustive_invariants_hold_for_every_backoff() {
    let backoff = |backoff| Rules { backoff, ..BASE };
    const EVERY: &[StopReason] = &[
        StopReason::Succeeded,
        StopReason::NotRetryable,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
    ];
    let rows =
        vec![
            Row::new("no delay", backoff(Backoff::Constant(Duration::ZERO))),
            Row::new("constant", backoff(Backoff::Constant(ms(2)))),
            Row::new(
                "arithmetic",
                backoff(Backoff::Arithmetic { first: ms(1), step: ms(2), cap: Some(ms(4)) }),
            ),
            Row::new("exponential", backoff(EXPONENTIAL)),
            Row::new("fibonacci", backoff(Backoff::Fibonacci { first: ms(1), cap: Some(ms(2)) })),
            Row::new(
                "shrinking",
                backoff(Backoff::Exponential { first: ms(4), factor: 0.5, cap: None }),
            ),
            Row::new("table", backoff(Backoff::Table(const { &[ms(1), ms(5)] }))),
            Row::of("own table", Policy::with_table(BASE, [ms(3), Duration::ZERO]).unwrap()),
            Row::of(
                "own function",
                Policy::with_function(BASE, |step| {
                    step.previous.unwrap_or(ms(1)) + ms(u64::from(step.number))
                })
                .unwrap(),
            ),
            Row::new("longest possible delay", backoff(Backoff::Constant(Duration::MAX))).expects(
                &[StopReason::Succeeded, StopReason::ServerRefused, StopReason::Cancelled],
            ),
        ];
    let rows = rows.into_iter().map(|row| match row.expects {
        [StopReason::Succeeded, StopReason::NotRetryable] => row.expects(EVERY),
        _ => row,
    });
    run(&rows.collect::<Vec<_>>());
}

#[test]
fn exhaustive_invariants_hold_for_every_jitter_numbering_and_hint() {
    let jitter = |jitter| Rules { jitter, backoff: EXPONENTIAL, ..BASE };
    let numbering = |numbering| Rules { numbering, ..jitter(Jitter::Full) };
    let hint = |hint| Rules { hint, ..jitter(Jitter::Equal) };
    run(&[
        Row::new("full", jitter(Jitter::Full)),
        Row::new("half", jitter(Jitter::Half)),
        Row::new("equal", jitter(Jitter::Equal)),
        Row::new("proportional", jitter(Jitter::Proportional(0.5))),
        Row::new("decorrelated", jitter(Jitter::Decorrelated)),
        Row::new(
            "above the cap",
            Rules { jitter_above_cap: true, ..jitter(Jitter::Proportional(0.2)) },
        ),
        Row::new("numbered by attempts", numbering(Numbering::Attempts)),
        Row::new("numbered since the hint", numbering(Numbering::SinceHint)),
        Row::new("a hint with a maximum", hint(HintRule::Exact(Some(ms(1))))),
        Row::new("a hint with room", hint(HintRule::Within(ms(1)))),
        Row::new("a hint that is too long", hint(HintRule::UpTo(ms(1))))
            .expects(&[StopReason::HintTooLong]),
        Row::new("a hint beside the backoff", hint(HintRule::AtLeast(ms(1))))
            .expects(&[StopReason::HintTooLong]),
        Row::new("a hint with jitter", Rules { hint_jitter: 0.5, ..hint(HintRule::UpTo(ms(2))) }),
        Row::new("a value that is not ready", jitter(Jitter::Full))
            .letters(&[retry(Failure::not_ready()), retry(Failure::not_ready().retry_after(ms(1)))])
            .throttle(Spec::Budget { reserve: 1.0, ratio: 0.0 }),
        Row::new("a reset after every attempt", Rules { reset_after: Some(ms(1)), ..BASE })
            .expects(&[StopReason::Succeeded, StopReason::Cancelled]),
        Row::new("a reset after a delay", Rules { reset_after: Some(ms(2)), ..BASE })
            .letters(&[Letter::Hang])
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new(
            "another first after throttling",
            Rules { throttling_first: Some(ms(3)), ..jitter(Jitter::Full) },
        ),
    ]);
}

#[test]
fn exhaustive_invariants_hold_for_every_limit() {
    const SOFT: &[StopReason] = &[StopReason::SoftLimit];
    const HARD: &[StopReason] = &[StopReason::HardLimit];
    let rows = [LimitBasis::TotalDelay, LimitBasis::Elapsed].into_iter().flat_map(|basis| {
        let limits = |limits| Rules { limits: Limits { basis, ..limits }, ..BASE };
        let soft = Limits { soft: Some(ms(4)), ..Limits::NONE };
        let hard = Limits { hard: Some(ms(5)), ..Limits::NONE };
        let both = Limits { soft: Some(ms(3)), hard: Some(ms(5)), ..Limits::NONE };
        let endless = Rules { attempts: None, ..limits(hard) };
        [
            Row::new("soft", limits(soft)).expects(SOFT),
            Row::new("hard", limits(hard)).expects(HARD),
            Row::new(
                "hard, truncate",
                limits(Limits { over_limit_action: OverLimitAction::TruncateDelay, ..hard }),
            )
            .expects(HARD),
            Row::new(
                "hard, fill",
                limits(Limits { last_delay_action: LastDelayAction::ExtendToLimit, ..hard }),
            )
            .expects(HARD),
            Row::new(
                "hard, truncate, fill",
                limits(Limits {
                    over_limit_action: OverLimitAction::TruncateDelay,
                    last_delay_action: LastDelayAction::ExtendToLimit,
                    ..hard
                }),
            )
            .expects(HARD),
            Row::new("both", limits(both)).expects(SOFT),
            Row::new(
                "both, fill",
                limits(Limits { last_delay_action: LastDelayAction::ExtendToLimit, ..both }),
            )
            .expects(SOFT),
            Row::new("no bound but a limit", endless).expects(HARD),
        ]
    });
    run(&rows.collect::<Vec<_>>());
}

#[test]
fn exhaustive_invariants_hold_for_every_deadline() {
    let deadline = Rules { deadline: Some(ms(6)), ..BASE };
    let expired =
        |action| Rules { deadline: Some(Duration::ZERO), expired_deadline_action: action, ..BASE };
    let timeout = |attempt_timeout_action| Rules {
        attempt_timeout: Some(TIMEOUT),
        attempt_timeout_action,
        ..BASE
    };
    // As long as an attempt takes: the outcome comes first (P4).
    const TIMEOUT: Duration = ms(1);
    const DEADLINE: &[StopReason] = &[StopReason::Deadline];
    run(&[
        Row::new("early", deadline).letters(&[Letter::Hang]).expects(DEADLINE),
        Row::new("wait", Rules { deadline_action: DeadlineAction::WaitForDeadline, ..deadline })
            .letters(&[Letter::Hang])
            .expects(DEADLINE),
        Row::new("endless until the deadline", Rules { attempts: None, ..deadline })
            .expects(DEADLINE),
        Row::new("a call's own deadline", BASE)
            .params(CallParams { deadline: Some(ms(4)), ..CallParams::default() })
            .expects(DEADLINE),
        Row::new("an attempt's timeout", timeout(AttemptTimeoutAction::Retry))
            .letters(&[Letter::Hang])
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new("an attempt's timeout stops", timeout(AttemptTimeoutAction::Stop))
            .letters(&[Letter::Hang])
            .expects(&[StopReason::AttemptTimeout]),
        Row::new("an attempt's timeout ends", timeout(AttemptTimeoutAction::EndCall))
            .letters(&[Letter::Hang])
            .expects(DEADLINE),
        Row::new(
            "an attempt's timeout is final",
            timeout(AttemptTimeoutAction::Fail { drains: true }),
        )
        .letters(&[Letter::Hang])
        .expects(&[StopReason::NotRetryable]),
        Row::new(
            "an attempt timeout of zero",
            Rules { attempt_timeout: Some(Duration::ZERO), ..deadline },
        )
        .expects(DEADLINE),
    ]);
    // Too few sequences for `run`: the deadline comes before the first outcome.
    let one = Row::new("expired, starts one", expired(ExpiredDeadlineAction::StartOneAttempt))
        .expects(DEADLINE);
    assert_eq!(one.run_all(), alphabet().len());
    let none = Row::new("expired, starts none", expired(ExpiredDeadlineAction::StartNoAttempt))
        .expects(DEADLINE);
    assert_eq!(none.run_all(), 1);
}

#[test]
fn exhaustive_invariants_hold_for_every_throttle() {
    let after = Rules { charge_at: ChargeAt::AfterBackoff, ..BASE };
    let fail = CostBucketConfig { empty: WhenEmpty::Fail, capacity: 13.0, ..COSTS };
    let deadline = Rules { deadline: Some(ms(8)), ..BASE };
    let with_debt = CostBucketConfig { capacity: 10.0, ..COSTS };
    const THROTTLED: &[StopReason] =
        &[StopReason::Throttled, StopReason::Succeeded, StopReason::NotRetryable];
    let drains = [Letter::Outcome(Directive::Fail.into())];
    run(&[
        Row::new("tokens", BASE)
            .throttle(Spec::Tokens { max: 4.0, ratio: 0.5 })
            .letters(&drains)
            .expects(THROTTLED),
        Row::new("costs that refuse", BASE).throttle(Spec::Costs(fail)).expects(THROTTLED),
        Row::new("costs with debt", BASE)
            .throttle(Spec::Costs(with_debt))
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new("costs with debt, a deadline", deadline)
            .throttle(Spec::Costs(with_debt))
            .expects(&[StopReason::Deadline]),
        Row::new(
            "costs with debt, late",
            Rules { deadline_action: DeadlineAction::WaitForDeadline, ..deadline },
        )
        .throttle(Spec::Costs(with_debt))
        .expects(&[StopReason::Deadline]),
        Row::new("paid after the backoff, refused", after)
            .throttle(Spec::Costs(fail))
            .expects(THROTTLED),
        Row::new("paid after the backoff, with debt", after).throttle(Spec::Costs(with_debt)),
        Row::new(
            "paid after the backoff, a deadline",
            Rules { charge_at: ChargeAt::AfterBackoff, ..deadline },
        )
        .throttle(Spec::Costs(with_debt))
        .expects(&[StopReason::Deadline]),
        Row::new("budget", BASE)
            .throttle(Spec::Budget { reserve: 2.0, ratio: 0.1 })
            .expects(THROTTLED),
        Row::new("a budget that answers later", BASE)
            .throttle(Spec::Budget { reserve: 2.0, ratio: 0.1 })
            .later(&[true, false, true])
            .expects(THROTTLED),
        Row::new("a bucket that answers later, with debt", after)
            .throttle(Spec::Costs(with_debt))
            .later(&[true, true, true])
            .expects(&[StopReason::AttemptsExhausted]),
    ]);
}

#[test]
fn exhaustive_invariants_hold_with_hedging() {
    let delay = |delay| Rules { hedge: Some(delay), ..BASE };
    const EVERY: &[StopReason] = &[
        StopReason::Succeeded,
        StopReason::NotRetryable,
        StopReason::ServerRefused,
        StopReason::AttemptsExhausted,
    ];
    const SENT: &[StopReason] =
        &[StopReason::Succeeded, StopReason::NotRetryable, StopReason::AttemptsExhausted];
    const THROTTLED: &[StopReason] = &[StopReason::Throttled, StopReason::Succeeded];
    let headers = [Letter::Headers(Directive::Retry(Failure::server()).into())];
    run(&[
        Row::new("all at once", delay(Duration::ZERO)).expects(SENT),
        Row::new("as fast as they fail", delay(ms(1))).expects(EVERY),
        Row::new("slower than they fail", delay(ms(2))).letters(&[Letter::Hang]).expects(EVERY),
        Row::new("never by time", delay(Duration::MAX)).expects(EVERY),
        Row::new("headers commit", HEDGED).letters(&headers).expects(&[StopReason::Committed]),
        Row::new("a deadline", Rules { deadline: Some(ms(3)), ..HEDGED })
            .letters(&[Letter::Hang])
            .expects(&[StopReason::Deadline]),
        Row::new("a timeout", Rules { attempt_timeout: Some(ms(2)), ..HEDGED })
            .letters(&[Letter::Hang])
            .expects(EVERY),
        Row::new("tokens", HEDGED)
            .throttle(Spec::Tokens { max: 4.0, ratio: 0.5 })
            .expects(THROTTLED),
        Row::new("budget", delay(Duration::ZERO))
            .throttle(Spec::Budget { reserve: 1.0, ratio: 0.1 })
            .expects(THROTTLED),
        Row::new("costs with debt", HEDGED)
            .throttle(Spec::Costs(CostBucketConfig { capacity: 10.0, ..COSTS }))
            .expects(EVERY),
        Row::new("costs with debt, all at once", delay(Duration::ZERO))
            .throttle(Spec::Costs(CostBucketConfig { capacity: 10.0, ..COSTS }))
            .expects(EVERY),
        Row::new("a throttle that answers later", delay(ms(1)))
            .throttle(Spec::Budget { reserve: 2.0, ratio: 0.1 })
            .later(&[true, true])
            .expects(THROTTLED),
    ]);
}

#[test]
fn exhaustive_invariants_hold_with_transparent_retries_and_strategies() {
    let proofs = [proven(Proof::Unsent), proven(Proof::Unprocessed)];
    let reasons = [
        retry(Failure::server().because(Reason::new("DID_NOT_RUN").allow_non_idempotent())),
        retry(Failure::server().because(Reason::new("FOR_EVER").always())),
    ];
    let transparent_retries = Rules { transparent_retries: true, ..BASE };
    let uses_strategy = Rules { uses_strategy: true, ..BASE };
    let once = CallParams { idempotent: false, ..CallParams::default() };
    let not_replayable = CallParams { not_replayable: true, ..CallParams::default() };
    run(&[
        Row::new("not idempotent", BASE)
            .params(once)
            .letters(&reasons)
            .expects(&[StopReason::NotIdempotent]),
        Row::new("transparent retries", transparent_retries)
            .letters(&proofs)
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new("transparent retries, not idempotent", transparent_retries)
            .params(once)
            .letters(&proofs)
            .expects(&[StopReason::NotIdempotent]),
        Row::new(
            "transparent retries until the deadline",
            Rules { deadline: Some(ms(9)), ..transparent_retries },
        )
        .letters(&proofs)
        .expects(&[StopReason::Deadline]),
        Row::new("transparent retries of hedges", Rules { transparent_retries: true, ..HEDGED })
            .letters(&proofs)
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new(
            "transparent retries of hedges under tokens",
            Rules { transparent_retries: true, ..HEDGED },
        )
        .throttle(Spec::Tokens { max: 2.0, ratio: 0.5 })
        .letters(&proofs[..1])
        .expects(&[StopReason::Throttled]),
        Row::new("proofs with transparent retries off", BASE)
            .letters(&proofs)
            .expects(&[StopReason::AttemptsExhausted]),
        Row::new("strategy", uses_strategy)
            .letters(&reasons)
            .expects(&[StopReason::StrategyDeclined, StopReason::AttemptsExhausted]),
        Row::new("strategy for one call", BASE)
            .params(CallParams { uses_strategy: true, ..once })
            .letters(&reasons)
            .expects(&[StopReason::StrategyDeclined, StopReason::NotIdempotent]),
    ]);
    let committed = Row::new("not replayable from the start", transparent_retries)
        .params(not_replayable)
        .letters(&proofs)
        .expects(&[StopReason::Committed, StopReason::Succeeded, StopReason::NotRetryable]);
    assert_eq!(committed.run_all(), alphabet().len() + proofs.len(), "a single attempt");
}
