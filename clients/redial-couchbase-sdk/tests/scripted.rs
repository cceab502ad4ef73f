//! Goal: what `CouchbaseMock` does not have: durable writes, collections, connections that are lost at a known
//! request. Method: the official SDK against the scripted cluster of `redial-faults`, over loopback TCP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::error::ErrorKind;
use couchbase::options::cluster_options::ClusterOptions;
use redial::strategy::{Decision, Request};
use redial::{Policy, Throttle, ms};
use redial_couchbase::{BestEffort, reason};
use redial_couchbase_sdk::{SdkStrategy, attempt};
use redial_faults::couchbase::{Answer, Handle, Script, Server};

/// How long connecting may take on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);

struct Setup {
    server: Handle,
    cluster: Cluster,
    lines: Arc<Mutex<Vec<String>>>,
}

/// A scripted cluster, and a client whose operations retry by this strategy.
async fn start(strategy: SdkStrategy) -> Setup {
    let script = Script::new().bucket("travel").user("app", "secret");
    let script = script.scope("_default", ["_default"]).scope("inventory", ["airline"]);
    let server = Server::new(script).listen("127.0.0.1").await.unwrap();
    let (host, port) = server.address(0);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let strategy = strategy.on_decision(move |decision| {
        log.lock().unwrap().push(format!("{} {decision}", decision.request));
    });
    let options = ClusterOptions::new(PasswordAuthenticator::new("app", "secret").into())
        .default_retry_strategy(Arc::new(strategy));
    let connected = Cluster::connect(format!("couchbase://{host}:{port}"), options);
    let cluster = tokio::time::timeout(READY_MAX, connected).await.unwrap().unwrap();
    let bucket = cluster.bucket("travel");
    tokio::time::timeout(READY_MAX, bucket.wait_until_ready(None)).await.unwrap().unwrap();
    Setup { server, cluster, lines }
}

impl Setup {
    /// The decisions about this operation, without the description of the request.
    fn lines(&self, operation: &str) -> Vec<String> {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap());
        let about = format!("operation: {operation},");
        assert!(lines.iter().all(|line| line.contains(&about)), "{lines:?}");
        lines.iter().map(|line| line.rsplit_once("} ").unwrap().1.to_owned()).collect()
    }
}

#[tokio::test]
async fn sdk_durable_writes_have_their_reasons() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    let documents = setup.cluster.bucket("travel").default_collection();
    let rows = [
        (0xa2, "retry KV_SYNC_WRITE_IN_PROGRESS"),
        (0xa4, "retry KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
    ];
    for (status, line) in rows {
        setup.server.push_answers([Answer::status(status), Answer::status(status)]);
        documents.upsert("a", "1", None).await.unwrap();
        assert_eq!(setup.lines("upsert"), [line, line]);
    }
}

#[tokio::test]
async fn sdk_outdated_collection_never_reaches_the_strategy() {
    let setup = start(SdkStrategy::of(|_: &Request<'_>| Decision::Decline)).await;
    let airlines = setup.cluster.bucket("travel").scope("inventory").collection("airline");
    setup.server.push_answers([Answer::status(0x88).to("upsert")]);
    airlines.upsert("a", "1", None).await.unwrap();
    assert!(setup.lines("upsert").is_empty());
}

#[tokio::test]
async fn sdk_request_that_lost_its_connection_is_retried_if_idempotent() {
    let policy = Policy::constant(ms(10)).attempts(1000).throttle(Throttle::none()).build();
    let setup = start(SdkStrategy::new(policy).unwrap()).await;
    let documents = setup.cluster.bucket("travel").default_collection();
    documents.upsert("a", "1", None).await.unwrap();
    setup.server.push_answers([Answer::close().to("get")]);
    documents.get("a", None).await.unwrap();
    assert_eq!(setup.lines("get")[0], "retry SOCKET_CLOSED_WHILE_IN_FLIGHT");
    setup.server.push_answers([Answer::close().to("upsert")]);
    documents.upsert("a", "2", None).await.unwrap_err();
    assert_eq!(setup.lines("upsert"), ["not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT"]);
}

#[tokio::test]
async fn sdk_final_errors_are_not_asked_about() {
    let setup = start(SdkStrategy::of(BestEffort::new())).await;
    let documents = setup.cluster.bucket("travel").default_collection();
    let error = documents.get("none", None).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::DocumentNotFound);
    assert!(setup.lines("get").is_empty());
    let seen = attempt(|strategy| {
        let options = couchbase::options::kv_options::GetOptions::new().retry_strategy(strategy);
        documents.get("none", options)
    });
    let error = seen.await.unwrap_err();
    assert_eq!((error.reason(), error.is_idempotent()), (None, None));
    assert!(error.to_string().starts_with("document not found"), "{error}");
    setup.server.push_answers([Answer::status(0x86).to("get")]);
    let seen = attempt(|strategy| {
        let options = couchbase::options::kv_options::GetOptions::new().retry_strategy(strategy);
        documents.get("none", options)
    });
    let error = seen.await.unwrap_err();
    assert_eq!(error.reason(), Some(reason::KV_TEMPORARY_FAILURE));
    assert_eq!(error.is_idempotent(), Some(true));
    assert_eq!(error.into_error().kind(), &ErrorKind::TemporaryFailure);
}
