//! The list of metrics: names, units, labels and buckets as gRPC's A66 and A96 have them, and ours.

/// A metric of this crate, for whoever registers buckets or views, or reads exports.
///
/// | metric | type | unit | labels | what it is |
/// | --- | --- | --- | --- | --- |
/// | `grpc.client.attempt.started` | counter | `{attempt}` | method, target | attempts that started |
/// | `grpc.client.attempt.duration` | histogram | `s` | method, target, status | how long an attempt took |
/// | `grpc.client.attempt.sent_total_compressed_message_size` | histogram | `By` | method, target, status | the messages that an attempt was sent |
/// | `grpc.client.attempt.rcvd_total_compressed_message_size` | histogram | `By` | method, target, status | the messages that an attempt received |
/// | `grpc.client.call.duration` | histogram | `s` | method, target, status | how long a call took |
/// | `grpc.client.call.retries` | histogram | `{retry}` | method, target | retries of a call that had any |
/// | `grpc.client.call.transparent_retries` | histogram | `{transparent_retry}` | method, target | transparent replacements of a call that had any |
/// | `grpc.client.call.hedges` | histogram | `{hedge}` | method, target | hedges of a call that had any |
/// | `grpc.client.call.retry_delay` | histogram | `s` | method, target | how long a call had no attempt under way, if it ever had none |
/// | `redial.grpc.call.throttled` | counter | `{call}` | method, target | calls that the throttle refused a retry or hedge |
/// | `redial.grpc.call.hedge_won` | counter | `{call}` | method, target | calls that a hedge won |
/// | `redial.grpc.call.buffer_full` | counter | `{call}` | method, target | calls that lost their retries because what they wrote could not be kept |
///
/// The labels are `grpc.method`, `grpc.target` and `grpc.status`:
/// - `grpc.method` is `pkg.Service/Method`. A layer tells [`METHODS_MAX`](crate::METHODS_MAX) methods
///   apart; calls of further ones have the method `other`, so that the number of series is bounded.
/// - `grpc.target` is the name that the layer was given with
///   [`for_server`](crate::RetryLayerBuilder::for_server); without one the label is absent.
/// - `grpc.status` is the name of a status code. An attempt that this side ended has `CANCELLED`
///   (another one won, or the application dropped the call) or `DEADLINE_EXCEEDED`.
///
/// Every attempt counts, transparent replacements too. Sizes are those of messages as they travel,
/// compressed if they are, without the five bytes before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// `grpc.client.attempt.started`.
    AttemptStarted,
    /// `grpc.client.attempt.duration`.
    AttemptDuration,
    /// `grpc.client.attempt.sent_total_compressed_message_size`.
    AttemptSent,
    /// `grpc.client.attempt.rcvd_total_compressed_message_size`.
    AttemptReceived,
    /// `grpc.client.call.duration`.
    CallDuration,
    /// `grpc.client.call.retries`.
    CallRetries,
    /// `grpc.client.call.transparent_retries`.
    CallTransparentRetries,
    /// `grpc.client.call.hedges`.
    CallHedges,
    /// `grpc.client.call.retry_delay`.
    CallRetryDelay,
    /// `redial.grpc.call.throttled`.
    CallThrottled,
    /// `redial.grpc.call.hedge_won`.
    CallHedgeWon,
    /// `redial.grpc.call.buffer_full`.
    CallBufferFull,
}

/// A66, "Units": latencies.
const LATENCIES: &[f64] = &[
    0.0, 0.000_01, 0.000_05, 0.000_1, 0.000_3, 0.000_6, 0.000_8, 0.001, 0.002, 0.003, 0.004, 0.005,
    0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16,
    0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];

/// A66, "Units": sizes.
const SIZES: &[f64] = &[
    0.0,
    1_024.0,
    2_048.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
];

/// A96: retries and hedges of a call.
const FEW: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];
/// A96: transparent replacements of a call.
const TRANSPARENT: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 12] = [
        Metric::AttemptStarted,
        Metric::AttemptDuration,
        Metric::AttemptSent,
        Metric::AttemptReceived,
        Metric::CallDuration,
        Metric::CallRetries,
        Metric::CallTransparentRetries,
        Metric::CallHedges,
        Metric::CallRetryDelay,
        Metric::CallThrottled,
        Metric::CallHedgeWon,
        Metric::CallBufferFull,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Metric::AttemptStarted => "grpc.client.attempt.started",
            Metric::AttemptDuration => "grpc.client.attempt.duration",
            Metric::AttemptSent => "grpc.client.attempt.sent_total_compressed_message_size",
            Metric::AttemptReceived => "grpc.client.attempt.rcvd_total_compressed_message_size",
            Metric::CallDuration => "grpc.client.call.duration",
            Metric::CallRetries => "grpc.client.call.retries",
            Metric::CallTransparentRetries => "grpc.client.call.transparent_retries",
            Metric::CallHedges => "grpc.client.call.hedges",
            Metric::CallRetryDelay => "grpc.client.call.retry_delay",
            Metric::CallThrottled => "redial.grpc.call.throttled",
            Metric::CallHedgeWon => "redial.grpc.call.hedge_won",
            Metric::CallBufferFull => "redial.grpc.call.buffer_full",
        }
    }

    /// Its unit, as OpenTelemetry writes it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::AttemptStarted => "{attempt}",
            Metric::AttemptDuration | Metric::CallDuration | Metric::CallRetryDelay => "s",
            Metric::AttemptSent | Metric::AttemptReceived => "By",
            Metric::CallRetries => "{retry}",
            Metric::CallTransparentRetries => "{transparent_retry}",
            Metric::CallHedges => "{hedge}",
            Metric::CallThrottled | Metric::CallHedgeWon | Metric::CallBufferFull => "{call}",
        }
    }

    /// What it is, in a sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Metric::AttemptStarted => "Attempts that started.",
            Metric::AttemptDuration => "How long an attempt took.",
            Metric::AttemptSent => "Bytes of the messages that an attempt was sent, compressed.",
            Metric::AttemptReceived => {
                "Bytes of the messages that an attempt received, compressed."
            }
            Metric::CallDuration => "How long a call took, all its attempts included.",
            Metric::CallRetries => "Retries of a call that had any.",
            Metric::CallTransparentRetries => {
                "Attempts of a call that replaced one which provably did not run."
            }
            Metric::CallHedges => "Hedges of a call that had any.",
            Metric::CallRetryDelay => "How long a call had no attempt under way.",
            Metric::CallThrottled => "Calls that the throttle refused a retry or hedge.",
            Metric::CallHedgeWon => "Calls that a hedge won.",
            Metric::CallBufferFull => {
                "Calls that lost their retries because what they wrote could not be kept."
            }
        }
    }

    /// The buckets that gRPC recommends for it; a counter has none.
    #[must_use]
    pub const fn buckets(self) -> &'static [f64] {
        match self {
            Metric::AttemptDuration | Metric::CallDuration | Metric::CallRetryDelay => LATENCIES,
            Metric::AttemptSent | Metric::AttemptReceived => SIZES,
            Metric::CallRetries | Metric::CallHedges => FEW,
            Metric::CallTransparentRetries => TRANSPARENT,
            Metric::AttemptStarted
            | Metric::CallThrottled
            | Metric::CallHedgeWon
            | Metric::CallBufferFull => &[],
        }
    }

    /// Whether it has the label `grpc.status`.
    #[must_use]
    pub const fn has_status(self) -> bool {
        matches!(
            self,
            Metric::AttemptDuration
                | Metric::AttemptSent
                | Metric::AttemptReceived
                | Metric::CallDuration
        )
    }
}

/// The label for the method.
pub(crate) const METHOD: &str = "grpc.method";
/// The label for the name of the server.
pub(crate) const TARGET: &str = "grpc.target";
/// The label for the status.
pub(crate) const STATUS: &str = "grpc.status";
/// The method of calls whose method is not told apart (A66, "Attributes").
pub(crate) const OTHER: &str = "other";

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Number(u64),
    Seconds(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_unique_and_buckets_increase() {
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, index);
            let others = Metric::ALL.into_iter().filter(|other| *other != metric);
            assert!(others.map(Metric::name).all(|name| name != metric.name()));
            assert!(metric.buckets().is_sorted_by(|a, b| a < b), "{metric:?}");
        }
    }
}
