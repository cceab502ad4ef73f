//! Configs, and what attempts have of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redial_echo::echo_client::EchoClient;
use redial_faults::grpc::{Answer, Reason, Script, StatusNumber as Peer};
use tonic::Request;
use tonic::service::interceptor::InterceptedService;
use tower::Layer as _;

use super::rig::{RETRY, Rig, channel, config, endpoint, message, ms};

/// In grpc-java calls that began before a config was there had none (#4252). Here a call has the one
/// that is in force when it begins, and each later one the next.
///
/// Red: leave new calls to the config before (no `self.methods.store(..)` in
/// `Shared::set_config`).
#[tokio::test(start_paused = true)]
async fn config_swap_applies_to_new_calls_only() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE);
    let mut rig = Rig::new(RETRY, Script::new().otherwise(busy));
    let control = rig.control.clone();
    let (old, ()) = tokio::join!(rig.call(), async {
        tokio::time::sleep(ms(10)).await;
        control.set_config(config(""));
    });
    assert_eq!(old.starts(), [0, 50, 150]);
    assert_eq!(rig.call().await.starts(), [0]);
}

/// In grpc-go what one attempt was given leaked into the next
/// (`TestAuthorityOverrideNotReusedAcrossAttempts`).
///
/// Red: add in place of setting (`append` in place of `insert` in `template::stamp`).
#[tokio::test(start_paused = true)]
async fn attempt_headers_not_carried_over() {
    let busy = Answer::trailers_only(Peer::UNAVAILABLE);
    let script = [busy.clone(), Answer::reset(Reason::REFUSED_STREAM), busy, Answer::echo()];
    let rig = Rig::new(RETRY, script);
    let attempts = Arc::new(AtomicU32::new(0));
    let stamped = InterceptedService::new(
        channel(&endpoint(), &rig.server.connector()),
        move |mut request: Request<()>| {
            let number = attempts.fetch_add(1, Ordering::Relaxed);
            request.metadata_mut().append("stamp", number.into());
            Ok(request)
        },
    );
    let mut client = EchoClient::new(rig.layer.layer(stamped));
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(10_000));
    client.unary(request).await.unwrap();
    let streams = rig.server.record().streams;
    let all = |name: &str| -> Vec<Vec<String>> {
        let values = streams.iter().map(|it| it.headers.get_all(name).iter());
        values.map(|it| it.map(|it| it.to_str().unwrap().to_owned()).collect()).collect()
    };
    assert_eq!(all("stamp"), [["0"], ["1"], ["2"], ["3"]], "each its own");
    let previous = all("grpc-previous-rpc-attempts");
    assert_eq!(previous, [vec![], vec!["1"], vec!["1"], vec!["2"]]);
    assert!(all("grpc-timeout").iter().all(|it| it.len() == 1));
    let timeouts: Vec<_> = streams.iter().map(|it| it.timeout().unwrap()).collect();
    assert_eq!(timeouts, [ms(10_000), ms(9_950), ms(9_950), ms(9_850)]);
}
