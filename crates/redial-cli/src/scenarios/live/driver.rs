//! Plays scenarios through what users run: the async driver, on tokio's paused clock.
//!
//! Nothing of the machine is seen here but what a user sees: when the operation is called, when a
//! running attempt is dropped, and what the call hands on.
//!
//! Implementation details: tokio rounds each sleep up to a millisecond, so one millisecond of the
//! scenario is played as a second. The policy is left alone: the driver waits on tokio's own sleeper,
//! behind one that turns its seconds into milliseconds.

use std::cell::{Cell, RefCell};
use std::future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redial::config::AnyPolicy;
use redial::testing::draws;
use redial::{Directive, Error, Event, Policy, Sleeper, StopReason, time::Ns};

use super::super::designs::Refusal;
use super::super::model::{Call, Outcome, Scenario};
use super::super::play::{self, Actual, ActualCall, ActualEnd};
use super::clock::{Slow, all, first};
use super::{HORIZON, SLOWER};

/// How many turns everything else gets at a moment before the application drops a call then: it
/// comes last (decision P4), and a retry without a delay takes one turn.
const TURNS: u32 = 64;

/// Plays a scenario.
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
    let _given = draws(scenario.draws.iter().copied());
    runtime.block_on(async {
        let clock = Slow::new(SLOWER);
        let last_tokens = Cell::new(None);
        let seen: Vec<Seen> = scenario.calls.iter().map(|_| Seen::default()).collect();
        let calls = scenario.calls.iter().zip(&seen).enumerate();
        let calls = calls.map(|(index, (call, seen))| {
            let policy = play::policy(&policies, index);
            let tokens = &last_tokens;
            async move {
                let end = run(scenario, policy, call, seen, clock).await;
                let left = match policy {
                    AnyPolicy::Policy(policy) => policy.tokens(clock.now()),
                    AnyPolicy::Hedged(policy) => policy.tokens(clock.now()),
                };
                tokens.set(left);
                (end, left)
            }
        });
        // A call that waits for nothing would stop the clock for ever.
        // Those that never ended are dropped after the reading: nobody cancelled them.
        let (ends, _running) = all(calls, clock.sleep_until(HORIZON)).await;
        let actual = seen.iter().zip(ends).map(|(seen, end)| seen.actual(end)).collect();
        Actual { calls: actual, tokens: last_tokens.get(), ..Actual::default() }
    })
}

/// What a user sees of a call while it runs.
#[derive(Default)]
struct Seen {
    starts: RefCell<Vec<Ns>>,
    cancels: RefCell<Vec<(u32, Ns)>>,
    unscripted: Cell<Option<u32>>,
}

impl Seen {
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

/// What an attempt returns if it does not succeed.
#[derive(Debug)]
struct Failed {
    attempt: u32,
    directive: Directive,
}

/// What only notes tell: which attempt a call that time may end was handed on from.
#[derive(Clone, Debug, Default)]
struct Noted(Arc<Mutex<(Option<u32>, Vec<u32>)>>);

impl Noted {
    fn hook(&self) -> impl FnMut(Ns, &Event) + Send + use<> {
        let noted = self.0.clone();
        move |_, event| {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::CallEnded { attempt, .. } => noted.0 = *attempt,
                Event::AttemptTimedOut { attempt } => noted.1.push(*attempt),
                _ => {}
            }
        }
    }

    /// The attempt whose outcome was handed on, and whether its own timeout was that outcome.
    fn end(&self) -> (Option<u32>, bool) {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (noted.0, noted.0.is_some_and(|attempt| noted.1.contains(&attempt)))
    }
}

async fn run(
    scenario: &Scenario,
    policy: &AnyPolicy,
    call: &Call,
    seen: &Seen,
    clock: Slow,
) -> ActualEnd {
    clock.wait_until(call.at).await;
    let operation = || {
        let mut starts = seen.starts.borrow_mut();
        let now = clock.now();
        starts.push(now - call.at.min(now));
        attempt(call, starts.len(), seen, clock)
    };
    let when = |failed: &Failed| failed.directive;
    let noted = Noted::default();
    let rules = match policy {
        AnyPolicy::Policy(policy) => policy.rules(),
        AnyPolicy::Hedged(policy) => policy.rules(),
    };
    // A hook would have a plain call played by the machine: only those get one that are anyway.
    let timed = rules.deadline.or(rules.attempt_timeout).is_some() || call.deadline.is_some();
    let noted = timed.then_some(&noted);
    let result: Pin<Box<dyn Future<Output = Result<u32, Error<Failed>>> + '_>> = match policy {
        AnyPolicy::Policy(policy) => {
            let mut retry = Policy::retry(policy, operation).when(when).sleeping_on(clock);
            if let Some(deadline) = call.deadline {
                retry = retry.deadline(Duration::from_nanos(deadline));
            }
            if !call.idempotent {
                retry = retry.not_idempotent();
            }
            if let Some(noted) = noted {
                retry = retry.on_event(noted.hook());
            }
            Box::pin(retry.into_future())
        }
        AnyPolicy::Hedged(policy) => {
            let mut retry = policy.retry(operation).when(when).sleeping_on(clock);
            if let Some(deadline) = call.deadline {
                retry = retry.deadline(Duration::from_nanos(deadline));
            }
            if let Some(noted) = noted {
                retry = retry.on_event(noted.hook());
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
    end(scenario, call, result.as_ref(), noted, clock)
}

/// How the call ended, as its result tells.
fn end(
    scenario: &Scenario,
    call: &Call,
    result: Option<&Result<u32, Error<Failed>>>,
    noted: Option<&Noted>,
    clock: Slow,
) -> ActualEnd {
    let (stop_reason, handed_on) = match result {
        None => (StopReason::Cancelled, None),
        Some(Ok(attempt)) => (StopReason::Succeeded, Some(*attempt)),
        Some(Err(error)) => (error.stop_reason(), error.last().map(|failed| failed.attempt)),
    };
    let (attempt, timed_out) = match noted {
        Some(noted) if stop_reason != StopReason::Cancelled => noted.end(),
        _ => (handed_on, false),
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

/// One attempt at the scripted operation. It runs from here on, polled or not.
fn attempt<'a>(
    call: &'a Call,
    number: usize,
    seen: &'a Seen,
    clock: Slow,
) -> impl Future<Output = Result<u32, Failed>> + use<'a> {
    let attempt = u32::try_from(number).unwrap_or(u32::MAX);
    let began = clock.now();
    let cancels = &seen.cancels;
    let running = Running { attempt, call_at: call.at, cancels, clock, runs: true };
    async move {
        // All of it: a block that only sets the flag would leave the rest outside.
        let mut running = running;
        let Some(scripted) = call.attempts.get(number - 1) else {
            if seen.unscripted.get().is_none() {
                seen.unscripted.set(Some(attempt));
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

/// Notes when an attempt is dropped while it runs.
struct Running<'a> {
    attempt: u32,
    call_at: Ns,
    cancels: &'a RefCell<Vec<(u32, Ns)>>,
    clock: Slow,
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
