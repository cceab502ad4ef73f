use std::sync::Arc;

use redial::{StopReason, ms, s};
use redial_couchbase::client::{Client, ClientOptions, PlainSasl};
use redial_couchbase::{FastFailOnTerminalError, RequestTarget, TerminalError, reason};
use redial_faults::couchbase::{Handle, Identity, Script, Server};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::common::{options, serve, until};

fn fast(server: &Handle) -> ClientOptions {
    options(server).strategy(FastFailOnTerminalError::new())
}

#[tokio::test(start_paused = true)]
async fn terminal_wrong_password_fails_at_once_until_it_is_right() {
    let server = serve(Script::new().user("app", "secret"));
    let client = Client::open(fast(&server).credentials("app", "wrong"));
    let error = client.wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    let error = client.default_collection().upsert("a", "1").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    assert_eq!(error.reason(), Some(reason::AUTHENTICATION_ERROR));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
    let state = client.terminal_state();
    assert_eq!(state.reason_for(RequestTarget::Http), Some(reason::AUTHENTICATION_ERROR));
    server.set_password("app", "wrong");
    until(|| state.reason_for(RequestTarget::Http).is_none()).await;
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_every_mechanism_authenticates() {
    for mechanism in ["SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1"] {
        let script = Script::new().user("a,b=c", "secret").mechanisms([mechanism, "PLAIN"]);
        let server = serve(script);
        let client = Client::open(fast(&server).credentials("a,b=c", "secret"));
        client.wait_until_ready(s(10)).await.unwrap_or_else(|error| panic!("{mechanism}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn terminal_plain_needs_tls_unless_it_is_allowed() {
    let server = serve(Script::new().user("app", "secret").mechanisms(["PLAIN"]));
    let options = fast(&server).credentials("app", "secret");
    let client = Client::open(options.clone());
    let error = client.wait_until_ready(ms(500)).await.unwrap_err();
    // No password was sent, so none was refused: not an authentication error.
    assert_eq!(error.reason(), Some(reason::SERVICE_NOT_AVAILABLE));
    assert!(error.is_timeout());
    let client = Client::open(options.plain_sasl(PlainSasl::Always));
    client.wait_until_ready(s(10)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_refused_bucket_fails_at_once_until_it_is_selected() {
    let server = serve(Script::new());
    server.set_bucket_status(0x24);
    let client = Client::open(fast(&server));
    tokio::time::sleep(ms(1)).await;
    let error = client.default_collection().get("a").await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::BUCKET_ACCESS_ERROR));
    assert_eq!(error.terminal(), Some(TerminalError::Couchbase));
    // A bucket that warms up is waited for.
    server.set_bucket_status(0x01);
    server.drop_connections();
    let error = client.default_collection().get("a").timeout(ms(50)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::BUCKET_ACCESS_ERROR), "only success clears it");
    server.set_bucket_status(0x00);
    let is_cleared =
        || client.terminal_state().reason_for(RequestTarget::bucket("default")).is_none();
    until(is_cleared).await;
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_bucket_that_warms_up_is_waited_for() {
    let server = serve(Script::new());
    server.set_bucket_status(0x01);
    let client = Client::open(fast(&server));
    let documents = client.default_collection();
    let upsert = documents.upsert("a", "1").into_future();
    let warm = async {
        tokio::time::sleep(ms(300)).await;
        server.set_bucket_status(0x00);
    };
    let (written, ()) = tokio::join!(upsert, warm);
    written.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_missing_scope_and_collection_fail_once_the_map_is_known() {
    let server = serve(Script::new().scope("inventory", ["hotel"]));
    let client = Client::open(fast(&server));
    client.wait_until_ready(s(10)).await.unwrap();
    let error = client.collection("none", "hotel").get("a").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::ScopeNotFound));
    let airlines = client.collection("inventory", "airline");
    let error = airlines.upsert("a", "1").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::CollectionNotFound));
    assert_eq!(error.attempts(), 1);
    assert!(server.requests().is_empty(), "nothing was sent");
    server.set_scope("inventory", ["hotel", "airline"]);
    // The failed request makes the client fetch the map again.
    airlines.upsert("a", "1").await.unwrap_err();
    tokio::time::sleep(ms(1)).await;
    airlines.upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_dropped_collection_is_noticed_by_its_status() {
    let server = serve(Script::new().scope("inventory", ["hotel"]));
    let client = Client::open(fast(&server));
    client.wait_until_ready(s(10)).await.unwrap();
    let hotels = client.collection("inventory", "hotel");
    hotels.upsert("a", "1").await.unwrap();
    server.remove_scope("inventory");
    // The server answers 0x88: always retried, with a new map that lacks the scope.
    let error = hotels.get("a").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::ScopeNotFound));
    assert_eq!(error.reasons(), [reason::KV_COLLECTION_OUTDATED, reason::SCOPE_NOT_FOUND]);
}

fn tls(trusted: &Identity) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[tokio::test(start_paused = true)]
async fn terminal_untrusted_certificate_fails_at_once_until_a_good_handshake() {
    let trusted = Identity::self_signed(["node0"]).unwrap();
    let untrusted = Identity::self_signed(["node0"]).unwrap();
    let script = Script::new().user("app", "secret").mechanisms(["PLAIN"]);
    let server = Server::new(script).tls(untrusted).on_pipe().unwrap();
    let client = Client::open(fast(&server).tls(tls(&trusted)).credentials("app", "secret"));
    let error = client.wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::TLS_ERROR));
    let error = client.default_collection().upsert("a", "1").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::Couchbase));
    let cause = std::error::Error::source(&error).and_then(|it| it.source()).unwrap();
    assert!(cause.to_string().contains("invalid peer certificate"), "{cause}");
    server.set_identity(trusted);
    let state = client.terminal_state();
    until(|| state.reason_for(RequestTarget::Http).is_none()).await;
    client.wait_until_ready(s(10)).await.unwrap();
    // PLAIN is allowed over TLS.
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_certificate_of_another_host_is_a_tls_error() {
    let identity = Identity::self_signed(["other.example.com"]).unwrap();
    let server = Server::new(Script::new()).tls(identity.clone()).on_pipe().unwrap();
    let client = Client::open(fast(&server).tls(tls(&identity)));
    let error = client.wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::TLS_ERROR));
    let named = fast(&server).tls(tls(&identity)).tls_server_name("other.example.com");
    Client::open(named).wait_until_ready(s(10)).await.unwrap();
}
