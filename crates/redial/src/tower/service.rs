//! The service: starts a call for each request.

use std::mem;
use std::task::{Context, Poll};

use redial_core::StopReason;
use tower_service::Service;

use crate::classify::{Classify, Last};
use crate::error::{Details, Error};
use crate::future::Retrying;
use crate::policy::Origin;
use crate::policy_name::PolicyName;
use crate::report::Report;
use crate::sleeper::Sleeper;
use crate::tower::call_options::{CallOptions, ConfigureCall};
use crate::tower::clone_request::CloneRequest;
use crate::tower::future::ResponseFuture;
use crate::tower::layer::RetryLayer;
use crate::tower::operation::ServiceOperation;

/// A service that retries or hedges the requests of another one.
///
/// `L` is the [`RetryLayer`] that made it.
///
/// ```
/// use redial::tower::{RetryLayer, RetryService, StaticPolicy};
/// use redial::{Policy, ms};
/// use redial::parts::When;
/// use tower::Layer;
///
/// static FETCH: Policy = Policy::exponential(ms(100)).build();
///
/// type Layers = RetryLayer<StaticPolicy, When<fn(&std::io::Error) -> bool>>;
///
/// /// A field of a struct can name the service.
/// struct Client<S> { service: RetryService<S, Layers> }
///
/// fn client<S: Clone>(service: S) -> Client<S> {
///     let accepts: fn(&std::io::Error) -> bool = |error| error.kind() == std::io::ErrorKind::TimedOut;
///     Client { service: RetryLayer::new(&FETCH).when(accepts).layer(service) }
/// }
/// # let _ = client(());
/// ```
#[derive(Clone, Debug)]
pub struct RetryService<S, L> {
    inner: S,
    layer: L,
}

impl<S, L> RetryService<S, L> {
    pub(super) const fn new(inner: S, layer: L) -> Self {
        RetryService { inner, layer }
    }

    /// The service inside.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The service inside. Changes apply to requests that start after them.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, P, C, K, X, Z> Service<Req> for RetryService<S, RetryLayer<P, C, K, X, Z>>
where
    S: Service<Req> + Clone,
    P: Origin<'static>,
    C: Classify<S::Response, S::Error> + Clone,
    K: CloneRequest<Req> + Clone,
    X: ConfigureCall<P, Req>,
    Z: Sleeper + Clone,
{
    type Response = S::Response;
    type Error = Error<S::Error, C::Kept>;
    type Future = ResponseFuture<S, Req, P, C, K, Z>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(|error| not_ready(self.layer.policy.name(), error))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        // The service that was polled for readiness makes the first attempt; its clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let RetryLayer { policy, classify, clone_request, configure, sleeper } = &self.layer;
        let options = configure.configure(&request, CallOptions::none()).into_options();
        let operation = ServiceOperation::new(ready, request, clone_request.clone());
        let (origin, classify, sleeper) = (policy.clone(), classify.clone(), sleeper.clone());
        ResponseFuture::new(Retrying::new(origin, operation, classify, sleeper, options))
    }
}

/// The error of a service that is not ready and never will be: no request has been sent.
fn not_ready<E, V>(policy: PolicyName, error: E) -> Error<E, V> {
    let report = Report::not_started(policy, StopReason::NotRetryable);
    Error::new(Some(Last::Error(error)), Box::new(Details { report, strategy: None }))
}

/// Returns a rejected response as a response, for layers with `until` or `classify`: after the last attempt
/// the caller gets the response of the service, as with `tower::retry`.
///
/// ```
/// use redial::tower::{RetryLayer, last_response};
/// use redial::{Directive, Failure, Policy};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use std::io;
///
/// fn by_status(answer: &io::Result<u16>) -> Option<Directive> {
///     (*answer.as_ref().ok()? >= 500).then_some(Directive::Retry(Failure::server()))
/// }
///
/// static GET: Policy = Policy::immediate().build();
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let service = ServiceBuilder::new()
///     .map_result(last_response)
///     .layer(RetryLayer::new(&GET).classify(by_status))
///     .service(service_fn(|_path: &'static str| async { io::Result::Ok(503) }));
/// assert_eq!(service.oneshot("/index").await.ok(), Some(503));
/// # }
/// ```
///
/// # Errors
/// The error of a call that ended with an error, or before the first response.
pub fn last_response<T, E>(result: Result<T, Error<E, T>>) -> Result<T, Error<E, T>> {
    match result {
        Err(error) if error.last_value().is_some() => {
            Ok(error.into_last_value().expect("it has a value"))
        }
        result => result,
    }
}
