//! The state machine survives any sequence of inputs, and its call log can be written, read and
//! replayed.
//!
//! Bytes become rules and then inputs, including orders that no driver would produce. The debug
//! assertions of the state machine are on, and a minimal checker follows its commands: one end,
//! nothing after it, and every attempt ended or cancelled. Rules that contradict each other are
//! corrected. When the bytes run out they seed a generator, so that short inputs give long calls,
//! too.

use std::collections::BTreeSet;
use std::time::Duration;

use redial::CallLog;
use redial_core::throttle::{CostBucket, CostBucketConfig, RetryBudget, TokenBucket, WhenEmpty};
use redial_core::{
    Advice, AttemptTimeoutAction, Backoff, Bucket, Call, CallEnvironment, CallParams, ChargeAt,
    Classification, Command, Cost, DeadlineAction, Directive, DriverContext, Event,
    ExpiredDeadlineAction, Failure, FailureKind, Grant, HedgeDelay, Hint, Jitter, LIVE_MAX,
    LastDelayAction, LimitBasis, Limits, Ns, Numbering, OverLimitAction, Policy, PolicyError,
    Proof, Random, Rules, Stage, Withdrawal,
};

/// The maximum number of inputs of a call.
const STEPS_MAX: usize = 60;

/// The input bytes; after their end, bytes of a generator seeded with them.
struct Bytes<'a> {
    rest: &'a [u8],
    then: Random,
}

impl<'a> Bytes<'a> {
    fn new(input: &'a [u8]) -> Self {
        let seed = input.iter().fold(7, |seed: u64, byte| {
            seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte))
        });
        Bytes { rest: input, then: Random::new(seed) }
    }
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else {
            return self.then.bits() as u8;
        };
        self.rest = rest;
        *first
    }
    fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }
    fn span(&mut self) -> Duration {
        match self.next() {
            255 => Duration::MAX,
            254 => Duration::from_nanos(1),
            millis => Duration::from_millis(u64::from(millis)),
        }
    }
    fn maybe(&mut self) -> Option<Duration> {
        self.flag().then(|| self.span())
    }
    /// For inputs that would end most calls early if they were frequent.
    fn rarely(&mut self) -> bool {
        self.next().is_multiple_of(6)
    }
}

fn rules(bytes: &mut Bytes<'_>) -> Rules {
    let first = bytes.span();
    let backoff = match bytes.next() % 4 {
        0 => Backoff::Constant(first),
        1 => Backoff::Arithmetic { first, step: bytes.span(), cap: bytes.maybe() },
        2 => {
            let factor = f64::from(bytes.next()) / 32.0;
            Backoff::Exponential { first, factor, cap: bytes.maybe() }
        }
        _ => redial_core::CONTROLLED,
    };
    let jitter = match bytes.next() % 6 {
        0 => Jitter::None,
        1 => Jitter::Full,
        2 => Jitter::Half,
        3 => Jitter::Equal,
        4 => Jitter::Proportional(f64::from(bytes.next()) / 200.0),
        _ => Jitter::Decorrelated,
    };
    let limits = Limits {
        soft: bytes.maybe(),
        hard: bytes.maybe(),
        over_limit_action: if bytes.flag() {
            OverLimitAction::TruncateDelay
        } else {
            OverLimitAction::Stop
        },
        last_delay_action: if bytes.flag() {
            LastDelayAction::ExtendToLimit
        } else {
            LastDelayAction::Keep
        },
        basis: if bytes.flag() { LimitBasis::Elapsed } else { LimitBasis::TotalDelay },
    };
    Rules {
        attempts: bytes.flag().then(|| u32::from(bytes.next() % 40)),
        backoff,
        jitter,
        limits: if bytes.flag() { limits } else { Limits::NONE },
        deadline: if bytes.rarely() { bytes.maybe() } else { None },
        deadline_action: if bytes.flag() {
            DeadlineAction::WaitForDeadline
        } else {
            DeadlineAction::FailFast
        },
        expired_deadline_action: if bytes.flag() {
            ExpiredDeadlineAction::StartNoAttempt
        } else {
            ExpiredDeadlineAction::StartOneAttempt
        },
        attempt_timeout: bytes.maybe(),
        attempt_timeout_action: if bytes.rarely() {
            AttemptTimeoutAction::EndCall
        } else {
            AttemptTimeoutAction::Retry
        },
        hedge: bytes.maybe(),
        numbering: match bytes.next() % 3 {
            0 => Numbering::Delays,
            1 => Numbering::Attempts,
            _ => Numbering::SinceHint,
        },
        charge_at: if bytes.flag() { ChargeAt::AfterBackoff } else { ChargeAt::Decision },
        uses_strategy: bytes.rarely(),
        transparent_retries: bytes.flag(),
        ..Rules::DEFAULT
    }
}

/// A policy of these rules, with contradictions removed.
fn without_contradictions(mut rules: Rules) -> Policy {
    for _ in 0..9 {
        match Policy::try_new(rules) {
            Ok(policy) => return policy,
            Err(PolicyError::NoAttempt) => rules.attempts = Some(1),
            Err(PolicyError::HedgeAttempts) => rules.attempts = Some(3),
            Err(PolicyError::Unlimited) => rules.deadline = Some(Duration::from_secs(1)),
            Err(PolicyError::HedgeWithLimits) => rules.limits = Limits::NONE,
            Err(PolicyError::HedgeWithStrategy) => rules.uses_strategy = false,
            Err(PolicyError::AttemptTimeout) => rules.attempt_timeout = None,
            Err(PolicyError::Factor) => rules.backoff = redial_core::CONTROLLED,
            Err(PolicyError::Proportion) => rules.jitter = Jitter::Full,
            Err(_) => rules.limits = Limits::NONE,
        }
    }
    panic!("{rules:?} cannot be corrected: {:?}", rules.problem());
}

/// A throttle of any kind, including one that defers its answers.
enum AnyThrottle {
    Budget(RetryBudget),
    Tokens(TokenBucket),
    Costs(CostBucket),
    Later,
}

impl Bucket for AnyThrottle {
    fn failed(&self) {
        if let AnyThrottle::Tokens(tokens) = self {
            tokens.failed();
        }
    }
    fn withdraw(&self, cost: Cost, now: Ns) -> Grant {
        match self {
            AnyThrottle::Budget(budget) => budget.withdraw(cost, now),
            AnyThrottle::Tokens(tokens) => tokens.withdraw(cost, now),
            AnyThrottle::Costs(costs) => costs.withdraw(cost, now),
            AnyThrottle::Later => Grant::Later,
        }
    }
    fn refund(&self, withdrawal: Withdrawal) {
        match self {
            AnyThrottle::Budget(budget) => budget.refund(withdrawal),
            AnyThrottle::Costs(costs) => costs.refund(withdrawal),
            AnyThrottle::Tokens(_) | AnyThrottle::Later => {}
        }
    }
    fn succeeded(&self, withdrawal: Option<Withdrawal>) {
        match self {
            AnyThrottle::Budget(budget) => budget.succeeded(withdrawal),
            AnyThrottle::Tokens(tokens) => tokens.succeeded(withdrawal),
            AnyThrottle::Costs(costs) => costs.succeeded(withdrawal),
            AnyThrottle::Later => {}
        }
    }
    fn tokens(&self, now: Ns) -> Option<f64> {
        match self {
            AnyThrottle::Budget(budget) => budget.tokens(now),
            AnyThrottle::Tokens(tokens) => tokens.tokens(now),
            AnyThrottle::Costs(costs) => costs.tokens(now),
            AnyThrottle::Later => None,
        }
    }
}

struct RecordingContext {
    draw: u8,
    call_log: CallLog,
}

impl DriverContext for RecordingContext {
    fn draw(&mut self) -> f64 {
        self.draw = self.draw.wrapping_mul(5).wrapping_add(7);
        f64::from(self.draw) / 256.0
    }
    fn record(&mut self, at: Ns, event: Event) {
        self.call_log.push(at, event);
    }
}

fn classification(bytes: &mut Bytes<'_>) -> Classification {
    let kind = match bytes.next() % 4 {
        0 => FailureKind::Server,
        1 => FailureKind::Client,
        2 => FailureKind::Throttling,
        _ => FailureKind::Timeout,
    };
    let stage = match bytes.next() % 3 {
        0 => Stage::Unsent,
        1 => Stage::InFlight,
        _ => Stage::Answered,
    };
    let hint = match bytes.next() % 12 {
        0..=2 => Hint::After(bytes.span()),
        3 => Hint::Stop,
        _ => Hint::None,
    };
    let failure = Failure::new(kind).at(stage).hint(hint);
    let directive = match bytes.next() % 16 {
        0 => Directive::Succeed,
        1 => Directive::Fail,
        _ => Directive::Retry(failure),
    };
    let proof = match bytes.next() % 4 {
        0 => Some(Proof::Unprocessed),
        1 => Some(Proof::Unsent),
        _ => None,
    };
    Classification { directive, proof, drains: bytes.flag() }
}

/// The state according to the commands.
#[derive(Default)]
struct Seen {
    running: BTreeSet<usize>,
    asked: bool,
    awaited: bool,
    ended: bool,
}

impl Seen {
    fn run_commands(
        &mut self,
        call: &mut Call<&Policy>,
        env: &mut CallEnvironment<&AnyThrottle, RecordingContext>,
    ) {
        while let Some(command) = call.command(env) {
            assert!(!self.ended, "{command:?} after the end");
            match command {
                Command::Start(start) => {
                    assert!(self.running.insert(start.slot), "slot {} is taken", start.slot);
                }
                Command::Cancel(slot) => {
                    assert!(self.running.remove(&slot), "nothing runs in slot {slot}");
                }
                Command::Ask(_) => self.asked = true,
                Command::Await(_) => self.awaited = true,
                Command::End(_) => {
                    assert!(self.running.is_empty(), "{:?} outlive their call", self.running);
                    self.ended = true;
                }
            }
        }
    }
}

fn run_call(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let throttle = match bytes.next() % 4 {
        0 => AnyThrottle::Budget(RetryBudget::try_new(3.0, 0.5).expect("valid")),
        1 => AnyThrottle::Tokens(TokenBucket::new(6.0, 0.3).expect("valid")),
        2 => {
            let empty = if bytes.flag() { WhenEmpty::Wait } else { WhenEmpty::Fail };
            let spec = CostBucketConfig { capacity: 20.0, empty, ..CostBucketConfig::STANDARD };
            AnyThrottle::Costs(CostBucket::new(spec).expect("valid"))
        }
        _ => AnyThrottle::Later,
    };
    let policy = without_contradictions(rules(&mut bytes));
    let context = RecordingContext { draw: bytes.next(), call_log: CallLog::new() };
    let mut env = CallEnvironment::new(&throttle, context);
    let params = CallParams {
        deadline: if bytes.rarely() { bytes.maybe() } else { None },
        idempotent: policy.rules().hedge.is_some() || !bytes.rarely(),
        not_replayable: bytes.rarely(),
        ends_at_attempt_timeout: policy.rules().hedge.is_none() && bytes.rarely(),
        uses_strategy: policy.rules().hedge.is_none() && bytes.rarely(),
        hedge: bytes.rarely().then(|| match bytes.flag() {
            true => HedgeDelay::After(redial_core::ns(bytes.span())),
            false => HedgeDelay::Never,
        }),
    };
    let mut now: Ns = u64::from(bytes.next());
    let mut call = Call::<_>::begin(&policy, params, now, &mut env);
    let mut seen = Seen::default();
    seen.run_commands(&mut call, &mut env);
    let mut steps = 0;
    while !seen.ended && steps < STEPS_MAX {
        steps += 1;
        let slot = usize::from(bytes.next());
        let pick = seen.running.iter().nth(slot % seen.running.len().max(1)).copied();
        match bytes.next() % 32 {
            0..=11 => {
                if let Some(slot) = pick {
                    seen.running.remove(&slot);
                    call.outcome(slot, classification(&mut bytes), now, &mut env);
                }
            }
            12..=18 => now = call.wake_at().unwrap_or(now).max(now),
            19..=21 => now = now.saturating_add(redial_core::ns(bytes.span())),
            22 => {
                if let Some(slot) = pick {
                    call.committed(slot, now, &mut env);
                }
            }
            23 => call.not_replayable(if bytes.flag() { pick } else { None }, now, &mut env),
            24 if bytes.next() == 0 => call.cancel(now, &mut env),
            _ => {
                if std::mem::take(&mut seen.asked) {
                    let after = Advice::After(redial_core::ns(bytes.span()));
                    let advice = if bytes.flag() { after } else { Advice::Decline };
                    call.answered(advice, now, &mut env);
                }
                if std::mem::take(&mut seen.awaited) {
                    let grant = match bytes.next() % 4 {
                        0 => Grant::Refused,
                        1 => Grant::After(redial_core::ns(bytes.span()), Withdrawal(0)),
                        2 => Grant::Later,
                        _ => Grant::Now(Withdrawal(0)),
                    };
                    call.granted(grant, now, &mut env);
                }
            }
        }
        seen.run_commands(&mut call, &mut env);
        // A new attempt has no timer that is due now, so each slot fires at most once, and so does
        // the timer that follows it.
        let mut due = 2 * LIVE_MAX + 2;
        while call.wake_once(now, &mut env) {
            seen.run_commands(&mut call, &mut env);
            due = due.checked_sub(1).expect("timers fire without end");
        }
    }
    call.cancel(now, &mut env);
    seen.run_commands(&mut call, &mut env);
    assert!(seen.ended && call.wake_at().is_none(), "a call that was cancelled has not ended");
    let call_log = &env.context.call_log;
    let read = CallLog::from_json_lines(&call_log.to_json_lines()).expect("it can be read again");
    assert_eq!(read, *call_log);
    if let Err(different) = read.replay(&policy) {
        panic!("{different}\n{}", read.to_json_lines());
    }
}

#[test]
fn state_machine_survives_any_event_sequence() {
    bolero::check!()
        .with_test_time(Duration::from_secs(8))
        .with_iterations(200_000)
        .with_max_len(256)
        .for_each(run_call);
}
