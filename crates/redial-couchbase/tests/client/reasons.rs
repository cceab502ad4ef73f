//! Goal: each of the 25 reasons is raised in a client, and follows the flags of RFC 49's table: whether a
//! request that is not idempotent is retried, and whether the strategy is asked. Method: for each reason a
//! server that makes it happen; one write and one read; best effort, which notes for what it was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redial::strategy::{Request, Strategy};
use redial::{ms, s};
use redial_couchbase::client::{CircuitBreakerOptions, Client, ClientOptions};
use redial_couchbase::{
    AttemptError, BestEffort, Orchestrator, Reason, RequestOperation, RequestTarget, Response,
    ResponseOutcome, operation, reason,
};
use redial_faults::couchbase::{Answer, AnswerAction, Handle, Identity, Script, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::common::{Lines, options, until};
use crate::terminal::tls;

/// The reasons of the services that speak HTTP, with an answer that raises each.
const HTTP: [(Reason, Service, u16, &str); 6] = [
    (
        reason::QUERY_PREPARED_STATEMENT_FAILURE,
        Service::Query,
        200,
        r#"{"errors": [{"code": 4040, "msg": ""}]}"#,
    ),
    (
        reason::QUERY_INDEX_NOT_FOUND,
        Service::Query,
        200,
        r#"{"errors": [{"code": 5000, "msg": "queryport.indexNotFound"}]}"#,
    ),
    (
        reason::ANALYTICS_TEMPORARY_FAILURE,
        Service::Analytics,
        200,
        r#"{"errors": [{"code": 23000, "msg": ""}]}"#,
    ),
    (reason::SEARCH_TOO_MANY_REQUESTS, Service::Search, 429, ""),
    (reason::VIEWS_TEMPORARY_FAILURE, Service::Views, 503, ""),
    (reason::VIEWS_NO_ACTIVE_PARTITION, Service::Views, 302, ""),
];

#[derive(Clone, Copy)]
enum Service {
    Query,
    Analytics,
    Search,
    Views,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
}

/// What happened to a request that met a reason.
#[derive(Debug, PartialEq)]
struct Observed {
    is_retried: bool,
    strategy_is_asked: bool,
}

/// What RFC 49's table says.
fn expected(reason: Reason, kind: Kind) -> Observed {
    let is_safe = kind == Kind::Read || reason.allows_non_idempotent_retry();
    Observed {
        is_retried: is_safe && reason != reason::UNKNOWN,
        strategy_is_asked: !reason.is_always_retried(),
    }
}

/// Best effort, and whether it was asked about a reason.
fn noting(reason: Reason) -> (impl Strategy + 'static, Arc<AtomicBool>) {
    let asked = Arc::new(AtomicBool::new(false));
    let noted = asked.clone();
    let strategy = move |request: &Request<'_>| {
        if request.reason() == Some(reason) {
            noted.store(true, Ordering::Relaxed);
        }
        BestEffort::new().retry_after(request)
    };
    (strategy, asked)
}

/// A server for a reason, and a client that has not connected yet.
fn server_for(reason: Reason) -> (Handle, ClientOptions) {
    let script = Script::new().error_map(0x7ff0, ["retry-later"]);
    match reason.name() {
        "AUTHENTICATION_ERROR" => {
            let server = Server::new(script.user("app", "secret")).on_pipe().unwrap();
            let options = options(&server).credentials("app", "wrong");
            (server, options)
        }
        "TLS_ERROR" => {
            let [trusted, other] = [(); 2].map(|()| Identity::self_signed(["node0"]).unwrap());
            let server = Server::new(script).tls(other).on_pipe().unwrap();
            let options = options(&server).tls(tls(&trusted));
            (server, options)
        }
        _ => {
            let server = Server::new(script.scope("s", ["c"])).on_pipe().unwrap();
            let options = options(&server);
            (server, options)
        }
    }
}

/// Makes the next request of the client meet the reason.
async fn raise(reason: Reason, client: &Client, server: &Handle) {
    let status = |status| server.push_answers([Answer::status(status)]);
    match reason.name() {
        "UNKNOWN" => server.push_answers([Answer::new(AnswerAction::WrongCommand)]),
        "SOCKET_CLOSED_WHILE_IN_FLIGHT" => server.push_answers([Answer::close()]),
        "SOCKET_NOT_AVAILABLE" => {
            server.set_bucket_status(0x01);
            server.drop_connections();
            until(|| !client.endpoints()[0].is_connected).await;
        }
        "NODE_NOT_AVAILABLE" => {
            server.move_vbuckets(None);
            until(|| client.config_revision() == Some((1, 2))).await;
        }
        "CIRCUIT_BREAKER_OPEN" => {
            server.push_answers([Answer::hang(), Answer::hang(), Answer::hang(), Answer::hang()]);
            for _ in 0..4 {
                client.default_collection().get("a").timeout(ms(10)).await.unwrap_err();
            }
        }
        "BUCKET_ACCESS_ERROR" => {
            server.set_bucket_status(0x24);
            server.drop_connections();
            let bucket = RequestTarget::bucket("default");
            until(|| client.terminal_state().reason_for(bucket).is_some()).await;
        }
        "KV_NOT_MY_VBUCKET" => status(0x07),
        "KV_COLLECTION_OUTDATED" => status(0x88),
        "KV_ERROR_MAP_RETRY_INDICATED" => status(0x7ff0),
        "KV_LOCKED" => status(0x09),
        "KV_TEMPORARY_FAILURE" => status(0x86),
        "KV_SYNC_WRITE_IN_PROGRESS" => status(0xa2),
        "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS" => status(0xa4),
        // RFC 49 lists no response for it; an application names the status.
        "SERVICE_RESPONSE_CODE_INDICATED" => status(0x83),
        // The state of the cluster raises the others.
        _ => {}
    }
}

async fn observed(reason: Reason, kind: Kind) -> Observed {
    let (strategy, asked) = noting(reason);
    let (server, options) = server_for(reason);
    let mut breaker = CircuitBreakerOptions::DEFAULT;
    (breaker.requests_min, breaker.open_for) = (4, s(1));
    let lines = Lines::default();
    let options = options.circuit_breaker(Some(breaker)).config_poll_interval(ms(100));
    let client = Client::open(lines.of(options.strategy(strategy)));
    match reason.name() {
        // The client is not ready yet, or never.
        "SERVICE_NOT_AVAILABLE" => {}
        "AUTHENTICATION_ERROR" | "TLS_ERROR" => {
            until(|| client.terminal_state().reason_for(RequestTarget::Http).is_some()).await;
        }
        _ => client.wait_until_ready(s(1)).await.unwrap(),
    }
    raise(reason, &client, &server).await;
    let (scope, collection) = match reason.name() {
        "SCOPE_NOT_FOUND" => ("none", "c"),
        "COLLECTION_NOT_FOUND" => ("s", "none"),
        _ => ("_default", "_default"),
    };
    let documents = client.collection(scope, collection);
    lines.take();
    asked.store(false, Ordering::Relaxed);
    let named = (0x83, reason::SERVICE_RESPONSE_CODE_INDICATED);
    // Whether it ends well does not matter: some reasons stay.
    match kind {
        Kind::Read => {
            let get = documents.get("a").timeout(ms(50)).retry_status(named.0, named.1);
            drop(get.await);
        }
        Kind::Write => {
            let add = documents.increment("a", 1, Some(0)).timeout(ms(50));
            drop(add.retry_status(named.0, named.1).await);
        }
    }
    let first = lines.take().into_iter().next().expect("the request failed at least once");
    let is_retried = first == format!("retry {reason}");
    assert!(is_retried || first == format!("not-retried {reason}"), "{reason}: {first}");
    Observed { is_retried, strategy_is_asked: asked.load(Ordering::Relaxed) }
}

#[tokio::test(start_paused = true)]
async fn reasons_of_the_kv_service_follow_their_flags() {
    let is_of_http = |reason: &Reason| HTTP.iter().any(|(of_http, ..)| of_http == reason);
    let (of_http, of_kv): (Vec<Reason>, Vec<Reason>) =
        reason::ALL.into_iter().partition(is_of_http);
    assert_eq!((of_http.len(), of_kv.len()), (6, 19));
    for reason in of_kv {
        for kind in [Kind::Read, Kind::Write] {
            assert_eq!(observed(reason, kind).await, expected(reason, kind), "{reason}");
        }
    }
}

/// In real time over TCP: only results are compared.
#[tokio::test]
async fn reasons_of_http_services_follow_the_flags_of_the_table() {
    for (reason, service, status, body) in HTTP {
        for (kind, operation) in
            [(Kind::Read, operation::QUERY_READONLY), (Kind::Write, operation::QUERY)]
        {
            let url = serve(status, body).await;
            let observed = observed_http(reason, service, operation, &url).await;
            assert_eq!(observed, expected(reason, kind), "{reason}");
        }
    }
}

async fn observed_http(
    reason: Reason,
    service: Service,
    operation: RequestOperation,
    url: &str,
) -> Observed {
    let (strategy, asked) = noting(reason);
    // A redirect is an answer of the service.
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let http = http.pool_max_idle_per_host(0).build().unwrap();
    let request = Orchestrator::with(strategy);
    let request = request.request(operation, Duration::from_secs(30));
    let ended = request.run(|_| exchange(&http, service, url)).await;
    Observed { is_retried: ended.is_ok(), strategy_is_asked: asked.load(Ordering::Relaxed) }
}

/// One request of a user's HTTP client, with the response table of the service.
async fn exchange(http: &reqwest::Client, service: Service, url: &str) -> Result<(), AttemptError> {
    let lost = |_| AttemptError::from(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT);
    let answer = http.post(url).send().await.map_err(lost)?;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(lost)?;
    let error = || {
        let body: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let code = body["errors"][0]["code"].as_u64().unwrap_or(0);
        let text = body["errors"][0]["msg"].as_str().unwrap_or_default().to_owned();
        (u32::try_from(code).unwrap(), text)
    };
    let response = match service {
        Service::Query => Response::query(error().0, error().1),
        Service::Analytics => Response::analytics(error().0),
        Service::Search => Response::search(status),
        Service::Views => Response::views(status, text.clone()),
    };
    match response.classify() {
        ResponseOutcome::Ok => Ok(()),
        _ => Err(response.into()),
    }
}

/// A server whose first answer is this one, and whose second is a success.
pub(crate) async fn serve(status: u16, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for (status, body) in [(status, body), (200, "{}")] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            let head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}", body.len());
            let answer = format!("{head}\r\nconnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Unread bytes would reset the connection under the answer.
            while stream.read(&mut request).await.unwrap_or(0) > 0 {}
        }
    });
    format!("http://{address}")
}
