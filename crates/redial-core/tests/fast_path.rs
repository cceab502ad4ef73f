//! The fast path agrees with the state machine. Drivers run a plain policy (no hedging, timers or
//! strategy) on [`CallCounters`] and [`decide`] alone; the application must not notice the
//! difference from a [`Call`].
//!
//! Property tests with random plain policies, scripts and throttles:
//! - Counters and a [`Call`] run the same calls with identical throttles; events, counters and
//!   tokens must be equal.
//! - [`decide`] has a fast path for the common case. A deadline at the end of time disables it, and
//!   must not change the decision.
//! - For immediate retries, counters that contain only the number of attempts give the same
//!   decisions.
//! - A [`Call`] that [`FirstAttempt`] creates late behaves like one created at the start.
//! - No timer fires before [`Policy::first_wake_at`].

mod common;

use common::{
    Shared, Spec, TestEnvironment, any_directive, any_failure, any_policy, any_span, any_throttle,
    plain_policy,
};
use proptest::prelude::*;
use redial_core::{
    Advice, Backoff, Bucket, Call, CallCounters, CallParams, Classification, Command, Directive,
    Environment, Event, FirstAttempt, Jitter, Limits, NEVER, Ns, Policy, Proof, Rules, StopReason,
    Verdict, decide, ns, s,
};
use std::time::Duration;

/// The outcomes of one call.
#[derive(Clone, Debug)]
struct Script {
    idempotent: bool,
    seed: u64,
    /// The duration of each attempt, and its outcome.
    attempts: Vec<(Ns, Classification)>,
    /// After the last outcome the application cancels the call: during a further attempt, or in the
    /// delay before it.
    drops_in_pause: bool,
}

fn any_script() -> impl Strategy<Value = Script> {
    let takes = any_span().prop_map(|span| ns(span.min(s(1))));
    let classification = (any_directive(), any::<bool>())
        .prop_map(|(directive, drains)| Classification { drains, ..directive.into() });
    let attempts = prop::collection::vec((takes, classification), 1..10);
    (prop::bool::weighted(0.8), any::<u64>(), attempts, any::<bool>()).prop_map(
        |(idempotent, seed, attempts, drops_in_pause)| Script {
            idempotent,
            seed,
            attempts,
            drops_in_pause,
        },
    )
}

/// The observable result of a call: events, counters and end time.
struct Played {
    call_log: Vec<(Ns, Event)>,
    counters: CallCounters,
    now: Ns,
}

/// Runs a plain policy on counters, and records the events that a [`Call`] would record.
fn run_counters(
    policy: &Policy,
    script: &Script,
    spec: &Spec,
    shared: &Shared,
    start: Ns,
) -> Played {
    let mut env = TestEnvironment::new(spec, shared, script.seed);
    let (mut counters, mut now) = (CallCounters::new(start), start);
    counters.idempotent = script.idempotent;
    env.record(now, Event::CallStarted { deadline: None, idempotent: script.idempotent });
    let mut attempts = script.attempts.iter();
    let (stop_reason, attempt) = loop {
        counters.attempts += 1;
        if counters.attempts > 1 {
            env.started();
        }
        let attempt = counters.attempts;
        env.record(now, Event::AttemptStarted { attempt, number: attempt });
        let Some(&(takes, classification)) = attempts.next() else {
            env.record(now, Event::AttemptCancelled { attempt });
            break (StopReason::Cancelled, None);
        };
        now += takes;
        env.record(now, Event::AttemptOutcome { attempt, classification });
        let failure = match classification.directive {
            Directive::Succeed => break (StopReason::Succeeded, Some(attempt)),
            Directive::Fail => {
                if classification.drains {
                    env.failed();
                }
                break (StopReason::NotRetryable, Some(attempt));
            }
            Directive::Retry(failure) => failure,
        };
        match decide(policy, &mut counters, &failure, Advice::None, now, NEVER, &mut env) {
            Verdict::Retry { after, paid } => {
                assert!(paid, "a plain policy pays when it decides");
                let due = now.saturating_add(after);
                // A delay can be cancelled before it ends, and must be if it never ends.
                let dropped = attempts.len() == 0 && script.drops_in_pause && after > 0;
                if dropped || due == NEVER {
                    break (StopReason::Cancelled, None);
                }
                now = due;
            }
            Verdict::End(stop_reason) => break (stop_reason, Some(attempt)),
            other => panic!("a plain policy has no strategy or deferred grant: {other:?}"),
        }
    };
    match stop_reason {
        StopReason::Succeeded => env.succeeded(),
        StopReason::Cancelled => env.call_cancelled(),
        _ => env.call_failed(),
    }
    env.record(now, Event::CallEnded { stop_reason, attempt });
    Played { call_log: std::mem::take(&mut env.call_log), counters, now }
}

/// Runs the same call on the state machine.
fn run_state_machine(
    policy: &Policy,
    script: &Script,
    spec: &Spec,
    shared: &Shared,
    start: Ns,
) -> Played {
    let mut env = TestEnvironment::new(spec, shared, script.seed);
    let params = CallParams { idempotent: script.idempotent, ..CallParams::default() };
    let call = Call::begin(policy, params, start, &mut env);
    run(call, env, &script.attempts, script.drops_in_pause, start)
}

/// Runs the rest of a call.
fn run(
    mut call: Call<&Policy>,
    mut env: TestEnvironment<'_>,
    attempts: &[(Ns, Classification)],
    drops_in_pause: bool,
    mut now: Ns,
) -> Played {
    let mut attempts = attempts.iter();
    loop {
        match call.command(&mut env) {
            Some(Command::Start(started)) => match attempts.next() {
                Some(&(takes, classification)) => {
                    now += takes;
                    assert_eq!(call.wake_at(), None, "a plain attempt has no timer");
                    call.outcome(started.slot, classification, now, &mut env);
                }
                None => call.cancel(now, &mut env),
            },
            Some(Command::Cancel(_)) => {}
            Some(Command::End(_)) => break,
            Some(other) => panic!("a plain policy has no strategy: {other:?}"),
            None => match call.wake_at() {
                Some(_) if attempts.len() == 0 && drops_in_pause => {
                    call.cancel(now, &mut env);
                }
                Some(at) => {
                    now = at;
                    call.wake_once(now, &mut env);
                }
                None => call.cancel(now, &mut env),
            },
        }
    }
    Played { call_log: std::mem::take(&mut env.call_log), counters: *call.counters(), now }
}

/// The first outcome of a call.
#[derive(Clone, Copy, Debug)]
struct FirstOutcome {
    commits: bool,
    takes: Ns,
    classification: Classification,
}

fn any_first_outcome() -> impl Strategy<Value = FirstOutcome> {
    let proof = prop::option::of(prop_oneof![Just(Proof::Unsent), Just(Proof::Unprocessed)]);
    let takes = any_span().prop_map(|span| ns(span.min(s(1))));
    (any::<bool>(), takes, any_directive(), proof, any::<bool>()).prop_map(
        |(commits, takes, directive, proof, drains)| {
            let classification = Classification { directive, proof, drains };
            FirstOutcome { commits, takes, classification }
        },
    )
}

/// Creates the state machine at the start of the call.
fn started_eagerly<'p>(
    policy: &'p Policy,
    params: CallParams,
    commits: bool,
    start: Ns,
    env: &mut TestEnvironment<'_>,
) -> Call<&'p Policy> {
    let mut call = Call::begin(policy, params, start, env);
    assert!(matches!(call.command(env), Some(Command::Start(_))));
    if commits {
        call.committed(0, start, env);
    }
    call
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn fast_path_counters_and_call_record_the_same_events(
        policy in plain_policy(),
        spec in any_throttle(),
        scripts in prop::collection::vec(any_script(), 1..4),
    ) {
        prop_assert!(policy.is_plain());
        let (by_counters, by_call) = (spec.build(), spec.build());
        let mut now = 0;
        for script in &scripts {
            let one = run_counters(&policy, script, &spec, &by_counters, now);
            let other = run_state_machine(&policy, script, &spec, &by_call, now);
            for (mine, yours) in one.call_log.iter().zip(&other.call_log) {
                prop_assert_eq!(mine, yours);
            }
            prop_assert_eq!(one.call_log.len(), other.call_log.len());
            prop_assert_eq!(one.counters, other.counters);
            prop_assert_eq!(one.now, other.now);
            prop_assert_eq!(by_counters.tokens(now), by_call.tokens(now));
            now = one.now;
        }
    }

    #[test]
    fn fast_path_late_call_equals_one_started_eagerly(
        policy in plain_policy(),
        transparent_retries in any::<bool>(),
        spec in any_throttle(),
        first_outcome in any_first_outcome(),
        script in any_script(),
        before in 0..3,
    ) {
        // A policy with a custom backoff cannot be rebuilt from its rules.
        let policy = Policy::try_new(Rules { transparent_retries, ..*policy.rules() }).unwrap_or(policy);
        let params = CallParams { idempotent: script.idempotent, ..CallParams::default() };
        let FirstOutcome { commits, takes, classification } = first_outcome;
        let (at_once, late) = (spec.build(), spec.build());
        for _ in 0..before {
            at_once.failed();
            late.failed();
        }
        let mut env = TestEnvironment::new(&spec, &at_once, script.seed);
        let mut call = started_eagerly(&policy, params, commits, 0, &mut env);
        let mut other = TestEnvironment::new(&spec, &late, script.seed);
        let mut first = FirstAttempt::of(&policy, params, 0).expect("it can start");
        if commits {
            first.committed();
        }
        call.outcome(0, classification, takes, &mut env);
        if classification.directive == Directive::Succeed {
            first.succeeded(&late);
            prop_assert!(matches!(call.command(&mut env), Some(Command::End(end)) if end.stop_reason == StopReason::Succeeded));
        } else {
            let mut late_call: Call<_> = first.begin(&policy, &mut other);
            late_call.outcome(0, classification, takes, &mut other);
            let attempts = &script.attempts;
            let one = run(call, env, attempts, script.drops_in_pause, takes);
            let two = run(late_call, other, attempts, script.drops_in_pause, takes);
            prop_assert_eq!(one.call_log, two.call_log);
            prop_assert_eq!(one.counters, two.counters);
            prop_assert_eq!(one.now, two.now);
        }
        prop_assert_eq!(at_once.tokens(takes), late.tokens(takes));
    }

    #[test]
    fn fast_path_nothing_is_due_before_first_wake(
        policy in any_policy(),
        spec in any_throttle(),
        start in any_span(),
    ) {
        let start = ns(start.min(s(1)));
        let first = policy.first_wake_at(start);
        // Timers that are due at the start fire when the state machine is created.
        prop_assume!(first > start);
        let shared = spec.build();
        let mut env = TestEnvironment::new(&spec, &shared, 1);
        let mut call: Call<_> =
            Call::begin(&policy, CallParams::default(), start, &mut env);
        prop_assert!(matches!(call.command(&mut env), Some(Command::Start(_))));
        prop_assert_eq!(call.wake_at().unwrap_or(NEVER), first);
        let began = matches!(env.call_log[..], [(_, Event::CallStarted { .. }), (_, Event::AttemptStarted { .. })]);
        prop_assert!(began, "{:?}", env.call_log);
        prop_assert_eq!(call.command(&mut env), None);
        let before = first - 1;
        prop_assert!(!call.wake_once(before, &mut env));
        prop_assert!(first == NEVER || call.wake_once(first, &mut env));
    }

    #[test]
    fn fast_path_decide_agrees_with_slow_path(
        policy in plain_policy(),
        spec in any_throttle(),
        failures in prop::collection::vec(any_failure(), 1..6),
        attempts in 1u32..8,
        (committed, idempotent, uses_strategy) in any::<(bool, bool, bool)>(),
        start in any_span(),
        seed in any::<u64>(),
    ) {
        let (here, there) = (spec.build(), spec.build());
        let (mut short, mut long) = (TestEnvironment::new(&spec, &here, seed), TestEnvironment::new(&spec, &there, seed));
        let now = ns(start.min(s(1)));
        let mut counters = CallCounters {
            attempts,
            committed,
            idempotent,
            uses_strategy,
            ..CallCounters::new(0)
        };
        let mut other = counters;
        for failure in &failures {
            let one = decide(&policy, &mut counters, failure, Advice::None, now, NEVER, &mut short);
            let two = decide(&policy, &mut other, failure, Advice::None, now, NEVER - 1, &mut long);
            // Only a delay that saturates the clock misses that deadline.
            if two == Verdict::End(StopReason::Deadline) {
                break;
            }
            prop_assert_eq!(one, two);
            prop_assert_eq!(counters, other);
            prop_assert_eq!(&short.call_log, &long.call_log);
            short.started();
            long.started();
            counters.attempts += 1;
            other.attempts += 1;
        }
    }

    #[test]
    fn fast_path_immediate_retries_depend_only_on_attempt_count(
        policy in plain_policy(),
        makes_immediate in prop::bool::weighted(0.8),
        spec in any_throttle(),
        failures in prop::collection::vec(any_failure(), 1..6),
        (start, waited) in (any_span(), any_span()),
        (attempts, hinted) in (1u32..8, 0u16..8),
        seed in any::<u64>(),
    ) {
        let immediately = |rules: &mut Rules| {
            (rules.backoff, rules.jitter) = (Backoff::Constant(Duration::ZERO), Jitter::None);
            (rules.throttling_first, rules.limits) = (None, Limits::NONE);
            rules.attempts = rules.attempts.or(Some(3));
        };
        let policy = match makes_immediate {
            true => policy.changed(immediately).unwrap(),
            false => policy,
        };
        prop_assert!(policy.is_immediate() || !makes_immediate);
        prop_assume!(policy.is_immediate());
        let (here, there) = (spec.build(), spec.build());
        let (mut all, mut alone) = (TestEnvironment::new(&spec, &here, seed), TestEnvironment::new(&spec, &there, seed));
        let (start, waited) = (ns(start.min(s(1))), ns(waited.min(s(1))));
        let mut counters = CallCounters { waited, attempts, hinted, ..CallCounters::new(start) };
        for failure in failures.iter().filter(|failure| failure.has_no_reason_or_hint()) {
            let mut fresh = CallCounters { attempts: counters.attempts, ..CallCounters::new(0) };
            let one = decide(&policy, &mut counters, failure, Advice::None, start, NEVER, &mut all);
            let two = decide(&policy, &mut fresh, failure, Advice::None, start, NEVER, &mut alone);
            prop_assert_eq!(one, two);
            prop_assert_eq!(&all.call_log, &alone.call_log);
            all.started();
            alone.started();
            counters.attempts += 1;
        }
    }
}
