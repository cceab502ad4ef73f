//! Calls whose attempts and delays are run by another library.
//!
//! Use it to put a policy inside a client that has its own loop and asks "again, and when?" after each
//! attempt: an SDK with retry hooks, a C library, a job queue. The other library sends requests and sleeps;
//! an [`ExternalCall`] decides, with the policy, throttle, strategy, call events and metrics of every other
//! call. For a loop of your own, [`Policy::retry`](crate::Policy::retry) is simpler.
//!
//! ```
//! use std::sync::Arc;
//! use redial::external::{ExternalCall, Next};
//! use redial::time::{Sleeper, Tokio};
//! use redial::{Directive, Failure, Policy, StopReason, ms};
//!
//! let policy = Arc::new(Policy::constant(ms(20)).attempts(2).build());
//! // The other library is about to start its first attempt.
//! let mut call = ExternalCall::new(policy).start(Tokio.now());
//! // It failed.
//! assert_eq!(call.ended(Directive::Retry(Failure::server()), Tokio.now()), Next::Wait(ms(20)));
//! // The other library has waited and is about to send again.
//! # let later = Tokio.now() + 20_000_000;
//! assert_eq!(call.start_next(later), Next::Start(2));
//! let next = call.ended(Directive::Retry(Failure::server()), later);
//! assert_eq!(next, Next::End(StopReason::AttemptsExhausted));
//! ```
//!
//! # What the other library has to do
//! - Report the end of each attempt with [`ended`](ExternalCall::ended), and the start of the next one with
//!   [`start_next`](ExternalCall::start_next) after the delay.
//! - Enforce deadlines and attempt timeouts: nothing here has a timer. A delay is never chosen so that the
//!   next attempt starts after the deadline, unless the policy waits for it.
//! - Drop the call if the application cancels it: the tokens of a retry that has not started are refunded.
//!
//! A strategy or a throttle must answer at once. One that answers later is refused: the call ends with
//! [`StopReason::StrategyDeclined`] or [`StopReason::Throttled`].
//!
//! A library that reports failures only, and not which call they belong to, gets a [`StatelessPolicy`].

mod stateless;

pub use stateless::{FailedAttempt, NeedsCallState, StatelessPolicy};

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use redial_core::throttle::Bucket;
use redial_core::{
    CallStep, Command, Cost, Directive, Event, Failure, Ns, RunCommands, StopReason, duration,
    run_commands,
};

use crate::driver::CallTraits;
use crate::engine::Engine;
use crate::error::Details;
use crate::event_context::EventContext;
use crate::options::Options;
use crate::policy::Policy;
use crate::policy_ref::PolicyRef;
use crate::report::Report;

/// The most answers of strategies and throttles after one failure: each failure asks each of them once.
const QUESTIONS_MAX: u32 = 4;

/// What the other library does next.
///
/// [`Next::Start`] is also the answer while an attempt runs, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start the attempt with this number.
    Start(u32),
    /// Wait for this long, then call [`ExternalCall::start_next`].
    Wait(Duration),
    /// Return the last result: the call has ended.
    End(StopReason),
}

/// A call before its first attempt; see [`ExternalCall::new`].
#[must_use = "a call does nothing until it is started"]
pub struct ExternalCallBuilder {
    policy: Arc<Policy>,
    options: Option<Box<Options<'static>>>,
    not_replayable: bool,
}

impl ExternalCallBuilder {
    fn options(&mut self) -> &mut Options<'static> {
        self.options.get_or_insert_default()
    }

    /// The deadline of this call, from its start, which the other library enforces. The earlier of this and
    /// the policy's deadline applies.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options().deadline = Some(deadline);
        self
    }

    /// Marks the call as not idempotent: only attempts that provably did not run are repeated.
    pub fn not_idempotent(mut self) -> Self {
        self.options().not_idempotent = true;
        self
    }

    /// The request cannot be sent again, for example because its body is a stream: there is one attempt.
    pub fn not_replayable(mut self) -> Self {
        self.not_replayable = true;
        self.options();
        self
    }

    /// Calls this function with each event of the call; see [`Retry::on_event`](crate::Retry::on_event).
    /// The errors of the other library are not known here.
    pub fn on_event(
        mut self,
        hook: impl FnMut(&EventContext<'_>, &Event) + Send + 'static,
    ) -> Self {
        let earlier = self.options().hook.take();
        self.options().hook = Some(crate::options::chain_hooks(earlier, hook));
        self
    }

    /// Records the attempts for [`Report::history`], up to [`Report::HISTORY_MAX`].
    pub fn history(mut self) -> Self {
        self.options().history = true;
        self
    }

    /// Starts the call: the other library starts its first attempt. `now` is the time of the clock that the
    /// policy's other calls use, by default [`Tokio.now()`](crate::time::Sleeper::now).
    pub fn start(self, now: Ns) -> ExternalCall {
        let ExternalCallBuilder { policy, options, not_replayable } = self;
        if options.is_none() && !policy.needs_machine() && !crate::is_observed() {
            return ExternalCall { phase: Phase::First { policy, start: now } };
        }
        let handle = policy.handle.clone();
        let options = options.map_or_else(Options::default, |options| *options);
        let mut engine = Engine::begin(PolicyRef::Shared(policy), handle, options, now);
        // Its first attempt; none if the deadline has passed and the policy then starts none.
        Commands { engine: &mut engine, now, starts: true }.run();
        if not_replayable {
            engine.commit_to_running();
        }
        ExternalCall { phase: Phase::Machine(Box::new(engine)) }
    }
}

impl fmt::Debug for ExternalCallBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalCallBuilder").finish_non_exhaustive()
    }
}

/// A call whose attempts and delays are run by another library. The [module](self) has an example.
#[must_use = "dropping a call cancels it"]
pub struct ExternalCall {
    phase: Phase,
}

enum Phase {
    /// The first attempt runs, and nothing has needed the state machine.
    First {
        policy: Arc<Policy>,
        start: Ns,
    },
    Machine(Box<Engine<'static>>),
    /// The first attempt was the last, and the call has no state machine.
    Ended {
        policy: Arc<Policy>,
        elapsed: Ns,
        stop_reason: StopReason,
    },
}

impl ExternalCall {
    /// A call with this policy.
    #[expect(clippy::new_ret_no_self, reason = "a call has options before it starts")]
    pub const fn new(policy: Arc<Policy>) -> ExternalCallBuilder {
        ExternalCallBuilder { policy, options: None, not_replayable: false }
    }

    /// Reports that the running attempt has ended. Returns [`Next::Wait`], zero to retry at once, or
    /// [`Next::End`].
    pub fn ended(&mut self, directive: Directive, now: Ns) -> Next {
        match (&self.phase, directive) {
            (Phase::First { .. }, Directive::Retry(_)) => self.start_machine(),
            (Phase::First { policy, .. }, Directive::Succeed) => {
                policy.handle.succeeded(None);
                self.end_without_machine(StopReason::Succeeded, now);
            }
            (Phase::First { .. }, Directive::Fail) => {
                self.end_without_machine(StopReason::NotRetryable, now);
            }
            (Phase::Machine(_) | Phase::Ended { .. }, _) => {}
        }
        if let Phase::Machine(engine) = &mut self.phase
            && let Some((_, slot)) = engine.call.running_after(0)
        {
            engine.handle_outcome(slot, directive, now);
        }
        self.next(now)
    }

    /// Reports that the other library ended the running attempt at its attempt timeout, and that the policy
    /// decides whether it is retried ([`AttemptTimeoutAction`](crate::rules::AttemptTimeoutAction)): only
    /// with permission, for example by `retry_timeouts`, since the attempt may have run. The timeout may be
    /// shorter than the policy's, and a policy without one decides in the same way. A timeout that the other
    /// library's own classification calls retryable is a failure like any other: use
    /// [`ended`](ExternalCall::ended) with [`Failure::timeout`].
    pub fn timed_out(&mut self, now: Ns) -> Next {
        self.start_machine();
        if let Phase::Machine(engine) = &mut self.phase
            && let Some((_, slot)) = engine.call.running_after(0)
        {
            engine.attempt_timed_out(slot, now);
        }
        self.next(now)
    }

    /// Reports that the other library is about to start the next attempt, after the delay of
    /// [`Next::Wait`]. If no attempt may start yet, it returns how long to wait, or why the call ended.
    pub fn start_next(&mut self, now: Ns) -> Next {
        if let Phase::Machine(engine) = &mut self.phase
            && let Some(at) = engine.call.retry_at()
        {
            // A timer of the other library may count in milliseconds and fire a little early.
            engine.wake(now.max(at));
        }
        match (self.next(now), &mut self.phase) {
            (Next::Wait(Duration::ZERO), Phase::Machine(engine)) => {
                Commands { engine, now, starts: true }.run();
                self.next(now)
            }
            (next, _) => next,
        }
    }

    /// Ends the call with its last result because the other library makes no further attempt. A retry that
    /// was decided and has not started is refunded, and the call ends for this reason; an attempt that runs
    /// counts as failed. Returns why the call ended, which may have been earlier.
    pub fn stop(&mut self, reason: StopReason, now: Ns) -> StopReason {
        if let Phase::Machine(engine) = &mut self.phase
            && engine.call.end().is_none()
            && engine.call.deadline() <= now
        {
            engine.wake(now);
        }
        if let Next::Start(_) = self.next(now) {
            self.ended(Directive::Fail, now);
        }
        if let Phase::Machine(engine) = &mut self.phase {
            engine.decline_retry(reason, now);
        }
        self.stop_reason().unwrap_or(reason)
    }

    /// Why the call ended; `None` if it has not.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        match &self.phase {
            Phase::First { .. } => None,
            Phase::Machine(engine) => engine.call.end().map(|end| end.stop_reason),
            Phase::Ended { stop_reason, .. } => Some(*stop_reason),
        }
    }

    /// The report of a call that has ended, and the error of its strategy if there was one; `None` if it
    /// has not ended. Call it once: it moves the history out.
    pub fn report(&mut self) -> Option<(Report, Option<Arc<dyn std::error::Error + Send + Sync>>)> {
        let stop_reason = self.stop_reason()?;
        match &mut self.phase {
            Phase::First { .. } => None,
            Phase::Machine(engine) => {
                let Details { report, strategy } = *engine.details(stop_reason, None);
                Some((report, strategy))
            }
            Phase::Ended { policy, elapsed, stop_reason } => {
                let report = Report {
                    policy: policy.name(),
                    attempts: 1,
                    attempts_max: policy.rules().attempts,
                    elapsed: duration(*elapsed),
                    elapsed_exact: true,
                    stop_reason: *stop_reason,
                    tokens: None,
                    error: None,
                    history: Vec::new(),
                };
                Some((report, None))
            }
        }
    }

    /// Starts the state machine of a call whose first attempt runs.
    fn start_machine(&mut self) {
        if let Phase::First { policy, start } = &self.phase {
            let policy_ref = PolicyRef::Shared(policy.clone());
            let (handle, traits) = (policy.handle.clone(), CallTraits::OF_CLOSURE);
            let engine = Engine::begin_late(policy_ref, handle, traits, *start);
            self.phase = Phase::Machine(Box::new(engine));
        }
    }

    fn end_without_machine(&mut self, stop_reason: StopReason, now: Ns) {
        if let Phase::First { policy, start } = &self.phase {
            let (policy, elapsed) = (policy.clone(), now.saturating_sub(*start));
            self.phase = Phase::Ended { policy, elapsed, stop_reason };
        }
    }

    /// Asks the strategy and the throttle if the call waits for their answers, and reads what follows.
    fn next(&mut self, now: Ns) -> Next {
        let engine = match &mut self.phase {
            Phase::Machine(engine) => engine,
            Phase::First { .. } => return Next::Start(1),
            Phase::Ended { stop_reason, .. } => return Next::End(*stop_reason),
        };
        Commands { engine, now, starts: false }.run();
        for _ in 0..QUESTIONS_MAX {
            if !engine.call.awaits_strategy() && !engine.call.awaits_grant() {
                break;
            }
            let mut context = Context::from_waker(Waker::noop());
            if engine.poll_pending_answer(&mut context, || now).is_pending() {
                engine.refuse_pending_answer(now);
            }
            Commands { engine, now, starts: false }.run();
        }
        match (engine.call.end(), engine.call.retry_at()) {
            (Some(end), _) => Next::End(end.stop_reason),
            (None, Some(at)) => Next::Wait(duration(at.saturating_sub(now))),
            (None, None) => Next::Start(engine.call.counters().attempts),
        }
    }
}

/// Carries out the commands of a call whose attempts the other library owns.
struct Commands<'a> {
    engine: &'a mut Engine<'static>,
    now: Ns,
    /// Whether the other library starts the next attempt now.
    starts: bool,
}

impl Commands<'_> {
    fn run(&mut self) {
        while let Some(step) = run_commands(self) {
            match step {
                // The other library has reported that the attempt ended, or ends it at the deadline.
                CallStep::Cancel(_) => {}
                // It runs, or the call has ended.
                CallStep::Start(_) | CallStep::End(_) => return,
            }
        }
    }
}

impl RunCommands for Commands<'_> {
    fn command(&mut self) -> Option<Command> {
        if !self.starts && self.engine.call.retry_at().is_some() {
            return None;
        }
        self.engine.command()
    }

    fn ask(&mut self, failure: Failure) {
        self.engine.ask_strategy(failure, self.now);
    }

    fn await_grant(&mut self, cost: Cost) {
        self.engine.await_grant(cost);
    }
}

impl fmt::Debug for ExternalCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalCall")
            .field("stop_reason", &self.stop_reason())
            .finish_non_exhaustive()
    }
}
