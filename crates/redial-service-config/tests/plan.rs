//! Plans: config and client options become the core's rules and the classification of statuses; some
//! plans run on virtual time.

use std::sync::Arc;
use std::time::Duration;

use redial::classify::Hint;
use redial::testing::{classified_as, play};
use redial::throttle::Bucket;
use redial::{
    Directive, Failure, FailureKind, PolicyError, Reason, Stage, StopReason,
    classify::Classification, ms, s,
};
use redial_core::{
    AttemptTimeoutAction, Backoff, ExpiredDeadlineAction, HintRule, Numbering, Proof, Rules,
};
use redial_service_config::{
    AttemptTimeout, ClientOptions, Code, DeadlineAction, Jitter, MethodConfig, Plan, Pushback,
    Retries, RetryThrottling, ServiceConfig,
};

const CONFIG: &str = r#"{"methodConfig": [
    {"name": [{"service": "retry"}], "timeout": "9s", "retryPolicy": {"maxAttempts": 7, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 1.6, "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", 4, "OK"]}},
    {"name": [{"service": "hedge"}], "waitForReady": true, "hedgingPolicy": {"maxAttempts": 50, "hedgingDelay": "0.02s", "nonFatalStatusCodes": [14]}},
    {"name": [{"service": "none"}], "timeout": "2s"}]}"#;

fn config() -> ServiceConfig {
    ServiceConfig::parse(CONFIG).expect("it is valid")
}

fn plan(client: &ClientOptions, service: &str) -> Plan {
    client.plan(config().method(&format!("/{service}/M")))
}

fn rules(client: &ClientOptions, service: &str) -> Rules {
    *plan(client, service).policy().rules()
}

const BASE: Rules = Rules {
    attempts: Some(1),
    deadline_action: DeadlineAction::WaitForDeadline,
    expired_deadline_action: ExpiredDeadlineAction::StartNoAttempt,
    numbering: Numbering::SinceHint,
    transparent_retries: true,
    hint: HintRule::Exact(None),
    ..Rules::DEFAULT
};

#[test]
fn plan_rules_combine_config_and_client_options() {
    let client = ClientOptions::default();
    let backoff = Backoff::Exponential { first: ms(100), factor: 1.6, cap: Some(s(1)) };
    let retry = Rules { attempts: Some(5), backoff, deadline: Some(s(9)), ..BASE };
    assert_eq!(rules(&client, "retry"), retry);
    let hedge = Rules { attempts: Some(5), hedge: Some(ms(20)), ..BASE };
    assert_eq!(rules(&client, "hedge"), hedge);
    assert_eq!(rules(&client, "none"), Rules { deadline: Some(s(2)), ..BASE });
    assert_eq!(rules(&client, "unknown"), BASE);
    assert_eq!(*client.plan(None).policy().rules(), BASE);

    let client = ClientOptions::builder()
        .attempts_cap(40)
        .jitter(Jitter::Proportional(0.2))
        .deadline_action(DeadlineAction::FailFast)
        .pushback_max(s(3))
        .build();
    let base = Rules {
        jitter: Jitter::Proportional(0.2),
        jitter_above_cap: true,
        deadline_action: DeadlineAction::FailFast,
        hint: HintRule::Exact(Some(s(3))),
        ..BASE
    };
    assert_eq!(
        rules(&client, "retry"),
        Rules { attempts: Some(7), backoff, deadline: Some(s(9)), ..base }
    );
    let hedge = Rules { attempts: Some(32), hedge: Some(ms(20)), ..base };
    assert_eq!(rules(&client, "hedge"), hedge, "hedges are 32 at the most");
}

#[test]
fn plan_attempt_timeout_sets_timeout_action() {
    let after = AttemptTimeout::after(ms(250));
    let timed_out = |timeout, service: &str| {
        let client = ClientOptions::builder().attempt_timeout(timeout).build();
        let rules = rules(&client, service);
        (rules.attempt_timeout, rules.attempt_timeout_action)
    };
    let timeout = Some(ms(250));
    // `retry` lists DEADLINE_EXCEEDED, the others do not.
    assert_eq!(timed_out(after.retryable(), "retry"), (timeout, AttemptTimeoutAction::Retry));
    assert_eq!(timed_out(after, "retry"), (timeout, AttemptTimeoutAction::Fail { drains: true }));
    for service in ["hedge", "none", "unknown"] {
        let fails = AttemptTimeoutAction::Fail { drains: false };
        assert_eq!(timed_out(after.retryable(), service), (timeout, fails), "{service}");
    }
    // The deadline of `none` is 2 s: an attempt timeout at or above it never fires.
    for (timeout, reached) in [(ms(1_999), Some(ms(1_999))), (s(2), None), (s(3), None)] {
        assert_eq!(timed_out(AttemptTimeout::after(timeout), "none").0, reached);
    }
    let (layer, call) = (AttemptTimeout::after(s(1)).retryable(), AttemptTimeout::after(ms(9)));
    let client = ClientOptions::builder().attempt_timeout(layer).build();
    let own = plan(&client, "retry").with_attempt_timeout(call);
    assert_eq!(own.policy().rules().attempt_timeout, Some(ms(9)));
    assert_eq!(
        own.policy().rules().attempt_timeout_action,
        AttemptTimeoutAction::Fail { drains: true }
    );
}

#[test]
fn plan_with_retries_off_keeps_deadline() {
    for (retries, transparent_retries) in [(Retries::Transparent, true), (Retries::Off, false)] {
        let client = ClientOptions::builder().retries(retries).build();
        let plan = plan(&client, "retry");
        let expected = Rules { deadline: Some(s(9)), transparent_retries, ..BASE };
        assert_eq!(*plan.policy().rules(), expected);
        assert!(plan.codes().is_empty() && !plan.is_hedged());
        assert_eq!(plan.retries(), retries);
        assert_eq!(plan.classify(Code::Unavailable, Pushback::None).directive, Directive::Fail);
    }
}

#[test]
fn client_options_reject_zero_attempts_and_bad_jitter() {
    let build = |builder: redial_service_config::ClientOptionsBuilder| builder.try_build().err();
    assert_eq!(build(ClientOptions::builder().attempts_cap(0)), Some(PolicyError::NoAttempt));
    for share in [-0.1, 1.1, f64::NAN] {
        let builder = ClientOptions::builder().jitter(Jitter::Proportional(share));
        assert_eq!(build(builder), Some(PolicyError::Proportion), "{share}");
    }
    assert_eq!(
        build(ClientOptions::builder().attempts_cap(1).jitter(Jitter::Proportional(1.0))),
        None
    );
    assert_eq!(ClientOptions::default(), ClientOptions::builder().build());
    assert_eq!(ClientOptions::default().to_builder().build(), ClientOptions::default());
}

#[test]
fn plan_tolerates_out_of_range_client_fields() {
    for share in [-7.0, 7.0, f64::NAN, f64::INFINITY] {
        let mut client = ClientOptions::default();
        client.attempts_cap = 0;
        client.jitter = Jitter::Proportional(share);
        for service in ["retry", "hedge", "none"] {
            assert_eq!(rules(&client, service).attempts, Some(1));
        }
    }
}

#[test]
fn plan_classifies_each_status_by_listed_codes() {
    let plan = plan(&ClientOptions::default(), "retry");
    let listed =
        |code: Code, kind: FailureKind| Failure::new(kind).because(Reason::new(code.name()));
    for code in Code::ALL {
        let retry = |kind| Directive::Retry(listed(code, kind));
        let directive = match code {
            Code::Ok => Directive::Succeed,
            Code::Unavailable => retry(FailureKind::Server),
            Code::ResourceExhausted => retry(FailureKind::Throttling),
            Code::DeadlineExceeded => retry(FailureKind::Timeout),
            _ => Directive::Fail,
        };
        assert_eq!(plan.classify(code, Pushback::None), Classification::from(directive), "{code}");
        let stopped = plan.classify(code, Pushback::Stop);
        let after = plan.classify(code, Pushback::After(ms(7)));
        match directive {
            Directive::Retry(failure) => {
                assert_eq!(stopped, Directive::Retry(failure.hint(Hint::Stop)).into());
                assert_eq!(after, Directive::Retry(failure.hint(Hint::After(ms(7)))).into());
            }
            // Listed codes drain anyway; `drains` is set for unlisted codes only (G13).
            Directive::Fail => {
                assert_eq!(stopped, Classification { drains: true, ..Directive::Fail.into() });
                assert_eq!(after, Directive::Fail.into());
            }
            Directive::Succeed => {
                assert_eq!((stopped, after), (directive.into(), directive.into()), "G10");
            }
        }
    }
}

#[test]
fn plan_classifies_lost_attempts_as_unavailable_with_proof() {
    let plan = plan(&ClientOptions::default(), "retry");
    let failure = Failure::server().because(Reason::new("UNAVAILABLE"));
    let lost = |stage: Stage, proof: Option<Proof>| Classification {
        directive: Directive::Retry(failure.at(stage)),
        proof,
        drains: false,
    };
    assert_eq!(plan.unsent(), lost(Stage::Unsent, Some(Proof::Unsent)));
    assert_eq!(plan.unprocessed(), lost(Stage::InFlight, Some(Proof::Unprocessed)));
    assert_eq!(plan.unconnected(), lost(Stage::Unsent, None));
    let none = ClientOptions::default().plan(None);
    let fails = |proof| Classification { directive: Directive::Fail, proof, drains: false };
    assert_eq!(none.unsent(), fails(Some(Proof::Unsent)));
    assert_eq!(none.unconnected(), fails(None));
}

#[test]
fn plan_wait_for_ready_comes_from_config() {
    assert!(plan(&ClientOptions::default(), "hedge").waits_for_ready());
    assert!(!plan(&ClientOptions::default(), "retry").waits_for_ready());
    assert!(!ClientOptions::default().plan(None).waits_for_ready());
}

#[test]
fn plan_transparent_retries_are_limited_to_a_thousand() {
    let plan = ClientOptions::default().plan(None);
    let policy = plan.to_policy(None);
    let attempts = |unsent: usize| vec![classified_as(plan.unsent()); unsent];
    let played = play(&policy, attempts(1001));
    assert_eq!(
        (played.starts().len(), played.stop_reason()),
        (1001, Some(StopReason::NotRetryable))
    );
    let mut enough = attempts(1000);
    enough.push(classified_as(plan.classify(Code::Ok, Pushback::None)));
    assert_eq!(play(&policy, enough).stop_reason(), Some(StopReason::Succeeded));
}

#[test]
fn plan_uses_the_given_throttle() {
    let busy = |plan: &Plan| classified_as(plan.classify(Code::Unavailable, Pushback::None));
    let tokens = Arc::new(RetryThrottling::new(4, 500).unwrap().tokens());
    let retry = plan(&ClientOptions::default(), "retry");
    let played = play(&retry.to_policy(Some(tokens.clone())), [busy(&retry), busy(&retry)]);
    assert_eq!((played.stop_reason(), played.tokens()), (Some(StopReason::Throttled), Some(2.0)));
    // With retries off the tokens are visible but do not change.
    let off = ClientOptions::builder().retries(Retries::Off).build();
    let off = plan(&off, "retry");
    let stop = classified_as(off.classify(Code::Unavailable, Pushback::Stop));
    let played = play(&off.to_policy(Some(tokens.clone())), [stop]);
    assert_eq!(
        (played.stop_reason(), played.tokens()),
        (Some(StopReason::NotRetryable), Some(2.0))
    );
    let ok = classified_as(off.classify(Code::Ok, Pushback::None));
    assert_eq!(play(&off.to_policy(Some(tokens.clone())), [ok]).tokens(), Some(2.0));
    assert_eq!(tokens.tokens(0), Some(2.0));
}

#[test]
fn plan_accepts_every_valid_duration() {
    let text = |span: &str| {
        format!(
            r#"{{"methodConfig": [{{"name": [{{}}], "timeout": "{span}", "retryPolicy": {{"maxAttempts": 1e9, "initialBackoff": "{span}", "maxBackoff": "{span}", "backoffMultiplier": 1e400, "retryableStatusCodes": [14]}}}}]}}"#
        )
    };
    for span in ["0.000000001s", "1s", "315576000000s"] {
        let config = ServiceConfig::parse(&text(span)).expect("it is valid");
        let entry: &MethodConfig = &config.entries()[0];
        assert!(entry.timeout > Some(Duration::ZERO));
        let plan = ClientOptions::default().plan(Some(entry));
        let busy = classified_as(plan.classify(Code::Unavailable, Pushback::None));
        let played = play(&plan.to_policy(None), vec![busy; 5]);
        // A delay of more than 584 years never elapses.
        let ends = span != "315576000000s";
        assert_eq!(played.stop_reason().is_some(), ends, "{span}");
    }
}
