//! A circuit breaker for one endpoint, without I/O: time comes in as an argument.
//!
//! Closed: requests pass, and their outcomes are counted in a window. Once enough of them failed, it
//! opens: requests fail at once with `CIRCUIT_BREAKER_OPEN`. After a while one request passes as a
//! probe: if it succeeds, the breaker closes; if it fails, the breaker stays open for another while. If it
//! takes longer than that while, the next request is the probe.
//!
//! An outcome is a failure if the server did not respond: the connection was lost or the request timed
//! out. Any response is a success, because the endpoint works. An outcome counts only in the state in
//! which its request was admitted: while the breaker is half-open, that of the probe and no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The options of the circuit breaker of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CircuitBreakerOptions {
    /// How many requests the window must have before the breaker can open. Default 20.
    pub requests_min: u32,
    /// The percentage of failed requests at which the breaker opens. Default 50.
    pub failures_percent: u32,
    /// How long outcomes are counted together. Default 60 s.
    pub window: Duration,
    /// How long the breaker stays open before a probe, and how long it waits for the probe before it
    /// sends another one. Default 5 s.
    pub open_for: Duration,
}

impl CircuitBreakerOptions {
    /// The defaults of Couchbase's SDKs.
    pub const DEFAULT: CircuitBreakerOptions = CircuitBreakerOptions {
        requests_min: 20,
        failures_percent: 50,
        window: Duration::from_secs(60),
        open_for: Duration::from_secs(5),
    };
}

impl Default for CircuitBreakerOptions {
    fn default() -> Self {
        CircuitBreakerOptions::DEFAULT
    }
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitBreakerState {
    /// Requests pass.
    Closed,
    /// Requests fail at once.
    Open,
    /// One request is on its way as a probe; others fail at once.
    HalfOpen,
}

/// A circuit breaker; `None` options switch it off.
#[derive(Debug)]
pub(crate) struct Breaker {
    options: Option<CircuitBreakerOptions>,
    current: Mutex<Current>,
}

/// The state, with how many states came before it.
#[derive(Debug)]
struct Current {
    state: State,
    generation: u64,
}

impl Current {
    fn change(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

#[derive(Debug)]
enum State {
    Closed {
        since: Option<Instant>,
        requests: u32,
        failures: u32,
    },
    /// `None`: without a limit.
    Open {
        until: Option<Instant>,
    },
    /// The probe was admitted with this generation. After the limit the next request is the probe.
    HalfOpen {
        until: Option<Instant>,
    },
}

const CLOSED: State = State::Closed { since: None, requests: 0, failures: 0 };

impl Breaker {
    pub(crate) fn new(options: Option<CircuitBreakerOptions>) -> Self {
        Breaker { options, current: Mutex::new(Current { state: CLOSED, generation: 0 }) }
    }

    pub(crate) fn state(&self) -> CircuitBreakerState {
        match self.lock().state {
            State::Closed { .. } => CircuitBreakerState::Closed,
            State::Open { .. } => CircuitBreakerState::Open,
            State::HalfOpen { .. } => CircuitBreakerState::HalfOpen,
        }
    }

    /// Whether a request may pass now; its outcome must be reported on the result.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant) -> Option<Admission> {
        let Some(options) = self.options else {
            return Some(Admission { breaker: None, generation: 0 });
        };
        let mut current = self.lock();
        match current.state {
            State::Closed { .. } => {}
            State::Open { until: Some(until) } | State::HalfOpen { until: Some(until) }
                if now >= until =>
            {
                current.change(State::HalfOpen { until: now.checked_add(options.open_for) });
            }
            State::Open { .. } | State::HalfOpen { .. } => return None,
        }
        Some(Admission { breaker: Some(self.clone()), generation: current.generation })
    }

    fn record(&self, generation: u64, now: Instant, outcome: RequestOutcome) {
        let Some(options) = self.options else { return };
        let mut current = self.lock();
        if current.generation != generation {
            return;
        }
        let open = || State::Open { until: now.checked_add(options.open_for) };
        match (&mut current.state, outcome) {
            (State::HalfOpen { .. }, RequestOutcome::Responded) => current.change(CLOSED),
            (State::HalfOpen { .. }, RequestOutcome::Failed) => current.change(open()),
            // The next request is the probe.
            (State::HalfOpen { .. }, RequestOutcome::Dropped) => {
                current.change(State::Open { until: Some(now) });
            }
            // No request is admitted while the breaker is open.
            (State::Open { .. }, _) | (State::Closed { .. }, RequestOutcome::Dropped) => {}
            (State::Closed { since, requests, failures }, outcome) => {
                if since.is_none_or(|since| now.duration_since(since) >= options.window) {
                    (*since, *requests, *failures) = (Some(now), 0, 0);
                }
                *requests = requests.saturating_add(1);
                *failures += u32::from(outcome == RequestOutcome::Failed);
                let percent = u64::from(*failures) * 100;
                if *failures > 0
                    && *requests >= options.requests_min
                    && percent >= u64::from(options.failures_percent) * u64::from(*requests)
                {
                    current.change(open());
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestOutcome {
    Responded,
    Failed,
    Dropped,
}

/// An admitted request. Dropping it without a report counts as neither success nor failure.
#[derive(Debug)]
pub(crate) struct Admission {
    breaker: Option<Arc<Breaker>>,
    /// The state in which it was admitted.
    generation: u64,
}

impl Admission {
    pub(crate) fn responded(mut self) {
        self.report(RequestOutcome::Responded);
    }

    pub(crate) fn failed(mut self) {
        self.report(RequestOutcome::Failed);
    }

    fn report(&mut self, outcome: RequestOutcome) {
        if let Some(breaker) = self.breaker.take() {
            breaker.record(self.generation, Instant::now(), outcome);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.report(RequestOutcome::Dropped);
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the breaker opens, probes once and closes, exactly at its numbers.

    use super::*;

    const OPTIONS: CircuitBreakerOptions = CircuitBreakerOptions {
        requests_min: 4,
        failures_percent: 50,
        window: Duration::from_secs(10),
        open_for: Duration::from_secs(1),
    };

    fn breaker() -> Arc<Breaker> {
        Arc::new(Breaker::new(Some(OPTIONS)))
    }

    fn end(breaker: &Arc<Breaker>, failed: bool) {
        let admission = breaker.admit(Instant::now()).expect("it is not open");
        if failed { admission.failed() } else { admission.responded() }
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_opens_at_the_number_and_the_rate() {
        let breaker = breaker();
        for failed in [true, true, true] {
            end(&breaker, failed);
        }
        assert_eq!(breaker.state(), CircuitBreakerState::Closed, "three are too few");
        end(&breaker, false);
        assert_eq!(breaker.state(), CircuitBreakerState::Open, "3 of 4");
        let below = self::breaker();
        for failed in [true, false, false, false, true, false] {
            end(&below, failed);
        }
        assert_eq!(below.state(), CircuitBreakerState::Closed, "2 of 6");
        for _ in 0..2 {
            end(&below, true);
        }
        assert_eq!(below.state(), CircuitBreakerState::Open, "4 of 8");
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_open_lets_one_probe_pass() {
        let breaker = breaker();
        for _ in 0..4 {
            end(&breaker, true);
        }
        tokio::time::sleep(Duration::from_millis(999)).await;
        assert!(breaker.admit(Instant::now()).is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let probe = breaker.admit(Instant::now()).expect("the probe");
        assert!(breaker.admit(Instant::now()).is_none(), "one probe at a time");
        assert_eq!(breaker.state(), CircuitBreakerState::HalfOpen);
        probe.failed();
        assert!(breaker.admit(Instant::now()).is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(breaker.admit(Instant::now()).expect("a probe that the application drops"));
        let probe = breaker.admit(Instant::now()).expect("the next one is the probe then");
        probe.responded();
        assert_eq!(breaker.state(), CircuitBreakerState::Closed);
        end(&breaker, true);
        assert_eq!(breaker.state(), CircuitBreakerState::Closed, "it counts from zero");
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_half_open_counts_the_probe_only() {
        for end_early in [Admission::responded, Admission::failed, drop::<Admission>] {
            let breaker = breaker();
            let early = breaker.admit(Instant::now()).expect("it is closed");
            for _ in 0..4 {
                end(&breaker, true);
            }
            tokio::time::sleep(OPTIONS.open_for).await;
            let probe = breaker.admit(Instant::now()).expect("the probe");
            end_early(early);
            assert_eq!(breaker.state(), CircuitBreakerState::HalfOpen);
            assert!(breaker.admit(Instant::now()).is_none());
            probe.responded();
            assert_eq!(breaker.state(), CircuitBreakerState::Closed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_waits_for_a_probe_exactly_as_long_as_open() {
        let breaker = breaker();
        for _ in 0..4 {
            end(&breaker, true);
        }
        tokio::time::sleep(OPTIONS.open_for).await;
        let slow = breaker.admit(Instant::now()).expect("the probe");
        tokio::time::sleep(OPTIONS.open_for - Duration::from_millis(1)).await;
        assert!(breaker.admit(Instant::now()).is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let probe = breaker.admit(Instant::now()).expect("the second probe");
        slow.failed();
        assert_eq!(breaker.state(), CircuitBreakerState::HalfOpen, "the second one decides");
        probe.responded();
        assert_eq!(breaker.state(), CircuitBreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_window_forgets_old_failures() {
        let breaker = breaker();
        for _ in 0..3 {
            end(&breaker, true);
        }
        tokio::time::sleep(OPTIONS.window).await;
        end(&breaker, true);
        assert_eq!(breaker.state(), CircuitBreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_switched_off_admits_everything() {
        let breaker = Arc::new(Breaker::new(None));
        for _ in 0..100 {
            end(&breaker, true);
        }
        assert_eq!(breaker.state(), CircuitBreakerState::Closed);
    }
}
