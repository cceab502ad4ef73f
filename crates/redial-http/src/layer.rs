//! The layer and its options.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use redial::throttle::{KeyedBudgets, RetryBudget};
use redial::{Hedged, Policy};
use tower_layer::Layer;

use crate::call::Facts;
use crate::host_budgets::{Budgets, HOSTS_MAX};
use crate::policy::{HttpHedged, HttpPolicy, STANDARD};
use crate::request::HttpRequest;
use crate::rules::{HttpRules, is_safe};
use crate::service::RetryService;
use crate::service_error::{BoxErrors, StdErrors};

/// What the requests of a layer share.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) policy: HttpPolicy,
    pub(crate) hedged: Option<HttpHedged>,
    pub(crate) rules: HttpRules,
    pub(crate) budgets: Budgets,
    pub(crate) attempt_header: Option<HeaderName>,
    pub(crate) make_key: Option<Arc<MakeKey>>,
}

impl Settings {
    /// Whether a request is hedged, unless its options say otherwise.
    pub(crate) fn hedges(&self, request: &impl HttpRequest, facts: &Facts) -> bool {
        self.hedged.is_some() && facts.idempotent && is_safe(request.method())
    }

    /// Adds the number of the attempt, if it is wanted.
    #[inline(always)]
    pub(crate) fn number_attempt(&self, request: &mut impl HttpRequest, number: u32) {
        if let Some(name) = &self.attempt_header {
            request.headers_mut().insert(name, HeaderValue::from(number));
        }
    }
}

/// A function that makes an idempotency key.
type MakeKey = dyn Fn() -> HeaderValue + Send + Sync;

/// Retries or hedges the requests of an HTTP service.
///
/// It is cheap to clone, and clones share their retry budgets.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
/// use redial_http::RetryLayer;
/// use std::io;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # static CALLS: AtomicU32 = AtomicU32::new(0);
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In a program: a client of hyper-util or reqwest.
/// let service = service_fn(|_request: Request<Full<Bytes>>| async {
///     let mut response = Response::new(Full::new(Bytes::new()));
/// #   if CALLS.fetch_add(1, Ordering::Relaxed) < 2 {
///     *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
/// #   }
///     Ok::<_, io::Error>(response)
/// });
/// let mut client = ServiceBuilder::new().layer(RetryLayer::standard()).service(service);
///
/// let request = Request::get("http://example.com/").body(Full::default())?;
/// let response = client.ready().await?.call(request).await?;
/// assert_eq!(response.status(), StatusCode::OK);
/// assert_eq!(redial_http::attempts(response.extensions()), 3);
/// # Ok(())
/// # }
/// ```
pub struct RetryLayer<X = StdErrors> {
    pub(crate) settings: Arc<Settings>,
    errors: PhantomData<fn() -> X>,
}

impl RetryLayer {
    /// The defaults: 3 attempts, exponential backoff from 200 ms with full jitter, [`HttpRules::standard`], and
    /// a retry budget for each of at most [`HOSTS_MAX`] hosts.
    #[must_use]
    pub fn standard() -> Self {
        RetryLayer::new(&STANDARD)
    }

    /// A layer with the attempts, backoff, deadline and attempt timeout of this policy, and a retry budget
    /// for each host; the throttle of the policy is used with [`RetryLayer::policy_throttle`].
    ///
    /// A `Retry-After` up to the policy's [`hint_max`](redial::Builder::hint_max), 60 s by default,
    /// lengthens a delay; a longer one ends the call with that response.
    /// [`hint_clamp`](redial::Builder::hint_clamp) shortens it instead. An attempt that exceeds the
    /// [`attempt_timeout`](redial::Builder::attempt_timeout) is retried if the request is idempotent.
    ///
    /// ```
    /// use redial::{Policy, ms, s};
    /// use redial_http::RetryLayer;
    ///
    /// static API: Policy =
    ///     Policy::exponential(ms(50)).attempts(4).attempt_timeout(s(2)).deadline(s(10)).build();
    /// let layer = RetryLayer::new(&API);
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let settings = Settings {
            policy: HttpPolicy::new(policy),
            hedged: None,
            rules: HttpRules::standard(),
            budgets: Budgets::PerHost(Arc::new(KeyedBudgets::new(HOSTS_MAX))),
            attempt_header: None,
            make_key: None,
        };
        RetryLayer { settings: Arc::new(settings), errors: PhantomData }
    }

    /// For services whose error is a `Box<dyn Error + Send + Sync>`, as of most middleware of tower.
    ///
    /// ```
    /// use redial_http::RetryLayer;
    ///
    /// let layer = RetryLayer::standard().boxed_errors();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn boxed_errors(self) -> RetryLayer<BoxErrors> {
        RetryLayer { settings: self.settings, errors: PhantomData }
    }
}

impl<X> RetryLayer<X> {
    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Replaces the rules for statuses, methods and `Retry-After`.
    #[must_use]
    pub fn rules(self, rules: HttpRules) -> Self {
        self.with(|settings| settings.rules = rules)
    }

    /// Hedges requests of safe methods (GET, HEAD, OPTIONS, TRACE, QUERY): another attempt starts when the
    /// first has no answer after the delay of the policy, and the first success wins. Other requests keep
    /// the policy of the layer. Hedges take from the retry budget of the host, so an overloaded server gets
    /// none.
    ///
    /// ```
    /// use redial::{Hedged, Policy, ms};
    /// use redial_http::RetryLayer;
    ///
    /// static READS: Hedged = Policy::hedged(ms(50)).attempts(2).build();
    /// let layer = RetryLayer::standard().hedge_reads(&READS);
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn hedge_reads(self, policy: &Hedged) -> Self {
        self.with(|settings| settings.hedged = Some(HttpHedged::new(policy)))
    }

    /// Gives each host a default retry budget, for at most this many hosts; beyond that, the host that was
    /// used least recently loses its budget. [`RetryLayer::host_budgets`] sets other parameters.
    #[must_use]
    pub fn hosts_max(self, hosts_max: usize) -> Self {
        self.host_budgets(KeyedBudgets::new(hosts_max))
    }

    /// Takes the budget of each host from here.
    ///
    /// ```
    /// use redial::throttle::{KeyedBudgets, RetryBudget};
    /// use redial_http::RetryLayer;
    ///
    /// let budgets = KeyedBudgets::like(200, RetryBudget::new(50.0, 0.2).per_second(5.0));
    /// let layer = RetryLayer::standard().host_budgets(budgets);
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn host_budgets(self, budgets: KeyedBudgets<String>) -> Self {
        self.with(|settings| settings.budgets = Budgets::PerHost(Arc::new(budgets)))
    }

    /// Uses this retry budget for all hosts. It can be shared with gRPC and other clients of the process.
    #[must_use]
    pub fn shared_budget(self, budget: Arc<RetryBudget>) -> Self {
        self.with(|settings| settings.budgets = Budgets::Shared(budget))
    }

    /// Uses the throttle of the policy for all hosts.
    #[must_use]
    pub fn policy_throttle(self) -> Self {
        self.with(|settings| settings.budgets = Budgets::OfPolicy)
    }

    /// Sends the number of the attempt, from 1, in this header.
    ///
    /// ```
    /// use http::HeaderName;
    /// use redial_http::RetryLayer;
    ///
    /// let layer = RetryLayer::standard().attempt_header(HeaderName::from_static("x-attempt"));
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn attempt_header(self, name: HeaderName) -> Self {
        self.with(|settings| settings.attempt_header = Some(name))
    }

    /// Adds an `Idempotency-Key`, a random UUID, to requests that are not idempotent and have none. All
    /// attempts of a request have the same key, and the request may be retried. **Only for servers that
    /// implement the header**: others ignore it, and run a POST twice.
    #[must_use]
    pub fn add_idempotency_keys(self) -> Self {
        self.add_idempotency_keys_with(|| {
            let key = uuid::Uuid::new_v4().to_string();
            HeaderValue::try_from(key).expect("a UUID is a header value")
        })
    }

    /// The same, with keys that this function makes.
    #[must_use]
    pub fn add_idempotency_keys_with(
        self,
        make_key: impl Fn() -> HeaderValue + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.make_key = Some(Arc::new(make_key)))
    }
}

impl<X> Clone for RetryLayer<X> {
    fn clone(&self) -> Self {
        RetryLayer { settings: self.settings.clone(), errors: PhantomData }
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        RetryLayer::standard()
    }
}

impl<X> fmt::Debug for RetryLayer<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("policy", &self.settings.policy)
            .field("hedged", &self.settings.hedged)
            .field("rules", &self.settings.rules)
            .field("attempt_header", &self.settings.attempt_header)
            .finish_non_exhaustive()
    }
}

impl<S, X> Layer<S> for RetryLayer<X> {
    type Service = RetryService<S, X>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService::new(inner, self.clone())
    }
}
