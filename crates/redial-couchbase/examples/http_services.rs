//! The response tables and idempotency lists with an HTTP client of the user's, here reqwest: a query
//! whose index is not there yet, a search that is throttled, and a view.
//!
//! `cargo run -p redial-couchbase --example http_services`
//!
//! The server is a scripted double in this process, over loopback TCP.

use std::error::Error;
use std::io;

use redial::s;
use redial_couchbase::{
    AttemptError, Orchestrator, Response, ResponseOutcome, TerminalState, operation, reason,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Why a request was not answered. Nothing was sent if the connection could not be made.
fn transport(error: &reqwest::Error) -> AttemptError {
    if error.is_connect() {
        return reason::SOCKET_NOT_AVAILABLE.into();
    }
    reason::SOCKET_CLOSED_WHILE_IN_FLIGHT.into()
}

/// Success, or the response that the orchestrator classifies.
fn checked<T>(value: T, response: Response) -> Result<T, AttemptError> {
    match response.classify() {
        ResponseOutcome::Ok => Ok(value),
        _ => Err(response.into()),
    }
}

/// The response of the query service: its first error, or success.
async fn query(client: &reqwest::Client, url: &str) -> Result<Value, AttemptError> {
    let sent = client.post(format!("{url}/query/service")).body("statement=SELECT 1").send().await;
    let text = sent.map_err(|error| transport(&error))?.text().await;
    let text = text.map_err(|error| transport(&error))?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let error = &answer["errors"][0];
    let code = u32::try_from(error["code"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
    let message = error["msg"].as_str().unwrap_or_default().to_owned();
    checked(answer, Response::query(code, message))
}

/// The response of the search service is its HTTP status.
async fn search(client: &reqwest::Client, url: &str) -> Result<u16, AttemptError> {
    let sent = client.post(format!("{url}/api/index/hotels/query")).send().await;
    let status = sent.map_err(|error| transport(&error))?.status().as_u16();
    checked(status, Response::search(status))
}

/// The response of the view engine is its HTTP status and body.
async fn view(client: &reqwest::Client, url: &str) -> Result<String, AttemptError> {
    let sent = client.get(format!("{url}/travel/_design/d/_view/v")).send().await;
    let response = sent.map_err(|error| transport(&error))?;
    let status = response.status().as_u16();
    let text = response.text().await.map_err(|error| transport(&error))?;
    checked(text.clone(), Response::views(status, text))
}

/// Returns the log of the requests.
async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let missing = r#"{"errors": [{"code": 5000, "msg": "queryport.indexNotFound"}]}"#;
    let url = serve(vec![
        (200, missing),
        (200, r#"{"results": []}"#),
        (429, ""),
        (200, "{}"),
        (302, ""),
        (200, r#"{"rows": []}"#),
        (0, ""),
    ])
    .await?;
    // Redirects of views are answers of the service, not of the HTTP client.
    let http = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .build()?;
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hook = lines.clone();
    let orchestrator = Orchestrator::new().on_log(move |context, line| {
        hook.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(format!("{context}: {line}"));
    });
    // KV connections report refused passwords here, and HTTP requests ask. With the client of this crate it is
    // `client.terminal_state()`.
    let state = TerminalState::new();
    let target = redial_couchbase::RequestTarget::Http;
    let query_request = orchestrator.request(operation::QUERY_READONLY, s(75));
    let found = query_request
        .run(async |_| match state.terminal_reason_for(target) {
            Some(terminal) => Err(terminal.into()),
            None => query(&http, &url).await,
        })
        .await?;
    println!("query: {found}");
    let status =
        orchestrator.request(operation::SEARCH, s(75)).run(|_| search(&http, &url)).await?;
    println!("search: {status}");
    let rows = orchestrator.request(operation::VIEWS, s(75)).run(|_| view(&http, &url)).await?;
    println!("view: {rows}");
    // Not read-only, and its connection is lost: it may have been executed, so it is not retried.
    let Err(error) =
        orchestrator.request(operation::QUERY, s(75)).run(|_| query(&http, &url)).await
    else {
        return Err("the lost query was retried".into());
    };
    println!("{error}");
    let lines = lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    Ok(lines)
}

/// A server that answers its connections in order; status 0 closes the connection.
async fn serve(answers: Vec<(u16, &'static str)>) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await?;
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await?;
            if status > 0 {
                let head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}", body.len());
                let response = format!("{head}\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(response.as_bytes()).await?;
            }
            stream.shutdown().await?;
            // Unread bytes would reset the connection under the response.
            while stream.read(&mut request).await.unwrap_or(0) > 0 {}
        }
        io::Result::Ok(())
    });
    Ok(format!("http://{address}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn example_http_services_follow_the_response_tables() {
        let expected = [
            "query.readonly: retry QUERY_INDEX_NOT_FOUND",
            "search: retry SEARCH_TOO_MANY_REQUESTS",
            "views: retry VIEWS_NO_ACTIVE_PARTITION",
            "query: not-retried SOCKET_CLOSED_WHILE_IN_FLIGHT",
        ];
        assert_eq!(super::run().await.unwrap(), expected);
    }
}
