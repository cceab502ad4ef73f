//! Delays as docs/scenarios.md and docs/decisions.md define them, in floating-point numbers.

use std::time::Duration;

use redial_core::{
    Backoff, Failure, FailureKind, Hint, HintRule, Jitter, LastDelayAction, Limits, NEVER, Ns,
    Numbering, OverLimitAction, Policy, ns,
};

/// The state that a delay depends on, in addition to the policy.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The random draw for the delay.
    pub(crate) draw: Option<f64>,
    /// The previous delay of the backoff, if known.
    previous: Option<f64>,
    /// Exact hints so far, and the attempts at the last of them.
    hints: u32,
    hinted_at: u32,
}

/// The defined delay before limits, in nanoseconds.
pub(crate) struct ExpectedDelay {
    pub(crate) delay: f64,
    /// Whether the server chose the delay.
    pub(crate) hinted: bool,
    /// The next base delay of the same series.
    pub(crate) next: Option<f64>,
}

impl Series {
    /// The delay after this many attempts, as docs/scenarios.md defines it; `None` if a user's
    /// function or a saturating clock affects it.
    pub(crate) fn delay(
        &mut self,
        policy: &Policy,
        failure: &Failure,
        advice: Option<Ns>,
        attempts: u32,
    ) -> Option<ExpectedDelay> {
        let rules = policy.rules();
        let draw = self.draw.take();
        let most = match rules.hint {
            HintRule::Exact(most) => Some(most.map_or(NEVER, ns)),
            HintRule::UpTo(most) => Some(ns(most)),
            HintRule::Within(_) | HintRule::AtLeast(_) => None,
        };
        // P14: zero is a hint only under the rules of other designs, and only if the call ends.
        let is_zero = failure.hint == Hint::After(Duration::ZERO);
        let ignored = matches!(rules.hint, HintRule::UpTo(_)) || rules.never_gives_up();
        let most = most.filter(|_| !(is_zero && ignored));
        if let (Hint::After(requested), Some(most)) = (failure.hint, most) {
            let jitter = draw.map_or(0.0, |u| u * rules.hint_jitter);
            assert_eq!(draw.is_some(), rules.hint_jitter > 0.0, "a draw for the jitter of hints");
            self.hints += 1;
            self.hinted_at = attempts;
            let delay = ns(requested).min(most) as f64 * (1.0 + jitter);
            let delay = match rules.hint {
                HintRule::Exact(Some(most)) => delay.min(ns(most) as f64),
                _ => delay,
            };
            return Some(ExpectedDelay { delay, hinted: true, next: None });
        }
        let n = match rules.numbering {
            Numbering::Attempts => attempts,
            Numbering::Delays => attempts - self.hints,
            Numbering::SinceHint => attempts - self.hinted_at,
        };
        let always = failure.is_always_retried();
        let series = match rules.throttling_first {
            _ if always => rules.always,
            Some(first) if failure.kind == FailureKind::Throttling => match rules.backoff {
                Backoff::Constant(_) => Backoff::Constant(first),
                Backoff::Arithmetic { step, cap, .. } => Backoff::Arithmetic { first, step, cap },
                Backoff::Exponential { factor, cap, .. } => {
                    Backoff::Exponential { first, factor, cap }
                }
                Backoff::Fibonacci { cap, .. } => Backoff::Fibonacci { first, cap },
                other => other,
            },
            _ => rules.backoff,
        };
        let next = base(policy, &series, n + 1);
        if let Some(span) = advice {
            return Some(ExpectedDelay { delay: span as f64, hinted: false, next: Some(next?) });
        }
        // `None` for a user's function, after which the previous delay is unknown.
        let base = base(policy, &series, n)?;
        let mut delay = base;
        if always || rules.jitter == Jitter::None {
            assert_eq!(draw, None, "a draw that nothing needs");
        } else {
            let u = draw.expect("jitter needs a draw");
            let first = self::base(policy, &series_uncapped(&series), 1)?;
            delay = match rules.jitter {
                Jitter::None => base,
                Jitter::Full => u * base,
                Jitter::Half => base + u * base / 2.0,
                Jitter::Equal => base / 2.0 + u * base / 2.0,
                Jitter::Proportional(p) => base * (1.0 - p + 2.0 * p * u),
                Jitter::Decorrelated => {
                    (first + u * (3.0 * self.previous.unwrap_or(first) - first)).max(0.0)
                }
            };
            if !rules.jitter_above_cap {
                delay = delay.min(series.cap() as f64);
            }
        }
        let mut hinted = false;
        delay = delay.floor();
        if let (Hint::After(requested), HintRule::Within(room)) = (failure.hint, rules.hint) {
            let hinted_delay = (ns(requested) as f64).clamp(delay, delay + ns(room) as f64);
            hinted = hinted_delay > delay;
            delay = hinted_delay;
        }
        if let (Hint::After(requested), HintRule::AtLeast(_)) = (failure.hint, rules.hint) {
            hinted = ns(requested) as f64 > delay;
            delay = delay.max(ns(requested) as f64);
        }
        if !hinted {
            self.previous = Some(delay);
        }
        (delay < FAR).then_some(ExpectedDelay { delay, hinted, next })
    }
}

/// Beyond this the clock saturates, and rounding dominates.
const FAR: f64 = 1e18;

/// The same series without its cap: decorrelated jitter grows from the uncapped first delay.
fn series_uncapped(series: &Backoff) -> Backoff {
    match *series {
        Backoff::Arithmetic { first, step, .. } => Backoff::Arithmetic { first, step, cap: None },
        Backoff::Exponential { first, factor, .. } => {
            Backoff::Exponential { first, factor, cap: None }
        }
        Backoff::Fibonacci { first, .. } => Backoff::Fibonacci { first, cap: None },
        other => other,
    }
}

/// The base delay of retry n.
fn base(policy: &Policy, series: &Backoff, n: u32) -> Option<f64> {
    let steps = f64::from(n) - 1.0;
    let entry = |table: &[Duration]| ns(table[(n as usize).clamp(1, table.len()) - 1]) as f64;
    let base = match *series {
        Backoff::Constant(delay) => ns(delay) as f64,
        Backoff::Arithmetic { first, step, .. } => ns(first) as f64 + ns(step) as f64 * steps,
        Backoff::Exponential { first, factor, .. } => ns(first) as f64 * factor.powf(steps),
        Backoff::Fibonacci { first, .. } => {
            // Binet's formula.
            let golden = (1.0 + 5f64.sqrt()) / 2.0;
            ns(first) as f64 * (golden.powf(steps + 1.0) / 5f64.sqrt()).round()
        }
        Backoff::Table(table) => entry(table),
        Backoff::Own => entry(policy.table()?),
    };
    // 0 × ∞ is defined as 0.
    let base = if base.is_nan() { 0.0 } else { base };
    Some(base.min(series.cap() as f64))
}

/// The delays that L1 to L3 allow; two where rounding decides.
pub(crate) fn limited(
    limits: &Limits,
    spent: Ns,
    delay: f64,
    ours: bool,
    next: Option<f64>,
) -> Vec<f64> {
    let Some(hard) = limits.hard.map(|hard| ns(hard) as f64) else { return vec![delay] };
    let (spent, rest) = (spent as f64, hard - spent as f64);
    let end = spent + delay;
    // The margin of each condition; a few nanoseconds are a matter of rounding.
    let excess = end - hard;
    let soft = limits.soft.map_or(f64::INFINITY, |soft| ns(soft) as f64) - end;
    let last = next.map_or(f64::NEG_INFINITY, |next| end + next - hard);
    let cut = ours && limits.over_limit_action == OverLimitAction::TruncateDelay;
    let fill = ours && limits.last_delay_action == LastDelayAction::ExtendToLimit;
    let mut allowed = Vec::new();
    if excess < 4.0 && !(fill && excess < -4.0 && soft > 4.0 && last > 4.0) {
        allowed.push(delay);
    }
    if (cut && excess > -4.0) || (fill && excess < 4.0 && soft > -4.0 && last > -4.0) {
        allowed.push(rest);
    }
    allowed
}
