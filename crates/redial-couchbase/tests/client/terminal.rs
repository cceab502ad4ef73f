use std::sync::Arc;

use redial::{StopReason, ms, s};
use redial_couchbase::client::{Address, Client, ClientOptions, Collection, PlainSasl};
use redial_couchbase::{
    AttemptError, FastFailOnTerminalError, Orchestrator, RequestTarget, TerminalError, operation,
    reason,
};
use redial_faults::couchbase::{Answer, Handle, Identity, Script, Server};
use tokio::time::Instant;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, RootCertStore, crypto::ring};

use crate::common::{options, serve, unchanged_options, until};

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
async fn terminal_reason_fails_a_new_client_at_once() {
    let server = serve(Script::new().user("app", "secret"));
    // Nothing is chosen: no strategy, no timeout.
    let options = unchanged_options(&server).credentials("app", "wrong");
    let client = Client::open(options);
    let start = Instant::now();
    let error = client.wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    let error = client.default_collection().get("a").await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    assert!(start.elapsed() < ms(100), "{:?}", start.elapsed());
    // Other reasons are retried, as by best effort.
    server.set_password("app", "wrong");
    let state = client.terminal_state();
    until(|| state.reason_for(RequestTarget::Http).is_none()).await;
    client.wait_until_ready(s(10)).await.unwrap();
    server.push_answers([Answer::status(0x86), Answer::status(0x86)]);
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_reasons_are_reported_in_the_order_of_the_design() {
    let [trusted, other] = [(); 2].map(|()| Identity::self_signed(["node0"]).unwrap());
    let script = Script::new().user("app", "secret").scope("inventory", ["hotel"]);
    let server = Server::new(script).tls(trusted.clone()).on_pipe().unwrap();
    let client = Client::open(fast(&server).tls(tls(&trusted)).credentials("app", "secret"));
    client.wait_until_ready(s(10)).await.unwrap();
    let (no_scope, no_collection) =
        (client.collection("none", "hotel"), client.collection("inventory", "airline"));
    let reason_of = async |documents: &Collection| {
        let error = documents.upsert("a", "1").await.unwrap_err();
        assert_eq!(error.attempts(), 1, "{error}");
        error.reason().unwrap()
    };
    assert_eq!(reason_of(&no_collection).await, reason::COLLECTION_NOT_FOUND);
    assert_eq!(reason_of(&no_scope).await, reason::SCOPE_NOT_FOUND, "before its collection");
    // Each of these is added to those before, and hides them.
    let state = client.terminal_state();
    let raised = async |reason| {
        server.drop_connections();
        until(|| state.reason_for(RequestTarget::bucket("default")) == Some(reason)).await;
    };
    server.set_bucket_status(0x24);
    raised(reason::BUCKET_ACCESS_ERROR).await;
    assert_eq!(reason_of(&no_scope).await, reason::BUCKET_ACCESS_ERROR);
    server.set_identity(other.clone());
    raised(reason::TLS_ERROR).await;
    assert_eq!(reason_of(&no_scope).await, reason::TLS_ERROR);
    // A good handshake clears it although the bucket is still refused.
    server.set_identity(trusted);
    raised(reason::BUCKET_ACCESS_ERROR).await;
    server.set_password("app", "other");
    raised(reason::AUTHENTICATION_ERROR).await;
    server.set_identity(other);
    let cannot_connect = || {
        let error = client.endpoints()[0].connect_error.clone();
        error.is_some_and(|error| error.starts_with("TLS"))
    };
    until(cannot_connect).await;
    assert_eq!(reason_of(&no_scope).await, reason::AUTHENTICATION_ERROR, "and not TLS_ERROR");
}

#[tokio::test(start_paused = true)]
async fn terminal_refused_client_certificate_is_a_tls_error() {
    let [node, client_certificate] =
        [["node0"], ["client"]].map(|names| Identity::self_signed(names).unwrap());
    let mutual = node.clone().for_clients_with(&client_certificate).unwrap();
    let server = Server::new(Script::new()).tls(mutual).on_pipe().unwrap();
    let presenting = |identity: &Identity| {
        let chain = vec![identity.certificate().clone()];
        let config = trusting(&node).with_client_auth_cert(chain, identity.key()).unwrap();
        Client::open(fast(&server).tls(Arc::new(config)))
    };
    let unknown = Identity::self_signed(["client"]).unwrap();
    for client in [presenting(&unknown), Client::open(fast(&server).tls(tls(&node)))] {
        let error = client.wait_until_ready(s(10)).await.unwrap_err();
        assert_eq!(error.reason(), Some(reason::TLS_ERROR), "{error}");
        let error = client.default_collection().upsert("a", "1").await.unwrap_err();
        assert_eq!(error.terminal(), Some(TerminalError::Couchbase));
    }
    let client = presenting(&client_certificate);
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn terminal_refused_token_is_an_authentication_error() {
    let server = serve(Script::new().token("header.claims.signature"));
    let options = fast(&server).token("header.old.signature");
    // A token is a secret: without TLS it is not sent, so it is not refused either.
    let client = Client::open(options.clone());
    let error = client.wait_until_ready(ms(500)).await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::SERVICE_NOT_AVAILABLE));
    let client = Client::open(options.plain_sasl(PlainSasl::Always));
    let error = client.wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    let error = client.default_collection().get("a").await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::AUTHENTICATION_ERROR));
    server.set_token("header.old.signature");
    let state = client.terminal_state();
    until(|| state.reason_for(RequestTarget::Http).is_none()).await;
    client.wait_until_ready(s(10)).await.unwrap();
    client.default_collection().upsert("a", "1").await.unwrap();
    assert!(!format!("{client:?}").contains("header"), "it is not printed");
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
async fn terminal_missing_collection_fails_once_the_map_is_known() {
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

/// A client's configuration that trusts a certificate.
pub(crate) fn tls(trusted: &Identity) -> Arc<ClientConfig> {
    Arc::new(trusting(trusted).with_no_client_auth())
}

fn trusting(trusted: &Identity) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate().clone()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
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

#[tokio::test(start_paused = true)]
async fn terminal_invalid_server_name_is_a_tls_error() {
    let identity = Identity::self_signed(["node0"]).unwrap();
    let server = Server::new(Script::new()).tls(identity.clone()).on_pipe().unwrap();
    let options = fast(&server).tls(tls(&identity)).tls_server_name("not a name");
    let error = Client::open(options).wait_until_ready(s(10)).await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::Couchbase));
    assert_eq!(error.reason(), Some(reason::TLS_ERROR));
    let cause = std::error::Error::source(&error).and_then(|it| it.source()).unwrap();
    assert_eq!(cause.to_string(), "TLS: \"not a name\" is not a valid server name");
}

/// In real time over TCP: only results are compared.
#[tokio::test]
async fn terminal_wrong_password_ends_http_requests_until_it_is_right() {
    let script = Script::new().user("app", "secret");
    let server = Server::new(script).listen("127.0.0.1").await.unwrap();
    let (host, port) = server.address(0);
    let options = ClientOptions::new([Address::new(host, port)], "default");
    let client = Client::open(options.credentials("app", "wrong"));
    let state = client.terminal_state();
    until(|| state.terminal_reason_for(RequestTarget::Http).is_some()).await;
    let url = crate::reasons::serve(200, r#"{"results": []}"#).await;
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let orchestrator = Orchestrator::new();
    let query = async || {
        let request = orchestrator.request(operation::QUERY_READONLY, s(30));
        let attempt = |_| async {
            if let Some(terminal) = state.terminal_reason_for(RequestTarget::Http) {
                return Err(AttemptError::from(terminal));
            }
            let sent = http.post(&url).body("statement=SELECT 1").send().await;
            sent.map_err(|_| AttemptError::from(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT))
        };
        request.run(attempt).await
    };
    let error = query().await.unwrap_err();
    assert_eq!(error.terminal(), Some(TerminalError::AuthenticationFailure));
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::StrategyDeclined, 1));
    server.set_password("app", "wrong");
    until(|| state.terminal_reason_for(RequestTarget::Http).is_none()).await;
    assert_eq!(query().await.unwrap().status(), 200);
}
