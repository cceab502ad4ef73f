//! Copies of requests for further attempts.

/// Copies a request for a further attempt.
///
/// Implemented by [`Cloned`] for requests that implement [`Clone`], and by [`CloneWith`] for a function.
///
/// ```
/// use redial::tower::{CloneRequest, Cloned};
///
/// assert_eq!(Cloned.clone_request(&"request"), Some("request"));
/// ```
#[diagnostic::on_unimplemented(
    message = "requests of type `{Req}` cannot be copied for a retry",
    note = "a request that is not `Clone` needs `.clone_request(|request: &{Req}| ..)` on the layer"
)]
pub trait CloneRequest<Req> {
    /// A copy of the request; `None` if it cannot be copied, which makes the attempt the last one.
    fn clone_request(&self, request: &Req) -> Option<Req>;
}

/// Copies requests with [`Clone`]. The default of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cloned;

impl<Req: Clone> CloneRequest<Req> for Cloned {
    fn clone_request(&self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Copies requests with a function; see [`RetryLayer::clone_request`](crate::tower::RetryLayer::clone_request).
#[derive(Clone, Copy)]
pub struct CloneWith<F>(pub(super) F);

impl<Req, F: Fn(&Req) -> Option<Req>> CloneRequest<Req> for CloneWith<F> {
    fn clone_request(&self, request: &Req) -> Option<Req> {
        (self.0)(request)
    }
}

impl<F> std::fmt::Debug for CloneWith<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloneWith").finish_non_exhaustive()
    }
}
