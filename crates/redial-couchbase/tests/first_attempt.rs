//! Goal: a request whose first attempt runs before its call has the results, times and log lines of a
//! request whose call begins with it. Method: scripted attempts on tokio's paused clock; a request with a
//! call log has its call from the start.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use redial::strategy::{Decision, Request, Strategy};
use redial::throttle::{Bucket, RetryBudget};
use redial::time::{Sleeper, Tokio};
use redial::{CallLog, StopReason, ms, s, time::Ns};
use redial_core::Random;
use redial_couchbase::{
    AttemptError, BestEffort, FastFailOnTerminalError, Orchestrator, Reason, RequestAttempt,
    RequestContext, RequestOperation, Response, TimeoutKind, operation, reason,
};
use tokio::time::{Instant, sleep, timeout};

/// What an attempt does, in this order.
#[derive(Clone, Debug)]
struct Step {
    unsent_at_start: bool,
    first_ms: u64,
    sent_between: bool,
    then_ms: u64,
    yields: bool,
    /// `None`: it hangs.
    end: Option<Result<u32, AttemptError>>,
}

#[derive(Clone, Copy, Debug)]
enum Decider {
    BestEffort,
    FailFast,
    Terminal,
    Later,
}

#[derive(Clone, Debug)]
struct Case {
    operation: RequestOperation,
    timeout: Duration,
    decider: Decider,
    /// The last step repeats.
    steps: Vec<Step>,
    /// When the application drops the request.
    dropped_after: Option<Duration>,
}

/// Everything that the application, the attempts, the strategy and the log see.
#[derive(Debug, PartialEq)]
struct Observed {
    result: Option<Result<u32, String>>,
    ended: Duration,
    kind: Option<TimeoutKind>,
    reasons: Vec<Reason>,
    attempts: Vec<(u32, Duration, Duration, Option<Reason>)>,
    /// When the future of each attempt was dropped.
    drops: Vec<(u32, Duration)>,
    asked: Vec<String>,
    lines: Vec<String>,
}

struct OnDrop<'a>(u32, Instant, &'a Mutex<Vec<(u32, Duration)>>);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.2.lock().unwrap().push((self.0, self.1.elapsed()));
    }
}

fn decide(decider: Decider, request: &Request<'_>) -> Decision {
    match decider {
        Decider::BestEffort => BestEffort::new().retry_after(request),
        Decider::FailFast => Decision::Decline,
        Decider::Terminal => FastFailOnTerminalError::new().retry_after(request),
        Decider::Later => {
            let retries = request.retry_attempts();
            Decision::later(async move {
                sleep(ms(2)).await;
                (retries < 2).then_some(ms(1))
            })
        }
    }
}

/// Plays a case, with or without a call from the start.
async fn play(case: &Case, from_start: bool) -> Observed {
    let origin = Instant::now();
    let (lines, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (kept, asks, decider) = (lines.clone(), asked.clone(), case.decider);
    let strategy = move |request: &Request<'_>| {
        let context = RequestContext::of(request).unwrap();
        let seen = (request.retry_attempts(), request.reasons(), request.reason());
        let times = (request.elapsed(), request.remaining(), context.last_response());
        asks.lock().unwrap().push(format!("{seen:?} {times:?} {context}"));
        decide(decider, request)
    };
    let orchestrator = Orchestrator::with(strategy).on_log(move |context, line| {
        let delay = line.delay();
        let (at, attempt) = (origin.elapsed(), line.attempt);
        kept.lock().unwrap().push(format!("{at:?} {context} {line} {attempt} {delay:?}"));
    });
    let (mut attempts, drops) = (Vec::new(), Mutex::new(Vec::new()));
    let mut call_log = CallLog::new();
    let mut request = orchestrator.request(case.operation, case.timeout).label("key");
    if from_start {
        request = request.call_log(&mut call_log);
    }
    let run = request.run(|attempt: RequestAttempt| {
        let last = attempt.last_failure().and_then(|failure| failure.reason);
        attempts.push((attempt.number(), origin.elapsed(), attempt.remaining(), last));
        let index = attempts.len().min(case.steps.len()) - 1;
        let step = case.steps[index].clone();
        let on_drop = OnDrop(attempt.number(), origin, &drops);
        if step.unsent_at_start {
            attempt.mark_unsent();
        }
        // A future that keeps what it holds until it is dropped, unlike an async block.
        Holding(
            on_drop,
            Box::pin(async move {
                if step.first_ms > 0 {
                    sleep(ms(step.first_ms)).await;
                }
                if step.sent_between {
                    attempt.mark_sent();
                }
                if step.then_ms > 0 {
                    sleep(ms(step.then_ms)).await;
                }
                if step.yields {
                    tokio::task::yield_now().await;
                }
                match step.end {
                    Some(result) => result,
                    None => std::future::pending().await,
                }
            }),
        )
    });
    let result = match case.dropped_after {
        Some(after) => timeout(after, run).await.ok(),
        None => Some(run.await),
    };
    let ended = origin.elapsed();
    let error = result.as_ref().and_then(|result| result.as_ref().err());
    let kind = error.and_then(redial_couchbase::Error::timeout);
    let reasons = error.map(|error| error.reasons().to_vec()).unwrap_or_default();
    // The error prints attempts, elapsed time, stop reason, the last error and more.
    let result = result.map(|result| result.map_err(|error| format!("{error} {error:?}")));
    let drops = drops.into_inner().unwrap();
    let (lines, asked) = (lines.lock().unwrap().clone(), asked.lock().unwrap().clone());
    Observed { result, ended, kind, reasons, attempts, drops, asked, lines }
}

struct Holding<'a, T>(#[allow(dead_code)] OnDrop<'a>, Pin<Box<dyn Future<Output = T> + 'a>>);

impl<T> Future for Holding<'_, T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.1.as_mut().poll(cx)
    }
}

fn random_case(random: &mut Random) -> Case {
    let mut below = |n: u64| random.bits() % n;
    let steps = (0..=below(4)).map(|_| {
        let end = match below(12) {
            0..=2 => Some(Ok(7)),
            3 => None,
            4 => Some(Err(Response::kv(0x86).into())),
            5 => Some(Err(Response::kv(0x07).into())),
            6 => Some(Err(Response::kv(0x09).into())),
            7 => Some(Err(Response::kv(0x01).into())),
            8 => Some(Err(reason::SOCKET_NOT_AVAILABLE.into())),
            9 => Some(Err(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into())),
            10 => Some(Err(reason::AUTHENTICATION_ERROR.into())),
            _ => Some(Err(reason::UNKNOWN.into())),
        };
        Step {
            unsent_at_start: below(2) == 0,
            first_ms: [0, 0, 1, 2, 5][below(5) as usize],
            sent_between: below(2) == 0,
            then_ms: [0, 0, 1, 3, 5][below(5) as usize],
            yields: below(4) == 0,
            end,
        }
    });
    let steps = steps.collect();
    Case {
        steps,
        operation: [operation::KV_GET, operation::KV_UPSERT, operation::KV_UNLOCK]
            [below(3) as usize],
        timeout: [0, 1, 2, 5, 6, 10, 30].map(ms)[below(7) as usize],
        decider: [Decider::BestEffort, Decider::FailFast, Decider::Terminal, Decider::Later]
            [below(4) as usize],
        // Never at the moment of a timeout, where the order of polls would decide.
        dropped_after: [None, None, None, Some(ms(3)), Some(ms(4))][below(5) as usize],
    }
}

#[tokio::test(start_paused = true)]
async fn first_attempt_before_call_changes_nothing_observable() {
    let mut random = Random::new(49);
    let (mut succeeded, mut timed_out, mut ambiguous, mut retried, mut dropped) = (0, 0, 0, 0, 0);
    for number in 0..5_000 {
        let case = random_case(&mut random);
        let expected = play(&case, true).await;
        assert_eq!(play(&case, false).await, expected, "case {number}: {case:#?}");
        succeeded += u32::from(expected.result == Some(Ok(7)));
        timed_out += u32::from(expected.kind.is_some());
        ambiguous += u32::from(expected.kind == Some(TimeoutKind::Ambiguous));
        retried += u32::from(expected.attempts.len() > 1);
        dropped += u32::from(expected.result.is_none());
    }
    let counts = [succeeded, timed_out, ambiguous, retried, dropped];
    assert!(counts.iter().all(|count| *count > 200), "each occurs often: {counts:?}");
}

fn step(first_ms: u64, end: Option<Result<u32, AttemptError>>) -> Step {
    let (unsent_at_start, sent_between, yields) = (false, false, false);
    Step { unsent_at_start, first_ms, sent_between, then_ms: 0, yields, end }
}

fn write(steps: impl Into<Vec<Step>>) -> Case {
    let (operation, decider) = (operation::KV_UPSERT, Decider::BestEffort);
    Case { operation, timeout: ms(20), decider, steps: steps.into(), dropped_after: None }
}

#[tokio::test(start_paused = true)]
async fn first_attempt_timeout_has_kind_and_elapsed_time() {
    let hangs = step(3, None);
    let unsent = Step { unsent_at_start: true, ..hangs.clone() };
    let sent_late = Step { sent_between: true, ..unsent.clone() };
    let (ambiguous, unambiguous) = (TimeoutKind::Ambiguous, TimeoutKind::Unambiguous);
    for (step, kind) in [(hangs, ambiguous), (unsent, unambiguous), (sent_late, ambiguous)] {
        let seen = play(&write([step.clone()]), false).await;
        assert_eq!((seen.kind, seen.ended), (Some(kind), ms(20)), "{step:?}");
        assert_eq!((seen.attempts.len(), seen.drops), (1, vec![(1, ms(20))]));
        let text = seen.result.unwrap().unwrap_err();
        assert!(text.contains("1 attempt in 20"), "{text}");
        assert!(seen.lines.is_empty(), "no failure has a reason");
    }
}

#[tokio::test(start_paused = true)]
async fn first_attempt_failure_is_retried_with_its_counters() {
    let locked = step(4, Some(Err(Response::kv(0x09).into())));
    let busy = step(1, Some(Err(Response::kv(0x86).into())));
    let seen = play(&write([locked, busy, step(0, None)]), false).await;
    let reasons = [reason::KV_LOCKED, reason::KV_TEMPORARY_FAILURE];
    assert_eq!(seen.reasons, reasons, "in the order of their occurrence");
    let starts: Vec<_> = seen.attempts.iter().map(|(number, at, ..)| (*number, *at)).collect();
    // The delays are 2^0 and 2^1 ms.
    assert_eq!(starts, [(1, ms(0)), (2, ms(5)), (3, ms(8))]);
    let last: Vec<_> = seen.attempts.iter().map(|(_, _, _, last)| *last).collect();
    assert_eq!(last, [None, Some(reasons[0]), Some(reasons[1])]);
    let ends: Vec<_> = seen.drops.iter().map(|(number, at)| (*number, *at)).collect();
    assert_eq!(ends, [(1, ms(4)), (2, ms(6)), (3, ms(20))], "before the delay");
    assert_eq!(
        seen.lines,
        [
            "4ms kv.upsert key retry KV_LOCKED 1 Some(1ms)",
            "6ms kv.upsert key retry KV_TEMPORARY_FAILURE 2 Some(2ms)",
        ]
    );
    assert!(seen.asked[0].starts_with("(0, [], Some("), "{:?}", seen.asked);
}

#[tokio::test(start_paused = true)]
async fn first_attempt_of_dropped_request_is_dropped() {
    let case = Case { dropped_after: Some(ms(6)), ..write([step(0, None)]) };
    let seen = play(&case, false).await;
    assert_eq!((seen.result, seen.drops), (None, vec![(1, ms(6))]));
    assert!(seen.lines.is_empty() && seen.asked.is_empty());
}

/// Counts the clock reads and the timers of a request.
#[derive(Clone, Copy)]
struct Counting<'a> {
    reads: &'a Cell<u32>,
    timers: &'a Cell<u32>,
}

impl Sleeper for Counting<'_> {
    type Sleep = <Tokio as Sleeper>::Sleep;
    fn now(&self) -> Ns {
        self.reads.set(self.reads.get() + 1);
        Tokio.now()
    }
    fn sleep_until(&self, at: Ns) -> Self::Sleep {
        self.timers.set(self.timers.get() + 1);
        Tokio.sleep_until(at)
    }
}

/// A state machine would read the clock for the attempt and for its outcome.
#[tokio::test(start_paused = true)]
async fn first_attempt_success_has_no_state_machine() {
    let (reads, timers) = (Cell::new(0), Cell::new(0));
    let counting = Counting { reads: &reads, timers: &timers };
    let orchestrator = Orchestrator::new();
    for (delay_ms, timers_expected) in [(0, 0), (5, 1)] {
        reads.set(0);
        timers.set(0);
        let request = orchestrator.request(operation::KV_GET, s(2)).sleeping_on(counting);
        let result = request.run(|_| async move {
            if delay_ms > 0 {
                sleep(ms(delay_ms)).await;
            }
            Ok::<_, AttemptError>(7)
        });
        assert_eq!(result.await.ok(), Some(7));
        assert_eq!((reads.get(), timers.get()), (1, timers_expected), "{delay_ms} ms");
    }
    // A timeout that no clock reaches has no timer.
    timers.set(0);
    let request = orchestrator.request(operation::KV_GET, Duration::MAX).sleeping_on(counting);
    let result = request.run(|_| async {
        sleep(ms(5)).await;
        Ok::<_, AttemptError>(7)
    });
    assert_eq!((result.await.ok(), timers.get()), (Some(7), 0));
}

#[tokio::test(start_paused = true)]
async fn first_attempt_success_is_reported_to_the_throttle() {
    let budget = Arc::new(RetryBudget::try_new(2.0, 0.5).unwrap());
    let orchestrator = Orchestrator::with(BestEffort::new()).throttled(budget.clone());
    let request = || orchestrator.request(operation::KV_GET, s(2));
    let error = request().run(|_| async { Err::<(), _>(AttemptError::from(Response::kv(0x86))) });
    let error = error.await.unwrap_err();
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::Throttled, 3));
    assert_eq!(budget.tokens(0), Some(0.0));
    assert!(request().run(|_| async { Ok::<_, AttemptError>(()) }).await.is_ok());
    assert_eq!(budget.tokens(0), Some(0.5));
}
