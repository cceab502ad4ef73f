//! Call logs: calls of every kind run through the real drivers on virtual time; each log is stored as JSON
//! lines, read back and replayed. A replay detects a changed log and another policy.
#![cfg(all(feature = "serde", feature = "tokio"))]

use std::time::Duration;

use redial::throttle::{Bucket, CostBucket, CostBucketConfig, Grant, RetryBudget, Withdrawal};
use redial::{
    CallLog, Directive, Event, Failure, Hedged, Jitter, Policy, Reason, Stage, StopReason,
    classify::{Classification, Proof},
    config::PolicyConfig,
    hedging::HedgeDelay,
    ms,
    rules::{DeadlineAction, Limits},
    s,
    strategy::{Advice, Decision, Request},
    time::Ns,
};

static TABLE: [Duration; 2] = [ms(1), ms(7)];

/// A policy that differs in one constant.
fn other() -> Policy {
    Policy::constant(ms(11)).attempts(3).try_build().expect("valid")
}

/// Stores, reads and replays a call log of this policy; returns the log as it was read.
fn check(call_log: &CallLog, policy: impl AsRef<redial_core::Policy>) -> CallLog {
    let policy = policy.as_ref();
    assert!(
        matches!(call_log.events().first(), Some((_, Event::CallStarted { .. }))),
        "{policy:?}"
    );
    call_log.replay(policy).expect("the same decisions");
    let text = call_log.to_json_lines();
    let read = CallLog::from_json_lines(&text).expect("what was written can be read");
    assert_eq!(read.events(), call_log.events(), "{text}");
    read.replay(policy).expect("the same decisions after reading");
    read
}

fn stop_reason(call_log: &CallLog) -> Option<StopReason> {
    match call_log.events().last() {
        Some((_, Event::CallEnded { stop_reason, .. })) => Some(*stop_reason),
        _ => None,
    }
}

async fn run(policy: &Policy, failures: u32, failure: Failure) -> CallLog {
    let mut call_log = CallLog::new();
    let mut left = failures;
    let _ = policy
        .retry(|| {
            let fails = left > 0;
            left = left.saturating_sub(1);
            async move {
                tokio::time::sleep(ms(3)).await;
                if fails { Err(()) } else { Ok(7) }
            }
        })
        .when(move |_: &()| Some(failure))
        .call_log(&mut call_log)
        .await;
    call_log
}

#[tokio::test(start_paused = true)]
async fn call_log_replays_for_every_kind_of_policy() {
    let limits = Limits { soft: Some(ms(40)), hard: Some(ms(90)), ..Limits::NONE };
    let builders = [
        Policy::exponential(ms(10)).attempts(4),
        Policy::exponential(ms(10)).jitter(Jitter::Decorrelated).attempts(5),
        Policy::immediate().attempts(3),
        Policy::arithmetic(ms(5), ms(5)).jitter(Jitter::Equal).attempts(6),
        Policy::table(&TABLE).attempts(4),
        Policy::constant(ms(10)).unlimited().deadline(ms(50)),
        Policy::constant(ms(10))
            .unlimited()
            .deadline(ms(50))
            .deadline_action(DeadlineAction::WaitForDeadline),
        Policy::constant(ms(10)).attempts(3).attempt_timeout(ms(2)),
        Policy::constant(ms(10)).attempts(3).attempt_timeout(ms(2)).retry_timeouts(),
        Policy::fibonacci(ms(10)).attempts(4).reset_after(ms(5)),
        Policy::exponential(ms(10)).jitter(Jitter::Half).unlimited().limits(limits),
    ];
    for builder in builders {
        let policy = builder.try_build().expect("valid");
        for failures in [0, 1, 2, 9] {
            let failures_known = [
                Failure::server(),
                Failure::throttling().retry_after(ms(4)),
                Failure::client().stop(),
                Failure::timeout().because(Reason::new("SOCKET").allow_non_idempotent()),
            ];
            for failure in failures_known {
                let call_log = run(&policy, failures, failure).await;
                check(&call_log, &policy);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_log_of_a_throttled_call_replays() {
    let spec = CostBucketConfig { capacity: 10.0, ..CostBucketConfig::STANDARD };
    let bucket = std::sync::Arc::new(CostBucket::new(spec).expect("valid"));
    let policy = Policy::constant(ms(1)).attempts(5).build().sharing(bucket.clone());
    let call_log = run(&policy, 9, Failure::server()).await;
    check(&call_log, &policy);
    assert!(bucket.tokens(0).is_some());
    let waits = call_log
        .events()
        .iter()
        .any(|(_, event)| matches!(event, Event::ThrottleAnswered(Grant::After(..))));
    assert!(waits, "the third retry had to wait for the bucket");

    let budget = std::sync::Arc::new(RetryBudget::try_new(1.0, 0.1).expect("valid"));
    let policy = Policy::constant(ms(1)).attempts(5).build().sharing(budget);
    let call_log = run(&policy, 9, Failure::server()).await;
    assert_eq!(stop_reason(&call_log), Some(StopReason::Throttled));
    check(&call_log, &policy);
}

#[tokio::test(start_paused = true)]
async fn call_log_of_a_hedged_call_replays() {
    static HEDGED: Hedged = Policy::hedged(ms(5)).attempts(3).build();
    let mut call_log = CallLog::new();
    let mut calls = 0;
    let winner = HEDGED
        .retry(|| {
            calls += 1;
            let call = calls;
            async move {
                tokio::time::sleep(if call == 3 { ms(1) } else { s(9) }).await;
                Ok::<_, ()>(call)
            }
        })
        .when(|_| true)
        .call_log(&mut call_log)
        .await;
    assert_eq!(winner.expect("the third answers"), 3);
    let cancelled = |attempt| {
        call_log.events().iter().any(|(_, event)| *event == Event::AttemptCancelled { attempt })
    };
    assert!(cancelled(1) && cancelled(2) && !cancelled(3));
    check(&call_log, &HEDGED);
}

#[tokio::test(start_paused = true)]
async fn call_log_of_a_pending_strategy_replays() {
    let policy = Policy::constant(ms(1)).unlimited().deadline(s(1)).try_build().expect("valid");
    let strategy = |request: &Request<'_>| {
        let again = request.retry_attempts() < 2;
        Decision::later(async move {
            tokio::time::sleep(ms(2)).await;
            again.then_some(ms(3))
        })
    };
    let mut call_log = CallLog::new();
    let result = policy
        .retry(|| async { Err::<(), _>("busy") })
        .when(|_| true)
        .strategy(strategy)
        .call_log(&mut call_log)
        .await;
    assert_eq!(
        result.expect_err("it declines in the end").stop_reason(),
        StopReason::StrategyDeclined
    );
    check(&call_log, &policy);
}

#[tokio::test(start_paused = true)]
async fn call_log_of_a_dropped_call_ends_and_replays() {
    let always = Policy::constant(ms(100)).attempts(5);
    let policy = always.try_build().expect("valid");
    let mut call_log = CallLog::new();
    let call = policy.retry(|| async { Err::<(), _>(()) }).when(|_| true).call_log(&mut call_log);
    let dropped = tokio::time::timeout(ms(250), call).await;
    assert!(dropped.is_err(), "it was still waiting");
    assert_eq!(stop_reason(&call_log), Some(StopReason::Cancelled));
    check(&call_log, &policy);
}

#[tokio::test(start_paused = true)]
async fn call_log_replay_detects_another_policy_or_changed_event() {
    let policy = Policy::constant(ms(10)).attempts(3).try_build().expect("valid");
    let call_log = run(&policy, 9, Failure::server()).await;
    let different = call_log.replay(other()).expect_err("11 ms are not 10 ms");
    assert_eq!(
        different.to_string(),
        "event 5: the call log has \"retry scheduled in 10ms after a server failure\" at 3ms, \
         the replay has \"retry scheduled in 11ms after a server failure\" at 3ms"
    );
    let changed: CallLog = call_log
        .events()
        .iter()
        .map(|&(at, event)| match event {
            Event::CallEnded { attempt, .. } => {
                (at, Event::CallEnded { stop_reason: StopReason::NotRetryable, attempt })
            }
            event => (at, event),
        })
        .collect();
    assert_eq!(changed.replay(&policy).expect_err("it did not").index, changed.events().len() - 1);
    // A log that stops in the middle of a call is replayed up to that point.
    let half: CallLog = call_log.events().iter().copied().take(4).collect();
    half.replay(&policy).expect("the same so far");
}

/// `replay` accepts every type of policy, and uses its rules: two attempts are not three.
#[test]
fn call_log_replays_with_every_policy_type() {
    let text = r#"{ "attempts": 2, "backoff": { "constant": "0s" }, "throttle": "none" }"#;
    let more = text.replace('2', "3");
    let loaded = |text: &str| serde_json::from_str::<PolicyConfig>(text).expect(text).load();
    let mut call_log = CallLog::new();
    let policy: Policy = serde_json::from_str(text).expect(text);
    let _ = policy.retry(|| Err::<(), _>(())).when(|_| true).call_log(&mut call_log).call();
    call_log.replay(&policy).expect("a policy");
    call_log.replay(policy.core()).expect("the core's own");
    call_log.replay(loaded(text).expect(text)).expect("a loaded one");
    assert_eq!(call_log.replay(loaded(&more).expect(text)).expect_err("one more").index, 7);

    let hedged = |attempts| Policy::hedged(ms(5)).attempts(attempts).try_build().expect("valid");
    let loaded_hedged = |attempts: u32| {
        let text = format!(r#"{{ "attempts": {attempts}, "hedge": {{ "delay": "5ms" }} }}"#);
        loaded(&text).expect("valid")
    };
    let events = [
        (0, Event::CallStarted { deadline: None, idempotent: true }),
        (0, Event::AttemptStarted { attempt: 1, number: 1 }),
        (5_000_000, Event::ThrottleAnswered(Grant::Now(Withdrawal(0)))),
        (5_000_000, Event::AttemptStarted { attempt: 2, number: 2 }),
        (10_000_000, Event::ThrottleAnswered(Grant::Refused)),
    ];
    let call_log: CallLog = events.into_iter().collect();
    call_log.replay(hedged(3)).expect("a hedged policy");
    call_log.replay(loaded_hedged(3)).expect("a loaded hedged one");
    assert_eq!(call_log.replay(hedged(2)).expect_err("no third").index, 4);
    assert_eq!(call_log.replay(loaded_hedged(2)).expect_err("no third").index, 4);
}

#[test]
fn call_log_json_errors_have_a_line_number() {
    let error = |text: &str| CallLog::from_json_lines(text).expect_err(text);
    let head = |text: &str| error(text).to_string();
    assert_eq!(head(""), "line 1: expected {\"redial_call_log\":2}");
    assert_eq!(head("{}"), "line 1: expected {\"redial_call_log\":2}");
    let unknown = |version: u32| {
        format!("line 1: version {version} of the call log is unknown; this release reads 1 and 2")
    };
    assert_eq!(head("{\"redial_call_log\":3}"), unknown(3));
    let expected = "line 1: expected {\"redial_call_log\":2}";
    assert_eq!(head("{\"redial_call_log\":2,\"backend\":\"a\"}"), expected);
    assert_eq!(head("{\"redial_diary\":1,\"policy\":\"fetch\"}"), expected);
    assert_eq!(head("{\"redial_call_log\":1}"), unknown(1));
    assert_eq!(head("{\"redial_diary\":2}"), unknown(2));

    let version_2 = [
        ("nonsense", "expected ident"),
        (r#"{"at":1}"#, "missing field `event`"),
        (r#"{"at":1,"event":"random-draw","u":1.0}"#, "a draw of 1 is not in [0, 1)"),
        (r#"{"at":1,"event":"call-ended","stop_reason":"bored"}"#, "unknown stop reason `bored`"),
        (r#"{"at":1,"event":"sealed"}"#, "unknown variant `sealed`"),
        (r#"{"at":0,"event":"hedge-delay","before":7}"#, "unknown field `before`"),
        (
            r#"{"at":1,"event":"attempt-outcome","attempt":1,"directive":"retry"}"#,
            "`failure` goes with the directive `retry` alone",
        ),
        (
            r#"{"at":1,"event":"throttle-answered","grant":"later","withdrawn":1}"#,
            "`after` and `withdrawn` do not match this grant",
        ),
        (
            r#"{"at":1,"event":"strategy-answered","advice":"none","after":1}"#,
            "`after` goes with the advice `after` alone",
        ),
    ];
    let version_1 = [
        ("nonsense", "expected ident"),
        ("[]", "invalid type"),
        (r#"{"at":1}"#, "missing field `note`"),
        (r#"{"note":"sealed"}"#, "missing field `at`"),
        (r#"{"at":1,"note":"drew","u":1.0}"#, "a draw of 1 is not in [0, 1)"),
        (r#"{"at":1,"note":"ended","why":"bored"}"#, "unknown stop reason `bored`"),
        (r#"{"at":1,"note":"committing","attempt":1}"#, "unknown note \"committing\""),
        (r#"{"at":0,"note":"hedging","before":7}"#, "unknown field `before`"),
        (
            r#"{"at":1,"note":"outcome","attempt":1,"directive":"retry"}"#,
            "`failure` goes with the directive `retry` alone",
        ),
        (
            r#"{"at":1,"note":"answered","after":1,"silent":true}"#,
            "`after` goes with the advice `after` alone",
        ),
        (r#"{"at":1,"note":"answered","silent":1}"#, "`silent` must be true or false, not 1"),
    ];
    let first_2 = r#"{"redial_call_log":2}
{"at":1,"event":"not-replayable"}"#;
    let first_1 = r#"{"redial_diary":1}
{"at":1,"note":"sealed"}"#;
    for (first, lines) in [(first_2, &version_2[..]), (first_1, &version_1[..])] {
        for (line, problem) in lines {
            let error = error(&format!("{first}\n{line}"));
            assert_eq!(error.line, 3, "{line}");
            assert!(error.text.starts_with(problem), "{line}: {error}");
        }
    }
}

/// Stop reasons that were added to version 2 before the first release.
const ADDED: [StopReason; 2] = [StopReason::HintTooLong, StopReason::AttemptTimeout];

/// A call log with every event in every form, without those that were added to version 2.
fn every_event() -> CallLog {
    let failure = Failure::client().at(Stage::InFlight).stop();
    let reason = Reason::new("KV_LOCKED").allow_non_idempotent().always();
    let hinted = Failure::throttling().at(Stage::Unsent).because(reason).retry_after(s(7));
    let outcome = |directive, proof, drains| Event::AttemptOutcome {
        attempt: 2,
        classification: Classification { directive, proof, drains },
    };
    let mut events = vec![
        Event::CallStarted { deadline: None, idempotent: true },
        Event::CallStarted { deadline: Some(9), idempotent: false },
        Event::HedgeDelay(HedgeDelay::After(3)),
        Event::HedgeDelay(HedgeDelay::Never),
        Event::AttemptStarted { attempt: 3, number: 2 },
        outcome(Directive::Succeed, None, false),
        outcome(Directive::Fail, Some(Proof::Unsent), true),
        outcome(Directive::Retry(failure), Some(Proof::Unprocessed), false),
        Event::AttemptTimedOut { attempt: 1 },
        Event::AttemptCancelled { attempt: 1 },
        Event::RandomDraw(0.1),
        Event::ThrottleAnswered(Grant::Now(Withdrawal(5))),
        Event::ThrottleAnswered(Grant::After(7, Withdrawal(u64::MAX))),
        Event::ThrottleAnswered(Grant::Later),
        Event::ThrottleAnswered(Grant::Refused),
        Event::StrategyAsked(hinted),
        Event::StrategyAnswered(Advice::None),
        Event::StrategyAnswered(Advice::After(0)),
        Event::StrategyAnswered(Advice::Decline),
        Event::RetryScheduled { after: 1, failure: Failure::server() },
        Event::TransparentRetryScheduled { attempt: 1, after: 2, proof: Proof::Unsent },
        Event::TransparentRetryScheduled { attempt: 1, after: 2, proof: Proof::Unprocessed },
        Event::Committed { attempt: u32::MAX },
        Event::NotReplayable,
    ];
    let known = StopReason::ALL.into_iter().filter(|reason| !ADDED.contains(reason));
    events.extend(known.map(|stop_reason| Event::CallEnded { stop_reason, attempt: Some(1) }));
    events.push(Event::CallEnded { stop_reason: StopReason::Cancelled, attempt: None });
    events.into_iter().map(|event| (Ns::MAX, event)).collect()
}

/// The files hold `every_event` in each version of the format; no version may change.
#[test]
fn call_log_json_versions_read_to_the_same_events() {
    let call_log = every_event();
    let version_2 = include_str!("call_log/version_2.jsonl");
    assert_eq!(call_log.to_json_lines(), version_2);
    assert_eq!(CallLog::from_json_lines(version_2).as_ref(), Ok(&call_log));
    let version_1 = include_str!("call_log/version_1.jsonl");
    assert_eq!(version_1.lines().count(), version_2.lines().count());
    assert_eq!(CallLog::from_json_lines(version_1), Ok(call_log));
}

/// Values were added to version 2 before the first release; from then on they need a new version.
#[test]
fn call_log_json_reads_values_added_to_version_2() {
    let ends = ADDED.map(|stop_reason| Event::CallEnded { stop_reason, attempt: None });
    let outcome = Event::AttemptOutcome {
        attempt: 1,
        classification: Directive::Retry(Failure::not_ready()).into(),
    };
    let call_log: CallLog = ends.into_iter().chain([outcome]).map(|event| (7, event)).collect();
    let text = call_log.to_json_lines();
    assert_eq!(
        text,
        "{\"redial_call_log\":2}\n\
         {\"at\":7,\"event\":\"call-ended\",\"stop_reason\":\"hint\"}\n\
         {\"at\":7,\"event\":\"call-ended\",\"stop_reason\":\"attempt-timeout\"}\n\
         {\"at\":7,\"event\":\"attempt-outcome\",\"attempt\":1,\"directive\":\"retry\",\
         \"failure\":{\"kind\":\"not-ready\",\"stage\":\"answered\"}}\n"
    );
    assert_eq!(CallLog::from_json_lines(&text), Ok(call_log));
}

#[test]
fn call_log_json_keeps_the_name_of_the_policy() {
    static FETCH: Policy = Policy::constant(ms(10)).attempts(1).name("fetch \"a\"").build();
    let mut call_log = CallLog::new();
    let call = FETCH.retry(|| Ok::<_, ()>(7)).when(|()| true);
    call.call_log(&mut call_log).call().expect("it succeeds");
    let text = call_log.to_json_lines();
    assert!(text.starts_with(r#"{"redial_call_log":2,"policy":"fetch \"a\""}"#), "{text}");
    let read = CallLog::from_json_lines(&text).expect("readable");
    assert_eq!((read.policy(), &read), (Some(r#"fetch "a""#), &call_log));
    let without = text.replacen(r#","policy":"fetch \"a\"""#, "", 1);
    assert_eq!(CallLog::from_json_lines(&without).expect("readable").policy(), None);
}

/// A log that an earlier release wrote: two retries after 10 ms each, then no attempt is left.
#[test]
fn call_log_json_of_version_1_replays() {
    let text = include_str!("call_log/retries_version_1.jsonl");
    let call_log = CallLog::from_json_lines(text).expect("version 1 is read");
    let policy = Policy::constant(ms(10)).attempts(3).try_build().expect("valid");
    call_log.replay(&policy).expect("the same decisions");
    assert_eq!(stop_reason(&call_log), Some(StopReason::AttemptsExhausted));
    assert_eq!(call_log.replay(other()).expect_err("11 ms are not 10 ms").index, 4);
}

#[test]
fn call_log_json_keeps_every_field_of_a_failure() {
    let reason = Reason::new("KV_LOCKED").allow_non_idempotent().always();
    let failure = Failure::throttling().at(Stage::Unsent).because(reason).retry_after(s(7));
    let call_log: CallLog = [(5 as Ns, Event::StrategyAsked(failure))].into_iter().collect();
    let read = CallLog::from_json_lines(&call_log.to_json_lines()).expect("readable");
    let Some((5, Event::StrategyAsked(read))) = read.events().first().copied() else {
        panic!("{read:?}")
    };
    assert_eq!(read, failure);
    let reason = read.reason.expect("a reason");
    assert!(reason.allows_non_idempotent_retry() && reason.is_always_retried());
}

/// The hedge delay of a single call is recorded, stored and used by a replay.
#[test]
fn call_log_json_keeps_the_hedge_delay() {
    let policy = Policy::hedged(ms(5)).attempts(2).try_build().expect("valid");
    let started = |attempt| Event::AttemptStarted { attempt, number: attempt };
    let granted = Event::ThrottleAnswered(Grant::Now(Withdrawal(0)));
    let began = Event::CallStarted { deadline: None, idempotent: true };
    let after = |delay: Ns, not_replayable: bool| -> CallLog {
        let hedging = Event::HedgeDelay(HedgeDelay::After(delay));
        let mut events = vec![(0, began), (0, hedging)];
        if not_replayable {
            events.extend([
                (0, Event::NotReplayable),
                (0, started(1)),
                (0, Event::Committed { attempt: 1 }),
            ]);
        } else {
            events.extend([(0, started(1)), (delay, granted), (delay, started(2))]);
        }
        events.into_iter().collect()
    };
    check(&after(7_000_000, false), &policy);
    check(&after(7_000_000, true), &policy);
    let never = Event::HedgeDelay(HedgeDelay::Never);
    let mut events = vec![(0, began), (0, never), (0, started(1))];
    let alone: CallLog = events.iter().copied().collect();
    check(&alone, &policy);
    events.extend([(5_000_000, granted), (5_000_000, started(2))]);
    let wrong: CallLog = events.into_iter().collect();
    assert_eq!(wrong.replay(&policy).expect_err("no hedge was due").index, 3);

    let text = after(7, false).to_json_lines();
    assert!(text.contains(r#"{"at":0,"event":"hedge-delay","after":7}"#), "{text}");
    assert!(alone.to_json_lines().contains(r#"{"at":0,"event":"hedge-delay"}"#));
}
