//! The metrics that every sink must have after a [`SampleCall`].

use std::fmt;

use prost::Message;

use crate::common::sample_calls::{METHOD, SampleCall, TARGET};

impl SampleCall {
    /// The metrics that the call produces.
    pub(crate) fn expected_metrics(self) -> Vec<MetricValue> {
        let sent = self.request().encoded_len() as u64;
        let received = self.response().encoded_len() as u64;
        let started = |number| counter("grpc.client.attempt.started", number);
        let call = |status, ms| histogram("grpc.client.call.duration", Some(status), 1, ms);
        let numbers = |name, number| histogram(name, None, 1, number);
        let retry_delay = |ms| histogram("grpc.client.call.retry_delay", None, 1, ms);
        let mut values = match self {
            SampleCall::Retried => [
                vec![started(3), call("OK", 100), retry_delay(100)],
                vec![numbers("grpc.client.call.retries", 2)],
                attempts("UNAVAILABLE", 2, 0, 2 * sent, 0),
                attempts("OK", 1, 0, sent, received),
            ]
            .concat(),
            SampleCall::Hedged => [
                vec![started(3), call("OK", 110), numbers("grpc.client.call.hedges", 2)],
                vec![counter("redial.grpc.call.hedge_won", 1)],
                attempts("UNAVAILABLE", 1, 100, sent, 0),
                attempts("OK", 1, 100, sent, received),
                attempts("CANCELLED", 1, 90, sent, 0),
            ]
            .concat(),
            SampleCall::TransparentlyRetried => [
                vec![started(2), call("OK", 0)],
                vec![numbers("grpc.client.call.transparent_retries", 1)],
                attempts("UNAVAILABLE", 1, 0, sent, 0),
                attempts("OK", 1, 0, sent, received),
            ]
            .concat(),
            SampleCall::DeadlineInAttempt => [
                vec![started(1), call("DEADLINE_EXCEEDED", 100)],
                attempts("DEADLINE_EXCEEDED", 1, 100, sent, 0),
            ]
            .concat(),
            SampleCall::DeadlineInBackoff => [
                vec![started(1), call("DEADLINE_EXCEEDED", 100), retry_delay(100)],
                attempts("UNAVAILABLE", 1, 0, sent, 0),
            ]
            .concat(),
            SampleCall::Throttled | SampleCall::BufferFull | SampleCall::RetriesOff => {
                [vec![started(1), call("UNAVAILABLE", 20)], attempts("UNAVAILABLE", 1, 20, sent, 0)]
                    .concat()
            }
            SampleCall::Cancelled => {
                [vec![started(1), call("CANCELLED", 30)], attempts("CANCELLED", 1, 30, sent, 0)]
                    .concat()
            }
            SampleCall::TooLarge => vec![call("RESOURCE_EXHAUSTED", 0)],
        };
        match self {
            SampleCall::Throttled => values.push(counter("redial.grpc.call.throttled", 1)),
            SampleCall::BufferFull => values.push(counter("redial.grpc.call.buffer_full", 1)),
            _ => {}
        }
        values.sort();
        values
    }
}

/// The value of a metric with one set of labels after a call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MetricValue {
    name: String,
    status: String,
    /// The number of values in a histogram, and their sum; for a counter both are its value.
    count: u64,
    sum: u64,
}

impl MetricValue {
    /// A histogram or a counter. Seconds become milliseconds, which is the resolution of the clock.
    pub(crate) fn new<'a>(
        name: &str,
        unit: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        count: u64,
        sum: f64,
    ) -> MetricValue {
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort_unstable();
        let ("grpc.method", METHOD) = labels[0] else { panic!("{name}: {labels:?}") };
        let (status, target) = match labels[1..] {
            [("grpc.status", status), ("grpc.target", target)] => (status.to_owned(), target),
            [("grpc.target", target)] => (String::new(), target),
            _ => panic!("{name}: {labels:?}"),
        };
        assert!(target.starts_with(TARGET), "{target}");
        let sum = if unit == "s" { (sum * 1e3).round() } else { sum };
        MetricValue { name: name.to_owned(), status, count, sum: sum as u64 }
    }
}

impl fmt::Debug for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MetricValue { name, status, count, sum } = self;
        write!(f, "{name} {status:?}: {count} of {sum}")
    }
}

fn counter(name: &str, number: u64) -> MetricValue {
    histogram(name, None, number, number)
}

fn histogram(name: &str, status: Option<&str>, count: u64, sum: u64) -> MetricValue {
    let status = status.unwrap_or_default().to_owned();
    MetricValue { name: name.to_owned(), status, count, sum }
}

/// The histograms of attempts with this status.
fn attempts(status: &str, count: u64, ms: u64, sent: u64, received: u64) -> Vec<MetricValue> {
    [("duration", ms)]
        .into_iter()
        .chain([("sent_total_compressed_message_size", sent)])
        .chain([("rcvd_total_compressed_message_size", received)])
        .map(|(name, sum)| {
            histogram(&format!("grpc.client.attempt.{name}"), Some(status), count, sum)
        })
        .collect()
}
