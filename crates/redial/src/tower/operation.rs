//! The operation of a call through a service: each attempt sends a copy of the request.

use std::mem;

use tower_service::Service;

use crate::attempt::{Attempt, Operation};
use crate::tower::attempt::ServiceAttempt;
use crate::tower::clone_request::CloneRequest;

pub(super) struct ServiceOperation<S, Req, K> {
    service: S,
    request: RequestState<Req>,
    clone_request: K,
}

/// The request between attempts.
enum RequestState<Req> {
    /// No attempt has started, and the service is ready.
    Unsent(Req),
    /// A copy, for the next attempt.
    Kept(Req),
    /// The last attempt has the request.
    Sent,
}

impl<S, Req, K> ServiceOperation<S, Req, K> {
    /// `service` must be ready.
    #[inline]
    pub(super) const fn new(service: S, request: Req, clone_request: K) -> Self {
        ServiceOperation { service, request: RequestState::Unsent(request), clone_request }
    }
}

impl<S, Req, K> Operation for ServiceOperation<S, Req, K>
where
    S: Service<Req> + Clone,
    K: CloneRequest<Req>,
{
    type Answer = ServiceAttempt<S, Req>;
    const READS_ATTEMPT: bool = false;

    #[inline]
    fn start(&mut self, _attempt: Attempt) -> Self::Answer {
        let (is_ready, request) = match mem::replace(&mut self.request, RequestState::Sent) {
            RequestState::Unsent(request) => (true, request),
            RequestState::Kept(request) => (false, request),
            RequestState::Sent => unreachable!("an attempt of a request that is not replayable"),
        };
        if let Some(copy) = self.clone_request.clone_request(&request) {
            self.request = RequestState::Kept(copy);
        }
        if is_ready {
            ServiceAttempt::Called { response: self.service.call(request) }
        } else {
            ServiceAttempt::NotReady { service: self.service.clone(), request: Some(request) }
        }
    }

    #[inline]
    fn is_replayable(&self) -> bool {
        !matches!(self.request, RequestState::Sent)
    }
}
