//! Runs a call of an HTTP service: an HTTP client, the response tables and the orchestrator.
//!
//! The HTTP client is hyper, because reqwest has sockets of its own and so needs real time.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use redial::CallLog;
use redial::strategy::Strategy;
use redial::time::Ns;
use redial_couchbase::{AttemptError, Orchestrator, RequestOperation, Response, reason};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::{Step, arrivals_differ, observed, steps, timeout, unless_dropped};
use crate::scenarios::compare::Difference;
use crate::scenarios::model::Call;
use crate::scenarios::play::ActualCall;

const PIPE_BYTES: usize = 64 << 10;
/// The largest request that the scripted server reads.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Runs a call; the attempts of its log must be the requests that the server received.
pub(super) async fn play(
    call: &Call,
    strategy: impl Strategy + 'static,
) -> (ActualCall, Vec<Difference>) {
    let server = Arc::new(ScriptedServer::new(steps(call)));
    let operation = operation(call);
    let orchestrator = Orchestrator::with(strategy);
    let mut log = CallLog::default();
    let request = orchestrator.request(operation, timeout(call)).call_log(&mut log);
    let start = Instant::now();
    let result = unless_dropped(call, request.run(|_| attempt(&server, operation))).await;
    let actual = observed(result.as_ref(), &log, start.elapsed());
    let arrived: Vec<Ns> = server
        .arrived()
        .iter()
        .map(|at| redial::testing::nanoseconds(at.duration_since(start)))
        .collect();
    let differences = arrivals_differ(&actual.starts, &arrived).into_iter().collect();
    (actual, differences)
}

/// The operation that the call names, or one with its idempotency.
fn operation(call: &Call) -> RequestOperation {
    let named = call.operation.as_deref().and_then(|name| RequestOperation::parse(name).ok());
    named.unwrap_or(if call.idempotent {
        RequestOperation::declared_idempotent("http.idempotent")
    } else {
        RequestOperation::new("http")
    })
}

/// A service that speaks HTTP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HttpService {
    Query,
    Analytics,
    Search,
    Views,
    /// The cluster manager and the management APIs.
    Management,
}

impl HttpService {
    /// The service of an operation; one without a service is taken as a view.
    fn of(operation: RequestOperation) -> Self {
        match operation.name().split('.').next() {
            Some("query") => HttpService::Query,
            Some("analytics") => HttpService::Analytics,
            Some("search") => HttpService::Search,
            Some("manager" | "management") => HttpService::Management,
            _ => HttpService::Views,
        }
    }

    /// The service whose response this is; `None`: the one of the operation.
    fn of_response(response: &Response) -> Option<Self> {
        match response {
            Response::Query { .. } => Some(HttpService::Query),
            Response::Analytics { .. } => Some(HttpService::Analytics),
            Response::Search { .. } => Some(HttpService::Search),
            Response::Views { .. } => Some(HttpService::Views),
            _ => None,
        }
    }

    /// The path of a request.
    const fn path(self) -> &'static str {
        match self {
            HttpService::Query => "/query/service",
            HttpService::Analytics => "/analytics/service",
            HttpService::Search => "/api/index/hotels/query",
            HttpService::Views => "/travel/_design/d/_view/v",
            HttpService::Management => "/pools/default/buckets",
        }
    }

    /// The method: a management operation names its own.
    fn method(self, operation: RequestOperation) -> Method {
        match (self, operation.name().rsplit('.').next()) {
            (HttpService::Views, _) | (HttpService::Management, Some("get")) => Method::GET,
            (HttpService::Management, Some("put")) => Method::PUT,
            (HttpService::Management, Some("delete")) => Method::DELETE,
            _ => Method::POST,
        }
    }
}

/// Sends an HTTP request, and classifies its response with the table of the service.
async fn attempt(
    server: &Arc<ScriptedServer>,
    operation: RequestOperation,
) -> Result<(), AttemptError> {
    let (service, stream) = server.connect(operation);
    let lost = |_| AttemptError::from(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let driver = tokio::spawn(connection);
    let request = http::Request::builder().method(service.method(operation));
    let request = request.uri(service.path()).header("host", "node0");
    let request = request.body(Empty::<Bytes>::new()).expect("the request is valid");
    let response = sender.send_request(request).await.map_err(lost)?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
    driver.abort();
    let text = String::from_utf8_lossy(&body).into_owned();
    let first_error =
        || serde_json::from_str::<Value>(&text).ok().map(|it| it["errors"][0].clone());
    let error = first_error().unwrap_or_default();
    let code = u32::try_from(error["code"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    let message = error["msg"].as_str().unwrap_or_default().to_owned();
    let response = match service {
        HttpService::Query => Response::query(code, message),
        HttpService::Analytics => Response::analytics(code),
        HttpService::Search => Response::search(status),
        HttpService::Views => Response::views(status, text),
        // RFC 49 has no table for these responses, so each of them is the result.
        HttpService::Management => return Ok(()),
    };
    match response.classify() {
        redial_couchbase::ResponseOutcome::Ok => Ok(()),
        _ => Err(response.into()),
    }
}

/// An HTTP server that answers from a script: a test double.
struct ScriptedServer {
    steps: Vec<(Ns, Step)>,
    served: Mutex<usize>,
    /// When each request had arrived completely.
    arrived: Mutex<Vec<Instant>>,
}

impl ScriptedServer {
    fn new(steps: Vec<(Ns, Step)>) -> Self {
        ScriptedServer { steps, served: Mutex::default(), arrived: Mutex::default() }
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, and the service that the next step of the script answers for.
    fn connect(self: &Arc<Self>, operation: RequestOperation) -> (HttpService, DuplexStream) {
        let index = {
            let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            *served += 1;
            *served - 1
        };
        let (after, step) = self.steps.get(index).cloned().unwrap_or((0, Step::Hang));
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let answered = match &step {
            Step::Response(response) => HttpService::of_response(response),
            _ => None,
        };
        let service = answered.unwrap_or_else(|| HttpService::of(operation));
        let script = self.clone();
        tokio::spawn(async move { script.serve(server, after, &step).await });
        (service, client)
    }

    async fn serve(&self, mut stream: DuplexStream, after: Ns, step: &Step) -> io::Result<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if request.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        self.arrived().push(Instant::now());
        if after > 0 {
            tokio::time::sleep(Duration::from_nanos(after)).await;
        }
        respond(stream, step).await
    }
}

async fn respond(mut stream: DuplexStream, step: &Step) -> io::Result<()> {
    let (status, body) = match step {
        Step::Succeed => (200, "{}".to_owned()),
        Step::Response(Response::Query { code, text }) => (200, errors(*code, text)),
        Step::Response(Response::Analytics { code }) => (200, errors(*code, "")),
        Step::Response(Response::Search { http }) => (*http, String::new()),
        Step::Response(Response::Views { http, text }) => (*http, text.to_string()),
        Step::Close => return Ok(()),
        _ => return std::future::pending().await,
    };
    let length = body.len();
    let response = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(response.as_bytes()).await?;
    // Until the client closes the connection.
    stream.read_buf(&mut Vec::new()).await.map(drop)
}

fn errors(code: u32, text: &str) -> String {
    match code {
        0 => "{}".to_owned(),
        code => json!({"errors": [{"code": code, "msg": text}]}).to_string(),
    }
}
