//! The state machine of one call, from its first attempt to its single end. Retries and hedging of
//! all designs run on it. It does no I/O: a driver (an async task, a thread, a simulator) runs the
//! attempts and reports what happens.
//!
//! # Methods
//!
//! - **Start**: [`Call::begin`], or [`Call::cancelled_before_start`].
//! - **Inputs** take the current time and change the state: [`Call::outcome`], [`Call::committed`],
//!   [`Call::not_replayable`], [`Call::wake_once`], [`Call::attempt_timed_out`], [`Call::answered`],
//!   [`Call::granted`], [`Call::cancel`]. An input that arrives after the call has ended, or that the
//!   call no longer waits for, is ignored; a late grant is refunded. [`Call::superseded`] tells a
//!   driver whose attempts run over a network that a timer takes the place of an outcome.
//! - **Outputs**: [`Call::command`] returns the next action for the driver, [`Call::wake_at`] the
//!   time at which to call [`Call::wake_once`].
//! - **Queries** (`is_*`, [`Call::end`], [`Call::started`], ...) change nothing.
//!
//! # Order of calls
//!
//! After each input the driver runs commands from [`Call::command`] until it returns `None`, then
//! sets its timer to [`Call::wake_at`]. [`PollLoop`] is that loop, and [`run_commands`] its part
//! without timers: a [`Driver`] says how to ask a strategy and how to wait. Inputs with
//! the same timestamp go in this order: outcomes, then [`Call::not_replayable`], then
//! [`Call::wake_once`] (which checks the deadline before the other timers), then [`Call::cancel`]
//! (decision P4).
//!
//! # What decides what
//!
//! | question | answered by |
//! | --- | --- |
//! | does a retry follow a retryable failure, and after which delay? | [`decide`](crate::decide()) |
//! | when does a hedge start, and does a failure end a hedged call that is not committed? | `hedging.rs` |
//! | is an attempt that was provably not processed repeated without being counted? | `transparent_retry.rs`, before the other two |
//! | does a granted retry or hedge start now, and what if the throttle answers late? | `retry.rs` |
//! | what does an attempt timeout do? | the policy's [`AttemptTimeoutAction`](crate::AttemptTimeoutAction), in `retry.rs` |
//! | does the deadline or the attempt timeout take the place of a failure? | `superseded.rs` |
//! | do a success, a failure that is not retryable, the deadline or a cancellation end the call? | `inputs.rs`: always |
//!
//! The state machine holds no values, errors or futures. The driver keeps those, indexed by slot.
//!
//! An attempt starts when the driver takes its [`Command::Start`]: at that point the attempt is
//! counted and recorded, and its throttle tokens are spent. A start that the driver never takes,
//! because an outcome, a panic or a drop came first, is not an attempt, and its tokens are refunded
//! (decision P6).
//!
//! # Invariants
//!
//! Checked in debug builds after every step: a call ends once; no attempt starts after commit, end
//! or cancellation; the number of attempts stays within the limit; every running attempt has an
//! outcome or is cancelled before the end; a call that waits has a timer, a question or a command
//! pending, and an ended call has none of these.

mod attempts;
mod command;
mod driver;
mod first_attempt;
mod hedging;
mod inputs;
mod retry;
mod superseded;
mod transparent_retry;

pub use command::{Command, End, Start};
pub use driver::{CallStep, Driver, PollLoop, PollStep, RunCommands, run_commands};
pub use first_attempt::FirstAttempt;
pub use hedging::HedgeDelay;
pub use superseded::FailureCause;

use alloc::vec::Vec;
use core::ops::{Deref, Index, IndexMut};
use core::time::Duration;

use crate::rules::ExpiredDeadlineAction;
use crate::time::{NEVER, Ns};
use crate::{CallCounters, Cost, Environment, Event, Failure, FailureKind, Policy, StopReason};

/// The maximum number of concurrent attempts of a call (decision G2).
pub const LIVE_MAX: usize = 32;

/// The parameters of one call, in addition to its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallParams {
    /// The time allowed for the call; the shorter of this and the policy's deadline applies.
    pub deadline: Option<Duration>,
    /// Whether the call is idempotent, so that an attempt that may have run can be repeated. If not, a
    /// policy that hedges makes one attempt, apart from transparent retries (decision P8).
    pub idempotent: bool,
    /// Whether the request cannot be replayed, for example because it exceeds the replay buffer.
    /// The call then makes a single attempt (decision G24).
    pub not_replayable: bool,
    /// Whether an attempt timeout ends the call even if the policy retries it, because the cancelled
    /// attempt owned what the next one would need.
    pub ends_at_attempt_timeout: bool,
    /// Whether a strategy decides on each failure, even if the policy does not use one.
    pub uses_strategy: bool,
    /// Overrides the policy's hedging delay; ignored by a policy without hedging.
    pub hedge: Option<HedgeDelay>,
}

impl Default for CallParams {
    fn default() -> Self {
        CallParams {
            deadline: None,
            idempotent: true,
            not_replayable: false,
            ends_at_attempt_timeout: false,
            uses_strategy: false,
            hedge: None,
        }
    }
}

/// An attempt slot; the bit sets of [`Call`] tell whether it is free, running or waiting.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Running: when the attempt times out. Waiting: when its transparent retry is due.
    at: Ns,
    attempt: u32,
    number: u32,
}

impl Slot {
    const FREE: Slot = Slot { at: NEVER, attempt: 0, number: 0 };
}

/// The attempt slots of a call. The first one is enough for retries; hedges get further ones.
#[derive(Clone, Debug)]
struct Slots {
    first: Slot,
    hedges: Vec<Slot>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { first: Slot::FREE, hedges: Vec::new() }
    }
}

impl Slots {
    /// Occupies a slot.
    fn set(&mut self, index: usize, slot: Slot) {
        match index {
            0 => self.first = slot,
            _ => {
                if self.hedges.len() < index {
                    self.hedges.resize(index, Slot::FREE);
                }
                self.hedges[index - 1] = slot;
            }
        }
    }
}

impl IndexMut<usize> for Slots {
    fn index_mut(&mut self, index: usize) -> &mut Slot {
        match index {
            0 => &mut self.first,
            _ => &mut self.hedges[index - 1],
        }
    }
}

impl Index<usize> for Slots {
    type Output = Slot;
    fn index(&self, index: usize) -> &Slot {
        match index {
            0 => &self.first,
            _ => &self.hedges[index - 1],
        }
    }
}

/// The state of the next retry or hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None is scheduled: the call waits for outcomes.
    Idle,
    /// A retry is due at `timer_at`; `paid`: the throttle has granted it.
    Retry { paid: bool },
    /// A hedge is due at `timer_at`; `pushback`: a server asked for that time.
    Hedge { pushback: bool },
    /// A hedge that the throttle has granted is due at `timer_at`, and not before its debt is paid
    /// at `ready`.
    PaidHedge { ready: Ns },
    /// The next hedge requests a grant when the driver takes the next command.
    HedgeNow,
    /// A granted retry or hedge starts when the driver takes the next command.
    StartNow,
    /// Waits for the answer of the strategy.
    AwaitStrategy,
    /// Waits for the deferred answer of the throttle.
    AwaitGrant(GrantRequest),
}

/// A request to the throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantRequest {
    cost: Cost,
    /// The delay after the grant.
    after: Ns,
    /// Earliest start of the next hedge according to server pushback; 0 without pushback.
    not_before: Ns,
}

impl GrantRequest {
    const fn new(kind: FailureKind, after: Ns) -> Self {
        GrantRequest { cost: Cost { kind }, after, not_before: 0 }
    }
}

/// A question that the driver has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    None,
    Strategy,
    Throttle(Cost),
}

/// The state machine of one call.
///
/// `P` dereferences to the policy: a reference or an `Arc`.
#[derive(Clone, Debug)]
pub struct Call<P> {
    policy: P,
    counters: CallCounters,
    slots: Slots,
    /// Slots with a running attempt, as a bit set.
    running: u32,
    /// Slots whose attempt was provably not processed and whose transparent retry is pending.
    waiting: u32,
    /// Slots to cancel, and waiting slots whose transparent retry is ready to start. Pending
    /// commands are bit sets rather than a queue, so they need no memory.
    pending_cancels: u32,
    pending_starts: u32,
    question: Question,
    phase: Phase,
    /// When the timer of `phase` fires.
    timer_at: Ns,
    /// The time of the last input; commands are recorded at this time.
    last_input_at: Ns,
    deadline: Ns,
    /// The hedging delay; [`NEVER`]: only failures start hedges.
    hedge_after: Ns,
    attempts_max: u32,
    /// Attempts started, transparent retries included.
    started: u32,
    /// When the last of them started.
    started_at: Ns,
    /// Transparent retries after [`Proof::Unsent`](crate::Proof::Unsent).
    unsent_retries: u32,
    /// Whether the transparent retry after [`Proof::Unprocessed`](crate::Proof::Unprocessed) is
    /// used up.
    unprocessed_retried: bool,
    /// The request can no longer be replayed, so the next attempt to start is the last.
    not_replayable: bool,
    ends_at_attempt_timeout: bool,
    /// The first reason that stopped further attempts (decision G22).
    stopped_by: Option<StopReason>,
    /// The last failure, and the attempt and slot that it belongs to.
    failure: Failure,
    failed_attempt: Option<(u32, usize)>,
    end: Option<End>,
    /// Whether the driver has taken [`Command::End`].
    end_taken: bool,
}

impl<P: Deref<Target = Policy>> Call<P> {
    /// Starts a call at `now`; its first attempt is the first command.
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

    /// A call that the application cancels before its first attempt, for example because the
    /// request cannot be built. It records its start and end like any other cancelled call
    /// (decision P6).
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

    /// A call in its initial state, with its start recorded.
    fn new(policy: P, params: CallParams, now: Ns, env: &mut impl Environment) -> Self {
        let CallParams {
            deadline,
            idempotent,
            not_replayable,
            ends_at_attempt_timeout,
            uses_strategy,
            hedge,
        } = params;
        let until = policy.deadline(now, deadline);
        let attempts_max = policy.attempts_max();
        let rules = policy.rules();
        // P8: a hedge is sent before the earlier attempts are known not to have run.
        let is_unsafe = !idempotent && rules.hedge.is_some();
        let uses_strategy = uses_strategy || rules.uses_strategy;
        let hedge_after = HedgeDelay::after(hedge, rules.hedge);
        let call = Call {
            policy,
            counters: CallCounters { idempotent, uses_strategy, ..CallCounters::new(now) },
            slots: Slots::default(),
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
            started_at: now,
            unsent_retries: 0,
            unprocessed_retried: false,
            not_replayable,
            ends_at_attempt_timeout,
            stopped_by: is_unsafe.then_some(StopReason::NotIdempotent),
            failure: Failure::server(),
            failed_attempt: None,
            end: None,
            end_taken: false,
        };
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

    /// When [`Call::wake_once`] has to be called, unless another input comes first; `None`: never.
    ///
    /// An attempt that is ready to start is a command and has no timer.
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

    /// How the call ended, or `None` if it has not.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// The time of the last input.
    #[must_use]
    pub const fn seen(&self) -> Ns {
        self.last_input_at
    }

    /// When the call must end; [`NEVER`] without a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Ns {
        self.deadline
    }

    /// When the attempt in this slot times out; [`NEVER`] without an attempt timeout, or once its
    /// response has started.
    #[must_use]
    pub fn times_out_at(&self, slot: usize) -> Ns {
        if self.is_running(slot) { self.slots[slot].at } else { NEVER }
    }

    /// The policy of the call.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The counters of the call.
    #[must_use]
    pub const fn counters(&self) -> &CallCounters {
        &self.counters
    }

    /// How many attempts the driver has started, transparent retries included.
    #[must_use]
    pub const fn started(&self) -> u32 {
        self.started
    }

    /// The last failure, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failed_attempt.map(|_| &self.failure)
    }

    /// Whether the call is committed to one attempt.
    #[must_use]
    pub const fn is_committed(&self) -> bool {
        self.counters.committed
    }

    /// Whether the request can be sent again: the call is not committed, and
    /// [`Call::not_replayable`] has not been reported.
    #[must_use]
    pub const fn is_replayable(&self) -> bool {
        !self.counters.committed && !self.not_replayable
    }

    /// When the retry that is scheduled starts; `None` if none is. One that starts at once has the
    /// time of the last input.
    ///
    /// For drivers that wait outside the state machine. With a policy that charges after the
    /// backoff, it is when the throttle is asked.
    #[must_use]
    pub const fn retry_at(&self) -> Option<Ns> {
        match self.phase {
            Phase::Retry { .. } => Some(self.timer_at),
            Phase::StartNow => Some(self.last_input_at),
            _ => None,
        }
    }

    /// When the next retry or hedge is due; `None` if none is, or if the deadline comes first. The
    /// throttle may still refuse one that it has not granted.
    #[must_use]
    pub fn next_attempt_at(&self) -> Option<Ns> {
        let at = match self.phase {
            Phase::Retry { .. } | Phase::Hedge { .. } | Phase::PaidHedge { .. } => self.timer_at,
            Phase::HedgeNow | Phase::StartNow => self.last_input_at,
            Phase::Idle | Phase::AwaitStrategy | Phase::AwaitGrant(_) => return None,
        };
        (at < self.deadline).then_some(at)
    }

    /// Whether the call waits for the answer of its strategy.
    #[must_use]
    pub const fn awaits_strategy(&self) -> bool {
        matches!(self.phase, Phase::AwaitStrategy)
    }

    /// Whether the call waits for a deferred answer of the throttle
    /// ([`Grant::Later`](crate::Grant::Later)).
    #[must_use]
    pub fn awaits_grant(&self) -> bool {
        matches!(self.phase, Phase::AwaitGrant { .. })
    }

    /// The next running attempt after `attempt` in the order of starts, with its slot; 0 returns
    /// the first.
    ///
    /// Drivers poll attempts in this order: if several have an outcome at the same time, the one of
    /// the earliest attempt is reported first.
    #[must_use]
    pub fn running_after(&self, attempt: u32) -> Option<(u32, usize)> {
        let running = slot_indices(self.running).map(|slot| (self.slots[slot].attempt, slot));
        running.filter(|(other, _)| *other > attempt).min()
    }

    /// Whether an attempt runs in this slot.
    #[must_use]
    pub fn is_running(&self, slot: usize) -> bool {
        slot < LIVE_MAX && self.running & 1 << slot != 0
    }

    /// Checks the invariants listed in the module documentation.
    fn check_invariants(&self) {
        let running = (self.running | self.waiting).count_ones();
        debug_assert!(self.running & self.waiting == 0, "a slot both runs and waits");
        debug_assert!(
            self.pending_starts & !self.waiting == 0,
            "a transparent retry starts without waiting"
        );
        debug_assert!(
            self.counters.attempts_in_series() <= self.attempts_max,
            "attempts above the limit"
        );
        debug_assert!(
            self.timer_at == NEVER
                || matches!(
                    self.phase,
                    Phase::Retry { .. } | Phase::Hedge { .. } | Phase::PaidHedge { .. }
                ),
            "a timer without a retry or hedge"
        );
        if self.end.is_some() {
            debug_assert!(running == 0 && self.pending_starts == 0, "an attempt outlives its call");
            debug_assert!(self.phase == Phase::Idle, "an ended call waits");
        } else {
            debug_assert!(
                running > 0 || self.phase != Phase::Idle,
                "nothing is running or pending"
            );
            debug_assert!(!self.is_committed() || running == 1, "a committed call has one attempt");
        }
    }
}

/// The indices of the bits that are set, in ascending order.
fn slot_indices(mut bits: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (slot < u32::BITS).then_some(slot as usize)
    })
    .take(LIVE_MAX)
}
