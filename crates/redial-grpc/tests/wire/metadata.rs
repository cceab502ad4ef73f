//! What attempts and applications are told of earlier attempts, and what all attempts have in common
//! (decision G30).

use redial_faults::grpc::{Answer, Reason, Server, StatusNumber as Peer};
use redial_grpc::{Attempts, CallOptions, Retries};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use super::rig::{HEDGE, RETRY, Rig, layer, message, ms};

const PREVIOUS: &str = "grpc-previous-rpc-attempts";

fn busy() -> Answer {
    Answer::trailers_only(Peer::UNAVAILABLE)
}

/// A request whose application says that nine attempts came before.
fn forged() -> Request<redial_echo::EchoRequest> {
    let mut request = Request::new(message("x"));
    request.metadata_mut().insert(PREVIOUS, "9".parse().unwrap());
    request.metadata_mut().append(PREVIOUS, "10".parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn what_the_application_set_is_removed_from_every_attempt() {
    let mut rig = Rig::new(RETRY, [busy(), busy(), Answer::echo()]);
    let told = rig.call_with(forged()).await;
    assert_eq!(told.previous(), [None, Some(1), Some(2)]);
    assert_eq!(told.previous_told().as_deref(), Some("2"));
    for stream in &told.record.streams {
        assert!(stream.headers.get_all(PREVIOUS).iter().count() <= 1);
    }
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let mut rig = Rig::new("", [refused, Answer::echo()]);
    let told = rig.call_with(forged()).await;
    assert_eq!((told.previous(), told.previous_told()), (vec![None, None], None));
    let off = layer("").retries(Retries::Off).build();
    let mut rig = Rig::of(off, Server::new(Answer::echo()));
    rig.client.unary(forged()).await.unwrap();
    assert!(!rig.server.record().streams[0].headers.contains_key(PREVIOUS), "even if all is off");
}

#[tokio::test(start_paused = true)]
async fn the_application_finds_the_number_in_response_and_status() {
    let mut rig = Rig::new(RETRY, [busy(), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!(told.previous_told().as_deref(), Some("1"));
    assert_eq!(told.result.unwrap().extensions().get(), Some(&Attempts(2)));

    let mut rig = Rig::new(RETRY, [busy(), Answer::trailers_only(Peer::ABORTED)]);
    let told = rig.call().await;
    assert_eq!((told.code(), told.previous_told().as_deref()), (Code::Aborted, Some("1")));

    let mut rig = Rig::new(RETRY, [Answer::echo()]);
    let told = rig.call().await;
    assert_eq!(told.previous_told(), None, "0 is not told");
    assert_eq!(told.result.unwrap().extensions().get::<Attempts>(), None);

    // A winner whose status comes later, in the trailers of its own response.
    let late = Answer::headers().message("").trailers(Peer::ABORTED);
    let mut rig = Rig::new(RETRY, [busy(), late]);
    let mut stream = {
        let response = rig.client.server_stream(message("x")).await.unwrap();
        assert_eq!(response.metadata().get(PREVIOUS).unwrap(), "1");
        response.into_inner()
    };
    stream.message().await.unwrap();
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_says_how_many_came_before_it_and_a_replacement_what_it_replaces() {
    let refused = Answer::reset(Reason::REFUSED_STREAM);
    let mut rig = Rig::new(HEDGE, [Answer::hang(), refused, Answer::hang(), Answer::echo()]);
    let told = rig.call().await;
    assert_eq!(told.previous(), [None, Some(1), Some(1), Some(2)]);
    assert_eq!(told.starts(), [0, 20, 20, 40]);
    assert_eq!(told.previous_told().as_deref(), Some("2"));
    assert_eq!(rig.statistics(), (2, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_winner_that_runs_out_of_time_says_its_own_number() {
    // The first hedge begins to answer when the second has started.
    let mut rig = Rig::new(HEDGE, [Answer::headers().after(ms(30)), Answer::hang()]);
    let mut request = Request::new(message("x"));
    request.set_timeout(ms(60));
    let response = rig.client.server_stream(request).await.unwrap();
    assert_eq!(response.metadata().get(PREVIOUS), None);
    let status = response.into_inner().message().await.unwrap_err();
    assert_eq!((status.code(), status.metadata().get(PREVIOUS)), (Code::DeadlineExceeded, None));
    assert_eq!(rig.server.record().streams.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_else_is_the_same_in_every_attempt() {
    let mut rig = Rig::new(RETRY, [busy(), Answer::reset(Reason::REFUSED_STREAM), Answer::echo()]);
    let mut request = Request::new(message("payload"));
    request.metadata_mut().append("a", "1".parse().unwrap());
    request.metadata_mut().append("a", "2".parse().unwrap());
    request.metadata_mut().insert_bin("b-bin", MetadataValue::from_bytes(&[0, 1, 255]));
    let told = rig.call_with(request).await;
    assert_eq!(told.code(), Code::Ok);
    let heads = told.record.streams.iter().map(|stream| {
        let mut headers = stream.headers.clone();
        headers.remove(PREVIOUS);
        (stream.path.clone(), headers, stream.bytes, stream.digest)
    });
    let heads: Vec<_> = heads.collect();
    assert_eq!(heads.len(), 3);
    assert!(heads.iter().all(|head| *head == heads[0]), "{heads:#?}");
    let a: Vec<_> = heads[0].1.get_all("a").iter().collect();
    assert_eq!(a, ["1", "2"]);
}

/// Options are for the layer; what else is in the extensions goes to each attempt.
#[tokio::test(start_paused = true)]
async fn extensions_reach_every_attempt() {
    use std::sync::{Arc, Mutex};
    use tower::ServiceExt as _;
    #[derive(Clone, Debug, PartialEq)]
    struct Mine(u32);
    let rig = Rig::new(RETRY, [busy(), Answer::echo()]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inner = {
        let seen = seen.clone();
        super::rig::channel(&super::rig::endpoint(), &rig.server.connector()).map_request(
            move |request: http::Request<tonic::body::Body>| {
                let mine = request.extensions().get::<Mine>().cloned();
                let options = request.extensions().get::<CallOptions>().is_some();
                seen.lock().unwrap().push((mine, options));
                request
            },
        )
    };
    let layered = tower::ServiceBuilder::new().layer(rig.layer.clone()).service(inner);
    let mut client = redial_echo::echo_client::EchoClient::new(layered);
    let mut request = Request::new(message("x"));
    request.extensions_mut().insert(Mine(7));
    request.extensions_mut().insert(CallOptions::new());
    client.unary(request).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), vec![(Some(Mine(7)), false); 2]);
}
