//! The heart: what to do after a failure.

use core::fmt;

use crate::limits::{Measure, Wish};
use crate::policy::{HintRule, Late, Numbering, Pay};
use crate::time::{NEVER, Ns, ns};
use crate::{Cost, Failure, Grant, Hint, Jitter, Kind, Ledger, Note, Policy, Step, World};

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It has what was asked for.
    Succeeded,
    /// The failure was classified as one that does not get better.
    Fatal,
    /// The call already belonged to the attempt that failed.
    Committed,
    /// A strategy declined.
    Strategy,
    /// It must not run twice, and it may have run.
    Unsafe,
    /// The server said not to retry.
    Refused,
    /// No attempt is left.
    Attempts,
    /// Retrying has taken as long as the soft limit allows.
    SoftLimit,
    /// Retrying would take longer than the hard limit allows.
    HardLimit,
    /// The deadline passed, or would pass before the next attempt.
    Deadline,
    /// The throttle holds retries back.
    Throttled,
    /// The application dropped the call.
    Cancelled,
}

impl Why {
    /// All of them, those that end a failed call in the order in which they are judged (P9).
    pub const ALL: [Why; 12] = [
        Why::Succeeded,
        Why::Fatal,
        Why::Committed,
        Why::Strategy,
        Why::Unsafe,
        Why::Refused,
        Why::Attempts,
        Why::SoftLimit,
        Why::HardLimit,
        Why::Deadline,
        Why::Throttled,
        Why::Cancelled,
    ];

    /// Its name in scenarios and diaries.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Why::Succeeded => "succeeded",
            Why::Fatal => "fatal",
            Why::Committed => "committed",
            Why::Strategy => "strategy",
            Why::Unsafe => "unsafe",
            Why::Refused => "refused",
            Why::Attempts => "attempts",
            Why::SoftLimit => "soft-limit",
            Why::HardLimit => "hard-limit",
            Why::Deadline => "deadline",
            Why::Throttled => "throttled",
            Why::Cancelled => "cancelled",
        }
    }

    /// The reason in words, as an error prints it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Why::Succeeded => "succeeded",
            Why::Fatal => "not retryable",
            Why::Committed => "already committed to this attempt",
            Why::Strategy => "the strategy declined",
            Why::Unsafe => "not idempotent, and it may have run",
            Why::Refused => "the server said not to retry",
            Why::Attempts => "no attempt left",
            Why::SoftLimit => "the soft limit was reached",
            Why::HardLimit => "the hard limit would be passed",
            Why::Deadline => "no time left before the deadline",
            Why::Throttled => "the retry budget is spent",
            Why::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a strategy said about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It was not asked.
    None,
    /// Retry after this long.
    After(Ns),
    /// Do not retry.
    Decline,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start the next attempt after this long. `paid`: the throttle has been asked.
    Retry {
        /// How long to wait.
        after: Ns,
        /// Whether it is paid for; if not, the throttle is asked when the wait is over.
        paid: bool,
    },
    /// The throttle will answer later; then wait for this long.
    Later {
        /// How long to wait once the throttle has agreed.
        after: Ns,
    },
    /// Ask the strategy, and decide again with its advice.
    Ask,
    /// Hand on the failure.
    End(Why),
}

/// Decides what follows a retryable failure, in the order of ruling P9.
///
/// `deadline` is the moment at which the call must end ([`NEVER`] without one); `advice` what a
/// strategy said, if the policy asks one and it has answered. A policy that hedges does not come
/// here until it has committed: its rhythm is the [`Call`](crate::Call)'s.
pub fn decide(
    policy: &Policy,
    ledger: &mut Ledger,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    deadline: Ns,
    world: &mut impl World,
) -> Verdict {
    let rules = policy.rules();

    // Counted first, compared later (G11); and once, though a strategy makes it come here twice.
    if advice == Advice::None {
        world.failed();
    }
    if ledger.has(Ledger::COMMITTED) {
        return Verdict::End(Why::Committed);
    }
    // C10: what is always retried never reaches the strategy.
    let always = failure.is_always_retried();
    if ledger.has(Ledger::ASKS) && !always {
        match advice {
            Advice::None => return Verdict::Ask,
            Advice::Decline => return Verdict::End(Why::Strategy),
            Advice::After(_) => {}
        }
    }
    if ledger.has(Ledger::NOT_IDEMPOTENT) && !failure.proves_not_run() {
        return Verdict::End(Why::Unsafe);
    }
    if failure.hint == Hint::Stop {
        return Verdict::End(Why::Refused);
    }
    let attempts_max = rules.attempts.unwrap_or(u32::MAX);
    if rules.attempts.is_some() && ledger.attempts >= attempts_max {
        return Verdict::End(Why::Attempts);
    }

    let Delay { span, hinted, next } = delay(policy, ledger, failure, advice, now, world);
    let mut after = span;
    if !rules.limits.is_none() {
        let spent = match rules.limits.measure {
            Measure::Delays => ledger.waited,
            Measure::Elapsed => now.saturating_sub(ledger.start),
        };
        let another = ledger.attempts.saturating_add(1) < attempts_max;
        let next = if another { next.map(|step| step.base(policy, failure, after)) } else { None };
        match rules.limits.judge(&Wish { spent, delay: after, ours: !hinted, next }) {
            Ok(left) => after = left,
            Err(why) => return Verdict::End(why),
        }
    }
    if is_late(policy, now.saturating_add(after), deadline) {
        return Verdict::End(Why::Deadline);
    }

    ledger.waited = ledger.waited.saturating_add(after);

    let grant = match rules.pay {
        Pay::Deciding => ask(world, Cost { kind: failure.kind }, now),
        Pay::AfterBackoff => {
            world.note(now, Note::Retrying { after, failure: *failure });
            return Verdict::Retry { after, paid: false };
        }
    };
    if let Grant::After(debt, _) = grant {
        // A debt is waited for first, then the backoff (S2).
        after = after.saturating_add(debt);
        if is_late(policy, now.saturating_add(after), deadline) {
            return Verdict::End(Why::Deadline);
        }
    }
    if grant == Grant::Refused {
        return Verdict::End(Why::Throttled);
    }
    world.note(now, Note::Retrying { after, failure: *failure });
    match grant {
        Grant::Later => Verdict::Later { after },
        _ => Verdict::Retry { after, paid: true },
    }
}

/// Asks the throttle for a retry or hedge, and notes its answer.
pub(crate) fn ask(world: &mut impl World, cost: Cost, now: Ns) -> Grant {
    let grant = world.take(cost, now);
    world.note(now, Note::Granted(grant));
    grant
}

/// Whether an attempt that may start `then` is not worth waiting for: at the deadline's moment
/// nothing starts any more (P4).
pub(crate) fn is_late(policy: &Policy, then: Ns, deadline: Ns) -> bool {
    deadline != NEVER && policy.rules().late == Late::Early && then >= deadline
}

/// A delay before limits.
struct Delay {
    span: Ns,
    /// Whether the server chose it.
    hinted: bool,
    /// Where the series goes on, if it does.
    next: Option<Next>,
}

/// The place of the next base delay in its series.
struct Next {
    number: u32,
    backoff: crate::Backoff,
}

impl Next {
    fn base(&self, policy: &Policy, failure: &Failure, previous: Ns) -> Ns {
        let previous = Some(crate::duration(previous));
        policy.base(&self.backoff, Step { number: self.number, failure, previous })
    }
}

/// The delay that hint, strategy or backoff asks for, jitter included.
fn delay(
    policy: &Policy,
    ledger: &mut Ledger,
    failure: &Failure,
    advice: Advice,
    now: Ns,
    world: &mut impl World,
) -> Delay {
    let rules = policy.rules();
    if let (Hint::After(wish), HintRule::Exact(most)) = (failure.hint, rules.hint) {
        ledger.hinted = match rules.numbering {
            Numbering::Delays => ledger.hinted.saturating_add(1),
            Numbering::Attempts => ledger.hinted,
            Numbering::SinceHint => u16::try_from(ledger.attempts).unwrap_or(u16::MAX),
        };
        let span = ns(wish).min(most.map_or(NEVER, ns));
        return Delay { span, hinted: true, next: None };
    }
    let number = match rules.numbering {
        Numbering::Attempts => ledger.attempts,
        _ => ledger.attempts.saturating_sub(u32::from(ledger.hinted)).max(1),
    };
    let always = failure.is_always_retried();
    let backoff = match rules.throttling_first {
        _ if always => rules.always,
        Some(first) if failure.kind == Kind::Throttling => rules.backoff.starting_at(first),
        _ => rules.backoff,
    };
    let next = Some(Next { number: number.saturating_add(1), backoff });
    if let Advice::After(span) = advice {
        return Delay { span, hinted: false, next };
    }
    let needs_previous = rules.jitter == Jitter::Decorrelated || backoff == crate::Backoff::Own;
    let previous = if needs_previous { world.previous() } else { None };
    let step = Step { number, failure, previous: previous.map(crate::duration) };
    let base = policy.base(&backoff, step);
    let (mut span, mut hinted) = (base, false);
    // The controlled backoff has no jitter of its own, whatever the policy's series has.
    if rules.jitter.draws() && !always {
        let u = world.draw();
        world.note(now, Note::Drew(u));
        let first = policy.first(&backoff, base);
        span = rules.jitter.apply(base, u, first, previous.unwrap_or(first));
        if !rules.jitter_above_cap {
            span = span.min(backoff.cap());
        }
    }
    if let (Hint::After(wish), HintRule::Within(room)) = (failure.hint, rules.hint) {
        let wished = ns(wish).clamp(span, span.saturating_add(ns(room)));
        hinted = wished > span;
        span = wished;
    }
    if needs_previous && !hinted {
        world.remember(span);
    }
    Delay { span, hinted, next }
}
