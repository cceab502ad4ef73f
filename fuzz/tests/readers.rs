//! Goal: whatever a file holds, reading it gives a value or an error that says where, and what was
//! read can be written and read again. Method: random bytes, and well-formed texts with random
//! changes, for each reader.

use std::time::Duration;

use redial::Diary;
use redial_cli::scenarios::load::load;
use redial_cli::scenarios::source::Source;

const SECONDS: Duration = Duration::from_secs(5);

/// The text with some of its bytes changed, dropped or doubled, as the recipe says.
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

/// Runs a reader over random text and over changed samples.
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
fn a_diary_is_read_or_refused_with_its_line() {
    const SAMPLE: &str = "{\"redial_diary\":1}\n\
        {\"at\":5,\"note\":\"began\",\"deadline\":9,\"idempotent\":true}\n\
        {\"at\":5,\"note\":\"started\",\"attempt\":1,\"number\":1}\n\
        {\"at\":6,\"note\":\"outcome\",\"attempt\":1,\"directive\":\"retry\",\"failure\":{\"kind\":\"server\",\"stage\":\"answered\",\"hint\":{\"after\":{\"secs\":1,\"nanos\":5}}}}\n\
        {\"at\":6,\"note\":\"granted\",\"grant\":\"after\",\"after\":3,\"taken\":5}\n\
        {\"at\":9,\"note\":\"ended\",\"why\":\"deadline\"}\n";
    fuzz(&[SAMPLE], |text| match Diary::from_json_lines(text) {
        Ok(diary) => {
            let again = Diary::from_json_lines(&diary.to_json_lines());
            assert_eq!(again.as_ref(), Ok(&diary));
            // Any policy will do: it may differ, but it must not break.
            let policy = redial_core::Policy::new(redial_core::Rules::DEFAULT).expect("valid");
            let _ = diary.replay(&policy);
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
        }
    });
}

#[test]
fn a_written_policy_is_read_or_refused() {
    const SAMPLES: &[&str] = &[
        r#"{"attempts":4,"backoff":{"exponential":{"first":"100ms","factor":2,"cap":"20s"}},"jitter":"full","limits":{"soft":"1s","hard":"2s","over":"drop","under":"leave","measure":"delays"},"deadline":"5s","attempt_timeout":"1s","late":"early","throttle":"none"}"#,
        r#"{"attempts":3,"hedge":{"delay":"50ms"},"throttle":{"budget":{"ratio":0.5,"reserve":2}}}"#,
        r#"{"backoff":{"table":["1ms","10ms"]},"jitter":{"proportional":0.2},"throttle":{"tokens":{"max":10,"ratio":0.1}}}"#,
    ];
    fuzz(SAMPLES, |text| {
        let Ok(written) = serde_json::from_str::<redial::Written>(text) else { return };
        let text = serde_json::to_string(&written).expect("what was read can be written");
        let again: redial::Written = serde_json::from_str(&text).expect("and read again");
        assert_eq!(again, written, "{text}");
        let _ = written.policy();
        let _ = written.hedged();
    });
}

#[test]
fn a_scenario_file_is_read_or_refused_with_its_place() {
    const SAMPLES: &[&str] = &[
        include_str!("../../scenarios/generic.json"),
        include_str!("../../scenarios/couchbase.json"),
        include_str!("../../scenarios/grpc-buffer.json"),
    ];
    fuzz(SAMPLES, |text| {
        let source = Source::new("a.json", text);
        if let Err(mistakes) = load(&source) {
            assert!(!mistakes.is_empty(), "refused without a word");
            for mistake in mistakes {
                let place = mistake.place.expect("a text that was read has places");
                let lines = text.lines().count() + 1;
                assert!((1..=lines).contains(&place.line), "{mistake:?} of {lines} lines");
            }
        }
    });
}
