//! HTTP with reqwest: retries by status, and waits as long as `Retry-After` asks.

use std::time::{Duration, Instant};

use redial::{Directive, Failure, Policy, Stage, StopReason, ms, s};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Its budget belongs to the process: each test begins with a full one.
static GET: Policy = Policy::exponential(ms(20)).attempts(4).deadline(s(30)).name("get").build();

/// Which answers are worth a retry. A GET is idempotent, so this includes requests that may have been
/// processed.
fn by_status(answer: &reqwest::Result<Response>) -> Option<Directive> {
    let failure = match answer {
        Ok(response) => match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let failure = Failure::throttling();
                retry_after(response).map_or(failure, |delay| failure.retry_after(delay))
            }
            status if status.is_server_error() => Failure::server(),
            _ => return None,
        },
        Err(error) if error.is_connect() => Failure::client().at(Stage::Unsent),
        Err(error) if error.is_timeout() || error.is_request() => Failure::client(),
        Err(_) => return None,
    };
    Some(Directive::Retry(failure))
}

/// The header in seconds. It may also be a date, which this program leaves to the backoff.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// After the last attempt the caller gets the last response, whatever its status.
async fn get(client: &Client, url: &str) -> Result<Response, redial::Error<reqwest::Error>> {
    let result = GET.retry(|| client.get(url).send()).classify(by_status).await;
    last_response(result)
}

fn last_response(
    result: Result<Response, redial::Error<reqwest::Error, Response>>,
) -> Result<Response, redial::Error<reqwest::Error>> {
    match result {
        Ok(response) => Ok(response),
        Err(error) if error.last_value().is_some() => {
            Ok(error.into_last_value().expect("there is one"))
        }
        Err(error) => Err(error.map_value(|_| unreachable!("the last outcome is an error"))),
    }
}

/// Serves these responses, one per connection, and returns the URL.
async fn serve(responses: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    url
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                    connection: close\r\n\r\n";
const BROKEN: &str =
    "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nthe page";

#[tokio::test]
async fn program_waits_as_long_as_retry_after_asks() {
    let _budgets = redial::testing::fresh_budgets();
    let url = serve(&[BROKEN, BUSY, PAGE]).await;
    let start = Instant::now();
    let response = get(&Client::new(), &url).await.expect("the third response is good");
    assert_eq!(response.text().await.unwrap(), "the page");
    assert!(start.elapsed() >= s(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn program_returns_the_last_response() {
    let _budgets = redial::testing::fresh_budgets();
    let url = serve(&[BROKEN, BROKEN, BROKEN, BROKEN]).await;
    let response = get(&Client::new(), &url).await.expect("a response");
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn program_reports_a_server_that_is_down() {
    let _budgets = redial::testing::fresh_budgets();
    // A socket that is bound and does not listen refuses connections.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    let error = get(&Client::new(), &url).await.expect_err("refused");
    assert_eq!((error.stop_reason(), error.attempts()), (StopReason::AttemptsExhausted, 4));
    let refused = format!("{:#}", anyhow::Error::new(error)).to_lowercase();
    assert_eq!(refused.matches("connection refused").count(), 1, "{refused}");
}
