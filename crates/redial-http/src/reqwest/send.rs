//! Sends the request of a builder with retries.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use redial::{Report, StopReason};
use reqwest::{Client, Request, RequestBuilder, Response};
use tower_layer::Layer;

use crate::future::ResponseFuture;
use crate::layer::RetryLayer;
use crate::options::RequestOptions;
use crate::service_error::StdErrors;

/// Sends requests with retries: `client.get(url).send_with(&retries)` instead of `.send()`.
pub trait SendWith: sealed::Sealed {
    /// Builds the request and sends it.
    ///
    /// # Errors
    /// The last attempt had no response, or the request could not be built.
    fn send_with(self, retries: &RetryLayer) -> SendFuture;

    /// The same with options for this request.
    ///
    /// ```no_run
    /// use redial_http::reqwest::SendWith;
    /// use redial_http::{RequestOptions, RetryLayer};
    ///
    /// # async fn search(client: reqwest::Client, retries: &RetryLayer) -> Result<(), redial_http::reqwest::Error> {
    /// // This POST only reads, so it may be retried.
    /// let request = client.post("http://example.com/search").body("cats");
    /// let response = request.send_with_options(retries, RequestOptions::new().idempotent()).await?;
    /// # let _ = response;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The last attempt had no response, or the request could not be built.
    fn send_with_options(self, retries: &RetryLayer, options: RequestOptions) -> SendFuture;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for reqwest::RequestBuilder {}
}

impl SendWith for RequestBuilder {
    fn send_with(self, retries: &RetryLayer) -> SendFuture {
        send(self, retries, None)
    }

    fn send_with_options(self, retries: &RetryLayer, options: RequestOptions) -> SendFuture {
        send(self, retries, Some(options))
    }
}

fn send(
    builder: RequestBuilder,
    retries: &RetryLayer,
    options: Option<RequestOptions>,
) -> SendFuture {
    let (mut client, request) = builder.build_split();
    let send = match request {
        Ok(request) => {
            let call = ResponseFuture::start(&retries.settings, &mut client, request, options);
            SendState::Call { call }
        }
        Err(error) => {
            let policy = retries.settings.policy.policy.name();
            let report = Report::not_started(policy, StopReason::NotRetryable);
            SendState::NotBuilt { error: Some(crate::Error::new(Some(error), None, report)) }
        }
    };
    SendFuture { send }
}

pin_project! {
    /// The future of [`SendWith::send_with`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct SendFuture {
        #[pin]
        send: SendState,
    }
}

pin_project! {
    #[project = SendStateProjection]
    #[derive(Debug)]
    enum SendState {
        Call {
            #[pin]
            call: ResponseFuture<Client, Request, StdErrors>,
        },
        NotBuilt { error: Option<super::Error> },
    }
}

impl Future for SendFuture {
    type Output = Result<Response, super::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().send.project() {
            SendStateProjection::Call { call } => call.poll(cx),
            SendStateProjection::NotBuilt { error } => {
                Poll::Ready(Err(error.take().expect("polled after completion")))
            }
        }
    }
}

/// Checks that a client is a service that the layer accepts.
const _: fn(Client) = |client| {
    fn is_service<S: tower_service::Service<Request, Response = Response>>(_: S) {}
    is_service(RetryLayer::standard().layer(client));
};
