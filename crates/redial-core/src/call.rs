//! The machine: one call, from its first attempt to its one end, with everything that can happen
//! to it. Retry and hedging, for all designs, are this machine.
//!
//! Inputs come in as methods, each with the moment at which it happens. After each of them the
//! driver takes commands from [`Call::command`] until there are none; then [`Call::wake_at`] says
//! when to come back. The machine holds no value, no error and no future: those are the driver's,
//! filed under a slot.
//!
//! At one moment the driver reports outcomes first, then what the application wrote, then calls
//! [`Call::wake_once`], which judges the deadline before the timers, and cancels last (decision P4).
//!
//! An attempt starts when the driver takes its command, and not before: then it is counted, noted
//! and has used what was paid for it. A start that the driver never takes, because an outcome, a
//! panic or a drop came first, is no attempt, and what was paid for it is given back (decision P6).
//!
//! Invariants, asserted after every step: one end; nothing starts after commit, end or cancel;
//! attempts stay within the limit; a running attempt is settled or cancelled before the end; a call
//! that waits has a timer, a question or a command under way, and an ended call has none of them.

mod attempts;
mod command;
mod first_attempt;
mod hedging;
mod inputs;
mod retry;
mod transparent_retry;

pub use command::{Command, End, Start};
pub use first_attempt::FirstAttempt;
pub use hedging::HedgeDelay;

use core::ops::Deref;
use core::time::Duration;

use crate::rules::ExpiredDeadlineAction;
use crate::time::{NEVER, Ns};
use crate::{CallCounters, Cost, Environment, Event, Failure, Kind, Policy, StopReason};

/// The most attempts that a machine can run at once (decision G2).
pub const LIVE_MAX: usize = 32;

/// What a call says besides its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallParams {
    /// After how long it must end; the smaller of this and the policy's deadline counts.
    pub deadline: Option<Duration>,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// Whether what it sends cannot be kept, so that one attempt is made and no more (decision G24).
    pub not_replayable: bool,
    /// Whether a strategy is asked, though the policy asks none.
    pub uses_strategy: bool,
    /// When its hedges follow, in place of the policy's delay; a policy without hedges stays one.
    pub hedge: Option<HedgeDelay>,
}

impl Default for CallParams {
    fn default() -> Self {
        CallParams {
            deadline: None,
            idempotent: true,
            not_replayable: false,
            uses_strategy: false,
            hedge: None,
        }
    }
}

/// One slot; the call's bits say whether it is free, running or waiting.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Running: when it times out. Waiting: when its replacement is due.
    at: Ns,
    attempt: u32,
    number: u32,
}

/// What the call does about its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: it waits for outcomes.
    Idle,
    /// A retry is due at `at`.
    Retry { paid: bool },
    /// A hedge is due at `at`; `pushback`: because a server asked for that moment.
    Hedge { pushback: bool },
    /// A hedge that is paid for is due at `at`, and not before `ready`, when its debt is over.
    PaidHedge { ready: Ns },
    /// The throttle is asked for the next hedge when the driver takes the next command.
    HedgeNow,
    /// A retry or hedge that is paid for starts when the driver takes the next command.
    StartNow,
    /// The strategy is being asked.
    AwaitStrategy,
    /// The throttle will answer.
    AwaitGrant(GrantRequest),
}

/// What the throttle is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantRequest {
    cost: Cost,
    /// How long to wait once it has agreed.
    after: Ns,
    /// The moment before which a server does not want the next hedge; 0: it did not say.
    not_before: Ns,
}

impl GrantRequest {
    const fn new(kind: Kind, after: Ns) -> Self {
        GrantRequest { cost: Cost { kind }, after, not_before: 0 }
    }
}

/// What the driver is to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    None,
    Strategy,
    Throttle(Cost),
}

/// One call; `LIVE` is how many attempts can run at once: 1 for retrying. `P` leads to its policy: a
/// reference, or whatever shares it.
#[derive(Clone, Debug)]
pub struct Call<P, const LIVE: usize> {
    policy: P,
    counters: CallCounters,
    slots: [Slot; LIVE],
    /// Slots whose attempt runs.
    running: u32,
    /// Slots whose attempt provably did not run, and whose replacement waits.
    waiting: u32,
    /// Slots to cancel, and waiting slots whose replacement is to start, as bits: pending commands
    /// are state, not a queue.
    pending_cancels: u32,
    pending_starts: u32,
    question: Question,
    phase: Phase,
    /// When the phase's timer is due.
    timer_at: Ns,
    /// The moment of the last input, at which commands are taken.
    last_input_at: Ns,
    deadline: Ns,
    /// How long after an attempt its hedge follows; [`NEVER`]: only failures start one.
    hedge_after: Ns,
    attempts_max: u32,
    /// Attempts started, replacements included.
    started: u32,
    /// Replacements of what was never sent.
    unsent_retries: u32,
    /// Whether what was not processed has been replaced.
    unprocessed_retried: bool,
    /// The next attempt to start is the last: what was written is no longer kept.
    not_replayable: bool,
    /// What stopped further attempts first (decision G22).
    stopped_by: Option<StopReason>,
    /// The last failure, and whose it was.
    failure: Failure,
    failed_attempt: Option<(u32, usize)>,
    end: Option<End>,
    /// Whether the end has been handed out.
    end_taken: bool,
}

impl<P: Deref<Target = Policy>, const LIVE: usize> Call<P, LIVE> {
    /// A call that begins now and starts its first attempt.
    pub fn begin(policy: P, params: CallParams, now: Ns, env: &mut impl Environment) -> Self {
        let mut call = Call::new(policy, params, now, env);
        if call.deadline <= now
            && call.policy.rules().expired_deadline_action == ExpiredDeadlineAction::StartNoAttempt
        {
            call.finish(StopReason::Deadline, None, now, env);
        } else {
            call.phase = Phase::StartNow;
        }
        call.check_invariants();
        call
    }

    /// A call that begins and ends now, since the application cannot say what it wants: nothing
    /// starts, and like any other cancelling it is no failure (decision P6). So it has its notes, too.
    pub fn cancelled_before_start(
        policy: P,
        params: CallParams,
        now: Ns,
        env: &mut impl Environment,
    ) -> Self {
        let mut call = Call::new(policy, params, now, env);
        call.cancel(now, env);
        call
    }

    /// A call that has begun, and of which nothing else has happened.
    #[inline]
    fn new(policy: P, params: CallParams, now: Ns, env: &mut impl Environment) -> Self {
        let CallParams { deadline, idempotent, not_replayable, uses_strategy, hedge } = params;
        const { assert!(LIVE >= 1 && LIVE <= LIVE_MAX) };
        let free = Slot { at: NEVER, attempt: 0, number: 0 };
        let until = policy.deadline(now, deadline);
        let attempts_max = policy.attempts_max(LIVE);
        let rules = policy.rules();
        debug_assert!(idempotent || rules.hedge.is_none(), "a hedged call is idempotent");
        let uses_strategy = uses_strategy || rules.uses_strategy;
        let hedge_after = HedgeDelay::after(hedge, rules.hedge);
        let mut call = Call {
            policy,
            counters: CallCounters::new(now),
            slots: [free; LIVE],
            running: 0,
            waiting: 0,
            pending_cancels: 0,
            pending_starts: 0,
            question: Question::None,
            phase: Phase::Idle,
            timer_at: NEVER,
            last_input_at: now,
            deadline: until,
            hedge_after,
            attempts_max,
            started: 0,
            unsent_retries: 0,
            unprocessed_retried: false,
            not_replayable,
            stopped_by: None,
            failure: Failure::server(),
            failed_attempt: None,
            end: None,
            end_taken: false,
        };
        if !idempotent {
            call.counters.set(CallCounters::NOT_IDEMPOTENT);
        }
        if uses_strategy {
            call.counters.set(CallCounters::USES_STRATEGY);
        }
        let deadline = (call.deadline != NEVER).then_some(call.deadline);
        env.record(now, Event::CallStarted { deadline, idempotent });
        if let Some(hedge) = hedge {
            env.record(now, Event::HedgeDelay(hedge));
        }
        if not_replayable {
            env.record(now, Event::NotReplayable);
        }
        call
    }

    /// When [`Call::wake_once`] has something to do, if nothing happens before; `None`: never.
    ///
    /// What is to start now is a command, and has no timer.
    #[must_use]
    pub fn wake_at(&self) -> Option<Ns> {
        if self.end.is_some() {
            return None;
        }
        let timers = slot_indices((self.running | self.waiting) & !self.pending_starts)
            .map(|slot| self.slots[slot].at);
        let at = timers.fold(self.timer_at.min(self.deadline), Ns::min);
        (at != NEVER).then_some(at)
    }

    /// How the call ended, if it has.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// The moment of the last input.
    #[must_use]
    pub const fn seen(&self) -> Ns {
        self.last_input_at
    }

    /// When the call must end; [`NEVER`] without a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Ns {
        self.deadline
    }

    /// When the attempt that runs in this slot is cancelled by its own timeout; [`NEVER`] without one,
    /// or once its response has begun.
    #[must_use]
    pub fn times_out_at(&self, slot: usize) -> Ns {
        if self.is_running(slot) { self.slots[slot].at } else { NEVER }
    }

    /// What leads to its policy.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// What the call remembers.
    #[must_use]
    pub const fn counters(&self) -> &CallCounters {
        &self.counters
    }

    /// How many attempts the driver has started, replacements included.
    #[must_use]
    pub const fn started(&self) -> u32 {
        self.started
    }

    /// The last failure, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failed_attempt.map(|_| &self.failure)
    }

    /// Whether the call belongs to one attempt.
    #[must_use]
    pub const fn is_committed(&self) -> bool {
        self.counters.has(CallCounters::COMMITTED)
    }

    /// Whether the throttle has announced an answer that is still to come.
    #[must_use]
    pub fn awaits_grant(&self) -> bool {
        matches!(self.phase, Phase::AwaitGrant { .. })
    }

    /// The attempt that runs and started next after this one, and its slot; 0 asks for the first.
    ///
    /// A driver looks at what runs in this order: of several outcomes of one moment, that of the
    /// earlier attempt counts first.
    #[must_use]
    pub fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        let running = slot_indices(self.running).map(|slot| (self.slots[slot].attempt, slot));
        running.filter(|(other, _)| *other > attempt).min()
    }

    /// Whether an attempt runs in this slot.
    #[must_use]
    pub fn is_running(&self, slot: usize) -> bool {
        slot < LIVE && self.running & 1 << slot != 0
    }

    /// The invariants at the head of this file.
    fn check_invariants(&self) {
        let running = (self.running | self.waiting).count_ones();
        debug_assert!(self.running & self.waiting == 0, "a slot both runs and waits");
        debug_assert!(
            self.pending_starts & !self.waiting == 0,
            "a replacement of what does not wait"
        );
        debug_assert!(self.counters.attempts <= self.attempts_max, "attempts above the limit");
        debug_assert!(
            self.timer_at == NEVER
                || matches!(
                    self.phase,
                    Phase::Retry { .. } | Phase::Hedge { .. } | Phase::PaidHedge { .. }
                ),
            "a timer that can do nothing"
        );
        if self.end.is_some() {
            debug_assert!(running == 0 && self.pending_starts == 0, "an attempt outlives its call");
            debug_assert!(self.phase == Phase::Idle, "an ended call waits");
        } else {
            debug_assert!(running > 0 || self.phase != Phase::Idle, "nothing will ever happen");
            debug_assert!(!self.is_committed() || running == 1, "a committed call has one attempt");
        }
    }
}

/// The slots of these bits, in order.
fn slot_indices(mut bits: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (slot < u32::BITS).then_some(slot as usize)
    })
    .take(LIVE_MAX)
}
