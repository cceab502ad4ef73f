//! Tests of section M of the decisions: calls run through the interceptor on virtual
//! time; codes, messages and log lines are tables.

#[path = "../../../redial/tests/common/virtual_clock.rs"]
mod designs;
mod log;
mod status_codes;

use std::fmt;
use std::sync::Arc;

use designs::{Clock, HANG, Script, close};
use redial::throttle::RetryBudget;
use redial::{Jitter, StopReason, ms, s};
use redial_milvus::{Code, Error, GrpcStatus, Interceptor, LogLineKind, Options};

/// A status type of a client library.
#[derive(Clone, Debug, PartialEq)]
struct TestStatus {
    code: Code,
    message: String,
    cancelled_by_caller: bool,
    unsent: bool,
}

impl GrpcStatus for TestStatus {
    fn code(&self) -> Code {
        self.code
    }
    fn message(&self) -> &str {
        &self.message
    }
    fn with_message(self, message: String) -> Self {
        TestStatus { message, ..self }
    }
    fn is_cancelled_by_caller(&self) -> bool {
        self.cancelled_by_caller
    }
    fn is_unsent(&self) -> bool {
        self.unsent
    }
}

impl fmt::Display for TestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TestStatus {}

/// A decoded response with a status code inside.
#[derive(Clone, Debug, PartialEq)]
struct Reply {
    code: i32,
}

type Outcome = Result<Reply, TestStatus>;

const OK: Outcome = Ok(Reply { code: 0 });

/// The server's status with this code.
fn boom(code: Code) -> Outcome {
    let (cancelled_by_caller, unsent) = (false, false);
    Err(TestStatus { code, message: "boom".into(), cancelled_by_caller, unsent })
}

/// The result of a call with its start times and log.
struct Played {
    result: Result<Reply, Error<TestStatus, Reply>>,
    starts: Vec<f64>,
    cancels: Vec<f64>,
    ended: f64,
    log: Vec<(LogLineKind, String)>,
}

impl Played {
    fn stop_reason(&self) -> StopReason {
        self.result.as_ref().map_or_else(Error::stop_reason, |_| StopReason::Succeeded)
    }
    fn text(&self) -> &str {
        self.result.as_ref().map_or_else(Error::message, |_| "")
    }
    fn kinds(&self) -> Vec<&'static str> {
        self.log.iter().map(|(kind, _)| kind.name()).collect()
    }
}

/// Plays a call of `method`; the last step repeats. A response is invalid if its inner code is listed.
fn play_method(interceptor: &Interceptor, method: &str, steps: &[(u64, Outcome)]) -> Played {
    let clock = Clock::default();
    let script = Script::new(&clock, steps);
    let mut log = Vec::new();
    let call = interceptor
        .call(method, || script.attempt())
        .inner_code(|reply: &Reply| Some(reply.code))
        .log(|line| log.push((line.kind, line.to_string())))
        .sleeping_on(clock);
    let result = clock.run(call.send());
    let (starts, cancels) = (script.starts(), script.cancels());
    Played { result, starts, cancels, ended: clock.ms(), log }
}

fn play(options: Options, steps: &[(u64, Outcome)]) -> Played {
    play_method(&options.interceptor().expect("valid"), "Search", steps)
}

const UNTIL_GONE: [&str; 3] = ["retry-delay", "retry-attempt", "retry-executing"];

// M1, M2

#[test]
fn retries_wait_20_40_80_ms_and_extend_error_text() {
    let played = play(Options::default(), &[(10, boom(Code::Unavailable))]);
    assert_eq!(played.starts, [0.0, 30.0, 80.0, 170.0]);
    assert_eq!((played.ended, played.stop_reason()), (180.0, StopReason::AttemptsExhausted));
    assert_eq!(played.text(), "boom (retried 3 times, 180ms)");
}

#[test]
fn options_default_to_3_retries_10_ms_15_s() {
    let Options { max_retries, retry_delay, timeout, .. } = Options::default();
    assert_eq!((max_retries, retry_delay, timeout), (3, ms(10), s(15)));
    let rules = Options::DEFAULT.rules();
    assert_eq!((rules.attempts, rules.attempt_timeout), (Some(4), Some(s(15))));
    assert_eq!((rules.deadline, rules.jitter), (None, Jitter::None));
}

#[test]
fn backoff_has_no_cap_and_no_jitter_by_default() {
    let many = Options::default().max_retries(20);
    let played = play(many, &[(0, boom(Code::Unavailable))]);
    let delays: Vec<f64> = played.starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (n, delay) in (1..).zip(&delays) {
        assert_eq!(*delay, 10.0 * f64::powi(2.0, n));
    }
    let capped = play(many.delay_max(ms(100)), &[(0, boom(Code::Unavailable))]);
    let delays: Vec<f64> = capped.starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(delays[..5], [20.0, 40.0, 80.0, 100.0, 100.0]);
    let jittered = play(many.jitter(Jitter::Equal), &[(0, boom(Code::Unavailable))]);
    assert!((10.0..20.0).contains(&jittered.starts[1]), "{:?}", jittered.starts);
}

#[test]
fn retries_of_zero_make_one_attempt() {
    let played = play(Options::default().max_retries(0), &[(5, boom(Code::Unavailable))]);
    assert_eq!(
        (&*played.starts, played.stop_reason()),
        (&[0.0][..], StopReason::AttemptsExhausted)
    );
    assert_eq!(played.text(), "boom");
}

#[test]
fn options_with_largest_numbers_do_not_overflow() {
    let huge = std::time::Duration::MAX;
    let options = Options::default().max_retries(u32::MAX).retry_delay(huge).timeout(huge);
    assert_eq!(options.rules().attempts, Some(u32::MAX));
    assert!(options.policy().is_ok());
}

// M4

#[test]
fn attempt_timeout_restarts_for_each_attempt() {
    let late = |code| (90, boom(code));
    let steps = [late(Code::Unavailable), late(Code::Unavailable), (90, OK)];
    let played = play(Options::default().timeout(ms(100)), &steps);
    assert_eq!(played.starts, [0.0, 110.0, 240.0]);
    assert_eq!((played.ended, played.stop_reason()), (330.0, StopReason::Succeeded));
}

#[test]
fn attempt_timeout_ends_call_with_unchanged_text() {
    let options = Options::default().timeout(ms(100));
    let played = play(options, &[(HANG, OK)]);
    assert_eq!((&*played.starts, &*played.cancels), (&[0.0][..], &[100.0][..]));
    assert_eq!(played.kinds(), ["request", "response"]);
    let error = played.result.expect_err("too late");
    assert_eq!((error.stop_reason(), error.code()), (StopReason::Deadline, Code::DeadlineExceeded));
    assert_eq!(error.to_string(), "DEADLINE_EXCEEDED: deadline exceeded");
    assert!(error.is_timeout() && error.status().is_none());

    let played = play(options, &[(0, boom(Code::Unavailable)), (HANG, OK)]);
    assert_eq!((&*played.starts, &*played.cancels), (&[0.0, 20.0][..], &[120.0][..]));
    assert_eq!((played.stop_reason(), played.text()), (StopReason::Deadline, "deadline exceeded"));
    assert_eq!(played.kinds().last(), Some(&"response"));
    let error = played.result.expect_err("too late");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert_eq!(
        error.status(),
        boom(Code::Unavailable).as_ref().err(),
        "the status before the timeout"
    );
}

#[test]
fn attempt_timeout_accepts_response_at_same_instant() {
    let played = play(Options::default().timeout(ms(100)), &[(100, OK)]);
    assert_eq!((played.ended, played.stop_reason()), (100.0, StopReason::Succeeded));
}

#[test]
fn deadline_bounds_the_whole_call() {
    let options = Options::default().timeout(ms(100)).deadline(ms(250));
    // Three attempts take until 240 ms, and the next delay of 80 ms would exceed the deadline.
    let played = play(options, &[(60, boom(Code::Unavailable))]);
    assert_eq!((&*played.starts, played.ended), (&[0.0, 80.0, 180.0][..], 240.0));
    assert_eq!((played.stop_reason(), played.text()), (StopReason::Deadline, "boom"));
    // A deadline below the timeout cuts the attempt itself.
    let played = play(options.deadline(ms(50)), &[(HANG, OK)]);
    assert_eq!((played.ended, played.stop_reason()), (50.0, StopReason::Deadline));
    assert_eq!(played.kinds(), ["request", "response"]);
    assert_eq!(played.result.expect_err("too late").code(), Code::DeadlineExceeded);
    // So does an equal one.
    let played = play(options.deadline(ms(100)), &[(HANG, OK)]);
    assert_eq!((played.ended, played.stop_reason()), (100.0, StopReason::Deadline));
}

// M5, M6

#[test]
fn error_text_without_retries_is_unchanged() {
    let played = play(Options::default(), &[(3, boom(Code::PermissionDenied))]);
    assert_eq!((played.stop_reason(), played.text()), (StopReason::NotRetryable, "boom"));
}

#[test]
fn error_text_suffix_only_when_retries_are_exhausted() {
    // The retry ends with a code that is not retryable.
    let steps = [(0, boom(Code::Unavailable)), (0, boom(Code::NotFound)), (0, boom(Code::Ok))];
    let gone = [steps[0].clone(), (0, boom(Code::InvalidArgument))];
    let played = play(Options::default(), &gone);
    assert_eq!((played.stop_reason(), played.text()), (StopReason::NotRetryable, "boom"));
    assert_eq!(played.kinds().last(), Some(&"response"));
    let played = play(Options::default().max_retries(1), &steps);
    assert_eq!(
        (played.stop_reason(), played.text()),
        (StopReason::AttemptsExhausted, "boom (retried 1 times, 20ms)")
    );
}

#[test]
fn error_after_invalid_message_holds_last_response() {
    let interceptor =
        Options::default().max_retries(2).interceptor().expect("valid").invalid_codes([2200]);
    let reply = Ok(Reply { code: 2200 });
    let played = play_method(&interceptor, "Search", &[(1, reply.clone())]);
    assert_eq!(played.text(), "invalid message (retried 2 times, 63ms)");
    assert_eq!(played.kinds().last(), Some(&"failed-after-retries"));
    let error = played.result.expect_err("invalid");
    assert_eq!((error.code(), error.response()), (Code::Ok, reply.as_ref().ok()));
    assert_eq!(error.into_response(), reply.ok());
}

#[test]
fn error_text_of_invalid_message_without_retries() {
    let interceptor =
        Options::default().max_retries(0).interceptor().expect("valid").invalid_codes([2200]);
    let played = play_method(&interceptor, "Search", &[(1, Ok(Reply { code: 2200 }))]);
    assert_eq!(played.text(), "invalid message");
    assert_eq!(played.kinds(), ["request", "response"]);
}

#[test]
fn error_text_rounds_milliseconds_down() {
    use redial_milvus::ErrorText;
    let text = |micros| {
        let elapsed = std::time::Duration::from_micros(micros);
        let (stop_reason, retries, message) = (StopReason::AttemptsExhausted, 3, "boom");
        ErrorText { stop_reason, retries, elapsed, message, invalid: false }.render()
    };
    assert_eq!(text(250_999), "boom (retried 3 times, 250ms)");
    assert_eq!(text(999), "boom (retried 3 times, 0ms)");
}

#[test]
fn error_text_suffix_depends_on_stop_reason() {
    use redial_milvus::ErrorText;
    for stop_reason in StopReason::ALL {
        for (invalid, base) in [(false, "boom"), (true, "invalid message")] {
            let error_text =
                ErrorText { stop_reason, retries: 2, elapsed: ms(7), message: "boom", invalid };
            let ran_out = format!("{base} (retried 2 times, 7ms)");
            let expected =
                if stop_reason == StopReason::AttemptsExhausted { &ran_out } else { base };
            assert_eq!(error_text.render(), expected, "{stop_reason:?}");
            assert_eq!(ErrorText { retries: 0, ..error_text }.render(), base, "{stop_reason:?}");
        }
    }
}

#[test]
fn interceptor_call_future_is_send() {
    fn is_send(_: &impl Send) {}
    let clock = Clock::default();
    let interceptor = Options::default().interceptor().expect("valid");
    let send = async || OK;
    is_send(&interceptor.call("Search", send).sleeping_on(clock).log(|_| {}).send());
}

// B

#[test]
fn throttle_is_off_until_a_budget_is_added() {
    let interceptor = Options::default().interceptor().expect("valid");
    assert_eq!(interceptor.policy().tokens(0), None);
    let budget = Arc::new(RetryBudget::try_new(1.0, 0.1).expect("valid"));
    let funded = interceptor.sharing(budget);
    let played = play_method(&funded, "Search", &[(0, boom(Code::Unavailable))]);
    assert_eq!((played.starts.len(), played.stop_reason()), (2, StopReason::Throttled));
    assert_eq!(played.text(), "boom", "the retries were not exhausted");
    assert!(close(funded.policy().tokens(0).unwrap_or_default(), 0.0));
}

// Options as JSON

#[cfg(feature = "serde")]
#[test]
fn options_deserialize_from_client_json() {
    let read = |text: &str| serde_json::from_str::<Options>(text).map_err(|e| e.to_string());
    assert_eq!(read("{}"), Ok(Options::default()));
    let text = r#"{"maxRetries": 5, "retryDelay": 2.5, "timeout": 100}"#;
    let expected = Options::default().max_retries(5).retry_delay(ms(5) / 2).timeout(ms(100));
    assert_eq!(read(text), Ok(expected));
    // Durations beyond the range saturate.
    assert_eq!(
        read(r#"{"timeout": 1e300}"#),
        Ok(Options::default().timeout(std::time::Duration::MAX))
    );
    for text in [
        r#"{"max_retries": 3}"#,
        r#"{"jitter": "full"}"#,
        r#"{"maxRetries": -1}"#,
        r#"{"retryDelay": -1}"#,
        r#"{"timeout": "15s"}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}
