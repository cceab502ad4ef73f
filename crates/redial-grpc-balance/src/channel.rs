//! The channel for applications: the retry layer over a load-balanced service.
//!
//! Rule: the deadline of a call bounds all of its waiting, including the wait for the first config.
//! The retry layer sees the call only after that wait, because the config determines the retry
//! policy; it then gets the remaining time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use redial_grpc::balancing::set_start_time;
use redial_grpc::timeout::{self, TIMEOUT};
use redial_grpc::{
    BackendCounts, BoxError, Control, ResponseBody, ResponseFuture, RetryService, Tonic,
};
use redial_service_config::Retries;
use tokio::time::Instant;
use tonic::body::Body;
use tower_service::Service;

use super::service::{BalancedBody, BalancedService, ConfigWait};
use super::snapshot::ChannelSnapshot;

/// A channel with retries, hedging and load balancing over several backends, for generated clients;
/// see [`channel`](super::channel).
///
/// Clones share the backends, their connections and all other state. Dropping the last clone closes
/// the channel. A struct can store a client by its type:
///
/// ```
/// # use redial_echo::echo_client::EchoClient;
/// use redial_grpc_balance::{self as balance, BalancedChannel, BuildError};
///
/// struct Orders {
///     client: EchoClient<BalancedChannel>,
/// }
///
/// impl Orders {
///     fn new(target: &str) -> Result<Self, BuildError> {
///         Ok(Orders { client: EchoClient::new(balance::channel(target).build()?) })
///     }
/// }
/// # let orders = Orders::new("dns:///orders.internal:50051")?;
/// # drop(orders.client);
/// # Ok::<(), BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BalancedChannel {
    service: RetryService<BalancedService>,
}

impl BalancedChannel {
    pub(super) fn new(service: RetryService<BalancedService>) -> Self {
        BalancedChannel { service }
    }

    /// The current state of all backends and of the resolver.
    #[must_use]
    pub fn snapshot(&self) -> ChannelSnapshot {
        self.balanced().balancer().snapshot()
    }

    /// How many backends are known and connected. Cheaper than a [`snapshot`](Self::snapshot): one
    /// lock, and nothing is copied. [`Control::backends`] returns the same.
    ///
    /// ```no_run
    /// # let channel = redial_grpc_balance::channel("dns:///orders.internal:50051").build().unwrap();
    /// let counts = channel.counts();
    /// println!("{} of {} backends are connected", counts.connected, counts.known);
    /// ```
    #[must_use]
    pub fn counts(&self) -> BackendCounts {
        self.balanced().balancer().counts()
    }

    /// Starts resolving and connecting, so that the first call finds a connection. Otherwise the
    /// first call starts both.
    ///
    /// # Panics
    /// Outside of a Tokio runtime. The channel can still be used on one afterwards.
    pub fn start(&self) {
        self.balanced().start();
    }

    /// Ends all connection backoff: backends in backoff connect now, and their next failure starts
    /// with the first delay again. A name that could not be resolved is resolved now. Use it when
    /// the application knows that the network is back.
    pub fn reset_connect_backoff(&self) {
        self.balanced().balancer().reset_backoff();
    }

    /// The handle to change and observe the channel at run time.
    #[must_use]
    pub fn control(&self) -> Control {
        self.service.control()
    }

    fn balanced(&self) -> &BalancedService {
        self.service.inner()
    }
}

/// The deadline of a request: the shorter one of its own and the active config's.
fn deadline(service: &RetryService<BalancedService>, request: &Request<Body>) -> Option<Duration> {
    let own = timeout::of_headers(request.headers());
    let from_config = service.config_timeout(request.uri().path(), Retries::All);
    own.into_iter().chain(from_config).min()
}

impl Service<Request<Body>> for BalancedChannel {
    type Response = Response<ResponseBody<BalancedBody>>;
    type Error = BoxError;
    type Future = BalancedChannelFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> BalancedChannelFuture {
        if !self.balanced().may_wait_for_config() {
            return BalancedChannelFuture {
                state: State::Calling { future: self.service.call(request) },
            };
        }
        let started_at = Instant::now();
        let end = deadline(&self.service, &request).and_then(|it| started_at.checked_add(it));
        let state = match self.balanced().config_wait(end) {
            None => State::Calling { future: self.service.call(request) },
            Some(wait) => {
                State::Waiting { wait, started_at, call: Some((self.service.clone(), request)) }
            }
        };
        BalancedChannelFuture { state }
    }
}

pin_project! {
    /// The future of a call on a [`BalancedChannel`]: waits for the first config if necessary, then
    /// runs the call.
    ///
    /// # Cancel safety
    /// Dropping it cancels the call.
    pub struct BalancedChannelFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProject]
    enum State {
        Waiting {
            wait: ConfigWait,
            started_at: Instant,
            call: Option<(RetryService<BalancedService>, Request<Body>)>,
        },
        Calling { #[pin] future: ResponseFuture<BalancedService, Body, Tonic> },
    }
}

impl std::fmt::Debug for BalancedChannelFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BalancedChannelFuture").finish_non_exhaustive()
    }
}

impl Future for BalancedChannelFuture {
    type Output = Result<Response<ResponseBody<BalancedBody>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let future = match state.as_mut().project() {
                StateProject::Calling { future } => return future.poll(cx),
                StateProject::Waiting { wait, started_at, call } => {
                    ready!(wait.as_mut().poll(cx));
                    let Some((mut service, mut request)) = call.take() else {
                        return Poll::Pending;
                    };
                    // If no time remains, the layer fails the call before its first attempt.
                    if let Some(deadline) = deadline(&service, &request) {
                        let remaining = deadline.saturating_sub(started_at.elapsed());
                        request.headers_mut().insert(TIMEOUT, timeout::format(remaining));
                    }
                    // The wait is part of the call, for its deadline and its latency.
                    set_start_time(request.extensions_mut(), *started_at);
                    service.call(request)
                }
            };
            state.set(State::Calling { future });
        }
    }
}
