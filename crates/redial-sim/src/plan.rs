//! What a policy will do: when its attempts start, how likely a call succeeds, and how much load it adds.
//!
//! The timeline is played on the state machine with `redial::testing`. The curves are simulations with
//! many calls of one client, so that its retry budget takes part.
//!
//! ```
//! use redial_core::ms;
//! use redial_sim::plan::{Assumptions, plan};
//! use redial_sim::CallPolicy;
//!
//! let plan = plan("default", &CallPolicy::default(), &Assumptions::default())?;
//! assert_eq!(plan.attempts.len(), 3);
//! assert_eq!(plan.worst_case.attempts, Some(3));
//! # Ok::<(), redial_sim::Error>(())
//! ```

use std::ops::ControlFlow;
use std::time::Duration;

use redial::AnyPolicy;
use redial::testing::{AttemptOutcome, Play, Script, classified_as, hangs};
use redial_core::{AttemptTimeoutAction, Policy, Random, Rules, StopReason};
use serde::Serialize;

use crate::distribution::Sampler;
use crate::error::Error;
use crate::model::{Load, Service, Simulation, Variant};
use crate::run::{Watch, sweep_watched};
use crate::{CallPolicy, Distribution, Latency, PolicyReport, ThrottleSpec};

/// The largest number of attempts in a timeline.
pub const ATTEMPTS_SHOWN_MAX: usize = 20;

/// The largest number of attempts that are played to find when a call gives up.
pub const ATTEMPTS_PLAYED_MAX: usize = 10_000;

/// Calls per point of a curve.
const CALLS: u64 = 20_000;
/// Fewer calls are made if they would need more attempts than this, but at least [`CALLS_MIN`].
const ATTEMPTS: f64 = 2e6;
const CALLS_MIN: u64 = 100;
/// A run of a policy with more attempts per call than this ends [`REST`] after the start of the last call.
const ATTEMPTS_UNWATCHED: u32 = 1000;
const REST: Duration = Duration::from_secs(60);
/// Calls per second of the simulated client.
const CALLS_PER_SECOND: f64 = 100.0;
/// The failure rates of the curves, in steps of a twentieth.
const STEPS: u32 = 20;

/// What a plan assumes about the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// The latency of an attempt.
    pub latency: Distribution,
    /// The share of attempts that fail, independently of each other.
    pub failure_rate: f64,
    /// The seed of the simulations.
    pub seed: u64,
}

impl Default for Assumptions {
    /// Lognormal latency with a median of 20 ms, and one attempt in ten fails.
    fn default() -> Self {
        let latency = Distribution::Lognormal { median: Duration::from_millis(20), sigma: 0.4 };
        Assumptions { latency, failure_rate: 0.1, seed: 1 }
    }
}

/// What a policy will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyPlan {
    /// The name of the policy.
    pub name: String,
    /// The sentences that matter most.
    pub summary: Vec<String>,
    /// When each attempt of a call starts if all of them fail.
    pub attempts: Vec<AttemptWindow>,
    /// Whether there are more attempts than the list shows.
    pub has_more_attempts: bool,
    /// When a call gives up if all attempts fail; `None`: not while the plan watched.
    pub gives_up_after_seconds: Window,
    /// Why it gives up then.
    pub gives_up_because: Option<&'static str>,
    /// The deadline of the call.
    pub deadline_seconds: Option<f64>,
    /// The most that one call can cost.
    pub worst_case: WorstCase,
    /// Whether the policy hedges.
    pub hedges: bool,
    /// The given failure rate.
    pub failure_rate: f64,
    /// The share of calls that succeed at that rate.
    pub success: f64,
    /// Attempts per call at that rate.
    pub amplification: f64,
    /// Attempts per call if nothing fails: more than 1 with hedging.
    pub healthy_amplification: f64,
    /// Latency of calls if nothing fails, with this policy.
    pub latency: Latency,
    /// The same with a single attempt.
    pub latency_of_one_attempt: Latency,
    /// Attempts per call, and successes, for failure rates from 0 to 1.
    pub curve: Vec<CurvePoint>,
}

/// The start of an attempt, in seconds from the start of the call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AttemptWindow {
    /// The number, from 1.
    pub number: usize,
    /// The start.
    #[serde(flatten)]
    pub starts: Window,
}

/// A time in seconds: at the earliest, typically, and at the latest. `None`: it does not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Attempts fail at once, and the jitter is the shortest.
    pub earliest: Option<f64>,
    /// Attempts take the median latency, and the jitter is in the middle.
    pub typical: Option<f64>,
    /// Attempts take the 99th percentile, or the attempt timeout if there is one, and the jitter is the
    /// longest. The deadline, for what such a call does not reach.
    pub latest: Option<f64>,
}

/// The most that one call can cost if servers send no hints, which can make a backoff longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorstCase {
    /// Attempts; `None`: without a limit.
    pub attempts: Option<u32>,
    /// Seconds; `None`: there is no limit, or the call makes more than [`ATTEMPTS_PLAYED_MAX`] attempts before it
    /// gives up.
    pub seconds: Option<f64>,
    /// Whether there is a limit of time.
    pub has_time_limit: bool,
}

/// A point of the curves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The share of attempts that fail.
    pub failure_rate: f64,
    /// The share of calls that succeed.
    pub success: f64,
    /// Attempts per call, with the throttle of the policy.
    pub amplification: f64,
}

/// Plans a policy.
///
/// # Errors
/// An assumption is wrong, or the throttle cannot be built.
pub fn plan(name: &str, policy: &CallPolicy, on: &Assumptions) -> Result<PolicyPlan, Error> {
    plan_watched(name, policy, on, &|_| ControlFlow::Continue(()))
}

/// The same as [`plan`], and `watch` can stop it: a policy without a limit on attempts can take long.
///
/// # Errors
/// An assumption is wrong, the throttle cannot be built, or `watch` stopped the simulations.
pub fn plan_watched(
    name: &str,
    policy: &CallPolicy,
    on: &Assumptions,
    watch: &Watch<'_>,
) -> Result<PolicyPlan, Error> {
    if let Some(problem) = on.latency.problem() {
        return Err(Error::invalid("latency", problem));
    }
    let rates = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
    let single = CallPolicy::new(
        Policy::new(Rules { attempts: Some(1), ..Rules::DEFAULT }),
        ThrottleSpec::None,
    )
    .map_err(|error| Error::invalid("policy", error.to_string()))?;
    let mut simulations: Vec<Simulation> =
        rates.clone().map(|rate| simulation(policy, on, rate)).collect();
    simulations.push(simulation(policy, on, on.failure_rate));
    simulations.push(simulation(&single, on, 0.0));
    let mut reports = Vec::new();
    for mut report in sweep_watched(&simulations, watch)? {
        reports.push(report.policies.remove(0));
    }
    let (Some(one), Some(given)) = (reports.pop(), reports.pop()) else {
        return Err(Error::invalid("policy", "no simulation ran"));
    };
    let point = |(failure_rate, report): (f64, &PolicyReport)| CurvePoint {
        failure_rate,
        success: report.succeeded as f64 / report.calls.max(1) as f64,
        amplification: report.amplification,
    };
    let mut plan = timeline(name, policy, &on.latency);
    plan.failure_rate = on.failure_rate;
    plan.success = given.succeeded as f64 / given.calls.max(1) as f64;
    plan.amplification = given.amplification;
    plan.latency = reports[0].latency;
    plan.healthy_amplification = reports[0].amplification;
    plan.latency_of_one_attempt = one.latency;
    plan.curve = rates.zip(&reports).map(point).collect();
    plan.summary = summary(&plan);
    Ok(plan)
}

/// Calls of one client to a server that fails at this rate.
fn simulation(policy: &CallPolicy, on: &Assumptions, failure_rate: f64) -> Simulation {
    let mut simulation = Simulation::new("plan", crate::limits::DURATION_MAX);
    simulation.seed = on.seed;
    simulation.clients.load = Load::Even { calls_per_second: CALLS_PER_SECOND };
    let rules = policy.policy().rules();
    let calls = calls(rules.attempts, failure_rate, policy.throttle());
    simulation.clients.calls_max = Some(calls);
    let mut service = Service::new("server", on.latency.clone());
    service.failure_rate = failure_rate;
    // A policy without a limit would retry without end if everything fails.
    if rules.attempts.is_none_or(|attempts| attempts > ATTEMPTS_UNWATCHED) {
        simulation.duration = Duration::from_secs_f64(calls as f64 / CALLS_PER_SECOND) + REST;
    }
    simulation.services.push(service);
    simulation.policies.push(Variant::new("policy", policy.clone()));
    simulation
}

/// The number of calls that show the load of a policy with bounded work. A throttle bounds it already.
fn calls(attempts: Option<u32>, failure_rate: f64, throttle: &ThrottleSpec) -> u64 {
    if *throttle != ThrottleSpec::None {
        return CALLS;
    }
    let most = attempts.map_or(f64::INFINITY, f64::from);
    // The sum of the first powers of the failure rate.
    let mean = match failure_rate {
        1.0 => most,
        rate => (1.0 - rate.powf(most)) / (1.0 - rate),
    };
    ((ATTEMPTS / mean) as u64).clamp(CALLS_MIN, CALLS)
}

/// The times of a call whose attempts all fail.
struct Played {
    starts: Vec<f64>,
    end: Option<f64>,
    reason: Option<StopReason>,
}

fn play(policy: &CallPolicy, draw: f64, outcome: AttemptOutcome) -> Played {
    let any = AnyPolicy::from_core(policy.policy().clone());
    // What comes after the attempts that are played never ends.
    let script = std::iter::repeat_n(outcome, ATTEMPTS_PLAYED_MAX).chain([hangs()]);
    let played = Play::new().draws([draw]).call(Script::new(&any, script)).run().remove(0);
    let starts: Vec<f64> = played.starts().iter().map(Duration::as_secs_f64).collect();
    let is_whole = starts.len() <= ATTEMPTS_PLAYED_MAX;
    let end = played.end().filter(|_| is_whole).map(|end| end.at.as_secs_f64());
    Played { starts, end, reason: played.stop_reason().filter(|_| is_whole) }
}

fn timeline(name: &str, policy: &CallPolicy, latency: &Distribution) -> PolicyPlan {
    /// The largest draw below 1.
    const LONGEST: f64 = 1.0 - f64::EPSILON;
    let rules = policy.policy().rules();
    let fails = classified_as(policy.failures().failed);
    let (median, slow) = percentiles(latency);
    let slowest = match rules.attempt_timeout {
        Some(_) if rules.attempt_timeout_action == AttemptTimeoutAction::Retry => hangs(),
        // The attempt fails just in time to be retried.
        Some(timeout) => fails.after(timeout),
        None => fails.after(slow),
    };
    let earliest = play(policy, 0.0, fails);
    let typical = play(policy, 0.5, fails.after(median));
    let latest = play(policy, LONGEST, slowest);
    let most = [&earliest, &typical, &latest].map(|it| it.starts.len()).into_iter().max();
    let most = most.unwrap_or(0);
    let deadline = rules.deadline.map(|deadline| deadline.as_secs_f64());
    // An attempt that the slowest call does not reach may start until the deadline in others.
    let is_cut = latest.starts.len() < most;
    let window = |index: usize| Window {
        earliest: earliest.starts.get(index).copied(),
        typical: typical.starts.get(index).copied(),
        latest: latest.starts.get(index).copied().or(deadline),
    };
    let attempts = (0..most.min(ATTEMPTS_SHOWN_MAX))
        .map(|index| AttemptWindow { number: index + 1, starts: window(index) });
    let seconds = deadline.or(latest.end.filter(|_| rules.attempt_timeout.is_some()));
    let has_limited_attempts = rules.attempts.is_some() && rules.attempt_timeout.is_some();
    PolicyPlan {
        name: name.to_owned(),
        summary: Vec::new(),
        attempts: attempts.collect(),
        has_more_attempts: most > ATTEMPTS_SHOWN_MAX,
        gives_up_after_seconds: Window {
            earliest: earliest.end,
            typical: typical.end,
            latest: if is_cut { deadline.or(latest.end) } else { latest.end },
        },
        gives_up_because: typical.reason.map(StopReason::text),
        deadline_seconds: deadline,
        worst_case: WorstCase {
            attempts: rules.attempts,
            seconds,
            has_time_limit: seconds.is_some() || has_limited_attempts,
        },
        hedges: rules.hedge.is_some(),
        failure_rate: 0.0,
        success: 0.0,
        amplification: 0.0,
        healthy_amplification: 1.0,
        latency: Latency::default(),
        latency_of_one_attempt: Latency::default(),
        curve: Vec::new(),
    }
}

/// The median and the 99th percentile of a distribution, by many draws.
fn percentiles(latency: &Distribution) -> (Duration, Duration) {
    const DRAWS: usize = 10_001;
    let sampler = Sampler::new(latency);
    let mut random = Random::new(1);
    let mut draws: Vec<u64> = (0..DRAWS).map(|_| sampler.draw(&mut random)).collect();
    draws.sort_unstable();
    (Duration::from_nanos(draws[DRAWS / 2]), Duration::from_nanos(draws[DRAWS * 99 / 100]))
}

fn summary(plan: &PolicyPlan) -> Vec<String> {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut lines = vec![format!(
        "with {} of attempts failing, {} of calls succeed, with {:.2} attempts per call",
        percent(plan.failure_rate),
        percent(plan.success),
        plan.amplification
    )];
    if let Some(last) = plan.curve.last() {
        lines.push(format!(
            "in an outage, when every attempt fails, the load is {:.2} times the calls",
            last.amplification
        ));
    }
    let worst = "worst case of one call, without server hints:";
    match (plan.worst_case.attempts, plan.worst_case.seconds) {
        (Some(attempts), Some(seconds)) => {
            lines.push(format!("{worst} {attempts} attempts in {seconds:.3} s"));
        }
        (attempts, seconds) => {
            let attempts = attempts.map_or("attempts without a limit".to_owned(), |attempts| {
                format!("{attempts} attempts")
            });
            let time = match seconds {
                Some(seconds) => format!("{seconds:.3} s"),
                None if plan.worst_case.has_time_limit => format!(
                    "a time that is not computed beyond {ATTEMPTS_PLAYED_MAX} attempts: add a deadline"
                ),
                None if plan.worst_case.attempts.is_none() => {
                    "no limit of time: add a deadline".to_owned()
                }
                None => "no limit of time: add a deadline or an attempt timeout".to_owned(),
            };
            lines.push(format!("{worst} {attempts}, {time}"));
        }
    }
    if let (Some(deadline), Some(end)) = (plan.deadline_seconds, plan.gives_up_after_seconds.latest)
        && end >= deadline
    {
        lines.push(format!("the deadline of {deadline} s can cut the last attempts off"));
    }
    if plan.hedges {
        lines.push(format!(
            "hedging, if nothing fails: p99 {:.1} ms instead of {:.1} ms, p99.9 {:.1} ms instead of {:.1} ms, for \
             {:.1} % more load",
            plan.latency.p99_ms,
            plan.latency_of_one_attempt.p99_ms,
            plan.latency.p999_ms,
            plan.latency_of_one_attempt.p999_ms,
            (plan.healthy_amplification - 1.0) * 100.0
        ));
    }
    lines
}
