//! Configs and switches that change while calls run (decisions G39 and G40).

use redial::StopReason;
use redial_faults::grpc::{Answer, Reason, Script, Server, StatusNumber as Peer};
use redial_grpc::{CallOptions, Retries, RetryLayer};
use tonic::{Code, Request};

use super::rig::{RETRY, Rig, UNARY, config, config_text, layer, message, ms};

fn busy() -> Script {
    Script::new().otherwise(Answer::trailers_only(Peer::UNAVAILABLE))
}

fn attempts(number: u32) -> String {
    RETRY.replace(r#""maxAttempts": 3"#, &format!(r#""maxAttempts": {number}"#))
}

#[tokio::test(start_paused = true)]
async fn a_bad_config_builds_no_layer_and_in_force_the_old_one_stays() {
    let bad = config_text(&attempts(1));
    let problems = RetryLayer::from_json(&bad).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-attempts");

    let mut rig = Rig::new(&attempts(2), busy());
    assert_eq!(rig.call().await.attempts(), 2);
    let tokens = rig.tokens();
    let problems = rig.control.set_json(&bad).unwrap_err();
    assert_eq!(problems.as_slice()[0].rule.name(), "max-attempts");
    assert_eq!(rig.control.config().method(UNARY), config(&attempts(2)).method(UNARY));
    assert_eq!((rig.call().await.attempts(), rig.tokens()), (2, tokens - 2_000));
    assert!(rig.control.set_json("{").is_err());
    assert_eq!(rig.control.config().method(UNARY), config(&attempts(2)).method(UNARY));
}

#[tokio::test(start_paused = true)]
async fn a_good_config_is_in_force_at_once_and_its_warnings_are_told() {
    let mut rig = Rig::new("", busy());
    assert_eq!(rig.call().await.attempts(), 1);
    let warnings = rig.control.set_json(&config_text(&attempts(9))).unwrap();
    assert!(!warnings.is_empty(), "more attempts than the cap");
    let told = rig.call().await;
    assert_eq!(
        (told.attempts(), told.end().0),
        (5, StopReason::AttemptsExhausted),
        "the cap stays"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_keep_the_config_that_they_began_with() {
    let mut rig = Rig::new(&attempts(3), busy());
    let control = rig.control.clone();
    let (told, ()) = tokio::join!(rig.call(), async {
        tokio::time::sleep(ms(60)).await;
        control.set_config(config(""));
    });
    assert_eq!((told.attempts(), told.starts()), (3, vec![0, 50, 150]));
    assert_eq!(rig.call().await.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_config_that_is_swapped_between_calls_keeps_their_statistics() {
    let mut rig = Rig::new(&attempts(2), busy());
    rig.call().await;
    rig.control.set_config(config(&attempts(3)));
    rig.call().await;
    assert_eq!(rig.statistics(), (3, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn retries_are_switched_off_and_on_while_the_layer_is_used() {
    let script = busy().attempts([]);
    let mut rig = Rig::of(layer(RETRY).build(), Server::new(script));
    for (retries, attempts) in
        [(Retries::All, 3), (Retries::Transparent, 1), (Retries::Off, 1), (Retries::All, 2)]
    {
        rig.control.set_retries(retries);
        assert_eq!(rig.call().await.attempts(), attempts, "{retries:?}");
    }
    // Three and two: the fifth failure left half of the tokens.
    assert_eq!((rig.statistics(), rig.tokens()), ((3, 3, 0), 5_000));
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_keep_the_retries_that_they_began_with() {
    let mut rig = Rig::new(RETRY, busy());
    let control = rig.control.clone();
    let (told, ()) = tokio::join!(rig.call(), async {
        tokio::time::sleep(ms(60)).await;
        control.set_retries(Retries::Off);
    });
    assert_eq!(told.attempts(), 3);
}

/// Of layer and call the stricter word counts: a call can only ask for less.
#[tokio::test(start_paused = true)]
async fn a_call_can_do_without_retries_and_not_with_more() {
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
        let script = Script::new().attempts([refused(), Answer::trailers_only(Peer::UNAVAILABLE)]);
        let server = Server::new(script.otherwise(Answer::echo()));
        let mut rig = Rig::of(layer(RETRY).retries(layered).build(), server);
        let mut request = Request::new(message("x"));
        if let Some(own) = own {
            request.extensions_mut().insert(CallOptions::new().retries(own));
        }
        let told = rig.call_with(request).await;
        assert_eq!(told.attempts(), attempts, "{layered:?} {own:?}");
        assert_eq!(rig.statistics().2, replaced, "{layered:?} {own:?}");
        let code = if attempts == 2 { Code::Ok } else { Code::Unavailable };
        assert_eq!(told.code(), code, "{layered:?} {own:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn methods_are_looked_up_by_method_service_and_default() {
    let text = format!(
        r#"{{ "methodConfig": [
            {{ "name": [{{ "service": "redial.test.Echo", "method": "Unary" }}], {} }},
            {{ "name": [{{ "service": "redial.test.Echo" }}], {} }},
            {{ "name": [{{}}], {} }} ] }}"#,
        attempts(2),
        attempts(3),
        attempts(4)
    );
    let layer = RetryLayer::from_json(&text).unwrap();
    let mut rig = Rig::of(layer, Server::new(busy()));
    assert_eq!(rig.call().await.attempts(), 2);
    rig.client.server_stream(message("x")).await.unwrap_err();
    let made = |path: &str| rig.control.statistics()[path].retries.retries;
    assert_eq!((made("/redial.test.Echo/Unary"), made("/redial.test.Echo/ServerStream")), (1, 2));
}
