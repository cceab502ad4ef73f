//! Policies in JSON and TOML: values, exact error messages with line and column, and round trips of random
//! policies. The format itself is in `config_format.rs`.
#![cfg(feature = "serde")]

use std::time::Duration;

use proptest::prelude::*;
use redial::config::{
    AnyPolicy, BackoffConfig, HedgeConfig, HintMaxConfig, LoadError, NotWritableError,
    PolicyWarning, ThrottleConfig,
};
use redial::throttle::CostOptions;
use redial::{
    Hedged, Jitter, Policy, PolicyError,
    config::{self, PolicyConfig},
    ms,
    rules::{
        AttemptTimeoutAction, Backoff, DeadlineAction, HintRule, LastDelayAction, LimitBasis,
        Limits, OverLimitAction, Rules,
    },
    s,
};

fn policy(text: &str) -> Policy {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The error of a policy in JSON.
fn mistake(text: &str) -> String {
    serde_json::from_str::<Policy>(text).expect_err(text).to_string()
}

#[test]
fn config_empty_policy_has_the_documented_defaults() {
    let policy = policy("{}");
    assert_eq!(*policy.rules(), Rules::DEFAULT);
    assert_eq!(policy.tokens(0), Some(10.0));
    assert_eq!(serde_json::from_str::<PolicyConfig>("{}").unwrap(), PolicyConfig::default());
}

#[test]
fn config_every_field_is_read() {
    let policy = policy(
        r#"{ "attempts": 4,
             "backoff": { "exponential": { "first": "100ms", "factor": 1.5, "cap": "20s" } },
             "jitter": { "proportional": 0.2 },
             "limits": { "soft": "1s", "hard": "2s", "over": "truncate", "under": "fill", "measure": "elapsed" },
             "deadline": "5s",
             "attempt_timeout": "1s",
             "late": "wait",
             "hint_max": "30s",
             "hint_jitter": 0.1,
             "reset_after": "1m",
             "name": "fetch",
             "throttle": "none" }"#,
    );
    let expected = Rules {
        attempts: Some(4),
        backoff: redial::rules::Backoff::Exponential {
            first: ms(100),
            factor: 1.5,
            cap: Some(s(20)),
        },
        jitter: Jitter::Proportional(0.2),
        limits: Limits {
            soft: Some(s(1)),
            hard: Some(s(2)),
            over_limit_action: OverLimitAction::TruncateDelay,
            last_delay_action: LastDelayAction::ExtendToLimit,
            basis: LimitBasis::Elapsed,
        },
        deadline: Some(s(5)),
        attempt_timeout: Some(s(1)),
        deadline_action: DeadlineAction::WaitForDeadline,
        attempt_timeout_action: AttemptTimeoutAction::Retry,
        hint: HintRule::UpTo(s(30)),
        hint_jitter: 0.1,
        reset_after: Some(s(60)),
        ..Rules::DEFAULT
    };
    assert_eq!(*policy.rules(), expected);
    assert_eq!(policy.name().to_string(), "fetch");
    assert_eq!(policy.tokens(0), None);
}

#[test]
fn config_toml_is_equivalent_to_json() {
    let policy: Policy = toml::from_str(
        r#"
        attempts = "unlimited"
        deadline = "1m30s"
        jitter = "decorrelated"
        throttle.budget = { reserve = 3, ratio = 0.5 }

        [backoff.arithmetic]
        first = "5ms"
        step = "10ms"
        cap = "1s"
        "#,
    )
    .unwrap();
    let rules = policy.rules();
    assert_eq!((rules.attempts, rules.deadline), (None, Some(s(90))));
    assert_eq!(rules.jitter, Jitter::Decorrelated);
    let arithmetic =
        redial::rules::Backoff::Arithmetic { first: ms(5), step: ms(10), cap: Some(s(1)) };
    assert_eq!(rules.backoff, arithmetic);
    assert_eq!(policy.tokens(0), Some(3.0));
}

#[test]
fn config_jitter_left_out_depends_on_the_backoff() {
    let exponential = r#"{ "exponential": { "first": "1ms", "factor": 2 } }"#;
    let arithmetic = r#"{ "arithmetic": { "first": "1ms", "step": "1ms" } }"#;
    let cases = [
        (r#"{ "constant": "1ms" }"#, Jitter::None),
        (r#"{ "table": ["1ms", "10ms"] }"#, Jitter::None),
        (exponential, Jitter::Full),
        (arithmetic, Jitter::Full),
    ];
    for (backoff, default) in cases {
        let config = |jitter: &str| -> PolicyConfig {
            let text = format!(r#"{{ "backoff": {backoff}{jitter} }}"#);
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let left_out = config("");
        assert_eq!(left_out.jitter, None);
        assert_eq!(left_out.policy().unwrap().rules().jitter, default, "{backoff}");
        let json = serde_json::to_string(&left_out).unwrap();
        assert!(!json.contains("jitter"), "{json}");
        let again: PolicyConfig = serde_json::from_str(&json).unwrap();
        assert_eq!(again.policy().unwrap().rules(), left_out.policy().unwrap().rules());
        for (name, jitter) in [("full", Jitter::Full), ("none", Jitter::None)] {
            let written = config(&format!(r#", "jitter": "{name}""#));
            assert_eq!(written.policy().unwrap().rules().jitter, jitter, "{backoff}");
            assert!(serde_json::to_string(&written).unwrap().contains(name));
        }
    }
    let null = mistake(r#"{"jitter": null}"#);
    assert!(null.starts_with("invalid type: null, expected a jitter like"), "{null}");
}

#[test]
fn config_table_is_owned_by_the_policy() {
    let policy = policy(r#"{ "backoff": { "table": ["1ms", "10ms"] } }"#);
    assert_eq!(policy.core().table(), Some(&[ms(1), ms(10)][..]));
}

#[test]
fn config_throttle_defaults() {
    let tokens = |throttle: &str| policy(&format!(r#"{{"throttle": {throttle}}}"#)).tokens(0);
    assert_eq!(tokens(r#""none""#), None);
    assert_eq!(tokens(r#"{"tokens": {"max": 8, "ratio": 0.1}}"#), Some(8.0));
    assert_eq!(tokens(r#"{"budget": {}}"#), Some(10.0));
    assert_eq!(tokens(r#"{"budget": {"reserve": 2}}"#), Some(2.0));
    assert_eq!(tokens(r#"{"cost": {}}"#), Some(500.0));
    assert_eq!(tokens(r#"{"cost": {"capacity": 20, "costs": {"server": 7}}}"#), Some(20.0));
}

#[test]
fn config_loaded_policy_shares_its_budget_with_clones() {
    // Section B of the decisions: a loaded policy owns its budget.
    let (one, other) = (policy("{}"), policy("{}"));
    let clone = one.clone();
    let _ = one.retry(|| Err::<(), _>("down")).when(|_| true).call();
    // Two retries, and the refill between them.
    assert!(clone.tokens(0).is_some_and(|tokens| (8.0..9.0).contains(&tokens)), "{clone:?}");
    assert_eq!(other.tokens(0), Some(10.0));
}

#[test]
fn config_hedge_makes_a_hedged_policy() {
    let text = r#"{ "hedge": { "delay": "20ms" }, "attempts": 2 }"#;
    let hedged: Hedged = serde_json::from_str(text).unwrap();
    assert_eq!(hedged.rules().hedge, Some(ms(20)));
    // Without a delay, all attempts start at once (decision G16).
    let at_once: Hedged = serde_json::from_str(r#"{ "hedge": {} }"#).unwrap();
    assert_eq!(at_once.rules().hedge, Some(ms(0)));
    let written: PolicyConfig = serde_json::from_str(text).unwrap();
    assert!(matches!(written.load(), Ok(AnyPolicy::Hedged(_))));
    assert_eq!(written.policy().unwrap_err(), LoadError::IsHedged);
    assert_eq!(
        mistake(text),
        "hedge: makes this a hedged policy; load it as `redial::Hedged` at line 1 column 47"
    );
    assert_eq!(
        serde_json::from_str::<Hedged>("{}").unwrap_err().to_string(),
        "hedge: a hedged policy needs hedge.delay; add it, or load this as `redial::Policy` at line 1 column 2"
    );
}

#[test]
fn config_hedge_with_limits_is_refused() {
    let written: PolicyConfig =
        serde_json::from_str(r#"{ "hedge": { "delay": "20ms" }, "limits": {} }"#).unwrap();
    assert_eq!(written.hedged().unwrap_err(), LoadError::PolicyError(PolicyError::HedgeWithLimits));
}

/// In scenario files, one line switches a policy between retries and hedging.
#[test]
fn config_hedge_refuses_what_it_cannot_keep() {
    for (key, error) in [
        (r#""attempts": "forever""#, PolicyError::HedgeForever),
        (r#""hint_jitter": 0.1"#, PolicyError::HedgeWithHintJitter),
        (r#""reset_after": "1s""#, PolicyError::HedgeWithReset),
    ] {
        let text = format!(r#"{{ "hedge": {{ "delay": "20ms" }}, {key} }}"#);
        let written: PolicyConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(written.load().unwrap_err(), LoadError::PolicyError(error), "{key}");
    }
}

#[test]
fn config_hedge_follows_retry_timeouts() {
    for (key, action) in [
        ("", AttemptTimeoutAction::Retry),
        (r#", "retry_timeouts": true"#, AttemptTimeoutAction::Retry),
        (r#", "retry_timeouts": false"#, AttemptTimeoutAction::Stop),
    ] {
        let text = format!(r#"{{ "hedge": {{ "delay": "9ms" }}, "attempt_timeout": "1s"{key} }}"#);
        let policy: Hedged = serde_json::from_str(&text).unwrap();
        assert_eq!(policy.rules().attempt_timeout_action, action, "{key}");
        let again: Hedged = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        assert_eq!(again.rules(), policy.rules(), "{key}");
    }
}

#[test]
fn config_removing_hedge_restores_the_backoff() {
    let text =
        r#"{ "backoff": { "constant": "7ms" }, "jitter": "none", "hedge": { "delay": "5ms" } }"#;
    let mut written: PolicyConfig = serde_json::from_str(text).unwrap();
    assert_eq!(written.hedged().unwrap().rules().hedge, Some(ms(5)));
    written.hedge = None;
    assert_eq!(written.policy().unwrap().rules().backoff, redial::rules::Backoff::Constant(ms(7)));
}

#[test]
fn config_choice_errors_show_an_example() {
    let backoff = r#"expected a backoff like {"constant": "250ms"} at line 1 column "#;
    let throttle =
        r#"expected a throttle like "none" or {"budget": {"reserve": 10}} at line 1 column "#;
    let jitter = r#"expected a jitter like "full" or {"proportional": 0.2} at line 1 column "#;
    let hedge = r#"expected a hedge like {"delay": "20ms"} at line 1 column "#;
    let cases = [
        (r#"{"backoff": "exponential"}"#, r#"invalid value: string "exponential", "#, backoff),
        (r#"{"backoff": {}}"#, "invalid value: an empty object, ", backoff),
        (r#"{"backoff": null}"#, "invalid type: null, ", backoff),
        (r#"{"backoff": {"constant": "1s", "table": []}}"#, "invalid length 2, ", backoff),
        (r#"{"throttle": "budget"}"#, r#"invalid value: string "budget", "#, throttle),
        (r#"{"throttle": 7}"#, "invalid type: integer `7`, ", throttle),
        (r#"{"jitter": "proportional"}"#, r#"invalid value: string "proportional", "#, jitter),
        (r#"{"jitter": {}}"#, "invalid value: an empty object, ", jitter),
        (r#"{"hedge": "20ms"}"#, r#"invalid type: string "20ms", "#, hedge),
    ];
    for (text, found, expected) in cases {
        let said = mistake(text);
        assert!(said.starts_with(&format!("{found}{expected}")), "{text}: {said}");
    }
    for text in
        [r#"{"backoff": {"wrong": "1s"}}"#, r#"{"backoff": "wrong"}"#, r#"{"jitter": "wrong"}"#]
    {
        assert!(mistake(text).starts_with("unknown variant `wrong`, expected one of `"), "{text}");
    }
    assert_eq!(policy(r#"{"throttle": null}"#).tokens(0), Some(10.0));
    assert_eq!(toml::from_str::<Policy>("throttle = 'none'").unwrap().tokens(0), None);
    let json = serde_json::json!({"throttle": {"budget": {"reserve": 4}}});
    assert_eq!(serde_json::from_value::<Policy>(json).unwrap().tokens(0), Some(4.0));
}

#[test]
fn config_object_errors_show_an_example() {
    let cases = [
        (
            r#"{"backoff": {"exponential": "100ms"}}"#,
            r#"string "100ms", expected a backoff like {"exponential": {"first": "100ms", "factor": 2}}"#,
        ),
        (
            r#"{"backoff": {"arithmetic": 5}}"#,
            r#"integer `5`, expected a backoff like {"exponential": {"first": "100ms", "factor": 2}}"#,
        ),
        (
            r#"{"throttle": {"budget": 10}}"#,
            r#"integer `10`, expected a throttle like {"budget": {"reserve": 10}}"#,
        ),
        (
            r#"{"throttle": {"tokens": 10}}"#,
            r#"integer `10`, expected a throttle like {"budget": {"reserve": 10}}"#,
        ),
        (r#"{"limits": "5s"}"#, r#"string "5s", expected limits like {"hard": "5s"}"#),
    ];
    for (text, said) in cases {
        assert!(mistake(text).starts_with(&format!("invalid type: {said} at line 1")), "{text}");
    }
}

#[test]
fn config_longest_durations_are_kept() {
    // A call can last about 584 years at most (P2).
    let text = r#"{ "backoff": { "constant": "1000000d" }, "deadline": "2000000d" }"#;
    let written: PolicyConfig = serde_json::from_str(text).unwrap();
    assert_eq!(written.deadline, Some(Duration::from_secs(2_000_000 * 86_400)));
    let rules = *written.policy().unwrap().rules();
    assert_eq!(rules.deadline, Some(Duration::from_secs(2_000_000 * 86_400)));
    assert!(serde_json::to_string(&written).unwrap().contains("\"2000000d\""));
}

#[test]
fn config_errors_have_line_column_and_expectation() {
    for (text, error) in [
        (
            "{ \"attempts\": 3,\n  \"atempts\": 3 }",
            "unknown field `atempts`, expected one of `preset`, `name`, `attempts`, `backoff`, `jitter`, `limits`, `deadline`, `attempt_timeout`, `retry_timeouts`, `late`, `hint_max`, `hint_jitter`, `reset_after`, `throttle`, `hedge` at line 2 column 11",
        ),
        (
            r#"{ "attempts": -1 }"#,
            "invalid value: integer `-1`, expected attempts as a number from 1 to 4294967295, \"unlimited\" or \"forever\" at line 1 column 16",
        ),
        (
            r#"{ "attempts": "many" }"#,
            "invalid value: string \"many\", expected attempts as a number from 1 to 4294967295, \"unlimited\" or \"forever\" at line 1 column 20",
        ),
        (
            r#"{ "deadline": 5 }"#,
            "invalid type: integer `5`, expected a duration like \"250ms\" or \"1.5s\" at line 1 column 15",
        ),
        (
            r#"{ "deadline": "5" }"#,
            "\"5\" is not a duration: the unit must be one of ns, us, ms, s, m, h, d; write it like \"250ms\" or \"1.5s\" at line 1 column 17",
        ),
        (
            r#"{ "backoff": { "constantly": "5ms" } }"#,
            "unknown variant `constantly`, expected one of `constant`, `arithmetic`, `exponential`, `fibonacci`, `table` at line 1 column 27",
        ),
        (
            r#"{ "backoff": { "exponential": { "first": "5ms" } } }"#,
            "missing field `factor` at line 1 column 48",
        ),
        (
            r#"{ "jitter": "some" }"#,
            "unknown variant `some`, expected one of `none`, `full`, `half`, `equal`, `proportional`, `decorrelated` at line 1 column 18",
        ),
        (
            r#"{ "throttle": { "cost": { "empty": "wait" } } }"#,
            "unknown field `empty`, expected one of `capacity`, `costs`, `success`, `refill_per_second` at line 1 column 33",
        ),
        (
            r#"{ "preset": "limit" }"#,
            "invalid value: string \"limit\", expected the name of a preset: \"limits\" at line 1 column 19",
        ),
        (
            r#"{ "hint_max": 5 }"#,
            "invalid type: integer `5`, expected a longest hint like \"60s\", {\"clamp\": \"60s\"} or \"unlimited\" at line 1 column 15",
        ),
        (
            r#"{ "hint_max": { "cap": "5s" } }"#,
            "unknown field `cap`, expected `clamp` at line 1 column 21",
        ),
        ("[]", "invalid type: sequence, expected a policy at line 1 column 0"),
    ] {
        assert_eq!(mistake(text), error, "{text}");
    }
}

#[test]
fn config_contradictions_name_the_field_and_the_fix() {
    for (text, field, problem) in [
        (r#"{"attempts": 0}"#, "attempts", PolicyError::NoAttempt),
        (r#"{"attempts": "unlimited"}"#, "attempts", PolicyError::Unlimited),
        (
            r#"{"backoff": {"exponential": {"first": "1ms", "factor": 0}}}"#,
            "backoff.exponential.factor",
            PolicyError::Factor,
        ),
        (r#"{"backoff": {"table": []}}"#, "backoff.table", PolicyError::EmptyTable),
        (r#"{"jitter": {"proportional": 1.1}}"#, "jitter.proportional", PolicyError::Proportion),
        (r#"{"limits": {"soft": "0s"}}"#, "limits", PolicyError::LimitOfZero),
        (r#"{"limits": {"soft": "2s", "hard": "1s"}}"#, "limits.soft", PolicyError::SoftAboveHard),
        (
            r#"{"limits": {"soft": "2s", "under": "fill"}}"#,
            "limits.under",
            PolicyError::FillWithoutHard,
        ),
        (r#"{"limits": {"over": "truncate"}}"#, "limits.over", PolicyError::TruncateWithoutHard),
        (
            r#"{"deadline": "1s", "attempt_timeout": "1s"}"#,
            "attempt_timeout",
            PolicyError::AttemptTimeout,
        ),
        (
            r#"{"throttle": {"budget": {"reserve": 0.5}}}"#,
            "throttle.budget.reserve",
            PolicyError::Reserve,
        ),
        (
            r#"{"throttle": {"tokens": {"max": 0, "ratio": 1}}}"#,
            "throttle.tokens.max",
            PolicyError::MaxTokens,
        ),
        (
            r#"{"throttle": {"cost": {"capacity": 4, "costs": {"timeout": 5}}}}"#,
            "throttle.cost.costs",
            PolicyError::CostAboveCapacity,
        ),
    ] {
        let written: PolicyConfig = serde_json::from_str(text).unwrap();
        let error = written.load().unwrap_err();
        assert_eq!(error, LoadError::PolicyError(problem), "{text}");
        assert_eq!(error.field(), field);
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("{field}: ")), "{shown}");
        assert!(mistake(text).starts_with(&shown), "{text}");
        assert!(mistake(text).ends_with(&format!("at line 1 column {}", text.len())), "{text}");
    }
}

#[test]
fn config_toml_errors_have_a_line() {
    let text = "attempts = 3\ndeadline = \"soon\"\n";
    let error = toml::from_str::<Policy>(text).unwrap_err().to_string();
    assert!(error.contains("line 2, column 12"), "{error}");
    assert!(error.contains("\"soon\" is not a duration: a number must come first"), "{error}");
    let error = toml::from_str::<Policy>("attempts = 0").unwrap_err().to_string();
    assert!(error.contains("attempts: 0 would never try; write 1 for a single attempt"), "{error}");
}

#[test]
fn config_cost_bucket_fails_instead_of_waiting() {
    // The retry is charged at the decision, and refused if the bucket is empty (S9).
    let cost = config::CostConfig {
        capacity: Some(10.0),
        costs: CostOptions { server: Some(10.0), ..CostOptions::default() },
        ..config::CostConfig::default()
    };
    let mut written = PolicyConfig::default();
    written.throttle = Some(ThrottleConfig::Cost(cost));
    written.backoff = BackoffConfig::Constant(Duration::ZERO);
    let policy = written.policy().unwrap();
    let error = policy.retry(|| Err::<(), _>("down")).when(|_| true).call().unwrap_err();
    assert_eq!((error.attempts(), error.is_throttled()), (2, true));
}

#[test]
fn config_attempt_timeout_is_retried_unless_it_says_otherwise() {
    let action = |keys: &str| policy(&format!("{{{keys}}}")).rules().attempt_timeout_action;
    assert_eq!(action(r#""attempt_timeout": "1s""#), AttemptTimeoutAction::Retry);
    let stops = r#""attempt_timeout": "1s", "retry_timeouts": false"#;
    assert_eq!(action(stops), AttemptTimeoutAction::Stop);
    // For calls that set a timeout.
    assert_eq!(action(""), AttemptTimeoutAction::Stop);
    assert_eq!(action(r#""retry_timeouts": true"#), AttemptTimeoutAction::Retry);
}

#[test]
fn config_preset_supplies_the_absent_keys() {
    let preset = |keys: &str| policy(&format!(r#"{{"preset": "limits"{keys}}}"#));
    let limits = redial::presets::Preset::Limits.policy().unwrap();
    assert_eq!(preset("").rules(), limits.rules());
    assert_eq!(preset("").tokens(0), None, "the preset has no throttle");
    let changed = preset(r#", "attempts": 2, "deadline": "5s", "throttle": {"budget": {}}"#);
    let expected = Rules { attempts: Some(2), deadline: Some(s(5)), ..*limits.rules() };
    assert_eq!((*changed.rules(), changed.tokens(0)), (expected, Some(10.0)));
    let backoff = preset(r#", "backoff": {"constant": "7ms"}"#);
    assert_eq!(backoff.rules().backoff, Backoff::Constant(ms(7)));
    assert_eq!(backoff.rules().jitter, Jitter::None, "the preset's jitter is of its backoff");
    // A preset is written with all of its settings.
    let config: PolicyConfig = serde_json::from_str(r#"{"preset": "limits"}"#).unwrap();
    let again: PolicyConfig =
        serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
}

#[test]
fn config_forever_needs_delays_that_do_not_fade() {
    for backoff in [
        r#"{ "constant": "0s" }"#,
        r#"{ "exponential": { "first": "0s", "factor": 2 } }"#,
        r#"{ "exponential": { "first": "1ms", "factor": 0.5 } }"#,
        r#"{ "exponential": { "first": "1ms", "factor": 2, "cap": "0s" } }"#,
        r#"{ "fibonacci": { "first": "0s" } }"#,
        r#"{ "arithmetic": { "first": "0s", "step": "0s" } }"#,
        r#"{ "table": ["0s"] }"#,
        r#"{ "table": ["1s", "0s"] }"#,
    ] {
        let text = format!(r#"{{ "attempts": "forever", "backoff": {backoff} }}"#);
        let written: PolicyConfig = serde_json::from_str(&text).unwrap();
        let refused = LoadError::PolicyError(PolicyError::ForeverWithoutDelay);
        assert_eq!(written.load().unwrap_err(), refused, "{backoff}");
        // With a throttle by name, "none" included, it is meant; it is written back with that name.
        for throttle in [r#""none""#, r#"{ "budget": { "reserve": 5, "per_second": 1 } }"#] {
            let text = format!(
                r#"{{ "attempts": "forever", "backoff": {backoff}, "throttle": {throttle} }}"#
            );
            let meant = policy(&text);
            let again = PolicyConfig::of(&meant).unwrap().policy().unwrap();
            assert_eq!((again.rules(), again.tokens(0)), (meant.rules(), meant.tokens(0)));
        }
    }
    for backoff in
        [r#"{ "table": ["0s", "1s"] }"#, r#"{ "arithmetic": { "first": "0s", "step": "1s" } }"#]
    {
        policy(&format!(r#"{{ "attempts": "forever", "backoff": {backoff} }}"#));
    }
}

#[test]
fn config_warns_of_forever_without_refill_and_zero_timeout() {
    let warnings = |text: &str| {
        let config: PolicyConfig = serde_json::from_str(text).unwrap();
        config.load().expect("valid");
        config.warnings()
    };
    let budget = |keys: &str| {
        warnings(&format!(r#"{{ "attempts": "forever", "throttle": {{ "budget": {keys} }} }}"#))
    };
    let reserve = PolicyWarning::ForeverWithoutRefill { reserve: 5.5 };
    assert_eq!(budget(r#"{ "reserve": 5.5 }"#), [reserve]);
    assert_eq!(budget(r#"{ "reserve": 5.5, "per_second": 0.5 }"#), []);
    assert_eq!(
        reserve.to_string(),
        "attempts without end, but the budget pays for 5 retries and has no refill while calls fail"
    );
    assert_eq!(warnings(r#"{ "attempt_timeout": "0s" }"#), [PolicyWarning::AttemptTimeoutZero]);
    assert_eq!(warnings(r#"{ "attempt_timeout": "1ns" }"#), []);
    // A budget without a refill over time is one design of several.
    assert_eq!(warnings(r#"{ "throttle": { "budget": { "reserve": 5 } } }"#), []);
}

/// Exactly what the builder refuses.
#[test]
fn config_warnings_begin_where_a_setting_has_no_effect() {
    let warnings = |text: &str| {
        let config: PolicyConfig = serde_json::from_str(text).unwrap();
        config.load().expect("valid");
        config.warnings().iter().map(PolicyWarning::field).collect::<Vec<_>>()
    };
    for (backoff, warned) in [
        (r#"{ "exponential": { "first": "1s", "factor": 2, "cap": "1s" } }"#, false),
        (r#"{ "exponential": { "first": "1001ms", "factor": 2, "cap": "1s" } }"#, true),
        (r#"{ "arithmetic": { "first": "2s", "step": "1s", "cap": "1s" } }"#, true),
        (r#"{ "exponential": { "first": "60s", "factor": 2 } }"#, false),
        (r#"{ "constant": "60s" }"#, false),
    ] {
        let expected: &[&str] = if warned { &["backoff"] } else { &[] };
        assert_eq!(warnings(&format!(r#"{{ "backoff": {backoff} }}"#)), expected, "{backoff}");
    }
    let hedged = r#""hedge": {}, "backoff": { "fibonacci": { "first": "2s", "cap": "1s" } }"#;
    assert!(warnings(&format!("{{ {hedged} }}")).is_empty(), "backoff is ignored beside it");
    for (keys, warned) in [
        (r#""attempts": 6, "throttle": { "budget": { "reserve": 5 } }"#, false),
        (r#""attempts": 7, "throttle": { "budget": { "reserve": 5 } }"#, true),
        (r#""attempts": 7, "throttle": { "budget": { "reserve": 5, "per_second": 1 } }"#, false),
        (r#""attempts": 100"#, false),
    ] {
        let expected: &[&str] = if warned { &["attempts"] } else { &[] };
        assert_eq!(warnings(&format!("{{ {keys} }}")), expected, "{keys}");
    }
}

#[test]
fn config_of_a_policy_that_cannot_be_written() {
    let of = |policy: &Policy| PolicyConfig::of(policy).unwrap_err();
    let function = Policy::constant(ms(1)).try_build_with(|_| ms(1)).unwrap();
    assert_eq!(of(&function), NotWritableError::BackoffFunction);
    let asked = Policy::constant(ms(1)).try_build().unwrap();
    let asked = asked
        .with_strategy(|_: &redial::strategy::Request<'_>| redial::strategy::Decision::Decline);
    assert_eq!(of(&asked.unwrap()), NotWritableError::Strategy);
    let shared = policy(r#"{"throttle": {"tokens": {"max": 10, "ratio": 0.1}}}"#);
    assert_eq!(of(&shared), NotWritableError::Throttle);
    assert_eq!(
        serde_json::to_string(&shared).unwrap_err().to_string(),
        "throttle: only a retry budget or none can be written back"
    );
    let foreign = [
        Rules { hint: HintRule::Within(s(5)), ..Rules::DEFAULT },
        Rules { transparent_retries: true, ..Rules::DEFAULT },
        Rules {
            attempt_timeout: Some(s(1)),
            attempt_timeout_action: AttemptTimeoutAction::EndCall,
            ..Rules::DEFAULT
        },
    ];
    for rules in foreign {
        let policy = Policy::from_rules(rules).try_build().unwrap();
        assert_eq!(of(&policy), NotWritableError::Rules, "{rules:?}");
    }
}

#[test]
fn config_of_a_policy_built_in_code_reads_back_equal() {
    static TABLE: [Duration; 2] = [ms(1), ms(5)];
    let policies = [
        Policy::exponential(ms(100)).attempt_timeout(s(1)),
        Policy::exponential(ms(100)).attempt_timeout(s(1)).retry_timeouts(),
        Policy::exponential(ms(100)).retry_timeouts(),
        Policy::fibonacci(ms(100)).forever().reset_after(s(60)).hint_clamp(s(5)),
        Policy::table(&TABLE).hint_unlimited().hint_jitter(0.5).name("table"),
        Policy::constant(ms(1)).hint_max(s(5)).unlimited().deadline(s(5)),
        redial::presets::limits(),
    ];
    for builder in policies {
        let policy = builder.try_build().unwrap();
        let json = serde_json::to_string(&policy).unwrap();
        let again = self::policy(&json);
        let with_table = Rules { backoff: policy.rules().backoff, ..*again.rules() };
        assert_eq!(with_table, *policy.rules(), "{json}");
        assert_eq!(again.core().table(), policy.core().table(), "{json}");
        assert_eq!(again.tokens(0), policy.tokens(0), "{json}");
    }
    let hedged = Policy::hedged(ms(20)).attempt_timeout(ms(50)).try_build().unwrap();
    let json = serde_json::to_string(&AnyPolicy::Hedged(hedged.clone())).unwrap();
    assert_eq!(serde_json::from_str::<Hedged>(&json).unwrap().rules(), hedged.rules(), "{json}");
    // Without a timeout too: a call may add one.
    let text = r#"{ "hedge": { "delay": "5ms" }, "retry_timeouts": false }"#;
    let stops: Hedged = serde_json::from_str(text).unwrap();
    let json = serde_json::to_string(&stops).unwrap();
    assert_eq!(serde_json::from_str::<Hedged>(&json).unwrap().rules(), stops.rules(), "{json}");
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0u64..10_000).prop_map(Duration::from_millis),
        (any::<u64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1.0, -10.0..1e9]
}

fn any_backoff() -> impl Strategy<Value = BackoffConfig> {
    let cap = || proptest::option::of(any_span());
    prop_oneof![
        any_span().prop_map(BackoffConfig::Constant),
        (any_span(), any_span(), cap()).prop_map(|(first, step, cap)| BackoffConfig::Arithmetic {
            first,
            step,
            cap
        }),
        (any_span(), any_number(), cap())
            .prop_map(|(first, factor, cap)| BackoffConfig::Exponential { first, factor, cap }),
        (any_span(), cap()).prop_map(|(first, cap)| BackoffConfig::Fibonacci { first, cap }),
        proptest::collection::vec(any_span(), 0..4).prop_map(BackoffConfig::Table),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Half),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        any_number().prop_map(Jitter::Proportional),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (
        proptest::option::of(any_span()),
        proptest::option::of(any_span()),
        prop_oneof![Just(OverLimitAction::Stop), Just(OverLimitAction::TruncateDelay)],
        prop_oneof![Just(LastDelayAction::Keep), Just(LastDelayAction::ExtendToLimit)],
        prop_oneof![Just(LimitBasis::TotalDelay), Just(LimitBasis::Elapsed)],
    )
        .prop_map(|(soft, hard, over_limit_action, last_delay_action, basis)| Limits {
            soft,
            hard,
            over_limit_action,
            last_delay_action,
            basis,
        })
}

fn any_throttle() -> impl Strategy<Value = ThrottleConfig> {
    let number = || proptest::option::of(any_number());
    let costs = (number(), number(), number(), number()).prop_map(
        |(server, client, throttling, timeout)| CostOptions { server, client, throttling, timeout },
    );
    prop_oneof![
        Just(ThrottleConfig::None),
        (any_number(), any_number()).prop_map(|(max, ratio)| ThrottleConfig::Tokens { max, ratio }),
        (any_number(), any_number(), any_number()).prop_map(|(reserve, ratio, per_second)| {
            ThrottleConfig::Budget { reserve, ratio, per_second }
        }),
        (number(), costs, number(), number()).prop_map(
            |(capacity, costs, success, refill_per_second)| {
                ThrottleConfig::Cost(config::CostConfig {
                    capacity,
                    costs,
                    success,
                    refill_per_second,
                })
            }
        ),
    ]
}

fn any_hint_max() -> impl Strategy<Value = HintMaxConfig> {
    prop_oneof![
        Just(HintMaxConfig::Unlimited),
        any_span().prop_map(HintMaxConfig::Stop),
        any_span().prop_map(HintMaxConfig::Clamp),
    ]
}

fn any_name_and_attempts() -> impl Strategy<Value = (Option<String>, Option<u32>, bool)> {
    let attempts = prop_oneof![
        any::<u32>().prop_map(|attempts| (Some(attempts), false)),
        any::<bool>().prop_map(|forever| (None, forever)),
    ];
    (proptest::option::of(".{0,8}"), attempts)
        .prop_map(|(name, (attempts, forever))| (name, attempts, forever))
}

prop_compose! {
    fn any_written()(
        (name, attempts, forever) in any_name_and_attempts(),
        backoff in any_backoff(),
        jitter in proptest::option::of(any_jitter()),
        limits in proptest::option::of(any_limits()),
        deadline in proptest::option::of(any_span()),
        (attempt_timeout, retry_timeouts) in (proptest::option::of(any_span()), any::<Option<bool>>()),
        (hint_max, hint_jitter) in (proptest::option::of(any_hint_max()), any_number()),
        reset_after in proptest::option::of(any_span()),
        late in prop_oneof![Just(DeadlineAction::FailFast), Just(DeadlineAction::WaitForDeadline)],
        throttle in proptest::option::of(any_throttle()),
        hedge in proptest::option::of(any_span().prop_map(|delay| HedgeConfig { delay })),
    ) -> PolicyConfig {
        let mut written = PolicyConfig::default();
        written.name = name;
        written.attempts = attempts;
        written.forever = forever;
        written.backoff = backoff;
        written.jitter = jitter;
        written.limits = limits;
        written.deadline = deadline;
        written.attempt_timeout = attempt_timeout;
        written.retry_timeouts = retry_timeouts;
        written.hint_max = hint_max;
        written.hint_jitter = hint_jitter;
        written.reset_after = reset_after;
        written.deadline_action = late;
        written.throttle = throttle;
        written.hedge = hedge;
        written
    }
}

proptest! {
    #[test]
    fn config_random_policies_round_trip(written in any_written()) {
        let json = serde_json::to_string(&written).unwrap();
        prop_assert_eq!(&serde_json::from_str::<PolicyConfig>(&json).unwrap(), &written, "{}", json);
        let toml = toml::to_string(&written).unwrap();
        prop_assert_eq!(&toml::from_str::<PolicyConfig>(&toml).unwrap(), &written, "{}", toml);
        // Every configuration gives a policy or an error that names its field.
        match written.load() {
            Ok(AnyPolicy::Policy(policy)) => {
                prop_assert_eq!(policy.rules().hedge, None);
                // A policy can be written back, unless its throttle is a token or cost bucket.
                match PolicyConfig::of(&policy) {
                    Ok(again) => {
                        let again = again.policy().unwrap();
                        prop_assert_eq!(again.rules(), policy.rules());
                        prop_assert_eq!(again.tokens(0), policy.tokens(0));
                        prop_assert_eq!(again.name().to_string(), policy.name().to_string());
                    }
                    Err(error) => prop_assert_eq!(error, NotWritableError::Throttle),
                }
            }
            Ok(AnyPolicy::Hedged(policy)) => prop_assert!(policy.rules().hedge.is_some()),
            Err(error) => prop_assert!(error.to_string().starts_with(&error.field())),
        }
    }

    #[test]
    fn config_random_text_never_panics(text in "[ -~]{0,40}", value in "[-0-9a-zµ. ]{0,12}") {
        let _ = serde_json::from_str::<Policy>(&text);
        let _ = serde_json::from_str::<Policy>(&format!("{{\"deadline\": {value:?}}}"));
        let _ = serde_json::from_str::<Policy>(&format!("{{\"attempts\": {value}}}"));
    }
}
