//! What is between the layer and the servers: one channel to the scripted server, and for each
//! attempt that is to find no connection, or to lose it unsent, a server of its own.
//!
//! Rule: it decides nothing and changes nothing that the layer sees. It says which attempt a request
//! is, by its order among those of its call, so that a server knows what to do to it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use hyper_util::rt::TokioIo;
use redial::{Sleeper, time::Ns};
use redial_faults::grpc::{CALL_HEADER, Connector};
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Error};
use tower::{Service, service_fn};

use super::super::clock::Slow;

/// An attempt: the index of its call, and its number among the attempts of that call.
pub(super) type AttemptId = (usize, u32);

/// The name of an attempt for the scripted server.
pub(super) fn name((call, attempt): AttemptId) -> String {
    format!("{call}.{attempt}")
}

/// What was asked of the network for an attempt.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// When.
    pub(super) at: Ns,
    /// When it was given up, if it was before a response began.
    pub(super) dropped: Option<Ns>,
    /// Its request headers.
    pub(super) headers: HeaderMap,
}

/// The network; clones are the same one.
#[derive(Clone)]
pub(super) struct Network {
    main: Channel,
    /// The channels of attempts that do not come over the main one.
    doors: Arc<BTreeMap<AttemptId, Channel>>,
    log: Log,
}

/// What the attempts of all calls asked for, so far.
#[derive(Clone)]
pub(super) struct Log {
    asked: Arc<Mutex<BTreeMap<AttemptId, Asked>>>,
    clock: Slow,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> BTreeMap<AttemptId, Asked> {
        self.lock().clone()
    }

    /// The next attempt of the call that a request belongs to.
    fn ask(&self, call: usize, asked: Asked) -> AttemptId {
        let mut log = self.lock();
        let last = log.range((call, 0)..=(call, u32::MAX)).next_back();
        let id = (call, last.map_or(1, |((_, attempt), _)| attempt + 1));
        log.insert(id, asked);
        id
    }
}

impl Network {
    pub(super) fn new(
        main: Channel,
        doors: BTreeMap<AttemptId, Channel>,
        clock: Slow,
    ) -> (Self, Log) {
        let log = Log { asked: Arc::default(), clock };
        (Network { main, doors: Arc::new(doors), log: log.clone() }, log)
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
        let asked = Asked { at: self.log.clock.now(), dropped: None, headers };
        let id = self.log.ask(call, asked);
        let value = HeaderValue::try_from(name(id)).expect("digits and a dot are a value");
        request.headers_mut().insert(CALL_HEADER, value);
        let mut under_way = UnderWay { id, log: self.log.clone(), runs: true };
        match self.doors.get(&id) {
            None => {
                let response = self.main.call(request);
                Box::pin(async move {
                    // All of it: a block that only sets the flag would leave the rest outside.
                    let under_way = &mut under_way;
                    let answered = response.await;
                    under_way.runs = false;
                    answered
                })
            }
            Some(door) => {
                let mut door = door.clone();
                Box::pin(async move {
                    let under_way = &mut under_way;
                    poll_fn(|cx| door.poll_ready(cx)).await?;
                    let answered = door.call(request).await;
                    under_way.runs = false;
                    answered
                })
            }
        }
    }
}

/// Notes when an attempt is given up.
struct UnderWay {
    id: AttemptId,
    log: Log,
    runs: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.runs {
            let now = self.log.clock.now();
            if let Some(asked) = self.log.lock().get_mut(&self.id) {
                asked.dropped = Some(now);
            }
        }
    }
}

/// A channel to a server in memory.
pub(super) fn over_pipe(connector: Connector) -> Channel {
    Endpoint::from_static("http://pipe").connect_with_connector_lazy(service_fn(move |_| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    }))
}
