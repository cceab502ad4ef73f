//! Validated rules, with the facts about them that are computed once instead of per call.
//!
//! Invariant: the [`Rules`] of a [`Policy`] have no [`PolicyError`], and never change.

use alloc::sync::Arc;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use crate::LIVE_MAX;
use crate::PolicyError;
use crate::backoff::{self, Backoff, Step};
use crate::jitter::Jitter;
use crate::limits::LimitBasis;
use crate::rules::{ChargeAt, Rules};
use crate::time::{NEVER, Ns, ns};

/// A backoff function of the application.
type Function = dyn Fn(Step<'_>) -> Duration + Send + Sync;

/// A backoff that is not plain data.
#[derive(Clone)]
enum CustomBackoff {
    Table(Arc<[Duration]>),
    Function(Arc<Function>),
}

/// Validated rules.
#[derive(Clone)]
pub struct Policy {
    rules: Rules,
    custom: Option<CustomBackoff>,
    /// Facts about the rules, computed when the policy is built.
    derived: Derived,
}

/// Facts about rules that calls need often.
#[derive(Clone, Copy, Debug)]
struct Derived {
    /// No hedging, deadline, attempt timeout, strategy, transparent retry, deferred charge or reset.
    plain: bool,
    /// Also no delay that depends on the previous one.
    needs_only_counters: bool,
    /// The maximum number of attempts; `u32::MAX` if unlimited.
    attempts_max: u32,
    /// The delay before every retry if it is always the same; otherwise [`NEVER`].
    fixed_delay: Ns,
    /// The time from the start of a call to its first possible timer.
    first_wake: Ns,
    /// No delay fades to zero.
    lasting_delays: bool,
}

impl Derived {
    /// The facts, given whether no delay fades to zero.
    const fn of(rules: &Rules, lasting_delays: bool) -> Derived {
        let now = matches!(rules.charge_at, ChargeAt::Decision);
        let no_timers =
            rules.hedge.is_none() && rules.deadline.is_none() && rules.attempt_timeout.is_none();
        let no_reset = rules.reset_after.is_none();
        let plain =
            no_timers && no_reset && !rules.uses_strategy && !rules.transparent_retries && now;
        Derived {
            plain,
            needs_only_counters: plain
                && !matches!(rules.jitter, Jitter::Decorrelated)
                && !matches!(rules.backoff, Backoff::Own),
            attempts_max: match rules.attempts {
                Some(attempts) => attempts,
                None => u32::MAX,
            },
            fixed_delay: match (rules.backoff, rules.jitter, rules.throttling_first) {
                (Backoff::Constant(delay), Jitter::None, None)
                    if rules.limits.is_none() && now && no_reset =>
                {
                    ns(delay)
                }
                _ => NEVER,
            },
            first_wake: {
                let hedge = match rules.attempts {
                    Some(1) => None,
                    _ => rules.hedge,
                };
                shortest([hedge, rules.attempt_timeout, rules.deadline])
            },
            lasting_delays,
        }
    }
}

/// The shortest of these durations; [`NEVER`] if there is none.
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
    /// Validates the rules; works in a `const`.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub const fn try_new(rules: Rules) -> Result<Policy, PolicyError> {
        match rules.problem_without_custom_backoff() {
            Some(problem) => Err(problem),
            None => Ok(Policy::without_custom_backoff(rules)),
        }
    }

    /// Validates the rules, for a `static`.
    ///
    /// # Panics
    /// If the rules contradict each other. In a `static` this is a compile error with the text of
    /// the [`PolicyError`].
    #[track_caller]
    #[must_use]
    pub const fn new(rules: Rules) -> Policy {
        if let Some(problem) = rules.problem_without_custom_backoff() {
            panic!("{}", problem.text());
        }
        Policy::without_custom_backoff(rules)
    }

    const fn without_custom_backoff(rules: Rules) -> Policy {
        let derived = Derived::of(&rules, rules.has_lasting_delays(&[]));
        Policy { derived, rules, custom: None }
    }

    /// Changes the rules and validates them again.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub fn changed(self, change: impl FnOnce(&mut Rules)) -> Result<Policy, PolicyError> {
        let mut rules = self.rules;
        change(&mut rules);
        match self.custom {
            Some(CustomBackoff::Table(table)) if rules.backoff == Backoff::Own => {
                Policy::with_table(rules, table)
            }
            None => Policy::try_new(rules),
            custom => match rules.problem() {
                Some(problem) => Err(problem),
                None => {
                    // `Own` is a function here: a table has been handled.
                    let is_own = rules.backoff == Backoff::Own;
                    let lasting_delays = is_own || rules.has_lasting_delays(&[]);
                    Ok(Policy { derived: Derived::of(&rules, lasting_delays), rules, custom })
                }
            },
        }
    }

    /// Validates the rules, with a table of delays that is known at run time.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead.
    pub fn with_table(
        mut rules: Rules,
        table: impl Into<Arc<[Duration]>>,
    ) -> Result<Policy, PolicyError> {
        let table: Arc<[Duration]> = table.into();
        if table.is_empty() {
            return Err(PolicyError::EmptyTable);
        }
        rules.backoff = Backoff::Own;
        if let Some(problem) = rules.problem_with(&table) {
            return Err(problem);
        }
        Ok(Policy {
            derived: Derived::of(&rules, rules.has_lasting_delays(&table)),
            rules,
            custom: Some(CustomBackoff::Table(table)),
        })
    }

    /// Validates the rules, with a function that computes each base delay.
    ///
    /// # Errors
    /// The first contradiction, with what to write instead. Unlimited attempts need a deadline or
    /// an elapsed limit, because it is unknown whether the function's delays add up to a limit.
    pub fn with_function(
        mut rules: Rules,
        function: impl Fn(Step<'_>) -> Duration + Send + Sync + 'static,
    ) -> Result<Policy, PolicyError> {
        rules.backoff = Backoff::Own;
        if let Some(problem) = rules.problem() {
            return Err(problem);
        }
        let custom = Some(CustomBackoff::Function(Arc::new(function)));
        Ok(Policy { derived: Derived::of(&rules, true), rules, custom })
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The table of delays, if that is the backoff.
    #[must_use]
    pub fn table(&self) -> Option<&[Duration]> {
        match (&self.custom, &self.rules.backoff) {
            (Some(CustomBackoff::Table(table)), Backoff::Own) => Some(table),
            (_, Backoff::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Whether [`CallCounters`](crate::CallCounters) and [`decide`](crate::decide) can run a call
    /// without [`Call`](crate::Call): no hedging, timers, strategy, transparent retries, deferred
    /// charge or reset.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.derived.plain
    }

    /// The delay before every retry, if neither jitter, limits nor a failure's kind change it.
    pub(crate) const fn fixed_delay(&self) -> Option<Ns> {
        match self.derived.fixed_delay {
            NEVER => None,
            fixed => Some(fixed),
        }
    }

    /// Whether every retry starts immediately unless a failure has a reason or hint. After a
    /// failure [without reason or hint](crate::Failure::has_no_reason_or_hint), the decision then
    /// depends only on the number of attempts.
    #[must_use]
    pub const fn is_immediate(&self) -> bool {
        self.derived.fixed_delay == 0
    }

    /// Whether decisions depend on the time since the call started, because a limit counts it.
    #[must_use]
    pub const fn uses_elapsed_time(&self) -> bool {
        self.derived.fixed_delay == NEVER && matches!(self.rules.limits.basis, LimitBasis::Elapsed)
    }

    /// Whether counters are all the state that a driver must keep: the policy is plain, and no
    /// delay depends on the previous one.
    #[must_use]
    pub const fn needs_only_counters(&self) -> bool {
        self.derived.needs_only_counters
    }

    /// Whether no delay of the backoff fades to zero, so that the delays limit the rate of retries however
    /// long they go on. A function of the application is taken at its word.
    ///
    /// ```
    /// use redial_core::{Backoff, Policy, Rules, ms};
    ///
    /// let policy = |backoff| Policy::new(Rules { backoff, ..Rules::DEFAULT });
    /// assert!(policy(Backoff::Constant(ms(1))).has_lasting_delays());
    /// let halved = Backoff::Exponential { first: ms(1), factor: 0.5, cap: None };
    /// assert!(!policy(halved).has_lasting_delays());
    /// ```
    #[must_use]
    pub const fn has_lasting_delays(&self) -> bool {
        self.derived.lasting_delays
    }

    /// Whether no attempt is left after this many.
    pub(crate) const fn is_exhausted(&self, attempts: u32) -> bool {
        attempts >= self.derived.attempts_max && self.rules.attempts.is_some()
    }

    /// The base delay of a backoff series.
    pub(crate) fn base(&self, backoff: &Backoff, step: Step<'_>) -> Ns {
        match (&self.custom, backoff) {
            (Some(CustomBackoff::Table(table)), Backoff::Own) => backoff::entry(table, step.number),
            (Some(CustomBackoff::Function(function)), Backoff::Own) => ns(function(step)),
            _ => backoff.base(step.number),
        }
    }

    /// The first delay, from which decorrelated jitter grows.
    pub(crate) fn first(&self, backoff: &Backoff, base: Ns) -> Ns {
        match (&self.custom, backoff) {
            (Some(CustomBackoff::Table(table)), Backoff::Own) => backoff::entry(table, 1),
            (_, Backoff::Own) => base,
            _ => backoff.first(),
        }
    }

    /// The maximum number of attempts of a call. Each hedge may need a slot of its own (G2).
    pub(crate) const fn attempts_max(&self) -> u32 {
        let attempts = self.derived.attempts_max;
        if self.rules.hedge.is_some() && attempts > LIVE_MAX as u32 {
            LIVE_MAX as u32
        } else {
            attempts
        }
    }

    /// When the first timer (hedge, attempt timeout or deadline) of a call that started at `start`
    /// can fire; [`NEVER`] without timers.
    ///
    /// A driver that records no events can create its state machine as late as this: created with
    /// the same start time, it is in the same state.
    #[must_use]
    pub const fn first_wake_at(&self, start: Ns) -> Ns {
        start.saturating_add(self.derived.first_wake)
    }

    /// The time from the start of a call to its first timer.
    #[must_use]
    pub const fn first_wake_after(&self) -> Ns {
        self.derived.first_wake
    }

    /// When a call that starts at `start` must end, given its own time limit.
    pub(crate) fn deadline(&self, start: Ns, own: Option<Duration>) -> Ns {
        let after =
            |span: Option<Duration>| span.map_or(NEVER, |span| start.saturating_add(ns(span)));
        after(self.rules.deadline).min(after(own))
    }
}

// A policy never changes, so a panic in a user's backoff function leaves no broken state behind.
impl UnwindSafe for Policy {}
impl RefUnwindSafe for Policy {}

impl AsRef<Policy> for Policy {
    fn as_ref(&self) -> &Policy {
        self
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Policy");
        out.field("rules", &self.rules);
        match &self.custom {
            None => {}
            Some(CustomBackoff::Table(table)) => drop(out.field("table", table)),
            Some(CustomBackoff::Function(_)) => drop(out.field("function", &"..")),
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    //! The facts computed when a policy is built agree with its rules.

    use super::*;
    use crate::Limits;
    use crate::time::ms;

    fn with(change: impl FnOnce(&mut Rules)) -> Policy {
        let mut rules = Rules { backoff: Backoff::Constant(ms(7)), ..Rules::DEFAULT };
        rules.jitter = Jitter::None;
        change(&mut rules);
        Policy::new(rules)
    }

    fn elapsed() -> Limits {
        Limits { soft: Some(ms(50)), basis: LimitBasis::Elapsed, ..Limits::NONE }
    }

    #[test]
    fn policy_delay_is_fixed_without_jitter_limits_or_overrides() {
        assert_eq!(with(|_| {}).fixed_delay(), Some(ns(ms(7))));
        assert!(!with(|_| {}).is_immediate());
        assert!(with(|rules| rules.backoff = Backoff::Constant(Duration::ZERO)).is_immediate());
        // A delay that saturates is not treated as fixed.
        let endless = with(|rules| rules.backoff = Backoff::Constant(Duration::MAX));
        assert_eq!((endless.fixed_delay(), endless.is_immediate()), (None, false));
        let changes: [fn(&mut Rules); 5] = [
            |rules| rules.jitter = Jitter::Full,
            |rules| rules.limits = elapsed(),
            |rules| rules.throttling_first = Some(ms(1)),
            |rules| rules.charge_at = ChargeAt::AfterBackoff,
            |rules| rules.backoff = Rules::DEFAULT.backoff,
        ];
        for change in changes {
            assert_eq!(with(change).fixed_delay(), None);
        }
    }

    #[test]
    fn policy_uses_elapsed_time_only_for_elapsed_limits() {
        assert!(!with(|_| {}).uses_elapsed_time());
        assert!(!with(|rules| rules.jitter = Jitter::Full).uses_elapsed_time());
        assert!(with(|rules| rules.limits = elapsed()).uses_elapsed_time());
        let delays = Limits { basis: LimitBasis::TotalDelay, ..elapsed() };
        assert!(!with(|rules| rules.limits = delays).uses_elapsed_time());
    }

    #[test]
    fn policy_needs_only_counters_without_timers_or_delay_history() {
        assert!(with(|_| {}).needs_only_counters());
        assert!(with(|rules| rules.jitter = Jitter::Full).needs_only_counters());
        let own = Policy::with_function(*with(|_| {}).rules(), |_| ms(1)).unwrap();
        assert!(own.is_plain() && !own.needs_only_counters());
        let changes: [fn(&mut Rules); 6] = [
            |rules| rules.jitter = Jitter::Decorrelated,
            |rules| rules.deadline = Some(ms(1)),
            |rules| rules.attempt_timeout = Some(ms(1)),
            |rules| rules.uses_strategy = true,
            |rules| rules.transparent_retries = true,
            |rules| rules.charge_at = ChargeAt::AfterBackoff,
        ];
        for change in changes {
            assert!(!with(change).needs_only_counters());
        }
    }

    #[test]
    fn policy_first_wake_is_the_earliest_timer() {
        let wakes = |hedge: u64, timeout: u64, deadline: u64| {
            let span = |millis: u64| (millis > 0).then(|| ms(millis));
            let policy = with(|rules| {
                (rules.hedge, rules.attempt_timeout) = (span(hedge), span(timeout));
                rules.deadline = span(deadline);
            });
            assert_eq!(policy.first_wake_after(), policy.first_wake_at(0));
            policy.first_wake_at(ns(ms(100)))
        };
        assert_eq!(wakes(0, 0, 0), NEVER);
        for spans in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 2, 3), (2, 1, 3), (3, 0, 1)] {
            assert_eq!(wakes(spans.0, spans.1, spans.2), ns(ms(101)), "{spans:?}");
        }
        // A single attempt has no hedges.
        let alone = with(|rules| (rules.attempts, rules.hedge) = (Some(1), Some(ms(5))));
        assert_eq!(alone.first_wake_at(0), NEVER);
    }

    #[test]
    fn policy_custom_table_survives_rule_changes() {
        let rules = *with(|_| {}).rules();
        let policy = Policy::with_table(rules, [ms(1), ms(2)]).unwrap();
        let delays = Limits { basis: LimitBasis::TotalDelay, ..elapsed() };
        // The last entry of a table repeats until the limit; a function gives no such guarantee.
        let endless = |rules: &mut Rules| (rules.attempts, rules.limits) = (None, delays);
        let changed = policy.clone().changed(endless).unwrap();
        assert_eq!(changed.table(), Some(&[ms(1), ms(2)][..]));
        // `throttling_first` does not change a table, so zero is allowed.
        let nothing = Some(Duration::ZERO);
        assert!(changed.changed(|rules| rules.throttling_first = nothing).is_ok());
        let function = Policy::with_function(rules, |_| ms(1)).unwrap();
        assert!(function.table().is_none() && function.clone().changed(endless).is_err());
        // Without a table or function there is nothing that `Own` could stand for.
        let own = with(|_| {}).changed(|rules| rules.backoff = Backoff::Own);
        assert_eq!(own.unwrap_err(), PolicyError::OwnBackoff);
        let always = policy.clone().changed(|rules| rules.always = Backoff::Own);
        assert_eq!(always.unwrap_err(), PolicyError::OwnBackoff);
        static TABLE: [Duration; 1] = [ms(3)];
        assert_eq!(with(|rules| rules.backoff = Backoff::Table(&TABLE)).table(), Some(&TABLE[..]));
        assert_eq!(with(|_| {}).table(), None);
        let shown = |policy: &Policy| alloc::format!("{policy:?}");
        assert!(shown(&policy).contains("table: [1ms, 2ms]"), "{policy:?}");
        assert!(shown(&function).contains("function"), "{function:?}");
    }

    #[test]
    fn policy_decorrelated_jitter_starts_from_the_first_delay() {
        let rules = *with(|_| {}).rules();
        let table = Policy::with_table(rules, [ms(1), ms(2)]).unwrap();
        assert_eq!(table.first(&Backoff::Own, 77), ns(ms(1)));
        let function = Policy::with_function(rules, |_| ms(1)).unwrap();
        assert_eq!(function.first(&Backoff::Own, 77), 77);
        assert_eq!(with(|_| {}).first(&rules.backoff, 77), ns(ms(7)));
    }
}
