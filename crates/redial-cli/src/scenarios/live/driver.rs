//! Runs scenarios through the async driver, on tokio's paused clock.
//!
//! The result is what an application sees: when the operation is called, when a running attempt is
//! dropped, and what the call returns.
//!
//! tokio rounds each sleep up to a millisecond, so one millisecond of scenario time takes a second.
//! The policy is unchanged: the driver's sleeper converts the times.

use std::cell::{Cell, RefCell};
use std::future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redial::call_log::EventContext;
use redial::config::AnyPolicy;
use redial::testing::draws;
use redial::time::Sleeper;
use redial::{Directive, Error, Event, Policy, StopReason, time::Ns};

use super::super::designs::Refusal;
use super::super::model::{Call, Outcome, Scenario};
use super::super::play::{self, Actual, ActualCall, ActualEnd};
use super::clock::{ScaledClock, all, first};
use super::{HORIZON, SLOWDOWN};

/// How often everything else is polled before the application drops a call at the same instant: the
/// cancellation comes last (decision P4), and a retry without delay takes one turn.
const TURNS: u32 = 64;

/// Runs a scenario.
pub(super) fn play(scenario: &Scenario) -> Actual {
    let policies = match scenario.plan.build(&scenario.calls) {
        Ok(policies) => policies,
        Err(refusals) => {
            return Actual { refused: Some(Refusal::join(&refusals)), ..Actual::default() };
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let _guard = draws(scenario.draws.iter().copied());
    runtime.block_on(async {
        let clock = ScaledClock::new(SLOWDOWN);
        let last_tokens = Cell::new(None);
        let observed: Vec<ObservedCall> =
            scenario.calls.iter().map(|_| ObservedCall::default()).collect();
        let calls = scenario.calls.iter().zip(&observed).enumerate();
        let calls = calls.map(|(index, (call, observed))| {
            let policy = play::policy(&policies, index);
            let tokens = &last_tokens;
            async move {
                let end = run(scenario, policy, call, observed, clock).await;
                let left = match policy {
                    AnyPolicy::Policy(policy) => policy.tokens(clock.now()),
                    AnyPolicy::Hedged(policy) => policy.tokens(clock.now()),
                };
                tokens.set(left);
                (end, left)
            }
        });
        // A call that waits for nothing would stop the clock. Unfinished calls are dropped after
        // the results are read, so that this is not a cancellation.
        let (ends, _running) = all(calls, clock.sleep_until(HORIZON)).await;
        let actual =
            observed.iter().zip(ends).map(|(observed, end)| observed.actual(end)).collect();
        Actual { calls: actual, tokens: last_tokens.get(), ..Actual::default() }
    })
}

/// What the application observes while a call runs.
#[derive(Default)]
struct ObservedCall {
    starts: RefCell<Vec<Ns>>,
    cancels: RefCell<Vec<(u32, Ns)>>,
    unscripted: Cell<Option<u32>>,
}

impl ObservedCall {
    fn actual(&self, end: Option<(ActualEnd, Option<f64>)>) -> ActualCall {
        let (end, tokens) = end.map_or((None, None), |(end, tokens)| (Some(end), tokens));
        let mut cancels = self.cancels.borrow().clone();
        cancels.sort_unstable();
        ActualCall {
            starts: self.starts.borrow().clone(),
            cancels,
            end,
            tokens,
            unscripted: self.unscripted.get(),
            ..ActualCall::default()
        }
    }
}

/// The error of an attempt.
#[derive(Debug)]
struct Failed {
    attempt: u32,
    directive: Directive,
}

/// Records from events which attempt's outcome a call with a time limit returned.
#[derive(Clone, Debug, Default)]
struct EventRecorder(Arc<Mutex<(Option<u32>, Vec<u32>)>>);

impl EventRecorder {
    fn hook(&self) -> impl FnMut(&EventContext<'_>, &Event) + Send + use<> {
        let recorded = self.0.clone();
        move |_, event| {
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::CallEnded { attempt, .. } => recorded.0 = *attempt,
                Event::AttemptTimedOut { attempt } => recorded.1.push(*attempt),
                _ => {}
            }
        }
    }

    /// The attempt whose outcome was returned, and whether that was its own timeout.
    fn end(&self) -> (Option<u32>, bool) {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (recorded.0, recorded.0.is_some_and(|attempt| recorded.1.contains(&attempt)))
    }
}

async fn run(
    scenario: &Scenario,
    policy: &AnyPolicy,
    call: &Call,
    observed: &ObservedCall,
    clock: ScaledClock,
) -> ActualEnd {
    clock.wait_until(call.at).await;
    let operation = || {
        let mut starts = observed.starts.borrow_mut();
        let now = clock.now();
        starts.push(now - call.at.min(now));
        attempt(call, starts.len(), observed, clock)
    };
    let when = |failed: &Failed| failed.directive;
    let recorded = EventRecorder::default();
    let rules = match policy {
        AnyPolicy::Policy(policy) => policy.rules(),
        AnyPolicy::Hedged(policy) => policy.rules(),
    };
    // A hook disables the driver's fast path: only calls that do not take it anyway get one.
    let timed = rules.deadline.or(rules.attempt_timeout).is_some() || call.deadline.is_some();
    let recorded = timed.then_some(&recorded);
    let result: Pin<Box<dyn Future<Output = Result<u32, Error<Failed>>> + '_>> = match policy {
        AnyPolicy::Policy(policy) => {
            let mut retry = Policy::retry(policy, operation).when(when).sleeping_on(clock);
            if let Some(deadline) = call.deadline {
                retry = retry.deadline(Duration::from_nanos(deadline));
            }
            if !call.idempotent {
                retry = retry.not_idempotent();
            }
            if let Some(recorded) = recorded {
                retry = retry.on_event(recorded.hook());
            }
            Box::pin(retry.into_future())
        }
        AnyPolicy::Hedged(policy) => {
            let mut retry = policy.retry(operation).when(when).sleeping_on(clock);
            if let Some(deadline) = call.deadline {
                retry = retry.deadline(Duration::from_nanos(deadline));
            }
            if let Some(recorded) = recorded {
                retry = retry.on_event(recorded.hook());
            }
            Box::pin(retry.into_future())
        }
    };
    let cancelled = async {
        match call.cancel {
            Some(cancel) => clock.wait_until(call.at.saturating_add(cancel)).await,
            None => future::pending().await,
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    };
    let result = first(result, cancelled).await;
    end(scenario, call, result.as_ref(), recorded, clock)
}

/// The end of the call, from its result.
fn end(
    scenario: &Scenario,
    call: &Call,
    result: Option<&Result<u32, Error<Failed>>>,
    recorded: Option<&EventRecorder>,
    clock: ScaledClock,
) -> ActualEnd {
    let (stop_reason, returned) = match result {
        None => (StopReason::Cancelled, None),
        Some(Ok(attempt)) => (StopReason::Succeeded, Some(*attempt)),
        Some(Err(error)) => (error.stop_reason(), error.last().map(|failed| failed.attempt)),
    };
    let (attempt, timed_out) = match recorded {
        Some(recorded) if stop_reason != StopReason::Cancelled => recorded.end(),
        _ => (returned, false),
    };
    let scripted = attempt.and_then(|attempt| call.attempts.get(attempt as usize - 1));
    let outcome = match (stop_reason, scripted.map(|attempt| &attempt.outcome)) {
        (StopReason::Cancelled, _) => "cancelled",
        _ if timed_out || attempt.is_none() => scenario.plan.too_late(),
        (_, Some(Outcome::Comes { name, .. })) => name,
        (_, Some(Outcome::Hang) | None) => "nothing",
    };
    let now = clock.now();
    let at = now - call.at.min(now);
    ActualEnd { at, outcome: outcome.to_owned(), attempt, stop_reason, error: None }
}

/// One attempt of the scripted operation. It starts now, not at its first poll.
fn attempt<'a>(
    call: &'a Call,
    number: usize,
    observed: &'a ObservedCall,
    clock: ScaledClock,
) -> impl Future<Output = Result<u32, Failed>> + use<'a> {
    let attempt = u32::try_from(number).unwrap_or(u32::MAX);
    let began = clock.now();
    let cancels = &observed.cancels;
    let running = Running { attempt, call_at: call.at, cancels, clock, runs: true };
    async move {
        // Moves the whole value into the future, so that it is dropped with it.
        let mut running = running;
        let Some(scripted) = call.attempts.get(number - 1) else {
            if observed.unscripted.get().is_none() {
                observed.unscripted.set(Some(attempt));
            }
            return future::pending().await;
        };
        let Outcome::Comes { classification, .. } = scripted.outcome else {
            return future::pending().await;
        };
        clock.wait_until(began.saturating_add(scripted.after)).await;
        running.runs = false;
        match classification.directive {
            Directive::Succeed => Ok(attempt),
            directive => Err(Failed { attempt, directive }),
        }
    }
}

/// Records when a running attempt is dropped.
struct Running<'a> {
    attempt: u32,
    call_at: Ns,
    cancels: &'a RefCell<Vec<(u32, Ns)>>,
    clock: ScaledClock,
    runs: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.runs {
            let now = self.clock.now();
            self.cancels.borrow_mut().push((self.attempt, now - self.call_at.min(now)));
        }
    }
}
