//! The metrics: names, units, labels and buckets of gRPC's A66 and A96, plus three of our own.

/// A metric of this crate, for registering buckets or views and for reading exports.
///
/// | metric | type | unit | labels | meaning |
/// | --- | --- | --- | --- | --- |
/// | `grpc.client.attempt.started` | counter | `{attempt}` | method, target | attempts that started |
/// | `grpc.client.attempt.duration` | histogram | `s` | method, target, status | duration of an attempt |
/// | `grpc.client.attempt.sent_total_compressed_message_size` | histogram | `By` | method, target, status | message bytes sent by an attempt |
/// | `grpc.client.attempt.rcvd_total_compressed_message_size` | histogram | `By` | method, target, status | message bytes received by an attempt |
/// | `grpc.client.call.duration` | histogram | `s` | method, target, status | duration of a call |
/// | `grpc.client.call.retries` | histogram | `{retry}` | method, target | retries of a call, if it had any |
/// | `grpc.client.call.transparent_retries` | histogram | `{transparent_retry}` | method, target | transparent retries of a call, if it had any |
/// | `grpc.client.call.hedges` | histogram | `{hedge}` | method, target | hedges of a call, if it had any |
/// | `grpc.client.call.retry_delay` | histogram | `s` | method, target | total time without a running attempt, if there was any |
/// | `redial.grpc.call.throttled` | counter | `{call}` | method, target | calls with a retry or hedge refused by the throttle |
/// | `redial.grpc.call.hedge_won` | counter | `{call}` | method, target | calls won by a hedge |
/// | `redial.grpc.call.buffer_full` | counter | `{call}` | method, target | calls that could not be retried because the request exceeded the buffer limit |
///
/// The labels are `grpc.method`, `grpc.target` and `grpc.status`:
/// - `grpc.method` is `pkg.Service/Method`. A layer distinguishes [`METHODS_MAX`](crate::METHODS_MAX)
///   methods; further methods share the label `other`, so that the number of series is bounded.
/// - `grpc.target` is the name set by [`for_server`](crate::RetryLayerBuilder::for_server); without a
///   name the label is absent.
/// - `grpc.status` is the name of a status code. An attempt that was ended by the client has
///   `CANCELLED` (another attempt won, or the application dropped the call) or `DEADLINE_EXCEEDED`.
///
/// Every attempt counts, including transparent retries. Sizes are those of messages on the wire, after
/// compression, without the five-byte prefix.
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
/// A96: transparent retries of a call.
const TRANSPARENT: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

impl Metric {
    /// All metrics.
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

    /// Name of the metric.
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

    /// Unit in OpenTelemetry notation.
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

    /// One-sentence description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Metric::AttemptStarted => "Attempts that started.",
            Metric::AttemptDuration => "Duration of an attempt.",
            Metric::AttemptSent => "Compressed message bytes sent by an attempt.",
            Metric::AttemptReceived => "Compressed message bytes received by an attempt.",
            Metric::CallDuration => "Duration of a call, including all its attempts.",
            Metric::CallRetries => "Retries of a call, if it had any.",
            Metric::CallTransparentRetries => "Transparent retries of a call, if it had any.",
            Metric::CallHedges => "Hedges of a call, if it had any.",
            Metric::CallRetryDelay => "Total time of a call without a running attempt.",
            Metric::CallThrottled => "Calls with a retry or hedge refused by the throttle.",
            Metric::CallHedgeWon => "Calls won by a hedge.",
            Metric::CallBufferFull => {
                "Calls that could not be retried because the request exceeded the buffer limit."
            }
        }
    }

    /// The histogram buckets that gRPC recommends; empty for a counter.
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

pub(crate) const METHOD: &str = "grpc.method";
pub(crate) const TARGET: &str = "grpc.target";
pub(crate) const STATUS: &str = "grpc.status";
/// The method label of calls beyond the method limit (A66, "Attributes").
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
