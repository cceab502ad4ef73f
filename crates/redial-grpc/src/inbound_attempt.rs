//! The inbound attempt that a server is currently handling, for calls that its handler makes.
//!
//! Clients need [`InboundAttempt`]. The module is hidden; the rest of it is public for
//! `redial-grpc-server`, which exports it.
//!
//! The value is task-local: it is available in the handler's future and its response stream. Spawned
//! tasks do not inherit it; use [`InboundAttempt::scope`] to pass it on.

use std::future::Future;

mod headers;
mod previous_attempts;

pub use headers::Headers;
pub use previous_attempts::previous_attempts;

tokio::task_local! {
    static INBOUND_ATTEMPT: InboundAttempt;
}

/// The inbound attempt that is being handled, used to limit retry amplification.
///
/// Retries multiply across services. If each of three services in a chain makes three attempts, one
/// request at the front becomes up to 27 requests at the back, exactly when the back is overloaded. A
/// client that knows that it is handling a retry can make a single attempt, because the caller above
/// already retries the whole operation.
///
/// There are two ways to pass it to the client. Explicitly, for one call:
/// ```
/// use redial_grpc::InboundAttempt;
/// use tonic::Request;
///
/// fn onward(incoming: &Request<String>) -> Request<String> {
///     let mut request = Request::new(incoming.get_ref().clone());
///     request.extensions_mut().insert(InboundAttempt::of(incoming));
///     request
/// }
/// # let mut incoming = Request::new(String::new());
/// # incoming.metadata_mut().insert("grpc-previous-rpc-attempts", "1".parse().unwrap());
/// # assert_eq!(onward(&incoming).extensions().get::<InboundAttempt>().unwrap().previous_attempts(), 1);
/// ```
/// Or for all calls of a server, with `InboundAttemptLayer` of `redial-grpc-server`: then
/// [`InboundAttempt::current`] is set wherever the handler runs. A client layer prefers the request's
/// extensions. It evaluates either one only with [`RetryLayerBuilder::depth_control`].
///
/// The information covers one hop: it does not say what the caller itself was handling.
///
/// [`RetryLayerBuilder::depth_control`]: crate::RetryLayerBuilder::depth_control
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboundAttempt {
    previous_attempts: u32,
}

impl InboundAttempt {
    /// Reads the inbound attempt from the headers of a request: a request of tonic or http, its
    /// metadata or its header map.
    #[must_use]
    pub fn of<H: Headers + ?Sized>(call: &H) -> Self {
        Self { previous_attempts: previous_attempts(call) }
    }

    /// The inbound attempt of the current task, set by the innermost `InboundAttemptLayer` of
    /// `redial-grpc-server` or [`InboundAttempt::scope`]; `None` outside of both.
    #[must_use]
    pub fn current() -> Option<Self> {
        INBOUND_ATTEMPT.try_with(|inbound| *inbound).ok()
    }

    /// Number of attempts of the call before this one.
    #[must_use]
    pub fn previous_attempts(self) -> u32 {
        self.previous_attempts
    }

    /// Whether this is a retry or hedge rather than a first attempt.
    #[must_use]
    pub fn is_repetition(self) -> bool {
        self.previous_attempts > 0
    }

    /// Runs a future with [`InboundAttempt::current`] set to this value, for a task that a handler
    /// spawns: spawned tasks do not inherit it.
    ///
    /// ```
    /// # use redial_grpc::InboundAttempt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let incoming = tonic::Request::new(());
    /// let inbound = InboundAttempt::of(&incoming);
    /// let task = tokio::spawn(inbound.scope(async { InboundAttempt::current() }));
    /// assert_eq!(task.await.unwrap(), Some(inbound));
    /// # }
    /// ```
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        INBOUND_ATTEMPT.scope(self, future)
    }

    /// Runs a function with [`InboundAttempt::current`] set to this value.
    pub fn within<T>(self, run: impl FnOnce() -> T) -> T {
        INBOUND_ATTEMPT.sync_scope(self, run)
    }
}

#[cfg(test)]
mod tests {
    //! The innermost scope takes precedence, and the outer value is restored when it ends.

    use http::HeaderMap;

    use super::*;

    fn after(previous: &str) -> InboundAttempt {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-previous-rpc-attempts", previous.parse().unwrap());
        InboundAttempt::of(&headers)
    }

    #[test]
    fn inbound_first_attempt_is_not_a_repetition() {
        let first = InboundAttempt::of(&HeaderMap::new());
        assert_eq!(first.previous_attempts(), 0);
        assert!(!first.is_repetition());
        assert!(after("1").is_repetition());
    }

    #[test]
    fn inbound_attempt_is_none_outside_of_a_scope() {
        assert_eq!(InboundAttempt::current(), None);
    }

    #[test]
    fn inbound_attempt_inner_scope_shadows_the_outer() {
        after("1").within(|| {
            assert_eq!(InboundAttempt::current(), Some(after("1")));
            after("2").within(|| assert_eq!(InboundAttempt::current(), Some(after("2"))));
            assert_eq!(InboundAttempt::current(), Some(after("1")));
        });
        assert_eq!(InboundAttempt::current(), None);
    }

    #[tokio::test]
    async fn inbound_attempt_is_not_inherited_by_spawned_tasks() {
        let (plain, handed) = after("1")
            .scope(async {
                let plain = tokio::spawn(async { InboundAttempt::current() });
                let handed = tokio::spawn(after("1").scope(async {
                    tokio::task::yield_now().await;
                    InboundAttempt::current()
                }));
                (plain.await.unwrap(), handed.await.unwrap())
            })
            .await;
        assert_eq!(plain, None);
        assert_eq!(handed, Some(after("1")));
        assert_eq!(InboundAttempt::current(), None);
    }
}
