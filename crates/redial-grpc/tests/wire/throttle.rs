//! One throttle for each server name in the process, whatever happens to configs (decision G15).

use redial::StopReason;
use redial_faults::grpc::{Answer, Script, Server, StatusNumber as Peer};
use redial_grpc::{Retries, RetryLayer, ServiceConfig};
use tonic::Code;

use super::rig::{RETRY, Rig, UNARY, layer};

fn busy() -> Server {
    Server::new(Script::new().otherwise(Answer::trailers_only(Peer::UNAVAILABLE)))
}

/// A config that retries, with a throttle of so many tokens.
fn throttled(tokens: u32) -> ServiceConfig {
    let text = format!(
        r#"{{ "methodConfig": [{{ "name": [{{}}], {RETRY} }}],
            "retryThrottling": {{ "maxTokens": {tokens}, "tokenRatio": 0.1 }} }}"#
    );
    ServiceConfig::parse(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn layers_of_one_server_name_share_their_tokens_and_others_do_not() {
    let named = |name: &str| layer(RETRY).for_server(name).build();
    let mut one = Rig::of(named("throttle-shared"), busy());
    let mut other = Rig::of(named("throttle-shared"), busy());
    let elsewhere = Rig::of(named("throttle-elsewhere"), busy());
    let unnamed = Rig::of(layer(RETRY).build(), busy());
    assert_eq!(one.call().await.starts().len(), 3);
    assert_eq!((one.tokens(), other.tokens()), (7_000, 7_000));
    // The fifth failure leaves half of the tokens, at which nothing is retried.
    let told = other.call().await;
    assert_eq!((told.end().0, told.starts().len()), (StopReason::Throttled, 2));
    assert_eq!((one.tokens(), other.tokens()), (5_000, 5_000));
    let told = one.call().await;
    assert_eq!(
        (told.end().0, told.code(), told.starts().len()),
        (StopReason::Throttled, Code::Unavailable, 1)
    );
    assert_eq!((elsewhere.tokens(), unnamed.tokens()), (10_000, 10_000));
    let throttled = |rig: &Rig| rig.control.statistics()[UNARY].throttled;
    assert_eq!((throttled(&one), throttled(&other)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_layer_are_one_server() {
    let layer = layer(RETRY).build();
    let mut one = Rig::of(layer.clone(), busy());
    let other = Rig::of(layer, busy());
    one.call().await;
    assert_eq!(other.tokens(), 7_000);
}

#[tokio::test(start_paused = true)]
async fn a_new_config_keeps_tokens_of_equal_parameters_and_scales_others() {
    let layer = RetryLayer::builder().config(throttled(10)).build();
    let mut rig = Rig::of(layer, busy());
    rig.call().await;
    assert_eq!(rig.tokens(), 7_000);
    rig.control.set_config(throttled(10));
    assert_eq!(rig.tokens(), 7_000);
    rig.control.set_config(throttled(100));
    assert_eq!(rig.tokens(), 70_000);
    rig.control.set_config(throttled(10));
    assert_eq!(rig.tokens(), 7_000);
    rig.control.set_config(ServiceConfig::default());
    assert_eq!(rig.control.tokens(), None);
    rig.control.set_config(throttled(10));
    assert_eq!(rig.tokens(), 10_000, "a throttle that is new is full");
}

#[tokio::test(start_paused = true)]
async fn a_second_layer_of_a_name_takes_over_what_the_first_left() {
    let named = |tokens| RetryLayer::builder().config(throttled(tokens)).for_server("throttle-two");
    let mut first = Rig::of(named(10).build(), busy());
    first.call().await;
    let second = Rig::of(named(20).build(), busy());
    assert_eq!((first.tokens(), second.tokens()), (14_000, 14_000));
}

/// Red: `self.server.configure(throttling)` without a condition in `Shared::set_config`.
#[tokio::test(start_paused = true)]
async fn a_layer_without_a_throttle_takes_none_away_by_a_config_without_one() {
    let named = || RetryLayer::builder().for_server("throttle-untouched");
    let mut one = Rig::of(named().config(throttled(10)).build(), busy());
    one.call().await;
    let other = Rig::of(named().build(), busy());
    other.control.set_json("{}").unwrap();
    assert_eq!((one.tokens(), other.tokens()), (7_000, 7_000));
    one.control.set_json("{}").unwrap();
    assert_eq!(other.control.tokens(), None, "who had it ends it for all");
}

#[tokio::test(start_paused = true)]
async fn with_retries_disabled_nothing_is_counted_and_transparent_ones_count_success() {
    for (retries, tokens) in [(Retries::Off, 7_000), (Retries::Transparent, 7_100)] {
        let script = Script::new().attempts(vec![Answer::trailers_only(Peer::UNAVAILABLE); 4]);
        let script = script.otherwise(Answer::echo());
        let mut rig = Rig::of(layer(RETRY).build(), Server::new(script));
        assert_eq!(rig.call().await.starts().len(), 3);
        rig.control.set_retries(retries);
        assert_eq!(rig.call().await.code(), Code::Unavailable);
        assert_eq!(rig.tokens(), 7_000, "no status is listed");
        assert_eq!(rig.call().await.code(), Code::Ok);
        assert_eq!(rig.tokens(), tokens, "{retries:?}");
    }
}
