//! Options of single requests: hooks, deadlines, idempotency.

use std::fmt;
use std::marker::PhantomData;

use redial_core::{Event, LatencyEstimator};

use crate::event_context::EventContext;
use crate::future::HedgeList;
use crate::options::{Options, call_options, retry_options};
use crate::policy::OriginKind;

/// The options of one request, for [`RetryLayer::call_options`](crate::tower::RetryLayer::call_options).
///
/// `P` is the policy of the layer: a request of a [`Hedged`](crate::Hedged) policy is always idempotent and has
/// no strategy.
///
/// ```
/// use redial::tower::RetryLayer;
/// use redial::{Policy, ms, s};
///
/// #[derive(Clone)]
/// struct Request { method: &'static str, path: &'static str }
///
/// static API: Policy = Policy::exponential(ms(100)).build();
///
/// let layer = RetryLayer::new(&API).call_options(|request: &Request, options| {
///     let options = options.deadline(if request.path == "/report" { s(30) } else { s(2) });
///     if request.method == "POST" { options.not_idempotent() } else { options }
/// });
/// # let _ = layer;
/// ```
#[must_use = "options are returned to the layer"]
pub struct CallOptions<P> {
    options: Option<Box<Options<'static>>>,
    policy: PhantomData<fn() -> P>,
}

impl<P> CallOptions<P> {
    /// A request without options.
    pub(super) const fn none() -> Self {
        CallOptions { options: None, policy: PhantomData }
    }

    pub(super) fn into_options(self) -> Option<Box<Options<'static>>> {
        self.options
    }

    call_options!('static);
}

impl<P> CallOptions<P> {
    retry_options!('static, P);
}

impl<P: OriginKind<Hedges<()> = HedgeList<()>>> CallOptions<P> {
    /// Lets the hedge delay follow the observed latency; see
    /// [`Retry::latency_estimator`](crate::Retry::latency_estimator).
    ///
    /// ```
    /// use redial::hedging::{HedgeAt, LatencyEstimator};
    /// use redial::tower::RetryLayer;
    /// use redial::{Hedged, Policy, ms};
    ///
    /// static READ: Hedged = Policy::hedged(ms(50)).build();
    /// static READS: LatencyEstimator = LatencyEstimator::new(HedgeAt::quantile(0.95).build());
    ///
    /// let layer = RetryLayer::new(&READ)
    ///     .call_options(|_: &&'static str, options| options.latency_estimator(&READS));
    /// # let _ = layer;
    /// ```
    pub fn latency_estimator(mut self, estimator: &'static LatencyEstimator) -> Self {
        self.options().estimator = Some(estimator);
        self
    }
}

impl<P> fmt::Debug for CallOptions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions").finish_non_exhaustive()
    }
}

/// Sets the options of each request. A pair is applied in its order.
pub trait ConfigureCall<P, Req> {
    /// Adds options for this request.
    fn configure(&self, request: &Req, options: CallOptions<P>) -> CallOptions<P>;
}

/// Sets no options. The default of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOptions;

impl<P, Req> ConfigureCall<P, Req> for NoOptions {
    fn configure(&self, _request: &Req, options: CallOptions<P>) -> CallOptions<P> {
        options
    }
}

impl<P, Req, A: ConfigureCall<P, Req>, B: ConfigureCall<P, Req>> ConfigureCall<P, Req> for (A, B) {
    fn configure(&self, request: &Req, options: CallOptions<P>) -> CallOptions<P> {
        self.1.configure(request, self.0.configure(request, options))
    }
}

/// Sets options by a function; see [`RetryLayer::call_options`](crate::tower::RetryLayer::call_options).
#[derive(Clone, Copy)]
pub struct ConfigureWith<F>(pub(super) F);

impl<P, Req, F: Fn(&Req, CallOptions<P>) -> CallOptions<P>> ConfigureCall<P, Req>
    for ConfigureWith<F>
{
    fn configure(&self, request: &Req, options: CallOptions<P>) -> CallOptions<P> {
        (self.0)(request, options)
    }
}

impl<F> fmt::Debug for ConfigureWith<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigureWith").finish_non_exhaustive()
    }
}

/// Adds a hook to each request; see [`RetryLayer::on_event`](crate::tower::RetryLayer::on_event).
#[derive(Clone, Copy)]
pub struct OnEvent<F>(pub(super) F);

impl<P, Req, F> ConfigureCall<P, Req> for OnEvent<F>
where
    F: FnMut(&EventContext<'_>, &Event) + Clone + Send + 'static,
{
    fn configure(&self, _request: &Req, options: CallOptions<P>) -> CallOptions<P> {
        options.on_event(self.0.clone())
    }
}

impl<F> fmt::Debug for OnEvent<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnEvent").finish_non_exhaustive()
    }
}
