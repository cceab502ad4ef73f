//! A call before the commit: its response future polls it until response headers arrive or it ends.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use redial_core::End;
use tower_service::Service;

use super::Call;
use super::attempt::{FIRST, RunningAttempt};
use super::attempt_driver::{
    AttemptDriver, CommittedResponse, FirstFuture, PendingEnd, RetryState,
};
use super::failure::{
    AttemptFailure, CallFailure, CallResult, FailedAttempt, ended_without_outcome, failed_response,
};
use super::response_body::ResponseBody;
use super::retry_request::RetryRequest;
use crate::BoxError;
use crate::client_adapter::ClientAdapter;
use crate::header_scanner::STATUS;
use crate::observe::SpanGuard;
use crate::previous_attempts_stamp::stamp_response;
use crate::response_status::{self, Head};
use crate::sync::Mutex;

/// A call before the commit. Its first attempt is stored in the response future itself.
pub(crate) struct PendingCall<S, B>
where
    S: Service<Request<B>>,
{
    /// Dropped before the call, whose end sets the gauges.
    pub(super) request: RetryRequest<B>,
    pub(super) call: Call,
    /// Cloned for each further attempt.
    pub(super) retry_service: Arc<Mutex<S>>,
    pub(super) wait_for_ready: bool,
    /// Exists once the first attempt was not enough.
    pub(super) retries: Option<Box<RetryState<S, B>>>,
}

impl<S, B> PendingCall<S, B>
where
    S: Service<Request<B>>,
{
    /// Enters the span of the first attempt.
    pub(crate) fn enter_first_span(&self) -> Option<SpanGuard> {
        match &self.call {
            Call::Running(call) => Some(call.observer().enter_attempt_span(FIRST.attempt)),
            _ => None,
        }
    }
}

impl<S, B, R> PendingCall<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body,
{
    /// Polls the call until response headers arrive or it ends.
    pub(super) fn poll<W: ClientAdapter<B>>(
        &mut self,
        mut first: FirstFuture<'_, S, B>,
        adapter: &W,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<R>> {
        if !matches!(self.call, Call::FirstAttempt(_)) {
            return self.poll_running(None, first, adapter, cx);
        }
        let Some(future) = first.as_mut().as_pin_mut() else { return Poll::Pending };
        match std::task::ready!(future.poll(cx)) {
            Ok(response) if response_status::head(&response) == Head::Headers => {
                self.request.commit(FIRST.attempt);
                Poll::Ready(Ok(self.respond(FIRST, response, false)))
            }
            result => self.poll_running(Some(result.map_err(Into::into)), first, adapter, cx),
        }
    }

    /// Polls a call with its state machine; leaves the fast path with the result of the first attempt.
    fn poll_running<W: ClientAdapter<B>>(
        &mut self,
        first_result: Option<Result<Response<R>, BoxError>>,
        first: FirstFuture<'_, S, B>,
        adapter: &W,
        cx: &mut Context<'_>,
    ) -> Poll<CallResult<R>> {
        let Some(call) = self.call.start_machine() else { return Poll::Pending };
        let mut driver = AttemptDriver {
            call,
            request: &mut self.request,
            retry_service: &self.retry_service,
            wait_for_ready: self.wait_for_ready,
            retries: &mut self.retries,
            first,
            adapter,
        };
        let committed = first_result.and_then(|result| driver.outcome(FIRST, result));
        let end = match committed {
            Some(committed) => PendingEnd::Response(committed),
            None => std::task::ready!(driver.poll(cx)),
        };
        Poll::Ready(match end {
            PendingEnd::Response(CommittedResponse { attempt, response, ok_in_headers }) => {
                Ok(self.respond(attempt, response, ok_in_headers))
            }
            PendingEnd::Ended(end) => self.end(end, adapter),
        })
    }

    /// The call goes on in the response body. `ok_in_headers`: the headers have the status OK already but
    /// leave the stream open.
    fn respond(
        &mut self,
        attempt: RunningAttempt,
        mut response: Response<R>,
        ok_in_headers: bool,
    ) -> Response<ResponseBody<R>> {
        if ok_in_headers {
            // Moved to the trailers: a client that finds a status in the headers ignores trailers.
            response.headers_mut().remove(STATUS);
        }
        stamp_response(&mut response, attempt.number);
        let call = std::mem::replace(&mut self.call, Call::Ended);
        let call = call.respond(attempt.number, ok_in_headers);
        response.map(|body| ResponseBody::new(body, call))
    }

    /// The call has ended without a response to read.
    fn end<W: ClientAdapter<B>>(&mut self, end: End, adapter: &W) -> CallResult<R> {
        let (local_failure, last_failure) = match self.retries.take() {
            Some(retries) => (retries.local_failure, retries.last_failure),
            None => (None, None),
        };
        let is_answered = local_failure.is_none()
            && end.attempt.is_some()
            && last_failure.as_ref().is_some_and(|last_failure| last_failure.is_answered);
        let (attempts, wait_reason, report) = match &mut self.call {
            Call::Running(call) => {
                (call.attempts(), call.wait_reason(), call.report(end, is_answered))
            }
            _ => (0, None, None),
        };
        self.request.release();
        self.call = Call::Ended;
        let call_failure = match (local_failure, end.attempt, last_failure) {
            (Some(local_failure), ..) => local_failure,
            (None, Some(_), Some(FailedAttempt { number, outcome, .. })) => match outcome {
                AttemptFailure::Response(mut head) => {
                    stamp_response(&mut head, number);
                    return failed_response(head.map(|()| ResponseBody::none()), report, adapter);
                }
                AttemptFailure::NoResponse(call_failure) => call_failure,
            },
            (None, _, last_failure) => CallFailure::Status(ended_without_outcome(
                end.stop_reason,
                attempts,
                last_failure,
                wait_reason,
            )),
        };
        call_failure.into_result(report.map(|(report, _)| report), adapter)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, poll_fn, ready};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use http::HeaderValue;
    use http_body_util::Full;
    use redial_core::{Cost, Failure, FailureKind, RunCommands};
    use redial_service_config::{Retries, ServiceConfig};

    use super::super::{ResponseFuture, retry_request::RetryBody, start};
    use super::*;
    use crate::client_adapter::AdapterFn;
    use crate::layer::RetryLayer;
    use crate::options::CallOptions;
    use crate::replay_buffer::Replay;

    /// Responds with UNAVAILABLE at once.
    #[derive(Clone)]
    struct Unavailable;

    impl Service<Request<Full<Bytes>>> for Unavailable {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _request: Request<Full<Bytes>>) -> Self::Future {
            let mut response = Response::new(Full::default());
            response.headers_mut().insert(STATUS, HeaderValue::from_static("14"));
            ready(Ok(response))
        }
    }

    /// A policy of three attempts.
    fn config() -> ServiceConfig {
        ServiceConfig::parse(
            r#"{ "methodConfig": [{ "name": [{}], "retryPolicy": {
                "maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s",
                "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#,
        )
        .unwrap()
    }

    fn request() -> Request<Full<Bytes>> {
        Request::post("/a.B/C").body(Full::from("message")).unwrap()
    }

    /// The headers of the result of a call with a policy of three attempts, of which each gets
    /// UNAVAILABLE. It is changed after its start.
    async fn call(
        change: impl FnOnce(&mut PendingCall<Unavailable, Full<Bytes>>),
    ) -> http::HeaderMap {
        let layer = RetryLayer::builder().config(config()).build();
        let shared = layer.control().shared;
        let adapter = AdapterFn(|_replay| Full::default());
        let mut request = request();
        let options = CallOptions::default();
        let service = Arc::new(Mutex::new(Unavailable));
        let retries = Retries::All;
        let started = start::start(&shared, &mut request, retries, options, &service, &adapter);
        let Ok((mut call, true)) = started else { panic!("the call does not start") };
        change(&mut call);
        let first = Some(Unavailable.call(request));
        let response = ResponseFuture::started(call, first, adapter).await;
        response.unwrap().headers().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn retry_without_a_kept_request_ends_with_internal() {
        let headers = call(|_call| {}).await;
        assert_eq!(headers["grpc-status"], "14");
        assert_eq!(headers["grpc-previous-rpc-attempts"], "2");
        let headers = call(|call| call.request.body = RetryBody::NotKept).await;
        assert_eq!(headers["grpc-status"], "13");
        assert_eq!(headers["grpc-message"], "the request is not kept (a bug in redial-grpc)");
    }

    /// No plan has a strategy, and no throttle of this crate answers later.
    #[tokio::test(start_paused = true)]
    async fn question_of_an_impossible_policy_ends_with_internal() {
        type Ask = fn(&mut dyn RunCommands);
        let asks: [(Ask, &str); 2] = [
            (|driver| driver.ask(Failure::server()), "the policy has a strategy"),
            (
                |driver| driver.await_grant(Cost { kind: FailureKind::Server }),
                "the throttle defers its answer",
            ),
        ];
        for (ask, text) in asks {
            let headers = call(|call| {
                let mut first = None;
                ask(&mut AttemptDriver {
                    call: call.call.start_machine().unwrap(),
                    request: &mut call.request,
                    retry_service: &call.retry_service,
                    wait_for_ready: call.wait_for_ready,
                    retries: &mut call.retries,
                    first: std::pin::Pin::new(&mut first),
                    adapter: &AdapterFn(|_replay: Replay<Full<Bytes>>| Full::default()),
                });
            });
            let headers = headers.await;
            assert_eq!(headers["grpc-status"], "13");
            assert_eq!(headers["grpc-message"], format!("{text} (a bug in redial-grpc)"));
        }
    }

    /// Polls a future until it is ready or panics; a panic is an error.
    async fn catch<F: Future + Unpin>(mut future: F) -> Result<F::Output, F> {
        let polled =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future).poll(cx))) {
                Ok(polled) => polled.map(Ok),
                Err(_) => Poll::Ready(Err(())),
            });
        polled.await.map_err(|()| future)
    }

    #[tokio::test(start_paused = true)]
    async fn panic_of_an_adapter_ends_every_later_poll() {
        let layer = RetryLayer::builder().config(config()).build();
        let shared = layer.control().shared;
        let panics = Arc::new(AtomicBool::new(false));
        let panics_now = panics.clone();
        let adapter = AdapterFn(move |_replay| {
            assert!(!panics_now.load(Relaxed), "the adapter panics");
            Full::default()
        });
        let mut request = request();
        let service = Arc::new(Mutex::new(Unavailable));
        let (options, retries) = (CallOptions::default(), Retries::All);
        let started = start::start(&shared, &mut request, retries, options, &service, &adapter);
        let Ok((call, true)) = started else { panic!("the call does not start") };
        panics.store(true, Relaxed);
        let first = Some(Unavailable.call(request));
        let future = Box::pin(ResponseFuture::started(call, first, adapter));
        let Err(future) = catch(future).await else { panic!("the adapter did not panic") };
        assert_ne!(shared.buffer_limit.used(), 0, "kept until it is dropped");
        let Err(future) = catch(future).await else { panic!("a result after a panic") };
        drop(future);
        assert_eq!(shared.buffer_limit.used(), 0);
    }
}
