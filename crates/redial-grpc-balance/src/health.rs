//! Backends that keep failing are avoided for a while, and then tried by one call.
//!
//! Rule: only what a backend itself did counts, or failed to do while somebody waited to the end. An
//! attempt that was cancelled before its deadline, that a connection handed back unsent, or that could
//! not be connected says nothing about how the backend answers.

use std::time::Duration;

use redial::rules::Backoff;
use redial_core::duration;
use redial_service_config::Code;
use tokio::time::Instant;

/// After how many failures in a row a backend is avoided.
pub const CONSECUTIVE_FAILURES_DEFAULT: u32 = 5;
/// For how long at first (gRPC's A50, `base_ejection_time`).
pub const BASE_EJECTION_TIME_DEFAULT: Duration = Duration::from_secs(30);
/// For how long at the most (gRPC's A50, `max_ejection_time`).
pub const MAX_EJECTION_TIME_DEFAULT: Duration = Duration::from_secs(300);

/// How long one call alone may try a backend that was avoided; then another may.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// When a backend is avoided, and for how long.
///
/// A failure is one of these:
/// - an answer with one of the codes, UNAVAILABLE unless others are named;
/// - a connection that was lost under calls, which counts once for all of them;
/// - no message and no status by the attempt's deadline (its `grpc-timeout`), whatever the codes are,
///   unless the backend answered another attempt meanwhile.
///
/// Every other answer is a success, an error of the application's too. Attempts that were cancelled
/// before their deadline, such as losing hedges, count as neither, nor do streams that had a message
/// by then.
///
/// | | default | |
/// | --- | --- | --- |
/// | failures in a row | 5 | [`CONSECUTIVE_FAILURES_DEFAULT`] |
/// | avoided for, at first | 30 s, twice as long each further time | [`BASE_EJECTION_TIME_DEFAULT`] |
/// | avoided for, at the most | 300 s | [`MAX_EJECTION_TIME_DEFAULT`] |
/// | how many at once | half of the backends | never all that are connected |
///
/// ```
/// use redial_grpc::Code;
/// use redial_grpc_balance::OutlierDetection;
/// use std::time::Duration;
///
/// let outliers = OutlierDetection::default()
///     .consecutive_failures(3)
///     .ejection_time(Duration::from_secs(5), Duration::from_secs(60))
///     .codes([Code::Unavailable, Code::Internal]);
/// # drop(outliers);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierDetection {
    failures: Option<u32>,
    first: Duration,
    cap: Duration,
    codes: Vec<Code>,
}

impl Default for OutlierDetection {
    fn default() -> Self {
        OutlierDetection {
            failures: Some(CONSECUTIVE_FAILURES_DEFAULT),
            first: BASE_EJECTION_TIME_DEFAULT,
            cap: MAX_EJECTION_TIME_DEFAULT,
            codes: vec![Code::Unavailable],
        }
    }
}

impl OutlierDetection {
    /// No backend is ever avoided.
    #[must_use]
    pub fn off() -> Self {
        OutlierDetection { failures: None, ..OutlierDetection::default() }
    }

    /// After how many failures in a row; 0 counts as 1.
    #[must_use]
    pub fn consecutive_failures(mut self, failures: u32) -> Self {
        self.failures = Some(failures.max(1));
        self
    }

    /// For how long at first, doubled each further time up to the cap.
    #[must_use]
    pub fn ejection_time(mut self, first: Duration, cap: Duration) -> Self {
        (self.first, self.cap) = (first, cap);
        self
    }

    /// The codes that are failures, in place of UNAVAILABLE.
    #[must_use]
    pub fn codes(mut self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.codes = codes.into_iter().collect();
        self
    }

    /// What an answer with this code says about its backend.
    pub(crate) fn judge(&self, code: Code) -> Outcome {
        if self.codes.contains(&code) { Outcome::Failure } else { Outcome::Success }
    }

    /// How many of so many backends may be avoided at once.
    pub(crate) fn most(backends: usize) -> usize {
        backends / 2
    }

    /// For how long, the nth time.
    fn period(&self, times: u32) -> Duration {
        let series = Backoff::Exponential { first: self.first, factor: 2.0, cap: Some(self.cap) };
        duration(series.base(times.max(1)))
    }
}

/// What an attempt says about its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    Nothing,
}

/// What the connections of a backend brought. A failure of one counts once, however many attempts
/// were on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connections {
    made: u64,
    /// The last one on which a request was answered.
    served: u64,
    /// The last one whose loss was counted.
    lost: u64,
}

impl Connections {
    pub(crate) fn add(&mut self) {
        self.made += 1;
    }

    /// The one that is used now.
    pub(crate) fn current(self) -> u64 {
        self.made
    }

    /// A request was answered on this connection; whether it is the current one.
    pub(crate) fn serve(&mut self, connection: u64) -> bool {
        self.served = self.served.max(connection);
        connection == self.made
    }

    /// Whether a request was answered on the current one.
    pub(crate) fn current_served(self) -> bool {
        self.served == self.made && self.made > 0
    }

    /// An attempt says that this connection was lost.
    pub(crate) fn lost(&mut self, connection: u64) -> Outcome {
        if connection <= self.lost {
            return Outcome::Nothing;
        }
        self.lost = connection;
        Outcome::Failure
    }
}

/// How a backend answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// In a row.
    pub(crate) failures: u32,
    /// How often it was avoided; good times make it less again.
    times: u32,
    avoided: Option<Avoided>,
    /// Since when it is well, after it was avoided.
    well: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Avoided {
    until: Instant,
    /// Since when a call tries it again.
    trial: Option<Instant>,
}

impl Health {
    /// Whether an attempt may go there: nobody avoids it, or this would be the one that tries it.
    pub(crate) fn is_good(&self, now: Instant) -> bool {
        self.avoided.is_none_or(|avoided| {
            now >= avoided.until
                && avoided
                    .trial
                    .is_none_or(|since| now.saturating_duration_since(since) >= TRIAL_MAX)
        })
    }

    pub(crate) fn is_avoided(&self) -> bool {
        self.avoided.is_some()
    }

    /// Until when nobody goes there; it may be past, until somebody has tried.
    pub(crate) fn avoided_until(&self) -> Option<Instant> {
        self.avoided.map(|avoided| avoided.until)
    }

    /// An attempt goes there; true if it tries a backend that was avoided.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let Some(avoided) = &mut self.avoided else { return false };
        if now >= avoided.until {
            avoided.trial = Some(now);
        }
        true
    }

    /// An attempt ended. `room`: whether one more backend may be avoided. True if this one is
    /// avoided from now on.
    pub(crate) fn end(
        &mut self,
        outcome: Outcome,
        tries: bool,
        room: bool,
        outliers: &OutlierDetection,
        now: Instant,
    ) -> bool {
        match (&mut self.avoided, outcome) {
            // What began before it was avoided is no news.
            (Some(_), _) if !tries => {}
            (Some(avoided), Outcome::Nothing) => avoided.trial = None,
            (Some(_), Outcome::Success) => self.heard(now),
            // It was used because there was no other.
            (Some(avoided), Outcome::Failure) if now < avoided.until => {}
            (Some(_), Outcome::Failure) => return self.avoid(outliers, now),
            (None, Outcome::Nothing) => {}
            (None, Outcome::Success) => {
                self.failures = 0;
                let period = outliers.period(self.times);
                if let Some(well) = self.well
                    && now.saturating_duration_since(well) >= period
                {
                    self.times = self.times.saturating_sub(1);
                    self.well = (self.times > 0).then_some(now);
                }
            }
            (None, Outcome::Failure) => {
                self.failures = self.failures.saturating_add(1);
                if outliers.failures.is_some_and(|most| self.failures >= most) && room {
                    return self.avoid(outliers, now);
                }
            }
        }
        false
    }

    /// It answers the attempt that tries it, which may go on for long.
    pub(crate) fn heard(&mut self, now: Instant) {
        if self.avoided.take().is_some() {
            (self.failures, self.well) = (0, Some(now));
        }
    }

    fn avoid(&mut self, outliers: &OutlierDetection, now: Instant) -> bool {
        self.times = self.times.saturating_add(1);
        // What no clock can show is as good as the cap of any sane option: a year.
        let period = outliers.period(self.times).min(Duration::from_secs(86_400 * 365));
        self.avoided = Some(Avoided { until: now + period, trial: None });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn outliers() -> OutlierDetection {
        OutlierDetection::default().consecutive_failures(2).ejection_time(s(10), s(35))
    }

    fn fail(health: &mut Health, now: Instant) -> bool {
        let tries = health.begin(now);
        health.end(Outcome::Failure, tries, true, &outliers(), now)
    }

    #[test]
    fn failures_in_a_row_and_only_those_lead_to_avoidance() {
        let (mut health, now) = (Health::default(), Instant::now());
        for outcome in [Outcome::Failure, Outcome::Success, Outcome::Failure, Outcome::Nothing] {
            assert!(!health.end(outcome, false, true, &outliers(), now));
            assert!(health.is_good(now));
        }
        assert!(fail(&mut health, now));
        assert!(!health.is_good(now) && health.is_avoided());
    }

    #[test]
    fn each_further_time_is_twice_as_long_up_to_the_cap() {
        let (mut health, mut now) = (Health::default(), Instant::now());
        fail(&mut health, now);
        fail(&mut health, now);
        for seconds in [10, 20, 35, 35] {
            assert_eq!(health.avoided_until(), Some(now + s(seconds)));
            assert!(!health.is_good(now + s(seconds) - Duration::from_nanos(1)));
            now += s(seconds);
            assert!(health.is_good(now));
            assert!(fail(&mut health, now));
        }
    }

    #[test]
    fn one_call_tries_it_first() {
        let (mut health, now) = (Health::default(), Instant::now());
        fail(&mut health, now);
        fail(&mut health, now);
        let after = now + s(10);
        assert!(health.begin(after));
        assert!(!health.is_good(after), "one at a time");
        health.end(Outcome::Nothing, true, true, &outliers(), after);
        assert!(health.is_good(after), "a cancelled one has tried nothing");
        assert!(health.begin(after));
        assert!(!health.is_good(after + TRIAL_MAX - Duration::from_nanos(1)));
        assert!(health.is_good(after + TRIAL_MAX), "one that never ends holds up nobody");
        health.end(Outcome::Success, true, true, &outliers(), after);
        assert!(health.is_good(after) && !health.is_avoided() && health.failures == 0);
    }

    #[test]
    fn what_began_before_it_was_avoided_changes_nothing() {
        let (mut health, now) = (Health::default(), Instant::now());
        fail(&mut health, now);
        fail(&mut health, now);
        for outcome in [Outcome::Success, Outcome::Failure] {
            assert!(!health.end(outcome, false, true, &outliers(), now + s(11)));
            assert!(health.is_avoided());
        }
        let tries = health.begin(now);
        assert!(!health.end(Outcome::Failure, tries, true, &outliers(), now), "no other was there");
        assert_eq!(health.avoided_until(), Some(now + s(10)));
    }

    #[test]
    fn a_lost_connection_is_one_failure() {
        let mut connections = Connections::default();
        connections.add();
        let first = connections.current();
        assert_eq!(connections.lost(first), Outcome::Failure);
        assert_eq!(connections.lost(first), Outcome::Nothing);
        connections.add();
        assert_eq!(connections.lost(first), Outcome::Nothing);
        assert_eq!(connections.lost(connections.current()), Outcome::Failure);
    }

    #[test]
    fn good_times_are_counted_in_its_favour() {
        let (mut health, now) = (Health::default(), Instant::now());
        fail(&mut health, now);
        fail(&mut health, now);
        let well = now + s(10);
        let tries = health.begin(well);
        health.end(Outcome::Success, tries, true, &outliers(), well);
        health.end(Outcome::Success, false, true, &outliers(), well + s(9));
        assert_eq!(health.times, 1);
        health.end(Outcome::Success, false, true, &outliers(), well + s(10));
        assert_eq!(health.times, 0);
    }

    #[test]
    fn without_room_or_without_a_limit_nobody_is_avoided() {
        let (mut health, now) = (Health::default(), Instant::now());
        for _ in 0..9 {
            assert!(!health.end(Outcome::Failure, false, false, &outliers(), now));
            assert!(!health.end(Outcome::Failure, false, true, &OutlierDetection::off(), now));
        }
        assert!(health.is_good(now));
        assert_eq!([0, 1, 2, 3, 10].map(OutlierDetection::most), [0, 0, 1, 1, 5]);
    }
}
