//! Outlier detection: a backend that keeps failing is ejected for a while, then probed by one call.
//!
//! Rule: only behaviour of the backend counts. An attempt that was cancelled before its deadline,
//! was returned unsent, or found no connection gives no information about the backend.

use std::time::Duration;

use redial::rules::Backoff;
use redial_core::duration;
use redial_service_config::Code;
use tokio::time::Instant;

/// The number of consecutive failures that eject a backend.
pub const CONSECUTIVE_FAILURES_DEFAULT: u32 = 5;
/// How long the first ejection lasts (`base_ejection_time` in gRFC A50).
pub const BASE_EJECTION_TIME_DEFAULT: Duration = Duration::from_secs(30);
/// The longest ejection (`max_ejection_time` in gRFC A50).
pub const MAX_EJECTION_TIME_DEFAULT: Duration = Duration::from_secs(300);

/// How long one call probes an ejected backend alone. After that another call may probe it too.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// When a failing backend is ejected, and for how long.
///
/// Outlier detection takes a backend out of rotation that accepts connections but keeps failing
/// calls, for example a replica with a broken disk. The backend is *ejected*: calls go to the other
/// backends. When the ejection time has passed, one call probes the backend. If the probe succeeds,
/// the backend is used again; if it fails, the backend is ejected for twice as long.
///
/// A failure is one of these:
/// - a response with one of the listed codes, by default only UNAVAILABLE;
/// - a lost connection, counted once for all calls on it;
/// - no message and no status before the attempt's deadline (its `grpc-timeout`), whatever the
///   codes are, unless the backend answered another attempt in the meantime.
///
/// Every other response is a success, including application errors. Ignored are attempts that were
/// cancelled before their deadline, such as losing hedges, and streams that received a message
/// before their deadline.
///
/// | option | default | constant |
/// | --- | --- | --- |
/// | consecutive failures | 5 | [`CONSECUTIVE_FAILURES_DEFAULT`] |
/// | first ejection time | 30 s, doubled for each further ejection | [`BASE_EJECTION_TIME_DEFAULT`] |
/// | longest ejection time | 300 s | [`MAX_EJECTION_TIME_DEFAULT`] |
/// | ejected at the same time | at most half of the backends | never all that are connected |
///
/// ```
/// use redial_grpc::Code;
/// use redial_grpc_balance::OutlierDetection;
/// use std::time::Duration;
///
/// let detection = OutlierDetection::default()
///     .consecutive_failures(3)
///     .ejection_time(Duration::from_secs(5), Duration::from_secs(60))
///     .codes([Code::Unavailable, Code::Internal]);
/// # drop(detection);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierDetection {
    consecutive_failures: Option<u32>,
    base_time: Duration,
    max_time: Duration,
    codes: Vec<Code>,
}

impl Default for OutlierDetection {
    fn default() -> Self {
        OutlierDetection {
            consecutive_failures: Some(CONSECUTIVE_FAILURES_DEFAULT),
            base_time: BASE_EJECTION_TIME_DEFAULT,
            max_time: MAX_EJECTION_TIME_DEFAULT,
            codes: vec![Code::Unavailable],
        }
    }
}

impl OutlierDetection {
    /// Never ejects a backend.
    #[must_use]
    pub fn off() -> Self {
        OutlierDetection { consecutive_failures: None, ..OutlierDetection::default() }
    }

    /// The number of consecutive failures that eject a backend; 0 counts as 1.
    #[must_use]
    pub fn consecutive_failures(mut self, failures: u32) -> Self {
        self.consecutive_failures = Some(failures.max(1));
        self
    }

    /// The first ejection time, and the longest one. Each further ejection lasts twice as long as
    /// the previous one, up to `max`.
    #[must_use]
    pub fn ejection_time(mut self, base: Duration, max: Duration) -> Self {
        (self.base_time, self.max_time) = (base, max);
        self
    }

    /// The status codes that count as failures, in place of UNAVAILABLE.
    #[must_use]
    pub fn codes(mut self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.codes = codes.into_iter().collect();
        self
    }

    /// Whether a status code counts as a failure of the backend.
    pub(crate) fn classify(&self, code: Code) -> Outcome {
        if self.codes.contains(&code) { Outcome::Failure } else { Outcome::Success }
    }

    /// How many backends may be ejected at the same time.
    pub(crate) fn max_ejected(backends: usize) -> usize {
        backends / 2
    }

    /// The length of the nth ejection.
    fn nth_ejection_time(&self, ejections: u32) -> Duration {
        let series =
            Backoff::Exponential { first: self.base_time, factor: 2.0, cap: Some(self.max_time) };
        duration(series.base(ejections.max(1)))
    }
}

/// What an attempt says about its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    Ignored,
}

/// Counts the connections of a backend. The loss of a connection is one failure, however many
/// attempts were on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionCounters {
    opened: u64,
    /// The last connection that returned a response.
    served: u64,
    /// The last connection whose loss was counted.
    lost: u64,
}

impl ConnectionCounters {
    pub(crate) fn add(&mut self) {
        self.opened += 1;
    }

    /// The sequence number of the current connection.
    pub(crate) fn current(self) -> u64 {
        self.opened
    }

    /// Records a response on this connection. Returns whether it is the current one.
    pub(crate) fn mark_served(&mut self, connection: u64) -> bool {
        self.served = self.served.max(connection);
        connection == self.opened
    }

    /// Whether the current connection has returned a response.
    pub(crate) fn current_served(self) -> bool {
        self.served == self.opened && self.opened > 0
    }

    /// Records that an attempt lost this connection.
    pub(crate) fn lost(&mut self, connection: u64) -> Outcome {
        if connection <= self.lost {
            return Outcome::Ignored;
        }
        self.lost = connection;
        Outcome::Failure
    }
}

/// The failures and ejections of one backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutlierState {
    pub(crate) consecutive_failures: u32,
    /// How often it was ejected. Healthy periods reduce the count.
    ejections: u32,
    ejection: Option<Ejection>,
    /// Since when it is healthy, if it was ejected before.
    healthy_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Ejection {
    until: Instant,
    /// Since when a call probes it.
    probe_since: Option<Instant>,
}

impl OutlierState {
    /// Whether an attempt may use the backend: it is not ejected, or this attempt would be its
    /// probe.
    pub(crate) fn accepts_attempts(&self, now: Instant) -> bool {
        self.ejection.is_none_or(|ejection| {
            now >= ejection.until
                && ejection
                    .probe_since
                    .is_none_or(|since| now.saturating_duration_since(since) >= PROBE_MAX)
        })
    }

    pub(crate) fn is_ejected(&self) -> bool {
        self.ejection.is_some()
    }

    /// The end of the ejection time. It may be in the past until a probe succeeds.
    pub(crate) fn ejected_until(&self) -> Option<Instant> {
        self.ejection.map(|ejection| ejection.until)
    }

    /// An attempt starts. Returns `true` if it probes an ejected backend.
    pub(crate) fn attempt_started(&mut self, now: Instant) -> bool {
        let Some(ejection) = &mut self.ejection else { return false };
        if now >= ejection.until {
            ejection.probe_since = Some(now);
        }
        true
    }

    /// An attempt ended. `may_eject`: whether the limit allows another ejection. Returns `true` if
    /// the backend is ejected now.
    pub(crate) fn attempt_ended(
        &mut self,
        outcome: Outcome,
        is_probe: bool,
        may_eject: bool,
        detection: &OutlierDetection,
        now: Instant,
    ) -> bool {
        match (&mut self.ejection, outcome) {
            // It started before the ejection, so it is no probe.
            (Some(_), _) if !is_probe => {}
            (Some(ejection), Outcome::Ignored) => ejection.probe_since = None,
            (Some(_), Outcome::Success) => self.end_ejection(now),
            // It was used during the ejection because no other backend was ready.
            (Some(ejection), Outcome::Failure) if now < ejection.until => {}
            (Some(_), Outcome::Failure) => return self.eject(detection, now),
            (None, Outcome::Ignored) => {}
            (None, Outcome::Success) => {
                self.consecutive_failures = 0;
                let period = detection.nth_ejection_time(self.ejections);
                if let Some(healthy_since) = self.healthy_since
                    && now.saturating_duration_since(healthy_since) >= period
                {
                    self.ejections = self.ejections.saturating_sub(1);
                    self.healthy_since = (self.ejections > 0).then_some(now);
                }
            }
            (None, Outcome::Failure) => {
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                if detection
                    .consecutive_failures
                    .is_some_and(|most| self.consecutive_failures >= most)
                    && may_eject
                {
                    return self.eject(detection, now);
                }
            }
        }
        false
    }

    /// The probe succeeded, or at least received a message: the backend is used again.
    pub(crate) fn end_ejection(&mut self, now: Instant) {
        if self.ejection.take().is_some() {
            (self.consecutive_failures, self.healthy_since) = (0, Some(now));
        }
    }

    fn eject(&mut self, detection: &OutlierDetection, now: Instant) -> bool {
        self.ejections = self.ejections.saturating_add(1);
        // Bounded to a year, so that adding it to the clock cannot overflow.
        let period =
            detection.nth_ejection_time(self.ejections).min(Duration::from_secs(86_400 * 365));
        self.ejection = Some(Ejection { until: now + period, probe_since: None });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn detection() -> OutlierDetection {
        OutlierDetection::default().consecutive_failures(2).ejection_time(s(10), s(35))
    }

    fn fail(outlier_state: &mut OutlierState, now: Instant) -> bool {
        let is_probe = outlier_state.attempt_started(now);
        outlier_state.attempt_ended(Outcome::Failure, is_probe, true, &detection(), now)
    }

    #[test]
    fn outlier_detection_ejects_after_consecutive_failures_only() {
        let (mut outlier_state, now) = (OutlierState::default(), Instant::now());
        for outcome in [Outcome::Failure, Outcome::Success, Outcome::Failure, Outcome::Ignored] {
            assert!(!outlier_state.attempt_ended(outcome, false, true, &detection(), now));
            assert!(outlier_state.accepts_attempts(now));
        }
        assert!(fail(&mut outlier_state, now));
        assert!(!outlier_state.accepts_attempts(now) && outlier_state.is_ejected());
    }

    #[test]
    fn outlier_detection_ejection_time_doubles_up_to_the_maximum() {
        let (mut outlier_state, mut now) = (OutlierState::default(), Instant::now());
        fail(&mut outlier_state, now);
        fail(&mut outlier_state, now);
        for seconds in [10, 20, 35, 35] {
            assert_eq!(outlier_state.ejected_until(), Some(now + s(seconds)));
            assert!(!outlier_state.accepts_attempts(now + s(seconds) - Duration::from_nanos(1)));
            now += s(seconds);
            assert!(outlier_state.accepts_attempts(now));
            assert!(fail(&mut outlier_state, now));
        }
    }

    #[test]
    fn outlier_detection_one_call_probes_an_ejected_backend() {
        let (mut outlier_state, now) = (OutlierState::default(), Instant::now());
        fail(&mut outlier_state, now);
        fail(&mut outlier_state, now);
        let after = now + s(10);
        assert!(outlier_state.attempt_started(after));
        assert!(!outlier_state.accepts_attempts(after), "one at a time");
        outlier_state.attempt_ended(Outcome::Ignored, true, true, &detection(), after);
        assert!(outlier_state.accepts_attempts(after), "a cancelled probe gives no information");
        assert!(outlier_state.attempt_started(after));
        assert!(!outlier_state.accepts_attempts(after + PROBE_MAX - Duration::from_nanos(1)));
        assert!(
            outlier_state.accepts_attempts(after + PROBE_MAX),
            "a probe that never ends does not block others"
        );
        outlier_state.attempt_ended(Outcome::Success, true, true, &detection(), after);
        assert!(
            outlier_state.accepts_attempts(after)
                && !outlier_state.is_ejected()
                && outlier_state.consecutive_failures == 0
        );
    }

    #[test]
    fn outlier_detection_ignores_attempts_started_before_the_ejection() {
        let (mut outlier_state, now) = (OutlierState::default(), Instant::now());
        fail(&mut outlier_state, now);
        fail(&mut outlier_state, now);
        for outcome in [Outcome::Success, Outcome::Failure] {
            assert!(!outlier_state.attempt_ended(outcome, false, true, &detection(), now + s(11)));
            assert!(outlier_state.is_ejected());
        }
        let is_probe = outlier_state.attempt_started(now);
        assert!(
            !outlier_state.attempt_ended(Outcome::Failure, is_probe, true, &detection(), now),
            "no other backend was ready"
        );
        assert_eq!(outlier_state.ejected_until(), Some(now + s(10)));
    }

    #[test]
    fn outlier_detection_counts_each_lost_connection_once() {
        let mut connections = ConnectionCounters::default();
        connections.add();
        let first = connections.current();
        assert_eq!(connections.lost(first), Outcome::Failure);
        assert_eq!(connections.lost(first), Outcome::Ignored);
        connections.add();
        assert_eq!(connections.lost(first), Outcome::Ignored);
        assert_eq!(connections.lost(connections.current()), Outcome::Failure);
    }

    #[test]
    fn outlier_detection_healthy_period_reduces_the_ejection_count() {
        let (mut outlier_state, now) = (OutlierState::default(), Instant::now());
        fail(&mut outlier_state, now);
        fail(&mut outlier_state, now);
        let healthy_since = now + s(10);
        let is_probe = outlier_state.attempt_started(healthy_since);
        outlier_state.attempt_ended(Outcome::Success, is_probe, true, &detection(), healthy_since);
        outlier_state.attempt_ended(
            Outcome::Success,
            false,
            true,
            &detection(),
            healthy_since + s(9),
        );
        assert_eq!(outlier_state.ejections, 1);
        outlier_state.attempt_ended(
            Outcome::Success,
            false,
            true,
            &detection(),
            healthy_since + s(10),
        );
        assert_eq!(outlier_state.ejections, 0);
    }

    #[test]
    fn outlier_detection_off_or_at_its_limit_ejects_no_backend() {
        let (mut outlier_state, now) = (OutlierState::default(), Instant::now());
        for _ in 0..9 {
            assert!(!outlier_state.attempt_ended(
                Outcome::Failure,
                false,
                false,
                &detection(),
                now
            ));
            assert!(!outlier_state.attempt_ended(
                Outcome::Failure,
                false,
                true,
                &OutlierDetection::off(),
                now
            ));
        }
        assert!(outlier_state.accepts_attempts(now));
        assert_eq!([0, 1, 2, 3, 10].map(OutlierDetection::max_ejected), [0, 0, 1, 1, 5]);
    }
}
