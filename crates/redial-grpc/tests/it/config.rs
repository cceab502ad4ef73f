//! Service configs and switches that change while calls run (decisions G39 and G40).

use redial::StopReason;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber};
use redial_grpc::{CallOptions, ClientOptions, Retries, RetryLayer, ServiceConfig};
use tonic::{Code, Request};

use crate::common::harness::{Harness, RETRY, UNARY, config, config_text, layer, message, ms};
use crate::common::streaming::{aborted_config, harness_with, replies_at, s};

// Peer test: C-core: retry_per_attempt_recv_timeout,
// retry_per_attempt_recv_timeout_on_last_attempt.
#[tokio::test(start_paused = true)]
async fn config_per_attempt_recv_timeout_is_unknown_and_warned_about() {
    let known = aborted_config(3);
    let text = known.replace(r#""maxAttempts""#, r#""perAttemptRecvTimeout": "2s", "maxAttempts""#);
    let config = ServiceConfig::parse(&text).unwrap();
    let warned =
        config.warnings().iter().any(|it| it.to_string().contains("perAttemptRecvTimeout"));
    assert!(warned, "{:?}", config.warnings());
    let layer = RetryLayer::builder().client_options(ClientOptions::default()).config(config);
    // A longer attempt is not interrupted.
    let harness = harness_with(layer, Server::new(replies_at(s(10), "bar")));
    assert_eq!((&*harness.unary("foo").await.text, harness.elapsed()), ("bar", s(10)));
    harness.finish().await;
}

/// grpc-java: #4252, calls that started before the config arrived had none. Here a call uses the config
/// that is current when it starts.
#[tokio::test(start_paused = true)]
async fn config_swap_applies_to_new_calls_only() {
    let busy = Answer::trailers_only(StatusNumber::UNAVAILABLE);
    let mut harness = Harness::new(RETRY, Script::new().default_answer(busy));
    let control = harness.control.clone();
    let (old, ()) = tokio::join!(harness.call(), async {
        tokio::time::sleep(ms(10)).await;
        control.set_config(config(""));
    });
    assert_eq!(old.starts(), [0, 50, 150]);
    assert_eq!(harness.call().await.starts(), [0]);
}

fn busy_script() -> Script {
    Script::new().default_answer(Answer::trailers_only(StatusNumber::UNAVAILABLE))
}

fn policy_with_attempts(number: u32) -> String {
    RETRY.replace(r#""maxAttempts": 3"#, &format!(r#""maxAttempts": {number}"#))
}

#[tokio::test(start_paused = true)]
async fn config_invalid_is_refused_and_the_old_one_stays() {
    let bad = config_text(&policy_with_attempts(1));
    let problems = RetryLayer::from_json(&bad).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-attempts");

    let mut harness = Harness::new(&policy_with_attempts(2), busy_script());
    assert_eq!(harness.call().await.attempts(), 2);
    let tokens = harness.tokens();
    let problems = harness.control.set_json(&bad).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-attempts");
    assert_eq!(
        harness.control.config().method(UNARY),
        config(&policy_with_attempts(2)).method(UNARY)
    );
    assert_eq!((harness.call().await.attempts(), harness.tokens()), (2, tokens - 2_000));
    assert!(harness.control.set_json("{").is_err());
    assert_eq!(
        harness.control.config().method(UNARY),
        config(&policy_with_attempts(2)).method(UNARY)
    );
}

#[tokio::test(start_paused = true)]
async fn config_valid_applies_at_once_and_returns_warnings() {
    let mut harness = Harness::new("", busy_script());
    assert_eq!(harness.call().await.attempts(), 1);
    let warnings = harness.control.set_json(&config_text(&policy_with_attempts(9))).unwrap();
    assert!(!warnings.is_empty(), "more attempts than the cap");
    let outcome = harness.call().await;
    assert_eq!(
        (outcome.attempts(), outcome.end().0),
        (5, StopReason::AttemptsExhausted),
        "the cap stays"
    );
}

#[tokio::test(start_paused = true)]
async fn config_of_a_running_call_does_not_change() {
    let mut harness = Harness::new(&policy_with_attempts(3), busy_script());
    let control = harness.control.clone();
    let (outcome, ()) = tokio::join!(harness.call(), async {
        tokio::time::sleep(ms(60)).await;
        control.set_config(config(""));
    });
    assert_eq!((outcome.attempts(), outcome.starts()), (3, vec![0, 50, 150]));
    assert_eq!(harness.call().await.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn config_swap_keeps_statistics() {
    let mut harness = Harness::new(&policy_with_attempts(2), busy_script());
    harness.call().await;
    harness.control.set_config(config(&policy_with_attempts(3)));
    harness.call().await;
    assert_eq!(harness.statistics(), (3, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn config_retries_can_be_switched_at_run_time() {
    let script = busy_script().attempts([]);
    let mut harness = Harness::with_layer(layer(RETRY).build(), Server::new(script));
    for (retries, attempts) in
        [(Retries::All, 3), (Retries::Transparent, 1), (Retries::Off, 1), (Retries::All, 2)]
    {
        harness.control.set_retries(retries);
        assert_eq!(harness.call().await.attempts(), attempts, "{retries:?}");
    }
    // Three attempts, then two: the fifth failure leaves half of the tokens.
    assert_eq!((harness.statistics(), harness.tokens()), ((3, 3, 0), 5_000));
}

#[tokio::test(start_paused = true)]
async fn config_retries_of_a_running_call_do_not_change() {
    let mut harness = Harness::new(RETRY, busy_script());
    let control = harness.control.clone();
    let (outcome, ()) = tokio::join!(harness.call(), async {
        tokio::time::sleep(ms(60)).await;
        control.set_retries(Retries::Off);
    });
    assert_eq!(outcome.attempts(), 3);
}

/// The stricter setting of layer and call applies.
#[tokio::test(start_paused = true)]
async fn config_retries_of_a_call_can_only_be_reduced() {
    let refused = || Answer::reset(Reason::REFUSED_STREAM);
    let table = [
        (Retries::All, None, 2, 1),
        (Retries::All, Some(Retries::Transparent), 1, 1),
        (Retries::All, Some(Retries::Off), 1, 0),
        (Retries::Transparent, Some(Retries::All), 1, 1),
        (Retries::Transparent, Some(Retries::Off), 1, 0),
        (Retries::Off, Some(Retries::All), 1, 0),
    ];
    for (layered, own, attempts, replaced) in table {
        let script =
            Script::new().attempts([refused(), Answer::trailers_only(StatusNumber::UNAVAILABLE)]);
        let server = Server::new(script.default_answer(Answer::echo()));
        let mut harness = Harness::with_layer(layer(RETRY).retries(layered).build(), server);
        let mut request = Request::new(message("x"));
        if let Some(own) = own {
            request.extensions_mut().insert(CallOptions::new().retries(own));
        }
        let outcome = harness.call_with(request).await;
        assert_eq!(outcome.attempts(), attempts, "{layered:?} {own:?}");
        assert_eq!(harness.statistics().2, replaced, "{layered:?} {own:?}");
        let code = if attempts == 2 { Code::Ok } else { Code::Unavailable };
        assert_eq!(outcome.code(), code, "{layered:?} {own:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn config_lookup_prefers_method_then_service_then_default() {
    let text = format!(
        r#"{{ "methodConfig": [
            {{ "name": [{{ "service": "redial.test.Echo", "method": "Unary" }}], {} }},
            {{ "name": [{{ "service": "redial.test.Echo" }}], {} }},
            {{ "name": [{{}}], {} }} ] }}"#,
        policy_with_attempts(2),
        policy_with_attempts(3),
        policy_with_attempts(4)
    );
    let layer = RetryLayer::from_json(&text).unwrap();
    let mut harness = Harness::with_layer(layer, Server::new(busy_script()));
    assert_eq!(harness.call().await.attempts(), 2);
    harness.client.server_stream(message("x")).await.unwrap_err();
    let made = |path: &str| harness.control.statistics()[path].retries.retries;
    assert_eq!((made("/redial.test.Echo/Unary"), made("/redial.test.Echo/ServerStream")), (1, 2));
}
