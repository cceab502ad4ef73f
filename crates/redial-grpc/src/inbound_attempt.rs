//! What a call that is made while another is served may know of that other one.
//!
//! Rule: it is known where the code runs that serves, and nowhere else: within the handler's future and
//! the stream that it answers with, and in a task that they start only if they hand it on.

use std::future::Future;

mod headers;
mod previous_attempts;

pub use headers::Headers;
pub use previous_attempts::previous_attempts;

tokio::task_local! {
    static INBOUND_ATTEMPT: InboundAttempt;
}

/// The attempt that is being served: depth control.
///
/// Retries multiply. Where each of three services in a row makes three attempts, one request at the
/// front becomes up to 27 at the back, in the very moment in which the back can bear it least. A client
/// that is told what it serves can make a single attempt while it serves a retry: whoever sent that
/// retry is repeating the whole already.
///
/// There are two ways to tell it. By hand, for one call:
/// ```
/// use redial_grpc::inbound_attempt::InboundAttempt;
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
/// Or for every call of a server, with `InboundAttemptLayer` of `redial-grpc-server`: then [`InboundAttempt::current`]
/// says it wherever the handler runs. A client layer looks at the request's extensions first. It only
/// looks if it was told to: this is an option of the client.
///
/// It reaches one step: it says nothing of what the sender of the call was serving itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InboundAttempt {
    previous_attempts: u32,
}

impl InboundAttempt {
    /// What `call` says of itself.
    #[must_use]
    pub fn of<H: Headers + ?Sized>(call: &H) -> Self {
        Self { previous_attempts: previous_attempts(call) }
    }

    /// What is being served where this is called: by the innermost `InboundAttemptLayer` of `redial-grpc-server` or
    /// [`InboundAttempt::scope`]; `None` outside of both.
    #[must_use]
    pub fn current() -> Option<Self> {
        INBOUND_ATTEMPT.try_with(|inbound| *inbound).ok()
    }

    /// How many attempts of the call came before the one that is served.
    #[must_use]
    pub fn previous_attempts(self) -> u32 {
        self.previous_attempts
    }

    /// Whether a retry or a hedge is served, and not a first attempt.
    #[must_use]
    pub fn is_repetition(self) -> bool {
        self.previous_attempts > 0
    }

    /// The same future, within which [`InboundAttempt::current`] is this one: for a task that a handler starts,
    /// which would know of nothing otherwise.
    ///
    /// ```
    /// # use redial_grpc::inbound_attempt::InboundAttempt;
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

    /// The same for one call of a function.
    pub fn within<T>(self, run: impl FnOnce() -> T) -> T {
        INBOUND_ATTEMPT.sync_scope(self, run)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the innermost scope counts, and nothing is left behind when it ends.

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
