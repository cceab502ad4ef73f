//! The backends used by the attempts of one call, so that retries and hedges can avoid them.
//!
//! A balancer reads the list and records its pick under one lock, so that hedges that start at the same
//! time see each other's backend.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// Maximum number of backends remembered per call; the least recently used one is evicted first.
pub const USED_BACKENDS_MAX: usize = 64;

/// Identifies a backend to a balancer. The number must be unique among the balancer's backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(u64);

impl BackendId {
    /// The backend with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        BackendId(number)
    }

    /// An id derived from an address, name or key. Equal values give equal ids within one build of a
    /// program.
    #[must_use]
    pub fn of(name: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        BackendId(hasher.finish())
    }
}

/// The backends that the attempts of one call have used: a request extension for load balancers.
///
/// With [`RetryLayerBuilder::distinct_backends`], all requests of a call carry the same list: the first
/// attempt, retries, hedges and transparent retries. The balanced channel (crate
/// `redial-grpc-balance`) evaluates it automatically. A custom balancer uses
/// [`UsedBackends::choose`]:
///
/// ```
/// use std::sync::Arc;
/// use std::task::{Context, Poll};
///
/// use http::Request;
/// use redial_grpc::{BackendId, UsedBackends};
/// use tower::Service;
///
/// /// Prefers a service that the call has not used yet, then the least recently used one.
/// #[derive(Clone)]
/// struct Spread<S>(Vec<S>);
///
/// impl<S: Service<Request<B>>, B> Service<Request<B>> for Spread<S> {
///     type Response = S::Response;
///     type Error = S::Error;
///     type Future = S::Future;
///
///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
///         for service in &mut self.0 {
///             std::task::ready!(service.poll_ready(cx))?;
///         }
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<B>) -> S::Future {
///         let used = request.extensions().get::<UsedBackends>().cloned().unwrap_or_default();
///         let id = |index: usize| BackendId::new(index as u64);
///         let index = used.choose(|used| {
///             let fresh = (0..self.0.len()).find(|index| !used.contains(&id(*index)));
///             let oldest = || (0..self.0.len()).find(|index| used.first() == Some(&id(*index)));
///             let index = fresh.or_else(oldest).unwrap_or(0);
///             Some((id(index), index))
///         });
///         self.0[index.unwrap_or(0)].call(request)
///     }
/// }
/// # use redial_echo::echo_client::EchoClient;
/// # use redial_echo::echo_server::EchoServer;
/// # use redial_echo::{EchoRequest, Responder};
/// # use redial_grpc::{RetryLayer, ServiceConfig};
/// # use tower::{ServiceBuilder, ServiceExt};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServiceConfig::parse(r#"{ "methodConfig": [{ "name": [{}],
/// #     "retryPolicy": { "maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
/// #                      "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#)?;
/// # let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
/// # let server = |name: u32| {
/// #     let calls = calls.clone();
/// #     EchoServer::new(Responder).map_request(move |request: Request<tonic::body::Body>| {
/// #         calls.lock().unwrap().push(name);
/// #         request
/// #     })
/// # };
/// # let spread = Spread(vec![server(0), server(1), server(2)]);
///
/// let layer = RetryLayer::builder().config(config).distinct_backends().build();
/// let mut client = EchoClient::new(ServiceBuilder::new().layer(layer).service(spread));
/// # client.unary(EchoRequest { failures: 3, ..EchoRequest::default() }).await?;
/// # assert_eq!(*calls.lock().unwrap(), [0, 1, 2, 0]);
/// # Ok(())
/// # }
/// ```
///
/// An application can insert its own list into a request (`request.extensions_mut().insert(..)`) and
/// read after the call which backends the attempts used.
///
/// [`RetryLayerBuilder::distinct_backends`]: crate::RetryLayerBuilder::distinct_backends
#[derive(Clone, Debug, Default)]
pub struct UsedBackends {
    uses: Arc<Mutex<Uses>>,
    /// The attempt whose request carries this handle; 0 if unknown.
    attempt: u32,
}

/// State shared by all handles of a call.
#[derive(Debug, Default)]
struct Uses {
    /// In LRU order, the least recently used backend first.
    ids: Vec<BackendId>,
    /// Backend names by attempt.
    names: Vec<(u32, Arc<str>)>,
    /// By attempt: the reason why it has no backend yet.
    waits: Vec<(u32, Box<str>)>,
}

impl UsedBackends {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        UsedBackends::default()
    }

    /// The list that the application put into the request's extensions, or an empty one.
    pub(crate) fn of(extensions: &http::Extensions) -> UsedBackends {
        extensions.get::<UsedBackends>().cloned().unwrap_or_default()
    }

    /// A handle to the same list for the request of `attempt`.
    pub(crate) fn for_attempt(&self, attempt: u32) -> UsedBackends {
        UsedBackends { uses: self.uses.clone(), attempt }
    }

    /// Name of the backend of `attempt`, if the balancer set one.
    pub(crate) fn name_of(&self, attempt: u32) -> Option<Arc<str>> {
        let uses = lock(&self.uses);
        let named = uses.names.iter().rev().find(|(other, _)| *other == attempt);
        named.map(|(_, name)| name.clone())
    }

    /// Whether this handle belongs to the first attempt of its call. If the attempt is unknown: whether
    /// the call has used no backend yet.
    #[must_use]
    pub fn is_first(&self, used: &[BackendId]) -> bool {
        if self.attempt == 0 { used.is_empty() } else { self.attempt == 1 }
    }

    /// The reason why `attempt` still waits for a backend.
    pub(crate) fn wait_reason_of(&self, attempt: u32) -> Option<Box<str>> {
        let uses = lock(&self.uses);
        uses.waits.iter().find(|(other, _)| *other == attempt).map(|(_, text)| text.clone())
    }

    /// Records why this attempt is waiting for a backend. If the call ends in the meantime, its status
    /// message contains the text.
    pub fn set_wait(&self, text: impl Into<Box<str>>) {
        let waits = &mut lock(&self.uses).waits;
        waits.retain(|(attempt, _)| *attempt != self.attempt);
        if waits.len() < USED_BACKENDS_MAX {
            waits.push((self.attempt, text.into()));
        }
    }

    /// Names the backend of this attempt, usually by address, for call reports, call logs and spans.
    pub fn set_name(&self, name: impl Into<Arc<str>>) {
        let mut uses = lock(&self.uses);
        uses.waits.retain(|(attempt, _)| *attempt != self.attempt);
        let names = &mut uses.names;
        if names.len() == USED_BACKENDS_MAX {
            names.remove(0);
        }
        names.push((self.attempt, name.into()));
    }

    /// Calls `pick` with the backends used so far, the least recently used first, and records its choice.
    /// Both happen under one lock.
    ///
    /// The closure must not use the same list: that would deadlock.
    pub fn choose<T>(
        &self,
        pick: impl FnOnce(&[BackendId]) -> Option<(BackendId, T)>,
    ) -> Option<T> {
        let used = &mut lock(&self.uses).ids;
        let (id, picked) = pick(used)?;
        used.retain(|other| *other != id);
        if used.len() == USED_BACKENDS_MAX {
            used.remove(0);
        }
        used.push(id);
        Some(picked)
    }

    /// Records that an attempt uses this backend.
    pub fn record(&self, id: BackendId) {
        self.choose(|_| Some((id, ())));
    }

    /// The backends used so far, without duplicates, the least recently used first.
    #[must_use]
    pub fn to_vec(&self) -> Vec<BackendId> {
        lock(&self.uses).ids.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_backends_are_unique_in_lru_order() {
        let used = UsedBackends::new();
        for number in [1, 2, 3, 1] {
            used.record(BackendId::new(number));
        }
        assert_eq!(used.to_vec(), [2, 3, 1].map(BackendId::new));
        let none = used.choose(|seen| {
            assert_eq!(seen.len(), 3);
            None::<(BackendId, ())>
        });
        assert!(none.is_none() && used.to_vec().len() == 3, "no pick records nothing");
    }

    #[test]
    fn used_backends_are_bounded() {
        let used = UsedBackends::new();
        let most = USED_BACKENDS_MAX as u64;
        (0..most).map(BackendId::new).for_each(|id| used.record(id));
        assert_eq!(used.to_vec()[0], BackendId::new(0));
        used.record(BackendId::new(0));
        assert_eq!(used.to_vec().len(), USED_BACKENDS_MAX, "a known backend takes no extra room");
        used.record(BackendId::new(most));
        assert_eq!(used.to_vec().len(), USED_BACKENDS_MAX);
        assert_eq!(used.to_vec()[0], BackendId::new(2), "the least recently used is evicted");
    }

    #[test]
    fn used_backends_names_are_bounded_per_call() {
        let used = UsedBackends::new();
        let most = USED_BACKENDS_MAX as u32;
        (1..=most).for_each(|attempt| used.for_attempt(attempt).set_name("a"));
        used.for_attempt(2).set_name("b");
        assert_eq!(used.name_of(1), None, "the oldest is evicted");
        assert_eq!(used.name_of(2).as_deref(), Some("b"), "the most recent pick counts");
        assert_eq!(used.name_of(most).as_deref(), Some("a"));
    }

    #[test]
    fn backend_id_is_equal_for_equal_names() {
        assert_eq!(BackendId::of("10.0.0.1:1"), BackendId::of("10.0.0.1:1"));
        assert_ne!(BackendId::of("10.0.0.1:1"), BackendId::of("10.0.0.2:1"));
    }
}
