//! The invariants of a call hold for every policy and every order of inputs.
//!
//! Random policies and inputs on virtual time, with one slot and with the maximum. After each step
//! the checker of `common/invariants.rs` reads the new events: the call ends once, each attempt has
//! one outcome or is cancelled once, nothing starts after commit, end or deadline, and attempts,
//! delays and limits are within their bounds. Each throttle is compared with a simple model after
//! each step, so a refund that is missing or made twice is found.
//!
//! Failures shrink to the smallest policy and script; the interesting ones become named tests.

mod common;

use common::{
    Model, Spec, Starts, TestDriver, TestEnvironment, any_classification, any_policy, any_span,
    any_throttle,
};
use proptest::option;
use proptest::prelude::*;
use redial_core::{
    Advice, CallParams, Classification, Directive, Failure, HedgeDelay, Ns, Policy, ns, s,
};

/// An input of a call. An index selects one of the running attempts.
#[derive(Clone, Debug)]
enum Event {
    /// Time advances, and the driver wakes the call on time.
    Pass(Ns),
    /// Time advances without a wake-up: the driver is late.
    Oversleep(Ns),
    Wake,
    /// One timer fires, and other inputs with the same timestamp may come before the next.
    WakeOnce,
    Outcome(usize, Classification),
    Headers(usize),
    NotReplayable(usize),
    Answer(Advice),
    Grant,
    Cancel,
}

/// How a call ends that is still open after its script.
#[derive(Clone, Copy, Debug)]
enum Finish {
    /// The running attempts succeed.
    Succeed,
    /// The running attempts fail with retryable failures until the call gives up.
    Fail,
    /// No attempt completes; only timers fire.
    Hang,
    /// The application cancels the call, and the driver reports it.
    Cancel,
    /// The future is dropped without a report to the state machine.
    Drop,
}

#[derive(Clone, Debug)]
struct Script {
    params: CallParams,
    seed: u64,
    later: Vec<bool>,
    events: Vec<Event>,
    finish: Finish,
    starts: Starts,
}

fn any_event() -> impl Strategy<Value = Event> {
    let span = || any_span().prop_map(ns);
    // No clock reaches the end of time.
    let passing = || span().prop_map(|span| span.min(ns(s(1))));
    prop_oneof![
        12 => passing().prop_map(Event::Pass),
        2 => passing().prop_map(Event::Oversleep),
        2 => Just(Event::Wake),
        2 => Just(Event::WakeOnce),
        24 => (any::<usize>(), any_classification()).prop_map(|(who, what)| Event::Outcome(who, what)),
        1 => any::<usize>().prop_map(Event::Headers),
        1 => any::<usize>().prop_map(Event::NotReplayable),
        6 => prop_oneof![
            3 => span().prop_map(Advice::After),
            1 => Just(Advice::Decline),
        ].prop_map(Event::Answer),
        6 => Just(Event::Grant),
        1 => Just(Event::Cancel),
    ]
}

fn any_script() -> impl Strategy<Value = Script> {
    let hedge = option::weighted(
        0.2,
        prop_oneof![
            3 => any_span().prop_map(|span| HedgeDelay::After(ns(span))),
            1 => Just(HedgeDelay::Never),
        ],
    );
    let flags = [0.85, 0.05, 0.05, 0.1].map(prop::bool::weighted);
    let params = (option::weighted(0.2, any_span()), flags, hedge).prop_map(
        |(
            deadline,
            [idempotent, not_replayable, ends_at_attempt_timeout, uses_strategy],
            hedge,
        )| {
            CallParams {
                deadline,
                idempotent,
                not_replayable,
                ends_at_attempt_timeout,
                uses_strategy,
                hedge,
            }
        },
    );
    let finish = prop_oneof![
        Just(Finish::Succeed),
        Just(Finish::Fail),
        Just(Finish::Hang),
        Just(Finish::Cancel),
        Just(Finish::Drop),
    ];
    let later = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(any::<bool>(), 0..6),
    ];
    let events = prop::collection::vec(any_event(), 0..20);
    let starts = prop_oneof![2 => Just(Starts::All), 1 => Just(Starts::One)];
    (params, any::<u64>(), later, events, finish, starts).prop_map(
        |(params, seed, later, events, finish, starts)| Script {
            params,
            seed,
            later,
            events,
            finish,
            starts,
        },
    )
}

/// Runs one call; returns its end time.
fn run(
    policy: &Policy,
    script: &Script,
    spec: &Spec,
    shared: &common::Shared,
    model: &mut Model,
    now: Ns,
) -> Ns {
    let hedged = policy.rules().hedge.is_some();
    let params =
        CallParams { uses_strategy: !hedged && script.params.uses_strategy, ..script.params };
    let env = TestEnvironment::with_later(spec, shared, script.seed, &script.later);
    let mut driver = TestDriver::begin_taking(script.starts, policy, params, now, env, model);
    for event in &script.events {
        if driver.end.is_some() {
            break;
        }
        happen(&mut driver, event);
    }
    finish(driver, script.finish)
}

fn happen(driver: &mut TestDriver<'_, '_, '_>, event: &Event) {
    let slots = driver.slots();
    let pick = |who: usize| slots.get(who % slots.len().max(1)).copied();
    match *event {
        Event::Pass(span) => driver.pass(span),
        Event::Oversleep(span) => driver.oversleep(span),
        Event::Wake => driver.wake(),
        Event::WakeOnce => drop(driver.wake_once()),
        Event::Outcome(who, classification) => {
            if let Some(slot) = pick(who) {
                driver.outcome(slot, classification);
            }
        }
        Event::Headers(who) => {
            if let Some(slot) = pick(who) {
                driver.headers(slot);
            }
        }
        Event::NotReplayable(who) => driver.not_replayable(pick(who)),
        Event::Answer(advice) => driver.answer(advice),
        Event::Grant => driver.grant(),
        Event::Cancel => driver.cancel(),
    }
}

fn finish(mut driver: TestDriver<'_, '_, '_>, how: Finish) -> Ns {
    // Unlimited attempts end only by time, and some failures take none, so the number of steps is
    // bounded.
    for _ in 0..200 {
        if driver.end.is_some() {
            break;
        }
        let running = driver.slots().first().copied();
        match (how, running) {
            (Finish::Succeed, Some(slot)) => driver.outcome(slot, Directive::Succeed),
            (Finish::Fail, Some(slot)) => driver.outcome(slot, Directive::Retry(Failure::server())),
            (Finish::Cancel, _) => driver.cancel(),
            (Finish::Drop, _) => {
                let now = driver.now;
                driver.drop_call();
                return now;
            }
            _ if driver.asking.is_some() => driver.answer(Advice::Decline),
            _ if driver.awaiting.is_some() => driver.grant(),
            _ if driver.next_timer() => {}
            _ => break,
        }
    }
    if driver.end.is_none() {
        driver.cancel();
    }
    driver.check_after_end();
    // A deferred answer of the throttle may arrive after the call has stopped waiting for it.
    driver.grant();
    driver.check_after_end();
    driver.now
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn invariants_hold_for_random_calls(
        policy in any_policy(),
        spec in any_throttle(),
        scripts in prop::collection::vec(any_script(), 1..4),
    ) {
        let (shared, mut model, mut now) = (spec.build(), Model::new(spec), 0);
        for script in &scripts {
            now = run(&policy, script, &spec, &shared, &mut model, now);
        }
    }
}
