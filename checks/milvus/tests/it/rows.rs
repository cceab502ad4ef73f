//! The layer around the SDK's generated client: injected failures before and after the server
//! worked, and the rows that are there afterwards.

use std::time::{Duration, Instant};

use milvus::proto::milvus::SearchResults;
use milvus::proto::milvus::milvus_service_client::MilvusServiceClient;
use prost::Message as _;
use redial_faults::grpc::StatusNumber;
use redial_faults::proxy::{Fault, Handle, Proxy};
use redial_milvus::{Options, WriteRetries};
use tower::ServiceBuilder;

use crate::TOLERANCE;
use crate::collection::{Collection, channel, client, count, direct, ok};
use crate::processes::milvus_lite;

const PROTECTED: Options = Options::DEFAULT.write_retries(WriteRetries::OnlyIfNotRun);

pub(crate) async fn proxy_to(addr: std::net::SocketAddr) -> Handle {
    Proxy::http(addr).listen("127.0.0.1:0").await.unwrap()
}

pub(crate) fn unavailable() -> Fault {
    Fault::grpc_status(StatusNumber::UNAVAILABLE).message("injected")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_calls_survive_failures_before_the_server_worked() {
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    let mut layered = client(&proxy.url(), Options::DEFAULT.interceptor().unwrap());
    let fail_twice = || proxy.requests([unavailable(), Fault::status(503)]);

    let created = Collection::new("before_create");
    fail_twice();
    ok(&created.create(&mut layered).await.unwrap());
    assert!(created.exists(&mut direct).await);

    let collection = Collection::new("before");
    collection.set_up(&mut direct).await;
    fail_twice();
    let inserted = collection.insert(&mut layered).await.unwrap();
    assert_eq!(inserted.insert_cnt, 1);
    assert_eq!(collection.rows(&mut direct).await, 1);
    fail_twice();
    let found = collection.search(&mut layered).await.unwrap();
    ok(found.status.as_ref().unwrap());
    assert_eq!(found.results.unwrap().scores.len(), 1);
    fail_twice();
    assert_eq!(count(&collection.query(&mut layered).await.unwrap()), 1);
    fail_twice();
    ok(&collection.drop(&mut layered).await.unwrap());
    assert!(!collection.exists(&mut direct).await);

    proxy.idle().await;
    let counts = proxy.counts();
    // Three attempts for each of five calls, of which one reached the server.
    assert_eq!((counts.exchanges, counts.forwarded), (15, 5));
    assert_same_requests(&proxy);
}

/// Attempts of a call have the same message, and a fresh deadline each.
fn assert_same_requests(proxy: &Handle) {
    for attempts in proxy.record().exchanges.chunks(3) {
        for attempt in attempts {
            assert_eq!(attempt.path, attempts[0].path);
            assert_eq!(attempt.request_digest, attempts[0].request_digest);
            assert_eq!(attempt.headers["grpc-timeout"], "15000000u");
        }
        let waited = |index: usize| attempts[index].arrived - attempts[index - 1].end.unwrap().at;
        assert!(waited(1) >= Duration::from_millis(19) && waited(1) < TOLERANCE);
        assert!(waited(2) >= Duration::from_millis(39) && waited(2) < TOLERANCE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_calls_survive_failures_after_the_server_worked() {
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    let mut layered = client(&proxy.url(), Options::DEFAULT.interceptor().unwrap());
    let fail_after = || proxy.requests([unavailable().after_upstream()]);

    let collection = Collection::new("after");
    collection.set_up(&mut direct).await;
    collection.insert(&mut direct).await.unwrap();
    fail_after();
    let found = collection.search(&mut layered).await.unwrap();
    assert_eq!(found.results.unwrap().scores.len(), 1);
    fail_after();
    assert_eq!(count(&collection.query(&mut layered).await.unwrap()), 1);

    // The second attempt finds the work done: the server's own answer is returned, and the state is
    // right.
    let again = Collection::new("after_create");
    fail_after();
    let status = again.create(&mut layered).await.unwrap();
    assert!(status.code == 0 || status.reason.contains("already exist"), "{status:?}");
    assert!(again.exists(&mut direct).await);
    fail_after();
    let status = again.drop(&mut layered).await.unwrap();
    assert!(status.code == 0 || status.reason.contains("not found"), "{status:?}");
    assert!(!again.exists(&mut direct).await);
    proxy.idle().await;
    let counts = proxy.counts();
    assert_eq!((counts.exchanges, counts.forwarded), (8, 8));
}

/// The example of docs/milvus.md: a predicate that decodes the message with the generated code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_predicate_decodes_the_message() {
    let server = milvus_lite().await;
    let url = format!("http://{}", server.addr);
    let mut direct = direct(&url);
    let collection = Collection::new("predicate");
    collection.set_up(&mut direct).await;
    // An empty result is searched again.
    let interceptor = Options::DEFAULT.max_retries(9).interceptor().unwrap();
    let layer = interceptor.layer_0_13().invalid_when(|answer| {
        let message = answer.message().filter(|_| answer.method() == "Search");
        let found = message.and_then(|message| SearchResults::decode(message).ok());
        found.is_some_and(|found| found.results.is_none_or(|results| results.scores.is_empty()))
    });
    let stack = ServiceBuilder::new().layer(layer).service(channel(&url));
    let mut layered = MilvusServiceClient::new(stack);
    let (found, ()) = tokio::join!(collection.search(&mut layered), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        collection.insert(&mut direct).await.unwrap();
    });
    assert_eq!(found.unwrap().results.unwrap().scores.len(), 1);
}

/// A failure of inserts, and what it leaves.
struct Case {
    name: &'static str,
    options: Options,
    faults: Vec<Fault>,
    succeeds: bool,
    rows: i64,
}

/// The table of docs/milvus.md.
fn cases() -> Vec<Case> {
    let after = || unavailable().after_upstream();
    let case = |name, options, faults: Vec<Fault>, succeeds, rows| Case {
        name,
        options,
        faults,
        succeeds,
        rows,
    };
    let default = Options::DEFAULT;
    vec![
        case("default_before", default, vec![unavailable()], true, 1),
        case("default_after", default, vec![after()], true, 2),
        case("default_after_four", default, vec![after(); 4], false, 4),
        case("default_reset_after", default, vec![Fault::reset().after_upstream()], true, 2),
        case("default_truncated", default, vec![Fault::close().at_response_bytes(1)], true, 2),
        case("protected_before", PROTECTED, vec![unavailable()], false, 0),
        case("protected_after", PROTECTED, vec![after()], false, 1),
        case("protected_reset_before", PROTECTED, vec![Fault::reset()], false, 0),
        case("protected_reset_after", PROTECTED, vec![Fault::reset().after_upstream()], false, 1),
        case("no_retries_after", default.max_retries(0), vec![after()], false, 1),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_insert_is_duplicated_by_default_and_never_when_protected() {
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    for case in cases() {
        let collection = Collection::new(case.name);
        collection.set_up(&mut direct).await;
        let mut layered = client(&proxy.url(), case.options.interceptor().unwrap());
        let faults = case.faults.len();
        proxy.requests(case.faults);
        let result = collection.insert(&mut layered).await;
        assert_eq!(result.is_ok(), case.succeeds, "{}: {result:?}", case.name);
        assert_eq!(collection.rows(&mut direct).await, case.rows, "{}", case.name);
        if let Err(status) = result {
            let exhausted = status.message().contains("(retried 3 times, ");
            assert_eq!(exhausted, faults == 4, "{}: {status:?}", case.name);
        }
        proxy.clear();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milvus_protected_insert_is_retried_when_nothing_was_sent() {
    let server = milvus_lite().await;
    let proxy = proxy_to(server.addr).await;
    let mut direct = direct(&format!("http://{}", server.addr));
    let collection = Collection::new("refused");
    collection.set_up(&mut direct).await;
    proxy.refuse_connections().await;
    let options = PROTECTED.max_retries(9);
    let mut layered = client(&proxy.url(), options.interceptor().unwrap());
    let start = Instant::now();
    let (inserted, ()) = tokio::join!(collection.insert(&mut layered), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.accept_connections().await;
    });
    assert_eq!(inserted.unwrap().insert_cnt, 1);
    assert!(start.elapsed() >= Duration::from_millis(60), "two retries before it was accepted");
    assert_eq!(collection.rows(&mut direct).await, 1);
}
