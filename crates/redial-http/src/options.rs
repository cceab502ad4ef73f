//! Options of single requests, as an extension of the request.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redial::Policy;

use crate::policy::HttpPolicy;

/// Options of one request. They are an extension of an `http::Request` or of a request of
/// reqwest-middleware; for reqwest itself, `send_with_options` takes them.
///
/// The options of a request apply to all of its attempts. They take precedence over the layer, and a
/// layer takes precedence over its [`HttpRules`](crate::HttpRules).
///
/// ```
/// use http::Request;
/// use redial_http::RequestOptions;
/// use redial::s;
///
/// let request = Request::post("http://example.com/search")
///     // This POST only reads.
///     .extension(RequestOptions::new().idempotent().deadline(s(2)))
///     .body(())?;
/// # let _ = request;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "options are an extension of a request"]
pub struct RequestOptions {
    pub(crate) policy: Option<HttpPolicy>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) no_retries: bool,
    pub(crate) no_hedging: bool,
    pub(crate) ignores_retry_after: bool,
    body_factory: Option<AnyBodyFactory>,
}

/// A [`BodyFactory`] whose type of body is not known here.
#[derive(Clone)]
struct AnyBodyFactory {
    factory: Arc<dyn Any + Send + Sync>,
    /// The name of the type that it makes.
    makes: &'static str,
}

/// A function that makes a new body for each retry.
pub(crate) type BodyFactory<B> = Box<dyn Fn() -> B + Send + Sync>;

impl RequestOptions {
    /// No options: the rules of the layer.
    pub fn new() -> Self {
        RequestOptions::default()
    }

    /// The request may run twice, whatever its method.
    pub fn idempotent(mut self) -> Self {
        self.idempotent = Some(true);
        self
    }

    /// The request must not run twice, whatever its method or headers. It is retried only with proof that
    /// the server has not processed it.
    pub fn not_idempotent(mut self) -> Self {
        self.idempotent = Some(false);
        self
    }

    /// One attempt, with the deadline and the attempt timeout of the policy.
    pub fn no_retries(mut self) -> Self {
        self.no_retries = true;
        self
    }

    /// Retries without hedging.
    pub fn no_hedging(mut self) -> Self {
        self.no_hedging = true;
        self
    }

    /// Uses another policy than that of the layer, without hedging. The retry budget stays that of the
    /// layer.
    pub fn policy(mut self, policy: &Policy) -> Self {
        self.policy = Some(HttpPolicy::new(policy));
        self
    }

    /// The total time for all attempts and the delays between them. The earlier of this and the deadline
    /// of the policy applies.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Ignores `Retry-After`, in every attempt.
    pub fn ignore_retry_after(mut self) -> Self {
        self.ignores_retry_after = true;
        self
    }

    /// Makes the body of each retry with this function, for bodies that cannot be cloned, such as a file.
    /// `B` is the body type of the request, for reqwest `reqwest::Body`. A function for another type is not
    /// used; with the feature `tracing`, a warning names both types.
    ///
    /// ```
    /// use http::Request;
    /// use http_body_util::combinators::BoxBody;
    /// use http_body_util::{BodyExt, Full};
    /// use redial_http::RequestOptions;
    /// use bytes::Bytes;
    /// use std::convert::Infallible;
    ///
    /// fn upload() -> BoxBody<Bytes, Infallible> {
    ///     // Or open a file and stream it.
    ///     Full::from("content").boxed()
    /// }
    ///
    /// let request = Request::put("http://example.com/file")
    ///     .extension(RequestOptions::new().body_factory(upload))
    ///     .body(upload())?;
    /// # let _ = request;
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn body_factory<B: 'static>(
        mut self,
        factory: impl Fn() -> B + Send + Sync + 'static,
    ) -> Self {
        let factory = Arc::new(Box::new(factory) as BodyFactory<B>);
        self.body_factory = Some(AnyBodyFactory { factory, makes: type_name::<B>() });
        self
    }

    /// The factory for bodies of this type.
    pub(crate) fn factory_of<B: 'static>(&self) -> Option<Arc<BodyFactory<B>>> {
        let AnyBodyFactory { factory, makes } = self.body_factory.clone()?;
        let factory = factory.downcast().ok();
        if factory.is_none() {
            unused_factory(makes, type_name::<B>());
        }
        factory
    }
}

#[cfg(feature = "tracing")]
fn unused_factory(makes: &str, body: &str) {
    tracing::warn!(target: "redial", makes, body, "body factory for another type of body is not used");
}

#[cfg(not(feature = "tracing"))]
fn unused_factory(_makes: &str, _body: &str) {}

impl fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions")
            .field("policy", &self.policy)
            .field("deadline", &self.deadline)
            .field("idempotent", &self.idempotent)
            .field("no_retries", &self.no_retries)
            .field("no_hedging", &self.no_hedging)
            .field("ignores_retry_after", &self.ignores_retry_after)
            .field("body_factory", &self.body_factory.is_some())
            .finish()
    }
}
