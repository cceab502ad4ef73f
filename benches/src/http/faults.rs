//! The same random faults, and the same outage, through no retries, reqwest-retry and redial-http: what
//! each does to POSTs that ran, to the load of the server, and to the share of requests that succeed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use redial::{Policy, Throttle, ms, s};
use redial_faults::proxy::{Fault, Proxy, ProxyRule, Script};
use redial_http::{RetryLayer, RetryMiddleware};
use reqwest::{Client, Method};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::net::TcpListener;

const LIBRARIES: [&str; 5] = [
    "no retries",
    "reqwest-retry",
    "redial-http",
    "redial-http, keys added to POST",
    "redial-http, keys, no retry budget",
];
/// Requests of each method and library.
const REQUESTS: usize = 1000;
const SEED: u64 = 17;

/// Two retries with delays of about 10 and 20 ms, as those of reqwest-retry below.
static FAST: Policy = Policy::exponential(ms(10)).attempts(3).build();

/// The same without a limit on the number of retries.
static UNLIMITED: Policy =
    Policy::exponential(ms(10)).attempts(3).throttle(Throttle::none()).build();

pub fn tables() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("\n## random faults: {REQUESTS} GET and {REQUESTS} POST");
    println!("| library | GET that succeeded | POST that succeeded | POST that ran twice or more | requests sent per call |");
    println!("| --- | --- | --- | --- | --- |");
    for library in LIBRARIES {
        runtime.block_on(random_faults(library));
    }
    println!("\n## outage: {REQUESTS} GET to a server that answers 503");
    println!("| library | requests at the server per call |");
    println!("| --- | --- |");
    for library in LIBRARIES {
        runtime.block_on(outage(library));
    }
}

fn client(library: &str) -> ClientWithMiddleware {
    let client = Client::builder().no_proxy().timeout(s(10)).build().expect("a client");
    let client = ClientBuilder::new(client);
    match library {
        "no retries" => client,
        "reqwest-retry" => {
            let policy = ExponentialBackoff::builder()
                .retry_bounds(ms(10), ms(20))
                .build_with_max_retries(2);
            client.with(RetryTransientMiddleware::new_with_policy(policy))
        }
        "redial-http" => client.with(RetryMiddleware::new(RetryLayer::new(&FAST))),
        "redial-http, keys, no retry budget" => {
            let retries = RetryLayer::new(&UNLIMITED).policy_throttle();
            client.with(RetryMiddleware::new(retries.add_idempotency_keys()))
        }
        _ => client.with(RetryMiddleware::new(RetryLayer::new(&FAST).add_idempotency_keys())),
    }
    .build()
}

/// Of the requests, 4 % get a 503 from the proxy, 2 % are reset before the server has them, 2 % after they
/// have run, and 2 % get a 503 after they have run. A rule sees what the rules before it let pass, so its
/// share of all requests is a little smaller. The same for every library, as far as it sends the same requests.
fn script() -> Script {
    let rule = |fault: Fault, rate: f64| ProxyRule::new(fault).rate(rate);
    Script::new()
        .seed(SEED)
        .rule(rule(Fault::status(503), 0.04))
        .rule(rule(Fault::reset(), 0.02))
        .rule(rule(Fault::reset().after_upstream(), 0.02))
        .rule(rule(Fault::status(503).after_upstream(), 0.02))
}

async fn random_faults(library: &str) {
    let server = Server::start(200).await;
    let proxy = Proxy::http(server.address).script(script()).listen("127.0.0.1:0").await.expect("a proxy");
    let client = client(library);
    let mut succeeded = HashMap::new();
    for number in 0..REQUESTS {
        for method in [Method::GET, Method::POST] {
            let request = client.request(method.clone(), format!("{}/{number}", proxy.url()));
            let result = request.body("order").send().await;
            let success = result.is_ok_and(|response| response.status().is_success());
            *succeeded.entry(method).or_insert(0) += usize::from(success);
        }
    }
    let (posts, sent) = (server.runs(&Method::POST), proxy.counts());
    let duplicates = posts.values().filter(|runs| **runs > 1).count();
    let share = |method| succeeded[&method] as f64 * 100.0 / REQUESTS as f64;
    // What the client has sent, whether the server got it or not.
    let per_call = sent.exchanges as f64 / (2 * REQUESTS) as f64;
    println!(
        "| {library} | {:.1} % | {:.1} % | {duplicates} | {per_call:.3} |",
        share(Method::GET),
        share(Method::POST),
    );
}

async fn outage(library: &str) {
    let server = Server::start(503).await;
    let client = client(library);
    let start = std::time::Instant::now();
    for number in 0..REQUESTS {
        let _ = client.get(format!("http://{}/{number}", server.address)).send().await;
    }
    let sent: usize = server.runs(&Method::GET).values().sum();
    println!("| {library} | {:.2} |", sent as f64 / REQUESTS as f64);
    assert!(start.elapsed() < Duration::from_secs(600), "an outage of minutes refills budgets");
}

/// A server that counts the requests of each method and path.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    runs: Arc<Mutex<HashMap<(Method, String), usize>>>,
    /// The keys that it has seen: a request with a known key does not run again.
    keys: Arc<Mutex<std::collections::HashSet<http::HeaderValue>>>,
}

impl Server {
    async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server { address, runs: Arc::default(), keys: Arc::default() };
        let counting = server.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let counting = counting.clone();
                let service = service_fn(move |request| counting.clone().answer(request, status));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(socket), service));
            }
        });
        server
    }

    async fn answer(
        self,
        request: http::Request<Incoming>,
        status: u16,
    ) -> Result<http::Response<String>, Infallible> {
        let key = (request.method().clone(), request.uri().path().to_owned());
        let idempotency_key = request.headers().get("idempotency-key").cloned();
        // A body that was cut off does not run.
        if request.into_body().collect().await.is_ok() {
            let is_new = idempotency_key.is_none_or(|key| self.keys.lock().expect("keys").insert(key));
            *self.runs.lock().expect("counts").entry(key).or_insert(0) += usize::from(is_new);
        }
        let mut response = http::Response::new(String::from("done"));
        *response.status_mut() = status.try_into().expect("a status");
        Ok(response)
    }

    fn runs(&self, method: &Method) -> HashMap<String, usize> {
        let runs = self.runs.lock().expect("counts");
        runs.iter().filter(|((of, _), _)| of == method).map(|((_, path), n)| (path.clone(), *n)).collect()
    }
}
