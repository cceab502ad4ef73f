//! The backends that the attempts of one call went to.
//!
//! Rule: whoever picks a backend looks and notes in one step, so that hedges that start in the same
//! moment see each other.
//!
//! Invariant: a list that is used again by a later call is empty, and nobody else holds it. Most calls
//! note one backend and never look: with lists of their own each of them would allocate two things.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::sync::{Mutex, lock};

/// How many backends a call remembers; the one that it used least recently is forgotten first.
pub const USED_BACKENDS_MAX: usize = 64;

/// How many empty lists a thread keeps for later calls, each with room for as many backends as it ever
/// had: mostly some 4 KiB, 40 KiB at the most.
const KEPT_MAX: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<UsedBackends>> = const { RefCell::new(Vec::new()) };
}

/// A backend, as a balancer calls it: any number that it uses for no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(u64);

impl BackendId {
    /// The backend with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        BackendId(number)
    }

    /// The backend with this address, name or key. Within one build of a program the same value
    /// always gives the same id.
    #[must_use]
    pub fn of(name: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        BackendId(hasher.finish())
    }
}

/// The backends that the attempts of one call went to: a request extension for balancers.
///
/// [`RetryLayerBuilder::distinct_backends`] puts one into the requests of every call: its first
/// attempt, its retries, hedges and transparent replacements all carry the same. The balanced
/// channel (crate `redial-grpc-balance`) heeds it by itself. A balancer of your own does the same with
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
/// /// Calls a service that the call has not used yet; then the least recently used one.
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
///         let id = |place: usize| BackendId::new(place as u64);
///         let place = used.choose(|used| {
///             let fresh = (0..self.0.len()).find(|place| !used.contains(&id(*place)));
///             let oldest = || (0..self.0.len()).find(|place| used.first() == Some(&id(*place)));
///             let place = fresh.or_else(oldest).unwrap_or(0);
///             Some((id(place), place))
///         });
///         self.0[place.unwrap_or(0)].call(request)
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
/// An application that puts one into a request itself (`request.extensions_mut().insert(..)`) can
/// read afterwards where the attempts went.
///
/// [`RetryLayerBuilder::distinct_backends`]: crate::RetryLayerBuilder::distinct_backends
#[derive(Clone, Debug, Default)]
pub struct UsedBackends {
    uses: Arc<Mutex<Uses>>,
    /// The attempt whose request carries this one; 0 if it is not known.
    attempt: u32,
}

/// What a call has used so far.
#[derive(Debug, Default)]
struct Uses {
    /// The least recently used one first.
    ids: Vec<BackendId>,
    /// The names of the backends that attempts went to.
    names: Vec<(u32, Arc<str>)>,
    /// What attempts that have no backend yet wait for.
    waits: Vec<(u32, Box<str>)>,
}

impl UsedBackends {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        UsedBackends::default()
    }

    /// The one that the application put among a request's extensions, or a new one.
    pub(crate) fn of(extensions: &http::Extensions) -> UsedBackends {
        if let Some(used) = extensions.get::<UsedBackends>() {
            return used.clone();
        }
        let free = FREE.try_with(|free| free.try_borrow_mut().ok()?.pop()).ok().flatten();
        free.unwrap_or_default()
    }

    /// The same for the request of this attempt.
    pub(crate) fn for_attempt(&self, attempt: u32) -> UsedBackends {
        UsedBackends { uses: self.uses.clone(), attempt }
    }

    /// The name of the backend that this attempt went to, if the balancer gave one.
    pub(crate) fn name_of(&self, attempt: u32) -> Option<Arc<str>> {
        let uses = lock(&self.uses);
        let named = uses.names.iter().rev().find(|(other, _)| *other == attempt);
        named.map(|(_, name)| name.clone())
    }

    /// Whether the attempt that carries this one is the first of its call; without a number, whether
    /// the call has used no backend yet.
    #[must_use]
    pub fn is_first(&self, used: &[BackendId]) -> bool {
        if self.attempt == 0 { used.is_empty() } else { self.attempt == 1 }
    }

    /// What this attempt waits for, if it has no backend yet.
    pub(crate) fn wait_reason_of(&self, attempt: u32) -> Option<Box<str>> {
        let uses = lock(&self.uses);
        uses.waits.iter().find(|(other, _)| *other == attempt).map(|(_, text)| text.clone())
    }

    /// This attempt waits for a backend: what for, as the message of a call shows it that ends
    /// meanwhile.
    pub fn set_wait(&self, text: impl Into<Box<str>>) {
        let waits = &mut lock(&self.uses).waits;
        waits.retain(|(attempt, _)| *attempt != self.attempt);
        if waits.len() < USED_BACKENDS_MAX {
            waits.push((self.attempt, text.into()));
        }
    }

    /// Names the backend that this attempt goes to, as call reports, call logs and spans show it:
    /// mostly its address.
    pub fn set_name(&self, name: impl Into<Arc<str>>) {
        let mut uses = lock(&self.uses);
        uses.waits.retain(|(attempt, _)| *attempt != self.attempt);
        let names = &mut uses.names;
        if names.len() == USED_BACKENDS_MAX {
            names.remove(0);
        }
        names.push((self.attempt, name.into()));
    }

    /// The call is over: a later one may use the list, unless somebody still holds it.
    pub(crate) fn return_to_pool(mut self) {
        if Arc::get_mut(&mut self.uses).is_none() {
            return;
        }
        self.attempt = 0;
        {
            let mut uses = lock(&self.uses);
            uses.ids.clear();
            uses.names.clear();
            uses.waits.clear();
        }
        // A thread that ends may have freed its lists already; then this one is freed too.
        let _ = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.len() < KEPT_MAX
            {
                free.push(self);
            }
        });
    }

    /// Shows the backends that the call has used, the least recently used one first, and notes the
    /// one that is picked. Nobody else looks or notes meanwhile.
    ///
    /// The closure must not use the same handle.
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

    /// Notes that an attempt goes to this backend.
    pub fn record(&self, id: BackendId) {
        self.choose(|_| Some((id, ())));
    }

    /// The backends that the call has used, each once, the least recently used one first.
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
        assert!(none.is_none() && used.to_vec().len() == 3, "who picks nothing notes nothing");
    }

    #[test]
    fn used_backends_are_bounded() {
        let used = UsedBackends::new();
        let most = USED_BACKENDS_MAX as u64;
        (0..most).map(BackendId::new).for_each(|id| used.record(id));
        assert_eq!(used.to_vec()[0], BackendId::new(0));
        used.record(BackendId::new(0));
        assert_eq!(used.to_vec().len(), USED_BACKENDS_MAX, "a known one takes no room");
        used.record(BackendId::new(most));
        assert_eq!(used.to_vec().len(), USED_BACKENDS_MAX);
        assert_eq!(used.to_vec()[0], BackendId::new(2), "the oldest is forgotten");
    }

    #[test]
    fn used_backends_lists_are_pooled_when_unshared() {
        let begin = || UsedBackends::of(&http::Extensions::new());
        let is = |one: &UsedBackends, other: *const _| std::ptr::eq(&*one.uses, other);
        let used = begin();
        used.record(BackendId::new(1));
        let (first, held) = (Arc::as_ptr(&used.uses), used.clone());
        used.return_to_pool();
        assert!(!is(&begin(), first), "somebody holds it");
        assert_eq!(held.to_vec(), [BackendId::new(1)], "and what it says stays");
        held.return_to_pool();
        let again = begin();
        assert!(is(&again, first) && again.to_vec().is_empty());
        let many: Vec<_> = (0..=KEPT_MAX).map(|_| begin()).collect();
        many.into_iter().for_each(UsedBackends::return_to_pool);
        assert_eq!(FREE.with_borrow(Vec::len), KEPT_MAX, "one more than that is freed");
    }

    #[test]
    fn used_backends_names_are_bounded_per_call() {
        let used = UsedBackends::new();
        let most = USED_BACKENDS_MAX as u32;
        (1..=most).for_each(|attempt| used.for_attempt(attempt).set_name("a"));
        used.for_attempt(2).set_name("b");
        assert_eq!(used.name_of(1), None, "the oldest is forgotten");
        assert_eq!(used.name_of(2).as_deref(), Some("b"), "the most recent pick counts");
        assert_eq!(used.name_of(most).as_deref(), Some("a"));
        used.return_to_pool();
        assert_eq!(UsedBackends::of(&http::Extensions::new()).name_of(2), None);
    }

    #[test]
    fn backend_id_is_equal_for_equal_names() {
        assert_eq!(BackendId::of("10.0.0.1:1"), BackendId::of("10.0.0.1:1"));
        assert_ne!(BackendId::of("10.0.0.1:1"), BackendId::of("10.0.0.2:1"));
    }
}
