//! Counters, histograms and gauges for the `metrics` facade (feature `metrics`).
//!
//! # When to use it
//!
//! Use it to see in a dashboard how often calls retry, why they give up, and how much is left of their retry
//! budgets. Install a recorder, for example that of `metrics-exporter-prometheus`, and call [`enable`] once.
//! [`Metric`] has the names, units and labels.
//!
//! ```
//! use redial::{Policy, ms};
//!
//! static FETCH: Policy = Policy::exponential(ms(100)).name("fetch").build();
//!
//! // After the recorder has been installed:
//! redial::metrics::enable();
//!
//! let page = FETCH.retry(|| Ok::<_, std::io::Error>("page")).when(|_| true).call();
//! # assert_eq!(page.ok(), Some("page"));
//! ```
//!
//! # Alerts
//!
//! | question | query |
//! | --- | --- |
//! | Are retries masking a failing dependency? | the rate of `redial.retries` over the rate of `redial.calls` is above 0.05 |
//! | How much load do hedges add? | the rate of `redial.attempts` over the rate of `redial.calls` |
//! | Does the retry budget end calls? | `redial.calls` with `redial.stop_reason="throttled"` increases |
//! | How close is the budget to its end? | `redial.throttle.tokens` is below 1 |
//! | How long do callers wait between attempts? | the 99th percentile of `redial.call.backoff` |
//!
//! # Cost
//!
//! Without the feature there is no code for metrics. With the feature and before [`enable`], a call loads and
//! tests one flag. After [`enable`], every call has its state machine from the start, which allocates and
//! reads the clock, builds its labels, and looks up the recorder for each value; that is so without a
//! recorder too, because the facade does not say whether there is one.
//!
//! # What can go wrong
//!
//! - **Nothing is recorded.** [`enable`] was not called, or no recorder is installed. A call that started
//!   before [`enable`] may be missing.
//! - **There are too many series.** Each name of a policy is a label: name policies after what they call
//!   ([`Builder::name`](crate::Builder::name)), not after a tenant or a request.
//! - **The label is a file and a line.** The policy has no name.
//! - **The budget of an idle policy stays empty.** The gauge is set when a call ends. Set one of your own from
//!   [`Policy::tokens_at`](crate::Policy::tokens_at).
//! - **The budget has no gauge.** It is that of a call or a key: [`Metric`] says how to export it.
//! - **`metrics-exporter-prometheus` exports summaries.** It needs buckets: [`Metric::buckets`].
//!
//! gRPC calls of `redial-grpc` have their own metrics.

mod call_metrics;
mod metric;

pub(crate) use call_metrics::CallMetrics;
pub use metric::Metric;

use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::{Unit, with_recorder};

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Records the metrics of every call of the process from now on, and describes them to the recorder. Further
/// calls only describe the metrics again, for a recorder that was installed later.
///
/// ```
/// // Once, after the recorder has been installed:
/// redial::metrics::enable();
/// ```
pub fn enable() {
    with_recorder(|recorder| {
        for metric in Metric::ALL {
            let unit = if metric.unit() == "s" { Unit::Seconds } else { Unit::Count };
            let (name, unit, text) =
                (metric.name().into(), Some(unit), metric.description().into());
            match metric {
                Metric::ThrottleTokens => recorder.describe_gauge(name, unit, text),
                _ if metric.buckets().is_empty() => recorder.describe_counter(name, unit, text),
                _ => recorder.describe_histogram(name, unit, text),
            }
        }
    });
    ENABLED.store(true, Ordering::Relaxed);
}

/// Whether metrics are recorded.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}
