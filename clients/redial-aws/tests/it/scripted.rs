//! A scripted double of a service: a connector inside the process that answers on tokio's clock, so that times
//! are exact under a paused clock. It knows HTTP and nothing about retries.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::{Builder, Config};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::time::Instant;

use crate::clients;

/// What a request gets.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    after: Duration,
    end: End,
    /// Dropped with the body of the response.
    in_body: Option<Arc<()>>,
}

#[derive(Clone, Debug)]
enum End {
    Response { status: u16, headers: Vec<(&'static str, String)>, body: String },
    Io(io::ErrorKind),
    Timeout,
    Hang,
}

impl Answer {
    const fn new(end: End) -> Self {
        Answer { after: Duration::ZERO, end, in_body: None }
    }

    pub(crate) fn ok() -> Self {
        Answer::status(200)
    }

    pub(crate) fn status(status: u16) -> Self {
        let body = if status < 300 { "{}".to_owned() } else { String::new() };
        Answer::new(End::Response { status, headers: Vec::new(), body })
    }

    /// An output.
    pub(crate) fn json(body: &str) -> Self {
        let body = body.to_owned();
        Answer::new(End::Response { status: 200, headers: Vec::new(), body })
    }

    /// A modeled error of DynamoDB.
    pub(crate) fn error(code: &str) -> Self {
        let body =
            format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"no"}}"#);
        Answer::new(End::Response { status: 400, headers: Vec::new(), body })
    }

    pub(crate) fn throttled() -> Self {
        Answer::error("ProvisionedThroughputExceededException")
    }

    pub(crate) const fn io(kind: io::ErrorKind) -> Self {
        Answer::new(End::Io(kind))
    }

    pub(crate) const fn timeout() -> Self {
        Answer::new(End::Timeout)
    }

    pub(crate) const fn hang() -> Self {
        Answer::new(End::Hang)
    }

    pub(crate) const fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    /// The body of the response, which has not arrived in whole, holds this.
    pub(crate) fn in_body(mut self, guard: &Arc<()>) -> Self {
        self.in_body = Some(guard.clone());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let End::Response { headers, .. } = &mut self.end {
            headers.push((name, value.to_owned()));
        }
        self
    }
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) attempt: String,
    pub(crate) signature: String,
    /// The time that was signed.
    pub(crate) date: String,
    pub(crate) body: Option<Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Answer>,
    /// By the number of the attempt, from 1, in its header.
    by_attempt: Vec<Answer>,
    /// For requests behind the lists.
    rest: Option<Answer>,
    seen: Vec<Seen>,
}

impl Scripted {
    /// Answers in this order; a request behind the end of the list fails the test.
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let scripted = Scripted::default();
        scripted.push(answers);
        scripted
    }

    /// Answers every request like this.
    pub(crate) fn always(answer: Answer) -> Self {
        let scripted = Scripted::default();
        scripted.answer_always(answer);
        scripted
    }

    /// Answers each call in this order, by the attempt number in its requests.
    pub(crate) fn each_call(answers: impl IntoIterator<Item = Answer>) -> Self {
        let scripted = Scripted::default();
        scripted.0.lock().unwrap().by_attempt.extend(answers);
        scripted
    }

    /// From now on, answers every request like this.
    pub(crate) fn answer_always(&self, answer: Answer) {
        let mut state = self.0.lock().unwrap();
        state.by_attempt.clear();
        state.rest = Some(answer);
    }

    /// Forgets the answers that no request got.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().answers.clear();
    }

    pub(crate) fn push(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.lock().unwrap().answers.extend(answers);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().seen.clone()
    }

    /// When requests arrived, in milliseconds since the first.
    pub(crate) fn starts_ms(&self) -> Vec<f64> {
        let seen = self.seen();
        let first = seen.first().map(|seen| seen.at);
        seen.iter().map(|seen| (seen.at - first.unwrap()).as_secs_f64() * 1e3).collect()
    }

    /// The header with the number of each attempt.
    pub(crate) fn attempts(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.attempt).collect()
    }

    pub(crate) fn http_client(&self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_, _| connector.clone())
    }

    /// The config of a DynamoDB client of this service.
    pub(crate) fn config(&self) -> Builder {
        let config: Config = clients::dynamodb("http://scripted.invalid").build();
        config.to_builder().http_client(self.http_client())
    }
}

impl HttpConnector for Scripted {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = {
            let mut state = self.0.lock().unwrap();
            let header = |name| request.headers().get(name).unwrap_or_default().to_owned();
            state.seen.push(Seen {
                at: Instant::now(),
                attempt: header("amz-sdk-request"),
                signature: header("authorization"),
                date: header("x-amz-date"),
                body: request.body().bytes().map(<[u8]>::to_vec),
            });
            let number: usize = header("amz-sdk-request")
                .split_once("attempt=")
                .and_then(|(_, rest)| rest.split(';').next()?.parse().ok())
                .unwrap_or(1);
            let next = state.answers.pop_front();
            let next = next.or_else(|| state.by_attempt.get(number - 1).cloned());
            next.or_else(|| state.rest.clone()).expect("a request behind the end of the script")
        };
        HttpConnectorFuture::new(async move {
            if !answer.after.is_zero() {
                tokio::time::sleep(answer.after).await;
            }
            match answer.end {
                End::Response { status, headers, body } => {
                    let status = StatusCode::try_from(status).unwrap();
                    let body = match answer.in_body {
                        None => SdkBody::from(body),
                        Some(guard) => {
                            let body = Full::new(Bytes::from(body)).map_frame(move |frame| {
                                let _ = &guard;
                                frame
                            });
                            SdkBody::from_body_1_x(body)
                        }
                    };
                    let mut response = HttpResponse::new(status, body);
                    for (name, value) in headers {
                        response.headers_mut().insert(name, value);
                    }
                    Ok(response)
                }
                End::Io(kind) => Err(ConnectorError::io(io::Error::from(kind).into())),
                End::Timeout => Err(ConnectorError::timeout("no response".into())),
                End::Hang => std::future::pending().await,
            }
        })
    }
}
