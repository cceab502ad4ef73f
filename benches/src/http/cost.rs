//! The overhead of a request that succeeds at once. The response is made in this process: the layer is
//! around a service that returns it, the middleware before one that does.

use std::future::{self, Ready};
use std::hint::black_box;
use std::process::Command;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Extensions;
use redial_http::{RetryLayer, RetryMiddleware};
use reqwest::{Client, Method, Request, Response, Url};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower::{Layer, Service};

use crate::count;

/// The cases; the first of each pair is what the other is compared with.
const CASES: [[&str; 2]; 7] = [
    ["service, GET", "service, GET, copied"],
    ["service, GET", "service, GET, redial-http"],
    ["service, GET with 8 headers", "service, GET with 8 headers, copied"],
    ["service, POST of 1 kB", "service, POST of 1 kB, redial-http"],
    ["service, GET with 8 headers", "service, GET with 8 headers, redial-http"],
    ["middleware, GET", "middleware, GET, redial-http"],
    ["middleware, GET", "middleware, GET, reqwest-retry"],
];
const FEW: u64 = 20;
const MANY: u64 = 90;

pub fn table() {
    println!("\n## request of reqwest, success at once");
    println!("| case | instructions | over plain | allocations | over plain |");
    println!("| --- | --- | --- | --- | --- |");
    for [plain, with] in CASES {
        let (base, base_allocations) = (instructions(plain), allocations(plain));
        let (count, allocated) = (instructions(with), allocations(with));
        println!(
            "| {with} | {count:.0} | {:+.0} | {allocated:.1} | {:+.1} |",
            count - base,
            allocated - base_allocations
        );
    }
}

fn instructions(case: &str) -> f64 {
    let whole = |n: u64| -> f64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().expect("this program"))
            .args(["run", case, &n.to_string()])
            .output()
            .expect("valgrind is installed");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("Collected")).expect("a total");
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    (whole(MANY) - whole(FEW)) / (MANY - FEW) as f64
}

fn allocations(case: &str) -> f64 {
    let whole = |n: u64| {
        let before = count::allocations();
        run(case, n);
        count::allocations() - before
    };
    whole(FEW);
    (whole(MANY) as f64 - whole(FEW) as f64) / (MANY - FEW) as f64
}

pub fn run(case: &str, n: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let request: fn() -> Request = match case {
            case if case.contains("POST") => post,
            case if case.contains("headers") => get_with_headers,
            _ => get,
        };
        let layered = case.contains("redial-http");
        match case.split_once(',').expect("a kind").0 {
            "service" if layered => call(n, request, RetryLayer::standard().layer(Canned)).await,
            "service" if case.contains("copied") => call(n, request, Copying(Canned)).await,
            "service" => call(n, request, Canned).await,
            _ => {
                let client = ClientBuilder::new(Client::builder().no_proxy().build().expect("a client"));
                let client = match case {
                    case if layered && case.contains("middleware") => {
                        client.with(RetryMiddleware::new(RetryLayer::standard()))
                    }
                    case if case.contains("reqwest-retry") => {
                        let policy = ExponentialBackoff::builder().build_with_max_retries(2);
                        client.with(RetryTransientMiddleware::new_with_policy(policy))
                    }
                    _ => client,
                };
                execute(n, request, client.with(Canned).build()).await;
            }
        }
    });
}

async fn call<S, E>(n: u64, request: fn() -> Request, mut service: S)
where
    S: Service<Request, Response = Response, Error = E>,
    E: std::fmt::Debug,
{
    for _ in 0..n {
        black_box(service.call(black_box(request())).await.expect("a response"));
    }
}

async fn execute(n: u64, request: fn() -> Request, client: ClientWithMiddleware) {
    for _ in 0..n {
        black_box(client.execute(black_box(request())).await.expect("a response"));
    }
}

fn get() -> Request {
    Request::new(Method::GET, Url::parse("http://example.com/path?query=1").expect("a URL"))
}

fn get_with_headers() -> Request {
    let mut request = get();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        request.headers_mut().insert(name, http::HeaderValue::from_static("value"));
    }
    request
}

fn post() -> Request {
    let mut request = Request::new(Method::POST, Url::parse("http://example.com/path").expect("a URL"));
    *request.body_mut() = Some(vec![b'x'; 1000].into());
    request
}

/// Keeps a copy of the request until there is a response: the least of a layer that retries.
struct Copying<S>(S);

impl<S: Service<Request>> Service<Request> for Copying<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Copied<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let copy = request.try_clone();
        Copied { copy, response: self.0.call(request) }
    }
}

pin_project_lite::pin_project! {
    struct Copied<F> {
        copy: Option<Request>,
        #[pin]
        response: F,
    }
}

impl<F: Future> Future for Copied<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx));
        black_box(this.copy.take());
        Poll::Ready(response)
    }
}

/// Answers every request at once.
#[derive(Clone)]
struct Canned;

fn response() -> Response {
    http::Response::new("").into()
}

impl Service<Request> for Canned {
    type Response = Response;
    type Error = reqwest::Error;
    type Future = Ready<Result<Response, reqwest::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        black_box(request);
        future::ready(Ok(response()))
    }
}

#[async_trait::async_trait]
impl Middleware for Canned {
    async fn handle(
        &self,
        request: Request,
        _extensions: &mut Extensions,
        _next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        black_box(request);
        Ok(response())
    }
}
