//! Checks the invariants of a call from its events.
//!
//! The checker implements the decisions independently of the state machine: it uses the policy, the
//! events and the requests to the throttle.

use std::collections::VecDeque;

use redial_core::{
    Advice, AttemptTimeoutAction, CallParams, ChargeAt, Cost, DeadlineAction, Directive, Event,
    Failure, FailureKind, Grant, HedgeDelay, Hint, HintRule, LIVE_MAX, LastDelayAction, LimitBasis,
    NEVER, Ns, Policy, Proof, StopReason, ns,
};

use super::Model;
use super::series::{ExpectedDelay, Series, limited};

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AttemptState {
    Running,
    /// It exceeded the attempt timeout, and is about to be cancelled.
    TimedOut,
    /// It has an outcome that can be the result.
    Settled,
    Cancelled,
}

/// A grant whose retry or hedge has not started.
#[derive(Clone, Copy, Debug)]
struct PendingGrant {
    kind: FailureKind,
    /// When its debt is paid.
    ready: Ns,
}

/// Whether another attempt is free, because the value is not ready.
fn is_free(failure: Failure) -> bool {
    failure.kind == FailureKind::NotReady
}

/// The invariant checker of one call.
#[derive(Debug)]
pub(crate) struct InvariantChecker<'p> {
    policy: &'p Policy,
    uses_strategy: bool,
    /// The hedging delay of the call, and whether it was recorded.
    hedge: Option<HedgeDelay>,
    hedge_recorded: bool,
    /// Whether the driver wakes the call exactly on time.
    pub(crate) punctual: bool,
    /// Whether another library may end attempts.
    pub(crate) has_other_timeouts: bool,
    start: Ns,
    deadline: Ns,
    idempotent: bool,
    last: Ns,
    attempts: Vec<AttemptState>,
    /// The highest attempt number.
    pub(crate) numbers: u32,
    /// The attempts before the last reset, and the start of the last attempt.
    earlier: u32,
    started_at: Ns,
    /// The number of each attempt.
    number_of: Vec<u32>,
    /// Pending transparent retries: their number, and when they are due.
    pending_retries: Vec<(u32, Ns)>,
    unsent: u32,
    unprocessed: u32,
    committed: Option<u32>,
    /// Whether the response of an attempt has started.
    pub(crate) response_started: bool,
    not_replayable: bool,
    ends_at_attempt_timeout: bool,
    pending: Option<PendingGrant>,
    used: Option<FailureKind>,
    refused: bool,
    /// Whether a deferred answer is outstanding.
    announced: bool,
    /// A debt that the next delay includes.
    debt: Ns,
    waited: Ns,
    /// When the next retry may start, and its delay after the grant.
    due: Option<Ns>,
    after: Ns,
    asked: bool,
    advice: Option<Advice>,
    failure: Option<(u32, Failure)>,
    fatal: Option<u32>,
    succeeded: Option<u32>,
    stop_seen: bool,
    /// The state from which the next delay is computed.
    series: Series,
    pub(crate) counted: u32,
    pub(crate) end: Option<(StopReason, Option<u32>)>,
}

impl<'p> InvariantChecker<'p> {
    /// A checker for a call.
    pub(crate) fn new(policy: &'p Policy, params: CallParams) -> Self {
        InvariantChecker {
            policy,
            uses_strategy: params.uses_strategy || policy.rules().uses_strategy,
            hedge: params.hedge,
            hedge_recorded: false,
            punctual: true,
            has_other_timeouts: false,
            start: 0,
            deadline: NEVER,
            idempotent: true,
            last: 0,
            attempts: Vec::new(),
            numbers: 0,
            earlier: 0,
            started_at: 0,
            number_of: Vec::new(),
            pending_retries: Vec::new(),
            unsent: 0,
            unprocessed: 0,
            committed: None,
            response_started: false,
            not_replayable: false,
            ends_at_attempt_timeout: params.ends_at_attempt_timeout,
            pending: None,
            used: None,
            refused: false,
            announced: false,
            debt: 0,
            waited: 0,
            due: None,
            after: 0,
            asked: false,
            advice: None,
            failure: None,
            fatal: None,
            succeeded: None,
            stop_seen: false,
            series: Series::default(),
            counted: 0,
            end: None,
        }
    }

    /// How many attempts have started.
    pub(crate) fn started(&self) -> usize {
        self.attempts.len()
    }

    /// How many attempts are running.
    pub(crate) fn running(&self) -> usize {
        self.attempts.iter().filter(|state| **state == AttemptState::Running).count()
    }

    /// Checks new events; `costs` are the requests to the throttle.
    pub(crate) fn read(
        &mut self,
        events: &[(Ns, Event)],
        costs: &mut VecDeque<Cost>,
        model: &mut Model,
    ) {
        for (i, &(at, event)) in events.iter().enumerate() {
            assert!(self.end.is_none(), "{event:?} after the end");
            assert!(at >= self.last, "{event:?} at {at} goes back in time");
            self.last = at;
            let next = events.get(i + 1).map(|(_, event)| *event);
            self.read_one(at, event, next, costs, model);
        }
    }

    fn read_one(
        &mut self,
        at: Ns,
        event: Event,
        next: Option<Event>,
        costs: &mut VecDeque<Cost>,
        model: &mut Model,
    ) {
        match event {
            Event::CallStarted { deadline, idempotent } => {
                self.start = at;
                self.deadline = deadline.unwrap_or(NEVER);
                self.idempotent = idempotent;
            }
            Event::HedgeDelay(hedge) => {
                assert_eq!(self.hedge, Some(hedge), "the hedging delay is recorded as given");
                assert!(self.attempts.is_empty() && !self.not_replayable && !self.hedge_recorded);
                self.hedge_recorded = true;
            }
            Event::AttemptStarted { attempt, number } => self.read_start(at, attempt, number),
            Event::AttemptOutcome { attempt, classification } => {
                self.settle(attempt, AttemptState::Settled);
                let is_retried = matches!(next, Some(Event::TransparentRetryScheduled { attempt: of, .. }) if of == attempt);
                match classification.directive {
                    _ if is_retried => {}
                    Directive::Succeed => self.succeeded = Some(attempt),
                    Directive::Fail => {
                        self.fatal = Some(attempt);
                        if classification.drains {
                            self.count(model);
                        }
                    }
                    Directive::Retry(failure) => {
                        self.reset(at);
                        self.read_failure(attempt, failure, model);
                    }
                }
            }
            Event::AttemptTimedOut { attempt } => {
                let timeout = self.policy.rules().attempt_timeout;
                assert!(
                    timeout.is_some() || self.has_other_timeouts,
                    "a timeout without an attempt timeout"
                );
                self.settle(attempt, AttemptState::TimedOut);
                assert_eq!(
                    next,
                    Some(Event::AttemptCancelled { attempt }),
                    "it is cancelled at once"
                );
                assert!(!self.response_started, "a timeout after the response has begun");
                match self.policy.rules().attempt_timeout_action {
                    AttemptTimeoutAction::Retry if self.ends_at_attempt_timeout => {}
                    AttemptTimeoutAction::Retry => {
                        self.reset(at);
                        self.read_failure(attempt, Failure::timeout(), model);
                    }
                    AttemptTimeoutAction::EndCall | AttemptTimeoutAction::Stop => {}
                    AttemptTimeoutAction::Fail { drains } => {
                        self.fatal = Some(attempt);
                        if drains {
                            self.count(model);
                        }
                    }
                }
            }
            Event::AttemptCancelled { attempt } => {
                let state = &mut self.attempts[attempt as usize - 1];
                // An attempt that timed out has a failure as its result, although it was cancelled.
                match state {
                    AttemptState::Running => *state = AttemptState::Cancelled,
                    AttemptState::TimedOut => *state = AttemptState::Settled,
                    _ => panic!("attempt {attempt} was {state:?}, and is cancelled"),
                }
            }
            Event::RandomDraw(u) => {
                assert!((0.0..1.0).contains(&u));
                assert_eq!(self.series.draw.replace(u), None, "one draw for each delay");
            }
            Event::ThrottleAnswered(grant) => {
                let cost = costs.pop_front().expect("a grant without a request");
                self.read_grant(at, grant, cost, model);
            }
            Event::StrategyAsked(failure) => {
                assert!(self.uses_strategy && !failure.is_always_retried());
                assert_eq!(self.failure.map(|(_, failure)| failure), Some(failure));
                assert!(!self.asked, "asked twice about one failure");
                self.asked = true;
            }
            Event::StrategyAnswered(advice) => {
                assert!(self.asked && self.advice.is_none(), "an answer without a question");
                self.advice = Some(advice);
            }
            Event::RetryScheduled { after, failure } => self.read_delay(at, after, failure),
            Event::TransparentRetryScheduled { attempt, after, proof } => {
                self.read_transparent_retry(at, attempt, after, proof);
            }
            Event::Committed { attempt } => {
                assert_eq!(self.committed, None, "committed twice");
                assert_eq!(self.attempts[attempt as usize - 1], AttemptState::Running);
                self.committed = Some(attempt);
            }
            Event::NotReplayable => {
                assert!(!self.not_replayable, "recorded as not replayable twice");
                self.not_replayable = true;
            }
            Event::CallEnded { stop_reason, attempt } => {
                self.read_end(at, stop_reason, attempt, model);
            }
        }
        if !matches!(event, Event::ThrottleAnswered(_)) {
            self.debt = 0;
        }
    }

    /// An attempt that ran for long enough starts a new series.
    fn reset(&mut self, at: Ns) {
        let Some(healthy) = self.policy.rules().reset_after else { return };
        if at - self.started_at >= ns(healthy) {
            self.earlier = self.numbers - 1;
            self.waited = 0;
            self.series = Series::default();
        }
    }

    fn read_start(&mut self, at: Ns, attempt: u32, number: u32) {
        self.started_at = at;
        let first = self.attempts.is_empty();
        self.attempts.push(AttemptState::Running);
        self.number_of.push(number);
        assert_eq!(attempt as usize, self.attempts.len(), "attempts are named in order");
        assert_eq!(self.committed, None, "a start after the commit");
        assert!(first || at < self.deadline, "a start at the deadline");
        assert!(self.running() <= LIVE_MAX, "more attempts than slots");
        if number <= self.numbers {
            let waiting = self.pending_retries.iter().position(|(of, _)| *of == number);
            let waiting = waiting.expect("a number reused without a transparent retry");
            let (_, due) = self.pending_retries.swap_remove(waiting);
            assert!(at >= due, "a transparent retry before its delay is over");
            assert!(!self.punctual || at == due, "a transparent retry after its delay is over");
            return;
        }
        self.numbers += 1;
        assert_eq!(number, self.numbers, "numbers have no gap");
        let rules = self.policy.rules();
        let number_in_series = number - self.earlier;
        assert!(number_in_series <= rules.attempts.unwrap_or(u32::MAX), "too many attempts");
        if first {
            return;
        }
        let is_proven = self.failure.is_some_and(|(_, failure)| failure.proves_not_run());
        assert!(
            self.idempotent || (rules.hedge.is_none() && is_proven),
            "a retry or hedge of a call that is not idempotent (P8)"
        );
        // Only a retry or hedge after a value that is not ready needs no grant (B).
        let ready = match self.pending.take() {
            Some(paid) => {
                self.used = Some(paid.kind);
                paid.ready
            }
            None => {
                let free = self.failure.is_some_and(|(_, failure)| is_free(failure));
                assert!(free, "a retry or hedge without a grant");
                0
            }
        };
        assert_eq!(self.hedge.is_some(), self.hedge_recorded, "the hedging delay is recorded");
        match self.hedge {
            Some(hedge) if rules.hedge.is_some() && self.failure.is_none() => {
                let HedgeDelay::After(delay) = hedge else { panic!("a hedge by time") };
                let hedges = Ns::from(number - 1);
                assert!(at - self.start >= delay.saturating_mul(hedges), "an early hedge");
            }
            _ => {}
        }
        assert!(at >= ready, "a retry or hedge before its debt is paid");
        if rules.hedge.is_none() {
            let due = self.due.take().expect("a retry that was not scheduled").max(ready);
            assert!(at >= due, "a retry before its delay is over");
            assert!(!self.punctual || at == due, "a retry after its delay is over");
            assert_eq!(self.running(), 1, "a retry beside another attempt");
        }
        (self.asked, self.advice) = (false, None);
    }

    fn settle(&mut self, attempt: u32, state: AttemptState) {
        let before = self.attempts[attempt as usize - 1];
        assert_eq!(before, AttemptState::Running, "attempt {attempt} is settled twice");
        self.attempts[attempt as usize - 1] = state;
    }

    fn read_failure(&mut self, attempt: u32, failure: Failure, model: &mut Model) {
        self.failure = Some((attempt, failure));
        self.stop_seen |= failure.hint == Hint::Stop;
        (self.asked, self.advice) = (false, None);
        if !is_free(failure) {
            self.count(model);
        }
    }

    fn count(&mut self, model: &mut Model) {
        self.counted += 1;
        model.failed();
    }

    fn read_grant(&mut self, at: Ns, grant: Grant, cost: Cost, model: &mut Model) {
        assert!(self.pending.is_none(), "paid twice for one retry or hedge");
        assert!(self.numbers > 0, "a first attempt is never asked for (P10)");
        let announced = std::mem::replace(&mut self.announced, grant == Grant::Later);
        if grant == Grant::Later {
            assert!(!announced, "announced twice");
            return;
        }
        model.withdraw(cost.kind, at, grant);
        let debt = match grant {
            Grant::After(debt, _) => debt,
            _ => 0,
        };
        if grant == Grant::Refused {
            self.refused = true;
            return;
        }
        self.pending = Some(PendingGrant { kind: cost.kind, ready: at.saturating_add(debt) });
        if announced && self.policy.rules().charge_at == ChargeAt::Decision {
            self.due = Some(at.saturating_add(self.after).saturating_add(debt));
        } else {
            self.debt = debt;
        }
    }

    /// Checks a scheduled delay: L1 to L3, the cap, hints and advice.
    fn read_delay(&mut self, at: Ns, after: Ns, failure: Failure) {
        let rules = self.policy.rules();
        self.due = Some(at.saturating_add(after));
        self.after = after;
        if after == NEVER {
            return;
        }
        let debt = if rules.charge_at == ChargeAt::Decision { self.debt } else { 0 };
        let delay = after - debt;

        let spent = match rules.limits.basis {
            LimitBasis::TotalDelay => self.waited,
            LimitBasis::Elapsed => at - self.start,
        };
        self.waited = self.waited.saturating_add(delay);
        if let Some(soft) = rules.limits.soft {
            assert!(spent < ns(soft), "a delay that begins at the soft limit");
        }
        let filled = rules.limits.last_delay_action == LastDelayAction::ExtendToLimit;
        if let Some(hard) = rules.limits.hard {
            let end = spent.saturating_add(delay);
            assert!(end <= ns(hard), "a delay that ends past the hard limit");
        }

        if rules.deadline_action == DeadlineAction::FailFast && self.deadline != NEVER {
            assert!(at.saturating_add(after) < self.deadline, "a delay in vain");
        }

        let advice = match self.advice {
            Some(Advice::After(span)) if !failure.is_always_retried() => Some(span),
            _ => None,
        };
        let in_series = self.numbers - self.earlier;
        let left = |attempts: u32| in_series + 1 < attempts;
        let another = rules.attempts.is_none_or(left);
        let made = self.series.delay(self.policy, &failure, advice, in_series);
        if let Some(ExpectedDelay { delay: made, hinted, next }) = made {
            let requested = limited(&rules.limits, spent, made, !hinted, next.filter(|_| another));
            let nearly = |expected: f64| (delay as f64 - expected).abs() <= 2.0 + expected * 1e-9;
            assert!(
                requested.iter().any(|expected| nearly(*expected)),
                "a delay of {delay}, expected {requested:?}"
            );
        }
        if !matches!((failure.hint, rules.hint), (Hint::After(_), _))
            && !failure.is_always_retried()
            && advice.is_none()
            && !filled
            && !rules.jitter_above_cap
        {
            assert!(delay <= rules.backoff.cap(), "a delay above the cap");
        }
    }

    fn read_transparent_retry(&mut self, at: Ns, attempt: u32, after: Ns, proof: Proof) {
        assert!(self.policy.rules().transparent_retries && self.committed.is_none());
        assert_eq!(self.attempts[attempt as usize - 1], AttemptState::Settled);
        match proof {
            Proof::Unprocessed => {
                self.unprocessed += 1;
                assert!(self.unprocessed <= 1 && after == 0, "one time, at once (G26)");
            }
            Proof::Unsent => {
                self.unsent += 1;
                assert!(self.unsent <= 1000 && after <= 1_000_000_000, "G27");
                assert_eq!(after == 0, self.unsent == 1, "only the first is at once (G27)");
            }
        }
        let number = self.number_of[attempt as usize - 1];
        self.pending_retries.push((number, at.saturating_add(after)));
    }

    fn read_end(
        &mut self,
        at: Ns,
        stop_reason: StopReason,
        attempt: Option<u32>,
        model: &mut Model,
    ) {
        assert_eq!(self.running(), 0, "an attempt outlives its call");
        self.end = Some((stop_reason, attempt));
        let rules = self.policy.rules();
        let failed = self.failure.map(|(attempt, _)| attempt);
        let hedged = rules.hedge.is_some();
        let spent = match rules.limits.basis {
            LimitBasis::TotalDelay => self.waited,
            LimitBasis::Elapsed => at - self.start,
        };
        match stop_reason {
            StopReason::Succeeded => assert!(attempt.is_some() && attempt == self.succeeded),
            StopReason::NotRetryable => assert!(attempt.is_some() && attempt == self.fatal),
            StopReason::Cancelled => assert_eq!(attempt, None),
            StopReason::AttemptTimeout => {
                assert_eq!(attempt, None);
                assert!(
                    rules.attempt_timeout_action == AttemptTimeoutAction::Stop
                        || self.ends_at_attempt_timeout
                );
            }
            StopReason::Deadline => {
                let attempt_timeout_action = rules.attempt_timeout_action
                    == AttemptTimeoutAction::EndCall
                    && rules.attempt_timeout.is_some();
                assert!(self.deadline != NEVER || attempt_timeout_action);
                assert!(
                    attempt.is_none()
                        || (attempt == failed && rules.deadline_action == DeadlineAction::FailFast)
                );
                assert!(attempt.is_some() || attempt_timeout_action || at >= self.deadline);
            }
            _ => assert!(attempt.is_some() && attempt == failed, "{stop_reason:?} of {attempt:?}"),
        }
        match stop_reason {
            StopReason::Committed => assert!(self.committed.is_some()),
            StopReason::StrategyDeclined => assert_eq!(self.advice, Some(Advice::Decline)),
            StopReason::NotIdempotent => assert!(!self.idempotent),
            StopReason::ServerRefused => assert!(self.stop_seen),
            StopReason::HintTooLong => {
                assert!(matches!(rules.hint, HintRule::UpTo(_) | HintRule::AtLeast(_)));
            }
            StopReason::AttemptsExhausted if hedged => {
                assert!(self.numbers >= rules.attempts.unwrap().min(LIVE_MAX as u32));
            }
            StopReason::AttemptsExhausted => {
                assert_eq!(Some(self.numbers - self.earlier), rules.attempts);
            }
            StopReason::SoftLimit => assert!(spent >= ns(rules.limits.soft.unwrap())),
            StopReason::HardLimit => assert!(rules.limits.hard.is_some()),
            StopReason::Throttled => assert!(self.refused),
            _ => {}
        }
        // P6 and S3: withdrawals of retries that never started are refunded, and success refunds
        // the last one.
        self.refund(at, model);
        if stop_reason == StopReason::Succeeded {
            model.succeeded(self.used, at);
        }
    }

    /// Refunds a retry that never started (P6).
    pub(crate) fn refund(&mut self, at: Ns, model: &mut Model) {
        if let Some(payment) = self.pending.take() {
            model.refund(payment.kind, at);
        }
    }

    /// A grant arrived too late; its tokens are held until the call ends.
    pub(crate) fn late_grant(&mut self, at: Ns, grant: Grant, cost: Cost, model: &mut Model) {
        model.withdraw(cost.kind, at, grant);
        if let Grant::Now(_) | Grant::After(..) = grant {
            assert!(self.pending.is_none(), "paid twice for one retry or hedge");
            self.pending = Some(PendingGrant { kind: cost.kind, ready: NEVER });
        }
        if self.end.is_some() {
            self.refund(at, model);
        }
    }
}
