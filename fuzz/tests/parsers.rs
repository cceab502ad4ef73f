//! Every parser returns a value or an error with a position, for any input, and its values survive
//! a round trip. The inputs are random bytes, and valid texts with random changes.

use std::time::Duration;

use redial::CallLog;
use redial::testing::{classified_as, hangs};
use redial_cli::scenarios::load::load;
use redial_cli::scenarios::source::Source;
use redial_service_config::{
    ChoiceSelector, ClientOptions, Code, Jitter, Plan, Problems, Pushback, Retries, ServiceConfig,
    Severity,
};

const SECONDS: Duration = Duration::from_secs(5);

/// Changes, removes or inserts bytes of the text as the recipe states.
fn changed(text: &str, recipe: &[u8]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for step in recipe.chunks_exact(4) {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(u16::from_le_bytes([step[0], step[1]])) % bytes.len();
        match step[2] % 3 {
            0 => bytes[at] = step[3],
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, step[3]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a parser on random text and on changed samples.
fn fuzz(samples: &'static [&'static str], read: fn(&str)) {
    for sample in samples {
        read(sample);
    }
    bolero::check!().with_test_time(SECONDS).with_iterations(100_000).with_max_len(128).for_each(
        |input: &[u8]| {
            read(&String::from_utf8_lossy(input));
            let Some((first, recipe)) = input.split_first() else { return };
            read(&changed(samples[usize::from(*first) % samples.len()], recipe));
        },
    );
}

#[test]
fn call_log_parses_or_reports_the_line() {
    const SAMPLE: &str = "{\"redial_diary\":1}\n\
        {\"at\":5,\"note\":\"began\",\"deadline\":9,\"idempotent\":true}\n\
        {\"at\":5,\"note\":\"started\",\"attempt\":1,\"number\":1}\n\
        {\"at\":6,\"note\":\"outcome\",\"attempt\":1,\"directive\":\"retry\",\"failure\":{\"kind\":\"server\",\"stage\":\"answered\",\"hint\":{\"after\":{\"secs\":1,\"nanos\":5}}}}\n\
        {\"at\":6,\"note\":\"granted\",\"grant\":\"after\",\"after\":3,\"taken\":5}\n\
        {\"at\":9,\"note\":\"ended\",\"why\":\"deadline\"}\n";
    fuzz(&[SAMPLE], |text| match CallLog::from_json_lines(text) {
        Ok(call_log) => {
            let again = CallLog::from_json_lines(&call_log.to_json_lines());
            assert_eq!(again.as_ref(), Ok(&call_log));
            // The policy may not match the log, but the replay must not panic.
            let policy = redial_core::Policy::try_new(redial_core::Rules::DEFAULT).expect("valid");
            let _ = call_log.replay(&policy);
            let _ = redial_cli::timeline::timeline(call_log.events(), 80);
            // The same events in another order, as a program can push them.
            let reversed: Vec<_> = call_log.events().iter().rev().copied().collect();
            let _ = redial_cli::timeline::timeline(&reversed, 80);
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
        }
    });
}

#[test]
fn policy_config_parses_or_is_rejected() {
    const SAMPLES: &[&str] = &[
        r#"{"attempts":4,"backoff":{"exponential":{"first":"100ms","factor":2,"cap":"20s"}},"jitter":"full","limits":{"soft":"1s","hard":"2s","over":"drop","under":"leave","measure":"delays"},"deadline":"5s","attempt_timeout":"1s","late":"early","throttle":"none"}"#,
        r#"{"attempts":3,"hedge":{"delay":"50ms"},"throttle":{"budget":{"ratio":0.5,"reserve":2}}}"#,
        r#"{"backoff":{"table":["1ms","10ms"]},"jitter":{"proportional":0.2},"throttle":{"tokens":{"max":10,"ratio":0.1}}}"#,
    ];
    fuzz(SAMPLES, |text| {
        let Ok(config) = serde_json::from_str::<redial::config::PolicyConfig>(text) else {
            return;
        };
        let text = serde_json::to_string(&config).expect("a parsed value can be written");
        let again: redial::config::PolicyConfig =
            serde_json::from_str(&text).expect("and read again");
        assert_eq!(again, config, "{text}");
        let _ = config.policy();
        let _ = config.hedged();
    });
}

#[test]
fn scenario_file_parses_or_reports_the_position() {
    const SAMPLES: &[&str] = &[
        include_str!("../../scenarios/generic.json"),
        include_str!("../../scenarios/couchbase.json"),
        include_str!("../../scenarios/grpc-buffer.json"),
        include_str!("../../scenarios/grpc-config.json"),
    ];
    fuzz(SAMPLES, |text| {
        let source = Source::new("a.json", text);
        if let Err(mistakes) = load(&source) {
            assert!(!mistakes.is_empty(), "rejected without a problem");
            for mistake in mistakes {
                let place = mistake.position.expect("a parsed text has positions");
                let lines = text.lines().count() + 1;
                assert!((1..=lines).contains(&place.line), "{mistake:?} of {lines} lines");
            }
        }
    });
}

/// Client options to combine with a config.
fn clients() -> impl Iterator<Item = ClientOptions> {
    let retries = [Retries::All, Retries::Transparent, Retries::Off];
    let jitters = [Jitter::Full, Jitter::Proportional(0.2)];
    retries.into_iter().flat_map(move |retries| {
        jitters.map(|jitter| {
            let client = ClientOptions::builder().retries(retries).jitter(jitter).attempts_cap(40);
            client.try_build().expect("it is valid")
        })
    })
}

/// A plan classifies every status, and calls run without a panic.
fn check_plan(plan: &Plan, policy: &redial::AnyPolicy) {
    for code in Code::ALL {
        let _ = plan.classify(code, Pushback::Stop);
    }
    let busy =
        classified_as(plan.classify(Code::Unavailable, Pushback::After(Duration::from_millis(3))));
    let calls = [vec![busy; 40], vec![hangs(); 40], vec![classified_as(plan.unsent()); 5]];
    for attempts in calls {
        // A script that runs out of outcomes is reported; either result is fine here.
        let script = redial::testing::Script::new(policy, attempts).cancel(Duration::from_secs(1));
        let _ = redial::testing::Play::new().call(script).run();
    }
}

#[test]
fn service_config_parses_or_reports_positions() {
    const SAMPLES: &[&str] = &[
        r#"{"methodConfig":[{"name":[{"service":"a.B"},{"service":"x.Y","method":"Z"}],"timeout":"1.5s","waitForReady":true,"maxRequestMessageBytes":1024,"maxResponseMessageBytes":"4096","retryPolicy":{"maxAttempts":4,"initialBackoff":"0.1s","maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE",8]}},{"name":[{}]}],"retryThrottling":{"maxTokens":10,"tokenRatio":0.1},"loadBalancingPolicy":"round_robin"}"#,
        r#"{"methodConfig": [
            {"name": [{"service": "a.B"}], "hedgingPolicy": {"maxAttempts": 4, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["ABORTED"]}},
            {"name": [{"service": "a.B", "method": "Größe"}], "hedgingPolicy": {"maxAttempts": 1e2}, "unknown": {"a": [null, 1, {"b": "\u00e9\ud83d\ude00"}]}}]}"#,
    ];
    fuzz(SAMPLES, |text| match ServiceConfig::parse(text) {
        Ok(config) => {
            let methods = [None, config.method("/a.B/C"), config.method("/x.Y/Z")];
            for client in clients() {
                for entry in config.entries().iter().map(Some).chain(methods) {
                    let plan = client.plan(entry);
                    let tokens = config.retry_throttling().map(|it| it.tokens().into());
                    check_plan(&plan, &plan.to_policy(tokens));
                }
            }
            assert!(config.warnings().iter().all(|it| it.severity() == Severity::Warning));
        }
        Err(problems) => check_positions(&problems, text),
    });
}

/// Checks that every problem points to its position in the text.
fn check_positions(problems: &Problems, text: &str) {
    assert!(!problems.as_slice().is_empty(), "rejected without a problem");
    for problem in problems {
        assert_eq!(problem.severity(), Severity::Error);
        assert!(text.get(problem.range.clone()).is_some(), "{problem:?}");
        let before = &text[..problem.range.start];
        assert_eq!(problem.line, before.matches('\n').count() + 1, "{problem}");
        let line = before.rsplit('\n').next().unwrap_or_default();
        assert_eq!(problem.column, line.chars().count() + 1, "{problem}");
    }
}

#[test]
fn service_config_choice_parses_or_reports_positions() {
    const SAMPLES: &[&str] = &[
        r#"[{"clientLanguage":["go","rust"],"percentage":30,"clientHostname":["höst"],"serviceConfig":{"methodConfig":[{"name":[{}],"timeout":"1s"}]}},{"percentage":0,"serviceConfig":{}},{"serviceConfig":{"loadBalancingPolicy":"round_robin"}}]"#,
        r#"[{"percentage":1e1,"colour":"red","serviceConfig":{"retryThrottling":{}}},{"clientHostname":[],"serviceConfig":{"retryThrottling":{"maxTokens":5,"tokenRatio":1}}},{}]"#,
    ];
    fuzz(SAMPLES, |text| {
        let selector = ChoiceSelector::new(20).hostname("höst");
        let selected = selector.select(text);
        match &selected {
            Ok(selected) => {
                assert_eq!(selected.config.is_some(), selected.index.is_some());
                assert!(selected.warnings.iter().all(|it| it.severity() == Severity::Warning));
            }
            Err(problems) => check_positions(problems, text),
        }
        // The split of a record into strings does not matter.
        let record = format!("grpc_config={text}").into_bytes();
        let from_record = selector.select_from_records([record.chunks(5)]);
        let error_text = |it: &Result<_, Problems>| it.as_ref().err().map(ToString::to_string);
        assert_eq!(error_text(&selected.map(drop)), error_text(&from_record.map(drop)));
        let _ = selector.select_from_records([[text], [text]]);
    });
}

/// The expected meaning of a header with these values: a number is canonical if formatting it gives
/// the same text.
fn check_pushback(input: &[u8]) {
    let values: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let text = std::str::from_utf8(values[0]).ok();
    let number = text.and_then(|text| Some((text, text.parse::<i32>().ok()?)));
    let expected = match (values.len(), number) {
        (1, Some((text, ms @ 0..))) if ms.to_string() == text => {
            Pushback::After(Duration::from_millis(ms.unsigned_abs().into()))
        }
        _ => Pushback::Stop,
    };
    assert_eq!(Pushback::parse(values), expected, "{input:?}");
}

#[test]
fn pushback_header_is_a_canonical_number_or_stop() {
    bolero::check!().with_test_time(SECONDS).with_iterations(200_000).with_max_len(24).for_each(
        |input: &[u8]| {
            check_pushback(input);
            let likely = b"00112233445566778899-+ .e\n";
            let likely: Vec<_> =
                input.iter().map(|byte| likely[usize::from(*byte) % likely.len()]).collect();
            check_pushback(&likely);
            check_pushback(&likely[..likely.len().min(10)]);
        },
    );
}

#[test]
fn retry_after_header_is_a_delay_or_no_hint() {
    // The first line is the date of the response.
    const SAMPLES: &[&str] = &[
        "Sun, 06 Nov 1994 08:49:37 GMT\n120",
        "Sun, 06 Nov 1994 08:49:37 GMT\nSun, 06 Nov 1994 08:49:40 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT\nsoon\nSunday, 06-Nov-94 08:49:40 GMT",
        "Sun Nov  6 08:49:37 1994\nSun Nov  6 08:49:40 1994\n5",
        "soon\n18446744073709551616",
    ];
    fuzz(SAMPLES, |text| {
        let mut headers = http::HeaderMap::new();
        let names = [http::header::DATE].into_iter();
        for (name, value) in
            names.chain(std::iter::repeat(http::header::RETRY_AFTER)).zip(text.lines())
        {
            if let Ok(value) = value.parse() {
                headers.append(name, value);
            }
        }
        let delay = redial_http::retry_after(&headers);
        assert_ne!(delay, Some(Duration::ZERO), "{text:?}");
        let first = headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        if let Some(seconds) = first.and_then(|first| first.parse::<u64>().ok())
            && first.is_some_and(|first| !first.starts_with('+'))
        {
            let expected = (seconds > 0).then_some(Duration::from_secs(seconds));
            assert_eq!(delay, expected, "{text:?}");
        }
    });
}

#[test]
fn fault_script_parses_or_reports_the_position() {
    const SAMPLES: &[&str] = &[
        r#"{"about":"all of it","attempts":[{"after":5,"outcome":"UNAVAILABLE","message":"b%","pushback":["5","x"],"metadata":{"a":["1","2"]}},{"headers":2,"after":9,"outcome":5,"replies":[{"after":3,"text":"abc"},{"hex":"00ff"},{"bytes":7},{"echo":true},{"echo_rest":true}]},{"once":{"messages":2},"reset":"CANCEL","accepts":1}],"calls":{"lost":[{"goaway":{"last":"below","code":"ENHANCE_YOUR_CALM","debug":"d"},"close":"orderly"},{"seen":"unsent"},{"http":{"status":503,"type":"text/html","body":"no"}},{"door":"silent"}]},"in_turn":true,"doors":[{"door":"closed-at-once","after":5}],"otherwise":{"outcome":"hang"},"concurrent_streams":100}"#,
        r#"{"attempts":[{"steps":[{"headers":{"status":200,"fields":{"grpc-status":"0"},"end_stream":false}},{"after":1.5,"message":{"text":"x"}},{"data":{"hex":"0000"}},{"trailers":{"grpc-status":"14"}}]},{"outcome":"OK","end_stream":false},{"close":"abrupt","after":1e3}]}"#,
    ];
    let read = |text| serde_json::from_str::<redial_faults::grpc::Server>(text);
    for sample in SAMPLES {
        assert!(read(sample).is_ok(), "{:?}", read(sample).err());
    }
    fuzz(SAMPLES, |text| match serde_json::from_str::<redial_faults::grpc::Server>(text) {
        // A valid script can be started and printed without a panic.
        Ok(server) => assert!(!format!("{:?}", server.on_pipe().record()).is_empty()),
        Err(error) => assert!(error.line() <= text.matches('\n').count() + 1, "{error}"),
    });
}
