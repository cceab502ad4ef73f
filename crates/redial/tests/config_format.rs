//! The written form of a policy is a stable format: every key and every value of it, in JSON and in
//! TOML. A test here that fails means that files of users can no longer be read.
#![cfg(feature = "serde")]

use redial::config::{
    BackoffConfig, CostConfig, HedgeConfig, HintMaxConfig, PolicyConfig, ThrottleConfig,
};
use redial::rules::{DeadlineAction, LastDelayAction, LimitBasis, Limits, OverLimitAction};
use redial::throttle::CostOptions;
use redial::{Jitter, ms, s};

/// A constant backoff and otherwise the defaults, changed by `change`.
fn config(change: impl FnOnce(&mut PolicyConfig)) -> PolicyConfig {
    let mut config = PolicyConfig::default();
    config.backoff = BackoffConfig::Constant(ms(1));
    change(&mut config);
    config
}

/// Asserts both texts of a policy, and that reading each of them gives the policy back.
#[track_caller]
fn assert_format(config: &PolicyConfig, json: &str, toml: &str) {
    assert_eq!(serde_json::to_string(config).unwrap(), json);
    assert_eq!(serde_json::from_str::<PolicyConfig>(json).unwrap(), *config);
    assert_eq!(toml::to_string(config).unwrap(), toml);
    assert_eq!(toml::from_str::<PolicyConfig>(toml).unwrap(), *config);
}

#[test]
fn config_format_of_the_defaults() {
    assert_format(
        &PolicyConfig::default(),
        r#"{"attempts":3,"backoff":{"exponential":{"first":"100ms","factor":2.0,"cap":"20s"}},"late":"early"}"#,
        "attempts = 3\nlate = \"early\"\n\n[backoff.exponential]\nfirst = \"100ms\"\nfactor = 2.0\ncap = \"20s\"\n",
    );
    assert_eq!(serde_json::from_str::<PolicyConfig>("{}").unwrap(), PolicyConfig::default());
    assert_eq!(toml::from_str::<PolicyConfig>("").unwrap(), PolicyConfig::default());
}

#[test]
fn config_format_of_every_backoff() {
    let arithmetic = |cap| BackoffConfig::Arithmetic { first: ms(5), step: ms(10), cap };
    let exponential = |cap| BackoffConfig::Exponential { first: ms(5), factor: 1.5, cap };
    let fibonacci = |cap| BackoffConfig::Fibonacci { first: ms(5), cap };
    let cases = [
        (
            fibonacci(None),
            r#"{"fibonacci":{"first":"5ms"}}"#,
            "[backoff.fibonacci]\nfirst = \"5ms\"\n",
        ),
        (
            fibonacci(Some(s(1))),
            r#"{"fibonacci":{"first":"5ms","cap":"1s"}}"#,
            "[backoff.fibonacci]\nfirst = \"5ms\"\ncap = \"1s\"\n",
        ),
        (
            BackoffConfig::Constant(ms(250)),
            r#"{"constant":"250ms"}"#,
            "[backoff]\nconstant = \"250ms\"\n",
        ),
        (
            BackoffConfig::Table(vec![ms(1), s(10)]),
            r#"{"table":["1ms","10s"]}"#,
            "[backoff]\ntable = [\"1ms\", \"10s\"]\n",
        ),
        (
            arithmetic(None),
            r#"{"arithmetic":{"first":"5ms","step":"10ms"}}"#,
            "[backoff.arithmetic]\nfirst = \"5ms\"\nstep = \"10ms\"\n",
        ),
        (
            arithmetic(Some(s(1))),
            r#"{"arithmetic":{"first":"5ms","step":"10ms","cap":"1s"}}"#,
            "[backoff.arithmetic]\nfirst = \"5ms\"\nstep = \"10ms\"\ncap = \"1s\"\n",
        ),
        (
            exponential(None),
            r#"{"exponential":{"first":"5ms","factor":1.5}}"#,
            "[backoff.exponential]\nfirst = \"5ms\"\nfactor = 1.5\n",
        ),
        (
            exponential(Some(s(1))),
            r#"{"exponential":{"first":"5ms","factor":1.5,"cap":"1s"}}"#,
            "[backoff.exponential]\nfirst = \"5ms\"\nfactor = 1.5\ncap = \"1s\"\n",
        ),
    ];
    for (backoff, json, toml) in cases {
        assert_format(
            &config(|config| config.backoff = backoff),
            &format!(r#"{{"attempts":3,"backoff":{json},"late":"early"}}"#),
            &format!("attempts = 3\nlate = \"early\"\n\n{toml}"),
        );
    }
}

#[test]
fn config_format_of_every_jitter() {
    let cases = [
        (Jitter::None, "none"),
        (Jitter::Full, "full"),
        (Jitter::Half, "half"),
        (Jitter::Equal, "equal"),
        (Jitter::Decorrelated, "decorrelated"),
    ];
    for (jitter, name) in cases {
        assert_format(
            &config(|config| config.jitter = Some(jitter)),
            &format!(
                r#"{{"attempts":3,"backoff":{{"constant":"1ms"}},"jitter":"{name}","late":"early"}}"#
            ),
            &format!(
                "attempts = 3\njitter = \"{name}\"\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n"
            ),
        );
    }
    assert_format(
        &config(|config| config.jitter = Some(Jitter::Proportional(0.2))),
        r#"{"attempts":3,"backoff":{"constant":"1ms"},"jitter":{"proportional":0.2},"late":"early"}"#,
        "attempts = 3\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n\n[jitter]\nproportional = 0.2\n",
    );
}

#[test]
fn config_format_of_every_throttle() {
    let costs = CostOptions {
        server: Some(1.0),
        client: Some(2.0),
        throttling: Some(3.0),
        timeout: Some(4.0),
    };
    let cost = CostConfig {
        capacity: Some(20.0),
        costs,
        success: Some(0.5),
        refill_per_second: Some(2.0),
    };
    let cases = [
        (
            ThrottleConfig::Tokens { max: 10.0, ratio: 0.1 },
            r#"{"tokens":{"max":10.0,"ratio":0.1}}"#,
            "[throttle.tokens]\nmax = 10.0\nratio = 0.1\n",
        ),
        (
            ThrottleConfig::Budget { reserve: 2.0, ratio: 0.5, per_second: 0.0 },
            r#"{"budget":{"reserve":2.0,"ratio":0.5}}"#,
            "[throttle.budget]\nreserve = 2.0\nratio = 0.5\n",
        ),
        (
            ThrottleConfig::Budget { reserve: 2.0, ratio: 0.5, per_second: 0.1 },
            r#"{"budget":{"reserve":2.0,"ratio":0.5,"per_second":0.1}}"#,
            "[throttle.budget]\nreserve = 2.0\nratio = 0.5\nper_second = 0.1\n",
        ),
        (
            ThrottleConfig::Cost(CostConfig::default()),
            r#"{"cost":{"costs":{}}}"#,
            "[throttle.cost.costs]\n",
        ),
        (
            ThrottleConfig::Cost(cost),
            r#"{"cost":{"capacity":20.0,"costs":{"server":1.0,"client":2.0,"throttling":3.0,"timeout":4.0},"success":0.5,"refill_per_second":2.0}}"#,
            "[throttle.cost]\ncapacity = 20.0\nsuccess = 0.5\nrefill_per_second = 2.0\n\n[throttle.cost.costs]\nserver = 1.0\nclient = 2.0\nthrottling = 3.0\ntimeout = 4.0\n",
        ),
    ];
    for (throttle, json, toml) in cases {
        assert_format(
            &config(|config| config.throttle = Some(throttle)),
            &format!(
                r#"{{"attempts":3,"backoff":{{"constant":"1ms"}},"late":"early","throttle":{json}}}"#
            ),
            &format!("attempts = 3\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n\n{toml}"),
        );
    }
    assert_format(
        &config(|config| config.throttle = Some(ThrottleConfig::None)),
        r#"{"attempts":3,"backoff":{"constant":"1ms"},"late":"early","throttle":"none"}"#,
        "attempts = 3\nlate = \"early\"\nthrottle = \"none\"\n\n[backoff]\nconstant = \"1ms\"\n",
    );
}

#[test]
fn config_format_of_every_limit_action() {
    let cases = [
        (
            Limits { soft: Some(s(1)), ..Limits::NONE },
            r#"{"soft":"1s","over":"drop","under":"leave","measure":"delays"}"#,
            "soft = \"1s\"\nover = \"drop\"\nunder = \"leave\"\nmeasure = \"delays\"\n",
        ),
        (
            Limits {
                soft: Some(s(1)),
                hard: Some(s(2)),
                over_limit_action: OverLimitAction::TruncateDelay,
                last_delay_action: LastDelayAction::ExtendToLimit,
                basis: LimitBasis::Elapsed,
            },
            r#"{"soft":"1s","hard":"2s","over":"truncate","under":"fill","measure":"elapsed"}"#,
            "soft = \"1s\"\nhard = \"2s\"\nover = \"truncate\"\nunder = \"fill\"\nmeasure = \"elapsed\"\n",
        ),
    ];
    for (limits, json, toml) in cases {
        assert_format(
            &config(|config| config.limits = Some(limits)),
            &format!(
                r#"{{"attempts":3,"backoff":{{"constant":"1ms"}},"limits":{json},"late":"early"}}"#
            ),
            &format!(
                "attempts = 3\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n\n[limits]\n{toml}"
            ),
        );
    }
}

#[test]
fn config_format_of_attempts_deadlines_and_hedge() {
    let config = config(|config| {
        config.attempts = None;
        config.deadline = Some(s(90));
        config.attempt_timeout = Some(ms(1500));
        config.deadline_action = DeadlineAction::WaitForDeadline;
        config.hedge = Some(HedgeConfig { delay: ms(50) });
    });
    assert_format(
        &config,
        r#"{"attempts":"unlimited","backoff":{"constant":"1ms"},"deadline":"90s","attempt_timeout":"1500ms","late":"wait","hedge":{"delay":"50ms"}}"#,
        "attempts = \"unlimited\"\ndeadline = \"90s\"\nattempt_timeout = \"1500ms\"\nlate = \"wait\"\n\n[backoff]\nconstant = \"1ms\"\n\n[hedge]\ndelay = \"50ms\"\n",
    );
}

#[test]
fn config_format_of_name_forever_and_reset() {
    let config = config(|config| {
        config.name = Some("fetch".to_owned());
        (config.attempts, config.forever) = (None, true);
        config.reset_after = Some(s(60));
    });
    assert_format(
        &config,
        r#"{"name":"fetch","attempts":"forever","backoff":{"constant":"1ms"},"late":"early","reset_after":"1m"}"#,
        "name = \"fetch\"\nattempts = \"forever\"\nlate = \"early\"\nreset_after = \"1m\"\n\n[backoff]\nconstant = \"1ms\"\n",
    );
}

#[test]
fn config_format_of_every_hint_maximum() {
    let cases =
        [(HintMaxConfig::Stop(s(5)), r#""5s""#), (HintMaxConfig::Unlimited, r#""unlimited""#)];
    for (hint_max, text) in cases {
        assert_format(
            &config(|config| config.hint_max = Some(hint_max)),
            &format!(
                r#"{{"attempts":3,"backoff":{{"constant":"1ms"}},"late":"early","hint_max":{text}}}"#
            ),
            &format!(
                "attempts = 3\nlate = \"early\"\nhint_max = {text}\n\n[backoff]\nconstant = \"1ms\"\n"
            ),
        );
    }
    assert_format(
        &config(|config| {
            config.hint_max = Some(HintMaxConfig::Clamp(s(5)));
            config.hint_jitter = 0.1;
        }),
        r#"{"attempts":3,"backoff":{"constant":"1ms"},"late":"early","hint_max":{"clamp":"5s"},"hint_jitter":0.1}"#,
        "attempts = 3\nlate = \"early\"\nhint_jitter = 0.1\n\n[backoff]\nconstant = \"1ms\"\n\n[hint_max]\nclamp = \"5s\"\n",
    );
}

#[test]
fn config_format_of_timeouts_that_are_not_retried() {
    assert_format(
        &config(|config| {
            config.attempt_timeout = Some(s(1));
            config.retry_timeouts = Some(false);
        }),
        r#"{"attempts":3,"backoff":{"constant":"1ms"},"attempt_timeout":"1s","retry_timeouts":false,"late":"early"}"#,
        "attempts = 3\nattempt_timeout = \"1s\"\nretry_timeouts = false\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n",
    );
    // Without a timeout of the policy, for calls that set one.
    assert_format(
        &config(|config| config.retry_timeouts = Some(true)),
        r#"{"attempts":3,"backoff":{"constant":"1ms"},"retry_timeouts":true,"late":"early"}"#,
        "attempts = 3\nretry_timeouts = true\nlate = \"early\"\n\n[backoff]\nconstant = \"1ms\"\n",
    );
}

#[test]
fn config_format_of_every_preset() {
    for preset in redial::presets::Preset::ALL {
        let json = format!(r#"{{"preset":"{}"}}"#, preset.name());
        let toml = format!("preset = \"{}\"\n", preset.name());
        let config: PolicyConfig = serde_json::from_str(&json).unwrap();
        assert_eq!(toml::from_str::<PolicyConfig>(&toml).unwrap(), config);
        assert_eq!(config.policy().unwrap().rules(), preset.policy().unwrap().rules());
        // It is written as the keys that it supplies.
        let written = serde_json::to_string(&config).unwrap();
        assert!(!written.contains("preset"), "{written}");
        assert_eq!(serde_json::from_str::<PolicyConfig>(&written).unwrap(), config);
        assert_eq!(toml::from_str::<PolicyConfig>(&toml::to_string(&config).unwrap()), Ok(config));
    }
}

#[test]
fn config_format_of_durations_uses_the_largest_whole_unit() {
    let cases = [
        (std::time::Duration::ZERO, "0s"),
        (std::time::Duration::from_nanos(7), "7ns"),
        (std::time::Duration::from_micros(7), "7us"),
        (ms(250), "250ms"),
        (s(5), "5s"),
        (s(120), "2m"),
        (s(7200), "2h"),
        (s(172_800), "2d"),
    ];
    for (delay, text) in cases {
        assert_format(
            &config(|config| config.backoff = BackoffConfig::Constant(delay)),
            &format!(r#"{{"attempts":3,"backoff":{{"constant":"{text}"}},"late":"early"}}"#),
            &format!("attempts = 3\nlate = \"early\"\n\n[backoff]\nconstant = \"{text}\"\n"),
        );
    }
}
