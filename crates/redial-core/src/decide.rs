//! The decision after a failure: retry after a delay, or stop for a reason.

use crate::limits::{LimitBasis, RequestedDelay};
use crate::rules::{ChargeAt, DeadlineAction, HintRule, Numbering, Rules};
use crate::time::{NEVER, Ns, duration, ns};
use crate::{
    Backoff, CallCounters, Cost, Environment, Event, Failure, FailureKind, Grant, Hint, Jitter,
    Policy, Step, StopReason, Withdrawal,
};

/// The answer of a strategy about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No strategy was asked.
    None,
    /// Retry after this long.
    After(Ns),
    /// Do not retry.
    Decline,
}

/// The decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start the next attempt after a delay.
    Retry {
        /// The delay.
        after: Ns,
        /// Whether the throttle has granted the retry; if not, the grant is requested after the
        /// delay.
        paid: bool,
    },
    /// The throttle defers its answer; the delay starts with its grant.
    Later {
        /// The delay after the grant.
        after: Ns,
    },
    /// Ask the strategy, and decide again with its advice.
    Ask,
    /// End the call with this failure.
    End(StopReason),
}

/// Decides what follows a retryable failure, in the order of decision P9.
///
/// `deadline` is the time at which the call must end ([`NEVER`] without one); `advice` is the
/// answer of the strategy, if the policy uses one and it has answered. Hedged calls reach this
/// function only after they are committed: until then [`Call`](crate::Call) schedules their hedges.
// Always inlined: where the compiler knows the failure (as with `when(..) -> bool`), most of the
// code is eliminated.
#[inline(always)]
pub fn decide(
    policy: &Policy,
    counters: &mut CallCounters,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    deadline: Ns,
    env: &mut impl Environment,
) -> Verdict {
    let fast = policy.fixed_delay().is_some()
        && !counters.committed
        && counters.idempotent
        && !counters.uses_strategy
        && failure.has_no_reason_or_hint()
        && failure.is_charged()
        && advice == Advice::None
        && deadline == NEVER;
    if fast {
        evaluate::<true>(policy, counters, failure, advice, now, deadline, env)
    } else {
        // A copy whose address does not escape can stay in registers.
        let failure = *failure;
        decide_slow(policy, counters, &failure, advice, now, deadline, env)
    }
}

/// Out of line, so that the fast path is small enough to be inlined.
#[cold]
#[inline(never)]
fn decide_slow(
    policy: &Policy,
    counters: &mut CallCounters,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    deadline: Ns,
    env: &mut impl Environment,
) -> Verdict {
    evaluate::<false>(policy, counters, failure, advice, now, deadline, env)
}

/// The decision itself. With `FAST`, [`decide`] has established that most rules do not apply, and
/// the compiler removes their checks. Both paths share one order of checks.
#[inline(always)]
fn evaluate<const FAST: bool>(
    policy: &Policy,
    counters: &mut CallCounters,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    deadline: Ns,
    env: &mut impl Environment,
) -> Verdict {
    let rules = policy.rules();

    // Counted before the throttle compares (G11), and only once although a strategy causes a second
    // evaluation.
    if advice == Advice::None && (FAST || failure.is_charged()) {
        env.failed();
    }
    if !FAST && let Some(verdict) = stop_by_call_flags(counters, failure, advice) {
        return verdict;
    }
    if !FAST && failure.hint == Hint::Stop {
        return Verdict::End(StopReason::ServerRefused);
    }
    let attempts = if FAST { counters.attempts } else { counters.attempts_in_series() };
    if policy.is_exhausted(attempts) {
        return Verdict::End(StopReason::AttemptsExhausted);
    }

    let mut after;
    if FAST && let Some(fixed) = policy.fixed_delay() {
        after = fixed;
    } else {
        // The position of the next delay in the backoff series.
        let number = attempts.saturating_sub(u32::from(counters.hinted)).max(1);
        if !FAST && is_hint_too_long(rules, failure) {
            return Verdict::End(StopReason::HintTooLong);
        }
        let hinted;
        (after, hinted) = compute_delay(policy, counters, number, failure, advice, now, env);
        if !rules.limits.is_none() {
            match apply_limits(policy, counters, number, failure, after, hinted, now) {
                Ok(left) => after = left,
                Err(stop_reason) => return Verdict::End(stop_reason),
            }
        }
        if misses_deadline(policy, now.saturating_add(after), deadline) {
            return Verdict::End(StopReason::Deadline);
        }
        if rules.charge_at == ChargeAt::AfterBackoff {
            counters.waited = counters.waited.saturating_add(after);
            env.record(now, Event::RetryScheduled { after, failure: *failure });
            return Verdict::Retry { after, paid: false };
        }
    }
    if after > 0 {
        counters.waited = counters.waited.saturating_add(after);
    }

    let cost = Cost { kind: failure.kind };
    match if FAST { ask_throttle(env, cost, now) } else { request_grant(env, cost, now) } {
        Grant::Now(_) => {}
        Grant::After(debt, _) => {
            // The debt is waited for first, then the backoff (S2).
            after = after.saturating_add(debt);
            if misses_deadline(policy, now.saturating_add(after), deadline) {
                return Verdict::End(StopReason::Deadline);
            }
        }
        Grant::Later => {
            env.record(now, Event::RetryScheduled { after, failure: *failure });
            return Verdict::Later { after };
        }
        Grant::Refused => return Verdict::End(StopReason::Throttled),
    }
    env.record(now, Event::RetryScheduled { after, failure: *failure });
    Verdict::Retry { after, paid: true }
}

/// The verdict that the call's flags require, if any: committed, then strategy, then not
/// idempotent.
fn stop_by_call_flags(
    counters: &CallCounters,
    failure: &Failure,
    advice: Advice,
) -> Option<Verdict> {
    if counters.committed {
        return Some(Verdict::End(StopReason::Committed));
    }
    // C10: a reason that is always retried never reaches the strategy.
    if counters.uses_strategy && !failure.is_always_retried() {
        match advice {
            Advice::None => return Some(Verdict::Ask),
            Advice::Decline => return Some(Verdict::End(StopReason::StrategyDeclined)),
            Advice::After(_) => {}
        }
    }
    let is_unsafe = !counters.idempotent && !failure.proves_not_run();
    is_unsafe.then_some(Verdict::End(StopReason::NotIdempotent))
}

/// The delay after applying the limits (L1 to L3).
fn apply_limits(
    policy: &Policy,
    counters: &CallCounters,
    number: u32,
    failure: &Failure,
    delay: Ns,
    hinted: bool,
    now: Ns,
) -> Result<Ns, StopReason> {
    let rules = policy.rules();
    let spent = match rules.limits.basis {
        LimitBasis::TotalDelay => counters.waited,
        LimitBasis::Elapsed => now.saturating_sub(counters.start),
    };
    let another =
        rules.attempts.is_none_or(|most| counters.attempts_in_series().saturating_add(1) < most)
            && !hinted;
    let next = another.then(|| {
        let previous = Some(duration(delay));
        let number = number.saturating_add(1);
        policy.base(&series_for(rules, failure), Step { number, failure, previous })
    });
    rules.limits.apply(&RequestedDelay { spent, delay, adjustable: !hinted, next })
}

/// Requests a retry or hedge from the throttle, and records the answer. Waiting for a value is free,
/// so no throttle is asked.
pub(crate) fn request_grant(env: &mut impl Environment, cost: Cost, now: Ns) -> Grant {
    if cost.kind == FailureKind::NotReady {
        return Grant::Now(Withdrawal(0));
    }
    ask_throttle(env, cost, now)
}

fn ask_throttle(env: &mut impl Environment, cost: Cost, now: Ns) -> Grant {
    let grant = env.withdraw(cost, now);
    env.record(now, Event::ThrottleAnswered(grant));
    grant
}

/// Whether an attempt that starts at `then` would miss the deadline: nothing starts at the deadline
/// itself (P4).
pub(crate) fn misses_deadline(policy: &Policy, then: Ns, deadline: Ns) -> bool {
    deadline != NEVER
        && policy.rules().deadline_action == DeadlineAction::FailFast
        && then >= deadline
}

/// Whether the server asks for a longer delay than the policy accepts.
pub(crate) fn is_hint_too_long(rules: &Rules, failure: &Failure) -> bool {
    match (failure.hint, rules.hint) {
        (Hint::After(requested), HintRule::UpTo(most) | HintRule::AtLeast(most)) => {
            requested > most
        }
        _ => false,
    }
}

/// The backoff series for this failure.
fn series_for(rules: &Rules, failure: &Failure) -> Backoff {
    match rules.throttling_first {
        _ if failure.is_always_retried() => rules.always,
        Some(first) if failure.kind == FailureKind::Throttling => rules.backoff.starting_at(first),
        _ => rules.backoff,
    }
}

/// The delay from hint, strategy or backoff, with jitter; and whether the server chose it.
fn compute_delay(
    policy: &Policy,
    counters: &mut CallCounters,
    number: u32,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    env: &mut impl Environment,
) -> (Ns, bool) {
    let rules = policy.rules();
    let hint = rules.hint_of(failure);
    if let Hint::After(requested) = hint
        && let Some(span) = rules.hint.replaces(requested)
    {
        counters.hinted = match rules.numbering {
            Numbering::Delays => counters.hinted.saturating_add(1),
            Numbering::Attempts => counters.hinted,
            Numbering::SinceHint => {
                u16::try_from(counters.attempts_in_series()).unwrap_or(u16::MAX)
            }
        };
        return (with_hint_jitter(rules, span, now, env), true);
    }
    if let Advice::After(span) = advice {
        return (span, false);
    }
    // By reference: copying the series would cost more than computing the delay.
    let other;
    let always = failure.is_always_retried();
    let backoff = if always || rules.throttling_first.is_some() {
        other = series_for(rules, failure);
        &other
    } else {
        &rules.backoff
    };
    let needs_previous = rules.jitter == Jitter::Decorrelated || *backoff == Backoff::Own;
    let previous = if needs_previous { env.previous() } else { None };
    let step = Step { number, failure, previous: previous.map(duration) };
    let base = policy.base(backoff, step);
    let mut hinted = false;
    // Reasons that are always retried use their own backoff without jitter.
    let mut span = match always {
        true => base,
        false => {
            let first = policy.first(backoff, base);
            let from = (first, previous.unwrap_or(first));
            with_jitter(rules, backoff, base, from, now, env)
        }
    };
    if let Hint::After(requested) = hint {
        let hinted_delay = match rules.hint {
            HintRule::Within(room) => ns(requested).clamp(span, span.saturating_add(ns(room))),
            HintRule::AtLeast(_) => ns(requested).max(span),
            HintRule::Exact(_) | HintRule::UpTo(_) => span,
        };
        hinted = hinted_delay > span;
        span = hinted_delay;
    }
    if needs_previous && !hinted {
        env.remember(span);
    }
    (span, hinted)
}

/// A server's delay and a random part of its share [`Rules::hint_jitter`], at most the longest delay that
/// the policy waits for.
fn with_hint_jitter(rules: &Rules, span: Ns, now: Ns, env: &mut impl Environment) -> Ns {
    if rules.hint_jitter == 0.0 {
        return span;
    }
    let u = env.draw();
    env.record(now, Event::RandomDraw(u));
    let jittered = span.saturating_add((u * rules.hint_jitter * span as f64) as Ns);
    match rules.hint {
        HintRule::Exact(Some(most)) => jittered.min(ns(most)),
        _ => jittered,
    }
}

/// The base delay with jitter; decorrelated jitter grows from the first and the previous delay.
fn with_jitter(
    rules: &Rules,
    backoff: &Backoff,
    base: Ns,
    (first, previous): (Ns, Ns),
    now: Ns,
    env: &mut impl Environment,
) -> Ns {
    if !rules.jitter.draws() {
        return base;
    }
    let u = env.draw();
    env.record(now, Event::RandomDraw(u));
    let span = rules.jitter.apply(base, u, first, previous);
    if rules.jitter_above_cap { span } else { span.min(backoff.cap()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::Unthrottled;
    use crate::time::ms;
    use crate::{CallEnvironment, Random};

    #[test]
    fn decide_stops_at_max_attempts_and_never_without_one() {
        let after = |most: Option<u32>, attempts: u32| {
            let rules = Rules { attempts: most, deadline: Some(ms(1)), ..Rules::DEFAULT };
            let mut counters = CallCounters { attempts, ..CallCounters::new(0) };
            let mut env = CallEnvironment::new(Unthrottled, Random::new(1));
            let (policy, failure) = (Policy::new(rules), Failure::server());
            decide(&policy, &mut counters, &failure, Advice::None, 0, NEVER, &mut env)
        };
        for most in [1, 3, u32::MAX] {
            assert_eq!(after(Some(most), most), Verdict::End(StopReason::AttemptsExhausted));
            assert!(matches!(after(Some(most), most - 1), Verdict::Retry { paid: true, .. }));
        }
        assert!(matches!(after(None, u32::MAX), Verdict::Retry { paid: true, .. }));
    }
}
