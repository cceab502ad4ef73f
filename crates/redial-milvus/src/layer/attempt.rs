//! One call through the layer: the request is saved, and each attempt sends it again.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, request};
use http_body::Body;
use redial_grpc::{BoxError, timeout};
use tokio::time::Instant;
use tower_service::Service;

use super::body::{BufferedBody, Read, read};
use super::collected::{
    AnswerCheck, AttemptStatus, Collected, collect, invalid_response, timeout_response,
};
use super::{InterceptorLayer, MakeBody, method_name};
use crate::call::Interceptor;
use crate::error::ErrorOutcome;

/// Sends a request through the channel, with retries unless it streams or is too long to save.
pub(super) async fn call<S, A, B, R>(
    channel: S,
    layer: InterceptorLayer<A>,
    request: Request<B>,
) -> Result<Response<BufferedBody<R>>, BoxError>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send,
    S::Future: Send,
    S::Error: Into<BoxError>,
    A: MakeBody<B> + Send + Sync,
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + Unpin,
    R::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let method = method_name(&path);
    let start = if layer.rules.streaming.iter().any(|it| it == method) {
        Read::TooLong(Bytes::new(), body)
    } else {
        read(body, layer.rules.request_bytes_max).await?
    };
    let message = match start {
        Read::Whole(message, _) => message,
        Read::TooLong(start, rest) => {
            let body = layer.make_body.make_body(BufferedBody::streamed(start, rest));
            let response = send(channel, Request::from_parts(head, body)).await?;
            return Ok(response.map(|body| BufferedBody::streamed(Bytes::new(), body)));
        }
    };
    let own_timeout = head.headers.get(timeout::TIMEOUT).and_then(timeout::parse);
    let interceptor = own_timeout.and_then(|timeout| layer.interceptor.with_timeout(timeout));
    let interceptor = interceptor.as_ref().unwrap_or(&layer.interceptor);
    let saved = SavedRequest { head, message, limits: Limits::start(interceptor) };
    let check = AnswerCheck { method, rules: &layer.rules };
    let (make_body, max) = (&layer.make_body, layer.rules.response_bytes_max);
    let saved = &saved;
    let operation = move || {
        let (request, attempt_end) = saved.attempt(make_body);
        attempt(channel.clone(), request, attempt_end, max)
    };
    let result = interceptor.call(method, operation).with_validity(check).send().await;
    match result {
        Ok(response) => Ok(response.into_response()),
        Err(error) => match error.into_outcome() {
            ErrorOutcome::Status(status) => status.into_result(),
            ErrorOutcome::Invalid { text, response } => {
                Ok(invalid_response(method, &text, &response))
            }
            ErrorOutcome::Timeout => Ok(timeout_response()),
        },
    }
}

/// What every attempt sends.
struct SavedRequest {
    head: request::Parts,
    message: Bytes,
    limits: Limits,
}

/// How long attempts may take.
struct Limits {
    timeout: Duration,
    call_end: Option<Instant>,
}

impl Limits {
    fn start(interceptor: &Interceptor) -> Self {
        let options = interceptor.options();
        let call_end = options.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        Limits { timeout: options.timeout, call_end }
    }

    /// The time for an attempt that starts now.
    fn attempt(&self) -> Duration {
        let now = Instant::now();
        let left = self.call_end.map(|end| end.saturating_duration_since(now));
        left.map_or(self.timeout, |left| left.min(self.timeout))
    }
}

impl SavedRequest {
    /// The request of an attempt, with a fresh `grpc-timeout`, and the moment at which it is too late.
    fn attempt<B, A: MakeBody<B>>(&self, make_body: &A) -> (Request<B>, Option<Instant>) {
        let time = self.limits.attempt();
        let body = make_body.make_body(BufferedBody::whole(self.message.clone(), None));
        let mut request = Request::from_parts(self.head.clone(), body);
        request.headers_mut().insert(timeout::TIMEOUT, timeout::format(time));
        (request, Instant::now().checked_add(time))
    }
}

async fn send<S, B, R>(mut channel: S, request: Request<B>) -> Result<Response<R>, BoxError>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
{
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.map_err(Into::into)?;
    channel.call(request).await.map_err(Into::into)
}

async fn attempt<S, B, R>(
    channel: S,
    request: Request<B>,
    end: Option<Instant>,
    response_bytes_max: usize,
) -> Result<Collected<R>, AttemptStatus>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    match send(channel, request).await {
        Ok(response) => collect(response, response_bytes_max).await,
        // Channels have a timer for `grpc-timeout` of their own, whose error may come before ours.
        Err(error) => {
            let late = end.is_some_and(|end| Instant::now() >= end);
            Err(AttemptStatus::of_error(error, late))
        }
    }
}
