//! What a policy does, and the proof that it makes sense.
//!
//! Invariant: a [`Policy`] is made of [`Rules`] without a [`Problem`]; nothing changes it later.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::backoff::{self, Backoff, Step};
use crate::jitter::Jitter;
use crate::limits::{Limits, Measure};
use crate::time::{NEVER, Ns, ns};
use crate::{LIVE_MAX, Problem};

/// What happens when the next retry cannot start before the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// The call ends at once with its last outcome.
    #[default]
    Early,
    /// The call waits, and ends at the deadline.
    Wait,
}

/// What an attempt's own timeout means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimedOut {
    /// A retryable failure of kind timeout (ruling P7).
    #[default]
    Retry,
    /// The end of the call (Milvus, ruling M4).
    End,
}

/// How the delays of a series are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// By the delays that the backoff made: a hint does not advance the series.
    #[default]
    Delays,
    /// By attempt (smithy, Couchbase).
    Attempts,
    /// Anew after each hint (gRPC, ruling G9).
    SinceHint,
}

/// What a server's wish for a delay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintRule {
    /// It replaces the delay, at most this long.
    Exact(Option<Duration>),
    /// It is kept within the computed delay and so much more (ruling S6).
    Within(Duration),
}

/// When a retry is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pay {
    /// When it is decided; a debt is waited for, then the backoff.
    #[default]
    Deciding,
    /// After its backoff (smithy's standard strategy, ruling S2).
    AfterBackoff,
}

/// What a deadline that has passed already leaves of a call (ruling P10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// Its first attempt starts, and counts if its outcome is there at once.
    #[default]
    StartsOne,
    /// Nothing starts (gRPC).
    StartsNone,
}

/// Everything that a policy can say. Plain data: write the fields that differ from
/// [`Rules::DEFAULT`], and let [`Policy::new`] check them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How many attempts, the first included; `None`: as many as the deadline or a limit allows, of
    /// hedges [`LIVE_MAX`] at the most.
    pub attempts: Option<u32>,
    /// The series of delays.
    pub backoff: Backoff,
    /// The randomness in a delay.
    pub jitter: Jitter,
    /// Whether jitter may pass the backoff's cap (today's gRPC, ruling G1).
    pub jitter_above_cap: bool,
    /// Limits on the time that retrying takes.
    pub limits: Limits,
    /// After how long the call must end.
    pub deadline: Option<Duration>,
    /// What happens when the next retry cannot start before the deadline.
    pub late: Late,
    /// What a deadline that has passed already leaves of a call.
    pub expired: Expired,
    /// After how long an attempt is cancelled.
    pub attempt_timeout: Option<Duration>,
    /// What that means.
    pub timed_out: TimedOut,
    /// The delay between hedges; `None`: retry instead.
    pub hedge: Option<Duration>,
    /// How delays are numbered.
    pub numbering: Numbering,
    /// What a server's hint does.
    pub hint: HintRule,
    /// The first delay after throttling, if it differs.
    pub throttling_first: Option<Duration>,
    /// The delays after a reason that is always retried.
    pub always: Backoff,
    /// When a retry is paid for.
    pub pay: Pay,
    /// Whether a strategy is asked about each failure (ruling C9).
    pub asks: bool,
    /// Whether what provably did not run is replaced transparently (rulings G26 to G29).
    pub replaces: bool,
}

impl Rules {
    /// Three attempts, 100 ms doubled up to 20 s, full jitter; no deadline, no limits.
    pub const DEFAULT: Rules = Rules {
        attempts: Some(3),
        backoff: Backoff::Exponential {
            first: Duration::from_millis(100),
            factor: 2.0,
            cap: Some(Duration::from_secs(20)),
        },
        jitter: Jitter::Full,
        jitter_above_cap: false,
        limits: Limits::NONE,
        deadline: None,
        late: Late::Early,
        expired: Expired::StartsOne,
        attempt_timeout: None,
        timed_out: TimedOut::Retry,
        hedge: None,
        numbering: Numbering::Delays,
        hint: HintRule::Exact(None),
        throttling_first: None,
        always: backoff::CONTROLLED,
        pay: Pay::Deciding,
        asks: false,
        replaces: false,
    };

    /// The first contradiction in these rules.
    #[must_use]
    pub const fn problem(&self) -> Option<Problem> {
        if let Some(0) = self.attempts {
            return Some(Problem::NoAttempt);
        }
        if self.hedge.is_some() {
            if !self.limits.is_none() {
                return Some(Problem::HedgeWithLimits);
            }
            if self.asks {
                return Some(Problem::HedgeWithStrategy);
            }
            match self.attempts {
                Some(attempts) if attempts as usize > LIVE_MAX => {
                    return Some(Problem::HedgeAttempts);
                }
                // Without a number it is as many as there is room for, if a deadline ends them.
                _ => {}
            }
        }
        let parts = [
            self.backoff.problem(),
            self.always.problem(),
            self.jitter.problem(),
            self.limits.problem(),
        ];
        let mut i = 0;
        while i < parts.len() {
            if parts[i].is_some() {
                return parts[i];
            }
            i += 1;
        }
        if let (Some(attempt), Some(deadline)) = (self.attempt_timeout, self.deadline)
            && attempt.as_nanos() >= deadline.as_nanos()
        {
            return Some(Problem::AttemptTimeout);
        }
        if self.attempts.is_none() && self.deadline.is_none() && !self.ends_by_limit() {
            return Some(Problem::Unlimited);
        }
        None
    }

    /// The first contradiction, where nothing comes with the rules.
    const fn problem_alone(&self) -> Option<Problem> {
        match self.backoff {
            Backoff::Own => Some(Problem::OwnBackoff),
            _ => self.problem(),
        }
    }

    /// Whether a limit ends unlimited attempts: by the clock, or by delays that add up.
    const fn ends_by_limit(&self) -> bool {
        if self.limits.is_none() {
            return false;
        }
        match self.limits.measure {
            Measure::Elapsed => true,
            // Every series that a failure can lead to must add up.
            Measure::Delays => {
                let throttled = match self.throttling_first {
                    Some(first) => self.backoff.starting_at(first),
                    None => self.backoff,
                };
                self.adds_up(&self.backoff)
                    && self.adds_up(&throttled)
                    && self.always.grows_for_ever()
            }
        }
    }

    /// Whether the series adds up, jitter included: decorrelated jitter grows from the first delay,
    /// and three times nothing is nothing.
    const fn adds_up(&self, backoff: &Backoff) -> bool {
        let from_nothing = matches!(self.jitter, Jitter::Decorrelated) && backoff.first() == 0;
        backoff.grows_for_ever() && !from_nothing
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::DEFAULT
    }
}

/// A user's own function from what happened to a delay.
type Function = dyn Fn(Step<'_>) -> Duration + Send + Sync;

/// A backoff that cannot be plain data.
#[derive(Clone)]
enum Own {
    Table(Arc<[Duration]>),
    Function(Arc<Function>),
}

/// Rules that were checked.
#[derive(Clone)]
pub struct Policy {
    rules: Rules,
    own: Option<Own>,
    /// What was found out about the rules when they were checked, so that calls need not.
    shape: Shape,
}

/// What a call need not look for in the rules.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Nothing races or runs against a clock.
    calm: bool,
    /// The same, and nothing asks, is replaced or is paid for later.
    plain: bool,
    /// The same, and no delay depends on the one before it.
    fits_ledger: bool,
    /// The most attempts; as many as can be counted if there is no limit.
    attempts_max: u32,
    /// The one delay before every retry, unless a failure says otherwise.
    fixed: Option<Ns>,
    /// How long after the start of a call something can first happen besides an outcome.
    wakes: Ns,
}

impl Shape {
    const fn of(rules: &Rules) -> Shape {
        let now = matches!(rules.pay, Pay::Deciding);
        let calm =
            rules.hedge.is_none() && rules.deadline.is_none() && rules.attempt_timeout.is_none();
        let plain = calm && !rules.asks && !rules.replaces && now;
        Shape {
            calm,
            plain,
            fits_ledger: plain
                && !matches!(rules.jitter, Jitter::Decorrelated)
                && !matches!(rules.backoff, Backoff::Own),
            attempts_max: match rules.attempts {
                Some(attempts) => attempts,
                None => u32::MAX,
            },
            fixed: match (rules.backoff, rules.jitter, rules.throttling_first) {
                (Backoff::Constant(delay), Jitter::None, None) if rules.limits.is_none() && now => {
                    Some(ns(delay))
                }
                _ => None,
            },
            wakes: {
                let hedge = match rules.attempts {
                    Some(1) => None,
                    _ => rules.hedge,
                };
                shortest([hedge, rules.attempt_timeout, rules.deadline])
            },
        }
    }
}

/// The shortest of these spans; [`NEVER`] if there is none.
const fn shortest(spans: [Option<Duration>; 3]) -> Ns {
    let (mut shortest, mut i) = (NEVER, 0);
    while i < spans.len() {
        if let Some(span) = spans[i]
            && ns(span) < shortest
        {
            shortest = ns(span);
        }
        i += 1;
    }
    shortest
}

impl Policy {
    /// Checks the rules; works in a `const`.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub const fn new(rules: Rules) -> Result<Policy, Problem> {
        match rules.problem_alone() {
            Some(problem) => Err(problem),
            None => Ok(Policy { shape: Shape::of(&rules), rules, own: None }),
        }
    }

    /// Checks the rules, for a `static`.
    ///
    /// # Panics
    /// The rules contradict each other: in a `static` that is a compile error with the text of the
    /// [`Problem`].
    #[track_caller]
    #[must_use]
    pub const fn checked(rules: Rules) -> Policy {
        if let Some(problem) = rules.problem_alone() {
            panic!("{}", problem.text());
        }
        Policy { shape: Shape::of(&rules), rules, own: None }
    }

    /// The same policy with other rules, checked again.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub fn changed(self, change: impl FnOnce(&mut Rules)) -> Result<Policy, Problem> {
        let mut rules = self.rules;
        change(&mut rules);
        match self.own {
            Some(Own::Table(table)) if rules.backoff == Backoff::Own => {
                Policy::with_table(rules, table)
            }
            own => match rules.problem() {
                Some(problem) => Err(problem),
                None => Ok(Policy { shape: Shape::of(&rules), rules, own }),
            },
        }
    }

    /// Checks the rules, with a table of delays that is made at run time.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub fn with_table(
        mut rules: Rules,
        table: impl Into<Arc<[Duration]>>,
    ) -> Result<Policy, Problem> {
        let table: Arc<[Duration]> = table.into();
        let [first, ..] = *table else { return Err(Problem::EmptyTable) };
        // Whether it ends is judged by what repeats for ever, the last entry, or by what
        // decorrelated jitter grows from; the first delay after throttling changes no table.
        let repeats = match rules.jitter {
            Jitter::Decorrelated => first,
            _ => table[table.len() - 1],
        };
        let like = Backoff::Constant(repeats);
        let judged = Rules { backoff: like, throttling_first: None, ..rules };
        if let Some(problem) = judged.problem() {
            return Err(problem);
        }
        rules.backoff = Backoff::Own;
        Ok(Policy { shape: Shape::of(&rules), rules, own: Some(Own::Table(table)) })
    }

    /// Checks the rules, with a function that says each base delay.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead. Unlimited attempts need a deadline or
    /// an elapsed limit here: nobody can know whether the function's delays add up.
    pub fn with_function(
        mut rules: Rules,
        function: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, Problem> {
        rules.backoff = Backoff::Own;
        if let Some(problem) = rules.problem() {
            return Err(problem);
        }
        let own = Some(Own::Function(Arc::new(function)));
        Ok(Policy { shape: Shape::of(&rules), rules, own })
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The table that this policy owns, if that is its backoff.
    #[must_use]
    pub fn table(&self) -> Option<&[Duration]> {
        match (&self.own, &self.rules.backoff) {
            (Some(Own::Table(table)), Backoff::Own) => Some(table),
            (_, Backoff::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Whether nothing can happen to a call before the outcome of its first attempt.
    #[inline]
    pub(crate) const fn is_calm(&self) -> bool {
        self.shape.calm
    }

    /// Whether the ledger alone is enough to play it: nothing races, asks or runs against a clock.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.shape.plain
    }

    /// The one delay before every retry that no failure has asked anything else of: no draw changes
    /// it, and nothing limits it.
    #[inline]
    pub(crate) const fn fixed_delay(&self) -> Option<Ns> {
        self.shape.fixed
    }

    /// Whether the moment of a failure matters to what follows it: a limit measures the time since
    /// the call began.
    #[inline]
    #[must_use]
    pub const fn measures_time(&self) -> bool {
        self.shape.fixed.is_none() && matches!(self.rules.limits.measure, Measure::Elapsed)
    }

    /// Whether the ledger is also all that a driver must keep: the policy is plain, and no delay
    /// depends on the one before it.
    #[inline]
    #[must_use]
    pub const fn fits_ledger(&self) -> bool {
        self.shape.fits_ledger
    }

    /// Whether no attempt is left to a call that has made so many.
    #[inline]
    pub(crate) const fn is_last(&self, attempts: u32) -> bool {
        attempts >= self.shape.attempts_max && self.rules.attempts.is_some()
    }

    /// The base delay of the series `backoff` for what happened; `first` for decorrelated jitter.
    pub(crate) fn base(&self, backoff: &Backoff, step: Step<'_>) -> Ns {
        match (&self.own, backoff) {
            (Some(Own::Table(table)), Backoff::Own) => backoff::entry(table, step.number),
            (Some(Own::Function(function)), Backoff::Own) => ns(function(step)),
            _ => backoff.base(step.number),
        }
    }

    /// What decorrelated jitter grows from.
    pub(crate) fn first(&self, backoff: &Backoff, base: Ns) -> Ns {
        match (&self.own, backoff) {
            (Some(Own::Table(table)), Backoff::Own) => backoff::entry(table, 1),
            (_, Backoff::Own) => base,
            _ => backoff.first(),
        }
    }

    /// The most attempts, where a machine with this many slots plays it.
    pub(crate) fn attempts_max(&self, live: usize) -> u32 {
        let attempts = self.shape.attempts_max;
        if self.rules.hedge.is_some() {
            attempts.min(u32::try_from(live).unwrap_or(u32::MAX))
        } else {
            attempts
        }
    }

    /// When something else than an outcome can first happen to a call that began at `start`: a hedge,
    /// its attempt's timeout, its deadline. [`NEVER`]: nothing can.
    ///
    /// A driver whose notes nobody reads needs no machine before that moment: one that is begun later,
    /// with the same start, has missed nothing.
    #[inline]
    #[must_use]
    pub const fn first_wake_at(&self, start: Ns) -> Ns {
        start.saturating_add(self.shape.wakes)
    }

    /// When a call that begins at `start` must end, if its own deadline is `own` after that.
    pub(crate) fn deadline(&self, start: Ns, own: Option<Duration>) -> Ns {
        let after =
            |span: Option<Duration>| span.map_or(NEVER, |span| start.saturating_add(ns(span)));
        after(self.rules.deadline).min(after(own))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Policy");
        out.field("rules", &self.rules);
        match &self.own {
            None => {}
            Some(Own::Table(table)) => drop(out.field("table", table)),
            Some(Own::Function(_)) => drop(out.field("function", &"..")),
        }
        out.finish()
    }
}
