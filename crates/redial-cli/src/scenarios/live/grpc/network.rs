//! The network between the layer and the servers: one channel to the fault server, and a separate
//! server for each attempt that finds no connection or loses it before sending.
//!
//! It changes nothing that the layer sees. It numbers the attempts of each call in a header, so
//! that the server can select the answer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use hyper_util::rt::TokioIo;
use redial::time::{Ns, Sleeper};
use redial_faults::grpc::{CALL_HEADER, Connector};
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Error};
use tower::{Service, service_fn};

use super::super::clock::ScaledClock;

/// An attempt: the index of its call, and its number among the attempts of that call.
pub(super) type AttemptId = (usize, u32);

/// The name of an attempt for the scripted server.
pub(super) fn name((call, attempt): AttemptId) -> String {
    format!("{call}.{attempt}")
}

/// The request of an attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptRequest {
    /// When.
    pub(super) at: Ns,
    /// When it was dropped, if before response headers arrived.
    pub(super) dropped: Option<Ns>,
    /// Its request headers.
    pub(super) headers: HeaderMap,
}

/// The network; clones share their state.
#[derive(Clone)]
pub(super) struct Network {
    main: Channel,
    /// The channels of attempts whose connection fails.
    failing: Arc<BTreeMap<AttemptId, Channel>>,
    log: Log,
}

/// The requests of all attempts so far.
#[derive(Clone)]
pub(super) struct Log {
    requests: Arc<Mutex<BTreeMap<AttemptId, AttemptRequest>>>,
    clock: ScaledClock,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, AttemptRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> BTreeMap<AttemptId, AttemptRequest> {
        self.lock().clone()
    }

    /// Records a request as the next attempt of its call.
    fn record(&self, call: usize, requests: AttemptRequest) -> AttemptId {
        let mut log = self.lock();
        let last = log.range((call, 0)..=(call, u32::MAX)).next_back();
        let id = (call, last.map_or(1, |((_, attempt), _)| attempt + 1));
        log.insert(id, requests);
        id
    }
}

impl Network {
    pub(super) fn new(
        main: Channel,
        failing: BTreeMap<AttemptId, Channel>,
        clock: ScaledClock,
    ) -> (Self, Log) {
        let log = Log { requests: Arc::default(), clock };
        (Network { main, failing: Arc::new(failing), log: log.clone() }, log)
    }
}

type Answered = Result<Response<Body>, Error>;

impl Service<Request<Body>> for Network {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.main.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let headers = request.headers().clone();
        let call = headers.get(CALL_HEADER).and_then(|it| it.to_str().ok()?.parse().ok());
        let call = call.unwrap_or(usize::MAX);
        let requests = AttemptRequest { at: self.log.clock.now(), dropped: None, headers };
        let id = self.log.record(call, requests);
        let value = HeaderValue::try_from(name(id)).expect("digits and a dot are a value");
        request.headers_mut().insert(CALL_HEADER, value);
        let mut in_flight = InFlight { id, log: self.log.clone(), runs: true };
        match self.failing.get(&id) {
            None => {
                let response = self.main.call(request);
                Box::pin(async move {
                    // Moves the whole value into the future, so that it is dropped with it.
                    let in_flight = &mut in_flight;
                    let answered = response.await;
                    in_flight.runs = false;
                    answered
                })
            }
            Some(channel) => {
                let mut channel = channel.clone();
                Box::pin(async move {
                    let in_flight = &mut in_flight;
                    poll_fn(|cx| channel.poll_ready(cx)).await?;
                    let answered = channel.call(request).await;
                    in_flight.runs = false;
                    answered
                })
            }
        }
    }
}

/// Records when an attempt is dropped.
struct InFlight {
    id: AttemptId,
    log: Log,
    runs: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.runs {
            let now = self.log.clock.now();
            if let Some(requests) = self.log.lock().get_mut(&self.id) {
                requests.dropped = Some(now);
            }
        }
    }
}

/// A channel to a server in memory.
pub(in crate::scenarios::live) fn over_pipe(connector: Connector) -> Channel {
    Endpoint::from_static("http://pipe").connect_with_connector_lazy(service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}
