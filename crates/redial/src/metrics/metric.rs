//! Names, units, labels and buckets.

/// A metric of this crate, for registering buckets and for reading exports.
///
/// | metric | type | unit | labels | meaning |
/// | --- | --- | --- | --- | --- |
/// | `redial.calls` | counter | `{call}` | policy, stop reason | calls that ended |
/// | `redial.attempts` | counter | `{attempt}` | policy | attempts that started, hedges included |
/// | `redial.retries` | counter | `{retry}` | policy, reason | retries that were scheduled; hedges are not among them, they are attempts |
/// | `redial.call.duration` | histogram | `s` | policy, stop reason | duration of a call, with all its attempts and delays |
/// | `redial.call.attempts` | histogram | `{attempt}` | policy | attempts of a call |
/// | `redial.call.backoff` | histogram | `s` | policy | time of a call between a failure and the next attempt, if it had any retry |
/// | `redial.throttle.tokens` | gauge | `{token}` | policy | retries left in the budget or bucket, with its refill until then, set when a call ends |
///
/// The gauge stays as it is while no call of the policy ends: after an outage, the budget of an idle policy fills
/// again and its gauge does not. Where that matters, set a gauge of your own from
/// [`Policy::tokens_at`](crate::Policy::tokens_at) at the interval of your dashboard.
///
/// A call with a budget in place of that of its policy ([`Retry::with_budget`](crate::Retry::with_budget),
/// [`KeyedBudgets`](crate::throttle::KeyedBudgets)) sets no gauge, because all keys would share its labels. For a gauge
/// per key, set one of your own from [`KeyedBudgets::tokens_at`](crate::throttle::KeyedBudgets::tokens_at) at the
/// interval of your dashboard:
///
/// ```
/// use redial::throttle::KeyedBudgets;
/// use redial::time::{Sleeper, Tokio};
///
/// static TENANTS: KeyedBudgets<String> = KeyedBudgets::new(100);
///
/// for (tenant, tokens) in TENANTS.tokens_at(Tokio.now()) {
///     metrics::gauge!("tenant.retry.tokens", "tenant" => tenant).set(tokens);
/// }
/// ```
///
/// A policy made by [`Policy::with_budget`](crate::Policy::with_budget) sets no gauge either, because it has the name
/// of the policy that it was made from: give it a [name](crate::Policy::with_name) of its own.
///
/// The labels:
/// - `redial.policy` is the name of the policy ([`Policy::name`](crate::Policy::name)), or of the call site of
///   [`retry`](crate::retry()). A call can have another name ([`Retry::name`](crate::Retry::name)).
/// - `redial.stop_reason` is [`StopReason::name`](crate::StopReason::name): `succeeded`, `attempts`,
///   `throttled` and so on. A dropped call has `cancelled`.
/// - `redial.reason` is the name of the failure's [`Reason`](crate::Reason), or else its kind: `server`,
///   `client`, `throttling`, `timeout` or `not_ready`.
///
/// ```
/// use redial::metrics::Metric;
///
/// let names = Metric::ALL.map(Metric::name);
/// assert!(names.contains(&"redial.calls"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// `redial.calls`.
    Calls,
    /// `redial.attempts`.
    Attempts,
    /// `redial.retries`.
    Retries,
    /// `redial.call.duration`.
    CallDuration,
    /// `redial.call.attempts`.
    CallAttempts,
    /// `redial.call.backoff`.
    CallBackoff,
    /// `redial.throttle.tokens`.
    ThrottleTokens,
}

/// From 1 ms to 100 s, as gRPC's A66 has them.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const ATTEMPTS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; 7] = [
        Metric::Calls,
        Metric::Attempts,
        Metric::Retries,
        Metric::CallDuration,
        Metric::CallAttempts,
        Metric::CallBackoff,
        Metric::ThrottleTokens,
    ];

    /// Name of the metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Calls => "redial.calls",
            Metric::Attempts => "redial.attempts",
            Metric::Retries => "redial.retries",
            Metric::CallDuration => "redial.call.duration",
            Metric::CallAttempts => "redial.call.attempts",
            Metric::CallBackoff => "redial.call.backoff",
            Metric::ThrottleTokens => "redial.throttle.tokens",
        }
    }

    /// Unit in OpenTelemetry notation.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::Calls => "{call}",
            Metric::Attempts | Metric::CallAttempts => "{attempt}",
            Metric::Retries => "{retry}",
            Metric::CallDuration | Metric::CallBackoff => "s",
            Metric::ThrottleTokens => "{token}",
        }
    }

    /// One-sentence description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Metric::Calls => "Calls that ended.",
            Metric::Attempts => "Attempts that started.",
            Metric::Retries => "Retries that were scheduled.",
            Metric::CallDuration => "Duration of a call, with all its attempts and delays.",
            Metric::CallAttempts => "Attempts of a call.",
            Metric::CallBackoff => "Time of a call between a failure and the next attempt.",
            Metric::ThrottleTokens => "Retries left in the budget or bucket of a policy.",
        }
    }

    /// Buckets for a histogram; empty for a counter and for the gauge.
    ///
    /// ```
    /// use redial::metrics::Metric;
    ///
    /// assert!(Metric::CallDuration.buckets().contains(&0.1));
    /// assert!(Metric::Calls.buckets().is_empty());
    /// ```
    #[must_use]
    pub const fn buckets(self) -> &'static [f64] {
        match self {
            Metric::CallDuration | Metric::CallBackoff => SECONDS,
            Metric::CallAttempts => ATTEMPTS,
            Metric::Calls | Metric::Attempts | Metric::Retries | Metric::ThrottleTokens => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_names_are_unique_and_buckets_increase() {
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, index);
            let others = Metric::ALL.into_iter().filter(|other| *other != metric);
            assert!(others.map(Metric::name).all(|name| name != metric.name()));
            assert!(metric.buckets().is_sorted_by(|a, b| a < b), "{metric:?}");
        }
    }
}
