//! Real servers that other projects make: nginx with its rate limit, and Envoy with its fault filter and with
//! its retries.
//!
//! `cargo xtask test http-nginx http-envoy` installs them and runs these tests; without the programs they
//! are ignored. Time is real, with generous tolerances.

#[expect(dead_code, reason = "shared with the tests of the layer, which need more of it")]
#[path = "it/server.rs"]
mod server;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redial::classify::Hint;
use redial::report::AttemptEnd;
use redial::{Policy, Report, StopReason, Throttle, ms, s};
use redial_http::RetryLayer;
use redial_http::reqwest::SendWith;
use server::{Answer, Server};

/// The longest time for the start of a server.
const START_MAX: Duration = Duration::from_secs(60);

/// A server that stops with its test.
struct Running {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Running {
    /// Starts a program with a configuration for a free port, and waits until it accepts connections.
    fn start(
        command: impl Fn(&Path) -> Command,
        config: impl Fn(SocketAddr, &Path) -> String,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(folder.path().join("config"), config(address, folder.path())).unwrap();
        let mut command = command(folder.path());
        let child = command.stdout(Stdio::null()).spawn().expect("the program is installed");
        let mut running = Running { child, address, _folder: folder };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("the server ended with {status}");
            }
            assert!(start.elapsed() < START_MAX, "the server does not start");
            std::thread::sleep(ms(20));
        }
        running
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(http2: bool) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never());
    if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap()
}

fn attempts(attempts: u32) -> RetryLayer {
    let policy = Policy::exponential(ms(5)).attempts(attempts).throttle(Throttle::none());
    RetryLayer::new(&policy.build()).policy_throttle()
}

/// nginx with two requests per second, an unavailable path, and one that closes connections.
fn nginx() -> Running {
    let program = std::env::var("REDIAL_NGINX").unwrap_or_else(|_| "nginx".to_owned());
    let config = |address: SocketAddr, folder: &Path| {
        std::fs::write(folder.join("limited"), "a page").unwrap();
        let folder = folder.display();
        format!(
            "daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
             events {{}}
             http {{
               access_log off;
               client_body_temp_path {folder}; proxy_temp_path {folder};
               fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
               limit_req_zone $binary_remote_addr zone=one:1m rate=2r/s;
               server {{
                 listen {address};
                 root {folder};
                 location /limited {{
                   limit_req zone=one; limit_req_status 429; add_header Retry-After 1 always;
                 }}
                 location /unavailable {{ add_header Retry-After 1 always; return 503; }}
                 location /closes {{ return 444; }}
               }}
             }}"
        )
    };
    let command = |folder: &Path| {
        let mut command = Command::new(&program);
        command.arg("-e").arg("stderr").arg("-c").arg(folder.join("config"));
        command
    };
    Running::start(command, config)
}

#[tokio::test]
#[ignore = "needs nginx: cargo xtask test http-nginx"]
async fn nginx_rate_limit_is_respected_by_its_retry_after() {
    let nginx = nginx();
    let (client, retries) = (client(false), attempts(10));
    let mut retried = 0;
    for _ in 0..4 {
        let response = client.get(nginx.url("/limited")).send_with(&retries).await.unwrap();
        if let Some(report) = response.extensions().get::<Report>() {
            retried += report.attempts - 1;
            let AttemptEnd::Failed(failure) = report.history[0].end else { panic!("{report:?}") };
            assert_eq!(failure.hint, Hint::After(s(1)));
            assert_eq!(failure.reason.unwrap().name(), "429 Too Many Requests");
        }
        assert_eq!(response.text().await.unwrap(), "a page");
    }
    // Each wait of a second refills the limit, so few retries are enough.
    assert!((1..=6).contains(&retried), "{retried} retries");
}

#[tokio::test]
#[ignore = "needs nginx: cargo xtask test http-nginx"]
async fn nginx_last_unavailable_with_retry_after_is_returned() {
    let nginx = nginx();
    let start = Instant::now();
    let response =
        client(false).get(nginx.url("/unavailable")).send_with(&attempts(2)).await.unwrap();
    assert!(start.elapsed() >= s(1));
    assert_eq!(redial_http::attempts(response.extensions()), 2);
    assert!(response.text().await.unwrap().contains("503 Service Temporarily Unavailable"));
    // A POST is not repeated.
    let request = client(false).post(nginx.url("/unavailable")).body("order");
    let response = request.send_with(&attempts(2)).await.unwrap();
    assert_eq!(redial_http::attempts(response.extensions()), 1);
}

#[tokio::test]
#[ignore = "needs nginx: cargo xtask test http-nginx"]
async fn nginx_that_closes_connections_without_an_answer_is_retried() {
    let nginx = nginx();
    let error = client(false).get(nginx.url("/closes")).send_with(&attempts(3)).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (3, StopReason::AttemptsExhausted));
    let request = client(false).post(nginx.url("/closes")).body("order");
    let error = request.send_with(&attempts(3)).await.unwrap_err();
    assert_eq!((error.attempts(), error.stop_reason()), (1, StopReason::NotIdempotent));
}

/// Envoy with these routes and HTTP filters before the router.
fn envoy_with(routes: &str, filters: &str, clusters: &str) -> Running {
    let program = std::env::var("REDIAL_ENVOY").unwrap_or_else(|_| "envoy".to_owned());
    let config = |address: SocketAddr, _: &Path| {
        let port = address.port();
        format!(
            r#"{{"static_resources": {{"clusters": [{clusters}], "listeners": [{{
              "address": {{"socket_address": {{"address": "127.0.0.1", "port_value": {port}}}}},
              "filter_chains": [{{"filters": [{{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {{
                  "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                  "stat_prefix": "tests",
                  "route_config": {{"virtual_hosts": [
                    {{"name": "all", "domains": ["*"], "routes": [{routes}]}}
                  ]}},
                  "http_filters": [{filters}
                    {{"name": "envoy.filters.http.router", "typed_config": {{
                      "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}}}
                  ]}}}}]}}]}}]}}}}"#
        )
    };
    let command = |folder: &Path| {
        let config = folder.join("config.json");
        std::fs::rename(folder.join("config"), &config).unwrap();
        let mut command = Command::new(&program);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]);
        command.arg(config);
        command
    };
    Running::start(command, config)
}

const FAULT: &str = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";

/// Envoy that answers by itself: half of `/half` with 503, and what a request asks for by header.
fn envoy() -> Running {
    let routes = format!(
        r#"{{"match": {{"path": "/half"}},
            "direct_response": {{"status": 200, "body": {{"inline_string": "done"}}}},
            "typed_per_filter_config": {{"envoy.filters.http.fault": {{
              "@type": "{FAULT}",
              "abort": {{"http_status": 503, "percentage": {{"numerator": 50}}}}}}}}}},
           {{"match": {{"prefix": "/"}},
            "direct_response": {{"status": 200, "body": {{"inline_string": "done"}}}}}}"#
    );
    let filters = format!(
        r#"{{"name": "envoy.filters.http.fault", "typed_config": {{
            "@type": "{FAULT}",
            "abort": {{"header_abort": {{}}, "percentage": {{"numerator": 100}}}},
            "delay": {{"header_delay": {{}}, "percentage": {{"numerator": 100}}}}}}}},"#
    );
    envoy_with(&routes, &filters, "")
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_random_aborts_are_outlasted_by_retries() {
    let envoy = envoy();
    for http2 in [false, true] {
        let (client, retries) = (client(http2), attempts(20));
        let mut sent = 0;
        for _ in 0..50 {
            let response = client.get(envoy.url("/half")).send_with(&retries).await.unwrap();
            sent += redial_http::attempts(response.extensions());
            assert_eq!(
                (response.status().as_u16(), response.version() == http::Version::HTTP_2),
                (200, http2)
            );
        }
        // 100 are expected.
        assert!((55..=200).contains(&sent), "{sent} requests");
    }
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_random_aborts_of_a_post_are_returned() {
    let envoy = envoy();
    let (client, retries) = (client(false), attempts(20));
    let mut aborted = 0;
    for _ in 0..50 {
        let request = client.post(envoy.url("/half")).body("order");
        let response = request.send_with(&retries).await.unwrap();
        assert_eq!(redial_http::attempts(response.extensions()), 1);
        aborted += u32::from(response.status() == 503);
    }
    assert!((5..=45).contains(&aborted), "{aborted} of 50");
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_abort_by_header_returns_the_last_response_whole() {
    let envoy = envoy();
    let request = client(false).get(envoy.url("/")).header("x-envoy-fault-abort-request", "429");
    let response = request.send_with(&attempts(4)).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.attempts, report.stop_reason), (4, StopReason::AttemptsExhausted));
    assert_eq!(response.status(), 429);
    assert_eq!(response.text().await.unwrap(), "fault filter abort");
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_delay_is_cut_by_the_attempt_timeout() {
    let envoy = envoy();
    let policy = Policy::exponential(ms(5)).attempt_timeout(ms(200)).throttle(Throttle::none());
    let retries = RetryLayer::new(&policy.build()).policy_throttle();
    let request = client(false).get(envoy.url("/")).header("x-envoy-fault-delay-request", "30000");
    let error = request.send_with(&retries).await.unwrap_err();
    assert!(error.is_timeout() && error.attempts() == 3, "{error}");
}

/// Envoy in front of this server, which retries as its documentation shows: `5xx`, twice, from 200 ms.
fn retrying_envoy(server: &Server) -> Running {
    let port = server.address.port();
    let cluster = format!(
        r#"{{"name": "server", "connect_timeout": "5s", "type": "STATIC",
            "load_assignment": {{"cluster_name": "server", "endpoints": [{{"lb_endpoints": [
              {{"endpoint": {{"address": {{"socket_address":
                {{"address": "127.0.0.1", "port_value": {port}}}}}}}}}]}}]}}}}"#
    );
    let route = r#"{"match": {"prefix": "/"}, "route": {"cluster": "server", "retry_policy":
        {"retry_on": "5xx", "num_retries": 2,
         "retry_back_off": {"base_interval": "0.2s", "max_interval": "20s"}}}}"#;
    envoy_with(route, "", &cluster)
}

/// What a server saw of one call, and what the client got.
#[derive(Debug, PartialEq)]
struct Seen {
    requests: usize,
    status: u16,
}

/// The same answers for a call through Envoy's retries and one through ours.
struct Case {
    /// The first cell of its row in `docs/http.md`.
    name: &'static str,
    method: http::Method,
    answers: fn() -> Vec<Answer>,
    envoy: Seen,
    redial: Seen,
}

fn cases() -> Vec<Case> {
    use http::Method;
    let seen = |requests, status| Seen { requests, status };
    let case = |name, method, answers, envoy, redial| Case { name, method, answers, envoy, redial };
    vec![
        case(
            "GET: 503, 503, 200",
            Method::GET,
            || vec![Answer::status(503), Answer::status(503), Answer::status(200)],
            seen(3, 200),
            seen(3, 200),
        ),
        case(
            "GET: always 503",
            Method::GET,
            || vec![Answer::status(503)],
            seen(3, 503),
            seen(3, 503),
        ),
        case(
            "GET: connection closed without an answer, 200",
            Method::GET,
            || vec![Answer::Close, Answer::status(200)],
            seen(2, 200),
            seen(2, 200),
        ),
        case("GET: 404", Method::GET, || vec![Answer::status(404)], seen(1, 404), seen(1, 404)),
        case(
            "GET: 501, 200",
            Method::GET,
            || vec![Answer::status(501), Answer::status(200)],
            seen(2, 200),
            seen(1, 501),
        ),
        case(
            "GET: 429 with `Retry-After: 1`, 200",
            Method::GET,
            || vec![Answer::status(429).header("retry-after", 1), Answer::status(200)],
            seen(1, 429),
            seen(2, 200),
        ),
        case(
            "POST: 503, 200",
            Method::POST,
            || vec![Answer::status(503), Answer::status(200)],
            seen(2, 200),
            seen(1, 503),
        ),
    ]
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_retries_differ_as_the_documentation_lists() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
    let page = std::fs::read_to_string(page).unwrap();
    let retries = RetryLayer::standard();
    for Case { name, method, answers, envoy, redial } in cases() {
        let server = Server::answering(answers()).await;
        let proxy = retrying_envoy(&server);
        let response = client(false).request(method.clone(), proxy.url("/")).send().await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(Seen { requests: server.requests(), status }, envoy, "Envoy, {name}");

        let server = Server::answering(answers()).await;
        let request = client(false).request(method, server.url("/"));
        let status = request.send_with(&retries).await.unwrap().status().as_u16();
        assert_eq!(Seen { requests: server.requests(), status }, redial, "Redial, {name}");

        let cell = |Seen { requests, status }: &Seen| {
            format!("{requests} request{}, {status}", if *requests == 1 { "" } else { "s" })
        };
        let row = format!("| {name} | {} | {} |", cell(&envoy), cell(&redial));
        assert!(page.contains(&row), "docs/http.md has no row {row}");
    }
}

#[tokio::test]
#[ignore = "needs Envoy: cargo xtask test http-envoy"]
async fn envoy_delays_have_full_jitter_below_other_bounds() {
    // The times at which the server gets the requests of 20 calls, each failing three times.
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = times.clone();
    let server = Server::start(move |_| {
        noted.lock().unwrap().push(Instant::now());
        Answer::status(503)
    })
    .await;
    let proxy = retrying_envoy(&server);
    let longest = async |is_envoy: bool| {
        times.lock().unwrap().clear();
        let policy = Policy::exponential(ms(200)).attempts(3).throttle(Throttle::none()).build();
        let retries = RetryLayer::new(&policy).policy_throttle();
        for _ in 0..20 {
            let status = if is_envoy {
                client(false).get(proxy.url("/")).send().await.unwrap().status()
            } else {
                let request = client(false).get(server.url("/"));
                request.send_with(&retries).await.unwrap().status()
            };
            assert_eq!(status, 503);
        }
        let times = times.lock().unwrap();
        assert_eq!(times.len(), 60);
        [1, 2].map(|n| times.chunks(3).map(|call| call[n] - call[n - 1]).max().unwrap())
    };
    // Full jitter: 20 draws below half of the bound have a probability of one in a million. Both begin
    // below 200 ms; then Envoy's bound is three times the base interval, ours twice the first delay.
    let late = ms(150);
    for (is_envoy, bounds) in [(true, [ms(200), ms(600)]), (false, [ms(200), ms(400)])] {
        for (longest, bound) in longest(is_envoy).await.into_iter().zip(bounds) {
            assert!((bound / 2..bound + late).contains(&longest), "{longest:?} of {bound:?}");
        }
    }
}
